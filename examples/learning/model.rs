//! A language model: blocks `x + W f(norm(x))` between an embedding and a projection to logits.

use super::layers::{Attention, Hidden, Inner, Linear};
use super::memory::Memory;
use super::parameters::{Parameters, Weight};
use super::tasks::Batch;
use atlas::kernel::Workspace;
use atlas::ops::training::{RMS_NORM_GRAD, RMS_NORM_RESIDUAL_GRAD, cross_entropy, embedding, embedding_grad};
use atlas::ops::{matmul, matmul_add, rms_norm};
use atlas::prelude::*;

/// What norms add to a mean square before its root.
pub(crate) const EPS: f32 = 1e-6;

/// Sizes of a model, and of a batch that it takes.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Sequences of a batch, and tokens of each.
    pub(crate) sequences: usize,
    pub(crate) tokens: usize,
    /// Different tokens.
    pub(crate) vocabulary: usize,
    /// Elements of a row between blocks, heads that they are split into, and elements of the hidden layer of a perceptron.
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) mlp: usize,
    /// Tokens that attention sees.
    pub(crate) window: usize,
    /// Hidden elements of a memory, tokens of its chunks, and tokens of its windows.
    pub(crate) hidden: usize,
    pub(crate) chunk: usize,
    pub(crate) reach: usize,
    /// Whether a memory's keys begin as the token before, and are projected as its queries are.
    pub(crate) keys_before: bool,
    /// The longest step that a memory takes for a token.
    pub(crate) longest_step: f32,
}

impl Sizes {
    /// Tokens of a batch.
    pub(crate) fn rows(&self) -> usize {
        self.sequences * self.tokens
    }

    /// Elements of a head.
    pub(crate) fn head(&self) -> usize {
        self.width / self.heads
    }

    /// The standard deviation of weights of projections at the start: that of `torch.nn.Linear`.
    pub(crate) fn deviation(&self) -> f32 {
        1.0 / (3.0 * self.width as f32).sqrt()
    }

    /// Columns `i D..(i + 1) D` of rows as heads: a view `[B, T, H, d]`.
    pub(crate) fn heads_of(&self, rows: &Tensor, i: usize) -> atlas::Result<Tensor> {
        rows.slice(1, i * self.width..(i + 1) * self.width)?.split(1, self.head())?.split(0, self.tokens)
    }
}

/// What stands inside a block.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Part {
    Attention,
    Memory,
    Hidden,
}

impl Part {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Attention => "attention",
            Part::Memory => "memory",
            Part::Hidden => "hidden",
        }
    }
}

/// y = x + W f(norm(x))
struct Block {
    device: Device,
    norm: Weight,
    inner: Box<dyn Inner>,
    w: Weight,
    x: Tensor,
    normed: Tensor,
    f: Tensor,
    df: Tensor,
    y: Tensor,
    dx: Tensor,
    space: Workspace,
}

impl Block {
    fn new(device: &Device, sizes: &Sizes, norm: Weight, inner: Box<dyn Inner>, w: Weight) -> atlas::Result<Block> {
        let rows = sizes.rows();
        let of = |columns| Tensor::zeros(device, DType::F32, [rows, columns]);
        let (width, columns) = (sizes.width, w.value.shape()[1]);
        Ok(Block {
            device: device.clone(),
            norm,
            inner,
            w,
            x: of(width)?,
            normed: of(width)?,
            f: of(columns)?,
            df: of(columns)?,
            y: of(width)?,
            dx: of(width)?,
            space: RMS_NORM_RESIDUAL_GRAD.workspace(device, &[("T", DType::F32)], &[("N", rows)])?,
        })
    }

    fn forward(&mut self, x: &Tensor) -> atlas::Result<Tensor> {
        self.x = x.clone();
        rms_norm.launch(&self.device, args!(x, self.norm.value, &mut self.normed, EPS))?;
        self.f = self.inner.forward(&self.normed)?;
        matmul_add.launch(&self.device, args!(self.f, self.w.value, x, &mut self.y, 1.0, 1.0))?;
        Ok(self.y.clone())
    }

    fn backward(&mut self, dy: &Tensor) -> atlas::Result<Tensor> {
        let device = &self.device;
        matmul.launch(device, args!(dy.transpose(0, 1)?, self.f.transpose(0, 1)?, &mut self.w.grad))?;
        matmul.launch(device, args!(dy, self.w.value.transpose(0, 1)?, &mut self.df))?;
        let dnormed = self.inner.backward(&self.df)?;
        // `dy` goes around the norm as well, to `x` itself.
        let args = args!(self.x, self.norm.value, dnormed, dy, EPS, &mut self.dx, &mut self.norm.grad);
        RMS_NORM_RESIDUAL_GRAD.launch(device, args, &mut self.space)?;
        Ok(self.dx.clone())
    }
}

