//! The counted work of kernels, above all trips of loops.

use atlas_codegen::gpu::analysis::{Work, WorkFormula, WorkTable, compulsory};
use atlas_codegen::pipeline::run;
use atlas_codegen::{CompileError, Machine, Platform};
use atlas_dsl::{Config, Schedule, parse_kernel, verify};

fn of_text(text: &str) -> Result<WorkFormula, CompileError> {
    let kernel = parse_kernel(text).and_then(verify).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let machine: Machine = "sm_90".parse().unwrap();
    run(&kernel, &Schedule::default(), machine, |_, _| {}).map(|lowered| WorkFormula::of(&lowered))
}

/// The work of a kernel at these sizes.
fn at(text: &str, dims: &[u64]) -> Work {
    let mut table = WorkTable::default();
    let number = table.push(&of_text(text).expect("a kernel that no GPU refuses"));
    table.at(dims).of(number).clone()
}

/// A kernel of pairs of tiles whose programs `(i, j)` read 16 numbers in each trip of a loop over these bounds, and after it.
fn in_pairs(bounds: &str) -> String {
    format!(
        "kernel @pairs(%x: f32[N], %z: i32[N], %y: out f32[N, N], %s: i32)\ndims N: ?16\ngrid (%i, %j) = (tiles(N, 16), upto(N, 16)) {{\n\
         %one = splat 1 : i32\n%zero = splat 0 : i32\n%t = load %x[%i : 16] : f32[16]\n{bounds}\n\
         %r = loop %k in %from..%to carry (%c: f32[16] = %t) {{\n%v = load %x[%k : 16] : f32[16]\n%u = other %v, 0.0 : f32[16]\n%a = add %c, %u : f32[16]\n\
         yield %a\n}}\n%w = reshape %r : f32[16, 1]\n%b = broadcast %w : f32[16, 16]\nstore %y[%i : 16, %j : 16], %b\n}}"
    )
}

/// The trips of a loop of [`in_pairs`], measured by its reads.
fn trips(bounds: &str, n: u64) -> f64 {
    at(&in_pairs(bounds), &[n]).reads[0].bytes / 64.0 - 1.0
}

/// A loop from one coordinate to the other has as many trips as the pairs are apart on average: a third of the tiles.
#[test]
fn coordinates_of_two_axes_are_not_the_same() {
    for tiles in [32, 128, 1000] {
        let (n, rows) = (16 * tiles, (tiles - 1) as f64);
        for (bounds, expected) in [
            ("%from = add %j, %zero : i32\n%to = add %i, %zero : i32", rows / 3.0),
            ("%from = add %zero, %zero : i32\n%to = add %i, %one : i32", 1.0 + 2.0 * rows / 3.0),
            ("%from = add %zero, %zero : i32\n%to = add %j, %one : i32", 1.0 + rows / 3.0),
        ] {
            let trips = trips(bounds, n);
            assert!((trips / expected - 1.0).abs() < 0.15, "{n}: {trips} for {expected} of {bounds}");
        }
    }
}

