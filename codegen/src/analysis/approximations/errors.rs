//! The relative errors that approximate functions make, counted in steps from operands to results.

use super::super::Uses;
use super::facts::{Facts, seen_through};
use super::{Approximations, DECAY, MOST, Verdict};
use crate::gpu::Accuracy;
use crate::mutation::{Mutation, is_planted};
use atlas_dsl::ir::{Kernel, ValueDef};
use atlas_dsl::op::{BinaryOp, Op, ReduceOp, UnaryOp};
use atlas_dsl::reach::constant_float;
use atlas_dsl::validity::yields;
use atlas_dsl::{Block, DType, Inst, Value};
use cranelift_entity::SecondaryMap;

/// The maximum of `x f'(x) / f(x)` for exp, exp2 and sigmoid where the result is a normal number: 126 ln 2, and 128 ln 2.
const OF_EXPONENTS: u32 = 89;

/// The same of silu, which is the greater one by the product with its argument.
const OF_SILU: u32 = 92;

/// Steps of a value that a scalar argument, which is added to it, may absorb.
const OF_SCALARS: u32 = 4;

/// Steps of the sum of a softmax. Its logarithm may be off by as many times 2^-22: 2^-15.
const OF_SUMS: u32 = 128;

/// The quantity to which steps are relative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Scale {
    /// The value itself.
    #[default]
    Value,
    /// The value, but below 2^-10 a step is 2^-24: gelu, its slope, and values that are multiplied by these.
    Small,
    /// The number 1: logarithms of sums of a softmax, and values computed from these by operations that keep an absolute error.
    One,
}

/// The error bound of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Error {
    steps: u32,
    scale: Scale,
    /// Since [`DECAY`] was counted last, only decaying functions were multiplied to it. The roundings of their arguments add up
    /// to that.
    decays: bool,
    /// True if the bound counts functions that were found to be precise since.
    stale: bool,
}

impl Error {
    fn of(steps: u32) -> Error {
        Error { steps, ..Error::default() }
    }

    /// All its steps.
    fn all(self) -> u32 {
        self.steps.saturating_add(if self.decays { DECAY } else { 0 })
    }

    /// True for a value without error.
    fn is_none(self) -> bool {
        self.all() == 0 && self.scale == Scale::Value
    }

    /// The bound for one of two values. Steps relative to a value are not steps relative to 1, so a mix of both is too much.
    fn max(self, other: Error) -> Error {
        let mixes = (self.scale == Scale::One) != (other.scale == Scale::One) && !self.is_none() && !other.is_none();
        Error {
            steps: if mixes { u32::MAX } else { self.steps.max(other.steps) },
            scale: self.scale.max(other.scale),
            decays: self.decays | other.decays,
            stale: self.stale | other.stale,
        }
    }

    /// The same, with [`DECAY`] counted. Decaying functions count again from here.
    fn counted(self) -> Error {
        Error { steps: self.all(), decays: false, ..self }
    }

    /// The bound for a value of a type. A value that is rounded to 16 bits has no steps. An error that is not relative to the
    /// value stays if it is larger than that rounding. No f16 is smaller than 2^-24.
    fn in_elements_of(self, dtype: DType) -> Error {
        if !dtype.is_half() {
            return self;
        }
        let scale = if dtype == DType::F16 && self.scale == Scale::Small { Scale::Value } else { self.scale };
        Error { scale, ..Error::default() }
    }

    /// The bound for a product. Either factor may make the other large again, and more decaying functions may follow.
    fn times(self, other: Error) -> Error {
        let steps = self.all().saturating_add(other.all());
        Error { steps, scale: self.scale.max(other.scale), ..Error::default() }
    }

    /// The bound for a sum without cancellation. If both terms decay, one of them counts separately. A sum that is repeatedly
    /// added to itself has more and more terms, which are large only together.
    fn plus(self, other: Error) -> Error {
        let (less, more) = if self.steps < other.steps { (self, other) } else { (other, self) };
        if less.decays && more.decays { less.counted().max(more) } else { less.max(more) }
    }
}

/// One round: the errors of all values under the current set of approximate functions. Each fault removes some of them from the
/// set.
pub(super) struct Errors<'a> {
    kernel: &'a Kernel,
    uses: &'a Uses,
    facts: &'a Facts<'a>,
    approximations: &'a mut Approximations,
    errors: SecondaryMap<Value, Error>,
    /// The number of the last walk that met a value, so that marks need not be cleared.
    met: SecondaryMap<Value, u32>,
    walks: u32,
    /// True if a function became precise.
    changed: bool,
}

