//! Functions of two and of three operands: what they take, and how other languages write them.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel powers(x: &Tensor<f32, [N]>, h: &Tensor<f16, [N]>, i: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N]>)
    require { pow(N, 2) == 64 }
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            let halves = load(h[n]);
            let whole = load(i[n]);
            store(y[n], pow(whole, 2));
            store(y[n], pow(xs, whole));
            store(y[n], xs.pow());
            store(y[n], atan2(xs));
            store(y[n], xs.atan2(halves));
            store(y[n], fma(xs, xs, halves));
            store(y[n], fma(whole, whole, whole));
            store(y[n], xs.fma(2.0));
            store(y[n], shr_logical(xs, 1));
            store(y[n], shr_logical(whole, 1, 2));
            store(y[n], grad(pow)(xs, 2.0));
        }
    }

    kernel elsewhere(x: &Tensor<f32, [N]>, i: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N]>, j: &mut Tensor<i32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            let whole = load(i[n]);
            store(y[n], powf(xs, 2.0) + xs.powi(3) + np.power(xs, 2.0) + xs ** 2.0);
            store(y[n], xs.mul_add(xs, xs) + math.fma(xs, xs, xs) + __fmaf_rn(xs, xs, xs));
            store(y[n], arctan2(xs, xs) + atan2f(xs, xs) + np.arctan(xs));
            store(j[n], whole >>> 3);
            store(j[n], lshr(whole, 3) + shift_right_logical(whole, 3));
        }
    }
}

fn main() {}
