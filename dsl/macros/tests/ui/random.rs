//! Random numbers: what a seed and an index are, and how other languages write them.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel operands(
        x: &Tensor<f32, [N]>, i: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N]>, j: &mut Tensor<i32, [N]>, seed: i64, p: f32,
    )
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            let index = load(i[n]);
            store(y[n], uniform(index));
            store(y[n], uniform(1.5, index));
            store(y[n], uniform(p, index));
            store(y[n], uniform(index, seed));
            store(y[n], normal(index, index));
            store(y[n], normal(seed, xs));
            store(y[n], normal(seed, 7));
            store(y[n], random_bits(seed, index));
            store(j[n], index + uniform(seed, index));
            store(y[n], uniform::<f32>(seed, index));
            store(y[n], index.uniform(seed));
            store(y[n], grad(uniform)(seed, xs));
            store(j[n], mul_hi(xs, xs));
            store(j[n], mul_hi(index));
            store(j[n], grad(mul_hi)(xs, xs));
        }
    }

    kernel elsewhere(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, j: &mut Tensor<i32, [N]>, seed: i64, p: f32)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            let index = n * BN + iota([BN], 0);
            store(y[n], rand(seed, index) + tl.rand(seed, index) + np.random.uniform(xs) + curand_uniform(index));
            store(y[n], randn(seed, index) + torch.randn_like(xs) + rand_like(xs) + F.dropout(xs, p) + dropout(xs, p));
            store(y[n], select(bernoulli(p), xs, 0.0));
            store(j[n], philox(seed, index) + tl.randint(seed, index) + __umulhi(index, index) + umulhi(index, index));
        }
    }

    kernel unsigned(y: &mut Tensor<f32, [N]>, seed: u64)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], uniform(seed, n * BN + iota([BN], 0)));
        }
    }
}

fn main() {}
