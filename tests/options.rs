//! Contradictory options and values that are out of range, and their messages.

#[cfg(feature = "llvm")]
use crate::command::{folder, write};
use crate::command::{has, prints, refuses, refuses_with, says_with};

/// Options that would otherwise be ignored silently.
#[test]
fn options_that_contradict_each_other_are_refused() {
    for (args, one, other) in [
        (&["compile", "softmax", "--all", "--out-dir", "D"][..], "--all", "[KERNEL]"),
        (&["compile", "--all", "--out-dir", "D", "--dims", "N=1"], "--all", "--dims"),
        (&["compile", "--all", "--out-dir", "D", "--dtype", "f32"], "--all", "--dtype"),
        (&["compile", "--all", "--out-dir", "D", "--config", "BN=1"], "--all", "--config"),
        (&["compile", "softmax", "--out-dir", "D", "--json"], "--json", "--out-dir"),
        (&["verify", "--bundle", "F", "--only", "softmax"], "--bundle", "--only"),
        (&["verify", "--bundle", "F", "--device", "cpu"], "--bundle", "--device"),
        (&["verify", "--bundle", "F", "--seed", "1"], "--bundle", "--seed"),
        (&["verify", "--differential", "--repeat", "2"], "--differential", "--repeat"),
        (&["tune", "--pack", "P", "softmax", "--budget", "5"], "--budget", "--pack"),
        (&["tune", "--pack", "P", "softmax", "--jobs", "3"], "--pack", "--jobs"),
        (&["tune", "--pack", "P", "softmax", "--json"], "--pack", "--json"),
        (&["tune", "--replay", "R", "softmax"], "--replay", "[KERNELS]"),
        (&["tune", "--replay", "R", "--dims", "N=5"], "--replay", "--dims"),
        (&["tune", "--recount", "R", "softmax"], "--recount", "[KERNELS]"),
        (&["tune", "--measure", "P", "--share", "1"], "--share", "--measure"),
        (&["tune", "--check", "--share", "0.5"], "--share", "--check"),
        (&["tune", "--check", "--seed", "2"], "--seed", "--check"),
        (&["tune", "--check", "--budget", "2"], "--budget", "--check"),
    ] {
        let said = refuses(args);
        assert!(said.contains("cannot be used with") && said.contains(one) && said.contains(other), "{args:?}: {said}");
    }
    for (args, want) in [
        (&["compile", "--all", "--out-dir", "D", "--emit", "tile"][..], "--all writes PTX"),
        (&["verify", "--device", "cpu", "--arch", "nosuch"], "--arch is for the simulator, --device sim"),
        (&["verify", "--device", "cpu", "--schedule", "random"], "--schedule is for the simulator"),
        (&["verify", "--device", "cpu", "--seed", "0"], "--seed is for the simulator"),
        (&["verify", "--device", "cpu", "--all-configs"], "--all-configs is for the simulator"),
        (&["verify", "--device", "sim:sm_80", "--arch", "sm_90"], "--device sim:sm_80 names its architecture"),
        (&["verify", "--device", "sim", "--repeat", "2"], "--repeat is for a GPU or the CPU"),
    ] {
        has(&refuses(args), &[want]);
    }
}

/// A run that does nothing is not a success.
#[test]
fn nothing_to_do_is_an_error() {
    for only in ["nosuch", ""] {
        let said = refuses(&["demo", "--device", "cpu", "--only", only]);
        has(&said, &[&format!("there is no problem of `{only}` in the demo; its ops are "), "newton_schulz_small"]);
    }
    let most = u64::MAX.to_string();
    let said = refuses(&["fuzz", "--seed", &most, "--count", "2", "--list"]);
    has(&said, &["--count 2: from seed 18446744073709551615 on there are 1 to 1 seeds to try"]);
    has(&refuses(&["fuzz", "--count", "0", "--list"]), &["--count 0: from seed 1 on"]);
    assert!(!prints(&["fuzz", "--seed", &most, "--count", "1", "--list"]).is_empty());
}

#[test]
fn what_is_out_of_range_is_said_to_be() {
    let with = |config: &str| refuses(&["compile", "softmax", "--emit", "tile", "--config", config]);
    has(&with("BN=4294967296"), &["--config: `4294967296` in `BN=4294967296` is more than 4294967295"]);
    has(&with("warps=100000000000000"), &["`100000000000000` is more than 4294967295, and `warps` takes"]);
    let knobs = "its knobs are BN, warps, occupancy, stages, warp_grid, order";
    has(&with("BM=4"), &["`softmax` has no knob `BM`", knobs]);
    for bound in ["abc", "-1", "99999999999999999999"] {
        let said = says_with(&["list"], &[("ATLAS_CACHE_MB", bound)]);
        has(&said, &[&format!("warning: ATLAS_CACHE_MB: `{bound}` is no whole number"), "the usual 512 MiB"]);
    }
    for bound in ["", "0", " 64 "] {
        assert_eq!(says_with(&["list"], &[("ATLAS_CACHE_MB", bound)]), "", "{bound}");
    }
}

/// The advice is for the command line, not for programs.
#[test]
fn a_device_that_is_not_here_names_an_option() {
    let without = [("LD_LIBRARY_PATH", "/nowhere")];
    let said = refuses_with(&["verify", "--device", "cuda:0"], &without);
    assert!(!said.contains("no NVIDIA driver") || said.contains("or use --device cpu"), "{said}");
    assert!(!said.contains("Device::cpu()"), "{said}");
    if cfg!(feature = "llvm") {
        let said = refuses_with(&["tune", "softmax"], &without);
        assert!(!said.contains("no NVIDIA driver") || said.contains("or use --device sim"), "{said}");
        has(&refuses(&["tune", "softmax", "--device", "cpu"]), &["`tune` measures GPUs, and", "--device sim"]);
    }
}

