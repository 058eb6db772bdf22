//! Typed ids. A handle is a short noun; its `Display` is its spelling in the text form.

#[doc(hidden)]
pub use cranelift_entity::entity_impl;

/// Declares typed ids: each a number, spelled with its prefix.
#[macro_export]
macro_rules! ids {
    ($($(#[$m:meta])* $name:ident = $prefix:literal),+ $(,)?) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u32);
        $crate::entity::entity_impl!($name, $prefix);
    )+};
}

ids! {
    /// An SSA value: a tile or a scalar.
    Value = "v",
    /// An instruction: an operation at a place.
    Inst = "inst",
    /// A list of instructions with parameters; the kernel body or a loop body.
    Block = "bb",
    /// A kernel parameter: a tensor or a scalar.
    Param = "p",
    /// A named dim of the kernel's tensors.
    Dim = "d",
    /// A constant table.
    Table = "tab",
}
