//! A sequence in pieces gives what the whole of it gives, bit for bit, however it is cut.

use atlas_dsl::DType;
use atlas_dsl::def::ParamDef;
use atlas_ops::omega::{Chunking, Loss, MemoryForm, OmegaRule, OmegaStream, Read, Step, StreamSizes, Tokens};
use atlas_runtime::{Arg, Chain, Device, Result, Tensor, Workspace};
use std::collections::BTreeMap;

const B: usize = 2;
const T: usize = 23;
const H: usize = 2;
const D: usize = 16;
const E: usize = 16;
const M: usize = 32;
const EPS: f32 = 1e-5;
const FORMS: [MemoryForm; 4] =
    [MemoryForm::Mlp, MemoryForm::Linear, MemoryForm::Gated, MemoryForm::Normed { eps: EPS }];

fn noise(i: usize) -> f32 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Tensors of a sequence by name.
pub(crate) type Sequence = BTreeMap<&'static str, Tensor>;

/// The sizes of the sequences of these tests, in pieces of all tokens.
pub(crate) fn sizes() -> StreamSizes {
    StreamSizes { sequences: B, heads: H, key: D, value: E, piece: T, dtype: DType::F32 }
}

/// Tokens, and gates about their usual values.
fn sequence(device: &Device, window: usize) -> Sequence {
    sequence_of(device, window, T, 0)
}

/// So many of other tokens for each number.
pub(crate) fn sequence_of(device: &Device, window: usize, tokens: usize, other: usize) -> Sequence {
    let make = |(name, shape, middle, width): (&'static str, Vec<usize>, f32, f32)| {
        let len: usize = shape.iter().product();
        let salt = 100_000 * name.len() + name.as_bytes()[0] as usize * 1000 + other;
        let values: Vec<f32> = (0..len).map(|i| middle + width * noise(i + salt)).collect();
        (name, device.tensor_from(&values, shape).unwrap())
    };
    [
        ("q", vec![B, tokens, H, D], 0.0, 0.5),
        ("k", vec![B, tokens, H, D], 0.0, 0.5),
        ("v", vec![B, tokens, H, E], 0.0, 0.5),
        ("rq", vec![B, tokens, H, E], 0.0, 0.5),
        ("rk", vec![B, tokens, H, E], 0.0, 0.5),
        ("alpha", vec![B, tokens, H], 0.95, 0.05),
        ("theta", vec![B, tokens, H], 0.5, 0.3),
        ("eta", vec![B, tokens, H], 0.05, 0.03),
        ("gamma", vec![B, tokens, H, window], 0.3, 0.2),
    ]
    .into_iter()
    .map(make)
    .collect()
}

/// Weights and momenta of a chain, in the order of its parameters.
pub(crate) fn memory(device: &Device, chain: &Chain) -> Vec<Tensor> {
    let sized = |dim: &str| match dim {
        "B" => B,
        "H" => H,
        "E" => E,
        "M" => M,
        _ => D,
    };
    let mut made = Vec::new();
    for (p, kernel) in chain.kernels.iter().flat_map(|k| k.declared().params.iter().map(move |p| (p, k.declared()))) {
        let ParamDef::Tensor { name, dims, .. } = p else { continue };
        if ["w", "s", "w1", "w2", "w3", "s1", "s2", "s3"].contains(name) {
            let shape: Vec<usize> = dims.iter().map(|&d| sized(kernel.dims[d].name)).collect();
            let len: usize = shape.iter().product();
            let values: Vec<f32> = (0..len).map(|i| 0.3 * noise(i + 31 * made.len())).collect();
            made.push(device.tensor_from(&values, shape).unwrap());
        }
    }
    made
}

/// The weight of the norm inside a memory.
fn norm(device: &Device) -> Tensor {
    device.tensor_from(&(0..H * E).map(|i| 1.0 + 0.3 * noise(i + 17)).collect::<Vec<f32>>(), [H, E]).unwrap()
}

