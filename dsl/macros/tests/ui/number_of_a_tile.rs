//! The number of a tile in the place of an element; a column that meets a row of the same tile.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel neighbours(x: &Tensor<f32, [N, D]>, b: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let after = n + 1;
            store(y[n, ..], load(x[n, ..]) - load(x[n + 1, ..]));
            store(y[n, ..], load(x[span(after, BN), ..]).or(0.0));
            store(y[n, ..], load(x[span(n, BN), ..]).or(0.0));
            store(y[n, ..], load(x[span((n + 1) * BN, BN), ..]).or(0.0));
            store(y[n, ..], sum(sum(load(x[n, ..]), axis = 1) * load(b[n]), axis = 1));
            store(y[n, ..], load(x[n, ..]) * load(b[n]).t());
        }
    }
}

fn main() {}
