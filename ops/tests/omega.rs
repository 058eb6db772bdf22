//! The Omega rule against its definition, token by token, at every edge; and mistakes that must show.

use atlas_dsl::DType;
use atlas_ops::omega::check::{Case, CaseInputs};
use atlas_ops::omega::{Chunking, MemoryForm, OmegaPacked, OmegaRule, OmegaStream, Read, Step, StreamSizes, Tokens};
use atlas_runtime::Tensor;

const NORMED: MemoryForm = MemoryForm::Normed { eps: 1e-5 };

/// Small memories of all forms.
const MEMORIES: [(MemoryForm, [usize; 3]); 7] = [
    (MemoryForm::Mlp, [16, 16, 32]),
    (MemoryForm::Mlp, [8, 24, 40]),
    (MemoryForm::Linear, [24, 16, 0]),
    (MemoryForm::Gated, [16, 16, 32]),
    (MemoryForm::Gated, [8, 24, 40]),
    (NORMED, [16, 16, 32]),
    (NORMED, [24, 16, 40]),
];

/// What is done to the inputs of a case.
type InputEdit = fn(&mut CaseInputs);

#[track_caller]
fn holds(case: &Case, bound: f64) {
    let found = case.check(&crate::device()).unwrap_or_else(|e| panic!("{case:?}: {e}"));
    assert!(found.passes(bound), "{case:?}: {found:?}");
}

/// A case of two sequences and two heads.
fn case(tokens: usize, (form, memory): (MemoryForm, [usize; 3]), chunk: usize, window: usize) -> Case {
    Case::new([2, tokens, 2], memory, Chunking::new(chunk, window)).of_form(form)
}

#[test]
fn chunks_and_windows_of_any_length() {
    for memory in MEMORIES {
        for (tokens, chunk, window) in [
            (23, 8, 5),
            (24, 8, 1),
            (9, 4, 16),
            (7, 16, 3),
            (1, 8, 4),
            (10, 1, 4),
            (40, 16, 9),
            (5, 5, 5),
            (33, 16, 33),
        ] {
            holds(&case(tokens, memory, chunk, window), 1e-5);
        }
    }
}

#[test]
fn sixteen_bits_keep_their_bound() {
    for (dtype, bound) in [(DType::Bf16, 1e-2), (DType::F16, 2e-3)] {
        for (form, hidden) in [(MemoryForm::Linear, 0), (MemoryForm::Mlp, 4), (MemoryForm::Gated, 4), (NORMED, 4)] {
            for width in [48, 64, 96] {
                let mut case =
                    Case::new([1, 70, 1], [width, width, hidden * width], Chunking::new(32, 8)).of_form(form);
                case.dtype = dtype;
                holds(&case, bound);
            }
        }
    }
}

#[test]
fn a_token_may_be_read_before_it_is_seen() {
    for memory in MEMORIES {
        let mut case = case(23, memory, 8, 5);
        case.rule.read = Read::Before;
        holds(&case, 1e-5);
    }
}

#[test]
fn windows_may_stop_at_the_start_of_their_chunk() {
    for memory in MEMORIES {
        let mut case = case(23, memory, 8, 5);
        case.rule.chunking.halo = false;
        holds(&case, 1e-5);
    }
}

#[test]
fn a_sequence_may_be_given_in_parts() {
    for memory in MEMORIES {
        let whole = case(39, memory, 8, 5);
        let inputs = whole.inputs();
        let found = whole.run(&crate::device(), &inputs).unwrap();
        for parts in [vec![8, 31], vec![16, 8, 15], vec![8, 8, 8, 8, 7], vec![3, 10, 1, 25], vec![1; 39]] {
            let mut case = whole.clone();
            case.parts = parts;
            holds(&case, 1e-5);
            assert_eq!(case.run(&crate::device(), &inputs).unwrap(), found, "{:?}", case.parts);
        }
    }
}

fn set(x: &mut [f32], at: impl Fn(usize) -> bool, to: f32) {
    x.iter_mut().enumerate().filter(|(i, _)| at(*i)).for_each(|(_, v)| *v = to);
}

#[test]
fn gates_at_their_ends() {
    let edits: [(&str, InputEdit); 8] = [
        ("the memory is cleared inside a chunk", |x| set(&mut x.alpha, |i| i / 2 % 23 == 11, 0.0)),
        ("nothing is forgotten", |x| x.alpha.fill(1.0)),
        ("no momentum", |x| x.theta.fill(0.0)),
        ("the momentum is cleared once", |x| set(&mut x.theta, |i| i / 2 % 23 == 9, 0.0)),
        ("no step", |x| x.eta.fill(0.0)),
        ("no gradient", |x| x.gamma.fill(0.0)),
        ("a window without weight", |x| set(&mut x.gamma, |i| (8..16).contains(&(i / 10 % 23)), 0.0)),
        ("the momentum starts at zero", |x| x.s.iter_mut().for_each(|s| s.fill(0.0))),
    ];
    for memory in MEMORIES {
        for (what, edit) in edits {
            let mut case = case(23, memory, 8, 5);
            case.edit = edit;
            let found = case.check(&crate::device()).unwrap();
            assert!(found.passes(1e-5), "{what}: {memory:?}: {found:?}");
        }
    }
}

