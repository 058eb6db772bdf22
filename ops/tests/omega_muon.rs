//! The Omega rule with Muon, for all forms of memory: against its definition, in pieces, on packed documents; and mistakes that
//! must show.

use atlas_dsl::DType;
use atlas_ops::cases::model_problem;
use atlas_ops::omega::check::{Case, CaseInputs};
use atlas_ops::omega::muon::problem::expected;
use atlas_ops::omega::reference::{Gates, Sequence, State, mix, recurrence};
use atlas_ops::omega::rounded::Arithmetic;
use atlas_ops::omega::{
    Chunking, Loss, MemoryForm, OmegaPacked, OmegaRule, OmegaStream, Read, Step, StreamSizes, Tokens,
};
use atlas_ops::{Comparison, Fill, Problem};
use atlas_runtime::{Arg, Tensor};
use std::collections::BTreeMap;

const FORMS: [MemoryForm; 4] =
    [MemoryForm::Mlp, MemoryForm::Gated, MemoryForm::Linear, MemoryForm::Normed { eps: 0.01 }];
const STEPS: [Step; 2] = [Step::MuonByChunk, Step::MuonByToken];
/// Features of a key, elements of a value, hidden elements: as many, fewer and more values than keys, and matrices that stand the
/// other way round.
const MEMORIES: [[usize; 3]; 4] = [[16, 16, 32], [8, 24, 40], [40, 16, 24], [16, 40, 24]];

/// A case of two sequences and two heads.
fn case(tokens: usize, memory: [usize; 3], chunking: Chunking, form: MemoryForm, step: Step) -> Case {
    let mut case = Case::new([2, tokens, 2], memory, chunking).of_form(form);
    case.memory[2] = if form == MemoryForm::Linear { 0 } else { memory[2] };
    case.rule.step = step;
    case
}

#[track_caller]
fn holds(case: &Case, bound: f64) {
    let found = case.check(&crate::device()).unwrap_or_else(|e| panic!("{case:?}: {e}"));
    assert!(found.passes(bound), "{case:?}: {found:?}");
}

/// The bound on the results of an element type: of five Newton-Schulz steps.
const BOUNDS: [(DType, f64); 3] = [(DType::F32, 1e-5), (DType::F16, 5e-3), (DType::Bf16, 3e-2)];

#[test]
fn chunks_and_windows_of_any_length() {
    for form in FORMS {
        for step in STEPS {
            let chunkings = [(11, 4, 3), (8, 4, 1), (5, 2, 7), (3, 8, 2), (1, 4, 2), (4, 1, 3)];
            for ((tokens, chunk, window), memory) in chunkings.into_iter().zip(MEMORIES.into_iter().cycle()) {
                for read in [Read::Before, Read::After] {
                    let mut case = case(tokens, memory, Chunking::new(chunk, window), form, step);
                    case.rule.read = read;
                    holds(&case, 1e-5);
                }
            }
        }
    }
}

#[test]
fn the_inner_product_as_the_loss() {
    for form in FORMS {
        for step in STEPS {
            for (loss, read) in [(Loss::Dot, Read::Before), (Loss::Dot, Read::After), (Loss::MeanSquare, Read::After)] {
                let mut case = case(9, [16, 16, 32], Chunking::new(4, 3), form, step);
                (case.rule.loss, case.rule.read) = (loss, read);
                holds(&case, 1e-5);
            }
        }
    }
}

/// Windows of the first chunk reach tokens before the first one, rows of zeros that have no norm.
#[test]
fn a_norm_needs_no_epsilon() {
    for step in STEPS {
        for (tokens, chunk, window) in [(9, 4, 3), (5, 1, 4)] {
            let form = MemoryForm::Normed { eps: 0.0 };
            holds(&case(tokens, [16, 16, 32], Chunking::new(chunk, window), form, step), 1e-5);
        }
    }
}

