//! Kernels that magnify their own roundings, which `atlas bundle` must not call wrong; the kernels that it does not
//! try, and why.

use atlas::prelude::*;
use atlas_runtime::bundle::{Bundle, BundleWriter, KernelEntry, Variant};
use std::fs;
use std::path::Path;

atlas_kernel! {
    /// The variance of large numbers, by the simple formula.
    kernel shifted_variance(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4, 16], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(x[n, ..]) + 100.0;
            let m = sum(t, axis = 1) / size(D).cast::<f32>();
            store(y[n], sum(t * t, axis = 1) / size(D).cast::<f32>() - m * m);
        }
    }

    /// The mean magnitude as a whole number.
    kernel quantized_mean(x: &Tensor<f32, [N, D]>, q: &mut Tensor<i32, [N, D]>)
    tune { BN: [4, 16], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(x[n, ..]);
            let m = sum(abs(t), axis = 1);
            store(q[n, ..], round(t / m * 1000000.0).cast::<i32>());
        }
    }

    /// Assigns bins.
    kernel bins(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [4, 16], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], floor(exp(load(x[n, ..])) * 100.0));
        }
    }

    /// Products divided by their sum.
    kernel shares_of_sums<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [D, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [32, 64], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let p = dot(load(x[n, ..]), load(w[.., ..]));
            store(y[n, ..], (p / sum(p, axis = 1)).cast::<T>());
        }
    }

    /// One minus the sum of a softmax.
    kernel lacks(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4, 16], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(x[n, ..]);
            let e = exp(t - max(t, axis = 1));
            let p = e / sum(e, axis = 1);
            store(y[n], sum(p, axis = 1) - 1.0);
        }
    }

    /// The mean of a row after its mean was subtracted.
    kernel centred_mean(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4, 16], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(x[n, ..]);
            store(y[n], sum(t - sum(t, axis = 1) / size(D).cast::<f32>(), axis = 1));
        }
    }

    /// Logarithms near 0.
    kernel log_ratio(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [256], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(x[n]);
            store(y[n], log(exp(t) * exp(0.0 - t)));
        }
    }

    /// A map that doubles its error in each step.
    kernel chaotic(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [256], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let mut t = abs(load(x[n]));
            for _ in 0..100 {
                t = t * exp(2.9 * (1.0 - t));
            }
            store(y[n], t);
        }
    }

    /// A number of steps given by the caller.
    kernel told(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, steps: i32)
    tune { BN: [256], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let mut s = zeros::<f32>([BN]);
            for step in 0..steps {
                s += load(x[n]) * step.cast::<f32>();
            }
            store(y[n], s);
        }
    }

    /// The first of three parts, split by heads.
    kernel first_part(x: &Tensor<f32, [P, N]>, y: &mut Tensor<f32, [H, D, N]>)
    tune { warps: [1] }
    require { P == 3 * H * D }
    {
        for (h, d) in grid(H, D) {
            store(y[h, d, ..], load(x[h * size(D) + d, ..]));
        }
    }
}

fn bundle(file: &Path, args: &[&str]) -> Result<Vec<String>, String> {
    let out = file.display().to_string();
    let mut warnings = Vec::new();
    let args = [&["atlas", "bundle"], args, &["--arch", "sm_80", "--only-these", "--out", &out]].concat();
    assert!(atlas_cli::run_with(args, |what| warnings.push(what.to_owned()))?);
    Ok(warnings)
}

fn variants(file: &Path, kernel: &str) -> Vec<Variant> {
    let entry = Bundle::open(file).unwrap().entry(kernel).unwrap().unwrap();
    entry.classes.iter().flat_map(|c| c.variants.clone()).collect()
}

fn verifies(file: &Path) -> bool {
    atlas_cli::run(["atlas", "verify", "--bundle", &file.display().to_string()]).unwrap()
}

/// A copy of a file with other code or other evidence.
fn changed(from: &Path, kernel: &str, to: &Path, code: impl Fn(&str) -> String, change: impl Fn(&mut Variant)) {
    let bundle = Bundle::open(from).unwrap();
    let mut entry: KernelEntry = (*bundle.entry(kernel).unwrap().unwrap()).clone();
    let mut writer = BundleWriter::new();
    for variant in entry.classes.iter_mut().flat_map(|c| &mut c.variants) {
        let mut image = bundle.image(variant).unwrap();
        image.ptx = code(&image.ptx);
        change(variant);
        variant.image = writer.image(&image);
    }
    writer.kernel(kernel, &entry);
    fs::write(to, writer.finish()).unwrap();
}

#[test]
fn kernels_that_magnify_roundings_are_not_called_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    for (kernel, dims, is_judged) in [
        ("shifted_variance", "N=4096,D=512", true),
        ("quantized_mean", "N=512,D=300", false),
        ("bins", "N=512,D=300", true),
        ("shares_of_sums", "N=512,D=64", false),
        ("lacks", "N=512,D=300", false),
        ("centred_mean", "N=512,D=300", false),
        ("log_ratio", "N=65536", false),
        ("chaotic", "N=65536", false),
    ] {
        let warnings = bundle(&file, &[kernel, "--dims", dims, "--variants", "2"]);
        let warnings = warnings.unwrap_or_else(|e| panic!("{kernel}: {e}"));
        for variant in variants(&file, kernel) {
            let is_tried = variant.evidence.len() == 3;
            assert!(is_tried || !is_judged, "{kernel}: {variant:?}");
            assert!(is_tried || variant.no_evidence.as_deref().is_some_and(|why| why.contains("cannot be judged")));
            assert!(is_tried || warnings.iter().any(|w| w.contains("roundings alone")), "{warnings:?}");
            assert!(variant.evidence.iter().all(|e| e.error <= e.bound && e.bound <= 0.25), "{variant:?}");
        }
    }
}

