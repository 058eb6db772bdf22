//! The index of the compiled kernels, and its agreement with the files and with their PTX.

use crate::harness;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A parameter in the index.
#[derive(Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) bytes: usize,
}

/// A compiled kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) text: String,
    pub(crate) entry: String,
    pub(crate) target: String,
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) params: Vec<Param>,
    /// Boxes, innermost first, and bytes of the swizzle, by descriptor.
    pub(crate) maps: Value,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/ptx")
}

fn entries() -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join("MANIFEST.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn triple(v: &Value) -> [u32; 3] {
    [0, 1, 2].map(|i| v[i].as_u64().unwrap() as u32)
}

/// The kernel of `NAME.ptx`.
pub(crate) fn kernel(name: &str) -> Kernel {
    let file = format!("{name}.ptx");
    let row = entries().into_iter().find(|row| row["file"] == file.as_str()).expect("the index names the file");
    let string = |v: &Value| v.as_str().unwrap().to_owned();
    let param = |p: &Value| Param { name: string(&p["name"]), bytes: p["bytes"].as_u64().unwrap() as usize };
    Kernel {
        text: std::fs::read_to_string(folder().join(&file)).unwrap(),
        entry: string(&row["entry"]),
        target: string(&row["target"]),
        block: triple(&row["block"]),
        cluster: triple(&row["cluster"]),
        dynamic_shared: row["dynamic_shared"].as_u64().unwrap() as u32,
        params: row["params"].as_array().unwrap().iter().map(param).collect(),
        maps: row["tensor_maps"].clone(),
    }
}

/// Names of all kernels.
pub(crate) fn names() -> Vec<String> {
    entries().iter().map(|row| row["file"].as_str().unwrap().trim_end_matches(".ptx").to_owned()).collect()
}

#[test]
fn the_index_lists_the_folder() {
    let listed: BTreeSet<String> = names().into_iter().collect();
    let there: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().to_str().unwrap().strip_suffix(".ptx").map(str::to_owned))
        .collect();
    assert_eq!(listed, there);
    assert!(listed.len() >= 30);
}

#[test]
fn every_kernel_has_the_launch_that_the_index_says() {
    for name in names() {
        let kernel = kernel(&name);
        let program = harness::compile(&kernel.text, &kernel.entry).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(program.target, kernel.target, "{name}");
        let sizes: Vec<usize> = program.params.iter().map(|p| p.bytes as usize).collect();
        assert_eq!(sizes, kernel.params.iter().map(|p| p.bytes).collect::<Vec<_>>(), "{name}");
        assert_eq!(program.cluster.unwrap_or([1; 3]), kernel.cluster, "{name}");
        for threads in [program.required_threads, program.max_threads].into_iter().flatten() {
            assert_eq!(threads.iter().product::<u32>(), kernel.block.iter().product::<u32>(), "{name}");
        }
    }
}
