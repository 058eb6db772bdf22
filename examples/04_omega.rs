//! Lesson 4: a chain of kernels with a workspace. A memory learns key-value pairs while it is read.
//!
//! `cargo run --release --example 04_omega`

use atlas::ops::omega::{Chunking, OMEGA_MLP};
use atlas::prelude::*;

/// Tokens of the sequence, heads, elements of a key and of a value, hidden elements of the memory.
const TOKENS: usize = 512;
const HEADS: usize = 4;
const D: usize = 32;
const HIDDEN: usize = 64;
/// The number of different keys in the sequence, each with its own value.
const PAIRS: usize = 16;

fn main() -> atlas::Result<()> {
    let device = Device::best()?;
    // Sixteen keys repeat in a pseudo-random order, each always with the same value.
    let shown: Vec<usize> = (0..TOKENS * HEADS).map(|i| (i * 7919 + i / 5) % PAIRS).collect();
    let of =
        |seed: usize| -> Vec<f32> { shown.iter().flat_map(|p| (0..D).map(move |d| noise(p * D + d + seed))).collect() };
    let tokens = [1, TOKENS, HEADS, D];
    let k = device.tensor_from(&of(0), tokens)?;
    let v = device.tensor_from(&of(10_000), tokens)?;
    // Each head has a memory, a two-layer perceptron. Its second matrix starts at random, and its first at zero.
    let mut w1 = Tensor::zeros(&device, DType::F32, [1, HEADS, D, HIDDEN])?;
    let start: Vec<f32> = (0..HEADS * HIDDEN * D).map(|i| noise(i + 77)).collect();
    let mut w2 = device.tensor_from(&start, [1, HEADS, HIDDEN, D])?;
    let mut s1 = Tensor::zeros(&device, DType::F32, [1, HEADS, D, HIDDEN])?;
    let mut s2 = Tensor::zeros(&device, DType::F32, [1, HEADS, HIDDEN, D])?;

    // Chunks of 32 tokens, windows of 8. All tokens have the same gates: one number, repeated by a view with stride 0.
    let chunking = Chunking::new(32, 8);
    let gate = |x: f32| device.tensor_from(&[x], [1, 1, 1])?.expand([1, TOKENS, HEADS]);
    let (forget, momentum, step) = (gate(1.0)?, gate(0.6)?, gate(0.01)?);
    let window = device.tensor_from(&[1.0_f32 / 8.0], [1, 1, 1, 1])?.expand([1, TOKENS, HEADS, chunking.window])?;
    let mut y = Tensor::zeros(&device, DType::F32, tokens)?;

    // A chain of two kernels: the first computes the weight of each token's gradient for each other token, and the
    // second updates the memory. The tensors between them are workspace, which is allocated once; a launch allocates
    // nothing.
    let mut space = OMEGA_MLP.workspace(&device, &[], &chunking.dims(1, HEADS, TOKENS))?;
    let (read_after, all_chunks) = (0, chunking.chunks(TOKENS) as i32);
    // The key itself is not part of what is learned: the residual is zero.
    let none = device.tensor_from(&[0.0_f32], [1, 1, 1, 1])?.expand(tokens)?;
    // The loss is half the square of the error.
    let (scale, predicts) = (1.0, 1);
    let args = args!(
        forget, momentum, step, window, read_after, all_chunks, k, k, v, none, none, &mut w1, &mut w2, &mut s1,
        &mut s2, &mut y, scale, predicts
    );
    OMEGA_MLP.launch(&device, args, &mut space)?;

    let (read, wanted) = (y.to_f64_vec()?, v.to_f64_vec()?);
    let quarter = TOKENS * HEADS * D / 4;
    let error = |part: usize| {
        let (y, v) = (&read[part * quarter..][..quarter], &wanted[part * quarter..][..quarter]);
        let off: f64 = y.iter().zip(v).map(|(y, v)| (y - v) * (y - v)).sum();
        (off / v.iter().map(|v| v * v).sum::<f64>()).sqrt()
    };
    let errors: Vec<f64> = (0..4).map(error).collect();
    println!(
        "on {device}, {} KB of workspace: what is read differs from what was shown, by quarters of the sequence:",
        space.bytes() / 1024
    );
    println!("  {}", errors.iter().map(|e| format!("{:.0} %", 100.0 * e)).collect::<Vec<_>>().join(", "));
    assert!(errors[3] < 0.5 * errors[0], "the memory has learned: {errors:?}");
    Ok(())
}

/// A pseudo-random number with mean 0 and the magnitude of an element of a unit vector.
fn noise(i: usize) -> f32 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 40) as f32 / (1 << 23) as f32 - 1.0) * (3.0 / D as f32).sqrt()
}
