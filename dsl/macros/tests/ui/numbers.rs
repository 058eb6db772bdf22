//! Numbers that a type cannot hold, and quotients of whole ones.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel numbers(
        x: &Tensor<i32, [N]>,
        f: &Tensor<f32, [N]>,
        k: &Tensor<i64, [N]>,
        s: f32,
        y: &mut Tensor<i32, [N]>,
        z: &mut Tensor<i64, [N]>,
    )
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let a = load(x[n]) + 2147483648;
            let b = load(k[n]) + 9007199254740992;
            let d = load(f[n]) * (5 / 2);
            let e = load(x[n]) % (7 / 0);
            let g = load(x[n]).or(0.5);
            let h = load(f[n]).or(s);
            let i = (load(f[n]) > 0.0).or(1);
            let j = (1.0).or(1);
            // These are right.
            let l = load(f[n]).or(-1.0 / 3.0) * (6 / 2) + 7 % 4;
            store(y[n], 3000000000);
            store(z[n], b);
            store(y[n], a + e + g + (d + h + i + j + l).cast::<i32>());
        }
    }

    pub kernel large(x: &Tensor<i64, [N]>, y: &mut Tensor<i64, [N]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]) + 9007199254740993);
        }
    }

    pub kernel beyond<T: Float>(h: &Tensor<f16, [N]>, x: &Tensor<f32, [N]>, y: &mut Tensor<T, [N]>, z: &mut Tensor<f16, [N]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let a = load(h[n]) * 70000;
            let b = load(x[n]) + 1e300;
            let c = full::<bf16>([BN], -3.4e38).cast::<f32>();
            // These are right.
            let d = max(a, 65504.0) + -f32::INFINITY + 70000.0.cast::<f16>();
            store(y[n], 3.5e38);
            store(z[n], d + (b + c).cast::<f16>());
        }
    }

    pub kernel no_number(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(N) {
            store(y[n], load(x[n]) + 1e400);
        }
    }
}

fn main() {}
