//! What a bundle has, for people and as JSON.

use super::super::show;
use anyhow::Result;
use atlas_runtime::bundle::{Bundle, ClassEntry, KernelEntry};
use serde_json::json;
use std::sync::Arc;

/// Prints a row for each class.
pub(super) fn print(bundle: &Bundle, bytes: u64, as_json: bool) -> Result<()> {
    let entry = |name: &str| bundle.entry(name).transpose();
    let names: Vec<String> = bundle.kernels().map(str::to_owned).collect();
    let mut entries: Vec<(String, Arc<KernelEntry>)> = Vec::new();
    for name in names {
        if let Some(entry) = entry(&name)? {
            entries.push((name, entry));
        }
    }
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
            let machines: Vec<&str> = class.tables.iter().map(|t| t.table.machine.as_str()).collect();
            table.add_row(vec![
                name.clone(),
                class.types.clone(),
                class.dims.clone(),
                class.tensors.clone(),
                machines.join(", "),
                class.variants.len().to_string(),
                spills(class),
                evidence(class),
            ]);
        }
    }
    println!("{table}");
    println!("{}: {:.1} KB, made by {}", bundle.origin(), bytes as f64 / 1e3, bundle.made_by());
    Ok(())
}

/// The most bytes that a variant spills.
fn spills(class: &ClassEntry) -> String {
    let all: Option<Vec<u32>> = class.variants.iter().map(|v| v.resources.map(|r| r.spills)).collect();
    all.and_then(|all| all.into_iter().max()).map_or_else(|| "?".to_owned(), |n| n.to_string())
}

/// How many variants were run in the simulator, and the largest share of a bound that an error came to.
fn evidence(class: &ClassEntry) -> String {
    let tried = class.variants.iter().filter(|v| !v.evidence.is_empty()).count();
    let share = class.variants.iter().flat_map(|v| &v.evidence).map(|e| e.error / e.bound).fold(0.0, f64::max);
    match tried {
        0 => "none".to_owned(),
        n => format!("{n} simulated, error {:.0} % of its bound", 100.0 * share),
    }
}
