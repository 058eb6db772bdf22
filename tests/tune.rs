//! `atlas tune` without a GPU: instructions in the simulator stand for time.

use crate::command::{json_of, prints_with, refuses};
use serde_json::Value;
use std::fs;
use std::path::Path;

const SMALL: [&str; 7] = ["tune", "softmax", "--device", "sim:sm_90", "--dims", "N=8,D=512", "--json"];

fn tune(records: &Path, more: &[&str], variables: &[(&str, &str)]) -> Value {
    let folder = records.display().to_string();
    let args = [&SMALL[..], &["--records", &folder, "--jobs", "1"], more].concat();
    serde_json::from_str(&prints_with(&args, variables)).unwrap_or_else(|e| panic!("no JSON: {e}"))
}

#[test]
fn what_is_tuned_is_recorded_and_not_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = tune(folder.path(), &[], &[]);
    let row = &first["sizes"][0];
    assert_eq!((row["kernel"].as_str(), row["dims"].as_str()), (Some("softmax"), Some("N=8 D=512")));
    assert!(row["measured"].as_u64() >= Some(4) && row["measured"].as_u64() < row["legal"].as_u64());
    let file = folder.path().join("simulator-sm-90/softmax.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(row["config"].as_str().unwrap()), "{text}");
    let second = tune(folder.path(), &[], &[]);
    assert_eq!((second["known"].as_u64(), second["sizes"].as_array().map(Vec::len)), (Some(1), Some(0)));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // Measuring again gives the same choice and the same text, because the simulator has no noise.
    tune(folder.path(), &["--again"], &[]);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // Another size gets a table of its own, sorted by size.
    let other = ["--dims", "N=4,D=512"];
    assert_eq!(tune(folder.path(), &other, &[])["known"], 1);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.find("N=4 D=512") < text.find("N=8 D=512"), "{text}");
}

/// If a worker dies or hangs, only its config is lost.
#[cfg(feature = "mutations")]
#[test]
fn a_config_that_ends_its_process_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let best = tune(folder.path(), &[], &[])["sizes"][0]["config"].as_str().unwrap().to_owned();
    for (fault, why) in [("abort", "its process ended"), ("hang", "no answer within")] {
        let variables = [("ATLAS_TUNE_FAULT", fault), ("ATLAS_TUNE_FAULT_AT", &best), ("ATLAS_TUNE_LIMIT", "3")];
        let row = &tune(folder.path(), &["--again"], &variables)["sizes"][0];
        assert_ne!(row["config"].as_str(), Some(best.as_str()));
        let failed = row["failed"].as_array().unwrap();
        assert!(failed.iter().any(|f| f[0] == best.as_str() && f[1].as_str().unwrap().contains(why)), "{failed:?}");
        // The line of the size says it too.
        let summary = row["summary"].as_str().unwrap();
        assert!(summary.contains(&format!("; 1 failed (1, `{best}`: ")) && summary.contains(why), "{summary}");
    }
}

/// The same if it hangs or dies while being timed, after a good run.
#[cfg(feature = "mutations")]
#[test]
fn a_config_that_ends_its_process_while_it_is_timed_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let best = tune(folder.path(), &[], &[])["sizes"][0]["config"].as_str().unwrap().to_owned();
    for (fault, why) in [("abort", "its process ended"), ("hang", "no answer within")] {
        let at = [("ATLAS_TUNE_FAULT", fault), ("ATLAS_TUNE_FAULT_AT", &best), ("ATLAS_TUNE_FAULT_TIMED", "1")];
        let variables = [&at[..], &[("ATLAS_TUNE_LIMIT", "3")]].concat();
        let row = &tune(folder.path(), &["--again"], &variables)["sizes"][0];
        assert_ne!(row["config"].as_str(), Some(best.as_str()));
        let failed = row["failed"].as_array().unwrap();
        let is_told = |f: &Value| f[0] == best.as_str() && f[1].as_str().unwrap().contains(why);
        assert!(failed.iter().any(is_told) && failed.len() == 1, "{failed:?}");
    }
}

