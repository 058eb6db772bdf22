//! The Omega rule with rows that are too wide to be held whole: which chain takes which sizes, that both chains compute the same, and
//! mistakes that must show.

use atlas_dsl::DType;
use atlas_ops::Comparison;
use atlas_ops::omega::check::{Case, CaseInputs};
use atlas_ops::omega::{
    Chunking, Loss, MemoryForm, OMEGA_GATED_WIDE, OMEGA_LINEAR_WIDE, OMEGA_MLP_CLUSTER, OMEGA_MLP_SPLIT,
    OMEGA_MLP_WIDE, OMEGA_NORMED_WIDE, OmegaPacked, OmegaRule, OmegaStream, Read, StreamSizes, Tokens,
};
use atlas_runtime::{Chain, Tensor};

const NORMED: MemoryForm = MemoryForm::Normed { eps: 1e-3 };
const WIDE: [(MemoryForm, &Chain); 4] = [
    (MemoryForm::Linear, &OMEGA_LINEAR_WIDE),
    (MemoryForm::Mlp, &OMEGA_MLP_WIDE),
    (MemoryForm::Gated, &OMEGA_GATED_WIDE),
    (NORMED, &OMEGA_NORMED_WIDE),
];

/// These, and the chains whose passes are launches, or a cluster's.
fn wide_and_split() -> impl Iterator<Item = (MemoryForm, &'static Chain)> {
    WIDE.into_iter().chain([(MemoryForm::Mlp, &OMEGA_MLP_SPLIT), (MemoryForm::Mlp, &OMEGA_MLP_CLUSTER)])
}

/// A case of two sequences with two heads, of features, elements of a value, and hidden elements.
fn case(form: MemoryForm, tokens: usize, memory: [usize; 3], chunking: Chunking) -> Case {
    Case::new([2, tokens, 2], memory, chunking).of_form(form)
}

fn compared(found: &[Vec<f64>], wanted: &[Vec<f64>]) -> Comparison {
    Comparison::of_all(found.iter().map(Vec::as_slice).zip(wanted.iter().map(Vec::as_slice)))
}

fn is_wide(rule: &OmegaRule, key: usize, value: usize, dtype: DType) -> bool {
    rule.chain_for(key, value, dtype).name.ends_with("_wide")
}

#[test]
fn rows_are_streamed_where_they_are_too_wide() {
    let chunks = [Chunking::new(64, 16), Chunking::new(16, 4), Chunking::new(128, 16)];
    for (form, of_form) in WIDE {
        let rule = OmegaRule { memory: form, ..OmegaRule::omega_net(chunks[0]) };
        assert!(!is_wide(&rule, 48, 48, DType::Bf16) && !is_wide(&rule, 64, 64, DType::Bf16), "{form:?}");
        // Features of a polynomial of degree 2 of 48, 64, 96 and 256 elements.
        for (key, value) in [(1232, 48), (2152, 64), (4760, 96), (33160, 256)] {
            for chunking in chunks {
                let rule = OmegaRule { chunking, ..rule };
                assert!(std::ptr::eq(rule.chain_for(key, value, DType::Bf16), of_form), "{rule:?} {key}");
            }
        }
        if form != MemoryForm::Linear {
            assert!(is_wide(&rule, 256, 256, DType::Bf16) && is_wide(&rule, 64, 64, DType::F32), "{form:?}");
            assert_eq!(is_wide(&rule, 96, 96, DType::Bf16), form == NORMED);
            assert!(is_wide(&rule, 64, 256, DType::Bf16), "wide values need tiles, too: {form:?}");
        }
        assert!(!is_wide(&OmegaRule { chunking: chunks[1], ..rule }, 128, 128, DType::Bf16), "{form:?}");
    }
    let chunking = Chunking::new(usize::MAX, usize::MAX);
    assert!(is_wide(&OmegaRule::omega_net(chunking), 1, 1, DType::Bf16));
}

