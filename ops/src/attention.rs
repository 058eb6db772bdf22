//! Attention over all keys with an online softmax: `o = softmax(s q kᵀ) v`, head by head.
//!
//! The running maximum and sum of exponentials rescale what was summed before (Milakov and Gimelshein, arXiv 1805.02867),
//! so that no row of scores is kept. Exponentials are powers of two: `scale` is `log2(e)` times the usual scale.
//! FLOPs: `4 H M N D`.

use atlas_macros::atlas_kernel;
#[cfg(feature = "verify")]
use rayon::prelude::*;

atlas_kernel! {
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
                let z = dot(qs, load(k[h, n, ..]).t());
                let higher = max(top, max(z, axis = 1) * scale);
                let e = exp2(z * scale - higher);
                let kept = exp2(top - higher);
                total = total * kept + sum(e, axis = 1);
                acc *= kept;
                acc += dot(e.cast::<T>(), load(v[h, n, ..]));
                top = higher;
            }
            store(o[h, m, ..], (acc / total).cast::<T>());
        }
    }
}

/// Row by row, with the maximum taken off; `scale` as the kernel takes it.
#[cfg(feature = "verify")]
pub fn reference(q: &[f64], k: &[f64], v: &[f64], scale: f64, [m, n, d]: [usize; 3]) -> Vec<f64> {
    let scale = scale / std::f64::consts::LOG2_E;
    let row = |(i, q): (usize, &[f64])| {
        let head = i / m * n * d;
        let (k, v) = (&k[head..][..n * d], &v[head..][..n * d]);
        let z: Vec<f64> = k.chunks(d).map(|k| scale * q.iter().zip(k).map(|(x, y)| x * y).sum::<f64>()).collect();
        let max = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let e: Vec<f64> = z.iter().map(|z| (z - max).exp()).collect();
        let total: f64 = e.iter().sum();
        let mut out = vec![0.0; d];
        for (e, v) in e.iter().zip(v.chunks(d)) {
            out.iter_mut().zip(v).for_each(|(o, v)| *o += e / total * v);
        }
        out
    };
    q.par_chunks(d.max(1)).enumerate().flat_map_iter(row).collect()
}
