//! Functions of other languages: those near in spelling are not what is meant.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel elsewhere(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], log10(xs) + cot(xs) + sign(xs) + sort(xs) + argmax(xs));
        }
    }
}

atlas_kernel! {
    kernel keeping_digits(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) {
            let xs = load(x[n]);
            store(y[n], logsigmoid(xs) + swish(xs) + argmin(xs));
        }
    }
}

atlas_kernel! {
    kernel from_the_end(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n, -1]));
        }
    }
}

fn main() {}
