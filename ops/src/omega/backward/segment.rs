//! The chunks that a backward pass goes over at once: which tokens are theirs, their workspace, and the launches on them.

use super::trained::{Launches, TrainedRule, gradient};
use crate::omega::{Chunking, OmegaRule, Read};
use crate::pass::Pass;
use atlas_dsl::def::{DTypeRef, ParamDef};
use atlas_dsl::ir::Access;
use atlas_dsl::{DType, KernelDef};
use atlas_runtime::{Arg, Device, Result, Stream, Tensor};
use std::collections::BTreeMap;
use std::ops::Range;

/// Tensors by the names that kernels have for them.
pub(super) type Views = BTreeMap<String, Tensor>;

/// How the chunks of a sequence are put into segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segments {
    chunking: Chunking,
    tokens: usize,
    chunks: usize,
    /// Chunks of each segment but the last one, which may have fewer.
    length: usize,
}

impl Segments {
    /// Segments of `length` chunks, or of about the square root of all.
    pub(super) fn new(chunking: &Chunking, tokens: usize, length: Option<usize>) -> Segments {
        let chunks = chunking.chunks(tokens);
        let root = (chunks as f64).sqrt().ceil() as usize;
        // As many segments, of lengths that differ little.
        let usual = chunks.div_ceil(chunks.div_ceil(root.max(1)).max(1));
        let length = length.unwrap_or(usual).clamp(1, chunks.max(1));
        Segments { chunking: *chunking, tokens, chunks, length }
    }

    /// All chunks.
    pub(super) fn chunks(&self) -> usize {
        self.chunks
    }

    /// Chunks of the longest segment.
    pub(super) fn longest(&self) -> usize {
        self.length
    }

    /// All segments from the first token on.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = Segment> + ExactSizeIterator + use<> {
        let of = *self;
        (0..self.chunks.div_ceil(self.length)).map(move |at| of.segment(at))
    }

    fn segment(&self, at: usize) -> Segment {
        let Chunking { chunk, .. } = self.chunking;
        let chunks = at * self.length..((at + 1) * self.length).min(self.chunks);
        let tokens = chunks.start * chunk..(chunks.end * chunk).min(self.tokens);
        let halo = self.chunking.keys() - chunk;
        Segment { chunk, halo, chunks, past: tokens.start.min(halo), tokens }
    }
}

/// Some chunks, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    chunk: usize,
    /// Keys that a chunk sees besides its own.
    halo: usize,
    chunks: Range<usize>,
    pub(super) tokens: Range<usize>,
    /// Tokens before them that their windows may reach.
    past: usize,
}

impl Segment {
    /// How many chunks it has.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// One of its chunks.
    pub(super) fn chunk_of(&self, at: usize) -> Segment {
        let first = self.chunks.start + at;
        let tokens = first * self.chunk..((first + 1) * self.chunk).min(self.tokens.end);
        Segment { chunks: first..first + 1, past: tokens.start.min(self.halo), tokens, ..*self }
    }

    /// The part of a token's tensor, of a gradient, or of what all tokens share.
    pub(super) fn part_of(&self, name: &str, tensor: &Tensor) -> Result<Tensor> {
        match name {
            "norm" => Ok(tensor.clone()),
            _ if name.starts_with('d') && !["dy", "dout"].contains(&name) => self.gradient_of(name, tensor),
            _ => self.tokens_of(name, tensor),
        }
    }

    /// The tokens of the segment, of keys with those before that windows reach.
    pub(super) fn tokens_of(&self, name: &str, tensor: &Tensor) -> Result<Tensor> {
        let past = if ["k", "v", "rk", "dk", "dv", "drk"].contains(&name) { self.past } else { 0 };
        tensor.slice(1, self.tokens.start - past..self.tokens.end)
    }

    /// The part of a gradient that the segment's kernels write: by chunks, but for keys and for the state.
    pub(super) fn gradient_of(&self, name: &str, tensor: &Tensor) -> Result<Tensor> {
        match name {
            "dk" | "dv" | "drk" => self.tokens_of(name, tensor),
            "dq" | "dalpha" | "dtheta" | "deta" | "dgamma" => {
                tensor.split(1, self.chunk)?.slice(1, self.chunks.clone())
            }
            _ => Ok(tensor.clone()),
        }
    }

    /// Launches kernels as often as it is said, on tensors and numbers by name.
    pub(super) fn launch_all(
        &self,
        pass: Pass,
        stream: &Stream,
        launches: Launches,
        views: &Views,
        of: (&OmegaRule, usize),
    ) -> Result<()> {
        // Launches of a kernel differ by a number alone, so one is enough to make all of them ready.
        let chunks = if pass == Pass::Prepare { 0..self.chunks().min(1) } else { 0..self.chunks() };
        let places: Vec<usize> = match launches {
            Launches::Once(_) => vec![0],
            Launches::Forward(_) => chunks.collect(),
            Launches::Back(_) => chunks.rev().collect(),
        };
        let kernels = launches.kernels();
        let mut each = places.into_iter().flat_map(|at| kernels.iter().map(move |kernel| (at, kernel.declared())));
        each.try_for_each(|(at, kernel)| self.launch_at(pass, stream, kernel, views, of, at))
    }

