//! A memory that is trained on a sequence which comes in pieces, of any lengths, in constant memory.
//!
//! Between pieces it keeps, besides the memory itself, the tokens of the chunk that is not full yet and those before it that
//! its windows reach: `K - 1` tokens at most. Gradients of a chunk are taken at the memory before it, so a chunk that is not
//! full is computed again with each piece, and committed with the one that fills it. What is read does not depend on how the
//! sequence was cut, as long as all numbers are finite: one that is not also reaches the tokens before it that are computed with it,
//! of its chunk, but no other sequence.
//!
//! A chunk that is computed again costs little where it is one product of matrices more, and nothing is orthogonalised for a chunk
//! that is not committed. With a step for each token ([`Step::MuonByToken`]) it costs a step for each of its tokens, and a copy of
//! the memory: a chunk of `c` tokens that come one by one takes `c (c + 1) / 2` steps instead of `c`. Chunks of one token are never
//! computed again. Where tokens come one by one, choose these, or push whole chunks.

use super::chain_space::ChainSpace;
use super::open_chunk::OpenChunk;
use super::two_rooms::{Turn, TwoRooms};
use super::{OmegaRule, Read, Step, StreamSizes};
use crate::pass::{Pass, check_apart, check_tensor, is_same_view, tokens_of};
use atlas_dsl::DType;
use atlas_dsl::def::ParamDef;
use atlas_dsl::ir::Access;
use atlas_macros::atlas_kernel;
use atlas_runtime::{Arg, Chain, Device, HostState, LaunchError, Result, Stream, Tensor, args};
use std::collections::BTreeMap;
use std::ops::Range;

atlas_kernel! {
    /// y = x
    pub kernel omega_copy_tokens<T: Float>(x: &Tensor<T, [B, N, H, D]>, y: &mut Tensor<T, [B, N, H, D]>)
    tune { BN: [16, 1, 64], warps: [4, 1] }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            store(y[b, n, h, ..], load(x[b, n, h, ..]));
        }
    }

    /// y = x
    pub kernel omega_copy_gates(x: &Tensor<f32, [B, N, H]>, y: &mut Tensor<f32, [B, N, H]>)
    tune { BN: [16, 1, 64], warps: [4, 1] }
    {
        for (b, n) in grid(B, tiles(N, BN)) {
            store(y[b, n, ..], load(x[b, n, ..]));
        }
    }
}

/// Tokens of a piece: `T` of them for each sequence.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<'t> {
    /// Queries `[B, T, H, D]`.
    pub q: &'t Tensor,
    /// Keys `[B, T, H, D]`.
    pub k: &'t Tensor,
    /// Values `[B, T, H, E]`.
    pub v: &'t Tensor,
    /// Residuals of queries `[B, T, H, E]`.
    pub rq: &'t Tensor,
    /// Residuals of keys `[B, T, H, E]`.
    pub rk: &'t Tensor,
    /// What is kept of the memory `[B, T, H]`, f32.
    pub alpha: &'t Tensor,
    /// What is kept of the momentum `[B, T, H]`, f32.
    pub theta: &'t Tensor,
    /// Steps `[B, T, H]`, f32.
    pub eta: &'t Tensor,
    /// Weights in the window `[B, T, H, W]`, f32, the oldest token first.
    pub gamma: &'t Tensor,
}

impl<'t> Tokens<'t> {
    pub(super) fn named(&self) -> [(&'static str, &'t Tensor); 9] {
        [
            ("q", self.q),
            ("k", self.k),
            ("v", self.v),
            ("rq", self.rq),
            ("rk", self.rk),
            ("alpha", self.alpha),
            ("theta", self.theta),
            ("eta", self.eta),
            ("gamma", self.gamma),
        ]
    }
}

/// Tokens that are kept, with room for those of a piece, and room for what is kept next.
struct Kept {
    name: &'static str,
    rooms: TwoRooms,
}

