//! Tile fns of two modules that call each other.
use atlas_macros::atlas_kernel;

mod even {
    atlas_macros::atlas_kernel! {
        pub tile fn even(x) { super::odd::odd(x) }
    }
}

mod odd {
    atlas_macros::atlas_kernel! {
        pub tile fn odd(x) { super::even::even(x) }
    }
}

atlas_kernel! {
    kernel calls(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], even::even(load(x[n]))); }
    }
}

fn main() {}
