//! The Omega rule with Muon on matrices that are too large for shared memory: which chain takes which sizes, that both chains compute
//! the same, where GPUs have a config, and mistakes that must show.

use atlas_dsl::DType;
use atlas_dsl::{KernelDef, Specialization};
use atlas_ops::Comparison;
use atlas_ops::omega::check::{Case, CaseInputs};
use atlas_ops::omega::reference::SequenceSizes;
use atlas_ops::omega::{
    Chunking, Loss, MemoryForm, OMEGA_MUON_GATED_WIDE, OMEGA_MUON_LINEAR_WIDE, OMEGA_MUON_NORMED_WIDE,
    OMEGA_MUON_TOKENS_GATED_WIDE, OMEGA_MUON_TOKENS_LINEAR_WIDE, OMEGA_MUON_TOKENS_NORMED_WIDE, OMEGA_MUON_TOKENS_WIDE,
    OMEGA_MUON_WIDE, OmegaPacked, OmegaRule, OmegaStream, Read, Step, StreamSizes, Tokens,
};
use atlas_runtime::{Chain, Tensor, choose_for};

const NORMED: MemoryForm = MemoryForm::Normed { eps: 0.01 };
const WIDE: [(MemoryForm, Step, &Chain); 8] = [
    (MemoryForm::Linear, Step::MuonByChunk, &OMEGA_MUON_LINEAR_WIDE),
    (MemoryForm::Mlp, Step::MuonByChunk, &OMEGA_MUON_WIDE),
    (MemoryForm::Gated, Step::MuonByChunk, &OMEGA_MUON_GATED_WIDE),
    (NORMED, Step::MuonByChunk, &OMEGA_MUON_NORMED_WIDE),
    (MemoryForm::Linear, Step::MuonByToken, &OMEGA_MUON_TOKENS_LINEAR_WIDE),
    (MemoryForm::Mlp, Step::MuonByToken, &OMEGA_MUON_TOKENS_WIDE),
    (MemoryForm::Gated, Step::MuonByToken, &OMEGA_MUON_TOKENS_GATED_WIDE),
    (NORMED, Step::MuonByToken, &OMEGA_MUON_TOKENS_NORMED_WIDE),
];

/// A case of two sequences with two heads, of features, elements of a value, and hidden elements; of the chain that the rule takes.
fn case((form, step): (MemoryForm, Step), tokens: usize, memory: [usize; 3], chunking: Chunking) -> Case {
    let mut case = Case::new([2, tokens, 2], memory, chunking).of_form(form);
    case.rule.step = step;
    case
}

fn compared(found: &[Vec<f64>], wanted: &[Vec<f64>]) -> Comparison {
    Comparison::of_all(found.iter().map(Vec::as_slice).zip(wanted.iter().map(Vec::as_slice)))
}

#[test]
fn matrices_are_walked_over_where_they_are_too_large() {
    let chunks = [Chunking::new(64, 16), Chunking::new(16, 4), Chunking::new(1, 16)];
    for (memory, step, chain) in WIDE {
        for chunking in chunks {
            let rule = OmegaRule { memory, step, ..OmegaRule::omega_net(chunking) };
            for dtype in [DType::Bf16, DType::F16, DType::F32] {
                let is_wide = |key: usize, value: usize| std::ptr::eq(rule.chain_for(key, value, dtype), chain);
                assert!(!is_wide(48, 48) && !is_wide(64, 64), "{rule:?}");
                assert!(is_wide(128, 128) && is_wide(64, 128) && is_wide(2152, 64), "{rule:?}");
                assert_eq!(is_wide(96, 96), memory != MemoryForm::Linear || dtype == DType::F32, "{rule:?}");
            }
        }
        let rule = OmegaRule { memory, step, ..OmegaRule::omega_net(Chunking::new(usize::MAX, usize::MAX)) };
        assert!(std::ptr::eq(rule.chain_for(16, 16, DType::Bf16), chain), "{rule:?}");
    }
}

