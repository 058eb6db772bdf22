//! The macro that declares the operations of GPU IR, and what it asks of the types of their fields.
//!
//! A row gives an operation's fields, its text form, the number of its results and its effects. From the rows come the
//! enum [`Op`](super::Op), the walks over what an operation mentions, the printer, the parser, and what passes ask. So an
//! operation without one of these does not compile, and no list of operations stands anywhere else.

use super::{Block, Buffer, Ring, Value};
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

        #[allow(unused_variables, reason = "a form of its own names no field")]
        impl Printer<'_> {
            /// An operation, without its results and without the end of the line.
            pub(super) fn op(&mut self, f: &mut Formatter<'_>, op: &Op, depth: usize) -> fmt::Result {
                match op {
                    $( Op::$name $( ( $($t),+ ) )? $( { $($s),+ } )? => {
                        write_form!(self f depth op $mnemonic $text)
                    } )+
                }
            }
        }

        impl Parser<'_> {
            /// An operation from its mnemonic on.
            pub(super) fn op(&mut self) -> Parsed<Op> {
                let loc = self.text.peek().loc;
                let word = self.text.dotted()?;
                $( read_form!(self word (Op::$name $( ( $($t),+ ) )? $( { $($s),+ } )?) $mnemonic $text); )+
                Err(Diagnostic::new(5, loc, format!("there is no operation `{word}`")))
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

/// Writes a mnemonic and a form.
macro_rules! write_form {
    ($p:ident $f:ident $depth:ident $op:ident $mnemonic:tt ($print:ident $parse:ident)) => {
        $p.$print($f, $op, $depth)
    };
    ($p:ident $f:ident $depth:ident $op:ident $mnemonic:tt [$($item:tt)*]) => {{
        write_mnemonic!($f $mnemonic);
        $( write_item!($p $f $depth $item); )*
        Ok(())
    }};
}

macro_rules! write_mnemonic {
    ($f:ident $text:literal) => {
        $f.write_str($text)?
    };
    ($f:ident ($($text:literal)? $($word:ident)+)) => {{
        $( $f.write_str($text)?; )?
        $( $f.write_str(Word::word(*$word))?; )+
        $f.write_char(' ')?
    }};
}

macro_rules! write_item {
    ($p:ident $f:ident $depth:ident $text:literal) => {
        $f.write_str($text)?
    };
    ($p:ident $f:ident $depth:ident [$text:literal $field:ident]) => {
        if !Text::is_default($field) {
            $f.write_str($text)?;
            Text::write($field, $p, $f, $depth)?;
        }
    };
    ($p:ident $f:ident $depth:ident $field:ident) => {
        Text::write($field, $p, $f, $depth)?
    };
}

/// Reads a form and returns the operation, if the word is its mnemonic.
macro_rules! read_form {
    ($p:ident $word:ident $made:tt $mnemonic:literal ($print:ident $parse:ident)) => {
        if $word == $mnemonic {
            return $p.$parse();
        }
    };
    ($p:ident $word:ident $made:tt ($kind:ident) ($print:ident $parse:ident)) => {
        if let Some($kind) = Word::from_word(&$word) {
            return $p.$parse($kind);
        }
    };
    ($p:ident $word:ident ($($made:tt)*) $mnemonic:literal [$($item:tt)*]) => {
        if let Some(rest) = after_word($mnemonic, &$word) {
            $p.literal(rest)?;
            $( read_item!($p $item); )*
            return Ok($($made)*);
        }
    };
    ($p:ident $word:ident ($($made:tt)*) ($text:literal $field:ident) [$($item:tt)*]) => {
        if let Some($field) = $word.strip_prefix($text).and_then(Word::from_word) {
            $( read_item!($p $item); )*
            return Ok($($made)*);
        }
    };
    ($p:ident $word:ident ($($made:tt)*) ($first:ident $second:ident) [$($item:tt)*]) => {
        if let Some(($first, $second)) = two_words(&$word) {
            $( read_item!($p $item); )*
            return Ok($($made)*);
        }
    };
    ($p:ident $word:ident ($($made:tt)*) ($field:ident) [$($item:tt)*]) => {
        if let Some($field) = Word::from_word(&$word) {
            $( read_item!($p $item); )*
            return Ok($($made)*);
        }
    };
}

macro_rules! read_item {
    ($p:ident $text:literal) => {
        $p.literal($text)?
    };
    ($p:ident [$text:literal $field:ident]) => {
        let $field = if $p.eat_literal($text) { Text::read($p)? } else { Default::default() };
    };
    ($p:ident $field:ident) => {
        let $field = Text::read($p)?;
    };
}

pub(super) use {operations, read_form, read_item, result_count, write_form, write_item, write_mnemonic};
