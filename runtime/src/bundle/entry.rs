//! The entry of one kernel in a bundle: the classes of problems that it serves, its compiled variants, and how one is
//! chosen.

use super::table::Table;
use crate::compile::specialization_class::{canonical, class_text, dims_text, parse_class};
use crate::error::{BundleError, shown};
use atlas_dsl::{Config, KernelDef, Specialization};
use serde::{Deserialize, Serialize};

/// The most classes, variants and other items that a file may give for one kernel.
const MOST_CLASSES: usize = 4096;
const MOST_VARIANTS: usize = 4096;
const MOST_PACKERS: usize = 64;
/// The most characters of a text.
const MOST_TEXT: usize = 4096;

/// One kernel of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelEntry {
    /// The classes of problems that were compiled for.
    pub classes: Vec<ClassEntry>,
}

/// The problems of one specialization.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassEntry {
    /// Element types, `T=bf16`.
    pub types: String,
    /// The facts of the dims, `N=*8 D=64`: `*8` is any multiple of 8.
    pub dims: String,
    /// Tensors that are not contiguous or not aligned to 16 bytes, as a record names them.
    pub tensors: String,
    /// Compiled kernels.
    pub variants: Vec<Variant>,
    /// Which variant runs which sizes, for each machine.
    pub tables: Vec<MachineTable>,
}

/// The choices of a class on one machine, and the target of the variants that the table names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineTable {
    /// The target, such as `sm_90`.
    pub target: String,
    /// The choices.
    pub table: Table,
}

/// A compiled kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The config's text.
    pub config: String,
    /// SHA-256 of the Tile IR that it was compiled from: of all kernels of the launch, if its operands are packed.
    pub tile_ir: String,
    /// The target that it was compiled for, such as `sm_90`.
    pub target: String,
    /// Its index in the bundle's list of images.
    pub image: usize,
    /// The resources that NVIDIA's assembler reported, if one was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Machine code for exactly this compute capability, beside the PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubin: Option<Cubin>,
    /// The kernels that pack its operands, in the order of the launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packers: Vec<VariantCode>,
    /// The runs in the simulator before it was shipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Why it was not run, if it should have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_evidence: Option<String>,
}

/// One compiled kernel of a variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantCode {
    /// Its index in the bundle's list of images.
    pub image: usize,
    /// Machine code for exactly one compute capability, beside the PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubin: Option<Cubin>,
}

/// The resources of a multiprocessor that a kernel needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Spilled bytes per thread.
    pub spills: u32,
}

/// The machine code of a variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cubin {
    /// The compute capability, such as 90. The code runs on no other.
    pub sm: u32,
    /// The lowest CUDA version whose driver loads it, such as 13000.
    pub driver: i32,
    /// Its index in the bundle's list of images.
    pub image: usize,
}

/// One run in the simulator, compared with the interpreter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The order in which warps ran.
    pub schedule: String,
    /// The sizes, `N=24 D=64`.
    pub sizes: String,
    /// The largest difference of the results, relative to their size.
    pub error: f64,
    /// The largest difference that is allowed.
    pub bound: f64,
}

impl Variant {
    /// Its kernel. With packed operands, that which reads them.
    pub fn code(&self) -> VariantCode {
        VariantCode { image: self.image, cubin: self.cubin }
    }

    /// The kernels of its launch, in order: those that pack operands, and its kernel.
    pub fn codes(&self) -> impl Iterator<Item = VariantCode> {
        self.packers.iter().copied().chain([self.code()])
    }
}

impl ClassEntry {
    /// A class without variants.
    pub fn new(def: &KernelDef, spec: &Specialization) -> ClassEntry {
        let (types, tensors) = class_text(def, spec);
        ClassEntry { types, dims: dims_text(def, spec), tensors, ..ClassEntry::default() }
    }

    /// Its specialization, without the facts of usual tensors. `None` if its texts do not parse.
    pub fn spec(&self, def: &KernelDef) -> Option<Specialization> {
        parse_class(&self.types, &self.dims, &self.tensors).map(|spec| canonical(def, &spec))
    }

    /// The class as text, for messages.
    pub(super) fn text(&self) -> String {
        let parts = [&self.types, &self.dims, &self.tensors].map(String::as_str);
        parts.into_iter().filter(|p| !p.is_empty()).map(shown).collect::<Vec<_>>().join(" ")
    }
}

impl KernelEntry {
    /// Parses an entry, and checks that the variants and images that it names exist.
    pub(super) fn parse(
        bytes: &[u8],
        images: usize,
        wrong: impl Fn(String) -> BundleError,
    ) -> Result<KernelEntry, BundleError> {
        let entry: KernelEntry = serde_json::from_slice(bytes).map_err(|e| wrong(e.to_string()))?;
        if entry.classes.len() > MOST_CLASSES {
            return Err(wrong(format!("more than {MOST_CLASSES} classes")));
        }
        for class in &entry.classes {
            if [&class.types, &class.dims, &class.tensors].iter().any(|text| text.len() > MOST_TEXT) {
                return Err(wrong(format!("a class is named by more than {MOST_TEXT} characters")));
            }
            let spec = parse_class(&class.types, &class.dims, &class.tensors);
            let Some(spec) = spec else { return Err(wrong(format!("`{}` is no class", class.text()))) };
            let dims = class.dims.split_whitespace().count();
            if class.variants.len() > MOST_VARIANTS || spec.dims.len() != dims {
                return Err(wrong(format!("`{}` names a dim twice, or has too many variants", class.text())));
            }
            let is_known = |v: &Variant| {
                let is_there = |c: VariantCode| c.image < images && c.cubin.is_none_or(|cubin| cubin.image < images);
                let are_few = v.packers.len() <= MOST_PACKERS;
                are_few && v.codes().all(is_there) && v.config.parse::<Config>().is_ok()
            };
            if let Some(v) = class.variants.iter().find(|v| !is_known(v)) {
                return Err(wrong(format!("variant `{}` of `{}` is none", shown(&v.config), class.text())));
            }
            if !class.tables.iter().all(|t| t.table.is_sound(dims, class.variants.len())) {
                return Err(wrong(format!("the choices for `{}` do not hold together", class.text())));
            }
        }
        Ok(entry)
    }
}
