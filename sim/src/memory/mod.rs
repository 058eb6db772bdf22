//! Memory of the simulated device: regions of bytes, the global address space, shared memory of CTAs.

mod global;
mod init;
mod region;
mod shared;
mod violation;

pub use global::{Global, OutOfBounds};
pub(crate) use region::{LaneOffsets, Word};
pub use region::{Permission, Region};
pub use shared::Shared;
pub use violation::{Earlier, Violation};

use crate::program::{Access, Order, Scope};
use crate::race::ThreadId;

/// The path by which an access reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Proxy {
    /// Ordinary accesses, and `cp.async`.
    #[default]
    Generic,
    /// TMA and `wgmma`.
    Async,
    /// What reads tensor maps.
    TensorMap,
}

/// A description of an access: the thread and its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The executing thread.
    pub thread: ThreadId,
    /// Line in the PTX text.
    pub line: u32,
    /// Ordering of the access.
    pub order: Order,
    /// For which threads the ordering holds.
    pub scope: Scope,
    /// The path.
    pub proxy: Proxy,
    /// `.nc`.
    pub non_coherent: bool,
}

impl Actor {
    /// An ordinary access.
    pub fn weak(thread: ThreadId, line: u32) -> Actor {
        Actor { thread, line, order: Order::Weak, scope: Scope::Cta, proxy: Proxy::Generic, non_coherent: false }
    }

    /// The access that an instruction describes.
    pub fn of(thread: ThreadId, line: u32, access: &Access) -> Actor {
        let (order, scope) = (access.order, access.scope);
        Actor { thread, line, order, scope, proxy: Proxy::Generic, non_coherent: access.non_coherent }
    }

    /// An operation of the asynchronous proxy.
    pub fn asynchronous(thread: ThreadId, line: u32) -> Actor {
        Actor { proxy: Proxy::Async, ..Actor::weak(thread, line) }
    }

    /// The read of a tensor map by an operation.
    pub fn of_map(thread: ThreadId, line: u32) -> Actor {
        Actor { proxy: Proxy::TensorMap, ..Actor::weak(thread, line) }
    }
}

/// The machine's number for an asynchronous operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AsyncId(pub u64);

/// The effect of an asynchronous operation on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncKind {
    /// Reads it.
    Read,
    /// Overwrites it.
    Write,
    /// Adds to it or combines with it, atomically.
    Reduce,
}

#[cfg(test)]
mod tests;
