//! The gated delta rule against its definition, token by token, at every edge; and mistakes that must show.

use atlas_dsl::DType;
use atlas_macros::atlas_kernel;
use atlas_ops::gated_delta_rule::check::{DeltaCase, DeltaInputs};
use atlas_ops::gated_delta_rule::{GATED_DELTA_RULE, GATED_DELTA_RULE_SPLIT, delta_blocks, delta_rule, delta_solve};
use atlas_runtime::Chain;

const BOUNDS: [(DType, f64); 3] = [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::Bf16, 1e-2)];

#[track_caller]
fn holds(case: &DeltaCase) {
    holds_within(case, 1.0);
}

/// The same with so many times the bounds of 16 bits.
#[track_caller]
fn holds_within(case: &DeltaCase, times: f64) {
    for (dtype, bound) in BOUNDS {
        let case = DeltaCase { dtype, ..case.clone() };
        let bound = if dtype == DType::F32 { bound } else { times * bound };
        let found = case.check(&crate::device()).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        assert!(found.passes(bound), "{case:?}: {found:?}");
    }
}

#[test]
fn sequences_and_chunks_of_any_length() {
    for (tokens, chunk) in [(23, 8), (24, 8), (9, 4), (7, 16), (1, 64), (70, 64), (128, 64), (100, 32), (0, 16), (5, 4)]
    {
        holds(&DeltaCase::new([2, tokens, 2], 1, [16, 24], chunk));
    }
}

#[test]
fn heads_of_any_size_and_in_groups() {
    for (heads, key_heads, head) in [(1, 1, [48, 96]), (2, 2, [64, 64]), (4, 2, [96, 40]), (3, 1, [128, 128])] {
        holds(&DeltaCase::new([1, 70, heads], key_heads, head, 64));
    }
}

/// A case whose gates or keys are edited.
fn edited(edit: fn(&mut DeltaInputs)) -> DeltaCase {
    DeltaCase { edit, ..DeltaCase::new([1, 150, 2], 2, [64, 48], 64) }
}

#[test]
fn decays_from_none_to_all() {
    holds(&edited(|x| x.g.fill(0.0)));
    holds(&edited(|x| x.g.fill(-20.0)));
    // Some tokens clear the memory, and others hardly touch it.
    holds(&edited(|x| x.g.iter_mut().enumerate().for_each(|(i, g)| *g = if i % 10 == 7 { -1e3 } else { -1e-3 })));
    holds(&edited(|x| x.g.iter_mut().enumerate().for_each(|(i, g)| *g = if i % 13 == 7 { -50.0 } else { -1e-3 })));
    holds(&edited(|x| {
        x.g.iter_mut().enumerate().for_each(|(i, g)| *g = if i % 10 == 7 { f32::NEG_INFINITY } else { -1e-3 });
    }));
}

/// A token clears the memory, those behind it let grow what is left, which is nothing.
#[test]
fn growth_brings_nothing_back() {
    let case = edited(|x| {
        x.g.fill(0.0);
        x.g[2 * 40..2 * 42].fill(f32::NEG_INFINITY);
        x.g[2 * 42..2 * 62].fill(4.0);
        x.beta.fill(0.0);
    });
    for chain in [&GATED_DELTA_RULE, &GATED_DELTA_RULE_SPLIT] {
        let [_, after] = case.run(chain, &crate::device(), &case.inputs()).unwrap();
        assert!(after.iter().all(|s| *s == 0.0), "{}", chain.name);
    }
}

