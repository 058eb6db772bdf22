//! Scans: how they are written, and of what.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel without_axis(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], cumsum(load(x[n, ..])));
        }
    }

    kernel axis_without_its_name(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], cumsum(load(x[n, ..]), 1));
        }
    }

    kernel other_names(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], cummax(load(x[n, ..]), axis = 1, exclusive = true));
        }
    }

    kernel last_axis(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], cumsum(load(x[n, ..]), axis = -1));
        }
    }

    kernel reduced_from_the_end(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]) - sum(load(x[n, ..]), axis = 1, reverse = true));
        }
    }

    kernel of_many_directions(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], cumsum(load(x[n, ..]), axis = 1, reverse = 2));
        }
    }

    kernel by_another_name(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], scan(load(x[n, ..]), axis = 1));
        }
    }

    kernel of_conditions(x: &Tensor<f32, [N, D]>, y: &mut Tensor<i32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], cumsum(load(x[n, ..]) > 0.0, axis = 1));
        }
    }

    kernel of_a_scalar(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(N) {
            store(y[n], cumsum(load(x[n]), axis = 0));
        }
    }
}

fn main() {}
