//! Mistakes with scans and atomic stores that a user of numpy, torch, Triton or CUDA makes.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// numpy: np.cumsum(x)
    kernel of_no_axis(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], cumsum(xs));
        }
    }
}

atlas_kernel! {
    /// torch: torch.cumsum(x, dim=1)
    kernel of_dim(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], cumsum(xs, dim = 1));
        }
    }
}

atlas_kernel! {
    /// Triton: tl.cumsum(x, 1)
    kernel of_positional(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], cumsum(xs, 1));
        }
    }
}

atlas_kernel! {
    /// numpy: axis=-1
    kernel of_last_axis(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], cumsum(xs, axis = -1));
        }
    }
}

atlas_kernel! {
    /// Triton: tl.cumsum(x, 1, True)
    kernel of_reverse_positional(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], cumsum(xs, 1, true));
        }
    }
}

atlas_kernel! {
    /// python's True
    kernel of_reverse_python(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], cumsum(xs, axis = 1, reverse = True));
        }
    }
}

atlas_kernel! {
    /// numpy: np.cumprod
    kernel of_cumprod(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], cumprod(xs, axis = 1));
        }
    }
}

atlas_kernel! {
    /// torch: flip, cumsum, flip
    kernel of_flip(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], flip(cumsum(flip(xs, axis = 1), axis = 1), axis = 1));
        }
    }
}

atlas_kernel! {
    /// axis counts from 1?
    kernel of_axis_2(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], cumsum(xs, axis = 2));
        }
    }
}

atlas_kernel! {
    /// numpy: cumsum of a mask
    kernel of_mask(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], cumsum(xs > 0.0, axis = 1));
        }
    }
}

atlas_kernel! {
    /// CUB/TF: exclusive
    kernel of_exclusive(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], cumsum(xs, axis = 1, exclusive = true));
        }
    }
}

atlas_kernel! {
    /// torch: x.cumsum(1)
    kernel of_method(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], xs.cumsum(1));
        }
    }
}

atlas_kernel! {
    /// torch.logcumsumexp
    kernel of_logcumsumexp(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], logcumsumexp(xs, axis = 1));
        }
    }
}

atlas_kernel! {
    /// torch.cummax returns a pair
    kernel of_values_and_indices(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>, at: &mut Tensor<i32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let (v, i) = cummax(load(x[n, ..]), axis = 1);
            store(y[n, ..], v);
            store(at[n, ..], i);
        }
    }
}

atlas_kernel! {
    /// tl.associative_scan
    kernel of_associative_scan(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], associative_scan(load(x[n, ..]), 1, add));
        }
    }
}

atlas_kernel! {
    /// the last element as the carry
    kernel of_carry_last(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BD: [16] }
    {
        for n in grid(N) {
            let mut before = 0.0;
            for d in tiles(D, BD) {
                let c = before + cumsum(load(x[n, d]), axis = 0);
                store(y[n, d], c);
                before = c[BD - 1];
            }
        }
    }
}

atlas_kernel! {
    /// the scan itself carried
    kernel of_carry_scan(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BD: [16] }
    {
        for n in grid(N) {
            let mut before = 0.0;
            for d in tiles(D, BD) {
                before += cumsum(load(x[n, d]), axis = 0);
                store(y[n, d], before);
            }
        }
    }
}

atlas_kernel! {
    /// the scanned tile carried
    kernel of_carry_tile(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BD: [16] }
    {
        for n in grid(N) {
            let mut before = zeros::<f32>([BD]);
            for d in tiles(D, BD) {
                let c = before + cumsum(load(x[n, d]), axis = 0);
                store(y[n, d], c);
                before += c;
            }
        }
    }
}

atlas_kernel! {
    /// a scalar initial value
    kernel of_carry_column(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [8], BD: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let mut before = 0.0;
            for d in tiles(D, BD) {
                let xs = load(x[n, d]);
                store(y[n, d], before + cumsum(xs, axis = 1));
                before += sum(xs, axis = 1);
            }
        }
    }
}

atlas_kernel! {
    /// the tile before it is read from y
    kernel of_parallel_tiles(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [8], BD: [16] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let xs = load(x[n, d]);
            store(y[n, d], load(y[n, d - 1]) + cumsum(xs, axis = 1));
        }
    }
}

atlas_kernel! {
    /// Triton: pointer arithmetic
    kernel of_pointer(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(count + load(ids[n]), 1);
        }
    }
}

atlas_kernel! {
    /// numpy: np.add.at(count, ids, 1)
    kernel of_three_arguments(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(count, load(ids[n]), 1);
        }
    }
}

atlas_kernel! {
    /// CUDA's name
    kernel of_cuda_name(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomicAdd(count[load(ids[n])], 1);
        }
    }
}

