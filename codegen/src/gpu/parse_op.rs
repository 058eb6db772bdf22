//! The operations of the text form of GPU IR, read.

use super::atom::MmaAtom;
use super::parse::{Parser, pair};
use super::{
    Accuracy, At, BlockData, Cache, CopyAtom, FenceKind, Op, Operand, Reach, SharedRef, Side, Slice, UnsignedOp, Valid,
    Value,
};
use atlas_dsl::Diagnostic;
use atlas_dsl::op::{BinaryOp, LoopKind, Predicate, ReduceOp, UnaryOp};
use atlas_dsl::text::head::Parsed;
use atlas_dsl::text::{Cursor, TokenKind as T};

impl Parser<'_> {
    /// An operation from its mnemonic on.
    pub(super) fn op(&mut self) -> Parsed<Op> {
        let loc = self.text.peek().loc;
        let word = self.text.dotted()?;
        Ok(match word.as_str() {
            "const" => Op::Const(self.text.float()?),
            "iota" => {
                self.text.expect_word("axis")?;
                let axis = self.text.int()?;
                let offset = if self.text.eat_word("offset") { self.text.int()? } else { 0 };
                Op::Iota { axis, offset }
            }
            "size" => Op::DimSize(self.dim()?),
            "tiles" => {
                let (dim, size) = self.dim_tiles()?;
                Op::DimTiles(dim, size)
            }
            "cta" => Op::CtaNumber,
            "ctas" => Op::CtaCount,
            "coordinate" => {
                let value = self.value()?;
                self.text.expect_word("of")?;
                let loc = self.text.peek().loc;
                let [axis] = self.kernel.head().read_extents(&mut self.text)?[..] else {
                    return Err(Diagnostic::new(5, loc, "a coordinate is of one axis"));
                };
                Op::Coordinate(value, axis)
            }
            "scalar" => Op::ScalarParam(self.param()?),
            "get" => {
                let table = self.table()?;
                self.text.expect(T::LBracket)?;
                let mut indices = Vec::new();
                while !self.text.eat(T::RBracket) {
                    indices.push(self.value()?);
                    self.comma_or(T::RBracket)?;
                }
                Op::TableGet(table, indices)
            }
            "select" => {
                let condition = self.value()?;
                let on_true = self.value_after(T::Comma)?;
                Op::Select(condition, on_true, self.value_after(T::Comma)?)
            }
            "cast" => Op::Cast(self.value()?),
            "again" => Op::Again(self.value()?),
            "broadcast" => Op::Broadcast(self.value()?),
            "reshape" => Op::Reshape(self.value()?),
            "transpose" => Op::Transpose(self.value()?),
            "convert" => Op::Convert(self.value()?),
            "part" => {
                let value = self.value()?;
                self.text.expect_word("axis")?;
                let axis = self.text.int()?;
                self.text.expect_word("offset")?;
                Op::Part { value, axis, offset: self.text.int()? }
            }
            "refill" => self.refill()?,
            "reduce" => {
                let token = self.text.expect(T::Ident)?;
                let Some(op) = ReduceOp::from_name(token.text) else {
                    return Err(Diagnostic::new(5, token.loc, format!("found {token}, wanted `sum`, `max` or `min`")));
                };
                let value = self.value()?;
                self.text.expect_word("axes")?;
                self.text.expect(T::LBracket)?;
                Op::Reduce { op, value, axes: self.text.list(T::RBracket, Cursor::int)? }
            }
            "load.global" | "load.global.keep" | "load.global.drop" => {
                let named = Cache::ALL.into_iter().find(|c| word.strip_prefix("load.global") == Some(c.suffix()));
                let cache = named.unwrap_or(Cache::Normal);
                Op::LoadGlobal { param: self.param()?, slices: self.slices()?, cache }
            }
            "store.global" => {
                let param = self.param()?;
                let slices = self.slices()?;
                Op::StoreGlobal { param, slices, value: self.value_after(T::Comma)? }
            }
            "copy" => self.copy()?,
            "load.shared" => Op::LoadShared(self.shared()?),
            "load.matrix" => self.load_matrix()?,
            "store.shared" => {
                let to = self.shared()?;
                Op::StoreShared { to, value: self.value_after(T::Comma)? }
            }
            "zero.shared" => Op::ZeroShared(self.buffer()?),
            "mma" => self.mma()?,
            "wait.mma" => {
                let value = self.value()?;
                self.text.expect(T::Comma)?;
                Op::WaitMma(value, self.text.int()?)
            }
            "acquire" => {
                let ring = self.ring()?;
                Op::Acquire(ring, self.at()?)
            }
            "commit" => {
                let ring = self.ring()?;
                Op::Commit(ring, if self.text.eat(T::Comma) { Some(self.value()?) } else { None })
            }
            "wait" => {
                let ring = self.ring()?;
                Op::Wait(ring, self.at()?)
            }
            "release" => Op::Release(self.value()?),
            "drain" => Op::Drain(self.ring()?),
            "wait.copies" => Op::CopyWait(self.text.int()?),
            "barrier" => Op::Barrier,
            "fence" => {
                let loc = self.text.peek().loc;
                match self.text.dotted()?.as_str() {
                    "proxy.async" => Op::Fence(FenceKind::ProxyAsync),
                    other => return Err(Diagnostic::new(5, loc, format!("there is no fence `{other}`"))),
                }
            }
            "programs" => {
                let body = self.kernel.blocks.push(BlockData::default());
                self.text.expect(T::LParen)?;
                while !self.text.eat(T::RParen) {
                    let (name, ty) = self.index()?;
                    let v = self.kernel.push_block_param(body, ty);
                    self.define(name, v)?;
                    self.comma_or(T::RParen)?;
                }
                self.body(body)?;
                Op::Programs(body)
            }
            "if" => {
                let condition = self.value()?;
                let body = self.kernel.blocks.push(BlockData::default());
                self.body(body)?;
                let mut others = Vec::new();
                if self.text.eat_word("else") {
                    others.push(self.value()?);
                    while self.text.eat(T::Comma) {
                        others.push(self.value()?);
                    }
                }
                Op::If(condition, body, others)
            }
            "yield" => {
                let mut values = Vec::new();
                // A `%name` with a type begins the next statement.
                if self.text.at(T::Value) && self.text.peek_nth(1).kind != T::Colon {
                    values.push(self.value()?);
                    while self.text.eat(T::Comma) {
                        values.push(self.value()?);
                    }
                }
                Op::Yield(values)
            }
            name => {
                let (function, accuracy) = match name.strip_suffix(Accuracy::Approximate.suffix()) {
                    Some(function) => (function, Accuracy::Approximate),
                    None => (name, Accuracy::Precise),
                };
                if let Some(kind) = LoopKind::from_name(name) {
                    self.loop_(kind)?
                } else if let Some(op) = UnaryOp::from_name(function) {
                    Op::Unary(op, accuracy, self.value()?)
                } else if let Some(op) = BinaryOp::from_name(function) {
                    let a = self.value()?;
                    Op::Binary(op, accuracy, a, self.value_after(T::Comma)?)
                } else if let Some(op) = UnsignedOp::ALL.into_iter().find(|op| op.name() == name) {
                    let a = self.value()?;
                    Op::Unsigned(op, a, self.value_after(T::Comma)?)
                } else if let Some(p) = Predicate::from_name(name) {
                    let a = self.value()?;
                    Op::Compare(p, a, self.value_after(T::Comma)?)
                } else {
                    return Err(Diagnostic::new(5, loc, format!("there is no operation `{name}`")));
                }
            }
        })
    }

    /// `%x with -inf valid (0: %m : 128 of M)`.
    fn refill(&mut self) -> Parsed<Op> {
        let value = self.value()?;
        self.text.expect_word("with")?;
        let neutral = self.text.float()?;
        self.text.expect_word("valid")?;
        self.text.expect(T::LParen)?;
        let mut valid = Vec::new();
        while !self.text.eat(T::RParen) {
            let axis = self.text.int()?;
            self.text.expect(T::Colon)?;
            let slice = self.slice()?;
            self.text.expect_word("of")?;
            valid.push(Valid { axis, slice, dim: self.dim()? });
            self.comma_or(T::RParen)?;
        }
        Ok(Op::Refill { value, neutral, valid })
    }

    fn slices(&mut self) -> Parsed<Vec<Slice>> {
        self.text.expect(T::LBracket)?;
        let mut slices = Vec::new();
        while !self.text.eat(T::RBracket) {
            slices.push(self.slice()?);
            self.comma_or(T::RBracket)?;
        }
        Ok(slices)
    }

    fn slice(&mut self) -> Parsed<Slice> {
        if self.text.at(T::Int) {
            let offset = self.text.int()?;
            self.text.expect(T::DotDotPlus)?;
            return Ok(Slice::Whole { offset, len: self.text.int()? });
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

    /// `cp.async.16 %a[..] -> %A[%t]` or `tma.store %C[%t] -> %c[..]`.
    fn copy(&mut self) -> Parsed<Op> {
        let loc = self.text.peek().loc;
        let name = self.text.dotted()?;
        let atom = match name.as_str() {
            "open" => CopyAtom::Open,
            "direct" => CopyAtom::Direct,
            "tma" => CopyAtom::Tma,
            "tma.multicast" => CopyAtom::TmaMulticast,
            "tma.store" => CopyAtom::TmaStore,
            _ => {
                let bytes = name.strip_prefix("cp.async.").and_then(|n| n.parse::<u32>().ok());
                let bytes = bytes.filter(|n| name == format!("cp.async.{n}"));
                let unknown = || Diagnostic::new(5, loc, format!("there is no way to copy called `{name}`"));
                CopyAtom::CpAsync(bytes.ok_or_else(unknown)?)
            }
        };
        if atom == CopyAtom::TmaStore {
            let to = self.shared()?;
            self.text.expect(T::Arrow)?;
            let param = self.param()?;
            return Ok(Op::Copy { atom, param, slices: self.slices()?, to });
        }
        let param = self.param()?;
        let slices = self.slices()?;
        self.text.expect(T::Arrow)?;
        Ok(Op::Copy { atom, param, slices, to: self.shared()? })
    }

    /// `%A[%t] at (0, 64) transposed`.
    fn shared(&mut self) -> Parsed<SharedRef> {
        let buffer = self.buffer()?;
        let mut token = None;
        if self.text.eat(T::LBracket) {
            token = Some(self.value()?);
            self.text.expect(T::RBracket)?;
        }
        let origin = if self.text.eat_word("at") { pair(&mut self.text)? } else { (0, 0) };
        Ok(SharedRef { buffer, token, origin, transposed: self.text.eat_word("transposed") })
    }

    /// `left %A[%t] at (0, 16) transposed further %g * 64`.
    fn load_matrix(&mut self) -> Parsed<Op> {
        let token = self.text.expect(T::Ident)?;
        let Some(side) = Side::ALL.into_iter().find(|s| s.name() == token.text) else {
            return Err(Diagnostic::new(5, token.loc, format!("found {token}, wanted `left` or `right`")));
        };
        let from = self.shared()?;
        let mut further = None;
        if self.text.eat_word("further") {
            let by = self.value()?;
            self.text.expect(T::Star)?;
            further = Some((by, self.text.int()?));
        }
        Ok(Op::LoadMatrix { side, from, further })
    }

    /// `, %iteration` or ` slot %slot`.
    fn at(&mut self) -> Parsed<At> {
        if self.text.eat_word("slot") {
            return Ok(At::Slot(self.value()?));
        }
        Ok(At::Iteration(self.value_after(T::Comma)?))
    }

    /// `mma.m16n8k16.bf16 [64, 64, 16] %a, %B transposed acc %c accumulate %p`.
    fn mma(&mut self) -> Parsed<Op> {
        let loc = self.text.peek().loc;
        let name = self.text.dotted()?;
        let unknown = || Diagnostic::new(5, loc, format!("there is no matrix atom `{name}`"));
        let atom = MmaAtom::from_name(&name).ok_or_else(unknown)?;
        self.text.expect(T::LBracket)?;
        let m = self.text.int()?;
        self.text.expect(T::Comma)?;
        let n = self.text.int()?;
        self.text.expect(T::Comma)?;
        let k = self.text.int()?;
        self.text.expect(T::RBracket)?;
        let a = self.operand()?;
        self.text.expect(T::Comma)?;
        let b = self.operand()?;
        let acc = if self.text.eat_word("acc") { Some(self.value()?) } else { None };
        let accumulate = if self.text.eat_word("accumulate") { Some(self.value()?) } else { None };
        Ok(Op::Mma { a, b, acc, atom, shape: (m, n, k), accumulate })
    }

    /// The name of a buffer is a shared operand, any other name a value.
    fn operand(&mut self) -> Parsed<Operand> {
        if self.at_buffer() { Ok(Operand::Shared(self.shared()?)) } else { Ok(Operand::Fragment(self.value()?)) }
    }

    fn loop_(&mut self, kind: LoopKind) -> Parsed<Op> {
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
                self.comma_or(T::RParen)?;
            }
        }
        self.body(body)?;
        Ok(Op::Loop { kind, lo, hi, inits, body })
    }
}
