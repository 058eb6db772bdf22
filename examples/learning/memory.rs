//! The memory of ATLAS as a layer: a two-layer perceptron that is trained while its sequence is read (the Omega rule).
//!
//! Each sequence begins with the same memory, which the model learns as it learns its other weights. Each token then takes a step of
//! gradient descent on the memory, so that the memory maps its key to its value, and reads the memory at its query.

use super::kernels::{copy, gate, gate_grad};
use super::layers::{Inner, Linear};
use super::model::{EPS, Sizes};
use super::parameters::{Parameters, Weight};
use atlas::device::Stream;
use atlas::ops::omega::{Chunking, OmegaGradients, OmegaKept, OmegaRule, OmegaTraining, Tokens, TrainingSizes};
use atlas::ops::training::{LAYER_NORM_GRAD, column_sums, layer_norm};
use atlas::ops::{short_conv, short_conv_input_grad, short_conv_weight_grad};
use atlas::prelude::*;

/// Tokens that the short convolution sees: with it, the key of a value can be the token before it.
const WIDTH: usize = 4;

/// The gates of a token: how much of the memory and of its momentum it keeps, its step, and the weights of its window.
/// Each is `scale * sigmoid(z + bias)`, where the bias is learned and begins as given here.
const GATES: [(&str, f32); 4] = [("alpha", 8.0), ("theta", -3.0), ("eta", 0.0), ("gamma", 0.0)];

/// A memory, and all that its forward pass leaves for its backward pass.
pub(crate) struct Memory {
    stream: Stream,
    sizes: Sizes,
    /// Queries, keys, values and gates of all heads, in this order.
    project: Linear,
    dz: Tensor,
    conv: Weight,
    bias: Weight,
    norm: Weight,
    /// The two matrices of the memory before the first token.
    start: [Weight; 2],
    /// After the convolution, and after the norms of queries, keys and values; `[B, T, 3 H, d]`.
    convolved: Tensor,
    normed: Tensor,
    dconvolved: Tensor,
    /// The fixed weights of these norms: queries and keys get length 1, elements of values the mean square 1.
    lengths: Tensor,
    unused: Tensor,
    gates: [Tensor; 4],
    /// The memory of each sequence, and its momentum.
    state: [Tensor; 4],
    zero: Tensor,
    read: Tensor,
    dread: Tensor,
    out: Tensor,
    training: OmegaTraining,
    kept: OmegaKept,
    gradients: OmegaGradients,
}

impl Memory {
    pub(crate) fn new(device: &Device, sizes: &Sizes, p: &mut Parameters, name: &str) -> atlas::Result<Memory> {
        let Sizes { sequences: b, tokens: t, heads: h, width, hidden, chunk, reach, .. } = *sizes;
        let d = sizes.head();
        // Rows of queries, keys and values are as those of other layers. Those of gates are small, so that gates begin as their biases.
        let columns = 3 * width + h * (3 + reach);
        let deviation = |i: usize| if i / width < 3 * width { sizes.deviation() } else { 0.02 };
        let mut values: Vec<f32> = (0..columns * width).map(|i| deviation(i) * p.numbers.normal()).collect();
        if sizes.keys_before {
            // A query then finds the memory of a key that was projected from the same numbers, before anything is learned.
            values.copy_within(0..width * width, width * width);
        }
        let w = p.weight(&format!("{name}.project"), &[columns, width], &values)?;
        // Of the tokens that the convolution sees, the last is the token itself, and the last but one is the token before it.
        let before = |channel: usize| sizes.keys_before && (width..2 * width).contains(&channel);
        let near = |channel: usize| WIDTH - 1 - usize::from(before(channel));
        let values: Vec<f32> = (0..3 * width * WIDTH)
            .map(|i| 0.3 * p.numbers.normal() + if i % WIDTH == near(i / WIDTH) { 0.5 } else { 0.0 })
            .collect();
        let conv = p.weight(&format!("{name}.conv"), &[3 * width, WIDTH], &values)?;
        let biases: Vec<f32> = (0..4).flat_map(|i| vec![GATES[i].1; h * if i == 3 { reach } else { 1 }]).collect();
        let bias = p.weight(&format!("{name}.gates"), &[biases.len()], &biases)?;
        let start = [
            p.random(&format!("{name}.w1"), &[1, h, d, hidden], 0.02)?,
            p.random(&format!("{name}.w2"), &[1, h, hidden, d], 0.5)?,
        ];
        let norm = p.filled(&format!("{name}.norm"), &[h, d], 1.0)?;
        let lengths: Vec<f32> =
            (0..3 * width).map(|i| if i < 2 * width { 1.0 / (d as f32).sqrt() } else { 1.0 }).collect();
        let of = |shape: &[usize]| Tensor::zeros(device, DType::F32, shape);
        let training = OmegaTraining::new(
            device,
            OmegaRule::omega_net(Chunking::new(chunk, reach)),
            TrainingSizes { sequences: b, tokens: t, heads: h, key: d, value: d, hidden, dtype: DType::F32 },
            None,
        )?;
        Ok(Memory {
            stream: Stream::default_of(device),
            sizes: *sizes,
            project: Linear::new(device, sizes.rows(), w)?,
            dz: of(&[sizes.rows(), columns])?,
            conv,
            bias,
            norm,
            start,
            convolved: of(&[b, t, 3 * h, d])?,
            normed: of(&[b, t, 3 * h, d])?,
            dconvolved: of(&[b, t, 3 * h, d])?,
            lengths: device.tensor_from(&lengths, [3 * h, d])?,
            unused: of(&[h, d])?,
            gates: [of(&[b, t, h, 1])?, of(&[b, t, h, 1])?, of(&[b, t, h, 1])?, of(&[b, t, h, reach])?],
            state: [of(&[b, h, d, hidden])?, of(&[b, h, hidden, d])?, of(&[b, h, d, hidden])?, of(&[b, h, hidden, d])?],
            zero: of(&[1, 1, 1, 1])?.expand([b, t, h, d])?,
            read: of(&[b, t, h, d])?,
            dread: of(&[b, t, h, d])?,
            out: of(&[b, t, h, d])?,
            kept: training.kept()?,
            gradients: training.gradients()?,
            training,
        })
    }