fn stream(device: &Device, rule: OmegaRule, sizes: StreamSizes) -> OmegaStream {
    let stream = OmegaStream::new(device, rule, sizes).unwrap();
    if matches!(rule.memory, MemoryForm::Normed { .. }) { stream.with_norm(norm(device)) } else { stream }
}

/// What is read, and the memory afterwards, with the sequence as one.
fn whole(rule: OmegaRule) -> Vec<Vec<f32>> {
    let cpu = crate::device();
    let (chain, chunking) = (rule.chain(), rule.chunking);
    let (tokens, mut memory) = (sequence(&cpu, chunking.window), memory(&cpu, chain));
    let mut y = Tensor::zeros(&cpu, DType::F32, [B, T, H, E]).unwrap();
    let mut space = chain.workspace(&cpu, &[], &chunking.dims(B, H, T)).unwrap();
    launch_raw(rule, &tokens, &mut memory, &mut y, &mut space).unwrap();
    std::iter::once(&y).chain(&memory).map(|t| t.to_vec::<f32>().unwrap()).collect()
}

/// The chain itself on the sequence as one.
fn launch_raw(
    rule: OmegaRule,
    tokens: &BTreeMap<&'static str, Tensor>,
    memory: &mut [Tensor],
    y: &mut Tensor,
    space: &mut Workspace,
) -> Result<()> {
    let cpu = crate::device();
    let (chain, chunking, norm) = (rule.chain(), rule.chunking, norm(&cpu));
    // The last chunk is committed only if it is full, as in a stream.
    let full = (T / chunking.chunk) as i32;
    let mut states = memory.iter_mut();
    let mut out = Some(y);
    let args: Vec<Arg<'_>> = chain
        .params()
        .into_iter()
        .map(|p| match p.name() {
            "before" => Arg::I32((rule.read == Read::Before).into()),
            "commit" => Arg::I32(full),
            "scale" => Arg::F32(rule.loss.factor(E)),
            "predicts" => Arg::I32(rule.loss.predicts().into()),
            "eps" => Arg::F32(if let MemoryForm::Normed { eps } = rule.memory { eps } else { 0.0 }),
            "norm" => Arg::In(&norm),
            "y" => Arg::Out(out.take().unwrap()),
            name => tokens.get(name).map_or_else(|| Arg::Out(states.next().unwrap()), Arg::In),
        })
        .collect();
    chain.launch(&cpu, args, space)
}

/// The same in pieces of these lengths, again and again.
fn pieces(rule: OmegaRule, lengths: &[usize], piece: usize) -> Vec<Vec<f32>> {
    pieces_after(rule, lengths, piece, 0)
}

/// Pushes some tokens of the sequence, and gives what is read.
fn push_part(
    stream: &mut OmegaStream,
    tokens: &BTreeMap<&'static str, Tensor>,
    memory: &mut [Tensor],
    (from, to): (usize, usize),
) -> Tensor {
    let of = |name: &str| tokens[name].slice(1, from..to).unwrap();
    let [q, k, v, rq, rk] = ["q", "k", "v", "rq", "rk"].map(of);
    let [alpha, theta, eta, gamma] = ["alpha", "theta", "eta", "gamma"].map(of);
    let piece =
        Tokens { q: &q, k: &k, v: &v, rq: &rq, rk: &rk, alpha: &alpha, theta: &theta, eta: &eta, gamma: &gamma };
    let mut y = Tensor::zeros(&crate::device(), DType::F32, [B, to - from, H, E]).unwrap();
    stream.push(&piece, &mut memory.iter_mut().collect::<Vec<_>>(), &mut y).unwrap();
    y
}

