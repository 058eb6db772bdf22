//! Compares the list of passes in ARCHITECTURE.md with the one in the code: names, order, phases.

use super::Finding;
use super::tokens::{Token, spells};
use super::tree::Tree;

const DOCUMENT: &str = "ARCHITECTURE.md";
const LIST: &str = "codegen/src/passes/mod.rs";

/// The tables of passes in the code, each with the phase of a kernel after it.
const PHASES: [(&str, &str); 3] = [("PLACE", "Placed"), ("SCHEDULE", "Scheduled"), ("LOWER", "Lowered")];

/// The passes and phases in the document are those in the code, in the same order.
pub(crate) fn listed(tree: &Tree) -> Vec<Finding> {
    if tree.get(LIST).is_none() {
        return Vec::new();
    }
    let wanted = in_code(tree.tokens(LIST));
    let found = in_document(tree.get(DOCUMENT).unwrap_or(""));
    let differs = (0..wanted.len().max(found.len())).find(|&i| wanted.get(i) != found.get(i).map(|(_, name)| name));
    let Some(at) = differs else { return Vec::new() };
    let name = |name: Option<&String>| name.map_or("the end of the list".to_owned(), |n| format!("`{n}`"));
    let (has, wants) = (name(found.get(at).map(|(_, n)| n)), name(wanted.get(at)));
    let line = found.get(at).map_or(0, |(line, _)| *line);
    vec![Finding::new(DOCUMENT, line, format!("the list of passes has {has} where {LIST} has {wants}"))]
}

/// The names of the passes, with the phase after each table.
fn in_code(all: &[Token]) -> Vec<String> {
    let text = |token: &Token| token.text.trim_matches('"').to_owned();
    let after = |words: &[&str]| (0..all.len()).find(|&i| spells(all, i, words)).map(|i| i + words.len());
    let mut out: Vec<String> = Vec::new();
    // `const FIRST: &str = "..";`
    if let Some(at) = after(&["const", "FIRST"]) {
        out.extend(all[at..].iter().find(|t| t.text.starts_with('"')).map(text));
    }
    for (table, phase) in PHASES {
        let Some(at) = after(&["const", table]) else { continue };
        let end = (at..all.len()).find(|&i| spells(all, i, &[";"])).unwrap_or(all.len());
        let calls = (at..end).filter(|&i| spells(all, i, &["pass", "("]));
        out.extend(calls.filter_map(|i| all.get(i + 2)).map(text));
        out.push(phase.to_owned());
    }
    out
}

/// The same for the document: lines `-> name   what it does`, and lines that consist of the name of a phase.
fn in_document(text: &str) -> Vec<(usize, String)> {
    let begins = text.lines().position(|l| l.starts_with("Tile IR  ("));
    let block = text.lines().enumerate().skip(begins.unwrap_or(usize::MAX)).take_while(|(_, l)| !l.starts_with("```"));
    let name = |line: &str| {
        let phase = PHASES.iter().find(|(_, phase)| line.trim() == *phase).map(|(_, phase)| *phase);
        let pass = line.trim().strip_prefix("-> ").and_then(|rest| rest.split_whitespace().next());
        // The name of a pass has a verb and an object; `llvm` and `PTX` come after the passes.
        phase.or(pass.filter(|pass| pass.contains('_'))).map(str::to_owned)
    };
    block.filter_map(|(n, line)| Some((n + 1, name(line)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, passes};
    use super::{DOCUMENT, LIST, listed};

    const CODE: &str = "pub const FIRST: &str = \"lower_tiles\";\n\
        pub const PLACE: &[Pass] = &[Pass { adds: HINTS, ..pass(\"split_tiles\", split_tiles) }];\n\
        pub const SCHEDULE: &[Pass] = &[pass(\"expand_loops\", expand_loops), pass(\"start_loads\", start_loads)];\n\
        pub const LOWER: &[Pass] = &[];";
    const TEXT: &str = "```text\nTile IR  (choices)\n  -> lower_tiles   makes it\n  -> split_tiles   parts\n  Placed\n\
        \x20 -> expand_loops  more\n  -> start_loads   early\n  Scheduled\n  Lowered\n  -> llvm\n  -> PTX\n```\n  -> not_a_pass\n";

    #[test]
    fn passes_are_listed_as_they_run() {
        let with = |text: &str| passes(listed, &[(LIST, CODE), (DOCUMENT, text)]);
        with(TEXT);
        let without = |what: &str, by: &str, part: &str| {
            let text = TEXT.replace(what, by);
            fails(listed, &[(LIST, CODE), (DOCUMENT, &text)], DOCUMENT, part);
        };
        without(
            "  -> expand_loops  more\n",
            "",
            "has `start_loads` where codegen/src/passes/mod.rs has `expand_loops`",
        );
        without("-> expand_loops", "-> expand_rings", "has `expand_rings` where");
        without("  Scheduled\n", "", "has `Lowered` where codegen/src/passes/mod.rs has `Scheduled`");
        without("  Lowered\n", "  -> lower_more\n  Lowered\n", "has `lower_more` where");
        without("Tile IR  (", "Tile IR (", "the end of the list");
    }
}
