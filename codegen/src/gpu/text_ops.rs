//! The text form of the operations: the printer and the parser of each row of the table.

use super::op::{Op, operation_table};
use super::parse::Parser;
use super::print::Printer;
use super::text_fields::{Text, Word, after_word, two_words};
use atlas_dsl::Diagnostic;
use atlas_dsl::text::head::Parsed;
use std::fmt::{self, Formatter, Write};

/// Makes printer and parser of the rows that [`operations`](super::declare) explains.
macro_rules! text_forms {
    ($(
        $(#[$doc:meta])*
        $name:ident
        $( ( $($t:ident : $t_ty:ty),+ ) )?
        $( { $( $(#[$s_doc:meta])* $s:ident : $s_ty:ty ),+ $(,)? } )?
        = $mnemonic:tt $text:tt gives $results:tt, $effects:expr;
    )+) => {
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

operation_table!(text_forms);
