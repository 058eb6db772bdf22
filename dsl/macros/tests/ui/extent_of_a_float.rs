//! A const that is no whole number, as an extent.
use atlas_macros::atlas_kernel;

const HALF: f32 = 8.5;

atlas_kernel! {
    pub kernel halves(y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 32)) {
            store(y[n], broadcast(sum(zeros::<f32>([HALF]), axis = 0), [32]));
        }
    }

    pub kernel large(y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 4_294_967_297)) { store(y[n], 0.0); }
    }
}

fn main() {}
