//! Runs the chains of the Omega rule on a device, whole or in parts, and compares them with the rule as it is defined.

use super::reference::{Gates, Sequence, SequenceSizes, State, of_head, recurrence};
use super::stream::arguments;
use super::{Chunking, MemoryForm, OmegaRule, Step, open_chunk};
use crate::compare::Comparison;
use crate::problem::{HostTensor, normal, round};
use crate::run::upload;
use atlas_dsl::DType;
use atlas_runtime::{Chain, Device, Result, Tensor};
use std::collections::BTreeMap;
use std::ops::Range;

/// One problem.
#[derive(Clone, Debug)]
pub struct Case {
    /// Sequences, tokens, heads.
    pub batch: [usize; 3],
    /// Features of a key, elements of a value, hidden elements of the memory.
    pub memory: [usize; 3],
    /// The rule.
    pub rule: OmegaRule,
    /// The chain to run instead of the one that the rule takes for these sizes.
    pub chain: Option<&'static Chain>,
    /// Element type of keys, values, queries and results.
    pub dtype: DType,
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
    /// Residuals of queries `[B, T, H, E]`: the queries, where they have as many elements as the values, else zeros.
    pub rq: Vec<f32>,
    /// Residuals of keys, likewise.
    pub rk: Vec<f32>,
    /// Gates, `[B, T, H]`.
    pub alpha: Vec<f32>,
    /// Gates of the momentum.
    pub theta: Vec<f32>,
    /// Step sizes.
    pub eta: Vec<f32>,
    /// The band, `[B, T, H, W]`.
    pub gamma: Vec<f32>,
    /// Weights, `[B, H, ..]`, as [`MemoryForm`] has them.
    pub w: Vec<Vec<f32>>,
    /// Momenta.
    pub s: Vec<Vec<f32>>,
    /// The weight of the norm inside the memory, `[H, E]`; empty if it has none.
    pub norm: Vec<f32>,
}

impl Case {
    /// A memory of two layers in f32, read after each token, in one part; a linear one, if it has no hidden elements.
    pub fn new(batch: [usize; 3], memory: [usize; 3], chunking: Chunking) -> Case {
        let rule = OmegaRule::omega_net(chunking);
        let form = if memory[2] == 0 { MemoryForm::Linear } else { MemoryForm::Mlp };
        let rule = OmegaRule { memory: form, ..rule };
        Case { batch, memory, rule, chain: None, dtype: DType::F32, parts: vec![], edit: |_| {} }
    }

    /// The same of a memory of another form.
    #[must_use]
    pub fn of_form(mut self, form: MemoryForm) -> Case {
        self.rule.memory = form;
        self
    }

    fn is_normed(&self) -> bool {
        matches!(self.rule.memory, MemoryForm::Normed { .. })
    }

    /// Its sizes.
    pub fn sizes(&self) -> SequenceSizes {
        let ([_, n, h], [d, e, m], c) = (self.batch, self.memory, self.rule.chunking);
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
        let shapes = self.rule.memory.matrices(d, e, m);
        let matrix = |of: &str, sd: &dyn Fn(usize) -> f64| -> Vec<Vec<f32>> {
            let named = |(i, [rows, cols]): (usize, &[usize; 2])| {
                make(&format!("{of}{}", i + 1), 0.0, sd(if i == 0 { *cols } else { 1 }), b * h * rows * cols)
            };
            shapes.iter().enumerate().map(named).collect()
        };
        // Longer steps diverge: a gradient is as large as the hidden row is long, and momentum adds up five of a window.
        // Through a norm it is also as large as one over what is normed, so that this may not decay as fast either.
        let (through, kept) = if self.is_normed() { (4.0, 0.99) } else { (1.0, 0.95) };
        let step = 0.3 / (through * self.rule.chunking.window as f64 * (1.0 + m as f64 / 4.0));
        let gate = |x: Vec<f32>| x.into_iter().map(|v| v.clamp(0.0, 1.0)).collect::<Vec<f32>>();
        let [q, k] = ["q", "k"].map(|name| rounded(make(name, 0.0, unit(d), tokens * d)));
        let residual = |x: &[f32]| if d == e { x.to_vec() } else { vec![0.0; tokens * e] };
        let mut inputs = CaseInputs {
            batch: self.batch,
            rq: residual(&q),
            rk: residual(&k),
            q,
            k,
            v: rounded(make("v", 0.0, unit(e), tokens * e)),
            alpha: gate(make("alpha", kept, 0.6 * (1.0 - kept), tokens)),
            theta: gate(make("theta", 0.8, 0.1, tokens)),
            eta: gate(make("eta", step, step / 3.0, tokens)),
            gamma: gate(make("gamma", 0.5, 0.2, tokens * self.rule.chunking.window)),
            w: matrix("w", &unit),
            s: matrix("s", &|_| 0.01),
            norm: if self.is_normed() { rounded(make("norm", 1.0, 0.2, h * e)) } else { vec![] },
        };
        (self.edit)(&mut inputs);
        inputs
    }

