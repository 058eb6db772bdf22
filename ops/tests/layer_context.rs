//! Memory as a context: a layer against its f64 reference, in pieces against itself, and what it refuses.

use super::layer::{PREFIX, TOKENS, host, rule, rules, run, sizes};
use atlas_dsl::DType;
use atlas_ops::Comparison;
use atlas_ops::layer::reference::{HostLayer, reference};
use atlas_ops::layer::{
    AtlasLayer, Combine, ContextWeights, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights,
};
use atlas_ops::omega::{Chunking, MemoryForm, OmegaRule};
use atlas_runtime::Tensor;
use half::{bf16, f16};

const CONTEXT: Combine = Combine::Context { segment: 16 };

/// Layers of the papers on each of the maps, with a context. Chunks of one token or of eight divide the segment.
fn contexts() -> Vec<LayerRule> {
    rules().into_iter().map(|rule| LayerRule { combine: CONTEXT, ..rule }).collect()
}

fn compared(s: LayerSizes, rule: &LayerRule, wanted: &LayerRule) -> Comparison {
    let x = host(&s, rule);
    Comparison::of_all([(&run(s, rule, &x, &[TOKENS])[..], &reference(&s, wanted, &x)[..])])
}

#[test]
fn a_context_is_what_its_reference_says() {
    // Every fourth of the eleven memories on each of five maps: all memories, and all maps.
    for rule in contexts().into_iter().step_by(4) {
        let c = compared(sizes(), &rule, &rule);
        assert!(c.passes(1e-5), "{rule:?}: {c:?}");
    }
    // Segments of one chunk, with a last one that is not full, and of more tokens than there are.
    for segment in [8, 24, 64] {
        let rule = LayerRule { combine: Combine::Context { segment }, ..rule(CONTEXT) };
        let c = compared(sizes(), &rule, &rule);
        assert!(c.passes(1e-5), "{rule:?}: {c:?}");
    }
    // Segments of one token, and sizes that are no powers of two.
    let of = |segment, chunk, window| {
        let memory = OmegaRule { chunking: Chunking::new(chunk, window), ..rule(CONTEXT).memory };
        LayerRule { combine: Combine::Context { segment }, memory, ..rule(CONTEXT) }
    };
    let odd = LayerSizes { sequences: 3, heads: 3, width: 10, hidden: 18, piece: 11, ..sizes() };
    for rule in [of(1, 1, 1), of(15, 5, 3), of(14, 7, 9)] {
        let c = compared(odd, &rule, &rule);
        assert!(c.passes(1e-5), "{rule:?}: {c:?}");
    }
}

#[test]
fn a_context_holds_in_16_bits() {
    for (at, rule) in contexts().into_iter().step_by(4).enumerate() {
        let (dtype, bound) = if at % 3 == 2 { (DType::F16, 5e-3) } else { (DType::Bf16, 2e-2) };
        let features = match &rule.features {
            // Their projections are of the type of tokens.
            FeatureMap::Favor { projections } => favor(projections, dtype),
            other => other.clone(),
        };
        let rule = LayerRule { features, ..rule };
        let c = compared(LayerSizes { dtype, ..sizes() }, &rule, &rule);
        assert!(c.passes(bound), "{dtype} {rule:?}: {c:?}");
    }
}

/// Features whose rows are too wide for a kernel that recalls by whole rows: 561 monomials of heads of 32 elements.
#[test]
fn a_context_recalls_by_wide_features() {
    for form in [MemoryForm::Linear, MemoryForm::Mlp, MemoryForm::Gated, MemoryForm::Normed { eps: 1e-3 }] {
        let hidden = if form == MemoryForm::Linear { 0 } else { 8 };
        let s = LayerSizes { sequences: 1, heads: 1, width: 32, hidden, ..sizes() };
        let plain = rule(CONTEXT);
        let memory = OmegaRule { memory: form, ..plain.memory };
        let rule = LayerRule { memory, features: FeatureMap::ExpTaylor { degree: 2 }, ..plain };
        let c = compared(s, &rule, &rule);
        assert!(c.passes(1e-5), "{rule:?}: {c:?}");
        let other = LayerRule { features: FeatureMap::Polynomial(vec![1.0, 1.0, 0.4]), ..rule.clone() };
        assert!(!compared(s, &rule, &other).passes(1e-4), "{rule:?}");
    }
}

