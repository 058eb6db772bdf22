"""Derives the polynomial coefficients of the math expansions.

Run `python3 fit.py > coefficients.rs` (needs mpmath). A table has its coefficients lowest order
first; its comment states the largest weighted error after rounding to f32.

Method: weighted minimax (Remez exchange on a dense Chebyshev grid, values in 40-digit arithmetic).
Rounding to f32 is sequential: one coefficient is rounded and fixed, the rest is fitted anew, and so
on, so that later coefficients absorb the rounding of earlier ones.
The weight turns an error of the polynomial into a relative error of the function, in units of the
bound where a bound varies (so that an error below 1 there means "within the bound").
"""
import struct
import sys
from mpmath import (
    mp, mpf, matrix, lu_solve, atan, atanh, cos, exp, expm1, log, log1p, erf, erfc, tanh, sin, sinh, sqrt, tan, pi, fabs
)

mp.dps = 40
GRID = 1200


def f32(v):
    return mpf(struct.unpack("f", struct.pack("f", float(v)))[0])


def shortest(v):
    """The shortest decimal that rounds to the f32 `v`."""
    v = float(f32(v))
    for digits in range(1, 10):
        text = f"{v:.{digits}g}"
        if float(f32(mpf(text))) == v:
            break
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa}e{int(exponent)}"
    return text if "." in text else text + ".0"


def remez(xs, fs, ws, powers):
    """Coefficients c of sum c[k] x^powers[k] that minimise max |w (f - p)| over the grid."""
    n = len(powers)
    ref = [round(i * (len(xs) - 1) / n) for i in range(n + 1)]
    coef, err = [], None
    for _ in range(40):
        a = matrix(n + 1, n + 1)
        b = matrix(n + 1, 1)
        for row, i in enumerate(ref):
            for col, p in enumerate(powers):
                a[row, col] = xs[i] ** p
            a[row, n] = (-1) ** row / ws[i]
            b[row] = fs[i]
        sol = lu_solve(a, b)
        coef, level = list(sol[:n]), fabs(sol[n])
        es = errors(xs, fs, ws, powers, coef)
        err = max(fabs(e) for e in es)
        if err <= level * mpf("1.001"):
            break
        # One extremum per run of equal sign; then drop from the ends until n + 1 are left.
        peaks = []
        for i, e in enumerate(es):
            if e == 0:
                continue
            if peaks and (es[peaks[-1]] > 0) == (e > 0):
                if fabs(e) > fabs(es[peaks[-1]]):
                    peaks[-1] = i
            else:
                peaks.append(i)
        while len(peaks) > n + 1:
            peaks.pop(0 if fabs(es[peaks[0]]) < fabs(es[peaks[-1]]) else -1)
        if len(peaks) < n + 1:
            break
        ref = peaks
    return coef, err


def errors(xs, fs, ws, powers, coef):
    return [w * (f - sum(c * x ** p for c, p in zip(coef, powers))) for x, f, w in zip(xs, fs, ws)]


def fit(name, doc, degree, lo, hi, target, weight, variable=lambda x: x):
    """Fits target(x) by a polynomial in variable(x) on [lo, hi]; prints the f32 table as Rust."""
    lo, hi = mpf(lo), mpf(hi)
    args = [(lo + hi) / 2 - (hi - lo) / 2 * cos(pi * (i + mpf(1) / 2) / GRID) for i in range(GRID)]
    xs, fs = [variable(x) for x in args], [target(x) for x in args]
    ws = [weight(x) for x in args]
    powers, fixed, rest = list(range(degree + 1)), {}, fs
    # Powers without the constant are no Chebyshev system around 0: there the highest goes first.
    order = powers if lo > 0 else powers[::-1]
    ideal = None
    for step, k in enumerate(order):
        left = sorted(order[step:])
        coef, err = remez(xs, rest, ws, left)
        ideal = err if ideal is None else ideal
        fixed[k] = f32(coef[left.index(k)])
        rest = [r - fixed[k] * x ** k for r, x in zip(rest, xs)]
    fixed = [fixed[k] for k in powers]
    err = max(fabs(w * r) for w, r in zip(ws, rest))
    bits = float(log(err, 2))
    print(f"/// {doc} Error 2^{bits:.1f} (2^{float(log(ideal, 2)):.1f} before rounding).")
    line = f"pub(super) const {name}: [f32; {len(fixed)}] = [" + ", ".join(map(shortest, fixed)) + "];"
    if len(line) > 120:  # rustfmt's layout
        head, body = line[:-2].split(" = [")
        line = head + " =\n    [" + body + "];"
        if len(body) + 6 > 120:
            line = head + " = [\n    " + body.replace(", ", ",\n    ") + ",\n];"
    print(line)
    sys.stdout.flush()


square = lambda x: x * x
LN2 = log(mpf(2))


def bound(t):
    """How far the approximate erf(t) may be off: relative 2^-14 with half kept for the instructions'
    own errors, and what keeps GELU's negative side within 2^-12 max(|gelu|, 2^-6)."""
    z = sqrt(mpf(2)) * t
    gelu = z * erfc(t) / 2
    side = mpf(2) ** -12 * max(gelu, mpf(2) ** -6) * 2 / z
    return min(mpf(2) ** -15 * erf(t), side / 2)


