//! Compiles the kernels, for the sizes of `sizes.toml`, with the configs that `records` found to be best.

// Links the kernels into this build script.
use shipping_kernels as _;

fn main() {
    atlas_build::bundle()
        .arch("sm_80")
        .arch("sm_89")
        .arch("sm_90:NVIDIA H200")
        .sizes("sizes.toml")
        .records("records")
        .write();
}
