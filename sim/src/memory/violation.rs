//! A violation that a region finds in an access.

use crate::fault::FaultKind;
use crate::race::{AgentId, ThreadId, Touch};
use std::fmt;

/// An access that a region refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The kind of fault.
    pub kind: FaultKind,
    /// The offset in the region.
    pub offset: u64,
    /// Bytes of the access.
    pub len: u64,
    /// The attempted access.
    pub doing: Touch,
    /// The access or operation that it conflicts with.
    pub earlier: Option<Earlier>,
    /// A description of the broken rule.
    pub why: &'static str,
}

/// The other party of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The agent whose clock the access uses.
    pub agent: AgentId,
    /// The thread that made it, if the agent is one.
    pub thread: Option<ThreadId>,
    /// Line in the PTX text.
    pub line: u32,
    /// Its access.
    pub touch: Touch,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes at offset {:#x} {}", self.doing.words(), self.len, self.offset, self.why)?;
        match &self.earlier {
            Some(e) => write!(f, " {}", e.touch.words()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Violation {}
