//! The rules of shared memory accesses, tokens and values in flight: 430 to 441 and 452.

use super::verify::Verifier;
use super::{Block, Inst, Op, Operand, Scope, SharedRef, Type, Value, ValueDef};
use crate::gpu_ops;
use atlas_dsl::ir::Loc;
use atlas_dsl::{DType, op::LoopKind};
use std::collections::BTreeSet;

/// What the holder of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Fill the stage.
    Acquired,
    /// Read the stage.
    Awaited,
}

/// What an `mma` must find untouched until its wait.
#[derive(Clone)]
struct Held {
    acc: Option<Value>,
    operands: Vec<Value>,
    shared: Vec<SharedRef>,
}

impl<'k> Verifier<'k> {
    pub(super) fn is_token(&self, v: Value) -> bool {
        matches!(self.kernel.values[v].ty, Type::Token(_))
    }

    /// How a token was got; through loops, how their first one was.
    pub(super) fn token_kind(&self, v: Value) -> Option<TokenKind> {
        if !self.is_token(v) {
            return None;
        }
        let mut v = v;
        // A kernel that is wrong may have loops that begin with what they give: no chain is longer than there are values.
        for _ in 0..self.kernel.values.len() {
            let (inst, carried) = match self.kernel.values[v].def {
                ValueDef::Program(_) => return None,
                ValueDef::Result(inst, i) => (inst, i as usize),
                ValueDef::BlockParam(block, i) => (self.owner[block]?, (i as usize).checked_sub(1)?),
            };
            match self.kernel.insts.get(inst)? {
                Op::Acquire(..) => return Some(TokenKind::Acquired),
                Op::Wait(..) => return Some(TokenKind::Awaited),
                Op::Loop { inits, .. } => v = *inits.get(carried)?,
                Op::Commit(..) | Op::Release(_) | Op::Drain(_) | Op::InitRing(_) => return None,
                Op::If(..) | Op::Once(_) | Op::Programs(_) | Op::Yield(_) => return None,
                gpu_ops!(sources elementwise views fragments global shared clusters products orders) => return None,
            }
        }
        None
    }

