//! The Omega rule against its definition, token by token, at every edge; and mistakes that must show.

use atlas_dsl::DType;
use atlas_ops::cases::model_problem;
use atlas_ops::omega::check::{Case, Inputs};
use atlas_ops::omega::problem::expected;
use atlas_ops::omega::reference::{Gates, Sequence, State, mix, muon};
use atlas_ops::omega::rounded::Arithmetic;
use atlas_ops::omega::{Chunking, OMEGA_LINEAR, OMEGA_MLP, OmegaPacked, OmegaStream, StreamRule, StreamSizes, Tokens};
use atlas_ops::{Comparison, Fill, Problem};
use atlas_runtime::{Device, Tensor};

/// Small memories: of two layers, and linear.
const MEMORIES: [[usize; 3]; 3] = [[16, 16, 32], [8, 24, 40], [24, 16, 0]];

#[track_caller]
fn holds(case: &Case, bound: f64) {
    let found = case.check(&Device::cpu()).unwrap_or_else(|e| panic!("{case:?}: {e}"));
    assert!(found.passes(bound), "{case:?}: {found:?}");
}

/// A case of two sequences and two heads.
fn case(tokens: usize, memory: [usize; 3], chunk: usize, window: usize) -> Case {
    Case::new([2, tokens, 2], memory, Chunking::new(chunk, window))
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
        for memory in [[64, 64, 256], [48, 48, 192], [64, 64, 0]] {
            let mut case = Case::new([1, 100, 1], memory, Chunking::new(32, 8));
            case.dtype = dtype;
            holds(&case, bound);
        }
    }
}

