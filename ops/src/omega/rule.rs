//! What a memory is, what it is trained for and how it steps: the choices between the models of the papers, by name.

use super::{
    Chunking, OMEGA_GATED, OMEGA_GATED_WIDE, OMEGA_LINEAR, OMEGA_LINEAR_WIDE, OMEGA_MLP, OMEGA_MLP_CLUSTER,
    OMEGA_MLP_SPLIT, OMEGA_MLP_WIDE, OMEGA_MUON, OMEGA_MUON_GATED, OMEGA_MUON_GATED_WIDE, OMEGA_MUON_LINEAR,
    OMEGA_MUON_LINEAR_WIDE, OMEGA_MUON_NORMED, OMEGA_MUON_NORMED_WIDE, OMEGA_MUON_TOKENS, OMEGA_MUON_TOKENS_GATED,
    OMEGA_MUON_TOKENS_GATED_WIDE, OMEGA_MUON_TOKENS_LINEAR, OMEGA_MUON_TOKENS_LINEAR_WIDE, OMEGA_MUON_TOKENS_NORMED,
    OMEGA_MUON_TOKENS_NORMED_WIDE, OMEGA_MUON_TOKENS_WIDE, OMEGA_MUON_WIDE, OMEGA_NORMED, OMEGA_NORMED_WIDE,
};
use atlas_dsl::DType;
use atlas_runtime::Chain;

/// What a memory computes of a row `x` of `D` features and a residual `r` of `E` elements. Matrices are as `torch.nn.Linear`
/// has its weights, outputs by inputs. `M` is the hidden dim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryForm {
    /// `r + W x`, with `W` `[E, D]`.
    Linear,
    /// `r + W1 gelu(W2 x)`, with `W1` `[E, M]` and `W2` `[M, D]` (ATLAS Eq. 42).
    Mlp,
    /// `r + W1 (gelu(W2 x) (*) W3 x)`, with `W1` `[E, M]`, `W2` and `W3` `[M, D]` (ATLAS Eq. 43).
    Gated,
    /// `r + norm(W1 gelu(W2 x)) (*) w`, with the matrices of [`Mlp`](MemoryForm::Mlp). `norm` is a layer norm over `E`
    /// elements, and `w` its weight, `[H, E]`, which the memory does not train (TTT, arXiv 2407.04620).
    Normed {
        /// Added to the variance before its root. With 0, a row whose elements are all alike has no norm: NaN is read.
        eps: f32,
    },
}

impl MemoryForm {
    /// What the norm inside it adds to a variance; 0 without a norm.
    pub(super) fn eps(&self) -> f32 {
        match self {
            MemoryForm::Normed { eps } => *eps,
            _ => 0.0,
        }
    }

    /// Rows and columns of its matrices, in order.
    pub fn matrices(&self, key: usize, value: usize, hidden: usize) -> Vec<[usize; 2]> {
        match self {
            MemoryForm::Linear => vec![[value, key]],
            MemoryForm::Mlp | MemoryForm::Normed { .. } => vec![[value, hidden], [hidden, key]],
            MemoryForm::Gated => vec![[value, hidden], [hidden, key], [hidden, key]],
        }
    }
}

/// How the weights follow the momentum `S_t = theta_t S_(t-1) + u_t`, where `u_t` is the window's gradient. `S` is a sum of
/// gradients, and steps go against it: the papers' `S` of Titans and of ATLAS Eq. 13 has the other sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `M_t = alpha_t M_(t-1) - eta_t S_t`.
    Descent,
    /// `M_t = alpha_t M_(t-1) - eta_t NS(S_t)` (ATLAS Eq. 32), of each matrix by itself.
    MuonByToken,
    /// One step for a chunk: `M <- (product of its alpha) M - eta NS(S)`, with the `eta` of its last token (LaCT).
    MuonByChunk,
}

/// What a memory is trained for, of a key with the value `v`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// `|M(k) - v|^2` (ATLAS, Titans).
    Square,
    /// `1/2 |M(k) - v|^2` (delta rule).
    HalfSquare,
    /// `|M(k) - v|^2 / E`, as `torch.nn.functional.mse_loss` has it (titans-pytorch).
    MeanSquare,
    /// `s/2 |M(k) - v|^2` of any `s`.
    Scaled(f32),
    /// `-<M(k), v>` (linear attention, DLA, SWLA, LaCT).
    Dot,
}

