//! Which registers share a row of the register file.

use super::{DECLARED, HEAD, compile};
use crate::alu::Arithmetic;
use crate::program::{Instr, Op, Program, Reg, Src};
use crate::syntax::parse;

/// An entry of this body whose registers share rows.
fn shared(body: &str) -> Program {
    let text = format!("{HEAD}.visible .entry k(.param .u64 a) {{ {DECLARED}\n{body}\n}}");
    crate::decode::compile(&parse(&text).unwrap(), None, Arithmetic::Ieee).unwrap()
}

/// The row that an instruction writes, and those that it reads.
fn rows(instr: &Instr) -> (u32, Vec<u32>) {
    let Op::Alu { dst: Reg(to), src, .. } = instr.op else { panic!("{instr:?}") };
    (to, src.iter().filter_map(|s| if let Src::Reg(Reg(from)) = s { Some(*from) } else { None }).collect())
}

#[test]
fn values_that_follow_each_other_share_rows() {
    let chain: String = (1..100).map(|i| format!("add.u32 r{i}, r{}, 1;\n", i - 1)).collect();
    let body = format!("mov.u32 r0, 1;\n{chain}");
    // The unshared program has all of them.
    assert!(compile(&body).unwrap().regs >= 100);
    let program = shared(&body);
    assert_eq!((program.regs, program.reg_bits.len()), (2, 2));
    // An instruction never writes what it reads.
    for instr in &program.code[1..100] {
        let (to, from) = rows(instr);
        assert!(!from.contains(&to), "{instr:?}");
    }
}

#[test]
fn what_may_be_read_before_it_is_written_has_its_own_row() {
    // The guard may not hold, so r1 may keep what registers hold at the start.
    let body =
        "@p0 mov.u32 r1, 5; add.u32 r2, r1, 1; mov.u32 r3, 7; add.u32 r4, r3, r2; mov.u16 h0, 1; add.u16 h1, h2, h0;";
    let program = shared(body);
    let first = rows(&program.code[0]).0;
    assert!(program.code[1..].iter().filter(|i| matches!(i.op, Op::Alu { .. })).all(|i| rows(i).0 != first));
    // It keeps its width, because the content at the start depends on it.
    assert_eq!(program.reg_bits[first as usize], 32);
    let unwritten = rows(&program.code[5]).1[0];
    assert_eq!(program.reg_bits[unwritten as usize], 16);
    assert!(program.code[..6].iter().all(|i| rows(i).0 != unwritten));
}

#[test]
fn a_value_that_a_loop_needs_again_keeps_its_row() {
    let body = "mov.u32 r0, 1; mov.u32 r1, 0;
        L: add.u32 r2, r1, r0; mov.u32 r3, 9; add.u32 r1, r2, r3; setp.lt.u32 p0, r1, 100; @p0 bra L;
        mov.u32 r4, 3; add.u32 r5, r4, r1;";
    let program = shared(body);
    let step = rows(&program.code[0]).0;
    // r0 is read for the last time before r3 is written, and yet the next iteration reads it.
    assert!([1, 2, 3, 4].iter().all(|&i| rows(&program.code[i]).0 != step), "{:?}", program.code);
    assert_eq!(rows(&program.code[2]).1[1], step);
    // After the loop, nothing does.
    assert!(program.regs < 6, "{} rows", program.regs);
}

#[test]
fn values_of_both_sides_of_a_branch_do_not_meet() {
    let body = "mov.u32 r0, 1; mov.u32 r1, 2; @p0 bra E;
        add.u32 r2, r0, 1; mov.u32 r3, 4; add.u32 r4, r2, r3; bra M;
        E: mov.u32 r4, 8;
        M: add.u32 r5, r4, r1;";
    let program = shared(body);
    let later = rows(&program.code[1]).0;
    let of = |at: usize| rows(&program.code[at]).0;
    assert!([3, 4, 5, 7].iter().all(|&at| of(at) != later), "{:?}", program.code);
    // Both sides write what is read where they meet.
    assert_eq!((of(5), of(5)), (of(7), rows(&program.code[8]).1[0]));
}

#[test]
fn registers_of_products_in_flight_have_their_own_rows() {
    let product = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {r0, r1, r2, r3}, d0, d1, p, 1, 1, 0, 0;";
    let product = product.replace(" p,", " p0,");
    let body = format!("mov.u64 d0, 1; mov.u64 d1, 2; {product} mov.u32 r4, 1; add.u32 r5, r4, 1; mov.u32 r6, r5;");
    let program = shared(&body);
    let at = program.code.iter().position(|i| matches!(i.op, Op::Wgmma(_))).unwrap();
    let Op::Wgmma(product) = &program.code[at].op else { panic!() };
    let flying: Vec<u32> = product.d.iter().map(|r| r.0).chain((0..2).map(|i| rows(&program.code[i]).0)).collect();
    assert_eq!(flying.iter().collect::<std::collections::BTreeSet<_>>().len(), 6);
    let later = program.code[at + 1..].iter().filter(|i| matches!(i.op, Op::Alu { .. }));
    assert!(later.into_iter().all(|i| !flying.contains(&rows(i).0)), "{:?}", program.code);
}
