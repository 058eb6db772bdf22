//! How `atlas bundle` tries a user's kernels: with sizes that meet their requirements and suitable numbers; and its
//! messages if it cannot try them, or if they are wrong.

use atlas::prelude::*;
use atlas_dsl::{KernelDef, Specialization};
use atlas_runtime::build_kernel;
use atlas_runtime::bundle::{Bundle, BundleWriter, KernelEntry, Variant};
use atlas_runtime::records::{MODEL, Record, Timed, TunedSize, ir_hash, tune_hash};
use std::fs;
use std::path::Path;

atlas_kernel! {
    /// Sums of adjacent elements.
    kernel sums_of_two(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [M, D]>)
    require { N == 2 * M }
    {
        for m in grid(M) {
            store(y[m, ..], load(x[m * 2 + 0, ..]) + load(x[m * 2 + 1, ..]));
        }
    }
}

atlas_kernel! {
    /// Has no small sizes.
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
    /// Gives NaN for negative inputs.
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

atlas_kernel! {
    /// Products with the first of each four numbers.
    kernel first_of_fours<T: Float>(x: &Tensor<T, [N, P, F]>, q: &Tensor<i32, [P, M]>, y: &mut Tensor<T, [N, M]>)
    tune { BN: [16, 32], BM: [32], BP: [16], stages: 2..=3, warps: [4] }
    require { F == 4 }
    {
        for (n, m) in grid(tiles(N, BN), tiles(M, BM)) {
            let mut sum = zeros::<f32>([BN, BM]);
            for p in pipeline(tiles(P, BP)) {
                sum += dot(load(x[n, p, 0]), load(q[p, m]).cast::<T>());
            }
            store(y[n, m], sum.cast::<T>());
        }
    }

    /// The rows of the blocks that exist.
    kernel of_blocks<T: Float>(
        a: &Tensor<T, [E, S, S]>, col: &Tensor<i32, [E]>, ptr: &Tensor<i32, [P]>, x: &Tensor<T, [N, M]>, y: &mut Tensor<T, [R, S, M]>,
    )
    tune { BM: [16, 32], stages: 2..=3, warps: [4, 1] }
    require { P == R + 1, N % S == 0 }
    {
        for (r, m) in grid(R, tiles(M, BM)) {
            let mut sum = zeros::<f32>([S, BM]);
            for e in load(ptr[r + 0])..load(ptr[r + 1]) {
                sum += dot(load(a[e, .., ..]), load(x[span(load(col[e]) * size(S), S), m]));
            }
            store(y[r, .., m], sum.cast::<T>());
        }
    }
}

atlas_kernel! {
    /// With two element types.
    kernel of_two_types<T: Float, U: Float>(x: &Tensor<T, [N]>, y: &mut Tensor<U, [N]>)
    tune { BN: [256] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]).cast::<U>());
        }
    }
}

atlas_kernel! {
    /// The nearest of some rows, and its distance.
    kernel nearest_row(
        x: &Tensor<f32, [N, D]>, codes: &Tensor<f32, [C, D]>, at: &mut Tensor<i32, [N]>, far: &mut Tensor<f32, [N]>,
    )
    tune { BN: [16, 32], BC: [32, 64] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            let mut best = full::<f32>([BN, 1], f32::INFINITY);
            let mut place = zeros::<i32>([BN, 1]);
            for c in tiles(C, BC) {
                let others = load(codes[c, ..]);
                let squares = sum(others * others, axis = 1).t() - 2.0 * dot(rows, others.t());
                let all = (squares + sum(rows * rows, axis = 1)).or(f32::INFINITY);
                let least = min(all, axis = 1);
                let numbers = iota([BN, BC], 1) + c * BC;
                let own = min(select(all <= least, numbers, 1000000), axis = 1);
                place = select(least < best, own, place);
                best = min(best, least);
            }
            store(at[n], place);
            store(far[n], best);
        }
    }

    /// Sums of rows, one or more at a time.
    kernel row_totals(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [1, 4, 16], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], sum(load(x[n, ..]), axis = 1));
        }
    }

    /// Convolves columns with a few numbers.
    kernel along_columns(x: &Tensor<f32, [H, W]>, f: &Tensor<f32, [K]>, y: &mut Tensor<f32, [R, W]>)
    tune { BW: [64] }
    require { H == R + K - 1 }
    {
        for (r, w) in grid(R, tiles(W, BW)) {
            let mut sum = zeros::<f32>([BW]);
            for k in 0..size(K) {
                sum += load(x[r + k, w]) * load(f[k]);
            }
            store(y[r, w], sum);
        }
    }
}