    /// What was projected for the convolution, `[B, T, 3 D]`.
    fn before_conv(&self, z: &Tensor) -> atlas::Result<Tensor> {
        z.slice(1, 0..3 * self.sizes.width)?.split(0, self.sizes.tokens)
    }

    /// The part of gate `i` in rows of projections, `[B, T, H, W]`, and in the biases, `[H, W]`; and the gate's scale. `W` is 1, but
    /// for weights of windows.
    fn gate(&self, i: usize, z: &Tensor) -> atlas::Result<(Tensor, Tensor, f32)> {
        let Sizes { tokens, heads: h, width, reach, longest_step, .. } = self.sizes;
        let each = if i == 3 { reach } else { 1 };
        let columns = i * h..i * h + h * each;
        let bias = self.bias.value.slice(0, columns.clone())?.reshape([h, each])?;
        let z = z.slice(1, 3 * width + columns.start..3 * width + columns.end)?.split(1, each)?.split(0, tokens)?;
        let scale = [1.0, 1.0, longest_step, 1.0 / reach as f32][i];
        Ok((z, bias, scale))
    }

    /// Queries, keys and values, of a tensor of all.
    fn parts(&self, of: &Tensor) -> atlas::Result<[Tensor; 3]> {
        let h = self.sizes.heads;
        Ok([of.slice(2, 0..h)?, of.slice(2, h..2 * h)?, of.slice(2, 2 * h..3 * h)?])
    }

    /// The gates as the rule takes them: without an axis of size 1.
    fn gates_of_rule(&self) -> atlas::Result<[Tensor; 4]> {
        let Sizes { sequences: b, tokens: t, heads: h, .. } = self.sizes;
        let [alpha, theta, eta, gamma] = &self.gates;
        Ok([alpha.reshape([b, t, h])?, theta.reshape([b, t, h])?, eta.reshape([b, t, h])?, gamma.clone()])
    }
}

