//! Compiles the kernels for the sizes in `sizes.toml`, with the best configs according to `records`.

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
