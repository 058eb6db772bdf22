//! Runs TTT-Linear on a device, whole or in parts, and compares it with its definition.

use super::reference::{TttHead, TttMemory, TttScalars};
use super::{MiniBatches, TTT_LINEAR};
use crate::compare::Comparison;
use crate::omega::reference::of_head;
use crate::problem::{HostTensor, normal, round};
use crate::run::upload;
use crate::usual::unit;
use atlas_dsl::DType;
use atlas_runtime::{Chain, Device, Result, Tensor, args};

/// What is added to variances.
const EPS: f32 = 1e-6;

/// One problem.
#[derive(Clone, Debug)]
pub struct TttCase {
    /// Sequences, tokens, heads.
    pub batch: [usize; 3],
    /// Elements of a key and of a value.
    pub head: usize,
    /// Tokens of a mini-batch.
    pub mini_batch: usize,
    /// Element type of queries, keys, values and results.
    pub dtype: DType,
    /// Lengths of the parts in which the sequence is given, each with the memory that the one before left; empty for one part.
    pub parts: Vec<usize>,
    /// What is done to the inputs.
    pub edit: fn(&mut TttInputs),
}

/// Numbers of a case, exact in their element types.
#[derive(Clone, Debug)]
pub struct TttInputs {
    /// Queries `[B, N, H, D]`.
    pub q: Vec<f32>,
    /// Keys `[B, N, H, D]`.
    pub k: Vec<f32>,
    /// Values `[B, N, H, D]`.
    pub v: Vec<f32>,
    /// Step sizes `[B, N, H]`.
    pub eta: Vec<f32>,
    /// The weight of the norm `[H, D]`.
    pub weight: Vec<f32>,
    /// The shift of the norm `[H, D]`.
    pub shift: Vec<f32>,
    /// The memory before the sequence `[B, H, D, D]`.
    pub s: Vec<f32>,
    /// Its bias `[B, H, D]`.
    pub bias: Vec<f32>,
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| f64::from(v)).collect()
}

impl TttCase {
    /// In f32, in one part.
    pub fn new(batch: [usize; 3], head: usize, mini_batch: usize) -> TttCase {
        TttCase { batch, head, mini_batch, dtype: DType::F32, parts: vec![], edit: |_| {} }
    }

    /// Keys of about unit length, a memory that makes rows of about the deviation 1 of them, and steps that differ from token to token.
    pub fn inputs(&self) -> TttInputs {
        let ([b, n, h], d) = (self.batch, self.head);
        let make = |name: &str, mean: f64, sd: f64, len: usize| {
            normal(&format!("ttt {:?} {d} {name}", self.batch), mean, sd, len)
        };
        let rounded = |mut x: Vec<f32>| {
            x.iter_mut().for_each(|v| *v = round(*v, self.dtype));
            x
        };
        let mut inputs = TttInputs {
            q: rounded(make("q", 0.0, 1.0, b * n * h * d)),
            k: rounded(make("k", 0.0, unit(d), b * n * h * d)),
            v: rounded(make("v", 0.0, 1.0, b * n * h * d)),
            eta: make("eta", 0.1, 0.05, b * n * h).into_iter().map(|x| x.max(0.0)).collect(),
            weight: make("weight", 1.0, 0.1, h * d),
            shift: make("shift", 0.0, 0.1, h * d),
            s: make("s", 0.0, 1.0, b * h * d * d),
            bias: make("bias", 0.0, 0.1, b * h * d),
        };
        (self.edit)(&mut inputs);
        inputs
    }

    fn scale(&self) -> f32 {
        (self.head as f32).powf(-0.5)
    }

