//! Atomics and reductions of a warp.

use atlas_sim::alu::{Arithmetic, atom, redux};
use atlas_sim::program::AtomOp;
use atlas_sim::syntax::ast::Type;

#[test]
fn known_values() {
    let table: &[(AtomOp, Type, u64, u64, u64, u64)] = &[
        (AtomOp::Exch, Type::B64, 1, 2, 0, 2),
        (AtomOp::Cas, Type::B32, 5, 5, 7, 7),
        (AtomOp::Cas, Type::B32, 5, 6, 7, 5),
        (AtomOp::Cas, Type::B16, 0xffff, 0x1_ffff, 0x1_0001, 1),
        (AtomOp::Add, Type::U32, 0xffff_ffff, 2, 0, 1),
        (AtomOp::Add, Type::F32, 0x3f80_0000, 0x3f80_0000, 0, 0x4000_0000),
        (AtomOp::Add, Type::Bf16x2, 0x3f80_0000, 0x3f80_3f80, 0, 0x4000_3f80),
        (AtomOp::Add, Type::F64, 0x3ff0_0000_0000_0000, 0x3ff0_0000_0000_0000, 0, 0x4000_0000_0000_0000),
        (AtomOp::Inc, Type::U32, 3, 5, 0, 4),
        (AtomOp::Inc, Type::U32, 5, 5, 0, 0),
        (AtomOp::Inc, Type::U32, 0xffff_ffff, 0xffff_ffff, 0, 0),
        (AtomOp::Dec, Type::U32, 0, 5, 0, 5),
        (AtomOp::Dec, Type::U32, 9, 5, 0, 5),
        (AtomOp::Dec, Type::U32, 5, 5, 0, 4),
        (AtomOp::Min, Type::S32, 0xffff_ffff, 0, 0, 0xffff_ffff),
        (AtomOp::Max, Type::U64, u64::MAX, 0, 0, u64::MAX),
        (AtomOp::Max, Type::F16, 0x3c00, 0x7e00, 0, 0x3c00),
        (AtomOp::Xor, Type::B32, 3, 5, 0, 6),
    ];
    for (op, ty, old, b, c, expected) in table {
        let f = atom(*op, *ty, Arithmetic::Ieee).unwrap_or_else(|| panic!("no {op:?} of {ty:?}"));
        assert_eq!(f(*old, *b, *c, 0), *expected, "{op:?} {ty:?} {old:x} {b:x} {c:x}");
    }
}

#[test]
fn what_the_isa_has_not() {
    let illegal = [
        (AtomOp::Add, Type::S64),
        (AtomOp::Inc, Type::S32),
        (AtomOp::Exch, Type::F32),
        (AtomOp::Cas, Type::U32),
        (AtomOp::And, Type::U32),
        (AtomOp::Min, Type::F32),
        (AtomOp::Max, Type::B32),
    ];
    for (op, ty) in illegal {
        assert!(atom(op, ty, Arithmetic::Ieee).is_none(), "{op:?} {ty:?}");
    }
    assert!(atom(AtomOp::Add, Type::F64, Arithmetic::Exact).is_none());
}

#[test]
fn warps_reduce() {
    assert_eq!(redux("min", Type::S32).unwrap()(0xffff_ffff, 1, 0, 0), 0xffff_ffff);
    assert_eq!(redux("add", Type::U32).unwrap()(0xffff_ffff, 2, 0, 0), 1);
    assert_eq!(redux("xor", Type::B32).unwrap()(5, 3, 0, 0), 6);
    for (op, ty) in [("and", Type::U32), ("min", Type::B32), ("mul", Type::U32), ("add", Type::F32)] {
        assert!(redux(op, ty).is_none(), "{op} {ty:?}");
    }
}
