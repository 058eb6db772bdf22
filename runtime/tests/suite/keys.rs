//! Keys: equal for equal ingredients, and different if any ingredient differs.

use crate::kernels::SCALE;
use atlas_codegen::Target;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, DType, Schedule, Specialization};
use atlas_runtime::{KernelKey, KeyParts, build_kernel, kernel_key};
use std::collections::BTreeSet;

const PARTS: KeyParts<'static> = KeyParts {
    tile_ir: "kernel @x",
    schedule: Schedule {
        stages: 2,
        warps: 4,
        occupancy: 1,
        warp_grid: None,
        order: None,
        copies: None,
        stores: None,
        products: None,
        programs: None,
        split_k: 1,
        operands: None,
    },
    target: Target { sm: 90, specific: false },
    ptx_version: (7, 8),
    toolchain: "codegen 1",
};

#[test]
fn each_ingredient_changes_the_key() {
    let target = |sm, specific| Target { sm, specific };
    let keys: BTreeSet<String> = [
        PARTS,
        KeyParts { tile_ir: "kernel @y", ..PARTS },
        KeyParts { schedule: Schedule { stages: 3, ..PARTS.schedule }, ..PARTS },
        KeyParts { schedule: Schedule { occupancy: 2, ..PARTS.schedule }, ..PARTS },
        KeyParts { schedule: Schedule { warps: 8, ..PARTS.schedule }, ..PARTS },
        KeyParts { target: target(80, false), ..PARTS },
        KeyParts { target: target(90, true), ..PARTS },
        KeyParts { ptx_version: (8, 0), ..PARTS },
        KeyParts { toolchain: "codegen 2", ..PARTS },
        // The same characters, split at another place.
        KeyParts { tile_ir: "kernel @xstages=2;", ..PARTS },
    ]
    .iter()
    .map(|parts| KernelKey::of(parts).to_string())
    .collect();
    assert_eq!(keys.len(), 10);
    assert!(keys.iter().all(|k| k.len() == 64));
    assert_eq!(KernelKey::of(&PARTS), KernelKey::of(&PARTS.clone()));
}

#[test]
fn tile_sizes_and_the_specialization_change_the_key() {
    let spec = Specialization::default().with_type("T", DType::F32).with_dim("D", DimFact::Const(64));
    let config = Config::default().with("BN", 16);
    let key = |spec: &Specialization, config: &Config| {
        let kernel = build_kernel(&SCALE, spec, config).unwrap();
        kernel_key(&kernel, config.schedule, PARTS.target)
    };
    let keys: BTreeSet<KernelKey> = [
        key(&spec, &config),
        key(&spec, &config.clone().with("BN", 64)),
        key(&spec.clone().with_type("T", DType::F16), &config),
        key(&spec.clone().with_dim("D", DimFact::Const(128)), &config),
        key(&spec.clone().with_dim("N", DimFact::Dynamic(8)), &config),
    ]
    .into();
    assert_eq!(keys.len(), 5);
    assert!(keys.contains(&key(&spec, &config)));
}
