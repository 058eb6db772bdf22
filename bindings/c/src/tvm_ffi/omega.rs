//! The Omega rule for tvm-ffi: forward and backward passes, streams of tokens, and packed documents.
//!
//! A rule is given as numbers, and its sizes are those of its tensors. Workspaces are kept from call to call.

use super::convention::{CurrentStream, TvmFfiAny, answer, answer_whole, current_stream, place, values};
use super::spaces::{SpaceKey, Spaces};
use crate::calls::{Callee, Given, Param};
use crate::dlpack::{self, DLTensor};
use crate::omega::{Backward, Forward, MEMORIES, Packed, Pieces, Push, RuleSizes, STEPS, Training, rule_of};
use crate::status::{Failure, Result};
use atlas::Device;
use atlas::device::Stream;
use atlas::kernel::DType;
use atlas::ops::omega::{MemoryForm, OmegaRule};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

/// A function of this file.
struct OmegaFunction {
    name: &'static str,
    /// Its numbers, which stand before its tensors.
    numbers: &'static [&'static str],
    /// Its tensors, for messages.
    tensors: &'static str,
}

/// Weights and momenta are as many as the memory has, and a norm is given to a memory with one.
static FORWARD: OmegaFunction = OmegaFunction {
    name: "omega_forward",
    numbers: &RULE,
    tensors: "q, k, v, rq, rk, alpha, theta, eta, gamma, norm if there is one, weights and momenta, y, and the states kept for each of them",
};
static BACKWARD: OmegaFunction = OmegaFunction {
    name: "omega_backward",
    numbers: &RULE,
    tensors: "q, k, v, rq, rk, alpha, theta, eta, gamma, norm if there is one, the states kept, dy, gradients by the last weights and \
              momenta, dq, dk, dv, drk, dalpha, dtheta, deta, dgamma, dnorm if there is one, and gradients by the first weights and momenta",
};
static STREAM: OmegaFunction = OmegaFunction {
    name: "omega_stream_open",
    numbers: &["memory", "step", "chunk", "window", "piece", "before", "predicts", "scale", "eps", "hidden"],
    tensors: "q, v and norm if there is one, for their sizes",
};
static PUSH: OmegaFunction = OmegaFunction {
    name: "omega_stream_push",
    numbers: &["stream"],
    tensors: "q, k, v, rq, rk, alpha, theta, eta, gamma, weights and momenta, y",
};
static RESTART: OmegaFunction = OmegaFunction { name: "omega_stream_restart", numbers: &["stream"], tensors: "" };
static BYTES: OmegaFunction = OmegaFunction { name: "omega_stream_bytes", numbers: &["stream"], tensors: "" };
static CLOSE: OmegaFunction = OmegaFunction { name: "omega_stream_close", numbers: &["stream"], tensors: "" };
static EMPTY_CACHE: OmegaFunction = OmegaFunction { name: "omega_empty_cache", numbers: &[], tensors: "" };
static PACKED: OmegaFunction = OmegaFunction {
    name: "omega_packed",
    numbers: &["memory", "step", "chunk", "longest", "before", "predicts", "scale", "eps"],
    tensors: "q, k, v, rq, rk, alpha, theta, eta, gamma, norm if there is one, starts, weights and momenta, y",
};

/// `segment` 0 stands for about the square root of all chunks.
const RULE: [&str; 8] = ["memory", "step", "chunk", "segment", "before", "predicts", "scale", "eps"];

static TRAININGS: Spaces<Training> = Spaces::new();
static DOCUMENTS: Spaces<Packed> = Spaces::new();

/// Streams of tokens by their number.
struct Streams {
    open: BTreeMap<i64, Arc<Pieces>>,
    last: i64,
}

static STREAMS: Mutex<Streams> = Mutex::new(Streams { open: BTreeMap::new(), last: 0 });

impl Callee for OmegaFunction {
    fn name(&self) -> &'static str {
        self.name
    }

    fn param(&self, number: usize) -> Option<Param> {
        let name = self.numbers.get(number).copied().unwrap_or("a tensor");
        Some(Param { name, is_float: ["scale", "eps"].contains(&name) })
    }

    fn signature(&self) -> String {
        let params: Vec<&str> =
            self.numbers.iter().copied().chain((!self.tensors.is_empty()).then_some(self.tensors)).collect();
        format!("{}({})", self.name, params.join(", "))
    }
}