#[test]
fn each_element_type_of_a_kernel_is_asked_for_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    for (given, types) in [("T=f16,U=f32", "T=f16 U=f32"), ("U=f32", "T=bf16 U=f32"), ("f32", "T=f32 U=f32")] {
        let args = ["of_two_types", "--dims", "N=65536", "--dtype", given, "--arch", "sm_80", "--no-evidence"];
        bundle(&file, &args).unwrap();
        let entry = Bundle::open(&file).unwrap().entry("of_two_types").unwrap().unwrap();
        assert!(entry.classes.iter().all(|c| c.types == types), "{given}: {entry:?}");
    }
    let explain = ["atlas", "explain", "of_two_types", "--dims", "N=65536", "--simulate", "--json", "--dtype"];
    assert_eq!(atlas_cli::run([&explain[..], &["T=bf16,U=f32"]].concat()), Ok(true));
    let why = atlas_cli::run([&explain[..], &["T=bf16,V=f32"]].concat()).unwrap_err();
    assert!(why.contains("has no element type `V`; those that it has by name are T, U"), "{why}");
}

/// A bundle of one kernel and its warnings, or why there is none.
fn bundle(file: &Path, args: &[&str]) -> Result<Vec<String>, String> {
    let out = file.display().to_string();
    let mut warnings = Vec::new();
    let args = [&["atlas", "bundle"], args, &["--out", &out]].concat();
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

/// A copy of a file whose first variant has other code, and no evidence.
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
    for (kernel, dims) in [
        ("sums_of_two", "N=4096,M=2048,D=32"),
        ("sums_of_rows", "P=4097,R=4096,Z=20000,D=32"),
        ("first_of_fours", "N=1000,P=900,F=4,M=300"),
        ("of_blocks", "E=40,S=16,P=11,R=10,N=160,M=300"),
    ] {
        let only = ["--variants", "2", "--only-these"];
        let args = [&[kernel, "--dims", dims, "--arch", "sm_80"][..], &only].concat();
        assert_eq!(bundle(&file, &args), Ok(Vec::new()), "{kernel}");
        let variants = variants(&file, kernel);
        assert!(variants.iter().all(|v| v.evidence.len() == 3), "{variants:?}");
        assert!(verifies(&file));
        if kernel == "first_of_fours" {
            // More than one tile in each dim, and no multiple of a tile.
            for sizes in variants.iter().map(|v| &v.evidence[0].sizes) {
                let of = |name: &str| sizes.split(' ').find_map(|s| s.strip_prefix(name)?.parse::<u64>().ok()).unwrap();
                assert!(of("N=") > 16 && of("P=") > 16 && of("M=") > 32 && of("F=") == 4, "{sizes}");
            }
        }
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

/// A fault does not excuse a variant from the trial, and neither does an output that was not written.
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

/// Whatever else is in the file, and whatever the order of the machines.
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

atlas_kernel! {
    /// Another kernel with the name of a shipped one.
    kernel favor_features(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [128, 256, 512], warps: [1, 2, 4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]) + 1.0);
        }
    }
}

/// A record with a config that would not be chosen without it.
fn record_of(def: &'static KernelDef, gpu: &str) -> Record {
    let spec = Specialization::default().with_dim("N", atlas_dsl::specialization::DimFact::Dynamic(128));
    let config = def.configs().into_iter().find(|c| c.to_string().contains("BN=128") && c.schedule.warps == 8).unwrap();
    let kernel = build_kernel(def, &spec, &config).unwrap();
    let timed = Timed { config: config.to_string(), us: 1.0, cycles: 1000.0 };
    let size = TunedSize {
        types: String::new(),
        tensors: String::new(),
        dims: "N=65536".to_owned(),
        ir: ir_hash(&kernel),
        spread: 0.0,
        of_copy: 0.0,
        measured: "for a test".to_owned(),
        model: MODEL,
        target: String::new(),
        configs: vec![timed],
    };
    Record { kernel: def.name.to_owned(), gpu: gpu.to_owned(), tune: tune_hash(def), sizes: vec![size] }
}

