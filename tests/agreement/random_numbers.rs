//! Random numbers by counter: the bits of Philox on every device, what `uniform` and `normal` make of them, and dropout.

use super::{Given, agrees_with, input, output, random, run};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F32, I32, I64};
use std::f64::consts::TAU;

const SEED: u64 = 0x1234_5678_9abc;

atlas_kernel! {
    kernel drawn32(
        seed: i32,
        at: &Tensor<i32, [N]>,
        bits: &mut Tensor<i32, [N]>,
        u: &mut Tensor<f32, [N]>,
        z: &mut Tensor<f32, [N]>,
    )
    tune { BN: [32, 64, 7], warps: [1, 2] }
    {
        for n in grid(tiles(N, BN)) {
            let index = load(at[n]);
            store(bits[n], random_bits(seed, index));
            store(u[n], uniform(seed, index));
            store(z[n], normal(seed, index));
        }
    }

    kernel drawn64(
        seed: i64,
        at: &Tensor<i64, [N]>,
        bits: &mut Tensor<i32, [N]>,
        u: &mut Tensor<f32, [N]>,
        z: &mut Tensor<f32, [N]>,
    )
    tune { BN: [32, 64, 7], warps: [1, 2] }
    {
        for n in grid(tiles(N, BN)) {
            let index = load(at[n]);
            store(bits[n], random_bits(seed, index));
            store(u[n], uniform(seed, index));
            store(z[n], normal(seed, index));
        }
    }

    /// Seeds that are numbers or loaded, and indices that are counted.
    kernel counted(seeds: &Tensor<i64, [S]>, y: &mut Tensor<i32, [F, N, D]>)
    tune { BN: [16, 8, 3], BD: [32, 64, 5], warps: [1, 2] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let index = (n * BN + iota([BN, 1], 0)) * size(D) + d * BD + iota([1, BD], 1);
            store(y[0, n, d], random_bits(0, index));
            store(y[1, n, d], random_bits(-1, index));
            store(y[2, n, d], random_bits(SEED, index));
            store(y[3, n, d], random_bits(load(seeds[1]), index));
            store(y[4, n, d], random_bits(load(seeds[0]).cast::<i32>(), index));
        }
    }

    /// A scalar is an index too.
    kernel of_scalars(seed: i64, y: &mut Tensor<f32, [N]>)
    tune { warps: [1] }
    {
        for n in grid(N) {
            store(y[n], uniform(seed, n));
        }
    }

    /// Tiles that reach past the end of `N`, whose padding must not count.
    kernel totals(seed: i64, at: &Tensor<i32, [N]>, y: &mut Tensor<i32, [P, F]>)
    tune { BN: [64, 32], warps: [1, 2] }
    {
        for p in grid(P) {
            let mut a = 0.cast::<i32>();
            let mut b = 0.cast::<i32>();
            for n in tiles(N, BN) {
                a += sum(random_bits(seed, load(at[n])));
                b += sum((uniform(seed, load(at[n])) < 0.25).cast::<i32>());
            }
            store(y[p, 0], a);
            store(y[p, 1], b);
        }
    }

    kernel many(seed: i64, u: &mut Tensor<f32, [N]>, z: &mut Tensor<f32, [N]>)
    tune { BN: [1024], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let index = n * BN + iota([BN], 0);
            store(u[n], uniform(seed, index));
            store(z[n], normal(seed, index));
        }
    }

    tile fn dropped(x, seed, index, p) { select(uniform(seed, index) < p, 0.0, x * (1.0 / (1.0 - p))) }

    /// y = dropout(silu(x))
    kernel forward<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>, seed: i64, p: f32)
    tune { BN: [16, 32, 5], BD: [64, 32], warps: [4, 1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let index = (n * BN + iota([BN, 1], 0)) * size(D) + d * BD + iota([1, BD], 1);
            let a = silu(load(x[n, d]).cast::<f32>());
            store(y[n, d], dropped(a, seed, index, p).cast::<T>());
        }
    }

    /// dx, of another program that chooses its tiles by itself.
    kernel backward<T: Float>(
        x: &Tensor<T, [N, D]>, dy: &Tensor<T, [N, D]>, dx: &mut Tensor<T, [N, D]>, seed: i64, p: f32,
    )
    tune { BN: [8, 32], BD: [32, 128], warps: [1, 4] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let index = (n * BN + iota([BN, 1], 0)) * size(D) + d * BD + iota([1, BD], 1);
            let da = dropped(load(dy[n, d]).cast::<f32>(), seed, index, p);
            store(dx[n, d], (da * grad(silu)(load(x[n, d]).cast::<f32>())).cast::<T>());
        }
    }
}

atlas_kernel! {
    tile fn uniform(x) { 2.0 * x }
    tile fn normal(x, y) { x - y }

    /// Functions of these names from before there were random numbers.
    kernel own(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], normal(uniform(load(x[n])), 1.0));
        }
    }
}

