//! Gradients of the Omega rule against those of its definition, token by token, at every edge; and mistakes that must show.

use atlas_dsl::DType;
use atlas_ops::Comparison;
use atlas_ops::omega::backward::check::{Found, Named, TrainingCase, compared};
use atlas_ops::omega::backward::reference::{Forgotten, HeadInputs, How, MemoryState, Norm, recurrence};
use atlas_ops::omega::backward::tape::{Matrix, Tape};
use atlas_ops::omega::check::Case;
use atlas_ops::omega::reference::{Gates, Sequence, SequenceSizes, State};
use atlas_ops::omega::{Chunking, Loss, MemoryForm, OmegaRule, Read, Step, Tokens, reference};
use atlas_runtime::Tensor;

/// Small memories: of two layers, linear, gated, and with a norm inside.
const MEMORIES: [(MemoryForm, [usize; 3]); 8] = [
    (MemoryForm::Mlp, [16, 16, 32]),
    (MemoryForm::Mlp, [8, 24, 40]),
    (MemoryForm::Linear, [24, 16, 0]),
    (MemoryForm::Linear, [16, 16, 0]),
    (MemoryForm::Gated, [16, 16, 32]),
    (MemoryForm::Gated, [8, 24, 40]),
    (NORMED, [16, 16, 32]),
    (NORMED, [8, 24, 40]),
];

const NORMED: MemoryForm = MemoryForm::Normed { eps: 1e-2 };

/// A norm that sees how long its rows are. Without that, the gradients of `alpha` and `eta` are small differences of large terms, of
/// which 16 bits leave less than their bound.
const WIDE_NORMED: MemoryForm = MemoryForm::Normed { eps: 0.3 };

/// A case of two sequences and two heads, whose loss depends on the memory after them, too.
fn case(tokens: usize, of: (MemoryForm, [usize; 3]), chunk: usize, window: usize) -> TrainingCase {
    let (form, memory) = of;
    TrainingCase { of_memory: true, form, ..TrainingCase::new([2, tokens, 2], memory, Chunking::new(chunk, window)) }
}

#[track_caller]
fn holds(case: &TrainingCase, bound: f64) {
    let x = case.inputs();
    let found = case.run(&crate::device(), &x).unwrap_or_else(|e| panic!("{case:?}: {e}"));
    let missed = missed(&found, &case.expected(&x, Forgotten::Nothing), bound);
    assert!(missed.is_empty(), "{case:?}: {missed:?}");
}

/// The gradients that are further from their references than a bound.
fn missed(found: &Found, wanted: &Found, bound: f64) -> Vec<(&'static str, Comparison)> {
    compared(found, wanted).into_iter().filter(|(_, c)| !c.passes(bound)).collect()
}

#[test]
fn chunks_and_windows_of_any_length() {
    for memory in MEMORIES {
        for (tokens, chunk, window) in
            [(23, 8, 5), (16, 8, 1), (9, 4, 16), (7, 16, 3), (1, 8, 4), (10, 1, 4), (5, 5, 5), (33, 16, 33)]
        {
            holds(&case(tokens, memory, chunk, window), 1e-5);
        }
    }
}

#[test]
fn sixteen_bits_keep_their_bound() {
    for (dtype, bound) in [(DType::Bf16, 1e-2), (DType::F16, 2e-3)] {
        for (form, memory) in [
            (MemoryForm::Mlp, [48, 48, 192]),
            (MemoryForm::Linear, [64, 64, 0]),
            (MemoryForm::Gated, [48, 48, 192]),
            (WIDE_NORMED, [48, 48, 192]),
        ] {
            let chunking = Chunking::new(32, 8);
            let of = TrainingCase::new([1, 70, 1], memory, chunking);
            holds(&TrainingCase { form, dtype, of_memory: true, ..of }, bound);
        }
    }
}

#[test]
fn a_token_may_be_read_before_it_is_seen() {
    for memory in MEMORIES {
        holds(&TrainingCase { before: true, ..case(23, memory, 8, 5) }, 1e-5);
        holds(&TrainingCase { before: true, ..case(4, memory, 1, 3) }, 1e-5);
    }
}

