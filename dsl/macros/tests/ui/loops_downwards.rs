//! Loops that are written downwards: tests/agreement/advice_forms.rs has what to write.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel downwards(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>, hi: i32) tune { BN: [64, 128] } {
        for n in grid(tiles(N, BN)) {
            let mut b = load(x[n, ..]);
            for _ in 4..0 { b += 1.0; }
            for _ in 8..2 { b += 1.0; }
            for _ in size(N)..0 { b += 1.0; }
            // No iterations, and what may have some, are right.
            for _ in 4..4 { b += 1.0; }
            for _ in 4..hi { b += 1.0; }
            for _ in 4..size(N) { b += 1.0; }
            store(y[n, ..], b);
        }
    }
}

fn main() {}
