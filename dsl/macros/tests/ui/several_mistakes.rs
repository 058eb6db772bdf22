//! Mistakes of several kinds are reported together, and the kernel's name still resolves.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            let sums = sum(rows, axis = 3) + rouws;
            store(y[n, ..], rows.cast::<f32>() + sums);
            store(y[n, ..], rows.cast::<f32>());
        }
    }

    pub kernel fine(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]));
        }
    }
}

fn main() {
    println!("{} {}", scale.name, fine.name);
}
