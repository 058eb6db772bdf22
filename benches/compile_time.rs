//! Time from Tile IR to PTX for each op, with the config chosen, in a warmed process.
//!
//! The medians of the 20 samples are in `target/criterion/*/*/new/estimates.json`, in nanoseconds.

use atlas::codegen::{Target, compile};
use atlas::dsl::specialization::{DimFact, largest_class};
use atlas::dsl::{Kernel, Schedule, Specialization, Verified, verify};
use atlas::ops::{Problem, cases};
use atlas::runtime::choose_for;
use criterion::{Criterion, criterion_group, criterion_main};
use std::time::Duration;

/// The Tile IR and schedule that would be compiled for a problem.
fn kernel(p: &Problem, target: Target) -> Option<(Verified<Kernel>, Schedule)> {
    let mut spec = Specialization::default();
    for t in p.kernel.types {
        spec = spec.with_type(t.name, p.dtype);
    }
    for (d, &n) in p.kernel.dims.iter().zip(&p.dims) {
        spec = spec.with_dim(d.name, if d.whole { DimFact::Const(n) } else { DimFact::Dynamic(largest_class(n)) });
    }
    let selection = choose_for(p.kernel, &spec, &p.dims, Some(target.into()));
    selection.legal().find_map(|c| {
        let kernel = verify((p.kernel.build)(&spec, &c.config).ok()?).ok()?;
        compile(&kernel, &c.config.schedule, target).ok()?;
        Some((kernel, c.config.schedule))
    })
}

fn tile_to_ptx(c: &mut Criterion) {
    for target in Target::all() {
        let mut group = c.benchmark_group(format!("tile_to_ptx/{target}"));
        group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
        for bench in cases::benches() {
            let Some((kernel, schedule)) = kernel(&bench.problem, target) else { continue };
            group.bench_function(bench.name, |b| b.iter(|| compile(&kernel, &schedule, target)));
        }
        group.finish();
    }
}

criterion_group!(benches, tile_to_ptx);
criterion_main!(benches);
