//! Types by their suffix, and their sizes.

use crate::syntax::ast::Type;

/// Suffix, type, bits.
const TABLE: &[(&str, Type, u32)] = &[
    ("pred", Type::Pred, 1),
    ("b8", Type::B8, 8),
    ("b16", Type::B16, 16),
    ("b32", Type::B32, 32),
    ("b64", Type::B64, 64),
    ("b128", Type::B128, 128),
    ("u8", Type::U8, 8),
    ("u16", Type::U16, 16),
    ("u32", Type::U32, 32),
    ("u64", Type::U64, 64),
    ("s8", Type::S8, 8),
    ("s16", Type::S16, 16),
    ("s32", Type::S32, 32),
    ("s64", Type::S64, 64),
    ("f16", Type::F16, 16),
    ("f16x2", Type::F16x2, 32),
    ("bf16", Type::Bf16, 16),
    ("bf16x2", Type::Bf16x2, 32),
    ("f32", Type::F32, 32),
    ("f32x2", Type::F32x2, 64),
    ("f64", Type::F64, 64),
    ("tf32", Type::Tf32, 32),
    ("e4m3", Type::E4m3, 8),
    ("e4m3x2", Type::E4m3x2, 16),
    ("e5m2", Type::E5m2, 8),
    ("e5m2x2", Type::E5m2x2, 16),
];

impl Type {
    /// The type that a suffix without its dot names.
    pub fn from_suffix(suffix: &str) -> Option<Type> {
        TABLE.iter().find(|row| row.0 == suffix).map(|row| row.1)
    }

    /// The suffix without its dot.
    pub fn suffix(self) -> &'static str {
        TABLE.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }

    /// Width in bits; 1 for predicates.
    pub fn bits(self) -> u32 {
        TABLE.iter().find(|row| row.1 == self).map_or(0, |row| row.2)
    }

    /// Width in bytes in memory.
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// `.s8` to `.s64`.
    pub fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    /// Floating point, packed forms included.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            Type::F16
                | Type::F16x2
                | Type::Bf16
                | Type::Bf16x2
                | Type::F32
                | Type::F32x2
                | Type::F64
                | Type::Tf32
                | Type::E4m3
                | Type::E4m3x2
                | Type::E5m2
                | Type::E5m2x2
        )
    }
}
