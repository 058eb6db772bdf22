//! Names of built-in functions, and names that are not known here: how other languages' are written, and what may have been meant.

use atlas_vocabulary::{BinaryOp, Random, UnaryOp, Update, distance};

/// What is written as a function besides the element-wise operations of the vocabulary.
const FORMS: [&str; 33] = [
    "load",
    "store",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "store_disjoint",
    "dot",
    "select",
    "clamp",
    "fma",
    "is_nan",
    "sum",
    "max",
    "min",
    "cumsum",
    "cummax",
    "cummin",
    "zeros",
    "full",
    "iota",
    "broadcast",
    "size",
    "span",
    "tiles",
    "grid",
    "pairs",
    "cluster",
    "cluster_sum",
    "pipeline",
    "cast",
    "t",
    "grad",
    "jvp",
];

/// True for the name of a statement that writes to a tensor: `store` and `atomic_add`, for instance.
pub(crate) fn is_store(name: &str) -> bool {
    Update::of_statement(name).is_some()
}

pub(crate) fn elementwise<'a>() -> impl Iterator<Item = &'a str> {
    UnaryOp::functions().map(|op| op.name()).chain(BinaryOp::functions().map(|op| op.name()))
}

/// The built-in functions.
pub(crate) fn functions<'a>() -> impl Iterator<Item = &'a str> {
    FORMS.into_iter().chain(Random::ALL.iter().map(|of| of.name())).chain(elementwise())
}

/// Functions that programs wrote for themselves before they were built in. A tile fn of the name takes the place of the function.
const GIVES_WAY: [&str; 26] = [
    "cumsum",
    "cummax",
    "cummin",
    "ceil",
    "trunc",
    "clamp",
    "is_nan",
    "popcount",
    "log2",
    "log1p",
    "expm1",
    "erfc",
    "softplus",
    "silu",
    "tan",
    "sinh",
    "cosh",
    "atan",
    "atan2",
    "pow",
    "fma",
    "shr_logical",
    "mul_hi",
    "random_bits",
    "uniform",
    "normal",
];

/// True for a name that no tile fn may have.
pub(crate) fn is_reserved(name: &str) -> bool {
    functions().any(|f| f == name) && !GIVES_WAY.contains(&name)
}

/// How a power is written.
pub(crate) const POWER: &str = "`pow(x, y)` of floats, or a product, as in `x * x`";
/// How a shift with zeros above is written.
pub(crate) const SHIFT: &str = "`shr_logical(x, n)`, which moves the bits down with zeros above";

const ELU: &str = "`select(x > 0, x, expm1(x))`, with the factors of your formula";
const CEIL_DIV: &str = "`(size(N) + BN - 1) / BN`";
const ROTATE: &str = "`(x << n) | shr_logical(x, 32 - n)` of an i32, to the left by `n`";
const WRAPS: &str = "the operator: arithmetic of integers wraps";
const SELECT: &str = "`select(condition, a, b)`";
const NOTHING: &str = "";

