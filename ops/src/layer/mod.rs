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

#[cfg(feature = "verify")]
pub(crate) mod cases;
mod kernels;
#[cfg(feature = "verify")]
pub mod reference;

pub use kernels::{layer_combine, layer_features, layer_gate, layer_norm};

use crate::omega::{Chunking, Loss, OmegaRule, OmegaStream, Read, StreamSizes, Tokens, copy_tokens};
use crate::pass::{Pass, check_apart, check_tokens, is_same_view};
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
    /// Whether `past` and its room have changed places an odd number of times.
    is_turned: bool,
    /// Tokens of the piece that came last.
    last: usize,
    /// Of a piece: features of keys and of queries, what the memory gives, its norm, what the attention gives.
    room: [Tensor; 5],
    lse: Tensor,
    documents: Tensor,
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
        let rows = || tokens((window - 1).saturating_add(piece));
        let of = StreamSizes { sequences, heads, key: width, value: width, piece, dtype };
        let read = if rule.read_before { Read::Before } else { Read::After };
        let as_rule = OmegaRule { loss: Loss::Scaled(rule.scale), read, ..OmegaRule::omega_net(rule.chunking) };
        let [w1, w2] = memory;
        let momentum = |w: &Tensor| Tensor::zeros(device, DType::F32, w.shape());
        let own = |w: &Tensor| -> Result<Tensor> {
            let mut copy = momentum(w)?;
            copy_tokens(Pass::Run, device, w, &mut copy)?;
            Ok(copy)
        };
        Ok(AtlasLayer {
            device: device.clone(),
            sizes,
            rule,
            weights,
            stream: OmegaStream::new(device, as_rule, of)?,
            memory: [own(&w1)?, own(&w2)?, momentum(&w1)?, momentum(&w2)?],
            past: [[rows()?, rows()?], [rows()?, rows()?]],
            seen: 0,
            is_turned: false,
            last: 0,
            room: [tokens(piece)?, tokens(piece)?, tokens(piece)?, tokens(piece)?, tokens(piece)?],
            lse: Tensor::zeros(device, DType::F32, [sequences, heads, piece])?,
            documents: Tensor::zeros(device, DType::I32, [sequences, piece])?,
        })
    }

    /// The memory as it is: `W1`, `W2`, `S1`, `S2`.
    pub fn memory(&self) -> &[Tensor; 4] {
        &self.memory
    }

    /// What the memory gave for the first tokens of the piece that was pushed last, before its norm: `[B, T, H, D]`.
    ///
    /// # Errors
    /// A tensor's, if more tokens are asked for than that piece had.
    pub fn last_read(&self, tokens: usize) -> Result<Tensor> {
        part_of(&self.room[2], self.last)?.slice(1, 0..tokens)
    }

    /// Bytes that the layer holds on its device, its weights left out.
    pub fn bytes(&self) -> u64 {
        let of = |t: &Tensor| t.len() as u64 * u64::from(t.dtype().bytes());
        let own = self.memory.iter().chain(self.past.iter().flatten()).chain(&self.room);
        self.stream.bytes() + own.chain([&self.lse, &self.documents]).map(of).sum::<u64>()
    }

    /// Computes the tokens that come next, and writes `y` `[B, T, H, D]`, which may be one of the tokens' tensors and shares no
    /// memory with what else is given. It may return before a GPU has done so. All launches are made ready before the first one
    /// runs.
    ///
    /// # Errors
    /// Those of [`Launch::launch`](atlas_runtime::Launch::launch), and
    /// [`LaunchError::DimConflict`](atlas_runtime::LaunchError::DimConflict) if some tensor has another number of tokens; the layer
    /// and `y` are as they were then.
    pub fn push(&mut self, tokens: &LayerTokens<'_>, y: &mut Tensor) -> Result<()> {
        tokens.memory[0].slice(1, 0..0)?;
        let count = tokens.memory[0].shape()[1];
        self.check(tokens, y, count)?;
        self.stream.reserve(count)?;
        let start = (self.seen, self.is_turned, self.stream.place());
        let prepared = self.pass(Pass::Prepare, tokens, y, count);
        self.stream.go_back(start.2);
        if self.is_turned != start.1 {
            self.turn();
        }
        self.seen = start.0;
        prepared?;
        self.pass(Pass::Run, tokens, y, count)
    }

    /// Fails if tensors have other numbers of tokens, or share memory where launches that write and read them lie apart.
    fn check(&self, tokens: &LayerTokens<'_>, y: &Tensor, count: usize) -> Result<()> {
        let [q, k, v] = tokens.memory;
        let [alpha, theta, eta] = tokens.gates;
        let mut given = vec![("q", q), ("k", k), ("v", v)];
        given.extend([("alpha", alpha), ("theta", theta), ("eta", eta), ("gamma", tokens.gamma)]);
        if self.rule.combine == Combine::Gate {
            let [q, k, v] = tokens.attention;
            given.extend([("attention q", q), ("attention k", k), ("attention v", v)]);
        }
        let layer = "atlas_layer";
        for of in given.iter().copied().chain([("y", y)]) {
            check_tokens(layer, ("q", count), of)?;
        }
        // A piece of `y` is written after the same piece of the tokens has been read.
        for of in given.into_iter().filter(|of| !is_same_view(of.1, y)) {
            check_apart(layer, ("y", y), of)?;
        }
        for (name, memory) in ["w1", "w2", "s1", "s2"].into_iter().zip(&self.memory) {
            check_apart(layer, ("y", y), (name, memory))?;
        }
        Ok(())
    }

    /// Goes over the launches of tokens that are checked.
    fn pass(&mut self, pass: Pass, tokens: &LayerTokens<'_>, y: &mut Tensor, count: usize) -> Result<()> {
        let mut from = 0;
        while from < count {
            let to = count.min(from + self.sizes.piece);
            let of = |t: &Tensor| t.slice(1, from..to);
            let [q, k, v] = [of(tokens.memory[0])?, of(tokens.memory[1])?, of(tokens.memory[2])?];
            let [alpha, theta, eta] = [of(tokens.gates[0])?, of(tokens.gates[1])?, of(tokens.gates[2])?];
            self.read_memory(pass, [&q, &k, &v], [&alpha, &theta, &eta, &of(tokens.gamma)?])?;
            let mut out = y.slice(1, from..to)?;
            let memory = part_of(&self.room[2], to - from)?;
            match self.rule.combine {
                Combine::Gate => {
                    let [q, k, v] = [of(tokens.attention[0])?, of(tokens.attention[1])?, of(tokens.attention[2])?];
                    let mut attention = part_of(&self.room[4], to - from)?;
                    self.attend(pass, [&q, &k, &v], &mut attention)?;
                    let weights = &self.weights;
                    let (wm, wa, eps) = (&weights.memory_norm, &weights.attention_norm, self.rule.eps);
                    pass.launch(&layer_combine, &self.device, args!(memory, wm, eps, attention, wa, &mut out))?;
                }
                Combine::Sequence => {
                    let mut normed = part_of(&self.room[3], to - from)?;
                    let (w, eps) = (&self.weights.memory_norm, self.rule.eps);
                    pass.launch(&layer_norm, &self.device, args!(memory, w, &mut normed, eps))?;
                    self.attend(pass, [&normed, &normed, &normed], &mut out)?;
                }
            }
            if pass == Pass::Run {
                self.last = to - from;
            }
            from = to;
        }
        Ok(())
    }

    /// Reads and trains the memory; what it gives is `room[2]`.
    fn read_memory(
        &mut self,
        pass: Pass,
        [q, k, v]: [&Tensor; 3],
        [alpha, theta, eta, gamma]: [&Tensor; 4],
    ) -> Result<()> {
        let count = q.shape()[1];
        let [a1, a2, a3] = self.rule.features;
        let [fk, fq, m, ..] = &self.room;
        let (mut fk, mut fq, mut m) = (part_of(fk, count)?, part_of(fq, count)?, part_of(m, count)?);
        pass.launch(&layer_features, &self.device, args!(k, &mut fk, a1, a2, a3))?;
        pass.launch(&layer_features, &self.device, args!(q, &mut fq, a1, a2, a3))?;
        let tokens = Tokens { q: &fq, k: &fk, v, rq: q, rk: k, alpha, theta, eta, gamma };
        let mut memory = self.memory.each_mut();
        self.stream.pass(pass, &tokens, &mut memory, &mut m)
    }

    /// Attention of the tokens to themselves and to those of their windows before.
    fn attend(&mut self, pass: Pass, [q, k, v]: [&Tensor; 3], o: &mut Tensor) -> Result<()> {
        let count = q.shape()[1];
        let end = self.seen + count;
        let [keys, values] = &self.past;
        copy_tokens(pass, &self.device, k, &mut keys[0].slice(1, self.seen..end)?)?;
        copy_tokens(pass, &self.device, v, &mut values[0].slice(1, self.seen..end)?)?;
        let (ks, vs) = (keys[0].slice(1, 0..end)?, values[0].slice(1, 0..end)?);
        let (prefix_keys, prefix_values) = (&self.weights.prefix_keys, &self.weights.prefix_values);
        let scale = std::f32::consts::LOG2_E / (self.sizes.width as f32).sqrt();
        // A window of more tokens than there can be sees all of them.
        let window = i32::try_from(self.sizes.window).unwrap_or(i32::MAX);
        let documents = part_of(&self.documents, count)?;
        let mut lse = self.lse.slice(2, 0..count)?;
        pass.launch(
            &windowed_attention,
            &self.device,
            args!(q, ks, vs, prefix_keys, prefix_values, documents, window, scale, &mut *o, &mut lse),
        )?;
        let kept = end.min(self.sizes.window - 1);
        if end > kept {
            for [now, next] in &self.past {
                copy_tokens(pass, &self.device, &now.slice(1, end - kept..end)?, &mut part_of(next, kept)?)?;
            }
            self.turn();
        }
        self.seen = kept;
        Ok(())
    }

    /// What is kept of the past and its room change places.
    fn turn(&mut self) {
        self.past.iter_mut().for_each(|[now, next]| std::mem::swap(now, next));
        self.is_turned = !self.is_turned;
    }
}

/// The first tokens of what is held for a piece.
fn part_of(t: &Tensor, count: usize) -> Result<Tensor> {
    t.slice(1, 0..count)
}

crate::records::shipped! {
    "nvidia-h100-80gb-hbm3":
    "layer_combine" "layer_gate" "layer_norm" "omega_copy_tokens"
}
crate::records::shipped! { "nvidia-h200": "layer_combine" "layer_gate" "layer_norm" "omega_copy_gates" "omega_copy_tokens" }
