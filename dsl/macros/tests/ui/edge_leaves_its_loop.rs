//! Tiles whose edge differs between iterations, carried out of their loop.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel columns(x: &Tensor<f32, [N, D]>, w: &Tensor<f32, [D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64, 128], BD: [32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut a = zeros::<f32>([BN, BD]);
            let mut b = zeros::<f32>([BN, BD]);
            let mut c = zeros::<f32>([BN, BD]);
            let mut sums = zeros::<f32>([BN, 1]);
            for d in tiles(D, BD) {
                a += load(x[n, d]);
                b = c;
                c = exp(load(x[n, span(d * BD + 1, BD)]).or(0.0)) * load(w[d]);
                sums += sum(load(x[n, d]) * load(w[d]), axis = 1);
            }
            // This edge is the same in every iteration.
            let mut rows = load(x[n, span(0, BD)]);
            for _ in 0..3 {
                rows = rows * 2.0 + load(x[n, span(0, BD)]);
            }
            store(y[n], sum(a + b + c + rows, axis = 1) + sums);
        }
    }
}

fn main() {}
