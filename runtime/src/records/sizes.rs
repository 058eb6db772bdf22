//! Records the problems that a program launches in a file, for tuning and bundling: `ATLAS_RECORD_SIZES=FILE`.
//!
//! The file is TOML, with a table `[[launch]]` and a count for each kernel and problem, and grows over runs and
//! processes. A file of another origin is left alone. A launch writes the file if its problem is new or its count is a
//! power of two. Writing takes at most a tenth of the time, and never waits for another process. The remaining counts
//! are written when the program exits normally, or by [`flush`].

use crate::files;
use crate::files::toml_text::{list, quoted};
use atlas_codegen::Machine;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// The environment variable that names the file.
pub const SIZES_VARIABLE: &str = "ATLAS_RECORD_SIZES";

/// The environment variable that names the architecture of a GPU in whose place the CPU records, such as `sm_90a`.
pub const SIZES_AS_VARIABLE: &str = "ATLAS_RECORD_SIZES_AS";

/// The first line of the file, which identifies it.
const HEADER: &str =
    "# Launches that ATLAS_RECORD_SIZES had written, for `atlas tune --sizes` and `atlas bundle --sizes`.";

/// The largest count: TOML has no larger number.
const MOST_COUNT: u64 = i64::MAX as u64;
/// After a write, the file is left alone for this many times the duration of the write.
const REST: u32 = 10;
/// How long a program that exits waits for another process that is writing the file.
const PATIENCE: Duration = Duration::from_secs(2);

/// A kernel, its element types, sizes and unusual tensors, and two entries for lines written by hand: one element type
/// for all, and numbers given by value.
type SizeKey = [String; 6];

/// The entry of a problem in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SizeRow {
    count: u64,
    /// Configs, if any are named.
    configs: Vec<String>,
}

/// The number of launches of a problem.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    count: AtomicU64,
    /// The part of it that the file already has.
    written: AtomicU64,
}

impl Tally {
    /// Counts a launch.
    pub(crate) fn add(&self) {
        if self.count_one()
            && let Some(recorder) = RECORDER.as_ref()
        {
            recorder.write_if_due();
        }
    }

    /// Counts a launch, and returns whether the file should be written soon.
    fn count_one(&self) -> bool {
        (self.count.fetch_add(1, Ordering::Relaxed) + 1).is_power_of_two()
    }
}

struct Recorder {
    path: PathBuf,
    tallies: Mutex<BTreeMap<SizeKey, Arc<Tally>>>,
    pace: Mutex<Pace>,
    told: Once,
}

/// When the file was last written, or a write was tried, and how long that took.
#[derive(Debug, Default)]
struct Pace {
    last: Option<(Instant, Duration)>,
    /// A write failed: launches do not try again.
    has_failed: bool,
}

static RECORDER: LazyLock<Option<Recorder>> = LazyLock::new(|| {
    let path = std::env::var_os(SIZES_VARIABLE).filter(|p| !p.is_empty())?;
    flush_at_exit();
    Some(Recorder::new(path.into()))
});

/// Registers a function that writes the rest when `main` returns or `exit` is called.
fn flush_at_exit() {
    // SAFETY: the signature is that of the C library, which every program with the standard library is linked to.
    unsafe extern "C" {
        safe fn atexit(call: extern "C" fn()) -> c_int;
    }
    extern "C" fn end() {
        // A panic must not unwind into C. At worst, a list of sizes is lost.
        let _ = std::panic::catch_unwind(flush);
    }
    // If it cannot be registered, the program has to call `flush`.
    let _ = atexit(end);
}

/// The number of active pauses. Nothing is counted while there is one.
static PAUSED: AtomicUsize = AtomicUsize::new(0);

/// Sizes are recorded again when it is dropped.
#[derive(Debug)]
#[must_use = "nothing is paused once it is dropped"]
pub struct Paused(());

/// Stops the counting of launches until the guard is dropped, for tools that run kernels on problems of their own.
pub fn pause() -> Paused {
    PAUSED.fetch_add(1, Ordering::Relaxed);
    Paused(())
}