/// The same after so many sequences before, each forgotten at its end.
fn pieces_after(rule: OmegaRule, lengths: &[usize], piece: usize, before: usize) -> Vec<Vec<f32>> {
    let cpu = crate::device();
    let (tokens, mut memory) = (sequence(&cpu, rule.chunking.window), memory(&cpu, rule.chain()));
    let sizes = StreamSizes { sequences: B, heads: H, key: D, value: E, piece, dtype: DType::F32 };
    let mut stream = stream(&cpu, rule, sizes);
    for _ in 0..before {
        push_part(&mut stream, &tokens, &mut self::memory(&cpu, rule.chain()), (0, T));
        stream.restart();
    }
    let y = Tensor::zeros(&cpu, DType::F32, [B, T, H, E]).unwrap();
    let (mut from, mut lengths) = (0, lengths.iter().cycle());
    while from < T {
        let to = T.min(from + lengths.next().unwrap());
        let of = |name: &str| tokens[name].slice(1, from..to).unwrap();
        let [q, k, v, rq, rk] = ["q", "k", "v", "rq", "rk"].map(of);
        let [alpha, theta, eta, gamma] = ["alpha", "theta", "eta", "gamma"].map(of);
        let piece =
            Tokens { q: &q, k: &k, v: &v, rq: &rq, rk: &rk, alpha: &alpha, theta: &theta, eta: &eta, gamma: &gamma };
        let mut states: Vec<&mut Tensor> = memory.iter_mut().collect();
        stream.push(&piece, &mut states, &mut y.slice(1, from..to).unwrap()).unwrap();
        from = to;
    }
    std::iter::once(&y).chain(&memory).map(|t| t.to_vec::<f32>().unwrap()).collect()
}

fn same(a: &[Vec<f32>], b: &[Vec<f32>]) -> bool {
    a.iter().flatten().map(|x| x.to_bits()).eq(b.iter().flatten().map(|x| x.to_bits()))
}

#[test]
fn pieces_of_any_length_give_what_the_whole_gives() {
    let halo = |chunk, window| Chunking::new(chunk, window);
    let chunkings = [halo(8, 3), halo(4, 9), halo(1, 4), Chunking { chunk: 8, window: 3, halo: false }];
    let losses = [Loss::Square, Loss::Dot, Loss::MeanSquare, Loss::Dot];
    for memory in FORMS {
        let reads = [Read::After, Read::Before, Read::After, Read::Before];
        for ((chunking, read), loss) in chunkings.into_iter().zip(reads).zip(losses) {
            let rule = OmegaRule { memory, read, loss, ..OmegaRule::omega_net(chunking) };
            let wanted = whole(rule);
            for (lengths, piece) in [(&[1][..], 4), (&[23], 100), (&[23], 5), (&[3, 1, 9], 16), (&[8], 8)] {
                let found = pieces(rule, lengths, piece);
                assert!(same(&wanted, &found), "{rule:?} in pieces of {lengths:?}");
            }
        }
    }
}

/// The rows before the first token of a sequence are no tokens: their norm would be NaN without `eps`.
#[test]
fn a_norm_without_eps_is_of_tokens_alone() {
    for eps in [0.0, 1e-30] {
        for chunking in [Chunking::new(8, 3), Chunking::new(4, 9), Chunking::new(1, 4)] {
            let rule = OmegaRule { memory: MemoryForm::Normed { eps }, ..OmegaRule::omega_net(chunking) };
            let wanted = whole(rule);
            assert!(wanted.iter().flatten().all(|v| v.is_finite()), "{rule:?}");
            for (lengths, piece) in [(&[1][..], 4), (&[23], 100), (&[3, 1, 9], 5)] {
                assert!(same(&wanted, &pieces(rule, lengths, piece)), "{rule:?} in pieces of {lengths:?}");
            }
            // A sequence after another one has nothing before it either.
            let once = pieces_after(rule, &[3, 1, 9], 5, 1);
            assert!(same(&wanted, &once), "{rule:?} after another sequence");
        }
    }
}