/// Philox4x32-10, as the paper has it.
fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut c0, mut c1, mut c2, mut c3], [mut k0, mut k1]) = (counter, key);
    for _ in 0..10 {
        let (p0, p1) = (u64::from(c0) * 0xd251_1f53, u64::from(c2) * 0xcd9e_8d57);
        [c0, c1, c2, c3] = [(p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32];
        (k0, k1) = (k0.wrapping_add(0x9e37_79b9), k1.wrapping_add(0xbb67_ae85));
    }
    [c0, c1, c2, c3]
}

/// The four words of an index of 64 bits.
fn words(seed: i64, index: u64) -> [u32; 4] {
    philox([index as u32, (index >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32])
}

fn bits_of(seed: i64, index: u64) -> f64 {
    f64::from(words(seed, index)[0] as i32)
}

fn uniform_of(seed: i64, index: u64) -> f64 {
    f64::from(words(seed, index)[0] >> 8) / 16_777_216.0
}

fn normal_of(seed: i64, index: u64) -> f64 {
    let [u, v] = [0, 1].map(|at| f64::from(words(seed, index)[at] >> 8) / 16_777_216.0);
    (-2.0 * (u + 1.0 / 16_777_216.0).ln()).sqrt() * (TAU * v).cos()
}

/// The known answers of the authors, from Random123.
#[test]
fn the_plain_generator_gives_the_known_answers() {
    let all = u32::MAX;
    assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(philox([all; 4], [all; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    assert_eq!(
        philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
    );
}

/// Compares `drawn32` with `bits`. An i32 is an index by its bits, and a seed by its value.
fn check_bits(seed: i32, bits: fn(i64, u64) -> f64) {
    let at = |i: usize| [i as f64, -1.0 - i as f64, 2_147_483_647.0 - i as f64, i as f64 * 1e6][i % 4];
    let out = |dtype| output(dtype, &[90]);
    let args = [Given::I32(seed), input(I32, &[90], at), out(I32), out(F32), out(F32)];
    agrees_with(&drawn32, &args, 2e-6, |a| {
        let of = |f: fn(i64, u64) -> f64| a[1].iter().map(|&at| f(seed.into(), (at as i32 as u32).into())).collect();
        vec![of(bits), of(uniform_of), of(normal_of)]
    });
}

#[test]
fn bits_of_i32() {
    for seed in [0, 1, -1, 123_456_789, i32::MIN] {
        check_bits(seed, bits_of);
    }
}

/// Word 1 for word 0.
#[test]
#[should_panic(expected = "drawn32 on the CPU: output 0 differs")]
fn another_word_is_noticed() {
    check_bits(7, |seed, index| f64::from(words(seed, index)[1] as i32));
}

/// The halves of the seed exchanged.
#[test]
#[should_panic(expected = "drawn32 on the CPU: output 0 differs")]
fn another_key_is_noticed() {
    check_bits(7, |seed, index| {
        f64::from(philox([index as u32, 0, 0, 0], [(seed >> 32) as u32, seed as u32])[0] as i32)
    });
}

#[test]
fn bits_of_i64() {
    let two32 = 4_294_967_296.0;
    let at = |i: usize| [i as f64, two32 + i as f64, two32 * i as f64, -1.0 - i as f64, 9e15 - i as f64][i % 5];
    for seed in [0, -1, 42, 1 << 32, -(1 << 32) - 5, i64::MAX, i64::MIN] {
        let out = |dtype| output(dtype, &[77]);
        let args = [Given::I64(seed), input(I64, &[77], at), out(I32), out(F32), out(F32)];
        agrees_with(&drawn64, &args, 2e-6, |a| {
            let of = |f: fn(i64, u64) -> f64| a[1].iter().map(|&at| f(seed, at as i64 as u64)).collect();
            vec![of(bits_of), of(uniform_of), of(normal_of)]
        });
    }
}

#[test]
fn seeds_and_indices_in_use() {
    let (n, d) = (19, 70);
    let seeds = [-7.0, 1e15];
    let args = [input(I64, &[2], |i| seeds[i]), output(I32, &[5, n, d])];
    agrees_with(&counted, &args, 0.0, |_| {
        let of = |seed: i64| (0..n * d).map(move |i| bits_of(seed, i as u64));
        vec![[0, -1, SEED as i64, 1_000_000_000_000_000, -7].into_iter().flat_map(of).collect()]
    });
    let args = [Given::I64(-3), output(F32, &[50])];
    agrees_with(&of_scalars, &args, 0.0, |_| vec![(0..50).map(|i| uniform_of(-3, i)).collect()]);
}

#[test]
fn totals_past_an_edge() {
    for n in [1, 33, 70, 128] {
        let args = [Given::I64(5), input(I32, &[n], |i| i as f64 * 3.0), output(I32, &[1, 2])];
        agrees_with(&totals, &args, 0.0, |a| {
            let index = || a[1].iter().map(|&at| at as u64);
            let sum = index().fold(0_i32, |sum, at| sum.wrapping_add(bits_of(5, at) as i32));
            let few = index().filter(|&at| uniform_of(5, at) < 0.25).count();
            vec![vec![f64::from(sum), few as f64]]
        });
    }
}

/// The mean of the powers up to the fourth, which is within five standard deviations of what it should be.
#[test]
fn moments_of_many_draws() {
    let n = 1 << 20;
    let args = [Given::I64(2024), output(F32, &[n]), output(F32, &[n])];
    let found = run(&many, &Device::cpu(), None, &args).unwrap();
    let mean = |x: &[f64], f: &dyn Fn(f64) -> f64| x.iter().map(|&x| f(x)).sum::<f64>() / n as f64;
    let root = (n as f64).sqrt();
    let (u, z) = (&found[0], &found[1]);
    assert!(u.iter().all(|x| (0.0..1.0).contains(x)));
    assert!(z.iter().all(|x| x.abs() < 5.77));
    let near = |what: &str, found: f64, wanted: f64, deviation: f64| {
        assert!((found - wanted).abs() < 5.0 * deviation / root, "{what}: {found} for {wanted}");
    };
    near("the mean of uniform", mean(u, &|x| x), 0.5, (1.0_f64 / 12.0).sqrt());
    near("its variance", mean(u, &|x| (x - 0.5).powi(2)), 1.0 / 12.0, (1.0_f64 / 80.0 - 1.0 / 144.0).sqrt());
    near("the mean of normal", mean(z, &|x| x), 0.0, 1.0);
    near("its variance", mean(z, &|x| x * x), 1.0, 2.0_f64.sqrt());
    near("its third moment", mean(z, &|x| x.powi(3)), 0.0, 15.0_f64.sqrt());
    near("its fourth moment", mean(z, &|x| x.powi(4)), 3.0, 96.0_f64.sqrt());
    for by in [1, 2, 1024] {
        let products = u.iter().zip(&u[by..]).map(|(x, y)| (x - 0.5) * (y - 0.5)).sum::<f64>() / n as f64;
        near("neighbours", products, 0.0, 1.0 / 12.0);
    }
}

fn silu_of(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn silu_slope_of(x: f64) -> f64 {
    let gate = 1.0 / (1.0 + (-x).exp());
    gate * (1.0 + x * (1.0 - gate))
}

#[test]
fn dropout_forward_and_backward() {
    for (dtype, bound) in [(F32, 1e-6), (Bf16, 0.01)] {
        for (n, d, p) in [(37, 70, 0.25_f32), (16, 64, 0.0), (5, 130, 1.0), (33, 32, 0.9)] {
            let kept = move |i: usize| f64::from(u8::from(uniform_of(-11, i as u64) >= p.into()));
            let scale = move |i: usize| if kept(i) == 0.0 { 0.0 } else { 1.0 / f64::from(1.0 - p) };
            let (seed, p) = (Given::I64(-11), Given::F32(p));
            let args = [random(dtype, &[n, d]), output(dtype, &[n, d]), seed.clone(), p.clone()];
            agrees_with(&forward, &args, bound, |a| {
                vec![a[0].iter().enumerate().map(|(i, &x)| silu_of(x) * scale(i)).collect()]
            });
            let dy = input(dtype, &[n, d], |i| (i % 7) as f64 - 2.5);
            let args = [random(dtype, &[n, d]), dy, output(dtype, &[n, d]), seed, p];
            agrees_with(&backward, &args, bound, |a| {
                let pairs = a[0].iter().zip(&a[1]).enumerate();
                vec![pairs.map(|(i, (&x, &dy))| dy * scale(i) * silu_slope_of(x)).collect()]
            });
        }
    }
}

/// What was dropped forward is dropped backward: neither kernel has stored which elements those are.
#[test]
fn both_directions_drop_the_same() {
    let (n, d) = (40, 100);
    let (seed, p) = (Given::I64(1 << 40), Given::F32(0.3));
    let ones = || input(F32, &[n, d], |_| 1.0);
    let on = |kernel, args: &[Given]| run(kernel, &Device::cpu(), None, args).unwrap().remove(0);
    let y = on(&forward, &[ones(), output(F32, &[n, d]), seed.clone(), p.clone()]);
    let dx = on(&backward, &[ones(), ones(), output(F32, &[n, d]), seed, p]);
    let dropped = |x: &[f64]| x.iter().map(|&x| x == 0.0).collect::<Vec<_>>();
    assert_eq!(dropped(&y), dropped(&dx));
    let share = dropped(&y).iter().filter(|&&is| is).count() as f64 / (n * d) as f64;
    assert!((share - 0.3).abs() < 0.04, "{share}");
}

#[test]
fn own_functions_have_priority() {
    let args = [input(F32, &[40], |i| i as f64), output(F32, &[40])];
    agrees_with(&own, &args, 0.0, |a| vec![a[0].iter().map(|x| 2.0 * x - 1.0).collect()]);
}
