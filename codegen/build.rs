//! Hashes the sources of the code generator: part of the key of every compiled kernel.

mod source_hash;

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let package = std::env::var("CARGO_MANIFEST_DIR")?;
    let package = Path::new(&package);
    let folders = [
        ("vocabulary", package.join("../dsl/vocabulary/src")),
        ("dsl", package.join("../dsl/src")),
        ("codegen", package.join("src")),
    ];
    for (_, folder) in &folders {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=source_hash.rs");
    println!("cargo:rustc-env=ATLAS_SOURCE_HASH={}", source_hash::of(&folders)?);
    Ok(())
}
