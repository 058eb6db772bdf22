//! Parameters that have the name of a dim, a tile size or a type, and two versions of a tile fn that are called unlike.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel knob(x: &Tensor<f32, [N]>, BN: i32, y: &mut Tensor<i32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) { store(y[n], n * BN + iota([BN], 0) + load(x[n]).cast::<i32>()); }
    }

    pub kernel dim(x: &Tensor<f32, [N]>, r#N: f32, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], load(x[n]) * N); }
    }

    pub kernel later(D: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N, D]>) {
        for n in grid(tiles(N, 16)) { store(y[n, ..], broadcast(load(D[n]).t(), [16, D])); }
    }

    pub kernel ty<T: Float>(x: &Tensor<T, [N]>, T: f32, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], load(x[n]).cast::<f32>() * T); }
    }

    pub kernel extent(x: &Tensor<f32, [N]>, K: i32, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], load(x[n]) + sum(zeros::<f32>([K])) + K.cast::<f32>()); }
    }

    pub kernel raw(x: &Tensor<f32, [N]>, r#x: f32, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], x); }
    }

    #[cfg(any())]
    tile fn f(x) { x }
    #[cfg(not(any()))]
    tile fn f(x, y) { x + y }

    #[cfg(any())]
    tile fn h(x) { x }
    #[cfg(not(any()))]
    tile fn h(x) { h(x) }

    tile fn twice(x) { x }
    tile fn r#twice(x) { x }
}

atlas_kernel! {
    #[cfg(any())]
    tile fn g(x) { x }
    #[cfg(not(any()))]
    tile fn g(x) { x.cast::<f32>() }

    pub kernel unlike(x: &Tensor<f16, [N]>, y: &mut Tensor<f16, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], g(load(x[n]))); }
    }
}

fn main() {}
