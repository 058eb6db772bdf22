//! `atlas explain-error`: what a diagnostic code means, an example, and what to do.

use super::print::say;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

/// `cargo xtask diagnostics` writes it from the tests.
const ENTRIES: &str = include_str!("../diagnostics.json");

/// How many similar codes to name if a code is not found.
const SIMILAR: usize = 4;

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct ExplainErrorArgs {
    /// The code, such as ATL226 or 226.
    code: String,
}

/// Prints the entry of a code.
pub(super) fn run(args: &ExplainErrorArgs) -> Result<bool> {
    let entries: Map<String, Value> = serde_json::from_str(ENTRIES).context("the list of codes is damaged")?;
    let typed = args.code.trim().to_ascii_uppercase();
    let digits = typed.strip_prefix("ATL").unwrap_or(&typed);
    let Some(number) = digits.parse::<u16>().ok().filter(|n| *n < 1000) else {
        bail!("`{}` is no code; a code is ATL and three digits, as in ATL226", args.code);
    };
    let code = format!("ATL{number:03}");
    let Some(entry) = entries.get(&code) else {
        bail!("there is no code {code}; similar ones are {}", similar(&code, &entries));
    };
    let part = |key: &str| entry[key].as_str().unwrap_or_default();
    say!("{code}: {}\n\n{}\n\nWhat to do: {}", part("title"), part("example"), part("mend"));
    Ok(true)
}

/// The codes with the most digits in common, then the closest numbers, each with its title.
fn similar(code: &str, entries: &Map<String, Value>) -> String {
    let number = |code: &str| code[3..].parse::<i32>().unwrap_or(0);
    let distance = |other: &String| {
        let differing = code.chars().zip(other.chars()).filter(|(a, b)| a != b).count();
        (differing, (number(code) - number(other)).abs())
    };
    let mut known: Vec<(&String, &Value)> = entries.iter().collect();
    known.sort_by_key(|(other, _)| distance(other));
    let named =
        known.iter().take(SIMILAR).map(|(code, entry)| format!("{code} ({})", entry["title"].as_str().unwrap_or("")));
    named.collect::<Vec<_>>().join(", ")
}
