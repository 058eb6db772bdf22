//! Memory as a context: the attention of a segment to itself, to a prefix and to what the memory recalls for it.
//!
//! Recalled keys and those of tokens stand in turn, `h_0 x_0 h_1 x_1 ..`, and so do queries, with zeros for those of the recalled
//! rows. So one causal attention lets token `i` see `h_j` and `x_j` of all `j <= i`. The rows between are computed and not used,
//! which costs as much again as the attention needs: with 16 heads of 64 elements and segments of 256 tokens, a twentieth of the layer.
//!
//! A segment may come in parts, while the memory is trained at each of its chunks. So the memory before it is kept as a copy.

use super::{LAYER, LayerRule, LayerSizes, LayerWeights, layer_norm, missing, part_of};
use crate::batched_matmul::batched_matmul;
use crate::memory_recall::{
    memory_recall_gated, memory_recall_gated_wide, memory_recall_linear, memory_recall_linear_wide, memory_recall_mlp,
    memory_recall_mlp_wide, memory_recall_normed, memory_recall_normed_wide,
};
use crate::omega::{MemoryForm, copy_tokens};
use crate::pass::Pass;
use crate::windowed_attention::windowed_attention;
use atlas_dsl::{DType, KernelDef};
use atlas_runtime::{Device, HostState, Result, Tensor, args};

/// Projections between memory and attention, in the element type of tokens. Each takes all heads of a token as one row and is
/// shaped as a weight of `torch.nn.Linear`, outputs by inputs: `[H D, H D]`. A projection per head is one with blocks on its
/// diagonal. What a model has between, such as an output projection of the attention, is part of them: `W_K W_O`.
#[derive(Clone, Debug)]
pub struct ContextWeights {
    /// Of what is recalled: keys and values of the attention. In Titans these are the attention's own `W_K` and `W_V`.
    pub recalled: [Tensor; 2],
    /// Of what the attention gives: queries, keys and values of the memory.
    pub memory: [Tensor; 3],
    /// Weights `[H, D]` of the RMS norms of these queries and keys, with the `eps` of the rule. `D^(-1/2)` throughout makes rows of
    /// length 1, as Titans has them. Without them there is no norm.
    pub norms: Option<[Tensor; 2]>,
}

impl ContextWeights {
    /// All of them, by name.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        let names = ["context.recalled[0]", "context.recalled[1]"].into_iter();
        let recalled = names.zip(&self.recalled);
        let names = ["context.memory[0]", "context.memory[1]", "context.memory[2]"].into_iter();
        let norms = ["context.norms[0]", "context.norms[1]"].into_iter().zip(self.norms.iter().flatten());
        recalled.chain(names.zip(&self.memory)).chain(norms)
    }
}

/// Bytes of the longest row of features that kernels hold whole when they recall. 64 of these fit the shared memory of every GPU with
/// weights beside them.
const WHOLE_ROW: usize = 1 << 10;

/// The segment that is not full, and the memory before it.
pub(super) struct Context {
    device: Device,
    sizes: LayerSizes,
    segment: usize,
    weights: ContextWeights,
    eps: f32,
    form: MemoryForm,
    /// The weight of the norm inside the memory.
    inner_norm: Option<Tensor>,
    /// The weights of the memory before the segment.
    before: Vec<Tensor>,
    /// Keys and values of the segment, `[B, C, 2 H D]`: those of what is recalled for a token, then its own.
    pairs: [Tensor; 2],
    /// Queries, and what the attention gives, of a part of the segment, `[B, P, 2 H D]`. The first half of a query is 0.
    queries: Tensor,
    attended: Tensor,
    lse: Tensor,
    documents: Tensor,
    /// Rows of a part, `[B, P, H D]`: what is recalled and later the memory's queries; its keys; its values; rows before a norm.
    rooms: [Tensor; 4],
    /// Tokens of the segment so far.
    seen: HostState<usize>,
}

