//! What stands behind the handles of Omega rules: threads share it, and calls follow each other.

use super::rule::RuleSizes;
use super::tensors::{GivenTokens, TOKENS};
use crate::dlpack::{self, DLTensor};
use crate::status::{Failure, Result};
use atlas::device::Stream;
use atlas::kernel::DType;
use atlas::ops::omega::{MemoryForm, OmegaKept, OmegaPacked, OmegaRule, OmegaStream, OmegaTraining, Tokens};
use atlas::{Device, Tensor};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a forward pass is given.
pub(crate) struct Forward<'a> {
    pub(crate) tokens: GivenTokens<'a>,
    pub(crate) norm: Option<&'a DLTensor>,
    pub(crate) memory: Vec<&'a DLTensor>,
    pub(crate) y: &'a DLTensor,
    pub(crate) kept: Vec<&'a DLTensor>,
}

/// What a backward pass is given. A gradient that is left out is not given out.
pub(crate) struct Backward<'a> {
    pub(crate) tokens: GivenTokens<'a>,
    pub(crate) norm: Option<&'a DLTensor>,
    pub(crate) kept: Vec<&'a DLTensor>,
    pub(crate) dy: &'a DLTensor,
    /// None stands for zeros.
    pub(crate) final_memory: Vec<&'a DLTensor>,
    /// In the order of [`GRADIENTS`].
    pub(crate) gradients: [Option<&'a DLTensor>; 9],
    /// By the memory before the first token: none, or all.
    pub(crate) of_memory: Vec<Option<&'a DLTensor>>,
}

/// What a stream or packed documents are given.
pub(crate) struct Push<'a> {
    pub(crate) tokens: GivenTokens<'a>,
    pub(crate) memory: Vec<&'a DLTensor>,
    pub(crate) y: &'a DLTensor,
}

/// The names of gradients by tokens and by the norm, as `OmegaTraining::gradients_in` asks for them.
const GRADIENTS: [&str; 9] = ["dq", "dk", "dv", "drk", "dalpha", "dtheta", "deta", "dgamma", "dnorm_sum"];

/// A training: its workspace, and forward and backward passes with it.
pub(crate) struct Training {
    device: Device,
    zeros: Zeros,
    /// Of the tensors of the memory.
    names: Vec<String>,
    training: Mutex<OmegaTraining>,
}

impl Training {
    /// A training whose memory is there. `segment` chunks are gone back over at once; without it about the square root of all.
    pub(crate) fn new(device: &Device, rule: OmegaRule, sizes: &RuleSizes, segment: Option<usize>) -> Result<Training> {
        let training = OmegaTraining::new(device, rule, sizes.of_training(), segment)?;
        let zeros = Zeros::new(device, sizes)?;
        // Its memory may be used on any stream from now on.
        device.default_stream().synchronize()?;
        Ok(Training { device: device.clone(), zeros, names: names(&rule), training: Mutex::new(training) })
    }

    /// Where its workspace is.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// How many states a forward pass keeps.
    pub(crate) fn segments(&self) -> usize {
        locked(&self.training).segments()
    }

    /// Bytes of the workspace.
    pub(crate) fn bytes(&self) -> u64 {
        locked(&self.training).bytes()
    }

    /// # Safety
    /// The tensors are as `atlas_launch` says.
    pub(crate) unsafe fn forward(&self, stream: &Stream, given: &Forward<'_>) -> Result<()> {
        // SAFETY: the caller's promise, here and below.
        let tokens = unsafe { self.zeros.tokens(&self.device, &given.tokens) }?;
        // SAFETY: as above.
        let mut memory = unsafe { all(&self.device, "memory", &given.memory) }?;
        // SAFETY: as above.
        let (mut y, norm) = unsafe { (dlpack::borrow(&self.device, &"y", given.y)?, self.norm(given.norm)?) };
        // SAFETY: as above.
        let kept = unsafe { self.kept(&given.kept) }?;
        let mut training = locked(&self.training);
        training.set_norm(norm);
        let mut run = || {
            let mut kept = in_order(&training, &kept)?;
            let mut memory: Vec<&mut Tensor> = memory.iter_mut().collect();
            training.forward(stream, &named(&tokens), &mut memory, &mut y, &mut kept)
        };
        let done = run();
        training.set_norm(None);
        Ok(done?)
    }

