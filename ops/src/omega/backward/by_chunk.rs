//! Going back over a segment of a rule with one orthogonalised step for each chunk ([`Step::MuonByChunk`](crate::omega::Step)).
//!
//! A chunk is read before its step, so its tokens read the memory as it was before the chunk. That is a chunk of the rule by descent
//! whose weights do not change inside it: `psi = 0`, `old = 0` and `lam = 1`. Its end is `W <- lam W` and `S <- beta S + ..`, and then
//! the step. So the kernels of the rule by descent go back over everything but the step, chunk by chunk, and
//! [`omega_step_backward`] goes back over that.

use super::segment::{Segment, Views, Workspace};
use super::trained::{Launches, TrainedRule, gradient};
use super::{omega_step_backward, omega_step_gate_backward};
use crate::omega::{OmegaRule, copy_tokens_on};
use crate::pass::Pass;
use atlas_dsl::{DType, KernelDef};
use atlas_runtime::{Device, Result, Stream, Tensor, args};
use std::ops::Range;

/// What a pass back needs besides the workspace of the rule by descent.
pub(super) struct ByChunk {
    /// The state after the chunks so far: weights, then momenta.
    run: Vec<Tensor>,
    /// The momenta after each chunk of a segment, with chunks as the first axis.
    after: Vec<Tensor>,
    /// The gradients by the lengths of steps, `[B, H, C, X]`.
    dsteps: Tensor,
    /// For each matrix, transposed if it has more rows than columns: the iterates, their gradients, and square matrices.
    rooms: Vec<[Tensor; 3]>,
    /// What the tokens of a chunk read, which nobody asks for again.
    y: Tensor,
    zero: Tensor,
    one: Tensor,
}

/// A segment to go back over.
pub(super) struct Over<'a> {
    pub(super) pass: Pass,
    pub(super) stream: &'a Stream,
    pub(super) trained: &'a TrainedRule,
    pub(super) of: (&'a OmegaRule, usize),
    pub(super) segment: &'a Segment,
    pub(super) workspace: &'a Workspace,
    /// Tokens and gradients by name, of the whole sequence.
    pub(super) given: &'a Views,
    /// What the forward kernel keeps in global memory, by name.
    pub(super) forward: &'a Views,
}

impl ByChunk {
    /// For sequences, heads and chunks of a segment, and elements of a key, of a value and hidden ones.
    pub(super) fn new(
        device: &Device,
        rule: &OmegaRule,
        dtype: DType,
        [b, h, chunks]: [usize; 3],
        [key, value, hidden]: [usize; 3],
    ) -> Result<ByChunk> {
        let shapes = rule.memory.matrices(key, value, hidden);
        let make = |shape: &[usize]| Tensor::empty(device, DType::F32, shape);
        let wide = |[rows, cols]: &[usize; 2]| [*rows.min(cols), *rows.max(cols)];
        let room = |shape: &[usize; 2]| {
            let [rows, cols] = wide(shape);
            Ok([make(&[b, h, 6, rows, cols])?, make(&[b, h, 6, rows, cols])?, make(&[b, h, 12, rows, rows])?])
        };
        Ok(ByChunk {
            run: shapes.repeat(2).iter().map(|[r, c]| make(&[b, h, *r, *c])).collect::<Result<_>>()?,
            after: shapes.iter().map(|[r, c]| make(&[chunks, b, h, *r, *c])).collect::<Result<_>>()?,
            dsteps: make(&[b, h, chunks, shapes.len()])?,
            rooms: shapes.iter().map(room).collect::<Result<_>>()?,
            y: Tensor::empty(device, dtype, [b, rule.chunking.chunk, h, value])?,
            zero: Tensor::zeros(device, DType::F32, [1])?,
            one: device.tensor_from(&[1.0_f32], [1])?,
        })
    }

    /// Bytes that it holds on its device.
    pub(super) fn bytes(&self) -> u64 {
        let all = self.run.iter().chain(&self.after).chain(self.rooms.iter().flatten());
        let all = all.chain([&self.dsteps, &self.y]);
        all.map(|t| t.len() as u64 * u64::from(t.dtype().bytes())).sum()
    }

