//! Runs the chains of the Omega rule on a device, whole or in parts, and compares them with the rule as it is defined.

use super::reference::{Gates, Sequence, SequenceSizes, State, muon, of_head, recurrence};
use super::{Chunking, OMEGA_LINEAR, OMEGA_MLP, OMEGA_MUON};
use crate::compare::Comparison;
use crate::problem::{HostTensor, normal, round};
use crate::run::upload;
use atlas_dsl::DType;
use atlas_runtime::{Arg, Device, Result, Tensor};

/// One problem.
#[derive(Clone, Debug)]
pub struct Case {
    /// Sequences, tokens, heads.
    pub batch: [usize; 3],
    /// Features of a key, elements of a value, hidden elements; 0 hidden ones for a linear memory.
    pub memory: [usize; 3],
    /// Chunks and windows.
    pub chunking: Chunking,
    /// Element type of keys, values, queries and results.
    pub dtype: DType,
    /// Whether each chunk takes one step with Muon.
    pub muon: bool,
    /// Whether a token is read before the memory has seen it.
    pub before: bool,
    /// Lengths of the parts in which the sequence is given; empty for one part. A chunk that a part leaves open is given again
    /// with the next part, from its start, and the memory does not go on before it is whole.
    pub parts: Vec<usize>,
    /// What is done to the gates and tokens.
    pub edit: fn(&mut CaseInputs),
}

/// Numbers of a case, `[B, T, H, ..]`, exact in their element types.
#[derive(Clone, Debug)]
pub struct CaseInputs {
    /// Sequences, tokens, heads.
    pub batch: [usize; 3],
    /// Queries and keys, `[B, T, H, D]`.
    pub q: Vec<f32>,
    /// Keys.
    pub k: Vec<f32>,
    /// Values, `[B, T, H, E]`.
    pub v: Vec<f32>,
    /// Gates, `[B, T, H]`.
    pub alpha: Vec<f32>,
    /// Gates of the momentum.
    pub theta: Vec<f32>,
    /// Step sizes.
    pub eta: Vec<f32>,
    /// The band, `[B, T, H, W]`.
    pub gamma: Vec<f32>,
    /// Weights, `[B, H, ..]`.
    pub w: [Vec<f32>; 2],
    /// Momentum.
    pub s: [Vec<f32>; 2],
}

impl Case {
    /// A memory of two layers in f32, read after each token, in one part.
    pub fn new(batch: [usize; 3], memory: [usize; 3], chunking: Chunking) -> Case {
        Case { batch, memory, chunking, dtype: DType::F32, muon: false, before: false, parts: vec![], edit: |_| {} }
    }

    /// Its sizes.
    pub fn sizes(&self) -> SequenceSizes {
        let ([_, n, h], [d, e, m], c) = (self.batch, self.memory, self.chunking);
        SequenceSizes { n, p: n, h, d, e, m, l: c.chunk, w: c.window, k: c.keys() }
    }

    /// The inputs: unit keys, gates that forget slowly, small steps.
    pub fn inputs(&self) -> CaseInputs {
        let ([b, n, h], [d, e, m]) = (self.batch, self.memory);
        let tokens = b * n * h;
        let seed = |name: &str| format!("omega {:?} {:?} {name}", self.batch, self.memory);
        let make = |name: &str, mean: f64, sd: f64, len: usize| normal(&seed(name), mean, sd, len);
        let rounded = |mut x: Vec<f32>| {
            x.iter_mut().for_each(|v| *v = round(*v, self.dtype));
            x
        };
        let unit = |width: usize| (width as f64).powf(-0.5);
        let [first, second] = self.sizes().matrices().map(|len| b * h * len);
        // Longer steps diverge: a gradient is as large as the hidden row is long, and momentum adds up five of a window.
        let step = 0.3 / (self.chunking.window as f64 * (1.0 + m as f64 / 4.0));
        let gate = |x: Vec<f32>| x.into_iter().map(|v| v.clamp(0.0, 1.0)).collect::<Vec<f32>>();
        let mut inputs = CaseInputs {
            batch: self.batch,
            q: rounded(make("q", 0.0, unit(d), tokens * d)),
            k: rounded(make("k", 0.0, unit(d), tokens * d)),
            v: rounded(make("v", 0.0, unit(e), tokens * e)),
            alpha: gate(make("alpha", 0.95, 0.03, tokens)),
            theta: gate(make("theta", 0.8, 0.1, tokens)),
            eta: gate(make("eta", step, step / 3.0, tokens)),
            gamma: gate(make("gamma", 0.5, 0.2, tokens * self.chunking.window)),
            w: [make("w1", 0.0, unit(if m == 0 { d } else { m }), first), make("w2", 0.0, 1.0, second)],
            s: [make("s1", 0.0, 0.01, first), make("s2", 0.0, 0.01, second)],
        };
        (self.edit)(&mut inputs);
        inputs
    }

