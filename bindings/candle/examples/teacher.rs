//! A layer of attention that is trained to do what another one does: kernels of Atlas in candle's graph, and steps of candle's.
//!
//! `cargo run --example teacher`, or `cargo run --release --features cuda,jit --example teacher` on a GPU.

use atlas_candle::{Attention, rms_norm, windowed_attention};
use candle_core::{Device, Result, Tensor, Var};

/// Sequences, tokens, heads and elements of a head.
const SIZES: [usize; 4] = [2, 24, 2, 8];
/// What a token has.
const WIDTH: usize = SIZES[2] * SIZES[3];
/// How many tokens a token sees, itself among them.
const WINDOW: usize = 6;
const STEPS: usize = 40;
const RATE: f64 = 0.5;

fn main() -> Result<()> {
    let device = Device::cuda_if_available(0)?;
    let [sequences, tokens, ..] = SIZES;
    let x = numbers(0, &[sequences, tokens, WIDTH], 1.0, &device)?;
    // The weight of a norm, and four matrices.
    let shapes: [&[usize]; 5] = [&[WIDTH], &[WIDTH; 2], &[WIDTH; 2], &[WIDTH; 2], &[WIDTH; 2]];
    let weights = |seed: usize| shapes.iter().zip(seed..).map(|(shape, seed)| numbers(seed, shape, 0.5, &device));
    let wanted = layer(&x, &weights(1).collect::<Result<Vec<_>>>()?)?;

    let vars = weights(10).map(|w| Var::from_tensor(&w?)).collect::<Result<Vec<_>>>()?;
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let weights: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
        let loss = (layer(&x, &weights)? - &wanted)?.sqr()?.mean_all()?;
        let gradients = loss.backward()?;
        for var in &vars {
            if let Some(gradient) = gradients.get(var) {
                var.set(&(var.as_tensor() - (gradient * RATE)?)?)?;
            }
        }
        losses.push(loss.to_scalar::<f32>()?);
    }
    let (first, last) = (losses[0], losses[STEPS - 1]);
    println!("on {:?}: the loss goes from {first:.4} to {last:.4} in {STEPS} steps", device.location());
    assert!(last < 0.5 * first, "the layer does not learn");
    Ok(())
}

/// A norm, attention and a projection, beside which the tokens pass.
fn layer(x: &Tensor, weights: &[Tensor]) -> Result<Tensor> {
    let [sequences, tokens, heads, width] = SIZES;
    let times = |x: &Tensor, w: &Tensor| x.reshape((sequences * tokens, WIDTH))?.matmul(w);
    let h = rms_norm(x, &weights[0], 1e-6)?;
    let part = |w: &Tensor| times(&h, w)?.reshape((sequences, tokens, heads, width));
    let (q, k, v) = (part(&weights[1])?, part(&weights[2])?, part(&weights[3])?);
    let (o, _) = windowed_attention(&q, &k, &v, WINDOW, &Attention::default())?;
    x + times(&o, &weights[4])?.reshape(x.shape())?
}

/// Numbers up to `size` that look random, and are the same each time.
fn numbers(seed: usize, shape: &[usize], size: f32, device: &Device) -> Result<Tensor> {
    let count = shape.iter().product::<usize>();
    let mut state = seed as u64;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        size * ((state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0)
    };
    Tensor::from_vec((0..count).map(|_| number()).collect::<Vec<f32>>(), shape, device)
}
