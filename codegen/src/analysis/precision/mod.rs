//! Which functions may be computed by approximate instructions: those whose results reach memory rounded to 16 bits, and
//! through nothing that magnifies an error.
//!
//! # Promise
//! The approximate forms of the functions that [`Precision`] calls so change what the kernel writes to a 16-bit tensor by a
//! relative error of at most 2^-12, that of a rounding to f16 or less, and by a few roundings to f32 on the way; gelu and its slope where they are
//! below 2^-10 by 2^-24, which is what a rounding of its `1 + erf` makes, times what it is multiplied by. A number that is
//! cast to 16 bits is changed no more than that either, whatever is made of it then. What the kernel writes to other tensors,
//! but for what such casts make of it, they do not change.
//!
//! # Argument
//! A function that a wider tensor depends on, by a way without a rounding to 16 bits, is precise, and so is one that a comparison, a whole number,
//! `floor` or `round` depends on: a quotient that is exact, 1 say, must not fall below it (`demand`). Of the others there are
//! two kinds, by how far `math::approximate` may be off.
//!
//! *A few roundings.* exp, exp2, sigmoid, sqrt, rsqrt and division are off by at most 8 times what a rounding of their
//! argument, or of their result, makes them be off by. A kernel that magnifies that magnifies the roundings of its precise
//! form as well, so no use of them is judged. log has one form, for its approximate instruction is not of this kind: near 1,
//! where log is small, it is off by 2^-22 whatever the argument.
//!
//! *2^-14 of their value.* tanh, erf, sin, cos, gelu and its slope; sin and cos up to 2^13, and beyond that 2^-14, which is less than
//! a rounding of so large an argument makes; gelu and its slope down to 2^-10, and below that 2^-24, the least number of f16. The
//! analysis gives every value a number of such steps that bounds its relative error, from operands to results:
//!
//! - an approximate result of these functions has one step, and for tanh and erf, approximate or not, those of the argument
//!   too, since `x f'(x) / f(x)` is at most 1;
//! - a product or quotient has the steps of both operands;
//! - choices, square roots, the greater and the lesser, folds by these, and changes of shape have the most of their operands;
//! - so has a sum whose terms cannot cancel, that is, have no sign; nothing is assumed of the sign of what is loaded or
//!   carried. `1 + erf` and `1 + tanh` have the step of the function, since both are computed from their distance to 1, to
//!   which the precise form is rounded as well; steps of the argument are magnified there;
//! - a value of 16 bits has none, for it is rounded;
//! - what a loop carries has the most of what it starts as and of what the body leaves, by iterating up.
//!
//! Anything else magnifies: other sums, comparisons, conversions to integers, exponentials, products of matrices, gelu
//! far below 0, and its slope beside its root. If it meets a step, or if a value comes to more than [`MOST`], every function that its operands have a step of becomes precise,
//! and the steps are counted anew. A value has a step only of a function or of an operand that has one, so a walk back
//! along such values meets one of them at least: each round leaves fewer approximate functions, and the last one meets no
//! fault. A product that grows with each iterate passes any bound, so a round ends too, and at its end the numbers hold in
//! each iterate. What was counted with functions that are precise now is forgotten; no round relies on another's numbers.
//!
//! # Breaks it
//! - `1 - cos(x)`, `x - tanh(x)`: tests/agreement/wrong_code.rs::differences_of_nearly_equal_numbers_keep_their_digits.
//! - A sum of a sine and its series, a comparison: tests/agreement/arguments.rs::what_cancels_is_precise.
//! - `1 + tanh(5 * tanh(x))`, squares of squares: the tests below.
//! - A product over iterates, and a square of a square: tests/agreement/arguments.rs::what_iterates_magnify_is_precise.
//! - One tanh that a sum and a product read, another that a product alone reads: `functions_are_judged_apart` below.
//! - Steps of what one function's fault made precise, counted still: `a_fault_spares_what_it_does_not_depend_on` below.
//! - `log(x)` near 1, divided by `x - 1`: tests/agreement/arguments.rs::a_logarithm_near_one_keeps_its_digits on a GPU, and
//!   codegen/tests/math.rs, which bounds every approximate form with the hardware as far off as the ISA lets it.

