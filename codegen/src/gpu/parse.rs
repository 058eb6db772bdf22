//! Reads the text form of GPU IR that `print` writes (its module documentation describes it).
//!
//! Beside canonical text it takes any `%name` for a value (each defined once in the kernel, and not the
//! name of a buffer or a ring), any name for a ring, layouts in any order, comments, and any target
//! `sm_N` or `sm_Na`. Types are never inferred. Stops at the first error.
//! A value defined in a body is still found after it: the verifier rejects that.
//!
//! Codes: ATL001 and ATL002 of the cursor, ATL003 unknown name, ATL004 name defined twice, ATL005 unknown
//! operation, ATL006 nesting too deep.

use super::{
    AccessKind, Block, BlockData, Buffer, BufferData, Domain, IndexMap, Kernel, Mover, Owner, Ring, RingData, RoleData,
    Scope, TensorMap, Type, Value,
};
use crate::arch::Target;
use crate::layout::tensor_map::{MapAxis, TensorMapData};
use crate::layout::{Fragment, Mode, SharedLayout, Swizzle};
use atlas_dsl::text::head::{HeadMut, Parsed, dtype};
use atlas_dsl::text::{Cursor, Token, TokenKind as T};
use atlas_dsl::{DType, Diagnostic, Diagnostics, Dim, Param, Table};
use std::collections::BTreeMap;

/// Bodies may nest this deep in text.
const MAX_DEPTH: usize = 64;

/// Parses one kernel. All of `src` is that kernel and comments.
pub fn parse_gpu(src: &str) -> Result<Kernel, Diagnostics> {
    let mut parser = Parser {
        text: Cursor::new(src),
        kernel: Kernel::new("", Target { sm: 0, specific: false }, 0),
        layouts: BTreeMap::new(),
        values: BTreeMap::new(),
        buffers: BTreeMap::new(),
        rings: BTreeMap::new(),
        maps: BTreeMap::new(),
        depth: 0,
    };
    parser.kernel()?;
    Ok(parser.kernel)
}

pub(super) struct Parser<'s> {
    pub(super) text: Cursor<'s>,
    pub(super) kernel: Kernel,
    layouts: BTreeMap<u32, Fragment>,
    values: BTreeMap<&'s str, Value>,
    buffers: BTreeMap<&'s str, Buffer>,
    rings: BTreeMap<&'s str, Ring>,
    maps: BTreeMap<&'s str, TensorMap>,
    depth: usize,
}

impl<'s> Parser<'s> {
    fn kernel(&mut self) -> Parsed<()> {
        let text = &mut self.text;
        text.expect_word("gpu")?;
        self.kernel.name = text.expect(T::Symbol)?.name().to_owned();
        self.kernel.target = target(text)?;
        text.expect_word("threads")?;
        self.kernel.threads = text.int()?;
        if text.eat_word("occupancy") {
            self.kernel.occupancy = text.int()?;
        }
        if text.eat_word("cluster") {
            self.kernel.cluster = pair(text)?;
        }
        text.expect(T::LParen)?;
        let Kernel { params, dims, tables, .. } = &mut self.kernel;
        HeadMut { params, dims, tables }.read(text)?;
        while self.text.eat_word("layout") {
            self.layout()?;
        }
        while self.text.eat_word("map") {
            self.map_data()?;
        }
        while self.text.eat_word("buffer") {
            self.buffer_data()?;
        }
        while self.text.eat_word("ring") {
            self.ring_data()?;
        }
        self.programs()?;
        while self.text.eat_word("role") {
            self.role()?;
        }
        if !self.text.at(T::End) {
            return Err(self.text.expected("`role` or the end of the text"));
        }
        Ok(())
    }

    /// `#0 = [64, 64] threads (4:2@1) regs (2:1@1)`.
    fn layout(&mut self) -> Parsed<()> {
        let at = self.text.peek();
        let number = self.layout_number()?;
        self.text.expect(T::Equals)?;
        self.text.expect(T::LBracket)?;
        let shape = self.text.list(T::RBracket, Cursor::int)?;
        self.text.expect_word("threads")?;
        let threads = modes(&mut self.text)?;
        self.text.expect_word("regs")?;
        let regs = modes(&mut self.text)?;
        match self.layouts.insert(number, Fragment { shape, threads, regs }) {
            None => Ok(()),
            Some(_) => Err(Diagnostic::new(4, at.loc, format!("layout #{number} is defined twice"))),
        }
    }

    fn layout_number(&mut self) -> Parsed<u32> {
        mark(&mut self.text, "#")?;
        self.text.int()
    }