fn favor(projections: &Tensor, dtype: DType) -> FeatureMap {
    let (cpu, values) = (crate::device(), projections.to_vec::<f32>().unwrap());
    let made = match dtype {
        DType::F16 => cpu.tensor_from(&values.into_iter().map(f16::from_f32).collect::<Vec<_>>(), projections.shape()),
        _ => cpu.tensor_from(&values.into_iter().map(bf16::from_f32).collect::<Vec<_>>(), projections.shape()),
    };
    FeatureMap::Favor { projections: made.unwrap() }
}

#[test]
fn a_context_is_not_another() {
    let of = |segment| LayerRule { combine: Combine::Context { segment }, ..rule(CONTEXT) };
    let c = compared(sizes(), &of(16), &of(24));
    assert!(!c.passes(1e-3), "another segment: {c:?}");
    let x = host(&sizes(), &of(16));
    let found = run(sizes(), &of(16), &x, &[TOKENS]);
    // What is recalled counts, and so does the norm of queries and keys.
    let mut silent = x.clone();
    silent.context.recalled[1].iter_mut().for_each(|w| *w = 0.0);
    let mut longer = x.clone();
    longer.context.norms = None;
    for other in [silent, longer] {
        let wanted = reference(&sizes(), &of(16), &other);
        assert!(!Comparison::of_all([(&found[..], &wanted[..])]).passes(1e-3));
        // And the layer follows both.
        let found = run(sizes(), &of(16), &other, &[TOKENS]);
        let c = Comparison::of_all([(&found[..], &wanted[..])]);
        assert!(c.passes(1e-5), "{c:?}");
    }
}

#[test]
fn a_context_gives_the_same_however_its_sequences_are_cut() {
    let mut all = vec![rule(CONTEXT), LayerRule { combine: Combine::Context { segment: 64 }, ..rule(CONTEXT) }];
    // One of each memory.
    all.extend(contexts().into_iter().step_by(12));
    for rule in all {
        let s = sizes();
        let x = host(&s, &rule);
        let whole = run(s, &rule, &x, &[TOKENS]);
        let same = |cut: &[f64]| whole.iter().zip(cut).all(|(a, b)| (a - b).abs() <= 1e-6 * (1.0 + a.abs()));
        for lengths in [&[1][..], &[7, 1, 20], &[16]] {
            assert!(same(&run(s, &rule, &x, lengths)), "{rule:?} in pieces of {lengths:?}");
        }
        assert!(same(&run(LayerSizes { piece: 6, ..s }, &rule, &x, &[TOKENS])), "{rule:?}");
    }
}

/// The rows of one of so many sequences.
fn one_of(x: &[f64], count: usize, at: usize) -> Vec<f64> {
    x[at * (x.len() / count)..][..x.len() / count].to_vec()
}

#[test]
fn sequences_do_not_know_of_each_other() {
    let (s, rule) = (sizes(), rule(CONTEXT));
    let x = host(&s, &rule);
    let both = run(s, &rule, &x, &[7, 20]);
    for at in 0..s.sequences {
        let of = |x: &Vec<f64>| one_of(x, s.sequences, at);
        let alone = HostLayer {
            memory: x.memory.each_ref().map(of),
            attention: x.attention.each_ref().map(of),
            gates: x.gates.each_ref().map(of),
            gamma: of(&x.gamma),
            weights: x.weights.iter().map(of).collect(),
            ..x.clone()
        };
        assert_eq!(run(LayerSizes { sequences: 1, ..s }, &rule, &alone, &[7, 20]), of(&both), "sequence {at}");
    }
}

#[test]
fn no_token_knows_of_a_later_one() {
    let (s, rule) = (sizes(), rule(CONTEXT));
    let x = host(&s, &rule);
    // In the middle of a segment, and of a chunk.
    let changed = 37;
    let mut later = x.clone();
    let row = s.heads * s.width;
    for rows in later.memory.iter_mut().chain(&mut later.attention) {
        rows.chunks_mut(row).skip(changed).step_by(TOKENS).flatten().for_each(|x| *x += 1.0);
    }
    let (before, after) = (run(s, &rule, &x, &[TOKENS]), run(s, &rule, &later, &[TOKENS]));
    for (at, (before, after)) in before.chunks(row).zip(after.chunks(row)).enumerate() {
        let (t, same) = (at % TOKENS, before.iter().zip(after).all(|(a, b)| (a - b).abs() <= 1e-6));
        assert_eq!(same, t < changed, "token {t}");
    }
}

