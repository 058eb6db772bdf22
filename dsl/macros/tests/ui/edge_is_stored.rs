//! Tiles stored where their elements may lie outside of what they were loaded from.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel edges(x: &Tensor<f32, [T, D]>, w: &Tensor<f32, [L]>, from: i32, y: &mut Tensor<f32, [T, D]>, z: &mut Tensor<f32, [T]>)
    tune { BT: [64, 128], BD: [32] }
    {
        for t in grid(tiles(T, BT)) {
            for d in tiles(D, BD) {
                store(y[t, d], load(x[span(t * BT - 1, BT), d]));
                // The same place, another way round, with a name, and what stands past its edge.
                store(y[t, d], load(x[t, d]));
                store(y[t, d], load(x[span(t * BT + 1, BT), d]).or(0.0));
                let first = d * BD;
                store(y[t, span(d * BD, BD)], load(x[t, span(first, BD)]));
            }
            // A weight at a place that is given, and one at a constant place.
            store(y[t, span(0, BD)], load(x[t, span(0, BD)]) * load(w[span(from, 1)]));
            store(y[t, span(0, BD)], load(x[t, span(0, BD)]) * load(w[span(0, 1)]));
            // A column that becomes a row of its own.
            store(z[t], load(x[t, span(from, 1)]));
            store(y[t, span(from, BT)], load(x[span(from, BT), span(from, BT)]).t());
        }
    }

    pub kernel steps(x: &Tensor<f32, [N, T]>, y: &mut Tensor<f32, [N, T]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let mut h = zeros::<f32>([BN, 1]);
            for t in 0..size(T) {
                h = 0.5 * h + load(x[n, span(t, 1)]);
                store(y[n, span(t, 1)], h);
            }
            for t in 0..size(T) {
                store(y[n, span(t, 1)], h * load(x[n, span(t - 1, 1)]));
            }
        }
    }
}

fn main() {}
