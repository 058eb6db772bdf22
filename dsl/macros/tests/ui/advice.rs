//! What to write instead, where another number or type would be a wrong result: tests/agreement/advice.rs has it applied.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel carried(x: &Tensor<f32, [N, D]>, i: &Tensor<i32, [N, D]>, j: &Tensor<i64, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64, 128], BD: [32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut greatest = full::<f32>([BN, BD], f32::NEG_INFINITY);
            let mut least = full::<i32>([BN, BD], 2147483647);
            let mut wide = full::<i64>([BN, BD], 0);
            let mut product = full::<f32>([BN, BD], 1.0);
            let mut powers = zeros::<f32>([BN, BD]);
            let mut turned = zeros::<f32>([BD, BN]);
            let mut last = zeros::<f32>([BN, BD]);
            for d in tiles(D, BD) {
                greatest = max(load(x[n, d]), greatest);
                least = min(least, load(i[n, d]));
                wide = max(wide, load(j[n, d]));
                product *= load(x[n, d]);
                powers += exp(load(x[n, d]));
                turned += load(x[n, d]).t();
                last = select(last > 0.0, last, load(x[n, d]));
            }
            let floats = greatest + product + powers + turned.t() + last;
            let whole = min(least, axis = 1).cast::<f32>() + max(wide, axis = 1).cast::<f32>();
            store(y[n], sum(floats, axis = 1) + whole);
        }
    }

    /// What is carried through a `let`, in steps, by a product, after a factor, and by two names at once.
    pub kernel combined(x: &Tensor<f32, [N, D]>, k: &Tensor<f32, [K, N]>, w: &Tensor<f32, [K, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64, 128], BD: [32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut named = full::<f32>([BN, BD], f32::NEG_INFINITY);
            let mut chained = full::<f32>([BN, BD], f32::NEG_INFINITY);
            let mut products = full::<f32>([BN, BD], f32::NEG_INFINITY);
            let mut sums = zeros::<f32>([BN, BD]);
            let mut decayed = zeros::<f32>([BN, BD]);
            let mut total = zeros::<f32>([BN, BD]);
            let mut most = full::<f32>([BN, BD], f32::NEG_INFINITY);
            for d in tiles(D, BD) {
                let next = max(named, load(x[n, d]));
                named = next;
                chained = max(max(load(x[n, d]), chained), 1.0);
                products = max(products, dot(load(k[.., n]).t(), load(w[.., d])));
                sums += dot(load(k[.., n]).t(), load(w[.., d]));
                decayed = 0.5 * decayed + load(x[n, d]);
                let both = load(x[n, d]);
                total += both;
                most = max(most, both);
            }
            store(y[n], sum(named + chained + products + sums + decayed + total + most, axis = 1));
        }
    }

    pub kernel counts(x: &Tensor<f32, [N]>, j: &Tensor<i64, [N]>, c: &mut Tensor<i32, [N]>, w: &mut Tensor<i64, [N]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let mut count = 0;
            for _ in 0..4 {
                count += 1;
            }
            store(c[n], broadcast(count, [BN]));
            store(c[n], broadcast(sum(select(load(x[n]) > 0.0, 1, 0)), [BN]));
            store(c[n], load(x[n]));
            store(c[n], load(j[n]));
            store(w[n], load(x[n]) * load(x[count]));
        }
    }

    pub kernel short<T: Float>(x: &Tensor<T, [N]>, i: &Tensor<i32, [N]>, y: &mut Tensor<T, [N]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]) * load(i[n]));
        }
    }

    pub kernel before_of_whole(x: &Tensor<i32, [N]>, j: &Tensor<i64, [N]>, y: &mut Tensor<i32, [N]>, z: &mut Tensor<i64, [N]>) {
        for n in grid(tiles(N, 64)) {
            store(y[n], max(load(x[span(n * 64 - 1, 64)]), load(x[n])));
            store(z[n], max(load(j[span(n * 64 - 1, 64)]), load(j[n])));
            store(y[n], load(x[span(n * 64 - 1, 64)]));
        }
    }

    pub kernel before(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) {
            store(y[n], max(load(x[span(n * 64 - 1, 64)]), load(x[n])));
        }
    }
}

fn main() {}
