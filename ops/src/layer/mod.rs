//! One layer of an ATLAS model but for its projections: a memory by the Omega rule, attention over a sliding window, and what
//! combines them, on sequences that come in pieces of any lengths.
//!
//! ```text
//! m = M(phi(q))        the memory is trained on phi(k), v; the residual is q     phi(x) = a1 x + a2 x^2 + a3 x^3
//! a = attention of (aq, ak, av) over a window and a prefix
//! gate       y = norm(a, wa) * sigmoid(norm(m, wm))                              MAG
//! sequence   y = attention of (n, n, n), n = norm(m, wm)                         MAL
//! ```
//!
//! Sources: ATLAS (arXiv 2505.23735) for the memory; Titans (arXiv 2501.00663) Eq. 28, 30 and 31 for both ways to combine it.
//! The state of a layer does not grow: weights and momenta of its memory, the tokens of a chunk, and the keys of a window.

mod kernels;
#[cfg(feature = "verify")]
pub mod reference;

pub use kernels::{layer_combine, layer_features, layer_gate, layer_norm};

use crate::omega::{Chunking, OMEGA_MLP, OmegaStream, StreamRule, StreamSizes, Tokens, copy_tokens};
use crate::rehearsal::{Mode, Rehearsed};
use crate::windowed_attention::windowed_attention;
use atlas_dsl::DType;
use atlas_runtime::{Device, Result, Tensor, args};

/// How memory and attention are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// The memory gates the attention (MAG).
    Gate,
    /// The attention reads what the memory gives (MAL).
    Sequence,
}

/// What a layer is for.
#[derive(Clone, Copy, Debug)]
pub struct LayerSizes {
    /// Sequences that are read at once.
    pub sequences: usize,
    /// Heads.
    pub heads: usize,
    /// Elements of a head.
    pub width: usize,
    /// Hidden elements of a memory.
    pub hidden: usize,
    /// Keys that a query of the attention sees, its own among them.
    pub window: usize,
    /// The longest piece that is computed at once; longer ones are cut.
    pub piece: usize,
    /// The element type of tokens.
    pub dtype: DType,
}

/// Numbers of a layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerRule {
    /// How memory and attention are one.
    pub combine: Combine,
    /// Chunks and windows of the memory.
    pub chunking: Chunking,
    /// Coefficients of the features.
    pub features: [f32; 3],
    /// Read the memory as it was before each token's own step.
    pub read_before: bool,
    /// The factor of the memory's loss.
    pub scale: f32,
    /// Added to a mean square before its root.
    pub eps: f32,
}

/// Weights of a layer, in its element type.
#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// Keys that every query sees `[H, S, D]`.
    pub prefix_keys: Tensor,
    /// Their values `[H, S, D]`.
    pub prefix_values: Tensor,
    /// Of the norm of what the memory gives `[H, D]`.
    pub memory_norm: Tensor,
    /// Of the norm of what the attention gives `[H, D]`.
    pub attention_norm: Tensor,
}

