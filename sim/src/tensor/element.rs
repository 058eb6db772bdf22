//! Elements of matrix operands: their widths, and their bits as numbers.

use crate::program::MmaType;

/// Bits that an element takes in a register or in memory.
pub fn bits(ty: MmaType) -> u32 {
    match ty {
        MmaType::E4m3 | MmaType::E5m2 | MmaType::S8 | MmaType::U8 => 8,
        MmaType::F16 | MmaType::Bf16 => 16,
        MmaType::Tf32 | MmaType::F32 | MmaType::S32 => 32,
        MmaType::F64 => 64,
    }
}

/// Whether elements are integers.
pub fn is_integer(ty: MmaType) -> bool {
    matches!(ty, MmaType::S8 | MmaType::U8 | MmaType::S32)
}

/// The floating-point value of an element. Every type fits `f64` exactly, and integers have their value too.
#[inline(always)]
pub fn to_f64(ty: MmaType, bits: u64) -> f64 {
    match ty {
        MmaType::F16 => f16_to_f32(bits as u16).into(),
        MmaType::Bf16 => f32::from_bits((bits as u32) << 16).into(),
        // The tensor core reads the upper 19 bits of a tf32 operand, whether or not `cvt` cleared the rest.
        MmaType::Tf32 => f32::from_bits(bits as u32 & 0xffff_e000).into(),
        MmaType::F32 => f32::from_bits(bits as u32).into(),
        MmaType::F64 => f64::from_bits(bits),
        MmaType::E4m3 => e4m3_to_f32(bits as u8).into(),
        // e5m2 is the upper byte of an f16.
        MmaType::E5m2 => f16_to_f32((bits as u16) << 8).into(),
        MmaType::S8 | MmaType::U8 | MmaType::S32 => to_i32(ty, bits).into(),
    }
}

/// f16 as f32: the fields are moved to their places, and the exponent's bias corrected by a product that also makes subnormals
/// normal. `half` does the same, but queries the CPU's features first, which is too slow to do for every operand.
#[inline]
fn f16_to_f32(bits: u16) -> f32 {
    let (sign, magnitude) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff) << 13);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    let scaled = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    f32::from_bits(scaled.to_bits() | special | sign)
}

/// e4m3 in the same way: exponent bias 7, no infinities, all ones is NaN.
#[inline]
fn e4m3_to_f32(bits: u8) -> f32 {
    let (sign, magnitude) = (u32::from(bits & 0x80) << 24, u32::from(bits & 0x7f) << 20);
    let special = if bits & 0x7f == 0x7f { 0x7fc0_0000 } else { 0 };
    let scaled = f32::from_bits(magnitude) * f32::from_bits((127 + 120) << 23);
    f32::from_bits(scaled.to_bits() | special | sign)
}

/// The value of an integer element; for another type, its lower bits.
pub fn to_i32(ty: MmaType, bits: u64) -> i32 {
    match ty {
        MmaType::S8 => i32::from(bits as i8),
        MmaType::U8 => i32::from(bits as u8),
        _ => bits as i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_those_of_the_crate() {
        for bits in 0..=u16::MAX {
            for (ty, value) in [
                (MmaType::F16, half::f16::from_bits(bits).to_f64()),
                (MmaType::Bf16, half::bf16::from_bits(bits).to_f64()),
            ] {
                let found = to_f64(ty, bits.into());
                assert!(found == value || found.is_nan() && value.is_nan(), "{ty:?} {bits:#x}");
                assert_eq!(found.is_sign_negative(), value.is_sign_negative(), "{ty:?} {bits:#x}");
            }
        }
    }

    /// e4m3 from its definition.
    #[test]
    fn fp8_by_fields() {
        for bits in (0..=0xff).filter(|b| b & 0x7f != 0x7f) {
            let (exponent, mantissa) = ((bits >> 3 & 15) as i32, (bits & 7) as f64);
            let magnitude =
                if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
            let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
            assert_eq!(to_f64(MmaType::E4m3, bits), sign * magnitude, "{bits:#x}");
        }
    }

    #[test]
    fn landmarks() {
        let cases = [
            (MmaType::E4m3, 0x7e, 448.0),
            (MmaType::E4m3, 0x01, 1.0 / 512.0),
            (MmaType::E4m3, 0x08, 1.0 / 64.0),
            (MmaType::E4m3, 0xb8, -1.0),
            (MmaType::E5m2, 0x7b, 57344.0),
            (MmaType::E5m2, 0x3c, 1.0),
            (MmaType::E5m2, 0x01, 1.0 / 65536.0),
            (MmaType::F16, 0x0001, 5.960464477539063e-8),
            (MmaType::Bf16, 0xbfc0, -1.5),
            (MmaType::Tf32, 0x3f80_1fff, 1.0),
            (MmaType::Tf32, 0x3f80_2000, 1.0009765625),
            (MmaType::S8, 0xff, -1.0),
            (MmaType::U8, 0xff, 255.0),
        ];
        for (ty, bits, value) in cases {
            assert_eq!(to_f64(ty, bits), value, "{ty:?} {bits:#x}");
        }
        assert!(to_f64(MmaType::E4m3, 0x7f).is_nan() && to_f64(MmaType::E4m3, 0xff).is_nan());
        assert!(to_f64(MmaType::E5m2, 0x7c).is_infinite() && to_f64(MmaType::E5m2, 0x7d).is_nan());
    }
}
