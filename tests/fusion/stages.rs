//! Kernels to fuse: each reads `x` first and writes `y`, and there is one for each way to make a tile.

use atlas::prelude::*;

atlas_kernel! {
    /// Element-wise, in tiles along both axes.
    pub(crate) kernel affine<T: Float>(x: &Tensor<T, [N, D]>, a: f32, y: &mut Tensor<T, [N, D]>)
    tune { BN: [4, 8, 16], BD: [8, 32] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store(y[n, d], (load(x[n, d]).cast::<f32>() * a + 0.25).cast::<T>());
        }
    }

    /// Element-wise, with an output element type of its own.
    pub(crate) kernel activated<T: Float, U: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<U, [N, D]>)
    tune { BN: [8, 16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], gelu(load(x[n, ..]).cast::<f32>()).cast::<U>());
        }
    }

    /// A grid that counts one axis element by element.
    pub(crate) kernel biased<T: Float>(x: &Tensor<T, [N, D]>, b: &Tensor<f32, [D]>, y: &mut Tensor<T, [N, D]>)
    tune { BD: [8, 16] }
    {
        for (n, d) in grid(N, tiles(D, BD)) {
            store(y[n, d], (load(x[n, d]).cast::<f32>() + load(b[d])).cast::<T>());
        }
    }

    /// Row by row: a reduction, and a weight.
    pub(crate) kernel centred<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [D]>, y: &mut Tensor<T, [N, D]>)
    {
        for n in grid(N) {
            let v = load(x[n, ..]).cast::<f32>();
            let mean = sum(v, axis = 0) / size(D).cast::<f32>();
            store(y[n, ..], ((v - mean) * load(w[..]).cast::<f32>()).cast::<T>());
        }
    }

    /// Rows scaled by a reduction.
    pub(crate) kernel normed<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [D]>, y: &mut Tensor<T, [N, D]>, eps: f32)
    tune { BN: [1, 2, 4, 16] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(x[n, ..]).cast::<f32>();
            let mean = sum(v * v, axis = 1) / size(D).cast::<f32>();
            store(y[n, ..], (v * rsqrt(mean + eps) * load(w[..]).cast::<f32>()).cast::<T>());
        }
    }

    /// Two reductions.
    pub(crate) kernel softmaxed<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [2, 4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(x[n, ..]).cast::<f32>();
            let e = exp(v - max(v, axis = 1));
            store(y[n, ..], (e / sum(e, axis = 1)).cast::<T>());
        }
    }

    /// A product with a streamed operand.
    pub(crate) kernel product<T: Float>(x: &Tensor<T, [N, K]>, w: &Tensor<T, [K, M]>, y: &mut Tensor<T, [N, M]>)
    tune { BN: [16, 32], BM: [16, 32], BK: [16, 32], stages: 2..=3, warps: [2, 4] }
    {
        for (n, m) in grid(tiles(N, BN), tiles(M, BM)) {
            let mut acc = zeros::<f32>([BN, BM]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[n, k]), load(w[k, m]));
            }
            store(y[n, m], acc.cast::<T>());
        }
    }

    /// A product of whole rows, stored as whole rows.
    pub(crate) kernel projected<T: Float>(x: &Tensor<T, [N, K]>, w: &Tensor<T, [M, K]>, y: &mut Tensor<T, [N, M]>)
    tune { BN: [16, 32], warps: [2, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], dot(load(x[n, ..]), load(w[.., ..]).t()).cast::<T>());
        }
    }

    /// Two products with an activation between them.
    pub(crate) kernel layered<T: Float>(
        x: &Tensor<T, [N, D]>, v: &Tensor<T, [H, D]>, w: &Tensor<T, [D, H]>, y: &mut Tensor<T, [N, D]>,
    )
    tune { BN: [16, 32], BH: [16, 32], warps: [2, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let mut acc = xs.cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(v[h, ..]).t());
                acc += dot(gelu(z).cast::<T>(), load(w[.., h]).t());
            }
            store(y[n, ..], acc.cast::<T>());
        }
    }

    /// Rows to numbers.
    pub(crate) kernel totals<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4, 8, 16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], sum(load(x[n, ..]).cast::<f32>(), axis = 1));
        }
    }

    /// Rows to numbers, tile by tile: the input is read in a loop.
    pub(crate) kernel streamed<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4, 8], BC: [8, 16] }
    {
        for n in grid(tiles(N, BN)) {
            let mut most = full::<f32>([BN, 1], -60000.0);
            for d in tiles(D, BC) {
                most = max(most, max(load(x[n, d]).cast::<f32>(), axis = 1));
            }
            store(y[n], most);
        }
    }

    /// Rows to numbers, one at a time, each by a loop.
    pub(crate) kernel gathered<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BC: [8, 16] }
    {
        for n in grid(N) {
            let mut total = load(x[n, 0]).cast::<f32>();
            for d in tiles(D, BC) {
                total += sum(load(x[n, d]).cast::<f32>());
            }
            store(y[n], total);
        }
    }

    /// The element of each row that the row's index selects.
    pub(crate) kernel chosen<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(N) {
            store(y[n], load(x[n, n % size(D)]).cast::<f32>());
        }
    }

    /// Numbers to rows.
    pub(crate) kernel spread<T: Float>(x: &Tensor<f32, [N]>, v: &Tensor<T, [M]>, y: &mut Tensor<T, [N, M]>)
    tune { BN: [8, 16], BM: [8, 16] }
    {
        for (n, m) in grid(tiles(N, BN), tiles(M, BM)) {
            store(y[n, m], (load(x[n]).t() * load(v[m]).cast::<f32>()).cast::<T>());
        }
    }

    /// Numbers to numbers.
    pub(crate) kernel rooted(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4, 16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], sqrt(abs(load(x[n]))));
        }
    }

    /// The transpose.
    pub(crate) kernel turned<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [D, N]>)
    tune { BN: [8, 16], BD: [8, 16] }
    {
        for (d, n) in grid(tiles(D, BD), tiles(N, BN)) {
            store(y[d, n], load(x[n, d]).t());
        }
    }

    /// Each row and the previous one: tiles that do not start at multiples of the tile size.
    pub(crate) kernel differences<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let at = n * BN;
            let before = load(x[span(at - 1, BN), ..]).or(0.0);
            store(y[n, ..], load(x[n, ..]) - before);
        }
    }

    /// To whole numbers.
    pub(crate) kernel counted<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<i32, [N, D]>)
    tune { BN: [8, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], (load(x[n, ..]).cast::<f32>() * 16.0).cast::<i32>());
        }
    }

    /// From whole numbers.
    pub(crate) kernel measured<T: Float>(x: &Tensor<i32, [N, D]>, one: &Tensor<T, [D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [8, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], (load(x[n, ..]).cast::<f32>() * load(one[..]).cast::<f32>()).cast::<T>());
        }
    }

    /// Rows of another length: elements past the end of the input rows are stored as 0.
    pub(crate) kernel padded<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [E]>, y: &mut Tensor<T, [N, E]>)
    tune { BN: [4, 1, 16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, span(0, E)]) + load(w[..]));
        }
    }

    /// The same row by row.
    pub(crate) kernel padded_rows<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [E]>, y: &mut Tensor<T, [N, E]>)
    {
        for n in grid(N) {
            store(y[n, ..], exp(load(x[n, span(0, E)])) + load(w[..]));
        }
    }

    /// The second half of the rows, as far as it exists. It starts at a position that depends on sizes of dims.
    pub(crate) kernel halved<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [E]>, y: &mut Tensor<T, [N, E]>)
    tune { BN: [8, 1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, span(size(E), E)]) - load(w[..]));
        }
    }

    /// Each element with the next one, if there is one.
    pub(crate) kernel shifted<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]) + load(x[n, span(1, D)]));
        }
    }

    /// One element of each row, repeated. It may not exist.
    pub(crate) kernel repeated<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [E]>, y: &mut Tensor<T, [N, E]>)
    tune { BN: [2, 1, 8] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], broadcast(load(x[n, span(6, 1)]), [BN, E]) - load(w[..]));
        }
    }

    /// One element of each row, which may not exist.
    pub(crate) kernel seventh<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N]>)
    tune { BN: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n, span(6, 1)]));
        }
    }

    /// Rows, and the values past their edges.
    pub(crate) kernel refilled<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [4, 1], BD: [8, 1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store(y[n, d], load(x[n, d]).or(3.0) + 1.0);
        }
    }

    /// The minimum of each row, one element at a time.
    pub(crate) kernel least<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4, 1, 2] }
    {
        for n in grid(tiles(N, BN)) {
            let v = exp(load(x[n, ..]).cast::<f32>());
            store(y[n], min(v, axis = 1) + sum(v, axis = 1));
        }
    }
}
