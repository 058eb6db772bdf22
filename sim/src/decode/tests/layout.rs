//! Variables, parameters and directives of an entry.

use super::{compile, compile_module, op, short};
use crate::alu::Arithmetic;
use crate::decode;
use crate::program::{Op, SourceLoc, Src};
use crate::syntax::ast::Space;
use crate::syntax::parse;

#[test]
fn shared_variables_lie_in_order_and_dynamic_memory_after_them() {
    let variables =
        ".extern .shared .align 16 .b8 dyn[];\n.shared .align 4 .b8 unused[64];\n.shared .align 4 .b8 a0[6];\n";
    let body = ".shared .align 8 .f64 c[2]; mov.u32 r0, a0; mov.u32 r1, c; mov.u32 r2, dyn;";
    let program = compile_module(variables, body).unwrap();
    let sources = program.code.iter().filter_map(|i| match &i.op {
        Op::Alu { src, .. } => Some(src[0]),
        _ => None,
    });
    let addresses: Vec<_> = sources.collect();
    assert_eq!(addresses, [Src::Imm(0), Src::Imm(8), Src::Imm(32)]);
    assert_eq!((program.shared_bytes, program.shared_align), (32, 16));
}

#[test]
fn module_variables_have_fixed_addresses_and_bytes() {
    let variables = ".const .align 4 .u32 c[2] = {7};\n.global .align 1 .b8 x = 5;\n.global .align 16 .b8 y[3];\n";
    let program = compile_module(variables, "ld.global.u32 r0, [y+4]; ld.const.u32 r1, [c];").unwrap();
    let globals: Vec<_> = program.globals.iter().map(|v| (v.address, v.bytes.clone())).collect();
    assert_eq!(globals, [(1 << 32, vec![5]), ((1 << 32) + 16, vec![0, 0, 0])]);
    assert_eq!(program.constants[0].bytes, [7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(program.constants[0].space, Space::Const);
    let Op::Load { access, .. } = &program.code[0].op else { panic!() };
    assert_eq!((access.addr.base, access.addr.offset), (Src::Imm((1 << 32) + 16), 4));
}

#[test]
fn parameters_are_aligned() {
    let program = compile("ret;").unwrap();
    let slots: Vec<_> = program.params.iter().map(|p| (p.name.as_str(), p.offset, p.bytes, p.align)).collect();
    assert_eq!(slots, [("a", 0, 8, 8), ("b", 64, 128, 64)]);
    assert_eq!(program.param_bytes, 192);
}

#[test]
fn scopes_shadow_and_end() {
    let program = compile(".reg .b32 x; mov.b32 x, 1; { .reg .b64 x; mov.b64 x, 2; bra L; L: } mov.b32 x, 3;").unwrap();
    let written = program.code.iter().filter_map(|i| match &i.op {
        Op::Alu { dst, .. } => Some(dst.0),
        _ => None,
    });
    let rows: Vec<_> = written.collect();
    assert_eq!(rows, [0, 1, 0]);
    assert_eq!(short(&program.code[2].op), "Branch { target: 3, uniform: false }");
}

#[test]
fn the_grain_is_the_narrowest_access() {
    for (body, grain) in [
        ("st.shared.v4.b32 [r0], {r0, r0, r0, r0};", 4),
        ("ld.global.b64 d0, [d1];", 4),
        ("ld.global.b16 h0, [d1];", 2),
        ("st.shared.b8 [r0], r1;", 1),
        ("ld.param.u8 r0, [b];", 4),
        ("cp.async.cg.shared.global [r0], [d0], 16;", 4),
    ] {
        assert_eq!(compile(body).unwrap().grain, grain, "{body}");
    }
}

#[test]
fn directives_and_locations_are_kept() {
    let text = ".version 8.5\n.target sm_90a\n.address_size 64\n.visible .entry other() { call f; }\n\
        .entry k() .reqntid 96, 2 .maxntid 512 .reqnctapercluster 4, 1, 1 {\n.loc 1 30 7\nbar.sync 0;\nret;\n}\n\
        .file 1 \"k.cu\"\n";
    let module = parse(text).unwrap();
    let program = decode::compile(&module, Some("k"), Arithmetic::Ieee).unwrap();
    assert_eq!(program.required_threads, Some([96, 2, 1]));
    assert_eq!(program.max_threads, Some([512, 1, 1]));
    assert_eq!(program.cluster, Some([4, 1, 1]));
    assert_eq!(program.locs[0], Some(SourceLoc { file: 1, line: 30, column: 7 }));
    assert_eq!(program.files, [(1, "k.cu".to_owned())]);
    assert_eq!(program.target, "sm_90a");
    let error = |entry| decode::compile(&module, entry, Arithmetic::Ieee).unwrap_err().message;
    assert_eq!(error(None), "the module has several entries; name one");
    assert_eq!(error(Some("z")), "the module has no entry `z`");
    assert_eq!(error(Some("other")), "line 4: `call` is not supported: functions must be inlined");
}

#[test]
fn variables_too_large_are_refused() {
    let error = |v: &str| compile_module(v, "mov.u64 d0, x;").unwrap_err().message;
    assert_eq!(error(".global .b8 x[0xffffffffffffffff];\n"), "line 4: `x` is too large");
    assert_eq!(error(".shared .b64 x[0x2000000000000001];\n"), "line 4: `x` is too large");
    assert_eq!(error(".global .align 0x80000000 .b8 x[1073741824];\n"), "line 4: `x` is too large");
    assert_eq!(error(".extern .global .b8 x[4];\n"), "line 6: `mov.u64`: `x` is defined in another module");
}

#[test]
fn a_body_that_runs_out_returns() {
    let program = compile("bar.sync 0;").unwrap();
    assert_eq!(program.code.len(), 2);
    assert!(matches!(program.code[1].op, Op::Exit));
    assert!(matches!(op("bar.sync 0;"), Op::Bar { .. }));
}