/// Text that the program prints itself is not an answer, and does not hide one.
#[cfg(feature = "mutations")]
#[test]
fn a_worker_may_print_what_it_likes() {
    let (plain, printing) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    tune(plain.path(), &[], &[]);
    tune(printing.path(), &[], &[("ATLAS_TUNE_FAULT", "chatter"), ("ATLAS_TUNE_LIMIT", "20")]);
    let record = |folder: &Path| fs::read_to_string(folder.join("simulator-sm-90/softmax.toml")).unwrap();
    assert_eq!(record(plain.path()), record(printing.path()));
}

/// Configs that a lost worker did not build may be good: the record is the same as without the loss.
#[cfg(feature = "mutations")]
#[test]
fn what_lost_workers_did_not_build_is_measured() {
    let (plain, lost) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    tune(plain.path(), &[], &[]);
    tune(lost.path(), &[], &[("ATLAS_TUNE_FAULT", "unbuilt")]);
    let record = |folder: &Path| fs::read_to_string(folder.join("simulator-sm-90/softmax.toml")).unwrap();
    assert_eq!(record(plain.path()), record(lost.path()));
}

/// Killing a worker, busy or idle, does not end the search.
#[test]
fn a_search_outlives_its_workers() {
    let folder = tempfile::tempdir().unwrap();
    let mut args: Vec<String> =
        ["tune", "softmax", "--device", "sim:sm_90", "--share", "0.1", "--jobs", "1"].map(str::to_owned).to_vec();
    args.extend(["--records".to_owned(), folder.path().display().to_string()]);
    args.extend((1..=12).flat_map(|n| ["--dims".to_owned(), format!("N={},D=64", 4 * n)]));
    let mut child = crate::command::start(&args);
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // The threads that talk to workers start them, so the kernel lists them as the parents.
        let mut workers = fs::read_to_string(&children).unwrap_or_default();
        for task in fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten() {
            workers += &fs::read_to_string(task.path().join("children")).unwrap_or_default();
        }
        for worker in workers.split_whitespace() {
            std::process::Command::new("kill")
                .args(["-9", worker])
                .stderr(std::process::Stdio::null())
                .status()
                .unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
    };
    assert!(status.code().is_some(), "{status}");
}

/// A problem that cannot be prepared is an error, and the list continues.
#[cfg(feature = "mutations")]
#[test]
fn a_search_whose_thread_ends_fails() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().display().to_string();
    let args = [&SMALL[..], &["--records", &records]].concat();
    let (fine, done) = crate::command::json_of_with(&args, &[("ATLAS_TUNE_FAULT", "unready")]);
    assert!(!fine && done["sizes"].as_array().is_some_and(Vec::is_empty), "{done}");
}

/// If no worker can be started at all, the reason is reported once.
#[cfg(feature = "mutations")]
#[test]
fn a_device_that_no_worker_gets_ends_the_search_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().display().to_string();
    let args = [&SMALL[..], &["--dims", "N=16,D=512", "--records", &records, "--jobs", "1"]].concat();
    let text = crate::command::refuses_with(&args, &[("ATLAS_TUNE_FAULT", "closed")]);
    assert!(text.contains("the device is taken") && text.contains("does not answer"), "{text}");
    assert_eq!(text.matches("its tensors cannot be made").count(), 1, "{text}");
}

/// If no kernel of a pack can be loaded, the reasons of a few are reported.
#[cfg(feature = "mutations")]
#[test]
fn the_reasons_of_configs_are_told_where_none_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().display().to_string();
    let args = [&SMALL[..], &["--records", &records, "--jobs", "1"]].concat();
    let text = crate::command::refuses_with(&args, &[("ATLAS_TUNE_FAULT", "refuse")]);
    assert!(text.contains("no config could be measured") && text.contains("refused as planned"), "{text}");
    assert!(!text.contains("no problem is open"), "{text}");
}

