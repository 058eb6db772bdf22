//! The passes, one file or folder each. `pipeline.rs` lists them in order.

mod allocate_shared;
mod carry_operands;
mod check_registers;
mod choose_caching;
mod expand_loops;
mod insert_barriers;
mod interleave_copies;
mod lower_converts;
mod lower_products;
mod lower_rings;
mod lower_tiles;
mod schedule_loops;
mod split_casts;
mod start_loads;

pub use allocate_shared::allocate_shared;
pub use carry_operands::carry_operands;
pub use check_registers::check_registers;
pub use choose_caching::choose_caching;
pub use expand_loops::expand_loops;
pub use insert_barriers::insert_barriers;
pub use interleave_copies::interleave_copies;
pub use lower_converts::lower_converts;
pub use lower_products::lower_products;
pub use lower_rings::lower_rings;
pub use lower_tiles::lower_tiles;
pub use schedule_loops::schedule_loops;
pub use split_casts::split_casts;
pub use start_loads::start_loads;
