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

    kernel two_clusters(x: &Tensor<f32, [B, N]>, y: &mut Tensor<f32, [B, N]>)
    tune { BN: [16], BB: [2] }
    {
        for (b, n) in grid(cluster(tiles(B, BB)), cluster(tiles(N, BN))) {
            store(y[b, n], load(x[b, n]));
        }
    }

    kernel before_pairs(x: &Tensor<f32, [B, N, N]>, y: &mut Tensor<f32, [B, N, N]>)
    tune { BN: [16] }
    {
        for (b, i, j) in grid(cluster(B), pairs(tiles(N, BN))) {
            store(y[b, i, j], load(x[b, i, j]));
        }
    }

    kernel after_pairs(x: &Tensor<f32, [B, N, N]>, y: &mut Tensor<f32, [B, N, N]>)
    tune { BN: [16] }
    {
        for (i, j, b) in grid(pairs(tiles(N, BN)), cluster(B)) {
            store(y[b, i, j], load(x[b, i, j]));
        }
    }

    kernel of_pairs(x: &Tensor<f32, [N, N]>, y: &mut Tensor<f32, [N, N]>)
    tune { BN: [16] }
    {
        for (i, j) in grid(cluster(pairs(tiles(N, BN)))) {
            store(y[i, j], load(x[i, j]));
        }
    }

    kernel of_integers(x: &Tensor<i32, [B, N]>, z: &Tensor<i64, [B, N]>, y: &mut Tensor<i32, [B]>, w: &mut Tensor<i64, [B]>)
    tune { BN: [16] }
    {
        for (b, n) in grid(B, cluster(tiles(N, BN))) {
            store(y[b], cluster_sum(sum(load(x[b, n]))));
            store(w[b], cluster_sum(sum(load(z[b, n]))));
        }
    }

    kernel along_an_axis(x: &Tensor<f32, [B, N]>, y: &mut Tensor<f32, [B]>)
    tune { BB: [4], BN: [16] }
    {
        for (b, n) in grid(tiles(B, BB), cluster(tiles(N, BN))) {
            store(y[b], cluster_sum(load(x[b, n]), axis = 1));
        }
    }

    kernel by_one_alone(x: &Tensor<f32, [B, N]>, y: &mut Tensor<f32, [B]>)
    tune { BB: [4], BN: [16] }
    {
        for (b, n) in grid(tiles(B, BB), cluster(tiles(N, BN))) {
            let s = cluster_sum(sum(load(x[b, n]), axis = 1));
            if n == 0 {
                store(y[b], s);
            }
        }
    }

    kernel other_names(x: &Tensor<f32, [B, N]>, y: &mut Tensor<f32, [B]>)
    tune { BB: [4], BN: [16] }
    {
        for (b, n) in grid(tiles(B, BB), cluster(tiles(N, BN))) {
            cluster_sync();
            cluster.sync();
            let rank = cluster_rank();
            let programs = cluster_size();
            store(y[b], cluster_max(max(load(x[b, n]), axis = 1)));
            store(y[b], cluster_min(min(load(x[b, n]), axis = 1)));
            store(y[b], cluster_mean(load(x[b, n])));
            store(y[b], all_reduce(load(x[b, n])));
        }
    }

    kernel parts(x: &Tensor<f32, [B, N]>, part: &mut Tensor<f32, [B, P]>, y: &mut Tensor<f32, [B]>)
    tune { BB: [4], BN: [16] }
    {
        for (b, n) in grid(tiles(B, BB), tiles(N, BN)) {
            store(part[b, n], sum(load(x[b, n]), axis = 1));
            atomic_add(y[b], sum(load(x[b, n]), axis = 1));
        }
    }

    kernel a_carried_row(x: &Tensor<f32, [N, D]>, w: &mut Tensor<f32, [D]>)
    tune { BN: [4], BD: [16] }
    {
        for d in grid(tiles(D, BD)) {
            let mut ws = load(w[d]);
            for n in tiles(N, BN) {
                ws -= sum(load(x[n, d]) * ws, axis = 0);
            }
            store(w[d], ws);
        }
    }
}

fn main() {}
