//! A tune space that no launch could look through.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel every_size(x: &Tensor<f32, [A, B]>, y: &mut Tensor<f32, [A, B]>)
    tune { BA: 1..=64, BB: 1..=128, warps: [4] }
    {
        for (a, b) in grid(tiles(A, BA), tiles(B, BB)) {
            store(y[a, b], load(x[a, b]));
        }
    }

    kernel more_than_are_counted(x: &Tensor<f32, [A, B]>, y: &mut Tensor<f32, [A, B]>)
    tune { BA: 1..=1024, BB: 1..=1024, BC: 1..=1024, BD: 1..=1024, BE: 1..=1024, BF: 1..=1024 }
    {
        for (a, b) in grid(tiles(A, BA), tiles(B, BB)) {
            store(y[a, b], load(x[a, b]) + (BC + BD + BE + BF).cast::<f32>());
        }
    }

    kernel as_many_as_may_be(x: &Tensor<f32, [A, B]>, y: &mut Tensor<f32, [A, B]>)
    tune { BA: 1..=64, BB: 1..=64 }
    {
        for (a, b) in grid(tiles(A, BA), tiles(B, BB)) {
            store(y[a, b], load(x[a, b]));
        }
    }
}

fn main() {}
