//! Rows of a table by index, and the gradient by the table.
//!
//! ```text
//! y[n] = table[index[n]]
//! dtable[v] = sum of dy[n] over all n with index[n] = v
//! ```
//!
//! An index that no row has gives a row of zeros, and adds to no row of the gradient.
//!
//! The gradient is the product `onehot(index)ᵀ dy` with a one-hot matrix that is made tile by tile and never stored. So it needs no
//! atomics, and each sum has a fixed order; where CTAs share the tokens (`split_k`), the last one adds their sums in order. It
//! costs `2 V N D` FLOPs, as much as the product that made the logits: little for 256 bytes, and too much for a large vocabulary
//! with few tokens, where sorting the tokens pays. A NaN of `dy` spoils its column of each tile of rows.
//!
//! Bytes: `2 s N D` forward, and `s N D` for each `BV` rows of the table backward.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y[n] = table[index[n]]
    pub kernel embedding<T: Float>(
        table: &Tensor<T, [V, D]>,
        index: &Tensor<i32, [N]>,
        y: &mut Tensor<T, [N, D]>,
    )
    tune { BD: [256, 1024], warps: [1, 4] }
    {
        for (n, d) in grid(N, tiles(D, BD)) {
            store(y[n, d], load(table[load(index[n]), d]));
        }
    }

    /// dtable[v] = the sum of dy[n] over all n with index[n] = v.
    pub kernel embedding_grad<T: Float>(
        index: &Tensor<i32, [N]>,
        dy: &Tensor<T, [N, D]>,
        dtable: &mut Tensor<f32, [V, D]>,
    )
    tune { BV: [64], BD: [64, 32], BN: [64], warps: [4], split_k: [1, 8] }
    {
        for (v, d) in grid(tiles(V, BV), tiles(D, BD)) {
            let row = v * BV + iota([BV, 1], 0);
            let mut acc = zeros::<f32>([BV, BD]);
            for n in pipeline(tiles(N, BN)) {
                let hot = select(row == load(index[n]), 1.0, 0.0);
                acc += dot(hot.cast::<T>(), load(dy[n, d]));
            }
            store(dtable[v, d], acc);
        }
    }
}
