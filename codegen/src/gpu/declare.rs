//! The macro that declares the operations of GPU IR, and what it asks of the types of their fields.
//!
//! A row gives an operation's fields, its text form, the number of its results and its effects. From the rows come the
//! enum [`Op`](super::Op), the walks over what an operation mentions and what passes ask here, the printer and the parser in
//! `text_ops`. So an operation without one of these does not compile, and no list of operations stands anywhere else.

use super::ids::{Block, Buffer, Ring, TensorMap, Value};
use atlas_dsl::{Dim, Param, Table};

/// Something that an operation names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mention {
    /// An operand.
    Value(Value),
    /// A dim of the kernel.
    Dim(Dim),
    /// A tensor or a scalar parameter.
    Param(Param),
    /// A constant table.
    Table(Table),
    /// A shared buffer.
    Buffer(Buffer),
    /// A ring.
    Ring(Ring),
    /// A tensor map.
    Map(TensorMap),
    /// The body that the operation runs.
    Body(Block),
}

/// A type of a field of an operation: what it mentions, in the order of the text.
pub(super) trait Field {
    /// Calls `f` on everything that the field names.
    fn mentions(&self, f: &mut dyn FnMut(Mention));

    /// Replaces every value in the field.
    fn replace(&mut self, f: &mut dyn FnMut(Value) -> Value);
}

/// Declares the operations. A row is
///
/// ```text
/// /// What it does.
/// Name { field: Type, .. } = "mnemonic " [field " word " field [" optional " field]] gives 1, EFFECTS;
/// ```
///
/// - The fields are those of a struct variant, or of a tuple variant with names for this table.
/// - The mnemonic is a text, or names of fields whose words make it: `(op accuracy)`.
/// - The text form is a list of texts and fields in order; a part in brackets is left out where its field is the default.
///   A form that is no such list names a printer and a parser instead: `(print_loop parse_loop)`.
/// - `gives` is the number of results, or the field that has one value for each.
/// - The effects may depend on the fields, which are references there.
macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $name:ident
        $( ( $($t:ident : $t_ty:ty),+ ) )?
        $( { $( $(#[$s_doc:meta])* $s:ident : $s_ty:ty ),+ $(,)? } )?
        = $mnemonic:tt $text:tt gives $results:tt, $effects:expr;
    )+) => {
        /// One GPU IR operation.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $(
                $(#[$doc])*
                $name $( ( $($t_ty),+ ) )? $( { $( $(#[$s_doc])* $s : $s_ty ),+ } )?,
            )+
        }

        #[allow(unused_variables, reason = "a row's fields are named once, and not every use needs all of them")]
        impl Op {
            /// Calls `f` on everything that the operation names, in the order of its fields.
            pub fn mentions(&self, f: &mut dyn FnMut(Mention)) {
                match self {
                    $( Op::$name $( ( $($t),+ ) )? $( { $($s),+ } )? => {
                        $( $( Field::mentions($t, f); )+ )?
                        $( $( Field::mentions($s, f); )+ )?
                    } )+
                }
            }

            /// Replaces every value operand.
            pub fn replace_operands(&mut self, mut f: impl FnMut(Value) -> Value) {
                let f: &mut dyn FnMut(Value) -> Value = &mut f;
                match self {
                    $( Op::$name $( ( $($t),+ ) )? $( { $($s),+ } )? => {
                        $( $( Field::replace($t, f); )+ )?
                        $( $( Field::replace($s, f); )+ )?
                    } )+
                }
            }

            /// The names of all operations, as this enum spells them.
            pub const NAMES: &[&str] = &[$( stringify!($name) ),+];

            /// Its name among [`Op::NAMES`].
            pub const fn name(&self) -> &'static str {
                match self {
                    $( Op::$name { .. } => stringify!($name), )+
                }
            }

            /// How many results the operation has.
            pub fn result_count(&self) -> usize {
                match self {
                    $( Op::$name $( ( $($t),+ ) )? $( { $($s),+ } )? => result_count!($results), )+
                }
            }

            /// What it does besides giving results.
            pub fn effects(&self) -> Effects {
                match self {
                    $( Op::$name $( ( $($t),+ ) )? $( { $($s),+ } )? => $effects, )+
                }
            }
        }
    };
}

macro_rules! result_count {
    ($n:literal) => {
        $n
    };
    ($values:ident) => {
        $values.len()
    };
}

pub(super) use {operations, result_count};