    /// Goes back over a segment, from the state before it.
    pub(super) fn backward(&mut self, over: &Over<'_>, kept: &[Tensor]) -> Result<()> {
        let kernels: Vec<_> = over.trained.backward.iter().flat_map(Launches::kernels).collect();
        let [mix, states, reads @ .., train, keys, gates] = &kernels[..] else { return Ok(()) };
        let Over { pass, stream, segment, of, .. } = *over;
        let chunks = 0..segment.chunks();
        let mut views = over.views(segment, chunks.clone())?;
        segment.launch(pass, stream, mix.declared(), &views, of)?;
        for (from, to) in kept.iter().zip(&mut self.run) {
            copy_tokens_on(pass, stream, from, to)?;
        }
        for c in chunks.clone() {
            self.chunk_forward(over, c, states.declared())?;
        }
        self.hold_still(&mut views)?;
        for kernel in reads {
            segment.launch(pass, stream, kernel.declared(), &views, of)?;
        }
        for c in chunks.rev() {
            self.chunk_backward(over, c, train.declared())?;
        }
        segment.launch(pass, stream, keys.declared(), &views, of)?;
        for name in ["dpsi", "dlam", "dold", "dpsi_end", "dold_end"] {
            self.constant(&mut views, name, &self.zero)?;
        }
        segment.launch(pass, stream, gates.declared(), &views, of)?;
        let dsteps = self.dsteps.slice(2, 0..segment.chunks())?;
        let mut deta = views["deta"].clone();
        pass.launch_on(&omega_step_gate_backward, stream, args!(&dsteps, &mut deta, segment.tokens.len() as i32))
    }

    /// The state before a chunk and the errors of its keys, and then the state after it.
    fn chunk_forward(&mut self, over: &Over<'_>, c: usize, states: &'static KernelDef) -> Result<()> {
        let Over { pass, stream, of, trained, .. } = *over;
        let chunk = over.segment.chunk_of(c);
        let mut views = over.views(&chunk, c..c + 1)?;
        self.hold_still(&mut views)?;
        for (name, tensor) in trained.state.iter().zip(&self.run) {
            views.insert(format!("{name}_start"), tensor.clone());
        }
        chunk.launch(pass, stream, states, &views, of)?;
        for (name, tensor) in trained.state.iter().zip(&self.run) {
            views.insert((*name).to_owned(), tensor.clone());
        }
        views.insert("y".to_owned(), self.y.slice(1, 0..chunk.tokens.len())?);
        // Some have the names of what the states have just written, which is not theirs.
        views.extend(over.forward.clone());
        for kernel in &trained.forward.kernels[1..] {
            chunk.launch(pass, stream, kernel.declared(), &views, of)?;
        }
        let momenta = &self.run[self.after.len()..];
        for (momentum, after) in momenta.iter().zip(&self.after) {
            let mut after = after.slice(0, c..c + 1)?.reshape(momentum.shape())?;
            copy_tokens_on(pass, stream, momentum, &mut after)?;
        }
        Ok(())
    }

    /// From the gradients by the state after a chunk to those by the state before it.
    fn chunk_backward(&mut self, over: &Over<'_>, c: usize, train: &'static KernelDef) -> Result<()> {
        let Over { pass, stream, of, trained, .. } = *over;
        let chunk = over.segment.chunk_of(c);
        let mut views = over.views(&chunk, c..c + 1)?;
        self.hold_still(&mut views)?;
        let (weights, momenta) = trained.state.split_at(trained.state.len() / 2);
        for (i, (weight, momentum)) in weights.iter().zip(momenta).enumerate() {
            let lay_wide = |t: Tensor| if t.shape()[2] > t.shape()[3] { t.transpose(2, 3) } else { Ok(t) };
            let s = self.after[i].slice(0, c..c + 1)?.reshape(views[&gradient(momentum)].shape())?;
            let (s, dw) = (lay_wide(s)?, lay_wide(views[&gradient(weight)].clone())?);
            let mut ds = lay_wide(views[&gradient(momentum)].clone())?;
            let mut dstep = self.dsteps.slice(2, c..c + 1)?.slice(3, i..i + 1)?;
            let [iterates, by, squares] = &mut self.rooms[i];
            let args = args!(&s, &dw, &views["steps"], &mut ds, &mut dstep, &mut *iterates, &mut *by, &mut *squares);
            pass.launch_on(&omega_step_backward, stream, args)?;
        }
        chunk.launch(pass, stream, train, &views, of)
    }

    /// Mixing weights by which the memory does not change inside a chunk, nor by gradients at its end.
    fn hold_still(&self, views: &mut Views) -> Result<()> {
        for name in ["psi", "old", "psi_end", "old_end"] {
            self.constant(views, name, &self.zero)?;
        }
        self.constant(views, "lam", &self.one)
    }

    fn constant(&self, views: &mut Views, name: &str, of: &Tensor) -> Result<()> {
        let shape = views.get(name).map(|view| view.shape().to_vec());
        if let Some(shape) = shape {
            views.insert(name.to_owned(), of.expand(shape)?);
        }
        Ok(())
    }
}

impl Over<'_> {
    /// The tensors of some chunks, which are these in the workspace.
    fn views(&self, segment: &Segment, chunks: Range<usize>) -> Result<Views> {
        let mut views = self.workspace.of_chunks(segment, chunks)?;
        for (name, tensor) in self.given {
            views.insert(name.clone(), segment.part_of(name, tensor)?);
        }
        Ok(views)
    }
}