    /// `%map0 = %a [1: 64, 0: 128] span 128`.
    fn map_data(&mut self) -> Parsed<()> {
        let name = self.text.expect(T::Value)?;
        self.text.expect(T::Equals)?;
        let param = self.param()?;
        self.text.expect(T::LBracket)?;
        let axes = self.text.list(T::RBracket, |text| {
            let axis = text.int()?;
            text.expect(T::Colon)?;
            Ok(MapAxis { axis, size: text.int()? })
        })?;
        self.text.expect_word("span")?;
        let span = self.text.int()?;
        self.is_free(name)?;
        self.maps.insert(name.name(), self.kernel.maps.push(TensorMapData { param, axes, span }));
        Ok(())
    }

    /// `(%map0)`.
    pub(super) fn map_in_parens(&mut self) -> Parsed<TensorMap> {
        self.text.expect(T::LParen)?;
        let token = self.text.expect(T::Value)?;
        let map = find(&self.maps, token, "tensor map")?;
        self.text.expect(T::RParen)?;
        Ok(map)
    }

    /// `%A: shared bf16 [4] [128, 64] pitch 128 swizzle<3,4,3> owner cluster at 0`.
    fn buffer_data(&mut self) -> Parsed<()> {
        let text = &mut self.text;
        let name = text.expect(T::Value)?;
        text.expect(T::Colon)?;
        text.expect_word("shared")?;
        let dtype = dtype(text)?;
        text.expect(T::LBracket)?;
        let stages = text.int()?;
        text.expect(T::RBracket)?;
        text.expect(T::LBracket)?;
        let rows = text.int()?;
        text.expect(T::Comma)?;
        let cols = text.int()?;
        text.expect(T::RBracket)?;
        let panel = if text.eat_word("panels") { text.int()? } else { cols };
        text.expect_word("pitch")?;
        let pitch = text.int()?;
        text.expect_word("swizzle")?;
        text.expect(T::Less)?;
        let bits = text.int()?;
        text.expect(T::Comma)?;
        let base = text.int()?;
        text.expect(T::Comma)?;
        let shift = text.int()?;
        text.expect(T::Greater)?;
        let layout = SharedLayout { rows, cols, panel, pitch, swizzle: Swizzle { bits, base, shift } };
        let mut owner = Owner::Cta;
        if text.eat_word("owner") {
            text.expect_word("cluster")?;
            owner = Owner::Cluster;
        }
        let offset = if text.eat_word("at") { Some(text.int()?) } else { None };
        let data = BufferData { name: name.name().to_owned(), dtype, stages, layout, owner, offset };
        self.is_free(name)?;
        self.buffers.insert(name.name(), self.kernel.buffers.push(data));
        Ok(())
    }

    /// `%r: stages 4 over (%A, %B) from engine at 196608`.
    fn ring_data(&mut self) -> Parsed<()> {
        let name = self.text.expect(T::Value)?;
        self.text.expect(T::Colon)?;
        self.text.expect_word("stages")?;
        let stages = self.text.int()?;
        self.text.expect_word("over")?;
        self.text.expect(T::LParen)?;
        let known = &self.buffers;
        let buffers = self.text.list(T::RParen, |text| {
            let token = text.expect(T::Value)?;
            find(known, token, "buffer")
        })?;
        let filled_by = self.mover("from")?;
        let read_by = self.mover("to")?;
        let by_warpgroups = self.text.eat_word("by");
        if by_warpgroups {
            self.text.expect_word("warpgroups")?;
        }
        let mbarriers = if self.text.eat_word("at") { Some(self.text.int()?) } else { None };
        self.is_free(name)?;
        let data = RingData { stages, buffers, filled_by, read_by, by_warpgroups, mbarriers };
        let ring = self.kernel.rings.push(data);
        self.rings.insert(name.name(), ring);
        Ok(())
    }

    /// ` from engine` or ` to engine`, or nothing.
    fn mover(&mut self, word: &str) -> Parsed<Mover> {
        if !self.text.eat_word(word) {
            return Ok(Mover::Threads);
        }
        self.text.expect_word("engine")?;
        Ok(Mover::Engine)
    }

    /// `programs (%m, %n) = grouped(8) (tiles(M, 128), N)`.
    fn programs(&mut self) -> Parsed<()> {
        self.text.expect_word("programs")?;
        self.text.expect(T::LParen)?;
        while !self.text.eat(T::RParen) {
            let (name, ty) = self.index()?;
            let coord = self.kernel.push_coord();
            self.kernel.values[coord].ty = ty;
            self.define(name, coord)?;
            self.text.comma_or(T::RParen)?;
        }
        self.text.expect(T::Equals)?;
        self.kernel.index_map = self.index_map()?;
        Ok(())
    }

