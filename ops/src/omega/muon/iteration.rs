//! Newton-Schulz inside the kernels of the Omega rule: the start, and one step on whichever side a matrix is small.
//!
//! A matrix with few rows lies wide and is multiplied from the left, `p(x xᵀ) x`; one with few columns stands tall and is multiplied
//! from the right, `x p(xᵀ x)`. Both are the same function, so a matrix of any shape may take either: the side with fewer elements
//! costs less.
//!
//! Matrices that are too large for shared memory are iterated by [`orthogonal`](super::orthogonal).
//!
//! The steps about a centre are those of [`newton_schulz_small`](crate::newton_schulz_small), which round less.

use crate::newton_schulz_small::{CLASSIC, LARGE, SCALE};
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::functions::with_norm;

    /// A matrix of elements up to `top` divided by its norm, in the element type of `like`.
    pub(crate) tile fn normalised(s, top, like) {
        let (scaled, norm) = with_norm(s, top);
        (scaled / norm).cast_like(like)
    }

    /// One step on a wide matrix: `(A0 + A1 a + A2 a a) x` with `a = x xᵀ`. `on_diagonal` says where the first term stands.
    pub(crate) tile fn wide_step(x, on_diagonal) {
        dot(polynomial(dot(x, x.t()), x, on_diagonal), x).cast_like(x)
    }

    /// One step on a tall matrix: `x (A0 + A1 a + A2 a a)` with `a = xᵀ x`.
    pub(crate) tile fn tall_step(x, on_diagonal) {
        dot(x, polynomial(dot(x.t(), x), x, on_diagonal)).cast_like(x)
    }

    /// `A0 + A1 a + A2 a a`, in the element type of `x`.
    tile fn polynomial(a, x, on_diagonal) {
        let ab = a.cast_like(x);
        let p = A1 * a + A2 * dot(ab, ab);
        select(on_diagonal, p + A0, p).cast_like(x)
    }

    /// The memory after its step along an orthogonalised momentum. A step of length 0 leaves what is held, whatever the momentum is.
    pub(crate) tile fn stepped(w, held, step, along) {
        held * w - select(step == 0.0, 0.0, step * along.cast::<f32>())
    }

    /// How many steps of the iteration a step of this length needs: for none the direction does not matter.
    pub(crate) tile fn rounds(step) {
        min(select(step == 0.0, 0, 5.cast::<i32>()), 5)
    }

    /// Whether a step of this length needs a direction, as the number of times that one is computed.
    pub(crate) tile fn moves(step) {
        min(select(step == 0.0, 0, 1.cast::<i32>()), 1)
    }

    /// What a matrix of elements up to `top` is multiplied by before its elements are squared, so that no square overflows.
    pub(crate) tile fn squarable(top) { min(LARGE / top, 1.0) }

    /// A tile of a matrix times `unit`, squared. Past the edge of the matrix stands 0.
    pub(crate) tile fn squared(s, unit) {
        let scaled = s * unit;
        (scaled * scaled).or(0.0)
    }

    /// A tile of a matrix where its iteration starts, in the element type of `like`. Both factors in one could be too small for f32.
    pub(crate) tile fn started(s, unit, by, like) { (s * unit * by).cast_like(like) }

    /// As [`normalised`], times `SCALE`: where the steps about centres start.
    pub(crate) tile fn scaled_up(s, top, like) {
        let (scaled, norm) = with_norm(s, top);
        (scaled * (SCALE / norm)).cast_like(like)
    }

    /// One step on the `SCALE` fold of a wide matrix, about `centre`: see `newton_schulz_small`.
    pub(crate) tile fn wide_step_about(x, on_diagonal, first, second, centre) {
        dot(about(dot(x, x.t()), x, on_diagonal, first, second, centre), x).cast_like(x)
    }

    /// The same on a tall matrix.
    pub(crate) tile fn tall_step_about(x, on_diagonal, first, second, centre) {
        dot(x, about(dot(x.t(), x), x, on_diagonal, first, second, centre)).cast_like(x)
    }

    /// `first + second e + e e` with `e = gram - centre`, in the element type of `x`.
    tile fn about(gram, x, on_diagonal, first, second, centre) {
        let e = select(on_diagonal, gram - centre, gram);
        let et = e.cast_like(x);
        let linear = second * e;
        let p = select(on_diagonal, linear + first, linear) + dot(et, et);
        p.cast_like(x)
    }
}

/// The coefficients of every step.
const A0: f32 = CLASSIC[0] as f32;
const A1: f32 = CLASSIC[1] as f32;
const A2: f32 = CLASSIC[2] as f32;