/// Where in its sequence a stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Place {
    /// Tokens of full chunks since the start of the sequence, as far as windows reach back.
    done: usize,
    /// Tokens since the last full chunk.
    held: usize,
    /// Which rooms have what is kept.
    turn: Turn,
}

/// What a pass does with its launches, and where they go.
type On<'s> = (Pass, &'s Stream);

/// A chain of the Omega rule on a sequence in pieces.
pub struct OmegaStream {
    sizes: StreamSizes,
    rule: OmegaRule,
    device: Device,
    kept: Vec<Kept>,
    norm: Option<Tensor>,
    y: Tensor,
    place: HostState<Place>,
    /// For all chunks that may be computed at once.
    space: ChainSpace,
    open: OpenChunk,
}

impl OmegaStream {
    /// A stream at the start of a sequence.
    ///
    /// # Errors
    /// [`LaunchError::NotCausal`] if a token would read what later tokens of its chunk have taught: of [`Step::MuonByChunk`] that
    /// reads after a step, with chunks of several tokens. [`LaunchError::Choice`] for a window or a chunk of more tokens than the GPU
    /// has room for. Those of [`Tensor::zeros`].
    pub fn new(device: &Device, rule: OmegaRule, sizes: StreamSizes) -> Result<OmegaStream> {
        let rule = rule.at_least_one();
        check_causal(&rule)?;
        let chunking = rule.chunking;
        let sizes = StreamSizes { piece: sizes.piece.max(1), ..sizes };
        let tokens = chunking.chunks(sizes.piece.saturating_add(chunking.chunk - 1)).saturating_mul(chunking.chunk);
        let space = ChainSpace::new(device, rule, sizes, tokens)?;
        let most = (chunking.keys() - 1).saturating_add(sizes.piece);
        let shape = |width: Option<usize>| {
            let mut shape = vec![sizes.sequences, most, sizes.heads];
            shape.extend(width);
            shape
        };
        let of = |(name, dtype, width): (&'static str, DType, Option<usize>)| {
            Ok(Kept { name, rooms: TwoRooms::new(|| Tensor::zeros(device, dtype, shape(width)))? })
        };
        let (key, value, gate) = (Some(sizes.key), Some(sizes.value), DType::F32);
        let kept = [
            ("q", sizes.dtype, key),
            ("k", sizes.dtype, key),
            ("v", sizes.dtype, value),
            ("rq", sizes.dtype, value),
            ("rk", sizes.dtype, value),
            ("alpha", gate, None),
            ("theta", gate, None),
            ("eta", gate, None),
            ("gamma", gate, Some(chunking.window)),
        ];
        Ok(OmegaStream {
            sizes,
            rule,
            device: device.clone(),
            kept: kept.into_iter().map(of).collect::<Result<_>>()?,
            norm: None,
            y: Tensor::zeros(device, sizes.dtype, shape(value))?,
            place: HostState::default(),
            space,
            open: OpenChunk::default(),
        })
    }

    /// The same with the weight `[H, E]` of the norm inside the memory, of the element type of tokens.
    /// [`MemoryForm::Normed`](super::MemoryForm::Normed) needs it, and the others take none.
    #[must_use]
    pub fn with_norm(self, norm: Tensor) -> OmegaStream {
        OmegaStream { norm: Some(norm), ..self }
    }

