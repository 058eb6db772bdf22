//! A whole layer against one f64 reference, and in pieces against itself.

use atlas_dsl::DType;
use atlas_ops::Comparison;
use atlas_ops::layer::reference::{HostContext, HostLayer, reference};
use atlas_ops::layer::{
    AtlasLayer, Combine, ContextWeights, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual,
};
use atlas_ops::omega::{Chunking, MemoryForm, OmegaRule, Read, Step};
use atlas_runtime::Tensor;
use half::{bf16, f16};

pub(super) const TOKENS: usize = 45;
pub(super) const PREFIX: usize = 3;

fn noise(i: usize) -> f64 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / f64::from(1 << 23) - 1.0
}

pub(super) fn sizes() -> LayerSizes {
    LayerSizes { sequences: 2, heads: 2, width: 16, hidden: 32, window: 12, piece: 64, dtype: DType::F32 }
}

pub(super) fn rule(combine: Combine) -> LayerRule {
    LayerRule {
        combine,
        memory: OmegaRule::omega_net(Chunking::new(8, 5)),
        features: FeatureMap::Elementwise([1.0, 0.5, -0.25]),
        residual: Residual::Raw,
        eps: 1e-6,
    }
}

const COMBINATIONS: [Combine; 3] = [Combine::Alone, Combine::Gate, Combine::Sequence];

/// Layers of the papers, on each of the maps.
pub(super) fn rules() -> Vec<LayerRule> {
    let chunking = Chunking::new(8, 5);
    let memories = [
        OmegaRule::omega_net(chunking),
        OmegaRule::titans(8),
        OmegaRule { memory: MemoryForm::Linear, ..OmegaRule::omega_net(chunking) },
        OmegaRule { step: Step::MuonByChunk, read: Read::Before, ..OmegaRule::omega_net(chunking) },
        OmegaRule::atlas(chunking),
        OmegaRule::atlas_pp(chunking),
        OmegaRule { step: Step::MuonByToken, ..OmegaRule::sliding_window_linear_attention(chunking) },
        OmegaRule { step: Step::MuonByChunk, ..OmegaRule::atlas_pp(Chunking::new(1, 5)) },
        OmegaRule { step: Step::Descent, ..OmegaRule::atlas_pp(chunking) },
        OmegaRule::deep_linear_attention(8),
        OmegaRule { memory: MemoryForm::Normed { eps: 1e-5 }, ..OmegaRule::omega_net(chunking) },
    ];
    let projections = crate::device().tensor_from(&(0..24 * 16).map(|i| noise(i) as f32).collect::<Vec<_>>(), [24, 16]);
    let maps = [
        (FeatureMap::None, Residual::Raw),
        (FeatureMap::Elementwise([1.0, 0.5, -0.25]), Residual::Features),
        (FeatureMap::Polynomial(vec![0.5, 1.0, -0.3]), Residual::None),
        (FeatureMap::ExpTaylor { degree: 2 }, Residual::Raw),
        (FeatureMap::Favor { projections: projections.unwrap() }, Residual::None),
    ];
    let of = |(features, residual): &(FeatureMap, Residual), memory: &OmegaRule| LayerRule {
        memory: *memory,
        features: features.clone(),
        residual: *residual,
        ..rule(Combine::Alone)
    };
    maps.iter().flat_map(|map| memories.iter().map(move |memory| of(map, memory))).collect()
}

pub(super) fn host(s: &LayerSizes, rule: &LayerRule) -> HostLayer {
    host_of(s, rule, TOKENS)
}

