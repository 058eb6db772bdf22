//! The operations whose text form is no list of their fields: copies, loops and programs.

use super::fields::{Cache, CopyAtom};
use super::parse::Parser;
use super::print::Printer;
use super::text_fields::{Text, Word};
use super::{BlockData, Op, Value};
use atlas_dsl::Diagnostic;
use atlas_dsl::op::LoopKind;
use atlas_dsl::text::bodies::{Bodies, BodyPrinter};
use atlas_dsl::text::head::Parsed;
use atlas_dsl::text::{TokenKind as T, commas};
use std::fmt::{self, Display, Formatter, Write};

impl Display for CopyAtom {
    /// `cp.async.16`, `tma.evict_first`, `tma.store`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            CopyAtom::CpAsync(bytes) => write!(f, "cp.async.{bytes}"),
            CopyAtom::Open => f.write_str("open"),
            CopyAtom::Direct => f.write_str("direct"),
            CopyAtom::Tma(_, cache) => write!(f, "tma{}", cache.suffix()),
            CopyAtom::TmaMulticast(_) => f.write_str("tma.multicast"),
            CopyAtom::TmaStore(_) => f.write_str("tma.store"),
        }
    }
}

impl Printer<'_> {
    /// From where it is read to where it is written.
    pub(super) fn print_copy(&mut self, f: &mut Formatter<'_>, op: &Op, depth: usize) -> fmt::Result {
        let Op::Copy { atom, param, slices, to } = op else { return Err(fmt::Error) };
        write!(f, "copy {atom}")?;
        if let Some(map) = atom.map() {
            write!(f, "(%{})", self.map(map))?;
        }
        f.write_char(' ')?;
        if atom.is_store() {
            to.write(self, f, depth)?;
            f.write_str(" -> ")?;
            param.write(self, f, depth)?;
            return slices.write(self, f, depth);
        }
        param.write(self, f, depth)?;
        slices.write(self, f, depth)?;
        f.write_str(" -> ")?;
        to.write(self, f, depth)
    }

    pub(super) fn print_loop(&mut self, f: &mut Formatter<'_>, op: &Op, depth: usize) -> fmt::Result {
        let Op::Loop { kind, lo, hi, inits, body } = op else { return Err(fmt::Error) };
        self.loop_(f, kind.name(), [*lo, *hi], inits, *body, depth)
    }

    pub(super) fn print_programs(&mut self, f: &mut Formatter<'_>, op: &Op, depth: usize) -> fmt::Result {
        let Op::Programs(body) = op else { return Err(fmt::Error) };
        f.write_str("programs (")?;
        commas(f, self.kernel.params(*body), |f, &p| f.write_str(&self.index(p)))?;
        f.write_char(')')?;
        self.body(f, *body, depth)
    }
}

impl Parser<'_> {
    /// `cp.async.16 %a[..] -> %A[%t]` or `tma.store(%map0) %C[%t] -> %c[..]`.
    pub(super) fn parse_copy(&mut self) -> Parsed<Op> {
        let loc = self.text.peek().loc;
        let name = self.text.dotted()?;
        let atom = match name.as_str() {
            "open" => CopyAtom::Open,
            "direct" => CopyAtom::Direct,
            "tma.multicast" => CopyAtom::TmaMulticast(self.map_in_parens()?),
            "tma.store" => CopyAtom::TmaStore(self.map_in_parens()?),
            _ => match name.strip_prefix("tma").and_then(Cache::from_word) {
                Some(cache) => CopyAtom::Tma(self.map_in_parens()?, cache),
                None => {
                    let bytes = name.strip_prefix("cp.async.").and_then(|n| n.parse::<u32>().ok());
                    let bytes = bytes.filter(|n| name == format!("cp.async.{n}"));
                    let unknown = || Diagnostic::new(5, loc, format!("there is no way to copy called `{name}`"));
                    CopyAtom::CpAsync(bytes.ok_or_else(unknown)?)
                }
            },
        };
        if atom.is_store() {
            let to = Text::read(self)?;
            self.text.expect(T::Arrow)?;
            let param = self.param()?;
            return Ok(Op::Copy { atom, param, slices: Text::read(self)?, to });
        }
        let param = self.param()?;
        let slices = Text::read(self)?;
        self.text.expect(T::Arrow)?;
        Ok(Op::Copy { atom, param, slices, to: Text::read(self)? })
    }

    pub(super) fn parse_programs(&mut self) -> Parsed<Op> {
        let body = self.kernel.blocks.push(BlockData::default());
        self.text.expect(T::LParen)?;
        while !self.text.eat(T::RParen) {
            let (name, ty) = self.index()?;
            let v = self.kernel.push_block_param(body, ty);
            self.define(name, v)?;
            self.text.comma_or(T::RParen)?;
        }
        self.body(body)?;
        Ok(Op::Programs(body))
    }

    pub(super) fn parse_loop(&mut self, kind: LoopKind) -> Parsed<Op> {
        let (name, ty) = self.index()?;
        self.text.expect_word("in")?;
        let lo = self.value()?;
        let hi = self.value_after(T::DotDot)?;
        let body = self.kernel.blocks.push(BlockData::default());
        let index = self.kernel.push_block_param(body, ty);
        self.define(name, index)?;
        let mut inits: Vec<Value> = Vec::new();
        if self.text.eat_word("carry") {
            self.text.expect(T::LParen)?;
            while !self.text.eat(T::RParen) {
                let name = self.text.expect(T::Value)?;
                self.text.expect(T::Colon)?;
                let ty = self.ty()?;
                inits.push(self.value_after(T::Equals)?);
                let v = self.kernel.push_block_param(body, ty);
                self.define(name, v)?;
                self.text.comma_or(T::RParen)?;
            }
        }
        self.body(body)?;
        Ok(Op::Loop { kind, lo, hi, inits, body })
    }
}
