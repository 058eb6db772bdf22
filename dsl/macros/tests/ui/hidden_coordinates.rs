//! Indices that are not what they seem, and conversions that are none.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel hidden(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) tune { BN: [64] } {
        for n in grid(tiles(N, BN)) {
            let n = 3;
            store(y[n], load(x[n]));
        }
    }
    pub kernel scatter(at: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(N) {
            store(y[load(at[n])], 1.0);
        }
    }
    pub kernel gather(at: &Tensor<i32, [N]>, x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) tune { BN: [64] } {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[load(at[n])]));
        }
    }
    pub kernel wide(at: &Tensor<i64, [N]>, x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, k: f32)
    require { N > 0 }
    tune { warps: [1] }
    {
        for n in grid(N) {
            let mut sum = 0.0 * load(x[n]);
            for i in 0..k {
                sum += load(x[load(at[n])]) * i.cast::<f32>();
            }
            store(y[n], sum);
        }
    }
    pub kernel folded(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) tune { BN: [64] } {
        for n in grid(tiles(N, BN)) {
            store(y[n], grad(sum)(load(x[n])) as f64);
        }
    }
}

fn main() {}
