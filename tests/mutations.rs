//! Random kernels have the power to show every mistake that the compiler is known to have made.

use crate::command::json_of;
use crate::gpu_interp::kernels::disagreement;
use crate::random::{COUNT, SEED};
use atlas_codegen::mutation::{Mutation, with};

#[test]
fn random_kernels_show_every_known_mistake() {
    let shown = |m: &&Mutation| {
        let args = ["fuzz", "--seed", SEED, "--count", COUNT, "--first", "--no-shrink", "--json", "--mutation"];
        let (passes, report) = json_of(&[&args[..], &[m.name()]].concat());
        !passes && report["failures"].as_array().is_some_and(|f| !f.is_empty())
    };
    // Random kernels are judged by more than what this changes; agreement/magnified.rs shows it.
    let all = Mutation::ALL.iter().filter(|m| **m != Mutation::RoundingsForgotten);
    // Each stops at the first kernel that shows it.
    let hidden: Vec<&Mutation> = all.filter(|m| !shown(m)).collect();
    assert!(hidden.is_empty(), "no kernel shows {hidden:?}");
}

/// What `lower_tiles` got wrong without a word of a verifier, each with the seed of a kernel that showed it; if it does so
/// no more, another one has to.
const OF_LOWER_TILES: [(Mutation, u64); 5] = [
    (Mutation::BroadcastOfOne, 20),
    (Mutation::FillThroughFunctions, 48),
    (Mutation::FillUnrounded, 197),
    (Mutation::CarriedInTurn, 108),
    (Mutation::InitTaken, 33),
];

/// Without LLVM and the simulator, and with the name of the pass.
#[test]
fn the_executor_shows_what_lower_tiles_got_wrong() {
    let shown = |&(mutation, seed): &(Mutation, u64)| {
        let of = |seed, count| with(mutation, || disagreement(seed, count));
        of(seed, 1).or_else(|| of(1, 300)).is_some_and(|said| said.contains("after lower_tiles"))
    };
    let hidden: Vec<Mutation> = OF_LOWER_TILES.iter().filter(|m| !shown(m)).map(|m| m.0).collect();
    assert!(hidden.is_empty(), "no kernel shows {hidden:?}");
}