/// A bound that depends on the loop around it, and one that follows from real numbers.
#[test]
fn loops_in_loops_and_quotients_are_counted() {
    let text = |to: &str| {
        format!(
            "kernel @inner(%x: f32[N], %y: out f32[M], %s: i32)\ndims N: ?16, M: ?16\ngrid (%m) = (tiles(M, 16)) {{\n%one = splat 1 : i32\n\
             %zero = splat 0 : i32\n%n = tiles(N, 16) : i32\n%t = splat 0.0 : f32[16]\n\
             %r = loop %i in %zero..%n carry (%c: f32[16] = %t) {{\n{to}\n\
             %q = loop %k in %zero..%to carry (%d: f32[16] = %c) {{\n%v = load %x[%k : 16] : f32[16]\n%u = other %v, 0.0 : f32[16]\n\
             %a = add %d, %u : f32[16]\nyield %a\n}}\nyield %q\n}}\nstore %y[%m : 16], %r\n}}"
        )
    };
    for tiles in [8, 64, 1000] {
        let trips = |to: &str| at(&text(to), &[16 * tiles, 16]).reads[0].bytes / 64.0;
        let n = tiles as f64;
        for (to, expected) in [
            ("%to = add %i, %one : i32", n * (n + 1.0) / 2.0),
            // 3 / 4 of them, by numbers that are not whole.
            (
                "%f = cast %n : f32\n%three = splat 3.0 : f32\n%four = splat 4.0 : f32\n%share = div %three, %four : f32\n\
                 %g = mul %f, %share : f32\n%to = cast %g : i32",
                n * 0.75 * n,
            ),
        ] {
            let trips = trips(to);
            assert!((trips / expected - 1.0).abs() < 0.1, "{n}: {trips} for {expected} of {to}");
        }
        // What repeats evenly is met at all of its values.
        for period in [2, 4, 8] {
            let trips = trips(&format!(
                "%period = splat {period} : i32\n%left = rem %i, %period : i32\n%to = mul %left, %n : i32"
            ));
            let expected = n * n * f64::from(period - 1) / 2.0;
            assert!((trips / expected - 1.0).abs() < 0.6 || tiles == 8, "{n}: {trips} for {expected} of {period}");
        }
    }
}

/// A number that i32 cannot hold has wrapped, and is not known. Loops nested so deep that their trips overflow still give a
/// number.
#[test]
fn what_wraps_is_not_known() {
    let mut square = String::from("%from = add %zero, %zero : i32\n%n = tiles(N, 1) : i32\n%to0 = add %n, %zero : i32");
    for i in 0..4_000 {
        square += &format!("\n%to{} = mul %to{i}, %n : i32", i + 1);
        if i == 2 {
            let bounds = format!("{square}\n%to = add %to3, %zero : i32");
            assert!(trips(&bounds, 16) < 70_000.0);
        }
    }
    square += "\n%to = add %to4000, %zero : i32";
    // As many as where a bound is the caller's.
    let unknown = trips("%from = add %zero, %zero : i32\n%f = splat 1e20 : f32\n%to = cast %f : i32", 1600);
    assert_eq!(trips(&square, 1600), unknown);
}

/// Programs that do more than others: each counts for itself.
#[test]
fn each_program_counts_its_own_trips() {
    let work = at(&in_pairs("%from = add %zero, %zero : i32\n%to = add %i, %one : i32"), &[16 * 64]);
    let of: Vec<f64> = work.samples.iter().map(|s| s.total.global).collect();
    let mean = of.iter().sum::<f64>() / of.len() as f64;
    assert!((mean / work.total.global - 1.0).abs() < 1e-9);
    assert!(of.iter().fold(0.0, |a, &b| f64::max(a, b)) > 1.3 * mean, "{of:?}");
    let even = at(&in_pairs("%from = add %zero, %zero : i32\n%to = add %one, %one : i32"), &[16 * 64]);
    assert_eq!(even.samples.len(), 1);
}

/// The work of a kernel of one tile with this body, or why no GPU runs it; all within the stack of a thread.
fn deep(body: &str) -> Result<WorkFormula, CompileError> {
    let text = format!(
        "kernel @deep(%x: f32[N], %y: out f16[N], %s: i32)\ndims N: ?16\ngrid (%n) = (tiles(N, 128)) {{\n\
         %from = splat 0 : i32\n%to = scalar %s : i32\n%t = load %x[%n : 128] : f32[128]\n{body}\n\
         %h = cast %r0 : f16[128]\nstore %y[%n : 128], %h\n}}"
    );
    of_text(&text)
}

/// Each loop starts with a value that is known to be zero and yields one that is not, so that all loops around it are walked
/// again.
#[test]
fn loops_in_loops_are_not_walked_by_powers_of_two() {
    const DEPTH: usize = 40;
    for (start, op) in [("splat 0.0", "add"), ("load %x[%n : 128]", "max")] {
        let mut body = String::from("%u = tanh %t : f32[128]\n");
        for i in 0..DEPTH {
            body += &format!("%z{i} = {start} : f32[128]\n");
            body += &format!("%r{i} = loop %j{i} in %from..%to carry (%c{i}: f32[128] = %z{i}) {{\n");
        }
        for i in (0..DEPTH).rev() {
            let inner = if i == DEPTH - 1 { "%u".to_owned() } else { format!("%r{}", i + 1) };
            body += &format!("%a{i} = {op} %c{i}, {inner} : f32[128]\nyield %a{i}\n}}\n");
        }
        // The first carry more than registers hold, which is found out after the walks.
        if let Err(e) = deep(&body) {
            assert!(e.to_string().contains("registers"), "{e}");
        }
    }
}

