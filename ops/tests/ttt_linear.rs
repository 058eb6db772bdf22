//! TTT-Linear against its definition, token by token, at every edge; and mistakes that must show.

use atlas_dsl::DType;
use atlas_macros::atlas_kernel;
use atlas_ops::ttt_linear::check::{TttCase, TttInputs};
use atlas_ops::ttt_linear::{TTT_LINEAR, ttt_mix};
use atlas_runtime::Chain;

const BOUNDS: [(DType, f64); 3] = [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::Bf16, 1e-2)];

#[track_caller]
fn holds(case: &TttCase) {
    for (dtype, bound) in BOUNDS {
        let case = TttCase { dtype, ..case.clone() };
        let found = case.check(&crate::device()).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        assert!(found.passes(bound), "{case:?}: {found:?}");
    }
}

#[test]
fn sequences_and_mini_batches_of_any_length() {
    for (tokens, mini_batch) in
        [(23, 8), (24, 8), (9, 1), (7, 16), (1, 64), (70, 64), (128, 32), (40, 16), (0, 16), (11, 5)]
    {
        holds(&TttCase::new([2, tokens, 2], 32, mini_batch));
    }
}

#[test]
fn heads_of_any_size() {
    for (heads, head) in [(1, 48), (2, 64), (3, 96), (1, 128), (2, 24)] {
        holds(&TttCase::new([1, 40, heads], head, 16));
    }
}

fn edited(edit: fn(&mut TttInputs)) -> TttCase {
    TttCase { edit, ..TttCase::new([1, 50, 2], 64, 16) }
}

#[test]
fn steps_from_none_to_long() {
    holds(&edited(|x| x.eta.fill(0.0)));
    holds(&edited(|x| x.eta.fill(0.3)));
    holds(&edited(|x| x.eta.iter_mut().enumerate().for_each(|(i, eta)| *eta = if i % 3 == 0 { 0.2 } else { 0.0 })));
}

#[test]
fn a_memory_may_be_empty() {
    // The first step is 1000 times as long as others, because an empty memory makes rows of the deviation 0.
    holds(&edited(|x| {
        x.s.fill(0.0);
        x.bias.fill(0.0);
        x.eta.iter_mut().for_each(|eta| *eta *= 1e-2);
    }));
}

#[test]
fn a_norm_may_be_plain() {
    holds(&edited(|x| {
        x.weight.fill(1.0);
        x.shift.fill(0.0);
    }));
}

#[test]
fn a_sequence_may_be_given_in_parts() {
    let whole = TttCase::new([2, 75, 2], 24, 16);
    let inputs = whole.inputs();
    let found = whole.run(&TTT_LINEAR, &crate::device(), &inputs).unwrap();
    for parts in [vec![16, 59], vec![32, 16, 27], vec![64, 11], vec![16, 16, 16, 16, 11]] {
        let case = TttCase { parts, ..whole.clone() };
        assert!(case.run(&TTT_LINEAR, &crate::device(), &inputs).unwrap() == found, "{:?}", case.parts);
    }
    // Cut within a mini-batch, it has other mini-batches, which is another model.
    let case = TttCase { parts: vec![8, 67], ..whole };
    assert!(!case.check(&crate::device()).unwrap().passes(1e-2));
}

