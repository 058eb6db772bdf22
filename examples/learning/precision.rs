//! What 16 bits cost: the trained model with a memory, in f32, f16 and bf16 against f64, by the distance from the first token.
//!
//! The memory runs as an [`AtlasLayer`] with tokens of each precision. It keeps its weights, momenta and gates in f32 always. The other
//! layers are those of [`HostModel`], with weights and results rounded.

use super::model::Sizes;
use super::numbers::Numbers;
use super::reference::HostModel;
use super::tasks::Text;
use super::text::learned;
use super::training::TEXT_STEPS;
use atlas::ops::layer::{AtlasLayer, Combine, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual};
use atlas::ops::omega::{Chunking, OmegaRule};
use atlas::prelude::*;
use atlas::verify::{Comparison, HostLayer, layer_reference};
use std::error::Error;
use std::ops::Range;

/// Chunks of the memory that errors are measured over: the first one, then up to the eighth, then up to the last.
const CHUNKS: [Range<usize>; 3] = [0..1, 1..8, 8..64];

/// The bound on the error of the lesson's own f32 model. An f32 has 24 bits, and a result of the model depends on about 1000 roundings.
const F32_BOUND: f64 = 1000.0 / (1 << 24) as f64;

/// One row of the table: a precision, its element type, and what rounds to it.
type Precision = (&'static str, DType, fn(f64) -> f64);

const PRECISIONS: [Precision; 3] = [
    ("f32", DType::F32, |x| f64::from(x as f32)),
    ("f16", DType::F16, |x| f16::from_f64(x).to_f64()),
    ("bf16", DType::Bf16, |x| bf16::from_f64(x).to_f64()),
];

/// Trains a model with a memory on text, and prints how far each precision is from f64.
///
/// # Errors
/// If the f32 model of the lesson is further from the one in f64 than rounding explains.
pub(crate) fn precision(device: &Device, steps: Option<usize>, seed: u64) -> Result<(), Box<dyn Error>> {
    let steps = steps.unwrap_or(TEXT_STEPS);
    let text = Text::of_repository()?;
    println!("\nprecision: a model with a memory after {steps} steps on text, against the same model in f64");
    let (model, _) = learned(device, &text, steps, 1, seed)?;
    let length = CHUNKS[2].end * model.sizes.chunk;
    let batch = text.batch(1, length, &mut Numbers::new(5), true);
    let exact = HostModel::new(&model, |x| x)?;
    let (sizes, rule) = layer(&exact.sizes, DType::F32);
    let mut reference = |x: &HostLayer| Ok(layer_reference(&sizes, &rule, x));
    let wanted = exact.logits(&batch.tokens, &mut reference)?;

    let own = model.resized(1, length)?.logits(&batch.tokens)?.to_f64_vec()?;
    let error = Comparison::of_all([(&own[..], &wanted[..])]).rel_f;
    println!("logits of the lesson's own f32 model: relative error {error:.1e}");
    if error > F32_BOUND {
        return Err("the f32 model is not the one in f64".into());
    }

    let parts = CHUNKS.map(|chunks| format!("{:>12}", format!("{}-{}", chunks.start + 1, chunks.end)));
    println!("{:32} {}", "chunks of 16 tokens", parts.join(""));
    for (name, dtype, round) in PRECISIONS {
        let rounded = HostModel::new(&model, round)?;
        let mut of_memory = Vec::new();
        let mut memory = |x: &HostLayer| {
            let y = run(device, &exact.sizes, dtype, x)?;
            let reference = layer_reference(&sizes, &rule, x);
            of_memory = errors(&y, &reference, &exact.sizes, exact.sizes.width);
            Ok(y)
        };
        let logits = rounded.logits(&batch.tokens, &mut memory)?;
        let row = |what: &str, values: &[f64]| {
            let values: String = values.iter().map(|v| format!("{v:>12.1e}")).collect();
            println!("{:32} {values}", format!("{name}: {what}"));
        };
        row("error of the memory's result", &of_memory);
        row("error of the logits", &errors(&logits, &wanted, &exact.sizes, exact.sizes.vocabulary));
        let (a, b) = (losses(&logits, &batch.targets), losses(&wanted, &batch.targets));
        let change = |part: Range<usize>| (mean(&a[part.clone()]) - mean(&b[part])).abs();
        row("change of the loss, in nats", &tokens_of(&exact.sizes).map(change));
    }
    let of_loss = losses(&wanted, &batch.targets);
    let values: String = tokens_of(&exact.sizes).map(|part| format!("{:>12.3}", mean(&of_loss[part]))).concat();
    println!("{:32} {values}", "f64: loss, in nats");
    Ok(())
}

/// The memory of the lesson as a layer by itself.
fn layer(s: &Sizes, dtype: DType) -> (LayerSizes, LayerRule) {
    let sizes =
        LayerSizes { sequences: 1, heads: s.heads, width: s.head(), hidden: s.hidden, window: 1, piece: 128, dtype };
    let memory = OmegaRule::omega_net(Chunking::new(s.chunk, s.reach));
    let features = FeatureMap::None;
    (sizes, LayerRule { combine: Combine::Alone, memory, features, residual: Residual::None, eps: super::model::EPS })
}

/// What the layer gives for one sequence, in an element type.
fn run(device: &Device, s: &Sizes, dtype: DType, x: &HostLayer) -> atlas::Result<Vec<f64>> {
    let (h, d, tokens) = (s.heads, s.head(), x.memory[0].len() / s.width);
    let wide = |values: &[f64], shape: &[usize]| {
        device.tensor_from(&values.iter().map(|v| *v as f32).collect::<Vec<_>>(), shape)
    };
    let narrow = |values: &[f64], shape: &[usize]| match dtype {
        DType::F16 => device.tensor_from(&values.iter().copied().map(f16::from_f64).collect::<Vec<_>>(), shape),
        DType::Bf16 => device.tensor_from(&values.iter().copied().map(bf16::from_f64).collect::<Vec<_>>(), shape),
        _ => wide(values, shape),
    };
    let none = || Tensor::zeros(device, dtype, [h, 0, d]);
    let norm = narrow(&x.norms[0], &[h, d])?;
    let weights = LayerWeights {
        prefix_keys: none()?,
        prefix_values: none()?,
        attention_norm: norm.clone(),
        memory_norm: norm,
        inner_norm: None,
        context: None,
    };
    let memory = [wide(&x.weights[0], &[1, h, d, s.hidden])?, wide(&x.weights[1], &[1, h, s.hidden, d])?];
    let (sizes, rule) = layer(s, dtype);
    let mut layer = AtlasLayer::new(device, sizes, rule, weights, &memory)?;
    let [q, k, v] = [0, 1, 2].map(|i| narrow(&x.memory[i], &[1, tokens, h, d]));
    let [alpha, theta, eta] = [0, 1, 2].map(|i| wide(&x.gates[i], &[1, tokens, h]));
    let (q, k, v, alpha, theta, eta) = (q?, k?, v?, alpha?, theta?, eta?);
    let gamma = wide(&x.gamma, &[1, tokens, h, s.reach])?;
    let mut y = Tensor::zeros(device, dtype, [1, tokens, h, d])?;
    let given =
        LayerTokens { memory: [&q, &k, &v], attention: [&q, &k, &v], gates: [&alpha, &theta, &eta], gamma: &gamma };
    layer.push(&given, &mut y)?;
    y.to_f64_vec()
}

/// The tokens of each part of the table.
fn tokens_of(s: &Sizes) -> [Range<usize>; 3] {
    CHUNKS.map(|chunks| chunks.start * s.chunk..chunks.end * s.chunk)
}

/// The relative error of each part of the table; a row has `columns` elements.
fn errors(y: &[f64], wanted: &[f64], s: &Sizes, columns: usize) -> Vec<f64> {
    let of = |part: Range<usize>| {
        let part = part.start * columns..part.end * columns;
        Comparison::of_all([(&y[part.clone()], &wanted[part])]).rel_f
    };
    tokens_of(s).map(of).to_vec()
}

/// The loss of each token.
fn losses(logits: &[f64], targets: &[i32]) -> Vec<f64> {
    let of_token = |(row, target): (&[f64], &i32)| {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.iter().map(|l| (l - most).exp()).sum::<f64>().ln() + most - row[*target as usize]
    };
    logits.chunks(logits.len() / targets.len()).zip(targets).map(of_token).collect()
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}
