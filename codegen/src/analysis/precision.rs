//! Whether approximate instructions serve a kernel: its results are rounded to 16 bits, and nothing on the way magnifies
//! an error.
//!
//! # Promise
//! If [`tolerates_approximation`] holds, the approximate forms of elementary functions change what the kernel writes by a
//! relative error of at most 2^-12, that of a rounding to f16 or less, and by a few roundings to f32 on the way.
//!
//! # Argument
//! Two kinds of functions, by how far `math::approximate` may be off.
//!
//! *A few roundings.* exp, exp2, sigmoid, sqrt, rsqrt and division are off by at most 8 times what a rounding of their
//! argument, or of their result, makes them be off by. A kernel that magnifies that magnifies the roundings of its precise
//! form as well, so no use of them is judged. log has one form, for its approximate instruction is not of this kind: near 1,
//! where log is small, it is off by 2^-22 whatever the argument.
//!
//! *2^-14 of their value.* tanh, erf, sin, cos and gelu; sin and cos up to 2^13, and beyond that 2^-14, which is less than
//! a rounding of so large an argument makes; gelu down to 2^-10, and below that 2^-24, the least number of f16. The
//! analysis gives every value a number of such steps that bounds its relative error, from operands to results:
//!
//! - a result of these functions has one step, and for tanh and erf those of the argument too, since `x f'(x) / f(x)` is at
//!   most 1;
//! - a product or quotient has the steps of both operands;
//! - choices, square roots, the greater and the lesser, folds by these, and changes of shape have the most of their operands;
//! - so has a sum whose terms cannot cancel, that is, have no sign; nothing is assumed of the sign of what is loaded or
//!   carried. `1 + erf` and `1 + tanh` have the step of the function, since both are computed from their distance to 1, to
//!   which the precise form is rounded as well; steps of the argument are magnified there;
//! - a value of 16 bits has none, for it is rounded;
//! - what a loop carries has the most of what it starts as and of what the body leaves, by iterating up.
//!
//! Anything else magnifies: other sums, comparisons, conversions to integers, exponentials, products of matrices, and
//! gelu, far below 0. If it meets a step, or if a value comes to more than [`MOST`], the kernel is compiled precisely. That
//! bounds loops too: a product that grows with each iterate passes any bound. So the walk ends, and at its end the numbers
//! hold in each iterate.
//!
//! # Breaks it
//! - `1 - cos(x)`, `x - tanh(x)`: tests/agreement/wrong_code.rs::differences_of_nearly_equal_numbers_keep_their_digits.
//! - A sum of a sine and its series, a comparison: tests/agreement/arguments.rs::what_cancels_is_precise.
//! - `1 + tanh(5 * tanh(x))`, squares of squares: the tests below.
//! - A product over iterates, and a square of a square: tests/agreement/arguments.rs::what_iterates_magnify_is_precise.
//! - `log(x)` near 1, divided by `x - 1`: tests/agreement/arguments.rs::a_logarithm_near_one_keeps_its_digits on a GPU, and
//!   codegen/tests/math.rs, which bounds every approximate form with the hardware as far off as the ISA lets it.

use super::Uses;
use atlas_dsl::ir::{Access, Kernel, ParamKind, ValueDef};
use atlas_dsl::op::{BinaryOp, Op, ReduceOp, UnaryOp};
use atlas_dsl::reach::constant_float;
use atlas_dsl::validity::yields;
use atlas_dsl::{Block, Inst, Value};
use cranelift_entity::SecondaryMap;

/// Steps of 2^-14 that a relative error may come to.
const MOST: u32 = 4;

/// True if no written tensor has elements wider than 16 bits and no operation magnifies the error of a function.
pub fn tolerates_approximation(kernel: &Kernel, uses: &Uses) -> bool {
    let narrow = kernel.params.values().all(|p| match p.kind {
        ParamKind::Tensor { dtype, access: Access::Out, .. } => dtype.is_half(),
        _ => true,
    });
    narrow && Errors { kernel, uses, steps: SecondaryMap::new() }.block(kernel.body).is_some()
}

/// The relative errors of values, in steps of 2^-14.
struct Errors<'a> {
    kernel: &'a Kernel,
    uses: &'a Uses,
    steps: SecondaryMap<Value, u32>,
}