/// The rule in plain form, with the memory by its inputs, and what a mistake is about: how much of a key is taken off the target,
/// how much of the gradient goes through the deviation, the residual, the token whose step the memory takes, and how much of a step
/// the bias takes.
macro_rules! recurrence {
    (
        $name:ident, $chain:ident, $keys:literal, $through:literal,
        |$read:ident, $query:ident| $residual:expr, |$first:ident, $last:ident| $token:expr, $learns:literal
    ) => {
        atlas_kernel! {
            kernel $name<T: Float>(
                q: &Tensor<T, [B, N, H, D]>,
                k: &Tensor<T, [B, N, H, D]>,
                v: &Tensor<T, [B, N, H, D]>,
                eta: &Tensor<f32, [B, N, H]>,
                p: &Tensor<T, [B, H, C, L, L]>,
                weight: &Tensor<f32, [H, D]>,
                shift: &Tensor<f32, [H, D]>,
                s: &mut Tensor<f32, [B, H, D, D]>,
                bias: &mut Tensor<f32, [B, H, D]>,
                o: &mut Tensor<T, [B, N, H, D]>,
                scale: f32,
                eps: f32,
            )
            {
                for (b, h) in grid(B, H) {
                    let mut held = load(s[b, h, .., ..]);
                    let mut offset = broadcast(load(bias[b, h, ..]), [1, D]);
                    for c in 0..size(C) {
                        let $first = c * size(L);
                        let kc = load(k[b, span($first, L), h, ..]);
                        let weights = load(weight[h, ..]);
                        let z = dot(kc, held.cast::<T>()) + offset;
                        let apart = z - sum(z, axis = 1) / size(D).cast::<f32>();
                        let by = rsqrt(sum(apart * apart, axis = 1) / size(D).cast::<f32>() + eps);
                        let x = apart * by;
                        let wanted = load(v[b, span($first, L), h, ..]).cast::<f32>() - $keys * kc.cast::<f32>();
                        let g = weights * (weights * x + load(shift[h, ..]) - wanted);
                        let along = $through * x * (sum(g * x, axis = 1) / size(D).cast::<f32>());
                        let dz = by * (g - sum(g, axis = 1) / size(D).cast::<f32>() - along);
                        let qc = load(q[b, span($first, L), h, ..]);
                        let mut $read = scale * dot(qc, held.cast::<T>()) + offset;
                        $read -= dot(load(p[b, h, c, .., ..]), dz.cast::<T>());
                        let centred = $read - sum($read, axis = 1) / size(D).cast::<f32>();
                        let deviation = sqrt(sum(centred * centred, axis = 1) / size(D).cast::<f32>() + eps);
                        let $query = qc.cast::<f32>();
                        let out = $residual + weights * (centred / deviation) + load(shift[h, ..]);
                        store(o[b, span($first, L), h, ..], out.cast::<T>());
                        let $last = min($first + size(L), size(N)) - 1;
                        let step = dz * load(eta[b, $token, h]);
                        held -= dot(kc.t(), step.cast::<T>());
                        offset -= $learns * sum(step, axis = 0);
                    }
                    store(s[b, h, .., ..], held);
                    store(bias[b, h, ..], offset);
                }
            }
        }

        static $chain: Chain = Chain::new(stringify!($name), &[&ttt_mix, &$name], &["p"]);
    };
}

recurrence!(as_it_is, AS_IT_IS, 1.0, 1.0, |read, query| read + 0.0 * query, |first, last| last, 1.0);
// The target is the value, and not the value less the key.
recurrence!(learns_values, LEARNS_VALUES, 0.0, 1.0, |read, query| read + 0.0 * query, |first, last| last, 1.0);
// The gradient does not go through the deviation.
recurrence!(skips_the_norm, SKIPS_THE_NORM, 1.0, 0.0, |read, query| read + 0.0 * query, |first, last| last, 1.0);
// The residual is the query, as in the authors' code.
recurrence!(adds_queries, ADDS_QUERIES, 1.0, 1.0, |read, query| 0.0 * read + query, |first, last| last, 1.0);
// The step of the memory is that of the first token of a mini-batch.
recurrence!(
    steps_by_the_first,
    STEPS_BY_THE_FIRST,
    1.0,
    1.0,
    |read, query| read + 0.0 * query,
    |first, last| min(first, last),
    1.0
);
// The bias does not learn.
recurrence!(keeps_its_bias, KEEPS_ITS_BIAS, 1.0, 1.0, |read, query| read + 0.0 * query, |first, last| last, 0.0);

#[test]
fn mistakes_are_found() {
    for (dtype, bound) in BOUNDS {
        let case = TttCase { dtype, ..TttCase::new([1, 40, 2], 32, 16) };
        for right in [&TTT_LINEAR, &AS_IT_IS] {
            let found = case.check_of(right, &crate::device()).unwrap();
            assert!(found.passes(bound), "{} in {dtype}: {found:?}", right.name);
        }
        for wrong in [&LEARNS_VALUES, &SKIPS_THE_NORM, &ADDS_QUERIES, &STEPS_BY_THE_FIRST, &KEEPS_ITS_BIAS] {
            let found = case.check_of(wrong, &crate::device()).unwrap();
            assert!(!found.passes(bound), "{} went unnoticed in {dtype}: {found:?}", wrong.name);
        }
    }
}