/// The step of a chunk of one token is rounded to the nearest number of 16 bits: with values and keys of whole powers of two,
/// nothing else is rounded.
#[test]
fn the_step_of_one_token_is_the_nearest_number() {
    for (dtype, digits) in [(DType::F16, 11), (DType::Bf16, 8)] {
        for beta in [0.1_f32, 0.3, 0.501, 0.7, 0.999, 1.001, 1.9] {
            let case = DeltaCase { dtype, ..DeltaCase::new([1, 1, 1], 1, [16, 16], 64) };
            let mut x = case.inputs();
            x.s.fill(0.0);
            x.k.fill(0.25);
            x.v.fill(1.0);
            x.beta.fill(beta);
            let step = 2.0_f64.powi(f64::from(beta).log2().floor() as i32 + 1 - digits);
            for chain in [&GATED_DELTA_RULE, &GATED_DELTA_RULE_SPLIT] {
                let [_, after] = case.run(chain, &crate::device(), &x).unwrap();
                let off = after.iter().map(|s| (4.0 * s - f64::from(beta)).abs()).fold(0.0, f64::max);
                assert!(off <= 0.5 * step, "{} of {beta} in {dtype}: {off} of {step}", chain.name);
            }
        }
    }
}

#[test]
fn steps_from_none_to_whole() {
    holds(&edited(|x| x.beta.fill(0.0)));
    holds(&edited(|x| x.beta.fill(1.0)));
}

/// Without decay, the steps of a key that repeats cancel: their sum is as large as one of them, and their roundings to 16 bits add up
/// as independent ones do, like the root of their number.
#[test]
fn keys_that_repeat() {
    // Powers of the triangular matrix reach 1e17.
    let one_key = edited(|x| {
        x.k.fill(0.125);
        x.g.fill(0.0);
        x.beta.fill(1.0);
    });
    // Above 1, each step turns what the one before has left, so that sums of steps cancel in products of `t` as well.
    let long_steps = edited(|x| {
        x.k.fill(0.125);
        x.g.fill(0.0);
        x.beta.fill(1.9);
    });
    let three_keys = edited(|x| {
        let (first, len) = (x.k[..3 * 128].to_vec(), x.k.len());
        (0..len).for_each(|i| x.k[i] = first[i % (3 * 128)]);
        x.g.fill(0.0);
        x.beta.fill(1.0);
    });
    for case in [one_key, long_steps, three_keys] {
        for chunk in [16, 64] {
            holds_within(&DeltaCase { chunk, ..case.clone() }, (chunk as f64).sqrt());
        }
    }
}

/// A token of the first sequence, in the middle of a chunk, and the first of one.
const LOST: [usize; 2] = [21, 32];

/// One element of a value, and the first of two heads of queries and keys, which two heads of values share.
const LOSSES: [fn(&mut DeltaInputs); 9] = [
    |x| lose(&mut x.q, 2 * LOST[0], 16),
    |x| lose(&mut x.k, 2 * LOST[0], 16),
    |x| lose(&mut x.k, 2 * LOST[1], 16),
    |x| lose(&mut x.v, 4 * LOST[0] * 24 + 5, 1),
    |x| lose(&mut x.v, 4 * LOST[1] * 24 + 5, 1),
    |x| lose(&mut x.g, 4 * LOST[0] + 1, 1),
    |x| lose(&mut x.g, 4 * LOST[1] + 1, 1),
    |x| lose(&mut x.beta, 4 * LOST[0] + 1, 1),
    |x| lose(&mut x.beta, 4 * LOST[1] + 1, 1),
];

fn lose(of: &mut [f32], at: usize, width: usize) {
    of[at * width..][..width].fill(f32::NAN);
}

/// By the chain that is split, what is no number reaches the tokens from its own on, and no other head or sequence: as by the
/// definition.
#[test]
fn no_number_reaches_earlier_tokens() {
    for (i, edit) in LOSSES.into_iter().enumerate() {
        for chunk in [64, 32, 16] {
            for (dtype, bound) in BOUNDS {
                let case = DeltaCase { edit, dtype, ..DeltaCase::new([2, 75, 4], 2, [16, 24], chunk) };
                let found = case.check_of(&GATED_DELTA_RULE_SPLIT, &crate::device()).unwrap();
                assert!(found.non_finite[1] > 0, "{i}");
                assert!(found.passes(bound), "{i}, chunks of {chunk} in {dtype}: {found:?}");
            }
        }
    }
}

