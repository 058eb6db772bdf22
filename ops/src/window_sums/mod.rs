//! Sums over the last tokens of a sequence, and of their losses: `y_t = x_t + x_(t-1) + .. + x_(t-window+1)`, without those before
//! the first.
//!
//! Each sum is taken by itself, term by term: a difference of prefix sums would lose digits with the length of the sequence,
//! and one NaN would stay in it for good.
//!
//! Bytes: `2 s B N D` of a sum, if a window's rows stay in the caches; `2 s B N D` of losses, which are read once.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod plans;
#[cfg(feature = "verify")]
mod reference;

use atlas_macros::atlas_kernel;
use atlas_runtime::{Chain, Launch, Result, Stream, Tensor, args};

atlas_kernel! {
    /// The sum of the last `window` rows.
    pub kernel window_sum<T: Float>(x: &Tensor<T, [B, N, D]>, y: &mut Tensor<T, [B, N, D]>, window: i32)
    tune { BN: [32, 64, 16], BD: [64, 128, 32], warps: [4, 8] }
    {
        for (b, n, d) in grid(B, tiles(N, BN), tiles(D, BD)) {
            let mut acc = zeros::<f32>([BN, BD]);
            // Before the first row there is nothing.
            for back in 0..min(window, (n + 1) * BN) {
                acc += load(x[b, span(n * BN - back, BN), d]).or(0.0).cast::<f32>();
            }
            store(y[b, n, d], acc.cast::<T>());
        }
    }

    /// The same where the rows are given in blocks of eight, `[B, N / 8, 8, D]`: a sum is the end of one block, whole blocks, and
    /// the start of another, so that eight rows share what lies between, `window / 8 + 1` loads a row.
    pub kernel window_sum_eights<T: Float>(
        x: &Tensor<T, [B, M, E, D]>,
        y: &mut Tensor<T, [B, M, E, D]>,
        window: i32,
    )
    require { E == 8 }
    tune { BM: [8, 16, 4, 32], BD: [128, 64, 256, 32], warps: [4, 8, 2] }
    {
        for (b, m, d) in grid(B, tiles(M, BM), tiles(D, BD)) {
            // Before the first block there is nothing.
            let eights = min(window / 8, (m + 1) * BM);
            let mut between = zeros::<f32>([BM, BD]);
            for back in 1..eights {
                let at = m * BM - back;
                let x0 = load(x[b, span(at, BM), 0, d]).or(0.0).cast::<f32>();
                let x1 = load(x[b, span(at, BM), 1, d]).or(0.0).cast::<f32>();
                let x2 = load(x[b, span(at, BM), 2, d]).or(0.0).cast::<f32>();
                let x3 = load(x[b, span(at, BM), 3, d]).or(0.0).cast::<f32>();
                let x4 = load(x[b, span(at, BM), 4, d]).or(0.0).cast::<f32>();
                let x5 = load(x[b, span(at, BM), 5, d]).or(0.0).cast::<f32>();
                let x6 = load(x[b, span(at, BM), 6, d]).or(0.0).cast::<f32>();
                let x7 = load(x[b, span(at, BM), 7, d]).or(0.0).cast::<f32>();
                between += ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7));
            }
            // The block that a window begins in: what is behind each of its rows.
            let first = m * BM - eights;
            let end7 = load(x[b, span(first, BM), 7, d]).or(0.0).cast::<f32>();
            let end6 = end7 + load(x[b, span(first, BM), 6, d]).or(0.0).cast::<f32>();
            let end5 = end6 + load(x[b, span(first, BM), 5, d]).or(0.0).cast::<f32>();
            let end4 = end5 + load(x[b, span(first, BM), 4, d]).or(0.0).cast::<f32>();
            let end3 = end4 + load(x[b, span(first, BM), 3, d]).or(0.0).cast::<f32>();
            let end2 = end3 + load(x[b, span(first, BM), 2, d]).or(0.0).cast::<f32>();
            let end1 = end2 + load(x[b, span(first, BM), 1, d]).or(0.0).cast::<f32>();
            // The block that it ends in.
            let start0 = load(x[b, m, 0, d]).cast::<f32>();
            let start1 = start0 + load(x[b, m, 1, d]).cast::<f32>();
            let start2 = start1 + load(x[b, m, 2, d]).cast::<f32>();
            let start3 = start2 + load(x[b, m, 3, d]).cast::<f32>();
            let start4 = start3 + load(x[b, m, 4, d]).cast::<f32>();
            let start5 = start4 + load(x[b, m, 5, d]).cast::<f32>();
            let start6 = start5 + load(x[b, m, 6, d]).cast::<f32>();
            let start7 = start6 + load(x[b, m, 7, d]).cast::<f32>();
            let any = eights > 0;
            let mut y0 = select(any, start0 + between + end1, 0.0);
            let mut y1 = select(any, start1 + between + end2, 0.0);
            let mut y2 = select(any, start2 + between + end3, 0.0);
            let mut y3 = select(any, start3 + between + end4, 0.0);
            let mut y4 = select(any, start4 + between + end5, 0.0);
            let mut y5 = select(any, start5 + between + end6, 0.0);
            let mut y6 = select(any, start6 + between + end7, 0.0);
            let mut y7 = select(any, start7 + between, 0.0);
            // A window that is no multiple of eight reaches further.
            for over in 0..window % 8 {
                let at0 = first - 1 + (8 - over) / 8;
                y0 += load(x[b, span(at0, BM), (8 - over) % 8, d]).or(0.0).cast::<f32>();
                let at1 = first - 1 + (9 - over) / 8;
                y1 += load(x[b, span(at1, BM), (9 - over) % 8, d]).or(0.0).cast::<f32>();
                let at2 = first - 1 + (10 - over) / 8;
                y2 += load(x[b, span(at2, BM), (10 - over) % 8, d]).or(0.0).cast::<f32>();
                let at3 = first - 1 + (11 - over) / 8;
                y3 += load(x[b, span(at3, BM), (11 - over) % 8, d]).or(0.0).cast::<f32>();
                let at4 = first - 1 + (12 - over) / 8;
                y4 += load(x[b, span(at4, BM), (12 - over) % 8, d]).or(0.0).cast::<f32>();
                let at5 = first - 1 + (13 - over) / 8;
                y5 += load(x[b, span(at5, BM), (13 - over) % 8, d]).or(0.0).cast::<f32>();
                let at6 = first - 1 + (14 - over) / 8;
                y6 += load(x[b, span(at6, BM), (14 - over) % 8, d]).or(0.0).cast::<f32>();
                y7 += load(x[b, span(first, BM), 7 - over, d]).or(0.0).cast::<f32>();
            }
            store(y[b, m, 0, d], y0.cast::<T>());
            store(y[b, m, 1, d], y1.cast::<T>());
            store(y[b, m, 2, d], y2.cast::<T>());
            store(y[b, m, 3, d], y3.cast::<T>());
            store(y[b, m, 4, d], y4.cast::<T>());
            store(y[b, m, 5, d], y5.cast::<T>());
            store(y[b, m, 6, d], y6.cast::<T>());
            store(y[b, m, 7, d], y7.cast::<T>());
        }
    }

    /// `scale/2 |p - v|²` of each token, as the losses of memories are; infinite where `|p - v|²` is beyond f32, and NaN there with a
    /// `scale` of 0.
    pub kernel token_losses<T: Float>(
        p: &Tensor<T, [B, N, D]>,
        v: &Tensor<T, [B, N, D]>,
        l: &mut Tensor<f32, [B, N]>,
        scale: f32,
    )
    tune { BN: [4, 2, 8, 1], warps: [4, 2, 8] }
    {
        for (b, n) in grid(B, tiles(N, BN)) {
            let e = load(p[b, n, ..]).cast::<f32>() - load(v[b, n, ..]).cast::<f32>();
            store(l[b, n], 0.5 * scale * sum(e * e, axis = 1));
        }
    }

    /// The sum of the last `window` losses.
    pub kernel window_totals(l: &Tensor<f32, [B, N]>, y: &mut Tensor<f32, [B, N]>, window: i32)
    tune { BN: [128, 256], warps: [2, 4] }
    {
        for (b, n) in grid(B, tiles(N, BN)) {
            let mut acc = zeros::<f32>([BN]);
            let reach = min(window, (n + 1) * BN);
            // Eight loads on their way at a time.
            for eight in 0..reach / 8 {
                let end = n * BN - eight * 8;
                let a = load(l[b, span(end, BN)]).or(0.0) + load(l[b, span(end - 1, BN)]).or(0.0);
                let c = load(l[b, span(end - 2, BN)]).or(0.0) + load(l[b, span(end - 3, BN)]).or(0.0);
                let d = load(l[b, span(end - 4, BN)]).or(0.0) + load(l[b, span(end - 5, BN)]).or(0.0);
                let e = load(l[b, span(end - 6, BN)]).or(0.0) + load(l[b, span(end - 7, BN)]).or(0.0);
                acc += (a + c) + (d + e);
            }
            for back in reach / 8 * 8..reach {
                acc += load(l[b, span(n * BN - back, BN)]).or(0.0);
            }
            store(y[b, n], acc);
        }
    }
}

/// Writes the sums of the last `window` rows of `x`, `[B, N, D]`, to `y`, in f32 and rounded once. In blocks of eight where `N` is
/// a multiple of eight.
///
/// # Errors
/// As [`Launch::launch`].
pub fn sum_windows(stream: &Stream, x: &Tensor, y: &mut Tensor, window: i32) -> Result<()> {
    let in_eights = x.rank() == 3 && x.shape()[1].is_multiple_of(8) && x.shape() == y.shape();
    if !in_eights {
        return window_sum.launch_on(stream, args!(x, &mut *y, window));
    }
    window_sum_eights.launch_on(stream, args!(x.split(1, 8)?, &mut y.split(1, 8)?, window))
}

/// The sum of the losses `scale/2 |p - v|²` over a sliding window: p, v, scale, y, window. The workspace needs `B` and `N`.
pub static WINDOW_LOSS: Chain = Chain::new("window_loss", &[&token_losses, &window_totals], &["l"]);

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "token_losses" "window_sum" "window_sum_eights" }
crate::records::shipped! { "nvidia-h200": "token_losses" "window_sum" "window_sum_eights" "window_totals" }