/// The problem of a kernel for a form and a step, with dims by name.
fn problem(form: MemoryForm, step: Step, dtype: DType, dims: &[(&str, u64)]) -> Problem {
    let kernel = match step {
        Step::MuonByToken => "omega_muon_tokens",
        _ => "omega_muon",
    };
    let kernel = match form {
        MemoryForm::Mlp => kernel.to_owned(),
        MemoryForm::Gated => format!("{kernel}_gated"),
        MemoryForm::Linear => format!("{kernel}_linear"),
        MemoryForm::Normed { .. } => format!("{kernel}_normed"),
    };
    let of = atlas_ops::OPS.iter().flat_map(|op| op.defs()).find(|k| k.name == kernel).unwrap();
    let size = |name: &str| dims.iter().find(|(n, _)| *n == name).unwrap().1;
    let dims: Vec<u64> = of.dims.iter().map(|d| size(d.name)).collect();
    model_problem(of.name, dtype, &dims).unwrap()
}

/// What a kernel writes of a problem on the CPU.
fn written(p: &Problem) -> Vec<Vec<f64>> {
    let mut prepared = p.prepare(&crate::device(), &p.inputs()).unwrap();
    prepared.launch(None).unwrap();
    prepared.outputs().into_iter().map(|t| t.to_f64_vec().unwrap()).collect()
}

#[test]
fn sixteen_bits_are_as_near_as_their_roundings() {
    for (form, step) in FORMS.into_iter().flat_map(|form| STEPS.map(|step| (form, step))) {
        for (dtype, bound) in BOUNDS {
            for before in [0.0, 1.0] {
                let dims = [("B", 1), ("N", 13), ("H", 2), ("D", 24), ("P", 16), ("E", 16), ("W", 5), ("M", 40)];
                let chunks = [("C", 4), ("L", 4), ("K", 8)];
                let p = problem(form, step, dtype, &[&dims[..], &chunks[..]].concat());
                let p = p.with_scalar("before", before).with_scalar("chunk", 4.0);
                let found = p.expected(&p.inputs()).beside(&written(&p));
                assert!(found.passes(bound), "{p}: {found:?}");
            }
        }
    }
}

/// One head of a case in f64.
fn of_one_head(case: &Case) -> (Sequence, Gates, State) {
    let x = case.inputs();
    let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let each = |of: &[Vec<f32>]| of.iter().map(|w| wide(w)).collect();
    let sequence =
        Sequence { q: wide(&x.q), k: wide(&x.k), v: wide(&x.v), rq: wide(&x.rq), rk: wide(&x.rk), norm: wide(&x.norm) };
    let gates = Gates { alpha: wide(&x.alpha), theta: wide(&x.theta), eta: wide(&x.eta), gamma: wide(&x.gamma) };
    (sequence, gates, State { w: each(&x.w), s: each(&x.s) })
}

#[test]
fn what_rounds_nothing_is_the_definition() {
    for (form, step) in FORMS.into_iter().flat_map(|form| STEPS.map(|step| (form, step))) {
        for (tokens, chunk, window) in [(13, 4, 5), (9, 4, 16), (6, 1, 4), (5, 1, 1)] {
            for (read, loss) in [(Read::Before, Loss::Square), (Read::After, Loss::Dot)] {
                let mut case = case(tokens, [8, 24, 40], Chunking::new(chunk, window), form, step);
                case.batch = [1, tokens, 1];
                (case.rule.read, case.rule.loss) = (read, loss);
                let (s, (sequence, gates, start)) = (case.sizes(), of_one_head(&case));
                let (mut by_definition, mut by_parts) = (start.clone(), start);
                let wanted = recurrence(&s, &sequence, &gates, &mut by_definition, &case.rule);
                let exact = Arithmetic::of(DType::F64);
                let found = match step {
                    Step::MuonByToken => exact.tokens(&s, &case.rule, &sequence, &gates, &mut by_parts).0,
                    _ => {
                        let mixed = mix(&s, &gates, read == Read::Before, usize::MAX);
                        exact.chunks(&s, &case.rule, &sequence, &mixed, &mut by_parts)
                    }
                };
                let near = |found: &[f64], wanted: &[f64]| Comparison::new(found, wanted).passes(1e-10);
                let of = |state: &State| state.w.iter().chain(&state.s).cloned().collect::<Vec<_>>();
                let alike = of(&by_parts).iter().zip(&of(&by_definition)).all(|(a, b)| near(a, b));
                assert!(near(&found, &wanted) && alike, "{:?} of {tokens} tokens", case.rule);
            }
        }
    }
}