#[test]
fn a_list_has_whole_sentences() {
    let list = prints(&["list"]);
    let of_ops = |k: &&&atlas_dsl::KernelDef| k.file.contains("ops/src") && k.doc.trim().lines().count() > 1;
    let all = atlas_dsl::registry();
    let docs: Vec<&str> = all.iter().filter(of_ops).map(|k| k.doc.trim()).collect();
    assert!(!docs.is_empty());
    for doc in docs {
        let end = doc.lines().map(str::trim).take_while(|line| !line.is_empty()).last().unwrap_or_default();
        // A table may break lines anywhere between words.
        let last = end.split(' ').next_back().unwrap_or_default();
        assert!(list.contains(last), "no `{last}` in\n{list}");
    }
}

/// A bad record gives a warning, and readable ones are read.
#[test]
#[cfg(feature = "llvm")]
fn a_record_of_any_text_serves_a_bundle() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let row =
        "ir = \"0\"\nspread = nan\nmeasured = \"a\u{a0}b\"\nmodel = 1\nconfigs = [[\"BN=1 warps=1\", 0.0004, 0.01]]\n";
    let good = format!(
        "kernel = \"softmax\"\ngpu = \"Some\u{a0}GPU\"\ntune = \"t\"\n[[size]]\ntypes = \"T=bf16\"\ndims = \"N=8 D=64\"\n{row}"
    );
    std::fs::create_dir(path("records")).unwrap();
    write(&folder.path().join("records/good.toml"), &good);
    write(&folder.path().join("records/bad.toml"), "kernel = 3\n");
    let out = path("k.atlas");
    let args = ["bundle", "softmax", "--dims", "N=8,D=64", "--arch", "sm_80:Some\u{a0}GPU", "--variants", "1"];
    let said = says_with(
        &[&args[..], &["--only-these", "--no-evidence", "--out", &out]].concat(),
        &[("ATLAS_RECORDS", &path("records"))],
    );
    has(&said, &["warning: the tuning records of", "bad.toml cannot be used"]);
    assert!(!said.contains("good.toml"), "{said}");
}

/// An assembler that is missing, prints nothing, writes nothing, or never ends.
#[test]
#[cfg(all(unix, feature = "llvm"))]
fn an_assembler_of_no_use_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let program = |name: &str, text: &str| {
        let path = folder.path().join(name);
        write(&path, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let out = folder.path().join("k.atlas").display().to_string();
    let args = ["bundle", "softmax", "--dims", "N=8,D=64", "--arch", "sm_80", "--variants", "1", "--only-these"];
    let args = [&args[..], &["--no-evidence", "--cubin", "--out", &out]].concat();
    let said = refuses_with(&args, &[("ATLAS_PTXAS", "/nonexistent")]);
    has(&said, &["which is not here: ATLAS_PTXAS names /nonexistent, which is no file"]);
    let silent = program("silent", "#!/bin/sh\n");
    has(
        &refuses_with(&args, &[("ATLAS_PTXAS", &silent)]),
        &[&format!("{silent} ended well and wrote no machine code")],
    );
    let begun = std::time::Instant::now();
    let sleeps = program("sleeps", "#!/bin/sh\nsleep 120\n");
    has(&crate::command::prints_with(&["doctor"], &[("ATLAS_PTXAS", &sleeps)]), &["version unknown"]);
    assert!(begun.elapsed().as_secs() < 60);
    has(
        &crate::command::prints_with(&["doctor"], &[("ATLAS_PTXAS", "/nonexistent")]),
        &["/nonexistent, which is no file"],
    );
}

/// Other users of the folder of temporary files can neither stop a measurement nor redirect its file.
#[test]
#[cfg(all(unix, feature = "llvm"))]
fn what_stands_in_place_of_a_lock_is_left_alone() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(at("victim"), at("atlas-tune-simulator-sm-90-sim-sm-90.lock")).unwrap();
    let own = at("atlas-tune-simulator-sm-90-sim-sm-90.me.lock");
    assert!(std::process::Command::new("mkfifo").arg(&own).status().unwrap().success());
    let (records, temporary) = (at("records").display().to_string(), folder.path().display().to_string());
    let args = ["tune", "softmax", "--device", "sim:sm_90", "--dims", "N=8,D=512", "--share", "0.1", "--jobs", "1"];
    let said = says_with(&[&args[..], &["--records", &records]].concat(), &[("TMPDIR", &temporary), ("USER", "me")]);
    has(&said, &["warning: cannot lock", "it is no regular file", "nothing keeps out other processes"]);
    assert!(!at("victim").exists());
}

#[cfg(feature = "llvm")]
mod without_config {
    use atlas::prelude::*;

    atlas_kernel! {
        kernel exponential(x: &Tensor<f64, [N]>, y: &mut Tensor<f64, [N]>)
        tune { BN: [32], warps: [1] }
        {
            for n in grid(tiles(N, BN)) {
                store(y[n], exp(load(x[n])));
            }
        }
    }

    /// No config gives an instruction for it, so the message does not suggest a config.
    #[test]
    fn what_no_gpu_computes_needs_no_other_config() {
        let device = Device::sim("sm_90").unwrap();
        let x = device.tensor_from(&[1.0_f64; 8], [8]).unwrap();
        let mut y = atlas::Tensor::zeros(&device, atlas_dsl::DType::F64, [8]).unwrap();
        let said = exponential.launch(&device, args!(x, &mut y)).unwrap_err().to_string();
        let want = "error[ATL641]: `exponential`: this problem cannot run here, whatever the config; config";
        assert!(said.starts_with(want) && said.contains("`exp` of f64 has no GPU lowering"), "{said}");
    }
}