#[test]
fn every_loss_has_gradients() {
    for memory in MEMORIES {
        for loss in [Loss::HalfSquare, Loss::MeanSquare, Loss::Scaled(0.7), Loss::Dot] {
            holds(&TrainingCase { loss, ..case(23, memory, 8, 5) }, 1e-5);
            holds(&TrainingCase { loss, before: true, ..case(23, memory, 8, 5) }, 1e-5);
        }
    }
}

/// The passes over a chunk are launches where that keeps a GPU busy; gradients do not depend on it.
#[test]
fn passes_over_a_chunk_may_be_launches() {
    let split = |of: TrainingCase| TrainingCase { is_split: Some(true), ..of };
    for memory in [[16, 16, 32], [8, 24, 40]] {
        let of = |tokens, chunk, window| split(case(tokens, (MemoryForm::Mlp, memory), chunk, window));
        for (tokens, chunk, window) in [(23, 8, 5), (16, 8, 1), (7, 16, 3), (10, 1, 4), (33, 16, 33)] {
            holds(&of(tokens, chunk, window), 1e-5);
        }
        holds(&TrainingCase { before: true, loss: Loss::Dot, segment: Some(2), ..of(39, 8, 5) }, 1e-5);
        holds(&TrainingCase { segment: Some(1), of_memory: false, ..of(23, 8, 5) }, 1e-5);
    }
    let of = TrainingCase::new([1, 70, 1], [48, 48, 192], Chunking::new(32, 8));
    holds(&TrainingCase { dtype: DType::Bf16, of_memory: true, ..split(of) }, 1e-2);
}

/// With one orthogonalised step for each chunk, which is read before it.
fn by_chunk(case: TrainingCase) -> TrainingCase {
    TrainingCase { step: Step::MuonByChunk, before: true, ..case }
}

#[test]
fn a_chunk_may_take_one_orthogonalised_step() {
    for memory in MEMORIES {
        for (tokens, chunk, window) in [(23, 8, 5), (7, 16, 3), (5, 1, 4)] {
            holds(&by_chunk(case(tokens, memory, chunk, window)), 1e-5);
        }
        holds(&TrainingCase { loss: Loss::Dot, segment: Some(2), ..by_chunk(case(39, memory, 8, 5)) }, 1e-5);
    }
}

/// Where the forward pass walks over its matrices: rows, features or hidden layers that are too wide to be held whole.
#[test]
fn orthogonalised_steps_of_wide_memories() {
    for memory in [
        (MemoryForm::Linear, [152, 16, 0]),
        (MemoryForm::Linear, [16, 100, 0]),
        (MemoryForm::Mlp, [152, 16, 24]),
        (MemoryForm::Mlp, [16, 8, 520]),
        (MemoryForm::Gated, [24, 72, 40]),
        (NORMED, [72, 16, 40]),
    ] {
        let case = by_chunk(case(11, memory, 4, 3));
        holds(&case, 1e-5);
        holds(&TrainingCase { segment: Some(1), batch: [1, 3, 2], ..case.clone() }, 1e-5);
        let x = case.inputs();
        let found = case.run(&crate::device(), &x).unwrap();
        let wrong = missed(&found, &case.expected(&x, Forgotten::Step), 1e-5);
        assert!(!wrong.is_empty(), "a step went unnoticed for {memory:?}");
    }
}

/// With more keys in a chunk than matrices have rows: with fewer, an iteration magnifies what roundings leave.
#[test]
fn orthogonalised_steps_in_sixteen_bits() {
    for (dtype, bound) in [(DType::Bf16, 3e-2), (DType::F16, 5e-3)] {
        for (form, memory) in [
            (MemoryForm::Mlp, [16, 16, 64]),
            (MemoryForm::Linear, [16, 16, 0]),
            (MemoryForm::Gated, [16, 16, 64]),
            (WIDE_NORMED, [16, 16, 64]),
        ] {
            // Several heads: the gradient by the gates of a chunk is one inner product, which may be next to 0.
            let of = TrainingCase::new([2, 70, 2], memory, Chunking::new(32, 8));
            holds(&by_chunk(TrainingCase { form, dtype, of_memory: true, ..of }), bound);
        }
    }
}

