//! A whole layer against one f64 reference, and in pieces against itself.

use atlas_dsl::DType;
use atlas_ops::Comparison;
use atlas_ops::layer::reference::{HostLayer, reference};
use atlas_ops::layer::{AtlasLayer, Combine, LayerRule, LayerSizes, LayerTokens, LayerWeights};
use atlas_ops::omega::Chunking;
use atlas_runtime::{Device, Tensor};

const TOKENS: usize = 45;
const PREFIX: usize = 3;

fn noise(i: usize) -> f64 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / f64::from(1 << 23) - 1.0
}

fn sizes() -> LayerSizes {
    LayerSizes { sequences: 2, heads: 2, width: 16, hidden: 32, window: 12, piece: 64, dtype: DType::F32 }
}

fn rule(combine: Combine) -> LayerRule {
    LayerRule {
        combine,
        chunking: Chunking::new(8, 5),
        features: [1.0, 0.5, -0.25],
        read_before: false,
        scale: 2.0,
        eps: 1e-6,
    }
}

fn host(s: &LayerSizes, chunking: Chunking) -> HostLayer {
    let (rows, elements) = (s.sequences * TOKENS * s.heads, s.sequences * TOKENS * s.heads * s.width);
    let mut salt = 0;
    let mut of = |len: usize, middle: f64, width: f64| -> Vec<f64> {
        salt += 1_000_003;
        // As f32 holds them, so that both sides see the same numbers.
        (0..len).map(|i| f64::from((middle + width * noise(i + salt)) as f32)).collect()
    };
    let matrix = s.sequences * s.heads * s.width * s.hidden;
    HostLayer {
        memory: [of(elements, 0.0, 0.4), of(elements, 0.0, 0.4), of(elements, 0.0, 0.4)],
        attention: [of(elements, 0.0, 1.0), of(elements, 0.0, 1.0), of(elements, 0.0, 1.0)],
        gates: [of(rows, 0.95, 0.05), of(rows, 0.6, 0.2), of(rows, 0.02, 0.01)],
        gamma: of(rows * chunking.window, 0.3, 0.2),
        prefix: [of(s.heads * PREFIX * s.width, 0.0, 1.0), of(s.heads * PREFIX * s.width, 0.0, 1.0)],
        norms: [of(s.heads * s.width, 1.0, 0.2), of(s.heads * s.width, 1.0, 0.2)],
        weights: [of(matrix, 0.0, 0.2), of(matrix, 0.0, 0.2)],
    }
}

/// What the layer gives in pieces of these lengths.
fn run(s: LayerSizes, rule: LayerRule, x: &HostLayer, lengths: &[usize]) -> Vec<f64> {
    let cpu = Device::cpu();
    let tensor = |values: &[f64], shape: &[usize]| {
        cpu.tensor_from(&values.iter().map(|&v| v as f32).collect::<Vec<_>>(), shape).unwrap()
    };
    let (b, h, d, m, w) = (s.sequences, s.heads, s.width, s.hidden, rule.chunking.window);
    let weights = LayerWeights {
        prefix_keys: tensor(&x.prefix[0], &[h, PREFIX, d]),
        prefix_values: tensor(&x.prefix[1], &[h, PREFIX, d]),
        memory_norm: tensor(&x.norms[0], &[h, d]),
        attention_norm: tensor(&x.norms[1], &[h, d]),
    };
    let memory = [tensor(&x.weights[0], &[b, h, d, m]), tensor(&x.weights[1], &[b, h, m, d])];
    let mut layer = AtlasLayer::new(&cpu, s, rule, weights, memory).unwrap();
    let of = |all: &[Vec<f64>; 3]| [0, 1, 2].map(|i| tensor(&all[i], &[b, TOKENS, h, d]));
    let (memory, attention) = (of(&x.memory), of(&x.attention));
    let gates = [0, 1, 2].map(|i| tensor(&x.gates[i], &[b, TOKENS, h]));
    let gamma = tensor(&x.gamma, &[b, TOKENS, h, w]);
    let y = Tensor::zeros(&cpu, DType::F32, [b, TOKENS, h, d]).unwrap();
    let (mut from, mut lengths) = (0, lengths.iter().cycle());
    while from < TOKENS {
        let to = TOKENS.min(from + lengths.next().unwrap());
        let part = |t: &Tensor| t.slice(1, from..to).unwrap();
        let (m, a) = (memory.each_ref().map(part), attention.each_ref().map(part));
        let (g, gamma) = (gates.each_ref().map(part), part(&gamma));
        let tokens = LayerTokens { memory: m.each_ref(), attention: a.each_ref(), gates: g.each_ref(), gamma: &gamma };
        layer.push(&tokens, &mut y.slice(1, from..to).unwrap()).unwrap();
        from = to;
    }
    y.to_f64_vec().unwrap()
}

