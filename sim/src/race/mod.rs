//! Happens-before: vector clocks of threads, tokens of what they release, and shadow cells of memory.

mod clocks;
mod flags;
mod proxies;
mod record;
mod release;
mod shadow;
mod vector;

pub use clocks::Clocks;
pub use proxies::Reach;
pub use record::Touch;
pub(crate) use record::{Crew, Entry};
pub use release::Release;
pub(crate) use shadow::{Conflict, Shadow};

/// A thread, linear over the launch: `cta * threads_per_cta + tid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u32);

/// A component of the clocks: a thread by its linear number, or an agent with a time of its own, such as an mbarrier, which
/// counts its phases. The numbers of such agents are above those of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub u32);

/// A moment of an agent. Times begin at 1; 0 is before all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The agent.
    pub agent: AgentId,
    /// The time.
    pub time: u32,
}

impl From<ThreadId> for AgentId {
    fn from(thread: ThreadId) -> AgentId {
        AgentId(thread.0)
    }
}
