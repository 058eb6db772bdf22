//! `cargo xtask validate`: assembles every shipped kernel with ptxas, and compares the resources with the committed
//! table.
//!
//! Spills and serialisation advice always fail, and so does what [`sass`] finds in machine code for Hopper. The table may only
//! improve: more registers, stack or shared memory than recorded is a failure, and so is an outdated table.
//!
//! A kernel that is recorded with the same PTX and the same tools is not assembled again, unless `--afresh` is given.

mod sass;

use crate::resources::{Key, Row, Table, Verdict};
use crate::{command, ptxas, setup};
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The arguments of the task.
#[derive(clap::Args, Default)]
pub(crate) struct ValidateArgs {
    /// Rewrite the table with what was measured. Refused for a row that got worse.
    #[arg(long)]
    bless: bool,
    /// With --bless: record rows that got worse too. Say why in the commit.
    #[arg(long, requires = "bless")]
    allow_worse: bool,
    /// Check the PTX in this folder (one folder per arch, each with an index.json) instead of compiling it.
    #[arg(long, value_name = "DIR")]
    ptx: Option<PathBuf>,
    /// Assemble kernels too that are recorded with the same PTX.
    #[arg(long)]
    afresh: bool,
}

/// The targets for which kernels ship: those whose code later GPUs run too, and that of Hopper alone.
const ARCHES: [&str; 4] = ["sm_80", "sm_89", "sm_90", HOPPER];
const HOPPER: &str = "sm_90a";
/// The instruction without which code for Hopper alone is the code that every later GPU runs.
const WARPGROUP_PRODUCT: &str = "wgmma";

const TABLE: &str = "snapshots/resources.txt";

/// The number of the rules for faults. A kernel without faults by other rules is assembled again.
const RULES: u32 = 1;
/// Bytes of a digest in the table.
const DIGEST_BYTES: usize = 6;

/// A kernel to assemble.
struct Job {
    path: PathBuf,
    key: Key,
    /// Bytes of shared memory that the launch requests, which ptxas does not see.
    dynamic_shared: u32,
}

/// Compiles, assembles and compares.
pub(crate) fn run(root: &Path, args: &ValidateArgs) -> Result<()> {
    let assembler = setup::ptxas(root)?;
    let nvdisasm = setup::fetch(root, &ptxas::Tool::NVDISASM);
    if let Err(e) = &nvdisasm {
        println!("validate: machine code is not read, for nvdisasm is not available: {e:#}");
    }
    let tools = Tools { assembler, nvdisasm: nvdisasm.ok() };
    let folder = match &args.ptx {
        Some(dir) => dir.clone(),
        None => {
            let folder = command::target_dir(root)?.join("validate");
            compile(root, &build(root)?, &folder)?;
            folder
        }
    };
    let mut jobs = Vec::new();
    for arch in ARCHES {
        let mut of_arch = read_index(&folder.join(arch))?;
        if arch == HOPPER {
            // The others are the kernels of the target before, which are assembled for that.
            of_arch = with(of_arch, WARPGROUP_PRODUCT)?;
        }
        jobs.extend(of_arch);
    }
    let path = root.join(TABLE);
    let recorded = match std::fs::read_to_string(&path) {
        Ok(text) => Table::parse(&text).with_context(|| format!("cannot read {TABLE}"))?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Table::default(),
        Err(e) => return Err(e).with_context(|| format!("cannot read {TABLE}")),
    };
    let known = if args.afresh { &Table::default() } else { &recorded };
    let (rows, mut failures, assembled) = assemble(&tools, &jobs, known);
    println!("validate: {assembled} of {} kernels assembled with ptxas {}", jobs.len(), ptxas::Tool::PTXAS.version);
    let found = Table::new(rows);
    let verdicts = recorded.compare(&found);
    if args.bless {
        let worse = verdicts.iter().any(Verdict::is_worse);
        if failures.is_empty() && (!worse || args.allow_worse) {
            std::fs::create_dir_all(root.join("snapshots")).context("cannot make the folder snapshots")?;
            std::fs::write(&path, found.to_string()).with_context(|| format!("cannot write {TABLE}"))?;
            println!("validate: wrote {TABLE} ({} rows, {} changes)", found.len(), verdicts.len());
            return Ok(());
        }
    }
    failures.extend(verdicts.iter().filter(|v| v.is_worse()).map(Verdict::to_string));
    let stale: Vec<String> = verdicts.iter().filter(|v| !v.is_worse()).map(Verdict::to_string).collect();
    if !failures.is_empty() {
        failures.iter().for_each(|line| eprintln!("{line}"));
        bail!("{} kernels fail or got worse; {TABLE} is unchanged", failures.len());
    }
    stale.iter().for_each(|line| eprintln!("{line}"));
    if !stale.is_empty() {
        bail!(
            "{TABLE} is out of date in {} rows; run `cargo xtask validate --bless` and review the change",
            stale.len()
        );
    }
    println!("validate: no spills, no warnings, {} rows as recorded", found.len());
    Ok(())
}

