//! Mistakes in `fuse!` that its own words show.
use atlas_macros::{atlas_kernel, fuse};

atlas_kernel! {
    kernel first(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(x[n]));
        }
    }
}

fuse! {
    kernel of_one = first;
}

fuse! {
    kernel options(fast) = first >> first;
}

fuse! {
    kernel renamed_twice = first(x = a, x = b) >> first;
}

fuse! {
    kernel no_end = first >> first
}

fuse! {
    first >> first;
}

fuse! {
    kernel unknown = first >> second;
}

fn main() {}
