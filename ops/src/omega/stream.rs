//! A memory that is trained on a sequence which comes in pieces, of any lengths, in constant memory.
//!
//! Between pieces it keeps, besides the memory itself, the tokens of the chunk that is not full yet and those before it that
//! its windows reach: `K - 1` tokens at most. Gradients of a chunk are taken at the memory before it, so a chunk that is not
//! full is computed again with each piece, and committed with the one that fills it. What is read does not depend on how the
//! sequence was cut.

use super::Chunking;
use crate::rehearsal::{Mode, Rehearsed};
use atlas_dsl::DType;
use atlas_dsl::def::ParamDef;
use atlas_macros::atlas_kernel;
use atlas_runtime::{Arg, Chain, Device, Result, Tensor, Workspace, args};
use std::collections::BTreeMap;

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

/// What a stream is for.
#[derive(Clone, Copy, Debug)]
pub struct StreamSizes {
    /// Sequences that are read at once.
    pub sequences: usize,
    /// Heads, each with a memory of its own.
    pub heads: usize,
    /// Elements of a key and of a query.
    pub key: usize,
    /// Elements of a value and of what is read.
    pub value: usize,
    /// The longest piece that is computed at once; longer ones are cut.
    pub piece: usize,
    /// The element type of tokens.
    pub dtype: DType,
}

/// Numbers of the rule.
#[derive(Clone, Copy, Debug)]
pub struct StreamRule {
    /// Read the memory as it was before each token's own step.
    pub read_before: bool,
    /// The factor of the loss: `s/2 |M(k) - v|^2`.
    pub scale: f32,
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

/// Workspaces that are kept, of as many numbers of chunks.
const MOST_WORKSPACES: usize = 4;

/// Tokens that are kept, and room for those of a piece.
struct Kept {
    name: &'static str,
    now: Tensor,
    next: Tensor,
}

/// A chain of the Omega rule on a sequence in pieces.
pub struct OmegaStream {
    chain: &'static Chain,
    sizes: StreamSizes,
    chunking: Chunking,
    rule: StreamRule,
    device: Device,
    kept: Vec<Kept>,
    y: Tensor,
    /// Tokens since the last full chunk.
    held: usize,
    /// Of each number of chunks that a piece may have.
    workspaces: BTreeMap<usize, Workspace>,
    /// Single pieces, by tokens held and pushed and by `y`.
    rehearsed: Rehearsed,
}

impl OmegaStream {
    /// A stream at the start of a sequence, for a chain such as [`OMEGA_MLP`](super::OMEGA_MLP) or
    /// [`OMEGA_LINEAR`](super::OMEGA_LINEAR).
    ///
    /// # Errors
    /// Those of [`Tensor::zeros`].
    pub fn new(
        device: &Device,
        chain: &'static Chain,
        chunking: Chunking,
        rule: StreamRule,
        sizes: StreamSizes,
    ) -> Result<OmegaStream> {
        let chunking = Chunking { chunk: chunking.chunk.max(1), window: chunking.window.max(1), ..chunking };
        let sizes = StreamSizes { piece: sizes.piece.max(1), ..sizes };
        let room = chunking.keys() - 1 + sizes.piece;
        let shape = |width: Option<usize>| {
            let mut shape = vec![sizes.sequences, room, sizes.heads];
            shape.extend(width);
            shape
        };
        let of = |(name, dtype, width): (&'static str, DType, Option<usize>)| {
            let made = || Tensor::zeros(device, dtype, shape(width));
            Ok(Kept { name, now: made()?, next: made()? })
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
            chain,
            sizes,
            chunking,
            rule,
            device: device.clone(),
            kept: kept.into_iter().map(of).collect::<Result<_>>()?,
            y: Tensor::zeros(device, sizes.dtype, shape(value))?,
            held: 0,
            workspaces: BTreeMap::new(),
            rehearsed: Rehearsed::default(),
        })
    }

    /// Bytes that the stream itself holds on its device, the memory left out.
    pub fn bytes(&self) -> u64 {
        let of = |t: &Tensor| t.len() as u64 * u64::from(t.dtype().bytes());
        let kept: u64 = self.kept.iter().map(|k| of(&k.now) + of(&k.next)).sum();
        kept + of(&self.y) + self.workspaces.values().map(Workspace::bytes).sum::<u64>()
    }

