//! `wgmma.mma_async`: 64 rows times n columns by a warpgroup, each of whose four warps computes 16 rows.

use crate::alu::Arithmetic;
use crate::fault::{Fault, FaultKind, Result};
use crate::program::{MmaType, Wgmma, WgmmaA};
use crate::tensor::WarpRegister;
use crate::tensor::descriptor::{Descriptor, Major};
use crate::tensor::element;
use crate::tensor::fragment::{Fragment, Role};
use crate::tensor::layout;
use crate::tensor::product::{self, FloatElement, IntegerElement, NumberSystem, PairElement, Panel, Rounding, System};

/// Rows of the product.
pub const M: u32 = 64;

/// Rows that one warp computes.
pub const WARP_ROWS: usize = 16;

/// The operand types and the accumulators of a product.
const FAMILIES: &[(&[MmaType], u16, &[MmaType])] = &[
    (&[MmaType::F16], 16, &[MmaType::F16, MmaType::F32]),
    (&[MmaType::Bf16], 16, &[MmaType::F32]),
    (&[MmaType::Tf32], 8, &[MmaType::F32]),
    (&[MmaType::E4m3, MmaType::E5m2], 32, &[MmaType::F16, MmaType::F32]),
    (&[MmaType::S8, MmaType::U8], 32, &[MmaType::S32]),
];

/// Layout of the accumulators over the registers of each warp, for its own 16 rows.
pub fn accumulator(spec: &Wgmma) -> Fragment {
    Fragment::new(Role::Accumulator, WARP_ROWS, spec.n.into(), spec.d_type)
}

/// Layout of A over the registers of each warp, for its own 16 rows.
pub fn left(spec: &Wgmma) -> Fragment {
    Fragment::new(Role::A, WARP_ROWS, spec.k.into(), spec.a_type)
}

/// Checks that the instruction exists in this arithmetic, and that it has as many registers as its shape needs.
pub fn check(spec: &Wgmma, arithmetic: Arithmetic) -> Result<()> {
    let illegal = |message: String| Err(Fault::new(FaultKind::Illegal, message));
    let Wgmma { n, k, a_type, b_type, d_type, .. } = *spec;
    let family = FAMILIES.iter().find(|(operands, ..)| operands.contains(&a_type));
    let mixed = element::bits(a_type) == 8;
    let types = family.is_some_and(|(operands, family_k, accumulators)| {
        let pair = operands.contains(&b_type) && (mixed || a_type == b_type);
        pair && *family_k == k && accumulators.contains(&d_type)
    });
    // Integers have no n of 40, 56 and so on: above 24 only multiples of 16.
    let step = if element::is_integer(a_type) && n > 24 { 16 } else { 8 };
    if !types || !(8..=256).contains(&n) || n % step != 0 {
        return illegal(format!("no wgmma of shape m64n{n}k{k} has types {d_type:?} += {a_type:?} * {b_type:?}"));
    }
    System::check(a_type, arithmetic)?;
    if spec.d.len() != accumulator(spec).registers() {
        return illegal(format!(
            "wgmma of shape m64n{n}k{k} has {} accumulators, needs {}",
            spec.d.len(),
            accumulator(spec).registers()
        ));
    }
    let transposed = match &spec.a {
        WgmmaA::Registers(registers) if registers.len() != left(spec).registers() => {
            return illegal(format!("wgmma has {} registers of a, needs {}", registers.len(), left(spec).registers()));
        }
        WgmmaA::Registers(_) => spec.b_transposed,
        WgmmaA::Descriptor { transposed, .. } => spec.b_transposed || *transposed,
    };
    if transposed && element::bits(a_type) != 16 {
        return illegal(format!("wgmma operands of type {a_type:?} cannot be transposed"));
    }
    Ok(())
}

/// An operand as numbers: panels of eight rows, each stored along k.
#[derive(Clone, Debug)]
pub struct WgmmaOperand(Values);

