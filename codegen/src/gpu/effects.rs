//! What operations of GPU IR do besides giving results.

/// A set of effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effects(u16);

impl Effects {
    /// Gives results and nothing else: may be repeated, moved past anything, or left out where nobody reads it.
    pub const NONE: Effects = Effects(0);
    /// Reads a tensor.
    pub const READS_GLOBAL: Effects = Effects(1);
    /// Writes a tensor.
    pub const WRITES_GLOBAL: Effects = Effects(1 << 1);
    /// Reads the shared buffers that it mentions.
    pub const READS_SHARED: Effects = Effects(1 << 2);
    /// Writes the shared buffers that it mentions.
    pub const WRITES_SHARED: Effects = Effects(1 << 3);
    /// Is done when something later has waited for it.
    pub const ASYNC: Effects = Effects(1 << 4);
    /// The copy engine does it, not the threads.
    pub const ENGINE: Effects = Effects(1 << 5);
    /// Orders accesses to memory: a barrier, a fence, a wait, or a step of a ring.
    pub const ORDERS: Effects = Effects(1 << 6);
    /// All threads of a warp run it together.
    pub const CONVERGENT: Effects = Effects(1 << 7);
    /// Runs a body or ends one.
    pub const CONTROL: Effects = Effects(1 << 8);

    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Effects) -> Effects {
        Effects(self.0 | other.0)
    }

    /// True if any of these is in the set.
    pub const fn any(self, of: Effects) -> bool {
        self.0 & of.0 != 0
    }

    /// True if all of these are in the set.
    pub const fn all(self, of: Effects) -> bool {
        self.0 & of.0 == of.0
    }
}
