//! One layer of an ATLAS model, at the sizes of the paper's models, compared with an f64 reference of the whole layer.
//!
//! `cargo run --release --features verify --example atlas_layer -- 340M 2048`, where the arguments are the model and
//! the number of tokens. The memory is trained as it is read. Its output either gates a windowed attention (MAG) or is
//! read by it (MAL).

use atlas::ops::layer::{AtlasLayer, Combine, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual};
use atlas::ops::omega::{Chunking, OmegaRule};
use atlas::prelude::*;
use atlas::verify::{Comparison, HostLayer, layer_reference};
use std::time::Instant;

/// The number of keys that every query of the attention sees.
const PREFIX: usize = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::best()?;
    let mut args = std::env::args().skip(1);
    let model = args.next().unwrap_or_else(|| "170M".to_owned());
    let (width, hidden) = match model.as_str() {
        "170M" => (48, 192),
        "340M" => (64, 256),
        other => return Err(format!("there is no model `{other}`; there are 170M and 340M").into()),
    };
    let usual = if device.is_cpu() { 512 } else { 2048 };
    let tokens = args.next().map_or(Ok(usual), |n| n.parse())?;
    let sizes = LayerSizes {
        sequences: 1,
        heads: 16,
        width,
        hidden,
        window: 512,
        piece: tokens,
        dtype: if device.is_cpu() { DType::F32 } else { DType::Bf16 },
    };
    for combine in [Combine::Gate, Combine::Sequence] {
        let memory = OmegaRule::omega_net(Chunking::new(32, 8));
        let features = FeatureMap::Elementwise([1.0, 0.5, -0.25]);
        let rule = LayerRule { combine, memory, features, residual: Residual::Raw, eps: 1e-6 };
        let x = inputs(&sizes, &rule, tokens);
        let start = Instant::now();
        let y = run(&device, sizes, &rule, &x, tokens)?;
        let first = start.elapsed();
        let start = Instant::now();
        run(&device, sizes, &rule, &x, tokens)?;
        let again = start.elapsed();
        let c = Comparison::of_all([(&y[..], &layer_reference(&sizes, &rule, &x)[..])]);
        let bound = if sizes.dtype == DType::F32 { 1e-5 } else { 2e-2 };
        println!(
            "{model} {combine:?} on {device}: {tokens} tokens x 16 heads of {width} in {first:.1?}, again in {again:.1?} with all \
             copies; relative error {:.1e}",
            c.rel_f
        );
        assert!(c.passes(bound), "{c:?}");
    }
    Ok(())
}

/// Tokens and weights as projections would produce them, from pseudo-random numbers.
fn inputs(s: &LayerSizes, rule: &LayerRule, tokens: usize) -> HostLayer {
    let (rows, elements) = (tokens * s.heads, tokens * s.heads * s.width);
    let mut salt = 0;
    let mut of = |len: usize, middle: f64, deviation: f64| -> Vec<f64> {
        salt += 1_000_003;
        let value = |i| middle + 3.0_f64.sqrt() * deviation * noise(i + salt);
        // Rounded to bf16, so that both sides use the same numbers.
        (0..len).map(|i| bf16::from_f64(value(i)).to_f64()).collect()
    };
    let unit = (s.width as f64).powf(-0.5);
    let matrix = s.heads * s.width * s.hidden;
    HostLayer {
        memory: [of(elements, 0.0, unit), of(elements, 0.0, unit), of(elements, 0.0, unit)],
        attention: [of(elements, 0.0, 1.0), of(elements, 0.0, 1.0), of(elements, 0.0, 1.0)],
        gates: [of(rows, 0.98, 0.01), of(rows, 0.6, 0.1), of(rows, 0.002, 0.0005)],
        gamma: of(rows * rule.memory.chunking.window, 0.5, 0.2),
        prefix: [of(s.heads * PREFIX * s.width, 0.0, 1.0), of(s.heads * PREFIX * s.width, 0.0, 1.0)],
        norms: [of(s.heads * s.width, 1.0, 0.1), of(s.heads * s.width, 1.0, 0.1)],
        inner: vec![],
        context: Default::default(),
        weights: vec![of(matrix, 0.0, (s.hidden as f64).powf(-0.5)), of(matrix, 0.0, unit)],
    }
}

/// The outputs of the layer for all tokens.
fn run(device: &Device, s: LayerSizes, rule: &LayerRule, x: &HostLayer, tokens: usize) -> atlas::Result<Vec<f64>> {
    let wide = |values: &[f64], shape: &[usize]| {
        device.tensor_from(&values.iter().map(|&v| v as f32).collect::<Vec<_>>(), shape)
    };
    let narrow = |values: &[f64], shape: &[usize]| match s.dtype {
        DType::F32 => wide(values, shape),
        _ => device.tensor_from(&values.iter().copied().map(bf16::from_f64).collect::<Vec<_>>(), shape),
    };
    let (h, d, m, w) = (s.heads, s.width, s.hidden, rule.memory.chunking.window);
    let weights = LayerWeights {
        prefix_keys: narrow(&x.prefix[0], &[h, PREFIX, d])?,
        prefix_values: narrow(&x.prefix[1], &[h, PREFIX, d])?,
        memory_norm: narrow(&x.norms[0], &[h, d])?,
        attention_norm: narrow(&x.norms[1], &[h, d])?,
        inner_norm: None,
        context: None,
    };
    let memory = [wide(&x.weights[0], &[1, h, d, m])?, wide(&x.weights[1], &[1, h, m, d])?];
    let mut layer = AtlasLayer::new(device, s, rule.clone(), weights, &memory)?;
    let three = |all: &[Vec<f64>; 3], make: &dyn Fn(&[f64]) -> atlas::Result<Tensor>| -> atlas::Result<[Tensor; 3]> {
        Ok([make(&all[0])?, make(&all[1])?, make(&all[2])?])
    };
    let rows = |values: &[f64]| narrow(values, &[1, tokens, h, d]);
    let (memory, attention) = (three(&x.memory, &rows)?, three(&x.attention, &rows)?);
    let gates = three(&x.gates, &|values: &[f64]| wide(values, &[1, tokens, h]))?;
    let gamma = wide(&x.gamma, &[1, tokens, h, w])?;
    let mut y = Tensor::zeros(device, s.dtype, [1, tokens, h, d])?;
    let all = LayerTokens {
        memory: memory.each_ref(),
        attention: attention.each_ref(),
        gates: gates.each_ref(),
        gamma: &gamma,
    };
    layer.push(&all, &mut y)?;
    y.to_f64_vec()
}

/// A pseudo-random number between -1 and 1 that depends only on the index.
fn noise(i: usize) -> f64 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / f64::from(1 << 23) - 1.0
}
