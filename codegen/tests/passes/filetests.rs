//! One pass at a time, from text to text: `tests/cases/passes/PASS/NAME.gpu`, or `.tile` for the pass that makes kernels.
//!
//! The first line of a case is `// pass NAME; schedule stages=4 warps=8; target sm_90; with roles grids`, where all parts but
//! the name may be left out. `with` names constructs that no phase has yet. Then come the kernel, a line `---`, and the kernel
//! after the pass, or `// refused: part of the reason`. `ATLAS_BLESS=1` rewrites what follows the line.

use super::{header, page, root};
use atlas_codegen::gpu::{Constructs, Kernel, parse_gpu, verify_constructs, verify_gpu};
use atlas_codegen::notes::Notes;
use atlas_codegen::passes::{Cx, FIRST, LOWER, PLACE, Pass, SCHEDULE, lower_tiles};
use atlas_codegen::{CompileError, Platform, Target};
use atlas_dsl::{Config, Schedule};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A case, in parts.
struct Case<'t> {
    pass: &'t str,
    schedule: Schedule,
    platform: Option<Platform>,
    /// Constructs that it has in addition to those of the pipeline.
    with: Constructs,
    input: &'t str,
    expected: &'t str,
}

/// What a pass did with a case.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    /// It changed the kernel to this text.
    Changed(String),
    /// It changed nothing.
    Unchanged(String),
    /// It refused the config, with a reason.
    Refused(String),
}

const LINE: &str = "\n---\n";
const REFUSED: &str = "// refused: ";

fn read(text: &str) -> Result<Case<'_>, String> {
    let (first, rest) = text.split_once('\n').ok_or("no kernel")?;
    let (input, expected) = rest.split_once(LINE).ok_or("no line `---` after the kernel")?;
    let words = first.strip_prefix("// pass ").ok_or("the first line does not begin with `// pass `")?;
    let mut parts = words.split(';').map(str::trim);
    let pass = parts.next().unwrap_or_default();
    let mut case =
        Case { pass, schedule: Schedule::default(), platform: None, with: Constructs::NONE, input, expected };
    for part in parts {
        match part.split_once(' ') {
            Some(("schedule", keys)) => {
                let config: Config = keys.parse().map_err(|e: atlas_dsl::config::ConfigError| e.to_string())?;
                if let Some(key) = config.tile.keys().next() {
                    return Err(format!("`{key}` is no key of a schedule"));
                }
                case.schedule = config.schedule;
            }
            Some(("target", arch)) => case.platform = Some(arch.parse()?),
            Some(("with", words)) => {
                for word in words.split_whitespace() {
                    let found = Constructs::ALL.iter().find(|(_, name)| *name == word);
                    case.with = case.with.with(found.ok_or_else(|| format!("`{word}` is no feature"))?.0);
                }
            }
            _ => return Err(format!("`{part}` is neither a schedule, nor a target, nor features")),
        }
    }
    Ok(case)
}

/// The pass with a name, and the constructs that a kernel may have before it.
fn pass(name: &str) -> Result<(&'static Pass, Constructs), String> {
    let mut before = page()[0].2;
    for pass in [PLACE, SCHEDULE, LOWER].into_iter().flatten() {
        if pass.name == name {
            return Ok((pass, before));
        }
        before = pass.after(before);
    }
    Err(format!("there is no pass `{name}`"))
}

/// Verifies a kernel at some place in the list of passes.
fn verified(when: &str, k: &Kernel, features: Constructs) -> Result<(), String> {
    verify_gpu(k).and_then(|()| verify_constructs(k, features)).map_err(|d| format!("{when} the pass: {d}"))
}

fn run(case: &Case<'_>) -> Result<Outcome, String> {
    let context = |platform: Platform, done: &mut dyn FnMut(&mut Cx<'_>) -> Result<(), CompileError>| {
        let Platform { target, machine } = platform;
        done(&mut Cx::new(&case.schedule, target, &machine, &mut Notes::forgotten()))
    };
    let mut made = None;
    let ran = if case.pass == FIRST {
        let tile = atlas_dsl::parse_kernel(case.input).and_then(atlas_dsl::verify).map_err(|d| d.to_string())?;
        let sm_80 = Target { sm: 80, specific: false };
        let ran = context(case.platform.unwrap_or(sm_80.into()), &mut |cx| {
            made = Some(lower_tiles(&tile, cx)?);
            Ok(())
        });
        if let Some(k) = &made {
            verified("after", k, page()[0].2)?;
        }
        ran
    } else {
        let (pass, before) = pass(case.pass)?;
        let mut k = parse_gpu(case.input).map_err(|d| d.to_string())?;
        let platform = case.platform.unwrap_or(k.target.into());
        if platform.target != k.target {
            return Err(format!("{platform} runs code for {}, but the kernel is for {}", platform.target, k.target));
        }
        let before = before.with(case.with);
        verified("before", &k, before)?;
        let given = k.to_string();
        let ran = context(platform, &mut |cx| (pass.run)(&mut k, cx));
        if ran.is_ok() {
            verified("after", &k, pass.after(before))?;
            if k.to_string() == given {
                return Ok(Outcome::Unchanged(given));
            }
        }
        made = Some(k);
        ran
    };
    match (ran, made) {
        (Ok(()), Some(k)) => Ok(Outcome::Changed(k.to_string())),
        (Err(CompileError::Refused(reason)), _) => Ok(Outcome::Refused(reason)),
        (Err(e), _) => Err(e.to_string()),
        (Ok(()), None) => Err("the pass left nothing".to_owned()),
    }
}

