//! Reads the text form of Tile IR that [`crate::print`] writes.
//!
//! The parser also accepts text that is not canonical: any `%name` for a value (each defined once in the kernel), comments,
//! types left out where the operation determines them, and tensors without `strides` (contiguous) or `align` (16 bytes).
//! Parameters and values are distinguished by position, so they may share a name.
//!
//! It stops at the first syntax error. It continues after typing errors as far as written types allow. It still finds a value
//! of a loop's body after the loop; the verifier rejects that.
//!
//! Codes: those of [`crate::text`], ATL003 unknown name, ATL004 name defined twice, ATL005 unknown
//! operation, ATL006 nesting too deep, ATL007 wrong number of results, ATL118 the written type is not
//! the operation's, and those of [`crate::infer`].

use crate::diag::{Diagnostic, Diagnostics};
use crate::entity::{Block, Param, Value};
use crate::infer::infer;
use crate::ir::{BlockData, Kernel, Loc};
use crate::op::{BinaryOp, Kind, LoopKind, Op, Precision, Predicate, ReduceOp, Slice, UnaryOp, Update};
use crate::text::head::{HeadMut, Parsed, dtype};
use crate::text::{Cursor, Token, TokenKind as T};
use crate::types::{DType, TileType, reshape_axes};
use crate::verify::MAX_LOOPS;
use std::collections::BTreeMap;

/// Parses one kernel. All of `src` is that kernel and comments.
pub fn parse_kernel(src: &str) -> Result<Kernel, Diagnostics> {
    let mut parser = Parser {
        text: Cursor::new(src),
        kernel: Kernel::new(""),
        names: BTreeMap::new(),
        errors: Vec::new(),
        depth: 0,
    };
    if let Err(stop) = parser.kernel() {
        parser.errors.push(stop);
    }
    if parser.errors.is_empty() { Ok(parser.kernel) } else { Err(Diagnostics(parser.errors)) }
}

struct Parser<'s> {
    text: Cursor<'s>,
    kernel: Kernel,
    names: BTreeMap<&'s str, Value>,
    errors: Vec<Diagnostic>,
    depth: usize,
}

impl<'s> Parser<'s> {
    fn kernel(&mut self) -> Parsed<()> {
        self.text.expect_word("kernel")?;
        self.kernel.name = self.text.expect(T::Symbol)?.name().to_owned();
        self.text.expect(T::LParen)?;
        let Kernel { params, dims, tables, .. } = &mut self.kernel;
        HeadMut { params, dims, tables }.read(&mut self.text)?;
        self.text.expect_word("grid")?;
        self.text.expect(T::LParen)?;
        let coords = self.text.list(T::RParen, |t| t.expect(T::Value))?;
        self.text.expect(T::Equals)?;
        let extents = self.kernel.head().read_extents(&mut self.text)?;
        if coords.len() != extents.len() {
            return Err(self.text.error(format!("{} grid coordinates for {} axes", coords.len(), extents.len())));
        }
        for (name, extent) in coords.into_iter().zip(extents) {
            let coord = self.kernel.push_grid_axis(extent);
            self.define(name, coord)?;
        }
        self.kernel.cluster = self.text.eat_word("cluster");
        self.text.expect(T::LBrace)?;
        let body = self.kernel.body;
        self.block(body)?;
        if !self.text.at(T::End) {
            return Err(self.text.expected("the end of the text"));
        }
        Ok(())
    }

    fn define(&mut self, name: Token<'s>, value: Value) -> Parsed<()> {
        match self.names.insert(name.name(), value) {
            None => Ok(()),
            Some(_) => Err(Diagnostic::new(4, name.loc, format!("{name} is defined twice"))),
        }
    }

    fn value(&mut self) -> Parsed<Value> {
        let token = self.text.expect(T::Value)?;
        match self.names.get(token.name()) {
            Some(&v) => Ok(v),
            None => Err(Diagnostic::new(3, token.loc, format!("{token} is not defined above"))),
        }
    }

    /// The name of what a reduction or a scan combines by.
    fn reduction(&mut self) -> Parsed<ReduceOp> {
        let token = self.text.expect(T::Ident)?;
        let unknown = || Diagnostic::new(5, token.loc, format!("found {token}, wanted `sum`, `max` or `min`"));
        ReduceOp::from_name(token.text).ok_or_else(unknown)
    }

