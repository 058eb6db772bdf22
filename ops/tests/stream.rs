//! A sequence in pieces gives what the whole of it gives, bit for bit, however it is cut.

use atlas_dsl::DType;
use atlas_dsl::def::ParamDef;
use atlas_ops::omega::{Chunking, Loss, MemoryForm, OmegaRule, OmegaStream, Read, StreamSizes, Tokens};
use atlas_runtime::{Arg, Chain, Device, Tensor};
use std::collections::BTreeMap;

const B: usize = 2;
const T: usize = 23;
const H: usize = 2;
const D: usize = 16;
const E: usize = 16;
const M: usize = 32;

fn noise(i: usize) -> f32 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Tensors of a sequence by name: tokens, and gates about their usual values.
fn sequence(device: &Device, window: usize) -> BTreeMap<&'static str, Tensor> {
    let make = |(name, shape, middle, width): (&'static str, Vec<usize>, f32, f32)| {
        let len: usize = shape.iter().product();
        let salt = 100_000 * name.len() + name.as_bytes()[0] as usize * 1000;
        let values: Vec<f32> = (0..len).map(|i| middle + width * noise(i + salt)).collect();
        (name, device.tensor_from(&values, shape).unwrap())
    };
    [
        ("q", vec![B, T, H, D], 0.0, 0.5),
        ("k", vec![B, T, H, D], 0.0, 0.5),
        ("v", vec![B, T, H, E], 0.0, 0.5),
        ("rq", vec![B, T, H, E], 0.0, 0.5),
        ("rk", vec![B, T, H, E], 0.0, 0.5),
        ("alpha", vec![B, T, H], 0.95, 0.05),
        ("theta", vec![B, T, H], 0.5, 0.3),
        ("eta", vec![B, T, H], 0.05, 0.03),
        ("gamma", vec![B, T, H, window], 0.3, 0.2),
    ]
    .into_iter()
    .map(make)
    .collect()
}

/// Weights and momenta of a chain, in the order of its parameters.
fn memory(device: &Device, chain: &Chain) -> Vec<Tensor> {
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
        if ["w", "s", "w1", "w2", "s1", "s2"].contains(name) {
            let shape: Vec<usize> = dims.iter().map(|&d| sized(kernel.dims[d].name)).collect();
            let len: usize = shape.iter().product();
            let values: Vec<f32> = (0..len).map(|i| 0.3 * noise(i + 31 * made.len())).collect();
            made.push(device.tensor_from(&values, shape).unwrap());
        }
    }
    made
}

/// What is read, and the memory afterwards, with the sequence as one.
fn whole(rule: OmegaRule) -> Vec<Vec<f32>> {
    let cpu = Device::cpu();
    let (chain, chunking) = (rule.chain(), rule.chunking);
    let (tokens, mut memory) = (sequence(&cpu, chunking.window), memory(&cpu, chain));
    let mut y = Tensor::zeros(&cpu, DType::F32, [B, T, H, E]).unwrap();
    let mut space = chain.workspace(&cpu, &[], &chunking.dims(B, H, T)).unwrap();
    // The last chunk is committed only if it is full, as in a stream.
    let full = (T / chunking.chunk) as i32;
    let mut states = memory.iter_mut();
    let mut out = Some(&mut y);
    let args: Vec<Arg<'_>> = chain
        .params()
        .into_iter()
        .map(|p| match p.name() {
            "before" => Arg::I32((rule.read == Read::Before).into()),
            "commit" => Arg::I32(full),
            "scale" => Arg::F32(rule.loss.factor(E)),
            "y" => Arg::Out(out.take().unwrap()),
            name => tokens.get(name).map_or_else(|| Arg::Out(states.next().unwrap()), Arg::In),
        })
        .collect();
    chain.launch(&cpu, args, &mut space).unwrap();
    std::iter::once(&y).chain(&memory).map(|t| t.to_vec::<f32>().unwrap()).collect()
}

/// The same in pieces of these lengths, again and again.
fn pieces(rule: OmegaRule, lengths: &[usize], piece: usize) -> Vec<Vec<f32>> {
    let cpu = Device::cpu();
    let (tokens, mut memory) = (sequence(&cpu, rule.chunking.window), memory(&cpu, rule.chain()));
    let sizes = StreamSizes { sequences: B, heads: H, key: D, value: E, piece, dtype: DType::F32 };
    let mut stream = OmegaStream::new(&cpu, rule, sizes).unwrap();
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
    for memory in [MemoryForm::Mlp, MemoryForm::Linear] {
        for (chunking, read) in chunkings.into_iter().zip([Read::After, Read::Before, Read::After, Read::Before]) {
            let rule = OmegaRule { memory, read, ..OmegaRule::omega_net(chunking) };
            let wanted = whole(rule);
            for (lengths, piece) in [(&[1][..], 4), (&[23], 100), (&[23], 5), (&[3, 1, 9], 16), (&[8], 8)] {
                let found = pieces(rule, lengths, piece);
                assert!(same(&wanted, &found), "{rule:?} in pieces of {lengths:?}");
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
    assert!(!same(&wanted, &pieces(OmegaRule { read: Read::Before, ..rule }, &[5], 16)));
}

#[test]
fn a_stream_holds_as_much_after_many_tokens_as_after_few() {
    let cpu = Device::cpu();
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
    stream.restart().unwrap();
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
    let cpu = Device::cpu();
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
