//! Reads the text form of Tile IR that [`crate::print`] writes.
//!
//! Beside canonical text it takes any `%name` for a value (each defined once in the kernel), comments,
//! a type left out where the operation gives it, and tensors without `strides` (contiguous) or `align`
//! (16 bytes). Parameters and values are told apart by place, so they may share a name.
//!
//! Stops at the first syntax error; goes on past typing errors as far as written types allow.
//! A value defined in a loop's body is still found after the loop: the verifier rejects that.
//!
//! Codes: those of [`crate::text`], ATL003 unknown name, ATL004 name defined twice, ATL005 unknown
//! operation, ATL006 nesting too deep, ATL007 wrong number of results, ATL118 the written type is not
//! the operation's, and those of [`crate::infer`].

use crate::diag::{Diagnostic, Diagnostics};
use crate::entity::{Block, Dim, Param, Table, Value};
use crate::infer::infer;
use crate::ir::{
    Access, BlockData, DimData, DimSize, GridExtent, Kernel, Loc, ParamData, ParamKind, Stride, TableData,
};
use crate::op::{BinaryOp, LoopKind, Op, Precision, Predicate, ReduceOp, Slice, UnaryOp};
use crate::specialization::{DimFact, Specialization};
use crate::text::{Cursor, Token, TokenKind as T};
use crate::types::{DType, TileType};
use std::collections::BTreeMap;

/// Loops may nest this deep in text.
const MAX_DEPTH: usize = 64;

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

type Parsed<X> = Result<X, Diagnostic>;

