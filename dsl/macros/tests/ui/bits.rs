//! Operations on bits of what has none, and functions of floats that integers lack.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// Takes the place of the function, which is then no method either.
    tile fn softplus(x) { log(1.0 + exp(x)) }

    kernel hidden(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], softplus(load(x[n])) + load(x[n]).softplus() + asin(load(x[n])));
        }
    }
}

atlas_kernel! {
    kernel floats(x: &Tensor<f32, [N]>, i: &Tensor<i32, [N]>, l: &Tensor<i64, [N]>, y: &mut Tensor<i32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            let whole = load(i[n]);
            let long = load(l[n]);
            store(y[n], xs & 1);
            store(y[n], xs ^ 2);
            store(y[n], whole << xs);
            store(y[n], whole << long);
            store(y[n], (whole > 0) << 1);
            store(y[n], (whole > 0) & whole);
            store(y[n], popcount(xs));
            store(y[n], popcount(5));
            store(y[n], !7);
            store(y[n], count_ones(whole) + whole.popc());
            store(y[n], select(is_nan(whole), 1, whole));
            store(y[n], select(is_nan(1.0), 1, whole));
            store(y[n], ceil(whole));
            store(y[n], clamp(whole, 0.5, 2));
            store(y[n], clamp(whole, 0, xs));
            store(y[n], clamp(whole > 0, whole, whole));
            store(y[n], clamp(whole, 1));
            store(y[n], clip(whole, 1, 2));
        }
    }
}

fn main() {}
