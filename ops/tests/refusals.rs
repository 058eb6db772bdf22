//! What several launches make is refused before the first of them has written anything.

use atlas_dsl::DType;
use atlas_ops::layer::{
    AtlasLayer, Combine, ContextWeights, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual,
};
use atlas_ops::muon::{Muon, MuonMatrix, MuonSpace, MuonSpaces, NewtonSchulz, StepScale};
use atlas_ops::omega::backward::{OmegaTraining, TrainingSizes};
use atlas_ops::omega::{Chunking, Loss, OmegaPacked, OmegaRule, OmegaStream, StreamSizes, Tokens};
use atlas_runtime::{Result, Stream, Tensor};

fn rule(chunking: Chunking) -> OmegaRule {
    OmegaRule { loss: Loss::Scaled(1.5), ..OmegaRule::omega_net(chunking) }
}
const D: usize = 4;
const M: usize = 6;
const W: usize = 3;
const T: usize = 10;

fn of(shape: &[usize], seed: usize) -> Tensor {
    let noise = |i: usize| {
        let x = ((i + seed * 7919) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        0.5 * (((x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1 << 23) as f32 - 1.0)
    };
    crate::device().tensor_from(&(0..shape.iter().product()).map(noise).collect::<Vec<f32>>(), shape).unwrap()
}

fn all(tensors: &[Tensor]) -> Vec<Vec<f32>> {
    tensors.iter().map(|t| t.to_vec().unwrap()).collect()
}

/// The tokens of a rule by their numbers: q, k, v, rq, rk, alpha, theta, eta, gamma.
fn sequence(tokens: usize) -> Vec<Tensor> {
    let shape = |i: usize| match i {
        0..5 => vec![1, tokens, 1, D],
        5..8 => vec![1, tokens, 1],
        _ => vec![1, tokens, 1, W],
    };
    (0..9).map(|i| of(&shape(i), i)).collect()
}

fn tokens(x: &[Tensor]) -> Tokens<'_> {
    let [q, k, v, rq, rk, alpha, theta, eta, gamma] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|i| &x[i]);
    Tokens { q, k, v, rq, rk, alpha, theta, eta, gamma }
}

fn memory(sequences: usize) -> Vec<Tensor> {
    let shapes = [[sequences, 1, D, M], [sequences, 1, M, D]];
    (0..4).map(|i| of(&shapes[i % 2], 20 + i)).collect()
}

fn stream_sizes(sequences: usize, piece: usize) -> StreamSizes {
    StreamSizes { sequences, heads: 1, key: D, value: D, piece, dtype: DType::F32 }
}

fn push(x: &[Tensor], memory: &mut [Tensor], y: &mut Tensor) -> Result<()> {
    let mut stream = OmegaStream::new(&crate::device(), rule(Chunking::new(2, W)), stream_sizes(1, 4)).unwrap();
    stream.push(&tokens(x), &mut memory.iter_mut().collect::<Vec<_>>(), y)
}

fn launch_packed(x: &[Tensor], memory: &mut [Tensor], y: &mut Tensor) -> Result<()> {
    let on = Stream::default_of(&crate::device());
    let mut packed = OmegaPacked::new(&on, rule(Chunking::new(2, W)), stream_sizes(2, 8)).unwrap();
    let starts = crate::device().tensor_from(&[0, 4, T as i32], [3]).unwrap();
    packed.launch(&on, &tokens(x), &starts, &mut memory.iter_mut().collect::<Vec<_>>(), y)
}

type Push = fn(&[Tensor], &mut [Tensor], &mut Tensor) -> Result<()>;

const PUSHES: [(&str, usize, Push); 2] = [("stream", 1, push), ("packed", 2, launch_packed)];

#[test]
fn tokens_and_outputs_of_another_length() {
    for (name, sequences, push) in PUSHES {
        for at in 0..10 {
            for length in [T - 1, T + 3] {
                let (mut x, mut memory) = (sequence(T), memory(sequences));
                let mut y = of(&[1, T, 1, D], 30);
                let odd = if at < 9 { sequence(length).swap_remove(at) } else { of(&[1, length, 1, D], 30) };
                if at < 9 {
                    x[at] = odd
                } else {
                    y = odd
                }
                let before = (all(&memory), all(std::slice::from_ref(&y)));
                let refused = push(&x, &mut memory, &mut y);
                assert!(refused.unwrap_err().to_string().contains("ATL604"), "{name} {at} {length}");
                assert_eq!((all(&memory), all(std::slice::from_ref(&y))), before, "{name} {at} {length}");
            }
        }
        // As a rank that has no tokens.
        let (mut x, mut memory) = (sequence(T), memory(sequences));
        x[0] = of(&[D], 1);
        assert!(push(&x, &mut memory, &mut of(&[1, T, 1, D], 30)).is_err(), "{name}");
    }
}

