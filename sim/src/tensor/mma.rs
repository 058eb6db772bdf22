//! `mma.sync`: the product of two register fragments, plus a third.

use crate::alu::Arithmetic;
use crate::fault::{Fault, FaultKind, Result};
use crate::program::{Mma, MmaType};
use crate::tensor::WarpRegister;
use crate::tensor::fragment::{Fragment, Role};
use crate::tensor::product::{
    self, DoubleElement, FloatElement, IntegerElement, NumberSystem, PairElement, Rounding, System,
};

/// Largest m, n and k of any shape.
const MAX_M: usize = 16;
const MAX_N: usize = 8;
const MAX_K: usize = 32;

/// Operand types that can be multiplied, with their shapes and the types that both c and d may have.
struct MmaFamily {
    operands: &'static [MmaType],
    shapes: &'static [(u16, u16, u16)],
    accumulators: &'static [MmaType],
    /// True if A and B may differ in type.
    mixed: bool,
}

/// Everything that `mma` computes, except sparsity, sub-byte types and sm_70's m8n8k4.
const FAMILIES: &[MmaFamily] = &[
    MmaFamily {
        operands: &[MmaType::F16],
        shapes: &[(16, 8, 8), (16, 8, 16)],
        accumulators: &[MmaType::F16, MmaType::F32],
        mixed: false,
    },
    MmaFamily {
        operands: &[MmaType::Bf16],
        shapes: &[(16, 8, 8), (16, 8, 16)],
        accumulators: &[MmaType::F32],
        mixed: false,
    },
    MmaFamily {
        operands: &[MmaType::Tf32],
        shapes: &[(16, 8, 4), (16, 8, 8)],
        accumulators: &[MmaType::F32],
        mixed: false,
    },
    MmaFamily {
        operands: &[MmaType::F64],
        shapes: &[(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)],
        accumulators: &[MmaType::F64],
        mixed: false,
    },
    MmaFamily {
        operands: &[MmaType::S8, MmaType::U8],
        shapes: &[(8, 8, 16), (16, 8, 16), (16, 8, 32)],
        accumulators: &[MmaType::S32],
        mixed: true,
    },
    MmaFamily {
        operands: &[MmaType::E4m3, MmaType::E5m2],
        shapes: &[(16, 8, 16), (16, 8, 32)],
        accumulators: &[MmaType::F16, MmaType::F32],
        mixed: true,
    },
];

/// The fragments of an instruction: A, B, C and D.
pub fn fragments(spec: &Mma) -> [Fragment; 4] {
    let (m, n, k) = (usize::from(spec.m), usize::from(spec.n), usize::from(spec.k));
    [
        Fragment::new(Role::A, m, k, spec.a_type),
        Fragment::new(Role::B, k, n, spec.b_type),
        Fragment::new(Role::Accumulator, m, n, spec.c_type),
        Fragment::new(Role::Accumulator, m, n, spec.d_type),
    ]
}

/// Checks that the instruction exists in this arithmetic, and that it has as many registers as its shape needs.
pub fn check(spec: &Mma, arithmetic: Arithmetic) -> Result<()> {
    let known = FAMILIES.iter().any(|family| {
        family.operands.contains(&spec.a_type)
            && family.operands.contains(&spec.b_type)
            && (family.mixed || spec.a_type == spec.b_type)
            && family.shapes.contains(&(spec.m, spec.n, spec.k))
            && family.accumulators.contains(&spec.c_type)
            && spec.c_type == spec.d_type
    });
    if !known {
        let Mma { m, n, k, a_type, b_type, c_type, d_type, .. } = spec;
        let message =
            format!("no mma of shape m{m}n{n}k{k} has types {d_type:?} = {a_type:?} * {b_type:?} + {c_type:?}");
        return Err(Fault::new(FaultKind::Illegal, message));
    }
    System::check(spec.a_type, arithmetic)?;
    let given = [spec.a.len(), spec.b.len(), spec.c.len(), spec.d.len()];
    for ((name, fragment), given) in ["a", "b", "c", "d"].iter().zip(fragments(spec)).zip(given) {
        let needed = fragment.registers();
        if given != needed {
            let message = format!("mma operand {name} has {given} registers, its shape needs {needed}");
            return Err(Fault::new(FaultKind::Illegal, message));
        }
    }
    Ok(())
}

/// The registers of d. For instructions that `check` refuses, missing registers read as zeros.
pub fn mma(
    spec: &Mma,
    a: &[WarpRegister],
    b: &[WarpRegister],
    c: &[WarpRegister],
    arithmetic: Arithmetic,
) -> Vec<WarpRegister> {
    match System::of(spec.a_type, arithmetic) {
        System::Float => multiply::<FloatElement>(spec, a, b, c),
        System::Double => multiply::<DoubleElement>(spec, a, b, c),
        System::Integer => multiply::<IntegerElement>(spec, a, b, c),
        System::Pair => multiply::<PairElement>(spec, a, b, c),
    }
}

fn multiply<T: NumberSystem>(
    spec: &Mma,
    a: &[WarpRegister],
    b: &[WarpRegister],
    c: &[WarpRegister],
) -> Vec<WarpRegister> {
    let [a_fragment, b_fragment, c_fragment, d_fragment] = fragments(spec);
    let a_rows: [T; MAX_M * MAX_K] = operands(&a_fragment, a, MAX_K, spec.a_type);
    let b_panel: [T; MAX_K * MAX_N] = operands(&b_fragment, b, MAX_N, spec.b_type);
    let mut values = [0; MAX_M * MAX_N];
    c_fragment.scatter(c, (MAX_N, 1), |index, bits| values[index % (MAX_M * MAX_N)] = bits);
    let (b_panel, _) = b_panel.as_chunks();
    let (panels, _) = values.as_chunks_mut();
    let k = usize::from(spec.k).min(MAX_K);
    let rounding = Rounding { c_type: spec.c_type, d_type: spec.d_type, saturate: spec.saturate };
    for (a, values) in a_rows.chunks_exact(MAX_K).zip(panels).take(spec.m.into()) {
        *values = product::panel(&a[..k], &b_panel[..k], *values, rounding);
    }
    d_fragment.gather((MAX_N, 1), |index| values[index % (MAX_M * MAX_N)])
}

/// A matrix with this many columns, row by row. Indices wrap instead of being checked, because shapes that `check` accepts
/// never leave the array.
#[inline]
fn operands<T: NumberSystem, const SIZE: usize>(
    fragment: &Fragment,
    registers: &[WarpRegister],
    columns: usize,
    ty: MmaType,
) -> [T; SIZE] {
    let mut bits = [0; SIZE];
    fragment.scatter(registers, (columns, 1), |index, element| bits[index % SIZE] = element);
    let mut values = [T::ZERO; SIZE];
    T::operands(ty, &bits, &mut values);
    values
}