/// The arguments of a call that are not taken yet, from the first to the last.
struct Remaining<'a> {
    of: &'static OmegaFunction,
    args: &'a [TvmFfiAny],
    at: usize,
}

impl<'a> Remaining<'a> {
    /// # Safety
    /// They are values of tvm-ffi that live as long as the result.
    unsafe fn new(of: &'static OmegaFunction, args: &'a [TvmFfiAny]) -> Remaining<'a> {
        Remaining { of, args, at: 0 }
    }

    fn refuse(&self, what: &dyn Display) -> Failure {
        let (name, signature) = (self.of.name, self.of.signature());
        Failure::misuse(format_args!("{what} of `{name}`; its signature is {signature}"))
    }

    fn next(&mut self) -> Result<Given<'a>> {
        let Some(arg) = self.args.get(self.at) else {
            return Err(self.refuse(&format_args!("{} arguments are too few", self.args.len())));
        };
        self.at += 1;
        // SAFETY: it is a value of tvm-ffi, as `new` was promised.
        unsafe { arg.given(self.of, self.at - 1) }
    }

    fn whole(&mut self) -> Result<usize> {
        let name = self.of.numbers.get(self.at).copied().unwrap_or_default();
        match self.next()? {
            Given::Whole(x) if x >= 0 => Ok(x as usize),
            _ => Err(self.refuse(&format_args!("a whole number from 0 on is wanted for `{name}`"))),
        }
    }

    fn real(&mut self) -> Result<f32> {
        let name = self.of.numbers.get(self.at).copied().unwrap_or_default();
        let found = match self.next()? {
            Given::Real(x) => Some(x),
            Given::Whole(x) => Some(x as f64),
            Given::Tensor(_) => None,
        };
        let found = found.filter(|x| DType::F32.overflow(*x).is_none());
        let refused = || self.refuse(&format_args!("a number that f32 can hold is wanted for `{name}`"));
        found.map(|x| x as f32).ok_or_else(refused)
    }

    fn one_of<'n>(&mut self, names: &[&'n str]) -> Result<&'n str> {
        let name = self.of.numbers.get(self.at).copied().unwrap_or_default();
        let found = self.whole()?;
        let refused =
            || self.refuse(&format_args!("`{name}` is {found}, and one of 0 to {} is wanted", names.len() - 1));
        names.get(found).copied().ok_or_else(refused)
    }

    fn tensor(&mut self) -> Result<&'a DLTensor> {
        match self.next()? {
            Given::Tensor(tensor) => Ok(tensor),
            _ => Err(self.refuse(&format_args!("argument {} has to be a tensor", self.at - 1))),
        }
    }

    fn tensors(&mut self, count: usize) -> Result<Vec<&'a DLTensor>> {
        (0..count).map(|_| self.tensor()).collect()
    }

    fn tokens(&mut self) -> Result<[Option<&'a DLTensor>; 9]> {
        let mut tokens = [None; 9];
        for token in &mut tokens {
            *token = Some(self.tensor()?);
        }
        Ok(tokens)
    }

    /// The norm of a memory that has one.
    fn norm(&mut self, rule: &OmegaRule) -> Result<Option<&'a DLTensor>> {
        matches!(rule.memory, MemoryForm::Normed { .. }).then(|| self.tensor()).transpose()
    }

    fn done(&self) -> Result<()> {
        match self.args.len() - self.at {
            0 => Ok(()),
            more => Err(self.refuse(&format_args!("{} arguments are {more} too many", self.args.len()))),
        }
    }
}

/// The rule and the sizes of a call whose first argument is `q`.
struct Call {
    rule: OmegaRule,
    sizes: RuleSizes,
    /// The segment of a training, or the longest document.
    extent: usize,
}

/// What stands before the tensors of a call: the numbers of a rule, and how far it goes at once.
struct Numbers {
    memory: &'static str,
    step: &'static str,
    chunk: usize,
    extent: usize,
    before: bool,
    predicts: bool,
    scale: f32,
    eps: f32,
}

impl Numbers {
    fn of(args: &mut Remaining<'_>) -> Result<Numbers> {
        Ok(Numbers {
            memory: args.one_of(&MEMORIES)?,
            step: args.one_of(&STEPS)?,
            chunk: args.whole()?,
            extent: args.whole()?,
            before: args.whole()? != 0,
            predicts: args.whole()? != 0,
            scale: args.real()?,
            eps: args.real()?,
        })
    }