/// What one parameter's text says, before the dims are known.
struct ParamText<'s> {
    name: Token<'s>,
    dtype: DType,
    access: Access,
    /// Dim names; `None` for a scalar.
    dims: Option<Vec<Token<'s>>>,
    strides: Option<Vec<Stride>>,
    align: u32,
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
        let params = self.text.list(T::RParen, param)?;
        if self.text.eat_word("dims") {
            loop {
                let dim = dim(&mut self.text)?;
                self.kernel.dims.push(dim);
                if !self.text.eat(T::Comma) {
                    break;
                }
            }
        }
        for p in params {
            let data = self.resolve_param(p)?;
            self.kernel.params.push(data);
        }
        while self.text.eat_word("table") {
            let table = table(&mut self.text)?;
            self.kernel.tables.push(table);
        }
        self.text.expect_word("grid")?;
        self.text.expect(T::LParen)?;
        let coords = self.text.list(T::RParen, |t| t.expect(T::Value))?;
        self.text.expect(T::Equals)?;
        self.text.expect(T::LParen)?;
        let kernel = &self.kernel;
        let extents = self.text.list(T::RParen, |t| {
            if t.at_word("tiles") && t.peek_nth(1).kind == T::LParen {
                let (dim, size) = dim_tiles(t, kernel)?;
                return Ok(GridExtent::Tiles { dim, size });
            }
            Ok(GridExtent::Points(dim_ref(t, kernel)?))
        })?;
        if coords.len() != extents.len() {
            return Err(self.text.error(format!("{} grid coordinates for {} axes", coords.len(), extents.len())));
        }
        for (name, extent) in coords.into_iter().zip(extents) {
            let coord = self.kernel.push_grid_axis(extent);
            self.define(name, coord)?;
        }
        self.text.expect(T::LBrace)?;
        let body = self.kernel.body;
        self.block(body)?;
        if !self.text.at(T::End) {
            return Err(self.text.expected("the end of the text"));
        }
        Ok(())
    }

    fn resolve_param(&self, p: ParamText<'s>) -> Parsed<ParamData> {
        let name = p.name.name().to_owned();
        let Some(names) = p.dims else {
            return Ok(ParamData { name, kind: ParamKind::Scalar { dtype: p.dtype } });
        };
        let dims = names.into_iter().map(|d| find_dim(&self.kernel, d)).collect::<Parsed<Vec<Dim>>>()?;
        let strides = p.strides.unwrap_or_else(|| {
            let facts: Vec<DimFact> = dims
                .iter()
                .map(|&d| match self.kernel.dims[d].size {
                    DimSize::Const(n) => DimFact::Const(n),
                    DimSize::Dynamic { divisor } => DimFact::Dynamic(divisor),
                })
                .collect();
            Specialization::contiguous_strides(&facts).into_iter().map(Stride::from).collect()
        });
        let kind = ParamKind::Tensor { dtype: p.dtype, dims, strides, align: p.align, access: p.access };
        Ok(ParamData { name, kind })
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

    fn value_after(&mut self, kind: T) -> Parsed<Value> {
        self.text.expect(kind)?;
        self.value()
    }

    fn tensor(&mut self) -> Parsed<Param> {
        let token = self.text.expect(T::Value)?;
        self.kernel
            .param_by_name(token.name())
            .ok_or_else(|| Diagnostic::new(3, token.loc, format!("no parameter is called {token}")))
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
        if self.depth == MAX_DEPTH {
            return Err(Diagnostic::new(6, self.text.peek().loc, format!("loops nest deeper than {MAX_DEPTH}")));
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
                if !self.text.eat(T::Comma) && !self.text.at(T::RParen) {
                    return Err(self.text.expected("`,` or `)`"));
                }
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
        let op = match word.text {
            // The result type of these is their attribute, so it is always written.
            "splat" => {
                let value = self.text.float()?;
                let ty = self.written_type()?;
                (Op::Splat { value, dtype: ty.dtype, shape: ty.shape.clone() }, Some(ty))
            }
            "iota" => {
                self.text.expect_word("axis")?;
                let axis = self.text.int()?;
                let ty = self.written_type()?;
                (Op::Iota { shape: ty.shape.clone(), axis }, Some(ty))
            }
            "cast" => {
                let value = self.value()?;
                let ty = self.written_type()?;
                (Op::Cast(ty.dtype, value), Some(ty))
            }
            "broadcast" => {
                let value = self.value()?;
                let ty = self.written_type()?;
                (Op::Broadcast { value, shape: ty.shape.clone() }, Some(ty))
            }
            "reshape" => {
                let value = self.value()?;
                let ty = self.written_type()?;
                (Op::Reshape { value, shape: ty.shape.clone() }, Some(ty))
            }
            "store" => {
                let param = self.tensor()?;
                let slices = self.slices()?;
                let value = self.value_after(T::Comma)?;
                (Op::Store { param, slices, value }, None)
            }
            "yield" => {
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
                let op = self.typed_op(word)?;
                let written = if self.text.at(T::Colon) { Some(self.written_type()?) } else { None };
                (op, written)
            }
        };
        Ok(op)
    }

    fn typed_op(&mut self, word: Token<'s>) -> Parsed<Op> {
        Ok(match word.text {
            "size" => Op::DimSize(dim_ref(&mut self.text, &self.kernel)?),
            "tiles" => {
                self.text.expect(T::LParen)?;
                let (dim, size) = dim_tiles_inner(&mut self.text, &self.kernel)?;
                Op::DimTiles { dim, size }
            }
            "scalar" => Op::ScalarParam(self.tensor()?),
            "get" => {
                let table = table_ref(&mut self.text, &self.kernel)?;
                self.text.expect(T::LBracket)?;
                let mut indices = Vec::new();
                while !self.text.eat(T::RBracket) {
                    indices.push(self.value()?);
                    if !self.text.eat(T::Comma) && !self.text.at(T::RBracket) {
                        return Err(self.text.expected("`,` or `]`"));
                    }
                }
                Op::TableGet { table, indices }
            }
            "select" => {
                let cond = self.value()?;
                let on_true = self.value_after(T::Comma)?;
                Op::Select { cond, on_true, on_false: self.value_after(T::Comma)? }
            }
            "other" => {
                let value = self.value()?;
                self.text.expect(T::Comma)?;
                Op::Other { value, other: self.text.float()? }
            }
            "transpose" => Op::Transpose(self.value()?),
            "reduce" => {
                let token = self.text.expect(T::Ident)?;
                let Some(op) = ReduceOp::from_name(token.text) else {
                    return Err(Diagnostic::new(5, token.loc, format!("found {token}, wanted `sum`, `max` or `min`")));
                };
                let value = self.value()?;
                self.text.expect_word("axes")?;
                self.text.expect(T::LBracket)?;
                let axes = self.text.list(T::RBracket, Cursor::int)?;
                Op::Reduce { op, value, axes }
            }
            "dot" => {
                let a = self.value()?;
                let b = self.value_after(T::Comma)?;
                let acc = if self.text.eat_word("acc") { Some(self.value()?) } else { None };
                let mut precision = Precision::Default;
                if self.text.eat_word("precision") {
                    let token = self.text.expect(T::Ident)?;
                    precision = Precision::from_name(token.text).ok_or_else(|| {
                        Diagnostic::new(5, token.loc, format!("found {token}, wanted `default` or `tf32`"))
                    })?;
                }
                Op::Dot { a, b, acc, precision }
            }
            "load" => {
                let param = self.tensor()?;
                Op::Load { param, slices: self.slices()? }
            }
            name => {
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
            } else if !self.text.at(T::Value) {
                return Err(self.text.expected("`..`, a `%name` or `]`"));
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
            if !self.text.eat(T::Comma) && !self.text.at(T::RBracket) {
                return Err(self.text.expected("`,` or `]`"));
            }
        }
        Ok(slices)
    }
}

/// `%x: out bf16[N, D] strides [?8, 1] align 16` or `%eps: f32`.
fn param<'s>(text: &mut Cursor<'s>) -> Parsed<ParamText<'s>> {
    let name = text.expect(T::Value)?;
    text.expect(T::Colon)?;
    let access = if text.eat_word("out") { Access::Out } else { Access::In };
    let dtype = dtype(text)?;
    let mut p = ParamText { name, dtype, access, dims: None, strides: None, align: 16 };
    if !text.eat(T::LBracket) {
        if access == Access::Out {
            return Err(text.expected("`[`, since a scalar is never `out`"));
        }
        return Ok(p);
    }
    p.dims = Some(text.list(T::RBracket, |t| t.expect(T::Ident))?);
    if text.eat_word("strides") {
        text.expect(T::LBracket)?;
        p.strides = Some(text.list(T::RBracket, |t| {
            Ok(if t.eat(T::Question) { Stride::Dynamic { divisor: t.int()? } } else { Stride::Const(t.signed_int()?) })
        })?);
    }
    if text.eat_word("align") {
        p.align = text.int()?;
    }
    Ok(p)
}

/// `N: ?16` or `D = 64`.
fn dim(text: &mut Cursor<'_>) -> Parsed<DimData> {
    let name = text.expect(T::Ident)?.text.to_owned();
    let size = if text.eat(T::Equals) {
        DimSize::Const(text.int()?)
    } else if text.eat(T::Colon) {
        text.expect(T::Question)?;
        DimSize::Dynamic { divisor: text.int()? }
    } else {
        return Err(text.expected("`: ?` and a divisor, or `=` and a size"));
    };
    Ok(DimData { name, size })
}

/// `@COEF: f32[5, 3] = [..]`.
fn table(text: &mut Cursor<'_>) -> Parsed<TableData> {
    let name = text.expect(T::Symbol)?.name().to_owned();
    text.expect(T::Colon)?;
    text.expect_word("f32")?;
    text.expect(T::LBracket)?;
    let shape = text.list(T::RBracket, Cursor::int)?;
    text.expect(T::Equals)?;
    text.expect(T::LBracket)?;
    let values = text.list(T::RBracket, Cursor::float)?;
    Ok(TableData { name, shape, values })
}

fn dtype(text: &mut Cursor<'_>) -> Parsed<DType> {
    let token = text.peek();
    match DType::from_name(token.text) {
        Some(d) => {
            text.next();
            Ok(d)
        }
        None => Err(text.expected("an element type")),
    }
}

/// `bf16[64, 128]` or `f32`.
fn ty(text: &mut Cursor<'_>) -> Parsed<TileType> {
    let dtype = dtype(text)?;
    let shape = if text.eat(T::LBracket) { text.list(T::RBracket, Cursor::int)? } else { Vec::new() };
    Ok(TileType { dtype, shape })
}

fn find_dim(kernel: &Kernel, name: Token<'_>) -> Parsed<Dim> {
    kernel.dim_by_name(name.text).ok_or_else(|| Diagnostic::new(3, name.loc, format!("no dim is called {name}")))
}

fn dim_ref(text: &mut Cursor<'_>, kernel: &Kernel) -> Parsed<Dim> {
    find_dim(kernel, text.expect(T::Ident)?)
}

/// `tiles(N, 64)`.
fn dim_tiles(text: &mut Cursor<'_>, kernel: &Kernel) -> Parsed<(Dim, u32)> {
    text.expect_word("tiles")?;
    text.expect(T::LParen)?;
    dim_tiles_inner(text, kernel)
}

fn dim_tiles_inner(text: &mut Cursor<'_>, kernel: &Kernel) -> Parsed<(Dim, u32)> {
    let dim = dim_ref(text, kernel)?;
    text.expect(T::Comma)?;
    let size = text.int()?;
    text.expect(T::RParen)?;
    Ok((dim, size))
}

fn table_ref(text: &mut Cursor<'_>, kernel: &Kernel) -> Parsed<Table> {
    let name = text.expect(T::Symbol)?;
    let found = kernel.tables.iter().find(|(_, t)| t.name == name.name());
    found.map(|(t, _)| t).ok_or_else(|| Diagnostic::new(3, name.loc, format!("no table is called {name}")))
}
