//! Sequences of different lengths one after the other, as batches of documents come: the memory starts anew with each.
//!
//! Documents are laid out side by side, each from the start of a row, the rule runs over the rows, and what was read is laid
//! out as the documents were. Behind a document's last token its row has gates that change nothing: `alpha = theta = 1` and
//! `eta = gamma = 0`. So each document has the chunks that it has alone, and its memory ends as it ends alone. A step for each chunk
//! ([`Step::MuonByChunk`]) is as long as the last `eta` of the chunk says: there a chunk that the document does not fill goes on
//! with the `eta` of its last token, and chunks behind it have none.
//!
//! Documents follow each other: each ends where the next one begins. Tokens before the first and behind the last are in none. They
//! train no memory, and what is read at them is 0. A boundary before the first token counts as the first, one behind the last
//! token as the end. Of a document that is longer than a row the first `N` tokens are read and trained on; at the others NaN is
//! read, for where documents end is known on the device alone.
//!
//! It costs a copy of the tokens, and the time of the longest document for all that run beside it.

use super::chain_space::ChainSpace;
use super::stream::{arguments, check_causal, check_memory, check_tokens, parts_of_rows};
use super::{OmegaRule, Step, StreamSizes, Tokens, open_chunk};
use crate::pass::{Pass, check_tensor, tokens_of};
#[cfg(feature = "verify")]
use crate::problem::{Inputs, Problem};
use atlas_dsl::DType;
use atlas_macros::atlas_kernel;
use atlas_runtime::{Chain, Result, Stream, Tensor, args};
use std::collections::BTreeMap;

atlas_kernel! {
    /// A boundary of documents, kept among the tokens.
    tile fn boundary(at, tokens) { min(max(at, 0), tokens) }

    /// `y[b, n] = x[starts[b] + n]`, and `fill` behind the document's end, which is `ends[b]`.
    pub kernel omega_unpack_tokens<T: Float>(
        x: &Tensor<T, [Z, P, H, D]>,
        starts: &Tensor<i32, [B]>,
        ends: &Tensor<i32, [B]>,
        y: &mut Tensor<T, [B, N, H, D]>,
        fill: f32,
    )
    tune { BN: [16, 1, 64], warps: [4, 1] }
    require { Z == 1 }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            let start = boundary(load(starts[b]), size(P));
            let end = boundary(load(ends[b]), size(P));
            let row = n * BN + iota([BN, 1], 0);
            let here = load(x[0, span(start + n * BN, BN), h, ..]).or(0.0);
            store(y[b, n, h, ..], select(row < end - start, here, fill.cast::<T>()));
        }
    }

    /// The same of gates.
    pub kernel omega_unpack_gates(
        x: &Tensor<f32, [Z, P, H]>,
        starts: &Tensor<i32, [B]>,
        ends: &Tensor<i32, [B]>,
        y: &mut Tensor<f32, [B, N, H]>,
        fill: f32,
    )
    tune { BN: [16, 1, 64], warps: [4, 1] }
    require { Z == 1 }
    {
        for (b, n) in grid(B, tiles(N, BN)) {
            let start = boundary(load(starts[b]), size(P));
            let end = boundary(load(ends[b]), size(P));
            let row = n * BN + iota([BN, 1], 0);
            let here = load(x[0, span(start + n * BN, BN), ..]).or(0.0);
            store(y[b, n, ..], select(row < end - start, here, fill));
        }
    }

    /// The same of steps, of which the last one of a chunk counts: behind a document's end its last one goes on to the end of its
    /// chunk of `chunk` tokens, and 0 stands behind that.
    pub kernel omega_unpack_steps(
        x: &Tensor<f32, [Z, P, H]>,
        starts: &Tensor<i32, [B]>,
        ends: &Tensor<i32, [B]>,
        y: &mut Tensor<f32, [B, N, H]>,
        chunk: i32,
    )
    tune { BN: [16, 1, 64], warps: [4, 1] }
    require { Z == 1 }
    {
        for (b, n) in grid(B, tiles(N, BN)) {
            let start = boundary(load(starts[b]), size(P));
            let count = boundary(load(ends[b]), size(P)) - start;
            let length = max(chunk, 1);
            let row = n * BN + iota([BN, 1], 0);
            let here = load(x[0, span(start + n * BN, BN), ..]).or(0.0);
            let last = load(x[0, span(start + count - 1, 1), ..]).or(0.0);
            let behind = select(row / length == (count - 1) / length, last, 0.0);
            store(y[b, n, ..], select(row < count, here, select(count > 0, behind, 0.0)));
        }
    }

    /// `y[starts[b] + n] = x[b, n]` up to `ends[b]`; NaN for tokens of a document past its first `N`, 0 for those of none.
    pub kernel omega_pack_tokens<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        starts: &Tensor<i32, [B]>,
        ends: &Tensor<i32, [B]>,
        y: &mut Tensor<T, [Z, P, H, D]>,
    )
    tune { BH: [16, 4, 1], warps: [1, 4] }
    require { Z == 1 }
    {
        for (z, p, h) in grid(Z, P, tiles(H, BH)) {
            // Documents that begin here or before.
            let mut begun = 0.cast::<i32>();
            for b in tiles(B, 64) {
                begun += sum((load(starts[b]) <= p).cast::<i32>());
            }
            let document = min(max(begun - 1, 0), size(B) - 1);
            let at = p - boundary(load(starts[document]), size(P));
            let is_inside = (begun > 0) && (p < load(ends[document]));
            let else_read = select(is_inside, f32::NAN, 0.0).cast::<T>();
            store(y[z, p, h, ..], select(is_inside && (at < size(N)), load(x[document, at, h, ..]), else_read));
        }
    }
}

