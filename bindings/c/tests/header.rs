//! The header is what cbindgen makes of the crate.

use std::path::Path;

/// Writes the header anew if this is set.
const UPDATE: &str = "ATLAS_UPDATE_HEADER";

#[test]
fn the_header_is_that_of_the_crate() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let sources = [
        "status",
        "dlpack",
        "kernels",
        "device",
        "calls/arguments",
        "launch/kernel",
        "chains",
        "launch/chain",
        "omega/rule",
        "omega/tensors",
        "omega/training",
        "omega/stream",
        "omega/packed",
        "newton_schulz",
    ];
    let builder = sources.iter().fold(cbindgen::Builder::new().with_config(config), |builder, source| {
        builder.with_src(folder.join(format!("src/{source}.rs")))
    });
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = folder.join("include/atlas.h");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        made == kept,
        "run this test with {UPDATE}=1, and read what changed: a change of what stands is a new ABI version"
    );
}