use super::Uses;
use super::demand::Demand;
use crate::gpu::Accuracy;
use crate::math::{divides_approximately, has_approximate};
use atlas_dsl::ir::{Kernel, ValueDef};
use atlas_dsl::op::{BinaryOp, Op, ReduceOp, UnaryOp};
use atlas_dsl::reach::constant_float;
use atlas_dsl::validity::yields;
use atlas_dsl::{Block, Inst, Param, Value};
use cranelift_entity::SecondaryMap;

/// Steps of 2^-14 that a relative error may come to.
const MOST: u32 = 4;

/// What is to be said of a function that has an approximate form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that depends on it is rounded to 16 bits, and nothing magnifies its error.
    Approximate,
    /// Precise: this tensor of more than 16 bits depends on it.
    Reaches(Param),
    /// Precise: this operation would magnify its error.
    Magnified(Inst),
}

/// Which functions and divisions of a kernel may be approximate.
#[derive(Clone, Debug)]
pub struct Precision {
    verdicts: SecondaryMap<Inst, Option<Verdict>>,
}

impl Precision {
    /// Judges every function of a kernel that has an approximate form and that something written depends on.
    pub fn of(kernel: &Kernel, uses: &Uses) -> Precision {
        let (demand, leaps) = (Demand::of(kernel, uses), Demand::of_leaps(kernel, uses));
        let mut verdicts: SecondaryMap<Inst, Option<Verdict>> = SecondaryMap::new();
        for (inst, op) in kernel.insts.iter().filter(|&(inst, _)| uses.is_live(inst)) {
            let Some(&result) = kernel.results[inst].first() else { continue };
            let dtype = kernel.ty(result).dtype;
            let is_judged = match op {
                Op::Unary(f, _) => has_approximate(*f, dtype),
                Op::Binary(f, ..) => divides_approximately(*f, dtype),
                _ => false,
            };
            if is_judged {
                let magnified = leaps.by(result).map_or(Verdict::Approximate, Verdict::Magnified);
                verdicts[inst] = Some(demand.by(result).map_or(magnified, Verdict::Reaches));
            }
        }
        let mut precision = Precision { verdicts };
        loop {
            let mut errors = Errors {
                kernel,
                uses,
                precision: &precision,
                steps: SecondaryMap::new(),
                no_sign: SecondaryMap::new(),
            };
            let Err(fault) = errors.block(kernel.body) else { return precision };
            for inst in errors.sources(fault) {
                precision.verdicts[inst] = Some(Verdict::Magnified(fault));
            }
        }
    }

    /// What is to be said of an operation; `None` if it has one form.
    pub fn verdict(&self, inst: Inst) -> Option<Verdict> {
        self.verdicts[inst]
    }

    /// The form of an operation.
    pub fn accuracy(&self, inst: Inst) -> Accuracy {
        match self.verdicts[inst] {
            Some(Verdict::Approximate) => Accuracy::Approximate,
            _ => Accuracy::Precise,
        }
    }
}

/// The relative errors of values, in steps of 2^-14.
struct Errors<'a> {
    kernel: &'a Kernel,
    uses: &'a Uses,
    precision: &'a Precision,
    steps: SecondaryMap<Value, u32>,
    /// Values that are never negative.
    no_sign: SecondaryMap<Value, bool>,
}