    /// The rules of operations that have an effect, or that start one.
    pub(super) fn effects(&mut self, inst: Inst, op: &'k Op, loc: Loc) {
        let k = self.kernel;
        let result = k.results[inst].first().copied();
        match op {
            Op::LoadGlobal { param, slices, .. } => {
                let tile = self.access(*param, slices, loc);
                if let Some(v) = result {
                    self.tile_is(v, tile, loc);
                    slices.iter().filter_map(|s| s.gathered()).for_each(|places| self.are_places(places, v, loc));
                }
            }
            Op::StoreGlobal { param, slices, value, update } => {
                match update.is_free() {
                    false => self.not_gathered(slices, loc),
                    true => {
                        slices.iter().filter_map(|s| s.gathered()).for_each(|p| self.are_places(p, *value, loc));
                    }
                }
                let tile = self.access(*param, slices, loc);
                self.tile_is(*value, tile, loc);
                self.is_out(*param, loc);
            }
            Op::Copy { atom, param, slices, to } => {
                self.not_gathered(slices, loc);
                self.copy_atom(*atom, to, loc);
                if let Some((dtype, shape)) = self.access(*param, slices, loc) {
                    self.chunks_fit(*atom, *param, slices, loc);
                    self.engine_copy(*atom, *param, slices, to, loc);
                    self.shared(to, &shape, loc);
                    self.holds(to, dtype, loc);
                }
                if atom.is_store() { self.is_out(*param, loc) } else { self.written(to, loc) }
            }
            Op::LoadShared(from) => {
                if let Some((dtype, layout)) = result.and_then(|v| self.fragment(v)) {
                    self.shared(from, &layout.shape, loc);
                    self.holds(from, dtype, loc);
                }
            }
            Op::LoadMatrix { from, further, .. } => {
                if let Some((dtype, layout)) = result.and_then(|v| self.fragment(v)) {
                    self.shared(from, &layout.shape, loc);
                    self.holds(from, dtype, loc);
                }
                if let Some((by, _)) = further
                    && !self.is_int(*by)
                {
                    self.error(420, loc, format!("`further` takes a scalar i32, found {}", self.ty(*by)));
                }
                self.only_multiplied(result, loc);
            }
            Op::StoreShared { to, value } => {
                match self.fragment(*value) {
                    Some((dtype, layout)) => {
                        self.shared(to, &layout.shape, loc);
                        self.holds(to, dtype, loc);
                        self.written_by_warpgroups(to, layout, loc);
                    }
                    None => self.error(420, loc, format!("stores a fragment, found {}", self.ty(*value))),
                }
                self.written(to, loc);
            }
            Op::Mma { .. } => self.mma(inst, op, loc),
            Op::Acquire(ring, at) | Op::Wait(ring, at) => {
                self.ring_step(*ring, Some(*at), loc);
                if !self.is_int(at.number()) {
                    self.error(420, loc, format!("an iteration is a scalar i32, found {}", self.ty(at.number())));
                }
                if let Some(v) = result
                    && k.values[v].ty != Type::Token(*ring)
                {
                    self.error(420, loc, format!("gives a token of {ring}, but {} is written", self.ty(v)));
                }
            }
            Op::Commit(ring, Some(token))
                if k.values[*token].ty != Type::Token(*ring)
                    || self.token_kind(*token) != Some(TokenKind::Acquired) =>
            {
                self.error(432, loc, format!("commits an acquired token of {ring}, found {}", self.token_text(*token)));
            }
            Op::Release(token) if self.token_kind(*token) != Some(TokenKind::Awaited) => {
                self.error(432, loc, format!("releases an awaited token, found {}", self.token_text(*token)));
            }
            Op::Barrier if self.role.is_some_and(|r| k.roles[r].scope == Scope::Thread) => {
                self.error(452, loc, "a barrier of the CTA in a role of one thread");
            }
            Op::Loop { lo, hi, kind, .. } => {
                for v in [lo, hi] {
                    if !self.is_int(*v) {
                        let name = LoopKind::name(*kind);
                        self.error(420, loc, format!("the bounds of a {name} are scalar i32, found {}", self.ty(*v)));
                    }
                }
            }
            Op::If(condition, ..) => {
                let is_bool = self.fragment(*condition).is_some_and(|(d, l)| d == DType::Bool && l.shape.is_empty());
                if !is_bool {
                    self.error(420, loc, format!("a condition is a scalar bool, found {}", self.ty(*condition)));
                }
            }
            Op::InitRing(ring) => self.ring_step(*ring, None, loc),
            Op::Once(body) => self.once(*body, loc),
            // An empty commit; tokens and threads that are as they should be; what has no rule but its types.
            Op::Commit(..)
            | Op::Release(_)
            | Op::Drain(_)
            | Op::ZeroShared(_)
            | Op::SumCluster(..)
            | Op::WaitMma(..) => {}
            Op::Programs(_) | Op::Yield(_) | gpu_ops!(sources elementwise views fragments orders) => {}
        }
    }

    fn token_text(&self, v: Value) -> String {
        match self.token_kind(v) {
            Some(TokenKind::Acquired) => format!("an acquired {}", self.ty(v)),
            Some(TokenKind::Awaited) => format!("an awaited {}", self.ty(v)),
            None => self.ty(v),
        }
    }

    /// 442: what is loaded for matrix instructions is read by products alone, through loops or not.
    fn only_multiplied(&mut self, operand: Option<Value>, loc: Loc) {
        let multiplies =
            |&i: &Inst| matches!(self.kernel.insts[i], Op::Mma { .. } | Op::Yield(_) | Op::Loop { .. } | Op::If(..));
        if operand.is_some_and(|v| !self.uses(v).iter().all(multiplies)) {
            self.error(442, loc, "what `load.matrix` reads is an operand of products alone");
        }
    }

