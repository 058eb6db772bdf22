//! Training by the Omega rule: forward over whole sequences, and back, segment by segment.
//!
//! Going back over a chunk takes the state before it. The forward pass keeps the state before each *segment*, which is a number of
//! chunks; the backward pass computes the states inside a segment again. With `C` chunks and segments of about `sqrt(C)` of them,
//! both together hold about `2 sqrt(C)` states. Segments of one chunk keep all states and compute none again; one segment of all
//! chunks keeps one state. How chunks are put into segments changes no gradient but by roundings: launches of other numbers of chunks
//! may take other configs.
//!
//! What is kept of a layer is [`OmegaKept`], and its gradients are [`OmegaGradients`]. All layers of the same sizes can share one
//! [`OmegaTraining`], which has the workspace.

use super::by_chunk::{ByChunk, Over};
use super::segment::{Segments, Views, Workspace};
use super::sizes::TrainingSizes;
use super::trained::{TrainedRule, gradient};
use crate::column_sums::column_sums;
use crate::omega::stream::{arguments, check_memory, check_norm, check_tokens};
use crate::omega::{MIXED, MemoryForm, OmegaRule, Step, StreamSizes, Tokens, copy_tokens_on, open_chunk};
use crate::pass::{Pass, check_apart, check_tensor};
use atlas_dsl::DType;
use atlas_runtime::{Device, LaunchError, Result, Stream, Tensor, Workspace as ChainWorkspace, args};
use std::collections::BTreeMap;
use std::ops::Range;

/// What a layer keeps of its forward pass: the state before each segment.
#[derive(Debug)]
pub struct OmegaKept {
    /// What the memory computes.
    form: MemoryForm,
    states: Vec<Vec<Tensor>>,
    /// Tensors of the caller's that have them, by name.
    given: Vec<(&'static str, Tensor)>,
    /// The tokens of each segment: a state is of no use where another segment begins.
    tokens: Vec<Range<usize>>,
    /// Whether a forward pass has written them.
    is_filled: bool,
}

impl OmegaKept {
    /// Bytes that it takes on its device.
    pub fn bytes(&self) -> u64 {
        self.states.iter().flatten().map(bytes_of).sum()
    }
}

/// The gradients of a loss, all f32. Those of residuals of queries are the gradients of what is read.
#[derive(Debug)]
pub struct OmegaGradients {
    tokens: usize,
    /// By name. Those with tokens have room for whole chunks, but for keys.
    named: Views,
    state: &'static [&'static str],
}

impl OmegaGradients {
    /// Of queries `[B, T, H, D]`.
    pub fn q(&self) -> Tensor {
        self.of("dq")
    }

    /// Of keys `[B, T, H, D]`.
    pub fn k(&self) -> Tensor {
        self.of("dk")
    }

    /// Of values `[B, T, H, E]`.
    pub fn v(&self) -> Tensor {
        self.of("dv")
    }

    /// Of residuals of keys `[B, T, H, E]`.
    pub fn rk(&self) -> Tensor {
        self.of("drk")
    }

    /// Of the gates that keep the memory `[B, T, H]`.
    pub fn alpha(&self) -> Tensor {
        self.of("dalpha")
    }

    /// Of the gates that keep the momentum `[B, T, H]`.
    pub fn theta(&self) -> Tensor {
        self.of("dtheta")
    }

    /// Of steps `[B, T, H]`.
    pub fn eta(&self) -> Tensor {
        self.of("deta")
    }

    /// Of weights in the window `[B, T, H, W]`, the oldest token first.
    pub fn gamma(&self) -> Tensor {
        self.of("dgamma")
    }

    /// Of the memory before the first token, in the order of its tensors: weights, then momenta.
    pub fn memory(&self) -> Vec<Tensor> {
        self.state.iter().filter_map(|name| self.named.get(&gradient(name)).cloned()).collect()
    }

    /// Of the weight of the norm inside the memory, `[H, E]`; none of a memory without one.
    pub fn norm(&self) -> Option<Tensor> {
        self.named.get("dnorm_sum").cloned()
    }

    /// Bytes that they take on their device.
    pub fn bytes(&self) -> u64 {
        self.named.values().map(bytes_of).sum()
    }

    /// The first tokens, of a tensor that may have room for more.
    fn of(&self, name: &str) -> Tensor {
        let all = &self.named[name];
        all.slice(1, 0..self.tokens).unwrap_or_else(|_| all.clone())
    }
}