    /// Reads and trains the memory on the tokens that come next, and writes what is read to `y` `[B, T, H, E]`. `memory` are the
    /// tensors that the chain writes, but for `y`, in the order of its parameters: weights, then momenta.
    ///
    /// # Errors
    /// As [`Chain::launch`], found before anything runs, in whichever piece: the memory, the stream and `y` are as they were
    /// then. What ends in the middle is a fault of a kernel or of the driver, or, on the CPU, a launch that the host has no
    /// memory for: the pieces before it are trained on then, and the stream is to be restarted.
    pub fn push(&mut self, tokens: &Tokens<'_>, memory: &mut [&mut Tensor], y: &mut Tensor) -> Result<()> {
        let device = self.device.clone();
        let count = tokens.q.shape().get(1).copied().unwrap_or(0);
        let key = Rehearsed::key(&[self.held, count], &[y]);
        // Of one piece, what is read of the caller's tokens is read before the memory is trained, and refused by then.
        if count > self.sizes.piece || !self.rehearsed.knows(&key, &device, &[y]) {
            self.rehearse(&device, tokens, memory, y)?;
            if count <= self.sizes.piece {
                self.rehearsed.remember(key);
            }
        }
        self.pieces(Mode::Run(&device), tokens, memory, y)
    }

    /// Checks a push, and makes ready what it needs; nothing runs, and no token is held after it that was not before.
    pub(crate) fn rehearse(
        &mut self,
        device: &Device,
        tokens: &Tokens<'_>,
        memory: &mut [&mut Tensor],
        y: &mut Tensor,
    ) -> Result<()> {
        let held = self.held;
        let rehearsed = self.pieces(Mode::Rehearse(device), tokens, memory, y);
        self.held = held;
        rehearsed
    }

    /// Tokens that are held.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Goes on as if so many tokens were held: a rehearsal of what comes after another one.
    pub(crate) fn suppose_held(&mut self, held: usize) {
        self.held = held;
    }

    /// The tokens that are held behind so many more.
    pub(crate) fn held_after(&self, count: usize) -> usize {
        (self.held + count) % self.chunking.chunk
    }

    /// A push, piece by piece.
    fn pieces(
        &mut self,
        mode: Mode<'_>,
        tokens: &Tokens<'_>,
        memory: &mut [&mut Tensor],
        y: &mut Tensor,
    ) -> Result<()> {
        let count = tokens.q.shape().get(1).copied().unwrap_or(0);
        y.slice(1, 0..count)?;
        for (_, tensor) in tokens.named() {
            tensor.slice(1, 0..count)?;
        }
        self.allocate(count)?;
        let mut from = 0;
        while from < count {
            let to = count.min(from + self.sizes.piece);
            for (name, tensor) in tokens.named() {
                self.append(mode, name, &tensor.slice(1, from..to)?)?;
            }
            self.run(mode, to - from, memory)?;
            let read = self.y.slice(1, self.held..self.held + to - from)?;
            mode.launch(&omega_copy_tokens, args!(read, &mut y.slice(1, from..to)?))?;
            self.keep(mode, to - from)?;
            from = to;
        }
        Ok(())
    }

    /// Allocates the workspaces of a push: pieces of one length have two numbers of chunks, and the last one may have another.
    /// What other lengths have left behind makes room.
    fn allocate(&mut self, count: usize) -> Result<()> {
        let (mut held, mut from, mut wanted) = (self.held, 0, BTreeMap::new());
        while from < count {
            let piece = (count - from).min(self.sizes.piece);
            wanted.entry(self.chunking.chunks(held + piece)).or_insert(held + piece);
            held = (held + piece) % self.chunking.chunk;
            from += piece;
        }
        let missing = wanted.keys().filter(|chunks| !self.workspaces.contains_key(chunks)).count();
        let mut beyond = (self.workspaces.len() + missing).saturating_sub(MOST_WORKSPACES);
        self.workspaces.retain(|chunks, _| {
            let goes = beyond > 0 && !wanted.contains_key(chunks);
            beyond -= usize::from(goes);
            !goes
        });
        for (chunks, tokens) in wanted {
            if !self.workspaces.contains_key(&chunks) {
                let dims = self.chunking.dims(self.sizes.sequences, self.sizes.heads, tokens);
                self.workspaces.insert(chunks, self.chain.workspace(&self.device, &[], &dims)?);
            }
        }
        Ok(())
    }