    /// # Safety
    /// As [`Training::forward`].
    pub(crate) unsafe fn backward(&self, stream: &Stream, given: &Backward<'_>) -> Result<()> {
        let device = &self.device;
        let (found, wanted) = (given.of_memory.len(), self.names.len());
        if found != 0 && found != wanted {
            return Err(Failure::misuse(format_args!(
                "{found} gradients by the memory are given; it has {wanted} tensors: {}",
                self.names.join(", ")
            )));
        }
        // SAFETY: the caller's promise, here and below.
        let tokens = unsafe { self.zeros.tokens(device, &given.tokens) }?;
        // SAFETY: as above.
        let (dy, norm) = unsafe { (dlpack::borrow(device, &"dy", given.dy)?, self.norm(given.norm)?) };
        // SAFETY: as above.
        let (kept, last) = unsafe { (self.kept(&given.kept)?, all(device, "final memory", &given.final_memory)?) };
        let of_memory = self.names.iter().map(|name| format!("d{name}")).zip(given.of_memory.iter().copied());
        let of_tokens = GRADIENTS.iter().map(|name| (*name).to_owned()).zip(given.gradients);
        let mut rooms = Vec::new();
        for (name, given) in of_tokens.chain(of_memory) {
            if let Some(given) = given {
                // SAFETY: as above.
                let tensor = unsafe { dlpack::borrow(device, &name, given) }?;
                rooms.push((name, tensor));
            }
        }
        let mut training = locked(&self.training);
        training.set_norm(norm);
        let mut run = || {
            let kept = in_order(&training, &kept)?;
            let room = |name: &str, shape: &[usize]| {
                if let Some((_, tensor)) = rooms.iter().find(|(of, _)| of.as_str() == name) {
                    return Ok(tensor.clone());
                }
                // SAFETY: it is used on this stream, and dropped before this function returns.
                let made = unsafe { Tensor::empty_on(stream, &[(DType::F32, shape.to_vec())]) };
                made.map(|mut made| made.remove(0))
            };
            let mut gradients = training.gradients_in(room)?;
            let last: Vec<&Tensor> = last.iter().collect();
            let last = (!last.is_empty()).then_some(&last[..]);
            training.backward(stream, &named(&tokens), &kept, &dy, last, &mut gradients)
        };
        let done = run();
        training.set_norm(None);
        Ok(done?)
    }

    /// # Safety
    /// As [`Training::forward`].
    unsafe fn norm(&self, norm: Option<&DLTensor>) -> Result<Option<Tensor>> {
        // SAFETY: the caller's promise.
        norm.map(|norm| unsafe { dlpack::borrow(&self.device, &"norm", norm) }).transpose()
    }

    /// The states that are kept, one tensor for each of the memory.
    ///
    /// # Safety
    /// As [`Training::forward`].
    unsafe fn kept(&self, given: &[&DLTensor]) -> Result<Vec<Tensor>> {
        let (found, wanted) = (given.len(), self.names.len());
        if found != wanted {
            let names = self.names.join(", ");
            return Err(Failure::misuse(format_args!("{found} tensors are kept; the memory has {wanted}: {names}")));
        }
        // SAFETY: the caller's promise.
        unsafe { all(&self.device, "kept", given) }
    }
}

/// What is kept in these tensors, which are as many as the state has.
fn in_order(training: &OmegaTraining, kept: &[Tensor]) -> atlas::Result<OmegaKept> {
    let mut at = 0;
    training.kept_in(|_, _| {
        at += 1;
        Ok(kept[at - 1].clone())
    })
}

/// A stream of tokens.
pub(crate) struct Pieces {
    device: Device,
    zeros: Zeros,
    /// With the hidden elements of the memory that was pushed last.
    stream: Mutex<(OmegaStream, Option<usize>)>,
}

