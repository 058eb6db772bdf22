//! `atlas verify`: checks every op against its f64 reference, including ragged and strided shapes.

use super::print::say;
use super::show::{self, Progress};
use super::verify_row::{fill, row, row_of};
use super::{bundle, differential, input, simulate};
use anyhow::{Context, Result, bail};
use atlas_dsl::Config;
use atlas_ops::{OPS, Op, Problem, cases, op};
use atlas_runtime::{Device, Tensor};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long to wait for the last lines of a process after it has ended.
const LAST_LINES: Duration = Duration::from_secs(5);

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct VerifyArgs {
    /// cpu, cuda:N, sim or sim:ARCH (the simulator), or best: the first GPU, else the CPU.
    #[arg(long, default_value = "best")]
    device: String,
    /// Only this op or kernel.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    #[command(flatten)]
    simulate: simulate::SimulateArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Try every kernel of a bundle again in the simulator, as when it was made.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "device", "only", "differential", "timeout", "repeat", "in_process", "arch", "schedule", "seed", "all_configs",
    ])]
    bundle: Option<PathBuf>,
    /// Run instructions and kernels on a GPU and in the simulator, and compare the two. `--only` then takes the name of
    /// an op or a kernel, the beginning of an instruction's name (`add.rn`), `kernels` or `instructions`.
    #[arg(long, conflicts_with_all = ["timeout", "repeat", "in_process", "arch", "schedule", "seed", "all_configs"])]
    differential: bool,
    /// On a GPU each op runs in a process of its own, which is ended after this many seconds.
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Solve each problem N more times, the first of each kernel and element type with every legal config, and require
    /// the same bits each time.
    #[arg(long, default_value_t = 0, value_name = "N")]
    repeat: usize,
    /// Run in this process and print one line of JSON per problem. The processes above are started with this option.
    #[arg(long, hide = true)]
    in_process: bool,
}

impl VerifyArgs {
    /// Whether a process that verifies on a GPU started this one.
    pub(super) fn is_child(&self) -> bool {
        self.in_process
    }
}

/// Runs the checks.
pub(super) fn run(args: &VerifyArgs) -> Result<bool> {
    if let Some(path) = &args.bundle {
        return bundle::verify(path, args.json);
    }
    if args.differential {
        return differential::run(&args.device, args.only.as_deref(), args.json);
    }
    let ops = ops(args.only.as_deref())?;
    if let Some(machines) = simulate::machines(&args.device, &args.simulate)? {
        if args.repeat > 0 {
            bail!("--repeat is for a GPU or the CPU: the simulator gives the same bits each time");
        }
        let rows = simulate::rows(&ops, args.only.as_deref(), &machines, &args.simulate)?;
        return finish(args, &args.device, rows);
    }
    args.simulate.unused(&args.device)?;
    let device = input::device(&args.device)?;
    let on_gpu = !device.is_cpu();
    let mut rows = Vec::new();
    if on_gpu && !args.in_process {
        let mut progress = Progress::new(ops.len());
        for op in ops {
            progress.step(op.name);
            rows.extend(in_child(op, &device.id().to_string(), args));
        }
    } else {
        let problems = problems(&ops, args.only.as_deref(), on_gpu);
        let mut repeated = HashSet::new();
        let mut progress = Progress::new(if args.in_process { 0 } else { problems.len() });
        for p in &problems {
            if !args.in_process {
                progress.step(&p.to_string());
            }
            let mut row = check(p, &device);
            if args.repeat > 0 && row["pass"] == true {
                let is_first = repeated.insert((p.kernel.name, p.dtype));
                let configs = if is_first { p.kernel.configs().into_iter().map(Some).collect() } else { vec![None] };
                repeat(&mut row, p, &device, args.repeat, &configs);
            }
            if args.in_process {
                say!("{row}");
            }
            rows.push(row);
        }
    }
    if args.in_process {
        return Ok(rows.iter().all(|r| r["pass"] == true));
    }
    finish(args, &device.to_string(), rows)
}

/// Prints the rows. Returns whether all of them pass.
fn finish(args: &VerifyArgs, device: &str, rows: Vec<Value>) -> Result<bool> {
    if rows.is_empty() {
        bail!("there is no problem of `{}` to verify on {device}", args.only.as_deref().unwrap_or("any op"));
    }
    let passed = rows.iter().filter(|r| r["pass"] == true).count();
    let all = passed == rows.len();
    if args.json {
        show::json(&json!({ "device": device, "passed": passed, "failed": rows.len() - passed, "results": rows }));
    } else {
        print(&rows);
        say!("{passed} of {} problems pass on {device}", rows.len());
    }
    Ok(all)
}

fn ops(only: Option<&str>) -> Result<Vec<&'static Op>> {
    let Some(name) = only else { return Ok(OPS.iter().collect()) };
    let op = op::find(name).with_context(|| {
        let names: Vec<&str> = OPS.iter().map(|op| op.name).collect();
        let own = input::kernel(name).map_or("", |_| {
            "; it is a kernel of this program, of which no reference is known here: `atlas bundle` compares it with the interpreter"
        });
        let names = input::nearest_first(name, names).join(", ");
        format!("there is no op `{name}`{own}; the ops, the nearest names first: {names}")
    })?;
    Ok(vec![op])
}

