//! Parts of a backward pass that walks over keys, values and hidden layers of any width.
//!
//! The kernels of [`mlp`](super::mlp), [`gated`](super::gated) and [`normed`](super::normed) hold whole rows of keys and values in
//! registers and shared memory. Those of [`mlp_wide`](super::mlp_wide), [`gated_wide`](super::gated_wide) and
//! [`normed_wide`](super::normed_wide) compute the same with `D`, `M` and `E` in tiles of `BD`, `BM` and `BE` elements, and what one
//! product passes to the next is kept in global memory. The tokens of a chunk are not streamed: `L` and `K` are whole.
//!
//! The names are those of the formulas in [`mlp`](super::mlp). A matrix before the hidden layer, `W2` or `W3`, is `[M, D]`, and `W1`
//! behind it `[E, M]`.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// `Xq X^T` `[L, K]`, the products of the queries of a chunk with its keys.
    pub(crate) device fn queries_by_keys(q, k, alive, b, h, first, oldest, L, K, D, BD) {
        let mut alike = zeros::<f32>([L, K]);
        for d in tiles(D, BD) {
            let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
            alike += dot(load(q[b, span(first, L), h, d]).or(0.0), x.t());
        }
        alike
    }

    /// `dY E^T` `[L, K]`, the products of the gradients by what is read with the errors of keys.
    pub(crate) device fn gradients_by_errors(dy, errors, b, h, c, first, L, K, E, BE) {
        let mut met = zeros::<f32>([L, K]);
        for e in tiles(E, BE) {
            let by_out = load(dy[b, span(first, L), h, e]).or(0.0);
            met += dot(by_out, load(errors[b, h, c, .., e]).cast_like(by_out).t());
        }
        met
    }

    /// `act = gelu(X W^T)` of the keys of chunk `c`, and the slope of gelu there, both `[K, M]`.
    pub(crate) device fn hidden_rows(act, slope, w, k, alive, b, h, c, oldest, K, M, D, BM, BD) {
        for m in tiles(M, BM) {
            let mut z = zeros::<f32>([K, BM]);
            for d in tiles(D, BD) {
                let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                z += dot(x, load(w[b, h, c, m, d]).cast_like(x).t());
            }
            store(act[b, h, .., m], gelu(z).cast_like(load(act[b, h, 0, 0])));
            store(slope[b, h, .., m], grad(gelu)(z));
        }
    }

    /// `delta = delta (*) E W` for the matrix `[E, M]`: slopes become the gradients before gelu. `like` has the type of products.
    pub(crate) device fn times_back(delta, like, errors, w, b, h, c, K, E, M, BE, BM) {
        for m in tiles(M, BM) {
            let mut back = zeros::<f32>([K, BM]);
            for e in tiles(E, BE) {
                let error = load(errors[b, h, c, .., e]).cast_like(load(like[b, h, 0, 0]));
                back += dot(error, load(w[b, h, c, e, m]).cast_like(error));
            }
            store(delta[b, h, .., m], load(delta[b, h, .., m]) * back);
        }
    }

    /// The state after chunk `c` of a matrix `[M, D]`, as that before chunk `next`: `change` `[K, M]` are the gradients at what the
    /// matrix makes of the keys.
    pub(crate) device fn next_inner(
        w, s, change, k, alive, psi_end, phi_end, lam_end, old_end, beta_end, b, h, c, next, oldest, K, M, D, BM, BD
    ) {
        for m in tiles(M, BM) {
            let delta = load(change[b, h, .., m]);
            let by_w = (-delta * load(psi_end[b, h, c, ..]).t()).cast_like(load(k[b, 0, h, 0]));
            let by_s = (delta * load(phi_end[b, h, c, ..]).t()).cast_like(load(k[b, 0, h, 0]));
            for d in tiles(D, BD) {
                let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                let momentum = load(s[b, h, c, m, d]);
                let mut w_next = load(lam_end[b, h, c]) * load(w[b, h, c, m, d]) - load(old_end[b, h, c]) * momentum;
                w_next += dot(by_w.t(), x);
                store(w[b, h, next, m, d], w_next);
                let mut s_next = load(beta_end[b, h, c]) * momentum;
                s_next += dot(by_s.t(), x);
                store(s[b, h, next, m, d], s_next);
            }
        }
    }

    /// The same of the matrix `[E, M]`: `act` `[K, M]` are the hidden rows of the keys.
    pub(crate) device fn next_outer(
        w, s, act, errors, psi_end, phi_end, lam_end, old_end, beta_end, b, h, c, next, E, M, BE, BM
    ) {
        for e in tiles(E, BE) {
            let error = load(errors[b, h, c, .., e]);
            let by_w = (-error * load(psi_end[b, h, c, ..]).t()).cast_like(load(act[b, h, 0, 0]));
            let by_s = (error * load(phi_end[b, h, c, ..]).t()).cast_like(load(act[b, h, 0, 0]));
            for m in tiles(M, BM) {
                let a = load(act[b, h, .., m]);
                let momentum = load(s[b, h, c, e, m]);
                let mut w_next = load(lam_end[b, h, c]) * load(w[b, h, c, e, m]) - load(old_end[b, h, c]) * momentum;
                w_next += dot(by_w.t(), a);
                store(w[b, h, next, e, m], w_next);
                let mut s_next = load(beta_end[b, h, c]) * momentum;
                s_next += dot(by_s.t(), a);
                store(s[b, h, next, e, m], s_next);
            }
        }
    }

    /// `<dW', W>`, `-<dW', S>` and `<dS', S>` of a matrix `[ROWS, COLS]`: its parts of `dlam_end`, `dold_end` and `dbeta_end`.
    pub(crate) device fn by_ends(dw, ds, w, s, b, h, c, ROWS, COLS, BR, BC) {
        let mut by_lam = zeros::<f32>([BR, BC]);
        let mut by_old = zeros::<f32>([BR, BC]);
        let mut by_beta = zeros::<f32>([BR, BC]);
        for i in tiles(ROWS, BR) {
            for j in tiles(COLS, BC) {
                let gradient = load(dw[b, h, i, j]);
                let momentum = load(s[b, h, c, i, j]);
                by_lam += (gradient * load(w[b, h, c, i, j])).or(0.0);
                by_old -= (gradient * momentum).or(0.0);
                by_beta += (load(ds[b, h, i, j]) * momentum).or(0.0);
            }
        }
        (sum(by_lam), sum(by_old), sum(by_beta))
    }

    /// Through a matrix `[M, D]` to the gradients by the rows at `DELTA` of `factors`, which `dz` `[K, M]` becomes. `BY` has the gradients of
    /// queries behind that matrix, and `MIXED` the products of queries and keys. Its parts of `dpsi_end` and `dphi_end`.
    pub(crate) device fn through_inner(
        dz, dw, ds, factors, queries, mixed, k, alive, psi_end, phi_end, b, h, c, oldest, DELTA, BY, MIXED, K, M, D, BM, BD
    ) {
        let mut by_psi = zeros::<f32>([K, 1]);
        let mut by_phi = zeros::<f32>([K, 1]);
        for m in tiles(M, BM) {
            let mut seen_w = zeros::<f32>([K, BM]);
            let mut seen_s = zeros::<f32>([K, BM]);
            for d in tiles(D, BD) {
                let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                seen_w += dot(x, load(dw[b, h, m, d]).cast_like(x).t());
                seen_s += dot(x, load(ds[b, h, m, d]).cast_like(x).t());
            }
            let delta = load(factors[b, h, c, DELTA, .., m]).cast::<f32>();
            by_psi -= sum(delta * seen_w, axis = 1);
            by_phi += sum(delta * seen_s, axis = 1);
            let felt = dot(load(mixed[b, h, c, MIXED, .., ..]).t(), load(queries[b, h, c, BY, .., m]));
            store(dz[b, h, .., m], felt - load(psi_end[b, h, c, ..]).t() * seen_w + load(phi_end[b, h, c, ..]).t() * seen_s);
        }
        (by_psi, by_phi)
    }

    /// Through the matrix `[E, M]` of a hidden row that comes of one product. `dz` are the gradients by `delta` and become those by the
    /// product, but for what the errors add; `dback` becomes those by what comes back from the errors. Its parts of `dpsi_end` and
    /// `dphi_end`. The consts are places in `factors`, `queries` and `mixed`.
    pub(crate) device fn through_outer(
        dz, dback, dw, ds, errors, factors, queries, mixed, psi_end, phi_end, b, h, c,
        ACT, SLOPE, BEND, INNER, BY_MET, K, E, M, BE, BM
    ) {
        let mut by_psi = zeros::<f32>([K, 1]);
        let mut by_phi = zeros::<f32>([K, 1]);
        for m in tiles(M, BM) {
            let act = load(factors[b, h, c, ACT, .., m]);
            let mut felt_w = zeros::<f32>([K, BM]);
            let mut felt_s = zeros::<f32>([K, BM]);
            for e in tiles(E, BE) {
                let error = load(errors[b, h, c, .., e]).cast_like(act);
                felt_w += dot(error, load(dw[b, h, e, m]).cast_like(act));
                felt_s += dot(error, load(ds[b, h, e, m]).cast_like(act));
            }
            by_psi -= sum(act.cast::<f32>() * felt_w, axis = 1);
            by_phi += sum(act.cast::<f32>() * felt_s, axis = 1);
            let by_delta = load(dz[b, h, .., m]);
            let slope = load(factors[b, h, c, SLOPE, .., m]).cast::<f32>();
            store(dback[b, h, .., m], (slope * by_delta).cast_like(act));
            let met = dot(load(mixed[b, h, c, BY_MET, .., ..]).t(), load(queries[b, h, c, INNER, .., m]));
            let by_act = met - load(psi_end[b, h, c, ..]).t() * felt_w + load(phi_end[b, h, c, ..]).t() * felt_s;
            let bend = load(factors[b, h, c, BEND, .., m]).cast::<f32>();
            store(dz[b, h, .., m], bend * by_delta + slope * by_act);
        }
        (by_psi, by_phi)
    }

    /// Adds to `by_read` `[K, E]` what the hidden rows give, and multiplies the sum by `factor`: the gradients by the errors.
    pub(crate) device fn to_errors(
        by_read, dback, w, dw, ds, factors, psi_end, phi_end, factor, b, h, c, ACT, E, M, BE, BM
    ) {
        for e in tiles(E, BE) {
            let mut to_error = load(by_read[b, h, c, .., e]);
            for m in tiles(M, BM) {
                let act = load(factors[b, h, c, ACT, .., m]);
                let by_w = (-act.cast::<f32>() * load(psi_end[b, h, c, ..]).t()).cast_like(act);
                let by_s = (act.cast::<f32>() * load(phi_end[b, h, c, ..]).t()).cast_like(act);
                to_error += dot(by_w, load(dw[b, h, e, m]).cast_like(act).t());
                to_error += dot(by_s, load(ds[b, h, e, m]).cast_like(act).t());
                to_error += dot(load(dback[b, h, .., m]), load(w[b, h, c, e, m]).cast_like(act).t());
            }
            store(by_read[b, h, c, .., e], factor * to_error);
        }
    }

    /// `da` `[K, M]` becomes what the gradients `dmade` `[K, E]` by what the matrix `[E, M]` makes of keys are at the hidden rows.
    pub(crate) device fn to_act(da, dmade, w, b, h, c, K, E, M, BE, BM) {
        for m in tiles(M, BM) {
            let mut by_act = zeros::<f32>([K, BM]);
            for e in tiles(E, BE) {
                let back = load(dmade[b, h, .., e]);
                by_act += dot(back, load(w[b, h, c, e, m]).cast_like(back));
            }
            store(da[b, h, .., m], by_act);
        }
    }

    /// The gradients by a matrix `[M, D]` and its momentum before a chunk from those after it, and what it adds to the gradients by
    /// keys. `dz` and `da` are those by its products and by the hidden rows; the consts are places in `factors` and `queries`.
    pub(crate) device fn before_inner(
        by_key, w, dw, ds, dz, da, factors, queries, q, k, alive, psi_end, phi_end, lam, old, lam_end, old_end, beta_end,
        b, h, c, first, oldest, DELTA, SLOPE, BY, K, L, M, D, BM, BD
    ) {
        for d in tiles(D, BD) {
            let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
            let xq = load(q[b, span(first, L), h, d]).or(0.0);
            let mut to_x = load(by_key[b, h, c, .., d]);
            for m in tiles(M, BM) {
                let delta = load(factors[b, h, c, DELTA, .., m]).cast::<f32>();
                let slope = load(factors[b, h, c, SLOPE, .., m]).cast::<f32>();
                let by_z = (load(dz[b, h, .., m]) + slope * load(da[b, h, .., m])).cast_like(x);
                let w_after = load(dw[b, h, m, d]);
                let s_after = load(ds[b, h, m, d]);
                to_x -= dot((delta * load(psi_end[b, h, c, ..]).t()).cast_like(x), w_after.cast_like(x));
                to_x += dot((delta * load(phi_end[b, h, c, ..]).t()).cast_like(x), s_after.cast_like(x));
                to_x += dot(by_z, load(w[b, h, c, m, d]).cast_like(x));
                let wide = load(queries[b, h, c, BY, .., m]).cast::<f32>();
                let kept = (wide * load(lam[b, h, c, ..]).t()).cast_like(x);
                let gone = (wide * load(old[b, h, c, ..]).t()).cast_like(x);
                let s_before = load(beta_end[b, h, c]) * s_after - load(old_end[b, h, c]) * w_after;
                store(ds[b, h, m, d], s_before - dot(gone.t(), xq));
                let mut w_before = load(lam_end[b, h, c]) * w_after + dot(kept.t(), xq);
                w_before += dot(by_z.t(), x);
                store(dw[b, h, m, d], w_before);
            }
            store(by_key[b, h, c, .., d], to_x);
        }
    }

    /// The same of the matrix `[E, M]`. `dback` and `dmade` are the gradients by what comes back from the errors, and by what the matrix
    /// makes of keys.
    pub(crate) device fn before_outer(
        dw, ds, dy, errors, dback, dmade, factors, queries, lam, old, lam_end, old_end, beta_end, b, h, c, first,
        ACT, INNER, L, E, M, BE, BM
    ) {
        for e in tiles(E, BE) {
            let by_out = load(dy[b, span(first, L), h, e]).or(0.0);
            let error = load(errors[b, h, c, .., e]).cast_like(by_out);
            let back = load(dmade[b, h, .., e]);
            for m in tiles(M, BM) {
                let wide = load(queries[b, h, c, INNER, .., m]).cast::<f32>();
                let kept = (wide * load(lam[b, h, c, ..]).t()).cast_like(by_out);
                let gone = (wide * load(old[b, h, c, ..]).t()).cast_like(by_out);
                let w_after = load(dw[b, h, e, m]);
                let s_before = load(beta_end[b, h, c]) * load(ds[b, h, e, m]) - load(old_end[b, h, c]) * w_after;
                store(ds[b, h, e, m], s_before - dot(by_out.t(), gone));
                let mut w_before = load(lam_end[b, h, c]) * w_after + dot(by_out.t(), kept);
                w_before += dot(error.t(), load(dback[b, h, .., m]));
                w_before += dot(back.t(), load(factors[b, h, c, ACT, .., m]));
                store(dw[b, h, e, m], w_before);
            }
        }
    }
}
