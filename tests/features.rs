//! This project refuses incompatible features with a helpful message, before a dependency's build script fails.

use std::path::Path;

/// llvm-sys panics if it is told twice how LLVM is linked, so only one feature of the code generator tells it.
#[test]
fn one_feature_alone_tells_llvm_sys_how_to_link() {
    let path = Path::new(crate::ROOT).join("codegen/Cargo.toml");
    let manifest: toml::Table = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let features = manifest["features"].as_table().unwrap();
    let tells = |of: &toml::Value| {
        let names = of.as_array().unwrap().iter().filter_map(|f| f.as_str());
        names.filter(|f| f.contains("prefer-") || f.contains("force-")).count()
    };
    assert_eq!(features.values().map(tells).sum::<usize>(), 1, "{features:?}");
    // The code generator refuses the combination.
    let root = include_str!("../codegen/src/lib.rs");
    assert!(root.contains("#[cfg(all(feature = \"llvm-dynamic\", feature = \"llvm-static\"))]\ncompile_error!("));
}