    /// The name of what an atomic store combines by.
    fn update(&mut self) -> Parsed<Update> {
        let token = self.text.expect(T::Ident)?;
        let unknown = || Diagnostic::new(5, token.loc, format!("found {token}, wanted `add`, `max` or `min`"));
        Update::from_name(token.text).filter(|u| u.is_atomic()).ok_or_else(unknown)
    }

    fn value_after(&mut self, kind: T) -> Parsed<Value> {
        self.text.expect(kind)?;
        self.value()
    }

    fn param(&mut self) -> Parsed<Param> {
        self.kernel.head().read_param(&mut self.text)
    }

    /// Statements up to and including `}`.
    fn block(&mut self, block: Block) -> Parsed<()> {
        while !self.text.eat(T::RBrace) {
            if self.text.at(T::End) {
                return Err(self.text.expected("a statement or `}`"));
            }
            self.statement(block)?;
        }
        Ok(())
    }

    fn statement(&mut self, block: Block) -> Parsed<()> {
        let loc = self.text.peek().loc;
        let mut names = Vec::new();
        if self.text.at(T::Value) {
            names.push(self.text.next());
            while self.text.eat(T::Comma) {
                names.push(self.text.expect(T::Value)?);
            }
            self.text.expect(T::Equals)?;
        }
        let word = self.text.peek();
        if word.kind != T::Ident {
            return Err(self.text.expected(if names.is_empty() { "a statement or `}`" } else { "an operation" }));
        }
        self.text.next();
        let (op, written) = match LoopKind::from_name(word.text) {
            Some(kind) => (self.loop_(kind)?, None),
            None => self.op(word)?,
        };
        self.append(block, loc, names, op, written)
    }

    /// Infers the operation's types, compares them with the written one and appends it.
    fn append(
        &mut self,
        block: Block,
        loc: Loc,
        names: Vec<Token<'s>>,
        op: Op,
        written: Option<TileType>,
    ) -> Parsed<()> {
        let types = match (infer(&self.kernel, &op, loc), written) {
            (Ok(types), None) => types,
            (Ok(types), Some(written)) => {
                if types != [written.clone()] {
                    let found = types.first().map_or_else(|| "nothing".to_owned(), TileType::to_string);
                    self.errors.push(Diagnostic::new(
                        118,
                        loc,
                        format!("the operation gives {found}, but {written} is written"),
                    ));
                }
                types
            }
            (Err(d), Some(written)) => {
                self.errors.push(d);
                vec![written]
            }
            // Without results nothing depends on the mistake; loops give what their `carry` says.
            (Err(d), None) if names.is_empty() => {
                self.errors.push(d);
                return Ok(());
            }
            (Err(d), None) => match &op {
                Op::Loop { inits, .. } => {
                    self.errors.push(d);
                    inits.iter().map(|&v| self.kernel.ty(v).clone()).collect()
                }
                _ => return Err(d),
            },
        };
        if names.len() != types.len() {
            let message = format!("the operation has {} results, but {} are named", types.len(), names.len());
            return Err(Diagnostic::new(7, loc, message));
        }
        let inst = self.kernel.push_inst(block, op, &types, loc);
        let results = self.kernel.results[inst].clone();
        names.into_iter().zip(results).try_for_each(|(name, v)| self.define(name, v))
    }

    fn loop_(&mut self, kind: LoopKind) -> Parsed<Op> {
        if self.depth == MAX_LOOPS {
            return Err(Diagnostic::new(6, self.text.peek().loc, format!("loops nest deeper than {MAX_LOOPS}")));
        }
        let index = self.text.expect(T::Value)?;
        self.text.expect_word("in")?;
        let lo = self.value()?;
        let hi = self.value_after(T::DotDot)?;
        let mut carried = Vec::new();
        if self.text.eat_word("carry") {
            self.text.expect(T::LParen)?;
            while !self.text.eat(T::RParen) {
                let name = self.text.expect(T::Value)?;
                let written = if self.text.eat(T::Colon) { Some(ty(&mut self.text)?) } else { None };
                carried.push((name, written, self.value_after(T::Equals)?));
                self.text.comma_or(T::RParen)?;
            }
        }
        self.text.expect(T::LBrace)?;
        let body = self.kernel.blocks.push(BlockData::default());
        let v = self.kernel.push_block_param(body, TileType::scalar(DType::I32));
        self.define(index, v)?;
        let mut inits = Vec::new();
        for (name, written, init) in carried {
            let ty = self.kernel.ty(init).clone();
            if let Some(written) = written
                && written != ty
            {
                let message = format!("{name} starts as {ty}, but {written} is written");
                self.errors.push(Diagnostic::new(118, name.loc, message));
            }
            let v = self.kernel.push_block_param(body, ty);
            self.define(name, v)?;
            inits.push(init);
        }
        self.depth += 1;
        self.block(body)?;
        self.depth -= 1;
        Ok(Op::Loop { kind, lo, hi, inits, body })
    }

