//! Operations on bits in use: beside other operators, in places and bounds of loops, and summed past the edge of a dim.

use super::{agrees, agrees_with, input, output};
use atlas::prelude::*;
use atlas_dsl::DType::{F32, I32, I64};

atlas_kernel! {
    tile fn hash(x) { (x ^ x >> 3 ^ (x << 5)) & 0x7fff }

    kernel precedence(x: &Tensor<i32, [N]>, w: &Tensor<i32, [N]>, y: &mut Tensor<i32, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let a = load(x[n]);
            let w = load(w[n]);
            store(y[0, n], select(a & 1 == 0, 10, 20.cast::<i32>()));
            store(y[1, n], -a >> 1);
            store(y[2, n], 1 << w);
            store(y[3, n], !a >> 1);
            store(y[4, n], !(a >> 1) + 1);
            store(y[5, n], a + 1 << 2);
            store(y[6, n], a | 6 ^ 3 & a);
            store(y[7, n], select(!(a & 1 == 0) ^ (w > 3), -1, 7.cast::<i32>()));
            store(y[8, n], hash(a));
            store(y[9, n], a % 8 & -a);
            store(y[10, n], !!a - !a * 2);
            store(y[11, n], -1 >> w);
            store(y[12, n], -8 >> (w & 1));
            store(y[13, n], a << (1 << 2) >> (9 - 6));
            store(y[14, n], a & (1 << 30) - 1 | -2147483648);
            store(y[15, n], clamp(a, -5, 5) + clamp(3, a, w) + a.clamp(w, a));
        }
    }

    /// Places that are computed from bits, of which some lie before the first element, and some past the last one.
    kernel places(x: &Tensor<f32, [K]>, at: &Tensor<i32, [N]>, y: &mut Tensor<f32, [F, N]>)
    tune { warps: [1] }
    {
        for n in grid(N) {
            let i = load(at[n]);
            store(y[0, n], load(x[i & 7]));
            store(y[1, n], load(x[i >> 1]));
            store(y[2, n], load(x[!i]));
            store(y[3, n], load(x[i << 1]));
            store(y[4, n], load(x[i ^ 5]));
            store(y[5, n], load(x[popcount(i)]));
            store(y[6, n], load(x[i | 1]));
            store(y[7, n], load(x[(i & 3) << 1]));
            store(y[8, n], load(x[clamp(i, 0, 10)]));
        }
    }

    kernel spans(x: &Tensor<f32, [K]>, at: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N, W]>)
    tune { warps: [1, 4] }
    {
        for n in grid(N) {
            let i = load(at[n]);
            let mut t = zeros::<f32>([32]);
            for k in (i & 3)..(i >> 1) {
                t += load(x[span(k << 2, 32)]).or(0.0);
            }
            t += load(x[span((i - 9) >> 2, 32)]).or(0.0);
            store(y[n, span(0, 32)], t);
        }
    }

    /// Tiles that reach past the end of `N`, whose padding must not count.
    kernel sums(x: &Tensor<i32, [N]>, y: &mut Tensor<i32, [P, F]>)
    tune { BN: [64, 32], warps: [1, 2] }
    {
        for p in grid(P) {
            let mut a = 0.cast::<i32>();
            let mut b = 0.cast::<i32>();
            let mut c = 0.cast::<i32>();
            let mut d = 0.cast::<i32>();
            let mut e = 0.cast::<i32>();
            for n in tiles(N, BN) {
                let x = load(x[n]);
                a += sum(!x);
                b += sum(popcount(x));
                c += sum(1 << (x & 3));
                d += sum((x ^ 5) | 8);
                e += sum(shr_logical(x - 1, 28));
            }
            store(y[p, 0], a);
            store(y[p, 1], b);
            store(y[p, 2], c);
            store(y[p, 3], d);
            store(y[p, 4], e);
        }
    }

    kernel logical32(x: &Tensor<i32, [N]>, w: &Tensor<i32, [N]>, y: &mut Tensor<i32, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            store(y[0, n], shr_logical(x, load(w[n])));
            store(y[1, n], x.shr_logical(3) ^ x >> 3);
            store(y[2, n], shr_logical(x, 32) + x.shr_logical(-1));
            // What is known when the kernel is built.
            store(y[3, n], shr_logical(full::<i32>([BN], -1), 28) + shr_logical(full::<i32>([BN], -1), 33) + x);
            store(y[4, n], shr_logical(x, shr_logical(9, 1)));
        }
    }

    kernel high32(x: &Tensor<i32, [N]>, w: &Tensor<i32, [N]>, y: &mut Tensor<i32, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            store(y[0, n], mul_hi(x, load(w[n])));
            store(y[1, n], x.mul_hi(-1) + mul_hi(1, x));
            // What is known when the kernel is built.
            store(y[2, n], mul_hi(full::<i32>([BN], -1), -3) + x);
        }
    }

    kernel high64(x: &Tensor<i64, [N]>, w: &Tensor<i64, [N]>, y: &mut Tensor<i64, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            // The lower half of what is above 2^53 is no number that the test reads exactly.
            store(y[0, n], mul_hi(load(x[n]), load(w[n])).shr_logical(32));
            store(y[1, n], mul_hi(load(x[n]), load(w[n])) & 0x7fffffff);
        }
    }

    kernel logical64(x: &Tensor<i64, [N]>, w: &Tensor<i64, [N]>, y: &mut Tensor<i64, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            store(y[0, n], shr_logical(x, load(w[n])));
            store(y[1, n], shr_logical(full::<i64>([BN], -1), 60) + x);
        }
    }
}

