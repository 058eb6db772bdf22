//! What is known of values whatever the forms of functions: which have no sign, and whose errors a rounding takes up.

use super::super::Uses;
use super::DECAY;
use atlas_dsl::ir::Kernel;
use atlas_dsl::op::{BinaryOp, Op, Predicate, ReduceOp, UnaryOp};
use atlas_dsl::reach::constant_float;
use atlas_dsl::validity::yields;
use atlas_dsl::{Block, Inst, Value};
use cranelift_entity::SecondaryMap;

/// Terms of a sum whose roundings, in some order, come to what functions that decay are off by: 64 steps, of four roundings each.
const LONG: u64 = 4 * DECAY as u64 + 1;

/// Facts of a kernel's values. What a loop carries has a property if what it starts as has it, and the body's result has
/// it whenever what is carried has.
pub(super) struct Facts<'a> {
    kernel: &'a Kernel,
    uses: &'a Uses,
    no_sign: SecondaryMap<Value, bool>,
    absorbs: SecondaryMap<Value, bool>,
    long: SecondaryMap<Value, bool>,
    walked: SecondaryMap<Block, bool>,
}

impl<'a> Facts<'a> {
    pub(super) fn of(kernel: &'a Kernel, uses: &'a Uses) -> Facts<'a> {
        let mut facts = Facts {
            kernel,
            uses,
            no_sign: SecondaryMap::new(),
            absorbs: SecondaryMap::new(),
            long: SecondaryMap::new(),
            walked: SecondaryMap::new(),
        };
        facts.block(kernel.body);
        facts
    }

    /// True of floats that are never negative, by their own making; nothing is assumed of what is loaded. They may be NaN.
    pub(super) fn has_no_sign(&self, v: Value) -> bool {
        self.no_sign[v]
    }

    /// True if an element is a sum of products of which each has a factor that the kernel casts to 16 bits for it alone, so
    /// that whatever a term is off by, that cast might have been off by.
    pub(super) fn absorbs(&self, v: Value) -> bool {
        self.absorbs[v]
    }

    /// True if a value sums, in reductions of at least [`LONG`] terms each, exponentials of differences to a maximum, perhaps
    /// multiplied by others of these: the sum of a softmax.
    pub(super) fn is_long_sum(&self, v: Value) -> bool {
        self.long[v]
    }

    /// True of an exponential of a difference to a maximum, which is never above 1. The maximum may be replaced by a finite
    /// number where it is -infinity: what it is the maximum of is -infinity there, and the exponential 0.
    pub(super) fn decays(&self, v: Value) -> bool {
        let k = self.kernel;
        let of = |v: Value| seen_through(k, v);
        let Some((_, &Op::Unary(UnaryOp::Exp | UnaryOp::Exp2, x))) = k.def_op(of(v)) else { return false };
        let Some((_, &Op::Binary(BinaryOp::Sub, a, b))) = k.def_op(of(x)) else { return false };
        let is_above = |b: Value| {
            of(b) == of(a)
                || matches!(k.def_op(of(b)), Some((_, &Op::Reduce { op: ReduceOp::Max, value, .. })) if of(value) == of(a))
        };
        let top = self.before_finite(of(b));
        match k.def_op(top) {
            Some((_, &Op::Binary(BinaryOp::Max, p, q))) => is_above(p) || is_above(q),
            _ => top != of(a) && is_above(top),
        }
    }

    /// The value itself, or `m` of `select(m == -infinity, c, m)` with a finite `c`.
    fn before_finite(&self, v: Value) -> Value {
        let k = self.kernel;
        let of = |v: Value| seen_through(k, v);
        let Some((_, &Op::Select { cond, on_true, on_false })) = k.def_op(v) else { return v };
        let Some((_, &Op::Compare(Predicate::Eq, x, y))) = k.def_op(of(cond)) else { return v };
        let m = of(on_false);
        let is_least = |w: Value| constant_float(k, of(w)) == Some(f64::NEG_INFINITY);
        let asks = (of(x) == m && is_least(y)) || (of(y) == m && is_least(x));
        let is_finite = constant_float(k, of(on_true)).is_some_and(f64::is_finite);
        if asks && is_finite { m } else { v }
    }

    fn block(&mut self, block: Block) {
        let k = self.kernel;
        for &inst in k.blocks[block].insts.iter().filter(|&&i| self.uses.is_live(i)) {
            if let Op::Loop { inits, body, .. } = &k.insts[inst] {
                self.loop_(inst, inits, *body);
                continue;
            }
            for &r in &k.results[inst] {
                // Integers wrap.
                self.no_sign[r] = k.ty(r).dtype.is_float() && self.makes_no_sign(&k.insts[inst]);
                self.absorbs[r] = self.makes_absorbing(&k.insts[inst]);
                self.long[r] = self.makes_long_sum(&k.insts[inst]);
            }
        }
    }

    fn loop_(&mut self, inst: Inst, inits: &[Value], body: Block) {
        let k = self.kernel;
        let params = &k.blocks[body].params[1..];
        let again = std::mem::replace(&mut self.walked[body], true);
        for (&p, &v) in params.iter().zip(inits) {
            let starts = (self.no_sign[v], self.chains(v), self.long[v]);
            // What an earlier walk lost stays lost, so that loops in loops are not walked by powers of two.
            let kept = if again { (self.no_sign[p], self.absorbs[p], self.long[p]) } else { (true, true, true) };
            (self.no_sign[p], self.absorbs[p], self.long[p]) =
                (starts.0 && kept.0, starts.1 && kept.1, starts.2 && kept.2);
        }
        loop {
            self.block(body);
            let mut lost = false;
            for (&p, &v) in params.iter().zip(yields(k, body)) {
                let before = (self.no_sign[p], self.absorbs[p], self.long[p]);
                let after = (before.0 && self.no_sign[v], before.1 && self.chains(v), before.2 && self.long[v]);
                lost |= after != before;
                (self.no_sign[p], self.absorbs[p], self.long[p]) = after;
            }
            if !lost {
                break;
            }
        }
        for (&r, &p) in k.results[inst].iter().zip(params) {
            (self.no_sign[r], self.absorbs[r], self.long[r]) = (self.no_sign[p], self.absorbs[p], self.long[p]);
        }
    }

    fn makes_no_sign(&self, op: &Op) -> bool {
        let of = |v: &Value| self.no_sign[*v];
        match op {
            Op::Splat { value, .. } => *value >= 0.0,
            Op::Unary(op, _) => op.row().never_negative,
            Op::Binary(BinaryOp::Mul, a, b) if a == b => true,
            Op::Binary(BinaryOp::Mul | BinaryOp::Div | BinaryOp::Add | BinaryOp::Min, a, b) => of(a) && of(b),
            Op::Binary(BinaryOp::Max, a, b) => of(a) || of(b),
            Op::Select { on_true, on_false, .. } => of(on_true) && of(on_false),
            Op::Cast(_, a) => of(a) || self.counts(*a),
            Op::Broadcast { value: a, .. }
            | Op::Reshape { value: a, .. }
            | Op::Transpose(a)
            | Op::Reduce { value: a, .. } => of(a),
            _ => false,
        }
    }

    /// True of sizes and indices.
    fn counts(&self, v: Value) -> bool {
        match self.kernel.def_op(v) {
            Some((_, Op::Splat { value, dtype, .. })) => dtype.is_int() && *value >= 0.0,
            Some((_, Op::DimSize(_) | Op::DimTiles { .. } | Op::Iota { .. })) => true,
            _ => false,
        }
    }

    fn makes_absorbing(&self, op: &Op) -> bool {
        match op {
            Op::Splat { value, dtype, .. } => dtype.is_float() && *value == 0.0,
            Op::Dot { a, b, acc, .. } => {
                (self.is_rounded(*a) || self.is_rounded(*b)) && acc.is_none_or(|acc| self.chains(acc))
            }
            Op::Unary(UnaryOp::Neg, a)
            | Op::Binary(BinaryOp::Div, a, _)
            | Op::Broadcast { value: a, .. }
            | Op::Reshape { value: a, .. }
            | Op::Transpose(a) => self.chains(*a),
            Op::Cast(to, a) => to.is_float() && self.chains(*a),
            Op::Binary(BinaryOp::Mul, a, b) => self.chains(*a) || self.chains(*b),
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => self.chains(*a) && self.chains(*b),
            Op::Select { on_true, on_false, .. } => self.chains(*on_true) && self.chains(*on_false),
            _ => false,
        }
    }

    fn makes_long_sum(&self, op: &Op) -> bool {
        let of = |v: Value| self.long[v];
        match *op {
            Op::Splat { value, dtype, .. } => dtype.is_float() && value == 0.0,
            Op::Reduce { op: ReduceOp::Sum, value, ref axes } => {
                let shape = &self.kernel.ty(value).shape;
                let terms: u64 =
                    axes.iter().filter_map(|&a| shape.get(usize::from(a))).map(|&n| u64::from(n)).product();
                terms >= LONG && self.decays(value)
            }
            Op::Binary(BinaryOp::Add, a, b) => of(a) && of(b),
            Op::Binary(BinaryOp::Mul, a, b) => (of(a) && self.decays(b)) || (of(b) && self.decays(a)),
            Op::Broadcast { value, .. } | Op::Reshape { value, .. } | Op::Transpose(value) => of(value),
            _ => false,
        }
    }

    /// True of what absorbs and has one use, or is 0: what two uses make of one term may cancel.
    fn chains(&self, v: Value) -> bool {
        self.absorbs[v] && (self.uses.get(v).len() == 1 || constant_float(self.kernel, v) == Some(0.0))
    }

    /// True of what is cast to 16 bits, for one use.
    fn is_rounded(&self, v: Value) -> bool {
        self.uses.get(v).len() == 1
            && match self.kernel.def_op(v) {
                Some((_, Op::Cast(to, wide))) => to.is_half() && !self.kernel.ty(*wide).dtype.is_half(),
                Some((_, &(Op::Transpose(v) | Op::Reshape { value: v, .. }))) => self.is_rounded(v),
                _ => false,
            }
    }
}

/// A value behind broadcasts and reshapes.
pub(super) fn seen_through(kernel: &Kernel, mut v: Value) -> Value {
    while let Some((_, &(Op::Broadcast { value, .. } | Op::Reshape { value, .. }))) = kernel.def_op(v) {
        v = value;
    }
    v
}
