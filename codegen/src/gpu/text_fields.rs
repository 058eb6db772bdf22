//! The text of each kind of field of an operation.

use super::atom::{MmaAtom, Side};
use super::fields::{Accuracy, At, Cache, Direction, FenceKind, Operand, SharedRef, Slice, UnsignedOp, Valid};
use super::parse::{Parser, pair};
use super::print::Printer;
use super::{Block, BlockData, Buffer, Reach, Ring, Value};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::op::{BinaryOp, LoopKind, Predicate, ReduceOp, UnaryOp, Update};
use atlas_dsl::text::bodies::BodyPrinter;
use atlas_dsl::text::head::Parsed;
use atlas_dsl::text::{Cursor, TokenKind as T, commas, float_text};
use atlas_dsl::{Diagnostic, Dim, Param, Table};
use std::fmt::{self, Display, Formatter, Write};

/// A field that the text form shows.
pub(super) trait Text: Sized {
    /// Writes it.
    fn write(&self, p: &mut Printer<'_>, f: &mut Formatter<'_>, depth: usize) -> fmt::Result;

    /// Reads it.
    fn read(p: &mut Parser<'_>) -> Parsed<Self>;

    /// True if a part of the text that is optional leaves it out.
    fn is_default(&self) -> bool {
        false
    }
}

/// A field that is a mnemonic, or the end of one.
pub(super) trait Word: Sized {
    /// Its spelling.
    fn word(self) -> &'static str;

    /// What is spelled so.
    fn from_word(word: &str) -> Option<Self>;
}

/// A mnemonic of two words, of which the second may be empty: `exp.approx`.
pub(super) fn two_words<A: Word, B: Word>(word: &str) -> Option<(A, B)> {
    let whole = || Some((A::from_word(word)?, B::from_word("")?));
    let cut = || {
        let at = word.rfind('.')?;
        Some((A::from_word(&word[..at])?, B::from_word(&word[at..])?))
    };
    whole().or_else(cut)
}

/// What follows the first word of a mnemonic, if that is this word.
pub(super) fn after_word(mnemonic: &'static str, word: &str) -> Option<&'static str> {
    let end = mnemonic.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(mnemonic.len());
    (&mnemonic[..end] == word).then(|| &mnemonic[end..])
}

/// The parts of a fixed text: words, and marks of the lexer.
const MARKS: [(&str, T); 7] = [
    ("->", T::Arrow),
    (",", T::Comma),
    (":", T::Colon),
    ("(", T::LParen),
    (")", T::RParen),
    ("[", T::LBracket),
    ("]", T::RBracket),
];

impl Parser<'_> {
    /// Reads a fixed text: words, and marks such as `,` and `[`.
    pub(super) fn literal(&mut self, text: &str) -> Parsed<()> {
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let mark = MARKS.iter().find(|(mark, _)| rest.starts_with(mark));
            let len = match mark {
                Some(&(mark, kind)) => {
                    self.text.expect(kind)?;
                    mark.len()
                }
                None => {
                    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
                    debug_assert!(end > 0, "`{text}` has a mark that the lexer does not know");
                    self.text.expect_word(&rest[..end])?;
                    end.max(1)
                }
            };
            rest = rest[len..].trim_start();
        }
        Ok(())
    }

    /// Reads what begins an optional part, one word or mark, if it is there; a part without one begins with a value.
    pub(super) fn eat_literal(&mut self, text: &str) -> bool {
        let text = text.trim();
        if text.is_empty() {
            // A `%name` with a type begins the next statement.
            return self.text.at(T::Value) && self.text.peek_nth(1).kind != T::Colon;
        }
        match MARKS.iter().find(|(mark, _)| *mark == text) {
            Some(&(_, kind)) => self.text.eat(kind),
            None => self.text.eat_word(text),
        }
    }
}

/// Words of enums that know their names.
macro_rules! named {
    ($($ty:ty),+) => {$(
        impl Word for $ty {
            fn word(self) -> &'static str {
                self.name()
            }

            fn from_word(word: &str) -> Option<Self> {
                <$ty>::from_name(word)
            }
        }
    )+};
}

named!(UnaryOp, BinaryOp, Predicate, LoopKind);

