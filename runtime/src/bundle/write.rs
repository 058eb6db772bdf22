//! Writes a bundle. The same kernels in the same order give the same bytes.

use super::entry::{Cubin, KernelEntry};
use super::file::{Contents, Sections};
use crate::compile::image_file;
use atlas_codegen::KernelImage;

/// Collects kernels, and returns the file.
#[derive(Default)]
pub struct BundleWriter {
    contents: Contents,
    sections: Sections,
}

impl BundleWriter {
    /// An empty bundle, which records the versions that make it.
    pub fn new() -> BundleWriter {
        let toolchain = atlas_codegen::toolchain::toolchain_id();
        let llvm = atlas_codegen::toolchain::llvm_version().map_or_else(String::new, |v| format!(", LLVM {v}"));
        let made_by = format!("atlas {}, {toolchain}{llvm}", env!("CARGO_PKG_VERSION"));
        BundleWriter { contents: Contents { made_by, ..Contents::default() }, sections: Sections::default() }
    }

    /// Adds a compiled kernel and returns its index, which a variant names. Equal images are stored once.
    pub fn image(&mut self, image: &KernelImage) -> usize {
        self.bytes(&image_file::encode(image))
    }

    /// Adds machine code for one compute capability, which drivers of this CUDA version and later load.
    pub fn cubin(&mut self, sm: u32, driver: i32, code: &[u8]) -> Cubin {
        Cubin { sm, driver, image: self.bytes(code) }
    }

    fn bytes(&mut self, raw: &[u8]) -> usize {
        let section = self.sections.add(raw);
        if let Some(at) = self.contents.images.iter().position(|s| *s == section) {
            return at;
        }
        self.contents.images.push(section);
        self.contents.images.len() - 1
    }

    /// Sets the entry of a kernel.
    pub fn kernel(&mut self, name: &str, entry: &KernelEntry) {
        // Numbers and strings always encode.
        let text = serde_json::to_vec(entry).unwrap_or_default();
        let section = self.sections.add(&text);
        self.contents.kernels.insert(name.to_owned(), section);
    }

    /// Adds a tuning record.
    pub fn record(&mut self, text: &str) {
        let section = self.sections.add(text.as_bytes());
        self.contents.records.push(section);
    }

    /// Sets the problems to tune with its kernels, in the format of `--sizes`.
    pub fn problems(&mut self, text: &str) {
        self.contents.problems = Some(self.sections.add(text.as_bytes()));
    }

    /// The bytes of the file.
    pub fn finish(&self) -> Vec<u8> {
        self.sections.file(self.contents.clone())
    }
}