#[test]
fn operators_bind_as_in_rust() {
    let xs: Vec<i32> = (0..64)
        .map(|i: i32| [0, 1, -1, i32::MIN, i32::MAX, 5, -6, i.wrapping_mul(0x1234_5677)][i as usize % 8])
        .collect();
    let ws: Vec<i32> = (0..64).map(|i: i32| [0, 1, 31, 32, -1, 3, 40, i][i as usize / 8]).collect();
    let shl = |x: i32, n: i32| if (0..32).contains(&n) { x << n } else { 0 };
    let shr = |x: i32, n: i32| if (0..32).contains(&n) { x >> n } else { x >> 31 };
    let rows: Vec<Box<dyn Fn(i32, i32) -> i32>> = vec![
        Box::new(|a, _| if a & 1 == 0 { 10 } else { 20 }),
        Box::new(|a, _| a.wrapping_neg() >> 1),
        Box::new(move |_, w| shl(1, w)),
        Box::new(|a, _| !a >> 1),
        Box::new(|a, _| (!(a >> 1)).wrapping_add(1)),
        Box::new(|a, _| a.wrapping_add(1) << 2),
        Box::new(|a, _| a | 6 ^ 3 & a),
        Box::new(|a, w| if (a & 1 != 0) ^ (w > 3) { -1 } else { 7 }),
        Box::new(|x, _| (x ^ x >> 3 ^ (x << 5)) & 0x7fff),
        Box::new(|a, _| (a % 8) & a.wrapping_neg()),
        Box::new(|a, _| a.wrapping_sub((!a).wrapping_mul(2))),
        Box::new(move |_, w| shr(-1, w)),
        Box::new(|_, w| -8 >> (w & 1)),
        Box::new(|a, _| (a << 4) >> 3),
        Box::new(|a, _| (a & ((1 << 30) - 1)) | i32::MIN),
        Box::new(|a, w| a.clamp(-5, 5).wrapping_add(3.max(a).min(w)).wrapping_add(a.max(w).min(a))),
    ];
    let args = [input(I32, &[64], |i| xs[i] as f64), input(I32, &[64], |i| ws[i] as f64), output(I32, &[16, 64])];
    agrees_with(&precedence, &args, 0.0, |a| {
        vec![
            rows.iter()
                .flat_map(|f| a[0].iter().zip(&a[1]).map(|(&x, &w)| f(x as i32, w as i32) as f64).collect::<Vec<_>>())
                .collect(),
        ]
    });
}

