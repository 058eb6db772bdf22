//! Element-wise operations of one operand.

use crate::Takes;

/// A row of [`UnaryOp`].
#[derive(Clone, Copy, Debug)]
pub struct Unary {
    /// The name in messages and in the text forms. It is also the name of the function and the method in kernels, unless an
    /// operator is.
    pub name: &'static str,
    /// The operator in kernels, if there is no function.
    pub operator: Option<&'static str>,
    /// The element types that it takes; the result has the operand's.
    pub takes: Takes,
    /// True if the result is exact in its type, so that every device gives the same.
    pub exact: bool,
    /// The value at a number that is known when the kernel is built. `None` if the standard library has no such function.
    pub of_number: Option<fn(f64) -> f64>,
    /// The value at 0, if every device gives exactly this. Only used if the operation is not `exact`.
    pub at_zero: Option<f64>,
    /// The result is never below 0. It may be NaN.
    pub never_negative: bool,
    /// True if the result is discontinuous, like that of a conversion to integers.
    pub is_discontinuous: bool,
    /// True if a kernel that writes 16 bits may compute it approximately. Only used if the operation is not `exact`.
    pub has_approximate_form: bool,
}

impl Unary {
    /// A function of floats without further known properties.
    const fn function(name: &'static str, of_number: fn(f64) -> f64) -> Unary {
        Unary {
            name,
            operator: None,
            takes: Takes::Floats,
            exact: false,
            of_number: Some(of_number),
            at_zero: None,
            never_negative: false,
            is_discontinuous: false,
            has_approximate_form: true,
        }
    }

    /// An operator that is exact.
    const fn operator(name: &'static str, operator: &'static str, takes: Takes, of_number: fn(f64) -> f64) -> Unary {
        Unary { operator: Some(operator), takes, exact: true, ..Unary::function(name, of_number) }
    }

    const fn exact(self) -> Unary {
        Unary { exact: true, ..self }
    }

    const fn precise_only(self) -> Unary {
        Unary { has_approximate_form: false, ..self }
    }

    const fn at_zero(self, y: f64) -> Unary {
        Unary { at_zero: Some(y), ..self }
    }

    const fn never_negative(self) -> Unary {
        Unary { never_negative: true, ..self }
    }
}

