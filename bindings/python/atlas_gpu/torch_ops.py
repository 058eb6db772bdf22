"""The functions as operators of PyTorch, `torch.ops.atlas_gpu`, with shapes for the compiler and gradients."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch
from torch import Tensor

from . import _launch, _native, _omega
from ._arrays import PyTorch

_library = _native.Library("atlas_gpu", "DEF")
ops = torch.ops.atlas_gpu

paths: dict[str, dict[str, str]] = {}
"""How each operator runs on `CPU` and on `CUDA`: `library` if PyTorch calls the library itself, else `python: ` and why it does not."""


def _operator(schema: str, run: Callable[..., Any], shapes: Callable[..., Any]) -> None:
    """Defines an operator. `shapes` makes outputs like those of `run`, without running anything. `run` does what the library does where
    PyTorch cannot call that itself."""
    name = schema.partition("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    paths[name] = {}
    for key in ("CPU", "CUDA"):
        why = _native.register(schema, key)
        paths[name][key] = "library" if why is None else f"python: {why}"
        if why is not None:
            _library.impl(name, run, key)
    torch.library.register_fake(f"atlas_gpu::{name}", _on_one_device(name, shapes), lib=_library)


def _on_one_device(name: str, shapes: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch asks for shapes alone where one tensor of several is on `meta`. Outputs would then be real ones that nobody has written."""

    def checked(*args: Any) -> Any:
        flat = [a for of in args for a in (of if isinstance(of, (list, tuple)) else (of,))]
        devices = {a.device for a in flat if isinstance(a, Tensor)}
        if len(devices) > 1:
            found = ", ".join(sorted(map(str, devices)))
            raise ValueError(f"error[ATL696]: `{name}` of atlas_gpu takes tensors of one device, and is given some of {found}")
        return shapes(*args)

    return checked


def _with_rows(grad: Any) -> Any:
    """A gradient as the gradient of a sum comes, one element that all places share, with a place for each. A kernel for such strides would be
    compiled, or miss in a bundle, which takes longer than a copy."""
    if isinstance(grad, (list, tuple)):
        return [g if g is None else g.contiguous() for g in grad]
    return PyTorch.rows(grad) if isinstance(grad, Tensor) else grad


def _gradient(name: str, backward: Callable[..., Any], setup: Callable[..., None]) -> None:
    def of_rows(ctx: Any, *grads: Any) -> Any:
        return backward(ctx, *map(_with_rows, grads))

    torch.library.register_autograd(f"atlas_gpu::{name}", of_rows, setup_context=setup, lib=_library)


def _no_gradient(name: str, of: str = "") -> None:
    """Without this, PyTorch would leave out the gradient and say nothing. `of` says for which arguments there is none."""

    def backward(_ctx: Any, *_grads: Any) -> Any:
        raise RuntimeError(f"error[ATL651]: `{name}` of atlas_gpu has no gradient{of}; call it under torch.no_grad(), or detach what goes in")

    _gradient(name, backward, lambda ctx, inputs, output: None)


def _refuse(ctx: Any, name: str, numbers: dict[int, str]) -> None:
    """Refuses to leave out gradients by inputs that have none."""
    for i, param in numbers.items():
        if ctx.needs_input_grad[i]:
            raise RuntimeError(f"error[ATL651]: `{name}` of atlas_gpu has no gradient by `{param}`; detach it")


def _like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return x.new_empty(x.shape, dtype=dtype)


# softmax

_operator("softmax(Tensor x) -> Tensor", lambda x: _launch.softmax(PyTorch, x), _like)


def _softmax_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(output)


def _softmax_backward(ctx: Any, dy: Tensor) -> Tensor:
    (y,) = ctx.saved_tensors
    dx: Tensor = torch._softmax_backward_data(dy, y, -1, y.dtype)
    return dx


_gradient("softmax", _softmax_backward, _softmax_setup)

# log_sum_exp

_operator(
    "log_sum_exp(Tensor x) -> Tensor", lambda x: _launch.log_sum_exp(PyTorch, x), lambda x: x.new_empty(x.shape[:-1])
)