#[derive(Clone, Debug)]
enum Values {
    Float(Panels<FloatElement>),
    Integer(Panels<IntegerElement>),
    Pair(Panels<PairElement>),
}

/// The panel of rows `8 p..8 p + 8` is `values[p * k..(p + 1) * k]`.
#[derive(Clone, Debug)]
struct Panels<T> {
    k: usize,
    values: Vec<Panel<T>>,
}

impl<T: NumberSystem> Panels<T> {
    fn new(rows: usize, k: usize) -> Panels<T> {
        Panels { k, values: vec![[T::ZERO; 8]; rows / 8 * k] }
    }

    fn put(&mut self, row: usize, k: usize, value: T) {
        if let Some(place) = self.values.get_mut(row / 8 * self.k + k).and_then(|p| p.get_mut(row % 8)) {
            *place = value;
        }
    }

    /// One row along k.
    fn row(&self, row: usize) -> impl Iterator<Item = T> {
        let start = row / 8 * self.k;
        let panel = self.values.get(start..start + self.k).unwrap_or_default();
        panel.iter().filter_map(move |p| p.get(row % 8).copied())
    }

    fn from_shared(place: &SharedOperand, negate: bool, read: &mut Read<'_>) -> Result<Panels<T>> {
        let element_bits = element::bits(place.ty);
        let bytes = (element_bits / 8) as usize;
        let mut panels = Panels::new(place.rows as usize, (8 * layout::K_BYTES / element_bits) as usize);
        for (address, row, k) in layout::chunks(&place.descriptor, place.major, element_bits, place.rows) {
            for (i, element) in read(address)?.chunks_exact(bytes).enumerate() {
                let bits = element.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
                let value = T::operand(place.ty, bits);
                let (row, k) = (row as usize, k as usize);
                let (row, k) = if place.major == Major::K { (row, k + i) } else { (row + i, k) };
                panels.put(row, k, if negate { value.negate() } else { value });
            }
        }
        Ok(panels)
    }

    fn from_registers(
        fragment: &Fragment,
        ty: MmaType,
        k: usize,
        negate: bool,
        registers: &[WarpRegister],
    ) -> Panels<T> {
        let mut panels = Panels::new(WARP_ROWS, k);
        fragment.scatter(registers, (k, 1), |index, bits| {
            let value = T::operand(ty, bits);
            panels.put(index / k, index % k, if negate { value.negate() } else { value });
        });
        panels
    }
}

/// Reads the 16 bytes at a shared address.
pub type Read<'a> = dyn FnMut(u32) -> Result<[u8; 16]> + 'a;

/// An operand in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedOperand {
    pub descriptor: Descriptor,
    pub major: Major,
    pub ty: MmaType,
    /// 64 for A, n for B.
    pub rows: u32,
}

impl SharedOperand {
    /// The place of A, if it comes from a descriptor with these bits.
    pub fn of_a(spec: &Wgmma, bits: u64) -> Result<SharedOperand> {
        let transposed = matches!(spec.a, WgmmaA::Descriptor { transposed: true, .. });
        SharedOperand::new(bits, transposed, spec.a_type, M)
    }

    /// The place of B.
    pub fn of_b(spec: &Wgmma, bits: u64) -> Result<SharedOperand> {
        SharedOperand::new(bits, spec.b_transposed, spec.b_type, spec.n.into())
    }

    fn new(bits: u64, transposed: bool, ty: MmaType, rows: u32) -> Result<SharedOperand> {
        let descriptor = Descriptor::decode(bits)?;
        let major = if transposed { Major::Mn } else { Major::K };
        layout::check(&descriptor, major, element::bits(ty), rows)?;
        Ok(SharedOperand { descriptor, major, ty, rows })
    }

    /// The chunks of its core matrices, eight of each.
    pub fn core_matrices(&self) -> Vec<u32> {
        let mut chunks: Vec<(u32, u32, u32)> =
            layout::chunks(&self.descriptor, self.major, element::bits(self.ty), self.rows).collect();
        if self.major == Major::K {
            chunks.sort_unstable_by_key(|&(_, row, k)| (row / 8, k, row));
        }
        chunks.into_iter().map(|chunk| chunk.0).collect()
    }

