//! Launches in the Tile IR interpreter: natively on the CPU, on copies of a GPU's tensors, and in f64 as the oracle.

mod host;
mod native;
mod oracle;

pub(super) use host::run_on_host;
pub(super) use native::run_native;
pub use oracle::{OracleOutput, run_f64};