/// Both chains at sizes that both take, against each other in f32, where roundings are small; another loss must show.
#[test]
fn both_chains_compute_the_same() {
    for (form, step, chain) in WIDE {
        for (tokens, memory, chunking) in [
            (11, [40, 24, 70], Chunking::new(4, 3)),
            (6, [16, 40, 24], Chunking::new(8, 2)),
            (3, [24, 16, 96], Chunking::new(1, 4)),
            (1, [16, 16, 32], Chunking::new(4, 2)),
        ] {
            for read in [Read::Before, Read::After] {
                let mut whole = case((form, step), tokens, memory, chunking);
                whole.rule.read = read;
                let walked = Case { chain: Some(chain), ..whole.clone() };
                let inputs = whole.inputs();
                let run = |case: &Case| case.run(&crate::device(), &inputs).unwrap();
                let (found, wanted) = (run(&walked), run(&whole));
                let c = compared(&found, &wanted);
                assert!(c.passes(1e-5), "{form:?} {step:?} {read:?} {memory:?}: {c:?}");
                let mut other = whole.clone();
                other.rule.loss = Loss::Dot;
                assert!(!compared(&found, &run(&other)).passes(1e-5), "another loss went unnoticed: {form:?} {step:?}");
            }
        }
    }
}

/// Heads of the paper's largest model.
#[test]
fn heads_of_large_models_are_as_defined() {
    for (form, step, chain) in WIDE {
        let hidden = if form == MemoryForm::Linear { 0 } else { 512 };
        let mut case = case((form, step), 3, [128, 128, hidden], Chunking::new(2, 2));
        case.batch = [1, 3, 1];
        assert!(std::ptr::eq(case.rule.chain_for(128, 128, case.dtype), chain));
        let found = case.check(&crate::device()).unwrap();
        assert!(found.passes(1e-5), "{form:?} {step:?}: {found:?}");
    }
}

/// A hidden layer may be wide where rows are not: matrices that are held whole would have no config on any GPU.
#[test]
fn wide_hidden_layers_have_a_config() {
    let of = |chain: &'static Chain, dtype: DType, [width, hidden]: [u64; 2]| {
        let kernel = chain.kernels[chain.kernels.len() - 1].declared();
        let rows = [("D", width), ("E", width), ("M", hidden), ("N", 64), ("P", 64)];
        let chunks = [("C", 1), ("L", 64), ("K", 80), ("W", 16), ("B", 1), ("H", 1)];
        let (spec, dims) = specialized(kernel, dtype, &[&rows[..], &chunks[..]].concat());
        choose_for(kernel, &spec, &dims, "sm_89".parse().ok()).chosen().is_some()
    };
    for (memory, step, chain) in WIDE.into_iter().filter(|(form, ..)| *form != MemoryForm::Linear) {
        let rule = OmegaRule { memory, step, ..OmegaRule::omega_net(Chunking::new(64, 16)) };
        for dtype in [DType::Bf16, DType::F32] {
            for ([width, hidden], is_whole) in
                [([64, 256], true), ([32, 512], true), ([64, 257], false), ([32, 513], false), ([8, 2048], false)]
            {
                let chosen = rule.chain_for_hidden(width, width, hidden, dtype);
                assert_eq!(std::ptr::eq(chosen, chain), !is_whole, "{rule:?} {width} {hidden}");
                assert!(of(chosen, dtype, [width as u64, hidden as u64]), "{} {dtype} {width} {hidden}", chosen.name);
            }
            assert!(!of(rule.chain(), dtype, [8, 2048]), "{} {dtype}", rule.chain().name);
        }
    }
}

