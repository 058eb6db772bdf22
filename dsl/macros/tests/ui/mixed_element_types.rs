//! Two element types meet without a cast.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel matmul<T: Float>(a: &Tensor<T, [M, K]>, w: &Tensor<T, [K, N]>, c: &mut Tensor<T, [M, N]>)
    tune { BM: [64, 128], BN: [64, 128] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let rows = load(a[m, ..]);
            let cols = load(w[.., n]);
            let product = dot(rows, cols);
            store(c[m, n], (product * load(c[m, n])).cast::<T>());
        }
    }

    pub kernel sides<T: Float>(x: &Tensor<T, [N]>, i: &Tensor<i32, [N]>, s: f32, y: &mut Tensor<T, [N]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let counts = load(i[n]);
            let a = counts + load(x[n]);
            let b = load(x[n]) + counts;
            let c = load(x[n]) * s;
            let d = s * load(x[n]);
            let e = load(i[n]) > s;
            store(y[n], select(e, a + b, c + d));
        }
    }

    pub kernel counts(x: &Tensor<f32, [N]>, i: &Tensor<i32, [N]>, y: &mut Tensor<i32, [N]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = 0;
            for _ in 0..4 {
                total += size(N);
            }
            let ones = select(load(x[n]) > 0.0, 1, 0);
            let zeros = select(load(x[n]) > 0.0, 1, 0) - load(i[n]);
            // This is right.
            let right = select(load(x[n]) > 0.0, 1.cast::<i32>(), 0) + load(i[n]);
            store(y[n], ones * load(i[n]) + zeros + right + total);
        }
    }

    pub kernel factors<T: Float, U: Float>(
        a: &Tensor<T, [M, K]>, b: &Tensor<U, [K, N]>, h: &Tensor<f16, [K, N]>, g: &Tensor<bf16, [M, K]>,
        i: &Tensor<i32, [M, K]>, w: &Tensor<f32, [K, N]>, c: &mut Tensor<f32, [M, N]>,
    )
    tune { BM: [64], BN: [64] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let cols = load(b[.., n]);
            let of_parameters = dot(load(a[m, ..]), cols);
            let of_halves = dot(load(g[m, ..]), load(h[.., n]));
            let of_half_and_float = dot(load(g[m, ..]), load(w[.., n]));
            let of_whole_numbers = dot(load(i[m, ..]), load(w[.., n]));
            store(c[m, n], of_parameters + of_halves + of_half_and_float + of_whole_numbers);
        }
    }
}

fn main() {}