/// Rows that are copied in several launches, of keys and of the copy that a chunk which is not full is trained on.
#[test]
fn pieces_of_rows_that_one_launch_does_not_copy() {
    let cpu = crate::device();
    let (tokens, key, value) = (5, (1 << 13) + 3, 2);
    let rule = OmegaRule { memory: MemoryForm::Linear, ..OmegaRule::atlas(Chunking::new(4, 2)) };
    let sizes = StreamSizes { sequences: 1, heads: 1, key, value, piece: 8, dtype: DType::F32 };
    let of = |salt: usize, shape: &[usize], middle: f32, width: f32| {
        let values = (0..shape.iter().product()).map(|i: usize| middle + width * noise(i + salt)).collect::<Vec<f32>>();
        cpu.tensor_from(&values, shape).unwrap()
    };
    let (q, k, v) = (
        of(1, &[1, tokens, 1, key], 0.0, 0.02),
        of(2, &[1, tokens, 1, key], 0.0, 0.02),
        of(3, &[1, tokens, 1, value], 0.0, 0.5),
    );
    let (gate, gamma) = (of(4, &[1, tokens, 1], 0.5, 0.3), of(5, &[1, tokens, 1, 2], 0.3, 0.2));
    let pushed = |length: usize| {
        let mut memory = [of(6, &[1, 1, value, key], 0.0, 0.1), of(7, &[1, 1, value, key], 0.0, 0.1)];
        let mut stream = OmegaStream::new(&cpu, rule, sizes).unwrap();
        let y = Tensor::zeros(&cpu, DType::F32, [1, tokens, 1, value]).unwrap();
        for from in (0..tokens).step_by(length) {
            let part = |t: &Tensor| t.slice(1, from..tokens.min(from + length)).unwrap();
            let [q, k, v, gate, gamma] = [&q, &k, &v, &gate, &gamma].map(part);
            let (rq, rk, alpha, theta, eta) = (&v, &v, &gate, &gate, &gate);
            let piece = Tokens { q: &q, k: &k, v: &v, rq, rk, alpha, theta, eta, gamma: &gamma };
            stream.push(&piece, &mut memory.each_mut(), &mut part(&y)).unwrap();
        }
        std::iter::once(&y).chain(&memory).map(|t| t.to_vec::<f32>().unwrap()).collect::<Vec<_>>()
    };
    let whole = pushed(tokens);
    assert!(whole.iter().flatten().all(|v| v.is_finite()) && whole[0].iter().any(|v| *v != 0.0));
    assert!(same(&whole, &pushed(1)) && same(&whole, &pushed(3)));
}

/// However the lengths of pieces vary, a stream allocates at its first push alone.
#[test]
fn a_stream_allocates_once() {
    for memory_form in FORMS {
        for step in [Step::Descent, Step::MuonByToken] {
            let rule = OmegaRule { memory: memory_form, step, ..OmegaRule::omega_net(Chunking::new(4, 3)) };
            let cpu = crate::device();
            let (tokens, mut memory) = (sequence(&cpu, rule.chunking.window), memory(&cpu, rule.chain()));
            let sizes = StreamSizes { sequences: B, heads: H, key: D, value: E, piece: 12, dtype: DType::F32 };
            let mut stream = stream(&cpu, rule, sizes);
            let mut held = vec![];
            for (from, to) in [(0, 1), (1, 13), (13, 15), (15, 21), (21, T)] {
                push_part(&mut stream, &tokens, &mut memory, (from, to));
                held.push(stream.bytes());
            }
            assert_eq!(held, [held[0]; 5], "{rule:?}");
        }
    }
}

/// A chain whose workspace is for another window than the weights have would read a part of the windows.
#[test]
fn weights_of_another_window_than_the_workspaces_are_refused() {
    let cpu = crate::device();
    let (rule, chunking) = (OmegaRule::omega_net(Chunking::new(8, 3)), Chunking::new(8, 3));
    let chain = rule.chain();
    for window in [2, 3, 4, 12] {
        let (tokens, mut memory) = (sequence(&cpu, window), memory(&cpu, chain));
        let mut space = chain.workspace(&cpu, &[], &chunking.dims(B, H, T)).unwrap();
        let y = Tensor::zeros(&cpu, DType::F32, [B, T, H, E]).unwrap();
        let launched = launch_raw(rule, &tokens, &mut memory, &mut y.clone(), &mut space);
        match launched.map_err(|e| e.to_string()) {
            Ok(()) => assert_eq!(window, 3),
            Err(error) => {
                let says = format!(
                    "`W` of the chain `omega_mlp` is {window} in `gamma`, but its workspace was allocated for 3"
                );
                assert!(window != 3 && error.contains("ATL643") && error.contains(&says), "{error}");
                assert!(y.to_vec::<f32>().unwrap().iter().all(|v| *v == 0.0));
            }
        }
    }
}