    /// 430 and 431: a tile of these extents in shared memory. All axes but the last are rows.
    pub(super) fn shared(&mut self, r: &SharedRef, shape: &[u32], loc: Loc) {
        let k = self.kernel;
        let data = &k.buffers[r.buffer];
        let product = |s: &[u32]| s.iter().fold(1u64, |n, &e| n.saturating_mul(e.into()));
        let (rows, cols) = match shape.split_last() {
            Some((last, rest)) => (product(rest), u64::from(*last)),
            None => (1, 1),
        };
        let (rows, cols) = if r.transposed { (cols, rows) } else { (rows, cols) };
        let (row, col) = (u64::from(r.origin.0), u64::from(r.origin.1));
        if row + rows > data.layout.rows.into() || col + cols > data.layout.cols.into() {
            let message = format!(
                "rows {row}..{} and columns {col}..{} of the buffer `{}`, which is [{}, {}]",
                row + rows,
                col + cols,
                data.name,
                data.layout.rows,
                data.layout.cols
            );
            self.error(430, loc, message);
        }
        match r.token {
            None if data.stages > 1 => {
                self.error(431, loc, format!("`{}` has {} stages, and no token says which", data.name, data.stages));
            }
            Some(v) => match k.values[v].ty {
                Type::Token(ring) if k.rings[ring].buffers.contains(&r.buffer) => {}
                Type::Token(ring) => self.error(431, loc, format!("`{}` is no buffer of {ring}", data.name)),
                _ => self.error(431, loc, format!("a stage is given by a token, found {}", self.ty(v))),
            },
            None => {}
        }
    }

    fn holds(&mut self, r: &SharedRef, dtype: DType, loc: Loc) {
        let data = &self.kernel.buffers[r.buffer];
        if data.dtype != dtype {
            self.error(420, loc, format!("`{}` holds {}, found {dtype}", data.name, data.dtype));
        }
    }

    /// 432 for a write.
    fn written(&mut self, r: &SharedRef, loc: Loc) {
        if let Some(v) = r.token
            && self.is_token(v)
            && self.token_kind(v) != Some(TokenKind::Acquired)
        {
            let name = &self.kernel.buffers[r.buffer].name;
            self.error(432, loc, format!("writes to `{name}` with {}", self.token_text(v)));
        }
    }

    /// 440 and 441 for every value in flight.
    pub(super) fn flights(&mut self) {
        let k = self.kernel;
        for (v, data) in &k.values {
            if !matches!(data.ty, Type::InFlight { .. }) {
                continue;
            }
            let Some((block, _)) = self.start(v) else { continue };
            let loc = self.loc_of(v);
            let uses = self.uses(v).to_vec();
            for &inst in &uses {
                if !matches!(k.insts[inst], Op::WaitMma(..) | Op::Yield(_) | Op::Loop { .. }) {
                    self.error(440, k.locs[inst], format!("{v} is in flight; `wait.mma` gives what can be used"));
                } else if self.place[inst].is_none_or(|(b, _)| b != block) {
                    self.error(
                        440,
                        k.locs[inst],
                        format!("{v} is waited for in a body inside the one that defines it"),
                    );
                }
            }
            match uses.len() {
                0 => self.error(440, loc, format!("{v} is in flight and never waited for")),
                1 => {}
                n => self.error(440, loc, format!("{v} is in flight and used {n} times")),
            }
            if let ValueDef::Result(inst, _) = data.def
                && let Op::Mma { a, b, acc, .. } = &k.insts[inst]
            {
                let mut held = Held { acc: *acc, operands: Vec::new(), shared: Vec::new() };
                for o in [a, b] {
                    match o {
                        Operand::Shared(r) => {
                            if !held.shared.iter().any(|h| h.buffer == r.buffer && h.token == r.token) {
                                held.shared.push(*r);
                            }
                        }
                        Operand::Fragment(v) => held.operands.push(*v),
                    }
                }
                self.flight(v, held, &mut BTreeSet::new());
            }
        }
    }

    /// The block that a value is defined in, and the first place in it that may use the value.
    fn start(&self, v: Value) -> Option<(Block, usize)> {
        match self.kernel.values[v].def {
            ValueDef::Program(_) => None,
            ValueDef::BlockParam(block, _) => Some((block, 0)),
            ValueDef::Result(inst, _) => self.place[inst].map(|(b, at)| (b, at + 1)),
        }
    }

    fn loc_of(&self, v: Value) -> Loc {
        match self.kernel.values[v].def {
            ValueDef::Program(_) => Loc::default(),
            ValueDef::BlockParam(block, _) => self.owner[block].map_or(Loc::default(), |i| self.kernel.locs[i]),
            ValueDef::Result(inst, _) => self.kernel.locs[inst],
        }
    }

