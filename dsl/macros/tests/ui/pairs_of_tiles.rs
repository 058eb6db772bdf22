//! Grids of pairs of tiles, and what is none.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel one_name(x: &mut Tensor<f32, [M, M]>) tune { BM: [16] } {
        for i in grid(pairs(tiles(M, BM))) {
            store(x[i, i], 0.0);
        }
    }
    pub kernel not_last(x: &mut Tensor<f32, [B, M, M]>) tune { BM: [16] } {
        for (i, j, b) in grid(pairs(tiles(M, BM)), B) {
            store(x[b, i, j], 0.0);
        }
    }
    pub kernel of_elements(x: &mut Tensor<f32, [M, M]>) {
        for (i, j) in grid(pairs(M)) {
            store(x[i, j], 0.0);
        }
    }
    pub kernel in_a_loop(x: &mut Tensor<f32, [M, M]>) tune { BM: [16] } {
        for (i, j) in grid(tiles(M, BM), tiles(M, BM)) {
            for (k, l) in pairs(tiles(M, BM)) {
                store(x[i, j], load(x[k, l]));
            }
        }
    }
    pub kernel all_programs(x: &Tensor<f32, [M]>, y: &mut Tensor<f32, [M, M]>) tune { BM: [16] } {
        for (i, j) in grid(tiles(M, BM), tiles(M, BM)) {
            let xs = load(x[i]).t() - broadcast(load(x[j]), [1, BM]);
            store(y[i, j], xs);
            store(y[j, i], xs.t());
        }
    }
    pub kernel of_another_pair(y: &mut Tensor<f32, [M, M]>) tune { BM: [16] } {
        for (i, j) in grid(pairs(tiles(M, BM))) {
            store(y[i, j], load(y[i, i]));
            store(y[j, i], load(y[j, i]));
        }
    }
    pub kernel of_three_axes(y: &mut Tensor<f32, [M, M, M]>) tune { BM: [16] } {
        for (i, j) in grid(pairs(tiles(M, BM))) {
            store(y[i, j, 0], 1.0);
            store(y[i, 0, j], 1.0);
        }
    }
    pub kernel without_one(y: &mut Tensor<f32, [M]>) tune { BM: [16] } {
        for (i, j) in grid(pairs(tiles(M, BM))) {
            store(y[i], 1.0 * j);
        }
    }
}

fn main() {}
