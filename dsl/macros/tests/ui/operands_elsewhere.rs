//! Operands and places as other languages have them.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel arguments(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { store(y, n, load(x, n)); }
    }
}

atlas_kernel! {
    kernel methods(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { y[n].store(x[n].load()); }
    }
}

atlas_kernel! {
    kernel value_first(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { store(load(x[n]), y[n]); }
    }
}

atlas_kernel! {
    kernel quotient(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>) {
        for n in grid(tiles(N, 64)) { let t = load(x[n, ..]); store(y[n, ..], t * (1 / size(D))); }
    }
}

atlas_kernel! {
    kernel product(x: &Tensor<f32, [M, K]>, w: &Tensor<f32, [K, N]>, y: &mut Tensor<f32, [M, N]>) {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) { let mut acc = zeros::<f32>([64, 64]); for k in tiles(K, 32) { acc = acc + load(x[m, k]) * load(w[k, n]); } store(y[m, n], acc); }
    }
}

atlas_kernel! {
    kernel accumulator(x: &Tensor<f32, [M, K]>, w: &Tensor<f32, [K, N]>, y: &mut Tensor<f32, [M, N]>) {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) { let mut acc = zeros::<f32>([M, N]); for k in tiles(K, 32) { acc += dot(load(x[m, k]), load(w[k, n])); } store(y[m, n], acc); }
    }
}

atlas_kernel! {
    kernel mask(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { let m = load(x[n]) > 0.0; store(y[n], m * load(x[n])); }
    }
}

atlas_kernel! {
    kernel both(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { let t = load(x[n]); store(y[n], select(t > 0.0 & t < 1.0, t, 0.0)); }
    }
}

atlas_kernel! {
    kernel chain(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { let t = load(x[n]); store(y[n], select(0.0 < t < 1.0, t, 0.0)); }
    }
}

atlas_kernel! {
    kernel last_axis(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { let t = load(x[n]); let t = t.sum(-1); store(y[n], t); }
    }
}

atlas_kernel! {
    kernel row(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>) tune { BN: [64], BD: [32] } {
        for n in grid(tiles(N, BN)) { let mut s = zeros::<f32>([BN]); for d in tiles(D, BD) { s += sum(load(x[n, d]), axis = 1); } store(y[n], s); }
    }
}

atlas_kernel! {
    kernel copies(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { let t = load(x[n]); let u = t.copy(); store(y[n], u.clone()); }
    }
}

atlas_kernel! {
    kernel written_type(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { let t: Tile<f32> = load(x[n]); store(y[n], t); }
    }
}

atlas_kernel! {
    kernel typed_iota(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { let i = iota::<i32>([64], 0); store(y[n], load(x[n]) * i.cast::<f32>()); }
    }
}

atlas_kernel! {
    kernel unbound(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { t = load(x[n]); store(y[n], t); }
    }
}

atlas_kernel! {
    kernel carried_scalar(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>) {
        for n in grid(tiles(N, 64)) { let mut m = -1e30; for d in tiles(D, 32) { m = max(m, load(x[n, d])); } store(y[n, ..], m); }
    }
}

fn main() {}
