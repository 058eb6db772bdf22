//! What `explain` says of the case kernels: every decision with its pass, its place and its reason.

use atlas_codegen::{Explained, Target, explain};
use atlas_dsl::{Config, Schedule};
use std::path::PathBuf;

fn explained(name: &str, schedule: Schedule) -> Explained {
    explained_on("sm_80", name, schedule)
}

fn explained_on(target: &str, name: &str, schedule: Schedule) -> Explained {
    explained_text(target, &case(name), schedule)
}

fn case(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/cases/tile/{name}.tile"));
    std::fs::read_to_string(path).expect("a case file")
}

fn explained_text(target: &str, text: &str, schedule: Schedule) -> Explained {
    let tile = atlas_dsl::parse_kernel(text).and_then(atlas_dsl::verify).expect("a kernel");
    let target: Target = target.parse().expect("a target");
    explain(&tile, &schedule, target).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The decision and the reason of a pass about a subject.
#[track_caller]
fn said(of: &Explained, pass: &str, subject: &str) -> (String, String) {
    let found = of.notes.iter().find(|n| n.pass == pass && n.subject == subject);
    let found = found.unwrap_or_else(|| panic!("{pass} says nothing of {subject}:\n{of}"));
    (found.decision.clone(), found.because.clone())
}

#[test]
fn products_loads_and_rings_say_why() {
    let read = explained("memory_read", Schedule { stages: 3, ..Schedule::default() });
    let (product, why) = said(&read, "lower_tiles", "product");
    assert!(product.contains("mma.m16n8k16.") && product.contains("warps 4x1") && why.contains("on sm_80"), "{read}");
    let (load, why) = said(&read, "lower_tiles", "load w1");
    assert!(load == "staged" && why.contains("a product reads it"), "{read}");
    assert_eq!(said(&read, "select_copy_atoms", "copy w1").0, "cp.async.16");
    assert!(read.notes.iter().any(|n| n.decision == "3 stages of 16384 bytes: w2, w1"), "{read}");
    assert!(read.notes.iter().any(|n| n.subject == "product" && n.loc.line > 0), "{read}");
    assert!(read.notes.iter().all(|n| !n.decision.is_empty() && !n.because.is_empty()), "{read}");
}

/// y = x wᵀ of bf16 by tf32, whose right operand is computed by these lines from the tile `%w0`.
fn product_of_casts(right: &str) -> String {
    format!(
        "kernel @product(\n  %x: bf16[M, K] strides [?8, 1] align 16,\n  %w: bf16[N, K] strides [?8, 1] align 16,\n  \
         %y: out f32[M, N] strides [?8, 1] align 16,\n)\ndims M: ?8, N: ?8, K: ?8\n\
         grid (%m, %n) = (tiles(M, 128), tiles(N, 128)) {{\n  %acc0 = splat 0.0 : f32[128, 128]\n  \
         %zero = splat 0 : i32\n  %steps = tiles(K, 32)\n  \
         %acc = pipeline %k in %zero..%steps carry (%a = %acc0) {{\n    \
         %x0 = load %x[%m : 128, %k : 32] : bf16[128, 32]\n    %w0 = load %w[%n : 128, %k : 32] : bf16[128, 32]\n    \
         %xs = cast %x0 : f32[128, 32]\n    {right}\n    \
         %sum = dot %xs, %ws acc %a precision tf32 : f32[128, 128]\n    yield %sum\n  }}\n  \
         store %y[%m : 128, %n : 128], %acc\n}}\n"
    )
}

#[test]
fn a_product_that_is_no_wgmma_says_its_cause() {
    for right in [
        "%w1 = transpose %w0 : bf16[32, 128]\n    %ws = cast %w1 : f32[32, 128]",
        "%w1 = cast %w0 : f32[128, 32]\n    %ws = transpose %w1 : f32[32, 128]",
    ] {
        let of = explained_text("sm_90a", &product_of_casts(right), Schedule::default());
        assert!(said(&of, "lower_tiles", "product").1.contains("B is computed"), "{right}: {of}");
    }
    for (grid, warps, why) in [
        ("2x2", 4, "no wgmma: the config's warp_grid"),
        ("4x2", 8, "bf16 operands on sm_90a"),
        ("2x4", 8, "no wgmma: the config's warp_grid"),
    ] {
        let text = format!("warps={warps} warp_grid={grid}");
        let config: Config = text.parse().expect("a config");
        let of = explained_text("sm_90a", &case("gemm").replace("256", "128"), config.schedule);
        assert!(said(&of, "lower_tiles", "product").1.starts_with(why), "{text}: {of}");
    }
}

#[test]
fn each_pass_that_decides_says_so() {
    let steps = explained("newton_schulz_small", Schedule::default());
    assert!(steps.notes.iter().any(|n| n.decision.ends_with("in one buffer, updated in place")), "{steps}");
    let norm = explained("rms_norm", Schedule::default());
    assert!(said(&norm, "lower_tiles", "load x").0.contains("to registers"), "{norm}");
    assert_eq!(said(&norm, "lower_tiles", "rsqrt").0, "approximate");
    assert!(said(&norm, "select_cache_hints", "cache x").1.contains("only reads"), "{norm}");
    let read = explained_on("sm_90a", "memory_read", Schedule { stages: 2, ..Schedule::default() });
    let once = ("its lines leave L2 first".to_owned(), "the copy engine reads each element once".to_owned());
    assert_eq!(said(&read, "select_cache_hints", "cache r"), once, "{read}");
    assert!(!read.notes.iter().any(|n| n.subject == "cache w1"), "{read}");
    for (pass, subject) in
        [("check_registers", "registers"), ("allocate_shared", "shared"), ("insert_barriers", "barriers")]
    {
        said(&norm, pass, subject);
    }
}

#[test]
fn functions_say_which_form_they_have_and_why() {
    let two = explained("two_outputs", Schedule::default());
    let forms: Vec<[&str; 2]> = two
        .notes
        .iter()
        .filter(|n| ["erf", "tanh"].contains(&&n.subject[..]))
        .map(|n| [&n.decision[..], &n.because[..]])
        .collect();
    let rounded = ["approximate", "all that depends on it is rounded to 16 bits, nothing magnifies its error"];
    let wide = ["precise", "`z` of f32 depends on it"];
    assert_eq!(forms[..2], [rounded, wide], "{two}");
    let [decision, because] = forms[2];
    assert!(
        decision == "precise" && because.starts_with("`sub` at ") && because.ends_with("magnify its error"),
        "{two}"
    );
}