    /// The chain of kernels that the stream takes: `stream.chain().name` says which. It depends on the rule, the sizes and the device, and
    /// with Muon on the memory: before the first push it is the one for a hidden layer that is not too wide
    /// ([`OmegaRule::chain_for_hidden`]), and from then on that of the last push.
    pub fn chain(&self) -> &'static Chain {
        self.space.chain()
    }

    /// Bytes that the stream itself holds on its device, the memory left out.
    pub fn bytes(&self) -> u64 {
        let of = |t: &Tensor| t.len() as u64 * u64::from(t.dtype().bytes());
        let kept: u64 = self.kept.iter().flat_map(|k| k.rooms.tensors()).map(of).sum();
        kept + of(&self.y) + self.open.bytes() + self.space.bytes()
    }

    /// Reads and trains the memory on the tokens that come next, and writes what is read to `y` `[B, T, H, E]`. `memory` are the
    /// tensors that the chain writes, but for `y`, in the order of its parameters: weights, then momenta.
    ///
    /// `y` may be one of the tokens' tensors, and shares no memory with what else is given.
    ///
    /// All launches are made ready before the first one runs.
    ///
    /// # Errors
    /// As [`Chain::launch`]; [`LaunchError::WrongRank`], [`LaunchError::WrongShape`] and [`LaunchError::WrongDType`] of `y`, of the
    /// memory, of its norm and of a field of [`Tokens`];
    /// [`LaunchError::MissingTensor`] and [`LaunchError::UnknownTensor`] of [`with_norm`](OmegaStream::with_norm). Memory, `y` and
    /// the stream are as they were then.
    pub fn push(&mut self, tokens: &Tokens<'_>, memory: &mut [&mut Tensor], y: &mut Tensor) -> Result<()> {
        let stream = self.device.default_stream();
        self.push_on(&stream, tokens, memory, y)
    }

    /// The same on a stream. What [`OmegaStream::new`] and the first push of a memory allocate is allocated on the default stream, so work
    /// of another library's stream that is not ordered with that comes after it by the caller's care. So do pushes on several streams.
    ///
    /// # Errors
    /// As [`OmegaStream::push`]; [`LaunchError::WrongDevice`] of a stream of another device.
    pub fn push_on(
        &mut self,
        stream: &Stream,
        tokens: &Tokens<'_>,
        memory: &mut [&mut Tensor],
        y: &mut Tensor,
    ) -> Result<()> {
        let chain = self.space.chain();
        let count = tokens_of(chain.name, ("q", tokens.q))?;
        let batch = [self.sizes.sequences, count];
        check_tokens((chain.name, &self.device), tokens, ("y", y), (&self.sizes, self.rule.chunking.window), batch)?;
        check_memory(chain, tokens, self.norm.as_ref(), memory, y)?;
        self.reserve(memory)?;
        let start = self.place();
        let prepared = self.pass((Pass::Prepare, stream), tokens, memory, y);
        self.move_to(start);
        prepared?;
        self.pass((Pass::Run, stream), tokens, memory, y)
    }

    /// Where the stream is, to go back to after a pass that only prepares.
    pub(crate) fn place(&self) -> Place {
        self.place.get()
    }

    /// Moves the stream on, or back to where it was before a pass that only prepared.
    pub(crate) fn move_to(&self, place: Place) {
        self.place.set(&self.device, self.space.chain().name, place);
    }

    /// Allocates what depends on the memory, unless a push of a memory of these sizes has done so: the workspace for as many chunks as
    /// may be computed at once, and what the chunk that is not full needs besides.
    pub(crate) fn reserve(&mut self, memory: &[&mut Tensor]) -> Result<()> {
        self.space.check(&self.device, memory, self.norm.as_ref())?;
        if self.keeps_open_chunks() {
            self.open.reserve(&self.device, memory)?;
        }
        self.space.reserve(&self.device, memory)
    }

    /// Whether a chunk that is not full is computed on a copy of the memory.
    fn keeps_open_chunks(&self) -> bool {
        self.rule.step == Step::MuonByToken && self.rule.chunking.chunk > 1
    }

    /// Goes over the launches of tokens that are checked, on a stream.
    pub(crate) fn pass(
        &mut self,
        on: On<'_>,
        tokens: &Tokens<'_>,
        memory: &mut [&mut Tensor],
        y: &mut Tensor,
    ) -> Result<()> {
        let count = tokens.q.shape()[1];
        if count == 0 {
            let none = self.y.slice(1, 0..0)?;
            return copy_tokens_on(on.0, on.1, &none, y);
        }
        let mut from = 0;
        while from < count {
            let to = count.min(from + self.sizes.piece);
            for (name, tensor) in tokens.named() {
                self.append(on, name, &tensor.slice(1, from..to)?)?;
            }
            self.run(on, to - from, memory)?;
            let held = self.place().held;
            let read = self.y.slice(1, held..held + to - from)?;
            copy_tokens_on(on.0, on.1, &read, &mut y.slice(1, from..to)?)?;
            self.keep(on, to - from)?;
            from = to;
        }
        Ok(())
    }

    /// Forgets the tokens so far: what comes next is the start of a sequence. The memory is the caller's to reset.
    pub fn restart(&mut self) {
        // What is kept stays where it is: nothing reads tokens before the start.
        self.place.restart(&self.device, self.space.chain().name, Place::default());
    }

    /// Tokens before the chunk that is not full, which its windows may reach.
    fn halo(&self) -> usize {
        self.rule.chunking.keys() - self.rule.chunking.chunk
    }

    fn append(&mut self, on: On<'_>, name: &str, tokens: &Tensor) -> Result<()> {
        let place = self.place();
        let at = self.halo() + place.held;
        let Some(kept) = self.kept.iter().find(|k| k.name == name) else { return Ok(()) };
        let count = tokens.shape().get(1).copied().unwrap_or(0);
        let [now, _] = kept.rooms.now_and_next(place.turn);
        copy(on, tokens, &mut now.slice(1, at..at + count)?)
    }

    /// Computes the tokens since the last full chunk.
    fn run(&mut self, on: On<'_>, count: usize, memory: &mut [&mut Tensor]) -> Result<()> {
        let tokens = self.place().held + count;
        if !self.keeps_open_chunks() {
            return self.run_tokens(on, 0..tokens, memory);
        }
        let chunk = self.rule.chunking.chunk;
        let full = tokens / chunk * chunk;
        if full > 0 {
            self.run_tokens(on, 0..full, memory)?;
        }
        if full < tokens {
            let mut open = std::mem::take(&mut self.open);
            let copied = memory.iter().zip(open.tensors()).try_for_each(|(x, y)| copy_tokens_on(on.0, on.1, x, y));
            let mut copy: Vec<&mut Tensor> = open.tensors().iter_mut().collect();
            let done = copied.and_then(|()| self.run_tokens(on, full..tokens, &mut copy));
            self.open = open;
            done?;
        }
        Ok(())
    }

    /// Computes some of them, from the start of a chunk on.
    fn run_tokens(&mut self, (pass, stream): On<'_>, tokens: Range<usize>, memory: &mut [&mut Tensor]) -> Result<()> {
        let halo = self.halo();
        // Windows do not reach past the start of a sequence: a row of zeros there would be a token, and its norm is NaN without `eps`.
        let reach = halo.min(self.place().done.saturating_add(tokens.start));
        let mut views: BTreeMap<&str, Tensor> = BTreeMap::new();
        for kept in &self.kept {
            // Keys and values are seen back to the halo.
            let before = if ["k", "v", "rk"].contains(&kept.name) { reach } else { 0 };
            let [now, _] = kept.rooms.now_and_next(self.place().turn);
            views.insert(kept.name, now.slice(1, halo + tokens.start - before..halo + tokens.end)?);
        }
        views.extend(self.norm.as_ref().map(|norm| ("norm", norm.clone())));
        let mut y = self.y.slice(1, tokens.clone())?;
        let full = tokens.len() / self.rule.chunking.chunk;
        let chain = self.space.chain();
        let args = arguments(chain, &self.rule, self.sizes.value, full, &views, memory, &mut y);
        pass.chain_on(chain, stream, args, self.space.workspace(tokens.len())?)
    }

    /// Keeps what the next piece may still see.
    fn keep(&mut self, on: On<'_>, count: usize) -> Result<()> {
        let place = self.place();
        let tokens = place.held + count;
        let done = tokens / self.rule.chunking.chunk * self.rule.chunking.chunk;
        let held = tokens - done;
        let left = self.halo() + held;
        let turns = done > 0 && left > 0;
        if turns {
            for kept in &self.kept {
                let [now, next] = kept.rooms.now_and_next(place.turn);
                copy(on, &now.slice(1, done..done + left)?, &mut next.slice(1, 0..left)?)?;
            }
        }
        let turn = place.turn.after(turns);
        self.move_to(Place { done: place.done.saturating_add(done).min(self.halo()), held, turn });
        Ok(())
    }
}

