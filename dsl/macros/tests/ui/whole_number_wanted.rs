//! A fraction that meets integers, and as a bound.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel count(x: &Tensor<i32, [N]>, y: &mut Tensor<i32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = load(x[n]);
            for i in 0..1.5 {
                total += i;
            }
            store(y[n], total * 0.5);
        }
    }
}

fn main() {}
