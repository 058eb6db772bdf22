//! CUDA graphs: work that a stream records instead of running it, and that the driver runs again as a whole.
//!
//! | file | holds |
//! |---|---|
//! | `recorded`, `executable` | recorded work; the same, ready to run |
//! | `conditional` | parts of it that run as a number in memory says |

mod conditional;
mod executable;
mod recorded;

pub(crate) use self::conditional::{ConditionSetter, Conditional};
pub(crate) use self::executable::ExecutableGraph;
pub(crate) use self::recorded::RecordedGraph;
