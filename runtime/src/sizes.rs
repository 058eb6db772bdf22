//! What a program launches, written to a file as it runs, so that it can be tuned and bundled for: `ATLAS_RECORD_SIZES=FILE`.
//!
//! The file is TOML, a table `[[launch]]` for each kernel and problem with a count, and grows over runs and processes.
//! It is written when a problem is new and whenever its count is a power of two, but after the first few times once a second
//! at the most, so that a program with thousands of sizes is not kept busy by it; [`flush`] writes the rest.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The environment variable that names the file.
pub const SIZES_VARIABLE: &str = "ATLAS_RECORD_SIZES";

/// A kernel, its element types, sizes and unusual tensors.
type Name = [String; 4];

/// How often a problem was launched.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    count: AtomicU64,
    /// Of these, those that the file has.
    written: AtomicU64,
}

impl Tally {
    /// Counts a launch.
    pub(crate) fn add(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() && RECORDER.as_ref().is_some_and(Recorder::is_due) {
            flush();
        }
    }
}

/// Times that the file is written whenever there is something new, and how long after that it is left alone.
const OFTEN: u64 = 64;
const REST: Duration = Duration::from_secs(1);

struct Recorder {
    path: PathBuf,
    /// How often it was written, and when last.
    written: Mutex<(u64, Option<Instant>)>,
    tallies: Mutex<BTreeMap<Name, Arc<Tally>>>,
}

static RECORDER: LazyLock<Option<Recorder>> = LazyLock::new(|| {
    let path = std::env::var_os(SIZES_VARIABLE).filter(|p| !p.is_empty())?;
    Some(Recorder { path: path.into(), written: Mutex::default(), tallies: Mutex::default() })
});

/// Reasons to count nothing.
static PAUSED: AtomicUsize = AtomicUsize::new(0);

/// Sizes are recorded again when it is dropped.
#[derive(Debug)]
#[must_use = "nothing is paused once it is dropped"]
pub struct Paused(());

/// Lets the problems that this process launches meanwhile go uncounted, for what tries kernels on problems of its own making.
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

/// The tally of a problem; none unless sizes are recorded.
pub(crate) fn tally(kernel: &str, types: String, dims: String, tensors: String) -> Option<Arc<Tally>> {
    let recorder = RECORDER.as_ref().filter(|_| are_recorded())?;
    let name = [kernel.to_owned(), types, dims, tensors];
    Some(recorder.tallies.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default().clone())
}

/// Writes what was counted since the file was written last. Without `ATLAS_RECORD_SIZES` there is nothing to write.
pub fn flush() {
    let Some(recorder) = RECORDER.as_ref() else { return };
    if let Err(e) = recorder.write() {
        static TOLD: std::sync::Once = std::sync::Once::new();
        TOLD.call_once(|| eprintln!("warning: {SIZES_VARIABLE}: cannot write {}: {e}", recorder.path.display()));
    }
}

#[derive(Deserialize)]
struct Launches {
    #[serde(default)]
    launch: Vec<Launched>,
}

#[derive(Deserialize)]
struct Launched {
    kernel: String,
    #[serde(default)]
    types: String,
    #[serde(default)]
    dims: String,
    #[serde(default)]
    tensors: String,
    #[serde(default)]
    count: u64,
}

impl Recorder {
    /// Whether the file may be written again.
    fn is_due(&self) -> bool {
        let (times, last) = *self.written.lock().unwrap_or_else(PoisonError::into_inner);
        times < OFTEN || last.is_none_or(|last| last.elapsed() >= REST)
    }

    /// The file's own name with something behind it.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(ending);
        name.into()
    }

    /// Adds to what the file has. Processes that write one file wait for each other.
    fn write(&self) -> io::Result<()> {
        let tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = File::create(self.beside(".lock"))?;
        lock.lock()?;
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e),
        };
        let mut counts = parse(&text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        let mut now = Vec::new();
        for (name, tally) in &*tallies {
            let count = tally.count.load(Ordering::Relaxed);
            *counts.entry(name.clone()).or_default() += count - tally.written.load(Ordering::Relaxed);
            now.push((tally, count));
        }
        let whole = self.beside(".new");
        std::fs::write(&whole, print(&counts))?;
        std::fs::rename(&whole, &self.path)?;
        now.into_iter().for_each(|(tally, count)| tally.written.store(count, Ordering::Relaxed));
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        *written = (written.0 + 1, Some(Instant::now()));
        Ok(())
    }
}

fn parse(text: &str) -> Result<BTreeMap<Name, u64>, String> {
    let launches: Launches = toml::from_str(text).map_err(|e| e.to_string())?;
    Ok(launches.launch.into_iter().map(|l| ([l.kernel, l.types, l.dims, l.tensors], l.count)).collect())
}

/// The most frequent first.
fn print(counts: &BTreeMap<Name, u64>) -> String {
    let mut sorted: Vec<(&Name, &u64)> = counts.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut text =
        format!("# Launches that {SIZES_VARIABLE} had written, for `atlas tune --sizes` and `atlas bundle --sizes`.\n");
    for ([kernel, types, dims, tensors], count) in sorted {
        // Writing to a string does not fail.
        let _ = write!(text, "\n[[launch]]\nkernel = {kernel:?}\ntypes = {types:?}\ndims = {dims:?}\n");
        if !tensors.is_empty() {
            let _ = writeln!(text, "tensors = {tensors:?}");
        }
        let _ = writeln!(text, "count = {count}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let name = |kernel: &str, tensors: &str| [kernel, "T=bf16", "N=5 D=64", tensors].map(str::to_owned);
        let counts = BTreeMap::from([(name("softmax", ""), 3), (name("rotary", "x=4:*8,1"), 70)]);
        let text = print(&counts);
        assert_eq!(parse(&text), Ok(counts));
        assert!(text.find("rotary") < text.find("softmax"), "{text}");
        assert!(parse("launch = 3").is_err());
    }
}