/// Words of enums that list their variants.
macro_rules! listed {
    ($($ty:ty: $spelling:ident),+) => {$(
        impl Word for $ty {
            fn word(self) -> &'static str {
                self.$spelling()
            }

            fn from_word(word: &str) -> Option<Self> {
                <$ty>::ALL.into_iter().find(|x| x.$spelling() == word)
            }
        }
    )+};
}

listed!(Direction: name, UnsignedOp: name, Accuracy: suffix, Cache: suffix, FenceKind: name, Side: name);

impl Word for Update {
    fn word(self) -> &'static str {
        match self {
            Update::Replace => "",
            Update::Disjoint => ".disjoint",
            Update::Add => ".add",
            Update::Max => ".max",
            Update::Min => ".min",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Update::ALL.iter().copied().find(|update| update.word() == word)
    }
}

/// Fields whose text is a token of the lexer or a name of the kernel: how it is written, how it is read.
macro_rules! texts {
    ($($ty:ty: |$x:ident, $p:ident, $f:ident| $write:expr, |$from:ident| $read:expr;)+) => {$(
        impl Text for $ty {
            fn write(&self, $p: &mut Printer<'_>, $f: &mut Formatter<'_>, _: usize) -> fmt::Result {
                let $x = self;
                $write
            }

            fn read($from: &mut Parser<'_>) -> Parsed<Self> {
                $read
            }
        }
    )+};
}

