//! The time from Tile IR to PTX for each op with its chosen config, in a warm process, and the host time of choosing a
//! config. The latter has four parts: all configs of a new specialization, the same with the compilation of the best
//! config, a launch at a new size of a known specialization, and a lookup in a bundle's table. A table of the time of
//! each compilation stage is printed before the first group.
//!
//! The medians of the 20 samples are in `target/criterion/*/*/new/estimates.json`, in nanoseconds.

use atlas_codegen::{Machine, StageTimes, Target, compile, compile_timed};
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{DType, Kernel, Schedule, Specialization, Verified, verify};
use atlas_ops::{Problem, cases};
use atlas_runtime::records::Records;
use atlas_runtime::{CacheDir, Device, Launch, SimOptions, Tensor, args, choose_for, regions};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

/// The Tile IR and the schedule that a problem is compiled with.
fn kernel(p: &Problem, target: Target) -> Option<(Verified<Kernel>, Schedule)> {
    let spec = specialization(p);
    let selection = choose_for(p.kernel, &spec, &p.dims, Some(target.into()));
    selection.legal().find_map(|c| {
        let kernel = verify((p.kernel.build)(&spec, &c.config).ok()?).ok()?;
        compile(&kernel, &c.config.schedule, target).ok()?;
        Some((kernel, c.config.schedule))
    })
}

