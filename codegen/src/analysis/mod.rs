//! Facts about a Tile IR kernel that passes ask for. Analyses are nouns and change nothing.
#![warn(clippy::too_many_lines)]

mod ahead;
mod bounds;
mod compulsory;
mod demand;
mod expected;
mod extents;
mod fills;
mod formless;
mod formula;
mod frame;
mod order;
mod place;
mod placement;
mod precision;
mod registers;
mod sectors;
mod sources;
mod splits;
mod uses;
mod work;
mod work_table;

pub(crate) use ahead::is_place_known;
pub use bounds::Bounds;
pub use compulsory::{Compulsory, compulsory};
pub use extents::{Constraint, Extents};
pub(crate) use formless::refuse_formless;
pub use frame::Frame;
pub use order::order;
pub(crate) use placement::contiguous_run;
pub use placement::{Home, Placement, StagingReason};
pub use precision::{Precision, Verdict};
pub(crate) use registers::words;
pub use registers::{peak_registers, peak_registers_within, tile_registers};
pub(crate) use sources::root as placement_root;
pub use uses::{Use, Uses};
pub use work::{Counts, Prefetched, Read, Sample, Work, WorkFormula};
pub use work_table::{WorkAt, WorkTable};
