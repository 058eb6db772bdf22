//! A carried name keeps its extents: nothing is broadcast, but a number fills.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel widths(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64, 128], BD: [32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut column = zeros::<f32>([BN, 1]);
            let mut tile = zeros::<f32>([BN, BD]);
            let mut scalar = 0.0;
            let mut filled = zeros::<f32>([BN, 1]);
            let mut grown = zeros::<f32>([BN, 1]);
            for d in tiles(D, BD) { column = sum(load(x[n, d])); }
            for d in tiles(D, BD) { tile = max(load(x[n, d]), axis = 0).or(0.0); }
            for d in tiles(D, BD) { scalar += sum(load(x[n, d]), axis = 1); }
            for _ in tiles(D, BD) { filled = 1.0; }
            for d in tiles(D, BD) { grown += load(x[n, d]).or(0.0); }
            store(y[n], column + sum(tile, axis = 1) + scalar + filled + sum(grown, axis = 1));
        }
    }
}

fn main() {}
