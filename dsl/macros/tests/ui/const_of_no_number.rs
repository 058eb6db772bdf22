//! Consts that are no numbers of a kernel, and arrays that are no tables.
use atlas_macros::atlas_kernel;

const TRUTH: bool = true;
const WIDE: i128 = 5;
const WHOLE: [i32; 2] = [1, 2];

atlas_kernel! {
    pub kernel numbers(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(x[n]) * TRUTH + WIDE + WHOLE[1]);
        }
    }
}

fn main() {}
