//! The façade lists the public items one by one: it re-exports items, and no whole package.

use super::Finding;
use super::tokens::{Kind, spells};
use super::tree::Tree;

/// The folder with the façade's sources.
const FACADE: &str = "src/";

/// There is no `pub use atlas_runtime;`, with or without another name, or inside braces.
pub(crate) fn items(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, _) in tree.rust().filter(|(path, _)| path.starts_with(FACADE)) {
        let all = tree.tokens(path);
        for i in (0..all.len()).filter(|&i| spells(all, i, &["pub", "use"])) {
            let end = (i..all.len()).find(|&at| all[at].text == ";").unwrap_or(all.len());
            let first = all[i + 2..end].iter().position(|t| t.kind == Kind::Word).map_or(end, |at| i + 2 + at);
            let is_path = spells(all, first + 1, &[":", ":"]);
            let whole = (first..end).find(|&at| {
                // The package itself, or `self` of one: `pub use atlas_runtime::{self as runtime, Tensor}`.
                (at == first && !is_path) || all[at].text == "self"
            });
            if let Some(at) = whole {
                let message = format!("`{}`: the façade re-exports items, and no whole package", all[at].text);
                out.push(Finding::new(path, all[at].line, message));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, passes};
    use super::items;

    #[test]
    fn items_are_listed() {
        let good = "pub use atlas_runtime::{Device, Tensor};\npub use crate::kernel::Config;\nuse atlas_dsl as dsl;";
        passes(items, &[("src/lib.rs", good), ("runtime/src/lib.rs", "pub use atlas_sim as simulator;")]);
    }

    #[test]
    fn a_whole_package_is_a_fault() {
        for bad in ["pub use atlas_dsl as dsl;", "pub use half;", "pub use atlas_ops::{self as ops, Op};"] {
            fails(items, &[("src/lib.rs", bad)], "src/lib.rs", "no whole package");
        }
    }
}
