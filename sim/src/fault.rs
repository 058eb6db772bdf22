//! A fault that the simulator finds: its kind, the line of PTX, the parties, and a description.

use crate::program::SourceLoc;
use std::fmt;

/// Kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// The text does not parse, or uses something that the simulator does not know or that the target lacks.
    Syntax,
    /// The launch does not fit the kernel: threads, parameters, shared memory, cluster.
    Launch,
    /// Two unordered accesses of the same bytes, of which one is a write.
    Race,
    /// A generic access and one through another proxy that are ordered, but without a proxy fence of that memory in between; or
    /// an mbarrier that the copy engine completes, without a fence or a barrier since it was initialised.
    MissingProxyFence,
    /// Memory or registers of an asynchronous operation were touched before it was waited for.
    InFlight,
    /// A wait for a phase that is not the next one, more arrivals than the count, or bytes that do not add up.
    Phase,
    /// An mbarrier operation on memory that holds no mbarrier, or an ordinary access to one.
    NotABarrier,
    /// Every strand waits for something that no strand will do.
    Deadlock,
    /// A read of memory that nothing wrote.
    UninitializedRead,
    /// An access outside of the memory that the launch has.
    OutOfBounds,
    /// An address that is no multiple of the size of the access.
    Misaligned,
    /// A write to memory that the launch may only read, or an `.nc` load of memory that it writes.
    ReadOnly,
    /// An `.aligned` instruction, or one with a member mask, that not all its lanes execute together.
    Divergent,
    /// A descriptor, a tensor map or an operand that the ISA forbids.
    Illegal,
    /// `trap`.
    Trap,
    /// The budget of instructions or memory is spent.
    Budget,
}

/// A place in the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GridLocation {
    /// Linear index of the CTA.
    pub cta: u32,
    /// Warp within the CTA.
    pub warp: u32,
    /// Lane within the warp, if one is meant.
    pub lane: Option<u8>,
}

/// One party of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    /// Its CTA, warp and lane.
    pub place: GridLocation,
    /// Line in the PTX text, from 1.
    pub line: u32,
    /// The source location of the line, if the text gives it.
    pub source: Option<SourceLoc>,
}

/// A fault. Execution stops at the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Of which kind it is.
    pub kind: FaultKind,
    /// What was found, in words.
    pub message: String,
    /// The party that caused it; `None` for faults of the text or the launch.
    pub party: Option<Party>,
    /// The party with which it conflicts, or which also waits.
    pub others: Vec<(Party, String)>,
}

impl Fault {
    /// A fault without parties.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Fault {
        Fault { kind, message: message.into(), party: None, others: Vec::new() }
    }

    /// A fault of the text at a line.
    pub fn syntax(line: u32, message: impl fmt::Display) -> Fault {
        Fault::new(FaultKind::Syntax, format!("line {line}: {message}"))
    }
}

impl fmt::Display for GridLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CTA {} warp {}", self.cta, self.warp)?;
        self.lane.map_or(Ok(()), |lane| write!(f, " lane {lane}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(p) = &self.party {
            write!(f, "\n  at PTX line {}, {}", p.line, p.place)?;
        }
        for (p, what) in &self.others {
            write!(f, "\n  {what} at PTX line {}, {}", p.line, p.place)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// The simulator's result.
pub type Result<T> = std::result::Result<T, Fault>;
