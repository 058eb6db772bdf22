//! A `let` in a loop, where an assignment was meant.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel totals(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], BD: [32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut a = zeros::<f32>([BN, 1]);
            for d in tiles(D, BD) {
                let a = a + sum(load(x[n, d]), axis = 1);
            }
            let b = zeros::<f32>([BN, 1]);
            for d in tiles(D, BD) {
                let b = b * 0.5;
                let b = b + sum(load(x[n, d]), axis = 1);
            }
            store(y[n], a + b);
        }
    }

    pub kernel steps(x: &Tensor<f32, [N, T]>, y: &mut Tensor<f32, [N, T]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let mut h = zeros::<f32>([BN, 1]);
            for t in 0..size(T) {
                let h = 0.5 * h + load(x[n, span(t, 1)]);
                store(y[n, span(t, 1)], h);
            }
        }
    }

    // A name that is computed anew in each iteration on purpose.
    pub kernel shifted(x: &Tensor<f32, [N, T]>, y: &mut Tensor<f32, [N, T]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let h = load(x[n, span(0, 1)]);
            for t in 0..size(T) {
                let h = h + load(x[n, span(t, 1)]);
                store(y[n, span(t, 1)], h);
            }
        }
    }
}

fn main() {}
