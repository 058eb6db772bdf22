//! Forms that take more than one instruction to observe: carries, predicates, packing.

use crate::program::AluFn;
use crate::syntax::ast::Type;

/// Instructions that compute `%d` from `%a`, `%b` and `%c`.
pub(super) struct Sequence {
    pub(super) name: &'static str,
    pub(super) body: &'static str,
    pub(super) sources: &'static [Type],
    pub(super) dst: Type,
    pub(super) f: AluFn,
}

use Type::{B16, B32, B64, F32, S32, U32, U64};

const fn row(name: &'static str, body: &'static str, sources: &'static [Type], dst: Type, f: AluFn) -> Sequence {
    Sequence { name, body, sources, dst, f }
}

fn word(x: u64) -> u64 {
    x & 0xffff_ffff
}

fn single(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

pub(super) const SEQUENCES: &[Sequence] =
    &[
        row("addc.u32", "add.cc.u32 %t, %a, %b;\n    addc.u32 %d, %c, %c;", &[U32; 3], U32, |a, b, c, _| {
            word(2 * c + ((a + b) >> 32))
        }),
        row(
            "addc.cc.u32",
            "add.cc.u32 %t, %a, %b;\n    addc.cc.u32 %t, %c, %c;\n    addc.u32 %d, 0, 0;",
            &[U32; 3],
            U32,
            |a, b, c, _| (2 * c + ((a + b) >> 32)) >> 32,
        ),
        row("subc.u32", "sub.cc.u32 %t, %a, %b;\n    subc.u32 %d, %c, 0;", &[U32; 3], U32, |a, b, c, _| {
            word(c.wrapping_sub(u64::from(a < b)))
        }),
        row("addc.u64", "add.cc.u64 %w, %a, %b;\n    addc.u64 %d, 0, 0;", &[U64; 2], U64, |a, b, _, _| {
            u64::from(a.checked_add(b).is_none())
        }),
        row(
            "madc.hi.u32",
            "mad.lo.cc.u32 %t, %a, %b, %c;\n    madc.hi.u32 %d, %a, %b, 0;",
            &[U32; 3],
            U32,
            |a, b, c, _| word((a * b + c) >> 32),
        ),
        row("selp.b32", "setp.ne.u32 %p, %c, 0;\n    selp.b32 %d, %a, %b, %p;", &[B32; 3], B32, |a, b, c, _| {
            if c != 0 { a } else { b }
        }),
        row("selp.b64", "setp.ne.u64 %p, %c, 0;\n    selp.b64 %d, %a, %b, %p;", &[B64; 3], B64, |a, b, c, _| {
            if c != 0 { a } else { b }
        }),
        row(
            "setp.lt.and.s32",
            "setp.ne.u32 %q, %c, 0;\n    setp.lt.and.s32 %p, %a, %b, %q;\n    selp.u32 %d, 1, 0, %p;",
            &[S32; 3],
            U32,
            |a, b, c, _| u64::from((a as i32) < b as i32 && c != 0),
        ),
        row(
            "setp.lt.or.s32 with a complement",
            "setp.ne.u32 %q, %c, 0;\n    setp.lt.or.s32 %p|%guard, %a, %b, %q;\n    selp.u32 %d, 1, 0, %guard;",
            &[S32; 3],
            U32,
            |a, b, c, _| u64::from((a as i32) >= b as i32 || c != 0),
        ),
        row(
            "setp.gt.xor.u32",
            "setp.ne.u32 %q, %c, 0;\n    setp.gt.xor.u32 %p, %a, %b, !%q;\n    selp.u32 %d, 1, 0, %p;",
            &[U32; 3],
            U32,
            |a, b, c, _| u64::from((a > b) != (c == 0)),
        ),
        row("set.lt.u32.f32", "set.lt.u32.f32 %d, %a, %b;", &[F32; 2], U32, |a, b, _, _| {
            if single(a) < single(b) { 0xffff_ffff } else { 0 }
        }),
        row("set.geu.f32.f32", "set.geu.f32.f32 %d, %a, %b;", &[F32; 2], F32, |a, b, _, _| {
            if single(a) < single(b) { 0 } else { 0x3f80_0000 }
        }),
        row(
            "set.eq.s32.u32",
            "set.eq.s32.u32 %d, %a, %b;",
            &[U32; 2],
            S32,
            |a, b, _, _| {
                if a == b { 0xffff_ffff } else { 0 }
            },
        ),
        row("mov.b64 of a pair", "mov.b64 %d, {%a, %b};", &[B32; 2], B64, |a, b, _, _| (b << 32) | a),
        row("mov.b32 of a pair", "mov.b32 %d, {%a, %b};", &[B16; 2], B32, |a, b, _, _| (b << 16) | a),
        row("mov.b64 to a pair", "mov.b64 {%t, %u}, %a;\n    sub.u32 %d, %t, %u;", &[B64], B32, |a, _, _, _| {
            word(word(a).wrapping_sub(a >> 32))
        }),
        row(
            "xor.pred",
            "setp.ne.u32 %p, %a, 0;\n    setp.gt.s32 %q, %b, 0;\n    not.pred %q, %q;\n    xor.pred %p, %p, %q;\n    \
         selp.u32 %d, 1, 0, %p;",
            &[U32, S32],
            U32,
            |a, b, _, _| u64::from((a != 0) != (b as i32 <= 0)),
        ),
    ];