impl Errors<'_> {
    /// Follows the errors through a block; `None` if it magnifies one.
    fn block(&mut self, block: Block) -> Option<()> {
        let k = self.kernel;
        for &inst in k.blocks[block].insts.iter().filter(|&&i| self.uses.is_live(i)) {
            if let Op::Loop { inits, body, .. } = &k.insts[inst] {
                self.loop_(inst, inits, *body)?;
                continue;
            }
            let steps = self.transfer(&k.insts[inst]).filter(|&n| n <= MOST)?;
            for &r in &k.results[inst] {
                self.steps[r] = if k.ty(r).dtype.is_half() { 0 } else { steps };
            }
        }
        Some(())
    }

    /// The same of a loop: its body is walked until what is carried no longer grows.
    fn loop_(&mut self, inst: Inst, inits: &[Value], body: Block) -> Option<()> {
        let k = self.kernel;
        let params = &k.blocks[body].params[1..];
        for (&p, &v) in params.iter().zip(inits) {
            self.steps[p] = self.steps[v];
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
        Some(())
    }

    /// The steps of an operation's result; `None` if it magnifies those of an operand.
    fn transfer(&self, op: &Op) -> Option<u32> {
        let mut most = 0;
        op.visit_operands(|v| most = most.max(self.steps[v]));
        match op {
            Op::Unary(UnaryOp::Tanh | UnaryOp::Erf, _) => Some(most + 1),
            Op::Unary(UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Gelu, _) if most == 0 => Some(1),
            _ if most == 0 => Some(0),
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
            Op::Reduce { op, value, .. } => *op != ReduceOp::Sum || self.has_no_sign(*value),
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
            BinaryOp::Add if self.has_no_sign(a) && self.has_no_sign(b) => true,
            BinaryOp::Add | BinaryOp::Sub => {
                let saturates = |v| {
                    let v = self.seen_through(v);
                    // An error of the argument is magnified far from 0; the function's own is one step.
                    self.steps[v] <= 1
                        && matches!(self.kernel.def_op(v), Some((_, Op::Unary(UnaryOp::Erf | UnaryOp::Tanh, _))))
                };
                let one = |v| constant_float(self.kernel, self.seen_through(v)).is_some_and(|c| c.abs() == 1.0);
                (saturates(a) && one(b)) || (one(a) && saturates(b))
            }
            _ => false,
        }
    }

    /// A value behind broadcasts and reshapes.
    fn seen_through(&self, v: Value) -> Value {
        match self.kernel.def_op(v) {
            Some((_, &(Op::Broadcast { value, .. } | Op::Reshape { value, .. }))) => self.seen_through(value),
            _ => v,
        }
    }

    /// True if a value is never negative, by its own making; nothing is assumed of what is loaded or carried.
    fn has_no_sign(&self, v: Value) -> bool {
        let k = self.kernel;
        if constant_float(k, v).is_some_and(|c| c >= 0.0) {
            return true;
        }
        let ValueDef::Result(inst, _) = k.values[v].def else { return false };
        match &k.insts[inst] {
            Op::Unary(op, _) => op.row().never_negative,
            Op::Binary(BinaryOp::Mul, a, b) if a == b => true,
            Op::Binary(BinaryOp::Mul | BinaryOp::Div | BinaryOp::Add | BinaryOp::Min, a, b) => {
                self.has_no_sign(*a) && self.has_no_sign(*b)
            }
            Op::Binary(BinaryOp::Max, a, b) => self.has_no_sign(*a) || self.has_no_sign(*b),
            Op::Cast(_, a)
            | Op::Broadcast { value: a, .. }
            | Op::Reshape { value: a, .. }
            | Op::Transpose(a)
            | Op::Reduce { value: a, .. } => self.has_no_sign(*a),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a kernel may be approximate that computes `%v` from the tile `%t` in f32 and stores it in f16.
    fn tolerates(body: &str) -> bool {
        let text = format!(
            "kernel @k(%x: f32[N], %y: out f16[N])\ndims N: ?16\ngrid (%n) = (tiles(N, 16)) {{\n\
             %t = load %x[%n : 16]\n%one = splat 1.0 : f32[16]\n%from = splat 0 : i32\n%to = splat 9 : i32\n{body}\n\
             %h = cast %v : f16[16]\nstore %y[%n : 16], %h\n}}"
        );
        let kernel =
            atlas_dsl::parse_kernel(&text).and_then(atlas_dsl::verify).unwrap_or_else(|e| panic!("{e}\n{text}"));
        tolerates_approximation(&kernel, &Uses::of(&kernel))
    }

    #[test]
    fn what_keeps_an_error() {
        assert!(tolerates("%e = erf %t\n%s = add %one, %e\n%v = mul %t, %s"));
        assert!(tolerates("%e = tanh %t\n%f = tanh %e\n%v = mul %f, %e"));
        assert!(tolerates("%s = sin %t\n%a = abs %s\n%v = add %a, %one"));
        assert!(tolerates("%v = loop %i in %from..%to carry (%c = %t) {\n%e = tanh %t\n%m = max %c, %e\nyield %m\n}"));
        assert!(tolerates("%e = log %t\n%v = sub %e, %t"));
        assert!(tolerates("%e = gelu %t\n%v = mul %e, %t"));
    }

    #[test]
    fn what_magnifies_an_error() {
        assert!(!tolerates("%s = sin %t\n%v = add %s, %one"));
        assert!(!tolerates("%s = cos %t\n%v = exp %s"));
        assert!(!tolerates("%e = gelu %t\n%v = add %e, %t"));
        // At -10 the derivative is a hundred times the value over the argument.
        assert!(!tolerates("%s = sin %t\n%v = gelu %s"));
        assert!(!tolerates("%e = tanh %t\n%b = lt %e, %t\n%v = select %b, %e, %t"));
        // Far from 0, 1 + tanh has a large derivative beside its value.
        assert!(!tolerates("%e = tanh %t\n%f = tanh %e\n%v = add %one, %f"));
        // Eight steps.
        assert!(!tolerates("%a = tanh %t\n%b = mul %a, %a\n%c = mul %b, %b\n%v = mul %c, %c"));
        assert!(!tolerates("%v = loop %i in %from..%to carry (%c = %t) {\n%e = tanh %t\n%m = mul %c, %e\nyield %m\n}"));
        assert!(!tolerates("%e = tanh %t\n%v = loop %i in %from..%to carry (%c = %e) {\n%m = mul %c, %c\nyield %m\n}"));
    }
}