/// Of so many tokens.
fn host_of(s: &LayerSizes, rule: &LayerRule, tokens: usize) -> HostLayer {
    let (rows, elements) = (s.sequences * tokens * s.heads, s.sequences * tokens * s.heads * s.width);
    let mut salt = 0;
    let mut of = |len: usize, middle: f64, width: f64| -> Vec<f64> {
        salt += 1_000_003;
        // As tokens hold them, so that both sides see the same numbers.
        let held = |x: f64| match s.dtype {
            DType::Bf16 => bf16::from_f64(x).to_f64(),
            DType::F16 => f16::from_f64(x).to_f64(),
            _ => f64::from(x as f32),
        };
        (0..len).map(|i| held(middle + width * noise(i + salt))).collect()
    };
    let row = s.heads * s.width;
    let shapes = rule.memory.memory.matrices(rule.features.features(s.width), s.width, s.hidden);
    // A gradient is as long as its features are.
    let step = 0.02 / (1.0 + shapes[0][1] as f64 / 32.0);
    HostLayer {
        memory: [of(elements, 0.0, 0.4), of(elements, 0.0, 0.4), of(elements, 0.0, 0.4)],
        attention: [of(elements, 0.0, 1.0), of(elements, 0.0, 1.0), of(elements, 0.0, 1.0)],
        gates: [of(rows, 0.95, 0.05), of(rows, 0.6, 0.2), of(rows, step, step / 2.0)],
        gamma: of(rows * rule.memory.chunking.window, 0.3, 0.2),
        prefix: [of(s.heads * PREFIX * s.width, 0.0, 1.0), of(s.heads * PREFIX * s.width, 0.0, 1.0)],
        norms: [of(s.heads * s.width, 1.0, 0.2), of(s.heads * s.width, 1.0, 0.2)],
        inner: match rule.memory.memory {
            MemoryForm::Normed { .. } => of(s.heads * s.width, 1.0, 0.2),
            _ => vec![],
        },
        weights: shapes.iter().map(|[rows, cols]| of(s.sequences * s.heads * rows * cols, 0.0, 0.2)).collect(),
        context: HostContext {
            recalled: [of(row * row, 0.0, 0.3), of(row * row, 0.0, 0.3)],
            memory: [of(row * row, 0.0, 0.3), of(row * row, 0.0, 0.3), of(row * row, 0.0, 0.3)],
            norms: Some([of(row, 0.2, 0.05), of(row, 0.2, 0.05)]),
        },
    }
}

/// What the layer gives in pieces of these lengths.
pub(super) fn run(s: LayerSizes, rule: &LayerRule, x: &HostLayer, lengths: &[usize]) -> Vec<f64> {
    let cpu = crate::device();
    let wide = |values: &[f64], shape: &[usize]| {
        cpu.tensor_from(&values.iter().map(|&v| v as f32).collect::<Vec<_>>(), shape).unwrap()
    };
    let tensor = |values: &[f64], shape: &[usize]| match s.dtype {
        DType::Bf16 => cpu.tensor_from(&values.iter().map(|&v| bf16::from_f64(v)).collect::<Vec<_>>(), shape).unwrap(),
        DType::F16 => cpu.tensor_from(&values.iter().map(|&v| f16::from_f64(v)).collect::<Vec<_>>(), shape).unwrap(),
        _ => wide(values, shape),
    };
    let (b, h, d, w) = (s.sequences, s.heads, s.width, rule.memory.chunking.window);
    let matrix = |w: &Vec<f64>| tensor(w, &[h * d, h * d]);
    let context = ContextWeights {
        recalled: x.context.recalled.each_ref().map(matrix),
        memory: x.context.memory.each_ref().map(matrix),
        norms: x.context.norms.as_ref().map(|norms| norms.each_ref().map(|w| tensor(w, &[h, d]))),
    };
    let count = x.gates[0].len() / (b * h);
    let weights = LayerWeights {
        prefix_keys: tensor(&x.prefix[0], &[h, PREFIX, d]),
        prefix_values: tensor(&x.prefix[1], &[h, PREFIX, d]),
        memory_norm: tensor(&x.norms[0], &[h, d]),
        attention_norm: tensor(&x.norms[1], &[h, d]),
        inner_norm: (!x.inner.is_empty()).then(|| tensor(&x.inner, &[h, d])),
        context: matches!(rule.combine, Combine::Context { .. }).then_some(context),
    };
    let shapes = rule.memory.memory.matrices(rule.features.features(d), d, s.hidden);
    let memory: Vec<Tensor> =
        x.weights.iter().zip(shapes).map(|(w, [rows, cols])| wide(w, &[b, h, rows, cols])).collect();
    let mut layer = AtlasLayer::new(&cpu, s, rule.clone(), weights, &memory).unwrap();
    let of = |all: &[Vec<f64>; 3]| [0, 1, 2].map(|i| tensor(&all[i], &[b, count, h, d]));
    let (memory, attention) = (of(&x.memory), of(&x.attention));
    let gates = [0, 1, 2].map(|i| wide(&x.gates[i], &[b, count, h]));
    let gamma = wide(&x.gamma, &[b, count, h, w]);
    let y = Tensor::zeros(&cpu, s.dtype, [b, count, h, d]).unwrap();
    let (mut from, mut lengths) = (0, lengths.iter().cycle());
    while from < count {
        let to = count.min(from + lengths.next().unwrap());
        let part = |t: &Tensor| t.slice(1, from..to).unwrap();
        let (m, a) = (memory.each_ref().map(part), attention.each_ref().map(part));
        let (g, gamma) = (gates.each_ref().map(part), part(&gamma));
        let tokens = LayerTokens { memory: m.each_ref(), attention: a.each_ref(), gates: g.each_ref(), gamma: &gamma };
        layer.push(&tokens, &mut y.slice(1, from..to).unwrap()).unwrap();
        from = to;
    }
    y.to_f64_vec().unwrap()
}

