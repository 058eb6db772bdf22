//! `atlas tune` without a GPU: the simulator's instructions stand for time.

use crate::command::{prints_with, refuses};
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
    let file = folder.path().join("simulator/softmax.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(row["config"].as_str().unwrap()), "{text}");
    let second = tune(folder.path(), &[], &[]);
    assert_eq!((second["known"].as_u64(), second["sizes"].as_array().map(Vec::len)), (Some(1), Some(0)));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // Measured again, the same choice and the same text: the simulator has no noise.
    tune(folder.path(), &["--again"], &[]);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // Of another size a table of its own, in the order of the sizes.
    let other = ["--dims", "N=4,D=512"];
    assert_eq!(tune(folder.path(), &other, &[])["known"], 1);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.find("N=4 D=512") < text.find("N=8 D=512"), "{text}");
}

/// A worker that dies or hangs loses its config, and nothing else.
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
    }
}

#[test]
fn what_cannot_be_tuned_says_why() {
    for (args, why) in [
        (&["tune"][..], "nothing to do: name kernels"),
        (&["tune", "softmax", "--device", "cpu"], "`tune` measures GPUs"),
        (&["tune", "softmaxx", "--device", "sim:sm_90"], "there is no kernel `softmaxx`"),
        (&["tune", "softmax", "--share", "0"], "--share is more than 0"),
        (&["tune", "--sizes", "/nowhere.toml"], "--sizes: cannot read /nowhere.toml"),
        (&["tune", "--replay", "/nowhere"], "--replay: cannot read /nowhere"),
        (&["tune", "attention", "--dims", "D=0", "--device", "sim:sm_90"], "cannot be 0"),
    ] {
        let text = refuses(args);
        assert!(text.contains(why), "{args:?}: {text}");
    }
}

/// Sizes of a file, and how well the rest is chosen for.
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
    let replayed = prints_with(&["tune", "--replay", &format!("{records}/simulator"), "--share", "1", "--json"], &[]);
    let rows: Value = serde_json::from_str(&replayed).unwrap();
    assert_eq!((rows[1]["kernel"].as_str(), rows[1]["tuned"].as_u64()), (Some("poly1"), Some(3)));
    assert_eq!(rows[1]["regret_tuned"].as_f64(), Some(1.0), "all were measured");
}