    /// The bytes of shared memory that the operand occupies.
    pub fn ranges(&self) -> Vec<std::ops::Range<u32>> {
        layout::operand_ranges(&self.descriptor, self.major, element::bits(self.ty), self.rows)
    }
}

impl WgmmaOperand {
    /// Reads an operand from shared memory, for all four warps.
    pub fn from_shared(
        place: &SharedOperand,
        negate: bool,
        arithmetic: Arithmetic,
        read: &mut Read<'_>,
    ) -> Result<WgmmaOperand> {
        Ok(WgmmaOperand(match System::of(place.ty, arithmetic) {
            System::Integer => Values::Integer(Panels::from_shared(place, negate, read)?),
            System::Pair => Values::Pair(Panels::from_shared(place, negate, read)?),
            _ => Values::Float(Panels::from_shared(place, negate, read)?),
        }))
    }

    /// The 16 rows of A that one warp holds in registers.
    pub fn from_registers(spec: &Wgmma, arithmetic: Arithmetic, registers: &[WarpRegister]) -> WgmmaOperand {
        let (fragment, ty, k, negate) = (left(spec), spec.a_type, spec.k.into(), spec.negate_a);
        WgmmaOperand(match System::of(ty, arithmetic) {
            System::Integer => Values::Integer(Panels::from_registers(&fragment, ty, k, negate, registers)),
            System::Pair => Values::Pair(Panels::from_registers(&fragment, ty, k, negate, registers)),
            _ => Values::Float(Panels::from_registers(&fragment, ty, k, negate, registers)),
        })
    }
}

/// The accumulators of one warp after the product of rows `first_row..first_row + 16` of A with B, given those before.
///
/// `first_row` is 16 times the warp's rank in its warpgroup where A is in shared memory, and 0 where it is in
/// registers.
pub fn wgmma(
    spec: &Wgmma,
    first_row: usize,
    a: &WgmmaOperand,
    b: &WgmmaOperand,
    scale_d: bool,
    d: &[WarpRegister],
) -> Result<Vec<WarpRegister>> {
    match (&a.0, &b.0) {
        (Values::Float(a), Values::Float(b)) => Ok(multiply(spec, first_row, a, b, scale_d, d)),
        (Values::Integer(a), Values::Integer(b)) => Ok(multiply(spec, first_row, a, b, scale_d, d)),
        (Values::Pair(a), Values::Pair(b)) => Ok(multiply(spec, first_row, a, b, scale_d, d)),
        _ => Err(Fault::new(FaultKind::Illegal, "wgmma operands of different kinds")),
    }
}

fn multiply<T: NumberSystem>(
    spec: &Wgmma,
    first_row: usize,
    a: &Panels<T>,
    b: &Panels<T>,
    scale_d: bool,
    d: &[WarpRegister],
) -> Vec<WarpRegister> {
    let (fragment, n) = (accumulator(spec), usize::from(spec.n).next_multiple_of(8).max(8));
    let rounding = Rounding { c_type: spec.d_type, d_type: spec.d_type, saturate: false };
    let mut values = vec![0; WARP_ROWS * n];
    if scale_d {
        fragment.scatter(d, (n, 1), |index, bits| {
            if let Some(value) = values.get_mut(index) {
                *value = bits;
            }
        });
    }
    for (row, values) in values.chunks_exact_mut(n).enumerate() {
        let mut a_row = [T::ZERO; layout::K_BYTES as usize];
        a_row.iter_mut().zip(a.row(first_row + row)).for_each(|(place, value)| *place = value);
        let (panels, _) = values.as_chunks_mut();
        for (values, panel) in panels.iter_mut().zip(b.values.chunks(b.k.max(1))) {
            *values = product::panel(&a_row, panel, *values, rounding);
        }
    }
    fragment.gather((n, 1), |index| values.get(index).copied().unwrap_or(0))
}
