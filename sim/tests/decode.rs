//! Every kernel that Atlas ships, and PTX of other compilers, parses and decodes.

use atlas_sim::alu::Arithmetic;
use atlas_sim::{decode, syntax};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

/// All files below a folder with an extension, sorted; none if there is no such folder.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The PTX of a snapshot, which follows its second `---` line.
fn strip(snapshot: &str) -> &str {
    snapshot.splitn(3, "---\n").nth(2).unwrap()
}

/// Failures of compiling each entry of a text.
fn failures(text: &str) -> Vec<String> {
    let module = match syntax::parse(text) {
        Ok(module) => module,
        Err(fault) => return vec![fault.message],
    };
    let entries = module.functions.iter().filter(|f| f.entry && f.body.is_some());
    let mut found = Vec::new();
    for entry in entries {
        match decode::compile(&module, Some(&entry.name), Arithmetic::Ieee) {
            Ok(program) => {
                assert_eq!(program.code.len(), program.reconverge.len());
                assert_eq!(program.code.len(), program.locs.len());
            }
            Err(fault) => found.push(format!("{}: {}", entry.name, fault.message)),
        }
    }
    found
}

fn folder(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

#[test]
fn every_snapshot_of_atlas_compiles() {
    let snapshots = files(&folder("../snapshots/ptx"), "snap");
    assert!(!snapshots.is_empty());
    let mut wrong = Vec::new();
    for path in &snapshots {
        let text = std::fs::read_to_string(path).unwrap();
        wrong.extend(failures(strip(&text)).into_iter().map(|f| format!("{}: {f}", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_kernel_of_other_compilers_compiles() {
    let mut wrong = Vec::new();
    let kernels = files(&folder("tests/ptx"), "ptx");
    assert!(!kernels.is_empty());
    for path in kernels {
        let text = std::fs::read_to_string(&path).unwrap();
        wrong.extend(failures(&text).into_iter().map(|f| format!("{}: {f}", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A snapshot with some of its words replaced by others of its words, and cut off somewhere.
fn damaged(text: &str, swaps: &[(usize, usize)], cut: usize) -> String {
    let mut words: Vec<&str> = text.split_inclusive([' ', '\t', '\n', ',', '.', ';', '[', '{', '<']).collect();
    for &(to, from) in swaps {
        let (to, from) = (to % words.len(), from % words.len());
        words[to] = words[from];
    }
    let text = words.concat();
    let cut = cut % (2 * text.len());
    text.get(..cut).unwrap_or(&text).to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_damaged_snapshot_does_not_panic(
        which in 0usize..64,
        swaps in prop::collection::vec((any::<usize>(), any::<usize>()), 1..8),
        cut in any::<usize>(),
    ) {
        let snapshots = files(&folder("../snapshots/ptx"), "snap");
        let text = std::fs::read_to_string(&snapshots[which % snapshots.len()]).unwrap();
        failures(&damaged(strip(&text), &swaps, cut));
    }
}

#[test]
fn a_truncated_snapshot_is_an_error() {
    for path in files(&folder("../snapshots/ptx"), "snap") {
        let text = std::fs::read_to_string(&path).unwrap();
        let text = strip(&text).trim_end();
        let end = text.rfind('}').unwrap();
        for cut in [end, end / 2, end / 3 * 2] {
            assert!(syntax::parse(&text[..cut]).is_err(), "{} up to {cut}", path.display());
        }
    }
}
