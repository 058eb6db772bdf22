//! `atlas list`: kernels, their dims, dtypes and tune spaces.

use super::print::say;
use super::show;
use anyhow::{Result, bail};
use atlas_dsl::KernelDef;
use atlas_dsl::config::Setting;
use atlas_dsl::def::{DTypeRef, ParamDef, TuneDef};
use atlas_dsl::ir::Access;
use serde_json::{Value, json};

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct ListArgs {
    /// List only kernels whose name contains this text. Case does not matter.
    filter: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Lists every kernel linked into this program.
pub(super) fn run(args: &ListArgs) -> Result<bool> {
    let mut kernels = atlas_dsl::registry();
    if let Some(filter) = args.filter.as_ref().map(|text| text.to_lowercase()) {
        let all = kernels.len();
        kernels.retain(|k| k.name.to_lowercase().contains(&filter));
        if kernels.is_empty() {
            bail!("none of the {all} kernels has `{filter}` in its name; `atlas list` lists all");
        }
    }
    if args.json {
        show::json(&Value::Array(kernels.iter().map(|k| describe(k)).collect()));
        return Ok(true);
    }
    let mut table = show::table(&["kernel", "dims", "dtypes", "tune", "what"]);
    for k in kernels {
        let dims: Vec<&str> = k.dims.iter().map(|d| d.name).collect();
        let tune = k.tune.iter().map(|t| {
            let values: Vec<String> = t.values.iter().map(Setting::to_string).collect();
            format!("{}=[{}]", t.name, values.join(", "))
        });
        let tune: Vec<String> = tune.collect();
        // Only the first paragraph. Its line breaks are those of the source.
        let lines = k.doc.trim().lines().map(str::trim).take_while(|line| !line.is_empty());
        let what = lines.collect::<Vec<_>>().join(" ");
        table.add_row([k.name.to_owned(), dims.join(" "), dtypes(k).join(" "), tune.join(" "), what]);
    }
    say!("{table}");
    Ok(true)
}

fn dtypes(k: &KernelDef) -> Vec<&'static str> {
    k.types.first().map(|t| t.allowed.iter().map(|d| d.name()).collect()).unwrap_or_default()
}

fn describe(k: &KernelDef) -> Value {
    let dtype = |d: &DTypeRef| match d {
        DTypeRef::Fixed(d) => d.name(),
        DTypeRef::Generic(i) => k.types[*i].name,
    };
    let param = |p: &ParamDef| match p {
        ParamDef::Tensor { name, dtype: d, dims, access } => json!({
            "name": name,
            "dtype": dtype(d),
            "dims": dims.iter().map(|&i| k.dims[i].name).collect::<Vec<_>>(),
            "access": if *access == Access::In { "in" } else { "out" },
        }),
        ParamDef::Scalar { name, dtype: d } => json!({ "name": name, "dtype": dtype(d) }),
    };
    json!({
        "name": k.name,
        "doc": k.doc.trim(),
        "file": k.file,
        "dtypes": dtypes(k),
        "dims": k.dims.iter().map(|d| json!({ "name": d.name, "whole": d.whole })).collect::<Vec<_>>(),
        "params": k.params.iter().map(param).collect::<Vec<_>>(),
        "tune": k.tune.iter().map(|t| (t.name.to_owned(), values(t))).collect::<serde_json::Map<_, _>>(),
        "configs": k.configs().len(),
    })
}

/// The values of a knob: numbers, and keywords as configs spell them.
fn values(knob: &TuneDef) -> Value {
    let value = |value: &Setting| match value {
        Setting::Number(n) => json!(n),
        word => json!(word.to_string()),
    };
    knob.values.iter().map(value).collect()
}