/// How an operation of another language is written here; [`NOTHING`] if it cannot be written, so that no similar name is
/// suggested.
const WRITTEN: [(&str, &str); 111] = [
    ("accumulate", "`cumsum(x, axis = 0)`, `cummax` or `cummin`"),
    ("acos", NOTHING),
    ("acosh", NOTHING),
    ("all", "`min(condition.cast::<i32>(), axis = 1) != 0`"),
    ("any", "`max(condition.cast::<i32>(), axis = 1) > 0`"),
    ("arange", "`iota([A, B], axis)`"),
    ("arctan", "`atan(x)`"),
    ("arctan2", "`atan2(y, x)`"),
    ("argmax", "`min(select(x == max(x, axis = 1) || x != x, iota([BN, D], 1), size(D)), axis = 1)`"),
    ("argmin", "`min(select(x == min(x, axis = 1) || x != x, iota([BN, D], 1), size(D)), axis = 1)`"),
    ("argsort", NOTHING),
    ("asin", NOTHING),
    ("asinh", NOTHING),
    ("atanh", "`0.5 * log((1 + x) / (1 - x))`"),
    ("brev", NOTHING),
    ("cat", NOTHING),
    ("cbrt", "`exp(log(x) / 3)` where `x` is above 0"),
    ("celu", ELU),
    ("clip", "`clamp(x, low, high)`"),
    ("clz", NOTHING),
    ("copysign", "`select(y < 0, -abs(x), abs(x))`, which takes -0 as 0"),
    ("cot", "`1 / tan(x)`"),
    ("count_ones", "`popcount(x)`"),
    ("ctz", "`popcount((x & -x) - 1)`"),
    ("det", NOTHING),
    ("digamma", NOTHING),
    ("elu", ELU),
    ("erfcinv", NOTHING),
    ("erfcx", NOTHING),
    ("erfinv", NOTHING),
    ("ex2", "`exp2(x)`"),
    ("exp10", "`exp2(x * 3.321928094887362)`"),
    ("exp_m1", "`expm1(x)`"),
    ("expm1f", "`expm1(x)`"),
    ("ffs", "`popcount(x ^ (x - 1))`, where `x` is not 0"),
    ("float_power", POWER),
    ("fmod", "`x - y * trunc(x / y)`"),
    ("frac", "`x - trunc(x)`"),
    ("fract", "`x - trunc(x)`"),
    ("geglu", "`a * gelu(b)`"),
    ("gelu_tanh", "`0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)))`; `gelu(x)` is the form with erf"),
    ("glu", "`a * sigmoid(b)`"),
    ("hardsigmoid", "`clamp(x / 6 + 0.5, 0, 1)`"),
    ("hardswish", "`x * clamp(x / 6 + 0.5, 0, 1)`"),
    ("hardtanh", "`clamp(x, -1, 1)`"),
    ("heaviside", "`(x > 0).cast::<f32>()`"),
    ("hypot", "`sqrt(x * x + y * y)`"),
    ("is_finite", "`abs(x) < f32::INFINITY`"),
    ("is_inf", "`abs(x) == f32::INFINITY`"),
    ("is_infinite", "`abs(x) == f32::INFINITY`"),
    ("isnan", "`is_nan(x)`"),
    ("lgamma", NOTHING),
    ("ln", "`log(x)`"),
    ("ln_1p", "`log1p(x)`"),
    ("log10", "`log(x) * 0.4342944819032518`"),
    ("log1pf", "`log1p(x)`"),
    ("log_sigmoid", "`-softplus(-x)`"),
    ("log_softmax", "`y - log(sum(exp(y), axis = 1))` of `y = x - max(x, axis = 1)`"),
    ("logaddexp", "`y + softplus(x - y)`"),
    ("logit", "`log(x / (1 - x))`"),
    ("logsigmoid", "`-softplus(-x)`"),
    ("logsumexp", "`m + log(sum(exp(x - m), axis = 1))` of `m = max(x, axis = 1)`"),
    ("lshr", SHIFT),
    ("matmul", DOT),
    ("maximum", "`max(x, y)`"),
    ("mean", "`sum(x, axis = 1) / size(D).cast::<f32>()`"),
    ("median", NOTHING),
    ("minimum", "`min(x, y)`"),
    ("mish", "`x * tanh(softplus(x))`"),
    ("mul_add", "`fma(a, b, c)`"),
    ("nan_to_num", "`select(is_nan(x), 0, x)`"),
    ("nearbyint", "`round(x)`"),
    ("not", "`!condition`"),
    ("ones", "`full::<f32>([A, B], 1)`"),
    ("popc", "`popcount(x)`"),
    ("power", POWER),
    ("powf", POWER),
    ("powi", POWER),
    ("prefix_sum", "`cumsum(x, axis = 0)`"),
    ("prod", "`exp(sum(log(x), axis = 1))`, where `x` is above 0"),
    ("program_id", PROGRAM),
    ("quick_gelu", "`x * sigmoid(1.702 * x)`"),
    ("recip", "`1 / x`"),
    ("relu", "`max(x, 0)`"),
    ("relu6", "`clamp(x, 0, 6)`"),
    ("rem_euclid", "`x - y * floor(x / y)`, where `y` is above 0"),
    ("remainder", "`x - y * floor(x / y)`"),
    ("rint", "`round(x)`"),
    ("scan", "`cumsum(x, axis = 0)`, `cummax` or `cummin`"),
    ("selu", ELU),
    ("shift_right_logical", SHIFT),
    ("shrui", SHIFT),
    ("sign", "`select(x > 0, 1, select(x < 0, -1, 0))`"),
    ("signum", "`select(x > 0, 1, select(x < 0, -1, 0))`"),
    ("sin_cos", "`sin(x)` and `cos(x)`"),
    ("sinc", "`select(x == 0, 1, sin(x) / x)`"),
    ("softmax", "`e / sum(e, axis = 1)` of `e = exp(x - max(x, axis = 1))`"),
    ("softsign", "`x / (1 + abs(x))`"),
    ("sort", NOTHING),
    ("sqr", "`x * x`"),
    ("square", "`x * x`"),
    ("std", "`sqrt(..)` of the mean of `(x - m) * (x - m)`, where `m` is the mean, by `sum(.., axis = 1)`"),
    ("sub", "`a - b`"),
    ("swiglu", "`silu(a) * b`"),
    ("swish", "`silu(x)`"),
    ("tanhshrink", "`x - tanh(x)`"),
    ("trans", "`x.t()`"),
    ("transpose", "`x.t()`"),
    ("var", "the mean of `(x - m) * (x - m)`, where `m` is the mean, by `sum(.., axis = 1)`"),
    ("where", SELECT),
    ("where_", SELECT),
];