/// Fails if a token would read what later tokens of its chunk have taught.
pub(super) fn check_causal(rule: &OmegaRule) -> Result<()> {
    if (rule.step, rule.read) == (Step::MuonByChunk, Read::After) && rule.chunking.chunk > 1 {
        return Err(LaunchError::NotCausal { kernel: rule.chain().name, chunk: rule.chunking.chunk }.into());
    }
    Ok(())
}

/// Fails unless tokens, and what is read of them or its gradient, are on the device, and have the shapes and element types of a rule
/// with these sizes and this window. `batch` is the number of sequences and of tokens of each.
pub(crate) fn check_tokens(
    (op, device): (&'static str, &Device),
    tokens: &Tokens<'_>,
    read: (&'static str, &Tensor),
    (sizes, window): (&StreamSizes, usize),
    [sequences, count]: [usize; 2],
) -> Result<()> {
    let StreamSizes { heads, key, value, dtype, .. } = *sizes;
    let (of, of_gates) = ((device, dtype), (device, DType::F32));
    let wide = |width: usize| [sequences, count, heads, width];
    for given in tokens.named().into_iter().chain([read]) {
        match given.0 {
            "q" | "k" => check_tensor(op, given, of, ("[B, T, H, D]", &wide(key)))?,
            "alpha" | "theta" | "eta" => {
                check_tensor(op, given, of_gates, ("[B, T, H]", &[sequences, count, heads]))?;
            }
            "gamma" => check_tensor(op, given, of_gates, ("[B, T, H, W]", &wide(window)))?,
            _ => check_tensor(op, given, of, ("[B, T, H, E]", &wide(value)))?,
        }
    }
    Ok(())
}

/// Fails unless `memory` has the tensors that the chain writes, and shares no memory with tokens or with `y`, whose launches come
/// before and after; and unless a norm is given to a chain that takes one, and to no other.
pub(super) fn check_memory(
    chain: &'static Chain,
    tokens: &Tokens<'_>,
    norm: Option<&Tensor>,
    memory: &[&mut Tensor],
    y: &Tensor,
) -> Result<()> {
    let given = tokens.named();
    let params = chain.params();
    let written = params.iter().filter(|p| matches!(p, ParamDef::Tensor { access: Access::Out, .. }));
    let names: Vec<&'static str> = written.map(|p| p.name()).filter(|name| *name != "y").collect();
    let (found, wanted) = (memory.len(), names.len());
    if found != wanted {
        let (kernel, names) = (chain.name, names.join(", "));
        return Err(LaunchError::WrongArgumentCount { kernel, found, wanted, names }.into());
    }
    let (kernel, param) = (chain.name, "norm");
    check_norm(chain, norm)?;
    norm.map_or(Ok(()), |norm| check_apart(kernel, ("y", y), (param, norm)))?;
    for (name, tensor) in names.into_iter().zip(memory) {
        check_apart(chain.name, ("y", y), (name, tensor))?;
        norm.map_or(Ok(()), |norm| check_apart(kernel, (name, tensor), (param, norm)))?;
        for token in given {
            check_apart(chain.name, (name, tensor), token)?;
        }
    }
    // A piece of `y` is written after the same piece of the tokens has been read.
    for token in given.into_iter().filter(|token| !is_same_view(token.1, y)) {
        check_apart(chain.name, ("y", y), token)?;
    }
    Ok(())
}

/// Fails unless a norm is given to a chain that takes one, and to no other.
pub(crate) fn check_norm(chain: &'static Chain, norm: Option<&Tensor>) -> Result<()> {
    let (kernel, param) = (chain.name, "norm");
    match (norm, chain.params().iter().any(|p| p.name() == param)) {
        (None, true) => {
            let mend = "give its weight by `with_norm`, or in training by `set_norm`";
            Err(LaunchError::MissingTensor { kernel, param, mend }.into())
        }
        (Some(_), false) => Err(LaunchError::UnknownTensor { kernel, param }.into()),
        _ => Ok(()),
    }
}

/// The arguments of a chain of the rule: tokens, gates and norm by name, then what it writes in the order of its parameters.
pub(super) fn arguments<'a>(
    chain: &'static Chain,
    rule: &OmegaRule,
    value: usize,
    commit: usize,
    views: &'a BTreeMap<&str, Tensor>,
    memory: &'a mut [&mut Tensor],
    y: &'a mut Tensor,
) -> Vec<Arg<'a>> {
    let (mut y, mut memory) = (Some(y), memory.iter_mut());
    let mut args: Vec<Arg<'a>> = Vec::new();
    for param in chain.params() {
        args.extend(match param {
            ParamDef::Scalar { name: "before", .. } => Some(Arg::I32((rule.read == Read::Before).into())),
            ParamDef::Scalar { name: "commit", .. } => Some(Arg::I32(commit as i32)),
            ParamDef::Scalar { name: "chunk", .. } => Some(Arg::I32(rule.chunking.chunk as i32)),
            ParamDef::Scalar { name: "eps", .. } => Some(Arg::F32(rule.memory.eps())),
            ParamDef::Scalar { name: "predicts", .. } => Some(Arg::I32(rule.loss.predicts().into())),
            ParamDef::Scalar { .. } => Some(Arg::F32(rule.loss.factor(value))),
            ParamDef::Tensor { name: "y", .. } => y.take().map(Arg::Out),
            ParamDef::Tensor { name, .. } => match views.get(name) {
                Some(view) => Some(Arg::In(view)),
                None => memory.next().map(|t| Arg::Out(t)),
            },
        });
    }
    args
}

