//! One step per chunk, on a linear memory whose matrix is too large for shared memory: see [`muon`](super).

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use super::iteration::{moves, of_gram, over_norm, squarable, squared, started, stepped};

    /// As [`omega_muon_linear`](super::omega_muon_linear), with keys of any width.
    ///
    /// `t` is the memory in the element type of products; while it steps, the iteration. `errors` are those of the last chunk.
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
        y: &mut Tensor<T, [B, N, H, E]>,
        before: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BD: [32, 16, 64], BE: [32, 64], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h) in grid(B, H) {
            for d in tiles(D, BD) {
                store(t[b, h, .., d], load(w[b, h, .., d]).cast::<T>());
            }
            // Read after its step, a chunk is read where the next one begins.
            let late = select(before > 0, 0.cast::<i32>(), 1);
            for c in 0..size(C) + late {
                let first = c * size(L);
                let asked = first - late * size(L);
                for e in tiles(E, BE) {
                    let mut out = load(rq[b, span(asked, L), h, e]).or(0.0).cast::<f32>();
                    for d in tiles(D, BD) {
                        out += dot(load(q[b, span(asked, L), h, d]).or(0.0), load(t[b, h, e, d]).t());
                    }
                    store(y[b, span(asked, L), h, e], out.cast::<T>());
                }
                // Behind the last chunk nothing is trained.
                for _ in 0..select(c < size(C), 1.cast::<i32>(), 0) {
                    let oldest = first + size(P) - size(N) + size(L) - size(K);
                    let alive = load(live[b, h, c, ..]).t() > 0.0;
                    let to_s = load(phi_end[b, h, c, ..]).t();
                    let s_after = load(beta_end[b, h, c]);
                    // The greatest magnitudes, while they are in registers.
                    let mut top = zeros::<f32>([BE, BD]);
                    for e in tiles(E, BE) {
                        let mut read = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0).cast::<f32>();
                        for d in tiles(D, BD) {
                            let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                            read += dot(x, load(t[b, h, e, d]).t());
                        }
                        let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                        let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                        store(errors[b, h, .., e], error);
                        let error_s = (error * to_s).cast::<T>();
                        for d in tiles(D, BD) {
                            let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                            let sd = s_after * load(s[b, h, e, d]) + dot(error_s.t(), x);
                            top = max(top, abs(sd).or(0.0));
                            store(s[b, h, e, d], sd);
                        }
                    }
                    let step = load(steps[b, h, c, size(L) - 1]);
                    let held = load(lam_end[b, h, c]);
                    let like = zeros::<T>([1, 1]);
                    for _ in 0..moves(step) {
                        let unit = squarable(max(top));
                        let mut squares = zeros::<f32>([E, BD]);
                        for d in tiles(D, BD) {
                            squares += squared(load(s[b, h, .., d]), unit);
                        }
                        let by = over_norm(sum(squares), unit);
                        let mut gram = zeros::<f32>([E, E]);
                        for d in tiles(D, BD) {
                            let along = started(load(s[b, h, .., d]), unit, by, like);
                            store(t[b, h, .., d], along);
                            gram += dot(along, along.t());
                        }
                        for _ in 0..5 {
                            let p = of_gram(gram, like, iota([E, E], 0) == iota([E, E], 1));
                            gram = zeros::<f32>([E, E]);
                            for d in tiles(D, BD) {
                                let along = dot(p, load(t[b, h, .., d])).cast::<T>();
                                store(t[b, h, .., d], along);
                                gram += dot(along, along.t());
                            }
                        }
                    }
                    for d in tiles(D, BD) {
                        let after = stepped(load(w[b, h, .., d]), held, step, load(t[b, h, .., d]));
                        store(w[b, h, .., d], after);
                        store(t[b, h, .., d], after.cast::<T>());
                    }
                }
            }
        }
    }
}