/// A size is not recorded if the time limit left out some of its candidates.
#[cfg(feature = "mutations")]
#[test]
fn what_the_budget_cut_off_is_not_recorded() {
    let (whole, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let best = tune(whole.path(), &["--share", "1"], &[])["sizes"][0]["config"].as_str().unwrap().to_owned();
    let variables = [("ATLAS_TUNE_FAULT", "hang"), ("ATLAS_TUNE_FAULT_AT", &best), ("ATLAS_TUNE_LIMIT", "4")];
    let done = tune(cut.path(), &["--share", "1", "--budget", "3"], &variables);
    assert_eq!(done["sizes"].as_array().map(Vec::len), Some(0), "{done}");
    assert!(!cut.path().join("simulator-sm-90/softmax.toml").exists());
}

/// Nothing is measured if the record cannot be written.
#[test]
fn a_record_that_cannot_be_written_is_told_before_the_search() {
    let folder = tempfile::tempdir().unwrap();
    // A folder has the name of the record.
    fs::create_dir_all(folder.path().join("simulator-sm-90/softmax.toml")).unwrap();
    let records = folder.path().display().to_string();
    let why = refuses(&[&SMALL[..], &["--dims", "N=16,D=512", "--dims", "N=24,D=512", "--records", &records]].concat());
    assert!(why.contains("cannot write the record") && why.contains("is a directory"), "{why}");
}

/// No limit that a user can give is too large.
#[test]
fn a_limit_may_be_as_large_as_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let most = u64::MAX.to_string();
    assert_eq!(tune(folder.path(), &[], &[("ATLAS_TUNE_LIMIT", &most)])["sizes"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_cannot_be_tuned_says_why() {
    for (args, why) in [
        (&["tune"][..], "nothing to do: name kernels"),
        (&["tune", "softmax", "--device", "cpu"], "`tune` measures GPUs"),
        (&["tune", "softmaxx", "--device", "sim:sm_90"], "this program has no kernel `softmaxx`"),
        (&["tune", "softmax", "--share", "0"], "--share is more than 0"),
        (&["tune", "--sizes", "/nowhere.toml"], "--sizes: cannot read /nowhere.toml"),
        (&["tune", "--replay", "/nowhere"], "--replay: cannot read /nowhere"),
        (&["tune", "attention", "--dims", "D=0", "--device", "sim:sm_90"], "cannot be 0"),
        (&["tune", "softmax", "--dims", "N=0", "--device", "sim"], "`softmax` writes nothing at N=0 D=8192"),
        (&["tune", "softmax", "--dims", "N=3000000000", "--device", "sim"], "it may be 2147483647 at the most"),
        (&["tune", "softmax", "--dims", "N=2147483647,D=2147483647", "--device", "sim"], "more elements at"),
        (
            &["tune", "rotary_halves", "--dims", "P=3", "--device", "sim"],
            "error[ATL648]: `rotary_halves` requires P == 2, but P = 3",
        ),
    ] {
        let text = refuses(args);
        assert!(text.contains(why), "{args:?}: {text}");
    }
}

/// A missing or meaningless entry in a file of sizes is reported with the alternatives.
#[test]
fn files_of_sizes_that_are_of_no_use_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = folder.path().join("sizes.toml");
    let told = |text: &str, kernels: &[&str]| {
        fs::write(&sizes, text).unwrap();
        let file = sizes.display().to_string();
        refuses(&[&["tune"], kernels, &["--device", "sim", "--sizes", &file]].concat())
    };
    let one = |more: &str| format!("[[launch]]\nkernel = \"softmax\"\ndims = \"N=8 D=64\"\n{more}\n");
    for (text, kernels, why) in [
        (String::new(), &[][..], "lists no launch"),
        (one(""), &["poly1"], "lists no launch of `poly1`, only of softmax"),
        (one(""), &["softmx"], "this program has no kernel `softmx`. The nearest"),
        (one("types = \"T=f61\""), &[], "launch 1 of `softmax`: `f61` is no element type; `T` may be bf16, f16, f32"),
        (one("types = \"Q=f16\""), &[], "has no element type `Q`; those that it has by name are T"),
        (one("tensors = \"q=4:1,1\""), &[], "has no tensor `q`; its tensors are x, y"),
    ] {
        let said = told(&text, kernels);
        assert!(said.contains(why), "{said}");
    }
}

/// Tunes some sizes of a file, and tests how well configs are chosen for the others.
#[test]
fn a_file_of_sizes_is_tuned_whole_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = folder.path().join("sizes.toml");
    let launch = |n: u64| format!("[[launch]]\nkernel = \"poly1\"\ndtype = \"f32\"\ndims = \"N={n} D=32\"\n");
    fs::write(&sizes, [8, 16, 24, 32, 64].map(launch).concat()).unwrap();
    let (sizes, records) = (sizes.display().to_string(), folder.path().join("r").display().to_string());
    let args = ["tune", "--device", "sim:sm_90", "--sizes", &sizes, "--share", "1", "--records", &records, "--json"];
    let done: Value = serde_json::from_str(&prints_with(&args, &[])).unwrap();
    assert_eq!(done["sizes"].as_array().map(Vec::len), Some(5));
    let replayed =
        prints_with(&["tune", "--replay", &format!("{records}/simulator-sm-90"), "--share", "1", "--json"], &[]);
    let rows: Value = serde_json::from_str(&replayed).unwrap();
    assert_eq!((rows[1]["kernel"].as_str(), rows[1]["tuned"].as_u64()), (Some("poly1"), Some(3)));
    assert_eq!(rows[1]["regret_tuned"].as_f64(), Some(1.0), "all were measured");
}

/// Compiled here, measured by a program that may not compile: the same record except for the date.
#[test]
fn a_pack_is_measured_without_a_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let pack = path("candidates.atlas");
    prints_with(&["tune", "softmax", "--dims", "N=8,D=512", "--pack", &pack, "--arch", "sm_90"], &[]);
    let (direct, packed) = (path("direct"), path("packed"));
    tune(Path::new(&direct), &[], &[]);
    let nothing = [("ATLAS_CACHE_DIR", path("empty"))];
    let nothing: Vec<(&str, &str)> = nothing.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let args = ["tune", "--measure", &pack, "--device", "sim:sm_90", "--records", &packed, "--json"];
    let done: Value = serde_json::from_str(&prints_with(&args, &nothing)).unwrap();
    assert_eq!(done["sizes"][0]["failed"].as_array().map(Vec::len), Some(0), "{done}");
    let record = |folder: &str| fs::read_to_string(Path::new(folder).join("simulator-sm-90/softmax.toml")).unwrap();
    assert_eq!(record(&packed), record(&direct));
    // Nothing is left to be measured.
    let again: Value = serde_json::from_str(&prints_with(&args, &nothing)).unwrap();
    assert_eq!((again["known"].as_u64(), again["sizes"].as_array().map(Vec::len)), (Some(1), Some(0)));
    // A pack for another GPU measures nothing, and says why.
    let why = refuses(&["tune", "--measure", &pack, "--device", "sim:sm_80", "--records", &path("other"), "--json"]);
    assert!(why.contains("sm_90"), "{why}");
    let plain = path("kernels.atlas");
    prints_with(
        &["bundle", "softmax", "--dims", "N=8,D=512", "--arch", "sm_90", "--no-evidence", "--out", &plain],
        &[],
    );
    let why = refuses(&["tune", "--measure", &plain, "--device", "sim:sm_90"]);
    assert!(why.contains("is no pack"), "{why}");
}

