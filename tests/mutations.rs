//! Random kernels have the power to show every mistake that the compiler is known to have made.

use crate::command::json_of;
use crate::random::{COUNT, SEED};
use atlas::codegen::mutation::Mutation;

#[test]
fn random_kernels_show_every_known_mistake() {
    let shown = |m: &&Mutation| {
        let args = ["fuzz", "--seed", SEED, "--count", COUNT, "--first", "--no-shrink", "--json", "--mutation"];
        let (passes, report) = json_of(&[&args[..], &[m.name()]].concat());
        !passes && report["failures"].as_array().is_some_and(|f| !f.is_empty())
    };
    // Each stops at the first kernel that shows it.
    let hidden: Vec<&Mutation> = Mutation::ALL.iter().filter(|m| !shown(m)).collect();
    assert!(hidden.is_empty(), "no kernel shows {hidden:?}");
}