def beyond(t):
    """What a normal variable has beyond t; GELU is max(x, 0) - |x| beyond(|x|)."""
    return erfc(t / sqrt(mpf(2))) / 2


def gelu_bound(t):
    """How far the approximate |x| beyond(|x|) may be off: 2^-14 max(|gelu(-t)|, 2^-10)."""
    return mpf(2) ** -14 * max(t * beyond(t), mpf(2) ** -10)


# Where the slope of GELU is 0 on the negative side.
SLOPE_ROOT = mpf("0.7517915246935644574579049467795240396645")


def slope(t):
    """The slope of GELU at -t over `root - t`; the slope at t is 1 less that at -t."""
    return (beyond(t) - t * exp(-t * t / 2) / sqrt(2 * pi)) / (SLOPE_ROOT - t)


def slope_bound(t):
    """How far the approximate slope of GELU may be off at -t: 2^-14 max(|slope|, 2^-10)."""
    return mpf(2) ** -14 * max(fabs((SLOPE_ROOT - t) * slope(t)), mpf(2) ** -10)


def constant(name, doc, value):
    print(f"/// {doc}\npub(super) const {name}: f32 = {shortest(value)};")


def split(value, parts, low_zeros=0):
    """`value` as f32 parts, each rounded toward zero, the first with `low_zeros` bits of zeros at its end."""
    out = []
    for zeros in [low_zeros] + [0] * (parts - 1):
        unit = mpf(2) ** (mp.floor(log(value, 2)) - 23 + zeros)
        out.append(mp.floor(value / unit) * unit)
        value -= out[-1]
    return out