#[test]
fn what_has_no_weight_may_be_anything() {
    for memory in MEMORIES {
        let mut case = case(23, memory, 8, 5);
        // Token 10 of the first sequence: NaN, and in no window.
        case.edit = |x| {
            let [_, n, h] = x.batch;
            let (d, e, w) = (x.k.len() / (2 * n * h), x.v.len() / (2 * n * h), 5);
            x.k[10 * h * d..][..h * d].fill(f32::NAN);
            x.v[10 * h * e..][..h * e].fill(f32::NAN);
            x.rk[10 * h * e..][..h * e].fill(f32::NAN);
            for back in 0..w {
                for head in 0..h {
                    x.gamma[((10 + back) * h + head) * w + w - 1 - back] = 0.0;
                }
            }
        };
        holds(&case, 1e-5);
    }
}

/// Token 11 is inside a chunk, and the first one of a window's weights is that of token 7.
#[test]
fn a_gate_that_is_no_number_leaves_earlier_tokens_alone() {
    let edits: [(&str, InputEdit); 4] = [
        ("alpha", |x| set(&mut x.alpha, |i| i == 2 * 11, f32::NAN)),
        ("theta", |x| set(&mut x.theta, |i| i == 2 * 11, f32::NAN)),
        ("eta", |x| set(&mut x.eta, |i| i == 2 * 11, f32::NAN)),
        ("gamma", |x| set(&mut x.gamma, |i| i == 2 * 11 * 5, f32::NAN)),
    ];
    for memory in MEMORIES {
        for step in [Step::Descent, Step::MuonByToken] {
            let mut clean = case(23, memory, 8, 5);
            clean.rule.step = step;
            let wanted = clean.run(&crate::device(), &clean.inputs()).unwrap();
            for (gate, edit) in edits {
                let lost = Case { edit, ..clean.clone() };
                let found = lost.run(&crate::device(), &lost.inputs()).unwrap();
                let rows = found[0].chunks(memory.1[1]).zip(wanted[0].chunks(memory.1[1]));
                for (row, (found, wanted)) in rows.enumerate() {
                    // Of the first head of the first sequence, the tokens from that one on.
                    let is_lost = (22..46).contains(&row) && row % 2 == 0;
                    assert!(!is_lost || found.iter().all(|v| v.is_nan()), "{gate} {memory:?} {step:?}: row {row}");
                    assert!(is_lost || found == wanted, "{gate} {memory:?} {step:?}: row {row}");
                }
            }
        }
    }
}

#[test]
fn a_sequence_leaves_its_neighbours_alone() {
    let mut case = case(23, (MemoryForm::Mlp, [16, 16, 32]), 8, 5);
    case.edit = |x| [&mut x.k, &mut x.rk].into_iter().for_each(|of| of[..23 * 2 * 16].fill(f32::NAN));
    let (inputs, clean) = (case.inputs(), Case { edit: |_| {}, ..case.clone() });
    let (found, wanted) = (case.run(&crate::device(), &inputs), clean.run(&crate::device(), &clean.inputs()));
    for (found, wanted) in found.unwrap().iter().zip(&wanted.unwrap()) {
        let half = found.len() / 2;
        assert_eq!(found[half..], wanted[half..]);
    }
}

