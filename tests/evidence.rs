//! What `atlas bundle` tries a user's kernels on: sizes that meet their demands, numbers that make them work; and what it says
//! where it cannot, or where they are wrong.

use atlas::prelude::*;
use atlas::runtime::bundle::{Bundle, BundleWriter, KernelEntry, Variant};
use std::fs;
use std::path::Path;

atlas_kernel! {
    /// Sums of neighbours.
    kernel sums_of_two(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [M, D]>)
    require { N == 2 * M }
    {
        for m in grid(M) {
            store(y[m, ..], load(x[m * 2 + 0, ..]) + load(x[m * 2 + 1, ..]));
        }
    }
}

atlas_kernel! {
    /// Nothing small.
    kernel of_many(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [256] }
    require { N >= 100000000 }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]) * 2.0);
        }
    }
}

atlas_kernel! {
    /// Whole numbers.
    kernel doubled_whole(x: &Tensor<i32, [N]>, y: &mut Tensor<i32, [N]>)
    tune { BN: [256, 512], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]) * 2);
        }
    }
}

atlas_kernel! {
    /// No number where its input is negative.
    kernel roots_alone(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [1024] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], sqrt(load(x[n])));
        }
    }
}

atlas_kernel! {
    /// Sums of rows of a list of rows.
    kernel sums_of_rows(starts: &Tensor<i32, [P]>, x: &Tensor<f32, [Z, D]>, y: &mut Tensor<f32, [R, D]>)
    require { P == R + 1 }
    {
        for r in grid(R) {
            let mut sum = zeros::<f32>([D]);
            for j in load(starts[r + 0])..load(starts[r + 1]) {
                sum += load(x[j + 0, ..]);
            }
            store(y[r, ..], sum);
        }
    }
}

/// A bundle of one kernel, and what is warned of; or why there is none.
fn bundle(file: &Path, args: &[&str]) -> Result<Vec<String>, String> {
    let out = file.display().to_string();
    let mut warnings = Vec::new();
    let args = [&["atlas", "bundle"], args, &["--out", &out]].concat();
    assert!(atlas::cli::run_with(args, |what| warnings.push(what.to_owned()))?);
    Ok(warnings)
}

fn variants(file: &Path, kernel: &str) -> Vec<Variant> {
    let entry = Bundle::open(file).unwrap().entry(kernel).unwrap().unwrap();
    entry.classes.iter().flat_map(|c| c.variants.clone()).collect()
}

fn verifies(file: &Path) -> bool {
    atlas::cli::run(["atlas", "verify", "--bundle", &file.display().to_string()]).unwrap()
}

/// A file like another whose first variant has other code, and no evidence.
fn changed(from: &Path, kernel: &str, to: &Path, change: impl Fn(&str) -> String) {
    let bundle = Bundle::open(from).unwrap();
    let mut entry: KernelEntry = (*bundle.entry(kernel).unwrap().unwrap()).clone();
    let mut writer = BundleWriter::new();
    for (at, variant) in entry.classes.iter_mut().flat_map(|c| &mut c.variants).enumerate() {
        let mut image = bundle.image(variant).unwrap();
        if at == 0 {
            let lines: Vec<String> = image.ptx.lines().map(&change).collect();
            assert_ne!(lines, image.ptx.lines().collect::<Vec<_>>());
            image.ptx = lines.join("\n") + "\n";
            variant.evidence.clear();
        }
        variant.image = writer.image(&image);
    }
    writer.kernel(kernel, &entry);
    fs::write(to, writer.finish()).unwrap();
}

#[test]
fn sizes_are_found_that_a_kernel_demands() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    for (kernel, dims) in [("sums_of_two", "N=4096,M=2048,D=32"), ("sums_of_rows", "P=4097,R=4096,Z=20000,D=32")] {
        assert_eq!(bundle(&file, &[kernel, "--dims", dims, "--arch", "sm_80"]), Ok(Vec::new()));
        let variants = variants(&file, kernel);
        assert!(variants.iter().all(|v| v.evidence.len() == 3), "{variants:?}");
        assert!(verifies(&file));
    }
}

#[test]
fn what_cannot_be_tried_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    let warnings = bundle(&file, &["of_many", "--dims", "N=100000000", "--arch", "sm_80"]).unwrap();
    assert!(warnings[0].contains("have no evidence: no small problem of its class is known"), "{warnings:?}");
    let variants = variants(&file, "of_many");
    assert!(variants.iter().all(|v| v.evidence.is_empty() && v.no_evidence.is_some()), "{variants:?}");
}

/// A fault is no reason to leave a variant untried, and neither is what leaves its output as it was.
#[test]
fn code_that_faults_or_does_nothing_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (folder.path().join("good.atlas"), folder.path().join("bad.atlas"));
    bundle(&good, &["doubled_whole", "--dims", "N=65536", "--arch", "sm_80"]).unwrap();
    assert!(variants(&good, "doubled_whole").len() > 1 && verifies(&good));
    let is_store = |line: &str| line.contains("st.global");
    changed(&good, "doubled_whole", &bad, |line| if is_store(line) { String::new() } else { line.to_owned() });
    assert!(!verifies(&bad), "nothing is stored");
    changed(&good, "doubled_whole", &bad, |line| {
        if is_store(line) && !line.contains('+') { line.replacen(']', "+16777216]", 1) } else { line.to_owned() }
    });
    assert!(!verifies(&bad), "stored elsewhere");
    changed(&good, "doubled_whole", &bad, |line| line.replace("st.global", "st.globe"));
    assert!(!verifies(&bad), "no PTX");
}

/// Whatever stands beside it in the file, and in whatever order machines are named.
#[test]
fn every_variant_is_run_as_itself() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    for archs in ["sm_90,sm_90a", "sm_86,sm_80"] {
        bundle(&file, &["doubled_whole", "--dims", "N=65536", "--arch", archs]).unwrap();
        let variants = variants(&file, "doubled_whole");
        assert!(variants.iter().all(|v| v.evidence.len() == 3), "{archs}: {variants:?}");
    }
}

#[test]
fn kernels_of_positive_numbers_get_such() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    assert_eq!(bundle(&file, &["roots_alone", "--dims", "N=65536", "--arch", "sm_80"]), Ok(Vec::new()));
    assert!(verifies(&file));
}
