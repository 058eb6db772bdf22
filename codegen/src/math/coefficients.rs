//! Coefficients, printed by `fit.py`; the error of a table is relative to its function.

/// A part of ln 2, the first with 8 zero bits.
pub(super) const LN2_HI: f32 = 0.69314575;
/// A part of ln 2, the first with 8 zero bits.
pub(super) const LN2_LO: f32 = 1.4286068e-6;
/// A part of pi, all rounded toward zero.
pub(super) const PI_1: f32 = 3.1415925;
/// A part of pi, all rounded toward zero.
pub(super) const PI_2: f32 = 1.5099579e-7;
/// A part of pi, all rounded toward zero.
pub(super) const PI_3: f32 = 1.0780605e-14;
/// Just above pi / 2, the end of the fit.
pub(super) const SIN_EDGE: f32 = 1.7;
/// Below: polynomial.
pub(super) const TANH_EDGE: f32 = 0.65;
/// Below: polynomial.
pub(super) const ERF_EDGE: f32 = 0.925;
/// Below: the argument itself.
pub(super) const TANH_SHORT_EDGE: f32 = 0.0115;
/// Below: the slope at 0.
pub(super) const ERF_SHORT_EDGE: f32 = 0.008;
/// From here on the approximate 2^Q of gelu is 0.
pub(super) const GELU_SHORT_END: f32 = 16.0;
/// From here on gelu of a negative argument is 0 in f32.
pub(super) const GELU_END: f32 = 14.5;
/// q = t / (t + shift) is the variable of GELU.
pub(super) const GELU_SHIFT: f32 = 3.0;
/// GELU is a polynomial about this q.
pub(super) const GELU_CENTRE: f32 = 0.3618164;
/// A part of the root of the slope of gelu at -t, both rounded toward zero.
pub(super) const SLOPE_ROOT_HI: f32 = 0.7517915;
/// A part of the root of the slope of gelu at -t, both rounded toward zero.
pub(super) const SLOPE_ROOT_LO: f32 = 4.7490193e-8;
/// Just above pi / 4, the end of the fit.
pub(super) const TAN_EDGE: f32 = 0.85;
/// Below: polynomial.
pub(super) const SINH_EDGE: f32 = 0.7;
/// From here on erfc is 0 in f32.
pub(super) const ERFC_END: f32 = 10.0625;
/// q = t / (t + shift) is the variable of ERFC.
pub(super) const ERFC_SHIFT: f32 = 2.375;
/// ERFC is a polynomial about this q.
pub(super) const ERFC_CENTRE: f32 = 0.4951172;
/// A part of log2(e), both rounded toward zero.
pub(super) const LOG2_E_HI: f32 = 1.442695;
/// A part of log2(e), both rounded toward zero.
pub(super) const LOG2_E_LO: f32 = 1.9259629e-8;
/// A part of 2 log2(e), both rounded toward zero.
pub(super) const TWO_LOG2_E_HI: f32 = 2.88539;
/// A part of 2 log2(e), both rounded toward zero.
pub(super) const TWO_LOG2_E_LO: f32 = 3.8519257e-8;
/// A part of 1/3, both rounded toward zero.
pub(super) const THIRD_HI: f32 = 0.3333333;
/// A part of 1/3, both rounded toward zero.
pub(super) const THIRD_LO: f32 = 1.9868214e-8;
/// What pi has beyond the nearest f32.
pub(super) const PI_LOST: f32 = -8.742278e-8;
/// From here on the slope of gelu at -t is 0 in f32.
pub(super) const SLOPE_END: f32 = 14.75;
/// SLOPE is a polynomial about this q.
pub(super) const SLOPE_CENTRE: f32 = 0.42773438;
/// (e^r - 1 - r) / r^2 in r. Error 2^-27.9 (2^-28.3 before rounding).
pub(super) const EXP: [f32; 5] = [0.49999994, 0.1666652, 0.041668404, 0.008368898, 0.0013814223];
/// (2^r - 1) / r in r. Error 2^-25.9 (2^-28.9 before rounding).
pub(super) const EXP2: [f32; 6] = [0.6931472, 0.24022648, 0.05550332, 0.00961844, 0.0013399132, 0.00015353151];
/// (tanh(x) - x) / x^3 in x^2. Error 2^-26.8 (2^-26.9 before rounding).
pub(super) const TANH: [f32; 5] = [-0.33333248, 0.13330518, -0.05366325, 0.020393422, -0.0054356717];
/// erf(x) / x - 1 in x^2. Error 2^-25.8 (2^-25.8 before rounding).
pub(super) const ERF_SMALL: [f32; 6] = [0.12837915, -0.3761249, 0.1128173, -0.026762916, 0.0049872524, -0.0005958971];
/// log2(erfc(t)) in t. Error 2^-28.9 (2^-29.3 before rounding).
pub(super) const ERF_LARGE: [f32; 7] =
    [-0.00028231097, -1.626892, -0.9192598, -0.14994152, 0.032066654, -0.0043904283, 0.00028267043];
