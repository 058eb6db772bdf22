//! The kinds of operations of Tile IR: whether they are element-wise, and what effect they have.

/// What an operation does besides giving results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Reads a tensor.
    Reads,
    /// Writes a tensor.
    Writes,
    /// Runs a body.
    Runs,
    /// Ends a body.
    Ends,
}

/// A row of [`Kind`].
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The mnemonic in the text form. In a family, each operation has its own.
    pub name: &'static str,
    /// True if each element of the result depends on the elements at its position, in operands of the result's extents.
    pub elementwise: bool,
    /// Its effect.
    pub effect: Effect,
}

const fn value(name: &'static str) -> Operation {
    Operation { name, elementwise: false, effect: Effect::None }
}

const fn elementwise(name: &'static str) -> Operation {
    Operation { elementwise: true, ..value(name) }
}

const fn effect(name: &'static str, effect: Effect) -> Operation {
    Operation { effect, ..value(name) }
}

table! {
    /// The kinds of operations of Tile IR.
    Kind: Operation {
        /// A constant tile.
        Splat = value("splat"),
        /// Indices along an axis.
        Iota = value("iota"),
        /// The size of a dim.
        DimSize = value("size"),
        /// The number of tiles of a dim.
        DimTiles = value("tiles"),
        /// A scalar parameter.
        ScalarParam = value("scalar"),
        /// An element of a constant table.
        TableGet = value("get"),
        /// The family of [`UnaryOp`](crate::UnaryOp).
        Unary = elementwise("unary"),
        /// The family of [`BinaryOp`](crate::BinaryOp).
        Binary = elementwise("binary"),
        /// The family of [`Predicate`](crate::Predicate).
        Compare = elementwise("compare"),
        /// A choice between two tiles.
        Select = elementwise("select"),
        /// A product and a sum of three tiles, rounded once.
        Fma = elementwise("fma"),
        /// A conversion.
        Cast = elementwise("cast"),
        /// A number past the edges. The positions of the edges matter, so it is not element-wise.
        Other = value("other"),
        /// Repeats elements.
        Broadcast = value("broadcast"),
        /// Adds or drops axes of extent 1.
        Reshape = value("reshape"),
        /// Exchanges two axes.
        Transpose = value("transpose"),
        /// Reduces axes.
        Reduce = value("reduce"),
        /// Reduces each element and those before it along an axis.
        Scan = value("scan"),
        /// The sum over the programs of a cluster.
        ClusterSum = value("cluster_sum"),
        /// A product of matrices.
        Dot = value("dot"),
        /// Reads a tile.
        Load = effect("load", Effect::Reads),
        /// Writes a tile.
        Store = effect("store", Effect::Writes),
        /// Writes a tile to elements that no other store reaches, as the author says.
        StoreDisjoint = effect("store_disjoint", Effect::Writes),
        /// Combines a tile with the elements of a tensor, atomically; each [`Update`](crate::Update) has its own word.
        Atomic = effect("atomic", Effect::Writes),
        /// A loop; each kind of [`LoopKind`](crate::LoopKind) has its own mnemonic.
        Loop = effect("loop", Effect::Runs),
        /// Ends a loop's body.
        Yield = effect("yield", Effect::Ends),
    }
}

impl Kind {
    /// True if each element of the result comes from the elements at its place.
    pub const fn is_elementwise(self) -> bool {
        self.row().elementwise
    }

    /// What it does besides giving results.
    pub const fn effect(self) -> Effect {
        self.row().effect
    }
}