#[test]
fn packed_documents_are_of_one_sequence() {
    let twice = |t: &Tensor| {
        let mut shape = t.shape().to_vec();
        shape[0] = 2;
        t.expand(shape).unwrap()
    };
    let x: Vec<Tensor> = sequence(T).iter().map(twice).collect();
    let mut memory = memory(2);
    let before = all(&memory);
    let refused = launch_packed(&x, &mut memory, &mut of(&[2, T, 1, D], 30)).unwrap_err().to_string();
    let says = format!("`q` of `omega_mlp` has shape [2, {T}, 1, {D}], but [B, T, H, D] is [1, {T}, 1, {D}] here");
    assert!(refused.contains(&says), "{refused}");
    let refused = launch_packed(&sequence(T), &mut memory, &mut of(&[2, T, 1, D], 30)).unwrap_err().to_string();
    assert!(refused.contains("ATL6"), "{refused}");
    // One document too few: its end is missing.
    let on = Stream::default_of(&crate::device());
    let mut packed = OmegaPacked::new(&on, rule(Chunking::new(2, W)), stream_sizes(2, 8)).unwrap();
    let starts = crate::device().tensor_from(&[0, T as i32], [2]).unwrap();
    let (x, mut y) = (sequence(T), of(&[1, T, 1, D], 30));
    let mut state: Vec<&mut Tensor> = memory.iter_mut().collect();
    let refused = packed.launch(&on, &tokens(&x), &starts, &mut state, &mut y).unwrap_err().to_string();
    assert!(refused.contains("ATL604") && refused.contains("`starts`"), "{refused}");
    assert_eq!(all(&memory), before);
}

#[test]
fn packed_tokens_are_told_by_the_names_of_their_fields() {
    let fields = ["q", "k", "v", "rq", "rk", "alpha", "theta", "eta", "gamma"];
    let mut memory = memory(2);
    let before = all(&memory);
    for (at, field) in fields.into_iter().enumerate() {
        let mut x = sequence(T);
        let mut shape = x[at].shape().to_vec();
        *shape.last_mut().unwrap() += 1;
        x[at] = of(&shape, at);
        let refused = launch_packed(&x, &mut memory, &mut of(&[1, T, 1, D], 30)).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("error[ATL604]: `{field}` of `omega_mlp` has shape")), "{refused}");
    }
    // Boundaries of more and of fewer documents than there are memories.
    let on = Stream::default_of(&crate::device());
    for count in [2, 4] {
        let mut packed = OmegaPacked::new(&on, rule(Chunking::new(2, W)), stream_sizes(2, 8)).unwrap();
        let starts = crate::device().tensor_from(&[0, 4, 7, T as i32][4 - count..], [count]).unwrap();
        let mut y = of(&[1, T, 1, D], 30);
        let x = sequence(T);
        let refused = packed.launch(&on, &tokens(&x), &starts, &mut memory.iter_mut().collect::<Vec<_>>(), &mut y);
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains(&format!("`starts` of `omega_mlp` has shape [{count}], but [B + 1] is [3]")),
            "{refused}"
        );
    }
    assert_eq!(all(&memory), before);
}

#[test]
fn a_memory_of_its_own_and_of_as_many_tensors_as_the_chain_has() {
    for (name, sequences, push) in PUSHES {
        let x = sequence(T);
        let mut y = of(&[1, T, 1, D], 30);
        let mut five = memory(sequences);
        five.push(of(&[1], 3));
        let refused = push(&x, &mut five, &mut y).unwrap_err().to_string();
        assert!(refused.contains("takes 4 arguments (w1, w2, s1, s2), but is given 5"), "{name}: {refused}");
        // `y`, or the tokens, in the memory.
        let large = of(&[sequences * T * D], 40);
        let part = |len: usize| large.slice(0, 0..len).unwrap();
        let mut shared = memory(sequences);
        shared[0] = part(sequences * D * M).reshape([sequences, 1, D, M]).unwrap();
        let before = all(&shared);
        let refused = push(&x, &mut shared, &mut part(T * D).reshape([1, T, 1, D]).unwrap());
        assert!(refused.unwrap_err().to_string().contains("ATL609"), "{name}");
        let mut x = sequence(T);
        x[2] = part(T * D).reshape([1, T, 1, D]).unwrap();
        assert!(push(&x, &mut shared, &mut y).unwrap_err().to_string().contains("ATL609"), "{name}");
        assert_eq!(all(&shared), before, "{name}");
    }
}

