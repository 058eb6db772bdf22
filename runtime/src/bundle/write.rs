//! A bundle that is being made. The same kernels in the same order give the same bytes.

use super::entry::{Cubin, KernelEntry};
use super::file::{Contents, Sections};
use crate::compile::image_file;
use atlas_codegen::KernelImage;

/// Collects kernels, and gives the file.
#[derive(Default)]
pub struct BundleWriter {
    contents: Contents,
    sections: Sections,
}

impl BundleWriter {
    /// An empty bundle; it names what made it.
    pub fn new() -> BundleWriter {
        let toolchain = atlas_codegen::toolchain::toolchain_id();
        let llvm = atlas_codegen::toolchain::llvm_version().map_or_else(String::new, |v| format!(", LLVM {v}"));
        let made_by = format!("atlas {}, {toolchain}{llvm}", env!("CARGO_PKG_VERSION"));
        BundleWriter { contents: Contents { made_by, ..Contents::default() }, sections: Sections::default() }
    }

    /// Adds a compiled kernel; its place, to be named by a variant. Equal ones are kept once.
    pub fn image(&mut self, image: &KernelImage) -> usize {
        self.bytes(&image_file::encode(image))
    }

    /// Adds machine code for one compute capability, which a driver of this CUDA version and later takes.
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

    /// Says what there is of a kernel.
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

    /// Says which problems are to be tuned with its kernels, as `--sizes` takes them.
    pub fn problems(&mut self, text: &str) {
        self.contents.problems = Some(self.sections.add(text.as_bytes()));
    }

    /// The file.
    pub fn finish(&self) -> Vec<u8> {
        self.sections.file(self.contents.clone())
    }
}
