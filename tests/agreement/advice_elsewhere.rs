//! The advice of diagnostics to users of other languages, applied: the results are the intended ones.
//! dsl/macros/tests/ui has the messages: `names_elsewhere`, `forms_elsewhere`, `counts`, `carried_extents`,
//! `places_of_tiles`, `device_fn_signatures` and `advice`.

use super::{Given, agrees_with, in_place, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{F32, I32};

atlas_kernel! {
    /// ATL005: names of other languages.
    kernel functions(x: &Tensor<f32, [N, D]>, at: &Tensor<i32, [N]>, y: &mut Tensor<f32, [F, N, D]>)
    tune { BN: [8], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(x[n, ..]);
            let row = load(at[n]).cast::<f32>();
            store(y[0, n, ..], select(t > 0.0, t, -1.0));
            store(y[1, n, ..], select(iota([BN, D], 0) >= iota([BN, D], 1), t, 0.0));
            store(y[2, n, ..], select(t > 0, t, 0.01 * t));
            store(y[3, n, ..], select(abs(t) < f32::INFINITY, 1.0, 0.0) + select(abs(1 / (t - t)) == f32::INFINITY, 1.0, 0.0));
            store(y[4, n, ..], t + 0.25 * (2.0 - t));
            store(y[5, n, ..], broadcast(sqrt(sum(t * t, axis = 1)), [BN, D]));
            store(y[6, n, ..], row.t() * broadcast(max(t, axis = 0), [1, D]));
            store(y[7, n, ..], full::<f32>([BN, D], 1) + zeros::<f32>([BN, D]) + broadcast((size(N) + BN - 1) / BN, [BN, D]).cast::<f32>());
            store(y[8, n, ..], dot(select(iota([BN, BN], 0) == iota([BN, BN], 1), 1.0, 0.0), t));
        }
    }

    /// ATL005: `gather`, and `unsqueeze` of a row.
    kernel gathered(x: &Tensor<f32, [R, D]>, at: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { warps: [1] }
    {
        for n in grid(N) {
            store(y[n, ..], load(x[load(at[n]), ..]));
        }
    }

    /// ATL005: `atomic_add`. Each program stores its part.
    kernel parts(x: &Tensor<f32, [G, N]>, part: &mut Tensor<f32, [G]>)
    tune { BN: [16], warps: [1] }
    {
        for g in grid(G) {
            let mut total = 0.0;
            for n in tiles(N, BN) { total += sum(load(x[g, n])); }
            store(part[g], total);
        }
    }

    /// ATL020 and ATL213: loops with other steps, and a loop over what the grid counted.
    kernel loops(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [P, F]>, lo: i32, hi: i32)
    tune { BN: [16], warps: [1] }
    {
        for p in grid(P) {
            let mut steps = 0.0;
            for i in 0..(hi - lo + 4 - 1) / 4 { steps += load(x[lo + i * 4]); }
            let mut closed = 0.0;
            for i in lo..hi + 1 { closed += load(x[i]); }
            let mut down = 0.0;
            for i in lo..hi { down = 0.5 * down + load(x[lo + hi - 1 - i]); }
            let mut first = -1.0;
            for i in lo..hi {
                let done = first >= 0.0;
                first = select(done, first, select(load(x[i]) > 0.5, i.cast::<f32>(), first));
            }
            let mut positive = 0.0;
            for i in lo..hi { positive += select(load(x[i]) > 0.0, load(x[i]), 0.0); }
            let mut all = 0.0;
            for n in tiles(N, BN) { all += sum(load(x[n])); }
            store(y[p, 0], steps);
            store(y[p, 1], closed);
            store(y[p, 2], down);
            store(y[p, 3], first);
            store(y[p, 4], positive);
            store(y[p, 5], all);
        }
    }

    /// ATL020: an `if` around a store and around an assignment, `+=` of a place, and `%=`.
    kernel branches(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, z: &mut Tensor<f32, [N]>, c: &mut Tensor<i32, [N]>, least: i32)
    tune { BN: [16], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], select(n > least, load(x[n]), load(y[n])));
            let mut t = load(x[n]);
            t = select(n > least, t + 1.0, t);
            store(z[n], load(z[n]) + t);
            let mut rest = n * BN + iota([BN], 0);
            rest %= 7;
            store(c[n], rest);
        }
    }

    /// ATL213: what is loaded is shifted, and not the place of the store.
    kernel shifted(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { warps: [1] }
    {
        for n in grid(N) {
            store(y[n], load(x[n - 1]));
        }
    }

    /// ATL111 and ATL105: counts in whole numbers.
    kernel counts(x: &Tensor<f32, [N, D]>, start: i32, c: &mut Tensor<i32, [F, N]>)
    tune { BN: [8], BD: [16], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut above = zeros::<i32>([BN, 1]);
            let mut all = 0.cast::<i32>();
            for d in tiles(D, BD) {
                let positive = load(x[n, d]) > 0.0;
                above += sum(positive.cast::<i32>(), axis = 1);
                all += sum(select(positive, 1.0, 0.cast::<i32>()));
            }
            store(c[0, n], above + start);
            store(c[1, n], broadcast(all + start, [BN]));
        }
    }

    /// ATL226: through a `let`, in steps, with a product, after a factor, and by two names at once.
    kernel combined(x: &Tensor<f32, [N, D]>, k: &Tensor<f32, [K, N]>, w: &Tensor<f32, [K, D]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [8], BD: [16], warps: [1, 2] }
    {
        for n in grid(tiles(N, BN)) {
            let mut named = full::<f32>([BN, BD], f32::NEG_INFINITY);
            let mut chained = full::<f32>([BN, BD], f32::NEG_INFINITY);
            let mut products = full::<f32>([BN, BD], f32::NEG_INFINITY);
            let mut sums = zeros::<f32>([BN, BD]);
            let mut decayed = zeros::<f32>([BN, BD]);
            let mut total = zeros::<f32>([BN, BD]);
            let mut most = full::<f32>([BN, BD], f32::NEG_INFINITY);
            for d in tiles(D, BD) {
                let next = max(named, load(x[n, d]).or(f32::NEG_INFINITY));
                named = next;
                chained = max(max((load(x[n, d])).or(f32::NEG_INFINITY), chained), -3.0);
                products = max(products, (dot(load(k[.., n]).t(), load(w[.., d]))).or(f32::NEG_INFINITY));
                sums += dot(load(k[.., n]).t(), load(w[.., d]).or(0.0));
                decayed = 0.5 * decayed + (load(x[n, d])).or(0.0);
                let both = load(x[n, d]);
                total += (both).or(0.0);
                most = max(most, (both).or(f32::NEG_INFINITY));
            }
            store(y[0, n], max(named, axis = 1));
            store(y[1, n], max(chained, axis = 1));
            store(y[2, n], max(products, axis = 1));
            store(y[3, n], sum(sums, axis = 1));
            store(y[4, n], sum(decayed, axis = 1));
            store(y[5, n], sum(total, axis = 1));
            store(y[6, n], max(most, axis = 1));
        }
    }

    /// ATL116: what is carried has all of its extents from the start, and what is assigned is broadcast.
    kernel extents(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [8], BD: [16], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut column = zeros::<f32>([BN, 1]);
            let mut grown = zeros::<f32>([BN, BD]);
            for d in tiles(D, BD) {
                column = broadcast(max(load(x[0, d])), [BN, 1]);
                grown += load(x[n, d]).or(0.0);
            }
            store(y[0, n], column);
            store(y[1, n], sum(grown, axis = 1));
        }
    }

    device fn doubled(x, y, n, scale) {
        let scale = scale * 2.0;
        store(y[n, 0], scale * load(x[n]));
        (scale, 1.0)
    }

    /// A `let` with the name of an argument hides it. `let _` drops the results of a device fn.
    kernel hiding(x: &Tensor<f32, [N]>, offset: &Tensor<f32, [N]>, scale: f32, y: &mut Tensor<f32, [N, F]>)
    tune { warps: [1] }
    {
        for n in grid(N) {
            let _ = doubled(x, y, n, scale);
            let scale = scale + 1.0;
            let offset = load(offset[n]);
            let (_, one) = doubled(x, y, n, scale);
            store(y[n, 1], scale * load(x[n]) + offset * one);
        }
    }
}

