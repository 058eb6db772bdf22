//! Long chains of operations: no pass walks them by recursion, because that would overflow a thread's stack.

use atlas_codegen::Target;
use atlas_codegen::gpu::analysis::WorkFormula;
use atlas_codegen::gpu::{Kernel, Lowered, Op, VerifiedKernel};
use atlas_codegen::pipeline::run;
use atlas_dsl::{Schedule, parse_kernel, verify};
use std::fmt::Write;

/// The default stack of threads.
const STACK: usize = 2 << 20;

/// A kernel of one row of 128 elements. Its body has to define the result `%r`.
fn of_rows(body: &str) -> String {
    format!(
        "kernel @chain(%x: f32[N], %y: out f32[N], %s: i32)\ndims N: ?16\ngrid (%n) = (tiles(N, 128)) {{\n\
         %v0 = load %x[%n : 128] : f32[128]\n{body}\nstore %y[%n : 128], %r\n}}"
    )
}

/// `steps` times a line in which `$` is the number of the step and `@` that of the next.
fn chain(steps: usize, line: impl Fn(usize) -> &'static str) -> String {
    let mut text = String::new();
    for i in 0..steps {
        let line = line(i).replace('$', &i.to_string()).replace('@', &(i + 1).to_string());
        writeln!(text, "{line}").unwrap();
    }
    text
}

/// Compiles a kernel (with LLVM if it is there) and counts its work, on the stack of a thread. Returns the number of
/// element-wise operations.
fn compiles(name: &str, text: String) -> usize {
    on_a_thread(name, move || {
        let lowered = lowered(&text);
        #[cfg(feature = "llvm")]
        assert!(atlas_codegen::emit(&lowered).expect("PTX").ptx.contains("st.global"));
        count(&lowered)
    })
}

/// A kernel after the passes.
fn lowered(text: &str) -> VerifiedKernel<Lowered> {
    let kernel = parse_kernel(text).and_then(verify).unwrap_or_else(|e| panic!("{e}"));
    let target: Target = "sm_80".parse().unwrap();
    let lowered = run(&kernel, &Schedule::default(), target, |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    WorkFormula::of(&lowered);
    lowered
}

fn count(k: &Kernel) -> usize {
    k.insts.values().filter(|op| op.is_elementwise() || matches!(op, Op::Broadcast(_))).count()
}

fn on_a_thread(name: &str, work: impl FnOnce() -> usize + Send + 'static) -> usize {
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work).unwrap();
    thread.join().unwrap_or_else(|_| panic!("{name} is not compiled"))
}

#[test]
fn element_wise_chains_are_as_long_as_a_kernel() {
    let last = |steps: usize| format!("%zero = splat 0.0 : f32[128]\n%r = add %v{steps}, %zero\n");
    for (name, steps, line) in [
        ("choices", 4000, ["%c$ = lt %v$, %v0\n%v@ = select %c$, %v$, %v0"; 2]),
        ("sums and products", 20_000, ["%v@ = add %v$, %v0", "%v@ = mul %v$, %v0"]),
        ("signs", 20_000, ["%v@ = abs %v$", "%v@ = neg %v$"]),
        ("casts", 2000, ["%v@ = cast %v$ : f16[128]", "%v@ = cast %v$ : f32[128]"]),
        ("edges", 2000, ["%v@ = other %v$, 1.0"; 2]),
    ] {
        let made = compiles(name, of_rows(&(chain(steps, |i| line[i % 2]) + &last(steps))));
        assert!(made > 0, "{name}");
    }
}

/// Chains of shape changes, and of reductions.
#[test]
fn chains_of_shapes_are_as_long_as_a_kernel() {
    let row = chain(4000, |i| ["%v@ = reshape %v$ : f32[1, 128]", "%v@ = reshape %v$ : f32[128]"][i % 2]);
    compiles("reshapes", of_rows(&(row + "%r = neg %v4000")));
    let repeated = chain(4000, |_| "%v@ = broadcast %v$ : f32[128]");
    compiles("broadcasts", of_rows(&(repeated + "%r = neg %v4000")));
    let turned = chain(2000, |_| "%t@ = transpose %t$");
    let turned = format!("%t0 = reshape %v0 : f32[1, 128]\n{turned}\n%r = reshape %t2000 : f32[128]");
    compiles("transposes", of_rows(&turned));
    let folds = chain(500, |_| "%s$ = reduce sum %v$ axes [0]\n%b$ = broadcast %s$ : f32[128]\n%v@ = sub %v$, %b$");
    compiles("folds", of_rows(&(folds + "%r = neg %v500")));
}

/// Values without a home, and the bounds of a loop.
#[test]
fn chains_of_numbers_are_as_long_as_a_kernel() {
    let counted = chain(4000, |i| ["%i@ = add %i$, %i0", "%i@ = mul %i$, %i0"][i % 2]);
    compiles("indices", of_rows(&format!("%i0 = iota axis 0 : i32[128]\n{counted}%r = cast %i4000 : f32[128]")));
    let chosen = chain(4000, |_| "%c$ = lt %i$, %i0\n%i@ = select %c$, %i$, %i0");
    compiles(
        "choices of indices",
        of_rows(&format!("%i0 = iota axis 0 : i32[128]\n{chosen}%r = cast %i4000 : f32[128]")),
    );
    let bound = chain(20_000, |i| ["%b@ = add %b$, %n", "%b@ = min %b$, %n"][i % 2]);
    let looped = "%lo = splat 0 : i32\n%r = loop %k in %lo..%b20000 carry (%c = %v0) {\n%d = add %c, %v0\nyield %d\n}";
    compiles("a bound", of_rows(&format!("%b0 = scalar %s\n{bound}{looped}")));
}

/// A product that is too wide for the registers is computed by ranges of columns, with everything that depends on it.
#[test]
fn a_long_chain_is_made_by_ranges_of_columns() {
    let signs = chain(4000, |i| ["%v@ = abs %v$", "%v@ = neg %v$"][i % 2]);
    let text = format!(
        "kernel @ranges(%a: bf16[M, K] strides [64, 1] align 16, %b: bf16[K, N] strides [512, 1] align 16, \
         %y: out f32[M, N] strides [512, 1] align 16)\ndims M: ?64, K = 64, N = 512\ngrid (%m) = (tiles(M, 64)) {{\n\
         %l = load %a[%m : 64, ..] : bf16[64, 64]\n%w = load %b[.., ..] : bf16[64, 512]\n\
         %v0 = dot %l, %w : f32[64, 512]\n{signs}store %y[%m : 64, ..], %v4000\n}}"
    );
    // Each range has the whole chain; LLVM would take long for all its registers.
    assert!(on_a_thread("ranges", move || count(&lowered(&text))) >= 2 * 4000);
}
