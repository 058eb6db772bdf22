//! What stands inside a block: attention over a window, a memory, and a hidden layer. Each has a forward and a backward pass.
//!
//! A backward pass takes the gradient of the loss by the layer's output. It writes the gradients of its weights, and returns the gradient
//! by its input. It uses what the forward pass of the same batch has left.

use super::model::Sizes;
use super::parameters::{Parameters, Weight};
use atlas::kernel::Workspace;
use atlas::ops::training::{WINDOWED_ATTENTION_GRAD, column_sums, gelu_grad};
use atlas::ops::{linear_gelu_train, matmul, rotary_halves, windowed_attention};
use atlas::prelude::*;

/// What stands inside a block. Inputs have the shape `[B T, D]`: one row for each token of each sequence.
pub(crate) trait Inner {
    fn forward(&mut self, x: &Tensor) -> atlas::Result<Tensor>;
    fn backward(&mut self, dy: &Tensor) -> atlas::Result<Tensor>;
}

/// y = x Wᵀ
pub(crate) struct Linear {
    device: Device,
    pub(crate) w: Weight,
    x: Tensor,
    pub(crate) y: Tensor,
    dx: Tensor,
}

impl Linear {
    pub(crate) fn new(device: &Device, rows: usize, w: Weight) -> atlas::Result<Linear> {
        let (outputs, inputs) = (w.value.shape()[0], w.value.shape()[1]);
        let of = |columns| Tensor::zeros(device, DType::F32, [rows, columns]);
        Ok(Linear { device: device.clone(), w, x: of(inputs)?, y: of(outputs)?, dx: of(inputs)? })
    }

    pub(crate) fn forward(&mut self, x: &Tensor) -> atlas::Result<Tensor> {
        // A clone of a tensor is a view of the same memory.
        self.x = x.clone();
        matmul.launch(&self.device, args!(x, self.w.value, &mut self.y))?;
        Ok(self.y.clone())
    }

    /// dW = dyᵀ x and dx = dy W. `matmul` contracts the last axis of both operands, so operands are transposed views.
    pub(crate) fn backward(&mut self, dy: &Tensor) -> atlas::Result<Tensor> {
        matmul.launch(&self.device, args!(dy.transpose(0, 1)?, self.x.transpose(0, 1)?, &mut self.w.grad))?;
        matmul.launch(&self.device, args!(dy, self.w.value.transpose(0, 1)?, &mut self.dx))?;
        Ok(self.dx.clone())
    }
}

/// gelu(x Wᵀ + b), the hidden layer of a perceptron.
pub(crate) struct Hidden {
    linear: Linear,
    b: Weight,
    z: Tensor,
    dz: Tensor,
}

impl Hidden {
    pub(crate) fn new(device: &Device, sizes: &Sizes, p: &mut Parameters, name: &str) -> atlas::Result<Hidden> {
        let w = p.random(&format!("{name}.in"), &[sizes.mlp, sizes.width], sizes.deviation())?;
        let b = p.filled(&format!("{name}.bias"), &[sizes.mlp], 0.0)?;
        let of = || Tensor::zeros(device, DType::F32, [sizes.rows(), sizes.mlp]);
        Ok(Hidden { linear: Linear::new(device, sizes.rows(), w)?, b, z: of()?, dz: of()? })
    }
}

impl Inner for Hidden {
    fn forward(&mut self, x: &Tensor) -> atlas::Result<Tensor> {
        let Linear { device, w, x: kept, y, .. } = &mut self.linear;
        *kept = x.clone();
        linear_gelu_train.launch(device, args!(x, w.value, self.b.value, &mut self.z, &mut *y))?;
        Ok(y.clone())
    }

    fn backward(&mut self, dy: &Tensor) -> atlas::Result<Tensor> {
        let device = self.linear.device.clone();
        gelu_grad.launch(&device, args!(self.z, dy, &mut self.dz))?;
        column_sums.launch(&device, args!(self.dz, &mut self.b.grad))?;
        self.linear.backward(&self.dz)
    }
}

/// Causal attention over the last tokens, with rotary positions.
pub(crate) struct Attention {
    device: Device,
    sizes: Sizes,
    project: Linear,
    /// Cosines, sines and negative sines of each position's angles: the gradient of a rotation is the rotation back.
    turns: [Tensor; 3],
    /// Queries and keys after the rotation, `[B T, 2 D]`, and their gradients.
    turned: Tensor,
    dturned: Tensor,
    /// Keys and values that stand before all tokens: none.
    prefix: Tensor,
    dprefix: [Tensor; 2],
    /// The first token that each token may see.
    first: Tensor,
    o: Tensor,
    sums: Tensor,
    dz: Tensor,
    space: Workspace,
}

