//! Tile fns of other modules: a kernel that calls them is the one that has them beside it.
#![forbid(unsafe_code)]
#![deny(warnings)]

use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, Kernel, KernelDef, Specialization};
use atlas_macros::{atlas_kernel, fuse};

mod math {
    use atlas_macros::atlas_kernel;

    const FACTOR: f32 = 3.0;
    const WIDTH: u32 = 64;

    pub(crate) mod inner {
        use atlas_macros::atlas_kernel;

        atlas_kernel! {
            use super::scale;

            /// Calls a private function of the module around it, and one of its own.
            pub(crate) tile fn scaled_twice(x) { own(scale(scale(x))) }
            tile fn own(x) { let r#type = x + 1.0; r#type * r#type }
        }
    }

    atlas_kernel! {
        tile fn scale(x) { x * FACTOR }
        pub(crate) tile fn with_const(x) { scale(x) + FACTOR }
        pub tile fn swish(x, b) { x * sigmoid(b * x) }
        pub(crate) tile fn swish_slope(x, b) { let (by_x, by_b) = grad(swish)(x, b); by_x + by_b }
        pub(crate) tile fn both(x) { let mut y = x; y += 1.0; (y, x * 2.0) }
        pub(crate) tile fn widened(x) { x + zeros::<f32>([1, WIDTH]) + sum(x, axis = 1) }
        #[cfg(any())]
        pub(crate) tile fn versions(x) { x + 1.0 }
        #[cfg(not(any()))]
        pub(crate) tile fn versions(x) { x + 2.0 }
        pub(crate) tile fn calls_versions(x) { versions(x) * 2.0 }
        #[allow(dead_code, reason = "a macro of this name would hide that of Rust")]
        tile fn matches(x) { x }
    }

    pub(crate) fn is_one(x: u32) -> bool {
        matches!(x, 1)
    }
}

/// Another name for a function, through another module.
mod passed_on {
    pub(crate) use crate::math::swish as silu;
}

/// The same kernels, whatever their functions are.
macro_rules! kernels {
    ($($function:tt)*) => {
        atlas_kernel! {
            $($function)*

            pub(crate) kernel chained(x: &Tensor<f32, [N, D]>, z: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
            tune { BN: [16] }
            {
                for n in grid(tiles(N, BN)) {
                    let (xs, zs) = both(load(x[n, ..]));
                    let wide = widened(with_const(xs) + scaled_twice(zs));
                    store(y[n, ..], wide + calls_versions(load(z[n, ..])) + versions(xs));
                }
            }

            pub(crate) kernel slopes(x: &Tensor<f32, [N, D]>, z: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
            tune { BN: [16] }
            {
                for n in grid(tiles(N, BN)) {
                    let xs = load(x[n, ..]);
                    let zs = load(z[n, ..]);
                    let (by_x, by_z) = grad(silu)(xs, zs);
                    let mut total = by_x * by_z + jvp(silu)(xs, zs, zs, 1.0) + swish_slope(xs, zs);
                    for _ in 0..3 { total = silu(total, zs); }
                    store(y[n, ..], total);
                }
            }

            /// The ranks differ where it stores, by an axis that a function gives.
            pub(crate) kernel summed(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
            tune { BN: [1, 16] }
            {
                for n in grid(tiles(N, BN)) { store(y[n], sum(with_const(load(x[n, ..])), axis = 1)); }
            }
        }
    };
}

mod imported {
    use super::{math, passed_on};
    use atlas_macros::atlas_kernel;

    kernels! {
        use math::{both, calls_versions, inner::scaled_twice, swish_slope, versions, widened, with_const};
        use passed_on::silu;
    }
}

mod beside {
    use atlas_macros::atlas_kernel;

    const FACTOR: f32 = 3.0;
    const WIDTH: u32 = 64;

    kernels! {
        tile fn scaled_twice(x) { own(scale(scale(x))) }
        tile fn own(x) { let r#type = x + 1.0; r#type * r#type }
        tile fn scale(x) { x * FACTOR }
        tile fn with_const(x) { scale(x) + FACTOR }
        tile fn silu(x, b) { x * sigmoid(b * x) }
        tile fn swish_slope(x, b) { let (by_x, by_b) = grad(silu)(x, b); by_x + by_b }
        tile fn both(x) { let mut y = x; y += 1.0; (y, x * 2.0) }
        tile fn widened(x) { x + zeros::<f32>([1, WIDTH]) + sum(x, axis = 1) }
        tile fn versions(x) { x + 2.0 }
        tile fn calls_versions(x) { versions(x) * 2.0 }
    }
}

mod by_path {
    use super::passed_on::silu;
    use atlas_macros::atlas_kernel;

    atlas_kernel! {
        use silu;

        pub(crate) kernel slopes(x: &Tensor<f32, [N, D]>, z: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
        tune { BN: [16] }
        {
            for n in grid(tiles(N, BN)) {
                let xs = load(x[n, ..]);
                let zs = load(z[n, ..]);
                let (by_x, by_z) = grad(crate::math::swish)(xs, zs);
                let mut total = by_x * by_z + jvp(silu)(xs, zs, zs, 1.0);
                total = total + crate::math::swish_slope(xs, zs);
                for _ in 0..3 { total = super::math::swish(total, zs); }
                store(y[n, ..], total);
            }
        }
    }
}

fuse! {
    kernel fused_imports = imported::chained(x = q, z = r, y = h) >> imported::summed(x = h);
    kernel fused_beside = beside::chained(x = q, z = r, y = h) >> beside::summed(x = h);
}

fn built(def: &'static KernelDef, rows: u32) -> Kernel {
    let mut config = Config::default();
    config.tile.extend(def.tune.iter().map(|knob| (knob.name.to_owned(), rows)));
    let spec = def.dims.iter().fold(Specialization::default(), |s, d| s.with_dim(d.name, DimFact::Const(64)));
    (def.build)(&spec, &config).unwrap_or_else(|e| panic!("{}: {e}", def.name))
}

/// Tile IR but for the kernel's name.
fn text(def: &'static KernelDef, rows: u32) -> String {
    built(def, rows).to_string().replace(def.name, "kernel")
}

#[test]
fn an_imported_function_is_what_it_is_beside_the_kernel() {
    for rows in [1, 16] {
        assert_eq!(text(&imported::chained, rows), text(&beside::chained, rows));
        assert_eq!(text(&imported::slopes, rows), text(&beside::slopes, rows));
        assert_eq!(text(&imported::summed, rows), text(&beside::summed, rows));
        assert_eq!(text(&by_path::slopes, rows), text(&beside::slopes, rows));
        assert_eq!(text(&fused_imports, rows), text(&fused_beside, rows));
    }
    assert!(math::is_one(1));
}

#[test]
fn what_an_imported_function_computes_stands_where_it_is_called() {
    let first = line!() + 9;
    let inside = || {
        mod here {
            atlas_macros::atlas_kernel! {
                pub(crate) tile fn noted(x) { x + 5.0 }
            }
        }
        atlas_kernel! {
            use here::noted;
            kernel calls(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
                for n in grid(tiles(N, 16)) { store(y[n], noted(load(x[n]))); }
            }
        }
        &calls
    };
    let def: &'static KernelDef = inside();
    assert_eq!(def.file, file!());
    let kernel = built(def, 16);
    let lines: Vec<u32> = kernel.insts.keys().map(|inst| kernel.locs[inst].line).collect();
    assert!(lines.iter().all(|&line| line == lines[0] && line.abs_diff(first) < 5), "{lines:?} {first}");
}