impl Context {
    /// A context at the start of its sequences, for parts of up to `sizes.piece` tokens.
    ///
    /// # Errors
    /// [`LaunchError::MissingTensor`] without weights, and those of [`Tensor::zeros`].
    pub(super) fn new(
        device: &Device,
        (sizes, segment): (LayerSizes, usize),
        rule: &LayerRule,
        weights: &LayerWeights,
        memory: &[Tensor],
    ) -> Result<Context> {
        let LayerSizes { sequences, heads, width, piece, dtype, .. } = sizes;
        let inner_norm = weights.inner_norm.clone();
        let weights = weights.context.clone().ok_or(missing("context"))?;
        let like = |w: &Tensor| Tensor::zeros(device, DType::F32, w.shape());
        let (row, both) = (heads * width, piece.saturating_mul(2));
        let zeros = |dtype, shape: &[usize]| Tensor::zeros(device, dtype, shape);
        let pairs = |tokens: usize| zeros(dtype, &[sequences, tokens, 2 * row]);
        let room = || zeros(dtype, &[sequences, piece, row]);
        Ok(Context {
            device: device.clone(),
            sizes,
            segment,
            weights,
            eps: rule.eps,
            form: rule.memory.memory,
            inner_norm,
            before: memory.iter().map(like).collect::<Result<_>>()?,
            pairs: [pairs(segment)?, pairs(segment)?],
            queries: pairs(piece)?,
            attended: pairs(piece)?,
            lse: zeros(DType::F32, &[sequences, heads, both])?,
            documents: zeros(DType::I32, &[sequences, both])?,
            rooms: [room()?, room()?, room()?, room()?],
            seen: HostState::default(),
        })
    }

    /// Bytes that it holds on its device.
    pub(super) fn bytes(&self) -> u64 {
        let of = |t: &Tensor| t.len() as u64 * u64::from(t.dtype().bytes());
        let own = self.before.iter().chain(&self.pairs).chain(&self.rooms);
        own.chain([&self.queries, &self.attended, &self.lse, &self.documents]).map(of).sum()
    }

    /// Tokens of the parts that so many tokens are computed in: none reaches past a segment.
    pub(super) fn parts(&self, count: usize) -> Vec<usize> {
        let (mut parts, mut seen, mut left) = (vec![], self.seen(), count);
        while left > 0 {
            let part = left.min(self.segment - seen).min(self.sizes.piece);
            parts.push(part);
            (seen, left) = ((seen + part) % self.segment, left - part);
        }
        parts
    }

    /// Tokens of the segment so far.
    pub(super) fn seen(&self) -> usize {
        self.seen.get()
    }

    /// Goes back to where it was before a pass that only prepared.
    pub(super) fn go_back(&mut self, seen: usize) {
        self.seen.set(&self.device, LAYER, seen);
    }

    /// Begins a segment.
    pub(super) fn restart(&mut self) {
        self.seen.restart(&self.device, LAYER, 0);
    }

    /// Goes on behind a part whose memory has been trained.
    pub(super) fn advance(&mut self, count: usize) {
        self.seen.set(&self.device, LAYER, (self.seen() + count) % self.segment);
    }

    /// Recalls what the memory before the segment has for queries, given as features and residuals, and makes keys and values of
    /// it. At the start of a segment that memory is `memory`.
    pub(super) fn recall(&mut self, pass: Pass, memory: &[Tensor], [q, rq]: [&Tensor; 2]) -> Result<()> {
        if self.seen() == 0 {
            for (now, before) in memory.iter().zip(&mut self.before) {
                copy_tokens(pass, &self.device, now, before)?;
            }
        }
        let count = q.shape()[1];
        let recalled = part_of(&self.rooms[0], count)?;
        self.read_before(pass, [q, rq], &mut self.heads(&recalled)?)?;
        for (w, pairs) in self.weights.recalled.iter().zip(&self.pairs) {
            self.project(pass, &recalled, w, &mut self.rows(pairs, 0, self.seen()..self.seen() + count)?)?;
        }
        Ok(())
    }

    /// y = what the memory before the segment makes of queries.
    fn read_before(&self, pass: Pass, [x, r]: [&Tensor; 2], y: &mut Tensor) -> Result<()> {
        let (device, w) = (&self.device, &self.before);
        let is_wide = x.shape()[3] * x.dtype().bytes() as usize > WHOLE_ROW;
        let of = |whole: &'static KernelDef, wide: &'static KernelDef| if is_wide { wide } else { whole };
        let linear = of(&memory_recall_linear, &memory_recall_linear_wide);
        let mlp = of(&memory_recall_mlp, &memory_recall_mlp_wide);
        let gated = of(&memory_recall_gated, &memory_recall_gated_wide);
        let normed = of(&memory_recall_normed, &memory_recall_normed_wide);
        match self.form {
            MemoryForm::Linear => pass.launch(linear, device, args!(x, w[0], r, &mut *y)),
            MemoryForm::Mlp => pass.launch(mlp, device, args!(x, w[0], w[1], r, &mut *y)),
            MemoryForm::Gated => pass.launch(gated, device, args!(x, w[0], w[1], w[2], r, &mut *y)),
            MemoryForm::Normed { eps } => {
                let norm = self.inner_norm.as_ref().ok_or(missing("inner_norm"))?;
                pass.launch(normed, device, args!(x, w[0], w[1], norm, r, eps, &mut *y))
            }
        }
    }