def _log_sum_exp_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _log_sum_exp_backward(ctx: Any, dy: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    dx: Tensor = dy.unsqueeze(-1) * ops.softmax(x)
    return dx


_gradient("log_sum_exp", _log_sum_exp_backward, _log_sum_exp_setup)

# rms_norm

_operator(
    "rms_norm(Tensor x, Tensor weight, float eps) -> Tensor",
    lambda x, weight, eps: _launch.rms_norm(PyTorch, x, weight, eps),
    lambda x, weight, eps: _like(x),
)
_operator(
    "rms_norm_backward(Tensor dy, Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)",
    lambda dy, x, weight, eps: _launch.rms_norm_backward(PyTorch, dy, x, weight, eps),
    lambda dy, x, weight, eps: (_like(x), _like(weight, torch.float32)),
)


def _rms_norm_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _rms_norm_backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weight = ctx.saved_tensors
    dx, dw = ops.rms_norm_backward(dy, x, weight, ctx.eps)
    return dx, dw.to(weight.dtype), None


_gradient("rms_norm", _rms_norm_backward, _rms_norm_setup)
_no_gradient("rms_norm_backward")

# rotary

_operator(
    "rotary(Tensor x, Tensor cos, Tensor sin, bool interleaved) -> Tensor",
    lambda x, cos, sin, interleaved: _launch.rotary(PyTorch, x, cos, sin, interleaved),
    lambda x, cos, sin, interleaved: _like(x),
)


def _rotary_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    _, cos, sin, ctx.interleaved = inputs
    ctx.save_for_backward(cos, sin)


def _rotary_backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
    _refuse(ctx, "rotary", {1: "cos", 2: "sin"})
    cos, sin = ctx.saved_tensors
    # The gradient of a turn is the turn back.
    return ops.rotary(dy, cos, -sin, ctx.interleaved), None, None, None


_gradient("rotary", _rotary_backward, _rotary_setup)

# Feature maps

_operator(
    "poly_features(Tensor x, float[] coefficients) -> Tensor",
    lambda x, coefficients: _launch.poly_features(PyTorch, x, coefficients),
    lambda x, coefficients: _like(x),
)


def _poly_features_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, ctx.coefficients = inputs
    ctx.save_for_backward(x)


def _poly_features_backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    slope, long = torch.zeros_like(x, dtype=torch.float32), x.float()
    for power, a in reversed(list(enumerate(ctx.coefficients, 1))):
        slope = slope * long + power * a
    return (dy.float() * slope).to(x.dtype), None


_gradient("poly_features", _poly_features_backward, _poly_features_setup)

_operator(
    "taylor2_features(Tensor x) -> Tensor",
    lambda x: _launch.taylor2_features(PyTorch, x),
    lambda x: x.new_empty((*x.shape[:-1], 1 + x.shape[-1] + x.shape[-1] * x.shape[-1])),
)


def _taylor2_features_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _without_autocast(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Autocast would round both sides of a product in f32 to 16 bits."""

    def run(ctx: Any, dy: Tensor) -> Any:
        with torch.autocast(dy.device.type, enabled=False):
            return backward(ctx, dy)

    return run


@_without_autocast
def _taylor2_features_backward(ctx: Any, dy: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    d, long, dy = x.shape[-1], x.float(), dy.float()
    pairs = dy[..., 1 + d :].unflatten(-1, (d, d))
    both = (pairs + pairs.transpose(-1, -2)) @ long.unsqueeze(-1)
    dx: Tensor = dy[..., 1 : 1 + d] + both.squeeze(-1) * 0.5**0.5
    return dx.to(x.dtype)


_gradient("taylor2_features", _taylor2_features_backward, _taylor2_features_setup)

# Attention

_operator(
    "windowed_attention(Tensor q, Tensor k, Tensor v, Tensor pk, Tensor pv, Tensor first, int window, float scale)"
    " -> (Tensor, Tensor)",
    lambda *args: _launch.windowed_attention(PyTorch, *args),
    lambda q, *rest: (_like(q), q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)),
)
_operator(
    "windowed_attention_backward(Tensor do, Tensor q, Tensor k, Tensor v, Tensor pk, Tensor pv, Tensor first, Tensor o,"
    " Tensor lse, int window, float scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda *args: _launch.windowed_attention_backward(PyTorch, *args),
    lambda do, q, k, v, pk, pv, *rest: (
        *map(_like, (q, k, v)),
        *(_like(x, torch.float32) for x in (pk, pv)),
    ),
)


def _windowed_attention_setup(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.window, ctx.scale = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, *output)


def _windowed_attention_backward(ctx: Any, do: Tensor, _dlse: Any) -> tuple[Tensor | None, ...]:
    *inputs, o, lse = ctx.saved_tensors
    *grads, dpk, dpv = ops.windowed_attention_backward(do, *inputs, o, lse, ctx.window, ctx.scale)
    return (*grads, dpk.to(o.dtype), dpv.to(o.dtype), None, None, None)


_gradient("windowed_attention", _windowed_attention_backward, _windowed_attention_setup)
_no_gradient("windowed_attention_backward")

_operator(
    "attention_decode(Tensor q, Tensor k, Tensor v, Tensor tokens, float scale, int parts) -> (Tensor, Tensor)",
    lambda *args: _launch.attention_decode(PyTorch, *args),
    lambda q, *rest: (_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)),
)
_no_gradient("attention_decode")

# Memories

_operator(
    "memory_read(Tensor x, Tensor w2, Tensor w1, Tensor r) -> Tensor",
    lambda x, w2, w1, r: _launch.memory_read(PyTorch, x, w2, w1, r),
    lambda x, w2, w1, r: _like(r),
)
_operator(
    "memory_read_backward(Tensor dy, Tensor x, Tensor w2, Tensor w1) -> (Tensor, Tensor, Tensor)",
    lambda dy, x, w2, w1: _launch.memory_read_backward(PyTorch, dy, x, w2, w1),
    lambda dy, x, w2, w1: (_like(x), _like(w2, torch.float32), _like(w1, torch.float32)),
)


def _memory_read_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _memory_read_backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, w2, w1 = ctx.saved_tensors
    dx, dw2, dw1 = ops.memory_read_backward(dy, x, w2, w1)
    # What goes in as `r` goes out as it is.
    return dx, dw2.to(w2.dtype), dw1.to(w1.dtype), dy.clone()


_gradient("memory_read", _memory_read_backward, _memory_read_setup)
_no_gradient("memory_read_backward")

# The Omega rule


def learns(*tensors: Tensor | None) -> bool:
    """Whether gradients are asked for."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def refuse_to_learn(name: str, *tensors: Tensor | None) -> None:
    """Refuses what would leave out a gradient and say nothing."""
    if _native.has_tangent(*tensors):
        raise _native.no_forward_mode(name)
    if learns(*tensors):
        raise RuntimeError(f"error[ATL651]: `{name}` of atlas_gpu has no gradient; call it under torch.no_grad(), or detach what goes in")


def was_written(tensors: list[Tensor]) -> None:
    """Tells PyTorch that tensors were written, so that a backward pass which needs what they were refuses what they are."""
    torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])


