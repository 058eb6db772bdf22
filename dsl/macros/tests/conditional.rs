//! Kernels and tile fns under `cfg`s: the ones that Rust keeps are built, checked and registered.
#![forbid(unsafe_code)]
#![deny(warnings)]

use atlas_dsl::op::Op;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, Kernel, KernelDef, Specialization, registry};
use atlas_macros::{atlas_kernel, fuse};

/// What a statement chooses by.
const DOUBLED: u32 = cfg!(all()) as u32;
const TRIPLED: u32 = cfg!(any()) as u32;

atlas_kernel! {
    #[cfg(any())]
    tile fn scaled(x) { x * 2.0 }
    #[cfg(not(any()))]
    tile fn scaled(x) { x * 3.0 }

    #[cfg_attr(all(), cfg(any()))]
    tile fn both(x, y) { let z = x + y; (z * 5.0, y) }
    #[cfg_attr(all(), cfg(all()))]
    tile fn both(a, b) { (a * 7.0, b) }

    tile fn through(x) { scaled(x) + grad(scaled)(x) }

    kernel versions(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) {
            let (a, b) = both(load(x[n]), 0.5);
            store(y[n], through(a) * b);
        }
    }

    kernel chosen(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) {
            let a = load(x[n]);
            store(y[n], select(DOUBLED == 1, a * 2.0, a) + select(TRIPLED == 1, a * 3.0, a));
        }
    }

    #[cfg(any())]
    kernel left_out(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], load(x[n])); }
    }

    #[cfg_attr(all(), cfg(any()))]
    kernel left_out_too(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], load(x[n])); }
    }

    #[cfg_attr(all(), cfg(all()))]
    kernel kept(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], load(x[n])); }
    }
}

fuse! {
    #[cfg_attr(all(), cfg(any()))]
    kernel fusion_left_out = kept >> kept;
    #[cfg_attr(any(), cfg(any()))]
    kernel fusion_kept = kept >> kept;
}

fn numbers(def: &'static KernelDef) -> Vec<f64> {
    let spec = Specialization::default().with_dim("N", DimFact::Dynamic(1));
    let kernel: Kernel = (def.build)(&spec, &Config::default()).unwrap_or_else(|e| panic!("{}: {e}", def.name));
    let number = |op: &Op| if let Op::Splat { value, .. } = op { Some(*value) } else { None };
    kernel.insts.values().filter_map(number).collect()
}

#[test]
fn the_version_that_rust_takes_is_called() {
    let found = numbers(&versions);
    assert!([7.0, 3.0].iter().all(|x| found.contains(x)), "{found:?}");
    assert!([5.0, 2.0].iter().all(|x| !found.contains(x)), "{found:?}");
    let found = numbers(&chosen);
    assert_eq!(found.iter().filter(|x| **x == 1.0).count(), 3, "{found:?}");
}

#[test]
fn what_is_left_out_is_not_registered() {
    let names: Vec<&str> = registry().iter().map(|k| k.name).collect();
    assert_eq!(names, ["chosen", "fusion_kept", "kept", "versions"]);
}