#[test]
fn mistakes_in_orthogonalised_steps_show() {
    for memory in [MEMORIES[0], MEMORIES[3], MEMORIES[4], MEMORIES[6]] {
        let case = by_chunk(case(23, memory, 8, 5));
        let x = case.inputs();
        let found = case.run(&crate::device(), &x).unwrap();
        for forgotten in [Forgotten::Step, Forgotten::Halo, Forgotten::State, Forgotten::Momentum, Forgotten::Errors] {
            let wrong = missed(&found, &case.expected(&x, forgotten), 1e-5);
            assert!(!wrong.is_empty(), "{forgotten:?} went unnoticed for {memory:?}");
        }
    }
}

#[test]
fn rules_without_gradients_are_refused() {
    for (step, before) in [(Step::MuonByToken, false), (Step::MuonByToken, true), (Step::MuonByChunk, false)] {
        let case = TrainingCase { step, before, ..case(23, MEMORIES[0], 8, 5) };
        let error = case.training(&crate::device()).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("ATL651"), "{step:?}: {error}");
    }
}

#[test]
fn windows_may_stop_at_the_start_of_their_chunk() {
    for memory in MEMORIES {
        let mut case = case(23, memory, 8, 5);
        case.chunking.halo = false;
        holds(&case, 1e-5);
    }
}

#[test]
fn a_loss_may_depend_on_what_is_read_alone() {
    for memory in MEMORIES {
        holds(&TrainingCase { of_memory: false, ..case(23, memory, 8, 5) }, 1e-5);
    }
}

fn set(x: &mut Named, name: &str, at: impl Fn(usize) -> bool, to: f32) {
    let values = x.get_mut(name).into_iter().flat_map(|t| &mut t.values);
    values.enumerate().filter(|(i, _)| at(*i)).for_each(|(_, v)| *v = to);
}

#[test]
fn gates_at_their_ends() {
    type TrainingEdit = fn(&mut Named);
    let edits: [(&str, TrainingEdit); 7] = [
        ("the memory is cleared inside a chunk", |x| set(x, "alpha", |i| i / 2 % 23 == 11, 0.0)),
        ("nothing is forgotten", |x| set(x, "alpha", |_| true, 1.0)),
        ("no momentum", |x| set(x, "theta", |_| true, 0.0)),
        ("the momentum is cleared once", |x| set(x, "theta", |i| i / 2 % 23 == 9, 0.0)),
        ("no step", |x| set(x, "eta", |_| true, 0.0)),
        ("no gradient", |x| set(x, "gamma", |_| true, 0.0)),
        ("a window without weight", |x| set(x, "gamma", |i| (8..16).contains(&(i / 10 % 23)), 0.0)),
    ];
    for memory in [MEMORIES[1], MEMORIES[3], MEMORIES[5], MEMORIES[7]] {
        for (what, edit) in edits {
            let case = TrainingCase { edit, ..case(23, memory, 8, 5) };
            let x = case.inputs();
            let found = case.run(&crate::device(), &x).unwrap();
            let missed = missed(&found, &case.expected(&x, Forgotten::Nothing), 1e-5);
            assert!(missed.is_empty(), "{what}: {memory:?}: {missed:?}");
        }
    }
}

/// Token 10 of the first sequence is NaN, and in no window.
fn nan_without_weight(x: &mut Named) {
    let width = |x: &Named, name: &str| x[name].sizes[3];
    for name in ["k", "v", "rk"] {
        let row = 2 * width(x, name);
        set(x, name, |i| i / row == 10, f32::NAN);
    }
    let w = width(x, "gamma");
    set(x, "gamma", |i| (10..10 + w).contains(&(i / (2 * w))) && i / (2 * w) - 10 == w - 1 - i % w, 0.0);
}

#[test]
fn what_has_no_weight_may_be_anything() {
    for memory in MEMORIES {
        let case = TrainingCase { edit: nan_without_weight, ..case(23, memory, 8, 5) };
        holds(&case, 1e-5);
        let found = case.run(&crate::device(), &case.inputs()).unwrap();
        assert!(found.values().flatten().all(|v| v.is_finite()), "{memory:?}");
        let row = 2 * memory.1[0];
        assert!(found["k"][10 * row..11 * row].iter().all(|v| *v == 0.0), "{memory:?}");
        assert!(found["k"][11 * row..12 * row].iter().all(|v| *v != 0.0), "{memory:?}");
    }
}

