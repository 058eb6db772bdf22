//! Atomic stores: what else a kernel does with the tensor, and where they stand.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel loaded(x: &Tensor<f32, [N, D]>, total: &mut Tensor<f32, [D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16], BD: [64] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            atomic_add(total[d], sum(load(x[n, d]), axis = 0));
            store(y[n, d], load(x[n, d]) / load(total[d]));
        }
    }

    kernel stored(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], 0.0);
            atomic_add(y[n], load(x[n]));
        }
    }

    kernel of_two_kinds(x: &Tensor<f32, [N]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [V]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(y[load(ids[n])], load(x[n]));
            atomic_max(y[load(ids[n])], load(x[n]));
        }
    }

    kernel of_other_numbers(x: &Tensor<f32, [N]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<i32, [V]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(y[load(ids[n])], load(x[n]));
        }
    }

    kernel a_value(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let before = atomic_add(y[n], load(x[n]));
            store(y[n], before);
        }
    }

    kernel to_an_input(x: &Tensor<f32, [N]>, y: &Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(y[n], load(x[n]));
        }
    }

    kernel elsewhere(x: &Tensor<f32, [N]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [V]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(y, load(ids[n]), load(x[n]));
            atomic_add(load(x[n]), y[load(ids[n])]);
            atomic_add(y[load(ids[n])], load(x[n]), mask = load(ids[n]) > 0);
            atomicAdd(y[load(ids[n])], load(x[n]));
            y[load(ids[n])] += load(x[n]);
            y.atomic_add(load(ids[n]), load(x[n]));
            tl::atomic_add(y[load(ids[n])], load(x[n]));
        }
    }

    kernel past_the_edge(x: &Tensor<f32, [N]>, ids: &Tensor<i32, [K]>, y: &mut Tensor<f32, [V]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(y[load(ids[span(n * BN, BN)])], load(x[n]));
        }
    }

    kernel two_axes(x: &Tensor<f32, [N]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<f32, [V, V]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(y[load(ids[n]), load(ids[n])], load(x[n]));
        }
    }

    tile fn inside(x) {
        atomic_add(y[0], x);
        x
    }

    kernel under_a_condition(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            if n > 0 {
                atomic_add(y[n], load(x[n]));
            }
        }
    }
}

fn main() {}
