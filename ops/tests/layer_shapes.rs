//! What does not fit a layer is told by the name of its field, with the shape that is wanted, before any launch.

use super::layer::{PREFIX, rule, sizes};
use atlas_dsl::DType;
use atlas_ops::layer::{
    AtlasLayer, Combine, ContextWeights, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual,
};
use atlas_ops::omega::{MemoryForm, OmegaRule};
use atlas_runtime::{Device, Result, Tensor};

const T: usize = 9;
const CONTEXT: Combine = Combine::Context { segment: 16 };

fn zeros(dtype: DType, shape: &[usize]) -> Tensor {
    Tensor::zeros(&crate::device(), dtype, shape).unwrap()
}

fn f32s(shape: &[usize]) -> Tensor {
    zeros(DType::F32, shape)
}

fn weights(s: &LayerSizes, rule: &LayerRule) -> LayerWeights {
    let (h, d) = (s.heads, s.width);
    let square = || f32s(&[h * d, h * d]);
    LayerWeights {
        prefix_keys: f32s(&[h, PREFIX, d]),
        prefix_values: f32s(&[h, PREFIX, d]),
        memory_norm: f32s(&[h, d]),
        attention_norm: f32s(&[h, d]),
        inner_norm: matches!(rule.memory.memory, MemoryForm::Normed { .. }).then(|| f32s(&[h, d])),
        context: matches!(rule.combine, Combine::Context { .. }).then(|| ContextWeights {
            recalled: [square(), square()],
            memory: [square(), square(), square()],
            norms: Some([f32s(&[h, d]), f32s(&[h, d])]),
        }),
    }
}

fn memory(s: &LayerSizes, rule: &LayerRule) -> Vec<Tensor> {
    let shapes = rule.memory.memory.matrices(rule.features.features(s.width), s.width, s.hidden);
    shapes.iter().map(|[rows, cols]| f32s(&[s.sequences, s.heads, *rows, *cols])).collect()
}

fn made(s: &LayerSizes, rule: &LayerRule) -> Result<AtlasLayer> {
    AtlasLayer::new(&crate::device(), *s, rule.clone(), weights(s, rule), &memory(s, rule))
}

/// Tensors of a piece: those of the memory and of the attention, gates, gamma and `y`.
fn piece(s: &LayerSizes, rule: &LayerRule) -> Vec<Tensor> {
    let (b, h, d) = (s.sequences, s.heads, s.width);
    let mut made: Vec<Tensor> = (0..6).map(|_| f32s(&[b, T, h, d])).collect();
    made.extend((0..3).map(|_| f32s(&[b, T, h])));
    made.push(f32s(&[b, T, h, rule.memory.chunking.window]));
    made.push(f32s(&[b, T, h, d]));
    made
}

fn push(layer: &mut AtlasLayer, x: &[Tensor]) -> Result<()> {
    let tokens = LayerTokens {
        memory: [&x[0], &x[1], &x[2]],
        attention: [&x[3], &x[4], &x[5]],
        gates: [&x[6], &x[7], &x[8]],
        gamma: &x[9],
    };
    layer.push(&tokens, &mut x[10].clone())
}

const FIELDS: [&str; 11] = [
    "tokens.memory[0]",
    "tokens.memory[1]",
    "tokens.memory[2]",
    "tokens.attention[0]",
    "tokens.attention[1]",
    "tokens.attention[2]",
    "tokens.gates[0]",
    "tokens.gates[1]",
    "tokens.gates[2]",
    "tokens.gamma",
    "y",
];

/// An error that names this field of the layer, and no kernel.
fn names(error: &str, code: &str, field: &str) -> bool {
    error.starts_with(&format!("error[{code}]: `{field}` of `atlas_layer`"))
}

#[test]
fn tokens_are_told_by_the_names_of_their_fields() {
    let s = sizes();
    let refused = |layer: &mut AtlasLayer, x: &[Tensor]| push(layer, x).unwrap_err().to_string();
    for combine in [Combine::Alone, Combine::Gate, Combine::Sequence, CONTEXT] {
        let rule = rule(combine);
        let mut layer = made(&s, &rule).unwrap();
        push(&mut layer, &piece(&s, &rule)).unwrap();
        let before: Vec<Vec<f32>> = layer.memory().iter().map(|t| t.to_vec().unwrap()).collect();
        for (at, field) in FIELDS.into_iter().enumerate() {
            let reads_attention = matches!(combine, Combine::Gate | CONTEXT);
            let is_read = match at {
                1 | 2 => combine != CONTEXT,
                3..6 => reads_attention,
                _ => true,
            };
            let given = piece(&s, &rule);
            // Each axis one longer, no axes, and other elements.
            for axis in (0..given[at].rank()).filter(|axis| is_read && (at, *axis) != (0, 1)) {
                let mut x = given.clone();
                let mut shape = x[at].shape().to_vec();
                shape[axis] += 1;
                x[at] = f32s(&shape);
                let error = refused(&mut layer, &x);
                assert!(names(&error, "ATL604", field), "{combine:?} {field} {axis}: {error}");
                let wanted = format!("{:?}", given[at].shape());
                assert!(error.contains(&format!("{shape:?}")) && error.contains(&wanted), "{error}");
            }
            if is_read {
                let with = |other: Tensor| {
                    let mut x = given.clone();
                    x[at] = other;
                    x
                };
                let error = refused(&mut layer, &with(f32s(&[])));
                assert!(names(&error, "ATL603", field), "{combine:?} {field}: {error}");
                let error = refused(&mut layer, &with(zeros(DType::F16, given[at].shape())));
                assert!(names(&error, "ATL605", field), "{combine:?} {field}: {error}");
            }
        }
        let after: Vec<Vec<f32>> = layer.memory().iter().map(|t| t.to_vec().unwrap()).collect();
        assert_eq!(before, after);
    }
}