const CAST: &str = "`x.cast::<f32>()`, or another element type";
const DOT: &str = "`dot(a, b)`";
const RANGE: &str = "`for i in lo..hi`, or `for i in tiles(DIM, SIZE)`";
const SIZE: &str = "`size(N)` with the dim's name";
const ATOMIC: &str = "`atomic_add(y[load(ids[n]), ..], value)`, or `atomic_max`, `atomic_min`: a kernel does nothing else with such a `y`, whose elements must hold something before, such as 0";
const SCATTER: &str = "`store_disjoint(y[load(ids[n]), ..], value)` where no two places are the same, and `atomic_add(y[load(ids[n]), ..], value)` where some may be";
const BINS: &str = "`atomic_add(count[load(ids[n])], 1)`, with `count: &mut Tensor<i32, [V]>` that holds 0 before";
const SCANS: &str = "`cumsum(x, axis = 1)`, `cummax` or `cummin`: there is no other scan";
const LOCKS: &str = "`atomic_add(y[..], value)`, `atomic_max` or `atomic_min`: programs do not wait for each other, so there are no locks";
const BITS: &str = "`random_bits(seed, index)`, 32 random bits for each element of a tile of counters, such as `n * BN + iota([BN], 0)`";
const RANDOM_INT: &str = "`random_bits(seed, index)`, 32 random bits for each element of a tile of counters, such as `n * BN + iota([BN], 0)`; from `lo` to the one before `hi` it is `lo + mul_hi(random_bits(seed, index), hi - lo)`";
const UNIFORM: &str = "`uniform(seed, index)`, a number in [0, 1) for each element of a tile of counters, such as `n * BN + iota([BN], 0)`";
const NORMAL: &str =
    "`normal(seed, index)`, a normal number for each element of a tile of counters, such as `n * BN + iota([BN], 0)`";
const DROPOUT: &str = "`select(uniform(seed, index) < p, 0.0, x / (1.0 - p))`, whose `index` is the number of each element, such as `n * BN + iota([BN], 0)`";
const CHANCE: &str =
    "`uniform(seed, index) < p`, whose `index` is the number of each element, such as `n * BN + iota([BN], 0)`";
const HIGH: &str = "`mul_hi(x, y)`, the high half of the product of unsigned numbers";
const ROWS: &str =
    "the shape that you need at the `load`: `x.t()` makes a column of a row, and `broadcast(x, [A, B])` repeats axes";
const BROADCAST: &str = "`broadcast(x, [A, B])`";
const ZEROS: &str = "`zeros::<f32>([A, B])`";
/// Where reductions of other languages lead.
const REDUCE: &str = "`sum(x, axis = 1)`, `max(x, axis = 1)` or `min(x, axis = 1)`: a kernel sees no warps";
const STAGED: &str = "`load(x[n, ..])`: the compiler chooses what lies in shared memory";
const BARRIER: &str = "nothing: the compiler waits where it has to";
const PRINT: &str = "what you want to see to a tensor: a kernel prints nothing";
const PROGRAM: &str = "`for (m, n) in grid(tiles(M, BM), tiles(N, BN))`, whose `m` and `n` it is";

