//! Declarations as Rust, C and Python have them.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel dims_first(x: &Tensor<[N], f32>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel fn function(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel knob(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) tune { BN = [64, 128] } {
        for n in grid(tiles(N, BN)) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel bound<T>(x: &Tensor<T, [N]>, y: &mut Tensor<T, [N]>) where T: Float {
        for n in grid(tiles(N, 64)) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel result(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) -> f32 {
        for n in grid(tiles(N, 64)) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel default(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, eps: f32 = 1e-5) {
        for n in grid(tiles(N, 64)) { store(y[n], load(x[n]) + eps); }
    }
}

atlas_kernel! {
    kernel reference(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, s: &f32) {
        for n in grid(tiles(N, 64)) { store(y[n], load(x[n]) * s); }
    }
}

atlas_kernel! {
    kernel unbraced(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) for n in grid(tiles(N, 64)) { store(y[n], load(x[n])); }
}

atlas_kernel! {
    kernel inner_const(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        const EPS: f32 = 1e-5; for n in grid(tiles(N, 64)) { store(y[n], load(x[n]) + EPS); }
    }
}

atlas_kernel! {
    const EPS: f32 = 1e-5;

    kernel outer_const(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { store(y[n], load(x[n]) + EPS); }
    }
}

atlas_kernel! {
    kernel coordinates(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>) {
        for n, d in grid(tiles(N, 64), tiles(D, 64)) { store(y[n, d], load(x[n, d])); }
    }
}

atlas_kernel! {
    kernel unbraced_require(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) require N == 64 {
        for n in grid(tiles(N, 64)) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel no_dims(a: f32) {
        for n in grid(N) { store(y[n], a); }
    }
}

atlas_kernel! {
    kernel ampersand(&x: Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel no_extents(x: &Tensor<f32>, y: &mut Tensor<f32>) {
        for n in grid(tiles(N, 64)) { store(y[n], load(x[n])); }
    }
}

atlas_kernel! {
    kernel tile_of_a_number(x: &Tensor<f32, [N, D]>, k: i32, y: &mut Tensor<f32, [N, D]>) {
        for n in grid(tiles(N, k)) { store(y[n, ..], load(x[n, ..])); }
    }
}

fn main() {}