    /// `persistent triangular grouped(8) (tiles(M, 128), N)`.
    fn index_map(&mut self) -> Parsed<IndexMap> {
        let persistent = self.text.eat_word("persistent");
        let mut splits = 1;
        if self.text.eat_word("split") {
            self.text.expect(T::LParen)?;
            splits = self.text.int()?;
            self.text.expect(T::RParen)?;
        }
        let kind = self.text.expect(T::Ident)?;
        let (domain, grouped) = match kind.text {
            "linear" => (Domain::Box, false),
            "grouped" => (Domain::Box, true),
            "triangular" => (Domain::Triangle, self.text.eat_word("grouped")),
            _ => {
                let message = format!(
                    "found {kind}, wanted `persistent`, `split`, or an order: `linear`, `grouped` or `triangular`"
                );
                return Err(Diagnostic::new(5, kind.loc, message));
            }
        };
        let mut group = None;
        if grouped {
            self.text.expect(T::LParen)?;
            group = Some(self.text.int()?);
            self.text.expect(T::RParen)?;
        }
        let axes = self.kernel.head().read_extents(&mut self.text)?;
        Ok(IndexMap { axes, domain, group, persistent, splits })
    }

    /// `consumer scope warpgroup 1..2 registers 240 { .. }`.
    fn role(&mut self) -> Parsed<()> {
        let name = self.text.expect(T::Ident)?.text.to_owned();
        self.text.expect_word("scope")?;
        let scope = self.scope()?;
        let mut units = (0, 0);
        if self.text.at(T::Int) {
            units.0 = self.text.int()?;
            self.text.expect(T::DotDot)?;
            units.1 = self.text.int()?;
        }
        let registers = if self.text.eat_word("registers") { Some(self.text.int()?) } else { None };
        let body = self.kernel.blocks.push(BlockData::default());
        self.body(body)?;
        self.kernel.roles.push(RoleData { name, scope, units, registers, body });
        Ok(())
    }

    fn scope(&mut self) -> Parsed<Scope> {
        let found = Scope::ALL.into_iter().find(|s| self.text.at_word(s.name()));
        let scope = found.ok_or_else(|| self.text.expected("`thread`, `warp`, `warpgroup`, `cta` or `cluster`"))?;
        self.text.next();
        Ok(scope)
    }

    /// `f32`, `f32 #0`, `inflight f32 #0` or `token %ring0`.
    pub(super) fn ty(&mut self) -> Parsed<Type> {
        if self.text.eat_word("token") {
            return Ok(Type::Token(self.ring()?));
        }
        let in_flight = self.text.eat_word("inflight");
        let dtype = dtype(&mut self.text)?;
        let at = self.text.peek();
        let layout = if is_mark(&self.text, "#") {
            let number = self.layout_number()?;
            let found = self.layouts.get(&number).cloned();
            found.ok_or_else(|| Diagnostic::new(3, at.loc, format!("there is no layout #{number}")))?
        } else {
            Fragment::scalar(self.kernel.threads, 0)
        };
        Ok(if in_flight { Type::in_flight(dtype, layout) } else { Type::fragment(dtype, layout) })
    }

    /// A new name, with a type or else that of a scalar i32.
    pub(super) fn index(&mut self) -> Parsed<(Token<'s>, Type)> {
        let name = self.text.expect(T::Value)?;
        let ty = if self.text.eat(T::Colon) { self.ty()? } else { self.kernel.scalar_type(DType::I32) };
        Ok((name, ty))
    }

    fn is_free(&self, name: Token<'s>) -> Parsed<()> {
        let word = name.name();
        let named = [self.buffers.contains_key(word), self.rings.contains_key(word), self.maps.contains_key(word)];
        if self.values.contains_key(word) || named.contains(&true) {
            return Err(Diagnostic::new(4, name.loc, format!("{name} is defined twice")));
        }
        Ok(())
    }

    pub(super) fn define(&mut self, name: Token<'s>, value: Value) -> Parsed<()> {
        self.is_free(name)?;
        self.values.insert(name.name(), value);
        Ok(())
    }

    pub(super) fn value(&mut self) -> Parsed<Value> {
        let token = self.text.expect(T::Value)?;
        let found = self.values.get(token.name()).copied();
        found.ok_or_else(|| Diagnostic::new(3, token.loc, format!("{token} is not defined above")))
    }

    pub(super) fn value_after(&mut self, kind: T) -> Parsed<Value> {
        self.text.expect(kind)?;
        self.value()
    }

    pub(super) fn buffer(&mut self) -> Parsed<Buffer> {
        let token = self.text.expect(T::Value)?;
        find(&self.buffers, token, "buffer")
    }

    /// True if the current token is the name of a buffer.
    pub(super) fn at_buffer(&self) -> bool {
        self.text.at(T::Value) && self.buffers.contains_key(self.text.peek().name())
    }

