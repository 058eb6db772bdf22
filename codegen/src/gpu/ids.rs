//! The names of what a kernel of GPU IR consists of.

use atlas_dsl::ids;

ids! {
    /// An SSA value of GPU IR.
    Value = "v",
    /// An instruction of GPU IR.
    Inst = "inst",
    /// A list of instructions with parameters.
    Block = "bb",
    /// A shared-memory buffer.
    Buffer = "buf",
    /// A ring of buffer stages.
    Ring = "ring",
    /// A tensor map.
    TensorMap = "map",
    /// A role region.
    Role = "role",
}
