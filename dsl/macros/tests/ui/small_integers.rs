//! Integers below 32 bits have no arithmetic, and are not passed by value.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel sums(x: &Tensor<i8, [N, D]>, w: &Tensor<u8, [N, D]>, s: &Tensor<f32, [N, D]>, y: &mut Tensor<i8, [N, D]>) {
        for n in grid(tiles(N, 16)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], xs + 1);
            store(y[n, ..], load(s[n, ..]) * xs);
            store(y[n, ..], -xs);
            store(y[n, ..], exp(load(w[n, ..])));
            store(y[n, ..], xs << 2);
            store(y[n, ..], max(xs, axis = 1));
            store(y[n, ..], cumsum(xs, axis = 1));
            store(y[n, ..], max(xs, load(x[n, ..])));
            store(y[n, ..], clamp(xs, 0, 5));
            store(y[n, ..], select(xs > 0, xs, 0));
            store(y[n, ..], load(w[n, ..]) == load(w[n, ..]));
            store(y[n, ..], is_nan(xs));
            store(y[n, ..], xs);
        }
    }

    kernel products<T: Float>(x: &Tensor<T, [M, K]>, w: &Tensor<i8, [K, N]>, y: &mut Tensor<f32, [M, N]>) {
        for m in grid(tiles(M, 16)) {
            store(y[m, ..], dot(load(x[m, ..]), load(w[.., ..])));
        }
    }

    kernel both(x: &Tensor<i8, [M, K]>, w: &Tensor<i8, [K, N]>, y: &mut Tensor<f32, [M, N]>) {
        for m in grid(tiles(M, 16)) {
            store(y[m, ..], dot(load(x[m, ..]), load(w[.., ..])));
        }
    }

    kernel stores(x: &Tensor<i32, [N]>, s: &Tensor<f32, [N]>, y: &mut Tensor<u8, [N]>, z: &mut Tensor<i8, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(x[n]));
            store(z[n], load(s[n]));
        }
    }

    kernel numbers(x: &Tensor<u8, [N]>, y: &mut Tensor<u8, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], select(load(x[n]).cast::<i32>() > 3, load(x[n]).or(-1), 256));
        }
    }

    kernel places(table: &Tensor<f32, [V]>, at: &Tensor<u8, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(table[load(at[n])]));
        }
    }

    kernel counts(x: &Tensor<u8, [N]>, y: &mut Tensor<u8, [V]>) {
        for n in grid(tiles(N, 16)) {
            atomic_add(y[load(x[n]).cast::<i32>()], load(x[n]));
        }
    }

    kernel by_value(x: &Tensor<i32, [N]>, k: u8, y: &mut Tensor<i32, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(x[n]) + k.cast::<i32>());
        }
    }

    kernel of_numpy(x: &Tensor<uint8, [N]>, y: &mut Tensor<i32, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(x[n]).cast::<i32>());
        }
    }

    kernel conditions(x: &Tensor<u8, [N]>, w: &Tensor<i8, [N]>, h: &Tensor<u16, [N]>, f: &Tensor<f16, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], select(load(x[n]), 1.0, 0.0));
            store(y[n], select(load(x[n]) && load(f[n]) > 0.0, 1.0, 0.0));
            store(y[n], select(load(f[n]) > 0.0, load(x[n]), load(w[n])).cast::<f32>());
            store(y[n], select(load(f[n]) > 0.0, load(h[n]), load(f[n])).cast::<f32>());
            store(y[n], i8(load(f[n])).cast::<f32>());
        }
    }

    kernel flags(x: &Tensor<bool, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(x[n]).cast::<f32>());
        }
    }
}

fn main() {}