/// Builds the command line with LLVM as a shared library, and returns its path. Examples are built too, because without
/// them cargo leaves out the dependencies of tests, and compiles crates anew without the features that these ask for.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    setup::llvm()?;
    command::run(command::cargo(root).arg("build").args(command::WITH_LLVM).args(["--bins", "--examples"]))?;
    Ok(command::target_dir(root)?.join("debug/atlas"))
}

/// Compiles every kernel for every arch into an emptied folder.
pub(crate) fn compile(root: &Path, atlas: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    for arch in ARCHES {
        let mut atlas = Command::new(atlas);
        atlas.args(["compile", "--all", "--arch", arch, "--emit", "ptx", "--out-dir"]).arg(folder.join(arch));
        command::run(atlas.current_dir(root))?;
    }
    Ok(())
}

/// The kernels in an index.json. It must list exactly the PTX files in the folder.
fn read_index(dir: &Path) -> Result<Vec<Job>> {
    let index = dir.join("index.json");
    let text = std::fs::read_to_string(&index).with_context(|| format!("cannot read {}", index.display()))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not JSON", index.display()))?;
    let rows = value.as_array().with_context(|| format!("{} is not a list", index.display()))?;
    let mut jobs = Vec::new();
    for row in rows {
        let Some(file) = row["file"].as_str() else {
            // A config that is illegal for the target is listed with the reason, and has no file.
            let reason = row["refused"].as_str();
            reason.with_context(|| format!("a row of {} has neither a file nor a reason", index.display()))?;
            continue;
        };
        let key = Key::from_file_name(file).with_context(|| format!("{}: `{file}`", index.display()))?;
        let dynamic_shared = row["shared_bytes"].as_u64().unwrap_or(0) as u32;
        jobs.push(Job { path: dir.join(file), key, dynamic_shared });
    }
    let listed: BTreeSet<&Path> = jobs.iter().map(|j| j.path.as_path()).collect();
    let entries = std::fs::read_dir(dir)?.flatten().map(|e| e.path());
    let present: BTreeSet<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "ptx")).collect();
    if let Some(path) = present.iter().find(|p| !listed.contains(p.as_path())) {
        bail!("{} is not listed in {}", path.display(), index.display());
    }
    if let Some(path) = listed.iter().find(|p| !present.contains(**p)) {
        bail!("{} lists {}, which is not there", index.display(), path.display());
    }
    if jobs.is_empty() {
        bail!("{} lists no kernel", index.display());
    }
    Ok(jobs)
}

/// The jobs whose PTX has an instruction.
fn with(jobs: Vec<Job>, instruction: &str) -> Result<Vec<Job>> {
    let mut with = Vec::new();
    for job in jobs {
        let text = std::fs::read_to_string(&job.path).with_context(|| format!("cannot read {}", job.path.display()))?;
        if text.contains(instruction) {
            with.push(job);
        }
    }
    if with.is_empty() {
        bail!("no kernel has `{instruction}`");
    }
    Ok(with)
}

/// Kernels whose machine code moves registers between products of warpgroups, and how often at most. The bounds of the loops of
/// `windowed_attention` come from memory. ptxas keeps the descriptors of the last two loops in ordinary registers, although it is
/// told that all lanes have the same bounds. It is 1.26 times as fast as by `mma.sync` nevertheless (H200, 4x16x4096x128).
/// `delta_rule` has two with tiles of 64 values by four warps.
const KNOWN_MOVES: [(&str, usize); 2] = [("windowed_attention", 99), ("delta_rule", 2)];

/// The same of kernels whose CTAs run many programs. In a loop around the products' loop, ptxas keeps no descriptor in uniform
/// registers, whatever the bounds and conditions: it moves four registers before each product but the first. A product of 4096 cubed
/// is 1.03 times as fast by persistent programs nevertheless (H200).
const MOVES_OF_PERSISTENT: usize = 28;

/// Persistent kernels that have more. `attention` in f16 with tiles of 128x128 moves accumulators too since the copy engine fetches its
/// queries. No record chooses that config: smaller tiles were measured faster (H100, H200).
const MOVES_OF_OTHER_PERSISTENT: [(&str, usize); 1] = [("attention", 42)];

/// What the PTX of these kernels reads, and no other's.
const COUNT_OF_CTAS: &str = "%nctaid.x";

/// NVIDIA's tools.
struct Tools {
    assembler: PathBuf,
    /// `None` where it could not be fetched.
    nvdisasm: Option<PathBuf>,
}

