//! Powers as other languages write them.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel squares(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n]);
            store(y[n], 0.5 * rows ** 2);
            store(y[n], rows ^ 2);
            store(y[n], powi(rows, 2) + rows.powf(0.5));
        }
    }
}

fn main() {}