/// A piece of the sequences, `T` tokens each.
#[derive(Clone, Copy, Debug)]
pub struct LayerTokens<'t> {
    /// Queries, keys and values of the memory `[B, T, H, D]`.
    pub memory: [&'t Tensor; 3],
    /// Queries, keys and values of the attention `[B, T, H, D]`; not read if it reads the memory.
    pub attention: [&'t Tensor; 3],
    /// What is kept of the memory, what of the momentum, and steps: `[B, T, H]`, f32.
    pub gates: [&'t Tensor; 3],
    /// Weights in the memory's window `[B, T, H, W]`, f32, the oldest token first.
    pub gamma: &'t Tensor,
}

/// A layer in the middle of its sequences.
pub struct AtlasLayer {
    device: Device,
    sizes: LayerSizes,
    rule: LayerRule,
    weights: LayerWeights,
    stream: OmegaStream,
    /// `W1`, `W2`, `S1`, `S2`.
    memory: [Tensor; 4],
    /// Keys and values that windows may reach, and room for those of a piece; with the place of the next.
    past: [[Tensor; 2]; 2],
    seen: usize,
    /// Of a piece: features of keys and of queries, what the memory gives, its norm, what the attention gives.
    room: [Tensor; 5],
    lse: Tensor,
    documents: Tensor,
    /// Single pieces, by what is held and seen before them, their tokens, and what is read and written behind the memory.
    rehearsed: Rehearsed,
}

impl AtlasLayer {
    /// A layer at the start of its sequences. `memory` are `W1` `[B, H, D, M]` and `W2` `[B, H, M, D]`, f32, which the layer
    /// copies; momenta are 0.
    ///
    /// # Errors
    /// Those of [`Tensor::zeros`].
    pub fn new(
        device: &Device,
        sizes: LayerSizes,
        rule: LayerRule,
        weights: LayerWeights,
        memory: [Tensor; 2],
    ) -> Result<AtlasLayer> {
        let sizes = LayerSizes { window: sizes.window.max(1), piece: sizes.piece.max(1), ..sizes };
        let LayerSizes { sequences, heads, width, window, piece, dtype, .. } = sizes;
        let tokens = |count: usize| Tensor::zeros(device, dtype, [sequences, count, heads, width]);
        let rows = || tokens(window - 1 + piece);
        let of = StreamSizes { sequences, heads, key: width, value: width, piece, dtype };
        let as_rule = StreamRule { read_before: rule.read_before, scale: rule.scale };
        let [w1, w2] = memory;
        let momentum = |w: &Tensor| Tensor::zeros(device, DType::F32, w.shape());
        let own = |w: &Tensor| -> Result<Tensor> {
            let mut copy = momentum(w)?;
            copy_tokens(Mode::Run(device), w, &mut copy)?;
            Ok(copy)
        };
        Ok(AtlasLayer {
            device: device.clone(),
            sizes,
            rule,
            weights,
            stream: OmegaStream::new(device, &OMEGA_MLP, rule.chunking, as_rule, of)?,
            memory: [own(&w1)?, own(&w2)?, momentum(&w1)?, momentum(&w2)?],
            past: [[rows()?, rows()?], [rows()?, rows()?]],
            seen: 0,
            room: [tokens(piece)?, tokens(piece)?, tokens(piece)?, tokens(piece)?, tokens(piece)?],
            lse: Tensor::zeros(device, DType::F32, [sequences, heads, piece])?,
            documents: Tensor::zeros(device, DType::I32, [sequences, piece])?,
            rehearsed: Rehearsed::default(),
        })
    }

    /// The memory as it is: `W1`, `W2`, `S1`, `S2`.
    pub fn memory(&self) -> &[Tensor; 4] {
        &self.memory
    }

    /// What the memory gave for the tokens pushed last, before its norm: `[B, T, H, D]` of at most a piece.
    ///
    /// # Errors
    /// A tensor's, if more tokens are asked for than a piece has.
    pub fn last_read(&self, tokens: usize) -> Result<Tensor> {
        self.room[2].slice(1, 0..tokens)
    }

    /// Bytes that the layer holds on its device, its weights left out.
    pub fn bytes(&self) -> u64 {
        let of = |t: &Tensor| t.len() as u64 * u64::from(t.dtype().bytes());
        let own = self.memory.iter().chain(self.past.iter().flatten()).chain(&self.room);
        self.stream.bytes() + own.chain([&self.lse, &self.documents]).map(of).sum::<u64>()
    }

    /// Computes the tokens that come next, and writes `y` `[B, T, H, D]`. It may return before a GPU has done so.
    ///
    /// # Errors
    /// Those of [`Launch::launch`](atlas_runtime::Launch::launch), found before anything runs, in whichever piece: the layer and
    /// `y` are as they were then. What ends in the middle is a fault of a kernel or of the driver, or, on the CPU, a launch that
    /// the host has no memory for: the layer has read a part of the tokens then, and is to be made anew.
    pub fn push(&mut self, tokens: &LayerTokens<'_>, y: &mut Tensor) -> Result<()> {
        let device = self.device.clone();
        let count = tokens.memory[0].shape().get(1).copied().unwrap_or(0);
        let [aq, ak, av] = tokens.attention;
        let behind = [aq, ak, av, &*y];
        let key = Rehearsed::key(&[self.stream.held(), self.seen, count], &behind);
        let is_known = self.rehearsed.knows(&key, &device, &behind);
        if count > self.sizes.piece || !is_known {
            let (held, seen) = (self.stream.held(), self.seen);
            let rehearsed = self.pieces(Mode::Rehearse(&device), tokens, y);
            self.stream.suppose_held(held);
            self.seen = seen;
            rehearsed?;
            if count <= self.sizes.piece {
                self.rehearsed.remember(key);
            }
        }
        self.pieces(Mode::Run(&device), tokens, y)
    }

    /// A push, piece by piece.
    fn pieces(&mut self, mode: Mode<'_>, tokens: &LayerTokens<'_>, y: &mut Tensor) -> Result<()> {
        let count = tokens.memory[0].shape().get(1).copied().unwrap_or(0);
        y.slice(1, 0..count)?;
        let mut from = 0;
        while from < count {
            let to = count.min(from + self.sizes.piece);
            let of = |t: &Tensor| t.slice(1, from..to);
            let [q, k, v] = [of(tokens.memory[0])?, of(tokens.memory[1])?, of(tokens.memory[2])?];
            let [alpha, theta, eta] = [of(tokens.gates[0])?, of(tokens.gates[1])?, of(tokens.gates[2])?];
            self.read_memory(mode, [&q, &k, &v], [&alpha, &theta, &eta, &of(tokens.gamma)?])?;
            let mut out = y.slice(1, from..to)?;
            match self.rule.combine {
                Combine::Gate => {
                    let [q, k, v] = [of(tokens.attention[0])?, of(tokens.attention[1])?, of(tokens.attention[2])?];
                    let mut attention = self.room[4].slice(1, 0..to - from)?;
                    self.attend(mode, [&q, &k, &v], &mut attention)?;
                    let (weights, memory) = (&self.weights, self.room[2].slice(1, 0..to - from)?);
                    let (wm, wa, eps) = (&weights.memory_norm, &weights.attention_norm, self.rule.eps);
                    mode.launch(&layer_combine, args!(memory, wm, eps, attention, wa, &mut out))?;
                }
                Combine::Sequence => {
                    let memory = self.room[2].slice(1, 0..to - from)?;
                    let mut normed = self.room[3].slice(1, 0..to - from)?;
                    let (w, eps) = (&self.weights.memory_norm, self.rule.eps);
                    mode.launch(&layer_norm, args!(memory, w, &mut normed, eps))?;
                    self.attend(mode, [&normed, &normed, &normed], &mut out)?;
                }
            }
            from = to;
        }
        Ok(())
    }

    /// Reads and trains the memory; what it gives is `room[2]`.
    fn read_memory(
        &mut self,
        mode: Mode<'_>,
        [q, k, v]: [&Tensor; 3],
        [alpha, theta, eta, gamma]: [&Tensor; 4],
    ) -> Result<()> {
        let count = q.shape()[1];
        let [a1, a2, a3] = self.rule.features;
        let [fk, fq, m, ..] = &self.room;
        let (mut fk, mut fq, mut m) = (fk.slice(1, 0..count)?, fq.slice(1, 0..count)?, m.slice(1, 0..count)?);
        mode.launch(&layer_features, args!(k, &mut fk, a1, a2, a3))?;
        mode.launch(&layer_features, args!(q, &mut fq, a1, a2, a3))?;
        let tokens = Tokens { q: &fq, k: &fk, v, rq: q, rk: k, alpha, theta, eta, gamma };
        let mut memory = self.memory.each_mut();
        if let Mode::Rehearse(device) = mode {
            self.stream.rehearse(device, &tokens, &mut memory, &mut m)?;
            // As if they were pushed, so that the next piece is rehearsed as it will be.
            self.stream.suppose_held(self.stream.held_after(count));
            return Ok(());
        }
        self.stream.push(&tokens, &mut memory, &mut m)
    }

    /// Attention of the tokens to themselves and to those of their windows before.
    fn attend(&mut self, mode: Mode<'_>, [q, k, v]: [&Tensor; 3], o: &mut Tensor) -> Result<()> {
        let count = q.shape()[1];
        let end = self.seen + count;
        let [keys, values] = &self.past;
        copy_tokens(mode, k, &mut keys[0].slice(1, self.seen..end)?)?;
        copy_tokens(mode, v, &mut values[0].slice(1, self.seen..end)?)?;
        let (ks, vs) = (keys[0].slice(1, 0..end)?, values[0].slice(1, 0..end)?);
        let (prefix_keys, prefix_values) = (&self.weights.prefix_keys, &self.weights.prefix_values);
        let scale = std::f32::consts::LOG2_E / (self.sizes.width as f32).sqrt();
        let (documents, window) = (self.documents.slice(1, 0..count)?, self.sizes.window as i32);
        let mut lse = self.lse.slice(2, 0..count)?;
        mode.launch(
            &windowed_attention,
            args!(q, ks, vs, prefix_keys, prefix_values, documents, window, scale, &mut *o, &mut lse),
        )?;
        let kept = end.min(self.sizes.window - 1);
        for [now, next] in &mut self.past {
            if end > kept {
                copy_tokens(mode, &now.slice(1, end - kept..end)?, &mut next.slice(1, 0..kept)?)?;
                if !mode.is_rehearsal() {
                    std::mem::swap(now, next);
                }
            }
        }
        self.seen = kept;
        Ok(())
    }
}