/// By the other chain, it leaves earlier chunks, other heads and other sequences as they are, and reaches all that it has to.
#[test]
fn no_number_reaches_earlier_chunks() {
    let (chunk, plain) = (16, DeltaCase::new([2, 75, 4], 2, [16, 24], 16));
    let run = |case: &DeltaCase| case.run(&GATED_DELTA_RULE, &crate::device(), &case.inputs()).unwrap().concat();
    let clean = run(&plain);
    for (i, edit) in LOSSES.into_iter().enumerate() {
        let case = DeltaCase { edit, ..plain.clone() };
        let (found, wanted) = (run(&case), case.expected(&case.inputs()).concat());
        let first = &wanted[..75 * 4 * 24];
        for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let (token, head) = (at / (4 * 24), at / 24 % 4);
            // Of a head that loses outputs, others of the same chunk may be lost as well.
            let is_lost = first.chunks(24).skip(head).step_by(4).any(|row| row.iter().any(|o| o.is_nan()));
            let may_be = is_lost && at < first.len() && LOST.iter().any(|lost| lost / chunk == token / chunk);
            assert!(found.is_nan() || !wanted.is_nan(), "{i}: {at} is {found}");
            assert!(found.is_nan() == wanted.is_nan() || may_be, "{i}: {at} is {found}, not {wanted}");
            assert!(found.is_nan() || *found == clean[at], "{i}: {at} is {found}, not {}", clean[at]);
        }
    }
}

/// An infinite key or value leaves earlier tokens as they are, too.
#[test]
fn infinity_reaches_no_earlier_token() {
    let plain = DeltaCase::new([1, 40, 1], 1, [16, 24], 32);
    let infinite: [fn(&mut DeltaInputs); 2] = [|x| x.k[20 * 16] = f32::INFINITY, |x| x.v[20 * 24] = f32::INFINITY];
    let run = |case: &DeltaCase| case.run(&GATED_DELTA_RULE_SPLIT, &crate::device(), &case.inputs()).unwrap();
    for edit in infinite {
        let (found, wanted) = (run(&DeltaCase { edit, ..plain.clone() }), run(&plain));
        assert!(found[0][..20 * 24] == wanted[0][..20 * 24]);
        assert!(found[0][20 * 24..].chunks(24).all(|row| !row[0].is_finite()));
    }
}

#[test]
fn a_sequence_may_be_given_in_parts() {
    let whole = DeltaCase::new([2, 75, 2], 1, [16, 24], 16);
    let inputs = whole.inputs();
    for chain in [&GATED_DELTA_RULE, &GATED_DELTA_RULE_SPLIT] {
        let found = whole.run(chain, &crate::device(), &inputs).unwrap();
        for parts in [vec![16, 59], vec![32, 16, 27], vec![3, 10, 1, 61], vec![1; 75]] {
            let case = DeltaCase { parts, ..whole.clone() };
            let ends_chunks = case.parts[..case.parts.len() - 1].iter().all(|part| part % 16 == 0);
            let in_parts = case.run(chain, &crate::device(), &inputs).unwrap();
            // Cut where chunks end, a sequence is computed by the same operations.
            assert!(!ends_chunks || in_parts == found, "{}: {:?}", chain.name, case.parts);
            let compared = case.check_of(chain, &crate::device()).unwrap();
            assert!(compared.passes(1e-5), "{}: {:?}: {compared:?}", chain.name, case.parts);
        }
    }
}

#[test]
fn both_chains_read_the_same() {
    let case = DeltaCase::new([1, 100, 2], 2, [48, 64], 32);
    let inputs = case.inputs();
    let [fused, split] =
        [&GATED_DELTA_RULE, &GATED_DELTA_RULE_SPLIT].map(|chain| case.run(chain, &crate::device(), &inputs).unwrap());
    for (fused, split) in fused.iter().zip(&split) {
        assert!(atlas_ops::Comparison::new(fused, split).passes(1e-5));
    }
}

