//! The axis of a reduction as a plain number, and names that no argument has.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            let a = sum(rows, 1);
            let b = max(rows, along = 1);
            let c = exp(x = rows);
            let d = max(rows, rows, axis = 1);
            let e = rows.exp(axis = 1);
            let f = min(rows, axis = 1.5);
            store(y[n, ..], a + b + c + d + e + f);
        }
    }
}

fn main() {}
