//! The compiler on one page: the passes of each phase, in order. Each is a file or a folder of its name.

mod allocate_shared;
mod carry_operands;
mod check_registers;
mod choose_caching;
mod choose_swizzles;
mod expand_loops;
mod form_copies;
mod hoist_converts;
mod insert_barriers;
mod interleave_copies;
mod lower_converts;
mod lower_products;
mod lower_programs;
mod lower_rings;
mod lower_tiles;
mod schedule_loops;
mod select_accesses;
mod split_casts;
mod split_tiles;
mod start_loads;

pub use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Features, Kernel};

pub use allocate_shared::allocate_shared;
pub use carry_operands::carry_operands;
pub use check_registers::check_registers;
pub use choose_caching::choose_caching;
pub use choose_swizzles::choose_swizzles;
pub use expand_loops::expand_loops;
pub use form_copies::form_copies;
pub use hoist_converts::hoist_converts;
pub use insert_barriers::insert_barriers;
pub use interleave_copies::interleave_copies;
pub use lower_converts::lower_converts;
pub use lower_products::lower_products;
pub use lower_programs::lower_programs;
pub use lower_rings::lower_rings;
pub use lower_tiles::lower_tiles;
pub use schedule_loops::schedule_loops;
pub use select_accesses::select_accesses;
pub use split_casts::split_casts;
pub use split_tiles::split_tiles;
pub use start_loads::start_loads;

/// A pass: its name, which is its file's, what it does to a kernel, and what of [`Features`] it takes out and puts in.
#[derive(Debug)]
pub struct Pass {
    /// As in `passes/NAME.rs`.
    pub name: &'static str,
    /// The pass.
    pub run: fn(&mut Kernel, &mut Cx<'_>) -> Result<(), CompileError>,
    /// What is in no kernel that it leaves.
    pub removes: Features,
    /// What may be in a kernel that it leaves.
    pub adds: Features,
}

impl Pass {
    /// What may stand in a kernel that it leaves, by what stood in it before.
    pub const fn after(&self, before: Features) -> Features {
        before.without(self.removes).with(self.adds)
    }
}

/// A pass that neither removes nor adds a feature.
pub(crate) const fn pass(name: &'static str, run: fn(&mut Kernel, &mut Cx<'_>) -> Result<(), CompileError>) -> Pass {
    Pass { name, run, removes: Features::NONE, adds: Features::NONE }
}

/// The first pass, which makes the kernel: where each tile lives, and by which instructions it is multiplied.
pub const FIRST: &str = "lower_tiles";

/// What [`FIRST`] leaves.
pub const MADE: Features = Features::PROGRAMS
    .with(Features::TOKENS)
    .with(Features::NUMBERED)
    .with(Features::BARE_WAITS)
    .with(Features::CONVERTS)
    .with(Features::UNPLACED)
    .with(Features::OPEN_ACCESSES)
    .with(Features::OPEN_COPIES)
    .with(Features::PRODUCTS);

/// What each tile is read by, and what is kept of it.
pub const PLACE: &[Pass] = &[
    Pass { removes: Features::OPEN_COPIES, ..pass("form_copies", form_copies) },
    pass("split_tiles", split_tiles),
    Pass { adds: Features::HINTS, ..pass("split_casts", split_casts) },
    Pass { adds: Features::HINTS, ..pass("choose_caching", choose_caching) },
    Pass { removes: Features::PRODUCTS, ..pass("lower_products", lower_products) },
];

/// Who does what when.
pub const SCHEDULE: &[Pass] = &[
    pass("hoist_converts", hoist_converts),
    pass("schedule_loops", schedule_loops),
    pass("expand_loops", expand_loops),
    pass("start_loads", start_loads),
    pass("interleave_copies", interleave_copies),
    pass("carry_operands", carry_operands),
];

/// How: memory, order, limits.
pub const LOWER: &[Pass] = &[
    Pass { removes: Features::CONVERTS, ..pass("lower_converts", lower_converts) },
    Pass { removes: Features::NUMBERED, ..pass("lower_rings", lower_rings) },
    pass("check_registers", check_registers),
    pass("choose_swizzles", choose_swizzles),
    Pass { removes: Features::UNPLACED, adds: Features::OFFSETS, ..pass("allocate_shared", allocate_shared) },
    Pass { removes: Features::OPEN_ACCESSES, adds: Features::FORMS, ..pass("select_accesses", select_accesses) },
    Pass { removes: Features::BARE_WAITS, adds: Features::BARRIERS, ..pass("insert_barriers", insert_barriers) },
    Pass { removes: Features::PROGRAMS, ..pass("lower_programs", lower_programs) },
];
