//! One small run of a kernel in the simulator, for `explain`: bank conflicts, sectors, instructions and bytes moved.

use super::arguments::Arguments;
use super::{input, oracle, show};
use anyhow::Result;
use atlas_codegen::Machine;
use atlas_dsl::def::DimDef;
use atlas_dsl::ir::GridExtent;
use atlas_dsl::{Config, Kernel, KernelDef, Specialization};
use atlas_runtime::{CacheDir, Device, Launch, SimAccess, SimOptions, SimRun};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// A run and the sizes that it was given, or why there is none.
pub(super) struct Counts {
    dims: BTreeMap<String, u64>,
    run: Result<Option<Arc<SimRun>>, String>,
}

/// Runs a kernel on a few tiles, the last of them ragged: dims used whole keep their sizes, as do those that are small. Where those
/// sizes are not as the kernel demands, or another specialization's, others are looked for. What cannot be run says why.
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
    let named = |sizes: Vec<u64>| def.dims.iter().map(|d| d.name.to_owned()).zip(sizes).collect();
    let mut dims: BTreeMap<String, u64> = def.dims.iter().map(size).collect();
    let types = spec.types.iter().filter_map(|(name, t)| Some((def.types.iter().find(|d| d.name == name)?.name, *t)));
    let is_same = input::specialization_of(def, &dims, &types.collect())? == *spec;
    if !is_same || input::required(def, &dims).is_err() {
        match oracle::small(def, spec, kernel, config) {
            Some(sizes) => dims = named(sizes),
            None => return Ok(Counts { dims, run: Err("no small sizes of this specialization are known".to_owned()) }),
        }
    }
    let device = Device::sim_with(machine, SimOptions::default(), CacheDir::from_env());
    let sizes: Vec<u64> = def.dims.iter().map(|d| dims[d.name]).collect();
    let run = || -> Result<()> {
        let types = oracle::types(def, spec);
        let mut arguments = Arguments::new(def, &types, &sizes, &BTreeMap::new(), &BTreeMap::new(), &device)?;
        Ok(def.launch_with(&device, config, arguments.args())?)
    };
    let run = run().map(|()| device.simulated()).map_err(|e| format!("{e:#}"));
    Ok(Counts { dims, run })
}

impl Counts {
    /// As JSON.
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
            "dims": self.dims, "warp_instructions": totals.warp_instructions,
            "mix": run.mix().into_iter().collect::<BTreeMap<_, _>>(),
            "global_load_bytes": totals.loads.bytes, "global_store_bytes": totals.stores.bytes,
            "shared_bytes": totals.shared.bytes, "bulk_bytes": totals.bulk_bytes,
            "bank_conflicts": totals.shared.conflicts,
            "accesses": run.accesses().into_iter().map(access).collect::<Vec<_>>(),
        })
    }

    /// As text for people.
    pub(super) fn text(&self) -> String {
        let shape: Vec<String> = self.dims.iter().map(|(name, n)| format!("{name}={n}")).collect();
        let run = match &self.run {
            Ok(Some(run)) => run,
            Ok(None) => return format!("sim      {}: nothing to run\n", shape.join(" ")),
            Err(why) => return format!("sim      not run: {why}\n"),
        };
        let totals = run.report.counters.totals();
        let mix: Vec<String> = run.mix().into_iter().map(|(name, n)| format!("{name} {n}")).collect();
        let mut out = format!(
            "sim      {}: {} warp instructions, {} bank conflicts\nmix      {}\nbytes    global {} loaded, {} stored; shared {}; bulk {}\n",
            shape.join(" "),
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