#[track_caller]
fn holds(s: LayerSizes, rule: &LayerRule) {
    let x = host(&s, rule);
    let (found, wanted) = (run(s, rule, &x, &[TOKENS]), reference(&s, rule, &x));
    let c = Comparison::of_all([(&found[..], &wanted[..])]);
    assert!(c.passes(1e-5), "{rule:?}: {c:?}");
}

#[test]
fn a_layer_is_what_its_reference_says() {
    for combine in COMBINATIONS {
        let (s, rule) = (sizes(), rule(combine));
        holds(s, &rule);
        // A layer whose window is one key longer is another one.
        let x = host(&s, &rule);
        let (found, other) =
            (run(s, &rule, &x, &[TOKENS]), reference(&LayerSizes { window: s.window + 1, ..s }, &rule, &x));
        let c = Comparison::of_all([(&found[..], &other[..])]);
        assert!(combine == Combine::Alone || !c.passes(1e-3), "{combine:?}: {c:?}");
    }
}

#[test]
fn every_memory_takes_every_map() {
    for rule in rules() {
        holds(sizes(), &rule);
    }
}

/// Of up to 4 numbers there are so few monomials that the next multiple of 8 would be more than the kernels fill.
#[test]
fn monomials_of_narrow_heads() {
    for degree in [2, 3] {
        for width in 1..=6 {
            let s = LayerSizes { width, hidden: 4, ..sizes() };
            let features = FeatureMap::ExpTaylor { degree };
            let rule = LayerRule { features, residual: Residual::None, ..rule(Combine::Gate) };
            holds(s, &rule);
            // Of one degree less, in as many columns, it is another map.
            let x = host(&s, &rule);
            let (found, mut a) = (run(s, &rule, &x, &[TOKENS]), vec![1.0; degree + 1]);
            a[degree] = 0.0;
            let other = LayerRule { features: FeatureMap::Polynomial(a), ..rule };
            assert!(!Comparison::of_all([(&found[..], &reference(&s, &other, &x)[..])]).passes(1e-4), "{width}");
        }
    }
}

