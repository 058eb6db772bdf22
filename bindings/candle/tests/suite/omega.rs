//! The Omega rule, token by token with candle's gradients.

use super::compare::{F32, close, values};
use super::devices::{devices, on_host, to};
use atlas_candle::atlas::ops::omega::{Chunking, Loss, MemoryForm, OmegaRule, Read, Step};
use atlas_candle::{Gates, Memory, Tokens, omega};
use candle_core::{D, DType, Device, Result, Tensor, Var};

/// Sequences, tokens, heads, elements of keys and of values, hidden elements.
const SIZES: [usize; 6] = [2, 7, 2, 8, 6, 12];
const WINDOW: usize = 3;

/// What a memory makes of rows `[.., D]`.
fn read(w: &[Tensor], x: &Tensor) -> Result<Tensor> {
    match w {
        [w] => x.matmul(&w.t()?),
        [w1, w2] => x.matmul(&w2.t()?)?.gelu_erf()?.matmul(&w1.t()?),
        _ => unreachable!("a memory has one or two matrices here"),
    }
}

/// The rule of one sequence and head: what is read, and the weights and momenta behind the last token.
fn rule(
    [q, k, v]: [&Tensor; 3],
    [alpha, theta, eta]: [&[f64]; 3],
    gamma: &[Vec<f64>],
    mut w: Vec<Tensor>,
    mut s: Vec<Tensor>,
    chunk: usize,
) -> Result<(Tensor, Vec<Tensor>, Vec<Tensor>)> {
    let (mut base, mut rows) = (w.clone(), Vec::new());
    for t in 0..q.dim(0)? {
        if t % chunk == 0 {
            base = w.clone();
        }
        let vars: Vec<Var> = base.iter().map(Var::from_tensor).collect::<Result<_>>()?;
        let weights: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
        let mut loss = Tensor::zeros((), DType::F64, q.device())?;
        for (back, weight) in gamma[t].iter().rev().enumerate().filter(|&(back, _)| back <= t) {
            let (k, v) = (k.narrow(0, t - back, 1)?, v.narrow(0, t - back, 1)?);
            loss = (loss + ((read(&weights, &k)? - v)?.sqr()?.sum_all()? * *weight)?)?;
        }
        let gradients = loss.backward()?;
        for (i, var) in vars.iter().enumerate() {
            s[i] = ((&s[i] * theta[t])? + gradients.get(var).expect("a gradient by each matrix"))?.detach();
            w[i] = ((&w[i] * alpha[t])? - (&s[i] * eta[t])?)?;
        }
        rows.push(read(&w, &q.narrow(0, t, 1)?)?);
    }
    Ok((Tensor::cat(&rows, 0)?, w, s))
}

/// The tensor of one sequence and head in f64.
fn one(x: &Tensor, axes: [usize; 2], at: [usize; 2]) -> Tensor {
    let x = on_host(x).narrow(axes[1], at[1], 1).unwrap().squeeze(axes[1]).unwrap();
    x.narrow(axes[0], at[0], 1).unwrap().squeeze(axes[0]).unwrap()
}

/// Compares a rule with `rule`, whose `eta` is multiplied by `off`.
fn check(device: &Device, memory: MemoryForm, chunk: usize, off: f64) {
    let [b, n, h, d, e, m] = SIZES;
    let values = |seed, shape: &[usize]| to(device, &values(seed, shape));
    let (q, k, v) = (values(1, &[b, n, h, d]), values(2, &[b, n, h, d]), values(3, &[b, n, h, e]));
    let gate = |seed, low: f64, high: f64| {
        let unit = ((values(seed, &[b, n, h]) + 1.0).unwrap() * 0.5).unwrap();
        ((unit * (high - low)).unwrap() + low).unwrap()
    };
    let (alpha, theta, eta) = (gate(4, 0.8, 1.0), gate(5, 0.2, 0.9), gate(6, 0.01, 0.05));
    let gamma = values(7, &[b, n, h, WINDOW]).sqr().unwrap();
    let matrices = memory.matrices(d, e, m);
    let of = |seed: u64| -> Vec<Tensor> {
        let each = matrices.iter().zip(seed..);
        each.map(|(&[rows, cols], seed)| (values(seed, &[b, h, rows, cols]) * 0.5).unwrap()).collect()
    };
    let given = Memory { weights: of(8), momenta: of(18) };
    let before: Vec<Tensor> = given.weights.iter().map(|w| w.copy().unwrap()).collect();
    let omega_rule = OmegaRule {
        memory,
        step: Step::Descent,
        loss: Loss::Square,
        read: Read::After,
        chunking: Chunking::new(chunk, WINDOW),
    };
    let tokens = Tokens { q: &q, k: &k, v: &v, residual_q: None, residual_k: None };
    let gates = Gates { alpha: &alpha, theta: &theta, eta: &eta, gamma: &gamma };
    let (y, after) = omega(&omega_rule, tokens, gates, &given, None).unwrap();
    for (weights, before) in given.weights.iter().zip(&before) {
        close(weights, before, 0.0);
    }
    for at in (0..b).flat_map(|sequence| (0..h).map(move |head| [sequence, head])) {
        let of_tokens = |x: &Tensor| one(x, [0, 2], at);
        let numbers = |x: &Tensor, by: f64| (of_tokens(x) * by).unwrap().to_vec1::<f64>().unwrap();
        let of_memory = |x: &[Tensor]| x.iter().map(|x| one(x, [0, 1], at)).collect::<Vec<_>>();
        let (wanted, w, s) = rule(
            [&of_tokens(&q), &of_tokens(&k), &of_tokens(&v)],
            [&numbers(&alpha, 1.0), &numbers(&theta, 1.0), &numbers(&eta, off)],
            &of_tokens(&gamma).to_vec2().unwrap(),
            of_memory(&given.weights),
            of_memory(&given.momenta),
            chunk,
        )
        .unwrap();
        assert_eq!(wanted.dim(D::Minus1).unwrap(), e);
        close(&of_tokens(&y), &wanted, F32);
        let found = of_memory(&after.weights).into_iter().chain(of_memory(&after.momenta));
        for (found, wanted) in found.zip(w.iter().chain(&s)) {
            close(&found, wanted, F32);
        }
    }
}

#[test]
fn memories_learn_token_by_token() {
    for device in devices() {
        for memory in [MemoryForm::Linear, MemoryForm::Mlp] {
            check(&device, memory, 1, 1.0);
            check(&device, memory, 4, 1.0);
        }
    }
}

#[test]
#[should_panic(expected = "apart")]
fn another_step_size_is_seen() {
    check(&Device::Cpu, MemoryForm::Linear, 1, 1.001);
}