    /// The rule by definition: what is read, `[B, T, H, E]`, and the memories and momenta after it.
    pub fn expected(&self, x: &CaseInputs, sizes: &SequenceSizes) -> Vec<Vec<f64>> {
        let [b, n, h] = self.batch;
        let [d, e, _] = self.memory;
        let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
        let matrices = sizes.matrices(&self.rule);
        let mut out = vec![0.0; b * n * h * e];
        let mut after = vec![vec![]; 2 * matrices.len()];
        for at in 0..b {
            let of = |x: &[f32], width: usize| wide(&x[at * n * h * width..][..n * h * width]);
            for head in 0..h {
                let rows = |x: &[f32], width: usize| of_head(&of(x, width), head, h, width);
                let sequence = Sequence {
                    q: rows(&x.q, d),
                    k: rows(&x.k, d),
                    v: rows(&x.v, e),
                    rq: rows(&x.rq, e),
                    rk: rows(&x.rk, e),
                    norm: wide(x.norm.get(head * e..(head + 1) * e).unwrap_or_default()),
                };
                let gates = Gates {
                    alpha: rows(&x.alpha, 1),
                    theta: rows(&x.theta, 1),
                    eta: rows(&x.eta, 1),
                    gamma: rows(&x.gamma, sizes.w),
                };
                let part = |x: &[Vec<f32>]| {
                    let of = |(x, [rows, cols]): (&Vec<f32>, &[usize; 2])| {
                        wide(&x[(at * h + head) * rows * cols..][..rows * cols])
                    };
                    x.iter().zip(&matrices).map(of).collect()
                };
                let mut state = State { w: part(&x.w), s: part(&x.s) };
                let y = recurrence(sizes, &sequence, &gates, &mut state, &self.rule);
                for (t, y) in y.chunks(e).enumerate() {
                    out[((at * n + t) * h + head) * e..][..e].copy_from_slice(y);
                }
                for (to, from) in after.iter_mut().zip(state.w.iter().chain(&state.s)) {
                    to.extend(from);
                }
            }
        }
        std::iter::once(out).chain(after).collect()
    }

    /// Runs the chain: what is read, and the memories and momenta after it.
    ///
    /// # Errors
    /// Those of making tensors and of launches.
    pub fn run(&self, device: &Device, x: &CaseInputs) -> Result<Vec<Vec<f64>>> {
        let [b, n, h] = self.batch;
        let [d, e, m] = self.memory;
        let tensor = |dtype: DType, values: &[f32], sizes: &[usize]| uploaded(device, dtype, values, sizes);
        let mut given = self.given(device, x)?;
        if self.is_normed() {
            given.insert("norm", tensor(self.dtype, &x.norm, &[h, e])?);
        }
        let matrix = |(values, [rows, cols]): (&Vec<f32>, [usize; 2])| tensor(DType::F32, values, &[b, h, rows, cols]);
        let shapes = self.rule.memory.matrices(d, e, m).into_iter().cycle();
        let mut memory: Vec<Tensor> = x.w.iter().chain(&x.s).zip(shapes).map(matrix).collect::<Result<_>>()?;
        let y = tensor(self.dtype, &vec![f32::NAN; b * n * h * e], &[b, n, h, e])?;
        let whole = [n];
        let parts = if self.parts.is_empty() { &whole[..] } else { &self.parts };
        let (chunking, chunk) = (self.rule.chunking, self.rule.chunking.chunk);
        let (mut first, mut end) = (0, 0);
        for (i, &length) in parts.iter().enumerate() {
            end += length;
            let part = end - first;
            let is_last = i + 1 == parts.len();
            let commit = if is_last { chunking.chunks(part) } else { part / chunk };
            if self.rule.step == Step::MuonByToken {
                // Its kernel changes the memory with each token: a chunk that is left open trains a copy.
                let full = end.min(first + commit * chunk);
                self.run_tokens(device, &given, (first..full, commit), &mut memory, &y)?;
                let copied = |t: &Tensor| tensor(DType::F32, &t.to_vec::<f32>()?, t.shape());
                let mut copy: Vec<Tensor> = memory.iter().map(copied).collect::<Result<_>>()?;
                self.run_tokens(device, &given, (full..end, 1), &mut copy, &y)?;
            } else {
                self.run_tokens(device, &given, (first..end, commit), &mut memory, &y)?;
            }
            first += commit * chunk;
        }
        std::iter::once(&y).chain(&memory).map(Tensor::to_f64_vec).collect()
    }

