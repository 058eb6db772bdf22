//! What a region finds wrong with an access.

use crate::fault::FaultKind;
use crate::race::{AgentId, ThreadId, Touch};
use std::fmt;

/// An access that a region refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its kind among the faults.
    pub kind: FaultKind,
    /// Where in the region it is.
    pub offset: u64,
    /// Bytes of the access.
    pub len: u64,
    /// What was attempted.
    pub doing: Touch,
    /// The access or operation that it conflicts with.
    pub earlier: Option<Earlier>,
    /// The rule broken, in words.
    pub why: &'static str,
}

/// The other side of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// Whose time the access counts by.
    pub agent: AgentId,
    /// The thread that made it, if the agent is one.
    pub thread: Option<ThreadId>,
    /// Line in the PTX text.
    pub line: u32,
    /// What it did.
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