#[test]
fn segments_change_nothing() {
    for memory in MEMORIES {
        for (tokens, chunk, window) in [(39, 8, 5), (23, 4, 16)] {
            let whole = TrainingCase { segment: Some(usize::MAX), ..case(tokens, memory, chunk, window) };
            let x = whole.inputs();
            let found = whole.run(&crate::device(), &x).unwrap();
            for segment in [Some(0), Some(1), Some(2), Some(3), None] {
                let parts = TrainingCase { segment, ..whole.clone() }.run(&crate::device(), &x).unwrap();
                // Launches of other numbers of chunks may take other configs, which add in another order.
                for (name, c) in compared(&parts, &found) {
                    assert!(c.passes(1e-6), "{name} of {memory:?} {segment:?}: {c:?}");
                }
            }
        }
    }
}

/// States before other tokens would give gradients of another sequence.
#[test]
fn what_a_training_with_other_segments_keeps_is_refused() {
    let device = crate::device();
    let case = |tokens: usize, chunk: usize, segment: usize| TrainingCase {
        segment: Some(segment),
        ..TrainingCase::new([1, tokens, 1], [8, 8, 16], Chunking::new(chunk, 3))
    };
    let own = case(40, 8, 3);
    // Two segments each, which begin elsewhere, or end elsewhere.
    for (other, is_alike) in
        [(case(40, 8, 4), false), (case(39, 8, 3), false), (case(40, 7, 3), false), (case(40, 4, 6), true)]
    {
        let x = other.inputs();
        let tensor = |name: &str| device.tensor_from(&x[name].values, &x[name].sizes).unwrap();
        let given = ["q", "k", "v", "rq", "rk", "alpha", "theta", "eta", "gamma"].map(tensor);
        let [q, k, v, rq, rk, alpha, theta, eta, gamma] = given.each_ref();
        let tokens = Tokens { q, k, v, rq, rk, alpha, theta, eta, gamma };
        let mut memory = ["w1", "w2", "s1", "s2"].map(tensor);
        let (stream, mut y, dy) = (device.default_stream(), tensor("v"), tensor("dy"));
        let mut training = other.training(&device).unwrap();
        let mut kept = own.training(&device).unwrap().kept().unwrap();
        let mut gradients = training.gradients().unwrap();
        let found = training.forward(&stream, &tokens, &mut memory.each_mut(), &mut y, &mut kept);
        let found = found.and_then(|()| training.backward(&stream, &tokens, &kept, &dy, None, &mut gradients));
        assert_eq!(found.is_ok(), is_alike, "{other:?}: {found:?}");
        let Err(refused) = found else { continue };
        assert!(refused.to_string().contains("ATL651"), "{refused}");
        assert_eq!(y.to_f64_vec().unwrap(), tensor("v").to_f64_vec().unwrap());
    }
}

/// Nothing is trained, and nothing is refused, whichever kernels are taken.
#[test]
fn there_may_be_no_sequences() {
    for form in [MemoryForm::Linear, MemoryForm::Mlp, MemoryForm::Gated, NORMED] {
        // The forward pass holds whole rows of the first, and walks over those of the others.
        for memory in [[16, 16, 24], [264, 16, 24]] {
            let hidden = if form == MemoryForm::Linear { 0 } else { memory[2] };
            for batch in [[0, 9, 2], [2, 9, 0]] {
                let case = TrainingCase { batch, ..case(9, (form, [memory[0], memory[1], hidden]), 4, 3) };
                for case in [by_chunk(case.clone()), case] {
                    let found = case.run(&crate::device(), &case.inputs()).unwrap_or_else(|e| panic!("{case:?}: {e}"));
                    assert!(found.iter().all(|(name, by)| *name == "norm" || by.is_empty()), "{case:?}");
                }
            }
        }
    }
}

#[test]
fn segments_of_the_square_root_keep_few_states() {
    let with = |segment: Option<usize>| {
        let case = TrainingCase { segment, ..TrainingCase::new([1, 64, 1], [16, 16, 32], Chunking::new(4, 3)) };
        let training = case.training(&crate::device()).unwrap();
        (training.segment(), training.bytes() + training.kept().unwrap().bytes())
    };
    let (chosen, bytes) = with(None);
    assert_eq!(chosen, 4);
    assert!(with(Some(1)).1 > bytes && with(Some(16)).1 > bytes);
    // No segment is longer than the sequence.
    assert_eq!(with(Some(100)), with(Some(16)));
}

