"""Each function once, for arrays of either library: it makes the outputs and launches a kernel or a chain."""

from __future__ import annotations

import math
from typing import Any, Sequence

from ._arrays import Array, NumPy, PyTorch, rows

Kind = type[NumPy] | type[PyTorch]


def softmax(of: Kind, x: Array) -> Array:
    y = of.empty(x, x.shape)
    of.call("softmax", (rows(x), rows(y)))
    return y


def log_sum_exp(of: Kind, x: Array) -> Array:
    y = of.empty(x, x.shape[:-1])
    of.call("log_sum_exp", (rows(x), y.reshape(-1)))
    return y


def rms_norm(of: Kind, x: Array, weight: Array, eps: float) -> Array:
    y = of.empty(x, x.shape)
    of.call("rms_norm", (rows(x), weight, rows(y), float(eps)))
    return y


def rms_norm_backward(of: Kind, dy: Array, x: Array, weight: Array, eps: float) -> tuple[Array, Array]:
    dx, dw = of.empty(x, x.shape), of.empty(weight, weight.shape, "float32")
    of.call("RMS_NORM_GRAD", (rows(x), weight, rows(dy), float(eps), rows(dx), dw))
    return dx, dw


def rotary(of: Kind, x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    if x.ndim < 3 or x.shape[-1] % 2:
        raise ValueError(f"error[ATL603]: `x` of `rotary` has dims [.., N, H, 2 D], but one of shape {tuple(x.shape)} is given")
    tokens, pairs = tuple(x.shape[:-2]), x.shape[-1] // 2
    y = of.empty(x, x.shape)
    shape = (math.prod(tokens), x.shape[-2], *((pairs, 2) if interleaved else (2, pairs)))
    try:
        cos, sin = (of.expand(a, (*tokens, pairs)).reshape(shape[0], pairs) for a in (cos, sin))
    except (ValueError, RuntimeError) as error:
        found = f"{tuple(cos.shape)} and {tuple(sin.shape)}"
        wanted = f"{(*tokens, pairs)}"
        raise ValueError(f"error[ATL604]: `cos` and `sin` of `rotary` have shapes {found}; they are broadcast to {wanted}") from error
    of.call("rotary_interleaved" if interleaved else "rotary_halves", (x.reshape(shape), cos, sin, y.reshape(shape)))
    return y


def poly_features(of: Kind, x: Array, coefficients: Sequence[float]) -> Array:
    if not 1 <= len(coefficients) <= 4:
        raise ValueError(f"error[ATL601]: `poly_features` takes 1 to 4 coefficients, and is given {len(coefficients)}")
    y = of.empty(x, x.shape)
    of.call(f"poly{len(coefficients)}", (rows(x), rows(y), *map(float, coefficients)))
    return y


def taylor2_features(of: Kind, x: Array) -> Array:
    d = x.shape[-1]
    y = of.empty(x, (*x.shape[:-1], 1 + d + d * d))
    of.call("taylor2_features", (rows(x), rows(y)))
    return y


def attention_sizes(q: Array, k: Array) -> None:
    """Refuses what has no batches, tokens and heads."""
    for name, x in (("q", q), ("k", k)):
        if x.ndim != 4:
            raise ValueError(
                f"error[ATL603]: `{name}` of `windowed_attention` has dims [B, N, H, D], but one of shape {tuple(x.shape)} is given"
            )


def windowed_attention(
    of: Kind, q: Array, k: Array, v: Array, pk: Array, pv: Array, first: Array, window: int, scale: float
) -> tuple[Array, Array]:
    o, lse = of.empty(q, q.shape), of.empty(q, (q.shape[0], q.shape[2], q.shape[1]), "float32")
    of.call("windowed_attention", (q, k, v, pk, pv, first, int(window), float(scale), o, lse))
    return o, lse


def windowed_attention_backward(
    of: Kind,
    do: Array,
    q: Array,
    k: Array,
    v: Array,
    pk: Array,
    pv: Array,
    first: Array,
    o: Array,
    lse: Array,
    window: int,
    scale: float,
) -> tuple[Array, Array, Array, Array, Array]:
    dq, dk, dv = (of.empty(x, x.shape) for x in (q, k, v))
    dpk, dpv = (of.empty(x, x.shape, "float32") for x in (pk, pv))
    args = (q, k, v, pk, pv, first, int(window), float(scale), o, lse, do, dq, dk, dv, dpk, dpv)
    of.call("WINDOWED_ATTENTION_GRAD", args)
    return dq, dk, dv, dpk, dpv


def attention_decode(
    of: Kind, q: Array, k: Array, v: Array, tokens: Array, scale: float, parts: int
) -> tuple[Array, Array]:
    o, lse = of.empty(q, q.shape), of.empty(q, q.shape[:-1], "float32")
    of.call("ATTENTION_DECODE", (q, k, v, tokens, float(scale), o, lse, int(parts)))
    return o, lse


def memory_read(of: Kind, x: Array, w2: Array, w1: Array, r: Array) -> Array:
    y = of.empty(r, r.shape)
    of.call("memory_read", (x, w2, w1, r, y))
    return y


def memory_read_backward(of: Kind, dy: Array, x: Array, w2: Array, w1: Array) -> tuple[Array, Array, Array]:
    c = of.full(x, x.shape[:2], 1.0, "float32")
    dx, dw2, dw1 = of.empty(x, x.shape), of.empty(w2, w2.shape, "float32"), of.empty(w1, w1.shape, "float32")
    of.call("memory_weight_grads", (x, w2, w1, c, dy, dw2, dw1))
    of.call("memory_input_grad", (x, w2, w1, c, dy, dx))
    return dx, dw2, dw1


def check_steps(steps: Sequence[float]) -> None:
    """Refuses numbers that are no whole steps."""
    if len(steps) % 3:
        raise ValueError(f"error[ATL601]: each step of `newton_schulz` has three coefficients, and {len(steps)} numbers are given")


def newton_schulz(
    of: Kind, g: Array, out_dtype: str, steps: Sequence[float], stretch: float, eps: float, eps_is_least: bool, restart: int
) -> Array:
    check_steps(steps)
    out = of.empty(g, g.shape, out_dtype)
    # The mean eigenvalue before each step, of matrices of Gaussian numbers: rounding is least about it.
    centres = (0.0, 0.25, 1.0, 0.75)
    numbers: list[float] = []
    for i in range(len(steps) // 3):
        numbers += [*map(float, steps[3 * i : 3 * i + 3]), centres[min(i, 3)]]
    of.call("newton_schulz", (g, out, float(stretch), float(eps), int(eps_is_least), int(restart), *numbers))
    return out