/// Both chains at sizes that both take, against each other in f32, where roundings are small, and against the definition in 16 bits; another
/// loss must show.
#[test]
fn both_chains_compute_the_same() {
    for (form, chain) in wide_and_split() {
        // Elements in one tile and a part of it, in several tiles, and one token alone.
        for (tokens, memory, chunking) in [
            (23, [16, 12, 20], Chunking::new(8, 5)),
            (19, [70, 72, 68], Chunking::new(8, 3)),
            (3, [40, 24, 24], Chunking::new(1, 4)),
            (1, [16, 16, 32], Chunking::new(4, 2)),
        ] {
            let whole = case(form, tokens, memory, chunking);
            let tiled = Case { chain: Some(chain), ..whole.clone() };
            assert!(!is_wide(&whole.rule, memory[0], memory[1], DType::F32));
            let inputs = whole.inputs();
            let run = |case: &Case| case.run(&crate::device(), &inputs).unwrap();
            let (found, wanted) = (run(&tiled), run(&whole));
            let c = compared(&found, &wanted);
            assert!(c.passes(1e-5), "{form:?} {memory:?}: {c:?}");
            let mut other = whole.clone();
            other.rule.loss = Loss::Dot;
            assert!(!compared(&found, &run(&other)).passes(1e-5), "another loss went unnoticed in {form:?} {memory:?}");
        }
        for (dtype, bound) in [(DType::Bf16, 1e-2), (DType::F16, 2e-3)] {
            for chain in [None, Some(chain)] {
                let case = Case { dtype, chain, ..case(form, 23, [16, 16, 32], Chunking::new(8, 5)) };
                let c = case.check(&crate::device()).unwrap();
                assert!(c.passes(bound), "{form:?} {dtype} {}: {c:?}", chain.is_some());
            }
        }
    }
}

#[test]
fn wide_rows_are_as_defined() {
    for (form, chain) in wide_and_split() {
        for (read, loss) in [(Read::After, Loss::Square), (Read::Before, Loss::MeanSquare), (Read::After, Loss::Dot)] {
            for memory in [[264, 16, 24], [20, 264, 24]] {
                let mut case = case(form, 21, memory, Chunking::new(8, 5));
                (case.rule.read, case.rule.loss) = (read, loss);
                // A gated memory of narrow rows grows with long steps, and roundings with it.
                case.edit = |x| x.eta.iter_mut().for_each(|eta| *eta *= 0.3);
                // Whoever's rows are wide: a linear memory is in tiles of values anyway.
                case.chain = Some(chain);
                let found = case.check(&crate::device()).unwrap();
                assert!(found.passes(1e-5), "{form:?} {:?}: {found:?}", case.memory);
            }
        }
    }
}

#[test]
fn wide_rows_come_in_parts() {
    for (form, chain) in wide_and_split() {
        let whole = Case { chain: Some(chain), ..case(form, 21, [264, 16, 24], Chunking::new(8, 5)) };
        let found = whole.run(&crate::device(), &whole.inputs()).unwrap();
        for parts in [vec![8, 13], vec![3, 10, 1, 7]] {
            let case = Case { parts, ..whole.clone() };
            assert_eq!(case.run(&crate::device(), &whole.inputs()).unwrap(), found, "{form:?} {:?}", case.parts);
        }
    }
}

/// A token in no window may be NaN, and a sequence leaves its neighbours alone.
#[test]
fn what_has_no_weight_may_be_anything() {
    for (form, chain) in wide_and_split() {
        let mut case = Case { chain: Some(chain), ..case(form, 21, [264, 16, 24], Chunking::new(8, 5)) };
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
        let found = case.check(&crate::device()).unwrap();
        assert!(found.passes(1e-5), "{form:?} {:?}: {found:?}", case.memory);
        let clean = Case { edit: |_| {}, ..case.clone() };
        case.edit = |x| {
            let half = x.k.len() / 2;
            x.k[..half].fill(f32::NAN);
        };
        let run = |case: &Case| case.run(&crate::device(), &case.inputs()).unwrap();
        for (found, wanted) in run(&case).iter().zip(&run(&clean)) {
            assert_eq!(found[found.len() / 2..], wanted[wanted.len() / 2..], "{form:?}");
            assert!(found[..found.len() / 2].iter().any(|v| v.is_nan()), "{form:?}");
        }
    }
}