#[test]
fn mistakes_show() {
    let mistakes = [Forgotten::Halo, Forgotten::State, Forgotten::Momentum, Forgotten::Errors];
    for (dtype, bound) in [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::Bf16, 1e-2)] {
        for memory in [MEMORIES[0], (MemoryForm::Linear, [24, 24, 0]), MEMORIES[4], MEMORIES[6]] {
            let (form, sizes) = memory;
            let form = if form == NORMED && dtype != DType::F32 { WIDE_NORMED } else { form };
            let case = TrainingCase { dtype, ..case(23, (form, sizes), 8, 5) };
            let x = case.inputs();
            let found = case.run(&crate::device(), &x).unwrap();
            let right = missed(&found, &case.expected(&x, Forgotten::Nothing), bound);
            assert!(right.is_empty(), "{dtype} {memory:?}: {right:?}");
            for forgotten in mistakes {
                let wrong = missed(&found, &case.expected(&x, forgotten), bound);
                assert!(!wrong.is_empty(), "{forgotten:?} went unnoticed in {dtype} {memory:?}");
            }
        }
    }
}

#[test]
fn forward_is_the_chain() {
    for memory in MEMORIES {
        let (form, sizes) = memory;
        let (training, chain) =
            (case(39, memory, 8, 5), Case::new([2, 39, 2], sizes, Chunking::new(8, 5)).of_form(form));
        let device = crate::device();
        let x = chain.inputs();
        let wanted = chain.run(&device, &x).unwrap();
        let [d, e, _] = sizes;
        let tensor = |values: &[f32], width: usize| device.tensor_from(values, [2, 39, 2, width]).unwrap();
        let gate = |values: &[f32]| device.tensor_from(values, [2, 39, 2]).unwrap();
        let nothing = vec![0.0; 2 * 39 * 2 * e];
        let [rq, rk] = [&x.q, &x.k].map(|of| tensor(if d == e { of } else { &nothing }, e));
        let (q, k, v, gamma) = (tensor(&x.q, d), tensor(&x.k, d), tensor(&x.v, e), tensor(&x.gamma, 5));
        let (alpha, theta, eta) = (gate(&x.alpha), gate(&x.theta), gate(&x.eta));
        let tokens =
            Tokens { q: &q, k: &k, v: &v, rq: &rq, rk: &rk, alpha: &alpha, theta: &theta, eta: &eta, gamma: &gamma };
        let mut training = training.training(&device).unwrap();
        if !x.norm.is_empty() {
            training.set_norm(device.tensor_from(&x.norm, [2, e]).unwrap());
        }
        let mut kept = training.kept().unwrap();
        let shapes: Vec<Vec<usize>> = training.gradients().unwrap().memory().iter().map(|t| t.shape().into()).collect();
        let values = x.w.iter().chain(&x.s).filter(|values| !values.is_empty());
        let mut state: Vec<Tensor> =
            values.zip(shapes).map(|(values, shape)| device.tensor_from(values, shape).unwrap()).collect();
        let mut y = tensor(&nothing, e);
        let stream = device.default_stream();
        let mut list: Vec<&mut Tensor> = state.iter_mut().collect();
        training.forward(&stream, &tokens, &mut list, &mut y, &mut kept).unwrap();
        let found: Vec<Vec<f64>> = [&y].into_iter().chain(&state).map(|t| t.to_f64_vec().unwrap()).collect();
        assert_eq!(found, wanted, "{memory:?}");
        // What does not fit is refused before anything is written.
        let short = q.slice(1, 0..38).unwrap();
        let mut list: Vec<&mut Tensor> = state.iter_mut().collect();
        let wrong = Tokens { q: &short, ..tokens };
        let refused = training.forward(&stream, &wrong, &mut list, &mut y, &mut kept).unwrap_err().to_string();
        assert!(refused.contains("ATL604") && refused.contains("`q`"), "{refused}");
        // A matrix in the place of another one is named as the training names it.
        let first = state[0].shape().to_vec();
        let turned = Tensor::zeros(&device, DType::F32, [first[0], first[1], first[3] + 1, first[2]]).unwrap();
        let narrow = Tensor::zeros(&device, DType::Bf16, &first).unwrap();
        for (mut wrong, code) in [(turned, "ATL604"), (narrow, "ATL605")] {
            let mut list: Vec<&mut Tensor> = state.iter_mut().collect();
            list[0] = &mut wrong;
            let refused = training.forward(&stream, &tokens, &mut list, &mut y, &mut kept).unwrap_err().to_string();
            assert!(refused.contains(code) && refused.contains("`w") && refused.contains("`omega_"), "{refused}");
            assert!(!refused.contains("copy"), "{refused}");
        }
        let mut gradients = training.gradients().unwrap();
        let nothing_kept = training.kept().unwrap();
        let refused = training.backward(&stream, &tokens, &nothing_kept, &y, None, &mut gradients);
        assert!(refused.unwrap_err().to_string().contains("run the forward pass before it"));
        let own = gradients.v();
        assert!(training.backward(&stream, &tokens, &kept, &own, None, &mut gradients).is_err());
        assert!(training.backward(&stream, &tokens, &kept, &y, Some(&[&y]), &mut gradients).is_err());
        let mut wrong = Tensor::zeros(&device, DType::Bf16, y.shape()).unwrap();
        let mut list: Vec<&mut Tensor> = state.iter_mut().collect();
        assert!(training.forward(&stream, &tokens, &mut list, &mut wrong, &mut kept).is_err());
        let after: Vec<Vec<f64>> = [&y].into_iter().chain(&state).map(|t| t.to_f64_vec().unwrap()).collect();
        assert_eq!(after, wanted, "{memory:?}");
    }
}

