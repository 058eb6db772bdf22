//! LLVM module to PTX text.

use crate::error::CompileError;
use crate::target::Target;
use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, TargetMachine, TargetTriple};
use std::sync::Once;

static START: Once = Once::new();

/// Readies LLVM once per process. Shared-memory pointers are 32 bits wide.
#[allow(unsafe_code, reason = "the option parser has no safe binding")]
fn start() {
    START.call_once(|| {
        inkwell::targets::Target::initialize_nvptx(&InitializationConfig::default());
        let args: [&std::ffi::CStr; 2] = [c"atlas", c"-nvptx-short-ptr"];
        let pointers = args.map(std::ffi::CStr::as_ptr);
        // SAFETY: two NUL-terminated strings that outlive the call; runs once, before any target machine.
        unsafe {
            inkwell::llvm_sys::support::LLVMParseCommandLineOptions(2, pointers.as_ptr(), std::ptr::null());
        }
    });
}

/// The machine that compiles for a target.
pub(crate) fn machine(target: Target, ptx: (u32, u32)) -> Result<TargetMachine, CompileError> {
    start();
    let triple = TargetTriple::create("nvptx64-nvidia-cuda");
    let t = inkwell::targets::Target::from_triple(&triple).map_err(|e| CompileError::bug(e.to_string()))?;
    t.create_target_machine(
        &triple,
        &target.to_string(),
        &format!("+ptx{}{}", ptx.0, ptx.1),
        OptimizationLevel::Aggressive,
        RelocMode::Default,
        CodeModel::Default,
    )
    .ok_or_else(|| CompileError::bug("LLVM has no NVPTX target machine"))
}

/// A module for a machine.
pub(crate) fn module<'c>(cx: &'c Context, name: &str, machine: &TargetMachine) -> Module<'c> {
    let module = cx.create_module(name);
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    module
}

/// Optimises a module and prints it as PTX.
pub(crate) fn to_ptx(module: &Module<'_>, machine: &TargetMachine) -> Result<String, CompileError> {
    module.verify().map_err(|e| CompileError::bug(format!("LLVM rejects the module: {e}")))?;
    module
        .run_passes("default<O3>", machine, PassBuilderOptions::create())
        .map_err(|e| CompileError::bug(e.to_string()))?;
    let text = machine
        .write_to_memory_buffer(module, FileType::Assembly)
        .map_err(|e| CompileError::bug(e.to_string()))?;
    let text = String::from_utf8_lossy(text.as_slice()).trim_end_matches('\0').to_owned();
    if let Some(line) = text.lines().find(|l| l.trim_start().starts_with(".extern .func")) {
        return Err(CompileError::bug(format!("the PTX calls a function that nothing defines: {line}")));
    }
    Ok(text)
}
