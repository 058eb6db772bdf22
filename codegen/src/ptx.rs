//! From an LLVM module to PTX text.

use crate::arch::Target;
use crate::error::CompileError;
use crate::llvm::{rematerialize, start};
use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{CodeModel, FileType, RelocMode, TargetMachine, TargetTriple};

/// The LLVM passes for a kernel, in order. A kernel arrives as flat SSA scalars with the few loops of its source: there is no
/// memory to promote, no call to inline and nothing to unroll. Of the passes of `default<O3>`, exactly these change some
/// shipped kernel or some kernel of the tests.
const PASSES: &[&str] = &[
    // The index of a thread is below the number of threads.
    "nvvm-intr-range",
    // What the emitter makes twice. `early-cse` would do it too, and is switched off: see `NO_PASSES`.
    "gvn<no-pre;no-load-pre>",
    "simplifycfg<bonus-inst-threshold=1;switch-range-to-icmp;keep-loops;speculate-blocks;simplify-cond-branch>",
    COMBINE,
    "reassociate",
    // Addresses leave their loops; a loop is tested at its end.
    "loop-mssa(licm<no-allowspeculation>,loop-rotate<header-duplication;no-prepare-for-lto>,licm<allowspeculation>)",
    "simplifycfg<bonus-inst-threshold=1;switch-range-to-icmp;keep-loops;speculate-blocks;simplify-cond-branch>",
    COMBINE,
    "loop(indvars)",
    "gvn<>",
    COMBINE,
    "simplifycfg<bonus-inst-threshold=1;switch-range-to-icmp;no-keep-loops;hoist-common-insts;sink-common-insts;\
     speculate-blocks;simplify-cond-branch>",
    // Pairs of 16-bit elements become one operand.
    "slp-vectorizer",
    "vector-combine",
];
const COMBINE: &str = "instcombine<max-iterations=1;no-verify-fixpoint>";

/// The LLVM target machine of a target.
pub(crate) fn machine(target: Target, ptx: (u32, u32)) -> Result<TargetMachine, CompileError> {
    start();
    let triple = TargetTriple::create("nvptx64-nvidia-cuda");
    let t = inkwell::targets::Target::from_triple(&triple).map_err(|e| CompileError::bug(e.to_string()))?;
    t.create_target_machine(
        &triple,
        &target.to_string(),
        &format!("+ptx{}{}", ptx.0, ptx.1),
        // Above it, GVN runs twice more for what `early-cse` finds.
        OptimizationLevel::Default,
        RelocMode::Default,
        CodeModel::Default,
    )
    .ok_or_else(|| CompileError::bug("LLVM has no NVPTX target machine"))
}

/// A module for a target machine.
pub(crate) fn module<'c>(cx: &'c Context, name: &str, machine: &TargetMachine) -> Module<'c> {
    let module = cx.create_module(name);
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    module
}

/// Verifies and optimises a module.
pub(crate) fn optimise(module: &Module<'_>, machine: &TargetMachine) -> Result<(), CompileError> {
    module.verify().map_err(|e| CompileError::bug(format!("LLVM rejects the module: {e}")))?;
    // At the end, declarations that nothing uses go.
    let passes = format!("function({}),globaldce", PASSES.join(","));
    module.run_passes(&passes, machine, PassBuilderOptions::create()).map_err(|e| CompileError::bug(e.to_string()))?;
    rematerialize(module)
}

/// Prints an optimised module as PTX.
pub(crate) fn to_ptx(module: &Module<'_>, machine: &TargetMachine) -> Result<String, CompileError> {
    let text =
        machine.write_to_memory_buffer(module, FileType::Assembly).map_err(|e| CompileError::bug(e.to_string()))?;
    let text = String::from_utf8_lossy(text.as_slice()).trim_end_matches('\0').to_owned();
    if let Some(line) = text.lines().find(|l| l.trim_start().starts_with(".extern .func")) {
        return Err(CompileError::bug(format!("the PTX calls a function that nothing defines: {line}")));
    }
    Ok(text)
}

/// PTX text with its `.loc` lines, but without the debugger tables that LLVM appends.
pub(crate) fn without_debug_sections(text: &str) -> String {
    let code = text.lines().take_while(|l| !l.trim_start().starts_with(".section"));
    let files = text.lines().filter(|l| l.trim_start().starts_with(".file"));
    let mut out = String::new();
    for line in code.filter(|l| !l.trim_start().starts_with(".file")).chain(files) {
        out.push_str(line.strip_suffix(", debug").unwrap_or(line));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module whose only function calls another one that stays undefined.
    fn calls_nothing<'c>(cx: &'c Context, machine: &TargetMachine) -> Module<'c> {
        let module = module(cx, "broken", machine);
        let plain = cx.void_type().fn_type(&[], false);
        let callee = module.add_function("nowhere", plain, None);
        let caller = module.add_function("broken", plain, None);
        let b = cx.create_builder();
        b.position_at_end(cx.append_basic_block(caller, "entry"));
        b.build_call(callee, &[], "").unwrap();
        b.build_return(None).unwrap();
        module
    }

    #[test]
    fn ptx_that_no_driver_would_link_is_a_defect_of_the_compiler() {
        let target = Target { sm: 80, specific: false };
        let machine = machine(target, target.ptx_version().unwrap()).unwrap();
        let cx = Context::create();
        let error = to_ptx(&calls_nothing(&cx, &machine), &machine).unwrap_err();
        let want = "error[ATL501]: this is a defect of Atlas, please report it: \
                    the PTX calls a function that nothing defines: .extern .func nowhere";
        assert!(!error.is_refusal() && error.to_string().starts_with(want), "{error}");
    }

    #[test]
    fn a_module_that_llvm_rejects_is_a_defect_of_the_compiler() {
        let target = Target { sm: 80, specific: false };
        let machine = machine(target, target.ptx_version().unwrap()).unwrap();
        let cx = Context::create();
        let module = module(&cx, "broken", &machine);
        let f = module.add_function("broken", cx.void_type().fn_type(&[], false), None);
        cx.append_basic_block(f, "no_end");
        let error = optimise(&module, &machine).unwrap_err().to_string();
        assert!(error.contains("ATL501") && error.contains("LLVM rejects the module"), "{error}");
    }
}
