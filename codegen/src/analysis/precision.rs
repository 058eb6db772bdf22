//! Whether a kernel's results reach memory rounded to 16 bits, so that approximate instructions serve.

use atlas_dsl::ir::{Access, Kernel, ParamKind};

/// True if no written tensor has elements wider than 16 bits.
///
/// Everything a kernel computes leaves it through a store, so every value then reaches memory rounded
/// to an 8- or 11-bit significand, far above the error of the approximate instructions (2 ulp of f32).
pub fn reaches_memory_as_16_bits(kernel: &Kernel) -> bool {
    kernel.params.values().all(|p| match p.kind {
        ParamKind::Tensor { dtype, access: Access::Out, .. } => dtype.is_half(),
        _ => true,
    })
}
