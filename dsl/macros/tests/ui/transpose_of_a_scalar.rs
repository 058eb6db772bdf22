//! A transpose of a scalar; that of a tile of rank 1 is a column.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel copy(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], sum(load(x[n])).t() + load(x[n]).t());
        }
    }
}

fn main() {}