/// Heads of the paper's largest model with the steps that it takes: matrices that a kernel walks over. A few tokens show it.
#[test]
fn heads_of_large_models_with_muon() {
    let s = LayerSizes { sequences: 1, heads: 1, width: 128, hidden: 512, ..sizes() };
    let chunking = Chunking::new(2, 2);
    let by_chunk = OmegaRule { step: Step::MuonByChunk, read: Read::Before, ..OmegaRule::omega_net(chunking) };
    for memory in [OmegaRule::atlas(chunking), OmegaRule::atlas_pp(chunking), by_chunk] {
        let rule = LayerRule { memory, features: FeatureMap::None, ..rule(Combine::Gate) };
        assert!(memory.chain_for(s.width, s.width, s.dtype).name.ends_with("_wide"));
        let x = host_of(&s, &rule, 3);
        let (found, wanted) = (run(s, &rule, &x, &[3]), reference(&s, &rule, &x));
        let c = Comparison::of_all([(&found[..], &wanted[..])]);
        assert!(c.passes(1e-5), "{memory:?}: {c:?}");
        let still = HostLayer { gates: [x.gates[0].clone(), x.gates[1].clone(), vec![0.0; 3]], ..x };
        let other = reference(&s, &rule, &still);
        assert!(!Comparison::of_all([(&found[..], &other[..])]).passes(1e-5), "a memory without steps went unnoticed");
    }
}

/// Heads of the paper's models (ATLAS, Table 7) with all monomials of their keys up to degree 2, and with keys as they are where heads have
/// 256 elements. These rows are too wide for a kernel to hold them whole. A few tokens show it.
#[test]
fn heads_and_features_of_the_papers() {
    let taylor = FeatureMap::ExpTaylor { degree: 2 };
    let memories = [MemoryForm::Linear, MemoryForm::Gated, MemoryForm::Normed { eps: 1e-3 }];
    let models = [(48, 192, &taylor), (64, 256, &taylor), (96, 384, &taylor), (256, 1024, &FeatureMap::None)];
    let of_models = models.map(|(width, hidden, features)| (width, hidden, features, MemoryForm::Mlp));
    let others = memories.map(|memory| (64, if memory == MemoryForm::Linear { 0 } else { 256 }, &taylor, memory));
    for (width, hidden, features, memory) in of_models.into_iter().chain(others) {
        let s = LayerSizes { sequences: 1, heads: 1, width, hidden, ..sizes() };
        let memory = OmegaRule { memory, ..OmegaRule::omega_net(Chunking::new(4, 2)) };
        let rule = LayerRule { memory, features: features.clone(), ..rule(Combine::Gate) };
        let chain = memory.chain_for(features.features(width), width, s.dtype);
        assert!(chain.name.ends_with("_wide"), "{}", chain.name);
        let x = host_of(&s, &rule, 9);
        let (found, wanted) = (run(s, &rule, &x, &[9]), reference(&s, &rule, &x));
        let c = Comparison::of_all([(&found[..], &wanted[..])]);
        assert!(c.passes(1e-5), "{} of {width} elements: {c:?}", chain.name);
        // A memory that is not trained is another one.
        let still = HostLayer { gamma: vec![0.0; x.gamma.len()], ..x };
        assert!(!Comparison::of_all([(&found[..], &reference(&s, &rule, &still)[..])]).passes(1e-5));
    }
}

#[test]
fn a_map_is_not_another() {
    let (s, rule) = (sizes(), LayerRule { features: FeatureMap::ExpTaylor { degree: 2 }, ..rule(Combine::Alone) });
    let x = host(&s, &rule);
    let found = run(s, &rule, &x, &[TOKENS]);
    for features in [FeatureMap::Polynomial(vec![1.0, 1.0, 1.0]), FeatureMap::Polynomial(vec![1.0, -1.0, 0.5])] {
        let other = reference(&s, &LayerRule { features, ..rule.clone() }, &x);
        assert!(!Comparison::of_all([(&found[..], &other[..])]).passes(1e-3));
    }
    let other = reference(&s, &LayerRule { residual: Residual::None, ..rule.clone() }, &x);
    assert!(!Comparison::of_all([(&found[..], &other[..])]).passes(1e-3));
}

