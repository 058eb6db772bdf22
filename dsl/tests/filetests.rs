//! Runs every `.tile` file of `tests/cases/tile`: it parses, verifies and prints, or has the errors that its marks name.
//!
//! `// error[ATL204]: some words` on a line expects an error of that code on that line, with these words in its message;
//! several may follow one another. An error without a known line is expected on the line of `kernel`. A file without
//! expectations must verify and print to a text that reads back as the same kernel.

use atlas_dsl::{Diagnostics, parse_kernel, same_kernel, verify};
use std::path::{Path, PathBuf};

#[derive(Debug)]
struct Expectation {
    line: u32,
    code: String,
    words: String,
}

fn expectations(source: &str) -> Vec<Expectation> {
    let mut all = Vec::new();
    for (line, text) in (1..).zip(source.lines()) {
        for part in text.split("// error[").skip(1) {
            let (code, words) = part.split_once("]:").unwrap_or((part, ""));
            all.push(Expectation { line, code: code.to_owned(), words: words.trim().to_owned() });
        }
    }
    all
}

/// What is wrong with one file; `None` if it behaves as its marks say.
fn check(source: &str) -> Result<(), String> {
    let outcome = parse_kernel(source).and_then(verify);
    let mut wanted = expectations(source);
    let found = match outcome {
        Ok(kernel) if wanted.is_empty() => {
            let text = kernel.to_string();
            let again =
                parse_kernel(&text).map_err(|e| format!("its canonical text does not read back:\n{e}\n{text}"))?;
            if !same_kernel(&kernel, &again) {
                return Err(format!("its canonical text reads back as another kernel:\n{text}\n{again}"));
            }
            return Ok(());
        }
        Ok(_) => Diagnostics::default(),
        Err(errors) => errors,
    };
    let signature = (1..).zip(source.lines()).find(|(_, l)| l.starts_with("kernel")).map_or(1, |(n, _)| n);
    let mut problems = Vec::new();
    for d in found.0 {
        let line = if d.loc.line == 0 { signature } else { d.loc.line };
        let matching = |e: &Expectation| e.line == line && e.code == d.code.to_string() && d.message.contains(&e.words);
        match wanted.iter().position(matching) {
            Some(i) => drop(wanted.remove(i)),
            None => problems.push(format!("unexpected on line {line}: {d}")),
        }
    }
    problems.extend(wanted.iter().map(|e| format!("missing on line {}: error[{}]: {}", e.line, e.code, e.words)));
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/tile");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "tile"));
    files.sort();
    files
}

#[test]
fn every_file_does_what_it_says() {
    let files = files();
    assert!(files.len() >= 13, "only {} files found", files.len());
    let mut problems = String::new();
    for path in files {
        let source = std::fs::read_to_string(&path).unwrap();
        if let Err(e) = check(&source) {
            problems.push_str(&format!("{}:\n{e}\n", path.display()));
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

const GOOD: &str = "kernel @copy(%x: f32[N], %y: out f32[N])
dims N: ?16
grid (%n) = (tiles(N, 16)) {
  %t = load %x[%n : 16] : f32[16]
  store %y[%n : 16], %t
}
";

#[test]
fn the_runner_accepts_what_is_right() {
    check(GOOD).unwrap();
    let wrong = GOOD.replace("store %y[%n : 16], %t", "store %x[%n : 16], %t // error[ATL210]: `x` is stored to");
    let wrong = wrong.replace("%y: out f32[N])", "%y: out f32[N]) // error[ATL212]: never stored");
    check(&wrong).unwrap();
}

#[test]
fn the_runner_rejects_wrong_expectations() {
    // An error is expected, but there is none.
    let missing = GOOD.replace(", %t\n", ", %t // error[ATL210]: `y`\n");
    assert!(check(&missing).unwrap_err().contains("missing on line 5"), "{missing}");
    // There is an error, but none is expected.
    let unexpected = GOOD.replace("out ", "");
    assert!(check(&unexpected).unwrap_err().contains("unexpected on line 5"));
    // Right words and line, wrong code; right code and line, wrong words; right error, wrong line.
    for comment in ["// error[ATL211]: `y` is stored to", "// error[ATL210]: `x` is stored to"] {
        let wrong = unexpected.replace(", %t\n", &format!(", %t {comment}\n"));
        assert!(check(&wrong).is_err(), "{wrong}");
    }
    let early = unexpected.replace("f32[16]\n", "f32[16] // error[ATL210]: `y` is stored to\n");
    assert!(check(&early).is_err());
}
