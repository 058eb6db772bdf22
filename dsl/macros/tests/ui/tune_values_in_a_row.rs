//! Values of `tune` without a comma between them, a range that runs backwards, ranges in brackets, and first values that are no schedule.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel two_numbers(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], warps: [1 6] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel two_grids(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], warp_grid: [2x2 1x4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel backwards(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], stages: 4..=2 }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel firsts(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], warps: [4, 8], warp_grid: [2x4, 2x2] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel a_range_in_brackets(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], warps: [3..=4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel an_open_range_in_brackets(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64..128] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel a_range_in_a_list(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], stages: [1, 3..=4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

fn main() {}
