//! Source locations, as LLVM debug locations that become `.loc` lines.

use inkwell::builder::Builder;
use inkwell::context::Context;
use inkwell::debug_info::{
    AsDIScope, DIFlags, DIFlagsConstants, DISubprogram, DWARFEmissionKind, DWARFSourceLanguage, DebugInfoBuilder,
};
use inkwell::module::Module;
use inkwell::values::FunctionValue;

/// Attaches source locations to a function's instructions.
pub(super) struct Lines<'c> {
    /// Kept until the module is complete.
    builder: DebugInfoBuilder<'c>,
    scope: DISubprogram<'c>,
}

impl<'c> Lines<'c> {
    /// Lines of a function whose kernel has a source file.
    pub(super) fn new(module: &Module<'c>, function: FunctionValue<'c>, file: &str) -> Lines<'c> {
        let (builder, unit) = module.create_debug_info_builder(
            true,
            DWARFSourceLanguage::C,
            file,
            "",
            "atlas",
            true,
            "",
            0,
            "",
            DWARFEmissionKind::LineTablesOnly,
            0,
            false,
            false,
            "",
            "",
        );
        let ty = builder.create_subroutine_type(unit.get_file(), None, &[], DIFlags::ZERO);
        let name = function.get_name().to_string_lossy().into_owned();
        let scope = builder.create_function(
            unit.as_debug_info_scope(),
            &name,
            None,
            unit.get_file(),
            1,
            ty,
            false,
            true,
            1,
            DIFlags::ZERO,
            true,
        );
        function.set_subprogram(scope);
        Lines { builder, scope }
    }

    /// The location of the instructions that are built next.
    pub(super) fn at(&self, cx: &'c Context, b: &Builder<'c>, line: u32, column: u32) {
        let scope = self.scope.as_debug_info_scope();
        b.set_current_debug_location(self.builder.create_debug_location(cx, line, column, scope, None));
    }
}