/// The rule in plain form; `$kept` of the memory is left after a chunk, where `$end` is right.
macro_rules! chunks {
    ($name:ident, $chain:ident, |$end:ident| $kept:expr) => {
        atlas_kernel! {
            kernel $name<T: Float>(
                q: &Tensor<T, [B, N, J, D]>,
                k: &Tensor<T, [B, N, J, D]>,
                v: &Tensor<T, [B, N, H, E]>,
                t: &Tensor<T, [B, H, C, L, L]>,
                p: &Tensor<T, [B, H, C, L, L]>,
                reach: &Tensor<f32, [B, H, C, L]>,
                tail: &Tensor<f32, [B, H, C, L]>,
                s: &mut Tensor<f32, [B, H, D, E]>,
                o: &mut Tensor<T, [B, N, H, E]>,
                scale: f32,
            )
            tune { BE: [32] }
            {
                for (b, h, e) in grid(B, H, tiles(E, BE)) {
                    let j = h / (size(H) / size(J));
                    let mut se = load(s[b, h, .., e]);
                    for c in 0..size(C) {
                        let first = c * size(L);
                        let kc = load(k[b, span(first, L), j, ..]);
                        let left = load(reach[b, h, c, ..]).t();
                        let held = se.cast::<T>();
                        let rest = load(v[b, span(first, L), h, e]).cast::<f32>() - left * dot(kc, held);
                        let step = dot(load(t[b, h, c, .., ..]), rest.cast::<T>());
                        let out = left * dot(load(q[b, span(first, L), j, ..]), held)
                            + dot(load(p[b, h, c, .., ..]), step.cast::<T>());
                        store(o[b, span(first, L), h, e], (scale * out).cast::<T>());
                        let $end = load(reach[b, h, c, size(L) - 1]);
                        let kept = (step * load(tail[b, h, c, ..]).t()).cast::<T>();
                        se = $kept * se + dot(kc.t(), kept);
                    }
                    store(s[b, h, .., e], se);
                }
            }
        }

        static $chain: Chain = Chain::new(stringify!($name), &[&delta_blocks, &delta_solve, &$name], WORKSPACE);
    };
}

chunks!(as_it_is, AS_IT_IS, |end| end);
// The memory decays twice in each chunk.
chunks!(decays_twice, DECAYS_TWICE, |end| end * end);
// Each chunk begins with an empty memory.
chunks!(forgets_chunks, FORGETS_CHUNKS, |end| 0.0 * end);

atlas_kernel! {
    /// `t` times `beta` of the wrong token.
    kernel turns_beta<T: Float>(
        beta: &Tensor<f32, [B, N, H]>,
        t: &mut Tensor<T, [B, H, C, L, L]>,
    )
    {
        for (b, h, c) in grid(B, H, C) {
            let row = load(beta[b, span(c * size(L), L), h]).or(1.0);
            let right = load(t[b, h, c, .., ..]).cast::<f32>() / row;
            store(t[b, h, c, .., ..], (right * row.t()).cast::<T>());
        }
    }
}

const WORKSPACE: &[&str] = &["x", "t", "p", "reach", "tail"];

static TURNS_BETA: Chain =
    Chain::new("turns_beta", &[&delta_blocks, &delta_solve, &turns_beta, &delta_rule], WORKSPACE);

#[test]
fn mistakes_are_found() {
    for (dtype, bound) in BOUNDS {
        // Gates that forget slowly, so that what chunks pass on counts, and steps that are above 0.
        let edit = |x: &mut atlas_ops::gated_delta_rule::check::DeltaInputs| {
            x.g.iter_mut().for_each(|g| *g *= 0.1);
            x.beta.iter_mut().for_each(|b| *b = b.max(0.1));
        };
        let case = DeltaCase { dtype, edit, ..DeltaCase::new([1, 40, 2], 1, [32, 40], 16) };
        for right in [&GATED_DELTA_RULE, &GATED_DELTA_RULE_SPLIT, &AS_IT_IS] {
            assert!(case.check_of(right, &crate::device()).unwrap().passes(bound));
        }
        for wrong in [&DECAYS_TWICE, &FORGETS_CHUNKS, &TURNS_BETA] {
            let found = case.check_of(wrong, &crate::device()).unwrap();
            assert!(!found.passes(bound), "{} went unnoticed in {dtype}: {found:?}", wrong.name);
        }
    }
}
