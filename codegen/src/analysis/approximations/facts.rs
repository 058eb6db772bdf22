//! Facts about values that do not depend on the forms of functions: which are never negative, and whose errors a rounding
//! absorbs.

use super::super::Uses;
use super::views::View;
use atlas_dsl::ir::Kernel;
use atlas_dsl::op::{BinaryOp, Op, Predicate, ReduceOp, UnaryOp};
use atlas_dsl::reach::constant_float;
use atlas_dsl::validity::yields;
use atlas_dsl::{Block, Inst, Value};
use cranelift_entity::SecondaryMap;

/// Facts about a kernel's values. A carried value has a property if its initial value has it, and if the body preserves it.
pub(super) struct Facts<'a> {
    kernel: &'a Kernel,
    uses: &'a Uses,
    no_sign: SecondaryMap<Value, bool>,
    absorbs: SecondaryMap<Value, bool>,
    softmax: SecondaryMap<Value, bool>,
    /// The loops in whose iterations a value may differ, as bits by nesting depth.
    varies: SecondaryMap<Value, u64>,
    /// The number of loops around the current block.
    depth: u32,
    walked: SecondaryMap<Block, bool>,
}

impl<'a> Facts<'a> {
    pub(super) fn of(kernel: &'a Kernel, uses: &'a Uses) -> Facts<'a> {
        let mut facts = Facts {
            kernel,
            uses,
            no_sign: SecondaryMap::new(),
            absorbs: SecondaryMap::new(),
            softmax: SecondaryMap::new(),
            varies: SecondaryMap::new(),
            depth: 0,
            walked: SecondaryMap::new(),
        };
        facts.block(kernel.body);
        facts
    }

    /// True for floats that are never negative because of how they are computed. Nothing is assumed about loaded values. They
    /// may be NaN.
    pub(super) fn has_no_sign(&self, v: Value) -> bool {
        self.no_sign[v]
    }

    /// True if an element is a sum of products, each with a factor that the kernel casts to 16 bits only for it. An error of
    /// the term is then equivalent to an error of that cast.
    pub(super) fn absorbs(&self, v: Value) -> bool {
        self.absorbs[v]
    }

    /// True if a value is the sum of a softmax: a sum of exponentials of differences to a maximum, possibly multiplied by other
    /// such exponentials.
    pub(super) fn is_softmax_sum(&self, v: Value) -> bool {
        self.softmax[v]
    }

    /// True for an exponential of a difference to a maximum, which is never above 1. The maximum may be replaced by a finite
    /// number where it is -infinity. All its elements are -infinity there, and the exponential is 0.
    pub(super) fn decays(&self, v: Value) -> bool {
        let k = self.kernel;
        let of = |v: Value| View::of(k, v);
        let Some((_, &Op::Unary(UnaryOp::Exp | UnaryOp::Exp2, x))) = k.def_op(of(v).root) else { return false };
        let Some((_, &Op::Binary(BinaryOp::Sub, a, b))) = k.def_op(of(x).root) else { return false };
        let a = of(a);
        // Each element has to be above that at its own place: a row is not above the same numbers as a column.
        let is_above = |b: &View| {
            *b == a
                || match k.def_op(b.root) {
                    Some((_, Op::Reduce { op: ReduceOp::Max, value, axes })) => b.covers(k, *value, axes, &a),
                    _ => false,
                }
        };
        let top = self.before_finite(of(b));
        match k.def_op(top.root) {
            Some((_, &Op::Binary(BinaryOp::Max, p, q))) => is_above(&top.operand(k, p)) || is_above(&top.operand(k, q)),
            _ => top != a && is_above(&top),
        }
    }

    /// The value itself, or `m` of `select(m == -infinity, c, m)` with a finite `c`.
    fn before_finite(&self, v: View) -> View {
        let k = self.kernel;
        let Some((_, &Op::Select { cond, on_true, on_false })) = k.def_op(v.root) else { return v };
        let condition = v.operand(k, cond);
        let Some((_, &Op::Compare(Predicate::Eq, x, y))) = k.def_op(condition.root) else { return v };
        let m = v.operand(k, on_false);
        let constant = |w: Value| constant_float(k, View::of(k, w).root);
        let asks = |x: Value, least: Value| condition.operand(k, x) == m && constant(least) == Some(f64::NEG_INFINITY);
        let is_finite = constant(on_true).is_some_and(f64::is_finite);
        if (asks(x, y) || asks(y, x)) && is_finite { m } else { v }
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
                self.softmax[r] = self.makes_softmax_sum(&k.insts[inst]);
                let mut varies = 0;
                k.insts[inst].visit_operands(|v| varies |= self.varies[v]);
                self.varies[r] = varies;
            }
        }
    }

    /// The bit of a loop at a nesting depth.
    fn bit(depth: u32) -> u64 {
        1u64.checked_shl(depth).unwrap_or(0)
    }

    fn loop_(&mut self, inst: Inst, inits: &[Value], body: Block) {
        let k = self.kernel;
        let params = &k.blocks[body].params[1..];
        let again = std::mem::replace(&mut self.walked[body], true);
        for (&p, &v) in params.iter().zip(inits) {
            let starts = (self.no_sign[v], self.chains(v), self.softmax[v]);
            // What an earlier walk lost stays lost, so that loops in loops are not walked by powers of two.
            let kept = if again { (self.no_sign[p], self.absorbs[p], self.softmax[p]) } else { (true, true, true) };
            (self.no_sign[p], self.absorbs[p], self.softmax[p]) =
                (starts.0 && kept.0, starts.1 && kept.1, starts.2 && kept.2);
        }
        let mut around = 0;
        k.insts[inst].visit_operands(|v| around |= self.varies[v]);
        for &p in &k.blocks[body].params {
            self.varies[p] = around | Self::bit(self.depth);
        }
        loop {
            self.depth += 1;
            self.block(body);
            self.depth -= 1;
            let mut lost = false;
            for (&p, &v) in params.iter().zip(yields(k, body)) {
                let before = (self.no_sign[p], self.absorbs[p], self.softmax[p]);
                let after = (before.0 && self.no_sign[v], before.1 && self.chains(v), before.2 && self.softmax[v]);
                lost |= after != before;
                (self.no_sign[p], self.absorbs[p], self.softmax[p]) = after;
            }
            if !lost {
                break;
            }
        }
        let left = yields(k, body).iter().fold(around, |all, &v| all | self.varies[v]) & !Self::bit(self.depth);
        for (&r, &p) in k.results[inst].iter().zip(params) {
            self.varies[r] = left;
            (self.no_sign[r], self.absorbs[r], self.softmax[r]) = (self.no_sign[p], self.absorbs[p], self.softmax[p]);
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
            | Op::Scan { value: a, .. }
            | Op::Reduce { value: a, .. } => of(a),
            _ => false,
        }
    }

    /// True for sizes and indices.
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

    fn makes_softmax_sum(&self, op: &Op) -> bool {
        let of = |v: Value| self.softmax[v];
        match *op {
            Op::Splat { value, dtype, .. } => dtype.is_float() && value == 0.0,
            Op::Reduce { op: ReduceOp::Sum, value, .. } => self.decays(value),
            Op::Binary(BinaryOp::Add, a, b) => of(a) && of(b),
            Op::Binary(BinaryOp::Mul, a, b) => (of(a) && self.decays(b)) || (of(b) && self.decays(a)),
            Op::Broadcast { value, .. } | Op::Reshape { value, .. } | Op::Transpose(value) => of(value),
            _ => false,
        }
    }

    /// True for a value that absorbs and is used once, or is 0. Two uses of one term might cancel.
    fn chains(&self, v: Value) -> bool {
        self.absorbs[v] && (self.is_used_once(v) || constant_float(self.kernel, v) == Some(0.0))
    }

    /// True for one use per computation of a value. A use in a loop in which the value is not computed counts as many uses.
    fn is_used_once(&self, v: Value) -> bool {
        matches!(self.uses.get(v), [one] if one.block == self.uses.def_block(self.kernel, v))
    }

    /// True for a value that is cast to 16 bits for one use. It must be a different number in each iteration of the loops
    /// around it, and no other cast may use the same number.
    fn is_rounded(&self, v: Value) -> bool {
        let k = self.kernel;
        let is_cast = |inst: Inst| matches!(&k.insts[inst], Op::Cast(to, _) if to.is_half());
        self.is_used_once(v)
            && match k.def_op(v) {
                Some((_, &Op::Cast(to, wide))) => {
                    to.is_half()
                        && !k.ty(wide).dtype.is_half()
                        && self.varies[wide] == Self::bit(self.depth).wrapping_sub(1)
                        && self.uses.get(wide).iter().filter(|u| is_cast(u.inst)).take(2).count() == 1
                }
                Some((_, &(Op::Transpose(v) | Op::Reshape { value: v, .. }))) => self.is_rounded(v),
                _ => false,
            }
    }
}

/// A value behind changes of shape.
pub(super) fn seen_through(kernel: &Kernel, v: Value) -> Value {
    View::of(kernel, v).root
}