/// A stream takes the chain of the memory that it is given, and another one of another memory.
#[test]
fn streams_take_memories_with_wide_hidden_layers() {
    let cpu = crate::device();
    // Whether the chains round differently, so that taking the other one would show.
    let mut is_seen = false;
    for (form, step, chain) in WIDE.into_iter().filter(|(form, ..)| *form != MemoryForm::Linear) {
        let rule = OmegaRule { memory: form, step, read: Read::Before, ..OmegaRule::omega_net(Chunking::new(2, 2)) };
        let sizes = StreamSizes { sequences: 2, heads: 2, key: 8, value: 8, piece: 4, dtype: DType::F32 };
        let mut stream = OmegaStream::new(&cpu, rule, sizes).unwrap();
        for hidden in [24, 520, 24] {
            let case = Case { rule, ..case((form, step), 4, [8, 8, hidden], rule.chunking) };
            let x = case.inputs();
            let tensor = |values: &[f32], shape: &[usize]| cpu.tensor_from(values, shape).unwrap();
            let tokens = |values: &[f32], width: usize| tensor(values, &[2, 4, 2, width]);
            let [q, k, v] = [&x.q, &x.k, &x.v].map(|values| tokens(values, 8));
            let [rq, rk, gamma] = [(&x.rq, 8), (&x.rk, 8), (&x.gamma, 2)].map(|(values, width)| tokens(values, width));
            let [alpha, theta, eta] = [&x.alpha, &x.theta, &x.eta].map(|values| tensor(values, &[2, 4, 2]));
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
            let shapes = form.matrices(8, 8, hidden).into_iter().cycle();
            let matrix = |(values, [rows, cols]): (&Vec<f32>, [usize; 2])| tensor(values, &[2, 2, rows, cols]);
            let mut memory: Vec<Tensor> = x.w.iter().chain(&x.s).zip(shapes).map(matrix).collect();
            if form == NORMED {
                stream = stream.with_norm(tensor(&x.norm, &[2, 8]));
            }
            stream.restart();
            let mut y = Tensor::zeros(&cpu, DType::F32, [2, 4, 2, 8]).unwrap();
            stream.push(&given, &mut memory.iter_mut().collect::<Vec<_>>(), &mut y).unwrap();
            let taken = if hidden == 520 { chain } else { rule.chain() };
            assert_eq!(stream.chain().name, taken.name, "{form:?} {step:?} {hidden}");
            let found: Vec<Vec<f64>> = std::iter::once(&y).chain(&memory).map(|t| t.to_f64_vec().unwrap()).collect();
            let of = |chain: &'static Chain| Case { chain: Some(chain), ..case.clone() }.run(&cpu, &x).unwrap();
            let (walked, whole) = (of(chain), of(rule.chain()));
            assert!(found == if hidden == 520 { &walked } else { &whole }[..], "{form:?} {step:?} {hidden}");
            is_seen |= hidden == 520 && walked != whole;
        }
    }
    assert!(is_seen, "both chains round alike");
}

/// A launch that is refused keeps the workspace of the memory before it, which graphs may have captured.
#[test]
fn what_is_refused_drops_no_workspace() {
    let cpu = crate::device();
    for step in [Step::MuonByChunk, Step::MuonByToken] {
        let rule = OmegaRule { step, read: Read::Before, ..OmegaRule::omega_net(Chunking::new(2, 2)) };
        let sizes = StreamSizes { sequences: 2, heads: 2, key: 8, value: 8, piece: 4, dtype: DType::F32 };
        let mut packed = OmegaPacked::new(&cpu.default_stream(), rule, sizes).unwrap();
        let zeros = |shape: &[usize]| Tensor::zeros(&cpu, DType::F32, shape).unwrap();
        let starts = cpu.tensor_from(&[0, 3, 6], [3]).unwrap();
        let mut launch = |hidden: usize, values: usize| {
            let (x, v, gate) = (zeros(&[1, 6, 2, 8]), zeros(&[1, 6, 2, values]), zeros(&[1, 6, 2]));
            let (alpha, gamma) = (&gate, &zeros(&[1, 6, 2, 2]));
            let given = Tokens { q: &x, k: &x, v: &v, rq: &x, rk: &x, alpha, theta: alpha, eta: alpha, gamma };
            let shapes = rule.memory.matrices(8, 8, hidden).repeat(2);
            let mut memory: Vec<Tensor> = shapes.into_iter().map(|[r, c]| zeros(&[2, 2, r, c])).collect();
            let (mut memory, mut y) = (memory.iter_mut().collect::<Vec<_>>(), zeros(&[1, 6, 2, 8]));
            (packed.launch(&cpu.default_stream(), &given, &starts, &mut memory, &mut y).is_ok(), packed.bytes())
        };
        let (is_done, held) = launch(24, 8);
        assert!(is_done);
        assert_eq!(launch(520, 9), (false, held), "{step:?}");
        let (is_done, wider) = launch(520, 8);
        assert!(is_done && wider > held, "{step:?}");
    }
}