impl<'a> Errors<'a> {
    /// Walks a kernel once. True if a function became precise.
    pub(super) fn round(
        kernel: &'a Kernel,
        uses: &'a Uses,
        facts: &'a Facts<'a>,
        approximations: &'a mut Approximations,
    ) -> bool {
        let mut round = Errors {
            kernel,
            uses,
            facts,
            approximations,
            errors: SecondaryMap::new(),
            met: SecondaryMap::new(),
            walks: 0,
            changed: false,
        };
        round.block(kernel.body);
        round.changed
    }

    fn block(&mut self, block: Block) {
        let k = self.kernel;
        for &inst in &k.blocks[block].insts {
            if !self.uses.is_live(inst) {
                continue;
            }
            if let Op::Loop { inits, body, .. } = &k.insts[inst] {
                self.loop_(inst, inits, *body);
                continue;
            }
            let mut stale = false;
            k.insts[inst].visit_operands(|v| stale |= self.errors[v].stale);
            let error = match self.transfer(inst).filter(|e| e.all() <= MOST) {
                Some(error) => Error { stale, ..error },
                // Whether this is one shows in the next round.
                None if stale => Error { stale, ..Error::default() },
                None => {
                    for source in self.sources(inst) {
                        self.refuse(source, inst);
                    }
                    self.own(inst)
                }
            };
            for &r in &k.results[inst] {
                self.errors[r] = error.in_elements_of(k.ty(r).dtype);
            }
        }
    }

    /// The same for a loop. Its body is walked until the errors of carried values no longer grow.
    fn loop_(&mut self, inst: Inst, inits: &[Value], body: Block) {
        let k = self.kernel;
        let params = &k.blocks[body].params[1..];
        // A loop around this one may walk it again, with more than before: what was carried then still is.
        for (&p, &v) in params.iter().zip(inits) {
            self.errors[p] = self.errors[p].max(self.errors[v]);
        }
        let mut walks = 0;
        loop {
            self.block(body);
            walks += 1;
            let mut grown = false;
            for (&p, &v) in params.iter().zip(yields(k, body)) {
                let (before, mut after) = (self.errors[p], self.errors[p].max(self.errors[v]));
                // What only moves from one carried value to the next is there after a walk for each: this grows for ever.
                if after.steps > before.steps && walks > params.len() + 1 && after.steps <= MOST {
                    after.steps = MOST - if after.decays { DECAY } else { 0 };
                }
                grown |= after != before;
                self.errors[p] = after;
            }
            if !grown {
                break;
            }
        }
        for (&r, &p) in k.results[inst].iter().zip(params) {
            self.errors[r] = self.errors[p];
        }
    }

    /// Makes a function precise. Its counted steps are then stale.
    fn refuse(&mut self, source: Inst, fault: Inst) {
        self.approximations.verdicts[source] = Some(Verdict::Magnified(fault));
        self.changed = true;
        let k = self.kernel;
        let mut open = k.results[source].clone();
        while let Some(v) = open.pop() {
            let error = &mut self.errors[v];
            if error.is_none() || std::mem::replace(&mut error.stale, true) {
                continue;
            }
            for user in self.uses.get(v) {
                match &k.insts[user.inst] {
                    Op::Yield(values) => open.extend(self.carried(user.block, values, v)),
                    Op::Loop { inits, body, .. } => open.extend(self.carried(*body, inits, v)),
                    _ => open.extend(&k.results[user.inst]),
                }
            }
        }
    }

    /// The value in a loop's body, or after the loop, that corresponds to an initial or yielded value.
    fn carried(&self, body: Block, among: &[Value], v: Value) -> Vec<Value> {
        let k = self.kernel;
        let params = k.blocks[body].params[1..].iter();
        let results = self.uses.loop_of(body).map_or(&[][..], |inst| &k.results[inst]);
        let pairs = among.iter().zip(params.zip(results)).filter(|(of, _)| **of == v);
        pairs.flat_map(|(_, (&p, &r))| [p, r]).collect()
    }

    /// The approximate functions that contribute steps to an operation or its operands.
    fn sources(&mut self, fault: Inst) -> Vec<Inst> {
        let k = self.kernel;
        let (mut found, mut open) = (Vec::new(), Vec::new());
        self.walks += 1;
        if self.own_steps(fault) > 0 && !self.is_beyond_without(fault) {
            found.push(fault);
        }
        k.insts[fault].visit_operands(|v| open.push(v));
        while let Some(v) = open.pop() {
            if self.errors[v].is_none() || std::mem::replace(&mut self.met[v], self.walks) == self.walks {
                continue;
            }
            let (inst, at) = match k.values[v].def {
                ValueDef::Grid(_) => continue,
                ValueDef::Result(inst, at) => (inst, at as usize),
                ValueDef::BlockParam(body, at) => match self.uses.loop_of(body) {
                    Some(inst) if at > 0 => (inst, at as usize - 1),
                    _ => continue,
                },
            };
            match &k.insts[inst] {
                Op::Loop { inits, body, .. } => open.extend([inits[at], yields(k, *body)[at]]),
                op => {
                    if self.own_steps(inst) > 0 {
                        found.push(inst);
                    }
                    op.visit_operands(|v| open.push(v));
                }
            }
        }
        found
    }

