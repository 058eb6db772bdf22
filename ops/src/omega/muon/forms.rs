//! What the kernels of one form of memory have in common: what a tile of hidden elements adds to what is read, and what
//! gradients are made of.
//!
//! `x` are rows of features, `errors` those of the loss, `scale (M(x) - v)`, both in the element type of products. Matrices are tiles
//! of the memory's: columns of `W1`, rows of `W2` and `W3`.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// `gelu(W2 x)` through `W1`.
    pub(crate) tile fn read_mlp(x, w1, w2) {
        dot(gelu(dot(x, w2.t())).cast_like(x), w1.t())
    }

    /// The hidden rows, and the gradient at what gelu takes. The gradient of `W1` is `errorsᵀ hidden`, that of `W2` `deltaᵀ x`.
    pub(crate) tile fn factors_mlp(x, errors, w1, w2) {
        let z = dot(x, w2.t());
        (gelu(z).cast_like(x), grad(gelu)(z) * dot(errors, w1))
    }

    /// `gelu(W2 x) (*) W3 x` through `W1`.
    pub(crate) tile fn read_gated(x, w1, w2, w3) {
        dot((gelu(dot(x, w2.t())) * dot(x, w3.t())).cast_like(x), w1.t())
    }

    /// The hidden rows, and the gradients at `W2 x` and at `W3 x`.
    pub(crate) tile fn factors_gated(x, errors, w1, w2, w3) {
        let z = dot(x, w2.t());
        let u = dot(x, w3.t());
        let back = dot(errors, w1);
        let a = gelu(z);
        ((a * u).cast_like(x), grad(gelu)(z) * u * back, a * back)
    }

    /// The gradient `g` at rows of `n` elements behind their norm, taken back to what was normed. `unit` and `by` are those of
    /// [`layer_normed`](crate::omega::normed).
    pub(crate) tile fn through_norm(g, unit, by, n) {
        by * (g - sum(g, axis = 1) / n - unit * (sum(g * unit, axis = 1) / n))
    }
}