/// The bound from roundings does not excuse errors that roundings do not explain.
#[test]
fn kernels_that_magnify_roundings_are_still_found_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (folder.path().join("good.atlas"), folder.path().join("bad.atlas"));
    // The sums lack one addition, and a scale is off by one percent.
    let subtracts = |ptx: &str| {
        let line = |line: &str| match line.contains(".f32") {
            true => line.replace("sub.rn.f32", "add.rn.f32").replace("sub.f32", "add.f32"),
            false => line.to_owned(),
        };
        ptx.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
    };
    let scales = |ptx: &str| ptx.replace("0f42C80000", "0f42CA0000");
    type Change<'c> = &'c dyn Fn(&str) -> String;
    let codes: [(&str, &str, Change<'_>); 2] =
        [("shifted_variance", "N=4096,D=512", &subtracts), ("bins", "N=512,D=300", &scales)];
    for (kernel, dims, code) in codes {
        bundle(&good, &[kernel, "--dims", dims, "--variants", "1"]).unwrap();
        assert!(verifies(&good), "{kernel}");
        let is_other = |ptx: &str| {
            let other = code(ptx);
            assert_ne!(other, ptx, "{kernel}");
            other
        };
        changed(&good, kernel, &bad, is_other, |v| v.evidence.clear());
        assert!(!verifies(&bad), "{kernel}");
    }
}

/// Counted operations limit the trials, when a bundle is made and when it is verified.
#[test]
fn what_takes_too_long_is_not_tried() {
    let folder = tempfile::tempdir().unwrap();
    let (file, bad) = (folder.path().join("a.atlas"), folder.path().join("bad.atlas"));
    let args = ["told", "--dims", "N=65536", "--variants", "1"];
    let warnings = bundle(&file, &[&args[..], &["--set", "steps=100000000"]].concat()).unwrap();
    assert!(warnings[0].contains("it takes more than 1073 million operations"), "{warnings:?}");
    bundle(&file, &args).unwrap();
    changed(&file, "told", &bad, str::to_owned, |v| {
        for e in &mut v.evidence {
            e.sizes = e.sizes.replace(" steps=", " steps=2000000000");
            e.sizes += if e.sizes.contains("steps=") { "" } else { " steps=2000000000" };
        }
    });
    assert!(verifies(&file) && !verifies(&bad));
}

/// A dim that follows from others is solved for, wherever it is in the signature.
#[test]
fn an_equation_is_solved() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    let args = ["first_part", "--dims", "N=16,P=6144,H=32,D=64", "--variants", "1"];
    assert_eq!(bundle(&file, &args), Ok(Vec::new()));
    assert!(variants(&file, "first_part").iter().all(|v| v.evidence.len() == 3));
}

/// Handwritten classes that no launch can have are refused when they are read.
#[test]
fn views_that_no_launch_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (file, sizes) = (folder.path().join("a.atlas"), folder.path().join("sizes.toml"));
    let from = sizes.display().to_string();
    let refused = |kernel: &str, dims: &str, tensors: &str| {
        let text = format!("[[launch]]\nkernel = \"{kernel}\"\ndims = \"{dims}\"\ntensors = \"{tensors}\"\n");
        fs::write(&sizes, text).unwrap();
        bundle(&file, &["--sizes", &from]).unwrap_err()
    };
    for (tensors, wanted) in [
        ("x=4:72,1", "`x=4:*8,1`"),
        ("x=16:72,1", "`x=16:*8,1`"),
        ("x=32:*8,1", "`x=16:*8,1`"),
        ("x=16:*256,1", "`x=16:*128,1`"),
        ("x=4:0,1", "`x=4:*128,1`"),
        ("x=4:0,0", "`x=4:*128,*128`"),
        ("x=4:-8,1", "`x=4:*8,1`"),
        ("x=4:*2,2", "`x=4:*2,*2`"),
        ("x=2147483648:*8,1", "`x=16:*8,1`"),
        ("x=4:*2147483648,1", "`x=4:*128,1`"),
        ("x=4:9223372036854775807,9223372036854775807", "`x=4:*1,*1`"),
    ] {
        let why = refused("softmax", "N=5 D=64", tensors);
        assert!(why.contains("no launch of `softmax` has the view of `x`") && why.contains(wanted), "{tensors}: {why}");
    }
    let why = refused("attention", "", "q=4:9223372036854775807,9223372036854775807,*8");
    assert!(why.contains("attention"), "{why}");
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    let out = file.display().to_string();
    for (args, wanted) in [
        (&["told", "--dims", "N=64", "--variants", "0"][..], "--variants 0 leaves a bundle of nothing"),
        (&["told", "--dims", "N=64", "--arch", ","], "--arch has nothing before or after a comma"),
        (&["told", "--dims", "N=64", "--dtype", "f64"], "the element types of `told` are written in it"),
        (&["--show", &out, "softmax", "--dims", "N=-1"], "cannot be used with"),
        (&["--show", &out, "--arch", "sm_80"], "cannot be used with"),
    ] {
        let why = atlas_cli::run([&["atlas", "bundle"], args].concat()).unwrap_err();
        assert!(why.contains(wanted), "{args:?}: {why}");
    }
    let mut warnings = Vec::new();
    let args =
        ["atlas", "bundle", "told", "--dims", "N=64", "--arch", "sm_80:NVIDIA H200", "--no-evidence", "--out", &out];
    atlas_cli::run_with(args, |what| warnings.push(what.to_owned())).unwrap();
    assert!(warnings.iter().any(|w| w.contains("`NVIDIA H200` is sm_90")), "{warnings:?}");
}
