//! What the configs of a kernel cost: its tune space lowered once, the cost model, and the least that any launch takes.
//!
//! The room may depend on `compile`, which builds Tile IR, and on `error`. It knows no devices and no tuning records: everything is
//! a function of the kernel, the specialization, the sizes of dims and the machine.
//!
//! | file | holds |
//! |---|---|
//! | `explore` | every config of a tune space built and lowered, on all cores |
//! | `space` | the tune space of a specialization, kept for the process |
//! | `model` | clock cycles of a launch |
//! | `roofline` | the least that a launch takes |

mod explore;
mod model;
mod roofline;
mod space;

pub(crate) use explore::{Found, Point, reason};
pub(crate) use model::Terms;
pub use model::{Cost, MODEL, estimate, programs};
pub use roofline::{Roofline, Unit, roofline};
pub(crate) use space::Space;
