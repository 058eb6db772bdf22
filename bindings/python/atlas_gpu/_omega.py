"""The Omega rule: what calls of its kernels and of its passes are made of, for arrays of either library."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Sequence

from ._arrays import Array, NumPy, PyTorch
from ._library import c_library, check, parameters

Kind = type[NumPy] | type[PyTorch]

# Their places are what the library calls them. The number is that of matrices.
MEMORIES = {"linear": 1, "mlp": 2, "gated": 3, "normed": 2}
STEPS = ("descent", "muon_by_token", "muon_by_chunk")
LOSSES = {"square": 2.0, "half_square": 1.0, "dot": 1.0}
RULE = "str memory, str step, int chunk, bool before, float scale, bool predicts, float eps"


@dataclass(frozen=True)
class Rule:
    """A rule, in the order of `RULE`."""

    memory: str
    step: str
    chunk: int
    before: bool
    scale: float
    predicts: bool
    eps: float

    def values(self) -> tuple[Any, ...]:
        return self.memory, self.step, self.chunk, self.before, self.scale, self.predicts, self.eps

    def numbers(self, *between: int) -> list[Any]:
        """As the passes of the library take it, with other numbers behind the chunk."""
        return [
            list(MEMORIES).index(self.memory), STEPS.index(self.step), self.chunk, *between, int(self.before), int(self.predicts),
            self.scale, self.eps,
        ]  # fmt: skip


def check_memory(op: str, memory: str, step: str, weights: Sequence[Array], momenta: Sequence[Array], norm: Array | None) -> None:
    """Refuses a rule that does not exist, and a memory that is not its."""
    if memory not in MEMORIES:
        raise ValueError(f"error[ATL696]: there is no memory `{memory}`; the memories are {', '.join(MEMORIES)}")
    if step not in STEPS:
        raise ValueError(f"error[ATL696]: there is no step `{step}`; the steps are {', '.join(STEPS)}")
    count = MEMORIES[memory]
    if (len(weights), len(momenta), norm is not None) != (count, count, memory == "normed"):
        found = f"{len(weights)} weights, {len(momenta)} momenta and {'no ' if norm is None else 'a '}norm"
        wanted = f"{count} weights, {count} momenta and {'a' if memory == 'normed' else 'no'} norm"
        raise ValueError(f"error[ATL601]: a memory `{memory}` takes {wanted}, but `{op}` is given {found}")


def check_axes(op: str, q: Array, v: Array, gamma: Array, weights: Sequence[Array]) -> None:
    """Refuses tensors whose sizes nobody could name."""
    if q.ndim != 4 or v.ndim != 4 or gamma.ndim != 4 or not weights or weights[0].ndim != 4:
        raise ValueError(
            f"error[ATL603]: `{op}` takes q and k [B, N, H, D], v [B, N, H, E], gamma [B, N, H, W] and weights [B, H, .., ..], and is "
            f"given q {tuple(q.shape)}, v {tuple(v.shape)}, gamma {tuple(gamma.shape)} and "
            f"weights {[tuple(w.shape) for w in weights]}"
        )


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Omega(ctypes.Structure):
    _fields_ = [
        ("memory", ctypes.c_char_p),
        ("step", ctypes.c_char_p),
        ("chunk", ctypes.c_size_t),
        ("window", ctypes.c_size_t),
        ("key", ctypes.c_size_t),
        ("value", ctypes.c_size_t),
        ("hidden", ctypes.c_size_t),
        ("dtype", _DataType),
    ]


_DTYPES = {"float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "float64": (2, 64)}
_rules: dict[tuple[Any, ...], tuple[str, int]] = {}


def omega_chain(memory: str, step: str, chunk: int, window: int, key: int, value: int, hidden: int, dtype: str) -> tuple[str, int]:
    """The chain of a rule, and how many keys a chunk sees."""
    rule = (memory, step, chunk, window, key, value, hidden, dtype)
    found = _rules.get(rule)
    if found is None:
        code, bits = _DTYPES.get(dtype, (255, 8))
        asked = _Omega(memory.encode(), step.encode(), chunk, window, key, value, hidden, _DataType(code, bits, 1))
        name, keys = ctypes.c_char_p(), ctypes.c_size_t()
        check(c_library().atlas_omega_chain(ctypes.byref(asked), ctypes.byref(name), ctypes.byref(keys)))
        found = _rules[rule] = ((name.value or b"").decode().upper(), keys.value)
    return found


def omega(
    of: Kind,
    q: Array,
    k: Array,
    v: Array,
    rq: Array,
    rk: Array,
    alpha: Array,
    theta: Array,
    eta: Array,
    gamma: Array,
    weights: Sequence[Array],
    momenta: Sequence[Array],
    norm: Array | None,
    memory: str,
    step: str,
    chunk: int,
    before: bool,
    scale: float,
    predicts: bool,
    eps: float,
) -> tuple[Array, list[Array], list[Array]]:
    """The rule on a copy of the memory. Shapes that do not fit are refused by the chain."""
    check_axes("omega", q, v, gamma, weights)
    check_memory("omega", memory, step, weights, momenta, norm)
    hidden = 0 if memory == "linear" else int(weights[0].shape[-1])
    name, keys = omega_chain(memory, step, chunk, gamma.shape[-1], q.shape[-1], v.shape[-1], hidden, of.dtype_name(q))
    weights, momenta, chunks = [of.copy(w) for w in weights], [of.copy(s) for s in momenta], -(-q.shape[1] // chunk)
    y = of.empty(v, (*q.shape[:3], v.shape[-1]))
    given: dict[str, Any] = {
        "q": q, "k": k, "v": v, "rq": rq, "rk": rk, "alpha": alpha, "theta": theta, "eta": eta, "gamma": gamma, "norm": norm,
        "y": y, "before": int(before), "commit": chunks, "chunk": chunk, "scale": float(scale), "predicts": int(predicts),
        "eps": float(eps),
    }  # fmt: skip
    for letter, tensors in (("w", weights), ("s", momenta)):
        given.update({letter + (str(i + 1) if memory != "linear" else ""): t for i, t in enumerate(tensors)})
    params, sizes = parameters(name)
    of_chunks = {"C": chunks, "L": chunk, "K": keys}
    of.call(name, [*(given[p] for p in params), *(of_chunks[s] for s in sizes)])
    return y, weights, momenta


def segments(tokens: int, chunk: int, segment: int) -> tuple[int, int]:
    """Chunks of a segment, about the square root of all if `segment` is 0, and how many segments there are."""
    chunks = -(-tokens // chunk)
    if not segment:
        root = 1
        while root * root < chunks:
            root += 1
        segment = -(-chunks // -(-chunks // root)) if chunks else 1
    segment = min(segment, max(chunks, 1))
    return segment, -(-chunks // segment)


def omega_training(
    of: Kind,
    tokens: Sequence[Array],
    weights: Sequence[Array],
    momenta: Sequence[Array],
    norm: Array | None,
    rule: Rule,
    segment: int,
) -> tuple[Array, list[Array], list[Array], list[Array]]:
    """The rule on a copy of the memory, with what its backward pass needs: the state before each segment."""
    (q, _, v), gamma = tokens[:3], tokens[8]
    check_axes("omega", q, v, gamma, weights)
    check_memory("omega", rule.memory, rule.step, weights, momenta, norm)
    length, count = segments(q.shape[1], rule.chunk, segment)
    kept = [of.empty(w, (count, *w.shape)) for w in (*weights, *momenta)]
    weights, momenta = [of.copy(w) for w in weights], [of.copy(s) for s in momenta]
    y = of.empty(v, (*q.shape[:3], v.shape[-1]))
    norms = () if norm is None else (norm,)
    of.call("omega_forward", [*rule.numbers(length), *tokens, *norms, *weights, *momenta, y, *kept])
    return y, weights, momenta, kept


def gradient_shapes(
    tokens: Sequence[Array], weights: Sequence[Array], momenta: Sequence[Array], norm: Array | None, chunk: int
) -> list[tuple[int, ...]]:
    """The shapes of all gradients, which are float32. Some have room for whole chunks."""
    q, k, v, _, rk, alpha, theta, eta, gamma = (tuple(t.shape) for t in tokens)
    whole = -(-q[1] // chunk) * chunk
    padded = [(s[0], whole, *s[2:]) for s in (q, alpha, theta, eta, gamma)]
    norms = [] if norm is None else [tuple(norm.shape)]
    return [padded[0], k, v, rk, *padded[1:], *norms, *(tuple(m.shape) for m in (*weights, *momenta))]


def omega_training_backward(
    of: Kind,
    dy: Array,
    last: Sequence[Array],
    tokens: Sequence[Array],
    norm: Array | None,
    kept: Sequence[Array],
    rule: Rule,
    segment: int,
) -> list[Array]:
    """All gradients, in the order of `gradient_shapes`, from those by what was read and by the memory behind the last token."""
    length, _ = segments(tokens[0].shape[1], rule.chunk, segment)
    count = len(last) // 2
    shapes = gradient_shapes(tokens, last[:count], last[count:], norm, rule.chunk)
    found = [of.empty(dy, shape, "float32") for shape in shapes]
    norms = () if norm is None else (norm,)
    of.call("omega_backward", [*rule.numbers(length), *tokens, *norms, *kept, dy, *last, *found])
    return found


def omega_packed(
    of: Kind,
    tokens: Sequence[Array],
    starts: Array,
    weights: Sequence[Array],
    momenta: Sequence[Array],
    norm: Array | None,
    rule: Rule,
    longest: int,
) -> tuple[Array, list[Array], list[Array]]:
    """The rule on a copy of the memories of documents."""
    q, v, gamma = tokens[0], tokens[2], tokens[8]
    check_axes("omega_packed", q, v, gamma, weights)
    check_memory("omega_packed", rule.memory, rule.step, weights, momenta, norm)
    weights, momenta = [of.copy(w) for w in weights], [of.copy(s) for s in momenta]
    y = of.empty(v, (*q.shape[:3], v.shape[-1]))
    norms = () if norm is None else (norm,)
    of.call("omega_packed", [*rule.numbers(longest), *tokens, *norms, starts, *weights, *momenta, y])
    return y, weights, momenta