#[test]
fn names_of_other_languages_have_forms_here() {
    let (n, d) = (13, 5);
    let args = [random(F32, &[n, d]), input(I32, &[n], |i| i as f64), output(F32, &[9, n, d])];
    agrees_with(&functions, &args, 1e-6, |a| {
        let x = &a[0];
        let each =
            |f: &dyn Fn(usize, usize, f64) -> f64| -> Vec<f64> { (0..n * d).map(|i| f(i / d, i % d, x[i])).collect() };
        let norm = |row: usize| x[row * d..(row + 1) * d].iter().map(|v| v * v).sum::<f64>().sqrt();
        // Maxima of the columns of a tile of 8 rows.
        let most = |row: usize, c: usize| {
            (row / 8 * 8..(row / 8 * 8 + 8).min(n)).map(|r| x[r * d + c]).fold(f64::MIN, f64::max)
        };
        let rows = [
            each(&|_, _, v| if v > 0.0 { v } else { -1.0 }),
            each(&|r, c, v| if r % 8 >= c { v } else { 0.0 }),
            each(&|_, _, v| if v > 0.0 { v } else { 0.01 * v }),
            each(&|_, _, _| 2.0),
            each(&|_, _, v| v + 0.25 * (2.0 - v)),
            each(&|r, _, _| norm(r)),
            each(&|r, c, _| r as f64 * most(r, c)),
            each(&|_, _, _| 1.0 + n.div_ceil(8) as f64),
            each(&|_, _, v| v),
        ];
        vec![rows.concat()]
    });
    let at = [3.0, 0.0, 2.0, 2.0];
    let args = [random(F32, &[4, 6]), input(I32, &[4], |i| at[i]), output(F32, &[4, 6])];
    agrees_with(&gathered, &args, 0.0, |a| {
        vec![at.iter().flat_map(|&r| a[0][r as usize * 6..][..6].to_vec()).collect()]
    });
    let args = [random(F32, &[3, 37]), output(F32, &[3])];
    agrees_with(&parts, &args, 1e-6, |a| vec![a[0].chunks(37).map(|r| r.iter().sum()).collect()]);
}

