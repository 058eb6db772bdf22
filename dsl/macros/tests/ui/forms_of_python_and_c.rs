//! Statements, operators and indices of Python, C and Triton: tests/agreement/advice_forms.rs has what to write.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel statements(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            float a = load(x[n, ..]);
            let mut b = a if n > 0 else -a;
            b++;
            auto c = load(x[...]) + load(x[n, 0..16]) + load(x[n, ..8]);
            store(y[n, ..], a + b + c);
        }
    }

    pub kernel axes_of_tiles(v: &Tensor<f32, [N]>, x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(v[n]);
            store(y[n, ..], t[:, None] * load(x[n, ..]) + load(v[n])[np.newaxis, :] + load(x) + x);
            store(y, load(x[n, ..])[.., 0]);
        }
    }

    pub kernel sums<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [K, N]>, c: &mut Tensor<T, [M, N]>)
    tune { BM: [64, 32], BN: [64, 32], BK: [32] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut of_type = zeros::<T>([BM, BN]);
            let mut third = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                of_type += dot(load(a[m, k]), load(b[k, n]));
                third = dot(load(a[m, k]), load(b[k, n]), third);
            }
            store(c[m, n], of_type + zeros((BM, BN), f32) + full([BM, BN], 1.0, f32) + third.cast::<T>());
        }
    }

    pub kernel turned(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(64, N)) { store(y[n], load(x[n])); }
    }

    pub kernel divided(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) tune { BN: [64, 32] } {
        for (a, b, c, d, e) in grid(N / BN, cdiv(N, BN), N.div_ceil(BN), 0..N, size(N)) { store(y[a], load(x[a])); }
    }

    pub kernel three(x: &Tensor<f32, [N, 3]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(N) { store(y[n], sum(load(x[n, ..]))); }
    }

    pub kernel counted(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for (n, i, j) in grid(N, 4, 0..3) { store(y[n], load(x[n])); }
    }

    tile fn both(x) { (x + 1.0, x * 2.0) }

    pub kernel named(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(N) {
            let a, b = both(load(x[n]));
            store(y[n], a + b);
        }
    }
}

fn main() {}
