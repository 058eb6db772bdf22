//! Kernels for tests of the code generator: shipped ones at chosen sizes, and those of the case files.

#[cfg(feature = "llvm")]
use atlas_codegen::KernelImage;
use atlas_codegen::Target;
use atlas_dsl::op::Precision;
use atlas_dsl::{Config, Diagnostics, Kernel, Op, Verified, parse_kernel, verify};
#[cfg(feature = "llvm")]
use atlas_dsl::{DType, Schedule};
use atlas_ops::Problem;
#[cfg(feature = "llvm")]
use atlas_ops::cases;
use std::path::{Path, PathBuf};

/// A shipped kernel for contiguous tensors of these sizes. Knobs not named keep their default.
#[cfg(feature = "llvm")]
pub(crate) fn shipped(name: &str, dtype: DType, dims: &[u64], config: &str) -> (Verified<Kernel>, Schedule) {
    let problem = cases::problem(name, dtype, dims).unwrap_or_else(|| panic!("no kernel `{name}`"));
    let given: Config = config.parse().unwrap_or_else(|e| panic!("{config}: {e}"));
    let mut config = problem.kernel.default_config();
    config.tile.extend(given.tile);
    config.schedule = given.schedule;
    (build(&problem, &config), config.schedule)
}

/// The kernel of a problem, for contiguous tensors.
pub(crate) fn build(p: &Problem, config: &Config) -> Verified<Kernel> {
    try_build(p, config).unwrap_or_else(|e| panic!("{p} with {config}: {e}"))
}

/// The same, or why there is none.
pub(crate) fn try_build(p: &Problem, config: &Config) -> Result<Verified<Kernel>, Diagnostics> {
    (p.kernel.build)(&p.kernel.specialization(p.dtype, &p.dims), config).and_then(verify)
}

/// The kernel of a case file, `tests/cases/tile/NAME.tile`.
pub(crate) fn case(name: &str) -> Verified<Kernel> {
    let path = cases_folder().join(format!("{name}.tile"));
    let source = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    parse_kernel(&source).and_then(verify).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A kernel of `tests/cases/exact`, in an element type. `tf32`, `bf16x3` and `tf32x3` are f32 with products of that precision.
pub(crate) fn exact_case(name: &str, element: &str) -> Verified<Kernel> {
    let path = Path::new(crate::ROOT).join(format!("tests/cases/exact/{name}.tile"));
    let source = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (dtype, precision) = match element {
        "tf32" | "bf16x3" | "tf32x3" => ("f32", element),
        dtype => (dtype, "default"),
    };
    let precise = |line: &str| match line.split_once(" : ") {
        Some((dot, ty)) if dot.contains("= dot") => format!("{dot} precision {precision} : {ty}\n"),
        _ => format!("{line}\n"),
    };
    let source: String = source.replace("bf16", dtype).lines().map(precise).collect();
    parse_kernel(&source).and_then(verify).unwrap_or_else(|e| panic!("{name} in {element}: {e}\n{source}"))
}

/// The element types in which they are tried.
pub(crate) const ELEMENTS: [&str; 4] = ["bf16", "f16", "f32", "tf32"];

/// Those whose products have no meaning in the ring.
pub(crate) const SPLIT_ELEMENTS: [&str; 2] = ["bf16x3", "tf32x3"];

/// Sizes of a kernel: dims by name.
pub(crate) type Sizes = &'static [(&'static str, u64)];

/// Kernels of `tests/cases/exact` and sizes for them, ragged ones among them.
pub(crate) const CASES: [(&str, &[Sizes]); 19] = [
    ("stored", &[&[("G", 3), ("M", 70), ("N", 72)], &[("G", 1), ("M", 64), ("N", 64)]]),
    ("other", &[&[("N", 32), ("K", 64)], &[("N", 37), ("K", 53)]]),
    ("state", &[&[("N", 32), ("K", 64)]]),
    ("batched", &[&[("G", 2), ("M", 32), ("N", 16), ("K", 64)], &[("G", 1), ("M", 37), ("N", 24), ("K", 72)]]),
    ("transposed", &[&[("M", 24), ("N", 33), ("K", 56)]]),
    ("chained", &[&[("N", 32), ("H", 64)], &[("N", 21), ("H", 72)]]),
    ("sums", &[&[("N", 48), ("T", 3)], &[("N", 37), ("T", 3)]]),
    ("steps", &[&[("B", 2)]]),
    ("masked", &[&[("B", 2)]]),
    ("elementwise", &[&[("N", 8)], &[("N", 13)]]),
    ("negated", &[&[("N", 13)]]),
    ("twice", &[&[("M", 19), ("N", 16), ("K", 40)]]),
    ("edges", &[&[("N", 21), ("K", 37)]]),
    ("columns", &[&[("M", 32)], &[("M", 37)]]),
    ("warpgroup", &[&[("M", 37), ("N", 72), ("K", 200)], &[("M", 128), ("N", 64), ("K", 64)]]),
    ("handed", &[&[("M", 70), ("N", 64), ("K", 136)]]),
    ("residual", &[&[("M", 70), ("N", 136), ("K", 136)]]),
    ("beside", &[&[("M", 70), ("N", 64), ("K", 328)]]),
    ("wide", &[&[("M", 70), ("N", 520), ("K", 136)]]),
];

/// Targets by name that multiply the tiles of a kernel in different ways.
pub(crate) fn product_targets(kernel: &Kernel) -> Vec<&'static str> {
    let by_warpgroups = |op: &Op| match op {
        Op::Dot { a, precision, .. } => kernel.ty(*a).dtype.is_half() || *precision == Precision::Tf32,
        _ => false,
    };
    if kernel.insts.values().any(by_warpgroups) { vec!["sm_80", "sm_90", "sm_90a"] } else { vec!["sm_80", "sm_90"] }
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
    Path::new(crate::ROOT).join("tests/cases/tile")
}

/// A target by name.
pub(crate) fn target(name: &str) -> Target {
    name.parse().unwrap_or_else(|e| panic!("{e}"))
}

/// Bytes of shared memory that a CTA has on each target.
#[cfg(feature = "llvm")]
const SHARED_EVERYWHERE: u32 = 99 << 10;

/// Kernels that the simulator has executed on the same arguments. A target decides which code a kernel has, and what reads the code
/// refuses what the target does not have. It is then executed in the same way for each target, so once is enough.
#[cfg(feature = "llvm")]
#[derive(Default)]
pub(crate) struct Executed<S>(Vec<(S, KernelImage)>);

#[cfg(feature = "llvm")]
impl<S: PartialEq> Executed<S> {
    /// Whether equal code was executed under a schedule of the simulator. From now on it was.
    pub(crate) fn has(&mut self, schedule: S, image: &KernelImage) -> bool {
        if image.shared_bytes > SHARED_EVERYWHERE {
            return false;
        }
        let names_target = |line: &&str| line.starts_with(".target") || line.starts_with(".version");
        let ptx = image.ptx.lines().filter(|line| !names_target(line)).flat_map(|line| [line, "\n"]).collect();
        let target = Target { sm: 0, specific: false };
        let launch = (schedule, KernelImage { ptx, ptx_version: (0, 0), target, ..image.clone() });
        let was_executed = self.0.contains(&launch);
        if !was_executed {
            self.0.push(launch);
        }
        was_executed
    }
}

/// Pseudo-random bits, the same in every run.
pub(crate) struct Bits(pub(crate) u64);

impl Bits {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}
