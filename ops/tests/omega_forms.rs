//! All forms of a memory and all losses: the two references against each other, chains against the definition, and mistakes of
//! one form or one loss that must show.

use atlas_dsl::DType;
use atlas_ops::Comparison;
use atlas_ops::omega::check::{Case, CaseInputs};
use atlas_ops::omega::reference::{Factors, Gates, Sequence, State, chunks, mix, read, recurrence};
use atlas_ops::omega::{Chunking, Loss, MemoryForm, OmegaRule, Read};

const FORMS: [MemoryForm; 4] =
    [MemoryForm::Linear, MemoryForm::Mlp, MemoryForm::Gated, MemoryForm::Normed { eps: 1e-5 }];
/// Those that have a chain.
const CHAINS: [MemoryForm; 4] = FORMS;
const LOSSES: [Loss; 5] = [Loss::Square, Loss::HalfSquare, Loss::MeanSquare, Loss::Scaled(1.5), Loss::Dot];

/// A case of one sequence with two heads.
fn case(form: MemoryForm, tokens: usize, chunking: Chunking) -> Case {
    Case::new([1, tokens, 2], [8, 12, 20], chunking).of_form(form)
}

/// One head of a case in f64: its sequence, its gates and its memory.
fn head(case: &Case) -> (Sequence, Gates, State) {
    let one = Case { batch: [1, case.batch[1], 1], ..case.clone() };
    let (x, s) = (one.inputs(), one.sizes());
    let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let residual =
        |seed: usize| (0..s.n * s.e).map(|i| ((i * 37 + seed) % 19) as f64 / 40.0 - 0.2).collect::<Vec<f64>>();
    let (q, k, v, norm) = (wide(&x.q), wide(&x.k), wide(&x.v), wide(&x.norm));
    let sequence = Sequence { q, k, v, rq: residual(1), rk: residual(2), norm };
    let gates = Gates { alpha: wide(&x.alpha), theta: wide(&x.theta), eta: wide(&x.eta), gamma: wide(&x.gamma) };
    let each = |of: &[Vec<f32>]| of.iter().map(|w| wide(w)).collect();
    (sequence, gates, State { w: each(&x.w), s: each(&x.s) })
}

#[test]
fn the_dual_form_is_the_recurrence() {
    for form in FORMS {
        for loss in LOSSES {
            for (tokens, chunk, window, halo) in [
                (23, 8, 5, true),
                (9, 4, 16, true),
                (10, 1, 4, true),
                (5, 5, 5, true),
                (7, 16, 3, true),
                (23, 8, 5, false),
            ] {
                for read in [Read::After, Read::Before] {
                    let mut case = case(form, tokens, Chunking { halo, ..Chunking::new(chunk, window) });
                    case.rule = OmegaRule { loss, read, ..case.rule };
                    let ((sequence, gates, start), s) = (head(&case), case.sizes());
                    let (mut by_tokens, mut by_chunks) = (start.clone(), start.clone());
                    let wanted = recurrence(&s, &sequence, &gates, &mut by_tokens, &case.rule);
                    let mixed = mix(&s, &gates, read == Read::Before, usize::MAX);
                    let found = chunks(&s, &sequence, &mixed, &mut by_chunks, &case.rule);
                    let near = |found: &[f64], wanted: &[f64]| Comparison::new(found, wanted).passes(1e-10);
                    assert!(near(&found, &wanted), "{case:?}");
                    let all = |state: &State| state.w.iter().chain(&state.s).flatten().copied().collect::<Vec<f64>>();
                    assert!(near(&all(&by_chunks), &all(&by_tokens)), "{case:?}");
                    assert!(!near(&all(&by_chunks), &all(&start)), "{case:?} trains nothing");
                }
            }
        }
    }
}

/// How far the chain is from the definition, of which a mistake is made in the case.
fn apart(case: &Case, mistake: impl Fn(&mut Case)) -> Comparison {
    let mut other = case.clone();
    mistake(&mut other);
    let inputs = case.inputs();
    let (found, wanted) = (case.run(&crate::device(), &inputs).unwrap(), other.expected(&inputs, &other.sizes()));
    Comparison::of_all(found.iter().map(Vec::as_slice).zip(wanted.iter().map(Vec::as_slice)))
}