impl Pieces {
    /// # Safety
    /// As `atlas_launch`; the norm lives as long as the result.
    pub(crate) unsafe fn new(
        device: &Device,
        rule: OmegaRule,
        sizes: &RuleSizes,
        norm: Option<&DLTensor>,
    ) -> Result<Pieces> {
        // SAFETY: the caller's promise.
        let norm = norm.map(|norm| unsafe { dlpack::borrow(device, &"norm", norm) }).transpose()?;
        let stream = OmegaStream::new(device, rule, sizes.of_stream())?;
        let stream = match norm {
            Some(norm) => stream.with_norm(norm),
            None => stream,
        };
        let zeros = Zeros::new(device, sizes)?;
        device.default_stream().synchronize()?;
        Ok(Pieces { device: device.clone(), zeros, stream: Mutex::new((stream, None)) })
    }

    /// # Safety
    /// As `atlas_launch`.
    pub(crate) unsafe fn push(&self, stream: &Stream, given: &Push<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        let (tokens, mut memory, mut y) = unsafe { given.borrowed(&self.device, &self.zeros) }?;
        let mut pieces = locked(&self.stream);
        let (pieces, last) = &mut *pieces;
        let hidden = hidden(&memory);
        let mut memory: Vec<&mut Tensor> = memory.iter_mut().collect();
        ordered(stream, *last != hidden, |stream| pieces.push_on(stream, &named(&tokens), &mut memory, &mut y))?;
        *last = hidden;
        Ok(())
    }

    /// Waits until all work on its device has run, so that it may be dropped.
    pub(crate) fn settle(&self) {
        // A fault of an earlier launch is reported by the next call.
        let _ = self.device.synchronize();
    }

    /// What comes next is the start of a sequence.
    pub(crate) fn restart(&self) {
        locked(&self.stream).0.restart();
    }

    /// Bytes that it holds on its device.
    pub(crate) fn bytes(&self) -> u64 {
        locked(&self.stream).0.bytes()
    }
}

/// A rule on packed documents.
pub(crate) struct Packed {
    device: Device,
    zeros: Zeros,
    /// With the hidden elements of the memory of the last launch. None while it is given a norm.
    packed: Mutex<(Option<OmegaPacked>, Option<usize>)>,
}

impl Packed {
    /// # Safety
    /// As `atlas_launch`; the norm lives as long as the result, unless each launch is given another one.
    pub(crate) unsafe fn new(
        device: &Device,
        rule: OmegaRule,
        sizes: &RuleSizes,
        norm: Option<&DLTensor>,
    ) -> Result<Packed> {
        // SAFETY: the caller's promise.
        let norm = norm.map(|norm| unsafe { dlpack::borrow(device, &"norm", norm) }).transpose()?;
        let default = device.default_stream();
        let packed = OmegaPacked::new(&default, rule, sizes.of_stream())?;
        let packed = match norm {
            Some(norm) => packed.with_norm(norm),
            None => packed,
        };
        let zeros = Zeros::new(device, sizes)?;
        default.synchronize()?;
        Ok(Packed { device: device.clone(), zeros, packed: Mutex::new((Some(packed), None)) })
    }

    /// Where its workspace is.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// # Safety
    /// As `atlas_launch`.
    pub(crate) unsafe fn launch(&self, stream: &Stream, given: &Push<'_>, starts: &DLTensor) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_with(stream, None, given, starts) }
    }

    /// The same with a norm for this launch. A memory with a norm is given one each time, or never.
    ///
    /// # Safety
    /// As `atlas_launch`.
    pub(crate) unsafe fn launch_with(
        &self,
        stream: &Stream,
        norm: Option<&DLTensor>,
        given: &Push<'_>,
        starts: &DLTensor,
    ) -> Result<()> {
        // SAFETY: the caller's promise, here and below.
        let (tokens, mut memory, mut y) = unsafe { given.borrowed(&self.device, &self.zeros) }?;
        // SAFETY: as above.
        let starts = unsafe { dlpack::borrow(&self.device, &"starts", starts) }?;
        // SAFETY: as above.
        let norm = norm.map(|norm| unsafe { dlpack::borrow(&self.device, &"norm", norm) }).transpose()?;
        let mut packed = locked(&self.packed);
        if let Some(norm) = norm {
            packed.0 = packed.0.take().map(|packed| packed.with_norm(norm));
        }
        let (Some(packed), last) = &mut *packed else {
            return Err(Failure::misuse("the packed documents were lost when a norm was given"));
        };
        let hidden = hidden(&memory);
        let mut memory: Vec<&mut Tensor> = memory.iter_mut().collect();
        let launch = |stream: &Stream| packed.launch(stream, &named(&tokens), &starts, &mut memory, &mut y);
        ordered(stream, *last != hidden, launch)?;
        *last = hidden;
        Ok(())
    }