/// What users of Triton, CUDA, numpy and PyTorch type beside functions of mathematics, and how it is written here.
const ELSEWHERE: [(&str, &str); 198] = [
    ("__expf", "`exp(x)`"),
    ("__fmaf_rn", "`fma(a, b, c)`"),
    ("__powf", "`pow(x, y)`"),
    ("__syncthreads", BARRIER),
    ("add", "`a + b`"),
    ("addcmul", "`x + v * a * b`"),
    ("addmm", "`c + dot(a, b)`"),
    ("amax", "`max(x, axis = 1)`"),
    ("amin", "`min(x, axis = 1)`"),
    ("as_type", CAST),
    ("associative_scan", SCANS),
    ("astype", CAST),
    ("atan2f", "`atan2(y, x)`"),
    ("atanf", "`atan(x)`"),
    ("atomicAdd", ATOMIC),
    ("atomicMax", "`atomic_max(y[..], value)`, whose `y` a kernel does nothing else with"),
    ("atomicMin", "`atomic_min(y[..], value)`, whose `y` a kernel does nothing else with"),
    ("atomicSub", "`atomic_add(y[..], -value)`"),
    ("atomic_cas", LOCKS),
    ("atomic_sub", "`atomic_add(y[..], -value)`"),
    ("atomic_xchg", LOCKS),
    ("barrier", BARRIER),
    ("bernoulli", CHANCE),
    ("bf16", "`x.cast::<bf16>()`"),
    ("bfloat16", "`x.cast::<bf16>()`"),
    ("bincount", BINS),
    ("bit_count", "`popcount(x)`"),
    ("bitcast", NOTHING),
    ("bitwise_and", "`a & b`"),
    ("bitwise_not", "`!a`"),
    ("bitwise_or", "`a | b`"),
    ("bitwise_xor", "`a ^ b`"),
    ("bmm", DOT),
    ("broadcast_to", BROADCAST),
    ("cdiv", CEIL_DIV),
    ("ceil_div", CEIL_DIV),
    ("clone", "`x`: tiles are values"),
    ("concat", NOTHING),
    ("concatenate", NOTHING),
    ("contiguous", "`x`: tiles are values"),
    ("copy", "`x`: tiles are values"),
    ("cosf", "`cos(x)`"),
    ("count_nonzero", "`sum((x != 0).cast::<i32>())`"),
    ("cumprod", "`exp(cumsum(log(x), axis = 1))` of numbers above 0: scans are `cumsum`, `cummax` and `cummin`"),
    ("curand", BITS),
    ("curand_normal", NORMAL),
    ("curand_uniform", UNIFORM),
    ("debug_barrier", BARRIER),
    ("detach", "`x`: a kernel records no gradients"),
    ("device_print", PRINT),
    ("div", "`a / b`"),
    ("divide", "`a / b`"),
    ("double", "`x.cast::<f64>()`"),
    ("dropout", DROPOUT),
    ("einsum", DOT),
    ("empty", ZEROS),
    ("empty_like", ZEROS),
    ("eq", "`a == b`"),
    ("erff", "`erf(x)`"),
    ("expand", BROADCAST),
    ("expand_dims", ROWS),
    ("expf", "`exp(x)`"),
    ("eye", "`select(iota([A, A], 0) == iota([A, A], 1), 1.0, 0.0)`"),
    ("f16", "`x.cast::<f16>()`"),
    ("f32", "`x.cast::<f32>()`"),
    ("f64", "`x.cast::<f64>()`"),
    ("f8e4m3", "`x.cast::<f8e4m3>()`"),
    ("f8e5m2", "`x.cast::<f8e5m2>()`"),
    ("fabs", "`abs(x)`"),
    ("fabsf", "`abs(x)`"),
    ("fdividef", "`a / b`"),
    ("flatten", ROWS),
    (
        "flip",
        "`cumsum(x, axis = 1, reverse = true)` for a scan from the last element down: no function turns a tile around",
    ),
    ("float", "`x.cast::<f32>()`"),
    ("float_as_int", NOTHING),
    ("floor_div", "`floor(a / b)`, of integers `a / b`, which cuts towards 0"),
    ("floor_divide", "`floor(a / b)`, of integers `a / b`, which cuts towards 0"),
    ("fmaf", "`fma(a, b, c)`"),
    ("fmax", "`max(x, y)`"),
    ("fmaxf", "`max(x, y)`"),
    ("fmin", "`min(x, y)`"),
    ("fminf", "`min(x, y)`"),
    ("from_bits", NOTHING),
    ("full_like", "`full::<f32>([A, B], v)`"),
    ("gather", "`load(table[load(at[n]), ..])`, with an index that is computed or loaded"),
    ("ge", "`a >= b`"),
    ("gt", "`a > b`"),
    ("half", "`x.cast::<f16>()`"),
    ("histogram", BINS),
    ("i16", "`x.cast::<i16>()`"),
    ("i32", "`x.cast::<i32>()`"),
    ("i64", "`x.cast::<i64>()`"),
    ("i8", "`x.cast::<i8>()`"),
    ("index_add", ATOMIC),
    ("int", "`x.cast::<i32>()`"),
    ("int_as_float", NOTHING),
    ("isfinite", "`abs(x) < f32::INFINITY`"),
    ("isinf", "`abs(x) == f32::INFINITY`"),
    ("le", "`a <= b`"),
    ("leading_zeros", NOTHING),
    ("leaky_relu", "`select(x > 0, x, 0.01 * x)`, with the slope of your formula"),
    ("len", SIZE),
    ("lerp", "`a + w * (b - a)`"),
    ("logcumsumexp", SCANS),
    ("logf", "`log(x)`"),
    ("logical_and", "`a && b`"),
    ("logical_not", "`!a`"),
    ("logical_or", "`a || b`"),
    ("logical_right_shift", SHIFT),
    ("long", "`x.cast::<i64>()`"),
    ("lt", "`a < b`"),
    ("masked_fill", "`select(mask, v, x)`"),
    ("mm", DOT),
    ("mma", DOT),
    ("mul", "`a * b`"),
    ("mul24", WRAPS),
    ("mul_high", HIGH),
    ("mulhi", HIGH),
    ("multiply", "`a * b`"),
    ("ndim", SIZE),
    ("ne", "`a != b`"),
    ("neg", "`-x`"),
    ("negative", "`-x`"),
    ("norm", "`sqrt(sum(x * x, axis = 1))`"),
    ("normalize", "`x * rsqrt(sum(x * x, axis = 1) + eps)`"),
    ("num_programs", CEIL_DIV),
    ("numel", SIZE),
    ("ones_like", "`full::<f32>([A, B], 1)`"),
    ("outer", "`x.t() * broadcast(y, [1, B])` of two rows"),
    ("permute", ROWS),
    ("philox", BITS),
    ("print", PRINT),
    ("printf", PRINT),
    ("program_idx", PROGRAM),
    ("rand", UNIFORM),
    ("rand4x", UNIFORM),
    ("rand_like", UNIFORM),
    ("randint", RANDOM_INT),
    ("randint4x", BITS),
    ("randn", NORMAL),
    ("randn4x", NORMAL),
    ("randn_like", NORMAL),
    ("random", UNIFORM),
    ("random_normal", NORMAL),
    ("random_uniform", UNIFORM),
    ("range", RANGE),
    ("reciprocal", "`1 / x`"),
    ("reduce", REDUCE),
    ("reduce_max", REDUCE),
    ("reduce_sum", REDUCE),
    ("repeat", BROADCAST),
    ("reshape", ROWS),
    ("roll", NOTHING),
    ("rotate_left", ROTATE),
    ("rotate_right", ROTATE),
    ("rotl", ROTATE),
    ("rotr", ROTATE),
    ("rsqrtf", "`rsqrt(x)`"),
    ("scatter", SCATTER),
    ("scatter_add", ATOMIC),
    ("shape", SIZE),
    ("shared", STAGED),
    ("shared_memory", STAGED),
    ("shfl_down_sync", REDUCE),
    ("shfl_sync", REDUCE),
    ("shfl_xor_sync", REDUCE),
    ("shl", "`x << n`"),
    ("shr", "`x >> n`"),
    ("sinf", "`sin(x)`"),
    ("sqrtf", "`sqrt(x)`"),
    ("squeeze", ROWS),
    ("stack", NOTHING),
    ("static_cast", CAST),
    ("static_range", RANGE),
    ("stop_gradient", "`x`: a kernel records no gradients"),
    ("subtract", "`a - b`"),
    ("syncthreads", BARRIER),
    ("syncwarp", BARRIER),
    ("tanhf", "`tanh(x)`"),
    ("tile", BROADCAST),
    ("to", CAST),
    ("to_bits", NOTHING),
    ("topk", NOTHING),
    ("trailing_zeros", "`popcount((x & -x) - 1)`"),
    ("tril", "`select(iota([A, B], 0) >= iota([A, B], 1), x, 0.0)`"),
    ("triu", "`select(iota([A, B], 0) <= iota([A, B], 1), x, 0.0)`"),
    ("true_divide", "`a / b`"),
    ("type_as", "`x.cast_like(y)`"),
    ("umulhi", HIGH),
    ("unsqueeze", ROWS),
    ("vdot", "`sum(a * b)`"),
    ("view", ROWS),
    ("wrapping_add", WRAPS),
    ("wrapping_mul", WRAPS),
    ("wrapping_sub", WRAPS),
    ("xor", "`a ^ b`"),
    ("zero_", ZEROS),
    ("zeros_like", ZEROS),
];