#[test]
fn what_is_kept_matters() {
    let rule = OmegaRule::omega_net(Chunking::new(8, 3));
    let wanted = whole(rule);
    // Of another window, another loss, and read after the step rather than before.
    assert!(!same(&wanted, &pieces(OmegaRule::omega_net(Chunking::new(8, 2)), &[5], 16)));
    assert!(!same(&wanted, &pieces(OmegaRule { loss: Loss::HalfSquare, ..rule }, &[5], 16)));
    assert!(!same(&wanted, &pieces(OmegaRule { loss: Loss::Dot, ..rule }, &[5], 16)));
    assert!(!same(&wanted, &pieces(OmegaRule { read: Read::Before, ..rule }, &[5], 16)));
}

#[test]
fn a_stream_holds_as_much_after_many_tokens_as_after_few() {
    let cpu = crate::device();
    let rule = OmegaRule::omega_net(Chunking::new(8, 3));
    let tokens = sequence(&cpu, 3);
    let mut memory = memory(&cpu, rule.chain());
    let sizes = StreamSizes { sequences: B, heads: H, key: D, value: E, piece: 8, dtype: DType::F32 };
    let mut stream = OmegaStream::new(&cpu, rule, sizes).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::F32, [B, T, H, E]).unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        let of = |name: &str| &tokens[name];
        let piece = Tokens {
            q: of("q"),
            k: of("k"),
            v: of("v"),
            rq: of("rq"),
            rk: of("rk"),
            alpha: of("alpha"),
            theta: of("theta"),
            eta: of("eta"),
            gamma: of("gamma"),
        };
        let mut states: Vec<&mut Tensor> = memory.iter_mut().collect();
        stream.push(&piece, &mut states, &mut y).unwrap();
        held.push(stream.bytes());
    }
    assert_eq!(held[1..], [held[1]; 3]);
    // Once more from the start, with a memory as at the start.
    let first = pieces(rule, &[23], 8);
    memory = self::memory(&cpu, rule.chain());
    stream.restart();
    let of = |name: &str| &tokens[name];
    let piece = Tokens {
        q: of("q"),
        k: of("k"),
        v: of("v"),
        rq: of("rq"),
        rk: of("rk"),
        alpha: of("alpha"),
        theta: of("theta"),
        eta: of("eta"),
        gamma: of("gamma"),
    };
    let mut states: Vec<&mut Tensor> = memory.iter_mut().collect();
    stream.push(&piece, &mut states, &mut y).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), first[0]);
}

#[test]
fn what_does_not_fit_is_refused_before_the_memory_changes() {
    let cpu = crate::device();
    let rule = OmegaRule::omega_net(Chunking::new(8, 3));
    let tokens = sequence(&cpu, 3);
    let mut memory = memory(&cpu, rule.chain());
    let before: Vec<Vec<f32>> = memory.iter().map(|t| t.to_vec().unwrap()).collect();
    // No token at a time is one.
    let sizes = StreamSizes { sequences: B, heads: H, key: D, value: E, piece: 0, dtype: DType::F32 };
    let of = |name: &str| &tokens[name];
    let piece = Tokens {
        q: of("q"),
        k: of("k"),
        v: of("v"),
        rq: of("rq"),
        rk: of("rk"),
        alpha: of("alpha"),
        theta: of("theta"),
        eta: of("eta"),
        gamma: of("gamma"),
    };
    let mut push = |piece: &Tokens<'_>, [len, width]: [usize; 2]| {
        let mut stream = OmegaStream::new(&cpu, rule, sizes).unwrap();
        let mut y = Tensor::zeros(&cpu, DType::F32, [B, len, H, width]).unwrap();
        let mut states: Vec<&mut Tensor> = memory.iter_mut().collect();
        let pushed = stream.push(piece, &mut states, &mut y).is_ok();
        (pushed, memory.iter().map(|t| t.to_vec::<f32>().unwrap()).collect::<Vec<_>>())
    };
    let short = of("theta").slice(1, 0..T - 1).unwrap();
    for (pushed, after) in
        [push(&piece, [T - 1, E]), push(&piece, [T, E + 1]), push(&Tokens { theta: &short, ..piece }, [T, E])]
    {
        assert!(!pushed && after == before);
    }
    let (pushed, after) = push(&piece, [T, E]);
    assert!(pushed && after != before);
}