/// The views of a recorded run are tuned as views.
#[test]
fn launches_of_views_are_tuned() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = folder.path().join("sizes.toml");
    let launch = "[[launch]]\nkernel = \"softmax\"\ntypes = \"T=f32\"\ndims = \"N=8 D=64\"\ntensors = \"x=4:*8,1\"\n";
    fs::write(&sizes, launch).unwrap();
    let (sizes, records) = (sizes.display().to_string(), folder.path().join("r").display().to_string());
    let args = ["tune", "--device", "sim:sm_90", "--sizes", &sizes, "--records", &records, "--json"];
    let done: Value = serde_json::from_str(&prints_with(&args, &[])).unwrap();
    assert_eq!(done["sizes"][0]["tensors"].as_str(), Some("x=4:*8,1"), "{done}");
    assert!(done["sizes"][0]["measured"].as_u64() >= Some(4), "{done}");
    for (tensors, why) in [
        ("x=4:1", "has 2 strides"),
        ("q=4:1,1", "has no tensor `q`"),
        ("x=5:*8,1", "`x=5:*8,1` of `softmax` is no list of tensors"),
    ] {
        fs::write(folder.path().join("sizes.toml"), launch.replace("x=4:*8,1", tensors)).unwrap();
        let text = refuses(&args);
        assert!(text.contains(why), "{text}");
    }
}