/// The step of finite differences.
const STEP: f64 = 1e-3;

/// One head in f64: tokens, gates and state as both references take them.
struct Head {
    sizes: SequenceSizes,
    rule: OmegaRule,
    /// `q`, `k`, `v`, `rq`, `rk`, `alpha`, `theta`, `eta`, `gamma`, the weight of a norm, then the state, with their columns.
    inputs: Vec<Matrix>,
    /// Of what is read, then of the state after it.
    weights: Vec<Vec<f64>>,
}

impl Head {
    fn new(sizes: SequenceSizes, rule: OmegaRule) -> Head {
        let SequenceSizes { n, p, d, e, w, .. } = sizes;
        let wave = |seed: usize, len: usize, mean: f64, size: f64| -> Vec<f64> {
            (0..len).map(|i| mean + size * ((i * 37 + seed * 101) as f64 * 0.7).sin()).collect()
        };
        let rows =
            [(d, n * d), (d, p * d), (e, p * e), (e, n * e), (e, p * e)].map(|(cols, len)| (cols, len, 0.0, 0.8));
        let gates = [(1, n, 0.9, 0.1), (1, n, 0.7, 0.2), (1, n, 0.1, 0.05), (w, n * w, 0.5, 0.3)];
        let matrices = sizes.matrices(&rule).repeat(2);
        let state = matrices.into_iter().map(|[rows, cols]| (cols, rows * cols, 0.0, 0.5));
        let all = rows.into_iter().chain(gates).chain([(e, e, 1.0, 0.3)]).chain(state.clone());
        let inputs = all.enumerate().map(|(i, (cols, len, mean, size))| Matrix::new(cols, wave(i, len, mean, size)));
        let weights = [n * e].into_iter().chain(state.map(|(_, len, ..)| len)).enumerate();
        let weights = weights.map(|(i, len)| wave(20 + i, len, 0.0, 1.0)).collect();
        Head { sizes, rule, inputs: inputs.collect(), weights }
    }

    /// What is read and the state after it, by the reference of the forward pass.
    fn read(&self, inputs: &[Matrix]) -> Vec<Vec<f64>> {
        let of = |i: usize| inputs[i].values.clone();
        let x = Sequence { q: of(0), k: of(1), v: of(2), rq: of(3), rk: of(4), norm: of(9) };
        let g = Gates { alpha: of(5), theta: of(6), eta: of(7), gamma: of(8) };
        let mut w: Vec<Vec<f64>> = (10..inputs.len()).map(of).collect();
        let mut state = State { s: w.split_off(w.len() / 2), w };
        let y = reference::recurrence(&self.sizes, &x, &g, &mut state, &self.rule);
        let state = state.w.into_iter().chain(state.s);
        std::iter::once(y).chain(state).collect()
    }

    fn loss(&self, inputs: &[Matrix]) -> f64 {
        let read = self.read(inputs);
        read.iter().flatten().zip(self.weights.iter().flatten()).map(|(y, w)| y * w).sum()
    }
}

