//! Fragments: each element in exactly one place, and the places as the ISA lists them.

use crate::program::MmaType;
use crate::tensor::WarpRegister;
use crate::tensor::fragment::{Fragment, LANES, Role};

/// Every operand of every shape: role, rows, columns, type, registers.
const OPERANDS: &[(Role, usize, usize, MmaType, usize)] = &[
    (Role::A, 16, 16, MmaType::Bf16, 4),
    (Role::A, 16, 8, MmaType::F16, 2),
    (Role::A, 16, 4, MmaType::Tf32, 2),
    (Role::A, 16, 8, MmaType::Tf32, 4),
    (Role::A, 8, 4, MmaType::F64, 1),
    (Role::A, 16, 4, MmaType::F64, 2),
    (Role::A, 16, 8, MmaType::F64, 4),
    (Role::A, 16, 16, MmaType::F64, 8),
    (Role::A, 8, 16, MmaType::S8, 1),
    (Role::A, 16, 16, MmaType::U8, 2),
    (Role::A, 16, 32, MmaType::E4m3, 4),
    (Role::B, 16, 8, MmaType::F16, 2),
    (Role::B, 8, 8, MmaType::Bf16, 1),
    (Role::B, 4, 8, MmaType::Tf32, 1),
    (Role::B, 8, 8, MmaType::Tf32, 2),
    (Role::B, 4, 8, MmaType::F64, 1),
    (Role::B, 8, 8, MmaType::F64, 2),
    (Role::B, 16, 8, MmaType::F64, 4),
    (Role::B, 16, 8, MmaType::S8, 1),
    (Role::B, 32, 8, MmaType::E5m2, 2),
    (Role::Accumulator, 16, 8, MmaType::F32, 4),
    (Role::Accumulator, 16, 8, MmaType::F16, 2),
    (Role::Accumulator, 16, 8, MmaType::S32, 4),
    (Role::Accumulator, 16, 8, MmaType::F64, 4),
    (Role::Accumulator, 8, 8, MmaType::S32, 2),
    (Role::Accumulator, 8, 8, MmaType::F64, 2),
    (Role::Accumulator, 16, 8 * 31, MmaType::F32, 124),
    (Role::Accumulator, 16, 256, MmaType::F16, 64),
];

#[test]
fn each_element_is_held_exactly_once() {
    for &(role, rows, columns, ty, registers) in OPERANDS {
        let fragment = Fragment::new(role, rows, columns, ty);
        assert_eq!(fragment.registers(), registers, "{role:?} {rows}x{columns} {ty:?}");
        let mut held = vec![0; rows * columns];
        for lane in 0..LANES {
            for register in 0..registers {
                for element in 0..fragment.per_register() {
                    let (row, column) = fragment.position(lane, register, element);
                    assert!(row < rows && column < columns, "{role:?} {rows}x{columns} {ty:?}");
                    held[row * columns + column] += 1;
                }
            }
        }
        assert!(held.iter().all(|&n| n == 1), "{role:?} {rows}x{columns} {ty:?}");
    }
}

/// Row and column of element `i` of a lane in group `g`, place `t`, as the ISA words them for one operand.
type Formula = fn(usize, usize, usize) -> (usize, usize);

