//! The names of what a kernel of GPU IR consists of.

use cranelift_entity::entity_impl;

macro_rules! ids {
    ($($(#[$m:meta])* $name:ident = $prefix:literal),+ $(,)?) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u32);
        entity_impl!($name, $prefix);
    )+};
}

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
    /// A role region.
    Role = "role",
}