_TOKENS = "Tensor q, Tensor k, Tensor v, Tensor rq, Tensor rk, Tensor alpha, Tensor theta, Tensor eta, Tensor gamma"
_MEMORY = "Tensor[] weights, Tensor[] momenta, Tensor? norm"


def _omega_shapes(*args: Any) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    q, v, weights, momenta = args[0], args[2], args[9], args[10]
    return v.new_empty((*q.shape[:-1], v.shape[-1])), [_like(w) for w in weights], [_like(s) for s in momenta]


_operator(
    f"omega({_TOKENS}, {_MEMORY}, {_omega.RULE}) -> (Tensor, Tensor[], Tensor[])",
    lambda *args: _omega.omega(PyTorch, *args),
    _omega_shapes,
)
# Rules that have gradients go to the next operator.
_no_gradient("omega", " for a step of Muon for each token, or for each chunk that is read after it; `descent`, and `muon_by_chunk` with `before`, have one")


def _omega_training(*args: Any) -> Any:
    tokens, (weights, momenta, norm), rule, segment = args[:9], args[9:12], _omega.Rule(*args[12:19]), args[19]
    return _omega.omega_training(PyTorch, tokens, weights, momenta, norm, rule, segment)


def _segment_count(tokens: Any, chunk: int, segment: int) -> Any:
    """How many segments there are, as `_omega.segments` has it. Of any number of tokens it is a formula, without which the compiler would
    compile again for each."""
    if isinstance(tokens, int):
        return _omega.segments(tokens, chunk, segment)[1]
    chunks = -(-tokens // chunk)
    if not segment:
        root = torch.sym_max(math.ceil(torch.sym_sqrt(chunks)), 1)
        segment = -(-chunks // torch.sym_max(-(-chunks // root), 1))
    return -(-chunks // torch.sym_max(torch.sym_min(segment, chunks), 1))


def _omega_training_shapes(*args: Any) -> Any:
    q, weights, momenta, chunk, segment = args[0], args[9], args[10], args[14], args[19]
    count = _segment_count(q.shape[1], chunk, segment)
    return *_omega_shapes(*args), [m.new_empty((count, *m.shape)) for m in (*weights, *momenta)]


# As `omega`, and the states that the backward pass takes.
_operator(
    f"omega_training({_TOKENS}, {_MEMORY}, {_omega.RULE}, int segment) -> (Tensor, Tensor[], Tensor[], Tensor[])",
    _omega_training,
    _omega_training_shapes,
)


def _omega_training_backward(dy: Tensor, last: list[Tensor], *args: Any) -> list[Tensor]:
    tokens, norm, kept, rule, segment = args[:9], args[9], args[10], _omega.Rule(*args[11:18]), args[18]
    return _omega.omega_training_backward(PyTorch, dy, last, tokens, norm, kept, rule, segment)


def _omega_training_backward_shapes(dy: Tensor, last: list[Tensor], *args: Any) -> list[Tensor]:
    count = len(last) // 2
    shapes = _omega.gradient_shapes(args[:9], last[:count], last[count:], args[9], args[13])
    return [dy.new_empty(shape, dtype=torch.float32) for shape in shapes]


# All gradients, those by tokens before those by the norm and by the memory. They are float32, and some have room for whole chunks.
_operator(
    f"omega_training_backward(Tensor dy, Tensor[] last, {_TOKENS}, Tensor? norm, Tensor[] kept, {_omega.RULE}, int segment) -> Tensor[]",
    _omega_training_backward,
    _omega_training_backward_shapes,
)


def _omega_training_setup(ctx: Any, inputs: Any, output: Any) -> None:
    tokens, (ctx.count, norm), ctx.rule = inputs[:9], (len(inputs[9]), inputs[11]), inputs[12:]
    ctx.mark_non_differentiable(*output[3])
    ctx.save_for_backward(*tokens, norm, *output[3])


def _omega_training_gradients(ctx: Any, dy: Tensor, dweights: list[Tensor], dmomenta: list[Tensor], _dkept: Any) -> tuple[Any, ...]:
    # Once: checkpointing gives them one time.
    saved, count = ctx.saved_tensors, ctx.count
    tokens, norm, kept = saved[:9], saved[9], list(saved[10:])
    found = ops.omega_training_backward(dy, [*dweights, *dmomenta], *tokens, norm, kept, *ctx.rule)
    n = tokens[0].shape[1]
    by = [g[:, :n].to(t.dtype) for g, t in zip(found, [t for i, t in enumerate(tokens) if i != 3])]
    # What goes in as `rq` goes out as it is.
    by.insert(3, dy.clone())
    by_norm = None if norm is None else found[8].to(norm.dtype)
    by_memory = found[-2 * count :]
    return *by, by_memory[:count], by_memory[count:], by_norm, *(None for _ in ctx.rule)


_gradient("omega_training", _omega_training_gradients, _omega_training_setup)
_no_gradient("omega_training_backward")


def _omega_packed(*args: Any) -> Any:
    tokens, starts, (weights, momenta, norm), rule, longest = args[:9], args[9], args[10:13], _omega.Rule(*args[13:20]), args[20]
    return _omega.omega_packed(PyTorch, tokens, starts, weights, momenta, norm, rule, longest)


_operator(
    f"omega_packed({_TOKENS}, Tensor starts, {_MEMORY}, {_omega.RULE}, int longest) -> (Tensor, Tensor[], Tensor[])",
    _omega_packed,
    lambda *args: _omega_shapes(*args[:9], *args[10:]),
)
_no_gradient("omega_packed")

# Muon


def _newton_schulz_shapes(g: Tensor, dtype: str, steps: list[float], *_: Any) -> Tensor:
    _launch.check_steps(steps)
    return _like(g, getattr(torch, dtype))


_operator(
    "newton_schulz(Tensor g, str dtype, float[] steps, float stretch, float eps, bool eps_is_least, int restart) -> Tensor",
    lambda *args: _launch.newton_schulz(PyTorch, *args),
    _newton_schulz_shapes,
)
_no_gradient("newton_schulz")

from . import torch_autocast  # noqa: E402, F401 - what they take under autocast
