//! Names of built-in functions, and names that are not known here: how other languages' are written, and what may have been meant.

use atlas_vocabulary::{UnaryOp, distance};

/// What is written as a function besides the element-wise operations of the vocabulary.
const FORMS: [&str; 21] = [
    "load",
    "store",
    "dot",
    "select",
    "sum",
    "max",
    "min",
    "zeros",
    "full",
    "iota",
    "broadcast",
    "size",
    "span",
    "tiles",
    "grid",
    "pairs",
    "pipeline",
    "cast",
    "t",
    "grad",
    "jvp",
];

pub(crate) fn elementwise<'a>() -> impl Iterator<Item = &'a str> {
    UnaryOp::functions().map(|op| op.name())
}

/// The built-in functions.
pub(crate) fn functions<'a>() -> impl Iterator<Item = &'a str> {
    FORMS.into_iter().chain(elementwise())
}

/// How a power is written.
pub(crate) const POWER: &str = "a product, as in `x * x`, or `exp(y * log(x))` where `x` is above 0";

const SILU: &str = "`x * sigmoid(x)`";
const ELU: &str = "`select(x > 0, x, exp(x) - 1)`, with the factors of your formula";
const SELECT: &str = "`select(condition, a, b)`";
const NOTHING: &str = "";
/// By `gelu`, which is accurate below 0.
const ERFC: &str = "`select(x > 0.5, gelu(-1.4142135623730951 * x) * (-1.4142135623730951 / x), 1 - erf(x))`, in f32 right to 5 digits";

/// How an operation of another language is written here; [`NOTHING`] if it cannot be written, so that no similar name is
/// suggested.
const WRITTEN: [(&str, &str); 62] = [
    ("acos", NOTHING),
    ("all", "`min(condition.cast::<i32>(), axis = 1) != 0`"),
    ("any", "`max(condition.cast::<i32>(), axis = 1) > 0`"),
    ("arange", "`iota([A, B], axis)`"),
    ("argmax", "`min(select(x == max(x, axis = 1) || x != x, iota([BN, D], 1), size(D)), axis = 1)`"),
    ("argmin", "`min(select(x == min(x, axis = 1) || x != x, iota([BN, D], 1), size(D)), axis = 1)`"),
    ("asin", NOTHING),
    ("atan", NOTHING),
    ("atanh", "`0.5 * log((1 + x) / (1 - x))`"),
    ("cat", NOTHING),
    ("ceil", "`-floor(-x)`"),
    ("celu", ELU),
    ("clamp", "`min(max(x, low), high)`"),
    ("cosh", "`(exp(x) + exp(-x)) / 2`"),
    ("cot", "`cos(x) / sin(x)`"),
    ("cumsum", "`dot(x, t)` with `t = select(iota([D, D], 0) <= iota([D, D], 1), 1.0, 0.0)`"),
    ("det", NOTHING),
    ("elu", ELU),
    ("erfc", ERFC),
    ("ex2", "`exp2(x)`"),
    ("expm1", "`select(abs(x) < 0.5, 2 * t / (1 - t), exp(x) - 1)` with `t = tanh(0.5 * x)`"),
    ("fma", "`a * b + c`"),
    ("geglu", "`a * gelu(b)`"),
    ("glu", "`a * sigmoid(b)`"),
    ("isnan", "`x != x`"),
    ("ln", "`log(x)`"),
    ("log10", "`log(x) * 0.4342944819032518`"),
    ("log1p", "`select(w == 1, x, log(w) * (x / (w - 1)))` with `w = 1 + x`, where `x` is finite"),
    ("log2", "`log(x) * 1.4426950408889634`"),
    ("logsigmoid", "`min(x, 0) - log(1 + exp(-abs(x)))`"),
    ("matmul", "`dot(a, b)`"),
    ("maximum", "`max(x, y)`"),
    ("mean", "`sum(x, axis = 1) / size(D).cast::<f32>()`"),
    ("minimum", "`min(x, y)`"),
    ("not", "`!condition`"),
    ("ones", "`full::<f32>([A, B], 1)`"),
    ("pow", POWER),
    ("powf", POWER),
    ("powi", POWER),
    ("prod", "`exp(sum(log(x), axis = 1))`, where `x` is above 0"),
    ("program_id", "`for (m, n) in grid(tiles(M, BM), tiles(N, BN))`, whose `m` and `n` it is"),
    ("recip", "`1 / x`"),
    ("relu", "`max(x, 0)`"),
    ("selu", ELU),
    ("sign", "`select(x > 0, 1, select(x < 0, -1, 0))`"),
    ("silu", SILU),
    ("sinc", "`select(x == 0, 1, sin(x) / x)`"),
    ("sinh", "`select(abs(x) < 1, 2 * t / (1 - t * t), (exp(x) - exp(-x)) / 2)` with `t = tanh(0.5 * x)`"),
    ("softmax", "`e / sum(e, axis = 1)` of `e = exp(x - max(x, axis = 1))`"),
    ("softplus", "`max(x, 0) + log(1 + exp(-abs(x)))`, which is 0 where it is below the last digit of 1"),
    ("sort", NOTHING),
    ("sqr", "`x * x`"),
    ("square", "`x * x`"),
    ("std", "`sqrt(..)` of the mean of `(x - m) * (x - m)`, where `m` is the mean, by `sum(.., axis = 1)`"),
    ("sub", "`a - b`"),
    ("swish", SILU),
    ("tan", "`sin(x) / cos(x)`"),
    ("trans", "`x.t()`"),
    ("transpose", "`x.t()`"),
    ("var", "the mean of `(x - m) * (x - m)`, where `m` is the mean, by `sum(.., axis = 1)`"),
    ("where", SELECT),
    ("where_", SELECT),
];

/// `; write ...` for a name of other languages, `; did you mean ...?` with the nearest candidate, or nothing.
pub(crate) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    match WRITTEN.iter().find(|(other, _)| *other == name) {
        Some(&(_, NOTHING)) => return "; nothing here does what it does elsewhere".to_owned(),
        Some((_, written)) => return format!("; write {written}"),
        None => {}
    }
    // Names of one or two letters are all near each other.
    let limit = name.len() / 3;
    candidates
        .into_iter()
        .filter(|&c| c != name)
        .map(|c| (distance(name, c), c))
        .filter(|&(d, _)| d <= limit)
        .min()
        .map_or(String::new(), |(_, c)| format!("; did you mean `{c}`?"))
}