fn tensor(shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| ((i * 37 % 41) as f32 - 20.0) / 60.0).collect();
    crate::device().tensor_from(&values, shape).unwrap()
}

fn weights(s: &LayerSizes, row: usize) -> LayerWeights {
    let (h, d) = (s.heads, s.width);
    let matrix = || tensor(&[row, row]);
    LayerWeights {
        prefix_keys: tensor(&[h, PREFIX, d]),
        prefix_values: tensor(&[h, PREFIX, d]),
        memory_norm: tensor(&[h, d]),
        attention_norm: tensor(&[h, d]),
        inner_norm: None,
        context: Some(ContextWeights {
            recalled: [matrix(), matrix()],
            memory: [matrix(), matrix(), matrix()],
            norms: None,
        }),
    }
}

fn memory(s: &LayerSizes) -> [Tensor; 2] {
    let (b, h, d, m) = (s.sequences, s.heads, s.width, s.hidden);
    [tensor(&[b, h, d, m]), tensor(&[b, h, m, d])]
}

#[test]
fn what_a_context_does_not_offer_is_refused() {
    let s = sizes();
    let row = s.heads * s.width;
    let refused = |combine: Combine, weights: LayerWeights| {
        let made = AtlasLayer::new(&crate::device(), s, rule(combine), weights, &memory(&s));
        made.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let none = || LayerWeights { context: None, ..weights(&s, row) };
    assert_eq!(refused(CONTEXT, weights(&s, row)), "");
    assert_eq!(refused(Combine::Gate, none()), "");
    for segment in [0, 12] {
        let error = refused(Combine::Context { segment }, weights(&s, row));
        assert!(error.contains("ATL651") && error.contains("chunks of 8"), "{error}");
    }
    let error = refused(CONTEXT, weights(&s, s.width));
    assert!(error.contains("ATL604"), "{error}");
    for error in [refused(CONTEXT, none()), refused(Combine::Gate, weights(&s, row))] {
        assert!(error.contains("ATL601") && error.contains("context"), "{error}");
    }
}

#[test]
fn a_context_does_not_grow_and_is_as_it_was_after_a_refusal() {
    let cpu = crate::device();
    let s = sizes();
    let (b, h, d) = (s.sequences, s.heads, s.width);
    let make = || AtlasLayer::new(&cpu, s, rule(CONTEXT), weights(&s, h * d), &memory(&s)).unwrap();
    let window = rule(CONTEXT).memory.chunking.window;
    let (token, gate, gamma) = (tensor(&[b, TOKENS, h, d]), tensor(&[b, TOKENS, h]), tensor(&[b, TOKENS, h, window]));
    let tokens = LayerTokens { memory: [&token; 3], attention: [&token; 3], gates: [&gate; 3], gamma: &gamma };
    let y = || Tensor::zeros(&cpu, DType::F32, [b, TOKENS, h, d]).unwrap();
    let pushes = |layer: &mut AtlasLayer, refusals: bool| {
        let narrow = tensor(&[b, TOKENS, h, d - 1]);
        let mut bytes = vec![];
        let mut last = vec![];
        for _ in 0..5 {
            if refusals {
                let attention = [&token, &token, &narrow];
                assert!(layer.push(&LayerTokens { attention, ..tokens }, &mut y()).is_err());
            }
            let mut out = y();
            layer.push(&tokens, &mut out).unwrap();
            bytes.push(layer.bytes());
            last = out.to_f64_vec().unwrap();
        }
        (bytes, last)
    };
    let (bytes, wanted) = pushes(&mut make(), false);
    assert!(bytes[2..].iter().all(|b| *b == bytes[2]), "{bytes:?}");
    assert_eq!(pushes(&mut make(), true), (bytes, wanted));
}