/// A value that is nested deeper than a stack can hold is not known, and breaks nothing.
#[test]
fn a_bound_of_very_many_operations_is_not_known() {
    let mut body = String::from("%one = splat 1 : i32\n%b0 = add %to, %one : i32\n");
    for i in 0..20_000 {
        body += &format!("%b{} = add %b{i}, %one : i32\n", i + 1);
    }
    body += "%r0 = loop %j in %from..%b20000 carry (%c: f32[128] = %t) {\n%a = add %c, %t : f32[128]\nyield %a\n}";
    deep(&body).expect("a kernel that no GPU refuses");
}

/// Data in memory and numbers from the caller limit a loop no more than they should.
#[test]
fn what_is_not_known_of_a_bound_does_not_end_a_loop() {
    let read = "%any = load %z[%i] : i32\n%else = load %z[%j] : i32\n%p = scalar %s : i32\n%n = tiles(N, 1) : i32\n";
    let unknown = 8.0;
    for (bounds, expected) in [
        // Neither at 0 nor at the size does a number end that may be anything.
        ("%from = add %zero, %zero : i32\n%to = max %any, %zero : i32", unknown),
        ("%from = min %any, %n : i32\n%to = min %else, %n : i32", 512.0),
        ("%from = max %any, %zero : i32\n%to = min %else, %n : i32", 4096.0),
        // What the caller gives is 0 or more, and ends no loop where it begins.
        ("%from = add %p, %zero : i32\n%to = add %n, %zero : i32", 4096.0),
        ("%from = add %p, %zero : i32\n%four = splat 4 : i32\n%to = add %p, %four : i32", 4.0),
        ("%m = splat 64 : i32\n%from = add %zero, %zero : i32\n%to = rem %p, %m : i32", 63.0),
        ("%m = splat -1 : i32\n%q = mul %p, %m : i32\n%from = add %zero, %zero : i32\n%to = add %n, %q : i32", 4096.0),
        // Two bounds that hang on one number are as far apart as that says: whole tiles, and then one that is not.
        (
            "%len = min %any, %n : i32\n%t16 = splat 16 : i32\n%part = splat 7 : i32\n%from = div %len, %t16 : i32\n\
             %more = add %len, %part : i32\n%to = div %more, %t16 : i32",
            0.0,
        ),
        // A loop over tiles is one over as many elements, whichever of its bounds says so.
        ("%from = add %any, %zero : i32\n%to = add %i, %one : i32", 512.0 / 16.0),
        ("%tile = splat 32 : i32\n%from = div %any, %tile : i32\n%to = add %p, %one : i32", 512.0 / 32.0),
    ] {
        let trips = trips(&format!("{read}{bounds}"), 4096);
        assert!((trips - expected).abs() <= 1e-3 * expected, "{trips} for {expected} of {bounds}");
    }
}

/// 64-bit numbers do not wrap at 32 bits.
#[test]
fn wide_numbers_do_not_wrap_where_narrow_ones_do() {
    let n = 16 << 20;
    let of = |t: &str| {
        format!(
            "%ti = cast %i : {t}\n%ni = tiles(N, 1) : i32\n%nt = cast %ni : {t}\n%p = mul %ti, %nt : {t}\n%q = div %p, %nt : {t}\n\
             %from = add %zero, %zero : i32\n%to = cast %q : i32"
        )
    };
    let all = trips("%from = add %zero, %zero : i32\n%to = add %i, %zero : i32", n);
    assert_eq!(trips(&of("i64"), n), all);
    assert_ne!(trips(&of("i32"), n), all);
}

