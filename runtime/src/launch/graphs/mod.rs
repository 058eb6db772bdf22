//! Graphs: launches that are recorded once, and run again as one. What is recorded is in `recording`, which launches know.
//!
//! | file | holds |
//! |---|---|
//! | `replay` | recorded launches, run one by one and planned again |
//! | `conditional` | launches that run as a number in memory says |
//! | `graph`, `cuda_graph` | recorded launches as one, on every device; as a graph of the driver |
//! | `host_state` | state of an op that moves with its launches, and that a graph cannot move |
//! | `buckets` | what is made once for each of a few sizes |

mod buckets;
mod conditional;
mod cuda_graph;
mod graph;
mod host_state;
mod replay;

pub use self::buckets::Buckets;
pub use self::graph::Graph;
pub use self::host_state::HostState;
