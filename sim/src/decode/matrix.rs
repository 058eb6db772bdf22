//! `mma.sync`, `ldmatrix`, `stmatrix`.

use super::cursor::Cursor;
use crate::fault::Result;
use crate::program::{Mma, MmaType, Op};
use crate::syntax::ast::{Space, Type};

/// Element types of matrices by their words.
pub(super) const TYPES: &[(&str, MmaType)] = &[
    ("f16", MmaType::F16),
    ("bf16", MmaType::Bf16),
    ("tf32", MmaType::Tf32),
    ("f32", MmaType::F32),
    ("f64", MmaType::F64),
    ("e4m3", MmaType::E4m3),
    ("e5m2", MmaType::E5m2),
    ("s8", MmaType::S8),
    ("u8", MmaType::U8),
    ("s32", MmaType::S32),
];

/// Bits of an element.
pub(super) fn bits(ty: MmaType) -> usize {
    match ty {
        MmaType::E4m3 | MmaType::E5m2 | MmaType::S8 | MmaType::U8 => 8,
        MmaType::F16 | MmaType::Bf16 => 16,
        MmaType::Tf32 | MmaType::F32 | MmaType::S32 => 32,
        MmaType::F64 => 64,
    }
}

/// The next modifier, which must be an element type.
pub(super) fn element(c: &mut Cursor<'_>) -> Result<MmaType> {
    let word = c.word("an element type")?;
    let found = TYPES.iter().find(|row| row.0 == word);
    found.map(|row| row.1).ok_or_else(|| c.error(format!("`.{word}` is no element type of a matrix")))
}

/// The numbers of `m16n8k16`.
pub(super) fn shape(c: &mut Cursor<'_>) -> Result<MmaShape> {
    let word = c.word("the shape")?;
    let split = || {
        let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some((m.parse().ok()?, n.parse().ok()?, k.parse().ok()?))
    };
    split().ok_or_else(|| c.error(format!("`.{word}` is no shape of a product")))
}

/// The kinds of product that share their shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProductKind {
    Half,
    Brain,
    Tf32,
    Eight,
    Integer,
    Double,
}

/// m, n, k.
type MmaShape = (u16, u16, u16);

const SHAPES: &[(ProductKind, &[MmaShape])] = &[
    (ProductKind::Half, &[(16, 8, 8), (16, 8, 16)]),
    (ProductKind::Brain, &[(16, 8, 8), (16, 8, 16)]),
    (ProductKind::Tf32, &[(16, 8, 4), (16, 8, 8)]),
    (ProductKind::Eight, &[(16, 8, 16), (16, 8, 32)]),
    (ProductKind::Integer, &[(8, 8, 16), (16, 8, 16), (16, 8, 32)]),
    (ProductKind::Double, &[(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)]),
];

fn family(d: MmaType, a: MmaType, b: MmaType, c: MmaType) -> Option<ProductKind> {
    use MmaType::{Bf16, E4m3, E5m2, F16, F32, F64, S8, S32, Tf32, U8};
    Some(match (a, b, d, c) {
        (F16, F16, F16 | F32, F16 | F32) if c == d => ProductKind::Half,
        (Bf16, Bf16, F32, F32) => ProductKind::Brain,
        (Tf32, Tf32, F32, F32) => ProductKind::Tf32,
        (E4m3 | E5m2, E4m3 | E5m2, F16 | F32, F16 | F32) if c == d => ProductKind::Eight,
        (S8 | U8, S8 | U8, S32, S32) => ProductKind::Integer,
        (F64, F64, F64, F64) => ProductKind::Double,
        _ => return None,
    })
}

/// `mma.sync`.
pub(super) fn mma(c: &mut Cursor<'_>) -> Result<Op> {
    c.need_all(&["sync", "aligned"])?;
    let (m, n, k) = shape(c)?;
    c.need_all(&["row", "col"])?;
    let saturate = c.take("satfinite");
    let (d_type, a_type) = (element(c)?, element(c)?);
    let (b_type, c_type) = (element(c)?, element(c)?);
    let family = family(d_type, a_type, b_type, c_type).ok_or_else(|| c.unknown())?;
    let known = SHAPES.iter().any(|(f, shapes)| *f == family && shapes.contains(&(m, n, k)));
    if !known || (saturate && family != ProductKind::Integer) {
        return Err(c.unknown());
    }
    let register = if family == ProductKind::Double { 64 } else { 32 };
    let ty = if register == 64 { Type::F64 } else { Type::B32 };
    let of = |rows: u16, columns: u16, element: MmaType| {
        usize::from(rows) * usize::from(columns) * bits(element) / 32 / register as usize
    };
    let d = c.dst_list(of(m, n, d_type), register)?;
    let (a, b) = (c.src_list(of(m, k, a_type), ty)?, c.src_list(of(k, n, b_type), ty)?);
    let sum = if c_type == MmaType::F32 { Type::F32 } else { ty };
    let addend = c.src_list(of(m, n, c_type), sum)?;
    Ok(Op::Mma(Box::new(Mma { m, n, k, a_type, b_type, c_type, d_type, saturate, d, a, b, c: addend })))
}

/// The common modifiers of `ldmatrix` and `stmatrix`: number of matrices, transposed, space.
fn tiles(c: &mut Cursor<'_>) -> Result<(usize, bool, Space)> {
    c.need_all(&["sync", "aligned", "m8n8"])?;
    let count = c.choice("the number of matrices", &[("x1", 1), ("x2", 2), ("x4", 4)])?;
    let transposed = c.take("trans");
    let space = c.space();
    if !matches!(space, Space::Shared | Space::Generic) {
        return Err(c.unknown());
    }
    c.need("b16")?;
    Ok((count, transposed, space))
}

/// `ldmatrix`.
pub(super) fn ldmatrix(c: &mut Cursor<'_>) -> Result<Op> {
    let (count, transposed, space) = tiles(c)?;
    Ok(Op::LdMatrix { dst: c.dst_list(count, 32)?, addr: c.addr(space)?, space, transposed })
}

/// `stmatrix`.
pub(super) fn stmatrix(c: &mut Cursor<'_>) -> Result<Op> {
    let (count, transposed, space) = tiles(c)?;
    let addr = c.addr(space)?;
    Ok(Op::StMatrix { src: c.src_list(count, Type::B32)?, addr, space, transposed })
}
