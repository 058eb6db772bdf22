//! Rust that is no part of the language.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            let a = if rows > 0.0 { rows } else { 0.0 };
            let b = match n { _ => rows };
            let c = |z| z * 2.0;
            let d = rows as f32;
            let e = &rows;
            while n < 4 {}
            println!("{}", n);
            let (f, g) = rows;
            store(y[n, ..], rows * 1.0f32);
        }
    }
}

fn main() {}
