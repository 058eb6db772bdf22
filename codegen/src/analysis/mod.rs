//! Facts about a Tile IR kernel that passes ask for. Analyses are nouns and change nothing.
#![warn(clippy::too_many_lines)]

mod ahead;
mod extents;
mod fills;
mod formless;
mod formula;
mod order;
mod placement;
mod precision;
mod registers;
mod splits;
mod uses;
mod work;

pub(crate) use ahead::is_known_before;
pub use extents::{Constraint, Extents};
pub(crate) use formless::{is_function_of_f64, refuse_bits_in_shared, refuse_formless};
pub use order::order;
pub use placement::{Home, Placement, StagingReason};
pub(crate) use placement::{contiguous_run, root as placement_root, vector_elements};
pub use precision::tolerates_approximation;
pub use registers::{peak_registers, registers_per_thread};
pub use uses::{Use, Uses};
pub use work::{AtSizes, Counts, Prefetched, Read, Work, WorkFormula};