#[test]
fn places_from_bits() {
    let at: Vec<i32> = vec![0, 1, 7, 8, -1, -2, -8, 100, i32::MIN, i32::MAX, 21, -3, 1 << 30, 3 << 29];
    let k = 11;
    let n = at.len();
    let get = |x: &[f64], i: i32| if i >= 0 && (i as usize) < k { x[i as usize] } else { 0.0 };
    let f: Vec<Box<dyn Fn(i32) -> i32>> = vec![
        Box::new(|i| i & 7),
        Box::new(|i| i >> 1),
        Box::new(|i| !i),
        Box::new(|i| i << 1),
        Box::new(|i| i ^ 5),
        Box::new(|i: i32| i.count_ones() as i32),
        Box::new(|i| i | 1),
        Box::new(|i| (i & 3) << 1),
        Box::new(|i: i32| i.clamp(0, 10)),
    ];
    let args = [input(F32, &[k], |i| i as f64 + 1.0), input(I32, &[n], |i| at[i] as f64), output(F32, &[9, n])];
    agrees_with(&places, &args, 0.0, |a| {
        vec![f.iter().flat_map(|f| at.iter().map(|&i| get(&a[0], f(i))).collect::<Vec<_>>()).collect()]
    });
}

#[test]
fn spans_and_loops_from_bits() {
    let at: Vec<i32> = vec![0, 1, 7, 8, -1, -2, -8, 30, 21, -3];
    let args = [input(F32, &[50], |i| i as f64 + 1.0), input(I32, &[10], |i| at[i] as f64), output(F32, &[10, 32])];
    agrees(&spans, &args, 1e-6);
}

#[test]
fn sums_past_an_edge() {
    for n in [1, 33, 70, 128] {
        let args = [input(I32, &[n], |i| i as f64 * 7.0 - 50.0), output(I32, &[1, 5])];
        let rows: [&dyn Fn(i32) -> i32; 5] =
            [&|x| !x, &|x| x.count_ones() as i32, &|x| 1 << (x & 3), &|x| (x ^ 5) | 8, &|x| {
                ((x - 1) as u32 >> 28) as i32
            }];
        agrees_with(&sums, &args, 0.0, |a| {
            vec![rows.iter().map(|f| a[0].iter().map(|&x| f64::from(f(x as i32))).sum()).collect()]
        });
    }
}

/// `x >> by` without a sign, and 0 for a count that moves all bits out.
fn logical(x: i32, by: i64) -> i32 {
    if (0..32).contains(&by) { (x as u32 >> by) as i32 } else { 0 }
}

/// Compares `logical32` on every device with `shift`.
fn check_logical(shift: fn(i32, i64) -> i32) {
    let x = |i: usize| f64::from((i as i32).wrapping_mul(0x9e37_79b9_u32 as i32).wrapping_add(i32::MIN));
    let by = |i: usize| [0.0, 1.0, 5.0, 31.0, 32.0, 33.0, 47.0, -1.0, -31.0, 2e9, -2e9][i % 11];
    let rows: [&dyn Fn(i32, i64) -> i32; 5] =
        [&shift, &|x, _| logical(x, 3) ^ x >> 3, &|_, _| 0, &|x, _| x.wrapping_add(15), &|x, _| logical(x, 4)];
    let args = [input(I32, &[90], x), input(I32, &[90], by), output(I32, &[5, 90])];
    agrees_with(&logical32, &args, 0.0, |a| {
        let row = |f: &&dyn Fn(i32, i64) -> i32| -> Vec<f64> {
            a[0].iter().zip(&a[1]).map(|(&x, &by)| f64::from(f(x as i32, by as i64))).collect()
        };
        vec![rows.iter().flat_map(row).collect()]
    });
}