def main():
    print("//! Coefficients, printed by `fit.py`; the error of a table is relative to its function.\n")
    # n < 2^8 times the first part is exact even without FMA; all parts have one sign, which keeps -0.
    for name, part in zip(("LN2_HI", "LN2_LO"), split(LN2, 2, 8)):
        constant(name, "A part of ln 2, the first with 8 zero bits.", part)
    for i, part in enumerate(split(pi, 3)):
        constant(f"PI_{i + 1}", "A part of pi, all rounded toward zero.", part)
    constant("SIN_EDGE", "Just above pi / 2, the end of the fit.", mpf("1.7"))
    constant("TANH_EDGE", "Below: polynomial.", mpf("0.65"))
    constant("ERF_EDGE", "Below: polynomial.", mpf("0.925"))
    constant("TANH_SHORT_EDGE", "Below: the argument itself.", mpf("0.0115"))
    constant("ERF_SHORT_EDGE", "Below: the slope at 0.", mpf("0.008"))
    constant("GELU_SHORT_END", "From here on the approximate 2^Q of gelu is 0.", mpf(16))
    constant("GELU_END", "From here on gelu of a negative argument is 0 in f32.", mpf("14.5"))
    constant("GELU_SHIFT", "q = t / (t + shift) is the variable of GELU.", mpf(3))
    # One of the points about which both first coefficients happen to lie near an f32.
    constant("GELU_CENTRE", "GELU is a polynomial about this q.", mpf(741) / 2048)
    for name, part in zip(("HI", "LO"), split(SLOPE_ROOT, 2)):
        constant(f"SLOPE_ROOT_{name}", "A part of the root of the slope of gelu at -t, both rounded toward zero.", part)
    constant("TAN_EDGE", "Just above pi / 4, the end of the fit.", mpf("0.85"))
    constant("SINH_EDGE", "Below: polynomial.", mpf("0.7"))
    constant("ERFC_END", "From here on erfc is 0 in f32.", mpf("10.0625"))
    constant("ERFC_SHIFT", "q = t / (t + shift) is the variable of ERFC.", mpf("2.375"))
    constant("ERFC_CENTRE", "ERFC is a polynomial about this q.", mpf(1014) / 2048)
    for name, part in zip(("HI", "LO"), split(1 / LN2, 2)):
        constant(f"LOG2_E_{name}", "A part of log2(e), both rounded toward zero.", part)
    for name, part in zip(("HI", "LO"), split(2 / LN2, 2)):
        constant(f"TWO_LOG2_E_{name}", "A part of 2 log2(e), both rounded toward zero.", part)
    for name, part in zip(("HI", "LO"), split(mpf(1) / 3, 2)):
        constant(f"THIRD_{name}", "A part of 1/3, both rounded toward zero.", part)
    constant("PI_LOST", "What pi has beyond the nearest f32.", pi - f32(pi))
    constant("SLOPE_END", "From here on the slope of gelu at -t is 0 in f32.", mpf("14.75"))
    constant("SLOPE_CENTRE", "SLOPE is a polynomial about this q.", mpf(876) / 2048)
    fit("EXP", "(e^r - 1 - r) / r^2 in r.", 4, "-0.3475", "0.3475",
        lambda r: (expm1(r) - r) / r ** 2, lambda r: r ** 2 / exp(r))
    fit("EXP2", "(2^r - 1) / r in r.", 5, "-0.501", "0.501",
        lambda r: expm1(r * LN2) / r, lambda r: fabs(r) / exp(r * LN2))
    fit("TANH", "(tanh(x) - x) / x^3 in x^2.", 4, "1e-4", "0.66",
        lambda x: (tanh(x) - x) / x ** 3, lambda x: x ** 3 / tanh(x), square)
    fit("ERF_SMALL", "erf(x) / x - 1 in x^2.", 5, "1e-4", "0.93",
        lambda x: erf(x) / x - 1, lambda x: x / erf(x), square)
    fit("ERF_LARGE", "log2(erfc(t)) in t.", 6, "0.92", "4",
        lambda t: log(erfc(t), 2), lambda t: LN2 * erfc(t) / erf(t))
    fit("LOG", "(log(1 + f) - f + f^2 / 2) / f^3 in f.", 7, "-0.33334", "0.33334",
        lambda f: (log1p(f) - f + f * f / 2) / f ** 3, lambda f: fabs(f ** 3 / log1p(f)))
    fit("LOG2", "(log2(1 + f) - f log2(e)) / f^2 in f.", 8, "-0.33334", "0.33334",
        lambda f: (log1p(f) - f) / LN2 / f ** 2, lambda f: fabs(f ** 2 * LN2 / log1p(f)))
    fit("SIN", "(r - sin(r)) / r^3 in r^2.", 4, "1e-4", "1.7",
        lambda r: (r - sin(r)) / r ** 3, lambda r: r ** 3 / sin(r), square)
    fit("SIN_SHORT", "(sin(r) - r) / r^3 in r^2.", 2, "1e-4", "1.7",
        lambda r: (sin(r) - r) / r ** 3, lambda r: r ** 3 / sin(r), square)
    fit("ERF_SHORT", "log2(erfc(t)) / t in t; its error is in units of `bound` of fit.py.", 4, "1e-3", "3.8",
        lambda t: log(erfc(t), 2) / t, lambda t: LN2 * t * erfc(t) / bound(t))
    fit("GELU_SHORT", "log2(beyond(t)) in t; its error is in units of `gelu_bound` of fit.py.", 5, "0", "5.5",
        lambda t: log(beyond(t), 2), lambda t: LN2 * t * beyond(t) / gelu_bound(t))
    t_of = lambda q: 3 * q / (1 - q)
    scaled = lambda t: beyond(t) * exp(t * t / 2) * (t + 3)
    fit("GELU", "beyond(t) exp(t^2 / 2) (t + 3) in q - GELU_CENTRE, where q = t / (t + 3).", 10, "0", mpf("14.5") / 17.5,
        lambda q: scaled(t_of(q)), lambda q: 1 / scaled(t_of(q)), lambda q: q - mpf(741) / 2048)
    fit("SLOPE_SHORT", "log2(slope(t)) in t; its error is in units of `slope_bound` of fit.py.", 7, "0", "5.7",
        lambda t: log(slope(t), 2), lambda t: LN2 * fabs((SLOPE_ROOT - t) * slope(t)) / slope_bound(t))
    bare = lambda t: slope(t) * exp(t * t / 2)
    fit("SLOPE", "slope(t) exp(t^2 / 2) in q - SLOPE_CENTRE, where q = t / (t + 3).", 9, "0", mpf("14.75") / 17.75,
        lambda q: bare(t_of(q)), lambda q: 1 / bare(t_of(q)), lambda q: q - mpf(876) / 2048)
    t_for_erfc = lambda q: mpf("2.375") * q / (1 - q)
    scaled_erfc = lambda t: erfc(t) * exp(t * t) * (t + mpf("2.375")) / mpf("2.375")
    fit("ERFC", "erfc(t) exp(t^2) (t + 2.375) / 2.375 in q - ERFC_CENTRE, where q = t / (t + 2.375).", 10,
        "0", mpf("10.0625") / mpf("12.4375"), lambda q: scaled_erfc(t_for_erfc(q)), lambda q: 1 / scaled_erfc(t_for_erfc(q)),
        lambda q: q - mpf(1014) / 2048)
    fit("SINH", "(sinh(x) - x) / x^3 in x^2.", 3, "1e-4", "0.71",
        lambda x: (sinh(x) - x) / x ** 3, lambda x: x ** 3 / sinh(x), square)
    fit("TAN", "(tan(r) - r) / r^3 in r^2.", 6, "1e-4", "0.85",
        lambda r: (tan(r) - r) / r ** 3, lambda r: r ** 3 / tan(r), square)
    fit("ATAN", "(atan(r) - r) / r^3 in r^2.", 8, "1e-4", "1",
        lambda r: (atan(r) - r) / r ** 3, lambda r: r ** 3 / atan(r), square)
    fit("ATANH", "(atanh(q) - q - q^3 / 3) / q^5 in q^2.", 3, "1e-3", "0.2001",
        lambda q: (atanh(q) - q - q ** 3 / 3) / q ** 5, lambda q: q ** 5 / atanh(q), square)


if __name__ == "__main__":
    main()
