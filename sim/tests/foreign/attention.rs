//! Attention with an online softmax, in f32 by shuffles and in f16 by tensor cores.

use crate::data::Data;
use crate::data::Format::{self, F16, F32};
use crate::kernels;
use crate::setup::Setup;

kernels!(attention_f32, triton_attention_sm80);

const DIM: usize = 32;

fn attention_f32() -> Setup {
    let (length, heads) = (44, 2);
    attention("attention_f32", [11, 2, 1], F32, length, heads, true)
}

fn triton_attention_sm80() -> Setup {
    attention("triton_attention_sm80", [2, 1, 1], F16, 128, 1, false)
}

pub(crate) fn triton_attention_sm90() -> Setup {
    attention("triton_attention_sm90", [2, 1, 1], F16, 128, 1, false)
}

fn attention(name: &'static str, grid: [u32; 3], format: Format, length: usize, heads: usize, causal: bool) -> Setup {
    let scale = 0.25f32;
    let mut data = Data::new(40);
    let [q, k, v] = [0; 3].map(|_| data.reals(heads * length * DIM, format));
    let (mut want, mut bound) = (Vec::new(), Vec::new());
    for query in 0..heads * length {
        let head = query / length * length;
        let keys = head..if causal { query + 1 } else { head + length };
        let row = |m: &[f64], i: usize| m[i * DIM..][..DIM].to_vec();
        let score = |key| row(&q, query).iter().zip(row(&k, key)).map(|(a, b)| a * b).sum::<f64>() * f64::from(scale);
        let scores: Vec<f64> = keys.clone().map(score).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        for d in 0..DIM {
            let terms = keys.clone().zip(&weights).map(|(key, w)| w * v[key * DIM + d] / total);
            want.push(terms.clone().sum());
            // The weights are rounded to the format of the operands; scores and sums to f32.
            let rounding = format.epsilon() + 256.0 * F32.epsilon();
            bound.push(terms.map(f64::abs).sum::<f64>() * rounding);
        }
    }
    Setup::new(name, grid)
        .input("q", format, &q)
        .input("k", format, &k)
        .input("v", format, &v)
        .close("out", F32, &want, &bound)
        .int("length", length)
        .float("scale", scale)
}