/// So does one of a memory whose matrices, or whose norm, have other sizes than the rest.
#[test]
fn a_memory_that_is_refused_drops_no_workspace() {
    let cpu = crate::device();
    let zeros = |dtype: DType, shape: &[usize]| Tensor::zeros(&cpu, dtype, shape).unwrap();
    let tokens = |batch: [usize; 2], name: &str| {
        let width = if name == "gamma" { 2 } else { 8 };
        let is_gate = ["alpha", "theta", "eta"].contains(&name);
        zeros(DType::F32, &[batch[0], batch[1], 2, width][..if is_gate { 3 } else { 4 }])
    };
    for step in [Step::MuonByChunk, Step::MuonByToken] {
        let of = OmegaRule { step, read: Read::Before, ..OmegaRule::omega_net(Chunking::new(2, 2)) };
        let rule = OmegaRule { memory: NORMED, ..of };
        let sizes = StreamSizes { sequences: 2, heads: 2, key: 8, value: 8, piece: 4, dtype: DType::F32 };
        let norm = |value: usize| zeros(DType::F32, &[2, value]);
        let mut packed = OmegaPacked::new(&cpu.default_stream(), rule, sizes).unwrap();
        let mut stream = OmegaStream::new(&cpu, rule, sizes).unwrap();
        let starts = cpu.tensor_from(&[0, 3, 6], [3]).unwrap();
        let mut held = None;
        for (matrices, dtype, value) in [
            ([[8, 24], [24, 8], [8, 24], [24, 8]], DType::F32, 8),
            ([[8, 520], [24, 8], [8, 520], [24, 8]], DType::F32, 8),
            ([[8, 520], [520, 9], [8, 520], [520, 9]], DType::F32, 8),
            ([[8, 520], [520, 8], [8, 24], [24, 8]], DType::F32, 8),
            ([[8, 520], [520, 8], [8, 520], [520, 8]], DType::Bf16, 8),
            ([[8, 520], [520, 8], [8, 520], [520, 8]], DType::F32, 9),
        ] {
            (packed, stream) = (packed.with_norm(norm(value)), stream.with_norm(norm(value)));
            let mut memory = matrices.map(|[rows, cols]| zeros(dtype, &[2, 2, rows, cols]));
            let names = ["q", "k", "v", "rq", "rk", "alpha", "theta", "eta", "gamma"];
            let (of_stream, of_packed) =
                (names.map(|name| tokens([2, 4], name)), names.map(|name| tokens([1, 6], name)));
            let [q, k, v, rq, rk, alpha, theta, eta, gamma] = of_stream.each_ref();
            let given = Tokens { q, k, v, rq, rk, alpha, theta, eta, gamma };
            let mut y = zeros(DType::F32, &[2, 4, 2, 8]);
            let pushed = stream.push(&given, &mut memory.each_mut(), &mut y);
            let [q, k, v, rq, rk, alpha, theta, eta, gamma] = of_packed.each_ref();
            let given = Tokens { q, k, v, rq, rk, alpha, theta, eta, gamma };
            let mut y = zeros(DType::F32, &[1, 6, 2, 8]);
            let launched = packed.launch(&cpu.default_stream(), &given, &starts, &mut memory.each_mut(), &mut y);
            let now = [stream.bytes(), packed.bytes()];
            let is_first = held.is_none();
            assert_eq!(
                [pushed.is_ok(), launched.is_ok()],
                [is_first; 2],
                "{step:?} {matrices:?} {pushed:?} {launched:?}"
            );
            assert_eq!(*held.get_or_insert(now), now, "{step:?} {matrices:?} {dtype} {value}");
        }
    }
}

#[test]
fn sequences_come_in_parts() {
    for (form, step, chain) in WIDE {
        let hidden = if form == MemoryForm::Linear { 0 } else { 72 };
        let mut whole = Case { chain: Some(chain), ..case((form, step), 13, [24, 16, hidden], Chunking::new(4, 3)) };
        whole.rule.read = Read::Before;
        let found = whole.run(&crate::device(), &whole.inputs()).unwrap();
        // The first part may end inside a chunk, also more than once.
        for parts in [vec![8, 5], vec![3, 5, 1, 4], vec![1, 2, 10]] {
            let case = Case { parts, ..whole.clone() };
            assert_eq!(
                case.run(&crate::device(), &whole.inputs()).unwrap(),
                found,
                "{form:?} {step:?} {:?}",
                case.parts
            );
        }
    }
}

