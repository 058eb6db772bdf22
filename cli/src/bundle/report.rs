//! The content of a bundle, as text and as JSON.

use super::super::print::say;
use super::super::show;
use anyhow::Result;
use atlas_runtime::bundle::{Bundle, ClassEntry, KernelEntry, MachineTable, shown};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn entries(bundle: &Bundle) -> Result<Vec<(String, Arc<KernelEntry>)>> {
    let names: Vec<String> = bundle.kernels().map(str::to_owned).collect();
    let entry = |name: String| Ok(bundle.entry(&name).transpose()?.map(|entry| (name, entry)));
    names.into_iter().filter_map(|name| entry(name).transpose()).collect()
}

/// A line for each reason why variants of a class have no evidence.
pub(super) fn untried(bundle: &Bundle) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for (name, entry) in entries(bundle)? {
        for class in &entry.classes {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for why in class.variants.iter().filter_map(|v| v.no_evidence.as_deref()) {
                *counts.entry(why).or_default() += 1;
            }
            let of = [&name, &class.types, &class.dims, &class.tensors].map(String::as_str);
            let of = of.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
            lines.extend(
                counts.iter().map(|(why, n)| format!("{n} variants of `{of}` have no evidence: {}", shown_line(why))),
            );
        }
    }
    Ok(lines)
}

/// Prints a row for each class.
pub(super) fn print(bundle: &Bundle, bytes: u64, as_json: bool) -> Result<()> {
    let entries = entries(bundle)?;
    if as_json {
        let kernels: serde_json::Map<_, _> =
            entries.iter().map(|(name, e)| (name.clone(), json!({ "classes": e.classes }))).collect();
        show::json(&json!({ "made_by": bundle.made_by(), "bytes": bytes, "kernels": kernels }));
        return Ok(());
    }
    let mut table = show::table(&["kernel", "types", "dims", "tensors", "machines", "variants", "spills", "evidence"]);
    show::right(&mut table, &[5, 6]);
    for (name, entry) in &entries {
        for class in &entry.classes {
            let machines: Vec<String> = class.tables.iter().map(machine).collect();
            table.add_row(vec![
                shown(name),
                shown(&class.types),
                shown(&class.dims),
                shown(&class.tensors),
                shown(&machines.join(", ")),
                class.variants.len().to_string(),
                spills(class),
                shown_line(&evidence(class)),
            ]);
        }
    }
    say!("{table}");
    say!("{}: {:.1} KB, made by {}", bundle.origin(), bytes as f64 / 1e3, shown(bundle.made_by()));
    Ok(())
}

/// A reason from this program may be longer than a word from a file.
fn shown_line(text: &str) -> String {
    text.lines().map(shown).collect::<Vec<_>>().join(" ")
}

/// The machine of a table, with the target of its code if that differs: `sm_90`, `NVIDIA H200 (sm_90a)`.
fn machine(of: &MachineTable) -> String {
    let MachineTable { target, table } = of;
    if *target == table.machine { target.clone() } else { format!("{} ({target})", table.machine) }
}

/// The most bytes that a variant spills.
fn spills(class: &ClassEntry) -> String {
    let all: Option<Vec<u32>> = class.variants.iter().map(|v| v.resources.map(|r| r.spills)).collect();
    all.and_then(|all| all.into_iter().max()).map_or_else(|| "?".to_owned(), |n| n.to_string())
}

/// How many variants ran in the simulator, the largest ratio of an error to its bound, and why the others did not run.
fn evidence(class: &ClassEntry) -> String {
    let tried = class.variants.iter().filter(|v| !v.evidence.is_empty()).count();
    let share = class.variants.iter().flat_map(|v| &v.evidence).map(|e| e.error / e.bound).fold(0.0, f64::max);
    let why: BTreeSet<&str> = class.variants.iter().filter_map(|v| v.no_evidence.as_deref()).collect();
    let why: Vec<&str> = why.into_iter().collect();
    let tried = match (tried, why.is_empty()) {
        (0, true) => return "none".to_owned(),
        (0, false) => return format!("no evidence: {}", why.join("; ")),
        (n, _) => format!("{n} simulated, error {:.0} % of its bound", 100.0 * share),
    };
    let others = class.variants.iter().filter(|v| v.no_evidence.is_some()).count();
    if others == 0 { tried } else { format!("{tried}; {others} with no evidence: {}", why.join("; ")) }
}
