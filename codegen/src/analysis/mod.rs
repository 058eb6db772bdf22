//! Facts about a Tile IR kernel that passes use. Analyses have nouns as names and change nothing.
#![warn(clippy::too_many_lines)]

mod ahead;
mod approximations;
mod asynchronous;
mod bounds;
mod compulsory;
mod dependence;
mod expected;
mod extents;
mod fills;
mod formula;
mod lowering_decisions;
mod order;
mod placement;
mod registers;
mod sample_points;
mod sectors;
mod sources;
mod splits;
mod unencodable;
mod uses;
mod work;
mod work_table;

pub(crate) use ahead::is_place_known;
pub use approximations::{Approximations, Verdict};
pub(crate) use asynchronous::is_long_enough;
pub use bounds::Bounds;
pub use compulsory::{Compulsory, compulsory};
pub use extents::{Constraint, Extents};
pub use lowering_decisions::LoweringDecisions;
pub use order::order;
pub(crate) use placement::contiguous_run;
pub use placement::{Home, Placement, StagingReason};
pub(crate) use registers::words;
pub use registers::{peak_registers, peak_registers_within, tile_registers};
pub(crate) use sources::root as placement_root;
pub(crate) use unencodable::refuse_unencodable;
pub use uses::{Use, Uses};
pub use work::{Counts, Prefetched, Read, Sample, Work, WorkFormula};
pub use work_table::{WorkAt, WorkTable};