/// All names of [`OmegaTraining::gradients_in`].
const GRADIENTS: [&str; 18] = [
    "dq",
    "dk",
    "dv",
    "drk",
    "dalpha",
    "dtheta",
    "deta",
    "dgamma",
    "dnorm",
    "dnorm_sum",
    "dw",
    "ds",
    "dw1",
    "dw2",
    "dw3",
    "ds1",
    "ds2",
    "ds3",
];

/// The workspace of forward and backward passes over sequences of one length.
///
/// It serves one pass at a time. Passes on one stream follow each other. Two on CUDA streams that nothing orders write the same
/// workspace and race, and no launch can see that: wait between them ([`Stream::synchronize`]), order the streams by an event of the driver,
/// or have one `OmegaTraining` for each stream.
pub struct OmegaTraining {
    device: Device,
    trained: TrainedRule,
    rule: OmegaRule,
    sizes: TrainingSizes,
    segments: Segments,
    workspace: Workspace,
    /// The workspace of the forward chain, for a segment.
    forward: ChainWorkspace,
    norm: Option<Tensor>,
    by_chunk: Option<ByChunk>,
    /// A zero that is repeated where gradients start.
    zero: Tensor,
}

impl OmegaTraining {
    /// A training by a rule. `segment` chunks are gone back over at once; without it about the square root of all.
    ///
    /// # Errors
    /// Those of [`Tensor::zeros`]; [`LaunchError::Choice`] for a rule that has no gradients here:
    /// with a step for each token, or for each chunk that is read after its step; and where a GPU has no room for the tokens of a chunk
    /// and its keys.
    pub fn new(
        device: &Device,
        rule: OmegaRule,
        sizes: TrainingSizes,
        segment: Option<usize>,
    ) -> Result<OmegaTraining> {
        OmegaTraining::with_form(device, rule, sizes, segment, None)
    }

    /// The same with the passes over a chunk of the backward pass as launches, or in one program, whichever is said.
    pub(super) fn with_form(
        device: &Device,
        rule: OmegaRule,
        sizes: TrainingSizes,
        segment: Option<usize>,
        is_split: Option<bool>,
    ) -> Result<OmegaTraining> {
        let rule = rule.at_least_one();
        let trained = TrainedRule::of(device, &rule, &sizes, is_split)?;
        let segments = Segments::new(&rule.chunking, sizes.tokens, segment);
        let dims = trained.dims(&rule, &sizes, segments.longest());
        let TrainingSizes { sequences, heads, key, value, hidden, dtype, .. } = sizes;
        let by_chunk = match rule.step {
            Step::MuonByChunk => {
                let batch = [sequences, heads, segments.longest()];
                Some(ByChunk::new(device, &rule, dtype, batch, [key, value, hidden])?)
            }
            _ => None,
        };
        let batch = [sequences, heads, key, value, hidden, segments.longest().saturating_mul(rule.chunking.chunk)];
        let forward = open_chunk::workspace(trained.forward, &rule.chunking, device, dtype, batch)?;
        let workspace = Workspace::new(device, &trained, &dims, dtype)?;
        Ok(OmegaTraining {
            device: device.clone(),
            trained,
            rule,
            sizes,
            segments,
            workspace,
            forward,
            norm: None,
            by_chunk,
            zero: Tensor::zeros(device, DType::F32, [1, 1, 1, 1])?,
        })
    }

    /// Sets the weight `[H, E]` of the norm inside the memory, of the element type of tokens, for all passes that follow; `None` takes it
    /// away. A memory with a norm needs one, and no other memory takes one.
    pub fn set_norm(&mut self, norm: impl Into<Option<Tensor>>) {
        self.norm = norm.into();
    }

    /// Room for what one layer keeps.
    ///
    /// # Errors
    /// Those of [`Tensor::zeros`].
    pub fn kept(&self) -> Result<OmegaKept> {
        let states = self.segments.all().map(|_| self.state());
        let tokens = self.segments.all().map(|segment| segment.tokens).collect();
        Ok(OmegaKept {
            form: self.rule.memory,
            states: states.collect::<Result<_>>()?,
            given: Vec::new(),
            tokens,
            is_filled: false,
        })
    }