#[test]
fn weights_are_told_by_the_names_of_their_fields() {
    type Field = (&'static str, fn(&mut LayerWeights) -> &mut Tensor);
    fn context(w: &mut LayerWeights) -> &mut ContextWeights {
        w.context.as_mut().unwrap()
    }
    let fields: [Field; 12] = [
        ("prefix_keys", |w| &mut w.prefix_keys),
        ("prefix_values", |w| &mut w.prefix_values),
        ("memory_norm", |w| &mut w.memory_norm),
        ("attention_norm", |w| &mut w.attention_norm),
        ("inner_norm", |w| w.inner_norm.as_mut().unwrap()),
        ("context.recalled[0]", |w| &mut context(w).recalled[0]),
        ("context.recalled[1]", |w| &mut context(w).recalled[1]),
        ("context.memory[0]", |w| &mut context(w).memory[0]),
        ("context.memory[1]", |w| &mut context(w).memory[1]),
        ("context.memory[2]", |w| &mut context(w).memory[2]),
        ("context.norms[0]", |w| &mut context(w).norms.as_mut().unwrap()[0]),
        ("context.norms[1]", |w| &mut context(w).norms.as_mut().unwrap()[1]),
    ];
    let (s, plain) = (sizes(), rule(CONTEXT));
    let memory_rule = OmegaRule { memory: MemoryForm::Normed { eps: 1e-5 }, ..plain.memory };
    let rule = LayerRule { memory: memory_rule, ..plain };
    made(&s, &rule).unwrap();
    let refused = |weights: LayerWeights, memory: &[Tensor]| {
        AtlasLayer::new(&crate::device(), s, rule.clone(), weights, memory).err().unwrap().to_string()
    };
    for (name, field) in fields {
        let with = |other: Tensor| {
            let mut weights = weights(&s, &rule);
            *field(&mut weights) = other;
            refused(weights, &memory(&s, &rule))
        };
        let shape = field(&mut weights(&s, &rule)).shape().to_vec();
        // The heads, or the elements, one more.
        for axis in [0, shape.len() - 1] {
            let mut other = shape.clone();
            other[axis] += 1;
            let error = with(f32s(&other));
            assert!(names(&error, "ATL604", name) && error.contains(&format!("{shape:?}")), "{name}: {error}");
        }
        assert!(names(&with(f32s(&[3])), "ATL603", name), "{name}");
        assert!(names(&with(zeros(DType::Bf16, &shape)), "ATL605", name), "{name}");
    }
    for (at, name) in ["memory[0]", "memory[1]"].into_iter().enumerate() {
        let mut own = memory(&s, &rule);
        let shape = own[at].shape().to_vec();
        own[at] = zeros(DType::Bf16, &shape);
        assert!(names(&refused(weights(&s, &rule), &own), "ATL605", name));
        own[at] = f32s(&[shape[0], shape[1], shape[3], shape[2]]);
        assert!(names(&refused(weights(&s, &rule), &own), "ATL604", name));
    }
    let error = refused(LayerWeights { inner_norm: None, ..weights(&s, &rule) }, &memory(&s, &rule));
    assert!(error.contains("`atlas_layer` takes a tensor `inner_norm`") && error.contains("`LayerWeights`"), "{error}");
}

#[test]
fn sizes_of_nothing_are_refused() {
    let s = sizes();
    let refused = |s: LayerSizes, combine: Combine| made(&s, &rule(combine)).err().map(|e| e.to_string());
    for combine in [Combine::Alone, Combine::Gate, Combine::Sequence, CONTEXT] {
        for s in [LayerSizes { heads: 0, ..s }, LayerSizes { width: 0, ..s }] {
            let error = refused(s, combine).unwrap();
            assert!(error.contains("ATL651") && error.contains("`LayerSizes::width`"), "{error}");
        }
        let error = refused(LayerSizes { piece: 0, ..s }, combine).unwrap();
        assert!(error.contains("ATL651") && error.contains("`LayerSizes::piece`"), "{error}");
        let error = refused(LayerSizes { window: 0, ..s }, combine);
        match combine {
            Combine::Gate | Combine::Sequence => {
                let error = error.unwrap();
                assert!(error.contains("ATL651") && error.contains("`LayerSizes::window`"), "{error}");
            }
            _ => assert_eq!(error, None, "{combine:?} has no window"),
        }
    }
    let error = refused(s, Combine::Context { segment: 0 }).unwrap();
    assert!(error.contains("ATL651") && error.contains("segments of 0 tokens"), "{error}");
}

#[test]
fn no_sequences_give_nothing() {
    let s = LayerSizes { sequences: 0, ..sizes() };
    let maps = [
        FeatureMap::None,
        FeatureMap::Elementwise([1.0, 0.5, -0.25]),
        FeatureMap::Polynomial(vec![0.5, 1.0, -0.3]),
        FeatureMap::ExpTaylor { degree: 3 },
    ];
    for features in maps {
        for combine in [Combine::Alone, Combine::Gate, Combine::Sequence, CONTEXT] {
            let rule = LayerRule { features: features.clone(), residual: Residual::None, ..rule(combine) };
            let mut layer = made(&s, &rule).unwrap();
            let pushed = push(&mut layer, &piece(&s, &rule)).map_err(|e| e.to_string());
            assert_eq!(pushed, Ok(()), "{features:?} {combine:?}");
        }
    }
}

#[test]
fn feature_maps_say_what_they_take() {
    let s = sizes();
    let refused = |features: FeatureMap| {
        let rule = LayerRule { features, residual: Residual::None, ..rule(Combine::Alone) };
        let none: [Tensor; 0] = [];
        AtlasLayer::new(&crate::device(), s, rule.clone(), weights(&s, &rule), &none).err().unwrap().to_string()
    };
    for degree in [0, 1, 4, usize::MAX] {
        let error = refused(FeatureMap::ExpTaylor { degree });
        let says = format!("`FeatureMap::ExpTaylor` of degree {degree}; give a degree of 2 or 3");
        assert!(error.contains("ATL651") && error.contains(&says), "{error}");
    }
    let error = refused(FeatureMap::Polynomial(vec![1.0]));
    assert!(error.contains("`FeatureMap::Polynomial` of 1 coefficients; give three or four"), "{error}");
    let error = refused(FeatureMap::Favor { projections: f32s(&[24, s.width + 1]) });
    assert!(names(&error, "ATL604", "projections"), "{error}");
    let error = refused(FeatureMap::Favor { projections: zeros(DType::Bf16, &[24, s.width]) });
    assert!(names(&error, "ATL605", "projections"), "{error}");
}

#[test]
fn tensors_of_another_device_are_told_by_the_names_of_their_fields() {
    let (sim, s, rule) = (Device::sim("sm_90a").unwrap(), sizes(), rule(Combine::Gate));
    let elsewhere = |t: &Tensor| Tensor::zeros(&sim, t.dtype(), t.shape()).unwrap();
    let mut layer = made(&s, &rule).unwrap();
    for (at, field) in FIELDS.into_iter().enumerate() {
        let mut x = piece(&s, &rule);
        x[at] = elsewhere(&x[at]);
        let error = push(&mut layer, &x).unwrap_err().to_string();
        assert!(names(&error, "ATL611", field), "{error}");
    }
    let refused = |weights: LayerWeights, memory: &[Tensor]| {
        AtlasLayer::new(&crate::device(), s, rule.clone(), weights, memory).err().unwrap().to_string()
    };
    let own = weights(&s, &rule);
    let error =
        refused(LayerWeights { prefix_values: elsewhere(&own.prefix_values), ..own.clone() }, &memory(&s, &rule));
    assert!(names(&error, "ATL611", "prefix_values"), "{error}");
    let mut other = memory(&s, &rule);
    other[1] = elsewhere(&other[1]);
    let error = refused(own, &other);
    assert!(names(&error, "ATL611", "memory[1]"), "{error}");
}

/// A window that nothing looks through takes no room, and a feature map of too many columns is refused like any other.
#[test]
fn sizes_that_no_device_has_room_for() {
    let s = sizes();
    for combine in [Combine::Alone, CONTEXT] {
        let of = |window: usize| made(&LayerSizes { window, ..s }, &rule(combine)).map(|layer| layer.bytes()).unwrap();
        assert_eq!([of(0), of(usize::MAX)], [of(1); 2], "{combine:?}");
    }
    let refused = |s: LayerSizes, rule: LayerRule| made(&s, &rule).err().map(|e| e.to_string()).unwrap_or_default();
    for combine in [Combine::Gate, Combine::Sequence] {
        let error = refused(LayerSizes { window: usize::MAX, ..s }, rule(combine));
        assert!(error.contains("ATL637"), "{error}");
    }
    let features = FeatureMap::ExpTaylor { degree: 3 };
    assert_eq!(features.features(1 << 22), usize::MAX);
    let rule = LayerRule { features, residual: Residual::None, ..rule(Combine::Alone) };
    let none: [Tensor; 0] = [];
    let s = LayerSizes { width: 1 << 22, ..s };
    let error = AtlasLayer::new(&crate::device(), s, rule.clone(), weights(&sizes(), &rule), &none).err().unwrap();
    assert!(error.to_string().contains("a memory of 0 matrices"), "{error}");
}