/// A rule on packed documents.
///
/// It holds a copy of the tokens, one document a row, so it allocates rows for documents times the longest piece: for each of
/// `sizes.sequences` times `sizes.piece` tokens `heads * (2 key + 4 value)` elements of tokens, and `heads * (3 + window)` of f32, however
/// many tokens are given. [`bytes`](OmegaPacked::bytes) says how much it is. Where most documents are far shorter than the longest
/// one, push the long ones on their own ([`OmegaStream`](super::OmegaStream)).
///
/// It serves one launch at a time: the rows of a launch lie where those of the one before lay. Launches on one stream follow each other.
/// Two on CUDA streams that nothing orders race, and no launch can see that: wait between them ([`Stream::synchronize`]), order the streams
/// by an event of the driver, or have one `OmegaPacked` for each stream.
pub struct OmegaPacked {
    rule: OmegaRule,
    /// Tokens and gates by name, one document a row; and the norm, if it is given.
    rows: BTreeMap<&'static str, Tensor>,
    y: Tensor,
    sizes: StreamSizes,
    space: ChainSpace,
}

impl OmegaPacked {
    /// For `sizes.sequences` documents of at most `sizes.piece` tokens each.
    ///
    /// The workspace of a rule with a step for each token, of one with rows that are streamed ([`OmegaRule::chain_for`]), and of few
    /// documents and heads on a GPU ([`OMEGA_MLP_SPLIT`](super::OMEGA_MLP_SPLIT)) depends on the memory, and is allocated by the first
    /// launch.
    ///
    /// # Errors
    /// As [`OmegaStream::new`](super::OmegaStream::new).
    pub fn new(stream: &Stream, rule: OmegaRule, sizes: StreamSizes) -> Result<OmegaPacked> {
        let rule = rule.at_least_one();
        check_causal(&rule)?;
        let sizes = StreamSizes { piece: sizes.piece.max(1), ..sizes };
        let mut space = ChainSpace::new(stream.device(), rule, sizes, sizes.piece)?;
        let (b, n, h) = (sizes.sequences, sizes.piece, sizes.heads);
        let device = stream.device();
        let of = |dtype: DType, shape: &[usize]| Tensor::empty(device, dtype, shape);
        let mut rows = BTreeMap::new();
        for (name, width) in
            [("q", sizes.key), ("k", sizes.key), ("v", sizes.value), ("rq", sizes.value), ("rk", sizes.value)]
        {
            rows.insert(name, of(sizes.dtype, &[b, n, h, width])?);
        }
        for name in ["alpha", "theta", "eta"] {
            rows.insert(name, of(DType::F32, &[b, n, h])?);
        }
        rows.insert("gamma", of(DType::F32, &[b, n, h, rule.chunking.window])?);
        let y = of(sizes.dtype, &[b, n, h, sizes.value])?;
        if !open_chunk::has_hidden(space.chain()) {
            space.reserve(device, &[])?;
        }
        Ok(OmegaPacked { rule, rows, y, sizes, space })
    }

    /// The same with the weight `[H, E]` of the norm inside the memory, of the element type of tokens.
    /// [`MemoryForm::Normed`](super::MemoryForm::Normed) needs it, and the others take none.
    #[must_use]
    pub fn with_norm(mut self, norm: Tensor) -> OmegaPacked {
        self.rows.insert("norm", norm);
        self
    }

