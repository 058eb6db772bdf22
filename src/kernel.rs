//! Kernels as values: what [`atlas_kernel!`](crate::atlas_kernel) declares, how it is launched, and how its config is chosen.

pub use atlas_dsl::def::Declared;
pub use atlas_dsl::{Config, DType, KernelDef};
pub use atlas_runtime::{
    Arg, BoundLaunch, Buckets, Candidate, Chain, ConfigSource, Graph, HostState, IntoArg, Launch, LaunchFacts, Outcome,
    PreparedChain, PreparedLaunch, Repeated, Selection, Workspace,
};
