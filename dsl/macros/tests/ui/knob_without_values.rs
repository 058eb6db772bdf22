//! Knobs without usable values.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [], stage: [2], BM: [0] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]));
        }
    }

    pub kernel scale_fast<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64], stages: 0..=4, warps: [4, 64], occupancy: [0] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]));
        }
    }
}

fn main() {}