    fn rule(&self, window: usize) -> Result<OmegaRule> {
        let memory = (self.memory, self.eps);
        rule_of(memory, self.step, [self.chunk, window], (self.scale, self.predicts), self.before)
    }

    /// The rule on tokens. A memory has as many hidden elements as the last axis of its first tensor.
    ///
    /// # Safety
    /// The tensors are those of tvm-ffi.
    unsafe fn call(&self, args: &Remaining<'_>, tokens: &[Option<&DLTensor>; 9]) -> Result<Call> {
        let [Some(q), _, Some(v), .., Some(gamma)] = tokens else { return Err(args.refuse(&"tokens are missing")) };
        let rank = |tensor: &DLTensor, name: &str| -> Result<[usize; 4]> {
            // SAFETY: the caller's promise.
            let shape = unsafe { shape_of(tensor) };
            let refused = || Failure::misuse(format_args!("`{name}` has shape {shape:?}; four axes are wanted"));
            shape.as_slice().try_into().map_err(|_| refused())
        };
        let ([sequences, tokens, heads, key], [.., value], [.., window]) =
            (rank(q, "q")?, rank(v, "v")?, rank(gamma, "gamma")?);
        let dtype = dlpack::dtype(q.dtype).filter(|dtype| dtype.is_float() && dtype.bytes() <= 4);
        let dtype =
            dtype.ok_or_else(|| Failure::misuse("`q` has elements that no rule takes; f32, f16 and bf16 are taken"))?;
        let sizes = RuleSizes { sequences, heads, tokens, key, value, hidden: 0, dtype };
        Ok(Call { rule: self.rule(window)?, sizes, extent: self.extent })
    }
}

impl Call {
    /// How many weights the memory has.
    fn weights(&self) -> usize {
        self.rule.memory.matrices(1, 1, 1).len()
    }

    /// Takes the hidden elements of a memory from its first tensor.
    ///
    /// # Safety
    /// They are tensors of tvm-ffi.
    unsafe fn set_hidden(&mut self, memory: &[&DLTensor]) {
        if self.rule.memory != MemoryForm::Linear {
            // SAFETY: the caller's promise.
            let last = memory.first().and_then(|tensor| unsafe { shape_of(tensor) }.last().copied());
            self.sizes.hidden = last.unwrap_or(0);
        }
    }

    fn key(&self, device: &Device, stream: &Stream) -> SpaceKey {
        let RuleSizes { sequences, heads, tokens, key, value, hidden, dtype } = self.sizes;
        let (device, stream) = (device.id(), stream.as_raw().addr());
        SpaceKey {
            device,
            stream,
            rule: self.rule,
            sizes: [sequences, heads, tokens, key, value, hidden, self.extent],
            dtype,
        }
    }

    fn training(&self, device: &Device, stream: &Stream) -> Result<Arc<Training>> {
        let segment = (self.extent > 0).then_some(self.extent);
        TRAININGS.get(self.key(device, stream), stream, || Training::new(device, self.rule, &self.sizes, segment))
    }
}

/// The sizes of a tensor's axes; those below 0 are refused where it is borrowed.
///
/// # Safety
/// It is a tensor of DLPack.
unsafe fn shape_of(tensor: &DLTensor) -> Vec<usize> {
    let rank = usize::try_from(tensor.ndim).unwrap_or(0);
    match tensor.shape.is_null() {
        true => Vec::new(),
        // SAFETY: DLPack has one number for each axis.
        false => unsafe { std::slice::from_raw_parts(tensor.shape, rank) }
            .iter()
            .map(|&size| usize::try_from(size).unwrap_or(0))
            .collect(),
    }
}

/// # Safety
/// They are values of tvm-ffi, whose tensors are as `atlas_launch` says, and streams are as [`place`] says.
pub(crate) unsafe fn forward(args: &[TvmFfiAny], streams: CurrentStream) -> Result<()> {
    // SAFETY: the caller's promise, here and below.
    let ((device, stream), mut args) = unsafe { (place(&FORWARD, args, streams)?, Remaining::new(&FORWARD, args)) };
    let numbers = Numbers::of(&mut args)?;
    let tokens = args.tokens()?;
    // SAFETY: as above.
    let mut call = unsafe { numbers.call(&args, &tokens) }?;
    let norm = args.norm(&call.rule)?;
    let memory = args.tensors(2 * call.weights())?;
    let y = args.tensor()?;
    let kept = args.tensors(2 * call.weights())?;
    args.done()?;
    // SAFETY: as above.
    unsafe {
        call.set_hidden(&memory);
        call.training(&device, &stream)?.forward(&stream, &Forward { tokens, norm, memory, y, kept })
    }
}

