//! Kernels for tests of the code generator: shipped ones at sizes of a test's choice, and those of the case files.

use atlas::codegen::Target;
use atlas::dsl::specialization::{DimFact, largest_class};
use atlas::dsl::{Config, DType, Kernel, Schedule, Specialization, Verified, parse_kernel, verify};
use atlas::ops::{Problem, cases};
use std::path::{Path, PathBuf};

/// A shipped kernel for contiguous tensors of these sizes. Knobs not named keep their default.
pub(crate) fn shipped(name: &str, dtype: DType, dims: &[u64], config: &str) -> (Verified<Kernel>, Schedule) {
    let problem = cases::problem(name, dtype, dims).unwrap_or_else(|| panic!("no kernel `{name}`"));
    let given: Config = config.parse().unwrap_or_else(|e| panic!("{config}: {e}"));
    let mut config = problem.kernel.default_config();
    given.tile.iter().for_each(|(key, &value)| config.set(key, value));
    config.schedule = given.schedule;
    (build(&problem, &config), config.schedule)
}

/// The kernel of a problem, for contiguous tensors.
pub(crate) fn build(p: &Problem, config: &Config) -> Verified<Kernel> {
    let mut spec = Specialization::default();
    for t in p.kernel.types {
        spec = spec.with_type(t.name, p.dtype);
    }
    for (d, &n) in p.kernel.dims.iter().zip(&p.dims) {
        spec = spec.with_dim(d.name, if d.whole { DimFact::Const(n) } else { DimFact::Dynamic(largest_class(n)) });
    }
    let kernel = (p.kernel.build)(&spec, config).and_then(verify);
    kernel.unwrap_or_else(|e| panic!("{p} with {config}: {e}"))
}

/// The kernel of a case file, `tests/cases/tile/NAME.tile`.
pub(crate) fn case(name: &str) -> Verified<Kernel> {
    let path = cases_folder().join(format!("{name}.tile"));
    let source = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    parse_kernel(&source).and_then(verify).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The names of the case files whose kernels are well formed.
pub(crate) fn case_names() -> Vec<String> {
    let entries = std::fs::read_dir(cases_folder()).unwrap_or_else(|e| panic!("no case files: {e}"));
    let files = entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "tile"));
    let stems = files.filter_map(|p| Some(p.file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<String> = stems.filter(|name| !name.starts_with("error_")).collect();
    names.sort();
    names
}

fn cases_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/tile")
}

/// A target by name.
pub(crate) fn target(name: &str) -> Target {
    name.parse().unwrap_or_else(|e| panic!("{e}"))
}