    /// Launches a kernel on tensors and numbers by name.
    pub(super) fn launch(
        &self,
        pass: Pass,
        stream: &Stream,
        kernel: &'static KernelDef,
        views: &Views,
        of: (&OmegaRule, usize),
    ) -> Result<()> {
        self.launch_at(pass, stream, kernel, views, of, 0)
    }

    /// The same for the chunk at a place of the segment.
    fn launch_at(
        &self,
        pass: Pass,
        stream: &Stream,
        kernel: &'static KernelDef,
        views: &Views,
        (rule, value): (&OmegaRule, usize),
        at: usize,
    ) -> Result<()> {
        let mut tensors: Vec<Tensor> = kernel.params.iter().filter_map(|p| views.get(p.name()).cloned()).collect();
        let mut next = tensors.iter_mut();
        let mut args: Vec<Arg<'_>> = Vec::new();
        for param in kernel.params {
            match param {
                ParamDef::Tensor { access: Access::In, .. } => args.extend(next.next().map(|t| Arg::In(t))),
                ParamDef::Tensor { access: Access::Out, .. } => args.extend(next.next().map(Arg::Out)),
                ParamDef::Scalar { name, .. } => args.push(match *name {
                    "before" => Arg::I32((rule.read == Read::Before).into()),
                    "commit" => Arg::I32(self.chunks.len() as i32),
                    "chunk" => Arg::I32(self.chunk as i32),
                    "past" => Arg::I32(self.past as i32),
                    "at" => Arg::I32(at as i32),
                    "predicts" => Arg::I32(rule.loss.predicts().into()),
                    "eps" => Arg::F32(rule.memory.eps()),
                    _ => Arg::F32(rule.loss.factor(value)),
                }),
            }
        }
        pass.launch_on(kernel, stream, args)
    }
}

/// What the kernels of a backward pass give each other, of the longest segment.
#[derive(Debug)]
pub(super) struct Workspace {
    /// With the axis that counts chunks.
    tensors: BTreeMap<&'static str, (Tensor, Option<usize>)>,
}

impl Workspace {
    /// All that kernels take and a caller does not have.
    pub(super) fn new(
        device: &Device,
        rule: &TrainedRule,
        sizes: &[(&'static str, usize)],
        dtype: DType,
    ) -> Result<Workspace> {
        let mut tensors = BTreeMap::new();
        for kernel in rule.backward.iter().flat_map(Launches::kernels).map(|k| k.declared()) {
            for param in kernel.params {
                let ParamDef::Tensor { name, dtype: of, dims, .. } = param else { continue };
                if is_given(rule, name) || tensors.contains_key(name) {
                    continue;
                }
                let names = dims.iter().map(|&d| kernel.dims[d].name);
                let size = |dim: &str| sizes.iter().find(|(name, _)| *name == dim).map_or(0, |(_, size)| *size);
                let shape: Vec<usize> = names.clone().map(size).collect();
                let of = match of {
                    DTypeRef::Fixed(fixed) => *fixed,
                    DTypeRef::Generic(_) => dtype,
                };
                let made = (Tensor::empty(device, of, shape)?, names.clone().position(|name| name == "C"));
                tensors.insert(*name, made);
            }
        }
        Ok(Workspace { tensors })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.tensors.values().map(|(t, _)| t.len() as u64 * u64::from(t.dtype().bytes())).sum()
    }

    /// The part for the chunks of a segment.
    pub(super) fn of_segment(&self, segment: &Segment) -> Result<Views> {
        self.of_chunks(segment, 0..segment.chunks.len())
    }

    /// The part for these chunks, of a segment that has no others.
    pub(super) fn of_chunks(&self, segment: &Segment, chunks: Range<usize>) -> Result<Views> {
        let part = |(name, (tensor, axis)): (&&'static str, &(Tensor, Option<usize>))| {
            let part = axis.map_or_else(|| Ok(tensor.clone()), |axis| tensor.slice(axis, chunks.clone()))?;
            Ok(((*name).to_owned(), part))
        };
        let mut views: Views = self.tensors.iter().map(part).collect::<Result<_>>()?;
        // Rows that are written chunk by chunk are read as tokens.
        if let Some((rows, _)) = self.tensors.get("dy_rows") {
            let shape = rows.shape();
            let all = rows.reshape([shape[0], shape[1] * shape[2], shape[3], shape[4]])?;
            let first = chunks.start * segment.chunk;
            views.insert("dy".to_owned(), all.slice(1, first..first + segment.tokens.len())?);
        }
        Ok(views)
    }
}

/// Whether a caller has the tensor of this name, or it is a gradient.
fn is_given(rule: &TrainedRule, name: &str) -> bool {
    let tokens = ["q", "k", "v", "rk", "alpha", "theta", "eta", "gamma"];
    let of_token =
        ["dy", "dout", "norm", "dnorm"].contains(&name) || tokens.iter().any(|of| name == *of || name == gradient(of));
    of_token || rule.state.iter().any(|of| name == format!("{of}_start") || name == gradient(of))
}
