//! Tile fns that another module does not have, or does not show.
use atlas_macros::atlas_kernel;

mod math {
    use atlas_macros::atlas_kernel;

    atlas_kernel! {
        tile fn private(x) { x }
        pub tile fn shown(x) { x }
    }
    pub fn of_rust(x: f32) -> f32 {
        x
    }
}

atlas_kernel! {
    use math::nothing;
    kernel unknown(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], nothing(load(x[n]))); }
    }
}

atlas_kernel! {
    kernel unknown_by_path(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], math::shown(nowhere::f(load(x[n])))); }
    }
}

atlas_kernel! {
    kernel hidden(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], math::private(load(x[n]))); }
    }
}

atlas_kernel! {
    use math::of_rust;
    kernel rust(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], of_rust(load(x[n]))); }
    }
}

fn main() {}