    /// Attention of the queries, keys and values of a part, with prefix keys and values: `[B, T, H, D]`.
    pub(super) fn attend(
        &mut self,
        pass: Pass,
        [q, k, v]: [&Tensor; 3],
        [prefix_keys, prefix_values]: [&Tensor; 2],
    ) -> Result<Tensor> {
        let LayerSizes { sequences, heads, width, piece, .. } = self.sizes;
        let (count, end) = (q.shape()[1], self.seen() + q.shape()[1]);
        let own = |pairs: &Tensor, tokens| self.heads(&self.rows(pairs, 1, tokens)?);
        copy_tokens(pass, &self.device, q, &mut own(&self.queries, 0..count)?)?;
        copy_tokens(pass, &self.device, k, &mut own(&self.pairs[0], self.seen()..end)?)?;
        copy_tokens(pass, &self.device, v, &mut own(&self.pairs[1], self.seen()..end)?)?;
        let in_turn = |pairs: &Tensor, tokens: usize, of: usize| {
            part_of(&pairs.reshape([sequences, 2 * tokens, heads, width])?, 2 * of)
        };
        let (queries, mut out) = (in_turn(&self.queries, piece, count)?, in_turn(&self.attended, piece, count)?);
        let keys = in_turn(&self.pairs[0], self.segment, end)?;
        let values = in_turn(&self.pairs[1], self.segment, end)?;
        let (documents, mut lse) = (part_of(&self.documents, 2 * count)?, self.lse.slice(2, 0..2 * count)?);
        let scale = (width as f32).sqrt().recip();
        pass.launch(
            &windowed_attention,
            &self.device,
            args!(queries, keys, values, prefix_keys, prefix_values, documents, i32::MAX, scale, &mut out, &mut lse),
        )?;
        own(&self.attended, 0..count)
    }

    /// The memory's queries, keys and values for a part with `count` tokens, from the attention's output.
    pub(super) fn project_attended(&self, pass: Pass, count: usize) -> Result<[Tensor; 3]> {
        let y = self.rows(&self.attended, 1, 0..count)?;
        let room = |at: usize| part_of(&self.rooms[at], count);
        for (at, w) in self.weights.memory.iter().enumerate() {
            match self.weights.norms.as_ref().and_then(|norms| norms.get(at)) {
                None => self.project(pass, &y, w, &mut room(at)?)?,
                Some(norm) => {
                    self.project(pass, &y, w, &mut room(3)?)?;
                    let (x, mut normed) = (self.heads(&room(3)?)?, self.heads(&room(at)?)?);
                    pass.launch(&layer_norm, &self.device, args!(x, norm, &mut normed, self.eps))?;
                }
            }
        }
        Ok([self.heads(&room(0)?)?, self.heads(&room(1)?)?, self.heads(&room(2)?)?])
    }

    /// Half of the pairs of some tokens, `[B, T, H D]`.
    fn rows(&self, pairs: &Tensor, half: usize, tokens: std::ops::Range<usize>) -> Result<Tensor> {
        let row = self.sizes.heads * self.sizes.width;
        pairs.slice(2, half * row..(half + 1) * row)?.slice(1, tokens)
    }

    /// Rows `[B, T, H D]` as `[B, T, H, D]`.
    fn heads(&self, rows: &Tensor) -> Result<Tensor> {
        rows.split(2, self.sizes.width)
    }

    /// y = x wᵀ of rows `[B, T, H D]`.
    fn project(&self, pass: Pass, x: &Tensor, w: &Tensor, y: &mut Tensor) -> Result<()> {
        let row = self.sizes.heads * self.sizes.width;
        let w = w.expand([self.sizes.sequences, row, row])?;
        pass.launch(&batched_matmul, &self.device, args!(x, w, &mut *y))
    }
}
