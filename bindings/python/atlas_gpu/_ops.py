"""The functions that users call: they find out whose arrays they are given."""

from __future__ import annotations

import math
from typing import Any, Sequence

from . import _launch
from ._arrays import Array, PyTorch, of
from ._numbers import asks_for_gradient, dtype_name, pair, real, reals, whole
from ._room import says_when_out

CLASSIC = (3.4445, -4.7750, 2.0315)


def _torch() -> Any:
    from . import torch_ops

    return torch_ops.ops


@says_when_out
def softmax(x: Array) -> Array:
    """The softmax along the last axis, in f32 whatever the element type."""
    kind = of("softmax", x)
    return _torch().softmax(x) if kind is PyTorch else _launch.softmax(kind, x)


@says_when_out
def log_sum_exp(x: Array) -> Array:
    """The logarithm of the sum of exponentials along the last axis."""
    kind = of("log_sum_exp", x)
    return _torch().log_sum_exp(x) if kind is PyTorch else _launch.log_sum_exp(kind, x)


@says_when_out
def rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    """`x / sqrt(mean(x^2) + eps) * weight` along the last axis; `weight` has the element type of `x`."""
    kind = of("rms_norm", x, weight)
    eps = real("rms_norm", "eps", eps)
    return _torch().rms_norm(x, weight, eps) if kind is PyTorch else _launch.rms_norm(kind, x, weight, eps)


