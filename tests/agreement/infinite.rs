//! Shipped kernels with infinite logits, scales that are 0 or negative, and indices far out of range.

use super::{Given, agrees, input, noise, output, random};
use atlas_dsl::DType::{Bf16, F16, F32, I32};
use atlas_ops::attention::attention;
use atlas_ops::attention_decode::{decode_join, decode_parts};
use atlas_ops::block_attention::block_attention;
use atlas_ops::log_sum_exp::log_sum_exp;
use atlas_ops::omega::packed::{omega_pack_tokens, omega_unpack_tokens};
use atlas_ops::softmax::softmax;
use atlas_ops::windowed_attention::windowed_attention;

const INF: f64 = f64::INFINITY;

/// Row by row: -infinity first, last, alone, then +infinity, NaN, and ordinary numbers.
fn logit(row: usize, at: usize, count: usize) -> f64 {
    let holds = match row {
        0 => at + 1 < count,
        1 => at > 0,
        2 => true,
        _ => at == count / 2,
    };
    let value = [-INF, -INF, -INF, INF, f64::NAN].get(row).copied();
    value.filter(|_| holds).unwrap_or_else(|| 3.0 * noise(row * count + at))
}

#[test]
fn rows_of_logits() {
    for dtype in [F32, Bf16] {
        let count = 1100;
        let x = || input(dtype, &[6, count], |i| logit(i / count, i % count, count));
        let bound = if dtype == F32 { 2e-6 } else { 8e-3 };
        agrees(&log_sum_exp, &[x(), output(dtype, &[6])], bound);
        let count = 72;
        let x = input(dtype, &[6, count], |i| logit(i / count, i % count, count));
        agrees(&softmax, &[x, output(dtype, &[6, count])], bound);
    }
}

/// Queries that select each key's first element, and keys that hold one kind of row there.
fn attended(dtype: atlas_dsl::DType, kind: usize, queries: &[usize], keys: &[usize]) -> [Given; 2] {
    let count = keys.iter().product::<usize>() / 16;
    let q = input(dtype, queries, |i| if i % 16 == 0 { 1.0 } else { 0.0 });
    [q, input(dtype, keys, |i| if i % 16 == 0 { logit(kind, i / 16, count) } else { 0.5 })]
}

#[test]
fn attention_of_every_kind() {
    for (kind, scale, dtype) in [(0, 0.2, F32), (2, 0.2, F16), (3, -0.2, F16), (5, 0.0, F32)] {
        let bound = if dtype == F32 { 1e-5 } else { 4e-3 };
        let [q, k] = attended(dtype, kind, &[1, 9, 16], &[1, 70, 16]);
        let v = random(dtype, &[1, 70, 16]);
        agrees(&attention, &[q, k, v, Given::F32(scale), output(dtype, &[1, 9, 16])], bound);
        let [q, k] = attended(dtype, kind, &[1, 9, 1, 16], &[1, 70, 1, 16]);
        let (v, o) = (random(dtype, &[1, 70, 1, 16]), output(dtype, &[1, 9, 1, 16]));
        let far = [0.0, f64::from(1 << 26), -1.0, 1.0, f64::from(i32::MIN), 0.0];
        let (blocks, counts) = (input(I32, &[1, 1, 6], |i| far[i]), input(I32, &[1, 1], |_| 5.0));
        let numbers = [Given::I32(0), Given::F32(scale)];
        let args = [q, k, v, blocks, counts].into_iter().chain(numbers).chain([o, output(F32, &[1, 1, 9])]);
        agrees(&block_attention, &args.collect::<Vec<_>>(), bound);
        let [q, k] = attended(dtype, kind, &[2, 1, 3, 16], &[2, 35, 1, 16]);
        let v = random(dtype, &[2, 35, 1, 16]);
        let tokens = input(I32, &[2], |i| if i == 0 { f64::from(i32::MIN) } else { 35.0 });
        let parts = [vec![2, 1, 2, 3, 16], vec![2, 1, 2, 3], vec![2, 1, 2, 3]].map(|shape| output(F32, &shape));
        let args = [q, k, v, tokens, Given::F32(scale)].into_iter().chain(parts);
        agrees(&decode_parts, &args.collect::<Vec<_>>(), bound);
    }
    let tops = input(F32, &[1, 1, 3, 6], |i| logit(i % 6, i / 6, 3));
    let (part, totals) = (random(F32, &[1, 1, 3, 6, 16]), input(F32, &[1, 1, 3, 6], |_| 2.0));
    agrees(&decode_join, &[part, totals, tops, output(F32, &[1, 1, 6, 16]), output(F32, &[1, 1, 6])], 1e-5);
}

#[test]
fn windows_of_any_length() {
    let ends = [i32::MIN, -1, 0, 64, i32::MAX];
    for (window, scale) in [(i32::MIN, 0.2), (9, -0.2), (i32::MAX, 0.0)] {
        let tensors = [[1, 70, 1, 16], [1, 40, 1, 16], [1, 40, 1, 16]].map(|shape| random(F32, &shape));
        let prefix = [0, 1].map(|_| random(F32, &[1, 2, 16]));
        let first = input(I32, &[1, 70], |i| f64::from(ends[i % 5]));
        let scalars = [Given::I32(window), Given::F32(scale)];
        let outputs = [output(F32, &[1, 70, 1, 16]), output(F32, &[1, 1, 70])];
        let args: Vec<Given> = tensors.into_iter().chain(prefix).chain([first]).chain(scalars).chain(outputs).collect();
        agrees(&windowed_attention, &args, 1e-5);
    }
}

#[test]
fn documents_and_tokens_of_none() {
    for bounds in [[3, 8, 20, 30], [i32::MIN, 8, 20, i32::MAX], [0, 25, 25, 31]] {
        let at = |from: usize| input(I32, &[3], |i| f64::from(bounds[from + i]));
        let x = random(Bf16, &[1, 33, 2, 8]);
        agrees(&omega_unpack_tokens, &[x, at(0), at(1), output(Bf16, &[3, 12, 2, 8]), Given::F32(1.0)], 0.0);
        let x = random(Bf16, &[3, 12, 2, 8]);
        agrees(&omega_pack_tokens, &[x, at(0), at(1), output(Bf16, &[1, 33, 2, 8])], 0.0);
    }
}