/// A loop reads the same amount with any number of stages, also if its loads run ahead.
#[test]
fn stages_do_not_change_what_is_read() {
    let text = "kernel @mlp(%x: bf16[M, D] strides [?8, 1] align 16, %w: bf16[H, D] strides [?8, 1] align 16, \
                %v: bf16[O, H] strides [?8, 1] align 16, %y: out bf16[M, O] strides [?8, 1] align 16)\n\
                dims M: ?8, D: ?8, H: ?8, O: ?8\ngrid (%m, %o) = (tiles(M, 64), tiles(O, 64)) {\n\
                %none = splat 0.0 : f32[64, 64]\n%zero = splat 0 : i32\n%hs = tiles(H, 64)\n%ds = tiles(D, 64)\n\
                %r = pipeline %h in %zero..%hs carry (%c = %none) {\n\
                %s = pipeline %d in %zero..%ds carry (%e = %none) {\n\
                %xt = load %x[%m : 64, %d : 64] : bf16[64, 64]\n%wt = load %w[%h : 64, %d : 64] : bf16[64, 64]\n\
                %wtt = transpose %wt : bf16[64, 64]\n%p = dot %xt, %wtt acc %e : f32[64, 64]\nyield %p\n}\n\
                %sh = cast %s : bf16[64, 64]\n%vt = load %v[%o : 64, %h : 64] : bf16[64, 64]\n\
                %vtt = transpose %vt : bf16[64, 64]\n%q = dot %sh, %vtt acc %c : f32[64, 64]\nyield %q\n}\n\
                %out = cast %r : bf16[64, 64]\nstore %y[%m : 64, %o : 64], %out\n}";
    let kernel = parse_kernel(text).and_then(verify).unwrap_or_else(|e| panic!("{e}\n{text}"));
    for (sm, dims) in [("sm_80", [64, 128, 128, 64]), ("sm_90", [64, 128, 128, 64]), ("sm_80", [64, 256, 256, 64])] {
        let read = |stages: u32| {
            let schedule = Schedule { stages, ..Schedule::default() };
            let machine: Machine = sm.parse().unwrap();
            let lowered = run(&kernel, &schedule, machine, |_, _| {}).expect("a kernel that no GPU refuses");
            let mut table = WorkTable::default();
            let number = table.push(&WorkFormula::of(&lowered));
            let work = table.at(&dims).of(number).clone();
            work.reads.iter().map(|r| r.bytes).sum::<f64>()
        };
        let (outer, inner) = (dims[2] as f64 / 64.0, dims[1] as f64 / 64.0);
        let expected = 64.0 * 64.0 * 2.0 * outer * (2.0 * inner + 1.0);
        for stages in 2..=4 {
            let read = read(stages);
            assert!((read / expected - 1.0).abs() < 0.02, "{sm}, {dims:?}, {stages} stages: {read} for {expected}");
        }
    }
}

/// Each program of a CTA counts what a single one does, whichever program its copies are for.
#[test]
fn persistent_programs_count_as_single_ones_do() {
    let text = include_str!("../../../tests/cases/tile/gemm.tile");
    let kernel = parse_kernel(text).and_then(verify).unwrap_or_else(|e| panic!("{e}"));
    let on: Platform = "sm_90a".parse().unwrap();
    let table = |programs: &str, stages: u32| {
        let config: Config = format!("stages={stages} warps=8 stores=engine programs={programs}").parse().unwrap();
        let lowered = run(&kernel, &config.schedule, on, |_, _| {}).expect("a kernel that no GPU refuses");
        assert_eq!(lowered.index_map.persistent, programs == "persistent");
        let mut table = WorkTable::default();
        table.push(&WorkFormula::of(&lowered));
        (table, compulsory(&lowered, &[8192, 8192, 320]))
    };
    for stages in [2, 3] {
        let [(single, least), (persistent, least_of_many)] = ["single", "persistent"].map(|by| table(by, stages));
        assert_eq!(least, least_of_many);
        for trips in [0, 1, 2, 5, 63, 128] {
            let dims = [8192, 8192, 64 * trips];
            let [one, many] = [&single, &persistent].map(|table| table.at(&dims).of(0).clone());
            assert_eq!((&one.reads, one.written), (&many.reads, many.written), "{stages} stages, {trips} trips");
            let bytes = |work: &Work| (work.total.global, work.total.shared_async, work.total.tensor_async);
            assert_eq!(bytes(&one), bytes(&many), "{stages} stages, {trips} trips");
            let [of_one, of_many] = [&one, &many].map(|work| &work.samples[0].prefetched[..]);
            let ([of_one], [of_many]) = (of_one, of_many) else { panic!("a loop whose loads run ahead") };
            assert_eq!((of_one.runs, of_one.trips, of_one.own.0), (of_many.runs, of_many.trips, of_many.own.0));
            assert_eq!((of_one.goes_on, of_many.goes_on), (false, true));
        }
    }
}