impl Loss {
    /// What the error `M(k) - v`, or `-v`, is multiplied by in a gradient.
    pub fn factor(&self, value: usize) -> f32 {
        match self {
            Loss::Square => 2.0,
            Loss::HalfSquare | Loss::Dot => 1.0,
            Loss::MeanSquare => 2.0 / value.max(1) as f32,
            Loss::Scaled(s) => *s,
        }
    }

    /// Whether what the memory makes of the key is part of the error.
    pub fn predicts(&self) -> bool {
        *self != Loss::Dot
    }
}

/// When a token reads the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// After the token's own step: `y_t = M_t(q_t)` (ATLAS). Of [`Step::MuonByChunk`] it is the step of the chunk, so that
    /// tokens also read what later tokens of their chunk have taught. The chains offer that for models that may see a whole chunk, such
    /// as LaCT's of images. [`OmegaStream`](super::OmegaStream) and [`OmegaPacked`](super::OmegaPacked) are for models that predict
    /// the next token, and refuse it, unless chunks have one token.
    After,
    /// Before it: `y_t = M_(t-1)(q_t)` (Titans' memory as context, LaCT). Of [`Step::MuonByChunk`] it is the memory before the
    /// chunk.
    Before,
}

/// A memory that is trained while its sequence is read. The models of the papers are these:
///
/// | model | memory | step | loss | chunking | gates |
/// |---|---|---|---|---|---|
/// | OmegaNet (ATLAS Eq. 10) | [`Mlp`](MemoryForm::Mlp) | [`Descent`](Step::Descent) | [`Square`](Loss::Square) | window `c` | |
/// | Atlas (ATLAS Eq. 32, 33) | [`Mlp`](MemoryForm::Mlp) | [`MuonByToken`](Step::MuonByToken) | [`Square`](Loss::Square) | window `c` | |
/// | ATLAS++ (ATLAS Eq. 43) | [`Gated`](MemoryForm::Gated) | [`MuonByToken`](Step::MuonByToken) | [`Square`](Loss::Square) | window `c` | |
/// | LaCT (arXiv 2505.23884), whose gate is SiLU | [`Gated`](MemoryForm::Gated) | [`MuonByChunk`](Step::MuonByChunk) | [`Dot`](Loss::Dot) | window 1 | |
/// | Titans (arXiv 2501.00663) | [`Mlp`](MemoryForm::Mlp) | [`Descent`](Step::Descent) | [`Square`](Loss::Square) | window 1 | `alpha` is its `1 - alpha`, `theta` its `eta`, `gamma` its `theta`; `eta = 1` |
/// | DLA (ATLAS Eq. 19) | [`Mlp`](MemoryForm::Mlp) | [`Descent`](Step::Descent) | [`Dot`](Loss::Dot) | window 1 | `theta = 0` |
/// | SWLA (ATLAS Eq. 20) | [`Linear`](MemoryForm::Linear) | [`Descent`](Step::Descent) | [`Dot`](Loss::Dot) | window `c` | `theta = 0` |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OmegaRule {
    /// What the memory computes.
    pub memory: MemoryForm,
    /// How it steps.
    pub step: Step,
    /// What it is trained for.
    pub loss: Loss,
    /// When a token reads it.
    pub read: Read,
    /// Chunks and windows.
    pub chunking: Chunking,
}

