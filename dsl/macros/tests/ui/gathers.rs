//! Tiles of places: where they may be an index, and of what.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel stored(x: &Tensor<f32, [N, D]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[load(ids[n]), ..], load(x[n, ..]));
        }
    }

    kernel twice(x: &Tensor<f32, [N, D]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N, K]>)
    tune { BN: [16], BK: [16] }
    {
        for (n, k) in grid(tiles(N, BN), tiles(K, BK)) {
            store(y[n, k], load(x[load(ids[n]), k * BK + iota([BK], 0) + 1]));
        }
    }

    kernel of_what_is_written(ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(y[load(ids[n]), ..]));
        }
    }

    kernel of_other_numbers(x: &Tensor<f32, [N, D]>, ids: &Tensor<i64, [N]>, at: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[load(ids[n]), ..]) + load(x[load(at[n]), ..]));
        }
    }

    kernel of_two_axes(x: &Tensor<f32, [V]>, ids: &Tensor<i32, [N, K]>, y: &mut Tensor<f32, [N, K]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[load(ids[n, ..])]));
        }
    }

    kernel of_a_tensor(x: &Tensor<f32, [V, D]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[ids[n], ..]));
        }
    }

    kernel of_tile_numbers(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n + iota([BN], 0), ..]));
        }
    }

    kernel past_the_edge(x: &Tensor<f32, [V, D]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N, D]>, z: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(z[n, ..], load(x[load(ids[n]), ..]));
            store(y[n, ..], load(x[load(ids[span(n * BN + 1, BN)]), ..]));
        }
    }
}

fn main() {}
