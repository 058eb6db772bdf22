//! Invariants of the code: where unsafe code is allowed, who does I/O, who launches, what must have a fixed order.

use super::Finding;
use super::tokens::{Kind, Token, spells};
use super::tree::Tree;

/// The folders that may have unsafe code.
const MAY_BE_UNSAFE: [&str; 3] = ["runtime/", "codegen/src/llvm/", "bindings/"];

/// Packages without I/O or access to the environment.
const PURE: [&str; 5] = ["dsl/vocabulary/src/", "dsl/src/", "codegen/src/", "tile-interp/src/", "ops/src/"];

/// The only file that launches kernels.
const LAUNCHER: &str = "runtime/src/launch/queue.rs";

/// The file that queues what sets the conditions of graphs.
const SETTER: &str = "runtime/src/gpu/graph/conditional.rs";

/// Calls a function for each token outside tests.
fn each(tree: &Tree, chosen: impl Fn(&str) -> bool, mut found: impl FnMut(&str, &[Token], usize)) {
    for (path, _) in tree.rust().filter(|(path, _)| chosen(path)) {
        let all = tree.tokens(path);
        (0..all.len()).filter(|&i| !all[i].in_test).for_each(|i| found(path, all, i));
    }
}

/// True for the keyword `unsafe` in code, except in a function type.
fn is_unsafe(all: &[Token], i: usize) -> bool {
    let pointer = |at: usize| spells(all, at, &["fn", "("]);
    let is_type = pointer(i + 1) || (spells(all, i + 1, &["extern"]) && (pointer(i + 2) || pointer(i + 3)));
    all[i].kind == Kind::Word && all[i].text == "unsafe" && !is_type
}

/// Unsafe code is only in the allowed folders. This includes tests.
pub(crate) fn placement_of_unsafe(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, _) in tree.rust().filter(|(path, _)| !MAY_BE_UNSAFE.iter().any(|p| path.starts_with(p))) {
        let all = tree.tokens(path);
        for i in (0..all.len()).filter(|&i| is_unsafe(all, i)) {
            let message = format!("unsafe code outside {}", MAY_BE_UNSAFE.join(" and "));
            out.push(Finding::new(path, all[i].line, message));
        }
    }
    out
}

/// Every `unsafe` has a reason above it.
pub(crate) fn reasons_for_unsafe(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, text) in tree.rust() {
        let lines: Vec<&str> = text.lines().collect();
        let all = tree.tokens(path);
        for i in (0..all.len()).filter(|&i| is_unsafe(all, i)) {
            if !has_reason(&lines, all[i].line - 1) {
                out.push(Finding::new(path, all[i].line, "no `SAFETY:` comment above this `unsafe`"));
            }
        }
    }
    out
}

/// True if a SAFETY comment (or the `# Safety` section of a doc comment) is on the line `at`, or above the statement
/// that contains it.
fn has_reason(lines: &[&str], at: usize) -> bool {
    let gives = |line: &str| line.contains("SAFETY:") || line.contains("# Safety");
    if lines.get(at).is_some_and(|l| gives(l)) {
        return true;
    }
    for line in lines[..at.min(lines.len())].iter().rev().map(|l| l.trim()) {
        if line.starts_with("//") {
            if gives(line) {
                return true;
            }
        } else if line.is_empty() || (!line.starts_with("#[") && line.ends_with([';', '{', '}'])) {
            return false;
        }
    }
    false
}

/// The language, the passes, the oracle and the ops do not read the environment and do no I/O.
pub(crate) fn purity(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    let chosen = |path: &str| PURE.iter().any(|p| path.starts_with(p));
    each(tree, chosen, |path, all, i| {
        let module = |name: &str| spells(all, i, &["std", ":", ":", name]);
        let call = |name: &str, what: &str| spells(all, i, &[name, ":", ":", what]);
        let fault = if module("fs") || module("net") || call("fs", "read") || call("fs", "write") {
            "does I/O"
        } else if (module("process") && !spells(all, i, &["std", ":", ":", "process", ":", ":", "id"]))
            || call("process", "exit")
        {
            "starts or ends processes"
        } else if ["var", "var_os", "vars", "vars_os", "args", "current_dir"].iter().any(|w| call("env", w)) {
            "reads the environment"
        } else if ["println", "print", "eprintln", "eprint", "dbg"].iter().any(|w| spells(all, i, &[w, "!"])) {
            "prints"
        } else {
            return;
        };
        out.push(Finding::new(path, all[i].line, format!("{fault}; this package only computes")));
    });
    out
}