fn specialization(p: &Problem) -> Specialization {
    p.kernel.specialization(p.dtype, &p.dims)
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

/// The median time of each stage in milliseconds, over the compilations of the other groups.
fn stages(_: &mut Criterion) {
    const SAMPLES: usize = 20;
    let target = Target { sm: 90, specific: false };
    println!("{:44} {:>8} {:>8} {:>8} {:>8} {:>8}", "stages, ms", "passes", "emit", "LLVM", "PTX", "all");
    for bench in cases::benches().iter().filter(|b| is_asked_for(b.name)) {
        let Some((kernel, schedule)) = kernel(&bench.problem, target) else { continue };
        let times: Vec<StageTimes> =
            (0..SAMPLES).filter_map(|_| compile_timed(&kernel, &schedule, target).ok()).map(|c| c.1).collect();
        let median = |of: fn(&StageTimes) -> Duration| {
            let mut all: Vec<Duration> = times.iter().map(of).collect();
            all.sort_unstable();
            all.get(all.len() / 2).map_or(f64::NAN, |d| d.as_secs_f64() * 1e3)
        };
        let columns = [
            median(|t| t.passes),
            median(|t| t.emit),
            median(|t| t.optimise),
            median(|t| t.generate),
            median(StageTimes::total),
        ];
        println!("{:44} {}", bench.name, columns.map(|ms| format!("{ms:8.2}")).join(" "));
    }
}

/// True if the command line selects this: `stages`, or a group and one of its benches.
fn is_asked_for(bench: &str) -> bool {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    filter.is_none_or(|f| f.strip_prefix("stages").is_some_and(|rest| bench.contains(rest.trim_start_matches('/'))))
}

/// A first launch without the driver: every config of a specialization that is new to the process, and the compilation
/// of the best one.
fn first_launch(c: &mut Criterion) {
    let machine = Machine::from(Target { sm: 90, specific: false });
    let mut group = c.benchmark_group("first_launch");
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    let mut fresh = 0;
    for bench in cases::benches() {
        let Problem { kernel, dims, .. } = &bench.problem;
        let mut spec = || {
            fresh += 1;
            specialization(&bench.problem).with_dim(&format!("first{fresh}"), DimFact::Dynamic(1))
        };
        let launch = |spec: Specialization| {
            let selection = choose_for(kernel, &spec, dims, Some(machine));
            let config = selection.chosen().expect("a legal config");
            let kernel = verify((kernel.build)(&spec, config).expect("a kernel that was built")).expect("verified");
            compile(&kernel, &config.schedule, machine)
        };
        let name = format!("{}/{} configs", bench.name, kernel.configs().len());
        group.bench_function(name, |b| b.iter_batched(&mut spec, launch, BatchSize::SmallInput));
    }
    group.finish();
}

/// Every config of a kernel for a specialization that is new to the process.
fn new_specialization(c: &mut Criterion) {
    let machine = Machine::from(Target { sm: 90, specific: false });
    let mut group = c.benchmark_group("new_specialization");
    group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    let mut fresh = 0;
    for bench in cases::benches() {
        let Problem { kernel, dims, .. } = &bench.problem;
        let name = format!("{}/{} configs", bench.name, kernel.configs().len());
        // The kernel has no such dim, so nothing else changes.
        let mut spec = || {
            fresh += 1;
            specialization(&bench.problem).with_dim(&format!("none{fresh}"), DimFact::Dynamic(1))
        };
        group.bench_function(name, |b| {
            b.iter_batched(&mut spec, |spec| choose_for(kernel, &spec, dims, Some(machine)), BatchSize::SmallInput);
        });
    }
    group.finish();
}

/// The host work of a launch except queueing it, at new sizes of one specialization. The kernel is loaded by the
/// simulator, which takes the same path up to there.
fn new_size(c: &mut Criterion) {
    const MOST: usize = 1 << 17;
    let device = Device::sim_with(Target { sm: 90, specific: false }, SimOptions::default(), CacheDir::Off);
    let zeros = |shape: [usize; 3]| Tensor::zeros(&device, DType::Bf16, shape).expect("memory of the host");
    let (x, y, weights) = (zeros([1, MOST, 16]), zeros([1, MOST, 16]), zeros([1, 64, 16]));
    let hidden = weights.reshape([1, 16, 64]).expect("as many elements");
    let def = cases::problem("memory_read", DType::Bf16, &[1, 1, 16, 64]).expect("a kernel that ships").kernel;
    let mut n = 1;
    // Odd sizes have one divisor class. By the time that a size comes again, its plan has been evicted.
    let mut next = || {
        n = (n + 2) % MOST;
        let rows = |t: &Tensor| t.slice(1, 0..n).expect("inside");
        (rows(&x), rows(&y))
    };
    let mut group = c.benchmark_group("new_size");
    group.sample_size(100);
    let name = format!("memory_read/{} configs", def.configs().len());
    let prepare = |(x, mut y)| def.prepare(&device, args!(x, weights, hidden, x, &mut y)).expect("a launch");
    group.bench_function(name, |b| b.iter_batched(&mut next, prepare, BatchSize::SmallInput));
    let (x, mut y) = next();
    group.bench_function("memory_read/known", |b| {
        b.iter(|| def.prepare(&device, args!(x, weights, hidden, x, &mut y)).expect("a launch"));
    });
    group.finish();
}

/// Choosing a config in a bundle's table: one of 128 sizes that the bundle was made for, and other sizes.
fn choose(c: &mut Criterion) {
    let machine = Machine::from(Target { sm: 90, specific: false });
    let mut group = c.benchmark_group("choose");
    let records = Records::none("none");
    for name in ["softmax", "matmul", "windowed_attention"] {
        let usual = cases::usual_dims(name);
        let problem = cases::problem(name, DType::Bf16, &usual).expect("a kernel that ships");
        let (kernel, dims) = (problem.kernel, &problem.dims);
        let mut spec = specialization(&problem);
        for d in kernel.dims.iter().filter(|d| !d.whole) {
            spec = spec.with_dim(d.name, DimFact::Dynamic(1));
        }
        let resized = |by: u64| -> Vec<u64> {
            kernel.dims.iter().zip(dims).map(|(d, &n)| if d.whole { n } else { n + by }).collect()
        };
        let asked: Vec<Vec<u64>> = (0..128).map(|i| resized(16 * i)).collect();
        let made = regions(kernel, &spec, &asked, machine, &records, 6, &[]).expect("a legal config");
        for (which, of) in [("a size of its own", 16 * 77), ("another", 16 * 77 + 1)] {
            let sizes = resized(of);
            let found = made.table.choose(&sizes).map(|c| c.1);
            assert_eq!(found, Some(of % 16 == 0));
            group.bench_function(format!("{name}/{which}"), |b| b.iter(|| made.table.choose(black_box(&sizes))));
        }
    }
    group.finish();
}

criterion_group!(benches, stages, tile_to_ptx, new_specialization, first_launch, new_size, choose);
criterion_main!(benches);
