//! What the file of a library says: its functions for Python, and the systems that it runs on. The library is not loaded.

use anyhow::{Context, Result, bail};
use object::read::elf::{ElfFile64, FileHeader};
use object::{Architecture, Endianness, Object, ObjectSymbol};
use std::path::Path;

/// What the symbols of functions of tvm-ffi begin with.
const PREFIX: &str = "__tvm_ffi_";

/// The least version of glibc that a tag names: older systems have no pip that knows such tags.
const LEAST_GLIBC: u32 = 28;

/// A library of kernels.
#[derive(Debug)]
pub(super) struct Library {
    /// The functions for Python in alphabetical order: kernels, and chains in upper case.
    pub(super) functions: Vec<String>,
    /// The systems that it runs on, as wheels name them: `manylinux_2_34_x86_64`.
    pub(super) tag: String,
}

impl Library {
    /// Reads a shared library of Linux.
    pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Library> {
        let name = path.display();
        let file = ElfFile64::<Endianness>::parse(bytes)
            .with_context(|| format!("{name} is no shared library of 64-bit Linux"))?;
        let arch = match file.architecture() {
            Architecture::X86_64 => "x86_64",
            Architecture::Aarch64 => "aarch64",
            other => bail!("{name} is for {other:?}, for which there is no tag of wheels"),
        };
        let symbols = file.dynamic_symbols().filter(|s| s.is_definition());
        let names: Vec<&str> = symbols.filter_map(|s| s.name().ok()).collect();
        if !names.contains(&"atlas_kernel_name") {
            bail!(
                "{name} has no functions of Atlas: a crate gets them by `atlas_c::export!(KERNEL, ..);` and crate-type = [\"cdylib\"]"
            );
        }
        let mut functions: Vec<String> =
            names.iter().filter_map(|n| n.strip_prefix(PREFIX)).map(str::to_owned).collect();
        functions.sort();
        if functions.is_empty() {
            bail!("{name} has no kernels: name them in `atlas_c::export!`");
        }
        let glibc = needed_glibc(&file).with_context(|| format!("cannot read what {name} needs"))?;
        Ok(Library { functions, tag: format!("manylinux_2_{glibc}_{arch}") })
    }
}

/// The minor version of glibc 2 that a library needs.
fn needed_glibc(file: &ElfFile64<'_, Endianness>) -> Result<u32> {
    let (endian, data) = (file.endian(), file.data());
    let sections = file.elf_header().sections(endian, data)?;
    let Some((mut needs, strings)) = sections.gnu_verneed(endian, data)? else {
        return Ok(LEAST_GLIBC);
    };
    let strings = sections.strings(endian, data, strings)?;
    let mut least = LEAST_GLIBC;
    while let Some((_, mut versions)) = needs.next()? {
        while let Some(version) = versions.next()? {
            let name = std::str::from_utf8(version.name(endian, strings)?)?;
            let minor = name.strip_prefix("GLIBC_2.").and_then(|rest| rest.split('.').next()?.parse().ok());
            least = least.max(minor.unwrap_or_default());
        }
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_refused_with_what_is_missing() {
        let of = |bytes: &[u8]| format!("{:#}", Library::read(Path::new("libx.so"), bytes).unwrap_err());
        assert!(of(b"MZ").starts_with("libx.so is no shared library of 64-bit Linux"), "{}", of(b"MZ"));
        // This program is of the right kind, and has no kernels.
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(of(&this).contains("atlas_c::export!"), "{}", of(&this));
    }

    #[test]
    fn versions_of_glibc_are_read() {
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = ElfFile64::<Endianness>::parse(&*this).unwrap();
        // Rust's programs need getrandom or newer, or are linked with an old library; a version is never below the least one.
        assert!((LEAST_GLIBC..100).contains(&needed_glibc(&file).unwrap()));
    }
}