    /// 441: walks from where a value is in flight to its wait, also into loops and along their back edges.
    fn flight(&mut self, v: Value, held: Held, seen: &mut BTreeSet<Value>) {
        let k = self.kernel;
        if !seen.insert(v) {
            return;
        }
        let Some((block, from)) = self.start(v) else { return };
        let end = self.uses(v).iter().find_map(|&i| self.place[i].filter(|(b, _)| *b == block).map(|(_, at)| (i, at)));
        let Some((end, to)) = end else { return };
        for &inst in k.blocks[block].insts.get(from..to).unwrap_or_default() {
            self.touches(inst, &held);
        }
        match &k.insts[end] {
            Op::Loop { inits, body, .. } => {
                for i in (0..inits.len()).filter(|&i| inits[i] == v) {
                    if let Some(&p) = k.blocks[*body].params.get(i + 1) {
                        self.flight(p, held.clone(), seen);
                    }
                }
            }
            Op::Yield(values) => {
                let Some(inst) = self.owner[block] else { return };
                for i in (0..values.len()).filter(|&i| values[i] == v) {
                    if let Some(&r) = k.results[inst].get(i) {
                        self.flight(r, held.clone(), seen);
                    }
                    if let Some(&p) = k.blocks[block].params.get(i + 1) {
                        self.flight(p, self.outside(&held, block), seen);
                    }
                }
            }
            Op::If(..) | Op::Once(_) | Op::Programs(_) => {}
            gpu_ops!(sources elementwise views fragments global shared clusters products rings orders) => {}
        }
    }

    /// What is held in the next iteration of a loop: names of this one's values mean others there.
    fn outside(&self, held: &Held, body: Block) -> Held {
        let is_outside = |v: &Value| {
            let mut at = self.start(*v).map(|(b, _)| b);
            while let Some(b) = at {
                if b == body {
                    return false;
                }
                at = self.owner[b].and_then(|i| self.place[i]).map(|(b, _)| b);
            }
            true
        };
        Held {
            acc: held.acc.filter(is_outside),
            operands: held.operands.iter().copied().filter(is_outside).collect(),
            shared: held.shared.iter().copied().filter(|r| r.token.as_ref().is_none_or(is_outside)).collect(),
        }
    }

    /// 441 for one operation and its body.
    fn touches(&mut self, inst: Inst, held: &Held) {
        let k = self.kernel;
        let (op, loc) = (&k.insts[inst], k.locs[inst]);
        let mut used = Vec::new();
        op.visit_operands(|v| used.push(v));
        let reads = |v: &Value| matches!(op, Op::Mma { acc, .. } if *acc != Some(*v));
        if let Some(v) = used.iter().find(|&&v| held.acc == Some(v) || (held.operands.contains(&v) && !reads(&v))) {
            self.error(441, loc, format!("{v} belongs to an `mma` in flight"));
        }
        for r in &held.shared {
            let name = &k.buffers[r.buffer].name;
            let wrote = |to: &SharedRef| to.buffer == r.buffer && to.token == r.token;
            match op {
                Op::Release(t) if r.token == Some(*t) => {
                    self.error(441, loc, format!("releases a stage of `{name}`, which an `mma` in flight reads"));
                }
                Op::StoreShared { to, .. } if wrote(to) => {
                    self.error(441, loc, format!("writes to `{name}`, which an `mma` in flight reads"));
                }
                Op::Copy { atom, to, .. } if !atom.is_store() && wrote(to) => {
                    self.error(441, loc, format!("copies to `{name}`, which an `mma` in flight reads"));
                }
                Op::ZeroShared(b) | Op::SumCluster(_, b) if *b == r.buffer => {
                    self.error(441, loc, format!("writes to `{name}`, which an `mma` in flight reads"));
                }
                gpu_ops!(global shared clusters rings) => {}
                gpu_ops!(sources elementwise views fragments products orders control) => {}
            }
        }
        if let Some(body) = op.body() {
            for &inner in &k.blocks[body].insts {
                self.touches(inner, held);
            }
        }
    }
}
