//! Runs the chains of the gated delta rule on a device, whole or in parts, and compares them with the rule as it is defined.

use super::reference::{DeltaHead, DeltaSizes};
use super::{DeltaChunks, GATED_DELTA_RULE, GATED_DELTA_RULE_SPLIT};
use crate::compare::Comparison;
use crate::omega::reference::of_head;
use crate::problem::{HostTensor, normal, round};
use crate::run::upload;
use crate::usual::unit;
use atlas_dsl::DType;
use atlas_runtime::{Chain, Device, Result, Tensor, args};

/// One problem.
#[derive(Clone, Debug)]
pub struct DeltaCase {
    /// Sequences, tokens, heads of values.
    pub batch: [usize; 3],
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Elements of a key and of a value.
    pub head: [usize; 2],
    /// Tokens of a chunk.
    pub chunk: usize,
    /// Element type of queries, keys, values and results.
    pub dtype: DType,
    /// Lengths of the parts in which the sequence is given, each with the memory that the one before left; empty for one part.
    pub parts: Vec<usize>,
    /// What is done to the inputs.
    pub edit: fn(&mut DeltaInputs),
}

/// Numbers of a case, exact in their element types.
#[derive(Clone, Debug)]
pub struct DeltaInputs {
    /// Queries `[B, N, J, D]`.
    pub q: Vec<f32>,
    /// Keys `[B, N, J, D]`.
    pub k: Vec<f32>,
    /// Values `[B, N, H, E]`.
    pub v: Vec<f32>,
    /// Logarithms of decays `[B, N, H]`.
    pub g: Vec<f32>,
    /// Step sizes `[B, N, H]`.
    pub beta: Vec<f32>,
    /// The memory before the sequence `[B, H, D, E]`.
    pub s: Vec<f32>,
}

impl DeltaCase {
    /// In f32, in one part.
    pub fn new(batch: [usize; 3], key_heads: usize, head: [usize; 2], chunk: usize) -> DeltaCase {
        DeltaCase { batch, key_heads, head, chunk, dtype: DType::F32, parts: vec![], edit: |_| {} }
    }

    /// Keys of about unit length, decays of all sizes, steps from 0 to 1.
    pub fn inputs(&self) -> DeltaInputs {
        let ([b, n, h], [d, e], j) = (self.batch, self.head, self.key_heads);
        let make = |name: &str, mean: f64, sd: f64, len: usize| {
            normal(&format!("delta {:?} {j} {:?} {name}", self.batch, self.head), mean, sd, len)
        };
        let rounded = |mut x: Vec<f32>| {
            x.iter_mut().for_each(|v| *v = round(*v, self.dtype));
            x
        };
        let decays = make("g", 0.0, 0.3, b * n * h).into_iter().map(|g| -g.abs()).collect();
        let mut inputs = DeltaInputs {
            q: rounded(make("q", 0.0, unit(d), b * n * j * d)),
            k: rounded(make("k", 0.0, unit(d), b * n * j * d)),
            v: rounded(make("v", 0.0, 1.0, b * n * h * e)),
            g: decays,
            beta: make("beta", 0.5, 0.3, b * n * h).into_iter().map(|x| x.clamp(0.0, 1.0)).collect(),
            s: make("s", 0.0, unit(d), b * h * d * e),
        };
        (self.edit)(&mut inputs);
        inputs
    }

    fn scale(&self) -> f32 {
        (self.head[0] as f32).powf(-0.5)
    }