#[test]
fn mistakes_show() {
    type Mistake = fn(&mut atlas_ops::omega::reference::SequenceSizes, &mut CaseInputs);
    let mistakes: [(&str, Mistake); 6] = [
        ("no halo", |s, _| s.k = s.l),
        ("the anchor of another chunk", |s, _| {
            s.l *= 2;
            s.k += s.l / 2;
        }),
        ("the window is one token short", |_, x| set(&mut x.gamma, |i| i % 5 == 0, 0.0)),
        ("the band is reversed", |_, x| x.gamma.chunks_mut(5).for_each(<[f32]>::reverse)),
        ("forgotten twice at a chunk's start", |_, x| {
            let again: Vec<f32> =
                x.alpha.iter().enumerate().map(|(i, a)| if i / 2 % 23 % 8 == 0 { a * a } else { *a }).collect();
            x.alpha = again;
        }),
        ("the last tokens are skipped", |_, x| {
            set(&mut x.gamma, |i| i / 10 % 23 >= 16, 0.0);
            set(&mut x.eta, |i| i / 2 % 23 >= 16, 0.0);
        }),
    ];
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let bound = if dtype == DType::F32 { 1e-5 } else { 1e-2 };
        for memory in [
            (MemoryForm::Mlp, [16, 16, 32]),
            (MemoryForm::Linear, [24, 24, 0]),
            (MemoryForm::Gated, [16, 16, 32]),
            (NORMED, [16, 16, 32]),
        ] {
            let mut case = case(23, memory, 8, 5);
            case.dtype = dtype;
            holds(&case, bound);
            for (name, edit) in mistakes {
                let found = case.check_against(&crate::device(), edit).unwrap();
                assert!(!found.passes(bound), "{name} went unnoticed in {dtype} {memory:?}: {found:?}");
            }
            let mut early = case.clone();
            early.rule.read = Read::Before;
            let (x, late) = (case.inputs(), case.run(&crate::device(), &case.inputs()).unwrap());
            assert_ne!(early.run(&crate::device(), &x).unwrap()[0], late[0]);
        }
    }
}

/// Documents of 41 tokens and two heads, with room for `piece` tokens of each: what is read is what each document reads alone, 0
/// in no document, and NaN past the room. Gives the memories afterwards, those of documents alone, and the case's at the start.
fn packed((form, memory): (MemoryForm, [usize; 3]), bounds: [i32; 6], piece: usize) -> [Vec<Vec<f32>>; 3] {
    let device = crate::device();
    let stream = device.default_stream();
    {
        let chunking = Chunking::new(8, 5);
        let x = Case::new([1, 41, 2], memory, chunking).of_form(form).inputs();
        let [d, e, m] = memory;
        let (tokens, documents) = (41, bounds.len() - 1);
        let tensor = |values: &[f32], width: usize| device.tensor_from(values, [1, tokens, 2, width]).unwrap();
        let gate = |values: &[f32]| device.tensor_from(values, [1, tokens, 2]).unwrap();
        let residual = |values: &[f32]| if d == e { values.to_vec() } else { vec![0.0; tokens * 2 * e] };
        let [q, k, v] = [(&x.q, d), (&x.k, d), (&x.v, e)].map(|(values, width)| tensor(values, width));
        let [rq, rk] = [&x.q, &x.k].map(|values| tensor(&residual(values), e));
        let [alpha, theta, eta] = [&x.alpha, &x.theta, &x.eta].map(|values| gate(values));
        let gamma = tensor(&x.gamma, 5);
        // Each document has the memory of the case at its start.
        let shapes = form.matrices(d, e, m);
        let states = || -> Vec<Tensor> {
            let of = |values: &Vec<f32>, shape: &[usize; 2]| {
                device.tensor_from(&values.repeat(documents), [documents, 2, shape[0], shape[1]]).unwrap()
            };
            let weights = x.w.iter().zip(&shapes).map(|(w, shape)| of(w, shape));
            weights.chain(x.s.iter().zip(&shapes).map(|(s, shape)| of(s, shape))).collect()
        };
        let rule = OmegaRule { memory: form, ..OmegaRule::omega_net(chunking) };
        let norm = (form == NORMED).then(|| device.tensor_from(&x.norm, [2, e]).unwrap());
        let sizes = StreamSizes { sequences: documents, heads: 2, key: d, value: e, piece, dtype: DType::F32 };
        let mut packed = OmegaPacked::new(&stream, rule, sizes).unwrap();
        if let Some(norm) = &norm {
            packed = packed.with_norm(norm.clone());
        }
        assert!(packed.bytes() > 0);
        let given =
            Tokens { q: &q, k: &k, v: &v, rq: &rq, rk: &rk, alpha: &alpha, theta: &theta, eta: &eta, gamma: &gamma };
        let starts = device.tensor_from(&bounds, [bounds.len()]).unwrap();
        let mut memories = states();
        // Where the result does not fit is seen before any memory is trained.
        let mut wrong = Tensor::zeros(&device, DType::Bf16, [1, tokens, 2, e]).unwrap();
        let mut list: Vec<&mut Tensor> = memories.iter_mut().collect();
        assert!(packed.launch(&stream, &given, &starts, &mut list, &mut wrong).is_err());
        let values =
            |memories: &[Tensor]| -> Vec<Vec<f32>> { memories.iter().map(|t| t.to_vec::<f32>().unwrap()).collect() };
        assert_eq!(values(&memories), values(&states()));
        let mut y = Tensor::zeros(&device, DType::F32, [1, tokens, 2, e]).unwrap();
        let mut list: Vec<&mut Tensor> = memories.iter_mut().collect();
        packed.launch(&stream, &given, &starts, &mut list, &mut y).unwrap();
        let (found, found_memories) = (y.to_vec::<f32>().unwrap(), memories);
        // Each document by itself.
        let mut alone = states();
        let bounds = bounds.map(|b| b.clamp(0, tokens as i32) as usize);
        let mut wanted = vec![0.0; bounds[0] * 2 * e];
        for (at, of) in bounds.windows(2).enumerate() {
            let end = of[1].min(of[0] + piece);
            let part = |t: &Tensor| t.slice(1, of[0]..end).unwrap();
            let one = StreamSizes { sequences: 1, ..sizes };
            let mut stream = OmegaStream::new(&device, rule, one).unwrap();
            if let Some(norm) = &norm {
                stream = stream.with_norm(norm.clone());
            }
            let [q, k, v, rq, rk, alpha, theta, eta, gamma] =
                [&q, &k, &v, &rq, &rk, &alpha, &theta, &eta, &gamma].map(part);
            let given = Tokens {
                q: &q,
                k: &k,
                v: &v,
                rq: &rq,
                rk: &rk,
                alpha: &alpha,
                theta: &theta,
                eta: &eta,
                gamma: &gamma,
            };
            let mut own: Vec<Tensor> = alone.iter_mut().map(|t| t.slice(0, at..at + 1).unwrap()).collect();
            let mut y = Tensor::zeros(&device, DType::F32, [1, end - of[0], 2, e]).unwrap();
            if end > of[0] {
                stream.push(&given, &mut own.iter_mut().collect::<Vec<_>>(), &mut y).unwrap();
                wanted.extend(y.to_vec::<f32>().unwrap());
            }
            wanted.extend(vec![f32::NAN; (of[1] - end) * 2 * e]);
        }
        wanted.resize(tokens * 2 * e, 0.0);
        assert!(close(&found, &wanted), "{memory:?} {bounds:?} {piece}");
        let all = |of: &[Tensor]| of.iter().map(|t| t.to_vec::<f32>().unwrap()).collect();
        [all(&found_memories), all(&alone), x.w.iter().chain(&x.s).map(|of| of.repeat(documents)).collect()]
    }
}