    /// By definition: what is read, `[B, N, H, D]`, the memory after it, `[B, H, D, D]`, and its bias, `[B, H, D]`.
    pub fn expected(&self, x: &TttInputs) -> [Vec<f64>; 3] {
        let ([b, n, h], d) = (self.batch, self.head);
        let scalars = TttScalars { scale: f64::from(self.scale()), eps: f64::from(EPS) };
        let rows = |x: &[f32], at: usize, head: usize, width: usize| {
            let len = n * h * width;
            of_head(&wide(&x[at * len..][..len]), head, h, width)
        };
        let (mut read, mut after, mut biases) = (vec![0.0; b * n * h * d], vec![], vec![]);
        for (at, head) in (0..b).flat_map(|at| (0..h).map(move |head| (at, head))) {
            let of = TttHead {
                d,
                l: self.mini_batch,
                q: rows(&x.q, at, head, d),
                k: rows(&x.k, at, head, d),
                v: rows(&x.v, at, head, d),
                eta: rows(&x.eta, at, head, 1),
                weight: wide(&x.weight[head * d..][..d]),
                shift: wide(&x.shift[head * d..][..d]),
            };
            let own = |x: &[f32], len: usize| wide(&x[(at * h + head) * len..][..len]);
            let mut memory = TttMemory { w: own(&x.s, d * d), b: own(&x.bias, d) };
            for (t, row) in of.recurrence(&mut memory, scalars).chunks(d).enumerate() {
                read[((at * n + t) * h + head) * d..][..d].copy_from_slice(row);
            }
            after.extend(memory.w);
            biases.extend(memory.b);
        }
        [read, after, biases]
    }

    /// Runs a chain that takes what [`TTT_LINEAR`] takes: what is read, the memory after it, and its bias.
    ///
    /// # Errors
    /// Those of making tensors and of launches.
    pub fn run(&self, chain: &Chain, device: &Device, x: &TttInputs) -> Result<[Vec<f64>; 3]> {
        let ([b, n, h], d) = (self.batch, self.head);
        let tensor = |dtype: DType, values: &[f32], sizes: &[usize]| {
            let host = HostTensor { sizes: sizes.to_vec(), values: values.to_vec() };
            upload(device, dtype, &host, crate::Layout::Contiguous)
        };
        let tokens = |x: &[f32]| tensor(self.dtype, x, &[b, n, h, d]);
        let (q, k, v) = (tokens(&x.q)?, tokens(&x.k)?, tokens(&x.v)?);
        let eta = tensor(DType::F32, &x.eta, &[b, n, h])?;
        let norm = |x: &[f32]| tensor(DType::F32, x, &[h, d]);
        let (weight, shift) = (norm(&x.weight)?, norm(&x.shift)?);
        let mut s = tensor(DType::F32, &x.s, &[b, h, d, d])?;
        let mut bias = tensor(DType::F32, &x.bias, &[b, h, d])?;
        let o = tensor(self.dtype, &vec![f32::NAN; b * n * h * d], &[b, n, h, d])?;
        let batches = MiniBatches::new(self.mini_batch);
        let whole = [n];
        let parts = if self.parts.is_empty() { &whole[..] } else { &self.parts };
        let mut first = 0;
        for &length in parts {
            let at = |t: &Tensor| t.slice(1, first..first + length);
            let (q, k, v, eta) = (at(&q)?, at(&k)?, at(&v)?, at(&eta)?);
            let mut o = at(&o)?;
            let mut space = chain.workspace(device, &[("T", self.dtype)], &batches.dims([b, length, h]))?;
            let scale = self.scale();
            let all = args!(q, k, eta, scale, v, weight, shift, &mut s, &mut bias, &mut o, EPS);
            chain.launch(device, all, &mut space)?;
            first += length;
        }
        Ok([o.to_f64_vec()?, s.to_f64_vec()?, bias.to_f64_vec()?])
    }

    /// Compares [`TTT_LINEAR`] with its definition.
    ///
    /// # Errors
    /// As [`TttCase::run`].
    pub fn check(&self, device: &Device) -> Result<Comparison> {
        self.check_of(&TTT_LINEAR, device)
    }

    /// Compares a chain with the definition.
    ///
    /// # Errors
    /// As [`TttCase::run`].
    pub fn check_of(&self, chain: &Chain, device: &Device) -> Result<Comparison> {
        let inputs = self.inputs();
        let (found, wanted) = (self.run(chain, device, &inputs)?, self.expected(&inputs));
        Ok(Comparison::of_all(found.iter().map(Vec::as_slice).zip(wanted.iter().map(Vec::as_slice))))
    }
}