/// Only one file calls the driver's launch function. The table of the driver's functions may name it.
pub(crate) fn launches(tree: &Tree) -> Vec<Finding> {
    const TABLE: &str = "runtime/src/gpu/driver.rs";
    let mut out = Vec::new();
    each(
        tree,
        |path| path != LAUNCHER && path != SETTER && !path.starts_with("xtask/"),
        |path, all, i| {
            let name = all[i].text.trim_matches('"');
            let listed = path == TABLE && all[i].kind == Kind::Literal;
            let named = all[i].kind != Kind::Doc && name.starts_with("cuLaunch") && !listed;
            let called =
                spells(all, i, &["api", ".", "launch", ")"]) || ["launch_kernel", "launch_builder"].contains(&name);
            if named || called {
                out.push(Finding::new(path, all[i].line, format!("`{name}`: only {LAUNCHER} launches")));
            }
        },
    );
    out
}

/// Machine terms occur in Tile IR only where a schedule is passed on.
pub(crate) fn machines_in_tile_ir(tree: &Tree) -> Vec<Finding> {
    const CARRIES: [&str; 2] = ["dsl/src/config.rs", "dsl/vocabulary/src/schedule.rs"];
    const WORDS: [&str; 11] =
        ["warp", "warps", "thread", "threads", "lane", "lanes", "cta", "gpu", "ptx", "cuda", "occupancy"];
    let mut out = Vec::new();
    let is_dsl = |path: &str| path.starts_with("dsl/src/") || path.starts_with("dsl/vocabulary/");
    let chosen = |path: &str| is_dsl(path) && !CARRIES.contains(&path);
    each(tree, chosen, |path, all, i| {
        let name = all[i].text.to_lowercase();
        let scoped = spells(all, i, &["thread", ":", ":"]) || spells(all, i, &["thread", "_local"]);
        if all[i].kind == Kind::Word && !scoped && name.split('_').any(|part| WORDS.contains(&part)) {
            let carries = CARRIES.join(" and ");
            let message = format!("`{}`: Tile IR knows no machine; {carries} carry a schedule", all[i].text);
            out.push(Finding::new(path, all[i].line, message));
        }
    });
    out
}

/// Intrinsics are named only in the LLVM emitter.
pub(crate) fn intrinsics(tree: &Tree) -> Vec<Finding> {
    const LLVM: &str = "codegen/src/llvm/";
    let mut out = Vec::new();
    let chosen = |path: &str| path.contains("/src/") && !path.starts_with(LLVM) && !path.starts_with("xtask/");
    each(tree, chosen, |path, all, i| {
        if all[i].kind == Kind::Literal && all[i].text.starts_with("\"llvm.") {
            out.push(Finding::new(path, all[i].line, format!("{}: only {LLVM} names intrinsics", all[i].text)));
        }
    });
    out
}

/// The comment that marks a hash map which is only used for lookups.
const LOOKED_UP: &str = "never iterated";