    /// An operation after its mnemonic, with the type written behind it.
    fn op(&mut self, word: Token<'s>) -> Parsed<(Op, Option<TileType>)> {
        let kind = Kind::from_name(word.text);
        let op = match kind {
            // The result type of these is their attribute, so it is always written.
            Some(Kind::Splat) => {
                let value = self.text.float()?;
                let ty = self.written_type()?;
                (Op::Splat { value, dtype: ty.dtype, shape: ty.shape.clone() }, Some(ty))
            }
            Some(Kind::Iota) => {
                self.text.expect_word("axis")?;
                let axis = self.text.int()?;
                let ty = self.written_type()?;
                (Op::Iota { shape: ty.shape.clone(), axis }, Some(ty))
            }
            Some(Kind::Cast) => {
                let value = self.value()?;
                let ty = self.written_type()?;
                (Op::Cast(ty.dtype, value), Some(ty))
            }
            Some(Kind::Broadcast) => {
                let value = self.value()?;
                let ty = self.written_type()?;
                (Op::Broadcast { value, shape: ty.shape.clone() }, Some(ty))
            }
            Some(Kind::Reshape) => {
                let (loc, value) = (self.text.peek().loc, self.value()?);
                let axes = if self.text.eat_word("axes") { Some(self.kept_axes()?) } else { None };
                let ty = self.written_type()?;
                let from = self.kernel.ty(value);
                let axes = axes.or_else(|| reshape_axes(&from.shape, &ty.shape)).ok_or_else(|| {
                    let message = format!("reshape of {from} to {:?} may only add or drop axes of extent 1", ty.shape);
                    Diagnostic::new(107, loc, message)
                })?;
                (Op::Reshape { value, axes }, Some(ty))
            }
            Some(kind @ (Kind::Store | Kind::StoreDisjoint | Kind::Atomic)) => {
                let update = match kind {
                    Kind::Store => Update::Replace,
                    Kind::StoreDisjoint => Update::Disjoint,
                    _ => self.update()?,
                };
                let param = self.param()?;
                let slices = self.slices()?;
                let value = self.value_after(T::Comma)?;
                (Op::Store { param, slices, value, update }, None)
            }
            Some(Kind::Yield) => {
                let mut values = Vec::new();
                if self.text.at(T::Value) && self.text.peek_nth(1).kind != T::Equals {
                    values.push(self.value()?);
                    while self.text.eat(T::Comma) {
                        values.push(self.value()?);
                    }
                }
                (Op::Yield(values), None)
            }
            _ => {
                let op = self.typed_op(word, kind)?;
                let written = if self.text.at(T::Colon) { Some(self.written_type()?) } else { None };
                (op, written)
            }
        };
        Ok(op)
    }

