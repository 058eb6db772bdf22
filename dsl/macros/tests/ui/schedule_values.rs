//! Schedule keys set to what they do not take.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel order_of_numbers(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], order: [8] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel grid_of_one_number(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], warp_grid: [2x2, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel warps_by_rows_and_columns(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], warps: [2x2] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel groups_of_nothing(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], order: [linear, groups(0), auto] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel more_warps_than_there_are(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], warps: [4], warp_grid: [auto, 2x4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel groups_of_one_axis(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], order: [groups(4)] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel any_size(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: 1..=4000000000 }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel one_cta_runs_several_and_several_run_one(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], programs: [persistent], split_k: [2, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel the_safe_default_is_none(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], programs: [persistent, single], split_k: [2, 1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel without_brackets(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], operands: packed }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

atlas_kernel! {
    kernel a_grid_without_brackets(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { warp_grid: 2x2, BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

fn main() {}
