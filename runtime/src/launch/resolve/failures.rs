//! Why no kernel runs a problem (no config is legal, or compiling is not possible), and what would help.

use crate::bundle::Lack;
use crate::compile::HAS_COMPILER;
use crate::device::PassedOver;
use crate::error::{CompileFailure, without_numbers};
use crate::launch::problem::Problem;
use crate::select::{ConfigSource, Ranking};
use atlas_dsl::{KernelDef, Schedule};

/// The error for a device that may not compile.
pub(super) fn no_compiler(problem: &Problem<'_>, lack: &Lack, refused: Vec<PassedOver>) -> CompileFailure {
    let def = problem.def();
    let why = if HAS_COMPILER { "this device may not compile" } else { "this build has no compiler" };
    let lack = if lack.is_empty() { String::new() } else { format!("; {}", lack.join("; ")) };
    let build = if HAS_COMPILER { "let it compile" } else { "build with the feature `jit` (needs LLVM 22)" };
    let message = format!(
        "{why}, and the kernel store has no kernel for this problem{lack}; {build}, ship a bundle that has it \
         (`atlas bundle {}`{}), or use Device::cpu()",
        asked_for(problem),
        by_file(problem)
    );
    CompileFailure { kernel: def.name.to_owned(), message, refused, compiler_present: false }
}

/// The arguments that make a bundle for this problem: `softmax --dims N=8,D=64 --dtype T=bf16`.
fn asked_for(problem: &Problem<'_>) -> String {
    let def = problem.def();
    let dims: Vec<String> = def.dims.iter().zip(problem.dims()).map(|(d, n)| format!("{}={n}", d.name)).collect();
    let types = problem.class_text().0.replace(' ', ",");
    let types = if types.is_empty() { types } else { format!(" --dtype {types}") };
    format!("{} --dims {}{types}", def.name, dims.join(","))
}

/// The advice for views, which a command line cannot describe.
fn by_file(problem: &Problem<'_>) -> String {
    match problem.class_text().1 {
        usual if usual.is_empty() => String::new(),
        views => format!(
            " for tensors that are no views; this launch has views, for which `--sizes FILE` has `tensors = \"{views}\"`"
        ),
    }
}

/// The error if no config of a kernel runs a problem, with the reasons that are worth naming.
pub(super) fn no_config(def: &KernelDef, ranking: &Ranking, mut refused: Vec<PassedOver>) -> CompileFailure {
    let selection = ranking.selection();
    let ranked = selection.refused().filter(|(config, _)| !refused.iter().any(|(c, _)| c == *config));
    let ranked: Vec<PassedOver> = ranked.map(|(config, reason)| (config.clone(), reason.to_owned())).collect();
    refused.extend(ranked);
    if !def.file.is_empty() {
        // Where rules of the language are broken, the reason has a line.
        refused
            .iter_mut()
            .for_each(|(_, reason)| *reason = reason.replace(" (line ", &format!(" ({}, line ", def.file)));
    }
    // If several configs are refused for the same reason, the tune space is not the cause.
    let is_alike = refused.len() > 1 && refused.iter().all(|(_, reason)| *reason == refused[0].1);
    // A rule of the language is broken, except by the size of a tile.
    let is_rule = |reason: &str| {
        reason.starts_with("error[ATL2")
            && !["[ATL220]", "[ATL221]", "[ATL222]"].iter().any(|code| reason.contains(code))
    };
    let breaks_one_rule = refused.first().is_some_and(|(_, first)| {
        let kind = without_numbers(first);
        is_rule(first) && refused.iter().all(|(_, reason)| without_numbers(reason) == kind)
    });
    // If no instruction supports an operation, no config helps; and without tile sizes all configs give the same
    // kernel.
    let is_one_kernel = def.tune.iter().all(|knob| Schedule::KEYS.contains(&knob.name));
    let is_general = |(_, reason): &PassedOver| {
        ["has no GPU lowering", "has no instruction that multiplies"].iter().any(|what| reason.contains(what))
            || is_one_kernel && !reason.contains("error[ATL302]")
    };
    let message = match selection.source {
        ConfigSource::Given => "the given config cannot run this problem here; give another, or none",
        // Kernels that `fuse!` cannot combine.
        _ if !refused.is_empty()
            && refused.iter().all(|(_, reason)| reason.contains("[ATL230]") || reason.contains("[ATL231]")) =>
        {
            refused.truncate(1);
            "these kernels do not become one, whatever the config: launch them one after the other, or fuse fewer"
        }
        _ if !refused.is_empty() && refused.iter().all(|(_, reason)| reason.contains("error[ATL1")) => {
            refused.truncate(1);
            "the kernel is none for these element types and constants, whatever the config"
        }
        _ if breaks_one_rule => {
            refused.truncate(1);
            "the kernel breaks a rule of the language, whatever the config"
        }
        _ if is_alike => {
            refused.truncate(1);
            "this problem cannot run here, whatever the config: all are refused for one reason"
        }
        _ if !refused.is_empty() && refused.iter().all(is_general) => {
            refused.truncate(1);
            "this problem cannot run here, whatever the config"
        }
        _ if refused.len() == 1 => {
            "its only config is not legal for this problem; add others to its `tune` if the reason is of the config, or use another kernel"
        }
        _ => {
            "no config is legal for this problem; add others to its `tune`, by what each was refused for, or use another kernel"
        }
    };
    CompileFailure { kernel: def.name.to_owned(), message: message.to_owned(), refused, compiler_present: true }
}
