//! The list of passes, by phase and in order. Each pass is a file or a folder of its name.

mod allocate_shared;
mod carry_operands;
mod check_registers;
mod expand_loops;
mod hoist_layout_conversions;
mod insert_barriers;
mod interleave_copies;
mod lower_layout_conversions;
mod lower_products;
mod lower_programs;
mod lower_rings;
mod lower_tiles;
mod persist_programs;
mod schedule_loops;
mod select_accesses;
mod select_cache_hints;
mod select_copy_atoms;
mod select_swizzles;
mod split_casts;
mod split_reductions;
mod split_tiles;
mod start_loads;

pub use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Constructs, Kernel};

pub use allocate_shared::allocate_shared;
pub use carry_operands::carry_operands;
pub use check_registers::check_registers;
pub use expand_loops::expand_loops;
pub use hoist_layout_conversions::hoist_layout_conversions;
pub use insert_barriers::insert_barriers;
pub use interleave_copies::interleave_copies;
pub use lower_layout_conversions::lower_layout_conversions;
pub use lower_products::lower_products;
pub use lower_programs::lower_programs;
pub use lower_rings::lower_rings;
pub use lower_tiles::lower_tiles;
pub use persist_programs::persist_programs;
pub use schedule_loops::schedule_loops;
pub use select_accesses::select_accesses;
pub use select_cache_hints::select_cache_hints;
pub use select_copy_atoms::select_copy_atoms;
pub use select_swizzles::select_swizzles;
pub use split_casts::split_casts;
pub use split_reductions::split_reductions;
pub use split_tiles::split_tiles;
pub use start_loads::start_loads;

/// A pass: its name (that of its file), its function, and the [`Constructs`] that it removes and adds.
#[derive(Debug)]
pub struct Pass {
    /// As in `passes/NAME.rs`.
    pub name: &'static str,
    /// The pass.
    pub run: fn(&mut Kernel, &mut Cx<'_>) -> Result<(), CompileError>,
    /// Constructs that no kernel has after the pass.
    pub removes: Constructs,
    /// Constructs that a kernel may have after the pass.
    pub adds: Constructs,
}

impl Pass {
    /// The constructs that a kernel may have after the pass, from those that it may have before.
    pub const fn after(&self, before: Constructs) -> Constructs {
        before.without(self.removes).with(self.adds)
    }
}

/// A pass that neither removes nor adds a construct.
pub(crate) const fn pass(name: &'static str, run: fn(&mut Kernel, &mut Cx<'_>) -> Result<(), CompileError>) -> Pass {
    Pass { name, run, removes: Constructs::NONE, adds: Constructs::NONE }
}

/// The first pass, which creates the kernel: where each tile is kept, and by which instructions it is multiplied.
pub const FIRST: &str = "lower_tiles";

/// The constructs after [`FIRST`].
pub const MADE: Constructs = Constructs::PROGRAMS
    .with(Constructs::TOKENS)
    .with(Constructs::NUMBERED)
    .with(Constructs::BARE_WAITS)
    .with(Constructs::CONVERTS)
    .with(Constructs::UNPLACED)
    .with(Constructs::OPEN_ACCESSES)
    .with(Constructs::OPEN_COPIES)
    .with(Constructs::ENGINE)
    .with(Constructs::ENGINE_STORES)
    .with(Constructs::CLUSTERS)
    .with(Constructs::PRODUCTS);

/// The instructions that read each tile, and which tiles are kept.
pub const PLACE: &[Pass] = &[
    Pass { adds: Constructs::SPLITS, ..pass("split_reductions", split_reductions) },
    Pass { removes: Constructs::OPEN_COPIES, ..pass("select_copy_atoms", select_copy_atoms) },
    pass("split_tiles", split_tiles),
    Pass { adds: Constructs::HINTS, ..pass("split_casts", split_casts) },
    Pass { adds: Constructs::HINTS, ..pass("select_cache_hints", select_cache_hints) },
    Pass { removes: Constructs::PRODUCTS, ..pass("lower_products", lower_products) },
];

/// The order of loads, waits and products.
pub const SCHEDULE: &[Pass] = &[
    pass("hoist_layout_conversions", hoist_layout_conversions),
    pass("schedule_loops", schedule_loops),
    pass("expand_loops", expand_loops),
    pass("start_loads", start_loads),
    pass("interleave_copies", interleave_copies),
    pass("carry_operands", carry_operands),
];

/// Memory, barriers and limits.
pub const LOWER: &[Pass] = &[
    Pass { adds: Constructs::GRIDS, ..pass("persist_programs", persist_programs) },
    Pass { removes: Constructs::CONVERTS, ..pass("lower_layout_conversions", lower_layout_conversions) },
    Pass { removes: Constructs::NUMBERED, adds: Constructs::CURSORS, ..pass("lower_rings", lower_rings) },
    pass("check_registers", check_registers),
    pass("select_swizzles", select_swizzles),
    Pass { removes: Constructs::UNPLACED, adds: Constructs::OFFSETS, ..pass("allocate_shared", allocate_shared) },
    Pass {
        removes: Constructs::OPEN_ACCESSES,
        adds: Constructs::ACCESS_KINDS,
        ..pass("select_accesses", select_accesses)
    },
    Pass { removes: Constructs::BARE_WAITS, adds: Constructs::BARRIERS, ..pass("insert_barriers", insert_barriers) },
    Pass { removes: Constructs::PROGRAMS, ..pass("lower_programs", lower_programs) },
];
