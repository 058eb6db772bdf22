//! The list of passes against their files and headers, and the constructs that phases forbid.

#[path = "passes/chains.rs"]
mod chains;
#[path = "passes/filetests.rs"]
mod filetests;
#[path = "passes/packing.rs"]
mod packing;
#[path = "passes/work.rs"]
mod work;

use atlas_codegen::Target;
use atlas_codegen::gpu::{
    Constructs, Kernel, Lowered, Op, Phase, Placed, VerifiedKernel, parse_gpu, verify_constructs, verify_gpu,
};
use atlas_codegen::passes::{FIRST, LOWER, MADE, PLACE, SCHEDULE};
use atlas_codegen::pipeline::run;
use atlas_dsl::Schedule;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every pass of the list: its name, what it removes, what it adds.
fn page() -> Vec<(&'static str, Constructs, Constructs)> {
    let rest = [PLACE, SCHEDULE, LOWER].into_iter().flatten().map(|p| (p.name, p.removes, p.adds));
    std::iter::once((FIRST, Constructs::NONE, MADE)).chain(rest).collect()
}

/// The comment at the head of a pass's file, in one line.
fn header(name: &str) -> String {
    let passes = root().join("codegen/src/passes");
    let file =
        [format!("{name}.rs"), format!("{name}/mod.rs")].map(|f| passes.join(f)).into_iter().find(|f| f.exists());
    let file = file.unwrap_or_else(|| panic!("no file of the pass `{name}`"));
    let text = std::fs::read_to_string(&file).expect("the file of a pass");
    let lines = text.lines().map_while(|l| l.strip_prefix("//!")).map(str::trim);
    lines.collect::<Vec<_>>().join(" ")
}

#[test]
fn each_file_is_on_the_page() {
    let names: BTreeSet<&str> = page().iter().map(|row| row.0).collect();
    for entry in std::fs::read_dir(root().join("codegen/src/passes")).expect("the folder of passes") {
        let path = entry.expect("a pass").path();
        let name = path.file_stem().and_then(|n| n.to_str()).expect("a name");
        assert!(name == "mod" || names.contains(name), "`{name}` is in no phase");
    }
}

#[test]
fn each_header_says_what_the_page_says() {
    for (name, removes, adds) in page() {
        let header = header(name);
        assert!(header.starts_with(&format!("`{name}`: ")), "{name} names itself first");
        for word in ["Needs: ", "Establishes: ", "Never: ", "Refuses: "] {
            assert!(header.contains(word), "the header of {name} has no `{word}`");
        }
        let features = format!("Constructs: removes {removes}; adds {adds}.");
        assert!(header.contains(&features), "the header of {name} does not say `{features}`");
    }
}

fn case(name: &str) -> Kernel {
    let text = std::fs::read_to_string(root().join("tests/cases/gpu").join(name)).expect("a case file");
    parse_gpu(&text).expect("a kernel")
}

/// ATL460: every construct that a phase does not allow is found, and reported by its own name.
#[test]
fn what_a_phase_does_not_have_is_reported() {
    let mut seen = Constructs::NONE;
    for entry in std::fs::read_dir(root().join("tests/cases/gpu")).expect("the folder of cases") {
        let path: PathBuf = entry.expect("a case").path();
        let text = std::fs::read_to_string(&path).expect("a case file");
        let Ok(k) = parse_gpu(&text) else { continue };
        if verify_gpu(&k).is_err() {
            continue;
        }
        let standing = Constructs::of(&k);
        assert_eq!(verify_constructs(&k, standing), Ok(()), "{}", path.display());
        for (one, word) in Constructs::ALL.iter().filter(|(one, _)| standing.has(*one)) {
            seen = seen.with(*one);
            let errors = verify_constructs(&k, standing.without(*one)).expect_err("a feature that is not allowed").0;
            let words: BTreeSet<String> = errors.iter().map(|d| format!("{} {}", d.code, d.message)).collect();
            let named = |w: &String| w.starts_with("ATL460 ") && w.ends_with(&format!("has no `{word}`"));
            assert!(words.iter().all(named), "{word}: {words:?}");
        }
    }
    let unseen = Constructs::ALL.iter().filter(|(one, _)| !seen.has(*one)).map(|(_, word)| *word);
    assert_eq!(unseen.collect::<Vec<_>>(), [""; 0], "no case has these");
}

#[test]
fn a_ticket_is_for_its_phase() {
    let hopper = case("gemm_sm90a.gpu");
    assert!(VerifiedKernel::<Lowered>::verify(hopper).is_err_and(|d| d.to_string().contains("ATL460")));
    let mut k = case("canonical.gpu");
    let allowed = Constructs::of(&k);
    assert!(!Placed::CONSTRUCTS.has(allowed));
    // A kernel that breaks another rule gets no ticket either.
    let first = k.insts.keys().next().expect("an instruction");
    k.insts[first] = Op::Yield(vec![]);
    assert!(VerifiedKernel::<Lowered>::verify(k).is_err());
}

/// Each choice reads the last one twice. As a tree, there would be 2^40 of them.
#[test]
fn a_chain_of_choices_is_no_tree() {
    let mut body = "%t0 = iota axis 0 : i32[64]\n%most = splat 29 : i32[64]\n".to_owned();
    for i in 0..40 {
        let next = i + 1;
        body += &format!("%b{i} = lt %t{i}, %most : bool[64]\n%t{next} = select %b{i}, %t{i}, %most : i32[64]\n");
    }
    let text = format!(
        "kernel @chain(%y: out i32[N])\ndims N: ?1\ngrid (%n) = (tiles(N, 64)) {{\n{body}store %y[%n : 64], %t40\n}}"
    );
    let tile = atlas_dsl::parse_kernel(&text).and_then(atlas_dsl::verify).expect("a kernel");
    let sm_80: Target = "sm_80".parse().expect("a target");
    let lowered = run(&tile, &Schedule::default(), sm_80, |_, _| {}).expect("a kernel that no GPU refuses");
    let choices = lowered.insts.values().filter(|op| matches!(op, Op::Select(..))).count();
    assert_eq!(choices, 40, "{}", *lowered);
}
