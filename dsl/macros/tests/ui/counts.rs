//! Counts in f32, where whole numbers are wanted: the mend is an integer from the start, and no cast of a rounded count.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel counts(x: &Tensor<f32, [N, D]>, i: &Tensor<i32, [N]>, c: &mut Tensor<i32, [N]>)
    tune { BN: [64, 128], BD: [32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut above = zeros::<f32>([BN, 1]);
            let mut ones = full::<f32>([BN, 1], 1);
            let mut all = 0.0;
            let mut mean = 0.0;
            let mut whole = zeros::<i32>([BN, 1]);
            let mut cut = zeros::<i32>([BN, 1]);
            let mut converted = zeros::<i32>([BN, 1]);
            let mut short = zeros::<f16>([BN, 1]);
            for d in tiles(D, BD) {
                let positive = load(x[n, d]) > 0.0;
                above += sum(positive.cast::<f32>(), axis = 1);
                ones += 1.0;
                all += sum(select(positive, 1.0, 0.0));
                mean += sum(load(x[n, d]));
                whole += sum(select(positive, 1.0, 0.0), axis = 1);
                cut += sum(load(x[n, d]), axis = 1);
                converted += sum(positive.cast::<f32>(), axis = 1);
                short += sum(load(x[n, d]), axis = 1);
            }
            store(c[n], above);
            store(c[n], ones);
            store(c[n], broadcast(all, [BN]));
            store(c[n], broadcast(mean, [BN]));
            store(c[n], load(i[n]) + above);
            store(c[n], whole + cut + converted + load(i[mean]) + load(i[all]) + short);
        }
    }
}

fn main() {}