#[test]
fn what_is_read_may_take_the_place_of_tokens_but_not_of_later_ones() {
    let (mut wanted, mut own) = (of(&[1, T, 1, D], 30), memory(1));
    push(&sequence(T), &mut own, &mut wanted).unwrap();
    let x = sequence(T);
    let mut y = x[2].clone();
    push(&x, &mut memory(1), &mut y).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), wanted.to_vec::<f32>().unwrap());
    let long = of(&[1, T + 1, 1, D], 2);
    let mut x = sequence(T);
    x[2] = long.slice(1, 1..T + 1).unwrap();
    let refused = push(&x, &mut memory(1), &mut long.slice(1, 0..T).unwrap());
    assert!(refused.unwrap_err().to_string().contains("ATL609"));
}

#[test]
fn a_refusal_leaves_a_stream_as_it_was() {
    let cpu = crate::device();
    let part = |x: &[Tensor], from: usize, to: usize| -> Vec<Tensor> {
        x.iter().map(|t| t.slice(1, from..to).unwrap()).collect()
    };
    let whole = sequence(T);
    let mut wanted = of(&[1, T, 1, D], 30);
    push(&whole, &mut memory(1), &mut wanted).unwrap();
    let mut stream = OmegaStream::new(&cpu, rule(Chunking::new(2, W)), stream_sizes(1, 4)).unwrap();
    let (mut memory, y) = (memory(1), of(&[1, T, 1, D], 30));
    for (from, to) in [(0, 3), (3, T)] {
        let x = part(&whole, from, to);
        let mut states: Vec<&mut Tensor> = memory.iter_mut().collect();
        let mut narrow = of(&[1, to - from, 1, D - 1], 1);
        assert!(stream.push(&tokens(&x), &mut states, &mut narrow).is_err());
        stream.push(&tokens(&x), &mut states, &mut y.slice(1, from..to).unwrap()).unwrap();
    }
    assert_eq!(y.to_vec::<f32>().unwrap(), wanted.to_vec::<f32>().unwrap());
}

fn layer(combine: Combine, piece: usize) -> AtlasLayer {
    let sizes = LayerSizes { sequences: 1, heads: 1, width: D, hidden: M, window: 5, piece, dtype: DType::F32 };
    let (memory, features) = (rule(Chunking::new(2, W)), FeatureMap::Elementwise([1.0, 0.5, 0.25]));
    let rule = LayerRule { combine, memory, features, residual: Residual::Raw, eps: 1e-6 };
    let weights = LayerWeights {
        prefix_keys: of(&[1, 2, D], 1),
        prefix_values: of(&[1, 2, D], 2),
        memory_norm: of(&[1, D], 3),
        attention_norm: of(&[1, D], 4),
        inner_norm: None,
        context: matches!(combine, Combine::Context { .. }).then(|| ContextWeights {
            recalled: [of(&[D, D], 7), of(&[D, D], 8)],
            memory: [of(&[D, D], 9), of(&[D, D], 10), of(&[D, D], 11)],
            norms: Some([of(&[1, D], 12), of(&[1, D], 13)]),
        }),
    };
    AtlasLayer::new(&crate::device(), sizes, rule, weights, &[of(&[1, 1, D, M], 5), of(&[1, 1, M, D], 6)]).unwrap()
}

/// q, k, v of the memory and of the attention, three gates, gamma.
fn layer_sequence(tokens: usize) -> Vec<Tensor> {
    let shape = |i: usize| match i {
        0..6 => vec![1, tokens, 1, D],
        6..9 => vec![1, tokens, 1],
        _ => vec![1, tokens, 1, W],
    };
    (0..10).map(|i| of(&shape(i), 50 + i)).collect()
}

fn layer_tokens(x: &[Tensor]) -> LayerTokens<'_> {
    LayerTokens {
        memory: [&x[0], &x[1], &x[2]],
        attention: [&x[3], &x[4], &x[5]],
        gates: [&x[6], &x[7], &x[8]],
        gamma: &x[9],
    }
}