/// The problems of some ops. On a GPU, those of the demo too, which take a CPU longer.
fn problems(ops: &[&'static Op], only: Option<&str>, on_gpu: bool) -> Vec<Problem> {
    let mut all = cases::verification();
    if on_gpu {
        all.extend(cases::demo());
    }
    let kernel = only.filter(|name| OPS.iter().all(|op| op.name != *name));
    all.retain(|p| ops.iter().any(|op| op.name == p.op.name) && kernel.is_none_or(|k| k == p.kernel.name));
    all
}

/// Solves one problem and compares the result with its reference.
fn check(p: &Problem, device: &Device) -> Value {
    let mut row = row_of(p);
    match p.check(device, None) {
        Ok(c) => fill(&mut row, p, &c),
        Err(e) => row["error"] = json!(e.to_string()),
    }
    row
}

/// Solves a problem repeatedly, with each config or the chosen one, and counts the configs that gave the same bits each
/// time.
fn repeat(row: &mut Value, p: &Problem, device: &Device, count: usize, configs: &[Option<Config>]) {
    let inputs = p.inputs();
    let solve = |config: Option<&Config>| -> atlas_runtime::Result<Vec<Vec<u64>>> {
        let mut prepared = p.prepare(device, &inputs)?;
        prepared.launch(config)?;
        let bits = |t: &Tensor| Ok(t.to_f64_vec()?.into_iter().map(f64::to_bits).collect());
        prepared.outputs().into_iter().map(bits).collect()
    };
    let mut same = 0;
    for config in configs {
        let name = config.as_ref().map_or_else(|| "the chosen config".to_owned(), Config::to_string);
        // Configs that are illegal for this device or problem do not count.
        let Ok(first) = solve(config.as_ref()) else { continue };
        for _ in 0..count {
            match solve(config.as_ref()) {
                Ok(again) if again == first => {}
                Ok(_) => row["error"] = json!(format!("{name} gives other bits when it is run again")),
                Err(e) => row["error"] = json!(format!("{name}, run again: {e}")),
            }
        }
        same += 1;
    }
    row["repeated_configs"] = json!(same);
    row["pass"] = json!(row["error"].is_null());
}

/// Verifies one op in a process of its own, so that a hung kernel or a lost GPU context ends with that process.
fn in_child(op: &Op, device: &str, args: &VerifyArgs) -> Vec<Value> {
    let timeout = Duration::from_secs(args.timeout);
    let failed = |what: String| {
        let mut row = row(op.name);
        row["error"] = json!(what);
        row
    };
    let exe = match std::env::current_exe() {
        Ok(exe) => exe,
        Err(e) => return vec![failed(format!("cannot find this program: {e}"))],
    };
    let only = args.only.as_deref().unwrap_or(op.name);
    let child = Command::new(exe)
        .args(["verify", "--in-process", "--device", device, "--only", only])
        .args(["--repeat", &args.repeat.to_string()])
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) => return vec![failed(format!("cannot start a process: {e}"))],
    };
    let stdout = child.stdout.take();
    let (sender, lines) = std::sync::mpsc::channel::<Value>();
    std::thread::spawn(move || {
        let lines = stdout.map(|s| BufReader::new(s).lines()).into_iter().flatten();
        // The receiver may have stopped waiting.
        let rows = lines.map_while(Result::ok).filter_map(|l| serde_json::from_str(&l).ok());
        rows.map_while(|row| sender.send(row).ok()).for_each(drop);
    });
    // `None` is a deadline that no clock reaches.
    let deadline = Instant::now().checked_add(timeout);
    let end = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.code().is_some_and(|c| c <= 1) => break None,
            Ok(Some(status)) => break Some(format!("the process ended with {status}")),
            Ok(None) if deadline.is_some_and(|d| Instant::now() >= d) => {
                // The process may be stuck in the driver. If it cannot be ended, nothing can be done.
                let _ = child.kill();
                break Some(format!("no answer within {} s", timeout.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(e) => break Some(format!("lost the process: {e}")),
        }
    };
    // A process that cannot be ended keeps its output open.
    let mut rows: Vec<Value> = std::iter::from_fn(|| lines.recv_timeout(LAST_LINES).ok()).collect();
    if let Some(what) = end {
        rows.push(failed(format!("{what} after {} problems", rows.len())));
    } else if rows.is_empty() {
        rows.push(failed("the process gave no result".to_owned()));
    }
    rows
}

fn print(rows: &[Value]) {
    let simulated = rows.iter().any(|r| !r["arch"].is_null());
    let mut headings = vec!["op", "kernel", "dtype", "shape", "relF", "max error", "non-finite", "tolerance"];
    if simulated {
        headings.extend(["arch", "config", "bank conflicts"]);
    }
    headings.push("pass");
    let mut table = show::table(&headings);
    show::right(&mut table, if simulated { &[4, 5, 6, 7, 10] } else { &[4, 5, 6, 7] });
    let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    let number = |v: &Value| v.as_f64().map_or_else(|| "-".to_owned(), show::small);
    for r in rows {
        let note = r["note"].as_str().filter(|n| !n.is_empty()).map(|n| format!(" ({n})")).unwrap_or_default();
        let counts = r["non_finite"].as_array().map_or_else(|| "-".to_owned(), |c| format!("{}/{}", c[0], c[1]));
        let pass = match (r["pass"].as_bool(), r["error"].as_str()) {
            (Some(true), _) => "yes".to_owned(),
            (_, Some(error)) => format!("NO: {error}"),
            _ => "NO".to_owned(),
        };
        let mut cells = vec![
            text(&r["op"]),
            text(&r["kernel"]),
            text(&r["dtype"]),
            text(&r["shape"]) + &note,
            number(&r["rel_f"]),
            number(&r["max_error"]),
            counts,
            number(&r["tolerance"]),
        ];
        if simulated {
            let conflicts = r["bank_conflicts"].as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string());
            cells.extend([text(&r["arch"]), text(&r["config"]), conflicts]);
        }
        cells.push(pass);
        table.add_row(cells);
    }
    say!("{table}");
}
