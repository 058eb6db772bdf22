//! The weights of a model, all in one tensor, and the optimizer that steps them.

use super::numbers::Numbers;
use atlas::ops::training::{CLIP_FACTOR, adamw, bias_correction};
use atlas::prelude::*;

/// A weight and its gradient: views of the tensors that hold all weights and all gradients.
pub(crate) struct Weight {
    pub(crate) value: Tensor,
    pub(crate) grad: Tensor,
}

/// All weights lie in one tensor, one behind the other, and so do their gradients and the two moments of AdamW. So one launch
/// measures the whole gradient, and one launch steps every weight.
pub(crate) struct Parameters {
    device: Device,
    weights: Tensor,
    grads: Tensor,
    moments: [Tensor; 2],
    /// Name, first element and length of each weight.
    pub(crate) list: Vec<(String, usize, usize)>,
    used: usize,
    steps: u32,
    /// Where the model's layers draw their first weights from.
    pub(crate) numbers: Numbers,
}

/// AdamW's factors of its two moments, what it adds to a root, and its decay of weights. `LIMIT` is the greatest norm that a gradient
/// keeps.
const BETAS: [f32; 2] = [0.9, 0.95];
const EPS: f32 = 1e-8;
const DECAY: f32 = 0.01;
const LIMIT: f32 = 1.0;

impl Parameters {
    /// Room for `room` numbers.
    pub(crate) fn new(device: &Device, room: usize, seed: u64) -> atlas::Result<Parameters> {
        let zeros = || Tensor::zeros(device, DType::F32, [room]);
        Ok(Parameters {
            device: device.clone(),
            weights: zeros()?,
            grads: zeros()?,
            moments: [zeros()?, zeros()?],
            list: Vec::new(),
            used: 0,
            steps: 0,
            numbers: Numbers::new(seed),
        })
    }

    /// A weight that begins with these values.
    pub(crate) fn weight(&mut self, name: &str, shape: &[usize], values: &[f32]) -> atlas::Result<Weight> {
        let all = self.used..self.used + values.len();
        self.list.push((name.to_owned(), all.start, all.len()));
        self.used = all.end;
        let mut value = self.weights.slice(0, all.clone())?;
        value.copy_from(values)?;
        Ok(Weight { value: value.reshape(shape)?, grad: self.grads.slice(0, all)?.reshape(shape)? })
    }

    /// A weight that begins with random numbers of this standard deviation.
    pub(crate) fn random(&mut self, name: &str, shape: &[usize], deviation: f32) -> atlas::Result<Weight> {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| deviation * self.numbers.normal()).collect();
        self.weight(name, shape, &values)
    }

    /// A weight whose elements are one number.
    pub(crate) fn filled(&mut self, name: &str, shape: &[usize], value: f32) -> atlas::Result<Weight> {
        self.weight(name, shape, &vec![value; shape.iter().product()])
    }

    /// How many numbers the model learns.
    pub(crate) fn count(&self) -> usize {
        self.used
    }

    /// All weights, and their gradients, one behind the other.
    pub(crate) fn all(&self) -> atlas::Result<(Tensor, Tensor)> {
        Ok((self.weights.slice(0, 0..self.used)?, self.grads.slice(0, 0..self.used)?))
    }

    /// One step of AdamW: scales a gradient that is too long, then moves every weight against it.
    pub(crate) fn step(&mut self, rate: f32) -> atlas::Result<()> {
        self.steps += 1;
        let [beta1, beta2] = BETAS;
        let biases = [bias_correction(beta1, self.steps), bias_correction(beta2, self.steps)];
        let (mut weights, grads) = self.all()?;
        let [m, v] = &self.moments;
        let (mut m, mut v) = (m.slice(0, 0..self.used)?, v.slice(0, 0..self.used)?);
        let one = || Tensor::zeros(&self.device, DType::F32, [1]);
        let (mut norm, mut factor) = (one()?, one()?);
        let mut space = CLIP_FACTOR.workspace(&self.device, &[("T", DType::F32)], &[("X", 64)])?;
        CLIP_FACTOR.launch(&self.device, args!(grads, LIMIT, &mut norm, &mut factor), &mut space)?;
        let args =
            args!(&mut weights, &mut m, &mut v, grads, factor, rate, beta1, beta2, EPS, DECAY, biases[0], biases[1]);
        adamw.launch(&self.device, args)
    }
}
