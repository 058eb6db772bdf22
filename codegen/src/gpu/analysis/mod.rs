//! Facts about a GPU IR kernel: the work that it does, the least that a launch cannot do without, the registers that it needs.
//!
//! Passes ask only for the registers, and for the tensors that are read once. The work and the least of a launch are for the runtime's cost model and its roofline.
//! Analyses that read Tile IR are in `codegen/src/analysis/`.
#![warn(clippy::too_many_lines)]

mod compulsory;
mod expected;
mod formula;
mod guards;
mod pipelined_loops;
mod read_once;
mod registers;
mod runs;
mod sample_points;
mod sectors;
mod varying;
mod work;
mod work_sums;
mod work_table;

pub use compulsory::{Compulsory, compulsory};
pub use pipelined_loops::pipelined_loops;
pub use read_once::read_once;
pub use registers::{peak_registers, peak_registers_within, tile_registers};
pub use runs::{AT_ONCE, InRun, Runs};
pub use work::{Counts, Prefetched, Sample, TensorReads, Work, WorkFormula};
pub use work_table::{WorkAt, WorkTable};
