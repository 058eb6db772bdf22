//! Names of built-in functions, and names that are not known here: how other languages' are written, and what may have been meant.

use atlas_vocabulary::{UnaryOp, distance};

/// What is written as a function besides the element-wise operations of the vocabulary.
const FORMS: [&str; 23] = [
    "load",
    "store",
    "dot",
    "select",
    "clamp",
    "is_nan",
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

/// Functions that programs wrote for themselves before they were built in. A tile fn of the name takes the place of the function.
const GIVES_WAY: [&str; 14] = [
    "ceil", "trunc", "clamp", "is_nan", "popcount", "log2", "log1p", "expm1", "erfc", "softplus", "silu", "tan",
    "sinh", "cosh",
];

/// True for a name that no tile fn may have.
pub(crate) fn is_reserved(name: &str) -> bool {
    functions().any(|f| f == name) && !GIVES_WAY.contains(&name)
}

/// How a power is written.
pub(crate) const POWER: &str = "a product, as in `x * x`, or `exp(y * log(x))` where `x` is above 0";

const ELU: &str = "`select(x > 0, x, exp(x) - 1)`, with the factors of your formula";
const SELECT: &str = "`select(condition, a, b)`";
const NOTHING: &str = "";

/// How an operation of another language is written here; [`NOTHING`] if it cannot be written, so that no similar name is
/// suggested.
const WRITTEN: [(&str, &str); 60] = [
    ("acos", NOTHING),
    ("acosh", NOTHING),
    ("all", "`min(condition.cast::<i32>(), axis = 1) != 0`"),
    ("any", "`max(condition.cast::<i32>(), axis = 1) > 0`"),
    ("arange", "`iota([A, B], axis)`"),
    ("argmax", "`min(select(x == max(x, axis = 1) || x != x, iota([BN, D], 1), size(D)), axis = 1)`"),
    ("argmin", "`min(select(x == min(x, axis = 1) || x != x, iota([BN, D], 1), size(D)), axis = 1)`"),
    ("asin", NOTHING),
    ("asinh", NOTHING),
    ("atan", NOTHING),
    ("atan2", NOTHING),
    ("atanh", "`0.5 * log((1 + x) / (1 - x))`"),
    ("cat", NOTHING),
    ("celu", ELU),
    ("clip", "`clamp(x, low, high)`"),
    ("count_ones", "`popcount(x)`"),
    ("clz", NOTHING),
    ("cot", "`1 / tan(x)`"),
    ("cumsum", "`dot(x, t)` with `t = select(iota([D, D], 0) <= iota([D, D], 1), 1.0, 0.0)`"),
    ("det", NOTHING),
    ("elu", ELU),
    ("erfcx", NOTHING),
    ("erfinv", NOTHING),
    ("ex2", "`exp2(x)`"),
    ("fma", "`a * b + c`"),
    ("geglu", "`a * gelu(b)`"),
    ("glu", "`a * sigmoid(b)`"),
    ("isnan", "`is_nan(x)`"),
    ("ln", "`log(x)`"),
    ("log10", "`log(x) * 0.4342944819032518`"),
    ("logsigmoid", "`-softplus(-x)`"),
    ("matmul", "`dot(a, b)`"),
    ("maximum", "`max(x, y)`"),
    ("mean", "`sum(x, axis = 1) / size(D).cast::<f32>()`"),
    ("minimum", "`min(x, y)`"),
    ("not", "`!condition`"),
    ("ones", "`full::<f32>([A, B], 1)`"),
    ("pow", POWER),
    ("powf", POWER),
    ("powi", POWER),
    ("popc", "`popcount(x)`"),
    ("prod", "`exp(sum(log(x), axis = 1))`, where `x` is above 0"),
    ("program_id", "`for (m, n) in grid(tiles(M, BM), tiles(N, BN))`, whose `m` and `n` it is"),
    ("recip", "`1 / x`"),
    ("relu", "`max(x, 0)`"),
    ("selu", ELU),
    ("sign", "`select(x > 0, 1, select(x < 0, -1, 0))`"),
    ("sinc", "`select(x == 0, 1, sin(x) / x)`"),
    ("softmax", "`e / sum(e, axis = 1)` of `e = exp(x - max(x, axis = 1))`"),
    ("sort", NOTHING),
    ("sqr", "`x * x`"),
    ("square", "`x * x`"),
    ("std", "`sqrt(..)` of the mean of `(x - m) * (x - m)`, where `m` is the mean, by `sum(.., axis = 1)`"),
    ("sub", "`a - b`"),
    ("swish", "`silu(x)`"),
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
