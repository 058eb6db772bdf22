//! Sums over the last tokens of a sequence, and of their losses: `y_t = x_t + x_(t-1) + .. + x_(t-window+1)`, without those before
//! the first.
//!
//! Each sum is taken by itself, term by term: a difference of prefix sums would lose digits with the length of the sequence,
//! and one NaN would stay in it for good.
//!
//! Bytes: `2 s B N D` of a sum, if a window's rows stay in the caches; `2 s B N D` of losses, which are read once.

#[cfg(feature = "verify")]
use crate::problem::{Inputs, Problem};
use atlas_macros::atlas_kernel;
use atlas_runtime::Chain;
#[cfg(feature = "verify")]
use rayon::prelude::*;

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

    /// `scale |p - v|²` of each token.
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
            store(l[b, n], scale * sum(e * e, axis = 1));
        }
    }

    /// The sum of the last `window` losses.
    pub kernel window_totals(l: &Tensor<f32, [B, N]>, y: &mut Tensor<f32, [B, N]>, window: i32)
    tune { BN: [128, 256, 64], warps: [4, 2] }
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

/// The loss over a sliding window: p, v, scale, y, window. The workspace needs `B` and `N`.
pub static WINDOW_LOSS: Chain =
    Chain { name: "window_loss", kernels: &[&token_losses, &window_totals], workspace: &["l"] };

/// The reference of a problem of one of the kernels.
#[cfg(feature = "verify")]
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let (n, d) = (p.dim("N"), p.dim("D"));
    if p.kernel.name == "token_losses" {
        let (x, v, scale) = (inputs.get("p"), inputs.get("v"), f64::from(p.scalar("scale")));
        let of = |(p, v): (&[f64], &[f64])| scale * p.iter().zip(v).map(|(p, v)| (p - v) * (p - v)).sum::<f64>();
        return vec![x.chunks(d).zip(v.chunks(d)).map(of).collect()];
    }
    let (x, window) = (inputs.get(if p.kernel.name == "window_sum" { "x" } else { "l" }), p.scalar("window") as usize);
    let sum = |at: usize| (0..window.min(at / d % n + 1)).map(|back| x[at - back * d]).sum::<f64>();
    vec![(0..x.len()).into_par_iter().map(sum).collect()]
}
