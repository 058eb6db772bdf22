//! One step per chunk, on a linear memory whose matrix is too large for shared memory: see [`muon`](super).

use super::orthogonal::PLAIN;
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::orthogonal::{copied, orthogonal_step};
    use super::wide::{key_error_linear, key_rows, read_linear, store_momentum};

    /// As [`omega_muon_linear`](super::omega_muon_linear), with keys and values of any width.
    ///
    /// `t` is the memory in the element type of products. `errors` are those of the last chunk. `iterates`, `gram`
    /// and `poly` are a workspace of its steps: `R` is the shorter side of the memory, and `Q` the longer one.
    pub kernel omega_muon_linear_wide<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rq: &Tensor<T, [B, N, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        steps: &Tensor<f32, [B, H, C, L]>,
        w: &mut Tensor<f32, [B, H, E, D]>,
        s: &mut Tensor<f32, [B, H, E, D]>,
        errors: &mut Tensor<f32, [B, H, K, E]>,
        t: &mut Tensor<T, [B, H, E, D]>,
        iterates: &mut Tensor<T, [B, H, I, R, Q]>,
        gram: &mut Tensor<f32, [B, H, R, R]>,
        poly: &mut Tensor<T, [B, H, R, R]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        before: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BD: [32, 64, 128], BE: [32, 64], warps: [8] }
    require { C * L >= N, K >= L, P >= N, R == min(E, D), Q == max(E, D), I == 2 }
    {
        for (b, h) in grid(B, H) {
            let like = zeros::<T>([1, 1]);
            copied(w, t, b, h, E, D, BE, BD, like);
            // Read after its step, a chunk is read where the next one begins.
            let late = select(before > 0, 0.cast::<i32>(), 1);
            for c in 0..size(C) + late {
                let first = c * size(L);
                let asked = first - late * size(L);
                read_linear(q, rq, t, y, b, h, asked, 0, L, E, D, BE, BD, like);
                // Behind the last chunk nothing is trained.
                for _ in 0..select(c < size(C), 1.cast::<i32>(), 0) {
                    let oldest = first + size(P) - size(N) + size(L) - size(K);
                    let alive = load(live[b, h, c, ..]).t() > 0.0;
                    let to_s = load(phi_end[b, h, c, ..]).t();
                    let kept = load(beta_end[b, h, c]);
                    // The greatest magnitudes, while they are in registers.
                    let mut top = zeros::<f32>([BE, BD]);
                    for e in tiles(E, BE) {
                        let error = key_error_linear(k, v, rk, t, alive, b, h, oldest, e, K, D, BD, scale, predicts);
                        store(errors[b, h, .., e], error);
                        let error_s = (error * to_s).cast::<T>();
                        for d in tiles(D, BD) {
                            let x = key_rows(k, alive, b, h, oldest, d, K);
                            let sd = kept * load(s[b, h, e, d]) + dot(error_s.t(), x);
                            top = store_momentum(s, b, h, e, d, sd, top);
                        }
                    }
                    let step = load(steps[b, h, c, size(L) - 1]);
                    let held = load(lam_end[b, h, c]);
                    orthogonal_step(
                        s, w, t, iterates, gram, poly, b, h, E, D, R, Q, BE, BD, top, held, step, PLAIN, like
                    );
                }
            }
        }
    }
}
