//! Random kernels can reveal every mistake that the compiler is known to have made.

use crate::command::json_of;
use crate::gpu_interp::kernels::disagreement;
use crate::random::{COUNT, SEED};
use atlas_codegen::mutation::{Mutation, with};

/// Seeds that reveal mistakes, which are tried first. If one no longer does, another one must, as for the other mistakes.
const REVEALED_BY: [(Mutation, &str); 7] = [
    (Mutation::FillForgotten, "3"),
    (Mutation::BroadcastOfOne, "5"),
    (Mutation::FillThroughFunctions, "151"),
    (Mutation::FillUnrounded, "51"),
    (Mutation::LoopOfNone, "132"),
    (Mutation::PlacesPastTheEdge, "687"),
    (Mutation::Fp8TowardZero, "181"),
];

#[test]
fn random_kernels_show_every_known_mistake() {
    let shown = |m: &Mutation, seed: &str, count: &str| {
        let args = ["fuzz", "--seed", seed, "--count", count, "--first", "--no-shrink", "--json", "--mutation"];
        let (passes, report) = json_of(&[&args[..], &[m.name()]].concat());
        !passes && report["failures"].as_array().is_some_and(|f| !f.is_empty())
    };
    // Random kernels have looser bounds than the effect of this mutation; agreement/magnified.rs reveals it.
    let all = Mutation::ALL.iter().filter(|m| **m != Mutation::RoundingsForgotten);
    // Each stops at the first kernel that reveals it.
    let is_shown = |m: &Mutation| {
        let known = REVEALED_BY.iter().find(|(of, _)| of == m);
        known.is_some_and(|(_, seed)| shown(m, seed, "1")) || shown(m, SEED, COUNT)
    };
    let hidden: Vec<&Mutation> = all.filter(|m| !is_shown(m)).collect();
    assert!(hidden.is_empty(), "no kernel shows {hidden:?}");
}

/// Mistakes of `lower_tiles` that no verifier noticed, each with the seed of a kernel that revealed it. If that kernel
/// no longer does, another one must.
const OF_LOWER_TILES: [(Mutation, u64); 5] = [
    (Mutation::BroadcastOfOne, 20),
    (Mutation::FillThroughFunctions, 48),
    (Mutation::FillUnrounded, 197),
    (Mutation::CarriedInTurn, 108),
    (Mutation::InitTaken, 33),
];

/// Works without LLVM and the simulator, and names the pass.
#[test]
fn the_executor_shows_what_lower_tiles_got_wrong() {
    let shown = |&(mutation, seed): &(Mutation, u64)| {
        let of = |seed, count| with(mutation, || disagreement(seed, count));
        of(seed, 1).or_else(|| of(1, 300)).is_some_and(|said| said.contains("after lower_tiles"))
    };
    let hidden: Vec<Mutation> = OF_LOWER_TILES.iter().filter(|m| !shown(m)).map(|m| m.0).collect();
    assert!(hidden.is_empty(), "no kernel shows {hidden:?}");
}