#[test]
fn a_layer_gives_the_same_however_its_sequences_are_cut() {
    let mut all: Vec<LayerRule> = COMBINATIONS.map(rule).into();
    // One of each memory.
    all.extend(rules().into_iter().step_by(12));
    let features = FeatureMap::ExpTaylor { degree: 2 };
    // 24 elements have 325 monomials.
    let wide = LayerRule { features, ..rule(Combine::Alone) };
    let all = all.into_iter().map(|rule| (rule, sizes().width)).chain([(wide, 24)]);
    for (rule, width) in all {
        let s = LayerSizes { width, ..sizes() };
        let x = host(&s, &rule);
        let whole = run(s, &rule, &x, &[TOKENS]);
        let same = |cut: &[f64]| whole.iter().zip(cut).all(|(a, b)| (a - b).abs() <= 1e-6 * (1.0 + a.abs()));
        for lengths in [&[1][..], &[7, 1, 20], &[16]] {
            assert!(same(&run(s, &rule, &x, lengths)), "{rule:?} in pieces of {lengths:?}");
        }
        assert!(same(&run(LayerSizes { piece: 6, ..s }, &rule, &x, &[TOKENS])), "{rule:?}");
    }
}

/// A layer's weights, all alike.
fn weights(s: &LayerSizes) -> LayerWeights {
    let of = |shape: &[usize]| tensor(shape);
    let (h, d) = (s.heads, s.width);
    LayerWeights {
        prefix_keys: of(&[h, PREFIX, d]),
        prefix_values: of(&[h, PREFIX, d]),
        memory_norm: of(&[h, d]),
        attention_norm: of(&[h, d]),
        inner_norm: None,
        context: None,
    }
}

fn tensor(shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| noise(i) as f32).collect();
    crate::device().tensor_from(&values, shape).unwrap()
}