#[test]
fn chains_train_for_every_loss() {
    for form in CHAINS {
        for loss in LOSSES {
            for read in [Read::After, Read::Before] {
                let mut case = case(form, 23, Chunking::new(8, 5));
                case.rule = OmegaRule { loss, read, ..case.rule };
                let right = apart(&case, |_| {});
                assert!(right.passes(1e-5), "{case:?}: {right:?}");
                for other in LOSSES.into_iter().filter(|other| *other != loss) {
                    let wrong = apart(&case, |case| case.rule.loss = other);
                    assert!(!wrong.passes(1e-5), "{other:?} went unnoticed in {case:?}: {wrong:?}");
                }
            }
        }
    }
}

/// What the memory makes of a key is no part of a loss that predicts nothing, whatever it is.
#[test]
fn a_loss_that_predicts_nothing_reads_no_key() {
    for form in CHAINS {
        for (of_keys, dtype) in [(f32::NAN, DType::F32), (f32::INFINITY, DType::F32), (60_000.0, DType::F16)] {
            let mut case = case(form, 23, Chunking::new(8, 5));
            (case.dtype, case.rule.loss) = (dtype, Loss::Dot);
            let inputs = case.inputs();
            let mut far = inputs.clone();
            far.rk.fill(of_keys);
            let run = |case: &Case, inputs: &CaseInputs| case.run(&crate::device(), inputs).unwrap();
            assert_eq!(run(&case, &far), run(&case, &inputs), "{case:?}");
            case.rule.loss = Loss::Square;
            let read = run(&case, &far);
            assert!(read.iter().flatten().any(|v| !v.is_finite()), "{case:?}");
        }
    }
}

/// The gradient of a loss by differences of the loss itself, and by the factors of the reference.
#[test]
fn gradients_are_those_of_the_loss() {
    for form in FORMS {
        for loss in LOSSES {
            let mut case = case(form, 1, Chunking::new(1, 1));
            case.rule.loss = loss;
            let ((x, _, State { w, .. }), s) = (head(&case), case.sizes());
            let of = |w: &[Vec<f64>]| {
                let y = read(&case.rule, &s, w, &x.norm, &x.k, &x.rk);
                let pairs = y.iter().zip(&x.v);
                match loss {
                    Loss::Dot => pairs.map(|(y, v)| -y * v).sum::<f64>(),
                    _ => f64::from(loss.factor(s.e)) / 2.0 * pairs.map(|(y, v)| (y - v).powi(2)).sum::<f64>(),
                }
            };
            let mut by_differences = State::zeros_like(&w);
            for (i, matrix) in w.iter().enumerate() {
                for k in 0..matrix.len() {
                    let at = |by: f64| {
                        let mut w = w.clone();
                        w[i][k] += by;
                        of(&w)
                    };
                    by_differences[i][k] = (at(1e-5) - at(-1e-5)) / 2e-5;
                }
            }
            let gradient = |rule: &OmegaRule| {
                let mut sum = State::zeros_like(&w);
                Factors::of(rule, &s, &w, &x.norm, [&x.k, &x.v, &x.rk]).add(&mut sum, 1.0);
                sum.concat()
            };
            let right = Comparison::new(&gradient(&case.rule), &by_differences.concat());
            assert!(right.passes(1e-7), "{:?}: {right:?}", case.rule);
            for other in LOSSES.into_iter().filter(|other| *other != loss) {
                let wrong =
                    Comparison::new(&gradient(&OmegaRule { loss: other, ..case.rule }), &by_differences.concat());
                assert!(!wrong.passes(1e-2), "{other:?} for {:?}: {wrong:?}", case.rule);
            }
        }
    }
}

#[test]
fn the_halves_of_a_gated_memory_are_not_alike() {
    let case = case(MemoryForm::Gated, 23, Chunking::new(8, 5));
    let (inputs, sizes) = (case.inputs(), case.sizes());
    let found = case.run(&crate::device(), &inputs).unwrap();
    let apart = |wanted: &[Vec<f64>], at: usize| Comparison::new(&found[at], &wanted[at]);
    let right = case.expected(&inputs, &sizes);
    let mut turned = inputs.clone();
    turned.w.swap(1, 2);
    turned.s.swap(1, 2);
    // What is read, W1, W2, W3 and their momenta, of a memory whose gelu is of the other half.
    let mut wrong = case.expected(&turned, &sizes);
    wrong.swap(2, 3);
    wrong.swap(5, 6);
    for at in 0..7 {
        assert!(apart(&right, at).passes(1e-5), "{at}");
        assert!(!apart(&wrong, at).passes(1e-2), "{at}: {:?}", apart(&wrong, at));
    }
}

