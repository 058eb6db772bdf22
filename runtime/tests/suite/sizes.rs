//! `ATLAS_RECORD_SIZES`: the file contains a program's launches after the program has ended.

use crate::kernels::SCALE;
use atlas_dsl::DType;
use atlas_runtime::sizes::SIZES_VARIABLE;
use atlas_runtime::{Device, Launch, Tensor, args};
use std::fs;
use std::process::Command;
use tempfile::TempDir;

const SIZES: usize = 300;

#[test]
fn every_problem_of_a_short_program_is_recorded() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("sizes.toml");
    for runs in 1..=2 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", "sizes::child_of_every_problem_of_a_short_program_is_recorded"]);
        assert!(child.env(SIZES_VARIABLE, &file).status().unwrap().success());
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches("[[launch]]").count(), SIZES, "{text}");
        assert_eq!(text.matches(&format!("count = {runs}\n")).count(), SIZES, "{text}");
    }
}

#[test]
#[ignore = "a child process of every_problem_of_a_short_program_is_recorded"]
fn child_of_every_problem_of_a_short_program_is_recorded() {
    if std::env::var_os(SIZES_VARIABLE).is_none() {
        return;
    }
    let cpu = Device::cpu();
    let zeros = |n: usize| Tensor::zeros(&cpu, DType::F32, [n, 8]).unwrap();
    for n in 1..=SIZES {
        SCALE.launch(&cpu, args!(zeros(n), zeros(n), 1.0, &mut zeros(n))).unwrap();
    }
}