    /// Bytes that it holds on its device.
    pub(crate) fn bytes(&self) -> u64 {
        locked(&self.packed).0.as_ref().map_or(0, OmegaPacked::bytes)
    }
}

impl Push<'_> {
    /// # Safety
    /// As `atlas_launch`.
    unsafe fn borrowed(&self, device: &Device, zeros: &Zeros) -> Result<([Tensor; 9], Vec<Tensor>, Tensor)> {
        // SAFETY: the caller's promise.
        unsafe {
            let (tokens, memory) = (zeros.tokens(device, &self.tokens)?, all(device, "memory", &self.memory)?);
            Ok((tokens, memory, dlpack::borrow(device, &"y", self.y)?))
        }
    }
}

/// A zero that stands for residuals that are left out.
struct Zeros {
    zero: Tensor,
    value: usize,
}

impl Zeros {
    fn new(device: &Device, sizes: &RuleSizes) -> Result<Zeros> {
        Ok(Zeros { zero: Tensor::zeros(device, sizes.dtype, [1; 4])?, value: sizes.value })
    }

    /// The tensors of tokens.
    ///
    /// # Safety
    /// As `atlas_launch`.
    unsafe fn tokens(&self, device: &Device, given: &GivenTokens<'_>) -> Result<[Tensor; 9]> {
        let mut tokens: [Tensor; 9] = std::array::from_fn(|_| self.zero.clone());
        for ((name, given), tensor) in TOKENS.iter().zip(given).zip(&mut tokens) {
            match given {
                // SAFETY: the caller's promise.
                Some(given) => *tensor = unsafe { dlpack::borrow(device, name, given) }?,
                None if name.starts_with('r') => {}
                None => return Err(Failure::misuse(format_args!("`{name}` is null"))),
            }
        }
        // Queries of another rank are refused by that.
        if let &[b, t, h, _] = tokens[0].shape() {
            for (at, given) in given.iter().enumerate() {
                if given.is_none() {
                    tokens[at] = self.zero.expand([b, t, h, self.value])?;
                }
            }
        }
        Ok(tokens)
    }
}

fn named(tokens: &[Tensor; 9]) -> Tokens<'_> {
    let [q, k, v, rq, rk, alpha, theta, eta, gamma] = tokens;
    Tokens { q, k, v, rq, rk, alpha, theta, eta, gamma }
}

/// The names of a memory's tensors: weights, then momenta.
fn names(rule: &OmegaRule) -> Vec<String> {
    let count = rule.memory.matrices(1, 1, 1).len();
    let of = |letter: char| {
        let number = move |at: usize| if rule.memory == MemoryForm::Linear { String::new() } else { at.to_string() };
        (1..=count).map(move |at| format!("{letter}{}", number(at)))
    };
    of('w').chain(of('s')).collect()
}

/// The hidden elements of a memory, by its first matrix.
fn hidden(memory: &[Tensor]) -> Option<usize> {
    memory.first().and_then(|w| w.shape().get(3).copied())
}

/// Runs something on a stream. What allocates runs on the default stream, behind the other one, and is done when this returns: memory is
/// allocated there, and another library's stream does not wait for it.
fn ordered(stream: &Stream, allocates: bool, run: impl FnOnce(&Stream) -> atlas::Result<()>) -> Result<()> {
    if !allocates || stream.device().is_cpu() {
        return Ok(run(stream)?);
    }
    if stream.is_recording()? {
        return Err(Failure::misuse(
            "the first launch with a memory of these sizes allocates, and a graph records it; launch once before that",
        ));
    }
    stream.synchronize()?;
    let default = stream.device().default_stream();
    run(&default)?;
    Ok(default.synchronize()?)
}

/// # Safety
/// As `atlas_launch`.
unsafe fn all(device: &Device, what: &str, given: &[&DLTensor]) -> Result<Vec<Tensor>> {
    // SAFETY: the caller's promise.
    let one = |(at, given): (usize, &&DLTensor)| unsafe { dlpack::borrow(device, &format_args!("{what} {at}"), given) };
    given.iter().enumerate().map(one).collect()
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