    fn typed_op(&mut self, word: Token<'s>, kind: Option<Kind>) -> Parsed<Op> {
        Ok(match kind {
            Some(Kind::DimSize) => Op::DimSize(self.kernel.head().read_dim(&mut self.text)?),
            Some(Kind::DimTiles) => {
                let (dim, size) = self.kernel.head().read_tiles(&mut self.text)?;
                Op::DimTiles { dim, size }
            }
            Some(Kind::ScalarParam) => Op::ScalarParam(self.param()?),
            Some(Kind::TableGet) => {
                let table = self.kernel.head().read_table(&mut self.text)?;
                self.text.expect(T::LBracket)?;
                let mut indices = Vec::new();
                while !self.text.eat(T::RBracket) {
                    indices.push(self.value()?);
                    self.text.comma_or(T::RBracket)?;
                }
                Op::TableGet { table, indices }
            }
            Some(Kind::Select) => {
                let cond = self.value()?;
                let on_true = self.value_after(T::Comma)?;
                Op::Select { cond, on_true, on_false: self.value_after(T::Comma)? }
            }
            Some(Kind::Fma) => {
                let a = self.value()?;
                let b = self.value_after(T::Comma)?;
                Op::Fma(a, b, self.value_after(T::Comma)?)
            }
            Some(Kind::Other) => {
                let value = self.value()?;
                self.text.expect(T::Comma)?;
                let other = self.text.float()?;
                let axes = match self.text.eat_word("axes") {
                    true => {
                        self.text.expect(T::LBracket)?;
                        self.text.list(T::RBracket, Cursor::int)?
                    }
                    false => (0..self.kernel.ty(value).rank() as u8).collect(),
                };
                Op::Other { value, other, axes }
            }
            Some(Kind::Transpose) => Op::Transpose(self.value()?),
            Some(Kind::ClusterSum) => Op::ClusterSum(self.value()?),
            Some(Kind::Scan) => {
                let (op, value) = (self.reduction()?, self.value()?);
                self.text.expect_word("axis")?;
                let axis = self.text.int()?;
                Op::Scan { op, value, axis, reverse: self.text.eat_word("reverse") }
            }
            Some(Kind::Reduce) => {
                let (op, value) = (self.reduction()?, self.value()?);
                self.text.expect_word("axes")?;
                self.text.expect(T::LBracket)?;
                let axes = self.text.list(T::RBracket, Cursor::int)?;
                Op::Reduce { op, value, axes }
            }
            Some(Kind::Dot) => {
                let a = self.value()?;
                let b = self.value_after(T::Comma)?;
                let acc = if self.text.eat_word("acc") { Some(self.value()?) } else { None };
                let mut precision = Precision::Default;
                if self.text.eat_word("precision") {
                    let token = self.text.expect(T::Ident)?;
                    precision = Precision::from_name(token.text).ok_or_else(|| {
                        let wanted = "`default`, `tf32`, `bf16x3` or `tf32x3`";
                        Diagnostic::new(5, token.loc, format!("found {token}, wanted {wanted}"))
                    })?;
                }
                Op::Dot { a, b, acc, precision }
            }
            Some(Kind::Load) => {
                let param = self.param()?;
                Op::Load { param, slices: self.slices()? }
            }
            _ => {
                let name = word.text;
                if let Some(op) = UnaryOp::from_name(name) {
                    Op::Unary(op, self.value()?)
                } else if let Some(op) = BinaryOp::from_name(name) {
                    let a = self.value()?;
                    Op::Binary(op, a, self.value_after(T::Comma)?)
                } else if let Some(p) = Predicate::from_name(name) {
                    let a = self.value()?;
                    Op::Compare(p, a, self.value_after(T::Comma)?)
                } else {
                    return Err(Diagnostic::new(5, word.loc, format!("there is no operation {word}")));
                }
            }
        })
    }

    /// `[0, new, 1]`: for each axis of a reshape's result, the axis of the tile that it is.
    fn kept_axes(&mut self) -> Parsed<Vec<Option<u8>>> {
        self.text.expect(T::LBracket)?;
        self.text.list(T::RBracket, |text| if text.eat_word("new") { Ok(None) } else { text.int().map(Some) })
    }

    fn written_type(&mut self) -> Parsed<TileType> {
        self.text.expect(T::Colon)?;
        ty(&mut self.text)
    }

    fn slices(&mut self) -> Parsed<Vec<Slice>> {
        self.text.expect(T::LBracket)?;
        let mut slices = Vec::new();
        while !self.text.eat(T::RBracket) {
            slices.push(if self.text.eat(T::DotDot) {
                Slice::Whole
            } else if self.text.eat_word("at") {
                Slice::Gather(self.value()?)
            } else if !self.text.at(T::Value) {
                return Err(self.text.expected("`..`, `at`, a `%name` or `]`"));
            } else {
                let v = self.value()?;
                if self.text.eat(T::Colon) {
                    Slice::Tile { index: v, size: self.text.int()? }
                } else if self.text.eat(T::DotDotPlus) {
                    Slice::Span { start: v, len: self.text.int()? }
                } else {
                    Slice::At(v)
                }
            });
            self.text.comma_or(T::RBracket)?;
        }
        Ok(slices)
    }
}

/// `bf16[64, 128]` or `f32`.
fn ty(text: &mut Cursor<'_>) -> Parsed<TileType> {
    let dtype = dtype(text)?;
    let shape = if text.eat(T::LBracket) { text.list(T::RBracket, Cursor::int)? } else { Vec::new() };
    Ok(TileType { dtype, shape })
}
