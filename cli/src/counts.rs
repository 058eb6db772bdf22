//! One small run of a kernel in the simulator, for `explain`: bank conflicts, sectors, instructions and bytes moved.

use super::arguments::Arguments;
use super::{input, oracle, show, sizes};
use anyhow::Result;
use atlas_codegen::Machine;
use atlas_dsl::def::DimDef;
use atlas_dsl::ir::GridExtent;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, Kernel, KernelDef, Specialization};
use atlas_runtime::bundle::ClassEntry;
use atlas_runtime::{CacheDir, Device, Launch, SimAccess, SimOptions, SimRun};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// A run and its sizes, or why there is none.
pub(super) struct Counts {
    dims: BTreeMap<String, u64>,
    /// The facts of the dims, if the run uses another specialization than the requested one.
    other: Option<String>,
    run: Result<Option<Arc<SimRun>>, String>,
}

/// Runs a kernel on a few tiles, the last of them ragged. Dims used whole keep their sizes, as do small ones. If these
/// sizes do not meet the kernel's requirements or belong to another specialization, others are searched for. If the
/// kernel cannot be run, the result says why.
pub(super) fn count(
    def: &'static KernelDef,
    kernel: &Kernel,
    machine: Machine,
    spec: &Specialization,
    dims: &BTreeMap<String, u64>,
    config: &Config,
) -> Result<Counts> {
    let ragged = |tile: u32| u64::from(tile) + u64::from(tile / 2);
    let largest = config.tile.values().copied().max().unwrap_or(1);
    let most = |name: &str| {
        let extents = kernel.grid.iter().map(|axis| axis.extent);
        let own = extents.into_iter().find_map(|extent| match extent {
            GridExtent::Points(d) => (kernel.dims[d].name == name).then_some(2),
            GridExtent::Tiles { dim, size } | GridExtent::UpTo { dim, size } => {
                (kernel.dims[dim].name == name).then(|| ragged(size))
            }
        });
        own.unwrap_or_else(|| ragged(largest))
    };
    let size = |d: &DimDef| {
        let size = dims.get(d.name).copied().unwrap_or(u64::MAX);
        (d.name.to_owned(), if d.whole { size } else { size.min(most(d.name)) })
    };
    let named =
        |sizes: Vec<u64>| -> BTreeMap<String, u64> { def.dims.iter().map(|d| d.name.to_owned()).zip(sizes).collect() };
    let few: BTreeMap<String, u64> = def.dims.iter().map(size).collect();
    let of = |dims: &BTreeMap<String, u64>| {
        let types = def.types.iter().filter_map(|t| Some((t.name, *spec.types.get(t.name)?)));
        input::specialization_of(def, dims, &types.collect())
    };
    let is_taken = sizes::required(def, &few).is_ok();
    let same = (is_taken && of(&few)? == *spec).then(|| few.clone());
    let same = same.or_else(|| oracle::small(def, spec, kernel, config, None).map(named));
    // If its own specialization has no small sizes, those of another one are the next best.
    let other =
        || is_taken.then(|| few.clone()).or_else(|| oracle::small(def, &any(spec), kernel, config, None).map(named));
    let Some(dims) = same.or_else(other) else {
        return Ok(Counts {
            dims: few,
            other: None,
            run: Err("no small sizes that the kernel takes are known".to_owned()),
        });
    };
    let ran = of(&dims)?;
    let other = (ran != *spec).then(|| ClassEntry::new(def, &ran).dims);
    let device = Device::sim_with(machine, SimOptions::default(), CacheDir::from_env());
    let sizes: Vec<u64> = def.dims.iter().map(|d| dims[d.name]).collect();
    let run = || -> Result<()> {
        let types = oracle::types(def, spec);
        let mut arguments = Arguments::new(def, &types, &sizes, &BTreeMap::new(), &BTreeMap::new(), &device)?;
        Ok(def.launch_with(&device, config, arguments.args())?)
    };
    let run = run().map(|()| device.simulated()).map_err(|e| format!("{e:#}"));
    Ok(Counts { dims, other, run })
}

/// The specialization without facts about sizes.
fn any(spec: &Specialization) -> Specialization {
    let mut any = spec.clone();
    for fact in any.dims.values_mut() {
        if let DimFact::Dynamic(divisor) = fact {
            *divisor = 1;
        }
    }
    any
}

impl Counts {
    /// The counts as JSON.
    pub(super) fn json(&self) -> Value {
        let run = match &self.run {
            Ok(Some(run)) => run,
            Ok(None) => return Value::Null,
            Err(why) => return json!({ "error": why }),
        };
        let totals = run.report.counters.totals();
        let access = |a: SimAccess| {
            json!({
                "line": a.line, "opcode": a.opcode, "shared_requests": a.shared.requests,
                "shared_bytes": a.shared.bytes, "bank_conflicts": a.shared.conflicts,
                "global_requests": a.global.requests, "global_bytes": a.global.bytes, "sectors": a.global.sectors,
            })
        };
        json!({
            "dims": self.dims, "specialization": self.other, "warp_instructions": totals.warp_instructions,
            "mix": run.mix().into_iter().collect::<BTreeMap<_, _>>(),
            "global_load_bytes": totals.loads.bytes, "global_store_bytes": totals.stores.bytes,
            "shared_bytes": totals.shared.bytes, "bulk_bytes": totals.bulk_bytes,
            "bank_conflicts": totals.shared.conflicts,
            "accesses": run.accesses().into_iter().map(access).collect::<Vec<_>>(),
        })
    }

    /// The counts as text.
    pub(super) fn text(&self) -> String {
        let shape: Vec<String> = self.dims.iter().map(|(name, n)| format!("{name}={n}")).collect();
        let run = match &self.run {
            Ok(Some(run)) => run,
            Ok(None) => return format!("sim      {}: nothing to run\n", shape.join(" ")),
            Err(why) => return format!("sim      not run: {why}\n"),
        };
        let other = self.other.as_ref().map(|dims| format!(", another kernel than above, of `{dims}`"));
        let totals = run.report.counters.totals();
        let mix: Vec<String> = run.mix().into_iter().map(|(name, n)| format!("{name} {n}")).collect();
        let mut out = format!(
            "sim      {}{}: {} warp instructions, {} bank conflicts\nmix      {}\nbytes    global {} loaded, {} stored; shared {}; bulk {}\n",
            shape.join(" "),
            other.unwrap_or_default(),
            totals.warp_instructions,
            totals.shared.conflicts,
            mix.join(", "),
            totals.loads.bytes,
            totals.stores.bytes,
            totals.shared.bytes,
            totals.bulk_bytes,
        );
        let mut table = show::table(&["line", "access", "requests", "bytes", "conflicts/request", "sectors/request"]);
        show::right(&mut table, &[0, 2, 3, 4, 5]);
        let per = |n: u64, requests: u64| match requests {
            0 => "-".to_owned(),
            _ => format!("{:.2}", n as f64 / requests as f64),
        };
        for a in run.accesses() {
            let (shared, global) = (a.shared, a.global);
            table.add_row([
                a.line.to_string(),
                a.opcode,
                shared.requests.max(global.requests).to_string(),
                shared.bytes.max(global.bytes).to_string(),
                per(shared.conflicts, shared.requests),
                per(global.sectors, global.requests),
            ]);
        }
        // Writing to a string does not fail.
        let _ = writeln!(out, "\n{table}");
        out
    }
}