/// Fewer keys than rows: what is rounded is part of the result, and a mistake is still more than that.
#[test]
fn low_rank_is_judged_by_its_own_roundings() {
    // Of 26 keys and 55 rows, chunk after chunk; of 12 and 48; of windows of 5 and 40 rows. Of one step, a rounding of its result
    // hides a slightly different one.
    let cases: [(&str, &[u64], f64); 5] = [
        ("omega_muon", &[1, 640, 1, 23, 1640, 55, 64, 26, 10, 192], 0.02),
        ("omega_muon_gated", &[1, 160, 1, 23, 160, 55, 16, 26, 10, 96], 0.04),
        ("fused_optimization", &[3, 12, 24, 48, 96], 0.1),
        ("omega_muon_tokens", &[1, 6, 1, 16, 6, 40, 5, 48, 8], 0.2),
        ("omega_muon_tokens_gated", &[1, 6, 1, 16, 6, 40, 5, 48, 8], 0.2),
    ];
    for (kernel, dims, mistake) in cases {
        for dtype in [DType::Bf16, DType::F16, DType::F32] {
            let mut p = model_problem(kernel, dtype, dims).unwrap();
            if kernel.starts_with("omega_muon_tokens") {
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

/// What the memory reads of keys is no part of the error then, even if it is no number.
#[test]
fn the_inner_product_does_not_read_keys() {
    for form in FORMS {
        for step in STEPS {
            // One chunk, which is read before its step: the step makes all of the memory no number.
            let mut case = case(4, [8, 8, 16], Chunking::new(4, 3), form, step);
            case.rule.read = Read::Before;
            case.rule.loss = Loss::Dot;
            case.edit = |x| x.w[0].fill(f32::NAN);
            let found = case.run(&crate::device(), &case.inputs()).unwrap();
            let momentum = &found[1 + found.len() / 2];
            // A norm takes its Jacobian at what is read.
            let is_normed = matches!(form, MemoryForm::Normed { .. });
            assert_eq!(momentum.iter().all(|s| s.is_finite()), !is_normed, "{form:?} {step:?}");
            case.rule.loss = Loss::Square;
            let found = case.run(&crate::device(), &case.inputs()).unwrap();
            assert!(found[1 + found.len() / 2].iter().any(|s| s.is_nan()), "{form:?} {step:?}");
        }
    }
}

#[test]
fn mistakes_show() {
    type Planted = fn(&mut atlas_ops::omega::reference::SequenceSizes, &mut CaseInputs);
    let mistakes: [(&str, Planted); 4] = [
        ("the step inside the iteration", |_, x| {
            let window = x.gamma.len() / x.eta.len();
            x.gamma.iter_mut().enumerate().for_each(|(i, g)| *g *= x.eta[i / window]);
            x.eta.fill(1.0);
        }),
        ("no halo", |s, _| s.k = s.l),
        ("the anchor of another chunk", |s, _| {
            s.l *= 2;
            s.k += s.l / 2;
        }),
        ("the last steps are lost", |_, x| {
            let [_, n, h] = x.batch;
            x.eta.iter_mut().enumerate().filter(|(i, _)| i / h % n == n - 1).for_each(|(_, e)| *e = 0.0);
        }),
    ];
    for form in FORMS {
        for step in STEPS {
            for (dtype, bound) in BOUNDS {
                // Steps of a memory with a norm are so short that a lost one is within the bounds of 16 bits.
                if matches!(form, MemoryForm::Normed { .. }) && dtype != DType::F32 {
                    continue;
                }
                let mut case = case(21, [16, 16, 32], Chunking::new(8, 5), form, step);
                case.dtype = dtype;
                case.edit = |x| x.eta.iter_mut().for_each(|eta| *eta *= 2.0);
                holds(&case, bound);
                for (name, edit) in mistakes {
                    let found = case.check_against(&crate::device(), edit).unwrap();
                    assert!(!found.passes(bound), "{name} went unnoticed in {dtype} {:?}: {found:?}", case.rule);
                }
            }
        }
    }
}

#[test]
fn every_matrix_is_orthogonalised() {
    for form in FORMS {
        for step in STEPS {
            // One step, so that the momentum is the same with Newton-Schulz and without it.
            let case = case(1, [16, 16, 32], Chunking::new(1, 1), form, step);
            let inputs = case.inputs();
            let (right, plain) = (case.expected(&inputs, &case.sizes()), {
                let mut case = case.clone();
                case.rule.step = Step::Descent;
                case.expected(&inputs, &case.sizes())
            });
            let found = case.run(&crate::device(), &inputs).unwrap();
            for at in 1..=right.len() / 2 {
                assert!(Comparison::new(&found[at], &right[at]).passes(1e-5), "{form:?} {step:?} {at}");
                assert!(!Comparison::new(&found[at], &plain[at]).passes(1e-5), "{form:?} {step:?} {at}");
            }
        }
    }
}

#[test]
fn a_sequence_may_be_given_in_parts() {
    for form in FORMS {
        for step in STEPS {
            let mut case = case(11, [8, 8, 16], Chunking::new(4, 3), form, step);
            case.rule.read = Read::Before;
            let inputs = case.inputs();
            let whole = case.run(&crate::device(), &inputs).unwrap();
            for parts in [vec![8, 3], vec![5, 1, 5], vec![1; 11]] {
                case.parts = parts;
                assert_eq!(case.run(&crate::device(), &inputs).unwrap(), whole, "{form:?} {step:?} {:?}", case.parts);
            }
        }
    }
}

/// Tensors of a case by name: tokens, gates and, if the memory has one, the norm's weight; and weights, then momenta.
fn tensors(case: &Case) -> (BTreeMap<&'static str, Tensor>, Vec<Tensor>) {
    let (x, cpu) = (case.inputs(), crate::device());
    let ([b, n, h], [d, e, m]) = (case.batch, case.memory);
    let of = |values: &[f32], shape: &[usize]| cpu.tensor_from(values, shape).unwrap();
    let tokens = |values: &[f32], width: usize| of(values, &[b, n, h, width]);
    let gate = |values: &[f32]| of(values, &[b, n, h]);
    let mut given: BTreeMap<&'static str, Tensor> = [
        ("q", tokens(&x.q, d)),
        ("k", tokens(&x.k, d)),
        ("v", tokens(&x.v, e)),
        ("rq", tokens(&x.rq, e)),
        ("rk", tokens(&x.rk, e)),
        ("alpha", gate(&x.alpha)),
        ("theta", gate(&x.theta)),
        ("eta", gate(&x.eta)),
        ("gamma", tokens(&x.gamma, case.rule.chunking.window)),
    ]
    .into();
    if !x.norm.is_empty() {
        given.insert("norm", of(&x.norm, &[h, e]));
    }
    let shapes = case.rule.memory.matrices(d, e, m).into_iter().cycle();
    let memory = x.w.iter().chain(&x.s).zip(shapes).map(|(w, [rows, cols])| of(w, &[b, h, rows, cols])).collect();
    (given, memory)
}

fn tokens_of<'t>(of: &'t BTreeMap<&str, Tensor>) -> Tokens<'t> {
    let [q, k, v, rq, rk] = ["q", "k", "v", "rq", "rk"].map(|name| &of[name]);
    let [alpha, theta, eta, gamma] = ["alpha", "theta", "eta", "gamma"].map(|name| &of[name]);
    Tokens { q, k, v, rq, rk, alpha, theta, eta, gamma }
}

/// The same with some tokens alone.
fn part(of: &BTreeMap<&'static str, Tensor>, tokens: std::ops::Range<usize>) -> BTreeMap<&'static str, Tensor> {
    let cut = |(name, t): (&&'static str, &Tensor)| {
        (*name, if *name == "norm" { t.clone() } else { t.slice(1, tokens.clone()).unwrap() })
    };
    of.iter().map(cut).collect()
}

/// Runs a rule's chain over sequences, with all of their chunks, and gives what is read.
fn launch(case: &Case, given: &BTreeMap<&'static str, Tensor>, memory: &mut [Tensor]) -> Tensor {
    let ([d, e, m], cpu, rule) = (case.memory, crate::device(), case.rule);
    let chain = rule.chain_for(d, e, DType::F32);
    let [b, n, h, _] = given["v"].shape().try_into().unwrap();
    let mut y = Tensor::zeros(&cpu, DType::F32, given["v"].shape()).unwrap();
    let defs = || chain.kernels.iter().map(|k| k.declared());
    let mut dims = rule.chunking.dims(b, h, n).to_vec();
    dims.extend([("D", d), ("E", e), ("M", m)]);
    dims.retain(|(name, _)| defs().any(|k| k.dims.iter().any(|d| d.name == *name)));
    let mut space = chain.workspace(&cpu, &[("T", DType::F32)], &dims).unwrap();
    let (mut out, mut states) = (Some(&mut y), memory.iter_mut());
    let eps = if let MemoryForm::Normed { eps } = rule.memory { eps } else { 0.0 };
    let args = chain.params().into_iter().map(|p| match p.name() {
        "before" => Arg::I32((rule.read == Read::Before).into()),
        "commit" => Arg::I32(i32::MAX),
        "chunk" => Arg::I32(rule.chunking.chunk as i32),
        "scale" => Arg::F32(rule.loss.factor(e)),
        "predicts" => Arg::I32(rule.loss.predicts().into()),
        "eps" => Arg::F32(eps),
        "y" => Arg::Out(out.take().unwrap()),
        name => given.get(name).map_or_else(|| Arg::Out(states.next().unwrap()), Arg::In),
    });
    let args: Vec<Arg<'_>> = args.collect();
    chain.launch(&cpu, args, &mut space).unwrap();
    y
}

fn values<'t>(tensors: impl IntoIterator<Item = &'t Tensor>) -> Vec<Vec<f32>> {
    tensors.into_iter().map(|t| t.to_vec::<f32>().unwrap()).collect()
}

/// A stream for a case.
fn stream(case: &Case, piece: usize) -> OmegaStream {
    let ([sequences, _, heads], [key, value, _]) = (case.batch, case.memory);
    let sizes = StreamSizes { sequences, heads, key, value, piece, dtype: DType::F32 };
    let stream = OmegaStream::new(&crate::device(), case.rule, sizes).unwrap();
    match tensors(case).0.remove("norm") {
        Some(norm) => stream.with_norm(norm),
        None => stream,
    }
}

/// What is read, and the memory afterwards, of a case in pieces of these lengths, again and again.
fn pieces(case: &Case, lengths: &[usize], piece: usize) -> Vec<Vec<f32>> {
    let ((given, mut memory), mut stream) = (tensors(case), stream(case, piece));
    let y = Tensor::zeros(&crate::device(), DType::F32, given["v"].shape()).unwrap();
    let (mut from, mut lengths, tokens) = (0, lengths.iter().cycle(), case.batch[1]);
    while from < tokens {
        let to = tokens.min(from + lengths.next().unwrap());
        let piece = part(&given, from..to);
        let mut states: Vec<&mut Tensor> = memory.iter_mut().collect();
        stream.push(&tokens_of(&piece), &mut states, &mut y.slice(1, from..to).unwrap()).unwrap();
        from = to;
    }
    values(std::iter::once(&y).chain(&memory))
}

/// Rules that a stream may have: by chunks of several tokens a token is read before the step.
fn streamed() -> Vec<(MemoryForm, Step, Read, Chunking)> {
    let mut all = Vec::new();
    for form in FORMS {
        for (chunk, window) in [(4, 3), (3, 6), (1, 4)] {
            for (step, read) in
                [(Step::MuonByChunk, Read::Before), (Step::MuonByToken, Read::Before), (Step::MuonByToken, Read::After)]
            {
                all.push((form, step, read, Chunking::new(chunk, window)));
            }
        }
        all.push((form, Step::MuonByChunk, Read::After, Chunking::new(1, 4)));
        all.push((form, Step::MuonByToken, Read::After, Chunking { halo: false, ..Chunking::new(4, 3) }));
    }
    all
}

#[test]
fn pieces_of_any_length_give_what_the_whole_gives() {
    for (form, step, read, chunking) in streamed() {
        let mut case = case(11, [8, 8, 16], chunking, form, step);
        case.rule.read = read;
        let ((given, mut memory), chunk) = (tensors(&case), chunking.chunk);
        let y = launch(&case, &given, &mut memory).to_vec::<f32>().unwrap();
        // The memory goes on with full chunks.
        let (_, mut memory) = tensors(&case);
        launch(&case, &part(&given, 0..11 / chunk * chunk), &mut memory);
        let whole: Vec<Vec<f32>> = std::iter::once(y).chain(values(&memory)).collect();
        for (lengths, piece) in [(&[1][..], 4), (&[11], 100), (&[11], 3), (&[2, 1, 5], 4)] {
            assert_eq!(pieces(&case, lengths, piece), whole, "{:?} in pieces of {lengths:?}", case.rule);
        }
    }
}

#[test]
fn the_open_chunk_is_no_part_of_the_memory() {
    for form in FORMS {
        let case = case(6, [8, 8, 16], Chunking::new(4, 3), form, Step::MuonByToken);
        let (given, start) = tensors(&case);
        let whole = pieces(&case, &[6], 8);
        // After three tokens of a chunk the memory is as it was, and no more is allocated for further ones.
        let ((_, mut memory), mut stream) = (tensors(&case), stream(&case, 8));
        let mut y = Tensor::zeros(&crate::device(), DType::F32, [2, 1, 2, 8]).unwrap();
        let mut held = vec![];
        for t in 0..3 {
            let piece = part(&given, t..t + 1);
            stream.push(&tokens_of(&piece), &mut memory.iter_mut().collect::<Vec<_>>(), &mut y).unwrap();
            held.push(stream.bytes());
        }
        assert_eq!(values(&memory), values(&start));
        assert_eq!(held[1..], held[..2]);
        // On the memory itself, its tokens would train twice.
        launch(&case, &part(&given, 0..3), &mut memory);
        let y = launch(&case, &part(&given, 0..4), &mut memory);
        assert_ne!(values(&memory), whole[1..]);
        assert_ne!(y.to_vec::<f32>().unwrap()[..], whole[0][..y.len()]);
    }
}

#[test]
fn what_would_depend_on_later_tokens_is_refused() {
    for form in FORMS {
        let mut case = case(6, [8, 8, 16], Chunking::new(4, 3), form, Step::MuonByChunk);
        let sizes = StreamSizes { sequences: 2, heads: 2, key: 8, value: 8, piece: 4, dtype: DType::F32 };
        let on = crate::device().default_stream();
        let new = |rule: OmegaRule| {
            let refused = OmegaStream::new(&crate::device(), rule, sizes).err().map(|e| e.to_string());
            // Packed documents are refused with the same words.
            assert_eq!(OmegaPacked::new(&on, rule, sizes).err().map(|e| e.to_string()), refused);
            refused
        };
        let refused = new(case.rule).unwrap();
        let name = case.rule.chain().name;
        assert!(refused.contains("ATL652") && refused.contains(&format!("`{name}`")), "{refused}");
        assert!(refused.contains("chunk of 4 tokens"), "{refused}");
        case.rule.chunking = Chunking::new(1, 3);
        assert_eq!(new(case.rule), None);
        case.rule.chunking = Chunking::new(4, 3);
        assert_eq!(new(OmegaRule { read: Read::Before, ..case.rule }), None);
        assert_eq!(new(OmegaRule { step: Step::MuonByToken, ..case.rule }), None);
    }
}

/// Documents of these boundaries, with room for `piece` tokens each: each is read, and trains its memory, as it does alone.
fn packed(mut case: Case, bounds: [i32; 6], piece: usize) {
    let (cpu, documents) = (crate::device(), bounds.len() - 1);
    case.batch[0] = 1;
    let (given, memory) = tensors(&case);
    let ([_, tokens, heads], [key, value, _]) = (case.batch, case.memory);
    // Each document has the memory of the case at its start.
    let of_all = |t: &Tensor| {
        let (mut shape, values) = (t.shape().to_vec(), t.to_vec::<f32>().unwrap());
        shape[0] = documents;
        cpu.tensor_from(&values.repeat(documents), shape).unwrap()
    };
    let mut memories: Vec<Tensor> = memory.iter().map(of_all).collect();
    let on = cpu.default_stream();
    let sizes = StreamSizes { sequences: documents, heads, key, value, piece, dtype: DType::F32 };
    let mut packed = OmegaPacked::new(&on, case.rule, sizes).unwrap();
    if let Some(norm) = given.get("norm") {
        packed = packed.with_norm(norm.clone());
    }
    let starts = cpu.tensor_from(&bounds, [bounds.len()]).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::F32, given["v"].shape()).unwrap();
    // Twice, with the same memory at the start.
    let before = values(&memories);
    for _ in 0..2 {
        for (memory, before) in memories.iter_mut().zip(&before) {
            *memory = cpu.tensor_from(before, memory.shape()).unwrap();
        }
        packed.launch(&on, &tokens_of(&given), &starts, &mut memories.iter_mut().collect::<Vec<_>>(), &mut y).unwrap();
    }
    let (found, width) = (y.to_vec::<f32>().unwrap(), heads * value);
    for (at, of) in bounds.windows(2).enumerate() {
        let [start, end] = [of[0], of[1]].map(|b| b.clamp(0, tokens as i32) as usize);
        let end = end.min(start + piece);
        let (_, mut alone) = tensors(&case);
        let own: Vec<Vec<f32>> = memories.iter().map(|m| m.slice(0, at..at + 1).unwrap().to_vec().unwrap()).collect();
        if start < end {
            let y = launch(&case, &part(&given, start..end), &mut alone).to_vec::<f32>().unwrap();
            assert_eq!(found[start * width..end * width], y, "{:?} document {at}", case.rule);
            if (end - start) % case.rule.chunking.chunk != 0 && case.rule.step == Step::MuonByChunk {
                // A document that loses the last step of its last chunk ends elsewhere.
                let (_, mut short) = tensors(&case);
                let mut lost = part(&given, start..end);
                let mut eta = lost["eta"].to_vec::<f32>().unwrap();
                let last = eta.len() - heads;
                eta[last..].fill(0.0);
                lost.insert("eta", cpu.tensor_from(&eta, lost["eta"].shape()).unwrap());
                launch(&case, &lost, &mut short);
                assert_ne!(values(&short), own, "{:?} document {at}", case.rule);
            }
        }
        assert_eq!(values(&alone), own, "{:?} document {at}", case.rule);
    }
}

