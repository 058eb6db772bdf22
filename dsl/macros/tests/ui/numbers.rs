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
}

fn main() {}
