//! Trains a memory on a device, and compares all gradients with those of the rule as it is defined.

use super::reference::{Forgotten, HeadInputs, How, MemoryState, Norm, recurrence};
use super::tape::{Matrix, Tape, Var};
use super::{OmegaGradients, OmegaTraining, TrainingSizes};
use crate::Comparison;
use crate::omega::reference::SequenceSizes;
use crate::omega::{Chunking, Loss, MemoryForm, OmegaRule, Read, Step, Tokens};
use crate::problem::{HostTensor, normal, round};
use crate::run::upload;
use atlas_dsl::DType;
use atlas_runtime::{Device, Result, Tensor};
use std::collections::BTreeMap;

/// One problem.
#[derive(Clone, Debug)]
pub struct TrainingCase {
    /// Sequences, tokens, heads.
    pub batch: [usize; 3],
    /// Features of a key, elements of a value, hidden elements; 0 hidden ones for a linear memory.
    pub memory: [usize; 3],
    /// What the memory computes.
    pub form: MemoryForm,
    /// What it is trained for.
    pub loss: Loss,
    /// How it steps.
    pub step: Step,
    /// Chunks and windows.
    pub chunking: Chunking,
    /// Element type of tokens.
    pub dtype: DType,
    /// Whether a token is read before the memory has seen it.
    pub before: bool,
    /// Whether the loss depends on the memory after the last token.
    pub of_memory: bool,
    /// Chunks of a segment.
    pub segment: Option<usize>,
    /// Whether passes over a chunk are launches; as the device likes it if this is not said.
    pub is_split: Option<bool>,
    /// What is done to the inputs.
    pub edit: fn(&mut Named),
}

/// Numbers by the names of tensors, exact in their element types.
pub type Named = BTreeMap<&'static str, HostTensor>;

/// Gradients by the names of what they are by.
pub type Found = BTreeMap<&'static str, Vec<f64>>;

/// Inputs with tokens, and the last axes of each after `[B, T, H]`.
const TOKENS: [&str; 9] = ["q", "k", "v", "rq", "rk", "alpha", "theta", "eta", "gamma"];

/// Names of the gradients by the state after the last token.
const OF_STATE: [&str; 6] = ["first", "second", "third", "fourth", "fifth", "sixth"];

impl TrainingCase {
    /// A memory of two layers, or a linear one, in f32, read after each token, with a loss of what is read alone.
    pub fn new(batch: [usize; 3], memory: [usize; 3], chunking: Chunking) -> TrainingCase {
        let (dtype, before, of_memory, segment) = (DType::F32, false, false, None);
        let form = if memory[2] == 0 { MemoryForm::Linear } else { MemoryForm::Mlp };
        let (loss, step) = (Loss::Square, Step::Descent);
        let (is_split, edit) = (None, |_: &mut Named| {});
        TrainingCase { batch, memory, form, loss, step, chunking, dtype, before, of_memory, segment, is_split, edit }
    }

    /// Sizes of a sequence.
    pub fn sizes(&self) -> SequenceSizes {
        let ([_, n, h], [d, e, m], c) = (self.batch, self.memory, self.chunking);
        SequenceSizes { n, p: n, h, d, e, m, l: c.chunk, w: c.window, k: c.keys() }
    }

    /// Names and shapes of the state's tensors, `[B, H, ..]`.
    fn state(&self) -> Vec<(&'static str, [usize; 4])> {
        let ([b, _, h], [d, e, m]) = (self.batch, self.memory);
        let names: &[&str] = match self.form {
            MemoryForm::Linear => &["w", "s"],
            MemoryForm::Gated => &["w1", "w2", "w3", "s1", "s2", "s3"],
            _ => &["w1", "w2", "s1", "s2"],
        };
        let shapes = self.form.matrices(d, e, m).repeat(2);
        names.iter().copied().zip(shapes.into_iter().map(|[rows, cols]| [b, h, rows, cols])).collect()
    }

    fn is_normed(&self) -> bool {
        matches!(self.form, MemoryForm::Normed { .. })
    }

