//! Lesson 3: matrix products, tile functions, a pipeline, strided views and shared weights.
//!
//! `cargo run --example 03_memory_read`

use atlas::prelude::*;

// Two products with an activation between them, in one kernel: the hidden layer never leaves the chip. `pipeline`
// processes H in tiles, whose loads run ahead of their use. `acc` is carried from one iteration to the next in f32.
atlas_kernel! {
    /// A layer of a perceptron; `gelu` is built in.
    tile fn layer(x, w) { gelu(dot(x, w.t())) }

    /// y = r + W1 · gelu(W2 · x)
    kernel memory<T: Float>(
        x:  &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, D, H]>,
        r:  &Tensor<T, [G, N, D]>,
        y:  &mut Tensor<T, [G, N, D]>,
    )
    tune { BN: [64, 32], BH: [64, 32], stages: 2..=3, warps: [4] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]);
            let mut acc = load(r[g, n, ..]).cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let hidden = layer(xs, load(w2[g, h, ..]));
                acc += dot(hidden.cast::<T>(), load(w1[g, .., h]).t());
            }
            store(y[g, n, ..], acc.cast::<T>());
        }
    }
}

fn main() -> atlas::Result<()> {
    let (heads, tokens, d, hidden) = (4, 50, 48, 192);
    let wave = |n: usize, scale: f32, step: f32| -> Vec<bf16> {
        (0..n).map(|i| bf16::from_f32((i as f32 * step).sin() * scale)).collect()
    };
    let x = wave(tokens * heads * d, 1.0, 0.71);
    let w2 = wave(hidden * d, 0.2, 1.37);
    let w1 = wave(d * hidden, 0.1, 2.11);

    let device = Device::best()?;
    // In memory, tokens come first and heads second: a view exchanges the axes without a copy.
    let dx = device.tensor_from(&x, [tokens, heads, d])?.transpose(0, 1)?;
    // All heads share one pair of weights: a view repeats it, with stride 0.
    let dw2 = device.tensor_from(&w2, [1, hidden, d])?.expand([heads, hidden, d])?;
    let dw1 = device.tensor_from(&w1, [1, d, hidden])?.expand([heads, d, hidden])?;
    let mut dy = device.tensor_from(&vec![bf16::ZERO; x.len()], [heads, tokens, d])?;
    memory.launch(&device, args!(dx, dw2, dw1, dx, &mut dy))?;
    let result = dy.to_f64_vec()?;

    let (mut error, mut norm) = (0.0, 0.0);
    for head in 0..heads {
        for token in 0..tokens {
            let row: Vec<f64> = x[(token * heads + head) * d..][..d].iter().map(|v| v.to_f64()).collect();
            let a: Vec<f64> =
                w2.chunks(d).map(|w| gelu_plain(w.iter().zip(&row).map(|(w, x)| w.to_f64() * x).sum())).collect();
            for i in 0..d {
                let r: f64 =
                    row[i] + w1[i * hidden..][..hidden].iter().zip(&a).map(|(w, a)| w.to_f64() * a).sum::<f64>();
                let y = result[(head * tokens + token) * d + i];
                error += (y - r) * (y - r);
                norm += r * r;
            }
        }
    }
    let error = f64::sqrt(error / norm);
    println!("on {device}: {heads} heads x {tokens} tokens, relative error {error:.1e} (bf16 allows 1e-2)");
    assert!(error < 1e-2);
    Ok(())
}

/// GELU by its definition, z Φ(z), with Φ from a Taylor series about 0 and its limits outside of that range.
fn gelu_plain(z: f64) -> f64 {
    if z.abs() > 6.0 {
        return z.max(0.0);
    }
    let (mut term, mut sum) = (z, z);
    for k in 1..120 {
        term *= -z * z / (2.0 * k as f64);
        sum += term / (2 * k + 1) as f64;
    }
    z * (0.5 + sum / (2.0 * std::f64::consts::PI).sqrt())
}