#[test]
fn loops_of_other_languages_have_forms_here() {
    let (lo, hi) = (3, 16);
    let args = [random(F32, &[40]), output(F32, &[2, 6]), Given::I32(lo), Given::I32(hi)];
    agrees_with(&loops, &args, 1e-6, |a| {
        let (x, lo, hi) = (&a[0], lo as usize, hi as usize);
        let one = [
            (lo..hi).step_by(4).map(|i| x[i]).sum(),
            (lo..=hi).map(|i| x[i]).sum(),
            (lo..hi).rev().fold(0.0, |s, i| 0.5 * s + x[i]),
            (lo..hi).find(|&i| x[i] > 0.5).map_or(-1.0, |i| i as f64),
            (lo..hi).map(|i| x[i].max(0.0)).sum(),
            x.iter().sum::<f64>(),
        ];
        vec![[one, one].concat()]
    });
}

#[test]
fn branches_of_other_languages_have_forms_here() {
    let args = [random(F32, &[40]), in_place(F32, &[40]), in_place(F32, &[40]), output(I32, &[40]), Given::I32(0)];
    let before: Vec<f64> = (0..40).map(|i| super::noise(i + 5)).map(|v| f64::from(v as f32)).collect();
    agrees_with(&branches, &args, 1e-6, |a| {
        let x = &a[0];
        let is_later = |i: usize| i / 16 > 0;
        vec![
            (0..40).map(|i| if is_later(i) { x[i] } else { before[i] }).collect(),
            (0..40).map(|i| before[i] + x[i] + f64::from(u8::from(is_later(i)))).collect(),
            (0..40).map(|i| f64::from(i as u32 % 7)).collect(),
        ]
    });
    let args = [random(F32, &[9]), output(F32, &[9])];
    agrees_with(&shifted, &args, 0.0, |a| vec![(0..9).map(|i| if i == 0 { 0.0 } else { a[0][i - 1] }).collect()]);
}

#[test]
fn counts_keep_every_digit() {
    let (n, d, start) = (11, 21, 1 << 24);
    let args = [random(F32, &[n, d]), Given::I32(start), output(I32, &[2, n])];
    agrees_with(&counts, &args, 0.0, |a| {
        let count = |x: &[f64]| x.iter().filter(|v| **v > 0.0).count() as f64 + f64::from(start);
        let tiles = a[0].chunks(8 * d).flat_map(|tile| vec![count(tile); tile.len() / d]);
        vec![a[0].chunks(d).map(count).chain(tiles).collect()]
    });
}

#[test]
fn each_way_to_carry_has_its_own_number() {
    let (n, d, k) = (11, 21, 3);
    // Negative rows: a 0 past the edge would be their maximum.
    let args = [
        input(F32, &[n, d], |i| -1.0 - (i % 17) as f64 * 0.1),
        input(F32, &[k, n], |i| 1.0 + i as f64 * 0.01),
        input(F32, &[k, d], |i| -1.0 - (i % 13) as f64 * 0.1),
        output(F32, &[7, n]),
    ];
    agrees_with(&combined, &args, 1e-5, |a| {
        let rows = |f: &dyn Fn(&[f64]) -> f64| a[0].chunks(d).map(f).collect::<Vec<f64>>();
        let most = |r: &[f64]| r.iter().copied().fold(f64::MIN, f64::max);
        let product = |row: usize| -> Vec<f64> {
            (0..d).map(|c| (0..k).map(|i| a[1][i * n + row] * a[2][i * d + c]).sum()).collect()
        };
        vec![
            [
                rows(&most),
                rows(&|r| most(r).max(-3.0)),
                (0..n).map(|row| most(&product(row))).collect(),
                (0..n).map(|row| product(row).iter().sum()).collect(),
                rows(&|r| r.iter().enumerate().map(|(i, v)| if i < 16 { 0.5 * v } else { *v }).sum()),
                rows(&|r| r.iter().sum()),
                rows(&most),
            ]
            .concat(),
        ]
    });
}

#[test]
fn what_is_carried_has_its_extents_from_the_start() {
    let (n, d) = (11, 21);
    let args = [random(F32, &[n, d]), output(F32, &[2, n])];
    agrees_with(&extents, &args, 1e-6, |a| {
        let last = a[0][16..d].iter().copied().fold(f64::MIN, f64::max);
        vec![vec![last; n].into_iter().chain(a[0].chunks(d).map(|r| r.iter().sum())).collect()]
    });
}

#[test]
fn a_let_hides_an_argument() {
    let args = [random(F32, &[9]), input(F32, &[9], |i| i as f64), Given::F32(3.0), output(F32, &[9, 2])];
    agrees_with(&hiding, &args, 1e-6, |a| {
        vec![(0..9).flat_map(|i| [8.0 * a[0][i], 4.0 * a[0][i] + a[1][i]]).collect()]
    });
}