#[test]
fn a_layer_is_as_it_was_after_a_refusal() {
    for combine in [Combine::Gate, Combine::Sequence, Combine::Context { segment: 4 }] {
        let mut wanted = of(&[1, T, 1, D], 70);
        layer(combine, 4).push(&layer_tokens(&layer_sequence(T)), &mut wanted).unwrap();
        let mut layer = layer(combine, 4);
        let early = layer.last_read(1).unwrap_err().to_string();
        assert!(early.contains("ATL651") && early.contains("no token has been pushed; push tokens first"), "{early}");
        let before = all(layer.memory());
        for at in 0..10 {
            // A layer whose attention reads its memory reads no tokens of the attention.
            if combine == Combine::Sequence && (3..6).contains(&at) {
                continue;
            }
            // One that sees what is recalled makes the memory's keys and values itself.
            if matches!(combine, Combine::Context { .. }) && (1..3).contains(&at) {
                continue;
            }
            for length in [T - 1, T + 1] {
                let mut x = layer_sequence(T);
                x[at] = layer_sequence(length).swap_remove(at);
                let mut y = of(&[1, T, 1, D], 70);
                let refused = layer.push(&layer_tokens(&x), &mut y).unwrap_err().to_string();
                assert!(refused.contains("ATL604"), "{combine:?} {at}: {refused}");
                assert_eq!(all(&[y]), all(&[of(&[1, T, 1, D], 70)]), "{combine:?} {at}");
            }
        }
        for shape in [vec![], vec![T], vec![1, T, 1, D + 1]] {
            let mut x = layer_sequence(T);
            x[0] = of(&shape, 1);
            assert!(layer.push(&layer_tokens(&x), &mut of(&[1, T, 1, D], 70)).is_err(), "{combine:?} {shape:?}");
        }
        let mut inside = layer.memory()[0].reshape([1, M, 1, D]).unwrap();
        assert!(layer.push(&layer_tokens(&layer_sequence(M)), &mut inside).is_err());
        assert_eq!(all(layer.memory()), before, "{combine:?}");
        let mut y = of(&[1, T, 1, D], 70);
        layer.push(&layer_tokens(&layer_sequence(T)), &mut y).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), wanted.to_vec::<f32>().unwrap());
        // Pieces of four, four and two tokens.
        assert_eq!(layer.last_read(2).unwrap().shape(), [1, 2, 1, D]);
        let refused = layer.last_read(3).unwrap_err().to_string();
        let wanted =
            "`last_read` of 3 tokens, where the piece that was computed last has 2; ask for no more than these";
        assert!(refused.contains("ATL651") && refused.contains(wanted), "{refused}");
    }
}

fn optimiser() -> Muon {
    Muon { rate: 0.1, momentum: 0.9, scale: StepScale::One, dtype: DType::F32, ..Muon::torch() }
}