/// Records of a kernel that has changed, and records whose times no longer hold.
#[test]
fn a_check_finds_what_is_stale_or_slower() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().display().to_string();
    let check = ["tune", "--check", "--records", &records, "--device", "sim:sm_90", "--json"];
    tune(folder.path(), &[], &[]);
    let healthy: Value = serde_json::from_str(&prints_with(&check, &[])).unwrap();
    assert_eq!((healthy["sizes"].as_u64(), healthy["measured"].as_u64()), (Some(1), Some(1)), "{healthy}");
    let file = folder.path().join("simulator-sm-90/softmax.toml");
    let text = fs::read_to_string(&file).unwrap();
    let problem = || {
        let (fine, found) = json_of(&check);
        assert!(!fine, "{found}");
        found["problems"][0]["problem"].as_str().unwrap().to_owned()
    };
    let changed = |key: &str| {
        let line = text.lines().find(|l| l.starts_with(&format!("{key} = "))).unwrap();
        fs::write(&file, text.replacen(line, &format!("{key} = \"0123\""), 1)).unwrap();
        problem()
    };
    assert!(changed("tune").contains("the kernel's tune space has changed"));
    assert!(changed("ir").contains("the kernel has changed"));
    // A config that may not be chosen, which is not reported as a change of the kernel.
    let chosen = text.lines().find(|l| l.starts_with("    [\"")).and_then(|l| l.split('"').nth(1)).unwrap();
    for other in ["BN=3 stages=2 warps=4", "BN=1 stages=2 warps=64"] {
        fs::write(&file, text.replacen(chosen, other, 1)).unwrap();
        assert_eq!(problem(), format!("its config `{other}` is none of the tune space; tune it again"));
    }
    let (_, found) = json_of(&check);
    assert_eq!(found["problems"][0]["sizes"], "T=bf16 N=8 D=512");
    // A record in a place where no search finds it.
    fs::write(&file, text.replace("simulator sm_90", "Small GPU")).unwrap();
    let why = problem();
    assert!(why.contains("it is of `softmax` on Small GPU, whose record is") && why.contains("small-gpu"), "{why}");
    fs::write(&file, &text).unwrap();
    // A time that no longer holds, and another config that would be better.
    let first = text.lines().find(|l| l.starts_with("    [\"")).unwrap();
    let parts: Vec<&str> = first.split(", ").collect();
    let half = format!("{:.3}", parts[1].parse::<f64>().unwrap() / 2.0);
    fs::write(&file, text.replacen(first, &first.replacen(parts[1], &half, 1), 1)).unwrap();
    let why = problem();
    assert!(why.starts_with("regressed: "), "{why}");
    fs::write(&file, "kernel = 3").unwrap();
    assert!(!problem().is_empty());
}

/// Records hold the cost model's cycles of each config. If the model has changed, they are recounted, and not measured
/// again.
#[test]
fn records_follow_a_change_of_the_cost_model() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().display().to_string();
    tune(folder.path(), &[], &[]);
    let file = folder.path().join("simulator-sm-90/softmax.toml");
    let text = fs::read_to_string(&file).unwrap();
    let model = text.lines().find(|l| l.starts_with("model = ")).unwrap();
    let older: Vec<String> = text
        .replacen(model, "model = 0", 1)
        .lines()
        .map(|l| match l.rsplit_once(", ") {
            Some((start, _)) if l.starts_with("    [\"") => format!("{start}, 1.0],"),
            _ => l.to_owned(),
        })
        .collect();
    fs::write(&file, older.join("\n")).unwrap();
    let check = ["tune", "--check", "--records", &records, "--device", "sim:sm_90", "--json"];
    let (fine, found) = json_of(&check);
    let problem = found["problems"][0]["problem"].as_str().unwrap();
    assert!(!fine && problem.contains("1 sizes correct another cost model"), "{found}");
    prints_with(&["tune", "--recount", &records], &[]);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert!(json_of(&check).0);
    let none = refuses(&["tune", "--recount", "nowhere-at-all"]);
    assert!(none.contains("--recount: cannot read nowhere-at-all"), "{none}");
}

/// The shipped records, on their own GPU and on one whose blocks have less shared memory.
#[test]
fn a_check_finds_configs_that_a_gpu_refuses() {
    let check = ["tune", "--check", "--records", "../ops/records", "--device", "cpu", "--json"];
    let fine = prints_with(&check, &[]);
    assert!(fine.contains("\"problems\": []"), "{fine}");
    let (fine, found) = json_of(&[&check[..], &["--arch", "sm_120"]].concat());
    let why = found["problems"][0]["problem"].as_str().unwrap();
    assert!(!fine && why.contains("it is of code for sm_90a, which sm_120 does not run"), "{found}");
    let problems = found["problems"].as_array().unwrap();
    let is_refused = |p: &serde_json::Value| p["problem"].as_str().is_some_and(|why| why.contains("is refused for"));
    assert!(problems.iter().any(is_refused) || problems.len() > 60, "{found}");
}

