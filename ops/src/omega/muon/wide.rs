//! What the kernels that walk over their matrices have in common: how tokens read the memory, what its errors at keys are, and how
//! momenta take up gradients.
//!
//! `t`, `t1`, `t2` and `t3` are the weights in the element type of products, which is that of `like`. Rows of keys begin at token
//! `oldest`, and `alive` says which of them count: one that nothing weighs may be anything, a NaN too. `m`, `d` and `e` are tiles of
//! the hidden layer, of features and of values.
//!
//! The first token that reads is given as `at - back`. It takes fewer registers to compute it where it is used than to keep it.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use crate::omega::normed::layer_normed;
    use super::forms::through_norm;

    /// The hidden rows `gelu(W2 x)` of `ROWS` queries from token `at - back` on.
    pub(crate) device fn query_hidden(q, t2, hidden, b, h, at, back, ROWS, M, D, BM, BD, like) {
        for m in tiles(M, BM) {
            let mut z = zeros::<f32>([ROWS, BM]);
            for d in tiles(D, BD) {
                z += dot(load(q[b, span(at - back, ROWS), h, d]).or(0.0), load(t2[b, h, m, d]).t());
            }
            store(hidden[b, h, span(0, ROWS), m], gelu(z).cast_like(like));
        }
    }

    /// The hidden rows `gelu(W2 x) (*) W3 x` of `ROWS` queries from token `at - back` on.
    pub(crate) device fn query_hidden_gated(q, t2, t3, hidden, b, h, at, back, ROWS, M, D, BM, BD, like) {
        for m in tiles(M, BM) {
            let mut z = zeros::<f32>([ROWS, BM]);
            let mut u = zeros::<f32>([ROWS, BM]);
            for d in tiles(D, BD) {
                let x = load(q[b, span(at - back, ROWS), h, d]).or(0.0);
                z += dot(x, load(t2[b, h, m, d]).t());
                u += dot(x, load(t3[b, h, m, d]).t());
            }
            store(hidden[b, h, span(0, ROWS), m], (gelu(z) * u).cast_like(like));
        }
    }

    /// What `ROWS` tokens from `at - back` on read of a linear memory: `y = r + W x`.
    pub(crate) device fn read_linear(q, rq, t, y, b, h, at, back, ROWS, E, D, BE, BD, like) {
        for e in tiles(E, BE) {
            let mut out = load(rq[b, span(at - back, ROWS), h, e]).or(0.0).cast::<f32>();
            for d in tiles(D, BD) {
                out += dot(load(q[b, span(at - back, ROWS), h, d]).or(0.0), load(t[b, h, e, d]).t());
            }
            store(y[b, span(at - back, ROWS), h, e], out.cast_like(like));
        }
    }

    /// What `ROWS` tokens from `at - back` on read through their hidden rows: `y = r + W1 hidden`.
    pub(crate) device fn read_hidden(rq, hidden, t1, y, b, h, at, back, ROWS, E, M, BE, BM, like) {
        for e in tiles(E, BE) {
            let mut out = load(rq[b, span(at - back, ROWS), h, e]).or(0.0).cast::<f32>();
            for m in tiles(M, BM) {
                out += dot(load(hidden[b, h, span(0, ROWS), m]), load(t1[b, h, e, m]).t());
            }
            store(y[b, span(at - back, ROWS), h, e], out.cast_like(like));
        }
    }

    /// The same with a norm inside: `y = r + norm(W1 hidden) (*) w`. `width` is `E` as a number.
    pub(crate) device fn read_normed(rq, hidden, t1, norm, y, b, h, at, back, ROWS, E, M, BM, width, eps, like) {
        let mut out = zeros::<f32>([ROWS, E]);
        for m in tiles(M, BM) {
            out += dot(load(hidden[b, h, span(0, ROWS), m]), load(t1[b, h, .., m]).t());
        }
        let (unit, _) = layer_normed(out, width, eps);
        let residual = load(rq[b, span(at - back, ROWS), h, ..]).or(0.0).cast::<f32>();
        store(y[b, span(at - back, ROWS), h, ..], (residual + unit * load(norm[h, ..]).cast::<f32>()).cast_like(like));
    }

    /// Which of the `K` keys of a chunk any of its tokens, `first` to `end`, weighs. The weights of token `t` stand from `shift - t` on.
    pub(crate) device fn weighed_keys(gamma, b, h, first, end, shift, K) {
        let mut weight = zeros::<f32>([1, K]);
        for t in first..end {
            weight = max(weight, abs(load(gamma[b, t, h, span(shift - t, K)]).or(0.0)));
        }
        weight.t() != 0.0
    }

    /// A tile `c` of the rows of keys, of their values or of their residuals.
    pub(crate) device fn key_rows(x, alive, b, h, oldest, c, K) {
        select(alive, load(x[b, span(oldest, K), h, c]).or(0.0), 0.0)
    }

    /// `W2 x` of all keys.
    pub(crate) device fn key_product(k, t2, alive, b, h, oldest, m, K, D, BM, BD) {
        let mut z = zeros::<f32>([K, BM]);
        for d in tiles(D, BD) {
            let x = key_rows(k, alive, b, h, oldest, d, K);
            z += dot(x, load(t2[b, h, m, d]).t());
        }
        z
    }

    /// `W2 x` and `W3 x` of all keys.
    pub(crate) device fn key_products(k, t2, t3, alive, b, h, oldest, m, K, D, BM, BD) {
        let mut z = zeros::<f32>([K, BM]);
        let mut u = zeros::<f32>([K, BM]);
        for d in tiles(D, BD) {
            let x = key_rows(k, alive, b, h, oldest, d, K);
            z += dot(x, load(t2[b, h, m, d]).t());
            u += dot(x, load(t3[b, h, m, d]).t());
        }
        (z, u)
    }

    /// The errors of a linear memory at all keys.
    pub(crate) device fn key_error_linear(k, v, rk, t, alive, b, h, oldest, e, K, D, BD, scale, predicts) {
        let skipped = key_rows(rk, alive, b, h, oldest, e, K);
        let mut read = skipped.cast::<f32>();
        for d in tiles(D, BD) {
            let x = key_rows(k, alive, b, h, oldest, d, K);
            read += dot(x, load(t[b, h, e, d]).t());
        }
        let wanted = key_rows(v, alive, b, h, oldest, e, K);
        loss_error(read, wanted.cast::<f32>(), scale, predicts)
    }

    /// The errors at all keys, whose hidden rows are `act`.
    pub(crate) device fn key_error(v, rk, act, t1, alive, b, h, oldest, e, K, M, BM, scale, predicts) {
        let skipped = key_rows(rk, alive, b, h, oldest, e, K);
        let mut read = skipped.cast::<f32>();
        for m in tiles(M, BM) {
            read += dot(load(act[b, h, .., m]), load(t1[b, h, e, m]).t());
        }
        let wanted = key_rows(v, alive, b, h, oldest, e, K);
        loss_error(read, wanted.cast::<f32>(), scale, predicts)
    }

    /// The same with a norm inside, taken back through it, of all `E` elements at once.
    pub(crate) device fn key_error_normed(
        v, rk, act, t1, norm, alive, b, h, oldest, K, E, M, BM, width, scale, predicts, eps
    ) {
        let mut made = zeros::<f32>([K, E]);
        for m in tiles(M, BM) {
            made += dot(load(act[b, h, .., m]), load(t1[b, h, .., m]).t());
        }
        let gain = load(norm[h, ..]).cast::<f32>();
        let (unit, by) = layer_normed(made, width, eps);
        let skipped = select(alive, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0);
        let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
        let outer = loss_error(skipped.cast::<f32>() + unit * gain, wanted.cast::<f32>(), scale, predicts);
        // With `eps = 0` a row of zeros has no norm. Windows reach tokens before the first one, too.
        let is_token = oldest + iota([K, 1], 0) >= 0;
        select(alive && is_token, through_norm(outer * gain, unit, by, width), 0.0)
    }

    /// The errors at all keys, taken back through `W1`.
    pub(crate) device fn through_w1(errors, t1, b, h, m, K, E, BM, BE, like) {
        let mut back = zeros::<f32>([K, BM]);
        for e in tiles(E, BE) {
            back += dot(load(errors[b, h, .., e]).cast_like(like), load(t1[b, h, e, m]));
        }
        back
    }

    /// Stores a tile of a momentum after it took up a gradient. Gives the greatest magnitudes so far, while they are in registers: `top`
    /// are those of the tiles before it.
    pub(crate) device fn store_momentum(s, b, h, r, c, after, top) {
        let greatest = max(top, abs(after).or(0.0));
        store(s[b, h, r, c], after);
        greatest
    }

    /// Row `r` of tiles of the momentum of `W1`, whose gradient is `errorᵀ act`. Of what it was `kept` stays.
    pub(crate) device fn momentum_row(s1, act, b, h, r, kept, error, top, M, BM) {
        let mut greatest = top;
        for m in tiles(M, BM) {
            let after = kept * load(s1[b, h, r, m]) + dot(error.t(), load(act[b, h, .., m]));
            greatest = store_momentum(s1, b, h, r, m, after, greatest);
        }
        greatest
    }
}