#[test]
fn the_reference_has_the_gradients_of_finite_differences() {
    let of = OmegaRule::omega_net(Chunking::new(1, 1));
    let normed = MemoryForm::Normed { eps: 0.1 };
    for (e, m, memory, loss) in [
        (4, 5, MemoryForm::Mlp, Loss::Square),
        (3, 0, MemoryForm::Linear, Loss::HalfSquare),
        (4, 5, MemoryForm::Gated, Loss::MeanSquare),
        (4, 5, normed, Loss::Scaled(0.7)),
        (4, 5, MemoryForm::Mlp, Loss::Dot),
        (3, 0, MemoryForm::Linear, Loss::Dot),
        (4, 5, MemoryForm::Gated, Loss::Dot),
        (4, 5, normed, Loss::Dot),
    ] {
        for (n, p, l, w, before) in
            [(9, 9, 4, 3, false), (7, 9, 3, 2, true), (6, 6, 2, 5, false), (3, 3, 8, 2, false), (7, 9, 3, 4, true)]
        {
            let k = l + w - 1;
            let read = if before { Read::Before } else { Read::After };
            // A chunk with one step is read before it.
            let by_chunk = w == 4;
            let step = if by_chunk { Step::MuonByChunk } else { Step::Descent };
            let rule = OmegaRule { memory, loss, read, step, ..of };
            let head = Head::new(SequenceSizes { n, p, h: 1, d: 3, e, m, l, w, k }, rule);
            let mut tape = Tape::default();
            let given: Vec<_> = head.inputs.iter().map(|m| tape.given(m.clone())).collect();
            let [q, k, v, rq, rk, alpha, theta, eta, gamma] = std::array::from_fn(|i| given[i]);
            let inputs = HeadInputs { q, k, v, rq, rk, alpha, theta, eta, gamma };
            let state = &given[10..];
            let (weights, momenta) = state.split_at(state.len() / 2);
            let start = MemoryState { w: weights.to_vec(), s: momenta.to_vec() };
            let norm = match memory {
                MemoryForm::Normed { eps } => Some(Norm { weight: given[9], eps: eps.into() }),
                _ => None,
            };
            let how = How { scale: loss.factor(e).into(), predicts: loss.predicts(), norm, by_chunk };
            let (y, end) = recurrence(&mut tape, &head.sizes, &inputs, &start, (&how, before), Forgotten::Nothing);
            // The same numbers as those of the reference of the forward pass.
            let read: Vec<f64> = y.iter().flat_map(|y| tape.value(*y).values.clone()).collect();
            let found = std::iter::once(read).chain(end.all().map(|var| tape.value(var).values.clone()));
            for (found, wanted) in found.zip(head.read(&head.inputs)) {
                assert!(Comparison::new(&found, &wanted).passes(1e-12));
            }
            let rows = y.iter().zip(head.weights[0].chunks(e)).map(|(y, by)| (*y, Matrix::new(e, by.to_vec())));
            let ends =
                end.all().zip(&head.weights[1..]).map(|(var, by)| (var, Matrix::new(tape.value(var).cols, by.clone())));
            let gradients = tape.gradients(&rows.chain(ends).collect::<Vec<_>>());
            for (i, var) in given.iter().enumerate() {
                let found = gradients.by(&tape, *var);
                let moved = |at: usize, by: f64| {
                    let mut inputs = head.inputs.clone();
                    inputs[i].values[at] += by;
                    head.loss(&inputs)
                };
                // Of the fourth order: what is left out is of the order of the step's fourth power. Iterations of Newton and Schulz
                // bend more, and multiply roundings by hundreds.
                let (width, bound) = if by_chunk { (STEP / 4.0, 1e-6) } else { (STEP, 1e-8) };
                let slope = |at: usize, step: f64| (moved(at, step) - moved(at, -step)) / (2.0 * step);
                let wanted: Vec<f64> =
                    (0..found.len()).map(|at| (4.0 * slope(at, width) - slope(at, 2.0 * width)) / 3.0).collect();
                let c = Comparison::new(&found, &wanted);
                assert!(c.passes(bound), "input {i} of {n} {p} {l} {w} {rule:?}: {c:?}");
            }
        }
    }
}
