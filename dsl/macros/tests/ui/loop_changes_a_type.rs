//! A loop that changes the type of what it carries.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let mut rows = load(x[n, ..]);
            for _ in 0..4 {
                rows = rows.cast::<f32>() * 2.0;
            }
            store(y[n, ..], rows.cast::<T>());
        }
    }
}

fn main() {}
