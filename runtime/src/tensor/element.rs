//! Host element types: the Rust type that corresponds to each dtype of a tensor.

use atlas_dsl::DType;
use atlas_dsl::rounding::{to_bf16, to_f16};
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose values a tensor can hold. Sealed: f64, f32, f16, bf16, i64, i32, i16, i8, u16, u8, and the floats of
/// 8 bits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of a tensor's elements",
    note = "they are `f64`, `f32`, `f16`, `bf16`, `i64`, `i32`, `i16`, `i8`, `u16`, `u8`, `F8E4M3` and `F8E5M2`: `u32` and `u64` are kept as `i32` and `i64` of the same bits, and `bool` as `u8`"
)]
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// The dtype of this type.
    const DTYPE: DType;

    /// The value nearest to `x`, ties to even; whole-number types truncate and saturate, and floats of 8 bits saturate.
    fn from_f64(x: f64) -> Self;

    /// The value as an f64, exact except for large i64.
    fn to_f64(self) -> f64;
}

macro_rules! elements {
    ($($ty:ty = $dtype:ident, $from:expr, $to:expr;)+) => {$(
        impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
            fn from_f64(x: f64) -> $ty {
                let from: fn(f64) -> $ty = $from;
                from(x)
            }
            fn to_f64(self) -> f64 {
                let to: fn($ty) -> f64 = $to;
                to(self)
            }
        }
    )+};
}

elements! {
    f64 = F64, |x| x, |x| x;
    f32 = F32, |x| x as f32, f64::from;
    f16 = F16, to_f16, f16::to_f64;
    bf16 = Bf16, to_bf16, bf16::to_f64;
    i64 = I64, |x| x as i64, |x| x as f64;
    i32 = I32, |x| x as i32, f64::from;
    i16 = I16, |x| x as i16, f64::from;
    i8 = I8, |x| x as i8, f64::from;
    u16 = U16, |x| x as u16, f64::from;
    u8 = U8, |x| x as u8, f64::from;
    F8E4M3 = F8E4M3, |x| F8E4M3::from_bits(encoded(DType::F8E4M3, x)), |x| decoded(DType::F8E4M3, x.to_bits());
    F8E5M2 = F8E5M2, |x| F8E5M2::from_bits(encoded(DType::F8E5M2, x)), |x| decoded(DType::F8E5M2, x.to_bits());
}

/// The code of a number as a float of 8 bits, as kernels convert it.
fn encoded(dtype: DType, x: f64) -> u8 {
    dtype.fp8().map_or(0, |fp8| fp8.encode(x))
}

/// The number of a code.
fn decoded(dtype: DType, code: u8) -> f64 {
    dtype.fp8().map_or(f64::NAN, |fp8| fp8.decode(code))
}

/// The bytes of a slice of elements, in native byte order.
pub(crate) fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: `Element` is sealed to number types without padding; the length is the slice's own, in bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The writable bytes of a slice of elements.
pub(crate) fn bytes_of_mut<T: Element>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`; any bit pattern is a valid value of a number type.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
