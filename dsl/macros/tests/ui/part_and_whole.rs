//! Tiles of which one has a part of the dim that the other one has whole.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel parts(
        x: &Tensor<f32, [N, D]>,
        w: &Tensor<f32, [E, D]>,
        b: &Tensor<f32, [N]>,
        y: &mut Tensor<f32, [N, D]>,
        z: &mut Tensor<f32, [N, D]>,
    )
    tune { BN: [64, 128], BD: [32] }
    {
        for n in grid(tiles(N, BN)) {
            for d in tiles(D, BD) {
                let t = load(x[n, d]);
                store(y[n, d], t + load(w[0, ..]));
                store(y[n, d], load(w[0, ..]) * t);
                store(y[n, d], load(b[n]) + t);
                store(z[n, ..], t);
                store(z[n, d], load(x[n, ..]));
            }
        }
    }
}

fn main() {}
