//! Attention whose heads of queries share heads of keys: an index that drops an axis is any scalar.

use super::{Given, agrees_on_hopper, agrees_with, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, I32};

atlas_kernel! {
    use atlas::ops::online_softmax::{attend, attended};

    /// The head of the keys is a quotient of sizes that are known at launch.
    kernel grouped<T: Float>(
        q: &Tensor<T, [B, H, M, D]>,
        k: &Tensor<T, [B, J, N, D]>,
        v: &Tensor<T, [B, J, N, D]>,
        scale: f32,
        o: &mut Tensor<T, [B, H, M, D]>,
    )
    tune { BM: [64, 128], BN: [64, 32], stages: [2, 3], warps: [4, 8] }
    require { H % J == 0 }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            let j = h / (size(H) / size(J));
            let qs = load(q[b, h, m, ..]);
            let mut top = full::<f32>([BM, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BM, 1]);
            let mut acc = zeros::<f32>([BM, D]);
            for n in pipeline(tiles(N, BN)) {
                let z = dot(qs, load(k[b, j, n, ..]).t()) * scale;
                (top, total, acc) = attend(z, load(v[b, j, n, ..]), top, total, acc);
            }
            store(o[b, h, m, ..], attended(top, total, acc).cast::<T>());
        }
    }

    /// It is the caller's number of heads in a group that decides, in the loop, and tokens come before heads.
    kernel grouped_by_tokens<T: Float>(
        q: &Tensor<T, [B, M, H, D]>,
        k: &Tensor<T, [B, N, J, D]>,
        v: &Tensor<T, [B, N, J, D]>,
        group: i32,
        scale: f32,
        o: &mut Tensor<T, [B, M, H, D]>,
    )
    tune { BM: [64, 128], BN: [64, 32], stages: [2, 3], warps: [4, 8] }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            let qs = load(q[b, m, h, ..]);
            let mut top = full::<f32>([BM, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BM, 1]);
            let mut acc = zeros::<f32>([BM, D]);
            for n in pipeline(tiles(N, BN)) {
                let z = dot(qs, load(k[b, n, h / group, ..]).t()) * scale;
                (top, total, acc) = attend(z, load(v[b, n, h / group, ..]), top, total, acc);
            }
            store(o[b, m, h, ..], attended(top, total, acc).cast::<T>());
        }
    }

    /// A table has the head of the keys. A head that there is not has keys and values of 0.
    kernel grouped_by_table<T: Float>(
        q: &Tensor<T, [B, H, M, D]>,
        k: &Tensor<T, [B, J, N, D]>,
        v: &Tensor<T, [B, J, N, D]>,
        of: &Tensor<i32, [H]>,
        scale: f32,
        o: &mut Tensor<T, [B, H, M, D]>,
    )
    tune { BM: [64, 128], BN: [64, 32], stages: [2, 3], warps: [4, 8] }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            let j = load(of[h]);
            let qs = load(q[b, h, m, ..]);
            let mut top = full::<f32>([BM, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BM, 1]);
            let mut acc = zeros::<f32>([BM, D]);
            for n in pipeline(tiles(N, BN)) {
                let z = dot(qs, load(k[b, j, n, ..]).t()) * scale;
                (top, total, acc) = attend(z, load(v[b, j, n, ..]), top, total, acc);
            }
            store(o[b, h, m, ..], attended(top, total, acc).cast::<T>());
        }
    }
}

const BOUND: f64 = 1e-2;
const SCALE: f32 = 0.35;
const DEPTH: usize = 64;

/// Sizes of a problem: sequences, heads of queries and of keys, queries, and keys.
#[derive(Clone, Copy)]
struct Heads {
    b: usize,
    h: usize,
    j: usize,
    m: usize,
    n: usize,
}

impl Heads {
    /// One query of a head attends to all keys of another one, in plain f64. The elements of a token begin where these say.
    fn attention(
        self,
        [q, k, v]: [&[f64]; 3],
        of_queries: impl Fn([usize; 3]) -> usize,
        of_keys: impl Fn([usize; 3]) -> usize,
        head_of_keys: impl Fn(usize) -> usize,
    ) -> Vec<f64> {
        let mut o = vec![0.0; q.len()];
        for (b, h, m) in (0..self.b).flat_map(|b| (0..self.h).flat_map(move |h| (0..self.m).map(move |m| (b, h, m)))) {
            let at = of_queries([b, h, m]);
            let keys: Vec<usize> = (0..self.n).map(|n| of_keys([b, head_of_keys(h), n])).collect();
            let dot = |k0: usize| (0..DEPTH).map(|d| q[at + d] * k[k0 + d]).sum::<f64>() * f64::from(SCALE);
            let weights: Vec<f64> = keys.iter().map(|&k0| dot(k0).exp2()).collect();
            let total: f64 = weights.iter().sum();
            for d in 0..DEPTH {
                let sum: f64 = weights.iter().zip(&keys).map(|(w, &k0)| w * v[k0 + d]).sum();
                o[at + d] = if total == 0.0 { 0.0 } else { sum / total };
            }
        }
        o
    }
}

const SIZES: [Heads; 4] = [
    Heads { b: 2, h: 4, j: 2, m: 9, n: 72 },
    Heads { b: 1, h: 3, j: 1, m: 66, n: 70 },
    Heads { b: 1, h: 6, j: 2, m: 1, n: 8 },
    Heads { b: 1, h: 2, j: 2, m: 8, n: 0 },
];

