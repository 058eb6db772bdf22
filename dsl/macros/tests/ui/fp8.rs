//! Floats of 8 bits have no arithmetic, convert from and to floats alone, and are not passed by value.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel sums(x: &Tensor<f8e4m3, [N, D]>, w: &Tensor<f8e5m2, [N, D]>, s: &Tensor<f32, [N, D]>, y: &mut Tensor<f8e4m3, [N, D]>) {
        for n in grid(tiles(N, 16)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], xs + 1.0);
            store(y[n, ..], load(s[n, ..]) * xs);
            store(y[n, ..], -xs);
            store(y[n, ..], exp(load(w[n, ..])));
            store(y[n, ..], max(xs, axis = 1));
            store(y[n, ..], sum(xs, axis = 1));
            store(y[n, ..], cumsum(xs, axis = 1));
            store(y[n, ..], fma(xs, xs, xs));
            store(y[n, ..], select(xs > 0.0, xs, 0.0));
            store(y[n, ..], is_nan(xs));
            store(y[n, ..], load(w[n, ..]));
            store(y[n, ..], load(s[n, ..]));
        }
    }

    kernel products<T: Float>(x: &Tensor<T, [M, K]>, w: &Tensor<f8e4m3, [K, N]>, y: &mut Tensor<f32, [M, N]>) {
        for m in grid(tiles(M, 16)) {
            store(y[m, ..], dot(load(x[m, ..]), load(w[.., ..])));
        }
    }

    kernel both(x: &Tensor<f8e4m3, [M, K]>, w: &Tensor<f8e4m3, [K, N]>, y: &mut Tensor<f32, [M, N]>) {
        for m in grid(tiles(M, 16)) {
            store(y[m, ..], dot(load(x[m, ..]), load(w[.., ..])));
        }
    }

    kernel accumulators(x: &Tensor<f8e4m3, [M, K]>, y: &mut Tensor<f8e4m3, [M]>) {
        for m in grid(tiles(M, 16)) {
            let mut acc = zeros::<f8e4m3>([16, 1]);
            for k in tiles(K, 32) {
                acc += sum(load(x[m, k]).cast::<f32>(), axis = 1);
            }
            store(y[m], acc);
        }
    }

    kernel conversions(i: &Tensor<i32, [N]>, x: &Tensor<f8e4m3, [N]>, y: &mut Tensor<f8e4m3, [N]>, z: &mut Tensor<i32, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(i[n]).cast::<f8e4m3>());
            store(y[n], (load(i[n]) > 0).cast::<f8e4m3>());
            let xs = load(x[n]);
            store(z[n], xs.cast::<i32>());
            store(z[n], load(i[n]).cast_like(xs));
            store(y[n], load(i[n]));
        }
    }

    kernel numbers(x: &Tensor<f8e4m3, [N]>, y: &mut Tensor<f8e4m3, [N]>, z: &mut Tensor<f8e5m2, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], select(load(x[n]).cast::<f32>() > 3.0, load(x[n]).or(449.0), -1.5));
            store(z[n], full::<f8e5m2>([16], f32::INFINITY));
        }
    }

    kernel counts(x: &Tensor<f8e4m3, [N]>, at: &Tensor<i32, [N]>, y: &mut Tensor<f8e4m3, [V]>) {
        for n in grid(tiles(N, 16)) {
            atomic_add(y[load(at[n])], load(x[n]));
        }
    }

    kernel by_value(x: &Tensor<f32, [N]>, k: f8e4m3, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(x[n]) + k.cast::<f32>());
        }
    }

    kernel of_torch(x: &Tensor<float8_e4m3fn, [N]>, y: &mut Tensor<float8_e5m2, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(x[n]).cast::<float8e5>());
        }
    }

    kernel of_any(x: &Tensor<fp8, [N]>, y: &mut Tensor<float8_e4m3fnuz, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(x[n]));
        }
    }
}

fn main() {}