impl Errors<'_> {
    /// Follows the errors through a block; fails with the operation that magnifies one.
    fn block(&mut self, block: Block) -> Result<(), Inst> {
        let k = self.kernel;
        for &inst in k.blocks[block].insts.iter().filter(|&&i| self.uses.is_live(i)) {
            if let Op::Loop { inits, body, .. } = &k.insts[inst] {
                self.loop_(inst, inits, *body)?;
                continue;
            }
            let steps = self.transfer(inst).filter(|&n| n <= MOST).ok_or(inst)?;
            for &r in &k.results[inst] {
                self.steps[r] = if k.ty(r).dtype.is_half() { 0 } else { steps };
                // Integers wrap.
                self.no_sign[r] = k.ty(r).dtype.is_float() && self.has_no_sign(&k.insts[inst]);
            }
        }
        Ok(())
    }

    /// The same of a loop: its body is walked until what is carried no longer grows.
    fn loop_(&mut self, inst: Inst, inits: &[Value], body: Block) -> Result<(), Inst> {
        let k = self.kernel;
        let params = &k.blocks[body].params[1..];
        // A loop around this one may walk it again, with more than before: what was carried then still is.
        for (&p, &v) in params.iter().zip(inits) {
            self.steps[p] = self.steps[p].max(self.steps[v]);
        }
        loop {
            self.block(body)?;
            let mut grown = false;
            for (&p, &v) in params.iter().zip(yields(k, body)) {
                grown |= self.steps[v] > self.steps[p];
                self.steps[p] = self.steps[p].max(self.steps[v]);
            }
            if !grown {
                break;
            }
        }
        for (&r, &p) in k.results[inst].iter().zip(params) {
            self.steps[r] = self.steps[p];
        }
        Ok(())
    }

    /// The approximate functions that an operation, or an operand of it, has a step of.
    fn sources(&self, fault: Inst) -> Vec<Inst> {
        let k = self.kernel;
        let mut found = Vec::new();
        let mut met: SecondaryMap<Value, bool> = SecondaryMap::new();
        let mut open = Vec::new();
        self.source(fault, &mut found);
        k.insts[fault].visit_operands(|v| open.push(v));
        while let Some(v) = open.pop() {
            if self.steps[v] == 0 || std::mem::replace(&mut met[v], true) {
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
                    self.source(inst, &mut found);
                    op.visit_operands(|v| open.push(v));
                }
            }
        }
        found
    }

    fn source(&self, inst: Inst, found: &mut Vec<Inst>) {
        if self.own_steps(inst) > 0 {
            found.push(inst);
        }
    }

    /// Steps that an operation adds to those of its operands.
    fn own_steps(&self, inst: Inst) -> u32 {
        let inexact = matches!(self.kernel.insts[inst], Op::Unary(f, _) if matches!(f, UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Gelu | UnaryOp::GeluSlope));
        u32::from(inexact && self.precision.accuracy(inst) == Accuracy::Approximate)
    }

    /// The steps of an operation's result; `None` if it magnifies those of an operand.
    fn transfer(&self, inst: Inst) -> Option<u32> {
        let op = &self.kernel.insts[inst];
        let mut most = 0;
        op.visit_operands(|v| most = most.max(self.steps[v]));
        match op {
            Op::Unary(UnaryOp::Tanh | UnaryOp::Erf, _) => Some(most + self.own_steps(inst)),
            _ if most == 0 => Some(self.own_steps(inst)),
            Op::Binary(BinaryOp::Mul | BinaryOp::Div, a, b) => Some(self.steps[*a] + self.steps[*b]),
            op => self.keeps(op).then_some(most),
        }
    }

    /// True if an operation's result is off by no more than its operands are.
    fn keeps(&self, op: &Op) -> bool {
        match op {
            Op::Cast(to, _) => to.is_float(),
            Op::Unary(op, _) => matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sqrt | UnaryOp::Rsqrt),
            Op::Binary(op, a, b) => self.binary_keeps(*op, *a, *b),
            Op::Select { cond, .. } => self.steps[*cond] == 0,
            Op::Reduce { op, value, .. } => *op != ReduceOp::Sum || self.no_sign[*value],
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
            BinaryOp::Add if self.no_sign[a] && self.no_sign[b] => true,
            BinaryOp::Add | BinaryOp::Sub => {
                // An error of the argument is magnified far from 0, the function's own is not.
                let saturates = |v| match self.kernel.def_op(self.seen_through(v)) {
                    Some((_, Op::Unary(UnaryOp::Erf | UnaryOp::Tanh, x))) => self.steps[*x] == 0,
                    _ => false,
                };
                let one = |v| constant_float(self.kernel, self.seen_through(v)).is_some_and(|c| c.abs() == 1.0);
                (saturates(a) && one(b)) || (one(a) && saturates(b))
            }
            _ => false,
        }
    }

    /// A value behind broadcasts and reshapes.
    fn seen_through(&self, mut v: Value) -> Value {
        while let Some((_, &(Op::Broadcast { value, .. } | Op::Reshape { value, .. }))) = self.kernel.def_op(v) {
            v = value;
        }
        v
    }

    /// True if an operation's result is never negative, by its own making; nothing is assumed of what is loaded or carried.
    fn has_no_sign(&self, op: &Op) -> bool {
        let of = |v: &Value| self.no_sign[*v];
        match op {
            Op::Splat { value, dtype, .. } => dtype.is_float() && *value >= 0.0,
            Op::Unary(op, _) => op.row().never_negative,
            Op::Binary(BinaryOp::Mul, a, b) if a == b => true,
            Op::Binary(BinaryOp::Mul | BinaryOp::Div | BinaryOp::Add | BinaryOp::Min, a, b) => of(a) && of(b),
            Op::Binary(BinaryOp::Max, a, b) => of(a) || of(b),
            Op::Cast(_, a)
            | Op::Broadcast { value: a, .. }
            | Op::Reshape { value: a, .. }
            | Op::Transpose(a)
            | Op::Reduce { value: a, .. } => of(a),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What computes `%v`, stored in f16, and `%w`, stored in f32, from the tile `%t` and the number `%to`: the verdicts
    /// of its functions in order.
    fn judged(body: &str) -> Vec<Verdict> {
        let has = |what| body.contains(what);
        let wide = if has("%w =") || has("%w,") { "store %z[%n : 16], %w\n" } else { "" };
        let z = if wide.is_empty() && !has("%z") { "" } else { ", %z: out f32[N]" };
        let i = if has("%i") { ", %i: out f16[N]" } else { "" };
        let text = format!(
            "kernel @k(%x: f32[N], %y: out f16[N]{z}{i})\ndims N: ?16\n\
             grid (%n) = (tiles(N, 16)) {{\n%t = load %x[%n : 16]\n%one = splat 1.0 : f32[16]\n\
             %from = splat 0 : i32\n%to = splat 9 : i32\n{body}\n\
             %h = cast %v : f16[16]\nstore %y[%n : 16], %h\n{wide}}}"
        );
        let kernel =
            atlas_dsl::parse_kernel(&text).and_then(atlas_dsl::verify).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let precision = Precision::of(&kernel, &Uses::of(&kernel));
        kernel.insts.keys().filter_map(|inst| precision.verdict(inst)).collect()
    }

    /// For each function in order whether it may be approximate.
    fn approximate(body: &str) -> Vec<bool> {
        judged(body).iter().map(|&v| v == Verdict::Approximate).collect()
    }

    #[track_caller]
    fn tolerates(body: &str) {
        assert!(approximate(body).iter().all(|&a| a), "{body}");
    }

    #[track_caller]
    fn refuses(body: &str) {
        let verdicts = judged(body);
        assert!(!verdicts.is_empty() && verdicts.iter().all(|v| matches!(v, Verdict::Magnified(_))), "{body}");
    }

    #[test]
    fn what_keeps_an_error() {
        tolerates("%e = erf %t\n%s = add %one, %e\n%v = mul %t, %s");
        tolerates("%e = tanh %t\n%f = tanh %e\n%v = mul %f, %e");
        tolerates("%s = sin %t\n%a = abs %s\n%v = add %a, %one");
        tolerates("%v = loop %j in %from..%to carry (%c = %t) {\n%e = tanh %t\n%m = max %c, %e\nyield %m\n}");
        tolerates("%e = log %t\n%v = sub %e, %t");
        // Each sum reads the last one twice: as a tree there would be 2^40 of them.
        let sums: String = (0..40).map(|i| format!("%s{} = add %s{i}, %s{i}\n", i + 1)).collect();
        tolerates(&format!("%e = sin %t\n%s0 = abs %e\n{sums}%v = mul %s40, %t"));
        // A few roundings are magnified as those of the precise form are.
        tolerates("%e = exp %t\n%s = sub %e, %one\n%r = sqrt %s\n%v = div %s, %r");
        tolerates("%e = gelu %t\n%v = mul %e, %t");
    }

    #[test]
    fn what_magnifies_an_error() {
        refuses("%s = sin %t\n%v = add %s, %one");
        assert_eq!(approximate("%s = cos %t\n%v = exp %s"), [false, true]);
        refuses("%e = tanh %t\n%b = lt %e, %t\n%v = select %b, %e, %t");
        refuses("%e = gelu %t\n%v = add %e, %t");
        // At -10 the derivative is a hundred times the value over the argument.
        refuses("%s = sin %t\n%v = gelu %s");
        // Far from 0, 1 + tanh has a large derivative beside its value.
        refuses("%e = tanh %t\n%f = tanh %e\n%v = add %one, %f");
        // Eight steps.
        refuses("%a = tanh %t\n%b = mul %a, %a\n%c = mul %b, %b\n%v = mul %c, %c");
        refuses("%v = loop %j in %from..%to carry (%c = %t) {\n%e = tanh %t\n%m = mul %c, %e\nyield %m\n}");
        refuses("%e = tanh %t\n%v = loop %j in %from..%to carry (%c = %e) {\n%m = mul %c, %c\nyield %m\n}");
    }

    #[test]
    fn functions_are_judged_apart() {
        // The first cancels; the second is only a factor, the third a factor of what cancels.
        let body = "%a = tanh %t\n%b = tanh %t\n%c = tanh %t\n%s = sub %t, %a\n%p = mul %s, %b\n%q = mul %p, %t\n\
                    %d = mul %c, %t\n%r = sub %d, %t\n%v = mul %q, %r";
        assert_eq!(approximate(body), [false, true, false]);
    }

    #[test]
    fn a_fault_spares_what_it_does_not_depend_on() {
        // The product has six steps, but for those of the terms of differences, which are precise, four.
        let body = "%a = tanh %t\n%b = erf %t\n%d = sub %a, %t\n%e = sub %b, %t\n%f = tanh %t\n%g = mul %f, %f\n\
                    %k = mul %g, %g\n%m = mul %a, %b\n%o = mul %d, %e\n%p = mul %m, %k\n%v = mul %p, %o";
        assert_eq!(approximate(body), [false, false, true]);
        // What is precise hands on the step of its argument: 1 + erf magnifies that.
        let body = "%a = tanh %t\n%b = erf %a\n%w = abs %b\n%s = sin %t\n%v = add %s, %t";
        assert_eq!(judged(body)[..2], [Verdict::Reaches(Param::from_u32(2)); 2]);
        // A rounding to 16 bits ends a step, and so a fault behind it.
        let body = "%a = tanh %t\n%b = cast %a : f16[16]\n%c = cast %b : f32[16]\n%d = tanh %c\n%v = sub %c, %d";
        assert_eq!(approximate(body), [true, false]);
    }

    #[test]
    fn what_leaps_is_given_what_is_exact() {
        refuses("%q = div %t, %one\n%v = floor %q");
        refuses("%q = sqrt %t\n%b = lt %q, %one\n%v = select %b, %t, %one");
        assert_eq!(approximate("%q = div %t, %one\n%r = exp %t\n%f = floor %q\n%v = mul %f, %r"), [false, true]);
        // A square of integers may be negative.
        refuses(
            "%k = cast %t : i32[16]\n%m = mul %k, %k\n%f = cast %m : f32[16]\n%s = sin %t\n%a = abs %s\n%v = add %a, %f",
        );
    }

    #[test]
    fn what_reaches_a_wide_output() {
        assert_eq!(approximate("%a = erf %t\n%v = mul %a, %t\n%b = erf %t\n%w = mul %b, %t"), [true, false]);
        assert_eq!(approximate("%a = exp %t\n%v = div %a, %t\n%w = add %v, %t"), [false, false]);
        let chosen = "%a = exp %t\n%v = mul %a, %a\n%b = exp %t\n%c = lt %b, %one\n%w = select %c, %t, %one";
        assert_eq!(approximate(chosen), [true, false]);
    }

    #[test]
    fn a_rounding_hides_from_tensors_and_not_from_leaps() {
        let rounded = "%a = exp %t\n%v = mul %a, %a\n%b = exp %t\n%c = cast %b : f16[16]\n%w = cast %c : f32[16]";
        assert_eq!(approximate(rounded), [true, true]);
        // The part that is not rounded shows.
        let both = "%b = exp %t\n%c = cast %b : f16[16]\n%d = cast %c : f32[16]\n%w = sub %b, %d\n%v = mul %t, %t";
        assert_eq!(approximate(both), [false]);
        // On the way to the rounding nothing may magnify an error.
        let magnified =
            "%a = tanh %t\n%b = sub %a, %t\n%c = cast %b : f16[16]\n%w = cast %c : f32[16]\n%v = mul %t, %t";
        assert_eq!(approximate(magnified), [false]);
        let leap = "%a = exp %t\n%b = cast %a : f16[16]\n%c = cast %b : f32[16]\n%f = floor %c\n%v = mul %t, %t\n%w = mul %f, %t";
        assert_eq!(approximate(leap), [false]);
    }

    #[test]
    fn what_reaches_it_by_memory_or_loops() {
        // Of what a loop carries, each for itself.
        let carried =
            "%w, %v = loop %j in %from..%to carry (%c = %t, %d = %t) {\n%e = exp %c\n%f = exp %d\nyield %e, %f\n}";
        assert_eq!(approximate(carried), [false, true]);
        let crossed =
            "%w, %v = loop %j in %from..%to carry (%c = %t, %d = %t) {\n%e = exp %c\n%f = exp %d\nyield %f, %e\n}";
        assert_eq!(approximate(crossed), [false, false]);
        let bounds = "%a = exp %t\n%b = max %a, %one\n%g = reduce max %b axes [0]\n%s = reshape %g : f32[]\n%o = cast %s : i32\n\
                      %v = exp %t\n%w = loop %j in %from..%o carry (%c = %t) {\n%e = add %c, %c\nyield %e\n}";
        assert_eq!(approximate(bounds), [false, true]);
        let stored = "%e = exp %t\n%f = cast %e : f16[16]\nstore %i[%n : 16], %f\n%v = exp %t\n%g = load %i[%n : 16]\n\
                      %w = cast %g : f32[16]";
        assert_eq!(approximate(stored), [true, true]);
        let wide = "%e = exp %t\n%f = add %e, %t\nstore %z[%n : 16], %f\n%v = exp %t\n%w = load %z[%n : 16]";
        assert_eq!(approximate(wide), [false, true]);
        let often = "%a = exp %t\n%g = reduce max %a axes [0]\n%s = reshape %g : f32[]\n%o = cast %s : i32\n%v = exp %t\n\
                     loop %j in %from..%o {\nstore %z[%n : 16], %t\nyield\n}";
        assert_eq!(approximate(often), [false, true]);
    }
}
