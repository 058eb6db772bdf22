//! Places that are computed from the coordinate of a tile, as in Triton: the coordinate itself is the tile.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel loads(x: &Tensor<f32, [N, D]>, v: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N, D]>, z: &mut Tensor<f32, [N]>)
    tune { BN: [64, 128], BD: [32] }
    {
        for n in grid(tiles(N, BN)) {
            store(z[n], load(v[n * BN]));
            store(y[n, ..], 2.0 * load(x[BN * n, ..]));
            for d in tiles(D, BD) {
                store(y[n, d], load(x[n, d * BD]));
                store(y[n, d], dot(load(x[n * BN, d]), load(x[n, d])));
            }
            store(z[n], load(v[n * BN + iota([BN], 0)]));
            let at = iota([BN], 0) + n * BN;
            store(z[n], load(v[at]));
            store(z[n], sum(load(x[n, ..])));
            let all = max(load(x[n, ..]));
            store(z[n], sqrt(all) / 2.0);
            store(y[n, ..], load(x[n, ..]).t());
        }
    }

    pub kernel stores(v: &Tensor<f32, [N]>, z: &mut Tensor<f32, [N]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            store(z[n * BN], load(v[n]));
            store(z[span(n * BN, BN)], load(v[n]));
            store(z[0], sum(load(v[n])));
        }
    }

    pub kernel points(v: &Tensor<f32, [N]>, z: &mut Tensor<f32, [M]>)
    {
        for n in grid(N) {
            store(z[n + 1], load(v[n]));
            store(z[0], load(v[n]));
        }
    }
}

fn main() {}