#[test]
fn muon_refuses_tensors_that_share_memory() {
    let on = Stream::default_of(&crate::device());
    let step = |list: &mut [MuonMatrix<'_>]| optimiser().step(&on, list, &mut MuonSpaces::default());
    let [mut a, mut b, g, h] = [1, 2, 3, 4].map(|seed| of(&[3, 5], seed));
    let before = all(&[a.clone(), b.clone()]);
    let mut same = a.clone();
    let refused = step(&mut [MuonMatrix { w: &mut a, buf: &mut same, g: &g }]).unwrap_err().to_string();
    assert!(refused.contains("ATL609"), "{refused}");
    // Of two matrices: one is the other's momentum, or its gradient.
    let (mut c, gradient) = (of(&[3, 5], 5), b.clone());
    let mut list = [
        MuonMatrix { w: &mut a, buf: &mut b, g: &g },
        MuonMatrix { w: &mut c, buf: &mut of(&[3, 5], 6), g: &gradient },
    ];
    assert!(step(&mut list).unwrap_err().to_string().contains("ATL609"));
    assert_eq!(all(&[a.clone(), b.clone()]), before);
    // Gradients may be one tensor, and matrices may interleave.
    let columns = of(&[3, 10], 7);
    let [mut left, mut right] = [0, 5].map(|from| columns.slice(1, from..from + 5).unwrap());
    let mut list = [MuonMatrix { w: &mut a, buf: &mut b, g: &h }, MuonMatrix { w: &mut left, buf: &mut right, g: &h }];
    step(&mut list).unwrap();
}

#[test]
fn newton_schulz_on_outputs_of_other_shapes() {
    let on = Stream::default_of(&crate::device());
    for steps in [5, 0] {
        let iteration = NewtonSchulz { steps: vec![[3.4445, -4.775, 2.0315]; steps], ..NewtonSchulz::classic() };
        let mut space = MuonSpace::new(&on, &iteration, DType::F32, 1, 3, 5).unwrap();
        for (given, out) in [
            (&[1, 3, 5][..], &[][..]),
            (&[], &[1, 3, 5]),
            (&[3, 5], &[1, 3, 5]),
            (&[1, 5, 3], &[5, 3]),
            (&[1, 3, 5], &[1, 5, 3]),
            (&[1, 3, 5], &[2, 3, 5]),
        ] {
            let launched = iteration.launch(&on, &of(given, 1), &mut of(out, 2), &mut space);
            assert!(launched.is_err(), "{given:?} to {out:?}");
        }
        iteration.launch(&on, &of(&[1, 5, 3], 1), &mut of(&[1, 5, 3], 2), &mut space).unwrap();
    }
}

#[test]
fn workspaces_of_lists_that_come_no_more_make_room() {
    let on = Stream::default_of(&crate::device());
    let mut spaces = MuonSpaces::default();
    let mut step = |count: usize, of_what: &Muon| {
        let mut made: Vec<[Tensor; 3]> = (0..count).map(|i| [0, 1, 2].map(|k| of(&[3, 5], 3 * i + k))).collect();
        let mut list: Vec<MuonMatrix<'_>> = made.iter_mut().map(|[w, buf, g]| MuonMatrix { w, buf, g }).collect();
        of_what.step(&on, &mut list, &mut spaces).unwrap();
        spaces.bytes()
    };
    let held = [10, 9, 8, 7, 6, 5].map(|count| step(count, &optimiser()));
    assert!(held[3] > held[4] && held[4] > held[5], "{held:?}");
    // What is known is used again.
    assert_eq!([6, 5, 7, 8].map(|count| step(count, &optimiser())), [held[5]; 4]);
    // A workspace of another form is no workspace of this one.
    let wide = |iteration: NewtonSchulz, spaces: &mut MuonSpaces| {
        let [mut w, mut buf, g] = [1, 2, 3].map(|seed| of(&[2, 40], seed));
        let of = Muon { iteration, ..optimiser() };
        of.step(&on, &mut [MuonMatrix { w: &mut w, buf: &mut buf, g: &g }], spaces).unwrap();
        w.to_vec::<f32>().unwrap()
    };
    let alone = wide(NewtonSchulz::classic().gram(), &mut MuonSpaces::default());
    let mut shared = MuonSpaces::default();
    wide(NewtonSchulz::classic(), &mut shared);
    assert_eq!(wide(NewtonSchulz::classic().gram(), &mut shared), alone);
}

#[test]
fn chunks_of_any_number_of_tokens() {
    let none = Chunking { chunk: 0, window: 1, halo: true };
    assert_eq!(none.dims(1, 1, 5), Chunking::new(1, 1).dims(1, 1, 5));
    assert_eq!(Chunking::new(usize::MAX - 2, 5).keys(), usize::MAX);
    assert_eq!(Chunking::new(usize::MAX, 1).keys(), usize::MAX);
    for chunking in [Chunking::new(usize::MAX, 1), Chunking::new(usize::MAX - 2, 5), Chunking::new(4, usize::MAX)] {
        let made = OmegaStream::new(&crate::device(), rule(chunking), stream_sizes(1, 4));
        assert!(made.is_err(), "{chunking:?}");
    }
}

/// Not as chunks for which there is no room, which the message of a GPU's kernels would say.
#[test]
fn tokens_of_a_type_that_no_kernel_takes() {
    let (device, on) = (crate::device(), Stream::default_of(&crate::device()));
    for dtype in [DType::I32, DType::F64, DType::F32] {
        let sizes = StreamSizes { dtype, ..stream_sizes(1, 4) };
        let of_training = TrainingSizes { sequences: 1, tokens: T, heads: 1, key: D, value: D, hidden: M, dtype };
        let made = [
            OmegaTraining::new(&device, rule(Chunking::new(2, W)), of_training, None).map(drop),
            OmegaStream::new(&device, rule(Chunking::new(2, W)), sizes).map(drop),
            OmegaPacked::new(&on, rule(Chunking::new(2, W)), sizes).map(drop),
        ];
        for made in made {
            let wanted = format!("error[ATL651]: `omega_mlp`: tokens of {dtype}; take tokens of f32, bf16 or f16");
            let found = made.err().map(|e| e.to_string());
            assert_eq!(found, (dtype != DType::F32).then_some(wanted));
        }
    }
}
