//! The cost of a kernel's configs: its tune space, lowered once, the cost model, and a lower bound on the time of a
//! launch.
//!
//! The room may depend on `compile`, which builds Tile IR, and on `error`. It knows no devices and no tuning records: everything is
//! a function of the kernel, the specialization, the sizes of dims and the machine.
//!
//! | file | holds |
//! |---|---|
//! | `explore` | every config of a tune space built and lowered, on all cores |
//! | `space` | the tune space of a specialization, kept for the process |
//! | `model` | clock cycles of a launch |
//! | `loops` | the cycles of an iteration of each pipelined loop |
//! | `roofline` | a lower bound on the time of a launch |

mod explore;
mod loops;
mod model;
mod roofline;
mod space;

pub(crate) use explore::{Found, Point, reason};
pub use loops::{LoopInterval, LoopLimit, loop_intervals};
pub(crate) use model::Terms;
pub use model::{Cost, MODEL, estimate, programs};
pub use roofline::{Roofline, Unit, roofline};
pub(crate) use space::Space;