fn close(a: &[f32], b: &[f32]) -> bool {
    let near = |(a, b): (&f32, &f32)| a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-5 * b.abs().max(1.0);
    a.len() == b.len() && a.iter().zip(b).all(near)
}

/// The memory of one of five documents.
fn of_document(memories: &[Vec<f32>], at: usize) -> Vec<f32> {
    memories.iter().flat_map(|m| m.chunks((m.len() / 5).max(1)).nth(at).unwrap_or_default().to_vec()).collect()
}

#[test]
fn packed_documents_are_as_alone() {
    let wide = [(MemoryForm::Mlp, [264, 8, 12]), (MemoryForm::Gated, [264, 8, 12])];
    for memory in MEMORIES.into_iter().chain(wide) {
        // Documents of 5, 12, 0, 1 and 23 tokens.
        let [found, _, start] = packed(memory, [0, 5, 17, 17, 18, 41], 23);
        // The memory of a document that ends with a chunk is the one that it has alone; others have begun a chunk more.
        assert_eq!(of_document(&found, 2), of_document(&start, 2), "a document of no tokens leaves its memory");
    }
}

#[test]
fn tokens_of_no_document_train_nothing_and_read_0() {
    for memory in MEMORIES {
        let [found, alone, start] = packed(memory, [3, 11, 19, 19, 27, 27], 8);
        for at in 0..5 {
            assert!(close(&of_document(&found, at), &of_document(&alone, at)), "{memory:?} {at}");
        }
        assert_eq!(of_document(&found, 4), of_document(&start, 4));
        packed(memory, [0, 5, 17, 17, 18, 30], 23);
        packed(memory, [0, 0, 0, 0, 0, 0], 4);
        packed(memory, [41, 41, 41, 41, 41, 41], 4);
        // Boundaries outside of the tokens.
        packed(memory, [i32::MIN, 5, 17, 17, 18, i32::MAX], 23);
        let [found, alone, _] = packed(memory, [-7, 8, 16, 24, 32, 60], 9);
        assert!((0..4).all(|at| close(&of_document(&found, at), &of_document(&alone, at))), "{memory:?}");
        packed(memory, [50, 60, 70, 80, 90, 100], 9);
    }
}

#[test]
fn a_document_longer_than_its_room_trains_on_what_has_room() {
    for memory in MEMORIES {
        let [found, alone, start] = packed(memory, [0, 41, 41, 41, 41, 41], 16);
        assert!(close(&of_document(&found, 0), &of_document(&alone, 0)), "{memory:?}");
        assert!(!close(&of_document(&found, 0), &of_document(&start, 0)), "{memory:?}");
        packed(memory, [2, 20, 30, 30, 31, 38], 8);
    }
}