    /// The same in memory of the caller's: `make` gives a tensor for each of the state, by its name and shape, which is `[S, B, H, ..]`
    /// of [`segments`](OmegaTraining::segments) `S`, f32. It may hold what an earlier [`OmegaTraining::forward`] of this training or of
    /// one like it has kept there, which [`OmegaTraining::backward`] takes it to do.
    ///
    /// # Errors
    /// Those of `make`; [`LaunchError::WrongDevice`], [`LaunchError::WrongRank`], [`LaunchError::WrongShape`] and
    /// [`LaunchError::WrongDType`] of what it gives, `TensorError::NotContiguous` of the state before a segment, and [`LaunchError::Overlap`]
    /// if two of them share memory, of one tensor or of two.
    pub fn kept_in(&self, mut make: impl FnMut(&'static str, &[usize]) -> Result<Tensor>) -> Result<OmegaKept> {
        let TrainingSizes { sequences: b, heads: h, key, value, hidden, .. } = self.sizes;
        let count = self.segments();
        let mut given: Vec<(&'static str, Tensor)> = Vec::new();
        let kernel = self.trained.forward.name;
        let shapes = self.rule.memory.matrices(key, value, hidden).repeat(2);
        for (&name, [rows, columns]) in self.trained.state.iter().zip(shapes) {
            let wanted = [count, b, h, rows, columns];
            let tensor = make(name, &wanted)?;
            let of = (&self.device, DType::F32);
            check_tensor(kernel, (name, &tensor), of, ("[S, B, H, ..]", &wanted))?;
            given.iter().try_for_each(|(other, of)| check_apart(kernel, (name, &tensor), (other, of)))?;
            given.push((name, tensor));
        }
        let part = |at: usize, tensor: &Tensor| {
            let shape: Vec<usize> = tensor.shape()[1..].to_vec();
            tensor.slice(0, at..at + 1)?.reshape(shape)
        };
        // Segments that are equally far apart share memory if the first two do.
        for (name, tensor) in given.iter().filter(|_| count > 1) {
            check_apart(kernel, (name, &part(0, tensor)?), (name, &part(1, tensor)?))?;
        }
        let state = |at: usize| given.iter().map(|(_, tensor)| part(at, tensor)).collect();
        let states = (0..count).map(state).collect::<Result<_>>()?;
        let tokens = self.segments.all().map(|segment| segment.tokens).collect();
        Ok(OmegaKept { form: self.rule.memory, states, given, tokens, is_filled: true })
    }

    /// Room for gradients.
    ///
    /// # Errors
    /// Those of [`Tensor::zeros`].
    pub fn gradients(&self) -> Result<OmegaGradients> {
        self.gradients_in(|_, shape| Tensor::zeros(&self.device, DType::F32, shape))
    }

    /// Room for gradients in memory of the caller's: `make` gives a tensor for each, by its name and shape, f32. Names are those of
    /// [`Tokens`], of the memory and of its norm with a `d` before them: `dq`, `dk`, `dv`, `drk`, `dalpha`, `dtheta`, `deta`, `dgamma`,
    /// `dw1` and `ds1` and so on. `dq` and those of gates have room for whole chunks, `[B, P, H, ..]`, where `P` is the number of tokens
    /// rounded up to whole chunks. `dnorm`, `[B, H, E]`, is the gradient by the norm of each sequence, and `dnorm_sum`, `[H, E]`, that of
    /// all of them.
    ///
    /// # Errors
    /// Those of `make`; [`LaunchError::WrongDevice`], [`LaunchError::WrongRank`], [`LaunchError::WrongShape`] and
    /// [`LaunchError::WrongDType`] of what it gives, and [`LaunchError::Overlap`] if two of them share memory.
    pub fn gradients_in(&self, mut make: impl FnMut(&str, &[usize]) -> Result<Tensor>) -> Result<OmegaGradients> {
        let TrainingSizes { sequences: b, tokens, heads: h, key: d, value: e, hidden, .. } = self.sizes;
        let padded = self.segments.chunks().saturating_mul(self.rule.chunking.chunk);
        let state = self.trained.state;
        let kernel = self.trained.forward.name;
        let mut named = Views::new();
        let mut add = |name: &str, dims: &'static str, shape: &[usize]| -> Result<()> {
            let tensor = make(name, shape)?;
            // Errors have names that stay.
            let of = |name: &str| GRADIENTS.iter().copied().find(|of| *of == name).unwrap_or("gradients");
            let as_of = (of(name), &tensor);
            check_tensor(kernel, as_of, (&self.device, DType::F32), (dims, shape))?;
            named.iter().try_for_each(|(other, tensor)| check_apart(kernel, as_of, (of(other), tensor)))?;
            named.insert(name.to_owned(), tensor);
            Ok(())
        };
        add("dq", "[B, P, H, D]", &[b, padded, h, d])?;
        add("dk", "[B, T, H, D]", &[b, tokens, h, d])?;
        add("dv", "[B, T, H, E]", &[b, tokens, h, e])?;
        add("drk", "[B, T, H, E]", &[b, tokens, h, e])?;
        for name in ["dalpha", "dtheta", "deta"] {
            add(name, "[B, P, H]", &[b, padded, h])?;
        }
        add("dgamma", "[B, P, H, W]", &[b, padded, h, self.rule.chunking.window])?;
        if self.trained.is_normed() {
            add("dnorm", "[B, H, E]", &[b, h, e])?;
            add("dnorm_sum", "[H, E]", &[h, e])?;
        }
        let shapes = self.rule.memory.matrices(d, e, hidden).repeat(2);
        for (name, [rows, columns]) in state.iter().zip(shapes) {
            add(&gradient(name), "[B, H, ..] of `MemoryForm::matrices`", &[b, h, rows, columns])?;
        }
        Ok(OmegaGradients { tokens, named, state })
    }

    /// Bytes of the workspace on its device.
    pub fn bytes(&self) -> u64 {
        self.workspace.bytes() + self.forward.bytes() + self.by_chunk.as_ref().map_or(0, ByChunk::bytes)
    }

    /// Chunks that are gone back over at once.
    pub fn segment(&self) -> usize {
        self.segments.longest()
    }

    /// How many segments there are.
    pub fn segments(&self) -> usize {
        self.segments.all().len()
    }

    /// Reads and trains the memory on all tokens, writes what is read to `y` `[B, T, H, E]`, and keeps in `kept` what
    /// [`OmegaTraining::backward`] needs. `memory` are weights, then momenta, f32. Queues launches alone, so a graph
    /// records all of it ([`Stream::capture`]).
    ///
    /// All launches are made ready before the first one runs.
    ///
    /// # Errors
    /// As [`Launch::launch`](atlas_runtime::Launch::launch); [`LaunchError::WrongRank`], [`LaunchError::WrongShape`] and
    /// [`LaunchError::WrongDType`] of `y` and of a field of [`Tokens`]; [`LaunchError::Choice`] for what another training keeps;
    /// [`LaunchError::MissingTensor`] and [`LaunchError::UnknownTensor`] of the norm of
    /// [`set_norm`](OmegaTraining::set_norm). Memory and `y` are as they were then.
    pub fn forward(
        &mut self,
        stream: &Stream,
        tokens: &Tokens<'_>,
        memory: &mut [&mut Tensor],
        y: &mut Tensor,
        kept: &mut OmegaKept,
    ) -> Result<()> {
        let rule = &self.trained;
        self.check(tokens, ("y", y))?;
        check_memory(rule.forward, tokens, self.norm.as_ref(), memory, y)?;
        self.check_state(memory.iter().map(|tensor| &**tensor))?;
        self.check_kept(kept)?;
        let memories = rule.state.iter().copied().zip(memory.iter().map(|tensor| &**tensor));
        let norm = self.norm.as_ref().map(|norm| ("norm", norm));
        let others: Vec<_> = tokens.named().into_iter().chain(memories).chain(norm).chain([("y", &*y)]).collect();
        for (name, written) in &kept.given {
            others.iter().try_for_each(|other| check_apart(rule.forward.name, (name, written), *other))?;
        }
        drop(others);
        for pass in Pass::BOTH {
            for (segment, kept) in self.segments.all().zip(&mut kept.states) {
                for (from, to) in memory.iter().zip(kept) {
                    copy_tokens_on(pass, stream, from, to)?;
                }
                let mut views: BTreeMap<&str, Tensor> = BTreeMap::new();
                for (name, given) in tokens.named() {
                    views.insert(name, segment.tokens_of(name, given)?);
                }
                views.extend(self.norm.as_ref().map(|norm| ("norm", norm.clone())));
                let mut y = y.slice(1, segment.tokens.clone())?;
                let chunks = segment.chunks();
                open_chunk::resize(rule.forward, &mut self.forward, chunks)?;
                let args = arguments(rule.forward, &self.rule, self.sizes.value, chunks, &views, memory, &mut y);
                pass.chain_on(rule.forward, stream, args, &mut self.forward)?;
            }
        }
        kept.is_filled = true;
        Ok(())
    }

    /// From the gradients `dy` of what was read, `[B, T, H, E]` in the element type of tokens, and `final_memory` by the memory
    /// after the last token, f32 (none: zeros), to the gradients by everything that [`OmegaTraining::forward`] took. `tokens` are
    /// those of that pass. Queues launches alone, so a graph records all of it ([`Stream::capture`]).
    ///
    /// A token that no window of a chunk weighs has no part in that chunk, and neither it nor those weights of 0 have a gradient.
    ///
    /// All launches are made ready before the first one runs.
    ///
    /// # Errors
    /// As [`Launch::launch`](atlas_runtime::Launch::launch); [`LaunchError::WrongRank`], [`LaunchError::WrongShape`] and
    /// [`LaunchError::WrongDType`] of `dy` and of a field of [`Tokens`]; [`LaunchError::Choice`] for gradients of another training, for
    /// what another one keeps, and for a `kept` without a forward pass; [`LaunchError::Overlap`] if gradients share memory with what is
    /// given. The gradients are as they were then.
    pub fn backward(
        &mut self,
        stream: &Stream,
        tokens: &Tokens<'_>,
        kept: &OmegaKept,
        dy: &Tensor,
        final_memory: Option<&[&Tensor]>,
        gradients: &mut OmegaGradients,
    ) -> Result<()> {
        let rule = &self.trained;
        self.check(tokens, ("dy", dy))?;
        self.check_kept(kept)?;
        if !kept.is_filled {
            let (found, mend) = ("a backward pass with nothing kept".to_owned(), "run the forward pass before it");
            return Err(LaunchError::Choice { op: "omega_training", found, mend }.into());
        }
        if let Some(given) = final_memory {
            self.check_count(given.len(), rule.state.len(), &rule.state.join(", "))?;
            self.check_state(given.iter().copied())?;
        }
        if gradients.tokens != self.sizes.tokens || gradients.state != rule.state {
            let found = "the gradients are of another training, with other tokens or another memory".to_owned();
            return Err(
                LaunchError::Choice { op: "omega_training", found, mend: "make them by its `gradients`" }.into()
            );
        }
        check_norm(rule.forward, self.norm.as_ref())?;
        for written in gradients.named.values() {
            let norm = self.norm.as_ref().map(|norm| ("norm", norm));
            let last = final_memory.unwrap_or_default().iter().map(|&given| ("final memory", given));
            let states = kept.given.iter().map(|(name, tensor)| (*name, tensor));
            for (name, given) in tokens.named().into_iter().chain([("dy", dy)]).chain(norm).chain(last).chain(states) {
                check_apart(rule.forward.name, ("gradients", written), (name, given))?;
            }
        }
        let mut given = gradients.named.clone();
        let norm = self.norm.as_ref().map(|norm| ("norm", norm));
        let all = tokens.named().into_iter().chain([(rule.dy, dy)]).chain(norm);
        given.extend(all.map(|(name, tensor)| (name.to_owned(), tensor.clone())));
        // What forward kernels keep beside the mixing weights.
        let own = self.forward.tensors().filter(|(name, _)| !MIXED.contains(name));
        let forward: &Views = &own.map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
        for pass in Pass::BOTH {
            self.start(pass, stream, final_memory, gradients)?;
            for (segment, kept) in self.segments.all().zip(&kept.states).rev() {
                if let Some(by_chunk) = &mut self.by_chunk {
                    let (of, workspace, segment) = ((&self.rule, self.sizes.value), &self.workspace, &segment);
                    let over = Over { pass, stream, trained: rule, of, segment, workspace, given: &given, forward };
                    by_chunk.backward(&over, kept)?;
                    continue;
                }
                let mut views = self.workspace.of_segment(&segment)?;
                for (name, tensor) in rule.state.iter().zip(kept) {
                    views.insert(format!("{name}_start"), tensor.clone());
                }
                for (name, tensor) in &given {
                    views.insert(name.clone(), segment.part_of(name, tensor)?);
                }
                for launches in &rule.backward {
                    segment.launch_all(pass, stream, *launches, &views, (&self.rule, self.sizes.value))?;
                }
            }
            if let (Some(each), Some(all)) = (gradients.named.get("dnorm"), gradients.named.get("dnorm_sum")) {
                let TrainingSizes { sequences: b, heads: h, value: e, .. } = self.sizes;
                let (each, mut all) = (each.reshape([b, h * e])?, all.reshape([h * e])?);
                pass.launch_on(&column_sums, stream, args!(&each, &mut all))?;
            }
        }
        Ok(())
    }

    /// Sets the gradients of keys and of a norm to 0, and those of the memory to what they are after the last token.
    fn start(
        &self,
        pass: Pass,
        stream: &Stream,
        final_memory: Option<&[&Tensor]>,
        gradients: &mut OmegaGradients,
    ) -> Result<()> {
        let names: Vec<String> = gradients.state.iter().map(|name| gradient(name)).collect();
        for (at, name) in names.iter().map(String::as_str).chain(["dk", "dv", "drk", "dnorm"]).enumerate() {
            let Some(to) = gradients.named.get_mut(name) else { continue };
            let given = final_memory.and_then(|given| given.get(at).copied());
            let width = to.shape().last().map_or(1, |&width| width.max(1));
            let mut to = if to.rank() == 3 { to.split(2, width)? } else { to.clone() };
            let zeros = self.zero.expand(to.shape())?;
            copy_tokens_on(pass, stream, given.unwrap_or(&zeros), &mut to)?;
        }
        Ok(())
    }

    /// Fails for what a training keeps that has other tokens or another memory, or puts tokens into other segments.
    fn check_kept(&self, kept: &OmegaKept) -> Result<()> {
        let wanted = self.segments.all();
        let found = if kept.tokens.len() != wanted.len() {
            let (found, wanted) = (kept.tokens.len(), wanted.len());
            format!("kept are the states before {found} segments, where this training has {wanted}")
        } else if let Some((found, wanted)) = kept.tokens.iter().zip(wanted).find(|(found, s)| **found != s.tokens) {
            let wanted = wanted.tokens;
            format!("a state is kept for a segment of the tokens {found:?}, where this training has {wanted:?}")
        } else if kept.form != self.rule.memory {
            format!("kept are states of a memory that is {:?}, where this one is {:?}", kept.form, self.rule.memory)
        } else {
            return kept.states.iter().try_for_each(|state| self.check_state(state.iter()));
        };
        Err(LaunchError::Choice { op: "omega_training", found, mend: "make them by its `kept`" }.into())
    }

    /// Fails if there are more or fewer tensors than these.
    fn check_count(&self, found: usize, wanted: usize, names: &str) -> Result<()> {
        if found == wanted {
            return Ok(());
        }
        let (kernel, names) = (self.trained.forward.name, names.to_owned());
        Err(LaunchError::WrongArgumentCount { kernel, found, wanted, names }.into())
    }

    /// Fails unless tokens, and what is read of them or its gradient, have the shapes and element types of the training.
    fn check(&self, tokens: &Tokens<'_>, more: (&'static str, &Tensor)) -> Result<()> {
        let name = self.trained.forward.name;
        let TrainingSizes { sequences, tokens: count, heads, key, value, dtype, .. } = self.sizes;
        let sizes = StreamSizes { sequences, heads, key, value, piece: count, dtype };
        check_tokens((name, &self.device), tokens, more, (&sizes, self.rule.chunking.window), [sequences, count])
    }