/// The tensors of a problem with heads before tokens.
fn by_heads(s: Heads) -> [Given; 4] {
    let (queries, keys) = ([s.b, s.h, s.m, DEPTH], [s.b, s.j, s.n, DEPTH]);
    [random(Bf16, &queries), random(Bf16, &keys), random(Bf16, &keys), output(Bf16, &queries)]
}

/// Where the elements of a head's token begin, with heads before tokens.
fn in_heads(heads: usize, tokens: usize) -> impl Fn([usize; 3]) -> usize {
    move |[b, h, t]| ((b * heads + h) * tokens + t) * DEPTH
}

/// The same with tokens before heads.
fn in_tokens(heads: usize, tokens: usize) -> impl Fn([usize; 3]) -> usize {
    move |[b, h, t]| ((b * tokens + t) * heads + h) * DEPTH
}

#[test]
fn heads_share_keys_by_the_quotient_of_two_sizes() {
    for s in SIZES {
        let [q, k, v, o] = by_heads(s);
        let given = [q, k, v, Given::F32(SCALE), o];
        agrees_with(&grouped, &given, BOUND, |x| {
            vec![s.attention([&x[0], &x[1], &x[2]], in_heads(s.h, s.m), in_heads(s.j, s.n), |h| h / (s.h / s.j))]
        });
        agrees_on_hopper(&grouped, &given, 2.0 * BOUND);
    }
}

#[test]
fn heads_share_keys_by_an_argument() {
    for &s in &SIZES[..2] {
        let (queries, keys) = ([s.b, s.m, s.h, DEPTH], [s.b, s.n, s.j, DEPTH]);
        let [q, k, v] = [queries, keys, keys].map(|shape| random(Bf16, &shape));
        let group = s.h / s.j;
        let given = [q, k, v, Given::I32(group as i32), Given::F32(SCALE), output(Bf16, &queries)];
        agrees_with(&grouped_by_tokens, &given, BOUND, |x| {
            vec![s.attention([&x[0], &x[1], &x[2]], in_tokens(s.h, s.m), in_tokens(s.j, s.n), |h| h / group)]
        });
        agrees_on_hopper(&grouped_by_tokens, &given, 2.0 * BOUND);
    }
}

#[test]
fn heads_share_keys_by_a_table() {
    let s = SIZES[0];
    let [q, k, v, o] = by_heads(s);
    let given =
        |of: &[f64]| [q.clone(), k.clone(), v.clone(), input(I32, &[s.h], |i| of[i]), Given::F32(SCALE), o.clone()];
    let table = [1, 0, 0, 1];
    let inside = given(&table.map(|j| j as f64));
    agrees_with(&grouped_by_table, &inside, BOUND, |x| {
        vec![s.attention([&x[0], &x[1], &x[2]], in_heads(s.h, s.m), in_heads(s.j, s.n), |h| table[h])]
    });
    agrees_on_hopper(&grouped_by_table, &inside, 2.0 * BOUND);
    // Heads that there are not, before and behind those that there are.
    agrees_on_hopper(&grouped_by_table, &given(&[-1.0, 0.0, 2.0, 1e9]), 2.0 * BOUND);
}

/// The copy engine brings keys and values, whose lines the other heads of the group read again.
#[test]
fn the_engine_brings_shared_keys() {
    let device = Device::sim("sm_90a").unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(&device, Bf16, shape).unwrap();
    let keys = zeros(&[1, 2, 256, DEPTH]);
    let (q, mut o) = (zeros(&[1, 4, 128, DEPTH]), zeros(&[1, 4, 128, DEPTH]));
    let of = device.tensor_from(&[1, 0, 0, 1], [4]).unwrap();
    let tokens = zeros(&[1, 256, 2, DEPTH]);
    let (by_token, mut o_by_token) = (zeros(&[1, 128, 4, DEPTH]), zeros(&[1, 128, 4, DEPTH]));
    for text in ["BM=64 BN=64 stages=2 warps=4", "BM=128 BN=64 stages=3 warps=8"] {
        let config: Config = text.parse().unwrap();
        let launches = [
            grouped.prepare_with(&device, &config, args![&q, &keys, &keys, SCALE, &mut o]).unwrap(),
            grouped_by_table.prepare_with(&device, &config, args![&q, &keys, &keys, &of, SCALE, &mut o]).unwrap(),
            grouped_by_tokens
                .prepare_with(&device, &config, args![&by_token, &tokens, &tokens, 2, SCALE, &mut o_by_token])
                .unwrap(),
        ];
        for launch in launches {
            let image = launch.image().unwrap();
            let of_params: Vec<u32> = image.maps.iter().map(|map| map.param.as_u32()).collect();
            assert_eq!(of_params, [0, 1, 2], "{text}");
            assert!(image.ptx.contains("wgmma.mma_async"), "{text}:\n{}", image.ptx);
            // Queries are read once, and keys and values by several programs.
            let hinted = image.ptx.matches("complete_tx::bytes.L2::cache_hint").count();
            let all = image.ptx.matches("complete_tx::bytes").count();
            assert!(0 < hinted && hinted < all - hinted, "{text}: {hinted} of {all}\n{}", image.ptx);
        }
    }
}