/// A language model and room for one batch.
pub(crate) struct Model {
    device: Device,
    pub(crate) sizes: Sizes,
    pub(crate) parts: Vec<Part>,
    pub(crate) parameters: Parameters,
    embedding: Weight,
    blocks: Vec<Block>,
    norm: Weight,
    head: Linear,
    index: Tensor,
    target: Tensor,
    embedded: Tensor,
    last: Tensor,
    normed: Tensor,
    dlast: Tensor,
    losses: Tensor,
    dlogits: Tensor,
    space: Workspace,
}

impl Model {
    /// A model with a block for each of these parts.
    pub(crate) fn new(device: &Device, sizes: Sizes, parts: &[Part], seed: u64) -> atlas::Result<Model> {
        let (rows, width, vocabulary) = (sizes.rows(), sizes.width, sizes.vocabulary);
        let mut p = Parameters::new(device, 1 << 20, seed)?;
        let table = p.random("embedding", &[vocabulary, width], 0.06)?;
        let mut blocks = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            let name = &format!("{} {i}", part.name());
            let inner: Box<dyn Inner> = match part {
                Part::Attention => Box::new(Attention::new(device, &sizes, &mut p, name)?),
                Part::Memory => Box::new(Memory::new(device, &sizes, &mut p, name)?),
                Part::Hidden => Box::new(Hidden::new(device, &sizes, &mut p, name)?),
            };
            let columns = if *part == Part::Hidden { sizes.mlp } else { width };
            let norm = p.filled(&format!("{name}.before"), &[width], 1.0)?;
            let w = p.random(&format!("{name}.out"), &[width, columns], 0.02)?;
            blocks.push(Block::new(device, &sizes, norm, inner, w)?);
        }
        let norm = p.filled("norm", &[width], 1.0)?;
        let head = p.random("head", &[vocabulary, width], 0.02)?;
        let of = |columns| Tensor::zeros(device, DType::F32, [rows, columns]);
        let index = || Tensor::zeros(device, DType::I32, [rows]);
        Ok(Model {
            device: device.clone(),
            sizes,
            parts: parts.to_vec(),
            parameters: p,
            embedding: table,
            blocks,
            norm,
            head: Linear::new(device, rows, head)?,
            index: index()?,
            target: index()?,
            embedded: of(width)?,
            last: of(width)?,
            normed: of(width)?,
            dlast: of(width)?,
            losses: Tensor::zeros(device, DType::F32, [rows])?,
            dlogits: of(vocabulary)?,
            space: RMS_NORM_GRAD.workspace(device, &[("T", DType::F32)], &[("N", rows)])?,
        })
    }

    /// A model with the same weights, for a batch of other sizes.
    pub(crate) fn resized(&self, sequences: usize, tokens: usize) -> atlas::Result<Model> {
        let sizes = Sizes { sequences, tokens, ..self.sizes };
        let model = Model::new(&self.device, sizes, &self.parts, 0)?;
        let (mut weights, _) = model.parameters.all()?;
        weights.copy_from(&self.parameters.all()?.0.to_vec::<f32>()?)?;
        Ok(model)
    }

    /// The logits `[B T, V]` of each next token.
    pub(crate) fn logits(&mut self, tokens: &[i32]) -> atlas::Result<Tensor> {
        self.index.copy_from(tokens)?;
        embedding.launch(&self.device, args!(self.embedding.value, self.index, &mut self.embedded))?;
        let mut x = self.embedded.clone();
        for block in &mut self.blocks {
            x = block.forward(&x)?;
        }
        rms_norm.launch(&self.device, args!(x, self.norm.value, &mut self.normed, EPS))?;
        self.last = x;
        self.head.forward(&self.normed)
    }

    /// The mean loss of the tokens that count, in nats, and the gradient by the logits.
    pub(crate) fn loss(&mut self, batch: &Batch) -> atlas::Result<f64> {
        let logits = self.logits(&batch.tokens)?;
        self.target.copy_from(&batch.targets)?;
        let count = batch.targets.iter().filter(|t| **t >= 0).count().max(1);
        let args = args!(logits, self.target, 1.0 / count as f32, &mut self.losses, &mut self.dlogits);
        cross_entropy.launch(&self.device, args)?;
        Ok(self.losses.to_vec::<f32>()?.iter().map(|l| f64::from(*l)).sum::<f64>() / count as f64)
    }

    /// The gradient of the last loss by every weight.
    pub(crate) fn backward(&mut self) -> atlas::Result<()> {
        let dnormed = self.head.backward(&self.dlogits)?;
        let args = args!(self.last, self.norm.value, dnormed, EPS, &mut self.dlast, &mut self.norm.grad);
        RMS_NORM_GRAD.launch(&self.device, args, &mut self.space)?;
        let mut dx = self.dlast.clone();
        for block in self.blocks.iter_mut().rev() {
            dx = block.backward(&dx)?;
        }
        embedding_grad.launch(&self.device, args!(self.index, dx, &mut self.embedding.grad))
    }
}