@says_when_out
def rotary(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> Array:
    """Turns the pairs of each head, `x` `[.., N, H, 2 D]`, by angles whose cosines and sines are broadcast to `[.., N, D]`. A pair is
    elements `d` and `D + d`, or `2 d` and `2 d + 1` if interleaved. No gradient goes to `cos` and `sin`."""
    kind = of("rotary", x, cos, sin)
    if kind is PyTorch:
        return _torch().rotary(x, cos, sin, interleaved)
    return _launch.rotary(kind, x, cos, sin, interleaved)


@says_when_out
def poly_features(x: Array, coefficients: Sequence[float]) -> Array:
    """`a1 x + a2 x^2 + ..`, element by element, for one to four coefficients. A tensor of coefficients, or a list with tensors of one
    element, may require gradients; PyTorch computes the polynomial then."""
    kind = of("poly_features", x)
    if kind is PyTorch and asks_for_gradient(coefficients):
        return _learned_features(x, list(coefficients))
    coefficients = reals("poly_features", "coefficients", coefficients)
    if kind is PyTorch:
        return _torch().poly_features(x, coefficients)
    return _launch.poly_features(kind, x, coefficients)


def _learned_features(x: Array, coefficients: list[Any]) -> Array:
    """The polynomial in operations of PyTorch, in f32 as in the kernel. Nothing waits for a GPU to read a coefficient."""
    dtype_name("poly_features", x.dtype, PyTorch.DTYPES)
    if not 1 <= len(coefficients) <= 4:
        raise ValueError(f"error[ATL601]: `poly_features` takes 1 to 4 coefficients, and is given {len(coefficients)}")
    if any(getattr(a, "ndim", 0) for a in coefficients):
        found = [tuple(getattr(a, "shape", ())) for a in coefficients]
        raise ValueError(f"error[ATL607]: each of the `coefficients` of `poly_features` is one number, and shapes {found} are given")
    long: Any = x.float()
    y: Any = 0.0
    for a in reversed(coefficients):
        y = (y + a) * long
    return y.to(x.dtype)


@says_when_out
def taylor2_features(x: Array) -> Array:
    """`(1, x_i, x_i x_j / sqrt 2)` of each row: the inner product of two such rows is the second Taylor polynomial of exp of theirs."""
    kind = of("taylor2_features", x)
    return _torch().taylor2_features(x) if kind is PyTorch else _launch.taylor2_features(kind, x)


@says_when_out
def windowed_attention(
    q: Array,
    k: Array,
    v: Array,
    window: int,
    *,
    scale: float | None = None,
    prefix: tuple[Array, Array] | None = None,
    first: Array | None = None,
) -> tuple[Array, Array]:
    """Causal attention over the last `window` keys, the query's own among them: `q` `[B, M, H, D]`, `k` and `v` `[B, N, J, D]`, where
    `J` divides `H`. The last query stands at the last key. Every query sees the keys and values of `prefix`, `[J, S, D]`. `first`,
    `[B, M]` in int32, is the first key that a query may see. Returns the result and its log-sum-exp, `[B, H, M]`, through which no
    gradient goes."""
    given = () if prefix is None else pair("windowed_attention", "prefix", prefix)
    kind = of("windowed_attention", q, k, v, first, *given)
    window = whole("windowed_attention", "window", window, 1)
    _launch.attention_sizes(q, k)
    none = kind.empty(k, (k.shape[2], 0, k.shape[3]))
    pk, pv = given or (none, none)
    if first is None:
        first = kind.full(q, q.shape[:2], 0, "int32")
    scale = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else real("windowed_attention", "scale", scale)
    if kind is PyTorch:
        read, sums = _torch().windowed_attention(q, k, v, pk, pv, first, window, scale)
        return read, sums
    return _launch.windowed_attention(kind, q, k, v, pk, pv, first, window, scale)


@says_when_out
def attention_decode(
    q: Array, k: Array, v: Array, tokens: Array, *, scale: float | None = None, parts: int = 8
) -> tuple[Array, Array]:
    """Attention of one token over a ring of keys: `q` `[S, J, R, D]`, `k` and `v` `[S, W, J, D]`, of which `min(tokens, W)` slots are
    filled; `tokens` is `[S]` in int32. The keys are cut into `parts`, which run side by side. Returns the result and its
    log-sum-exp, `[S, J, R]`. There is no gradient."""
    kind = of("attention_decode", q, k, v, tokens)
    scale = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else real("attention_decode", "scale", scale)
    parts = whole("attention_decode", "parts", parts, 1)
    if kind is PyTorch:
        read, sums = _torch().attention_decode(q, k, v, tokens, scale, parts)
        return read, sums
    return _launch.attention_decode(kind, q, k, v, tokens, scale, parts)


@says_when_out
def memory_read(x: Array, w2: Array, w1: Array, r: Array) -> Array:
    """`r + W1 gelu(W2 x)` of `G` memories: `x` and `r` `[G, N, D]`, `w2` `[G, H, D]`, `w1` `[G, D, H]`."""
    kind = of("memory_read", x, w2, w1, r)
    return _torch().memory_read(x, w2, w1, r) if kind is PyTorch else _launch.memory_read(kind, x, w2, w1, r)


@says_when_out
def newton_schulz(
    g: Array,
    *,
    steps: int = 5,
    coefficients: Sequence[float] | Sequence[Sequence[float]] = CLASSIC,
    dtype: str | None = None,
    stretch: float = 1.0,
    eps: float = 1e-7,
    eps_is_least: bool = True,
    restart: int = 0,
) -> Array:
    """Steps `X <- (a + b X X^T + c (X X^T)^2) X` from `g / max(stretch |g|, eps)`, or from `g / (stretch |g| + eps)` unless
    `eps_is_least`. `g` is a matrix or a stack of them, `[.., M, N]`. `coefficients` are `(a, b, c)`, or those of each step. The
    iteration has the element type `dtype`, such as `"bfloat16"`, else that of `g`. With `restart`, it goes on with `X X^T` and
    starts again after so many steps, which is faster for long matrices. There is no gradient."""
    kind = of("newton_schulz", g)
    if g.ndim < 2:
        raise ValueError(f"error[ATL603]: `g` of `newton_schulz` has dims [.., M, N], but one of shape {tuple(g.shape)} is given")
    steps, restart = whole("newton_schulz", "steps", steps), whole("newton_schulz", "restart", restart)
    try:
        listed: Any = list(coefficients)
    except TypeError:
        listed = coefficients
    # A tensor of one number can be iterated by its type, but not by its shape.
    if isinstance(listed, list) and listed and all(hasattr(x, "__iter__") and getattr(x, "ndim", 1) for x in listed):
        each = [reals("newton_schulz", "coefficients", step) for step in listed]
    else:
        each = [reals("newton_schulz", "coefficients", listed)] * steps
    if any(len(step) != 3 for step in each):
        raise ValueError(f"error[ATL601]: each step of `newton_schulz` has three coefficients, and {listed} are given")
    flat = [x for step in each for x in step]
    stretch, eps = real("newton_schulz", "stretch", stretch), real("newton_schulz", "eps", eps)
    dtype = kind.dtype_name(g) if dtype is None else dtype_name("newton_schulz", dtype, kind.DTYPES)
    stack = g.reshape(math.prod(g.shape[:-2]), *g.shape[-2:])
    if kind is PyTorch:
        out = _torch().newton_schulz(stack, dtype, flat, stretch, eps, eps_is_least, restart)
    else:
        out = _launch.newton_schulz(kind, stack, dtype, flat, stretch, eps, eps_is_least, restart)
    return out.reshape(g.shape)
