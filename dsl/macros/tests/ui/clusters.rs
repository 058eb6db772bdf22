//! A cluster in the wrong place, and sums over one.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel in_front(x: &Tensor<f32, [B, N]>, y: &mut Tensor<f32, [B, N]>)
    tune { BN: [16] }
    {
        for (n, b) in grid(cluster(tiles(N, BN)), B) {
            store(y[b, n], load(x[b, n]));
        }
    }

    kernel of_two(x: &Tensor<f32, [B, N]>, y: &mut Tensor<f32, [B, N]>)
    tune { BN: [16] }
    {
        for (b, n) in grid(cluster(B, tiles(N, BN))) {
            store(y[b, n], load(x[b, n]));
        }
    }

    kernel without_one(x: &Tensor<f32, [B, N]>, y: &mut Tensor<f32, [B, N]>)
    tune { BN: [16] }
    {
        for (b, n) in grid(B, tiles(N, BN)) {
            store(y[b, n], cluster_sum(load(x[b, n]).or(0.0)));
        }
    }

    kernel of_16_bits<T: Float>(x: &Tensor<T, [B, N]>, y: &mut Tensor<T, [B, N]>)
    tune { BN: [16] }
    {
        for (b, n) in grid(B, cluster(tiles(N, BN))) {
            store(y[b, n], cluster_sum(load(x[b, n]).or(0.0)));
        }
    }
}

fn main() {}