/// A loop goes on into the next program if the engine fetches all of its tiles there.
#[test]
fn loads_go_on_only_where_the_next_program_has_them() {
    let text = include_str!("../../../tests/cases/tile/gemm.tile").replace("256", "128");
    let of_program = text.replace("%steps = tiles(K, 64)", "%one = splat 1 : i32\n%steps = add %m, %one : i32");
    let half_by_threads =
        text.replace("%b: bf16[N, K] strides [?8, 1] align 16", "%b: bf16[N, K] strides [?4, 1] align 8");
    for (text, expected) in [(&text, true), (&of_program, false), (&half_by_threads, false)] {
        let kernel = parse_kernel(text).and_then(verify).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let (on, config): (Platform, Config) =
            ("sm_90a".parse().unwrap(), "stages=3 warps=8 programs=persistent".parse().unwrap());
        let lowered = run(&kernel, &config.schedule, on, |_, _| {}).expect("a kernel that no GPU refuses");
        assert!(lowered.index_map.persistent, "{text}");
        let mut table = WorkTable::default();
        table.push(&WorkFormula::of(&lowered));
        let work = table.at(&[1024, 1024, 1024]).of(0).clone();
        assert!(work.samples.iter().flat_map(|s| &s.prefetched).all(|l| l.goes_on == expected), "{text}");
    }
}

/// Copies write whole boxes, also where the tensor ends: 3 rows of 64 take the shared memory and the instructions of 64.
#[test]
fn copies_past_the_end_are_work() {
    let text = "kernel @mm(%x: bf16[M, D] strides [?8, 1] align 16, %w: bf16[O, D] strides [?8, 1] align 16, %y: out bf16[M, O])\n\
                dims M: ?1, D: ?8, O: ?8\ngrid (%m, %o) = (tiles(M, 64), tiles(O, 64)) {\n\
                %none = splat 0.0 : f32[64, 64]\n%zero = splat 0 : i32\n%ds = tiles(D, 64)\n\
                %s = pipeline %d in %zero..%ds carry (%e = %none) {\n\
                %xt = load %x[%m : 64, %d : 64] : bf16[64, 64]\n%wt = load %w[%o : 64, %d : 64] : bf16[64, 64]\n\
                %wtt = transpose %wt : bf16[64, 64]\n%p = dot %xt, %wtt acc %e : f32[64, 64]\nyield %p\n}\n\
                %out = cast %s : bf16[64, 64]\nstore %y[%m : 64, %o : 64], %out\n}";
    let kernel = parse_kernel(text).and_then(verify).unwrap_or_else(|e| panic!("{e}\n{text}"));
    for arch in ["sm_90", "sm_90a"] {
        let machine: Machine = arch.parse().unwrap();
        let lowered = run(&kernel, &Schedule::default(), machine, |_, _| {}).expect("a kernel that no GPU refuses");
        let mut table = WorkTable::default();
        table.push(&WorkFormula::of(&lowered));
        let [few, all] = [3, 64].map(|m| table.at(&[m, 512, 64]).of(0).clone());
        assert!(few.reads[0].bytes < 0.1 * all.reads[0].bytes, "{arch}");
        assert_eq!((few.total.shared, few.total.shared_async), (all.total.shared, all.total.shared_async), "{arch}");
        assert_eq!(few.total.element_wise, all.total.element_wise, "{arch}");
    }
}
