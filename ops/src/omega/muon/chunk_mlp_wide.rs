//! One step per chunk, on a memory of two layers whose matrices are too large for shared memory: see [`muon`](super).

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use super::iteration::{moves, of_gram, over_norm, squarable, squared, started, stepped};

    /// As [`omega_muon`](super::omega_muon), with a hidden layer of any width.
    ///
    /// `t1` and `t2` are the weights in the element type of products; while the memory steps, the iteration. Of the last
    /// chunk, `errors` are its errors, `act` the hidden rows of its keys, `delta` the gradients before the gelu, and `hidden` the
    /// hidden rows of its queries.
    pub kernel omega_muon_wide<T: Float>(
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
        w1: &mut Tensor<f32, [B, H, E, M]>,
        w2: &mut Tensor<f32, [B, H, M, D]>,
        s1: &mut Tensor<f32, [B, H, E, M]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        errors: &mut Tensor<f32, [B, H, K, E]>,
        act: &mut Tensor<T, [B, H, K, M]>,
        delta: &mut Tensor<f32, [B, H, K, M]>,
        hidden: &mut Tensor<T, [B, H, L, M]>,
        t1: &mut Tensor<T, [B, H, E, M]>,
        t2: &mut Tensor<T, [B, H, M, D]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        before: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [32, 16], BD: [32, 64], BE: [32, 64], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h) in grid(B, H) {
            for m in tiles(M, BM) {
                store(t1[b, h, .., m], load(w1[b, h, .., m]).cast::<T>());
                store(t2[b, h, m, ..], load(w2[b, h, m, ..]).cast::<T>());
            }
            // Read after its step, a chunk is read where the next one begins.
            let late = select(before > 0, 0.cast::<i32>(), 1);
            for c in 0..size(C) + late {
                let first = c * size(L);
                let asked = first - late * size(L);
                for m in tiles(M, BM) {
                    let mut z = zeros::<f32>([L, BM]);
                    for d in tiles(D, BD) {
                        z += dot(load(q[b, span(asked, L), h, d]).or(0.0), load(t2[b, h, m, d]).t());
                    }
                    store(hidden[b, h, .., m], gelu(z).cast::<T>());
                }
                for e in tiles(E, BE) {
                    let mut out = load(rq[b, span(asked, L), h, e]).or(0.0).cast::<f32>();
                    for m in tiles(M, BM) {
                        out += dot(load(hidden[b, h, .., m]), load(t1[b, h, e, m]).t());
                    }
                    store(y[b, span(asked, L), h, e], out.cast::<T>());
                }
                // Behind the last chunk nothing is trained.
                for _ in 0..select(c < size(C), 1.cast::<i32>(), 0) {
                    let oldest = first + size(P) - size(N) + size(L) - size(K);
                    let alive = load(live[b, h, c, ..]).t() > 0.0;
                    let to_s = load(phi_end[b, h, c, ..]).t();
                    let s_after = load(beta_end[b, h, c]);
                    for m in tiles(M, BM) {
                        let mut z = zeros::<f32>([K, BM]);
                        for d in tiles(D, BD) {
                            let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                            z += dot(x, load(t2[b, h, m, d]).t());
                        }
                        store(act[b, h, .., m], gelu(z).cast::<T>());
                        store(delta[b, h, .., m], grad(gelu)(z));
                    }
                    // The greatest magnitudes, while they are in registers.
                    let mut top1 = zeros::<f32>([BE, BM]);
                    for e in tiles(E, BE) {
                        let mut read = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0).cast::<f32>();
                        for m in tiles(M, BM) {
                            read += dot(load(act[b, h, .., m]), load(t1[b, h, e, m]).t());
                        }
                        let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                        let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                        store(errors[b, h, .., e], error);
                        let error_s = (error * to_s).cast::<T>();
                        for m in tiles(M, BM) {
                            let s1m = s_after * load(s1[b, h, e, m]) + dot(error_s.t(), load(act[b, h, .., m]));
                            top1 = max(top1, abs(s1m).or(0.0));
                            store(s1[b, h, e, m], s1m);
                        }
                    }
                    let mut top2 = zeros::<f32>([BM, BD]);
                    for m in tiles(M, BM) {
                        let mut back = zeros::<f32>([K, BM]);
                        for e in tiles(E, BE) {
                            back += dot(load(errors[b, h, .., e]).cast::<T>(), load(t1[b, h, e, m]));
                        }
                        let change = load(delta[b, h, .., m]) * back;
                        store(delta[b, h, .., m], change);
                        let change_s = (change * to_s).cast::<T>();
                        for d in tiles(D, BD) {
                            let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                            let s2m = s_after * load(s2[b, h, m, d]) + dot(change_s.t(), x);
                            top2 = max(top2, abs(s2m).or(0.0));
                            store(s2[b, h, m, d], s2m);
                        }
                    }
                    let step = load(steps[b, h, c, size(L) - 1]);
                    let held = load(lam_end[b, h, c]);
                    let like = zeros::<T>([1, 1]);
                    for _ in 0..moves(step) {
                        let unit = squarable(max(top1));
                        let mut squares = zeros::<f32>([E, BM]);
                        for m in tiles(M, BM) {
                            squares += squared(load(s1[b, h, .., m]), unit);
                        }
                        let by = over_norm(sum(squares), unit);
                        let mut gram = zeros::<f32>([E, E]);
                        for m in tiles(M, BM) {
                            let along = started(load(s1[b, h, .., m]), unit, by, like);
                            store(t1[b, h, .., m], along);
                            gram += dot(along, along.t());
                        }
                        for _ in 0..5 {
                            let p = of_gram(gram, like, iota([E, E], 0) == iota([E, E], 1));
                            gram = zeros::<f32>([E, E]);
                            for m in tiles(M, BM) {
                                let along = dot(p, load(t1[b, h, .., m])).cast::<T>();
                                store(t1[b, h, .., m], along);
                                gram += dot(along, along.t());
                            }
                        }
                    }
                    for m in tiles(M, BM) {
                        let after = stepped(load(w1[b, h, .., m]), held, step, load(t1[b, h, .., m]));
                        store(w1[b, h, .., m], after);
                        store(t1[b, h, .., m], after.cast::<T>());
                    }
                    for _ in 0..moves(step) {
                        let unit = squarable(max(top2));
                        let mut squares = zeros::<f32>([BM, D]);
                        for m in tiles(M, BM) {
                            squares += squared(load(s2[b, h, m, ..]), unit);
                        }
                        let by = over_norm(sum(squares), unit);
                        let mut gram = zeros::<f32>([D, D]);
                        for m in tiles(M, BM) {
                            let along = started(load(s2[b, h, m, ..]), unit, by, like);
                            store(t2[b, h, m, ..], along);
                            gram += dot(along.t(), along);
                        }
                        for _ in 0..5 {
                            let p = of_gram(gram, like, iota([D, D], 0) == iota([D, D], 1));
                            gram = zeros::<f32>([D, D]);
                            for m in tiles(M, BM) {
                                let along = dot(load(t2[b, h, m, ..]), p).cast::<T>();
                                store(t2[b, h, m, ..], along);
                                gram += dot(along.t(), along);
                            }
                        }
                    }
                    for m in tiles(M, BM) {
                        let after = stepped(load(w2[b, h, m, ..]), held, step, load(t2[b, h, m, ..]));
                        store(w2[b, h, m, ..], after);
                        store(t2[b, h, m, ..], after.cast::<T>());
                    }
                }
            }
        }
    }
}
