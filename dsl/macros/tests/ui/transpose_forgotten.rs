//! A `.t()` that is missing: two knobs of one value are two sizes, and one knob for two dims leaves their edges.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel two_knobs(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [N, K]>, c: &mut Tensor<f32, [M, N]>)
    tune { BM: [32], BN: [32], BK: [32] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]));
            }
            store(c[m, n], acc);
        }
    }

    pub kernel one_knob(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [N, K]>, c: &mut Tensor<f32, [M, N]>)
    tune { B: [32] }
    {
        for (m, n) in grid(tiles(M, B), tiles(N, B)) {
            let mut acc = zeros::<f32>([B, B]);
            for k in pipeline(tiles(K, B)) {
                acc += dot(load(a[m, k]), load(b[n, k]));
            }
            store(c[m, n], acc);
        }
    }

    pub kernel turned(x: &Tensor<f32, [M, N]>, y: &mut Tensor<f32, [N, M]>)
    tune { B: [32] }
    {
        for (m, n) in grid(tiles(M, B), tiles(N, B)) {
            store(y[n, m], load(x[m, n]));
        }
    }

    // An `or` does not make it right.
    pub kernel turned_and_filled(x: &Tensor<f32, [M, N]>, y: &mut Tensor<f32, [N, M]>)
    tune { B: [32] }
    {
        for (m, n) in grid(tiles(M, B), tiles(N, B)) {
            store(y[n, m], load(x[m, n]).or(0.0));
        }
    }

    pub kernel both_of_a_pair(x: &Tensor<f32, [M, K]>, y: &mut Tensor<f32, [M, M]>)
    tune { BM: [64], BK: [32] }
    {
        for (i, j) in grid(pairs(tiles(M, BM))) {
            let mut acc = zeros::<f32>([BM, BM]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[i, k]), load(x[j, k]).t());
            }
            store(y[i, j], acc);
            store(y[j, i], acc);
        }
    }

    pub kernel both_of_a_pair_filled(x: &Tensor<f32, [M, K]>, y: &mut Tensor<f32, [M, M]>)
    tune { BM: [64], BK: [32] }
    {
        for (i, j) in grid(pairs(tiles(M, BM))) {
            let mut acc = zeros::<f32>([BM, BM]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[i, k]).or(0.0), load(x[j, k]).or(0.0).t());
            }
            store(y[i, j], acc);
            store(y[j, i], acc);
        }
    }

    // A knob of one value is that number.
    pub kernel numbers(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [32] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]) + iota([32], 0).cast::<f32>());
        }
    }
}

fn main() {}