    /// The rule by definition: what is read, `[B, T, H, E]`, and the memories and momenta after it.
    pub fn expected(&self, x: &CaseInputs, sizes: &SequenceSizes) -> Vec<Vec<f64>> {
        let [b, n, h] = self.batch;
        let [d, e, _] = self.memory;
        let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
        let matrices = sizes.matrices();
        let mut out = vec![0.0; b * n * h * e];
        let mut after = [vec![], vec![], vec![], vec![]];
        for at in 0..b {
            let of = |x: &[f32], width: usize| wide(&x[at * n * h * width..][..n * h * width]);
            for head in 0..h {
                let rows = |x: &[f32], width: usize| of_head(&of(x, width), head, h, width);
                // The residual is the key where it has as many elements as the value, else nothing.
                let residual = |x: &[f32]| if d == e { rows(x, d) } else { vec![0.0; n * e] };
                let sequence = Sequence {
                    q: rows(&x.q, d),
                    k: rows(&x.k, d),
                    v: rows(&x.v, e),
                    rq: residual(&x.q),
                    rk: residual(&x.k),
                };
                let gates = Gates {
                    alpha: rows(&x.alpha, 1),
                    theta: rows(&x.theta, 1),
                    eta: rows(&x.eta, 1),
                    gamma: rows(&x.gamma, sizes.w),
                };
                let part = |x: &[Vec<f32>; 2]| {
                    std::array::from_fn(|i| wide(&x[i][(at * h + head) * matrices[i]..][..matrices[i]]))
                };
                let mut state = State { w: part(&x.w), s: part(&x.s) };
                let y = match self.muon {
                    true => muon(sizes, &sequence, &gates, &mut state, self.scale()),
                    false => recurrence(sizes, &sequence, &gates, &mut state, self.scale(), self.before),
                };
                for (t, y) in y.chunks(e).enumerate() {
                    out[((at * n + t) * h + head) * e..][..e].copy_from_slice(y);
                }
                for (to, from) in after.iter_mut().zip(state.w.iter().chain(&state.s)) {
                    to.extend(from);
                }
            }
        }
        let [w1, w2, s1, s2] = after;
        if self.memory[2] == 0 { vec![out, w1, s1] } else { vec![out, w1, w2, s1, s2] }
    }

    fn scale(&self) -> f64 {
        2.0
    }

