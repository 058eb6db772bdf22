//! Facts about a Tile IR kernel and decisions that follow from them, before anything is lowered. Analyses have nouns as names
//! and change nothing.
//!
//! Nothing here reads a kernel of GPU IR. Decisions are in the words of GPU IR, though: the atom of a product, the split of its
//! warps, the order of programs. Analyses that read GPU IR are in `gpu/analysis/`.
#![warn(clippy::too_many_lines)]

mod approximations;
mod bounds;
mod cluster;
mod dependence;
mod extents;
mod fills;
mod lowering_decisions;
mod order;
mod paths;
mod placement;
mod sources;
mod store_paths;
mod unencodable;
mod uses;

pub use approximations::{Approximations, Verdict};
pub use bounds::Bounds;
pub use cluster::cluster_size;
pub use extents::{Constraint, Extents};
pub use lowering_decisions::LoweringDecisions;
pub use order::order;
pub(crate) use paths::only_products_read;
pub use paths::{Path, Paths, WhyThreads};
pub use placement::{Home, Placement, StagingReason, WhySynchronous};
pub(crate) use placement::{contiguous_run, is_long_enough, is_place_known, places_of};
pub(crate) use sources::root as placement_root;
pub(crate) use store_paths::is_of_one_cta;
pub use store_paths::{StorePath, WhyDirect};
pub(crate) use unencodable::refuse_unencodable;
pub use uses::{Use, Uses};
