//! Arithmetic, comparisons, and constants in the types of their instructions.

use super::{compile, error, op};
use crate::program::{Op, Reg, Src};

/// The first source of an arithmetic instruction.
fn first(instruction: &str) -> Src {
    match op(instruction) {
        Op::Alu { src, .. } => src[0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn constants_take_the_type_of_the_instruction() {
    let rows = [
        ("mov.b32 r0, -1;", 0xffff_ffff),
        ("mov.b16 h0, -2;", 0xfffe),
        ("mov.u64 d0, -1;", u64::MAX),
        ("mov.b32 r0, 0xFFFFFFFFFFFFFFFF;", 0xffff_ffff),
        ("mov.f32 r0, 0f3F800000;", 0x3f80_0000),
        ("mov.b32 r0, 0f3F800000;", 0x3f80_0000),
        ("mov.f32 r0, 1.5;", 0x3fc0_0000),
        ("mov.f64 d0, 1.5;", 0x3ff8_0000_0000_0000),
        ("mov.f64 d0, 0f3FC00000;", 0x3ff8_0000_0000_0000),
        ("neg.f16 h0, 0f3F800000;", 0x3c00),
        ("neg.bf16 h0, 0f3F800000;", 0x3f80),
        ("mov.u32 r0, WARP_SZ;", 32),
        ("mov.u64 d0, b+16;", 80),
    ];
    for (instruction, bits) in rows {
        assert_eq!(first(instruction), Src::Imm(bits), "{instruction}");
    }
    assert_eq!(error("mov.b16 h0, 70000;"), "line 5: `mov.b16`: the constant does not fit .b16");
    assert_eq!(error("mov.b16 h0, -40000;"), "line 5: `mov.b16`: the constant does not fit .b16");
    assert_eq!(error("neg.f32 r0, 1;"), "line 5: `neg.f32`: the constant does not fit .f32");
}

#[test]
fn a_form_computes_what_its_words_say() {
    let Op::Alu { f, dst, src } = op("sub.s32 r0, r1, 7;") else { panic!() };
    assert_eq!((dst, src[0], src[1]), (Reg(0), Src::Reg(Reg(1)), Src::Imm(7)));
    assert_eq!(f(5, 7, 0, 0), 0xffff_fffe);
    let Op::Setp { f, complement: Some(_), combine: Some(_), .. } = op("setp.lt.and.u32 p0|p1, r0, r1, !p2;") else {
        panic!()
    };
    assert!(f(1, 0xffff_ffff) && !f(2, 2));
    let Op::Set { f, yes: 0x3f80_0000, .. } = op("set.gt.f32.s32 r0, r1, r2;") else { panic!() };
    assert!(f(1, 0xffff_ffff));
}

#[test]
fn a_signed_conversion_fills_a_wider_register() {
    let program = compile("cvt.s8.s32 r0, r1;").unwrap();
    let values = program.code[..2].iter().fold(0x1_80, |value, instr| match &instr.op {
        Op::Alu { f, .. } => f(value, 0, 0, 0),
        other => panic!("{other:?}"),
    });
    assert_eq!(values, 0xffff_ff80);
    assert_eq!(compile("cvt.u8.u32 r0, r1;").unwrap().code.len(), 2);
}

#[test]
fn a_packed_comparison_splits_in_two() {
    let program = compile("setp.lt.f16x2 p0|p1, r0, r1;").unwrap();
    let (mut rows, mut preds) = ([0x4000_3c00u64, 0x3c00_4000, 0, 0, 0, 0], [None; 2]);
    for instr in &program.code {
        let read = |rows: &[u64], s: Src| match s {
            Src::Reg(Reg(r)) => rows[r as usize],
            Src::Imm(v) => v,
        };
        match &instr.op {
            Op::Alu { f, dst, src } => rows[dst.0 as usize] = f(read(&rows, src[0]), read(&rows, src[1]), 0, 0),
            Op::Setp { f, a, b, dst: Some(dst), .. } => {
                preds[dst.0 as usize] = Some(f(read(&rows, *a), read(&rows, *b)));
            }
            _ => {}
        }
    }
    // Low halves 1 < 2, high halves not 2 < 1.
    assert_eq!(preds, [Some(true), Some(false)]);
    assert_eq!(
        error("@p0 setp.lt.f16x2 p0|p1, r0, r1;"),
        "line 5: `setp.lt.f16x2`: a predicate both read and written is not supported here"
    );
}

#[test]
fn an_atomic_of_a_vector_is_one_of_each_element() {
    let program = compile("atom.global.add.v4.f32 {r0, _, r2, r3}, [d0], {r3, r1, r1, r0};").unwrap();
    let offsets: Vec<_> = program
        .code
        .iter()
        .filter_map(|i| match &i.op {
            Op::Atom { access, .. } => Some(access.addr.offset),
            _ => None,
        })
        .collect();
    assert_eq!(offsets, [0, 4, 8, 12]);
    // Three results are copied after all elements have read their operands.
    let copies = program.code[4..7].iter().filter(|i| matches!(i.op, Op::Alu { .. })).count();
    assert_eq!((copies, program.code.len()), (3, 8));
}

#[test]
fn differences_of_bytes() {
    let value = |instruction: &str| match op(instruction) {
        Op::Alu { f, .. } => f(0x01_ff_10_00, 0x03_00_20_80, 5, 0),
        other => panic!("{other:?}"),
    };
    assert_eq!(value("vabsdiff4.u32.u32.u32 r0, r1, r2, r3;"), 0x02_ff_10_80);
    assert_eq!(value("vabsdiff4.u32.u32.u32.add r0, r1, r2, r3;"), 2 + 0xff + 0x10 + 0x80 + 5);
    assert_eq!(
        error("vabsdiff4.s32.s32.s32 r0, r1, r2, r3;"),
        "line 5: `vabsdiff4.s32.s32.s32`: type `.s32` is not allowed"
    );
}

#[test]
fn pairs_of_singles_and_mixed_sums_name_registers_of_their_widths() {
    let Op::Alu { f, dst, src } = op("fma.rn.f32x2 d0, d1, d2, d3;") else { panic!() };
    assert_eq!((dst, src[..3].to_vec()), (Reg(0), [1, 2, 3].map(|r| Src::Reg(Reg(r))).into()));
    assert_eq!(f(0x4000_0000_3f80_0000, 0x4000_0000_4040_0000, 0x3f80_0000_0000_0000, 0), 0x40a0_0000_4040_0000);
    let Op::Alu { f, src, .. } = op("fma.rn.f32.bf16 r0, h0, h1, 0f3F800000;") else { panic!() };
    assert_eq!(src[..3], [Src::Reg(Reg(1)), Src::Reg(Reg(2)), Src::Imm(0x3f80_0000)]);
    assert_eq!(f(0x4000, 0x4040, 0x3f80_0000, 0), 0x40e0_0000);
    let refused = |instruction: &str| {
        let head = super::HEAD.replace("sm_90a", "sm_100a");
        super::compile_with(&head, "", instruction).map(|p| format!("{:?}", p.code)).unwrap_err().message
    };
    for (instruction, message) in [
        ("add.rn.f32x2 r0, r1, r2;", "`add.rn.f32x2`: register `r0` has 32 bits, and 64 are wanted"),
        ("add.rn.f32x2 d0, d1, r2;", "`add.rn.f32x2`: register `r2` has 32 bits, and 64 are wanted"),
        ("add.rn.f32x2 d0, d1, 0;", "`add.rn.f32x2`: the constant does not fit .f32x2"),
        ("add.rn.f32x2 d0, d1, 0d3FF0000000000000;", "`add.rn.f32x2`: the constant does not fit .f32x2"),
        ("add.rn.f32.bf16 r0, r1, r2;", "`add.rn.f32.bf16`: register `r1` has 32 bits, and 16 are wanted"),
        ("fma.rn.f32.f16 r0, h1, r2, r3;", "`fma.rn.f32.f16`: register `r2` has 32 bits, and 16 are wanted"),
        ("add.rn.f32.f16 h0, h1, r2;", "`add.rn.f32.f16`: register `h0` has 16 bits, and 32 are wanted"),
        ("add.rn.sat.f32x2 d0, d1, d2;", "unknown instruction `add.rn.sat.f32x2`"),
        ("mul.rn.f32.bf16 r0, h1, r2;", "unknown instruction `mul.rn.f32.bf16`"),
        ("fma.rn.f32x2 d0, d1, d2;", "`fma.rn.f32x2`: 4 operands are wanted, found 3"),
    ] {
        assert_eq!(refused(instruction), format!("line 5: {message}"));
    }
}