/// A kernel's own record decides, although a shipped one has the same name, and the kernel itself is verified.
#[test]
fn records_and_bundles_are_of_a_kernel_and_not_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (file, records) = (folder.path().join("a.atlas"), folder.path().join("records"));
    fs::create_dir(&records).unwrap();
    let record = record_of(&favor_features, "NVIDIA H200");
    fs::write(records.join("favor_features.toml"), record.to_string()).unwrap();
    let records = records.display().to_string();
    let args =
        ["favor_features", "--dims", "N=65536", "--arch", "sm_90:NVIDIA H200", "--records", &records, "--only-these"];
    assert_eq!(bundle(&file, &args), Ok(Vec::new()));
    let entry = Bundle::open(&file).unwrap().entry("favor_features").unwrap().unwrap();
    let (_, exact) = entry.classes[0].tables[0].table.exact[0];
    assert_eq!(entry.classes[0].variants[usize::from(exact)].config, record.sizes[0].configs[0].config);
    assert!(verifies(&file));
    // A config that the kernel does not have is left out, with a message.
    let mut unknown = record_of(&favor_features, "NVIDIA H200");
    unknown.sizes[0].configs[0].config = "BN=96 stages=2 warps=8".to_owned();
    fs::write(Path::new(&records).join("favor_features.toml"), unknown.to_string()).unwrap();
    let warnings = bundle(&file, &[&args[..], &["--no-evidence"]].concat()).unwrap();
    assert!(
        warnings.len() == 1
            && warnings[0].contains("`BN=96 stages=2 warps=8`, which is left out")
            && warnings[0].contains("tune space"),
        "{warnings:?}"
    );
    // If the folder has no records of a GPU, that is reported, although it has records of other GPUs for the kernels.
    let other = folder.path().join("others");
    fs::create_dir(&other).unwrap();
    let other = other.display().to_string();
    let warnings = bundle(&file, &[&args[..6], &[&other, "--no-evidence"]].concat()).unwrap();
    assert!(
        warnings.iter().any(|w| w.contains("there are no tuning records of `NVIDIA H200`, nor of any other GPU")),
        "{warnings:?}"
    );
    let nowhere = bundle(&file, &[&args[..6], &["/nowhere"]].concat()).unwrap_err();
    assert!(nowhere.contains("--records: cannot read /nowhere"), "{nowhere}");
}

/// Two kernels with one name in a program: the one that was compiled is tried again.
#[test]
fn a_shipped_kernel_is_verified_beside_one_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas").display().to_string();
    // The command line only knows the shipped one.
    crate::command::prints(&["bundle", "layer_norm", "--dims", "B=1,N=64,H=1,D=64", "--arch", "sm_80", "--out", &file]);
    assert!(verifies(Path::new(&file)));
}

/// Launches by the command line itself are not recorded as a program's sizes.
#[test]
fn evidence_is_no_size_of_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (sizes, file, records) = (path("sizes.toml"), path("a.atlas"), path("records"));
    let variables = [("ATLAS_RECORD_SIZES", sizes.as_str())];
    let problem = ["softmax", "--dims", "N=8,D=64"];
    let bundle = [&["bundle"], &problem[..], &["--arch", "sm_80", "--variants", "1", "--out", &file]].concat();
    crate::command::prints_with(&bundle, &variables);
    let tune = ["--device", "sim:sm_90", "--share", "0.1", "--jobs", "1", "--records", &records];
    crate::command::prints_with(&[&["tune"], &problem[..], &tune].concat(), &variables);
    crate::command::prints_with(&["verify", "--bundle", &file], &[("ATLAS_RECORD_SIZES", &path("verified.toml"))]);
    assert!(!Path::new(&sizes).exists());
    assert!(!fs::read_to_string(path("verified.toml")).unwrap_or_default().contains("softmax"));
}