texts! {
    f64: |x, _p, f| f.write_str(&float_text(x)), |p| p.text.float();
    u8: |x, _p, f| x.fmt(f), |p| p.text.int();
    (u32, u32, u32): |x, _p, f| write!(f, "[{}, {}, {}]", x.0, x.1, x.2), |p| {
        p.literal("[")?;
        let m = p.text.int()?;
        p.literal(",")?;
        let n = p.text.int()?;
        p.literal(",")?;
        let k = p.text.int()?;
        p.literal("]")?;
        Ok((m, n, k))
    };
    Vec<u8>: |x, _p, f| write!(f, "{x:?}"), |p| {
        p.literal("[")?;
        p.text.list(T::RBracket, Cursor::int)
    };
    Dim: |x, p, f| p.head().dim(*x).fmt(f), |p| p.dim();
    Param: |x, p, f| write!(f, "%{}", p.head().param(*x)), |p| p.param();
    Table: |x, p, f| write!(f, "@{}", p.head().table(*x)), |p| p.table();
    Buffer: |x, p, f| write!(f, "%{}", p.buffer(*x)), |p| p.buffer();
    Ring: |x, p, f| write!(f, "%{}", p.ring(*x)), |p| p.ring();
    Value: |x, p, f| f.write_str(&p.value(*x)), |p| p.value();
    (Value, u32): |x, p, f| write!(f, "{} * {}", p.value(x.0), x.1), |p| {
        let v = p.value()?;
        p.text.expect(T::Star)?;
        Ok((v, p.text.int()?))
    };
    ReduceOp: |x, _p, f| f.write_str(x.name()), |p| {
        let token = p.text.expect(T::Ident)?;
        let unknown = || Diagnostic::new(5, token.loc, format!("found {token}, wanted `sum`, `max` or `min`"));
        ReduceOp::from_name(token.text).ok_or_else(unknown)
    };
    Direction: |x, _p, f| f.write_str(x.name()), |p| {
        let token = p.text.expect(T::Ident)?;
        let unknown = || Diagnostic::new(5, token.loc, format!("found {token}, wanted `up` or `down`"));
        Direction::from_word(token.text).ok_or_else(unknown)
    };
    Side: |x, _p, f| f.write_str(x.name()), |p| {
        let token = p.text.expect(T::Ident)?;
        let unknown = || Diagnostic::new(5, token.loc, format!("found {token}, wanted `left` or `right`"));
        Side::from_word(token.text).ok_or_else(unknown)
    };
    MmaAtom: |x, _p, f| f.write_str(x.row().name), |p| {
        let loc = p.text.peek().loc;
        let name = p.text.dotted()?;
        let unknown = || Diagnostic::new(5, loc, format!("there is no matrix atom `{name}`"));
        MmaAtom::from_name(&name).ok_or_else(unknown)
    };
    FenceKind: |x, _p, f| f.write_str(x.name()), |p| {
        let loc = p.text.peek().loc;
        let name = p.text.dotted()?;
        FenceKind::from_word(&name).ok_or_else(|| Diagnostic::new(5, loc, format!("there is no fence `{name}`")))
    };
    GridExtent: |x, p, f| p.head().write_extents(f, [*x]), |p| {
        let loc = p.text.peek().loc;
        match p.kernel.head().read_extents(&mut p.text)?[..] {
            [axis] => Ok(axis),
            _ => Err(Diagnostic::new(5, loc, "a coordinate is of one axis")),
        }
    };
    // `, %iteration`, ` slot %slot` or ` slot %slot phase %phase`.
    At: |x, p, f| match *x {
        At::Iteration(n) => write!(f, ", {}", p.value(n)),
        At::Slot(slot) => write!(f, " slot {}", p.value(slot)),
        At::Cursor { slot, phase } => write!(f, " slot {} phase {}", p.value(slot), p.value(phase)),
    }, |p| {
        if !p.text.eat_word("slot") {
            return Ok(At::Iteration(p.value_after(T::Comma)?));
        }
        let slot = p.value()?;
        match p.text.eat_word("phase") {
            true => Ok(At::Cursor { slot, phase: p.value()? }),
            false => Ok(At::Slot(slot)),
        }
    };
    // The name of a buffer is a shared operand, any other name a value.
    Operand: |x, p, f| match x {
        Operand::Shared(r) => r.write(p, f, 0),
        Operand::Fragment(v) => v.write(p, f, 0),
    }, |p| match p.at_buffer() {
        true => Ok(Operand::Shared(Text::read(p)?)),
        false => Ok(Operand::Fragment(p.value()?)),
    };
    // `%A[%t] at (0, 64) transposed`.
    SharedRef: |r, p, f| {
        write!(f, "%{}", p.buffer(r.buffer))?;
        if let Some(token) = r.token {
            write!(f, "[{}]", p.value(token))?;
        }
        if r.origin != (0, 0) {
            write!(f, " at ({}, {})", r.origin.0, r.origin.1)?;
        }
        f.write_str(if r.transposed { " transposed" } else { "" })
    }, |p| {
        let buffer = p.buffer()?;
        let mut token = None;
        if p.text.eat(T::LBracket) {
            token = Some(p.value()?);
            p.text.expect(T::RBracket)?;
        }
        let origin = if p.text.eat_word("at") { pair(&mut p.text)? } else { (0, 0) };
        Ok(SharedRef { buffer, token, origin, transposed: p.text.eat_word("transposed") })
    };
    Slice: |x, p, f| {
        let plus = |f: &mut Formatter<'_>, offset: u32| match offset {
            0 => Ok(()),
            _ => write!(f, " + {offset}"),
        };
        match *x {
            Slice::At { coord, in_bounds } => {
                f.write_str(&p.value(coord))?;
                f.write_str(if in_bounds { " in_bounds" } else { "" })
            }
            Slice::Tile { index, size, offset, len, reach } => {
                write!(f, "{} : {size}", p.value(index))?;
                plus(f, offset)?;
                if len != size {
                    write!(f, " ..+ {len}")?;
                }
                if reach == Reach::Anywhere { Ok(()) } else { write!(f, " {}", reach.word()) }
            }
            Slice::Span { start, offset, len } => {
                f.write_str(&p.value(start))?;
                plus(f, offset)?;
                write!(f, " ..+ {len}")
            }
            Slice::Whole { offset, len } => write!(f, "{offset} ..+ {len}"),
            Slice::Gather { places, len } => write!(f, "at {} ..+ {len}", p.value(places)),
        }
    }, |p| p.slice();
    Vec<Slice>: |x, p, f| {
        f.write_char('[')?;
        commas(f, x, |f, s| s.write(p, f, 0))?;
        f.write_char(']')
    }, |p| {
        p.text.expect(T::LBracket)?;
        p.items(T::RBracket)
    };
    // `0: %m : 128 of M`.
    Valid: |x, p, f| {
        write!(f, "{}: ", x.axis)?;
        x.slice.write(p, f, 0)?;
        write!(f, " of {}", p.head().dim(x.dim))
    }, |p| {
        let axis = p.text.int()?;
        p.text.expect(T::Colon)?;
        let slice = p.slice()?;
        p.text.expect_word("of")?;
        Ok(Valid { axis, slice, dim: p.dim()? })
    };
}