impl Attention {
    pub(crate) fn new(device: &Device, sizes: &Sizes, p: &mut Parameters, name: &str) -> atlas::Result<Attention> {
        let Sizes { sequences: b, tokens: t, heads: h, width, .. } = *sizes;
        let (rows, d) = (sizes.rows(), sizes.head());
        let w = p.random(&format!("{name}.qkv"), &[3 * width, width], sizes.deviation())?;
        let of = |shape: &[usize]| Tensor::zeros(device, DType::F32, shape);
        let angle = |i: usize| {
            let (position, pair) = (i / (d / 2), i % (d / 2));
            position as f32 * 10000_f32.powf(-2.0 * pair as f32 / d as f32)
        };
        let turn = |f: fn(f32) -> f32| {
            let values: Vec<f32> = (0..t * d / 2).map(|i| f(angle(i))).collect();
            device.tensor_from(&values, [t, d / 2])
        };
        let dims = [("B", b), ("H", h), ("M", t)];
        Ok(Attention {
            device: device.clone(),
            sizes: *sizes,
            project: Linear::new(device, rows, w)?,
            turns: [turn(f32::cos)?, turn(f32::sin)?, turn(|angle| -angle.sin())?],
            turned: of(&[rows, 2 * width])?,
            dturned: of(&[rows, 2 * width])?,
            prefix: of(&[h, 0, d])?,
            dprefix: [of(&[h, 0, d])?, of(&[h, 0, d])?],
            first: Tensor::zeros(device, DType::I32, [b, t])?,
            o: of(&[b, t, h, d])?,
            sums: of(&[b, h, t])?,
            dz: of(&[rows, 3 * width])?,
            space: WINDOWED_ATTENTION_GRAD.workspace(device, &[("T", DType::F32)], &dims)?,
        })
    }

    /// Queries and keys, of a tensor of both.
    fn halves(&self, of: &Tensor) -> atlas::Result<[Tensor; 2]> {
        Ok([self.sizes.heads_of(of, 0)?, self.sizes.heads_of(of, 1)?])
    }

    /// Rotates each head of queries and keys, from the first columns of `x` to those of `y`.
    fn turn(&self, x: &Tensor, sin: &Tensor, y: &Tensor) -> atlas::Result<()> {
        let Sizes { tokens, heads, .. } = self.sizes;
        let d = self.sizes.head();
        // All sequences turn alike, so positions come first: `[T, B, 2, d / 2]`.
        let head =
            |of: &Tensor, i: usize| of.slice(1, i * d..(i + 1) * d)?.split(1, d / 2)?.split(0, tokens)?.transpose(0, 1);
        for i in 0..2 * heads {
            rotary_halves.launch(&self.device, args!(head(x, i)?, self.turns[0], sin, &mut head(y, i)?))?;
        }
        Ok(())
    }

    fn scale(&self) -> f32 {
        1.0 / (self.sizes.head() as f32).sqrt()
    }
}

impl Inner for Attention {
    fn forward(&mut self, x: &Tensor) -> atlas::Result<Tensor> {
        let z = self.project.forward(x)?;
        self.turn(&z, &self.turns[1], &self.turned)?;
        let [q, k] = self.halves(&self.turned)?;
        let v = self.sizes.heads_of(&z, 2)?;
        let (window, scale) = (self.sizes.window as i32, self.scale());
        let outputs = (&mut self.o, &mut self.sums);
        let args =
            args!(q, k, v, self.prefix, self.prefix, self.first, window, scale, &mut *outputs.0, &mut *outputs.1);
        windowed_attention.launch(&self.device, args)?;
        self.o.reshape([self.sizes.rows(), self.sizes.width])
    }

    fn backward(&mut self, dy: &Tensor) -> atlas::Result<Tensor> {
        let sizes = self.sizes;
        let [q, k] = self.halves(&self.turned)?;
        let v = sizes.heads_of(&self.project.y, 2)?;
        let [mut dq, mut dk] = self.halves(&self.dturned)?;
        let mut dv = sizes.heads_of(&self.dz, 2)?;
        let dout = sizes.heads_of(dy, 0)?;
        let (window, scale) = (sizes.window as i32, self.scale());
        let [dpk, dpv] = &mut self.dprefix;
        let args = args!(
            q,
            k,
            v,
            self.prefix,
            self.prefix,
            self.first,
            window,
            scale,
            self.o,
            self.sums,
            dout,
            &mut dq,
            &mut dk,
            &mut dv,
            &mut *dpk,
            &mut *dpv
        );
        WINDOWED_ATTENTION_GRAD.launch(&self.device, args, &mut self.space)?;
        self.turn(&self.dturned, &self.turns[2], &self.dz)?;
        self.project.backward(&self.dz)
    }
}
