//! Tensor-core instructions as pure functions of registers and bytes: `mma`, `ldmatrix`, `stmatrix`, `wgmma`.

pub mod descriptor;
pub mod element;
pub mod fragment;
pub mod layout;
pub mod matrix_load;
pub mod mma;
mod product;
pub mod swizzle;
pub mod wgmma;

/// A row of a warp's register file: one zero-extended value for each lane.
pub type WarpRegister = [u64; 32];

#[cfg(test)]
mod tests;
