//! `ATLAS_RECORD_SIZES`: the file contains a program's launches after the program has ended.

use crate::kernels::SCALE;
use atlas_dsl::DType;
use atlas_runtime::sizes::{SIZES_AS_VARIABLE, SIZES_VARIABLE};
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

/// What [`child_of_the_cpu_chooses_as_the_gpu_that_it_records_for`] prints before its answer.
const ANSWER: &str = "the CPU chooses for ";

#[test]
fn the_cpu_chooses_as_the_gpu_that_it_records_for() {
    let folder = TempDir::new().unwrap();
    let answer = |records: bool, arch: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "sizes::child_of_the_cpu_chooses_as_the_gpu_that_it_records_for";
        child
            .args(["--ignored", "--exact", "--nocapture", name])
            .env(SIZES_AS_VARIABLE, arch)
            .env_remove(SIZES_VARIABLE);
        if records {
            child.env(SIZES_VARIABLE, folder.path().join("sizes.toml"));
        }
        let output = child.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let answer = text.split(ANSWER).nth(1).unwrap().lines().next().unwrap().to_owned();
        (answer, String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(answer(true, "sm_90a").0, "sm_90a");
    // Without a file there is nothing to record, and nothing else may change.
    assert_eq!(answer(false, "sm_90a").0, "none");
    assert_eq!(answer(true, "").0, "none");
    let (chosen, warning) = answer(true, "hopper");
    assert!(chosen == "none" && warning.contains("warning: ATLAS_RECORD_SIZES_AS"), "{chosen}: {warning}");
}

#[test]
#[ignore = "a child process of the_cpu_chooses_as_the_gpu_that_it_records_for"]
fn child_of_the_cpu_chooses_as_the_gpu_that_it_records_for() {
    let cpu = Device::cpu();
    assert!(cpu.machine().is_none());
    println!("{ANSWER}{}", cpu.chooses_for().map_or("none".to_owned(), |machine| machine.to_string()));
}