atlas_kernel! {
    /// A loop with a number of steps given by the caller.
    kernel told_steps(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, steps: i32)
    tune { BN: [256] }
    {
        for n in grid(tiles(N, BN)) {
            let mut sum = zeros::<f32>([BN]);
            for step in 0..steps {
                sum += load(x[n]) * step.cast::<f32>();
            }
            store(y[n], sum);
        }
    }
}

/// Numbers passed by value come from the user, if given, and are part of the evidence.
#[test]
fn numbers_by_value_are_given_or_usual() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    let args = ["told_steps", "--dims", "N=65536", "--arch", "sm_80"];
    let sizes = |more: &[&str]| {
        assert_eq!(bundle(&file, &[&args[..], more].concat()), Ok(Vec::new()));
        assert!(verifies(&file));
        variants(&file, "told_steps")[0].evidence[0].sizes.clone()
    };
    let usual = sizes(&[]);
    assert_eq!(sizes(&["--set", "steps=5"]), format!("{usual} steps=5"));
    let sizes = folder.path().join("sizes.toml");
    fs::write(&sizes, "[[launch]]\nkernel = \"told_steps\"\ndims = \"N=65536\"\nset = \"steps=9\"\n").unwrap();
    assert_eq!(bundle(&file, &["--sizes", &sizes.display().to_string(), "--arch", "sm_80"]), Ok(Vec::new()));
    assert!(variants(&file, "told_steps")[0].evidence[0].sizes.ends_with(" steps=9"));
    let why = bundle(&file, &[&args[..], &["--set", "stepz=5"]].concat()).unwrap_err();
    assert!(why.contains("no kernel takes `stepz=5` by value"), "{why}");
}

/// If rows were equal, the nearest one would be a matter of rounding.
#[test]
fn inputs_have_no_coincidences() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    let args = ["nearest_row", "--dims", "N=96,D=32,C=192", "--arch", "sm_80", "--variants", "3"];
    assert_eq!(bundle(&file, &args), Ok(Vec::new()));
    let variants = variants(&file, "nearest_row");
    assert!(variants.len() >= 3 && variants.iter().all(|v| v.evidence.len() == 3), "{variants:?}");
    assert!(verifies(&file));
}

/// Views whose rows are not adjacent, as recorded, including a variant with one row per tile.
#[test]
fn views_are_tried_as_views() {
    let folder = tempfile::tempdir().unwrap();
    let (file, sizes) = (folder.path().join("a.atlas"), folder.path().join("sizes.toml"));
    let from = sizes.display().to_string();
    for (kernel, types, dims, tensors) in [
        ("row_totals", "", "N=7 D=33", "x=4:*4,1"),
        ("row_totals", "", "N=7 D=33", "x=4:*2,1 y=4:*2"),
        ("softmax", "T=bf16", "N=33 D=127", "x=2:*8,1"),
        ("rms_norm", "T=bf16", "N=33 D=127", "x=2:*8,1"),
    ] {
        let launch = format!(
            "[[launch]]\nkernel = \"{kernel}\"\ntypes = \"{types}\"\ndims = \"{dims}\"\ntensors = \"{tensors}\"\n"
        );
        fs::write(&sizes, launch).unwrap();
        let only = ["--arch", "sm_80", "--only-these"];
        let args = [&["--sizes", &*from][..], &only].concat();
        assert_eq!(bundle(&file, &args), Ok(Vec::new()), "{kernel} {tensors}");
        let variants = variants(&file, kernel);
        assert!(variants.iter().all(|v| v.evidence.len() == 3), "{variants:?}");
        assert!(variants.iter().all(|v| !v.evidence[0].sizes.contains("N=1 ")), "one row has no stride: {variants:?}");
        assert!(verifies(&file));
    }
}

/// The dim of a loop has the requested size, and verification uses the sizes in the evidence.
#[test]
fn loops_are_as_long_as_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    let args = ["along_columns", "--dims", "H=130,W=256,K=3,R=128", "--arch", "sm_80"];
    assert_eq!(bundle(&file, &args), Ok(Vec::new()));
    for variant in variants(&file, "along_columns") {
        let sizes = &variant.evidence[0].sizes;
        assert!(sizes.contains("K=3 "), "{sizes}");
    }
    assert!(verifies(&file));
}