    pub(super) fn ring(&mut self) -> Parsed<Ring> {
        let token = self.text.expect(T::Value)?;
        find(&self.rings, token, "ring")
    }

    pub(super) fn param(&mut self) -> Parsed<Param> {
        self.kernel.head().read_param(&mut self.text)
    }

    pub(super) fn table(&mut self) -> Parsed<Table> {
        self.kernel.head().read_table(&mut self.text)
    }

    pub(super) fn dim(&mut self) -> Parsed<Dim> {
        self.kernel.head().read_dim(&mut self.text)
    }

    /// `{`, statements and `}`.
    pub(super) fn body(&mut self, block: Block) -> Parsed<()> {
        self.text.expect(T::LBrace)?;
        if self.depth == MAX_DEPTH {
            return Err(Diagnostic::new(6, self.text.peek().loc, format!("bodies nest deeper than {MAX_DEPTH}")));
        }
        self.depth += 1;
        while !self.text.eat(T::RBrace) {
            self.statement(block)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn statement(&mut self, block: Block) -> Parsed<()> {
        let loc = self.text.peek().loc;
        let (mut names, mut types) = (Vec::new(), Vec::new());
        if self.text.at(T::Value) {
            loop {
                names.push(self.text.expect(T::Value)?);
                self.text.expect(T::Colon)?;
                types.push(self.ty()?);
                if !self.text.eat(T::Comma) {
                    break;
                }
            }
            self.text.expect(T::Equals)?;
        }
        if !self.text.at(T::Ident) {
            return Err(self.text.expected(if names.is_empty() { "a statement or `}`" } else { "an operation" }));
        }
        let op = self.op()?;
        let inst = self.kernel.push_inst(block, op, types, loc);
        if self.text.eat_word("by") {
            self.kernel.access_kinds[inst] = Some(self.form()?);
        }
        let results = self.kernel.results[inst].clone();
        names.into_iter().zip(results).try_for_each(|(name, v)| self.define(name, v))
    }

    /// `16`, `8 within [40, 48]` or `matrix`, of the form of an access.
    fn form(&mut self) -> Parsed<AccessKind> {
        if self.text.eat_word("matrix") {
            return Ok(AccessKind::Matrix);
        }
        let bytes = self.text.int()?;
        let mut within = None;
        if self.text.eat_word("within") {
            self.text.expect(T::LBracket)?;
            within = Some(self.text.list(T::RBracket, Cursor::int)?);
        }
        Ok(AccessKind::Vector { bytes, within })
    }
}

fn find<X: Copy>(known: &BTreeMap<&str, X>, name: Token<'_>, what: &str) -> Parsed<X> {
    let found = known.get(name.name()).copied();
    found.ok_or_else(|| Diagnostic::new(3, name.loc, format!("no {what} is called {name}")))
}

/// True at a character that is no token of the shared lexer.
fn is_mark(text: &Cursor<'_>, c: &str) -> bool {
    text.at(T::Unknown) && text.peek().text == c
}

fn mark(text: &mut Cursor<'_>, c: &str) -> Parsed<()> {
    if !is_mark(text, c) {
        return Err(text.expected(&format!("`{c}`")));
    }
    text.next();
    Ok(())
}

/// `(2, 1)`.
pub(super) fn pair(text: &mut Cursor<'_>) -> Parsed<(u32, u32)> {
    text.expect(T::LParen)?;
    let first = text.int()?;
    text.expect(T::Comma)?;
    let second = text.int()?;
    text.expect(T::RParen)?;
    Ok((first, second))
}

/// `(4:2@1, 32:_)`.
fn modes(text: &mut Cursor<'_>) -> Parsed<Vec<Mode>> {
    text.expect(T::LParen)?;
    text.list(T::RParen, |text| {
        let extent = text.int()?;
        text.expect(T::Colon)?;
        if text.eat_word("_") {
            return Ok(Mode::replicated(extent));
        }
        let stride = text.int()?;
        mark(text, "@")?;
        Ok(Mode::new(extent, stride, text.int()?))
    })
}

/// `sm_80` or `sm_90a`: any number, unlike the targets that the compiler lowers for.
fn target(text: &mut Cursor<'_>) -> Parsed<Target> {
    let parsed = text.peek().text.strip_prefix("sm_").and_then(|rest| {
        let (digits, specific) = rest.strip_suffix('a').map_or((rest, false), |d| (d, true));
        // `sm_+8` and `sm_080` would not print as they are written.
        let sm: u32 = digits.parse().ok()?;
        (sm.to_string() == digits).then_some(Target { sm, specific })
    });
    let target = parsed.ok_or_else(|| text.expected("a target such as `sm_80`"))?;
    text.next();
    Ok(target)
}