#[test]
fn zeros_above() {
    check_logical(logical);
    // f64 rounds the same number of more than 53 bits the same way.
    let x = |i: usize| (i as i64).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) as f64;
    let by = |i: usize| [0.0, 1.0, 12.0, 31.0, 32.0, 63.0, 64.0, -1.0, 4e9, -9e15][i % 10];
    let args = [input(I64, &[80], x), input(I64, &[80], by), output(I64, &[2, 80])];
    agrees_with(&logical64, &args, 0.0, |a| {
        let moved = |(&x, &by): (&f64, &f64)| {
            let (x, by) = (x as i64, by as i64);
            if (0..64).contains(&by) { (x as u64 >> by) as i64 as f64 } else { 0.0 }
        };
        let all = a[0].iter().zip(&a[1]).map(moved);
        vec![all.chain(a[0].iter().map(|&x| (x as i64).wrapping_add(15) as f64)).collect()]
    });
}

/// Copies of the sign instead of zeros.
#[test]
#[should_panic(expected = "logical32 on the CPU: output 0 differs")]
fn a_shift_with_the_sign_is_noticed() {
    check_logical(|x, by| if (0..32).contains(&by) { x >> by } else { 0 });
}

/// Compares `high32` on every device with `high`.
fn check_high(high: fn(i32, i32) -> i32) {
    let x = |i: usize| f64::from((i as i32).wrapping_mul(0x9e37_79b9_u32 as i32).wrapping_add(i32::MIN));
    let w = |i: usize| [0.0, 1.0, -1.0, 65536.0, -2.0, f64::from(i32::MIN), f64::from(i32::MAX), -766_435_501.0][i % 8];
    let args = [input(I32, &[90], x), input(I32, &[90], w), output(I32, &[3, 90])];
    agrees_with(&high32, &args, 0.0, |a| {
        let pairs = || a[0].iter().zip(&a[1]).map(|(&x, &w)| (x as i32, w as i32));
        let first = pairs().map(|(x, w)| high(x, w));
        let second = pairs().map(|(x, _)| ((u64::from(x as u32) * u64::from(u32::MAX)) >> 32) as i32);
        let third = pairs().map(|(x, _)| x.wrapping_sub(4));
        vec![first.chain(second).chain(third).map(f64::from).collect()]
    });
}

#[test]
fn high_halves() {
    check_high(|x, y| ((u64::from(x as u32) * u64::from(y as u32)) >> 32) as i32);
    // Numbers that f64 holds: few bits, far apart.
    let x = |i: usize| [0.0, 1.0, -1.0, 1e15, -1e15, -9e18, 4_294_967_296.0, -4_294_967_296.0][i % 8];
    let w = |i: usize| [3.0, -1.0, -2.0, 4.6e18, -4.6e18, 12_345.0, 1e15][i % 7];
    let args = [input(I64, &[80], x), input(I64, &[80], w), output(I64, &[2, 80])];
    agrees_with(&high64, &args, 0.0, |a| {
        let high = |(&x, &w): (&f64, &f64)| ((u128::from(x as i64 as u64) * u128::from(w as i64 as u64)) >> 64) as u64;
        let upper = a[0].iter().zip(&a[1]).map(high).map(|h| (h >> 32) as f64);
        let lower = a[0].iter().zip(&a[1]).map(high).map(|h| (h & 0x7fff_ffff) as f64);
        vec![upper.chain(lower).collect()]
    });
}

/// The high half of the product of numbers with signs.
#[test]
#[should_panic(expected = "high32 on the CPU: output 0 differs")]
fn a_product_with_signs_is_noticed() {
    check_high(|x, y| ((i64::from(x) * i64::from(y)) >> 32) as i32);
}