impl OmegaRule {
    /// The chain that computes the rule for keys with `key` elements and values with `value` elements, of type `dtype`.
    ///
    /// There are two chains, with the same parameters, that compute the same. The first is taken where its tiles fit all targets; an L4
    /// (`sm_89`) has the least shared memory, 99 KiB.
    ///
    /// By [`Step::Descent`], the kernels of the first hold whole rows of a chunk's keys and values in shared memory and registers.
    /// Those of the second stream rows in tiles, and take any width. With chunks of 64 tokens and windows of 16, the first takes rows of
    /// up to 96 elements of 16 bits: of 64 for a memory with a norm inside, and of 256 for a linear one. In f32 these are rows of up
    /// to 22 elements, and of 64 for a linear memory. Long windows make more keys of a chunk, and rows are streamed sooner.
    ///
    /// With Muon, the kernels of the first hold whole matrices. They take rows of up to 64 elements where the hidden layer has
    /// at most four times as many, which is assumed here: [`chain_for_hidden`](OmegaRule::chain_for_hidden) takes others. Of a linear
    /// memory they take up to 96 times 96 elements of 16 bits, or 96 times 64 of f32. Those of the second walk over their matrices in
    /// global memory, and take keys, values and a hidden layer of any width. Only a memory with a norm inside holds whole rows of values:
    /// these have at most 128 elements, and where they have, a chunk may see no more than 96 keys. Others have no legal config on a GPU.
    ///
    /// All chains hold all keys of a chunk at once ([`Chunking::keys`]), so a window may be too long for a GPU.
    /// [`OmegaStream`](super::OmegaStream) and [`OmegaPacked`](super::OmegaPacked) refuse it when they are made, and say how long it
    /// may be.
    pub fn chain_for(&self, key: usize, value: usize, dtype: DType) -> &'static Chain {
        let holds = if self.step == Step::Descent { Self::holds_whole_rows } else { Self::holds_whole_matrices };
        if holds(self, key, value, dtype) { self.chain() } else { self.wide_chain() }
    }

    /// The same for a memory with `hidden` hidden elements. With Muon, matrices with more than 256 hidden elements, or with more than
    /// 512 where rows have at most 32, are too large to be held whole. By descent, the hidden layer is streamed anyway.
    /// [`OmegaStream`](super::OmegaStream) and [`OmegaPacked`](super::OmegaPacked) take this chain, or [`OMEGA_MLP_SPLIT`] on a GPU that it
    /// would leave mostly idle.
    pub fn chain_for_hidden(&self, key: usize, value: usize, hidden: usize, dtype: DType) -> &'static Chain {
        let most = if key.max(value) <= 32 { 512 } else { 256 };
        let has_hidden = self.memory != MemoryForm::Linear && self.step != Step::Descent;
        if has_hidden && hidden > most { self.wide_chain() } else { self.chain_for(key, value, dtype) }
    }

    /// Whether the matrices of a memory, with four times as many hidden elements as its rows are wide, fit registers and shared memory
    /// with a chunk's keys. The bounds are found as those of [`holds_whole_rows`](OmegaRule::holds_whole_rows).
    fn holds_whole_matrices(&self, key: usize, value: usize, dtype: DType) -> bool {
        let (keys, width, is_short) = (self.chunking.keys(), key.max(value), dtype.bytes() <= 2);
        let fits = match (self.memory, is_short) {
            (MemoryForm::Linear, true) => width <= 96 && keys.saturating_mul(width) <= 96 * 96,
            (MemoryForm::Linear, false) => {
                width <= 96 && key * value <= 96 * 64 && keys.saturating_mul(width) <= 96 * 80
            }
            _ => width <= 64,
        };
        fits && keys <= if is_short { 144 } else { 112 }
    }

    /// Whether the rows of a chunk fit shared memory and registers.
    ///
    /// Of `L` tokens and `K` keys, each in the next multiple of 16 as tensor cores take them, shared memory holds the products of queries
    /// with keys `[L, K]` and rows of keys and queries. For a memory of two layers it also holds errors three times, once by each of
    /// their weights, 16 rows of four matrices, and where windows are long, above all tiles of 16 hidden elements of each key. For a
    /// linear memory it holds one tile of values or two of weights, and rows of keys take about the room of the next multiple of 32.
    /// Registers bound the width, `K` and `L K`; more tightly where rows of keys do not begin at multiples of 4 bytes, because these go
    /// through registers. Within these bounds every chain has a legal config on sm_80, sm_89 and sm_90a: a test goes over a grid of
    /// sizes.
    fn holds_whole_rows(&self, key: usize, value: usize, dtype: DType) -> bool {
        let padded = |count: usize| count.checked_next_multiple_of(16).unwrap_or(usize::MAX);
        let (tokens, keys) = (padded(self.chunking.chunk.max(1)), padded(self.chunking.keys()));
        let (bytes, is_linear) = (dtype.bytes() as usize, self.memory == MemoryForm::Linear);
        let met = tokens.saturating_mul(keys);
        let fits = |elements: usize, room: usize| elements.saturating_mul(bytes) <= room;
        let is_short = bytes <= 2;
        if is_linear {
            let is_odd = key.saturating_mul(bytes) % 4 != 0;
            let key = key.checked_next_multiple_of(32).unwrap_or(usize::MAX);
            let held = keys.saturating_add(tokens).saturating_mul(key).saturating_add(met);
            let [tile, weights] = [keys, key].map(|rows| rows.saturating_mul(32));
            let room = if is_short { 84 << 10 } else { 72 << 10 };
            let has_registers = keys <= 256
                && (tokens <= 64 || (tokens <= 128 && keys <= 144))
                && (!is_odd || keys.saturating_mul(key) <= 96 * 256);
            let has_room = fits(held.saturating_add(tile), 99 << 10) && fits(held.saturating_add(weights), 98 << 10);
            return key <= 256 && has_registers && fits(held, room) && has_room;
        }
        let width = key.max(value);
        let has_norm = matches!(self.memory, MemoryForm::Normed { .. });
        let room = match (is_short, has_norm) {
            (true, false) => 96 << 10,
            (true, true) => 66 << 10,
            (false, _) => 60 << 10,
        };
        let rows = keys.saturating_mul(4).saturating_add(tokens).saturating_add(64);
        let held = rows.saturating_mul(width).saturating_add(met);
        width <= if tokens < 64 { 128 } else { 96 }
            && met <= 64 * 96
            && fits(held, room)
            && fits(held_by_hidden([tokens, keys], padded(width)), 99 << 10)
    }

    /// The chain of kernels that computes it with rows that are not too wide: see [`chain_for`](OmegaRule::chain_for).
    pub fn chain(&self) -> &'static Chain {
        match (self.memory, self.step) {
            (MemoryForm::Linear, Step::Descent) => &OMEGA_LINEAR,
            (MemoryForm::Mlp, Step::Descent) => &OMEGA_MLP,
            (MemoryForm::Gated, Step::Descent) => &OMEGA_GATED,
            (MemoryForm::Normed { .. }, Step::Descent) => &OMEGA_NORMED,
            (MemoryForm::Linear, Step::MuonByChunk) => &OMEGA_MUON_LINEAR,
            (MemoryForm::Mlp, Step::MuonByChunk) => &OMEGA_MUON,
            (MemoryForm::Gated, Step::MuonByChunk) => &OMEGA_MUON_GATED,
            (MemoryForm::Normed { .. }, Step::MuonByChunk) => &OMEGA_MUON_NORMED,
            (MemoryForm::Linear, Step::MuonByToken) => &OMEGA_MUON_TOKENS_LINEAR,
            (MemoryForm::Mlp, Step::MuonByToken) => &OMEGA_MUON_TOKENS,
            (MemoryForm::Gated, Step::MuonByToken) => &OMEGA_MUON_TOKENS_GATED,
            (MemoryForm::Normed { .. }, Step::MuonByToken) => &OMEGA_MUON_TOKENS_NORMED,
        }
    }

    /// The chain of kernels for rows or, with Muon, matrices that are too wide for [`chain`](OmegaRule::chain).
    pub(super) fn wide_chain(&self) -> &'static Chain {
        match (self.memory, self.step) {
            (MemoryForm::Linear, Step::Descent) => &OMEGA_LINEAR_WIDE,
            (MemoryForm::Mlp, Step::Descent) => &OMEGA_MLP_WIDE,
            (MemoryForm::Gated, Step::Descent) => &OMEGA_GATED_WIDE,
            (MemoryForm::Normed { .. }, Step::Descent) => &OMEGA_NORMED_WIDE,
            (MemoryForm::Linear, Step::MuonByChunk) => &OMEGA_MUON_LINEAR_WIDE,
            (MemoryForm::Mlp, Step::MuonByChunk) => &OMEGA_MUON_WIDE,
            (MemoryForm::Gated, Step::MuonByChunk) => &OMEGA_MUON_GATED_WIDE,
            (MemoryForm::Normed { .. }, Step::MuonByChunk) => &OMEGA_MUON_NORMED_WIDE,
            (MemoryForm::Linear, Step::MuonByToken) => &OMEGA_MUON_TOKENS_LINEAR_WIDE,
            (MemoryForm::Mlp, Step::MuonByToken) => &OMEGA_MUON_TOKENS_WIDE,
            (MemoryForm::Gated, Step::MuonByToken) => &OMEGA_MUON_TOKENS_GATED_WIDE,
            (MemoryForm::Normed { .. }, Step::MuonByToken) => &OMEGA_MUON_TOKENS_NORMED_WIDE,
        }
    }

    /// The chain with the parameters of [`chain`](OmegaRule::chain) whose passes over a chunk are launches, for few sequences and heads.
    pub(super) fn split_chain(&self) -> Option<&'static Chain> {
        match (self.memory, self.step) {
            (MemoryForm::Mlp, Step::Descent) => Some(&OMEGA_MLP_SPLIT),
            _ => None,
        }
    }

    /// The same, where clusters of programs train a memory with so many hidden elements: of two layers, by descent, with tokens of 16 bits
    /// and at most 64 elements, in whole vectors of 16 bytes. Four matrices stay in the registers of at most eight programs, with a chunk's
    /// keys beside them: of 192 registers a thread, tiles of 64 hidden elements take about 176 with 80 keys.
    pub(super) fn cluster_chain(
        &self,
        key: usize,
        value: usize,
        hidden: usize,
        dtype: DType,
    ) -> Option<&'static Chain> {
        let is_whole = key.is_multiple_of(8) && value.is_multiple_of(8);
        let is_small = key.max(value) <= 64 && self.chunking.keys() <= 80 && dtype.bytes() == 2 && is_whole;
        let has_tiles = (65..=512).contains(&hidden);
        self.split_chain().filter(|_| is_small && has_tiles).map(|_| &OMEGA_MLP_CLUSTER)
    }

    /// The same with a chunk and a window of one token at least.
    pub(crate) fn at_least_one(self) -> OmegaRule {
        let Chunking { chunk, window, halo } = self.chunking;
        OmegaRule { chunking: Chunking { halo, ..Chunking::new(chunk, window) }, ..self }
    }

    /// OmegaNet (ATLAS Eq. 10): gradient descent with momentum on windows.
    pub fn omega_net(chunking: Chunking) -> OmegaRule {
        OmegaRule { memory: MemoryForm::Mlp, step: Step::Descent, loss: Loss::Square, read: Read::After, chunking }
    }

    /// Atlas (ATLAS Eq. 32 and 33): the same with an orthogonalised step for each token.
    pub fn atlas(chunking: Chunking) -> OmegaRule {
        OmegaRule { step: Step::MuonByToken, ..OmegaRule::omega_net(chunking) }
    }

    /// ATLAS++ (ATLAS Eq. 43): Atlas with a gated memory.
    pub fn atlas_pp(chunking: Chunking) -> OmegaRule {
        OmegaRule { memory: MemoryForm::Gated, ..OmegaRule::atlas(chunking) }
    }

    /// Titans' long-term memory (arXiv 2501.00663 Eq. 13 and 14), with `chunk` tokens in a chunk. Its gates have other names: see
    /// the table of [`OmegaRule`].
    pub fn titans(chunk: usize) -> OmegaRule {
        OmegaRule::omega_net(Chunking::new(chunk, 1))
    }

    /// Deep linear attention (ATLAS Eq. 19), with `chunk` tokens in a chunk.
    pub fn deep_linear_attention(chunk: usize) -> OmegaRule {
        OmegaRule { loss: Loss::Dot, ..OmegaRule::titans(chunk) }
    }

    /// Linear attention over a sliding window (ATLAS Eq. 20).
    pub fn sliding_window_linear_attention(chunking: Chunking) -> OmegaRule {
        OmegaRule { memory: MemoryForm::Linear, loss: Loss::Dot, ..OmegaRule::omega_net(chunking) }
    }
}

/// Elements that a memory of two layers of this width holds in shared memory, in the loop over its hidden elements: four rows and about 52
/// hidden elements of each key, what tokens meet, and 16 rows of four matrices. Rows whose width is no power of two have 8 more.
fn held_by_hidden([tokens, keys]: [usize; 2], width: usize) -> usize {
    let row = if width.is_power_of_two() { width } else { width.saturating_add(8) };
    // What 64 tokens meet takes the place of their queries.
    let of_token = if tokens < 64 { keys.saturating_add(width) } else { keys.max(width) };
    let of_keys = row.saturating_mul(4).saturating_add(52).saturating_mul(keys);
    of_keys.saturating_add(of_token.saturating_mul(tokens)).saturating_add(width.saturating_mul(64))
}