    /// True if a function magnifies its operand's steps too much, whatever its own steps are.
    fn is_beyond_without(&self, inst: Inst) -> bool {
        use UnaryOp::{Erf, Exp, Exp2, Rsqrt, Sigmoid, Silu, Sqrt, Tanh};
        let own = self.own_steps(inst);
        match self.transfer(inst) {
            Some(e) => e.all() - own > MOST,
            // These take any number of steps, but not of something else than their operand.
            None => matches!(
                self.kernel.insts[inst],
                Op::Unary(Exp | Exp2 | Sigmoid | Silu | Sqrt | Rsqrt | Tanh | Erf, _) | Op::Binary(BinaryOp::Div, ..)
            ),
        }
    }

    /// The steps that an operation itself adds.
    fn own_steps(&self, inst: Inst) -> u32 {
        use UnaryOp::{Cos, Erf, Exp, Exp2, Gelu, GeluSlope, Rsqrt, Sigmoid, Silu, Sin, Sqrt, Tanh};
        if self.approximations.accuracy(inst) != Accuracy::Approximate {
            return 0;
        }
        match self.kernel.insts[inst] {
            Op::Unary(Tanh | Erf | Sin | Cos | Gelu | GeluSlope, _) => 256,
            _ if is_planted(Mutation::RoundingsForgotten) => 0,
            Op::Unary(Exp | Sigmoid | Silu, _) => 32,
            Op::Unary(Exp2 | Sqrt | Rsqrt, _) | Op::Binary(BinaryOp::Div, ..) => 1,
            _ => 0,
        }
    }

    /// The error that an operation itself adds.
    fn own(&self, inst: Inst) -> Error {
        let steps = self.own_steps(inst);
        let is_small = matches!(self.kernel.insts[inst], Op::Unary(UnaryOp::Gelu | UnaryOp::GeluSlope, _));
        let scale = if is_small && steps > 0 { Scale::Small } else { Scale::Value };
        Error { steps, scale, ..Error::default() }
    }

    fn error(&self, v: Value) -> Error {
        Error { stale: false, ..self.errors[v] }
    }