impl Text for u32 {
    fn write(&self, _: &mut Printer<'_>, f: &mut Formatter<'_>, _: usize) -> fmt::Result {
        self.fmt(f)
    }

    fn read(p: &mut Parser<'_>) -> Parsed<Self> {
        p.text.int()
    }

    fn is_default(&self) -> bool {
        *self == 0
    }
}

impl<T: Text> Text for Option<T> {
    fn write(&self, p: &mut Printer<'_>, f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
        self.iter().try_for_each(|x| x.write(p, f, depth))
    }

    fn read(p: &mut Parser<'_>) -> Parsed<Self> {
        T::read(p).map(Some)
    }

    fn is_default(&self) -> bool {
        self.is_none()
    }
}

/// Values between commas; between brackets there may be none.
impl Text for Vec<Value> {
    fn write(&self, p: &mut Printer<'_>, f: &mut Formatter<'_>, _: usize) -> fmt::Result {
        f.write_str(&p.values(self))
    }

    fn read(p: &mut Parser<'_>) -> Parsed<Self> {
        if p.text.at(T::RBracket) {
            return Ok(Vec::new());
        }
        let mut values = vec![p.value()?];
        while p.text.eat(T::Comma) {
            values.push(p.value()?);
        }
        Ok(values)
    }

    fn is_default(&self) -> bool {
        self.is_empty()
    }
}

/// Between parentheses that the form says; there may be none.
impl Text for Vec<Valid> {
    fn write(&self, p: &mut Printer<'_>, f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
        commas(f, self, |f, x| x.write(p, f, depth))
    }

    fn read(p: &mut Parser<'_>) -> Parsed<Self> {
        let mut valid = Vec::new();
        while !p.text.at(T::RParen) {
            valid.push(Text::read(p)?);
            p.text.comma_or(T::RParen)?;
        }
        Ok(valid)
    }
}

/// A body, with the braces around it.
impl Text for Block {
    fn write(&self, p: &mut Printer<'_>, f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
        p.body(f, *self, depth)
    }

    fn read(p: &mut Parser<'_>) -> Parsed<Self> {
        let body = p.kernel.blocks.push(BlockData::default());
        p.body(body)?;
        Ok(body)
    }
}

impl Parser<'_> {
    /// Items between commas, up to a mark that is read, too.
    fn items<X: Text>(&mut self, close: T) -> Parsed<Vec<X>> {
        let mut items = Vec::new();
        while !self.text.eat(close) {
            items.push(X::read(self)?);
            self.text.comma_or(close)?;
        }
        Ok(items)
    }

    fn slice(&mut self) -> Parsed<Slice> {
        if self.text.at(T::Int) {
            let offset = self.text.int()?;
            self.text.expect(T::DotDotPlus)?;
            return Ok(Slice::Whole { offset, len: self.text.int()? });
        }
        if self.text.eat_word("at") {
            let places = self.value()?;
            self.text.expect(T::DotDotPlus)?;
            return Ok(Slice::Gather { places, len: self.text.int()? });
        }
        let v = self.value()?;
        if self.text.eat(T::Colon) {
            let size = self.text.int()?;
            let offset = self.plus()?;
            let len = if self.text.eat(T::DotDotPlus) { self.text.int()? } else { size };
            let known = [Reach::Inside, Reach::PastEnd].into_iter().find(|r| self.text.eat_word(r.word()));
            return Ok(Slice::Tile { index: v, size, offset, len, reach: known.unwrap_or(Reach::Anywhere) });
        }
        if self.text.at(T::Plus) || self.text.at(T::DotDotPlus) {
            let offset = self.plus()?;
            self.text.expect(T::DotDotPlus)?;
            return Ok(Slice::Span { start: v, offset, len: self.text.int()? });
        }
        Ok(Slice::At { coord: v, in_bounds: self.text.eat_word("in_bounds") })
    }

    /// ` + 8`, or 0.
    fn plus(&mut self) -> Parsed<u32> {
        if self.text.eat(T::Plus) { self.text.int() } else { Ok(0) }
    }
}
