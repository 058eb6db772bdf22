//! Which package may depend on which: compares the `arrows` and `owners` blocks of ARCHITECTURE.md with cargo metadata.

use super::Finding;
use super::tree::Tree;
use crate::command;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const MAP: &str = "ARCHITECTURE.md";

/// The workspaces whose packages are published.
const WORKSPACES: [&str; 2] = ["Cargo.toml", "bindings/candle/Cargo.toml"];

/// Reads the packages from cargo metadata and checks them.
pub(crate) fn run(root: &Path, tree: &Tree) -> Result<Vec<Finding>> {
    let mut all = Vec::new();
    for manifest in WORKSPACES {
        let mut metadata = command::cargo(root);
        metadata.args(["metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path"]);
        let text = command::output(metadata.arg(root.join(manifest)))?;
        all.push(serde_json::from_str(&text).context("cargo metadata printed no JSON")?);
    }
    Ok(check(&together(all), tree.get(MAP).unwrap_or("")))
}

/// The packages of several workspaces as those of one.
fn together(all: Vec<Value>) -> Value {
    let packages = |mut one: Value| match one["packages"].take() {
        Value::Array(packages) => packages,
        _ => Vec::new(),
    };
    json!({ "packages": all.into_iter().flat_map(packages).collect::<Vec<_>>() })
}

/// The dependencies of every package, without those of its tests, as (package, dependency).
fn edges(metadata: &Value) -> Vec<(&str, &str)> {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let edges = packages.iter().flat_map(|package| {
        let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
        let used = dependencies.iter().filter(|d| d["kind"] != "dev");
        used.filter_map(|d| Some((package["name"].as_str()?, d["name"].as_str()?)))
    });
    edges.collect()
}

fn check(metadata: &Value, map: &str) -> Vec<Finding> {
    let Some(arrows) = block(map, "arrows") else {
        return vec![Finding::new(MAP, 0, "has no block of arrows")];
    };
    let owners = block(map, "owners").unwrap_or_default();
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let names: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut out = Vec::new();
    for name in &names {
        if !arrows.contains_key(name) {
            out.push(Finding::new(MAP, 0, format!("has no arrows for the package {name}")));
        }
    }
    for name in arrows.keys().chain(arrows.values().flatten()).filter(|n| !names.contains(*n)) {
        out.push(Finding::new(MAP, 0, format!("draws an arrow to or from {name}, which is no package")));
    }
    for (from, to) in edges(metadata) {
        let drawn = arrows.get(from).is_none_or(|list| list.contains(&to));
        if names.contains(to) && !drawn {
            out.push(Finding::new(MAP, 0, format!("{from} depends on {to}, an arrow that the map does not draw")));
        }
        if let Some(list) = owners.get(to).filter(|list| !list.contains(&from)) {
            out.push(Finding::new(MAP, 0, format!("{from} depends on {to}, which only {} may know", list.join(", "))));
        }
    }
    out
}

/// The lines `name -> name name` of a fenced block.
fn block<'a>(map: &'a str, fence: &str) -> Option<BTreeMap<&'a str, Vec<&'a str>>> {
    let mut lines = map.lines();
    lines.find(|l| l.trim() == format!("```{fence}"))?;
    let inside = lines.take_while(|l| !l.trim().starts_with("```"));
    let arrows = inside.filter_map(|l| l.split_once("->"));
    Some(arrows.map(|(from, to)| (from.trim(), to.split_whitespace().collect())).collect())
}

#[cfg(test)]
mod tests {
    use super::{check, together};
    use serde_json::{Value, json};

    const MAP: &str = "text\n```arrows\natlas-gpu-dsl ->\natlas-gpu-codegen -> atlas-gpu-dsl\n```\n```owners\ninkwell -> atlas-gpu-codegen\n```\n";

    fn metadata(dsl: Value, codegen: Value) -> Value {
        json!({ "packages": [
            { "name": "atlas-gpu-dsl", "dependencies": dsl },
            { "name": "atlas-gpu-codegen", "dependencies": codegen },
        ] })
    }

    fn messages(metadata: &Value, map: &str) -> String {
        check(metadata, map).iter().map(|f| format!("{f}\n")).collect()
    }

    #[test]
    fn drawn_arrows_pass() {
        let dev = json!([{ "name": "atlas-gpu-codegen", "kind": "dev" }]);
        let codegen = json!([{ "name": "atlas-gpu-dsl", "kind": null }, { "name": "inkwell", "kind": null }]);
        assert_eq!(messages(&metadata(dev, codegen), MAP), "");
    }

    #[test]
    fn other_arrows_fail() {
        let up = json!([{ "name": "atlas-gpu-codegen", "kind": null }]);
        assert!(messages(&metadata(up, json!([])), MAP).contains("atlas-gpu-dsl depends on atlas-gpu-codegen"));
        let build = json!([{ "name": "atlas-gpu-codegen", "kind": "build" }]);
        assert!(messages(&metadata(build, json!([])), MAP).contains("atlas-gpu-dsl depends on atlas-gpu-codegen"));
        let llvm = json!([{ "name": "inkwell", "kind": null }]);
        assert!(messages(&metadata(llvm, json!([])), MAP).contains("only atlas-gpu-codegen may know"));
    }

    #[test]
    fn packages_of_another_workspace_count() {
        let of = |name: &str, to: &str| json!({ "packages": [{ "name": name, "dependencies": [{ "name": to, "kind": null }] }] });
        let both = |to| together(vec![metadata(json!([]), json!([])), of("outside", to)]);
        assert!(messages(&both("atlas-gpu-dsl"), MAP).contains("no arrows for the package outside"));
        let drawn = MAP.replace("\n```\n```owners", "\noutside -> atlas-gpu-dsl\n```\n```owners");
        assert_eq!(messages(&both("atlas-gpu-dsl"), &drawn), "");
        assert!(messages(&both("atlas-gpu-codegen"), &drawn).contains("outside depends on atlas-gpu-codegen"));
        assert!(messages(&both("inkwell"), &drawn).contains("only atlas-gpu-codegen may know"));
    }

    #[test]
    fn the_map_and_the_packages_agree() {
        let none = metadata(json!([]), json!([]));
        assert!(messages(&none, "").contains("no block of arrows"));
        assert!(
            messages(&none, "```arrows\natlas-gpu-dsl ->\n```").contains("no arrows for the package atlas-gpu-codegen")
        );
        assert!(
            messages(&none, &MAP.replace("atlas-gpu-dsl ->", "atlas-gpu-dsl -> atlas-gpu-sim"))
                .contains("atlas-gpu-sim, which is no package")
        );
    }
}
