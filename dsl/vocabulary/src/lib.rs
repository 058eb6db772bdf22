//! The words of kernels: element types and the table of operations, as data.
//!
//! An operation's row has every property that holds everywhere: its name, the element types it takes, how it folds constants,
//! and the initial value of a reduction. The macro, the builder, the verifiers, both text forms, the interpreter and the code
//! generator read the rows. So a new operation needs a row, an evaluation and a lowering.
//!
//! | file | holds |
//! |---|---|
//! | `table` | the macro that makes an enum from a table |
//! | `dtype` | element types |
//! | `takes` | which element types an operation takes |
//! | `unary`, `binary` | element-wise operations, and comparisons |
//! | `reduction` | the operations of reductions and of atomic stores |
//! | `random` | random numbers by counter |
//! | `kind` | the kinds of operations of Tile IR |
//! | `distance` | the edit distance of two names |
//! | `word` | how `dot` multiplies, kinds of loops |
//! | `schedule` | the keys of a schedule and their values |
#![warn(clippy::too_many_lines)]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[macro_use]
mod table;
mod binary;
mod distance;
mod dtype;
mod kind;
mod random;
mod reduction;
mod schedule;
mod takes;
mod unary;
mod word;

pub use binary::{
    Binary, BinaryOp, Comparison, Predicate, multiply_high, shift_left, shift_right, shift_right_logical,
};
pub use distance::distance;
pub use dtype::{DType, Fp8, number};
pub use kind::{Effect, Kind, Operation};
pub use random::{Draw, Random};
pub use reduction::{ReduceOp, Reduction, Update, Updating};
pub use schedule::{
    Copies, MOST_CONFIGS, Operands, Order, Products, Programs, SCHEDULE, ScheduleKey, Setting, WarpGrid, key_elsewhere,
};
pub use takes::Takes;
pub use unary::{Unary, UnaryOp};
pub use word::{LoopKind, Precision};

/// The hash of the sources of this crate: part of the key of every compiled kernel.
pub const SOURCE_HASH: &str = env!("ATLAS_SOURCE_HASH");

#[cfg(test)]
mod tests {
    use super::{BinaryOp, DType, Kind, Predicate, Random, ReduceOp, Takes, UnaryOp};
    use std::collections::BTreeSet;

    #[test]
    fn the_language_page_has_every_word() {
        let page = include_str!("../../../docs/src/kernel-language.md");
        let words: BTreeSet<&str> = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        let functions = UnaryOp::functions().map(UnaryOp::name);
        let functions =
            functions.chain(BinaryOp::functions().map(BinaryOp::name)).chain(Random::ALL.iter().map(|of| of.name()));
        for word in functions.chain(ReduceOp::ALL.iter().map(|op| op.name())) {
            assert!(words.contains(word), "docs/src/kernel-language.md does not name `{word}`");
        }
    }

    #[test]
    fn a_name_means_one_operation() {
        let families = ["unary", "binary", "compare"];
        let kinds = Kind::ALL.iter().map(|k| k.name()).filter(|name| !families.contains(name));
        let elementwise = UnaryOp::ALL.iter().map(|op| op.name()).chain(BinaryOp::ALL.iter().map(|op| op.name()));
        let all: Vec<&str> = kinds.chain(elementwise).chain(Predicate::ALL.iter().map(|p| p.name())).collect();
        let distinct: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
    }

    #[test]
    fn exact_operations_say_what_they_make_of_numbers() {
        // How many bits a number has, only its type says.
        let of_bits = |op: UnaryOp| op.row().takes == Takes::Integers;
        for op in UnaryOp::ALL.iter().filter(|op| op.row().exact && !of_bits(**op)) {
            assert!(op.of_number(0.25).is_some(), "{op:?}");
        }
    }

    #[test]
    fn a_neutral_element_changes_no_fold() {
        assert_eq!(ReduceOp::Max.neutral(DType::I64) as i64, i64::MIN);
        assert_eq!(ReduceOp::Min.neutral(DType::I64) as i64, i64::MAX);
        assert_eq!(ReduceOp::Sum.neutral(DType::F32), 0.0);
    }
}
