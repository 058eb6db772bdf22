//! Signatures and ends of functions as they are written in Rust: the rest of each function is read all the same.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    device fn generic<T>(x, n) { load(x[n, ..]) }
    device fn of_tensor(x: &Tensor<f32, [N, D]>, n: i32) { load(x[n, ..]) }
    device fn mutable(mut x, &n) { load(x[n, ..]) }
    device fn result(x, n) -> f32 { load(x[n, ..]) }
    device fn returns(x, n) { return load(x[n, ..]); }
    device fn returns_nothing(x, y, n) { store(y[n, ..], load(x[n, ..])); return; }
    tile fn typed(x: f32) -> f32 { return x * 2.0; }
    tile fn of_types<T: Float, const N: usize>(x) { x * 2.0 }
    tile fn early(x) { if x > 0.0 { return x; } x * 2.0 }

    kernel k(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>) {
        for n in grid(N) {
            let a = generic(x, n);
            let b = of_tensor(x, n);
            let c = mutable(x, n);
            let d = result(x, n);
            let e = returns(x, n);
            returns_nothing(x, y, n);
            store(y[n, ..], typed(a) + of_types(b) + early(c) + d + e);
        }
    }
}

mod none {
    use atlas_macros::atlas_kernel;

    atlas_kernel! {
        device fn none { 0.0 }
    }
}

mod pattern {
    use atlas_macros::atlas_kernel;

    atlas_kernel! {
        tile fn pattern((a, b)) { a + b }
    }
}

fn main() {}