    /// The error of an operation's result; `None` if it magnifies that of an operand without bound.
    fn transfer(&self, inst: Inst) -> Option<Error> {
        let op = &self.kernel.insts[inst];
        let own = self.own(inst);
        let e = |v: Value| self.error(v);
        let mut most = Error::default();
        op.visit_operands(|v| most = most.max(e(v)));
        if most.is_none() {
            return Some(own);
        }
        if most.scale != Scale::Value && !self.keeps_scale(op, most.scale) {
            return None;
        }
        match *op {
            Op::Unary(UnaryOp::Tanh | UnaryOp::Erf, v) => Some(e(v).times(own)),
            Op::Unary(UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Sigmoid, v) => {
                Some(Error::of(e(v).all().saturating_mul(OF_EXPONENTS)).times(own))
            }
            Op::Unary(UnaryOp::Silu, v) => Some(Error::of(e(v).all().saturating_mul(OF_SILU)).times(own)),
            Op::Unary(UnaryOp::Sqrt | UnaryOp::Rsqrt, v) => Some(Error::of(e(v).all().div_ceil(2)).times(own)),
            // Whatever the sum is, its relative error is the absolute one of its logarithm.
            Op::Unary(UnaryOp::Log, v) if self.facts.is_softmax_sum(v) && most.all() <= OF_SUMS => {
                Some(Error { scale: Scale::One, ..most.counted() })
            }
            Op::Reduce { op: ReduceOp::Sum, .. } | Op::Scan { op: ReduceOp::Sum, .. } => {
                self.keeps(inst, op).then(|| most.counted())
            }
            Op::Binary(BinaryOp::Mul, a, b) => Some(self.product(a, b)),
            Op::Binary(BinaryOp::Div, a, b) => Some(e(a).times(e(b)).times(own)),
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, ..) if most.scale == Scale::One => Some(most),
            Op::Binary(BinaryOp::Add, a, b) if self.is_taken_up(a, b) || self.is_taken_up(b, a) => {
                Some(most.times(Error::of(most.all())))
            }
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => self.keeps(inst, op).then(|| e(a).plus(e(b))),
            // What products of matrices are made of was rounded for them.
            Op::Dot { acc: None, .. } if most.all() == 0 => Some(Error::default()),
            Op::Dot { acc: Some(acc), .. } if most.all() == 0 && e(acc).is_none() => Some(Error::default()),
            Op::Dot { acc: Some(acc), .. } => self.keeps(inst, op).then(|| e(acc)),
            ref op => self.keeps(inst, op).then_some(most),
        }
    }

    /// True for operations that scale an absolute error only by their own factors. In an inverse, a root or a sum it could
    /// become a large part of the result.
    fn keeps_scale(&self, op: &Op, scale: Scale) -> bool {
        let is_small = scale == Scale::Small;
        match *op {
            Op::Binary(BinaryOp::Mul, a, b) => is_small || self.error(a).is_none() || self.error(b).is_none(),
            Op::Binary(BinaryOp::Div, _, by) if is_small => self.error(by).scale == Scale::Value,
            Op::Binary(BinaryOp::Div, _, by) => self.error(by).is_none(),
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => {
                !is_small && (self.error(a).is_none() || self.error(b).is_none())
            }
            Op::Dot { acc, .. } => is_small && acc.is_none_or(|acc| self.error(acc).scale == Scale::Value),
            Op::Reduce { op, .. } | Op::Scan { op, .. } => op != ReduceOp::Sum,
            Op::Binary(BinaryOp::Min | BinaryOp::Max, ..)
            | Op::Unary(UnaryOp::Neg | UnaryOp::Abs, _)
            | Op::Cast(..)
            | Op::Select { .. }
            | Op::Broadcast { .. }
            | Op::Reshape { .. }
            | Op::Transpose(_)
            | Op::Other { .. }
            | Op::Store { .. }
            | Op::Yield(_) => true,
            _ => false,
        }
    }

    fn product(&self, a: Value, b: Value) -> Error {
        // The roundings of all arguments count at once.
        let decayed = |v: Value| Error { decays: true, ..self.error(v) };
        if self.is_all_decay(b) {
            return decayed(a);
        }
        if self.is_all_decay(a) {
            return decayed(b);
        }
        self.error(a).times(self.error(b))
    }

    /// True for an approximate, decaying function of an argument without error.
    fn is_all_decay(&self, v: Value) -> bool {
        let own = self.kernel.def_op(seen_through(self.kernel, v)).map_or(0, |(inst, _)| self.own_steps(inst));
        own > 0 && self.errors[v].all() == own && self.facts.decays(v)
    }

    /// True if a scalar argument absorbs the error of a value that is never negative. They can only cancel if the argument is
    /// negative.
    fn is_taken_up(&self, v: Value, by: Value) -> bool {
        let scalar = self.kernel.def_op(seen_through(self.kernel, by));
        matches!(scalar, Some((_, Op::ScalarParam(_))))
            && self.facts.has_no_sign(v)
            && self.errors[v].scale == Scale::Value
            && self.errors[v].all() <= OF_SCALARS
    }

    /// True if an operation's result has no larger error than its operands.
    fn keeps(&self, inst: Inst, op: &Op) -> bool {
        let absorbs = || self.kernel.results[inst].iter().all(|&r| self.facts.absorbs(r));
        match op {
            Op::Cast(to, _) => to.is_float(),
            Op::Unary(op, _) => matches!(op, UnaryOp::Neg | UnaryOp::Abs),
            Op::Binary(op, a, b) => self.binary_keeps(*op, *a, *b) || absorbs(),
            Op::Select { cond, .. } => self.errors[*cond].is_none(),
            Op::Reduce { op, value, .. } | Op::Scan { op, value, .. } => {
                *op != ReduceOp::Sum || self.facts.has_no_sign(*value)
            }
            Op::Dot { a, b, .. } => self.errors[*a].all() == 0 && self.errors[*b].all() == 0 && absorbs(),
            Op::Broadcast { .. }
            | Op::Reshape { .. }
            | Op::Transpose(_)
            | Op::Other { .. }
            | Op::Store { .. }
            | Op::Yield(_) => true,
            _ => false,
        }
    }

    fn binary_keeps(&self, op: BinaryOp, a: Value, b: Value) -> bool {
        match op {
            BinaryOp::Min | BinaryOp::Max => true,
            BinaryOp::Add if a == b || (self.facts.has_no_sign(a) && self.facts.has_no_sign(b)) => true,
            BinaryOp::Add | BinaryOp::Sub => {
                let k = self.kernel;
                // An error of the argument is magnified far from 0, the function's own is not.
                let saturates = |v| match k.def_op(seen_through(k, v)) {
                    Some((_, Op::Unary(UnaryOp::Erf | UnaryOp::Tanh, x))) => self.errors[*x].is_none(),
                    _ => false,
                };
                let one = |v| constant_float(k, seen_through(k, v)).is_some_and(|c| c.abs() == 1.0);
                (saturates(a) && one(b)) || (one(a) && saturates(b))
            }
            _ => false,
        }
    }
}
