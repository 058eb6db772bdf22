//! `atlas bench`: measures the kernels on a GPU, and records the machine with the numbers.

use super::print::{say, tell};
use super::sample::{self, Memory, Timing};
use super::show::{self, Progress};
use super::sweep::Sweep;
use super::{bench_plans, gpu_lock, host_info, input, sizes};
use anyhow::{Context, Result, bail};
use atlas_dsl::{Config, DType};
use atlas_ops::cases::{self, Bench};
use atlas_ops::problem::TensorParam;
use atlas_runtime::{Device, Tensor};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A result that is slower than before by more than this fraction is a regression.
const REGRESSION: f64 = 0.05;
/// The number of indices of the independent dim that are checked, and the most operations of their references.
const CHECKED: usize = 64;
const REFERENCE: f64 = 2e10;
/// Elements of the tensor that is copied to measure bandwidth: 1 GiB of bf16.
const COPIED: usize = 1 << 29;

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct BenchArgs {
    /// cuda:N, or best: the first GPU, else the CPU.
    #[arg(long, default_value = "best")]
    device: String,
    /// Only the results of this name.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    #[command(flatten)]
    problem: input::ProblemArgs,
    /// Measure at sizes of one dim, such as N=1..65536: each twice the one before. Needs --only.
    #[arg(long, value_name = "DIM=FIRST..LAST", requires = "only")]
    sweep: Option<Sweep>,
    /// Measure every config of the tune space.
    #[arg(long, conflicts_with = "config")]
    all_configs: bool,
    /// Timed runs of each kernel.
    #[arg(long, default_value_t = 50)]
    samples: usize,
    /// Also record this many launches of each kernel in one CUDA graph (40 unless given), run that, and report the time of one
    /// launch: with a warm L2 cache, and without the host's part of a launch. Of a plan of several launches, record all of them and
    /// report the time of all, with the L2 cache overwritten before each run.
    #[arg(long, value_name = "LAUNCHES", num_args = 0..=1, default_missing_value = "40", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    graph: Option<u32>,
    /// Compare with the JSON of an earlier run; a kernel slower by more than 5 % is an error.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the benchmarks.
pub(super) fn run(args: &BenchArgs) -> Result<bool> {
    let before = args.against.as_deref().map(load).transpose()?;
    // A benchmark's name selects only it; an op's name selects all of its benchmarks.
    let exact = args.only.as_deref().is_some_and(|o| cases::benches().iter().any(|b| b.name == o));
    let benches: Vec<Bench> = cases::benches()
        .into_iter()
        .filter(|b| args.only.as_deref().is_none_or(|o| o == b.name || (!exact && o == b.problem.op.name)))
        .collect();
    // A plan uses the chosen configs, and its own sizes unless it is named with others.
    let is_named = args.only.is_some() || args.problem.dims.is_none();
    let as_is = args.problem.config.is_none() && is_named && !args.all_configs && args.sweep.is_none();
    let plans = if as_is { bench_plans::chosen(args.only.as_deref()) } else { Vec::new() };
    let sized = |plan| sizes::of_plan(plan, args.problem.dims.as_deref());
    let plans = plans.into_iter().map(sized).collect::<Result<Vec<_>>>()?;
    if benches.is_empty() && plans.is_empty() {
        let (all, plans) = (cases::benches(), atlas_ops::plans::plans());
        let name = args.only.as_deref().unwrap_or("");
        if plans.iter().any(|p| p.name == name) {
            bail!(
                "`{name}` is several launches, each with its own config: it takes no --config, --all-configs or --sweep"
            );
        }
        let names: Vec<&str> = all.iter().map(|b| b.name).chain(plans.iter().map(|p| p.name)).collect();
        bail!(
            "there is no benchmark `{name}`; the benchmarks, the nearest names first: {}",
            input::nearest_first(name, names).join(", ")
        );
    }
    let problems = problems(args);
    let sized = |(b, p): (&Bench, &input::ProblemArgs)| resized(b, p);
    let each = benches.iter().flat_map(|b| problems.iter().map(move |p| (b, p)));
    let benches = each.map(sized).collect::<Result<Vec<Bench>>>()?;
    let device = input::device_or(&args.device, "`atlas demo`, which runs on the CPU")?;
    if device.is_cpu() || device.simulates() {
        bail!("`bench` measures GPUs, and there is none here; `atlas doctor` says why, `atlas demo` runs on the CPU");
    }
    let _lock = gpu_lock::acquire(&device)?;
    let mut record = host_info::host_info(&device);
    record["device_name"] = json!(device.name());
    record["copy_gb_s"] = json!(copy_bandwidth(&device)?);
    let mut progress = Progress::new(benches.len() + plans.len());
    let mut results = Vec::new();
    for bench in &benches {
        progress.step(&format!("{} {}", bench.name, bench.problem.shape()));
        results.extend(measure(bench, &device, args)?);
    }
    for plan in &plans {
        progress.step(&format!("{} {}", plan.name, plan.shape()));
        results.push(bench_plans::measure(plan, &device, args.samples, args.graph.is_some())?);
    }
    drop(progress);
    let slower = before.as_ref().map(|b| compare(b, &mut results)).unwrap_or_default();
    let is_compared = before.is_none() || results.iter().any(|r| !r["against"].is_null());
    if let Some(other) = before.as_ref().map(|b| &b["record"]["device_name"]).filter(|n| **n != record["device_name"]) {
        tell!("warning: --against: the times before are of {other}, and these of {}", record["device_name"]);
    }
    if args.json {
        show::json(&json!({ "results": results, "record": record }));
    } else {
        print(&results, before.is_some());
        let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
        say!("copy {} GB/s on {device}, {}", text(&record["copy_gb_s"]), text(&record["date"]));
    }
    for name in &slower {
        tell!("error: {name} is slower than before by more than {:.0} %", REGRESSION * 100.0);
    }
    if !is_compared {
        tell!("error: --against: none of these results is among those before");
    }
    let wrong = results.iter().filter(|r| r["pass"] == false && r["refused"].is_null()).count();
    Ok(slower.is_empty() && is_compared && wrong == 0)
}

/// The sizes that the user asked for: one set, or those of a sweep.
fn problems(args: &BenchArgs) -> Vec<input::ProblemArgs> {
    let Some(sweep) = &args.sweep else { return vec![args.problem.clone()] };
    let at = |n: &u64| {
        let dims = format!("{},{}={n}", args.problem.dims.as_deref().unwrap_or(""), sweep.dim);
        input::ProblemArgs { dims: Some(dims), ..args.problem.clone() }
    };
    sweep.sizes.iter().map(at).collect()
}

/// A benchmark with the sizes and the element type that the user asked for.
fn resized(bench: &Bench, asked: &input::ProblemArgs) -> Result<Bench> {
    let p = &bench.problem;
    let sized = sizes::dims_beside(p.kernel, &p.dims, asked.dims.as_deref())?;
    let dims: Vec<u64> = p.kernel.dims.iter().map(|d| sized[d.name]).collect();
    let dtype = input::dtype_or(asked, p.dtype)?;
    input::specialization(p.kernel, &sized, dtype)?;
    sizes::required(p.kernel, &sized)?;
    sizes::runs(p.kernel, &sized)?;
    let mut problem = cases::model_problem(p.kernel.name, dtype, &dims).context("a kernel that no op has")?;
    problem.layouts.clone_from(&p.layouts);
    Ok(Bench { name: bench.name, problem })
}

/// Measures one benchmark, with one config or with all configs.
fn measure(bench: &Bench, device: &Device, args: &BenchArgs) -> Result<Vec<Value>> {
    let p = &bench.problem;
    let inputs = p.inputs();
    let memory = Memory::before(device)?;
    let mut prepared = p.prepare(device, &inputs)?;
    let configs: Vec<Option<Config>> = match &args.problem.config {
        Some(text) => vec![Some(input::config(p.kernel, text)?)],
        None if args.all_configs => p.kernel.configs().into_iter().map(Some).collect(),
        None => vec![None],
    };
    let bytes: f64 = p.tensors().iter().map(TensorParam::bytes).sum();
    let by_cost = REFERENCE * p.dim(p.op.batch) as f64 / (p.op.flops)(p).max(1.0);
    let expected = prepared.sample(&inputs, CHECKED.min(by_cost as usize).max(1));
    let mut rows = Vec::new();
    for config in configs {
        if args.all_configs && p.updates_in_place() {
            // The old tensors are dropped first, because the GPU may have room for only one set.
            drop(prepared);
            prepared = p.prepare(device, &inputs)?;
        }
        let mut row = json!({ "name": bench.name, "shape": p.shape(), "dtype": p.dtype.name() });
        let resolved = prepared.resolve(config.as_ref()).and_then(|launch| {
            launch.launch(prepared.args())?;
            device.synchronize()?;
            Ok(launch)
        });
        let launch = match resolved {
            Ok(launch) => launch,
            // In a sweep, some configs are not legal for the target.
            Err(e) if args.all_configs => {
                row["config"] = json!(config.map(|c| c.to_string()));
                row["refused"] = json!(e.to_string());
                tell!("{} {}: refused: {e}", bench.name, row["config"].as_str().unwrap_or(""));
                rows.push(row);
                continue;
            }
            Err(e) => return Err(e).with_context(|| format!("cannot run `{}`", bench.name)),
        };
        row["config"] = json!(launch.config().to_string());
        row["source"] = json!(launch.source().to_string());
        row["registers"] = json!(launch.facts().map(|f| f.registers));
        row["local_bytes"] = json!(launch.facts().map(|f| f.local_bytes));
        row["shared_bytes"] = json!(launch.facts().map(|f| f.shared_bytes));
        if rows.is_empty() {
            memory.write(device, &mut row)?;
        }
        let c = prepared.check_sample(&expected)?;
        let t = sample::on_device(device, args.samples, || Ok(launch.launch(prepared.args())?))?;
        // A sweep only measures the device's time.
        let host = (!args.all_configs).then(|| sample::on_host(device, || Ok(prepared.launch(config.as_ref())?)));
        row["median_ms"] = json!(t.median_ms);
        row["min_ms"] = json!(t.min_ms);
        if !args.all_configs {
            let clean = sample::behind_reads(device, args.samples, || Ok(launch.launch(prepared.args())?))?;
            row["clean_l2"] = json!(clean.map(Timing::to_json));
        }
        row["rel_err"] = json!(c.rel_f);
        row["tolerance"] = json!(p.bound());
        row["pass"] = json!(c.passes(p.bound()));
        row["gb_s"] = json!(bytes / t.median_ms / 1e6);
        row["tflops"] = json!((p.op.flops)(p) / t.median_ms / 1e9);
        row["launch_us"] = json!(host.transpose()?);
        if let Some(launches) = args.graph {
            let graph = device
                .default_stream()
                .capture(|recording| (0..launches).try_for_each(|_| launch.launch_on(recording, prepared.args())));
            let mut graph = graph.with_context(|| format!("cannot record `{}` in a CUDA graph", bench.name))?;
            row["graph"] = graph_json(launches, sample::of_graph(device, &mut graph, args.samples)?);
        }
        if args.all_configs {
            let wrong = if row["pass"] == true { "" } else { " WRONG" };
            tell!("{} {}: {}{wrong}", bench.name, launch.config(), show::time(t.median_ms));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The time of one of the launches that a graph records.
fn graph_json(launches: u32, all: Timing) -> Value {
    let one = |ms: f64| 1e3 * ms / f64::from(launches);
    json!({ "launches": launches, "median_us": one(all.median_ms), "min_us": one(all.min_ms), "l2": "warm" })
}

/// The bandwidth of the driver's own copy on the device: gigabytes read and written per second.
fn copy_bandwidth(device: &Device) -> Result<f64> {
    let from = Tensor::zeros(device, DType::Bf16, [COPIED])?;
    let mut to = Tensor::zeros(device, DType::Bf16, [COPIED])?;
    let stream = device.default_stream();
    let t = sample::on_device(device, 20, || Ok(atlas_runtime::timing::copy_on_device(&from, &mut to, &stream)?))?;
    Ok((4 * COPIED) as f64 / t.median_ms / 1e6)
}

/// The JSON of an earlier run, which must have results.
fn load(path: &Path) -> Result<Value> {
    let text =
        atlas_runtime::files::read_text(path).with_context(|| format!("--against: cannot read {}", path.display()))?;
    let wrong = || format!("--against: {} is not JSON of `atlas bench --json`", path.display());
    let value: Value = serde_json::from_str(&text).with_context(wrong)?;
    let is_one = |r: &Value| r["name"].is_string() && (r["median_ms"].is_number() || r["refused"].is_string());
    let results = value["results"].as_array().filter(|all| !all.is_empty() && all.iter().all(is_one));
    results.with_context(|| format!("{}: it has no results", wrong()))?;
    Ok(value)
}

/// Sets each result's ratio to the earlier result of the same problem and config. If a problem has one config in both
/// runs, these are compared even if the configs differ. Returns the names of those that are slower.
fn compare(before: &Value, results: &mut [Value]) -> Vec<String> {
    let empty = Vec::new();
    let old = before["results"].as_array().unwrap_or(&empty);
    let is_same = |keys: &[&str], a: &Value, b: &Value| keys.iter().all(|k| a[*k] == b[*k]);
    let problem = ["name", "shape", "dtype"];
    let now: Vec<Value> = results.to_vec();
    let mut slower = Vec::new();
    for r in results {
        let of_problem = |all: &[Value]| all.iter().filter(|o| is_same(&problem, o, r)).count();
        let is_only = of_problem(old) == 1 && of_problem(&now) == 1;
        let was = old.iter().find(|o| is_same(&problem, o, r) && (is_only || is_same(&["config"], o, r)));
        if let (Some(was), Some(is)) = (was.and_then(|o| o["median_ms"].as_f64()), r["median_ms"].as_f64()) {
            r["against"] = json!(is / was);
            if is > was * (1.0 + REGRESSION) {
                slower.push(format!("{} {}", r["name"].as_str().unwrap_or(""), r["config"].as_str().unwrap_or("")));
            }
        }
    }
    slower
}

fn print(results: &[Value], against: bool) {
    let mut headings = vec![
        "name",
        "shape",
        "dtype",
        "median",
        "clean L2",
        "min",
        "GB/s",
        "TFLOP/s",
        "launch",
        "regs",
        "local",
        "error",
        "tolerance",
        "config",
    ];
    let graphs = results.iter().any(|r| r["graph"].is_object());
    if graphs {
        headings.insert(9, "in a graph");
    }
    if against {
        headings.push("time / before");
    }
    let mut table = show::table(&headings);
    show::right(&mut table, &(3..13 + usize::from(graphs)).collect::<Vec<_>>());
    let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    let with = |v: &Value, show: &dyn Fn(f64) -> String| v.as_f64().map_or_else(|| "-".to_owned(), show);
    for r in results {
        let wrong = if r["pass"] == false { " WRONG" } else { "" };
        let mut cells = vec![
            text(&r["name"]),
            text(&r["shape"]),
            text(&r["dtype"]),
            with(&r["median_ms"], &show::time),
            with(&r["clean_l2"]["median_ms"], &show::time),
            with(&r["min_ms"], &show::time),
            with(&r["gb_s"], &|x| format!("{x:.0}")),
            with(&r["tflops"], &|x| format!("{x:.1}")),
            with(&r["launch_us"], &|x| format!("{x:.1} us")),
            r["registers"].as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string()),
            r["local_bytes"].as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string()),
            with(&r["rel_err"], &show::small) + wrong,
            with(&r["tolerance"], &show::small),
            r["refused"].as_str().map_or_else(|| text(&r["config"]), |e| format!("{}: {e}", text(&r["config"]))),
        ];
        if graphs {
            let of_plan = with(&r["graph"]["median_ms"], &show::time);
            let of_launch = r["graph"]["median_us"].as_f64().map(|x| format!("{x:.2} us"));
            cells.insert(9, of_launch.unwrap_or(of_plan));
        }
        if against {
            cells.push(with(&r["against"], &|x| format!("{x:.3}")));
        }
        table.add_row(cells);
    }
    say!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(config: &str, ms: f64) -> Value {
        json!({ "name": "softmax", "shape": "8x64", "dtype": "bf16", "config": config, "median_ms": ms })
    }

    #[test]
    fn each_config_is_compared_with_itself() {
        let before = json!({ "results": [row("BN=1", 1.0), row("BN=2", 2.0)] });
        let mut now = [row("BN=1", 1.01), row("BN=2", 2.02), row("BN=4", 9.0)];
        assert!(compare(&before, &mut now).is_empty());
        assert!(now[2]["against"].is_null());
        assert_eq!(compare(&before, &mut [row("BN=1", 1.0), row("BN=2", 2.5)]), ["softmax BN=2"]);
    }

    #[test]
    fn a_graph_gives_the_time_of_one_launch() {
        let graph = graph_json(40, Timing { median_ms: 0.2, min_ms: 0.1 });
        assert_eq!(graph, json!({ "launches": 40, "median_us": 5.0, "min_us": 2.5, "l2": "warm" }));
    }

    /// A slower choice of config is a regression too.
    #[test]
    fn the_chosen_config_is_compared_with_the_one_before() {
        let before = json!({ "results": [row("BN=1", 1.0)] });
        assert_eq!(compare(&before, &mut [row("BN=2", 2.0)]), ["softmax BN=2"]);
    }
}
