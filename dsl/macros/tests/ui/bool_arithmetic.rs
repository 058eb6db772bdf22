//! Arithmetic on truth values, logic on numbers.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            let positive = rows > 0.0;
            store(y[n, ..], select(rows && positive, positive + positive, !rows));
        }
    }
}

fn main() {}