/// Code that prints IR or emits code does not iterate in an order that changes between runs.
pub(crate) fn ordered_output(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    let emits = |path: &str| {
        let stem = path.rsplit('/').next().unwrap_or(path);
        path.starts_with("codegen/src/llvm/")
            || path.starts_with("codegen/src/passes/")
            || ["print", "ptx"].iter().any(|p| stem.starts_with(p))
                && (path.starts_with("dsl/") || path.starts_with("codegen/"))
    };
    let chosen = |path: &str| emits(path) && !tree.get(path).is_some_and(|text| text.contains(LOOKED_UP));
    each(tree, chosen, |path, all, i| {
        if all[i].kind == Kind::Word && ["HashMap", "HashSet"].contains(&all[i].text.as_str()) {
            let message =
                format!("`{}` has no fixed order: use a BTree map, or say `{LOOKED_UP}` above it", all[i].text);
            out.push(Finding::new(path, all[i].line, message));
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::super::plant::{check, fails, passes};
    use super::{
        intrinsics, launches, machines_in_tile_ir, ordered_output, placement_of_unsafe, purity, reasons_for_unsafe,
    };

    const BLOCK: &str = "fn f() {\n    unsafe { g() }\n}";

    #[test]
    fn unsafe_is_only_where_it_must_be() {
        passes(placement_of_unsafe, &[("runtime/src/a.rs", BLOCK), ("codegen/src/llvm/a.rs", BLOCK)]);
        passes(
            placement_of_unsafe,
            &[("dsl/src/a.rs", "// unsafe\n#![forbid(unsafe_code)]\nconst A: &str = \"unsafe\";")],
        );
        for path in ["dsl/src/a.rs", "codegen/src/a.rs", "tests/a.rs", "src/a.rs"] {
            fails(placement_of_unsafe, &[(path, BLOCK)], path, "unsafe");
        }
        fails(
            placement_of_unsafe,
            &[("dsl/src/a.rs", "#[cfg(test)]\nmod t { unsafe impl X for Y {} }")],
            "dsl/src/a.rs",
            "unsafe",
        );
    }

    #[test]
    fn unsafe_has_its_reason() {
        for good in [
            "fn f() {\n    // SAFETY: it is.\n    unsafe { g() }\n}",
            "fn f() {\n    // SAFETY: it is,\n    // for sure.\n    let x =\n        unsafe { g() };\n}",
            "/// Does.\n///\n/// # Safety\n/// Be careful.\n#[inline]\npub unsafe fn f() {}",
            "struct S { f: unsafe extern \"C\" fn(i32), g: unsafe fn() }",
        ] {
            passes(reasons_for_unsafe, &[("runtime/src/a.rs", good)]);
        }
        for bad in
            [BLOCK, "// SAFETY: another.\nfn f() {}\nfn g() {\n    unsafe { h() }\n}", "/// Does.\nunsafe fn f() {}"]
        {
            fails(reasons_for_unsafe, &[("runtime/src/a.rs", bad)], "runtime/src/a.rs", "SAFETY");
        }
    }

    #[test]
    fn pure_packages_only_compute() {
        passes(
            purity,
            &[("codegen/src/a.rs", "fn f() { write!(out, \"\"); }\n#[cfg(test)]\nmod t { fn g() { println!(); } }")],
        );
        passes(purity, &[("cli/src/a.rs", "fn f() { println!(); std::fs::read(p); }")]);
        for bad in [
            "use std::fs;",
            "let x = std::env::var(\"X\");",
            "println!(\"x\");",
            "env::var_os(\"X\");",
            "std::process::exit(1);",
            "std::process::Command::new(a);",
        ] {
            let found = check(purity, &[("codegen/src/passes/a.rs", bad)]);
            assert!(!found.is_empty(), "{bad}");
        }
    }

    #[test]
    fn one_file_launches() {
        passes(launches, &[("runtime/src/launch/queue.rs", "fn f() { sys::cuLaunchKernel(x); }")]);
        passes(launches, &[("runtime/src/a.rs", "/// See cuLaunchKernel.\nfn f() {}")]);
        fails(
            launches,
            &[("runtime/src/a.rs", "fn f() { sys::cuLaunchKernelEx(x); }")],
            "runtime/src/a.rs",
            "queue.rs",
        );
    }

    #[test]
    fn tile_ir_knows_no_machine() {
        passes(machines_in_tile_ir, &[("dsl/src/config.rs", "struct Schedule { warps: u32 }")]);
        passes(machines_in_tile_ir, &[("dsl/src/a.rs", "//! No threads.\nuse std::thread::sleep;\nlet gather = 1;")]);
        for bad in ["let warps = 4;", "fn threads_of() {}", "struct A { lane: u32 }"] {
            fails(machines_in_tile_ir, &[("dsl/src/a.rs", bad)], "dsl/src/a.rs", "no machine");
        }
    }

    #[test]
    fn intrinsics_are_named_where_llvm_is() {
        let call = "fn f() { call(\"llvm.nvvm.barrier0\") }";
        passes(intrinsics, &[("codegen/src/llvm/a.rs", call)]);
        fails(intrinsics, &[("codegen/src/passes/a.rs", call)], "codegen/src/passes/a.rs", "barrier0");
    }

    #[test]
    fn output_has_an_order() {
        passes(ordered_output, &[("runtime/src/a.rs", "use std::collections::HashMap;")]);
        passes(
            ordered_output,
            &[("codegen/src/llvm/a.rs", "/// Only looked up, never iterated.\nmade: HashMap<u8, u8>,")],
        );
        for path in
            ["codegen/src/llvm/emit.rs", "codegen/src/passes/a.rs", "dsl/src/print.rs", "codegen/src/gpu/print.rs"]
        {
            fails(ordered_output, &[(path, "use std::collections::HashMap;")], path, "HashMap");
        }
    }
}