    /// Runs the chain: what is read, and the memories and momenta after it.
    ///
    /// # Errors
    /// Those of making tensors and of launches.
    pub fn run(&self, device: &Device, x: &CaseInputs) -> Result<Vec<Vec<f64>>> {
        let [b, n, h] = self.batch;
        let [d, e, m] = self.memory;
        let tensor = |dtype: DType, values: &[f32], sizes: &[usize]| {
            let host = HostTensor { sizes: sizes.to_vec(), values: values.to_vec() };
            upload(device, dtype, &host, crate::Layout::Contiguous)
        };
        let tokens = |values: &[f32], width: usize| tensor(self.dtype, values, &[b, n, h, width]);
        let (q, k, v) = (tokens(&x.q, d)?, tokens(&x.k, d)?, tokens(&x.v, e)?);
        let nothing = tensor(self.dtype, &[0.0], &[1, 1, 1, 1])?.expand([b, n, h, e])?;
        let (rq, rk) = if d == e { (q.clone(), k.clone()) } else { (nothing.clone(), nothing) };
        let gate = |values: &[f32]| tensor(DType::F32, values, &[b, n, h]);
        let (alpha, theta, eta) = (gate(&x.alpha)?, gate(&x.theta)?, gate(&x.eta)?);
        let gamma = tensor(DType::F32, &x.gamma, &[b, n, h, self.chunking.window])?;
        let inner = if m == 0 { d } else { m };
        let matrix = |values: &[f32], rows: usize, cols: usize| tensor(DType::F32, values, &[b, h, rows, cols]);
        let (mut w1, mut s1) = (matrix(&x.w[0], e, inner)?, matrix(&x.s[0], e, inner)?);
        // With Muon both matrices lie wide.
        let [rows, cols] = if self.muon { [d, m] } else { [m, d] };
        let (mut w2, mut s2) = (matrix(&x.w[1], rows, cols)?, matrix(&x.s[1], rows, cols)?);
        let y = tokens(&vec![f32::NAN; b * n * h * e], e)?;
        let whole = [n];
        let parts = if self.parts.is_empty() { &whole[..] } else { &self.parts };
        let past = self.chunking.keys() - self.chunking.chunk;
        let (mut first, mut end, chunk) = (0, 0, self.chunking.chunk);
        for (i, &length) in parts.iter().enumerate() {
            end += length;
            let part = end - first;
            let is_last = i + 1 == parts.len();
            let commit = if is_last { self.chunking.chunks(part) } else { part / chunk };
            // The keys of the halo are given again.
            let from = first - first.min(past);
            let (new, seen) = (first..first + part, from..first + part);
            let at = |t: &Tensor| t.slice(1, new.clone());
            let with_past = |t: &Tensor| t.slice(1, seen.clone());
            let (alpha, theta, eta, gamma) = (at(&alpha)?, at(&theta)?, at(&eta)?, at(&gamma)?);
            let (q, k, v, rq, rk) = (at(&q)?, with_past(&k)?, with_past(&v)?, at(&rq)?, with_past(&rk)?);
            let mut y = at(&y)?;
            let dims = self.chunking.dims(b, h, part);
            let (before, scale) = (i32::from(self.before), self.scale() as f32);
            let mut args = vec![Arg::In(&alpha), Arg::In(&theta), Arg::In(&eta), Arg::In(&gamma)];
            args.extend([Arg::I32(before), Arg::I32(commit as i32)]);
            args.extend([&q, &k, &v, &rq, &rk].map(Arg::In));
            if m == 0 {
                args.extend([&mut w1, &mut s1, &mut y].map(Arg::Out));
            } else {
                args.extend([&mut w1, &mut w2, &mut s1, &mut s2, &mut y].map(Arg::Out));
            }
            args.push(Arg::F32(scale));
            let chain = match (m, self.muon) {
                (0, _) => &OMEGA_LINEAR,
                (_, true) => &OMEGA_MUON,
                _ => &OMEGA_MLP,
            };
            chain.launch(device, args, &mut chain.workspace(device, &[], &dims)?)?;
            first += commit * chunk;
        }
        let results = if m == 0 { vec![&y, &w1, &s1] } else { vec![&y, &w1, &w2, &s1, &s2] };
        results.into_iter().map(Tensor::to_f64_vec).collect()
    }

    /// Compares the chain with the rule by definition.
    ///
    /// # Errors
    /// As [`Case::run`].
    pub fn check(&self, device: &Device) -> Result<Comparison> {
        let inputs = self.inputs();
        let (found, wanted) = (self.run(device, &inputs)?, self.expected(&inputs, &self.sizes()));
        Ok(Comparison::of_all(found.iter().map(Vec::as_slice).zip(wanted.iter().map(Vec::as_slice))))
    }

    /// The same, where the definition is given other sizes: what a mistake in them would be.
    ///
    /// # Errors
    /// As [`Case::run`].
    pub fn check_against(
        &self,
        device: &Device,
        edit: impl Fn(&mut SequenceSizes, &mut CaseInputs),
    ) -> Result<Comparison> {
        let (inputs, mut sizes) = (self.inputs(), self.sizes());
        let mut other = inputs.clone();
        edit(&mut sizes, &mut other);
        let (found, wanted) = (self.run(device, &inputs)?, self.expected(&other, &sizes));
        Ok(Comparison::of_all(found.iter().map(Vec::as_slice).zip(wanted.iter().map(Vec::as_slice))))
    }
}
