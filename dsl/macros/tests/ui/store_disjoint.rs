//! Stores at places that do not meet: what else a kernel does with the tensor, and other ways of writing them.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel loaded(x: &Tensor<f32, [N]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [V]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store_disjoint(y[load(ids[n])], load(x[n]) + load(y[load(ids[n])]));
        }
    }

    kernel of_two_kinds(x: &Tensor<f32, [N]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [V]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store_disjoint(y[load(ids[n])], load(x[n]));
            atomic_add(y[load(ids[n])], load(x[n]));
        }
    }

    kernel beside_a_store(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], 0.0);
            store_disjoint(y[n], load(x[n]));
        }
    }

    kernel plain(x: &Tensor<f32, [N]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [V]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[load(ids[n])], load(x[n]));
        }
    }

    kernel elsewhere(x: &Tensor<f32, [N]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [V]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store_disjoint(load(x[n]), y[load(ids[n])]);
            store_disjoint(y[load(ids[n])], load(x[n]), disjoint = true);
            scatter(y[load(ids[n])], load(x[n]));
            y[load(ids[n])] = load(x[n]);
            y.scatter_(0, load(ids[n]), load(x[n]));
        }
    }

    kernel of_another_type(x: &Tensor<f32, [N]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<i32, [V]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store_disjoint(y[load(ids[n])], load(x[n]));
        }
    }

    kernel two_axes(x: &Tensor<f32, [N]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [V, V]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store_disjoint(y[load(ids[n]), load(ids[n])], load(x[n]));
        }
    }

    kernel to_an_input(x: &Tensor<f32, [N]>, y: &Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store_disjoint(y[n], load(x[n]));
        }
    }

    kernel under_a_condition(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            if n > 0 {
                store_disjoint(y[n], load(x[n]));
            }
        }
    }

    kernel computed(x: &Tensor<f32, [N]>, to: &Tensor<i32, [N]>, y: &mut Tensor<f32, [M]>, z: &mut Tensor<f32, [M]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            store_disjoint(y[load(to[n])], xs, mask = xs > 0.0);
            store_disjoint(y[n * BN + iota([BN], 0) + 3], load(x[n]));
            store_disjoint(y[n * BN + iota([BN], 0) + 3], exp(load(x[n])));
            atomic_max(z[n * BN + iota([BN], 0) + 3], load(x[n]));
            atomic_max(z[n * BN + iota([BN], 0) + 3], exp(load(x[n])));
        }
    }
}

fn main() {}
