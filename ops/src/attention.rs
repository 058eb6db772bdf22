//! Attention over all keys with an online softmax: `o = softmax(s q kᵀ) v`, head by head.
//!
//! No row of logits is kept: see [`online_softmax`](crate::online_softmax). Exponentials are powers of two: `scale`, any finite
//! number, is `log2(e)` times the usual scale. Where there is no key, or no logit is above -infinity, `o` is 0. How large logits and
//! values may be: see there. FLOPs: `4 H M N D`.

#[cfg(feature = "verify")]
use crate::online_softmax::in_f64;
use crate::online_softmax::online_softmax_kernel;
#[cfg(feature = "verify")]
use rayon::prelude::*;

online_softmax_kernel! {
    /// o = softmax(scale / log2(e) · q kᵀ) v
    pub kernel attention<T: Float>(
        q: &Tensor<T, [H, M, D]>,
        k: &Tensor<T, [H, N, D]>,
        v: &Tensor<T, [H, N, D]>,
        scale: f32,
        o: &mut Tensor<T, [H, M, D]>,
    )
    tune { BM: [128, 64, 32], BN: [64, 128, 32], stages: 2..=3, warps: [4, 8] }
    {
        for (h, m) in grid(H, tiles(M, BM)) {
            let qs = load(q[h, m, ..]);
            let mut top = full::<f32>([BM, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BM, 1]);
            let mut acc = zeros::<f32>([BM, D]);
            for n in pipeline(tiles(N, BN)) {
                let z = dot(qs, load(k[h, n, ..]).t()) * scale;
                (top, total, acc) = attend(z, load(v[h, n, ..]), top, total, acc);
            }
            store(o[h, m, ..], attended(top, total, acc).cast::<T>());
        }
    }
}

/// Row by row; `scale` as the kernel takes it.
#[cfg(feature = "verify")]
pub fn reference(q: &[f64], k: &[f64], v: &[f64], scale: f64, [m, n, d]: [usize; 3]) -> Vec<f64> {
    let scale = scale / std::f64::consts::LOG2_E;
    let row = |(i, q): (usize, &[f64])| {
        let head = i / m * n * d;
        let (k, v) = (&k[head..][..n * d], &v[head..][..n * d]);
        let z: Vec<f64> = k.chunks(d).map(|k| scale * q.iter().zip(k).map(|(x, y)| x * y).sum::<f64>()).collect();
        in_f64::attended(&z, v.chunks(d), d)
    };
    q.par_chunks(d.max(1)).enumerate().flat_map_iter(row).collect()
}
