//! The backward pass of the Omega rule on a memory with a norm inside, `M(x) = r + norm(W1 gelu(W2 x)) (*) w`; see
//! [`omega_normed`](crate::omega::normed). Here is what it adds to [`mlp`](super::mlp): the states, and the way through the norm
//! behind what is read.
//!
//! Let `J(o)` be the Jacobian of the norm of a row `o = W1 gelu(W2 x)`, which is symmetric, with `n` and `1 / d` as there:
//! `J g = (g - mean(g) - n mean(g n)) / d`.
//!
//! *What is read.* The rows of `dY` in [`mlp`](super::mlp) are `J(o) (w (*) dy)`, where `o` is what the products make of a query, and
//! `dw += dy (*) n`. The kernels of a memory without a norm go on from there.
//!
//! *Errors.* The rows of `E` are `e = J(o) g` with `g = w (*) g0` and `g0 = s (r + n (*) w - v)`. With the gradient `p` by such a
//! row, which is that by `E` in [`mlp`](super::mlp),
//!
//! ```text
//! dg0 = w (*) J p,  dr = s dg0,  dv = -s dg0,  dw += g0 (*) J p + s n (*) dg0
//! do = J (s w (*) dg0) - [n (mean(p g) - mean(p) mean(g) - a b) / d + b J p + a e] / d,   a = mean(p n),  b = mean(g n)
//! ```
//!
//! and `do` stands for the rows of `s dE` in what follows. The bracket is the derivative of `<p, J(o) g>` by `o`. Of a loss that
//! predicts nothing, all terms with `s` but `dv` are 0.
//!
//! A norm hardly sees the length of what is normed, unless `eps` is large beside its variance. So the gradients by `alpha` and `eta`,
//! which change that length, are small differences of large terms: in 16 bits they are less accurate than other gradients, relative
//! to themselves.
//!
//! The norm has the domain of [`memory_read_normed`](crate::gated_memory::memory_read_normed).

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use crate::omega::muon::forms::{factors_mlp, read_mlp, through_norm};
    use crate::omega::normed::layer_normed;

    /// The gradient by the rows before a norm of `<p, e>`, where `e` is `g` taken back through that norm: by all that depends on
    /// the rows but `g`. `back` is `p` taken back through it.
    pub(crate) tile fn bent_norm(p, g, back, unit, by, n) {
        let a = sum(p * unit, axis = 1) / n;
        let b = sum(g * unit, axis = 1) / n;
        let both = sum(p * g, axis = 1) / n - sum(p, axis = 1) / n * (sum(g, axis = 1) / n);
        -by * (unit * (by * (both - a * b)) + b * back + a * through_norm(g, unit, by, n))
    }

    /// The states before each chunk, and of its keys what the products make, the gradients by what the memory makes, and those before
    /// the norm, which are the errors, from the state before the first one. `past` keys come before
    /// those of the first chunk of `chunk` tokens.
    pub kernel omega_normed_states<T: Float>(
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        norm: &Tensor<T, [H, E]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        old_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        w1_start: &Tensor<f32, [B, H, E, M]>,
        w2_start: &Tensor<f32, [B, H, M, D]>,
        s1_start: &Tensor<f32, [B, H, E, M]>,
        s2_start: &Tensor<f32, [B, H, M, D]>,
        w1: &mut Tensor<f32, [B, H, C, E, M]>,
        w2: &mut Tensor<f32, [B, H, C, M, D]>,
        s1: &mut Tensor<f32, [B, H, C, E, M]>,
        s2: &mut Tensor<f32, [B, H, C, M, D]>,
        made: &mut Tensor<f32, [B, H, C, K, E]>,
        outer: &mut Tensor<f32, [B, H, C, K, E]>,
        errors: &mut Tensor<f32, [B, H, C, K, E]>,
        chunk: i32,
        past: i32,
        scale: f32,
        predicts: i32,
        eps: f32,
    )
    tune { BM: [32, 16, 64], warps: [8, 4] }
    {
        for (b, h) in grid(B, H) {
            for m in tiles(M, BM) {
                store(w1[b, h, 0, .., m], load(w1_start[b, h, .., m]));
                store(w2[b, h, 0, m, ..], load(w2_start[b, h, m, ..]));
                store(s1[b, h, 0, .., m], load(s1_start[b, h, .., m]));
                store(s2[b, h, 0, m, ..], load(s2_start[b, h, m, ..]));
            }
            for c in 0..size(C) {
                let oldest = c * chunk + past + chunk - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let mut product = zeros::<f32>([K, E]);
                for m in tiles(M, BM) {
                    product += read_mlp(x, load(w1[b, h, c, .., m]).cast::<T>(), load(w2[b, h, c, m, ..]).cast::<T>());
                }
                store(made[b, h, c, .., ..], product);
                let count = size(E).cast::<f32>();
                let weight = load(norm[h, ..]).cast::<f32>();
                let (unit, by) = layer_normed(product, count, eps);
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let skipped = select(alive, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let read = skipped.cast::<f32>() + unit * weight;
                // With `eps = 0` a row of zeros has no norm. Windows reach tokens before the first one, too.
                let is_token = oldest + iota([K, 1], 0) >= 0;
                let behind = select(alive && is_token, loss_error(read, wanted.cast::<f32>(), scale, predicts), 0.0);
                store(outer[b, h, c, .., ..], behind);
                let error = select(alive && is_token, through_norm(weight * behind, unit, by, count), 0.0);
                store(errors[b, h, c, .., ..], error);
                // After the last chunk nothing is asked for.
                for again in 0..min(size(C) - 1 - c, 1) {
                    let next = c + again + 1;
                    let errors_c = error.cast::<T>();
                    let less_w = -load(psi_end[b, h, c, ..]).t();
                    let to_s = load(phi_end[b, h, c, ..]).t();
                    let error_w = (error * less_w).cast::<T>();
                    let error_s = (error * to_s).cast::<T>();
                    for m in tiles(M, BM) {
                        let w1t = load(w1[b, h, c, .., m]).cast::<T>();
                        let (a, delta) = factors_mlp(x, errors_c, w1t, load(w2[b, h, c, m, ..]).cast::<T>());
                        let w_after = load(lam_end[b, h, c]);
                        let s_in_w = load(old_end[b, h, c]);
                        let s_after = load(beta_end[b, h, c]);
                        let s2m = load(s2[b, h, c, m, ..]);
                        let mut w2m = w_after * load(w2[b, h, c, m, ..]) - s_in_w * s2m;
                        w2m += dot((delta * less_w).cast::<T>().t(), x);
                        store(w2[b, h, next, m, ..], w2m);
                        let mut s2n = s_after * s2m;
                        s2n += dot((delta * to_s).cast::<T>().t(), x);
                        store(s2[b, h, next, m, ..], s2n);
                        let s1m = load(s1[b, h, c, .., m]);
                        let mut w1m = w_after * load(w1[b, h, c, .., m]) - s_in_w * s1m;
                        w1m += dot(error_w.t(), a);
                        store(w1[b, h, next, .., m], w1m);
                        let mut s1n = s_after * s1m;
                        s1n += dot(error_s.t(), a);
                        store(s1[b, h, next, .., m], s1n);
                    }
                }
            }
        }
    }

    /// Through the norm behind what is read, chunk by chunk: `dout` are the gradients by what is read, `dy_rows` those by what
    /// the products make, and `dnorm_read` those by the norm's weight.
    pub kernel omega_normed_read_backward<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        norm: &Tensor<T, [H, E]>,
        psi: &Tensor<f32, [B, H, C, L, K]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w1: &Tensor<f32, [B, H, C, E, M]>,
        w2: &Tensor<f32, [B, H, C, M, D]>,
        s1: &Tensor<f32, [B, H, C, E, M]>,
        s2: &Tensor<f32, [B, H, C, M, D]>,
        errors: &Tensor<f32, [B, H, C, K, E]>,
        dout: &Tensor<T, [B, N, H, E]>,
        dy_rows: &mut Tensor<T, [B, C, L, H, E]>,
        dnorm_read: &mut Tensor<f32, [B, H, C, E]>,
        eps: f32,
    )
    tune { BM: [32, 16], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h, c) in grid(B, H, C) {
            let first = c * size(L);
            let oldest = first + size(P) - size(N) + size(L) - size(K);
            let alive = load(live[b, h, c, ..]).t() > 0.0;
            let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
            let xq = load(q[b, span(first, L), h, ..]).or(0.0);
            let errors_c = load(errors[b, h, c, .., ..]).cast::<T>();
            let less_mixed = (-dot(xq, x.t()) * load(psi[b, h, c, .., ..])).cast::<T>();
            let mut out = zeros::<f32>([L, E]);
            let mut met = zeros::<f32>([L, K]);
            for m in tiles(M, BM) {
                let w1t = load(w1[b, h, c, .., m]).cast::<T>();
                let w2t = load(w2[b, h, c, m, ..]).cast::<T>();
                let s1t = load(s1[b, h, c, .., m]).cast::<T>();
                let s2t = load(s2[b, h, c, m, ..]).cast::<T>();
                let (a, delta) = factors_mlp(x, errors_c, w1t, w2t);
                let kept = load(lam[b, h, c, ..]).t();
                let less = -load(old[b, h, c, ..]).t();
                let zq = kept * dot(xq, w2t.t()) + less * dot(xq, s2t.t()) + dot(less_mixed, delta.cast::<T>());
                let hq = gelu(zq);
                out += dot((hq * kept).cast::<T>(), w1t.t());
                out += dot((hq * less).cast::<T>(), s1t.t());
                met += dot(hq.cast::<T>(), a.t());
            }
            out -= dot((met * load(psi[b, h, c, .., ..])).cast::<T>(), errors_c);
            let count = size(E).cast::<f32>();
            let (unit, by) = layer_normed(out, count, eps);
            let by_out = load(dout[b, span(first, L), h, ..]).or(0.0).cast::<f32>();
            // Rows behind the last token have no gradient, whatever their norm is.
            let is_token = first + iota([L, 1], 0) < size(N);
            let inward = through_norm(by_out * load(norm[h, ..]).cast::<f32>(), unit, by, count);
            store(dy_rows[b, c, .., h, ..], select(is_token, inward, 0.0).cast::<T>());
            store(dnorm_read[b, h, c, ..], sum(select(is_token, by_out * unit, 0.0), axis = 0));
        }
    }
}
