//! What to write instead of a command line that is not understood. What clap suggests of itself is near in its letters, not in its meaning.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// The error, with a tip that is right or with none.
pub(super) fn with_tip(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => of_verb(&text_of(&error, ContextKind::InvalidSubcommand)).map(str::to_owned),
        ErrorKind::UnknownArgument => {
            // `-- --device` would be a kernel of this name.
            error.remove(ContextKind::Suggested);
            let found = text_of(&error, ContextKind::InvalidArg);
            of_argument(args.get(1).and_then(|verb| verb.to_str()).unwrap_or(""), &found)
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn text_of(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Verbs of other tools.
fn of_verb(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "run" | "exec" | "launch" | "test" | "check" => {
            "`atlas verify --only OP` runs the kernels of an op and compares their results, `atlas bench --only OP` measures them"
        }
        "profile" | "time" | "measure" | "benchmark" => "`atlas bench` measures kernels",
        "simulate" | "sim" | "emulate" => "`atlas verify --device sim` runs kernels in the simulator",
        "build" => "`atlas compile KERNEL` prints a stage of a kernel, `atlas bundle` compiles kernels into a file",
        "show" | "dump" | "emit" | "ptx" | "disassemble" => "`atlas compile KERNEL --emit ptx` prints a stage of a kernel",
        "ls" | "kernels" | "ops" => "`atlas list` lists the kernels",
        _ => return None,
    })
}

fn of_argument(verb: &str, found: &str) -> Option<String> {
    Some(match (verb, found) {
        ("verify" | "bench", name) if !name.starts_with('-') => {
            format!("one op is selected by its name: `atlas {verb} --only {name}`")
        }
        ("compile" | "explain", "--device") => {
            format!("`atlas {verb}` runs nothing; the GPU that it is for is said by `--arch sm_90`")
        }
        ("compile" | "explain" | "tune", "--kernel" | "--name" | "--only") => {
            format!("the kernel's name stands alone: `atlas {verb} KERNEL`")
        }
        ("list", "--filter" | "--only" | "--name") => "the text stands alone: `atlas list TEXT`".to_owned(),
        _ => return None,
    })
}
