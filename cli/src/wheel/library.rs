//! What the file of a library says: its functions for Python, and the systems that it runs on. The library is not loaded.

use anyhow::{Context, Result, anyhow, bail};
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Architecture, Endianness, Object, ObjectSymbol};
use std::path::Path;

/// What the symbols of functions of tvm-ffi begin with.
const FUNCTION: &str = "__tvm_ffi_";

/// What the symbols begin with that mark what a crate exports, besides the kernels that ship.
const OWN: &str = "__atlas_own_";

/// Libraries that every Linux with glibc has.
const USUAL: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// The least version of glibc that a tag names: older systems have no pip that knows such tags.
const LEAST_GLIBC: u32 = 28;

/// A library of kernels.
#[derive(Debug)]
pub(super) struct Library {
    /// The functions for Python in alphabetical order: kernels, and chains in upper case.
    pub(super) functions: Vec<String>,
    /// The systems that it runs on, as wheels name them: `manylinux_2_34_x86_64`, or `linux_x86_64` if it needs other libraries.
    pub(super) tag: String,
    /// The libraries that it needs and not every Linux has.
    pub(super) foreign: Vec<String>,
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
        let is_library = file.elf_header().e_type(file.endian()) == elf::ET_DYN && !has_interpreter(&file);
        let is_linux = [elf::ELFOSABI_SYSV, elf::ELFOSABI_GNU].contains(&file.elf_header().e_ident.os_abi);
        if !is_library || !is_linux {
            bail!("{name} is no shared library of Linux, but a program, an object file or for another system");
        }
        let symbols = file.dynamic_symbols().filter(|s| s.is_definition());
        let names: Vec<&str> = symbols.filter_map(|s| s.name().ok()).collect();
        if !names.contains(&"atlas_kernel_name") {
            bail!(
                "{name} has no functions of Atlas: a crate gets them by `atlas_c::export!(KERNEL, ..);` and crate-type = [\"cdylib\"]"
            );
        }
        let with = |prefix: &str| names.iter().filter_map(|n| n.strip_prefix(prefix)).map(str::to_owned).collect();
        let (mut functions, own): (Vec<String>, Vec<String>) = (with(FUNCTION), with(OWN));
        // Those that ship are in every library.
        if !own.is_empty() {
            functions.retain(|f| own.contains(f));
        }
        functions.sort();
        functions.dedup();
        if functions.is_empty() {
            bail!("{name} has no kernels: name them in `atlas_c::export!`");
        }
        let is_identifier = |f: &&String| {
            !f.is_empty()
                && f.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !f.starts_with(|c: char| c.is_ascii_digit() || c == '_')
        };
        if let Some(odd) = functions.iter().find(|f| !is_identifier(f)) {
            bail!("{name} has a function `{odd}`, whose name is none in Python");
        }
        let needed = needed(&file).with_context(|| format!("cannot read what {name} needs"))?;
        let foreign: Vec<String> = needed.libraries.into_iter().filter(|l| !USUAL.contains(&l.as_str())).collect();
        let tag =
            if foreign.is_empty() { format!("manylinux_2_{}_{arch}", needed.glibc) } else { format!("linux_{arch}") };
        Ok(Library { functions, tag, foreign })
    }
}

/// Whether it is a program, which names what starts it.
fn has_interpreter(file: &ElfFile64<'_, Endianness>) -> bool {
    file.elf_program_headers().iter().any(|p| p.p_type(file.endian()) == elf::PT_INTERP)
}

/// What a library needs.
#[derive(Debug)]
struct Needed {
    /// The minor version of glibc 2.
    glibc: u32,
    libraries: Vec<String>,
}

fn needed(file: &ElfFile64<'_, Endianness>) -> Result<Needed> {
    let (endian, data) = (file.endian(), file.data());
    let sections = file.elf_header().sections(endian, data)?;
    let mut libraries = Vec::new();
    if let Some((entries, strings)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, strings)?;
        for entry in entries.iter().filter(|e| e.d_tag.get(endian) == u64::from(elf::DT_NEEDED)) {
            let at = u32::try_from(entry.d_val.get(endian))?;
            let name = strings.get(at).map_err(|()| anyhow!("a name lies outside of the file"))?;
            libraries.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    let mut glibc = LEAST_GLIBC;
    let Some((mut needs, strings)) = sections.gnu_verneed(endian, data)? else {
        return Ok(Needed { glibc, libraries });
    };
    let strings = sections.strings(endian, data, strings)?;
    while let Some((_, mut versions)) = needs.next()? {
        while let Some(version) = versions.next()? {
            let name = std::str::from_utf8(version.name(endian, strings)?)?;
            let minor = name.strip_prefix("GLIBC_2.").and_then(|rest| rest.split('.').next()?.parse().ok());
            glibc = glibc.max(minor.unwrap_or_default());
        }
    }
    Ok(Needed { glibc, libraries })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_refused_with_what_is_missing() {
        let of = |bytes: &[u8]| format!("{:#}", Library::read(Path::new("libx.so"), bytes).unwrap_err());
        assert!(of(b"MZ").starts_with("libx.so is no shared library of 64-bit Linux"), "{}", of(b"MZ"));
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(of(&this).contains("but a program"), "{}", of(&this));
    }

    #[test]
    fn versions_of_glibc_and_libraries_are_read() {
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = ElfFile64::<Endianness>::parse(&*this).unwrap();
        let needed = needed(&file).unwrap();
        assert!((LEAST_GLIBC..100).contains(&needed.glibc), "{needed:?}");
        assert!(needed.libraries.iter().any(|l| l == "libc.so.6"), "{needed:?}");
    }
}