/// The effect of a case's pass, or what is wrong with the case.
fn check(text: &str) -> Result<(String, Outcome), String> {
    let case = read(text)?;
    let outcome = run(&case)?;
    match (&outcome, case.expected.trim_end().strip_prefix(REFUSED)) {
        (Outcome::Refused(reason), Some(part)) if !part.is_empty() && reason.contains(part) => {}
        (Outcome::Refused(reason), _) => return Err(format!("refused: {reason}")),
        (Outcome::Changed(text) | Outcome::Unchanged(text), None) if *text == case.expected => {}
        (Outcome::Changed(text) | Outcome::Unchanged(text), _) => return Err(format!("the pass leaves\n{text}")),
    }
    Ok((case.pass.to_owned(), outcome))
}

/// The case with the current result of its pass. A case that still holds is not changed, because a part of a reason is enough.
fn blessed(text: &str) -> Result<String, String> {
    if check(text).is_ok() {
        return Ok(text.to_owned());
    }
    let case = read(text)?;
    let now = match run(&case)? {
        Outcome::Changed(text) | Outcome::Unchanged(text) => text,
        Outcome::Refused(reason) => format!("{REFUSED}{reason}\n"),
    };
    Ok(format!("{}{LINE}{now}", &text[..text.len() - case.expected.len() - LINE.len()]))
}

/// Every case file, by its path.
fn cases() -> BTreeMap<PathBuf, String> {
    let list = |dir: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        entries.map(|e| e.expect("an entry").path()).collect()
    };
    let files = list(&root().join("tests/cases/passes")).into_iter().flat_map(|dir| list(&dir));
    files.map(|p| (p.clone(), std::fs::read_to_string(&p).expect("a case file"))).collect()
}

#[test]
fn each_case_comes_out_as_written() {
    let bless = std::env::var_os("ATLAS_BLESS").is_some();
    let mut failures = Vec::new();
    for (path, text) in cases() {
        let text = match bless.then(|| blessed(&text)) {
            Some(Ok(now)) => {
                std::fs::write(&path, &now).expect("a case file");
                now
            }
            _ => text,
        };
        let folder = path.parent().and_then(Path::file_name).map(|f| f.to_string_lossy().into_owned());
        match check(&text) {
            Ok((pass, _)) if Some(&pass) == folder.as_ref() => {}
            Ok((pass, _)) => failures.push(format!("{}: a case of {pass}", path.display())),
            Err(e) => failures.push(format!("{}: {e}", path.display())),
        }
    }
    assert!(failures.is_empty(), "{}\n`ATLAS_BLESS=1` accepts what the passes do now", failures.join("\n"));
}

/// Every pass has a case that it changes, one that it leaves alone, and one that it refuses. Its header says which of these it
/// cannot have.
#[test]
fn each_pass_has_its_cases() {
    let done: Vec<(String, Outcome)> = cases().values().filter_map(|text| check(text).ok()).collect();
    let mut missing = Vec::new();
    for (name, ..) in page() {
        let header = header(name);
        let mut wanted = |what: &str, found: fn(&Outcome) -> bool| {
            if !done.iter().any(|(pass, outcome)| pass == name && found(outcome)) {
                missing.push(format!("{name} has no case that it {what}"));
            }
        };
        if !header.contains("Never: changes anything.") {
            wanted("changes", |o| matches!(o, Outcome::Changed(_)));
        }
        // The first pass makes a kernel of every case.
        if name != FIRST {
            wanted("leaves alone", |o| matches!(o, Outcome::Unchanged(_)));
        }
        if !header.contains("Refuses: nothing.") {
            wanted("refuses", |o| matches!(o, Outcome::Refused(_)));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn the_runner_notices_a_case_that_lies() {
    let all = cases();
    let named = |end: &str| all.iter().find(|(p, _)| p.ends_with(end)).map(|(_, text)| text.clone()).expect("a case");
    let good = named("select_cache_hints/inputs_are_kept.gpu");
    assert!(check(&good).is_ok());
    let (before, after) = good.split_once(LINE).expect("a line");
    for (bad, part) in [
        (format!("{before}{LINE}{}", after.replace(".evict_last", "")), "the pass leaves"),
        (format!("{before}{LINE}{REFUSED}too large\n"), "the pass leaves"),
        (good.replace("// pass select_cache_hints", "// pass choose_cache"), "there is no pass"),
        (good.replace("select_cache_hints", "select_cache_hints; target sm_91"), "unknown arch"),
        (good.replace("select_cache_hints", "select_cache_hints; target sm_90"), "the kernel is for sm_80"),
        (good.replace("select_cache_hints", "select_cache_hints; schedule BN=4"), "no key of a schedule"),
        (good.replace("select_cache_hints", "select_cache_hints; with wings"), "is no feature"),
        (before.to_owned(), "no line `---`"),
        (good.replacen("load.global %x", "load.global.evict_last %x", 1).replacen("cast", "exp", 1), "before the pass"),
    ] {
        assert!(check(&bad).is_err_and(|e| e.contains(part)), "{part}:\n{bad}");
        assert_ne!(bad, good);
    }
    let refused = named("allocate_shared/too_much.gpu");
    assert!(check(&refused.replace(REFUSED, &format!("{REFUSED}not "))).is_err_and(|e| e.contains("refused: ")));
    assert_eq!(blessed(&refused), Ok(refused.clone()));
    // What a lie was blessed into is the truth again.
    assert_eq!(blessed(&format!("{before}{LINE}anything\n")), Ok(good.clone()));
}