    /// Forgets the tokens so far: what comes next is the start of a sequence. The memory is the caller's to reset.
    ///
    /// # Errors
    /// Those of [`Tensor::zeros`]; nothing is forgotten then.
    pub fn restart(&mut self) -> Result<()> {
        let zeros = |kept: &Kept| Tensor::zeros(&self.device, kept.now.dtype(), kept.now.shape());
        let fresh = self.kept.iter().map(zeros).collect::<Result<Vec<Tensor>>>()?;
        self.kept.iter_mut().zip(fresh).for_each(|(kept, fresh)| kept.now = fresh);
        self.held = 0;
        Ok(())
    }

    /// Tokens before the chunk that is not full, which its windows may reach.
    fn halo(&self) -> usize {
        self.chunking.keys() - self.chunking.chunk
    }

    fn append(&mut self, mode: Mode<'_>, name: &str, tokens: &Tensor) -> Result<()> {
        let at = self.halo() + self.held;
        let Some(kept) = self.kept.iter().find(|k| k.name == name) else { return Ok(()) };
        let count = tokens.shape().get(1).copied().unwrap_or(0);
        copy(mode, tokens, &mut kept.now.slice(1, at..at + count)?)
    }

    /// Computes the tokens since the last full chunk.
    fn run(&mut self, mode: Mode<'_>, count: usize, memory: &mut [&mut Tensor]) -> Result<()> {
        let tokens = self.held + count;
        let (halo, chunks) = (self.halo(), self.chunking.chunks(tokens));
        let mut views: BTreeMap<&str, Tensor> = BTreeMap::new();
        for kept in &self.kept {
            // Keys and values are seen back to the halo.
            let first = if ["k", "v", "rk"].contains(&kept.name) { 0 } else { halo };
            views.insert(kept.name, kept.now.slice(1, first..halo + tokens)?);
        }
        let mut y = self.y.slice(1, 0..tokens)?;
        let full = tokens / self.chunking.chunk;
        let args = arguments(self.chain, &self.rule, full, &views, memory, &mut y);
        let Some(workspace) = self.workspaces.get_mut(&chunks) else { return Ok(()) };
        mode.chain(self.chain, args, workspace)
    }

    /// Keeps what the next piece may still see.
    fn keep(&mut self, mode: Mode<'_>, count: usize) -> Result<()> {
        let tokens = self.held + count;
        let done = tokens / self.chunking.chunk * self.chunking.chunk;
        self.held = tokens - done;
        if done == 0 {
            return Ok(());
        }
        let left = self.halo() + self.held;
        for kept in &mut self.kept {
            copy(mode, &kept.now.slice(1, done..done + left)?, &mut kept.next.slice(1, 0..left)?)?;
            if !mode.is_rehearsal() {
                std::mem::swap(&mut kept.now, &mut kept.next);
            }
        }
        Ok(())
    }
}

/// The arguments of a chain of the rule: tokens and gates by name, then what it writes in the order of its parameters.
pub(super) fn arguments<'a>(
    chain: &'static Chain,
    rule: &StreamRule,
    commit: usize,
    views: &'a BTreeMap<&str, Tensor>,
    memory: &'a mut [&mut Tensor],
    y: &'a mut Tensor,
) -> Vec<Arg<'a>> {
    let (mut y, mut memory) = (Some(y), memory.iter_mut());
    let mut args: Vec<Arg<'a>> = Vec::new();
    for param in chain.params() {
        args.extend(match param {
            ParamDef::Scalar { name: "before", .. } => Some(Arg::I32(rule.read_before.into())),
            ParamDef::Scalar { name: "commit", .. } => Some(Arg::I32(commit as i32)),
            ParamDef::Scalar { .. } => Some(Arg::F32(rule.scale)),
            ParamDef::Tensor { name: "y", .. } => y.take().map(Arg::Out),
            ParamDef::Tensor { name, .. } => match views.get(name) {
                Some(view) => Some(Arg::In(view)),
                None => memory.next().map(|t| Arg::Out(t)),
            },
        });
    }
    args
}

/// y = x of tokens `[B, N, H, D]`.
pub(crate) fn copy_tokens(mode: Mode<'_>, x: &Tensor, y: &mut Tensor) -> Result<()> {
    mode.launch(&omega_copy_tokens, args!(x, &mut *y))
}

/// y = x, of tokens or of gates.
fn copy(mode: Mode<'_>, x: &Tensor, y: &mut Tensor) -> Result<()> {
    if x.rank() == 3 {
        return mode.launch(&omega_copy_gates, args!(x, &mut *y));
    }
    copy_tokens(mode, x, y)
}
