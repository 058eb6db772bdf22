//! Removes every synchronising instruction of every kernel, one at a time, and lists those whose absence is not found.

use super::good::{BASES, Base, first_failure};
use super::plant::snapshot;
use crate::harness::{self, Failure};
use crate::index::Kernel;
use rayon::prelude::*;
use std::fmt::Write;

/// The beginnings of instructions that wait or release.
const SYNCHRONISING: &[&str] = &[
    "bar.",
    "barrier.",
    "cp.async.bulk.commit",
    "cp.async.bulk.wait",
    "cp.async.commit",
    "cp.async.mbarrier",
    "cp.async.wait",
    "fence",
    "mbarrier.",
    "membar",
    "wgmma.commit",
    "wgmma.fence",
    "wgmma.wait",
];

/// An instruction on a line, past its guard.
fn instruction(line: &str) -> &str {
    let line = line.trim_start_matches(['{', '\t', ' ']);
    if line.starts_with('@') { line.split_once([' ', '\t']).map_or("", |guarded| guarded.1) } else { line }
}

/// The fault that is found without the instruction on a line.
fn without(base: &Base, kernel: &Kernel, line: usize) -> String {
    let lines = kernel.text.lines().enumerate().map(|(i, text)| if i == line { "" } else { text });
    let text = lines.collect::<Vec<_>>().join("\n");
    let program = harness::compile(&text, &kernel.entry);
    match first_failure(&(base.setup)(), kernel, &program) {
        None => "nothing".to_owned(),
        Some((_, Failure::Fault(fault))) => format!("{:?}", fault.kind),
        Some((_, Failure::Result(_))) => "wrong result".to_owned(),
    }
}

/// The simulator finds nothing if another instruction does the same, if these sizes never reach the instruction, or if a
/// barrier orders the fence of an mbarrier init. It does not detect volatile accesses that are out of order either.
#[test]
fn each_synchronising_instruction_is_missed() {
    let rows: Vec<String> = BASES
        .par_iter()
        .map(|base| {
            let kernel = base.kernel();
            let mut rows = format!("{}\n", base.name);
            for (i, line) in kernel.text.lines().enumerate() {
                if SYNCHRONISING.iter().any(|start| instruction(line).starts_with(start)) {
                    let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
                    writeln!(rows, "    {:<18} {words}", without(base, &kernel, i)).unwrap();
                }
            }
            rows
        })
        .collect();
    snapshot("each", &rows.concat());
}