#[test]
fn a_layer_trains_a_memory_of_its_own() {
    let cpu = crate::device();
    let (s, rule) = (sizes(), rule(Combine::Gate));
    let (b, h, d) = (s.sequences, s.heads, s.width);
    let initial = [tensor(&[b, h, d, s.hidden]), tensor(&[b, h, s.hidden, d])];
    let before = initial[0].to_f64_vec().unwrap();
    let window = rule.memory.chunking.window;
    let mut layer = AtlasLayer::new(&cpu, s, rule, weights(&s), &initial).unwrap();
    let (token, gate) = (tensor(&[b, TOKENS, h, d]), tensor(&[b, TOKENS, h]));
    let gamma = tensor(&[b, TOKENS, h, window]);
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

#[test]
fn what_a_push_writes_shares_no_memory_with_weights_and_with_what_was_read() {
    let cpu = crate::device();
    let (s, rule) = (sizes(), rule(Combine::Gate));
    let (b, h, d) = (s.sequences, s.heads, s.width);
    let initial = [tensor(&[b, h, d, s.hidden]), tensor(&[b, h, s.hidden, d])];
    // Prefix keys that are the first elements of a tensor as long as the output.
    let y = tensor(&[b, TOKENS, h, d]);
    let keys = y.reshape([b * TOKENS * h, d]).unwrap().slice(0, 0..h * PREFIX).unwrap();
    let own = LayerWeights { prefix_keys: keys.reshape([h, PREFIX, d]).unwrap(), ..weights(&s) };
    let window = rule.memory.chunking.window;
    let (token, gate) = (tensor(&[b, TOKENS, h, d]), tensor(&[b, TOKENS, h]));
    let gamma = tensor(&[b, TOKENS, h, window]);
    let mut layer = AtlasLayer::new(&cpu, s, rule, own, &initial).unwrap();
    let refused = |layer: &mut AtlasLayer, query: &Tensor, y: &Tensor| {
        let attention = [query, &token, &token];
        let tokens = LayerTokens { memory: [&token; 3], attention, gates: [&gate; 3], gamma: &gamma };
        let made = layer.push(&tokens, &mut y.clone());
        made.err().map(|e| e.code().to_string()).unwrap_or_default()
    };
    assert_eq!(refused(&mut layer, &token, &y), "ATL609");
    let apart = Tensor::zeros(&cpu, DType::F32, [b, TOKENS, h, d]).unwrap();
    assert_eq!(refused(&mut layer, &token, &apart), "");
    let read = layer.last_read(TOKENS).unwrap();
    assert_eq!(refused(&mut layer, &read, &apart), "ATL609");
    assert_eq!(refused(&mut layer, &token, &read), "ATL609");
    // Tokens that the layer would train.
    let trained = layer.memory()[0].reshape([b * h * d * 32]).unwrap();
    let trained = trained.slice(0, 0..b * h * d).unwrap().reshape([b, 1, h, d]).unwrap();
    let [one, gate, gamma] = [&apart, &gate, &gamma].map(|t| t.slice(1, 0..1).unwrap());
    let mut refused_of = |memory: [&Tensor; 3]| {
        let tokens = LayerTokens { memory, attention: [&one; 3], gates: [&gate; 3], gamma: &gamma };
        let made = layer.push(&tokens, &mut Tensor::zeros(&cpu, DType::F32, [b, 1, h, d]).unwrap());
        made.err().map(|e| e.code().to_string()).unwrap_or_default()
    };
    assert_eq!([refused_of([&one; 3]), refused_of([&one, &trained, &one])], ["", "ATL609"]);
}

#[test]
fn the_norm_inside_a_memory_is_checked_when_a_layer_is_made() {
    let s = sizes();
    let (b, h, d, m) = (s.sequences, s.heads, s.width, s.hidden);
    let memory = [tensor(&[b, h, d, m]), tensor(&[b, h, m, d])];
    let made = |memory_form: MemoryForm, inner_norm: Option<Tensor>| {
        let plain = rule(Combine::Gate);
        let rule = LayerRule { memory: OmegaRule { memory: memory_form, ..plain.memory }, ..plain };
        let weights = LayerWeights { inner_norm, ..weights(&s) };
        AtlasLayer::new(&crate::device(), s, rule, weights, &memory).err().map(|e| e.code().to_string())
    };
    let (normed, norm) = (MemoryForm::Normed { eps: 1e-6 }, tensor(&[h, d]));
    assert_eq!(made(normed, Some(norm.clone())), None);
    assert_eq!(made(MemoryForm::Mlp, None), None);
    assert_eq!(made(normed, None).as_deref(), Some("ATL601"));
    assert_eq!(made(MemoryForm::Mlp, Some(norm)).as_deref(), Some("ATL601"));
}

#[test]
fn what_a_layer_does_not_offer_is_refused() {
    let s = sizes();
    let (b, h, d, m) = (s.sequences, s.heads, s.width, s.hidden);
    let memory = [tensor(&[b, h, d, m]), tensor(&[b, h, m, d])];
    let refused = |rule: LayerRule, memory: &[Tensor]| {
        let made = AtlasLayer::new(&crate::device(), s, rule, weights(&s), memory);
        made.err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(rule(Combine::Gate), &memory), "");
    // The second matrix transposed, one matrix, and a memory of another map.
    let turned = [memory[0].clone(), tensor(&[b, h, d, m])];
    let polynomial = |a: &[f32]| FeatureMap::Polynomial(a.to_vec());
    let with = |features: FeatureMap, residual: Residual| LayerRule { features, residual, ..rule(Combine::Gate) };
    for (rule, memory, code) in [
        (rule(Combine::Gate), &turned[..], "ATL604"),
        (rule(Combine::Gate), &memory[..1], "ATL651"),
        (with(polynomial(&[1.0, 1.0, 1.0]), Residual::Raw), &memory, "ATL604"),
        (with(polynomial(&[1.0, 1.0]), Residual::Raw), &memory, "ATL651"),
        (with(polynomial(&[1.0, 1.0, 0.5]), Residual::Features), &memory, "ATL651"),
    ] {
        let error = refused(rule, memory);
        assert!(error.contains(code), "{error}");
    }
}
