//! Random kernels, compiled and run in the simulator for every target and under every schedule, compared with the
//! interpreter.

use crate::command::{has, json_of, prints, refuses};

/// The seeds that CI runs.
pub(crate) const SEED: &str = "1";
pub(crate) const COUNT: &str = "300";

#[test]
fn random_kernels_do_what_the_interpreter_does() {
    let (passes, report) = json_of(&["fuzz", "--seed", SEED, "--count", COUNT, "--json"]);
    let failures: Vec<String> = report["failures"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|f| {
            let text = |key: &str| f[key].as_str().unwrap_or_default().to_owned();
            format!("{}: {}\n{}{}", text("kind"), text("message"), text("kernel"), text("command"))
        })
        .collect();
    assert!(failures.is_empty() && passes, "{} fail:\n{}", failures.len(), failures.join("\n\n"));
    let number = |key: &str| report[key].as_u64().unwrap_or(0);
    // Too many refusals or unjudged elements would make this test blind.
    assert!(number("compiled") >= 600, "{report:#}");
    // Several CTAs share the loop.
    assert!(number("split") >= 100, "{report:#}");
    assert!(number("launches") == 3 * number("compiled") && number("in_ring") > 0, "{report:#}");
    assert!(100 * number("judged") >= 95 * number("elements"), "{report:#}");
}

#[test]
fn a_seed_gives_one_kernel() {
    let list = || prints(&["fuzz", "--seed", "7", "--count", "3", "--list"]);
    let text = list();
    has(&text, &["kernel @random(", "store %y0", "stages="]);
    assert_eq!(text, list());
}

#[test]
fn only_a_gpu_runs_beside_the_simulator() {
    has(&refuses(&["fuzz", "--device", "cpu"]), &["cuda:0"]);
}

#[test]
fn kernels_say_the_same_in_every_config() {
    let (passes, report) = json_of(&["fuzz", "--configs", "--seed", "1", "--count", "24", "--arch", "sm_80", "--json"]);
    assert!(passes, "{:#}", report["failures"]);
    let number = |key: &str| report[key].as_u64().unwrap_or(0);
    assert!(number("split") > 0, "{report:#}");
    // Each in several configs. Too many unjudged elements would make this test blind.
    assert!(number("programs") == 24 && number("launches") >= 4 * 24, "{report:#}");
    assert!(100 * number("judged") >= 95 * number("elements"), "{report:#}");
}