#[test]
fn a_token_may_be_read_before_it_is_seen() {
    for memory in MEMORIES {
        let mut case = case(23, memory, 8, 5);
        case.before = true;
        holds(&case, 1e-5);
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
fn a_sequence_may_be_given_in_parts() {
    for memory in MEMORIES {
        let whole = case(39, memory, 8, 5);
        let inputs = whole.inputs();
        let found = whole.run(&Device::cpu(), &inputs).unwrap();
        for parts in [vec![8, 31], vec![16, 8, 15], vec![8, 8, 8, 8, 7], vec![3, 10, 1, 25], vec![1; 39]] {
            let mut case = whole.clone();
            case.parts = parts;
            holds(&case, 1e-5);
            assert_eq!(case.run(&Device::cpu(), &inputs).unwrap(), found, "{:?}", case.parts);
        }
    }
}

#[test]
fn with_muon_each_chunk_takes_one_step() {
    for (tokens, chunk, window) in [(23, 8, 5), (24, 8, 1), (9, 4, 16), (7, 16, 3), (1, 8, 4), (10, 1, 4)] {
        let mut case = case(tokens, [16, 16, 32], chunk, window);
        case.muon = true;
        holds(&case, 1e-5);
        case.dtype = DType::F16;
        holds(&case, 5e-3);
    }
    let mut case = case(39, [8, 24, 40], 8, 5);
    case.muon = true;
    holds(&case, 1e-5);
    let inputs = case.inputs();
    let whole = case.run(&Device::cpu(), &inputs).unwrap();
    for parts in [vec![16, 23], vec![5, 7, 27], vec![1; 39]] {
        case.parts = parts;
        assert_eq!(case.run(&Device::cpu(), &inputs).unwrap(), whole);
    }
}

#[test]
fn with_muon_what_rounds_nothing_is_the_definition() {
    for (tokens, chunk, window) in [(23, 8, 5), (9, 4, 16), (10, 1, 4), (5, 1, 1)] {
        let case = Case::new([1, tokens, 1], [8, 24, 40], Chunking::new(chunk, window));
        let (x, s) = (case.inputs(), case.sizes());
        let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
        let none = vec![0.0; tokens * s.e];
        let sequence = Sequence { q: wide(&x.q), k: wide(&x.k), v: wide(&x.v), rq: none.clone(), rk: none };
        let gates = Gates { alpha: wide(&x.alpha), theta: wide(&x.theta), eta: wide(&x.eta), gamma: wide(&x.gamma) };
        let start = State { w: x.w.each_ref().map(|w| wide(w)), s: x.s.each_ref().map(|s| wide(s)) };
        let exact = Arithmetic::of(DType::F64);
        let (mut by_definition, mut by_chunks, mut by_tokens) = (start.clone(), start.clone(), start);
        let wanted = muon(&s, &sequence, &gates, &mut by_definition, 2.0);
        let mixed = mix(&s, &gates, false, usize::MAX);
        let found = exact.chunks(&s, &sequence, &mixed, &mut by_chunks, 2.0);
        let near = |found: &[f64], wanted: &[f64]| Comparison::new(found, wanted).passes(1e-10);
        let alike = |found: &State| {
            (0..2).all(|i| near(&found.w[i], &by_definition.w[i]) && near(&found.s[i], &by_definition.s[i]))
        };
        assert!(near(&found, &wanted) && alike(&by_chunks), "{tokens} {chunk} {window}");
        // Chunks of one token are those of the rule by tokens.
        if chunk == 1 {
            let (found, _) = exact.tokens(&s, &sequence, &gates, &mut by_tokens, 2.0, true);
            assert!(near(&found, &wanted) && alike(&by_tokens), "{tokens} {chunk} {window}, by tokens");
        }
    }
}

/// What a kernel writes of a problem on the CPU.
fn written(p: &Problem) -> Vec<Vec<f64>> {
    let mut prepared = p.prepare(&Device::cpu(), &p.inputs()).unwrap();
    prepared.launch(None).unwrap();
    prepared.outputs().into_iter().map(|t| t.to_f64_vec().unwrap()).collect()
}

/// Fewer keys than rows: what is rounded is part of the result, and a mistake is still more than that.
#[test]
fn muon_of_low_rank_is_judged_by_its_own_roundings() {
    // Of 26 keys and 55 rows, chunk after chunk; of 12 and 48; of windows of 5 and 40 rows. Of one step, a rounding of its result
    // hides a slightly different one.
    let cases: [(&str, &[u64], f64); 3] = [
        ("omega_muon", &[1, 640, 1, 23, 1640, 55, 64, 26, 10, 192], 0.02),
        ("fused_optimization", &[3, 12, 24, 48, 96], 0.1),
        ("omega_muon_tokens", &[1, 6, 1, 16, 6, 40, 5, 48, 8], 0.2),
    ];
    for (kernel, dims, mistake) in cases {
        for dtype in [DType::Bf16, DType::F16, DType::F32] {
            let mut p = model_problem(kernel, dtype, dims).unwrap();
            if kernel == "omega_muon_tokens" {
                // Steps that are most of what a memory is.
                p = p.fill("eta", Fill::Around(0.1, 0.02));
            }
            let inputs = p.inputs();
            let (found, wanted) = (written(&p), p.expected(&inputs));
            let right = wanted.beside(&found);
            assert!(right.passes(p.bound()), "{p}: {right:?}");
            if (kernel, dtype) == ("omega_muon", DType::Bf16) {
                // By the bound of well-conditioned products alone it would be refused.
                assert!(right.rel_f > p.bound(), "{p}: {right:?}");
            }
            for (at, sign) in [(0, 1.0), (1, -1.0), (2, 1.0)] {
                let mut other = Arithmetic::of(dtype);
                other.polynomial[at] *= 1.0 + sign * mistake;
                let wrong = wanted.beside(&expected(&p, &inputs, &other));
                assert!(!wrong.passes(p.bound()), "another coefficient {at} went unnoticed in {p}: {wrong:?}");
            }
        }
    }
}

fn set(x: &mut [f32], at: impl Fn(usize) -> bool, to: f32) {
    x.iter_mut().enumerate().filter(|(i, _)| at(*i)).for_each(|(_, v)| *v = to);
}

#[test]
fn gates_at_their_ends() {
    type Edit = fn(&mut Inputs);
    let edits: [(&str, Edit); 8] = [
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
            let found = case.check(&Device::cpu()).unwrap();
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
            for back in 0..w {
                for head in 0..h {
                    x.gamma[((10 + back) * h + head) * w + w - 1 - back] = 0.0;
                }
            }
        };
        holds(&case, 1e-5);
    }
}

#[test]
fn a_sequence_leaves_its_neighbours_alone() {
    let mut case = case(23, [16, 16, 32], 8, 5);
    case.edit = |x| x.k[..23 * 2 * 16].fill(f32::NAN);
    let (inputs, clean) = (case.inputs(), Case { edit: |_| {}, ..case.clone() });
    let (found, wanted) = (case.run(&Device::cpu(), &inputs), clean.run(&Device::cpu(), &clean.inputs()));
    for (found, wanted) in found.unwrap().iter().zip(&wanted.unwrap()) {
        let half = found.len() / 2;
        assert_eq!(found[half..], wanted[half..]);
    }
}

#[test]
fn mistakes_show() {
    type Edit = fn(&mut atlas_ops::omega::reference::Sizes, &mut Inputs);
    let mistakes: [(&str, Edit); 6] = [
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
        for memory in [[16, 16, 32], [24, 24, 0]] {
            let mut case = case(23, memory, 8, 5);
            case.dtype = dtype;
            holds(&case, bound);
            for (name, edit) in mistakes {
                let found = case.check_against(&Device::cpu(), edit).unwrap();
                assert!(!found.passes(bound), "{name} went unnoticed in {dtype} {memory:?}: {found:?}");
            }
            let mut early = case.clone();
            early.before = true;
            let (x, late) = (case.inputs(), case.run(&Device::cpu(), &case.inputs()).unwrap());
            assert_ne!(early.run(&Device::cpu(), &x).unwrap()[0], late[0]);
        }
    }
}

#[test]
fn packed_documents_are_as_alone() {
    let device = Device::cpu();
    let stream = device.default_stream();
    // Documents of 5, 12, 0, 1 and 23 tokens; two heads.
    let bounds = [0, 5, 17, 17, 18, 41];
    for memory in MEMORIES {
        let chunking = Chunking::new(8, 5);
        let x = Case::new([1, 41, 2], memory, chunking).inputs();
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
        let shapes: Vec<[usize; 2]> = if m == 0 { vec![[e, d]] } else { vec![[e, m], [m, d]] };
        let states = || -> Vec<Tensor> {
            let of = |values: &Vec<f32>, shape: &[usize; 2]| {
                device.tensor_from(&values.repeat(documents), [documents, 2, shape[0], shape[1]]).unwrap()
            };
            let weights = x.w.iter().zip(&shapes).map(|(w, shape)| of(w, shape));
            weights.chain(x.s.iter().zip(&shapes).map(|(s, shape)| of(s, shape))).collect()
        };
        let rule = StreamRule { read_before: false, scale: 2.0 };
        let sizes = StreamSizes { sequences: documents, heads: 2, key: d, value: e, piece: 23, dtype: DType::F32 };
        let mut packed = OmegaPacked::new(&stream, m == 0, chunking, rule, sizes).unwrap();
        assert!(packed.bytes() > 0);
        let given =
            Tokens { q: &q, k: &k, v: &v, rq: &rq, rk: &rk, alpha: &alpha, theta: &theta, eta: &eta, gamma: &gamma };
        let starts = device.tensor_from(&bounds.map(|b| b as i32), [bounds.len()]).unwrap();
        let mut memories = states();
        let mut y = Tensor::zeros(&device, DType::F32, [1, tokens, 2, e]).unwrap();
        let mut list: Vec<&mut Tensor> = memories.iter_mut().collect();
        packed.launch(&stream, &given, &starts, &mut list, &mut y).unwrap();
        let (found, found_memories) = (y.to_vec::<f32>().unwrap(), memories);
        // Each document by itself.
        let mut alone = states();
        let mut wanted = Vec::new();
        for (at, of) in bounds.windows(2).enumerate() {
            let part = |t: &Tensor| t.slice(1, of[0]..of[1]).unwrap();
            let one = StreamSizes { sequences: 1, ..sizes };
            let chain = if m == 0 { &OMEGA_LINEAR } else { &OMEGA_MLP };
            let mut stream = OmegaStream::new(&device, chain, chunking, rule, one).unwrap();
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
            let mut y = Tensor::zeros(&device, DType::F32, [1, of[1] - of[0], 2, e]).unwrap();
            if of[1] > of[0] {
                stream.push(&given, &mut own.iter_mut().collect::<Vec<_>>(), &mut y).unwrap();
                wanted.extend(y.to_vec::<f32>().unwrap());
            }
        }
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0));
        assert!(found.len() == wanted.len() && close(&found, &wanted), "{memory:?}");
        // The memory of a document that ends with a chunk is the one that it has alone; others have begun a chunk more.
        let last = found_memories[0].slice(0, 2..3).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(last, x.w[0], "a document of no tokens leaves its memory");
    }
}