/// # Safety
/// As [`forward`].
pub(crate) unsafe fn backward(args: &[TvmFfiAny], streams: CurrentStream) -> Result<()> {
    // SAFETY: the caller's promise, here and below.
    let ((device, stream), mut args) = unsafe { (place(&BACKWARD, args, streams)?, Remaining::new(&BACKWARD, args)) };
    let numbers = Numbers::of(&mut args)?;
    let tokens = args.tokens()?;
    // SAFETY: as above.
    let mut call = unsafe { numbers.call(&args, &tokens) }?;
    let norm = args.norm(&call.rule)?;
    let kept = args.tensors(2 * call.weights())?;
    let dy = args.tensor()?;
    let final_memory = args.tensors(2 * call.weights())?;
    let mut gradients = [None; 9];
    for gradient in &mut gradients[..8] {
        *gradient = Some(args.tensor()?);
    }
    gradients[8] = args.norm(&call.rule)?;
    let of_memory = args.tensors(2 * call.weights())?.into_iter().map(Some).collect();
    args.done()?;
    // SAFETY: as above.
    unsafe {
        call.set_hidden(&kept);
        let given = Backward { tokens, norm, kept, dy, final_memory, gradients, of_memory };
        call.training(&device, &stream)?.backward(&stream, &given)
    }
}

/// # Safety
/// As [`forward`].
pub(crate) unsafe fn packed(args: &[TvmFfiAny], streams: CurrentStream) -> Result<()> {
    // SAFETY: the caller's promise, here and below.
    let ((device, stream), mut args) = unsafe { (place(&PACKED, args, streams)?, Remaining::new(&PACKED, args)) };
    let numbers = Numbers::of(&mut args)?;
    let tokens = args.tokens()?;
    // SAFETY: as above.
    let mut call = unsafe { numbers.call(&args, &tokens) }?;
    let norm = args.norm(&call.rule)?;
    let starts = args.tensor()?;
    let memory = args.tensors(2 * call.weights())?;
    let y = args.tensor()?;
    args.done()?;
    // SAFETY: as above.
    unsafe {
        call.set_hidden(&memory);
        // One memory for each document, in a row of the longest one's tokens.
        call.sizes.sequences = memory.first().and_then(|w| shape_of(w).first().copied()).unwrap_or(0);
        call.sizes.tokens = call.extent;
        let make = || Packed::new(&device, call.rule, &call.sizes, None);
        let packed = DOCUMENTS.get(call.key(&device, &stream), &stream, make)?;
        packed.launch_with(&stream, norm, &Push { tokens, memory, y }, starts)
    }
}

/// # Safety
/// As [`forward`]; a norm lives as long as the stream is open.
unsafe fn open(args: &[TvmFfiAny]) -> Result<i64> {
    // SAFETY: the caller's promise, here and below.
    let ((device, _), mut args) = unsafe { (place(&STREAM, args, current_stream)?, Remaining::new(&STREAM, args)) };
    let (memory, step) = (args.one_of(&MEMORIES)?, args.one_of(&STEPS)?);
    let (chunk, window, piece) = (args.whole()?, args.whole()?, args.whole()?);
    let (before, predicts) = (args.whole()? != 0, args.whole()? != 0);
    let (scale, eps, hidden) = (args.real()?, args.real()?, args.whole()?);
    let rule = rule_of((memory, eps), step, [chunk, window], (scale, predicts), before)?;
    let (q, v) = (args.tensor()?, args.tensor()?);
    let norm = args.norm(&rule)?;
    args.done()?;
    // SAFETY: as above.
    let (shape, value) = unsafe { (shape_of(q), shape_of(v)) };
    let (&[sequences, _, heads, key], &[_, _, _, value]) = (&shape[..], &value[..]) else {
        return Err(args.refuse(&format_args!("`q` and `v` have shapes {shape:?} and {value:?}")));
    };
    let dtype = dlpack::dtype(q.dtype).filter(|dtype| dtype.is_float() && dtype.bytes() <= 4);
    let dtype =
        dtype.ok_or_else(|| Failure::misuse("`q` has elements that no rule takes; f32, f16 and bf16 are taken"))?;
    let sizes = RuleSizes { sequences, heads, tokens: piece, key, value, hidden, dtype };
    // SAFETY: as above.
    let pieces = Arc::new(unsafe { Pieces::new(&device, rule, &sizes, norm) }?);
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    streams.last += 1;
    let number = streams.last;
    streams.open.insert(number, pieces);
    Ok(number)
}