const MAXIMUM: &str = "; clusters only add. Give each program a column of its own, with the coordinate `d` of `cluster(tiles(D, BD))`: `let all = cluster_sum(select(iota([BN, 64], 1) == d, x, 0.0))` of a column `x`, for up to 64 programs. Then take `max(select(iota([BN, 64], 1) < (size(D) + BD - 1) / BD, all, f32::NEG_INFINITY), axis = 1)`";
const MINIMUM: &str = "; clusters only add. Give each program a column of its own, with the coordinate `d` of `cluster(tiles(D, BD))`: `let all = cluster_sum(select(iota([BN, 64], 1) == d, x, 0.0))` of a column `x`, for up to 64 programs. Then take `min(select(iota([BN, 64], 1) < (size(D) + BD - 1) / BD, all, f32::INFINITY), axis = 1)`";
const PROGRAMS: &str = "; `cluster(tiles(D, BD))` has `(size(D) + BD - 1) / BD` programs";
const RANK: &str =
    "; it is the coordinate of the cluster's axis: `d` in `for (n, d) in grid(tiles(N, BN), cluster(tiles(D, BD)))`";
const WAITS: &str = "; leave it out: a `cluster_sum` waits for all programs of the cluster";

/// What is called so of clusters elsewhere, and how it is said here.
const OF_CLUSTERS: [(&str, &str); 19] = [
    ("all_reduce", "; write `cluster_sum(x)`, of the programs of a cluster"),
    ("allreduce", "; write `cluster_sum(x)`, of the programs of a cluster"),
    ("cluster_add", "; write `cluster_sum(x)`"),
    ("cluster_arrive", WAITS),
    ("cluster_barrier", WAITS),
    ("cluster_ctaid", RANK),
    ("cluster_ctarank", RANK),
    ("cluster_dim", PROGRAMS),
    ("cluster_id", RANK),
    ("cluster_index", RANK),
    ("cluster_max", MAXIMUM),
    (
        "cluster_mean",
        "; write `cluster_sum(sum(x, axis = 1)) / size(D).cast::<f32>()`, the mean along the dim `D` of the cluster",
    ),
    ("cluster_min", MINIMUM),
    ("cluster_num_programs", PROGRAMS),
    ("cluster_rank", RANK),
    ("cluster_reduce", "; write `cluster_sum(x)`"),
    ("cluster_size", PROGRAMS),
    ("cluster_sync", WAITS),
    ("cluster_wait", WAITS),
];

/// `; write ...` for a name of other languages.
pub(crate) fn written_here(name: &str) -> Option<String> {
    // Intrinsics of CUDA, such as `__popc` and `__expf`, are functions of mathematics with underscores.
    let plain = name.strip_prefix("__").unwrap_or(name);
    if let Some((_, said)) = OF_CLUSTERS.iter().find(|(other, _)| *other == plain) {
        return Some((*said).to_owned());
    }
    if functions().any(|f| f == plain) && plain != name {
        return Some(format!("; write `{plain}(x)`"));
    }
    let (_, written) = WRITTEN.iter().chain(&ELSEWHERE).find(|(other, _)| *other == plain || *other == name)?;
    Some(match *written {
        NOTHING => "; nothing here does what it does elsewhere".to_owned(),
        written => format!("; write {written}"),
    })
}

/// `; write ...` for a name of other languages, `; did you mean ...?` with the nearest candidate, or nothing.
pub(crate) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    if let Some(written) = written_here(name) {
        return written;
    }
    nearest(name, candidates)
}

/// `; did you mean ...?` with the nearest candidate, or nothing.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
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