/// Elements of a row that one launch copies. A program holds whole rows in registers, and rows of all monomials of degree 3, such as
/// the 47905 of 64 numbers, have more than fit there in f32.
const PART: usize = 1 << 13;

/// The parts of the rows of a tensor, each of which one launch copies.
pub(super) fn parts_of_rows(x: &Tensor) -> impl Iterator<Item = Range<usize>> + use<> {
    let width = x.shape().last().copied().unwrap_or(0);
    (0..width).step_by(PART).map(move |from| from..width.min(from + PART))
}

/// y = x of tokens or matrices `[B, N, H, D]`, on the default stream of a device.
pub(crate) fn copy_tokens(pass: Pass, device: &Device, x: &Tensor, y: &mut Tensor) -> Result<()> {
    copy_tokens_on(pass, &device.default_stream(), x, y)
}

/// The same on a stream.
pub(crate) fn copy_tokens_on(pass: Pass, stream: &Stream, x: &Tensor, y: &mut Tensor) -> Result<()> {
    let width = x.shape().last().copied().unwrap_or(0);
    if width <= PART || x.shape() != y.shape() {
        return pass.launch_on(&omega_copy_tokens, stream, args!(x, &mut *y));
    }
    let axis = x.rank() - 1;
    parts_of_rows(x).try_for_each(|part| {
        let (x, mut y) = (x.slice(axis, part.clone())?, y.slice(axis, part)?);
        pass.launch_on(&omega_copy_tokens, stream, args!(x, &mut y))
    })
}

/// y = x, of tokens or of gates.
fn copy((pass, stream): On<'_>, x: &Tensor, y: &mut Tensor) -> Result<()> {
    if x.rank() == 3 {
        return pass.launch_on(&omega_copy_gates, stream, args!(x, &mut *y));
    }
    copy_tokens_on(pass, stream, x, y)
}