table! {
    /// Element-wise operations of one operand; the result has the operand's type.
    UnaryOp: Unary {
        /// Negation.
        Neg = Unary::operator("neg", "-", Takes::Numbers, |x| -x),
        /// Absolute value.
        Abs = Unary { takes: Takes::Numbers, ..Unary::function("abs", f64::abs).exact().never_negative() },
        /// Natural exponential.
        Exp = Unary::function("exp", f64::exp).at_zero(1.0).never_negative(),
        /// Base-2 exponential.
        Exp2 = Unary::function("exp2", f64::exp2).at_zero(1.0).never_negative(),
        /// Natural logarithm.
        Log = Unary::function("log", f64::ln).precise_only(),
        /// Base-2 logarithm.
        Log2 = Unary::function("log2", f64::log2).precise_only(),
        /// Natural logarithm of 1 + x.
        Log1p = Unary::function("log1p", f64::ln_1p).at_zero(0.0).precise_only(),
        /// exp(x) - 1.
        Expm1 = Unary::function("expm1", f64::exp_m1).at_zero(0.0).precise_only(),
        /// Hyperbolic tangent.
        Tanh = Unary::function("tanh", f64::tanh).at_zero(0.0),
        /// Tangent; the argument is in radians.
        Tan = Unary::function("tan", f64::tan).at_zero(0.0).precise_only(),
        /// Arc tangent, in radians.
        Atan = Unary::function("atan", f64::atan).at_zero(0.0).precise_only(),
        /// Hyperbolic sine.
        Sinh = Unary::function("sinh", f64::sinh).at_zero(0.0).precise_only(),
        /// Hyperbolic cosine.
        Cosh = Unary::function("cosh", f64::cosh).at_zero(1.0).never_negative().precise_only(),
        /// Gauss error function, which the standard library lacks.
        Erf = Unary { of_number: None, ..Unary::function("erf", f64::abs).at_zero(0.0) },
        /// 1 - erf(x), by the complementary error function, which the standard library lacks.
        Erfc = Unary { of_number: None, ..Unary::function("erfc", f64::abs).at_zero(1.0).never_negative().precise_only() },
        /// Square root, correctly rounded.
        Sqrt = Unary::function("sqrt", f64::sqrt).at_zero(0.0).never_negative(),
        /// Reciprocal square root.
        Rsqrt = Unary::function("rsqrt", |x| 1.0 / x.sqrt()).never_negative(),
        /// Sine; the argument is in radians.
        Sin = Unary::function("sin", f64::sin).at_zero(0.0),
        /// Cosine; the argument is in radians.
        Cos = Unary::function("cos", f64::cos).at_zero(1.0),
        /// Logistic function 1 / (1 + exp(-x)). At 0, approximate instructions may compute the 1/2.
        Sigmoid = Unary::function("sigmoid", |x| 1.0 / (1.0 + (-x).exp())).never_negative(),
        /// log(1 + exp(x)).
        Softplus = Unary::function("softplus", |x| x.max(0.0) + (-x.abs()).exp().ln_1p()).never_negative().precise_only(),
        /// x sigmoid(x). Its limit far below 0 is -0.
        Silu = Unary::function("silu", silu).at_zero(0.0),
        /// x/2 (1 + erf(x / sqrt 2)), by the error function, which the standard library lacks.
        Gelu = Unary { of_number: None, ..Unary::function("gelu", f64::abs).at_zero(0.0) },
        /// The derivative of `gelu`: Phi(x) + x phi(x) of the standard normal distribution.
        GeluSlope = Unary { of_number: None, ..Unary::function("gelu_slope", f64::abs) },
        /// The greatest whole number that is not above the operand.
        Floor = Unary { is_discontinuous: true, ..Unary::function("floor", f64::floor).exact() },
        /// The least whole number that is not below the operand.
        Ceil = Unary { is_discontinuous: true, ..Unary::function("ceil", f64::ceil).exact() },
        /// The operand without its fraction: the nearest whole number that is not further from 0.
        Trunc = Unary { is_discontinuous: true, ..Unary::function("trunc", f64::trunc).exact() },
        /// The nearest whole number, and the even one of two that are equally near.
        Round = Unary { is_discontinuous: true, ..Unary::function("round", f64::round_ties_even).exact() },
        /// The number of bits of an integer that are 1. How many those of a plain number are depends on its type.
        Popcount = Unary { takes: Takes::Integers, of_number: None, ..Unary::function("popcount", f64::abs).exact().never_negative() },
        /// Logical negation, and the opposite of each bit of an integer.
        Not = Unary::operator("not", "!", Takes::Bits, |x| 1.0 - x),
    }
}

/// `x / (1 + exp(-x))`, without overflow below 0.
fn silu(x: f64) -> f64 {
    match x {
        // Infinity times 0 has no value.
        f64::NEG_INFINITY => -0.0,
        x if x < 0.0 => x * (x.exp() / (1.0 + x.exp())),
        x => x / (1.0 + (-x).exp()),
    }
}

impl UnaryOp {
    /// As kernels write it: the operator, or the name of the function.
    pub const fn text(self) -> &'static str {
        match self.row().operator {
            Some(operator) => operator,
            None => self.name(),
        }
    }

    /// Those that kernels write as functions and methods.
    pub fn functions() -> impl Iterator<Item = UnaryOp> {
        UnaryOp::ALL.iter().copied().filter(|op| op.row().operator.is_none())
    }

    /// The function of this name.
    pub fn function(name: &str) -> Option<UnaryOp> {
        UnaryOp::functions().find(|op| op.name() == name)
    }

    /// The value at a number that is known when the kernel is built, or `None`.
    pub fn of_number(self, x: f64) -> Option<f64> {
        let row = self.row();
        match row.of_number {
            Some(f) => Some(f(x)),
            None => row.at_zero.filter(|_| x == 0.0),
        }
    }
}