/// (log(1 + f) - f + f^2 / 2) / f^3 in f. Error 2^-27.4 (2^-27.7 before rounding).
pub(super) const LOG: [f32; 8] =
    [0.33333215, -0.24999797, 0.20010407, -0.1668049, 0.14005846, -0.121842355, 0.13984565, -0.12891813];
/// (log2(1 + f) - f log2(e)) / f^2 in f. Error 2^-26.2 (2^-27.7 before rounding).
pub(super) const LOG2: [f32; 9] =
    [-0.7213475, 0.48089656, -0.36066967, 0.28869408, -0.24067482, 0.20199369, -0.17553443, 0.20204782, -0.18681647];
/// (r - sin(r)) / r^3 in r^2. Error 2^-30.7 (2^-33.9 before rounding).
pub(super) const SIN: [f32; 5] = [0.16666667, -0.008333347, 0.00019842324, -2.757902e-6, 2.4570749e-8];
/// (sin(r) - r) / r^3 in r^2. Error 2^-18.8 (2^-18.8 before rounding).
pub(super) const SIN_SHORT: [f32; 3] = [-0.16665342, 0.008307078, -0.00018320678];
/// log2(erfc(t)) / t in t; its error is in units of `bound` of fit.py. Error 2^-2.1 (2^-2.1 before rounding).
pub(super) const ERF_SHORT: [f32; 5] = [-1.6278956, -0.91865426, -0.14805129, 0.028985566, -0.002775961];
/// log2(beyond(t)) in t; its error is in units of `gelu_bound` of fit.py. Error 2^-0.6 (2^-0.6 before rounding).
pub(super) const GELU_SHORT: [f32; 6] = [-1.0000583, -1.1500969, -0.46202645, -0.04986975, 0.0063384254, -0.0003758194];
/// beyond(t) exp(t^2 / 2) (t + 3) in q - GELU_CENTRE, where q = t / (t + 3). Error 2^-27.8 (2^-30.0 before rounding).
pub(super) const GELU: [f32; 11] = [
    0.8883408,
    -1.2924529,
    1.0522342,
    -0.24792701,
    -0.29244098,
    0.1272817,
    0.14930068,
    -0.034358114,
    -0.09831892,
    -0.009851937,
    0.055761952,
];
/// log2(slope(t)) in t; its error is in units of `slope_bound` of fit.py. Error 2^-3.6 (2^-3.8 before rounding).
pub(super) const SLOPE_SHORT: [f32; 8] =
    [-0.58841085, -0.38300762, -0.5615329, -0.05333256, 0.013532411, -0.0023839865, 0.0002529169, -1.1945735e-5];
/// slope(t) exp(t^2 / 2) in q - SLOPE_CENTRE, where q = t / (t + 3). Error 2^-27.9 (2^-28.7 before rounding).
pub(super) const SLOPE: [f32; 10] = [
    0.49679998,
    -0.27270028,
    0.23876335,
    -0.11168172,
    -0.009632462,
    0.035808954,
    0.0020073536,
    -0.015299238,
    -0.0026302577,
    0.0057892776,
];
/// erfc(t) exp(t^2) (t + 2.375) / 2.375 in q - ERFC_CENTRE, where q = t / (t + 2.375). Error 2^-27.3 (2^-28.7 before rounding).
pub(super) const ERFC: [f32; 11] = [
    0.44423383,
    -0.66338384,
    0.70389473,
    -0.45918363,
    0.06931489,
    0.15354605,
    -0.07831764,
    -0.06939416,
    0.042224932,
    0.04227447,
    0.001162346,
];
/// (sinh(x) - x) / x^3 in x^2. Error 2^-32.9 (2^-39.1 before rounding).
pub(super) const SINH: [f32; 4] = [0.16666667, 0.008333274, 0.00019860975, 2.5697145e-6];
/// (tan(r) - r) / r^3 in r^2. Error 2^-27.4 (2^-27.4 before rounding).
pub(super) const TAN: [f32; 7] =
    [0.33333394, 0.1333121, 0.05421624, 0.020517727, 0.0127099445, -0.0021561666, 0.0054232436];
/// (atan(r) - r) / r^3 in r^2. Error 2^-28.5 (2^-28.5 before rounding).
pub(super) const ATAN: [f32; 9] =
    [-0.333333, 0.1999853, -0.14264014, 0.10950861, -0.08399208, 0.05787887, -0.031093534, 0.010866271, -0.0017821442];
/// (atanh(q) - q - q^3 / 3) / q^5 in q^2. Error 2^-41.3 (2^-41.6 before rounding).
pub(super) const ATANH: [f32; 4] = [0.19999997, 0.14286232, 0.11077862, 0.099588886];
