//! What may stand in a kernel at a time: the sets that passes remove from and add to, and that phases are held to.

use std::fmt;

/// A set of things that may stand in a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Constructs(u32);

macro_rules! constructs {
    ($($(#[$m:meta])* $name:ident: $bit:literal = $text:literal;)+) => {
        impl Constructs {
            $($(#[$m])* pub const $name: Constructs = Constructs(1 << $bit);)+

            /// Every construct by itself, with its word.
            pub const ALL: &'static [(Constructs, &'static str)] = &[$((Constructs::$name, $text)),+];
        }
    };
}

constructs! {
    /// Several roles, one that is not the whole CTA, or one that sets its registers.
    ROLES: 0 = "roles";
    /// Clusters of CTAs, and buffers that belong to one.
    CLUSTERS: 1 = "clusters";
    /// Coordinates that the index map gives: to the kernel, or by `programs`.
    PROGRAMS: 2 = "programs";
    /// The copy engine's copies to shared memory, and rings that it fills.
    ENGINE: 3 = "engine";
    /// Products that run on after a wait, which leaves some pending, and accumulators by condition.
    IN_FLIGHT: 4 = "in-flight";
    /// Rings: `acquire`, `commit`, `wait`, `release`.
    TOKENS: 5 = "tokens";
    /// Waits of rings that threads fill, without the wait for their copies and the barrier before it.
    BARE_WAITS: 6 = "bare-waits";
    /// `convert.layout`.
    CONVERTS: 7 = "converts";
    /// Loads and copies that tell the L2 cache what to do with their lines.
    HINTS: 8 = "hints";
    /// Buffers without an offset.
    UNPLACED: 9 = "unplaced";
    /// Buffers with an offset.
    OFFSETS: 10 = "offsets";
    /// Barriers, waits for copies, and fences.
    BARRIERS: 11 = "barriers";
    /// Operations that no instruction does, and operands where no instruction takes them.
    UNENCODABLE: 12 = "unencodable";
    /// Stages of rings by the number of an iteration.
    NUMBERED: 13 = "numbered";
    /// Products of tensor cores that are over when they are issued, of several steps along K or of operands in shared memory.
    PRODUCTS: 14 = "products";
    /// Index maps of which a launch has other than a CTA for each program of the grid.
    GRIDS: 15 = "grids";
    /// Loads and stores of fragments without a form.
    OPEN_ACCESSES: 16 = "open-accesses";
    /// Loads and stores of fragments with a form.
    ACCESS_KINDS: 17 = "access-kinds";
    /// Copies without an atom.
    OPEN_COPIES: 18 = "open-copies";
    /// The copy engine's stores, and rings that it reads; `drain`.
    ENGINE_STORES: 19 = "engine-stores";
    /// Stages of rings that the engine fills by cursor, and `init` of their mbarriers; `once`.
    CURSORS: 20 = "cursors";
    /// Programs that several CTAs share, and `sum.splits`.
    SPLITS: 21 = "splits";
}

impl Constructs {
    /// Nothing.
    pub const NONE: Constructs = Constructs(0);

    /// Both sets.
    pub const fn with(self, other: Constructs) -> Constructs {
        Constructs(self.0 | other.0)
    }

    /// This set without the other.
    pub const fn without(self, other: Constructs) -> Constructs {
        Constructs(self.0 & !other.0)
    }

    /// True if all of the other are in this set.
    pub const fn has(self, other: Constructs) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Constructs {
    /// The words in the order of the table: `converts, unplaced`; `nothing`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> =
            Constructs::ALL.iter().filter(|(one, _)| self.has(*one)).map(|(_, word)| *word).collect();
        if words.is_empty() { f.write_str("nothing") } else { f.write_str(&words.join(", ")) }
    }
}