/// # Safety
/// As [`forward`].
unsafe fn push(args: &[TvmFfiAny]) -> Result<()> {
    // SAFETY: the caller's promise, here and below.
    let ((_, stream), mut args) = unsafe { (place(&PUSH, args, current_stream)?, Remaining::new(&PUSH, args)) };
    let pieces = stream_of(args.whole()?)?;
    let tokens = args.tokens()?;
    let mut rest = args.tensors(args.args.len() - args.at)?;
    let Some(y) = rest.pop() else { return Err(args.refuse(&"`y` is missing in a call")) };
    // SAFETY: as above.
    unsafe { pieces.push(&stream, &Push { tokens, memory: rest, y }) }
}

/// Frees what is kept from call to call.
///
/// # Safety
/// As [`forward`].
unsafe fn empty_cache(args: &[TvmFfiAny]) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { Remaining::new(&EMPTY_CACHE, args) }.done()?;
    TRAININGS.clear(Training::device)?;
    DOCUMENTS.clear(Packed::device)
}

/// An open stream.
fn stream_of(number: usize) -> Result<Arc<Pieces>> {
    let streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = i64::try_from(number).ok().and_then(|number| streams.open.get(&number).cloned());
    found.ok_or_else(|| Failure::misuse(format_args!("no stream of tokens with the number {number} is open")))
}

/// The stream that a call names.
///
/// # Safety
/// As [`forward`].
unsafe fn named(of: &'static OmegaFunction, args: &[TvmFfiAny]) -> Result<Arc<Pieces>> {
    // SAFETY: the caller's promise.
    stream_of(unsafe { number(of, args) }?)
}

/// The number of a stream, which is all that a function takes.
///
/// # Safety
/// As [`forward`].
unsafe fn number(of: &'static OmegaFunction, args: &[TvmFfiAny]) -> Result<usize> {
    // SAFETY: the caller's promise.
    let mut args = unsafe { Remaining::new(of, args) };
    let number = args.whole()?;
    args.done()?;
    Ok(number)
}

macro_rules! functions {
    ($($export:literal $name:ident = |$args:ident| $answer:ident($run:expr);)*) => {
        $(
            /// # Safety
            /// tvm-ffi calls it with values of its own.
            // SAFETY: no kernel and no chain has this name.
            #[unsafe(export_name = $export)]
            unsafe extern "C" fn $name(
                _library: *mut c_void,
                args: *const TvmFfiAny,
                count: i32,
                result: *mut TvmFfiAny,
            ) -> c_int {
                // SAFETY: the caller's promise.
                unsafe {
                    let $args = values(args, count);
                    $answer(result, || $run)
                }
            }
        )*
    };
}

functions! {
    "__tvm_ffi_omega_forward" call_forward = |args| answer(forward(args, current_stream));
    "__tvm_ffi_omega_backward" call_backward = |args| answer(backward(args, current_stream));
    "__tvm_ffi_omega_packed" call_packed = |args| answer(packed(args, current_stream));
    "__tvm_ffi_omega_empty_cache" call_empty_cache = |args| answer(empty_cache(args));
    "__tvm_ffi_omega_stream_open" call_open = |args| answer_whole(open(args));
    "__tvm_ffi_omega_stream_push" call_push = |args| answer(push(args));
    "__tvm_ffi_omega_stream_restart" call_restart = |args| answer(named(&RESTART, args).map(|of| of.restart()));
    "__tvm_ffi_omega_stream_bytes" call_bytes = |args| answer_whole(named(&BYTES, args).map(|of| of.bytes() as i64));
    "__tvm_ffi_omega_stream_close" call_close = |args| answer(number(&CLOSE, args).map(close));
}

/// Closes a stream, if it is open. What it holds is freed when all work on its device has run.
fn close(number: usize) {
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let closed = i64::try_from(number).ok().and_then(|number| streams.open.remove(&number));
    drop(streams);
    if let Some(closed) = closed {
        closed.settle();
    }
}