impl Drop for Paused {
    fn drop(&mut self) {
        PAUSED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether sizes are recorded.
pub(crate) fn are_recorded() -> bool {
    RECORDER.is_some() && PAUSED.load(Ordering::Relaxed) == 0
}

/// The tally of a problem; `None` unless sizes are recorded.
pub(crate) fn tally(kernel: &str, types: String, dims: String, tensors: String) -> Option<Arc<Tally>> {
    let recorder = RECORDER.as_ref().filter(|_| are_recorded())?;
    Some(recorder.tally([kernel.to_owned(), types, dims, tensors, String::new(), String::new()]))
}

/// The GPU in whose place the CPU records launches: operations that have several kernels choose as they would for the usual GPU of
/// the architecture in `ATLAS_RECORD_SIZES_AS`. `None` unless sizes are recorded.
pub(crate) fn recorded_as() -> Option<Machine> {
    static NAMED: LazyLock<Option<Machine>> = LazyLock::new(|| {
        let arch = std::env::var(SIZES_AS_VARIABLE).ok().filter(|arch| !arch.is_empty())?;
        let tell = |reason| {
            // The program continues even if the warning cannot be printed.
            let _ = writeln!(io::stderr(), "warning: {SIZES_AS_VARIABLE}: {reason}");
        };
        arch.parse().map_err(tell).ok()
    });
    RECORDER.as_ref().and(*NAMED)
}

/// Writes the counts since the last write. A program that returns from `main` or calls `exit` need not call it. A
/// program that is killed loses the counts since the last write. Without `ATLAS_RECORD_SIZES`, this does nothing.
pub fn flush() {
    if let Some(recorder) = RECORDER.as_ref() {
        recorder.write(&mut lock(&recorder.pace), PATIENCE);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Launches {
    #[serde(default)]
    launch: Vec<Launched>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Launched {
    kernel: String,
    #[serde(default)]
    dtype: String,
    #[serde(default)]
    types: String,
    #[serde(default)]
    dims: String,
    #[serde(default)]
    tensors: String,
    #[serde(default)]
    set: String,
    #[serde(default)]
    configs: Vec<String>,
    #[serde(default)]
    count: u64,
}

impl Pace {
    fn is_due(&self) -> bool {
        !self.has_failed && self.last.is_none_or(|(last, took)| last.elapsed() >= REST * took)
    }
}

impl Recorder {
    fn new(path: PathBuf) -> Recorder {
        Recorder { path, tallies: Mutex::default(), pace: Mutex::default(), told: Once::new() }
    }

    fn tally(&self, name: SizeKey) -> Arc<Tally> {
        lock(&self.tallies).entry(name).or_default().clone()
    }

    /// The lock file through which processes take turns. It is beside the file that the links lead to, so there is one
    /// lock whatever links name the file.
    fn lock(&self) -> io::Result<PathBuf> {
        let mut name = files::regular(&self.path)?.into_os_string();
        name.push(".lock");
        Ok(name.into())
    }

    /// Writes the file during a launch: only for a short time, and never behind another process.
    fn write_if_due(&self) {
        // If another thread is writing already, this one leaves it to that thread.
        if let Ok(mut pace) = self.pace.try_lock()
            && pace.is_due()
        {
            self.write(&mut pace, Duration::ZERO);
        }
    }

    /// Adds the new counts to the file, and reports once if that is impossible. Waits up to `patience` for another
    /// process.
    fn write(&self, pace: &mut Pace, patience: Duration) {
        let begun = Instant::now();
        let written = self.merge(patience);
        pace.last = Some((Instant::now(), begun.elapsed()));
        pace.has_failed = written.is_err();
        if let Err(e) = written {
            let tell = || {
                // The program continues even if the warning cannot be printed.
                let _ = writeln!(io::stderr(), "warning: {SIZES_VARIABLE}: cannot write {}: {e}", self.path.display());
            };
            self.told.call_once(tell);
        }
    }

    /// Adds the new counts to those in the file. Processes that write the same file take turns. A launch postpones its
    /// write if the file is locked.
    fn merge(&self, patience: Duration) -> io::Result<()> {
        // Not while the lock is held, because a launch of a new problem takes it.
        let tallies: Vec<(SizeKey, Arc<Tally>)> =
            lock(&self.tallies).iter().map(|(n, t)| (n.clone(), t.clone())).collect();
        let count = |(name, tally): (SizeKey, Arc<Tally>)| {
            let (count, written) = (tally.count.load(Ordering::Relaxed), tally.written.load(Ordering::Relaxed));
            (count > written).then_some((name, tally, count, count - written))
        };
        let new: Vec<(SizeKey, Arc<Tally>, u64, u64)> = tallies.into_iter().filter_map(count).collect();
        if new.is_empty() {
            return Ok(());
        }
        let turn = files::lock_file(&self.lock()?)?;
        if !is_locked(&turn, patience)? {
            return match patience {
                Duration::ZERO => Ok(()),
                _ => Err(io::Error::other("another process keeps the lock of it")),
            };
        }
        let mut rows = parse(&self.read()?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        for (name, _, _, more) in &new {
            let row = rows.entry(name.clone()).or_default();
            row.count = row.count.saturating_add(*more);
        }
        files::write(&self.path, print(&rows).as_bytes())?;
        new.iter().for_each(|(_, tally, count, _)| tally.written.store(*count, Ordering::Relaxed));
        Ok(())
    }

    /// The content of the file, if it was written here or does not exist yet.
    fn read(&self) -> io::Result<String> {
        let text = match files::read_regular_text(&self.path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            Err(e) => return Err(e),
        };
        match text.lines().next() {
            Some(first) if first != HEADER => {
                let why =
                    format!("it is another file, whose first line is not `{HEADER}`; name one that is not there yet");
                Err(io::Error::other(why))
            }
            _ => Ok(text),
        }
    }
}

/// Tries to lock a file for up to `patience`.
fn is_locked(file: &File, patience: Duration) -> io::Result<bool> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(e)) => return Err(e),
            Err(TryLockError::WouldBlock) if begun.elapsed() >= patience => return Ok(false),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn parse(text: &str) -> Result<BTreeMap<SizeKey, SizeRow>, String> {
    let launches: Launches = toml::from_str(text).map_err(|e| e.to_string())?;
    let mut rows: BTreeMap<SizeKey, SizeRow> = BTreeMap::new();
    for Launched { kernel, dtype, types, dims, tensors, set, configs, count } in launches.launch {
        let row = rows.entry([kernel, types, dims, tensors, dtype, set]).or_default();
        row.count = row.count.saturating_add(count).min(MOST_COUNT);
        row.configs.extend(configs);
    }
    Ok(rows)
}

/// The rows as text, with the most frequent first.
fn print(rows: &BTreeMap<SizeKey, SizeRow>) -> String {
    let mut sorted: Vec<(&SizeKey, &SizeRow)> = rows.iter().collect();
    sorted.sort_by_key(|(_, row)| std::cmp::Reverse(row.count));
    let mut text = format!("{HEADER}\n");
    for ([kernel, types, dims, tensors, dtype, set], SizeRow { count, configs }) in sorted {
        // Writing to a string does not fail.
        let _ = write!(text, "\n[[launch]]\nkernel = {}\n", quoted(kernel));
        let keys = [("dtype", dtype), ("types", types), ("dims", dims), ("tensors", tensors), ("set", set)];
        for (key, value) in keys {
            if !value.is_empty() {
                let _ = writeln!(text, "{key} = {}", quoted(value));
            }
        }
        if !configs.is_empty() {
            let _ = writeln!(text, "configs = {}", list(configs));
        }
        let _ = writeln!(text, "count = {}", count.min(&MOST_COUNT));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    fn name(kernel: &str, dims: &str, tensors: &str) -> SizeKey {
        [kernel, "T=bf16", dims, tensors, "", ""].map(str::to_owned)
    }

    /// A recorder of a file in a folder of its own, with one launch to write.
    fn recorder() -> (TempDir, Recorder) {
        let folder = TempDir::new().unwrap();
        let recorder = Recorder::new(folder.path().join("sizes.toml"));
        recorder.tally(name("softmax", "N=5", "")).count_one();
        (folder, recorder)
    }

    fn rows(recorder: &Recorder) -> BTreeMap<SizeKey, SizeRow> {
        parse(&fs::read_to_string(&recorder.path).unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let row = |count| SizeRow { count, configs: Vec::new() };
        let tuned = SizeRow { count: 1, configs: vec!["BN=4 warps=8".to_owned(), "BN=8".to_owned()] };
        let by_hand = ["gemm", "", "M=8", "", "f32", "steps=64"].map(str::to_owned);
        let rotary = name("rotary", "N=5 D=64", "x=4:*8,1");
        let rows = BTreeMap::from([(name("softmax", "N=5 D=64", ""), row(3)), (rotary, row(70)), (by_hand, tuned)]);
        let text = print(&rows);
        assert_eq!(parse(&text), Ok(rows));
        assert!(text.find("rotary") < text.find("softmax"), "{text}");
        assert!(parse("launch = 3").is_err());
    }

    /// Characters that Rust's own quotes escape differently from TOML's.
    #[test]
    fn whatever_a_row_says_is_read_as_it_is_printed() {
        let hard = "a\u{a0}b \u{7f}\u{0} \"c\" 'd' \\ \n\u{1f600}";
        let row = SizeRow { count: 1, configs: vec![hard.to_owned(), String::new()] };
        let rows = BTreeMap::from([([hard; 6].map(str::to_owned), row)]);
        assert_eq!(parse(&print(&rows)), Ok(rows));
    }

    /// The sum of three rows exceeds a 64-bit number, and a count in TOML has 63 bits.
    #[test]
    fn counts_have_an_end() {
        let (_folder, recorder) = recorder();
        let row =
            format!("[[launch]]\nkernel = \"softmax\"\ntypes = \"T=bf16\"\ndims = \"N=5\"\ncount = {}\n", i64::MAX);
        fs::write(&recorder.path, format!("{HEADER}\n{row}{row}{row}")).unwrap();
        recorder.write_if_due();
        assert_eq!(rows(&recorder)[&name("softmax", "N=5", "")].count, MOST_COUNT);
        recorder.tally(name("softmax", "N=5", "")).count_one();
        recorder.write(&mut lock(&recorder.pace), PATIENCE);
        assert_eq!(rows(&recorder).len(), 1);
    }

    #[test]
    fn what_a_file_knows_beside_counts_survives() {
        let (_folder, recorder) = recorder();
        let launch = "[[launch]]\nkernel = \"gemm\"\ndtype = \"f32\"\ndims = \"M=8\"\nset = \"steps=64\"\nconfigs = [\"BM=64\"]\n";
        fs::write(&recorder.path, format!("{HEADER}\n{launch}")).unwrap();
        recorder.write_if_due();
        let text = fs::read_to_string(&recorder.path).unwrap();
        assert!(text.contains(launch) && text.contains("softmax"), "{text}");
    }

    #[test]
    fn a_file_of_another_kind_is_left_alone() {
        let unknown = format!("{HEADER}\n[[launch]]\nkernel = \"gemm\"\nowner = \"me\"\n");
        for text in ["[package]\nname = \"mine\"\n", "# By hand.\n[[launch]]\nkernel = \"gemm\"\n", &unknown] {
            let (_folder, recorder) = recorder();
            fs::write(&recorder.path, text).unwrap();
            recorder.write_if_due();
            recorder.write(&mut lock(&recorder.pace), PATIENCE);
            assert_eq!(fs::read_to_string(&recorder.path).unwrap(), text);
        }
        // An empty file belongs to nobody.
        let (_folder, recorder) = recorder();
        fs::write(&recorder.path, "").unwrap();
        recorder.write_if_due();
        assert_eq!(rows(&recorder).len(), 1);
    }

    /// Files of predictable names are not taken for temporary files, and a link stays a link.
    #[test]
    #[cfg(unix)]
    fn no_other_file_is_written() {
        let (folder, mut recorder) = recorder();
        let real = recorder.path.clone();
        recorder.path = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&real, &recorder.path).unwrap();
        let others = ["sizes.toml.new", "link.toml.new", "sizes.toml.lock"].map(|name| folder.path().join(name));
        others.iter().for_each(|path| fs::write(path, "mine").unwrap());
        recorder.write_if_due();
        assert!(others.iter().all(|path| fs::read(path).unwrap() == b"mine") && recorder.path.is_symlink());
        assert_eq!(parse(&fs::read_to_string(&real).unwrap()).unwrap().len(), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
    }

    #[test]
    fn a_launch_waits_for_nobody_who_holds_the_lock() {
        let (_folder, recorder) = recorder();
        let held = File::create(recorder.lock().unwrap()).unwrap();
        held.lock().unwrap();
        recorder.write_if_due();
        assert!(!recorder.path.exists());
        drop(held);
        recorder.write(&mut lock(&recorder.pace), PATIENCE);
        assert_eq!(rows(&recorder)[&name("softmax", "N=5", "")].count, 1);
    }

    #[test]
    fn launches_do_not_try_again_what_has_failed() {
        let (_folder, recorder) = recorder();
        fs::create_dir(&recorder.path).unwrap();
        recorder.write_if_due();
        fs::remove_dir(&recorder.path).unwrap();
        recorder.write_if_due();
        assert!(!recorder.path.exists());
        recorder.write(&mut lock(&recorder.pace), PATIENCE);
        assert_eq!(rows(&recorder).len(), 1);
    }

    #[test]
    fn a_write_takes_a_tenth_of_the_time() {
        let at = |ago: u64, took: u64| {
            let last = Instant::now().checked_sub(Duration::from_secs(ago)).unwrap();
            Pace { last: Some((last, Duration::from_secs(took))), has_failed: false }.is_due()
        };
        assert!(Pace::default().is_due() && at(11, 1) && !at(9, 1));
    }
}