    /// The inputs: unit keys, gates that forget slowly, small steps, and a loss `<dy, y>`, plus `<dw, w>` of the memory after the
    /// last token.
    pub fn inputs(&self) -> Named {
        let ([b, n, h], [d, e, m]) = (self.batch, self.memory);
        let unit = |width: usize| (width.max(1) as f64).powf(-0.5);
        // Through a norm a gradient is also as large as one over what is normed, so that this may not decay as fast.
        let (through, kept) = if self.is_normed() { (4.0, 0.99) } else { (1.0, 0.95) };
        let step = 0.3 / (through * self.chunking.window as f64 * (1.0 + m as f64 / 4.0));
        let w = self.chunking.window;
        let mut made = Named::new();
        let mut add = |name: &'static str, sizes: &[usize], (mean, sd): (f64, f64), dtype: DType| {
            let seed = format!("training {:?} {:?} {name}", self.batch, self.memory);
            let mut values = normal(&seed, mean, sd, sizes.iter().product());
            values.iter_mut().for_each(|v| *v = round(*v, dtype));
            made.insert(name, HostTensor { sizes: sizes.to_vec(), values });
        };
        let rows = [("q", d), ("k", d), ("v", e), ("rq", e), ("rk", e), ("dy", e)];
        rows.into_iter().for_each(|(name, width)| add(name, &[b, n, h, width], (0.0, unit(width)), self.dtype));
        let gates = [("alpha", kept, 0.6 * (1.0 - kept)), ("theta", 0.8, 0.1), ("eta", step, step / 3.0)];
        gates.into_iter().for_each(|(name, mean, sd)| add(name, &[b, n, h], (mean, sd), DType::F32));
        add("gamma", &[b, n, h, w], (0.5, 0.2), DType::F32);
        for (name, shape) in self.state() {
            let sd = if name.starts_with('s') { 0.1 } else { unit(shape[3]) };
            add(name, &shape, (0.0, sd), DType::F32);
        }
        if self.is_normed() {
            add("norm", &[h, e], (1.0, 0.2), self.dtype);
        }
        for ((_, shape), name) in self.state().into_iter().zip(OF_STATE) {
            let sd = if self.of_memory { unit(shape[3]) } else { 0.0 };
            add(name, &shape, (0.0, sd), DType::F32);
        }
        (self.edit)(&mut made);
        made
    }

    /// The gradients by definition, where a backward pass has forgotten something.
    pub fn expected(&self, x: &Named, forgotten: Forgotten) -> Found {
        let ([b, n, h], s) = (self.batch, self.sizes());
        let mut found = Found::new();
        for (at, head) in (0..b).flat_map(|at| (0..h).map(move |head| (at, head))) {
            let mut tape = Tape::default();
            let width = |name: &str| x[name].values.len() / (b * n * h);
            // Rows of one head of one sequence, by the places of their first elements.
            let starts = |name: &str| -> Vec<usize> {
                let width = width(name);
                (0..n).map(|t| ((at * n + t) * h + head) * width).collect()
            };
            let rows = |name: &str| {
                let values = &x[name].values;
                let of = |from: usize| values[from..][..width(name)].iter().map(|&v| f64::from(v));
                Matrix::new(width(name), starts(name).into_iter().flat_map(of).collect())
            };
            let part = |name: &str| {
                let HostTensor { sizes, values } = &x[name];
                let len = sizes[2] * sizes[3];
                let values = &values[(at * h + head) * len..][..len];
                Matrix::new(sizes[3], values.iter().map(|&v| f64::from(v)).collect())
            };
            let [q, k, v, rq, rk, alpha, theta, eta, gamma] = TOKENS.map(|name| tape.given(rows(name)));
            let inputs = HeadInputs { q, k, v, rq, rk, alpha, theta, eta, gamma };
            let state = self.state();
            let start = MemoryState::given(&mut tape, &state.iter().map(|(name, _)| part(name)).collect::<Vec<_>>());
            let (how, norm) = self.how(&mut tape, x, head);
            let (read, end) = recurrence(&mut tape, &s, &inputs, &start, (&how, self.before), forgotten);
            let dy = rows("dy");
            let mut loss: Vec<_> =
                read.iter().zip(dy.values.chunks(s.e)).map(|(y, by)| (*y, Matrix::new(s.e, by.to_vec()))).collect();
            loss.extend(end.all().zip(OF_STATE).map(|(var, by)| (var, part(by))));
            let gradients = tape.gradients(&loss);
            for (name, var) in TOKENS.into_iter().zip([q, k, v, rq, rk, alpha, theta, eta, gamma]) {
                let all = found.entry(name).or_insert_with(|| vec![0.0; x[name].values.len()]);
                let by = gradients.by(&tape, var);
                for (from, row) in starts(name).into_iter().zip(by.chunks(width(name))) {
                    all[from..][..row.len()].copy_from_slice(row);
                }
            }
            for ((name, _), var) in state.into_iter().zip(start.all()) {
                found.entry(name).or_default().extend(gradients.by(&tape, var));
            }
            if let Some(norm) = norm {
                let all = found.entry("norm").or_insert_with(|| vec![0.0; x["norm"].values.len()]);
                let of_head = all[head * s.e..][..s.e].iter_mut();
                of_head.zip(gradients.by(&tape, norm)).for_each(|(all, by)| *all += by);
            }
        }
        // Those of residuals of queries are given.
        found.remove("rq");
        found
    }

    /// What the memory of a head is trained for, and the weight of its norm.
    fn how(&self, tape: &mut Tape, x: &Named, head: usize) -> (How, Option<Var>) {
        let e = self.memory[1];
        let weight = x.get("norm").map(|norm| {
            let of_head = norm.values[head * e..][..e].iter().map(|&v| f64::from(v)).collect();
            tape.given(Matrix::new(e, of_head))
        });
        let eps = if let MemoryForm::Normed { eps } = self.form { eps.into() } else { 0.0 };
        let norm = weight.map(|weight| Norm { weight, eps });
        (
            How {
                scale: self.loss.factor(e).into(),
                predicts: self.loss.predicts(),
                norm,
                by_chunk: self.step == Step::MuonByChunk,
            },
            weight,
        )
    }

    /// Trains the memory and goes back: the gradients that a device finds.
    ///
    /// # Errors
    /// Those of making tensors and of launches.
    pub fn run(&self, device: &Device, x: &Named) -> Result<Found> {
        let mut training = self.training(device)?;
        let tensor = |name: &str| {
            let is_token = ["q", "k", "v", "rq", "rk", "dy", "norm"].contains(&name);
            upload(device, if is_token { self.dtype } else { DType::F32 }, &x[name], crate::Layout::Contiguous)
        };
        let mut given = Vec::new();
        for name in TOKENS {
            given.push(tensor(name)?);
        }
        let [q, k, v, rq, rk, alpha, theta, eta, gamma] = std::array::from_fn(|i| &given[i]);
        let tokens = Tokens { q, k, v, rq, rk, alpha, theta, eta, gamma };
        let (mut memory, mut by_memory) = (Vec::new(), Vec::new());
        for ((name, _), by) in self.state().into_iter().zip(OF_STATE) {
            memory.push(tensor(name)?);
            by_memory.push(tensor(by)?);
        }
        if self.is_normed() {
            training.set_norm(tensor("norm")?);
        }
        let stream = device.default_stream();
        let (mut kept, mut gradients) = (training.kept()?, training.gradients()?);
        let [b, n, h] = self.batch;
        let mut y = Tensor::zeros(device, self.dtype, [b, n, h, self.memory[1]])?;
        let mut list: Vec<&mut Tensor> = memory.iter_mut().collect();
        training.forward(&stream, &tokens, &mut list, &mut y, &mut kept)?;
        let by_memory: Vec<&Tensor> = by_memory.iter().collect();
        let by_memory = self.of_memory.then_some(&by_memory[..]);
        // What an earlier pass has left does not count.
        for _ in 0..2 {
            training.backward(&stream, &tokens, &kept, &tensor("dy")?, by_memory, &mut gradients)?;
        }
        let state: Vec<&'static str> = self.state().into_iter().map(|(name, _)| name).collect();
        found(&gradients, &state)
    }

    /// Compares all gradients with those by definition, each with its own.
    ///
    /// # Errors
    /// As [`TrainingCase::run`].
    pub fn check(&self, device: &Device) -> Result<Comparison> {
        let x = self.inputs();
        let each = compared(&self.run(device, &x)?, &self.expected(&x, Forgotten::Nothing));
        Ok(each.into_values().fold(Comparison::new(&[], &[]), Comparison::and))
    }

    /// The training of the case.
    ///
    /// # Errors
    /// Those of making tensors.
    pub fn training(&self, device: &Device) -> Result<OmegaTraining> {
        let ([sequences, tokens, heads], [key, value, hidden]) = (self.batch, self.memory);
        let read = if self.before { Read::Before } else { Read::After };
        let rule = OmegaRule {
            memory: self.form,
            read,
            loss: self.loss,
            step: self.step,
            ..OmegaRule::omega_net(self.chunking)
        };
        let sizes = TrainingSizes { sequences, tokens, heads, key, value, hidden, dtype: self.dtype };
        OmegaTraining::with_form(device, rule, sizes, self.segment, self.is_split)
    }
}

/// Gradients that a device has found, by name; `state` names the tensors of the memory.
pub(crate) fn found(gradients: &OmegaGradients, state: &[&'static str]) -> Result<Found> {
    let tokens = [
        ("q", gradients.q()),
        ("k", gradients.k()),
        ("v", gradients.v()),
        ("rk", gradients.rk()),
        ("alpha", gradients.alpha()),
        ("theta", gradients.theta()),
        ("eta", gradients.eta()),
        ("gamma", gradients.gamma()),
    ];
    let memory = state.iter().copied().zip(gradients.memory());
    let norm = gradients.norm().map(|norm| ("norm", norm));
    tokens.into_iter().chain(memory).chain(norm).map(|(name, t)| Ok((name, t.to_f64_vec()?))).collect()
}

/// Compares gradients, each with its own.
pub fn compared(found: &Found, wanted: &Found) -> BTreeMap<&'static str, Comparison> {
    let nothing = vec![];
    let of = |name: &&'static str| {
        let [found, wanted] = [found, wanted].map(|of| of.get(name).unwrap_or(&nothing));
        (*name, Comparison::new(found, wanted))
    };
    wanted.keys().chain(found.keys()).map(of).collect()
}
