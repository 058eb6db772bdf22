//! Functions, modules, arguments and operators of CUDA, Triton, numpy, PyTorch and Rust.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel functions(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], elu(xs) + signum(xs) + xs.ln_1p() + fmod(xs, 2.0) + rint(xs) + __sinf(xs) + xs.mul_add(xs, xs));
            store(y[n, ..], logsumexp(xs, axis = 1) + mish(xs) + hardtanh(xs) + rand(xs) + mod(xs, 2.0) + xs % 2.0);
        }
    }
}

atlas_kernel! {
    kernel bits(x: &Tensor<i32, [N]>, y: &mut Tensor<i32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            store(y[n], __popc(xs) + rotl(xs, 5) + xs.wrapping_mul(3) + lshr(xs, 3) + bitwise_and(xs, 1) + ctz(xs));
            store(y[n], ~xs);
            store(y[n], xs >>> 3);
        }
    }
}

atlas_kernel! {
    kernel factors(x: &Tensor<i32, [N]>, y: &mut Tensor<i32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]) * 0x85ebca6b);
        }
    }
}

atlas_kernel! {
    kernel modules(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], F.softplus(xs) + tl.math.exp(xs) + torch.nn.functional.relu(xs) + math.exp(xs));
            store(y[n, ..], xs - tl.max(xs, 1));
        }
    }
}

atlas_kernel! {
    kernel arguments(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..], mask = n > 0, other = 0.0);
            let ys = load(x, n, 0);
            let zs = load(x[n, ..], cache = 1);
            store(y[n, ..], xs + ys + zs, mask = n > 0);
            store(y[n, ..], dot(xs, ys, allow_tf32 = 1));
            store(y[n, ..], dot(xs, ys).precision("tf32"));
            store(y[n, ..], xs.cast(f32) + cast::<f32>(xs) + xs.cast());
            store(y[n, ..], max(xs, float("inf")) + inf + nan + pi);
        }
    }
}

atlas_kernel! {
    kernel slices(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, :]));
        }
    }
}

atlas_kernel! {
    kernel first(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [D]>)
    tune { BD: [64] }
    {
        for d in grid(tiles(D, BD)) {
            store(y[d], load(x[-1, d]));
        }
    }
}

atlas_kernel! {
    kernel truths(x: &Tensor<f32, [N, D]>, k: &Tensor<i32, [N, D]>, y: &mut Tensor<f32, [N]>, z: &mut Tensor<f32, [N, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let ks = load(k[n, ..]);
            store(y[n], sum(xs > 0.0, axis = 1));
            store(z[n, ..], (xs > 0.0) + 1);
            store(z[n, ..], exp(ks));
            store(z[n, ..], floor(ks));
        }
    }
}

atlas_kernel! {
    tile fn square(x) { x * x }

    kernel derivatives(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], grad(grad(square))(xs) + vjp(square)(xs, 1.0) + jvp(square)(xs));
        }
    }
}

atlas_kernel! {
    kernel loops(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64], BD: [64] }
    {
        for n in grid(tiles(N, BN)) {
            for i in (1..6).step_by(2) { store(y[n, ..], load(x[n, ..]) * i.cast::<f32>()); }
            for d in pipeline(tiles(D, BD), stages = 3) { store(y[n, d], load(x[n, d])); }
            println!("{}", n);
            assert!(size(N) > 0);
        }
    }
}

atlas_kernel! {
    kernel types(x: &Tensor<u32, [N]>, z: &Tensor<float, [N]>, y: &mut Tensor<T, [N]>, k: usize)
    tune { BN: [64], num_warps: [4], bd: [64] }
    {
        for n in grid(tiles(N, BN)) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel coordinates(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64], BD: [64] }
    {
        for n in grid(tiles(N, BN), tiles(D, BD)) { store(y[n, ..], load(x[n, ..])); }
    }
}

atlas_kernel! {
    kernel conditions(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    require { N = 64 }
    {
        for n in grid(N) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel pointer(x: *const f32, y: &mut Tensor<f32, [N]>) {
        for n in grid(N) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel slice(x: &[f32], y: &mut Tensor<f32, [N]>) {
        for n in grid(N) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel untyped(x, y) {
        for n in grid(N) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel fixed(x: &Tensor<f32, [N, 64]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(N) { store(y[n], load(x[n, 0])); }
    }
}

atlas_kernel! {
    kernel without_brackets(x: &Tensor<f32, N, D>, y: &mut Tensor<f32, [N]>) {
        for n in grid(N) { store(y[n], load(x[n, 0])); }
    }
}

atlas_kernel! {
    kernel one_value(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: 64 }
    {
        for n in grid(tiles(N, BN)) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel negative(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [-64] }
    {
        for n in grid(tiles(N, BN)) { store(y[n], load(x[n])); }
    }
}

fn main() {}