    /// Runs the chain on some tokens, of which so many chunks change the memory.
    fn run_tokens(
        &self,
        device: &Device,
        given: &BTreeMap<&'static str, Tensor>,
        (tokens, commit): (Range<usize>, usize),
        memory: &mut [Tensor],
        y: &Tensor,
    ) -> Result<()> {
        let ([b, _, h], [d, e, m]) = (self.batch, self.memory);
        if tokens.is_empty() {
            return Ok(());
        }
        let (chain, chunking) = (self.chain.unwrap_or(self.rule.chain_for(d, e, self.dtype)), self.rule.chunking);
        // The keys of the halo are given again.
        let past = chunking.keys() - chunking.chunk;
        let mut views: BTreeMap<&str, Tensor> = BTreeMap::new();
        for (name, whole) in given {
            let from = if ["k", "v", "rk"].contains(name) { tokens.start.saturating_sub(past) } else { tokens.start };
            views.insert(*name, if *name == "norm" { whole.clone() } else { whole.slice(1, from..tokens.end)? });
        }
        let mut y = y.slice(1, tokens.clone())?;
        let mut memory: Vec<&mut Tensor> = memory.iter_mut().collect();
        let args = arguments(chain, &self.rule, e, commit, &views, &mut memory, &mut y);
        let mut space = open_chunk::workspace(chain, &chunking, device, self.dtype, [b, h, d, e, m, tokens.len()])?;
        chain.launch(device, args, &mut space)
    }

    /// The tokens and gates of the whole sequences by name.
    fn given(&self, device: &Device, x: &CaseInputs) -> Result<BTreeMap<&'static str, Tensor>> {
        let ([b, n, h], [d, e, _]) = (self.batch, self.memory);
        let tensor = |dtype: DType, values: &[f32], sizes: &[usize]| uploaded(device, dtype, values, sizes);
        let tokens = |values: &[f32], width: usize| tensor(self.dtype, values, &[b, n, h, width]);
        let gate = |values: &[f32]| tensor(DType::F32, values, &[b, n, h]);
        let (q, k, v) = (tokens(&x.q, d)?, tokens(&x.k, d)?, tokens(&x.v, e)?);
        let (rq, rk) = (tokens(&x.rq, e)?, tokens(&x.rk, e)?);
        let gamma = tensor(DType::F32, &x.gamma, &[b, n, h, self.rule.chunking.window])?;
        let gates = [("alpha", gate(&x.alpha)?), ("theta", gate(&x.theta)?), ("eta", gate(&x.eta)?), ("gamma", gamma)];
        Ok([("q", q), ("k", k), ("v", v), ("rq", rq), ("rk", rk)].into_iter().chain(gates).collect())
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

fn uploaded(device: &Device, dtype: DType, values: &[f32], sizes: &[usize]) -> Result<Tensor> {
    let host = HostTensor { sizes: sizes.to_vec(), values: values.to_vec() };
    upload(device, dtype, &host, crate::Layout::Contiguous)
}