    /// The chain of kernels that it takes, as [`OmegaStream::chain`](super::OmegaStream::chain) has it.
    pub fn chain(&self) -> &'static Chain {
        self.space.chain()
    }

    /// Bytes that it holds on its device.
    pub fn bytes(&self) -> u64 {
        let of = |t: &Tensor| t.len() as u64 * u64::from(t.dtype().bytes());
        let own = self.rows.iter().filter(|(name, _)| **name != "norm");
        own.map(|(_, t)| of(t)).sum::<u64>() + of(&self.y) + self.space.bytes()
    }

    /// Reads and trains a memory on each document, and writes what is read to `y`. `tokens` and `y` are of one sequence `[1, P, ..]`,
    /// the documents one after the other; document `b` is `starts[b]..starts[b + 1]`, of i32, ascending. `memory` are weights,
    /// then momenta, `[B, H, ..]`: one for each document, and `starts` has `B + 1` numbers.
    ///
    /// A document may be empty. Tokens before the first document and behind the last one are in none: they train no memory, and what
    /// is read at them is 0. A start below 0 counts as 0, and one behind the last token as the end. Queues launches alone, but for
    /// what the first one allocates ([`OmegaPacked::new`]), so a graph records all of it ([`Stream::capture`]).
    ///
    /// # Errors
    /// As [`OmegaStream::push`](super::OmegaStream::push); memory and `y` are as they were then. A document of more tokens than
    /// there is room for is no error: its memory is trained on the first `sizes.piece` tokens, and what is read at the others is
    /// NaN.
    pub fn launch(
        &mut self,
        stream: &Stream,
        tokens: &Tokens<'_>,
        starts: &Tensor,
        memory: &mut [&mut Tensor],
        y: &mut Tensor,
    ) -> Result<()> {
        let chain = self.space.chain_with(memory);
        let (documents, device) = (self.y.shape()[0], stream.device());
        // What is given is one sequence.
        let counts = [1, tokens_of(chain.name, ("q", tokens.q))?];
        check_tokens((chain.name, device), tokens, ("y", y), (&self.sizes, self.rule.chunking.window), counts)?;
        check_tensor(chain.name, ("starts", starts), (device, DType::I32), ("[B + 1]", &[documents + 1]))?;
        let (first, end) = (starts.slice(0, 0..documents)?, starts.slice(0, 1..documents + 1)?);
        check_memory(chain, tokens, self.rows.get("norm"), memory, y)?;
        self.space.check(device, memory, self.rows.get("norm"))?;
        self.space.reserve(device, memory)?;
        let workspace = self.space.workspace(self.sizes.piece)?;
        for pass in Pass::BOTH {
            for (name, given) in tokens.named() {
                let Some(row) = self.rows.get_mut(name) else { continue };
                if name == "eta" && self.rule.step == Step::MuonByChunk {
                    let chunk = self.rule.chunking.chunk as i32;
                    pass.launch_on(&omega_unpack_steps, stream, args!(given, &first, &end, &mut *row, chunk))?;
                    continue;
                }
                let fill = if ["alpha", "theta"].contains(&name) { 1.0 } else { 0.0 };
                if given.rank() == 3 {
                    pass.launch_on(&omega_unpack_gates, stream, args!(given, &first, &end, &mut *row, fill))?;
                    continue;
                }
                for part in parts_of_rows(given) {
                    let (given, mut row) = (given.slice(3, part.clone())?, row.slice(3, part)?);
                    pass.launch_on(&omega_unpack_tokens, stream, args!(&given, &first, &end, &mut row, fill))?;
                }
            }
            let n = self.y.shape()[1];
            let commit = self.rule.chunking.chunks(n);
            let value = self.y.shape()[3];
            let args = arguments(chain, &self.rule, value, commit, &self.rows, memory, &mut self.y);
            pass.chain_on(chain, stream, args, workspace)?;
            for part in parts_of_rows(&self.y) {
                let (read, mut y) = (self.y.slice(3, part.clone())?, y.slice(y.rank() - 1, part)?);
                pass.launch_on(&omega_pack_tokens, stream, args!(&read, &first, &end, &mut y))?;
            }
        }
        Ok(())
    }
}

/// The reference of a problem of one of the kernels.
#[cfg(feature = "verify")]
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [b, n, tokens] = ["B", "N", "P"].map(|dim| p.dim(dim));
    let width = p.dim("H") * p.dim("D");
    let boundary = |at: f64| at.clamp(0.0, tokens as f64) as usize;
    let bounds = |name: &str| inputs.get(name).into_iter().map(boundary).collect::<Vec<usize>>();
    let (x, starts, ends) = (inputs.get("x"), bounds("starts"), bounds("ends"));
    let row = |at: usize| x[at * width..][..width].to_vec();
    if p.kernel.name == "omega_pack_tokens" {
        let of = |token: usize| {
            // The last one that has begun.
            let document = (0..b).rev().find(|&d| starts[d] <= token).filter(|&d| token < ends[d]);
            let Some(document) = document else { return vec![0.0; width] };
            let at = token - starts[document];
            if at < n { row(document * n + at) } else { vec![f64::NAN; width] }
        };
        return vec![(0..tokens).flat_map(of).collect()];
    }
    let fill = |document: usize, token: usize| {
        let (chunk, count) = ((p.scalar("chunk") as usize).max(1), ends[document].saturating_sub(starts[document]));
        match p.kernel.name {
            // The last one of the document, up to the end of its chunk.
            "omega_unpack_steps" if token < count.next_multiple_of(chunk) => row(ends[document] - 1),
            "omega_unpack_steps" => vec![0.0; width],
            _ => vec![f64::from(p.scalar("fill")); width],
        }
    };
    let of = |at: usize| {
        let (document, token) = (at / n, at % n);
        let from = starts[document] + token;
        if from < ends[document] { row(from) } else { fill(document, token) }
    };
    vec![(0..b * n).flat_map(of).collect()]
}