#[test]
fn a_layer_is_what_its_reference_says() {
    for combine in [Combine::Gate, Combine::Sequence] {
        let (s, rule) = (sizes(), rule(combine));
        let x = host(&s, rule.chunking);
        let (found, wanted) = (run(s, rule, &x, &[TOKENS]), reference(&s, &rule, &x));
        let c = Comparison::of_all([(&found[..], &wanted[..])]);
        assert!(c.passes(1e-5), "{combine:?}: {c:?}");
        // A layer whose window is one key longer is another one.
        let other = reference(&LayerSizes { window: s.window + 1, ..s }, &rule, &x);
        let c = Comparison::of_all([(&found[..], &other[..])]);
        assert!(!c.passes(1e-3), "{combine:?}: {c:?}");
    }
}

#[test]
fn a_layer_gives_the_same_however_its_sequences_are_cut() {
    for combine in [Combine::Gate, Combine::Sequence] {
        let (s, rule) = (sizes(), rule(combine));
        let x = host(&s, rule.chunking);
        let whole = run(s, rule, &x, &[TOKENS]);
        for lengths in [&[1][..], &[7, 1, 20], &[16]] {
            let cut = run(s, rule, &x, lengths);
            let same = whole.iter().zip(&cut).all(|(a, b)| (a - b).abs() <= 1e-6 * (1.0 + a.abs()));
            assert!(same, "{combine:?} in pieces of {lengths:?}");
        }
        let small = run(LayerSizes { piece: 6, ..s }, rule, &x, &[TOKENS]);
        assert!(whole.iter().zip(&small).all(|(a, b)| (a - b).abs() <= 1e-6 * (1.0 + a.abs())), "{combine:?}");
    }
}

#[test]
fn a_layer_trains_a_memory_of_its_own() {
    let cpu = Device::cpu();
    let (s, rule) = (sizes(), rule(Combine::Gate));
    let of = |shape: &[usize]| {
        let values: Vec<f32> = (0..shape.iter().product()).map(|i| noise(i) as f32).collect();
        cpu.tensor_from(&values, shape).unwrap()
    };
    let (b, h, d) = (s.sequences, s.heads, s.width);
    let initial = [of(&[b, h, d, s.hidden]), of(&[b, h, s.hidden, d])];
    let before = initial[0].to_f64_vec().unwrap();
    let weights = || LayerWeights {
        prefix_keys: of(&[h, PREFIX, d]),
        prefix_values: of(&[h, PREFIX, d]),
        memory_norm: of(&[h, d]),
        attention_norm: of(&[h, d]),
    };
    let mut layer = AtlasLayer::new(&cpu, s, rule, weights(), initial.clone()).unwrap();
    let (token, gate) = (of(&[b, TOKENS, h, d]), of(&[b, TOKENS, h]));
    let gamma = of(&[b, TOKENS, h, rule.chunking.window]);
    let tokens = LayerTokens { memory: [&token; 3], attention: [&token; 3], gates: [&gate; 3], gamma: &gamma };
    // What is too short is refused before anything is trained.
    let start = layer.memory()[0].to_f64_vec().unwrap();
    let mut short = Tensor::zeros(&cpu, DType::F32, [b, TOKENS - 1, h, d]).unwrap();
    assert!(layer.push(&tokens, &mut short).is_err());
    assert_eq!(layer.memory()[0].to_f64_vec().unwrap(), start);
    layer.push(&tokens, &mut Tensor::zeros(&cpu, DType::F32, [b, TOKENS, h, d]).unwrap()).unwrap();
    assert_ne!(layer.memory()[0].to_f64_vec().unwrap(), start);
    assert_eq!(initial[0].to_f64_vec().unwrap(), before);
}
