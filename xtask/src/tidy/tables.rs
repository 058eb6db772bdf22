//! What has a row in one table and must be named elsewhere too: ops that ship, and targets.

use super::Finding;
use super::tokens::{Kind, spells};
use super::tree::Tree;

const OPS: &str = "ops/src/op.rs";
const FACADE: &str = "src/ops/";
const TARGETS: &str = "codegen/src/arch/target.rs";
/// Assembles what ships, for every target whose code later GPUs run too.
const VALIDATE: &str = "xtask/src/validate/mod.rs";
/// Tells users which targets there are.
const INSTALL: &str = "docs/src/install.md";

/// Every folder of an op is in the table of ops, and the façade re-exports something of it.
pub(crate) fn ops(tree: &Tree) -> Vec<Finding> {
    let table = tree.tokens(OPS);
    let facade: Vec<_> =
        tree.rust().filter(|(path, _)| path.starts_with(FACADE)).flat_map(|(path, _)| tree.tokens(path)).collect();
    let mut out = Vec::new();
    for (path, _) in tree.rust() {
        let Some(op) = path.strip_prefix("ops/src/").and_then(|p| p.strip_suffix("/cases.rs")) else { continue };
        if !(0..table.len()).any(|i| spells(table, i, &[op, ":", ":", "cases"])) {
            out.push(Finding::new(path, 0, format!("{OPS} has no row of `{op}`")));
        }
        if !facade.iter().any(|t| t.kind == Kind::Word && t.text == op) {
            out.push(Finding::new(path, 0, format!("{FACADE} re-exports nothing of `{op}`")));
        }
    }
    out
}

/// Every target is in the documentation, and kernels are assembled for all that later GPUs run too.
pub(crate) fn targets(tree: &Tree) -> Vec<Finding> {
    let table = tree.tokens(TARGETS);
    let mut out = Vec::new();
    for i in (0..table.len()).filter(|&i| spells(table, i, &["row", "("]) && !table[i].in_test) {
        let (Some(sm), Some(specific)) = (table.get(i + 2), table.get(i + 4)) else { continue };
        if sm.kind != Kind::Literal {
            continue;
        }
        let is_specific = specific.text == "true";
        let name = format!("sm_{}{}", sm.text, if is_specific { "a" } else { "" });
        let mut wants = |file: &str, is_there: bool| {
            if !is_there {
                out.push(Finding::new(TARGETS, sm.line, format!("{file} does not name `{name}`")));
            }
        };
        let words = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|w| w == name);
        wants(INSTALL, words(tree.get(INSTALL).unwrap_or("")));
        wants(VALIDATE, is_specific || tree.get(VALIDATE).unwrap_or("").contains(&format!("\"{name}\"")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, passes};
    use super::{ops, targets};

    #[test]
    fn an_op_is_in_the_table_and_in_the_facade() {
        let cases = ("ops/src/scan/cases.rs", "pub(crate) const OP: Op = Op::of(..);");
        let table = ("ops/src/op.rs", "pub static OPS: [Op; 1] = [scan::cases::OP];");
        let facade = ("src/ops/mod.rs", "pub use atlas_ops::scan::scan;");
        passes(ops, &[cases, table, facade]);
        fails(ops, &[cases, facade], "ops/src/scan/cases.rs", "no row of `scan`");
        fails(ops, &[cases, table, ("src/ops/mod.rs", "// scan")], "ops/src/scan/cases.rs", "re-exports nothing");
    }

    #[test]
    fn a_target_is_documented_and_assembled_for() {
        let rows = "const fn row(sm: u32) {}\nconst ROWS: [Row; 2] = [\nrow(80, false, (7, 1), A),\nrow(90, true, (8, 0), B),\n];";
        let table = ("codegen/src/arch/target.rs", rows);
        let install = ("docs/src/install.md", "`--arch` accepts sm_80, and sm_90a.");
        let validate = ("xtask/src/validate/mod.rs", "const ARCHES: [&str; 1] = [\"sm_80\"];");
        passes(targets, &[table, install, validate]);
        let unsaid = ("docs/src/install.md", "sm_80 and sm_90");
        fails(targets, &[table, unsaid, validate], "codegen/src/arch/target.rs", "install.md does not name `sm_90a`");
        fails(targets, &[table, install], "codegen/src/arch/target.rs", "validate/mod.rs does not name `sm_80`");
    }
}
