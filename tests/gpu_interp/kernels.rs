//! The kernels that are executed after every pass: shipped ones, those of the case files, and generated ones.

use crate::command::prints;
use crate::gpu_interp::trial::{Tally, Trial, tried};
use crate::kernels::{CASES, ELEMENTS, SPLIT_ELEMENTS, build, case, case_names, exact_case, product_targets, target};
use atlas_dsl::ir::{DimSize, GridExtent};
use atlas_dsl::{Config, Dim, Kernel, Schedule, Verified, parse_kernel, verify};
use atlas_ops::cases;

/// The number of generated kernels.
const COUNT: u64 = 480;

fn schedule(stages: u32, warps: u32) -> Schedule {
    Schedule { stages, warps, ..Schedule::default() }
}

/// All disagreements so far, and how much was executed.
#[derive(Default)]
struct Outcome {
    wrong: Vec<String>,
    tally: Tally,
}

impl Outcome {
    /// Tries a kernel in some schedules.
    fn add(&mut self, name: &str, kernel: &Verified<Kernel>, sizes: &[(&str, u64)], schedules: &[Schedule]) {
        let trial = Trial::new(kernel, sizes);
        for schedule in schedules {
            for arch in product_targets(kernel).into_iter().skip(1) {
                self.wrong.extend(tried(name, &trial, schedule, target(arch), &mut self.tally).err());
            }
        }
    }

    /// Fails if a kernel disagrees, or if too few were executed for the test to be meaningful.
    #[track_caller]
    fn holds(&self, kernels: usize, in_ring: usize) {
        // The shortest are the easiest to read.
        let mut wrong = self.wrong.clone();
        wrong.sort_by_key(String::len);
        let shown = &wrong[..wrong.len().min(8)];
        assert!(wrong.is_empty(), "{} are wrong, such as:\n{}", wrong.len(), shown.join("\n"));
        let Tally { kernels: tried, in_ring: exact, runs, elements, judged, .. } = self.tally;
        let enough = tried >= kernels && exact >= in_ring && runs >= 3 * tried && 100 * judged >= 90 * elements;
        assert!(enough, "{:?}", self.tally);
    }
}

#[test]
fn passes_keep_shipped_kernels() {
    let mut all = Outcome::default();
    for p in cases::simulation().iter().filter(|p| p.layouts.is_empty() && p.fills.is_empty() && !p.dims.contains(&0)) {
        let kernel = build(p, &p.kernel.default_config());
        let sizes: Vec<(&str, u64)> = p.kernel.dims.iter().map(|d| d.name).zip(p.dims.iter().copied()).collect();
        all.add(&p.to_string(), &kernel, &sizes, &[schedule(1, 4), schedule(3, 2)]);
    }
    all.holds(250, 100);
}

/// A size for each dim, ragged where possible. The dims that the grid counts element by element get one too.
fn ragged(kernel: &Kernel) -> Vec<(&str, u64)> {
    let counted = |dim: Dim| kernel.grid.iter().any(|axis| axis.extent == GridExtent::Points(dim));
    let dims = kernel.dims.iter().filter_map(|(dim, data)| match data.size {
        DimSize::Dynamic { divisor } if counted(dim) => Some((data.name.as_str(), u64::from(divisor))),
        DimSize::Dynamic { divisor } => Some((data.name.as_str(), 75u64.next_multiple_of(divisor.into()))),
        DimSize::Const(_) => None,
    });
    dims.collect()
}

#[test]
fn passes_keep_the_kernels_of_case_files() {
    let mut all = Outcome::default();
    let schedules = [schedule(1, 4), schedule(2, 1), schedule(3, 2), schedule(4, 8)];
    for name in case_names() {
        let kernel = case(&name);
        all.add(&name, &kernel, &ragged(&kernel), &schedules);
    }
    for (name, sizes) in CASES {
        for element in ELEMENTS.into_iter().chain(SPLIT_ELEMENTS) {
            let kernel = exact_case(name, element);
            sizes.iter().for_each(|sizes| all.add(&format!("{name} {element}"), &kernel, sizes, &schedules));
        }
    }
    all.holds(250, 200);
}

/// Tries a generated kernel. Its text begins with its sizes and its config.
fn generated(text: &str, all: &mut Outcome) {
    let head = text.lines().next().unwrap_or_default();
    let (sizes, config) = head.split_once(';').unwrap_or_else(|| panic!("no config in {head}"));
    let sizes: Vec<(&str, u64)> =
        sizes.split(' ').filter_map(|part| part.split_once('=')).map(|(n, x)| (n, x.parse().unwrap_or(1))).collect();
    let config: Config = config.parse().unwrap_or_else(|e| panic!("{config}: {e}"));
    assert!(config.tile.is_empty(), "{config}");
    let schedule = config.schedule;
    let kernel = parse_kernel(text).and_then(verify).unwrap_or_else(|e| panic!("{e}\n{text}"));
    all.add(text, &kernel, &sizes, &[schedule]);
}

/// The texts of kernels of some seeds.
fn texts(seed: u64, count: u64) -> Vec<String> {
    let all = prints(&["fuzz", "--seed", &seed.to_string(), "--count", &count.to_string(), "--list"]);
    all.split("// dims ").skip(1).map(|text| format!("// dims {text}")).collect()
}

/// The first disagreement among the kernels of some seeds.
#[cfg(feature = "mutations")]
pub(crate) fn disagreement(seed: u64, count: u64) -> Option<String> {
    texts(seed, count).iter().find_map(|text| {
        let mut one = Outcome::default();
        generated(text, &mut one);
        one.wrong.pop()
    })
}

#[test]
fn passes_keep_generated_kernels() {
    let mut all = Outcome::default();
    texts(1, COUNT).iter().for_each(|text| generated(text, &mut all));
    all.holds(350, 5);
}