    /// The rule by definition: what is read, `[B, N, H, E]`, and the memory after it, `[B, H, D, E]`.
    pub fn expected(&self, x: &DeltaInputs) -> [Vec<f64>; 2] {
        let ([b, n, h], [d, e], j) = (self.batch, self.head, self.key_heads);
        let sizes = DeltaSizes { n, h, j, d, e, l: self.chunk };
        let wide = |x: &[f32]| x.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
        let rows = |x: &[f32], at: usize, head: usize, heads: usize, width: usize| {
            let len = n * heads * width;
            of_head(&wide(&x[at * len..][..len]), head, heads, width)
        };
        let (mut read, mut after) = (vec![0.0; b * n * h * e], vec![]);
        for at in 0..b {
            for head in 0..h {
                let keys = head / (h / j);
                let of_head = DeltaHead {
                    q: rows(&x.q, at, keys, j, d),
                    k: rows(&x.k, at, keys, j, d),
                    v: rows(&x.v, at, head, h, e),
                    g: rows(&x.g, at, head, h, 1),
                    beta: rows(&x.beta, at, head, h, 1),
                };
                let mut s = wide(&x.s[(at * h + head) * d * e..][..d * e]);
                let o = sizes.recurrence(&of_head, &mut s, f64::from(self.scale()));
                for (t, row) in o.chunks(e).enumerate() {
                    read[((at * n + t) * h + head) * e..][..e].copy_from_slice(row);
                }
                after.extend(s);
            }
        }
        [read, after]
    }

    /// Runs a chain that takes what [`GATED_DELTA_RULE`] takes: what is read, and the memory after it.
    ///
    /// # Errors
    /// Those of making tensors and of launches.
    pub fn run(&self, chain: &Chain, device: &Device, x: &DeltaInputs) -> Result<[Vec<f64>; 2]> {
        let ([b, n, h], [d, e], j) = (self.batch, self.head, self.key_heads);
        let tensor = |dtype: DType, values: &[f32], sizes: &[usize]| {
            let host = HostTensor { sizes: sizes.to_vec(), values: values.to_vec() };
            upload(device, dtype, &host, crate::Layout::Contiguous)
        };
        let keys = |x: &[f32]| tensor(self.dtype, x, &[b, n, j, d]);
        let (q, k, v) = (keys(&x.q)?, keys(&x.k)?, tensor(self.dtype, &x.v, &[b, n, h, e])?);
        let gates = |x: &[f32]| tensor(DType::F32, x, &[b, n, h]);
        let (g, beta) = (gates(&x.g)?, gates(&x.beta)?);
        let mut s = tensor(DType::F32, &x.s, &[b, h, d, e])?;
        let o = tensor(self.dtype, &vec![f32::NAN; b * n * h * e], &[b, n, h, e])?;
        let chunks = DeltaChunks::new(self.chunk);
        let whole = [n];
        let parts = if self.parts.is_empty() { &whole[..] } else { &self.parts };
        let mut first = 0;
        for &length in parts {
            let at = |t: &Tensor| t.slice(1, first..first + length);
            let (q, k, v, g, beta) = (at(&q)?, at(&k)?, at(&v)?, at(&g)?, at(&beta)?);
            let mut o = at(&o)?;
            let mut space = chain.workspace(device, &[("T", self.dtype)], &chunks.dims([b, length, h], [d, e]))?;
            chain.launch(device, args!(k, g, beta, q, v, &mut s, &mut o, self.scale()), &mut space)?;
            first += length;
        }
        Ok([o.to_f64_vec()?, s.to_f64_vec()?])
    }

    /// Compares both chains with the rule by definition.
    ///
    /// # Errors
    /// As [`DeltaCase::run`].
    pub fn check(&self, device: &Device) -> Result<Comparison> {
        let (fused, split) =
            (self.check_of(&GATED_DELTA_RULE, device)?, self.check_of(&GATED_DELTA_RULE_SPLIT, device)?);
        Ok(fused.and(split))
    }

    /// Compares a chain with the rule by definition.
    ///
    /// # Errors
    /// As [`DeltaCase::run`].
    pub fn check_of(&self, chain: &Chain, device: &Device) -> Result<Comparison> {
        let inputs = self.inputs();
        let (found, wanted) = (self.run(chain, device, &inputs)?, self.expected(&inputs));
        Ok(Comparison::of_all(found.iter().map(Vec::as_slice).zip(wanted.iter().map(Vec::as_slice))))
    }
}
