//! Facts about a Tile IR kernel that passes ask for. Analyses are nouns and change nothing.
#![warn(clippy::too_many_lines)]

mod extents;
mod fills;
mod placement;
mod precision;
mod registers;
mod uses;
mod work;

pub use extents::{Constraint, Extents};
pub use placement::{Home, Placement, StagingReason};
pub(crate) use placement::{contiguous_run, root as placement_root, vector_elements};
pub use precision::tolerates_approximation;
pub use registers::{peak_registers, registers_per_thread};
pub use uses::{Use, Uses};
pub use work::{Counts, Prefetched, Read, Work};
