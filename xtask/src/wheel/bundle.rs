//! The bundle inside a wheel: the kernels that the package's functions launch, compiled for some targets.

use crate::command;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the bundle in the package, beside the library.
pub(super) const NAME: &str = "kernels.atlas";

/// The launches that it has kernels for.
const SIZES: &str = "bindings/python/sizes.toml";

/// Configs of each class, beside those that records chose.
const VARIANTS: &str = "2";

/// What a bundle is made of.
pub(super) struct BundleParts<'a> {
    /// The program that compiles.
    pub(super) atlas: PathBuf,
    /// As `--arch` of `atlas bundle` takes it.
    pub(super) archs: &'a str,
    /// All kernels if there is none.
    pub(super) kernels: &'a [&'a str],
}

impl BundleParts<'_> {
    /// Makes it, and checks what is in it.
    pub(super) fn make(&self, root: &Path, out: &Path) -> Result<()> {
        let sizes = root.join(SIZES);
        let mut make = Command::new(&self.atlas);
        make.arg("bundle").args(self.kernels).arg("--sizes").arg(&sizes).args([
            "--arch",
            self.archs,
            "--variants",
            VARIANTS,
        ]);
        // The file has launches whose kernels serve all sizes. The tests of the kernels run them in the simulator. What is too large for a
        // target is left to its other kernels.
        make.args(["--only-these", "--no-evidence", "--skip-refused", "--out"]).arg(out);
        command::run(&mut make)?;
        let text = std::fs::read_to_string(&sizes).with_context(|| format!("cannot read {}", sizes.display()))?;
        let listed = command::output(Command::new(&self.atlas).args(["bundle", "--json", "--show"]).arg(out))?;
        let listed: serde_json::Value =
            serde_json::from_str(&listed).context("`atlas bundle --show` prints no JSON")?;
        let found = compiled(&listed);
        let mut wanted = kernels(&text)?;
        wanted.retain(|k| self.kernels.is_empty() || self.kernels.contains(&k.as_str()));
        let has = |kernel: &String, target: &str| found.contains(&(kernel.clone(), target.to_owned()));
        let targets: Vec<&str> = self.archs.split(',').map(|arch| arch.split(':').next().unwrap_or(arch)).collect();
        let missing: Vec<&String> = wanted.iter().filter(|k| !targets.iter().any(|t| has(k, t))).collect();
        if !missing.is_empty() {
            bail!("{} has nothing of {missing:?}, which functions of the package launch", out.display());
        }
        for target in targets {
            let refused: Vec<&String> = wanted.iter().filter(|k| !has(k, target)).collect();
            if !refused.is_empty() {
                println!("{target} has no room for {refused:?}, and takes other kernels in their place");
            }
        }
        Ok(())
    }
}

/// The kernels of a file of launches.
fn kernels(sizes: &str) -> Result<BTreeSet<String>> {
    let table: toml::Table = sizes.parse().with_context(|| format!("{SIZES} is no TOML"))?;
    let launches = table.get("launch").and_then(toml::Value::as_array);
    let names = launches.into_iter().flatten().filter_map(|launch| launch.get("kernel")?.as_str());
    Ok(names.map(str::to_owned).collect())
}

/// The kernels that a bundle has, each with a target, as `atlas bundle --show --json` lists it.
fn compiled(listed: &serde_json::Value) -> BTreeSet<(String, String)> {
    let array = |value: &serde_json::Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut found = BTreeSet::new();
    for (name, kernel) in listed["kernels"].as_object().into_iter().flatten() {
        for variant in array(kernel, "classes").iter().flat_map(|class| array(class, "variants")) {
            found.extend(variant["target"].as_str().map(|target| (name.clone(), target.to_owned())));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{compiled, kernels};
    use serde_json::json;

    #[test]
    fn a_bundle_is_compared_with_the_launches_that_it_is_for() {
        let sizes = "[[launch]]\nkernel = \"softmax\"\n[[launch]]\nkernel = \"copy\"\n[[launch]]\nkernel = \"copy\"\n";
        assert_eq!(kernels(sizes).unwrap().into_iter().collect::<Vec<_>>(), ["copy", "softmax"]);
        assert!(kernels("launch").is_err());
        let classes = json!([{ "variants": [{ "target": "sm_80" }, { "target": "sm_90" }] }]);
        let found = compiled(&json!({ "kernels": { "softmax": { "classes": classes }, "copy": { "classes": [] } } }));
        let of = |target: &str| ("softmax".to_owned(), target.to_owned());
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [of("sm_80"), of("sm_90")]);
    }
}
