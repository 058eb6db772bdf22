//! Lesson 6: a million tokens through one layer in constant memory.
//!
//! `cargo run --release --example 06_long_context -- 1000000`, where the argument is the number of tokens. Keys come
//! with values, and now and then a key gets a new value. The layer's memory predicts the value of each key before it
//! sees it. The loss is plotted to `target/long_context.svg`. It falls while the memory learns, and stays low although
//! the values keep changing.

use atlas::ops::layer::{AtlasLayer, Combine, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual};
use atlas::ops::omega::{Chunking, OmegaRule, Read};
use atlas::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// The number of keys, and the number of tokens after which a key gets a new value.
const PAIRS: usize = 24;
const CHANGES: usize = 2000;
/// The number of tokens per piece.
const PIECE: usize = 2000;
const HEADS: usize = 2;
const D: usize = 16;
const HIDDEN: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::best()?;
    let tokens: usize = std::env::args().nth(1).map_or(Ok(1_000_000), |n| n.parse())?;
    let sizes = LayerSizes {
        sequences: 1,
        heads: HEADS,
        width: D,
        hidden: HIDDEN,
        window: 64,
        piece: PIECE,
        dtype: DType::F32,
    };
    // Each token is read before its own step, so the output is a prediction.
    let chunking = Chunking::new(16, 4);
    let rule = LayerRule {
        combine: Combine::Gate,
        memory: OmegaRule { read: Read::Before, ..OmegaRule::omega_net(chunking) },
        features: FeatureMap::None,
        residual: Residual::Raw,
        eps: 1e-6,
    };
    let mut layer = AtlasLayer::new(&device, sizes, rule, weights(&device)?, &memory(&device)?)?;
    let before = layer.bytes();

    let bar = ProgressBar::new(tokens as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} tokens, {eta} left, loss {msg}")?);
    let gate = |x: f32| device.tensor_from(&[x], [1, 1, 1])?.expand([1, PIECE, HEADS]);
    let gates = [gate(1.0)?, gate(0.5)?, gate(0.02)?];
    let gamma = device.tensor_from(&[0.25_f32], [1, 1, 1, 1])?.expand([1, PIECE, HEADS, chunking.window])?;
    let mut y = Tensor::zeros(&device, DType::F32, [1, PIECE, HEADS, D])?;
    let (mut losses, mut times) = (Vec::new(), Vec::new());
    for first in (0..tokens).step_by(PIECE) {
        let count = PIECE.min(tokens - first);
        let (keys, values) = shown(first, count);
        let shape = [1, count, HEADS, D];
        let (k, v) = (device.tensor_from(&keys, shape)?, device.tensor_from(&values, shape)?);
        let of = |t: &Tensor| t.slice(1, 0..count);
        let gates = [of(&gates[0])?, of(&gates[1])?, of(&gates[2])?];
        let piece =
            LayerTokens { memory: [&k, &k, &v], attention: [&k, &k, &v], gates: gates.each_ref(), gamma: &of(&gamma)? };
        device.synchronize()?;
        let start = Instant::now();
        layer.push(&piece, &mut of(&y)?)?;
        device.synchronize()?;
        times.push(start.elapsed());
        losses.push(error(&layer.last_read(count)?.to_vec::<f32>()?, &values));
        bar.set_message(format!("{:.3}", losses[losses.len() - 1]));
        bar.set_position((first + count) as u64);
    }
    bar.finish_and_clear();
    y = y.slice(1, 0..1)?;
    assert!(y.to_vec::<f32>()?.iter().all(|x| x.is_finite()), "the layer's own output");

    let (early, late) = (mean(&losses[..losses.len().min(2)]), mean(&losses[losses.len() / 2..]));
    // The first piece compiles kernels, and allocates the tensors that later pieces use.
    let per_token = |times: &[Duration]| median(times).as_secs_f64() / PIECE as f64 * 1e6;
    let (near, far) =
        (per_token(&times[1.min(times.len() - 1)..times.len().min(6)]), per_token(&times[times.len() * 9 / 10..]));
    println!(
        "on {device}: {tokens} tokens; loss {early:.3} at first, {late:.3} in the second half; {near:.2} us a token up to {}, \
         {far:.2} us in the last tenth; {:.1} MB held, {:.1} MB at the start",
        PIECE * times.len().min(6),
        layer.bytes() as f64 / 1e6,
        before as f64 / 1e6,
    );
    assert!(layer.bytes() < 300_000_000, "constant memory");
    assert!(tokens < 20_000 || late < 0.7 * early, "the memory learns");
    std::fs::create_dir_all("target")?;
    std::fs::write("target/long_context.svg", plot(&losses, tokens))?;
    println!("drawn to target/long_context.svg");
    Ok(())
}