impl Inner for Memory {
    fn forward(&mut self, x: &Tensor) -> atlas::Result<Tensor> {
        let Sizes { sequences: b, tokens: t, heads: h, width, .. } = self.sizes;
        let device = self.stream.device().clone();
        let z = self.project.forward(x)?;
        let mut y = self.convolved.reshape([b, t, 3 * width])?;
        short_conv.launch(&device, args!(self.before_conv(&z)?, self.conv.value, &mut y))?;
        layer_norm.launch(&device, args!(self.convolved, self.lengths, &mut self.normed, EPS))?;
        for i in 0..4 {
            let (z, bias, scale) = self.gate(i, &z)?;
            gate.launch(&device, args!(z, bias, scale, &mut self.gates[i]))?;
        }
        for (i, start) in self.start.iter().enumerate() {
            let [_, _, rows, columns] = *self.state[i].shape() else { unreachable!("four axes") };
            copy.launch(&device, args!(start.value.expand([b, h, rows, columns])?, &mut self.state[i]))?;
            self.state[i + 2].clear()?;
        }
        let (parts, gates) = (self.parts(&self.normed)?, self.gates_of_rule()?);
        let mut state: Vec<&mut Tensor> = self.state.iter_mut().collect();
        let tokens = tokens(&parts, &gates, &self.zero);
        self.training.forward(&self.stream, &tokens, &mut state, &mut self.read, &mut self.kept)?;
        layer_norm.launch(&device, args!(self.read, self.norm.value, &mut self.out, EPS))?;
        self.out.reshape([self.sizes.rows(), width])
    }

    fn backward(&mut self, dy: &Tensor) -> atlas::Result<Tensor> {
        let Sizes { sequences: b, tokens: t, heads: h, width, hidden, .. } = self.sizes;
        let d = self.sizes.head();
        let device = self.stream.device().clone();
        let mut none = LAYER_NORM_GRAD.workspace(&device, &[], &[])?;
        let dout = dy.reshape([b, t, h, d])?;
        let args = args!(self.read, self.norm.value, dout, EPS, &mut self.dread, &mut self.norm.grad);
        LAYER_NORM_GRAD.launch(&device, args, &mut none)?;

        let (parts, gates) = (self.parts(&self.normed)?, self.gates_of_rule()?);
        let tokens = tokens(&parts, &gates, &self.zero);
        self.training.backward(&self.stream, &tokens, &self.kept, &self.dread, None, &mut self.gradients)?;

        // All sequences begin with one memory, so its gradient is the sum of theirs.
        for (start, of_each) in self.start.iter_mut().zip(self.gradients.memory()) {
            let mut sum = start.grad.reshape([h * hidden * d])?;
            column_sums.launch(&device, args!(of_each.reshape([b, h * hidden * d])?, &mut sum))?;
        }
        let of_gates = [self.gradients.alpha(), self.gradients.theta(), self.gradients.eta(), self.gradients.gamma()];
        for (i, of_gate) in of_gates.iter().enumerate() {
            let (mut dz, _, scale) = self.gate(i, &self.dz)?;
            let of_gate = if i == 3 { of_gate.clone() } else { of_gate.split(2, 1)? };
            gate_grad.launch(&device, args!(self.gates[i], of_gate, scale, &mut dz))?;
        }
        let of_biases = self.dz.slice(1, 3 * width..self.dz.shape()[1])?;
        column_sums.launch(&device, args!(of_biases, &mut self.bias.grad))?;

        let (convolved, dconvolved) = (self.parts(&self.convolved)?, self.parts(&self.dconvolved)?);
        let of_parts = [self.gradients.q(), self.gradients.k(), self.gradients.v()];
        for (i, mut dx) in dconvolved.into_iter().enumerate() {
            let lengths = self.lengths.slice(0, i * h..(i + 1) * h)?;
            let args = args!(convolved[i], lengths, of_parts[i], EPS, &mut dx, &mut self.unused);
            LAYER_NORM_GRAD.launch(&device, args, &mut none)?;
        }
        let before = self.before_conv(&self.project.y)?;
        let dconvolved = self.dconvolved.reshape([b, t, 3 * width])?;
        let mut dbefore = self.before_conv(&self.dz)?;
        short_conv_weight_grad.launch(&device, args!(before, dconvolved, &mut self.conv.grad))?;
        short_conv_input_grad.launch(&device, args!(dconvolved, self.conv.value, &mut dbefore))?;
        self.project.backward(&self.dz)
    }
}

/// What the rule takes: queries, keys and values, gates, and residuals, which are all 0.
fn tokens<'t>(parts: &'t [Tensor; 3], gates: &'t [Tensor; 4], zero: &'t Tensor) -> Tokens<'t> {
    let [q, k, v] = parts;
    let [alpha, theta, eta, gamma] = gates;
    Tokens { q, k, v, rq: zero, rk: zero, alpha, theta, eta, gamma }
}
