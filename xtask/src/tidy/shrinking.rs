//! Lists in the map that may only shrink: folders that do not follow a rule yet, each with its number of violations.

use super::Finding;
use super::tree::Tree;
use std::collections::BTreeMap;

const MAP: &str = "ARCHITECTURE.md";

/// A folder that does not follow a rule.
pub(crate) struct Excess {
    pub(crate) folder: String,
    /// The number to record in the list.
    pub(crate) count: usize,
    /// The names that violate the rule.
    pub(crate) names: Vec<String>,
}

/// Folders whose number differs from the list in the block `fence`, and listed folders that follow the rule.
pub(crate) fn compare(tree: &Tree, fence: &str, fault: &str, found: Vec<Excess>) -> Vec<Finding> {
    let mut listed = list(tree.get(MAP).unwrap_or(""), fence);
    let mut out = Vec::new();
    for Excess { folder, count, names } in found {
        let known = listed.remove(folder.as_str()).unwrap_or(0);
        if count != known {
            let message = format!("{count} {fault}, where the map lists {known}: {}", names.join(", "));
            out.push(Finding::new(&folder, 0, message));
        }
    }
    let gone = listed
        .keys()
        .map(|folder| Finding::new(MAP, 0, format!("lists {folder} under `{fence}`, which has none: the line goes")));
    out.extend(gone);
    out
}

/// The lines `folder number` of a block.
fn list<'m>(map: &'m str, fence: &str) -> BTreeMap<&'m str, usize> {
    let start = format!("```{fence}");
    let inside = map.lines().skip_while(|l| l.trim() != start).skip(1).take_while(|l| l.trim() != "```");
    inside.filter_map(|l| l.split_once(' ')).filter_map(|(f, n)| Some((f, n.trim().parse().ok()?))).collect()
}
