//! `atlas doctor`: what this machine has, what is missing, and how to get it.

use super::print::say;
use super::{archs, host_info, ptxas, show, stages};
use anyhow::Result;
use atlas_runtime::bundle::Bundles;
use atlas_runtime::records::Records;
use atlas_runtime::{CacheDir, Device};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One requirement that a machine meets or does not meet.
struct Finding {
    what: &'static str,
    has: bool,
    detail: String,
    /// How to get it if it is missing.
    mend: String,
}

impl Finding {
    fn has(what: &'static str, detail: impl Into<String>) -> Finding {
        Finding { what, has: true, detail: detail.into(), mend: String::new() }
    }

    fn lacks(what: &'static str, detail: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { what, has: false, detail: detail.into(), mend: mend.into() }
    }
}

/// Examines the machine. A missing item is reported and is not an error, because the CPU device needs none of them.
pub(super) fn run(args: &DoctorArgs) -> Result<bool> {
    let mut findings = vec![cpu(), generator(), simulator(), llvm()];
    findings.extend(gpus());
    findings.extend([assembler(), cache(), bundles(), records()]);
    if args.json {
        let rows: Vec<Value> = findings
            .iter()
            .map(|f| json!({ "what": f.what, "has": f.has, "detail": f.detail, "mend": (!f.has).then_some(&f.mend) }))
            .collect();
        show::json(&Value::Array(rows));
        return Ok(true);
    }
    let mut table = show::table(&["", "", "found"]);
    for f in &findings {
        table.add_row([f.what, if f.has { "yes" } else { "no" }, &f.detail]);
    }
    say!("{table}");
    for f in findings.iter().filter(|f| !f.has) {
        say!("\n{}: {}", f.what, f.mend);
    }
    Ok(true)
}

/// The bundles that GPUs of this program start with.
fn bundles() -> Finding {
    let bundles = Bundles::of_program();
    let all: Vec<String> = bundles.iter().map(|b| format!("{}, {} kernels", b.origin(), b.kernels().count())).collect();
    let detail = if all.is_empty() { "none".to_owned() } else { all.join("; ") };
    match bundles.problems() {
        [] => Finding::has("bundles", detail),
        problems => {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Finding::lacks("bundles", detail, problems.join("\n"))
        }
    }
}

/// The tuning records of the first GPU. If it has none, the records of others.
fn records() -> Finding {
    let gpu = Device::cuda(0).ok().map(|device| device.name().to_owned());
    let records = Records::of_gpu(gpu.as_deref().unwrap_or_default());
    let detail = match gpu {
        Some(gpu) => format!("of {} kernels on {gpu}", records.iter().count()),
        None => format!("of {}", records.other_gpus().collect::<Vec<_>>().join(", ")),
    };
    match records.problems() {
        [] => Finding::has("tuning records", detail),
        problems => {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Finding::lacks("tuning records", detail, problems.join("\n"))
        }
    }
}

fn cpu() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Finding::has("CPU device", format!("{cores} cores; runs every kernel, with no GPU and no LLVM"))
}

fn generator() -> Finding {
    if stages::CAN_COMPILE {
        return Finding::has("code generator", format!("compiled in, for {}", targets("")));
    }
    let mend = "build this program with `--features jit` (LLVM as a shared library) or `--features static-llvm`; \
                without it kernels run on the CPU";
    Finding::lacks("code generator", "this program was built without it", mend)
}

/// The targets that later GPUs run too, and what the GPU here is compiled for if that is another one.
fn targets(prefix: &str) -> String {
    let usual: Vec<String> = archs::usual(None);
    let own = archs::of_gpu().map(|target| target.to_string()).filter(|own| !usual.contains(own));
    let all: Vec<String> = usual.iter().chain(&own).map(|name| format!("{prefix}{name}")).collect();
    let (last, others) = all.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
    let here = if own.is_some() { ", the last for the GPU here" } else { "" };
    format!("{} and {last}{here}", others.join(", "))
}