impl Tools {
    /// A digest of what the resources and the faults of a kernel follow from.
    fn digest(&self, job: &Job) -> Result<String> {
        let ptx = std::fs::read(&job.path).with_context(|| format!("cannot read {}", job.path.display()))?;
        let mut digest = Sha256::new();
        let disassembler = self.nvdisasm.as_ref().map_or("none", |_| ptxas::Tool::NVDISASM.version);
        digest.update(format!("{} {disassembler} {RULES} {}", ptxas::Tool::PTXAS.version, job.dynamic_shared));
        digest.update(ptx);
        Ok(digest.finalize().iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Assembles a kernel: its row, and its faults.
    fn check(&self, job: &Job, digest: String) -> Result<(Row, Vec<String>)> {
        let cubin = job.path.with_extension("cubin");
        let reader = self.nvdisasm.as_ref().filter(|_| job.key.arch == HOPPER);
        let report = ptxas::assemble(&self.assembler, &job.path, &job.key.arch, reader.map(|_| cubin.as_path()))?;
        let mut faults = faults(&job.key, &report);
        if let Some(nvdisasm) = reader {
            let between = sass::faults(nvdisasm, &cubin)?;
            let of =
                |table: &[(&str, usize)]| table.iter().find(|(kernel, _)| *kernel == job.key.kernel).map(|(_, n)| *n);
            let known = of(&KNOWN_MOVES).unwrap_or(0);
            let ptx =
                std::fs::read_to_string(&job.path).with_context(|| format!("cannot read {}", job.path.display()))?;
            let known = if ptx.contains(COUNT_OF_CTAS) {
                known.max(of(&MOVES_OF_OTHER_PERSISTENT).unwrap_or(MOVES_OF_PERSISTENT))
            } else {
                known
            };
            if between.len() > known {
                faults.push(format!("{}: {} moves between products of warpgroups", job.key, between.len()));
            }
            std::fs::remove_file(&cubin).with_context(|| format!("cannot remove {}", cubin.display()))?;
        }
        Ok((Row::new(job.key.clone(), &report, job.dynamic_shared, digest), faults))
    }
}

/// Assembles on every core what is not known: the rows, what failed, and how many kernels were assembled.
fn assemble(tools: &Tools, jobs: &[Job], known: &Table) -> (Vec<Row>, Vec<String>, usize) {
    let (next, assembled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let check = |job: &Job| {
        let digest = tools.digest(job)?;
        if let Some(row) = known.row(&job.key, &digest) {
            return Ok((row, Vec::new()));
        }
        assembled.fetch_add(1, Ordering::Relaxed);
        tools.check(job, digest)
    };
    let done = Mutex::new((Vec::new(), Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let checked: Result<_> = check(job);
                    let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match checked {
                        Ok((row, faults)) => {
                            done.0.push(row);
                            done.1.extend(faults);
                        }
                        Err(e) => done.1.push(format!("{}: {e:#}", job.key)),
                    }
                }
            });
        }
    });
    let (rows, mut failures) = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failures.sort();
    (rows, failures, assembled.into_inner())
}

/// Faults that no entry in the table can excuse.
fn faults(key: &Key, report: &ptxas::Report) -> Vec<String> {
    let spills = (report.spills > 0).then(|| format!("{key}: spills {} bytes", report.spills));
    spills.into_iter().chain(report.warnings.iter().map(|w| format!("{key}: {w}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::{faults, read_index};
    use crate::ptxas::Report;
    use crate::resources::Key;
    use std::fs;

    const FILE: &str = "softmax.bf16.BN1-warps4.sm_80.ptx";

    fn folder(index: &str, files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("index.json"), index).unwrap();
        for file in files {
            fs::write(dir.path().join(file), "").unwrap();
        }
        dir
    }

    #[test]
    fn the_index_and_the_folder_must_agree() {
        let one = format!(r#"[{{"file": "{FILE}", "shared_bytes": 64}}, {{"refused": "too large"}}]"#);
        let jobs = read_index(folder(&one, &[FILE]).path()).unwrap();
        assert_eq!((jobs.len(), jobs[0].dynamic_shared), (1, 64));
        assert!(read_index(folder(&one, &[]).path()).is_err(), "a listed file is missing");
        assert!(read_index(folder(&one, &[FILE, "b.f32.x.sm_80.ptx"]).path()).is_err(), "a file is not listed");
        assert!(read_index(folder("[]", &[]).path()).is_err(), "an empty list");
        assert!(read_index(folder("[{}]", &[]).path()).is_err(), "a row without file and reason");
    }

    #[test]
    fn spills_and_advice_are_faults() {
        let key = Key::from_file_name(FILE).unwrap();
        let clean = Report { registers: 32, ..Report::default() };
        assert!(faults(&key, &clean).is_empty());
        assert_eq!(faults(&key, &Report { spills: 4, ..clean.clone() }).len(), 1);
        assert_eq!(faults(&key, &Report { warnings: vec!["C7510".into()], ..clean }).len(), 1);
    }
}
