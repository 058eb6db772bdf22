//! Matches over GPU IR operations list all of them, so that a new operation does not compile until every match handles
//! it.

use super::Finding;
use super::tokens::{Kind, Token, after_group, spells};
use super::tree::Tree;

/// Folders in which `Op` is an operation of GPU IR.
const PLACES: [&str; 4] = ["codegen/src/gpu/", "codegen/src/llvm/", "codegen/src/passes/", "gpu-interp/src/"];

/// In this folder `Op` is an operation of Tile IR, and `GpuOp` one of GPU IR.
const BOTH: &str = "codegen/src/passes/lower_tiles/";

/// Finds matches over GPU IR operations with a wildcard arm. To select a single operation, use `if let` or `let else`.
pub(crate) fn wildcards(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, _) in tree.rust().filter(|(path, _)| PLACES.iter().any(|p| path.starts_with(p))) {
        let name = if path.starts_with(BOTH) { "GpuOp" } else { "Op" };
        let all = tree.tokens(path);
        for i in (0..all.len()).filter(|&i| all[i].kind == Kind::Word && all[i].text == "match" && !all[i].in_test) {
            let arms = arms(all, i);
            let is_of_operations = arms.iter().any(|arm| is_operation(arm, name));
            for arm in arms.iter().filter(|arm| is_of_operations && is_wildcard(arm)) {
                out.push(Finding::new(path, arm[0].line, "`_` in a match over operations: list them, or use `if let`"));
            }
        }
    }
    out
}

/// The patterns of the match whose keyword is at `at`, without guards and bodies.
fn arms(all: &[Token], at: usize) -> Vec<&[Token]> {
    // The scrutinee contains no block, but may contain groups.
    let mut open = at + 1;
    while open < all.len() && all[open].text != "{" {
        open = if all[open].kind == Kind::Open { after_group(all, open) } else { open + 1 };
    }
    let end = after_group(all, open).saturating_sub(1);
    let (mut arms, mut from) = (Vec::new(), open + 1);
    while from < end {
        let mut to = from;
        while to < end && !spells(all, to, &["=", ">"]) {
            to = if all[to].kind == Kind::Open { after_group(all, to) } else { to + 1 };
        }
        arms.push(&all[from..to]);
        // The body of an arm ends with a comma, or with its block.
        let mut next = to + 2;
        let is_block = next < end && all[next].text == "{";
        if is_block {
            next = after_group(all, next);
        }
        while !is_block && next < end && all[next].text != "," {
            next = if all[next].kind == Kind::Open { after_group(all, next) } else { next + 1 };
        }
        from = next + usize::from(next < end && all[next].text == ",");
    }
    arms
}

/// True if a pattern begins with an operation.
fn is_operation(arm: &[Token], name: &str) -> bool {
    let begins = arm.iter().position(|t| t.text == "@").map_or(0, |at| at + 1);
    let pattern = &arm[begins..];
    let skipped = usize::from(spells(pattern, 0, &["("]) || spells(pattern, 0, &["|"]) || spells(pattern, 0, &["&"]));
    let pattern = &pattern[skipped..];
    spells(pattern, 0, &[name, ":", ":"])
        || spells(pattern, 0, &["gpu", ":", ":", "Op"])
        || spells(pattern, 0, &["gpu_ops", "!"])
}

fn is_wildcard(arm: &[Token]) -> bool {
    arm.first().is_some_and(|t| t.text == "_") && (arm.len() == 1 || arm[1].text == "if")
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, passes};
    use super::wildcards;

    #[test]
    fn a_wildcard_over_operations_is_found() {
        let listed = "fn f() { match op { Op::A(x) => g(x), Op::B { .. } => {} gpu_ops!(views) => match y { 1 => 2, _ => 3 } } }";
        let other = "fn f() { match x { Some(Op::A) => 1, _ => 2 }; match (a, b) { (1, _) => 1, _ => 2 } }";
        let tile = "fn f() { match op { Op::A => 1, _ => 2 } }";
        passes(wildcards, &[("codegen/src/gpu/a.rs", listed), ("gpu-interp/src/a.rs", other)]);
        passes(wildcards, &[("codegen/src/analysis/uses.rs", tile), ("codegen/src/passes/lower_tiles/a.rs", tile)]);
        fails(wildcards, &[("codegen/src/passes/a.rs", tile)], "codegen/src/passes/a.rs", "list them");
        let bound =
            "fn f() { match *op { op @ Op::A => h(op), Op::B(x) if x => {} _ if y => 1, gpu_ops!(views) => 2 } }";
        fails(wildcards, &[("codegen/src/llvm/a.rs", bound)], "codegen/src/llvm/a.rs", "list them");
        let lowered = "fn f() { match op { GpuOp::A(_) => 1, _ => 2 } }";
        fails(
            wildcards,
            &[("codegen/src/passes/lower_tiles/a.rs", lowered)],
            "codegen/src/passes/lower_tiles/a.rs",
            "list them",
        );
    }
}