/// Weights of more tokens than a tile has elements, even on the CPU: packed documents lay them out in several launches, as streams copy
/// them.
#[test]
fn packed_documents_of_rows_that_one_launch_does_not_copy() {
    let device = crate::device();
    // Values come in two parts, too.
    let (tokens, window, value) = (3, (1 << 20) + 1, (1 << 13) + 4);
    // Without a halo a chunk sees its own keys alone, so the kernels of the chain are small.
    let chunking = Chunking { chunk: 2, window, halo: false };
    let rule = OmegaRule { memory: MemoryForm::Linear, ..OmegaRule::omega_net(chunking) };
    let sizes = StreamSizes { sequences: 1, heads: 1, key: 4, value, piece: tokens, dtype: DType::F32 };
    let of = |len: usize, shape: &[usize]| {
        let values: Vec<f32> = (0..len).map(|i| (i * 7919 % 2003) as f32 / 2003.0).collect();
        device.tensor_from(&values, shape).unwrap()
    };
    let (rows, gate) = (of(4 * tokens, &[1, tokens, 1, 4]), of(tokens, &[1, tokens, 1]));
    let gamma = of(tokens * window, &[1, tokens, 1, window]);
    let values = of(tokens * value, &[1, tokens, 1, value]);
    let (q, v, gate) = (&rows, &values, &gate);
    let given = Tokens { q, k: q, v, rq: v, rk: v, alpha: gate, theta: gate, eta: gate, gamma: &gamma };
    let read = |is_packed: bool| {
        let mut memory = [0, 1].map(|_| of(4 * value, &[1, 1, value, 4]));
        let mut y = Tensor::zeros(&device, DType::F32, [1, tokens, 1, value]).unwrap();
        if is_packed {
            let (stream, starts) = (device.default_stream(), device.tensor_from(&[0, tokens as i32], [2]).unwrap());
            let mut packed = OmegaPacked::new(&stream, rule, sizes).unwrap();
            packed.launch(&stream, &given, &starts, &mut memory.each_mut(), &mut y).unwrap();
        } else {
            let mut stream = OmegaStream::new(&device, rule, sizes).unwrap();
            stream.push(&given, &mut memory.each_mut(), &mut y).unwrap();
        }
        y.to_vec::<f32>().unwrap()
    };
    let (packed, alone) = (read(true), read(false));
    assert!(packed == alone && packed.iter().any(|y| *y != 0.0));
}

#[test]
fn mistakes_show() {
    type WideMistake = fn(&mut atlas_ops::omega::reference::SequenceSizes, &mut CaseInputs);
    let mistakes: [(&str, WideMistake); 4] = [
        ("no halo", |s, _| s.k = s.l),
        ("the band is reversed", |_, x| x.gamma.chunks_mut(5).for_each(<[f32]>::reverse)),
        ("the last tile of keys is left out", |s, x| {
            x.k.chunks_mut(s.d).for_each(|row| row[256..].fill(0.0));
        }),
        ("the momentum starts at zero", |_, x| x.s.iter_mut().for_each(|s| s.fill(0.0))),
    ];
    for (form, chain) in wide_and_split() {
        let case = Case { chain: Some(chain), ..case(form, 21, [264, 16, 24], Chunking::new(8, 5)) };
        for (name, edit) in mistakes {
            let found = case.check_against(&crate::device(), edit).unwrap();
            assert!(!found.passes(1e-5), "{name} went unnoticed in {form:?}: {found:?}");
        }
    }
}