/// A check measures too, so it must not run beside another measurement.
#[test]
fn a_check_waits_for_its_turn() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().display().to_string();
    tune(folder.path(), &[], &[]);
    let lock = std::env::temp_dir().join("atlas-tune-simulator-sm-90-sim-sm-90.lock");
    let lock = fs::File::options().create(true).append(true).open(lock).unwrap();
    lock.lock().unwrap();
    let args = ["tune", "--check", "--records", &records, "--device", "sim:sm_90"].map(str::to_owned);
    let mut child = crate::command::start(&args);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(child.try_wait().unwrap().is_none(), "it did not wait");
    drop(lock);
    assert!(child.wait().unwrap().success());
}

/// Two processes share a folder: each keeps the other's records.
#[test]
fn two_processes_tune_into_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let one = scope.spawn(|| tune(folder.path(), &["--dims", "N=4,D=512"], &[]));
        let two = scope.spawn(|| tune(folder.path(), &["--dims", "N=16,D=512"], &[]));
        one.join().unwrap();
        two.join().unwrap();
    });
    let text = fs::read_to_string(folder.path().join("simulator-sm-90/softmax.toml")).unwrap();
    for dims in ["N=4 D=512", "N=8 D=512", "N=16 D=512"] {
        assert_eq!(text.matches(dims).count(), 1, "{text}");
    }
}

/// A GPU that fails ends the search, and the existing records stay.
#[cfg(feature = "mutations")]
#[test]
fn a_gpu_that_disappears_ends_the_search() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().display().to_string();
    let sizes = ["N=4,D=64", "N=8,D=64", "N=16,D=64", "N=24,D=64", "N=40,D=64", "N=48,D=64"];
    let mut args = vec!["tune", "softmax", "--device", "sim:sm_90", "--records", &records, "--share", "0.1"];
    args.extend(sizes.iter().flat_map(|s| ["--dims", s]));
    let text = crate::command::refuses_with(&args, &[("ATLAS_TUNE_GONE_AFTER", "N=4 D=64")]);
    assert!(text.contains("sim:sm_90 does not answer; what is recorded stays"), "{text}");
    assert_eq!(text.matches("its tensors cannot be made").count(), 1, "{text}");
    let text = fs::read_to_string(folder.path().join("simulator-sm-90/softmax.toml")).unwrap();
    assert!(text.contains("N=4 D=64") && !text.contains("N=8 D=64"), "{text}");
}

/// A search that is killed at any moment and restarted ends with the same record as an undisturbed one.
#[test]
fn a_search_that_is_killed_goes_on_where_it_was() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sizes = ["N=4,D=64", "N=8,D=64", "N=16,D=64", "N=24,D=64"];
    let args = |folder: &Path| {
        let mut args: Vec<String> =
            ["tune", "softmax", "--device", "sim:sm_90", "--share", "0.1"].map(str::to_owned).to_vec();
        args.extend(["--records".to_owned(), folder.display().to_string()]);
        args.extend(sizes.iter().flat_map(|s| ["--dims".to_owned(), (*s).to_owned()]));
        args
    };
    let text = |args: &[String]| prints_with(&args.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    text(&args(whole.path()));
    for wait in [50, 400, 900] {
        let mut child = crate::command::start(&args(broken.path()));
        std::thread::sleep(std::time::Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    text(&args(broken.path()));
    let record = |folder: &Path| fs::read_to_string(folder.join("simulator-sm-90/softmax.toml")).unwrap();
    assert_eq!(record(whole.path()), record(broken.path()));
}

/// A folder that cannot be written: an error names it, after the results are printed.
#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("a-file");
    fs::write(&records, "").unwrap();
    let records = records.display().to_string();
    let args = [&SMALL[..], &["--records", &records]].concat();
    let text = refuses(&args);
    assert!(text.contains("cannot write records into"), "{text}");
}