    /// Fails unless the tensors of a memory, or gradients by them, are those of the training, by their names.
    fn check_state<'t>(&self, given: impl Iterator<Item = &'t Tensor>) -> Result<()> {
        let TrainingSizes { sequences, heads, key, value, hidden, .. } = self.sizes;
        let shapes = self.rule.memory.matrices(key, value, hidden).repeat(2);
        for ((name, tensor), [rows, columns]) in self.trained.state.iter().copied().zip(given).zip(shapes) {
            let wanted = [sequences, heads, rows, columns];
            let dims = "[B, H, ..] of `MemoryForm::matrices`";
            check_tensor(self.trained.forward.name, (name, tensor), (&self.device, DType::F32), (dims, &wanted))?;
        }
        Ok(())
    }

    /// Tensors of a state.
    fn state(&self) -> Result<Vec<Tensor>> {
        let TrainingSizes { sequences: b, heads: h, .. } = self.sizes;
        let of = |[rows, cols]: [usize; 2]| Tensor::zeros(&self.device, DType::F32, [b, h, rows, cols]);
        {
            let shapes = self.rule.memory.matrices(self.sizes.key, self.sizes.value, self.sizes.hidden);
            shapes.repeat(2).into_iter().map(of).collect()
        }
    }
}

fn bytes_of(t: &Tensor) -> u64 {
    t.len() as u64 * u64::from(t.dtype().bytes())
}
