//! Kernels of integers, whose results are exact: scans, histograms, sorting, compaction, bit tricks.

use crate::data::{Data, longs, words};
use crate::kernels;
use crate::setup::{Expect, Setup};

kernels!(histogram, triton_histogram, scan, triton_cumulative, bitonic_sort, collatz, compact, dot_i8);

fn counts(values: &[u64], bins: usize) -> Vec<u8> {
    words((0..bins as u64).map(|b| values.iter().filter(|&&v| v == b).count() as u32))
}

pub(crate) fn histogram() -> Setup {
    let values = Data::new(20).below(4 * 700, 256);
    Setup::new("histogram", [2, 1, 1])
        .read("data", values.iter().map(|&v| v as u8).collect())
        .update("bins", vec![0; 4 * 256], Expect::Exact(counts(&values, 256)))
        .int("quads", values.len() / 4)
}

fn triton_histogram() -> Setup {
    let values = Data::new(21).below(1200, 128);
    Setup::new("triton_histogram", [3, 1, 1])
        .read("x", words(values.iter().map(|&v| v as u32)))
        .update("bins", vec![0; 4 * 128], Expect::Exact(counts(&values, 128)))
        .int("n", values.len())
}

pub(crate) fn scan() -> Setup {
    let values = Data::new(22).below(600, u64::MAX);
    let sums = values.iter().scan(0u64, |sum, &v| {
        *sum = sum.wrapping_add(v);
        Some(*sum)
    });
    Setup::new("scan", [1, 1, 1])
        .read("in", longs(values.iter().copied()))
        .exact("out", longs(sums))
        .int("n", values.len())
}

fn triton_cumulative() -> Setup {
    let (rows, columns) = (2, 256);
    let x = Data::new(23).words(rows * columns);
    let (mut sums, mut order) = (Vec::new(), Vec::new());
    for row in x.chunks(columns) {
        sums.extend(row.iter().scan(0u32, |sum, &v| {
            *sum = sum.wrapping_add(v);
            Some(*sum)
        }));
        let mut sorted: Vec<i32> = row.iter().map(|&v| v as i32).collect();
        sorted.sort_unstable();
        order.extend(sorted.into_iter().map(|v| v as u32));
    }
    Setup::new("triton_cumulative", [rows as u32, 1, 1])
        .read("x", words(x))
        .exact("sums", words(sums))
        .exact("order", words(order))
}

pub(crate) fn bitonic_sort() -> Setup {
    let (ctas, n) = (2, 512);
    let mut keys = Data::new(24).words(ctas * n);
    // Distinct keys, so that the values have one order.
    keys.iter_mut().enumerate().for_each(|(i, k)| *k = *k & !0x3ff | i as u32);
    let values: Vec<i16> = (0..ctas * n).map(|i| (i * 37) as i16).collect();
    let bytes = |v: &[i16]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let mut pairs: Vec<(i32, i16)> = keys.iter().map(|&k| k as i32).zip(values.iter().copied()).collect();
    pairs.chunks_mut(n).for_each(<[_]>::sort_unstable);
    let sorted: Vec<i16> = pairs.iter().map(|p| p.1).collect();
    Setup::new("bitonic_sort", [ctas as u32, 1, 1])
        .update("keys", words(keys), Expect::Exact(words(pairs.iter().map(|p| p.0 as u32))))
        .update("values", bytes(&values), Expect::Exact(bytes(&sorted)))
}

fn collatz() -> Setup {
    let start: Vec<u64> = Data::new(25).below(200, 1 << 20).into_iter().chain([0, 1, 1 << 40, 27]).collect();
    let steps = |&start: &u64| {
        let (mut v, mut count) = (start, 0u32);
        while v > 1 && count <= 400 {
            (v, count) =
                if v % 2 == 1 { (3 * v + 1, count + 1) } else { (v >> v.trailing_zeros(), count + v.trailing_zeros()) };
        }
        count
    };
    Setup::new("collatz", [2, 1, 1])
        .read("start", longs(start.iter().copied()))
        .exact("steps", words(start.iter().map(steps)))
        .int("n", start.len())
}

fn compact() -> Setup {
    let n = 300;
    let values = Data::new(26).words(n);
    let kept: Vec<u32> = values.iter().copied().filter(|v| v % 7 == 0).collect();
    let padded: Vec<u32> = values.iter().copied().chain(vec![1; 384 - n]).collect();
    let mut classes = Vec::new();
    for warp in padded.chunks(32) {
        let same = |v: u32| warp.iter().filter(|w| *w & 3 == v & 3).count() as u32;
        let widest = warp.iter().map(|&v| same(v)).max().unwrap();
        classes.extend(warp.iter().map(|&v| widest << 16 | same(v) << 8 | (v | 1).leading_zeros()));
    }
    Setup::new("compact", [3, 1, 1])
        .read("in", words(values))
        .update("kept", words([0]), Expect::Exact(words([kept.len() as u32])))
        .output("out", 4 * kept.len(), Expect::AnyOrder(kept))
        .exact("classes", words(classes.into_iter().take(n)))
        .int("n", n)
}

fn dot_i8() -> Setup {
    let n = 150;
    let mut data = Data::new(27);
    let (a, b) = (data.words(n), data.words(n));
    let (mut dot, mut mixed) = (Vec::new(), Vec::new());
    for (i, (&x, &y)) in a.iter().zip(&b).enumerate() {
        let (xs, ys) = (x.to_le_bytes(), y.to_le_bytes());
        let product: i32 = xs.iter().zip(ys).map(|(&x, y)| i32::from(x as i8) * i32::from(y as i8)).sum();
        let bytes = u32::from_le_bytes([xs[0], ys[0], xs[2], ys[2]]);
        let wide = u64::from(y) << 32 | u64::from(x);
        let shifted = (wide << (i % 32) >> 32) as u32;
        let distances = [0, 1, 2, 3].map(|i: usize| xs[i].abs_diff(ys[i]));
        let sum = (product as u32).wrapping_add(bytes).wrapping_add(shifted);
        dot.push(sum.wrapping_sub(u32::from_le_bytes(distances)));
        let long = u128::from(u64::from(x) << 32 | u64::from(y)) * 0x9E37_79B9_7F4A_7C15;
        let high = ((long >> 64) as u64).wrapping_add(long as u64);
        let quotient = (high as i64).wrapping_div(i64::from((y | 3) as i32)) as u64;
        mixed.push((high % u64::from(x | 1)) ^ high.reverse_bits() ^ quotient);
    }
    Setup::new("dot_i8", [3, 1, 1])
        .read("a", words(a))
        .read("b", words(b))
        .exact("dot", words(dot))
        .exact("mixed", longs(mixed))
        .int("n", n)
}
