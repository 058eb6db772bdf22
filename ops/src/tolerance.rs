//! How far a result may lie from its f64 reference: one table, by element type and kind of operation.
//!
//! The bounds follow from the rounding of the element type and the length of the sums, not from what a kernel
//! happens to reach.

use atlas_dsl::DType;

/// The kinds of operation that share a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToleranceClass {
    /// Two chained matrix products with an activation between.
    Mlp,
    /// Five Newton-Schulz steps, standard form.
    NewtonSchulz,
    /// Element-wise features.
    Features,
    /// Softmax and the norms.
    Norm,
    /// Functions of projections: the error of a sum goes through an exponential, a sine or a cosine.
    Projected,
    /// What moves numbers and computes none.
    Exact,
    /// A product of f32 operands that are rounded or truncated to tf32.
    Tf32,
    /// A product of f32 operands that are split into two bf16 each.
    Bf16x3,
    /// A product of f32 operands that are split into two tf32 each.
    Tf32x3,
}

/// A row of the table: the element type, then MLP, Newton-Schulz, features, norms, functions of projections, moves.
const TABLE: [(DType, [f64; 6]); 3] = [
    (DType::F32, [1e-5, 1e-5, 1e-6, 2e-6, 1e-5, 0.0]),
    (DType::F16, [2e-3, 5e-3, 5e-4, 5e-4, 5e-4, 0.0]),
    (DType::Bf16, [1e-2, 3e-2, 3e-3, 4e-3, 3e-3, 0.0]),
];

/// The greatest relative error of rounding to bf16 and to tf32, which keep 8 and 11 bits.
const OF_BF16: f64 = 1.0 / (1 << 8) as f64;
const OF_TF32: f64 = 1.0 / (1 << 11) as f64;
/// The error of sums of f32 in a product.
const OF_SUMS: f64 = 1e-5;

/// Bound on the relative Frobenius error; `None` for an element type without a row.
pub fn bound(class: ToleranceClass, dtype: DType) -> Option<f64> {
    match class {
        ToleranceClass::Tf32 => Some(of_tf32()),
        ToleranceClass::Bf16x3 => Some(of_split(OF_BF16)),
        ToleranceClass::Tf32x3 => Some(of_split(OF_TF32)),
        _ => TABLE.iter().find(|(d, _)| *d == dtype).map(|(_, row)| row[class as usize]),
    }
}

/// The bound of products of tf32. Some instructions truncate their operands, which is off by up to twice as much as rounding is.
fn of_tf32() -> f64 {
    2.0 * (2.0 * OF_TF32) + OF_SUMS
}

/// The bound of products of split operands: for each operand the rounding of its rest, which is within `unit` of the operand, and
/// the product of both rests, which is left out.
fn of_split(unit: f64) -> f64 {
    3.0 * unit * unit + OF_SUMS
}

/// The largest error of one element may be this many times the bound, in units of the reference's root mean square or of the
/// element itself, whichever is larger.
pub const MAX_ERROR_FACTOR: f64 = 20.0;

/// How many times as far from its reference as the reference with the same roundings a result may lie, all together and one
/// element: both are draws of one rounding error, whose norm over many elements hardly varies, and whose largest element does.
pub const OWN_ROUNDING: [f64; 2] = [1.25, 2.0];