/// Windows of the first chunk reach tokens before the first one, rows of zeros that have no norm.
#[test]
fn a_norm_needs_no_epsilon() {
    for (_, step, chain) in WIDE.into_iter().filter(|(form, ..)| *form == NORMED) {
        let form = MemoryForm::Normed { eps: 0.0 };
        let case = Case { chain: Some(chain), ..case((form, step), 9, [16, 16, 32], Chunking::new(4, 3)) };
        let found = case.check(&crate::device()).unwrap();
        assert!(found.passes(1e-5), "{step:?}: {found:?}");
    }
}

#[test]
fn mistakes_show() {
    type WideMuonMistake = fn(&mut SequenceSizes, &mut CaseInputs);
    let mistakes: [(&str, WideMuonMistake); 4] = [
        ("no halo", |s, _| s.k = s.l),
        ("the band is reversed", |_, x| x.gamma.chunks_mut(3).for_each(<[f32]>::reverse)),
        ("the last tile of keys is left out", |s, x| {
            x.k.chunks_mut(s.d).for_each(|row| row[128..].fill(0.0));
        }),
        ("the momentum starts at zero", |_, x| x.s.iter_mut().for_each(|s| s.fill(0.0))),
    ];
    for (form, step, _) in WIDE {
        let hidden = if form == MemoryForm::Linear { 0 } else { 24 };
        let case = case((form, step), 9, [136, 16, hidden], Chunking::new(4, 3));
        assert!(case.check(&crate::device()).unwrap().passes(1e-5), "{form:?} {step:?}");
        for (name, edit) in mistakes {
            let found = case.check_against(&crate::device(), edit).unwrap();
            assert!(!found.passes(1e-5), "{name} went unnoticed in {form:?} {step:?}: {found:?}");
        }
    }
}

/// A kernel compiled for sizes of its dims, which are given by name.
fn specialized(kernel: &KernelDef, dtype: DType, sizes: &[(&str, u64)]) -> (Specialization, Vec<u64>) {
    let given = |name: &str| sizes.iter().find(|(n, _)| *n == name).map(|(_, size)| *size);
    let known = kernel.dims.iter().map(|dim| given(dim.name)).collect();
    let dims: Vec<u64> = kernel.with_implied(known).into_iter().map(Option::unwrap).collect();
    (kernel.specialization(dtype, &dims), dims)
}

/// Heads of 128 elements and wide features, with chunks and windows as models have them: an L4 has the least shared memory, and Hopper
/// other products.
#[test]
fn gpus_have_a_config() {
    let (n, l, k) = (128, 64, 80);
    let chunks = [("C", n / l), ("L", l), ("K", k), ("W", 16), ("B", 2), ("H", 4), ("N", n), ("P", n)];
    let mut refused = vec![];
    // Features, elements of a value, hidden elements: all monomials up to degree 2 of 16 and of 64 numbers are 152 and 2144.
    for [d, e, m] in [[128, 128, 512], [152, 16, 64], [2144, 64, 256], [256, 200, 1024], [47905, 64, 256]] {
        for (form, _, chain) in WIDE.into_iter().filter(|(form, ..)| *form != NORMED || e <= 128) {
            let kernel = chain.kernels[chain.kernels.len() - 1].declared();
            for (dtype, target) in [(DType::F32, "sm_89"), (DType::Bf16, "sm_90a")] {
                let rows = [("D", d), ("E", e), ("M", m)];
                let (spec, dims) = specialized(kernel, dtype, &[&rows[..], &chunks[..]].concat());
                let selection = choose_for(kernel, &spec, &dims, target.parse().ok());
                if selection.chosen().is_none() {
                    refused.push(format!("{form:?} {} {dtype} {target} {rows:?}: {selection}", kernel.name));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// A matrix is iterated on its shorter side, whichever that is.
#[test]
fn features_may_be_wider_than_the_hidden_layer() {
    for (form, step, chain) in WIDE {
        for [d, e, m] in [[152, 16, 64], [70, 40, 33], [33, 70, 40], [40, 70, 33], [16, 1, 1]] {
            let hidden = if form == MemoryForm::Linear { 0 } else { m };
            let mut case = case((form, step), 3, [d, e, hidden], Chunking::new(2, 2));
            (case.batch, case.chain) = ([1, 3, 2], Some(chain));
            let found = case.check(&crate::device()).unwrap();
            // A norm over one element gives 0, whatever is normed.
            assert!(found.passes(1e-5), "{form:?} {step:?} {d} {e} {m}: {found:?}");
        }
    }
}