fn simulator() -> Finding {
    if stages::CAN_COMPILE {
        let detail = format!("{}; execute the PTX and check it strictly", targets("sim:"));
        return Finding::has("simulated GPUs", detail);
    }
    let mend = "build this program with `--features jit` or `--features static-llvm`; a simulated GPU runs PTX, which \
                the code generator makes";
    Finding::lacks("simulated GPUs", "nothing to run on them without the code generator", mend)
}

fn llvm() -> Finding {
    let ask = |program: &str| {
        let version = ptxas::printed(Command::new(program).arg("--version"))?;
        Some(format!("{} ({program})", version.trim()))
    };
    if let Some(version) = ask("llvm-config-22").or_else(|| ask("/usr/lib/llvm-22/bin/llvm-config")) {
        return Finding::has("LLVM 22 for builds", version);
    }
    let mend = "to build with `--features jit`: `apt-get update && apt-get install llvm-22-dev libpolly-22-dev \
                zlib1g-dev libzstd-dev`, and set LLVM_SYS_221_PREFIX to what `llvm-config-22 --prefix` prints; \
                a program that is already built with it needs nothing";
    Finding::lacks("LLVM 22 for builds", "no llvm-config-22", mend)
}

/// The driver, then a finding for each GPU.
fn gpus() -> Vec<Finding> {
    let mut findings = Vec::new();
    for ordinal in 0.. {
        match Device::cuda(ordinal) {
            Ok(device) => {
                if ordinal == 0 {
                    let (major, minor) = device.driver_version().unwrap_or_default();
                    let own = host_info::nvidia_smi("0", &["driver_version"]).pop();
                    let own = own.map(|v| format!("{v}, ")).unwrap_or_default();
                    findings.push(Finding::has("NVIDIA driver", format!("{own}serves CUDA {major}.{minor}")));
                }
                let gib = device.memory_bytes().unwrap_or(0) >> 30;
                let code = device.target().map_or_else(String::new, |target| format!("; runs code for {target}"));
                findings.push(Finding::has("GPU", format!("{device}, {} SMs, {gib} GiB{code}", device.sm_count())));
            }
            Err(e) if ordinal == 0 => {
                let text = e.to_string();
                let text = text.split_once("]: ").map_or(text.as_str(), |(_, rest)| rest);
                let (found, mend) =
                    text.split_once("; ").unwrap_or((text, "run `nvidia-smi` to see what the driver sees"));
                findings.push(Finding::lacks("GPU", found, mend));
                break;
            }
            Err(_) => break,
        }
    }
    findings
}

fn assembler() -> Finding {
    if let Some(path) = ptxas::find() {
        let version = ptxas::version(&path).unwrap_or_else(|| "version unknown".to_owned());
        return Finding::has("ptxas", format!("{version} ({})", path.display()));
    }
    if std::env::var_os("ATLAS_PTXAS").is_some_and(|path| !path.is_empty()) {
        return Finding::lacks("ptxas", ptxas::missing(), "set ATLAS_PTXAS to the file of a ptxas, or unset it");
    }
    let mend =
        "only for register counts and checks: `cargo xtask setup` fetches it into .tools, or set ATLAS_PTXAS to one";
    Finding::lacks("ptxas", "none in .tools or on the PATH", mend)
}

fn cache() -> Finding {
    let path = match CacheDir::from_env() {
        CacheDir::At(path) | CacheDir::Bounded { folder: path, .. } => path,
        CacheDir::Off => {
            let mend = "set ATLAS_CACHE_DIR to a folder, or HOME; without it each process compiles its kernels anew";
            return Finding::lacks("kernel cache", "switched off", mend);
        }
    };
    if let Some(problem) = CacheDir::problem() {
        return Finding::lacks("kernel cache", path.display().to_string(), problem);
    }
    match writable(&path) {
        Ok(()) => Finding::has("kernel cache", path.display().to_string()),
        Err(e) => {
            let mend = "set ATLAS_CACHE_DIR to a folder that can be written; without it each process compiles its kernels anew";
            Finding::lacks("kernel cache", format!("cannot write {}: {e}", path.display()), mend)
        }
    }
}

fn writable(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    atlas_runtime::files::check_folder(dir)
}
