//! The PTX of a form's program.

use crate::syntax::ast::Type;
use std::fmt::Write;

/// The entry of every program.
pub const ENTRY: &str = "form";

/// Registers of the operands.
const OPERANDS: [&str; 4] = ["%a", "%b", "%c", "%e"];

/// Bytes of a type's values in memory.
pub(super) fn bytes(ty: Type) -> u32 {
    use Type::*;
    match ty {
        Pred | B8 | U8 | S8 | E4m3 | E5m2 => 1,
        B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 => 2,
        B32 | U32 | S32 | F32 | F16x2 | Bf16x2 | Tf32 => 4,
        B64 | U64 | S64 | F64 | F32x2 => 8,
        B128 => 16,
    }
}

/// An instruction on the operands' registers and perhaps an immediate.
pub(super) fn instruction(spelling: &str, sources: usize, immediate: Option<&str>) -> String {
    let operands = OPERANDS[..sources].iter().copied().chain(immediate);
    format!("{spelling} %d, {};", operands.collect::<Vec<_>>().join(", "))
}

/// The module around instructions that compute `%d` from `%a`, `%b`, `%c` and `%e`. They may use predicates `%p` and `%q`,
/// words `%t` and `%u` and a double word `%w`.
pub(super) fn module(body: &str, sources: &[Type], dst: Type) -> String {
    let mut text = String::from(".version 8.6\n.target sm_90\n.address_size 64\n\n");
    let inputs: String = (0..sources.len()).map(|i| format!("    .param .u64 in{i},\n")).collect();
    let _ = write!(text, ".visible .entry {ENTRY}(\n    .param .u64 out,\n{inputs}    .param .u32 count\n)\n{{\n");
    text.push_str("    .reg .pred %guard, %p, %q;\n    .reg .b32 %i, %n, %t, %u;\n    .reg .b64 %at, %base, %w;\n");
    for (name, ty) in OPERANDS.iter().zip(sources).chain([(&"%d", &dst)]) {
        let _ = writeln!(text, "    .reg .b{} {name};", 8 * bytes(*ty).max(2));
    }
    text.push_str(
        "    mov.u32 %i, %ctaid.x;\n    mov.u32 %n, %ntid.x;\n    mov.u32 %t, %tid.x;\n    \
         mad.lo.u32 %i, %i, %n, %t;\n    ld.param.u32 %n, [count];\n    setp.ge.u32 %guard, %i, %n;\n    \
         @%guard bra DONE;\n",
    );
    for (i, (name, ty)) in OPERANDS.iter().zip(sources).enumerate() {
        place(&mut text, &format!("in{i}"), *ty);
        let _ = writeln!(text, "    ld.global.b{} {name}, [%at];", 8 * bytes(*ty));
    }
    let _ = writeln!(text, "    {body}");
    place(&mut text, "out", dst);
    let _ = writeln!(text, "    st.global.b{} [%at], %d;", 8 * bytes(dst));
    text.push_str("DONE:\n    ret;\n}\n");
    text
}

/// The address of a thread's element.
fn place(text: &mut String, parameter: &str, ty: Type) {
    let _ = writeln!(text, "    ld.param.u64 %base, [{parameter}];");
    let _ = writeln!(text, "    mul.wide.u32 %at, %i, {};\n    add.u64 %at, %base, %at;", bytes(ty));
}
