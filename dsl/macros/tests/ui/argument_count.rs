//! Calls with too few or too many arguments.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    tile fn twice(z) { z + z }

    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            let a = exp(rows, rows);
            let b = twice();
            store(y[n, ..], select(a, b));
        }
    }
}

fn main() {}