/// The momentum of `W1` after one token from rest, with the norm's Jacobian written out as a matrix, or without it.
fn momentum_of_one_token(case: &Case, x: &CaseInputs, with_jacobian: bool) -> Vec<f64> {
    let ([d, e, m], MemoryForm::Normed { eps }) = (case.memory, case.rule.memory) else { panic!("{case:?}") };
    let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let (k, v, rk, norm, w1, w2) = (wide(&x.k), wide(&x.v), wide(&x.rk), wide(&x.norm), wide(&x.w[0]), wide(&x.w[1]));
    let times = |w: &[f64], x: &[f64]| -> Vec<f64> {
        w.chunks(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
    };
    assert_eq!((k.len(), w1.len()), (d, e * m));
    let hidden: Vec<f64> = times(&w2, &k).into_iter().map(atlas_ops::memory::gelu).collect();
    let out = times(&w1, &hidden);
    let mean = out.iter().sum::<f64>() / e as f64;
    let variance = out.iter().map(|o| (o - mean).powi(2)).sum::<f64>() / e as f64 + f64::from(eps);
    let unit = |i: usize| (out[i] - mean) / variance.sqrt();
    let error = |i: usize| 2.0 * (unit(i) * norm[i] + rk[i] - v[i]) * norm[i];
    // d unit_i / d out_j
    let slope =
        |i: usize, j: usize| (f64::from(u8::from(i == j)) - (1.0 + unit(i) * unit(j)) / e as f64) / variance.sqrt();
    let through = |j: usize| if with_jacobian { (0..e).map(|i| error(i) * slope(i, j)).sum() } else { error(j) };
    let gamma = f64::from(x.gamma[0]);
    (0..e)
        .flat_map(|j| {
            let left: f64 = gamma * through(j);
            hidden.iter().map(move |h| left * h).collect::<Vec<f64>>()
        })
        .collect()
}

#[test]
fn the_error_goes_through_the_jacobian_of_the_norm() {
    let mut case = case(MemoryForm::Normed { eps: 1e-3 }, 1, Chunking::new(1, 1));
    case.batch = [1, 1, 1];
    case.edit = |x| x.s.iter_mut().for_each(|s| s.fill(0.0));
    let inputs = case.inputs();
    let found = case.run(&crate::device(), &inputs).unwrap();
    // What is read, W1, W2, S1, S2.
    let apart = |with_jacobian| Comparison::new(&found[3], &momentum_of_one_token(&case, &inputs, with_jacobian));
    assert!(apart(true).passes(1e-5), "{:?}", apart(true));
    assert!(!apart(false).passes(1e-1), "{:?}", apart(false));
}

fn shorter_steps(x: &mut CaseInputs) {
    x.eta.iter_mut().for_each(|eta| *eta *= 0.3);
}

/// Memories whose rows of hidden elements, features and values are of any widths.
#[test]
fn widths_of_any_size() {
    for form in FORMS {
        for memory in [[48, 48, 192], [48, 96, 192], [96, 48, 72], [5, 3, 7], [1, 1, 1]] {
            // A norm of one element is 0, whatever the element is.
            if memory[1] == 1 && matches!(form, MemoryForm::Normed { .. }) {
                continue;
            }
            let mut case = Case::new([1, 23, 2], memory, Chunking::new(8, 5)).of_form(form);
            // A gated memory is of the third degree in its matrices: with long steps a narrow one grows beyond all bounds.
            case.edit = shorter_steps;
            let right = case.check(&crate::device()).unwrap();
            assert!(right.passes(1e-5), "{case:?}: {right:?}");
        }
    }
}

/// With `eps = 0` a row of zeros has no norm; those of tokens that are not there leave the others as they are.
#[test]
fn a_norm_may_add_nothing_to_its_variance() {
    for (tokens, chunk, window) in [(23, 8, 5), (3, 16, 3)] {
        let case = case(MemoryForm::Normed { eps: 0.0 }, tokens, Chunking::new(chunk, window));
        let right = case.check(&crate::device()).unwrap();
        assert!(right.passes(1e-5), "{case:?}: {right:?}");
    }
}