atlas_kernel! {
    /// fetch and add
    kernel of_old_value(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>, y: &mut Tensor<i32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let slot = atomic_add(count[load(ids[n])], 1);
            store(y[n], slot);
        }
    }
}

atlas_kernel! {
    /// numpy: count[ids] += 1
    kernel of_plus_equals(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            count[load(ids[n])] += 1;
        }
    }
}

atlas_kernel! {
    /// a tensor as an index
    kernel of_no_load(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(count[ids[n]], 1);
        }
    }
}

atlas_kernel! {
    /// a fraction added to i32
    kernel of_float_one(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(count[load(ids[n])], 1.5);
        }
    }
}

atlas_kernel! {
    /// & instead of &mut
    kernel of_not_mut(ids: &Tensor<i32, [N]>, count: &Tensor<i32, [V]>, y: &mut Tensor<i32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(count[load(ids[n])], 1);
            store(y[n], 0);
        }
    }
}

atlas_kernel! {
    /// torch's int64 ids
    kernel of_i64_ids(ids: &Tensor<i64, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(count[load(ids[n])], 1);
        }
    }
}

atlas_kernel! {
    /// two tiles of places
    kernel of_confusion(t: &Tensor<i32, [N]>, p: &Tensor<i32, [N]>, c: &mut Tensor<i32, [K, L]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(c[load(t[n]), load(p[n])], 1);
        }
    }
}

atlas_kernel! {
    /// f16 to f32
    kernel of_narrow(ids: &Tensor<i32, [N]>, x: &Tensor<f16, [N, D]>, y: &mut Tensor<f32, [V, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(y[load(ids[n]), ..], load(x[n, ..]));
        }
    }
}

atlas_kernel! {
    /// a weight without .t()
    kernel of_edge_weight(src: &Tensor<i32, [N]>, dst: &Tensor<i32, [N]>, w: &Tensor<f32, [N]>, x: &Tensor<f32, [M, D]>, y: &mut Tensor<f32, [M, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(y[load(dst[n]), ..], load(x[load(src[n]), ..]) * load(w[n]));
        }
    }
}

atlas_kernel! {
    /// load after adding
    kernel of_load_after(ids: &Tensor<i32, [N]>, x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [V]>, z: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(y[load(ids[n])], load(x[n]));
            store(z[n], load(x[n]) / load(y[load(ids[n])]));
        }
    }
}

atlas_kernel! {
    /// zeroed by the kernel itself
    kernel of_init_inside(x: &Tensor<f32, [N]>, total: &mut Tensor<f32, [O]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(total[0], 0.0);
            atomic_add(total[0], sum(load(x[n])));
        }
    }
}

atlas_kernel! {
    /// a tile to one element
    kernel of_not_reduced(x: &Tensor<f32, [N]>, most: &mut Tensor<f32, [O]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_max(most[0], load(x[n]));
        }
    }
}

atlas_kernel! {
    /// max and min in one tensor
    kernel of_two_kinds(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [O]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_max(y[0], max(load(x[n])));
            atomic_min(y[1], min(load(x[n])));
        }
    }
}

atlas_kernel! {
    /// CUDA: atomicSub
    kernel of_sub(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_sub(count[load(ids[n])], 1);
        }
    }
}

atlas_kernel! {
    /// Triton: atomic_cas
    kernel of_cas(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_cas(count[load(ids[n])], 0, 1);
        }
    }
}

atlas_kernel! {
    /// Triton: mask=
    kernel of_masked(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(count[load(ids[n])], 1, mask = load(ids[n]) >= 0);
        }
    }
}

atlas_kernel! {
    /// store instead of atomic
    kernel of_store_scatter(ids: &Tensor<i32, [N]>, x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [V, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[load(ids[n]), ..], load(x[n, ..]));
        }
    }
}

atlas_kernel! {
    /// the value first
    kernel of_arguments_swapped(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(1, count[load(ids[n])]);
        }
    }
}

atlas_kernel! {
    /// Rust's method of atomics
    kernel of_method_again(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            count[load(ids[n])].atomic_add(1);
        }
    }
}

atlas_kernel! {
    /// no index
    kernel of_no_index(x: &Tensor<f32, [N]>, total: &mut Tensor<f32, [O]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(total, sum(load(x[n])));
        }
    }
}

atlas_kernel! {
    /// a mask added to i32
    kernel of_bool(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(count[load(ids[n])], load(ids[n]) > 3);
        }
    }
}

atlas_kernel! {
    /// turned
    kernel of_dims_swapped(ids: &Tensor<i32, [N]>, x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [V, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(y[load(ids[n]), ..], load(x[n, ..]).t());
        }
    }
}


fn main() {}