/// The keys and values of some tokens. Each head has its own pairs.
fn shown(first: usize, count: usize) -> (Vec<f32>, Vec<f32>) {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for t in first..first + count {
        for head in 0..HEADS {
            let pair = (t * 7919 + t / 5 + head) % PAIRS;
            // The value of a pair changes every `PAIRS * CHANGES` tokens, at a different time for each pair.
            let version = (t + pair * CHANGES) / (PAIRS * CHANGES);
            let at = (head * PAIRS + pair) * D;
            keys.extend((at..at + D).map(unit));
            values.extend((at..at + D).map(|i| unit(i + 1_000_003 * (version + 1))));
        }
    }
    (keys, values)
}

/// An initial memory that outputs nothing: its second matrix is 0.
fn memory(device: &Device) -> atlas::Result<[Tensor; 2]> {
    let start: Vec<f32> = (0..HEADS * HIDDEN * D).map(|i| unit(i + 77)).collect();
    let w1 = Tensor::zeros(device, DType::F32, [1, HEADS, D, HIDDEN])?;
    Ok([w1, device.tensor_from(&start, [1, HEADS, HIDDEN, D])?])
}

fn weights(device: &Device) -> atlas::Result<LayerWeights> {
    let ones = || device.tensor_from(&[1.0_f32; HEADS * D], [HEADS, D]);
    let none = || Tensor::zeros(device, DType::F32, [HEADS, 1, D]);
    Ok(LayerWeights {
        prefix_keys: none()?,
        prefix_values: none()?,
        memory_norm: ones()?,
        attention_norm: ones()?,
        inner_norm: None,
        context: None,
    })
}

/// The relative error of the outputs. The residual, which is the key itself, is part of an output.
fn error(read: &[f32], wanted: &[f32]) -> f64 {
    let off: f64 = read.iter().zip(wanted).map(|(r, w)| f64::from(r - w).powi(2)).sum();
    (off / wanted.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>()).sqrt()
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len().max(1) as f64
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2]
}

/// A plot of the loss over time.
fn plot(losses: &[f64], tokens: usize) -> String {
    let most = losses.iter().copied().fold(0.0, f64::max);
    let at = |(i, loss): (usize, &f64)| {
        format!("{:.1},{:.1}", 60.0 + 700.0 * i as f64 / losses.len() as f64, 340.0 - 300.0 * loss / most)
    };
    let points: Vec<String> = losses.iter().enumerate().map(at).collect();
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="800" height="400" font-family="sans-serif" font-size="14">
<rect width="800" height="400" fill="white"/>
<path d="M60 40V340H760" fill="none" stroke="black"/>
<text x="60" y="28">relative error of what the memory foretells</text>
<text x="52" y="46" text-anchor="end">{most:.2}</text><text x="52" y="345" text-anchor="end">0</text>
<text x="760" y="362" text-anchor="end">{tokens} tokens</text>
<polyline points="{}" fill="none" stroke="steelblue" stroke-width="1.5"/>
</svg>
"#,
        points.join(" ")
    )
}

/// A pseudo-random number with mean 0 and the magnitude of an element of a unit vector, which depends only on the
/// index.
fn unit(i: usize) -> f32 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 40) as f32 / (1 << 23) as f32 - 1.0) * (3.0 / D as f32).sqrt()
}