#[test]
fn a_norm_is_given_to_the_memory_that_has_one() {
    let cpu = crate::device();
    let tokens = sequence(&cpu, 3);
    let sizes = StreamSizes { sequences: B, heads: H, key: D, value: E, piece: 8, dtype: DType::F32 };
    let of = |name: &str| &tokens[name];
    let [q, k, v, rq, rk] = ["q", "k", "v", "rq", "rk"].map(of);
    let [alpha, theta, eta, gamma] = ["alpha", "theta", "eta", "gamma"].map(of);
    let piece = Tokens { q, k, v, rq, rk, alpha, theta, eta, gamma };
    let push = |form: MemoryForm, norm: Option<Tensor>| {
        let rule = OmegaRule { memory: form, ..OmegaRule::omega_net(Chunking::new(8, 3)) };
        let stream = OmegaStream::new(&cpu, rule, sizes).unwrap();
        let mut stream = if let Some(norm) = norm { stream.with_norm(norm) } else { stream };
        let mut memory = memory(&cpu, rule.chain());
        let before: Vec<Vec<f32>> = memory.iter().map(|t| t.to_vec().unwrap()).collect();
        let mut y = Tensor::zeros(&cpu, DType::F32, [B, T, H, E]).unwrap();
        let pushed = stream.push(&piece, &mut memory.iter_mut().collect::<Vec<_>>(), &mut y);
        let after: Vec<Vec<f32>> = memory.iter().map(|t| t.to_vec().unwrap()).collect();
        assert_eq!(pushed.is_err(), after == before && y.to_vec::<f32>().unwrap().iter().all(|v| *v == 0.0));
        pushed.map_err(|e| e.to_string())
    };
    let normed = MemoryForm::Normed { eps: EPS };
    push(normed, Some(norm(&cpu))).unwrap();
    let missing = push(normed, None).unwrap_err();
    assert!(
        missing.contains("ATL601") && missing.contains("`norm`, but none is given; give its weight by `with_norm`"),
        "{missing}"
    );
    for form in FORMS.into_iter().filter(|form| *form != normed) {
        push(form, None).unwrap();
        let unknown = push(form, Some(norm(&cpu))).unwrap_err();
        assert!(unknown.contains("ATL601") && unknown.contains("`norm`"), "{unknown}");
    }
    // Of another shape, and of another element type.
    assert!(push(normed, Some(norm(&cpu).reshape([E, H]).unwrap().slice(0, 0..H).unwrap())).is_err());
    assert!(push(normed, Some(Tensor::zeros(&cpu, DType::Bf16, [H, E]).unwrap())).is_err());
    // One that the memory would be written over.
    let rule = OmegaRule { memory: normed, ..OmegaRule::omega_net(Chunking::new(8, 3)) };
    let mut memory = memory(&cpu, rule.chain());
    let shared = memory[0].reshape([B * H * M, E]).unwrap().slice(0, 0..H).unwrap();
    let mut stream = OmegaStream::new(&cpu, rule, sizes).unwrap().with_norm(shared);
    let mut y = Tensor::zeros(&cpu, DType::F32, [B, T, H, E]).unwrap();
    let refused = stream.push(&piece, &mut memory.iter_mut().collect::<Vec<_>>(), &mut y).unwrap_err().to_string();
    assert!(refused.contains("ATL609"), "{refused}");
}
