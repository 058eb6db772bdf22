//! No config that the cost model chooses spills, by NVIDIA's assembler: every kernel that this program holds, at random
//! sizes, for every target.
//!
//! `ATLAS_SIZES=200` draws so many problems in place of a few.

use atlas::cli::ptxas;
use atlas::codegen::{Machine, compile};
use atlas::dsl::specialization::{DimFact, largest_class};
use atlas::dsl::{KernelDef, Specialization, registry, verify};
use atlas::ops::cases;
use atlas::prelude::*;
use atlas::runtime::choose_for;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

atlas_kernel! {
    /// y = a b, with tiles as large as a GPU takes.
    kernel matmul<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [K, N]>, y: &mut Tensor<T, [M, N]>)
    tune { BM: [64, 32, 128, 256], BN: [64, 32, 128, 256], BK: [32, 64], stages: [2, 3, 4], warps: [4, 8] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[k, n]));
            }
            store(y[m, n], acc.cast::<T>());
        }
    }
}

/// One GPU per target, and one with less shared memory.
const MACHINES: [&str; 4] = ["sm_80", "sm_86", "sm_89", "sm_90"];

/// Problems, half of them of kernels that ship and a quarter of the matmul above.
const FEW: u64 = 24;

#[test]
fn no_chosen_config_spills() {
    let assembler = ptxas::find().expect("run `cargo xtask setup` for NVIDIA's assembler");
    let count = std::env::var("ATLAS_SIZES").ok().map_or(FEW, |n| n.parse().expect("ATLAS_SIZES is a number"));
    let kernels = registry();
    let shipped: Vec<_> = kernels.iter().copied().filter(|k| cases::usual_dims(k.name).len() == k.dims.len()).collect();
    let compiled = AtomicUsize::new(0);
    let failures: Vec<String> = (0..count)
        .into_par_iter()
        .flat_map_iter(|seed| MACHINES.iter().map(move |m| (seed, *m)))
        .filter_map(|(seed, machine)| {
            let mut rng = StdRng::seed_from_u64(seed);
            // The other kernels of this program are many and small.
            let from = if seed % 2 == 0 { &shipped } else { &kernels };
            let def = if seed % 4 == 3 { &matmul } else { from[rng.random_range(0..from.len())] };
            let found = trial(def, &mut rng, machine.parse().expect("a GPU"), &assembler)?;
            compiled.fetch_add(1, Ordering::Relaxed);
            (!found.is_empty()).then_some(found)
        })
        .collect();
    let compiled = compiled.into_inner();
    println!("{compiled} kernels, {} of them spill", failures.len());
    // Problems that no config takes would make this test blind.
    assert!(5 * compiled as u64 >= 4 * count * MACHINES.len() as u64, "{compiled} kernels of {count} problems");
    assert!(failures.is_empty(), "{} of {count} problems:\n{}", failures.len(), failures.join("\n"));
}

/// What the assembler says of a kernel that spills, chosen for a random problem; `None` if no config takes it.
fn trial(def: &'static KernelDef, rng: &mut StdRng, machine: Machine, assembler: &Path) -> Option<String> {
    let mut spec = Specialization::default();
    let mut sizes = Vec::new();
    for t in def.types {
        spec = spec.with_type(t.name, t.allowed[rng.random_range(0..t.allowed.len())]);
    }
    for dim in def.dims {
        // Whole dims are held on the chip.
        let most: f64 = if dim.whole { 256.0 } else { 8192.0 };
        let mut n = most.powf(rng.random()).round() as u64;
        if rng.random() {
            n = n.next_multiple_of(16);
        }
        sizes.push(n);
        let fact = if dim.whole { DimFact::Const(n) } else { DimFact::Dynamic(largest_class(n)) };
        spec = spec.with_dim(dim.name, fact);
    }
    let selection = choose_for(def, &spec, &sizes, Some(machine));
    // As a launch does: past what is refused later.
    let (config, image) = selection.legal().find_map(|c| {
        let kernel = (def.build)(&spec, &c.config).and_then(verify).ok()?;
        Some((&c.config, compile(&kernel, &c.config.schedule, machine).ok()?))
    })?;
    let resources =
        ptxas::assemble(assembler, &image.ptx, &machine.target().to_string()).expect("ptxas takes the kernel");
    let what = || format!("{} {sizes:?} {:?} `{config}` on {machine}: {resources:?}", def.name, spec.types);
    Some(if resources.stack + resources.spills == 0 { String::new() } else { what() })
}