/// The rows before the first token are no tokens, and those behind the end of a document have no weight: a norm without `eps` of
/// their zeros would be NaN.
#[test]
fn a_norm_without_eps_is_of_tokens_alone() {
    let form = MemoryForm::Normed { eps: 0.0 };
    for step in [Step::Descent, Step::MuonByChunk, Step::MuonByToken] {
        let mut case = case(17, [8, 8, 16], Chunking::new(4, 3), form, step);
        case.rule.read = Read::Before;
        let whole = pieces(&case, &[17], 32);
        assert!(whole.iter().flatten().all(|v| v.is_finite()), "{step:?}");
        assert_eq!(pieces(&case, &[1, 5, 3], 4), whole, "{step:?}");
        packed(case, [0, 5, 13, 13, 14, 17], 8);
    }
}

#[test]
fn packed_documents_end_as_they_end_alone() {
    for (form, step) in FORMS.into_iter().flat_map(|form| STEPS.map(|step| (form, step))) {
        for (chunk, read) in [(4, Read::Before), (4, Read::After), (1, Read::After)] {
            // Refused, because it would read later tokens.
            if (step, chunk, read) == (Step::MuonByChunk, 4, Read::After) {
                continue;
            }
            let mut case = case(17, [8, 8, 16], Chunking::new(chunk, 3), form, step);
            case.rule.read = read;
            // Documents of 5, 8, 0, 1 and 3 tokens; some with tokens outside of all; some longer than their room.
            packed(case.clone(), [0, 5, 13, 13, 14, 17], 8);
            packed(case.clone(), [2, 7, 8, 12, 12, 15], 9);
            packed(case, [-3, 9, 11, 11, 12, 40], 6);
        }
    }
}

/// Matrices that kernels walk over.
#[test]
fn large_matrices_come_in_pieces_and_packed() {
    for (form, step) in FORMS.into_iter().flat_map(|form| STEPS.map(|step| (form, step))) {
        let mut case = case(9, [104, 12, 20], Chunking::new(4, 3), form, step);
        case.rule.read = Read::Before;
        assert!(case.rule.chain_for(104, 12, DType::F32).name.ends_with("_wide"));
        let (given, mut memory) = tensors(&case);
        let y = launch(&case, &given, &mut memory).to_vec::<f32>().unwrap();
        let (_, mut memory) = tensors(&case);
        launch(&case, &part(&given, 0..8), &mut memory);
        let whole: Vec<Vec<f32>> = std::iter::once(y).chain(values(&memory)).collect();
        for (lengths, piece) in [(&[1][..], 4), (&[9], 3), (&[2, 5], 4)] {
            assert_eq!(pieces(&case, lengths, piece), whole, "{:?} in pieces of {lengths:?}", case.rule);
        }
        packed(case, [0, 5, 5, 7, 8, 9], 5);
    }
}