const ISA: &[(Role, usize, usize, MmaType, Formula)] = &[
    (Role::A, 16, 16, MmaType::F16, |i, g, t| {
        let upper = (0..2).contains(&i) || (4..6).contains(&i);
        (if upper { g } else { g + 8 }, if i < 4 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 })
    }),
    (Role::B, 16, 8, MmaType::F16, |i, g, t| (if i < 2 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 }, g)),
    (Role::A, 16, 8, MmaType::Bf16, |i, g, t| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1))),
    (Role::B, 8, 8, MmaType::Bf16, |i, g, t| (t * 2 + i, g)),
    (Role::A, 16, 4, MmaType::Tf32, |i, g, t| (if i == 0 { g } else { g + 8 }, t)),
    (Role::A, 16, 8, MmaType::Tf32, |i, g, t| {
        (if i == 0 || i == 2 { g } else { g + 8 }, if i < 2 { t } else { t + 4 })
    }),
    (Role::B, 8, 8, MmaType::Tf32, |i, g, t| (if i == 0 { t } else { t + 4 }, g)),
    (Role::A, 8, 4, MmaType::F64, |_, g, t| (g, t)),
    (Role::B, 4, 8, MmaType::F64, |_, g, t| (t, g)),
    (Role::A, 16, 16, MmaType::F64, |i, g, t| (if i % 2 == 0 { g } else { g + 8 }, i / 2 * 4 + t)),
    (Role::B, 16, 8, MmaType::F64, |i, g, t| (t + i * 4, g)),
    (Role::A, 8, 16, MmaType::S8, |i, g, t| (g, t * 4 + i)),
    (Role::A, 16, 16, MmaType::U8, |i, g, t| (if i < 4 { g } else { g + 8 }, t * 4 + (i & 3))),
    (Role::A, 16, 32, MmaType::S8, |i, g, t| {
        let upper = (0..4).contains(&i) || (8..12).contains(&i);
        (if upper { g } else { g + 8 }, if i < 8 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 })
    }),
    (Role::B, 32, 8, MmaType::E4m3, |i, g, t| (if i < 4 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 }, g)),
    (Role::Accumulator, 16, 8, MmaType::F32, |i, g, t| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1))),
    (Role::Accumulator, 8, 8, MmaType::S32, |i, g, t| (g, t * 2 + (i & 1))),
    // One warp of wgmma: columns by eights, each as an m16n8 accumulator.
    (Role::Accumulator, 16, 64, MmaType::F32, |i, g, t| {
        (if i % 4 < 2 { g } else { g + 8 }, i / 4 * 8 + t * 2 + (i & 1))
    }),
    (Role::Accumulator, 16, 64, MmaType::F16, |i, g, t| {
        (if i % 4 < 2 { g } else { g + 8 }, i / 4 * 8 + t * 2 + (i & 1))
    }),
];

#[test]
fn positions_are_the_isa_s() {
    for &(role, rows, columns, ty, formula) in ISA {
        let fragment = Fragment::new(role, rows, columns, ty);
        let v = fragment.per_register();
        for lane in 0..LANES {
            for i in 0..fragment.registers() * v {
                let expected = formula(i, lane >> 2, lane % 4);
                assert_eq!(fragment.position(lane, i / v, i % v), expected, "{role:?} {rows}x{columns} {ty:?} {i}");
            }
        }
    }
}

#[test]
fn elements_go_in_and_out_of_registers() {
    for ty in [MmaType::E4m3, MmaType::F16, MmaType::Tf32, MmaType::F64] {
        let fragment = Fragment::new(Role::A, 16, 16, ty);
        let register = 0x0123_4567_89ab_cdef & (u64::MAX >> if ty == MmaType::F64 { 0 } else { 32 });
        let rebuilt =
            (0..fragment.per_register()).fold(0, |r, e| r | fragment.insert(fragment.extract(register, e), e));
        assert_eq!(rebuilt, register, "{ty:?}");
    }
}

#[test]
fn scattering_and_gathering_follow_the_positions() {
    for &(role, rows, columns, ty, registers) in OPERANDS {
        let fragment = Fragment::new(role, rows, columns, ty);
        let v = fragment.per_register();
        // Each element holds its index, as far as its bits go.
        let bits = |index: usize| index as u64 & (u64::MAX >> (64 - 32 / v.max(1)));
        let index = |lane, register, e| {
            let (row, column) = fragment.position(lane, register, e);
            row * columns + column
        };
        let value = |lane, register| (0..v).fold(0, |r, e| r | fragment.insert(bits(index(lane, register, e)), e));
        let expected: Vec<WarpRegister> =
            (0..registers).map(|register| std::array::from_fn(|lane| value(lane, register))).collect();
        assert_eq!(fragment.gather((columns, 1), bits), expected, "{role:?} {rows}x{columns} {ty:?}");
        let mut seen = 0;
        fragment.scatter(&expected, (columns, 1), |index, element| {
            assert_eq!(element, bits(index), "{role:?} {rows}x{columns} {ty:?}");
            seen += 1;
        });
        assert_eq!(seen, rows * columns);
    }
}
