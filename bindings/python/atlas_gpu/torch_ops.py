"""The functions as operators of PyTorch, `torch.ops.atlas_gpu`, with shapes for the compiler and gradients."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

from . import _launch
from ._arrays import PyTorch

_library = torch.library.Library("atlas_gpu", "DEF")
ops = torch.ops.atlas_gpu


def _operator(schema: str, run: Callable[..., Any], shapes: Callable[..., Any]) -> None:
    """Defines an operator. `shapes` makes outputs like those of `run`, without running anything."""
    name = schema.partition("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _library.impl(name, run, key)
    torch.library.register_fake(f"atlas_gpu::{name}", shapes, lib=_library)


def _gradient(name: str, backward: Callable[..., Any], setup: Callable[..., None]) -> None:
    torch.library.register_autograd(f"atlas_gpu::{name}", backward, setup_context=setup, lib=_library)


def _no_gradient(name: str) -> None:
    """Without this, PyTorch would leave out the gradient and say nothing."""

    def backward(_ctx: Any, *_grads: Any) -> Any:
        raise RuntimeError(f"error[ATL651]: `{name}` of atlas_gpu has no gradient; call it under torch.no_grad(), or detach what goes in")

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
    return torch._softmax_backward_data(dy, y, -1, y.dtype)


_gradient("softmax", _softmax_backward, _softmax_setup)

# log_sum_exp

_operator(
    "log_sum_exp(Tensor x) -> Tensor", lambda x: _launch.log_sum_exp(PyTorch, x), lambda x: x.new_empty(x.shape[:-1])
)


def _log_sum_exp_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _log_sum_exp_backward(ctx: Any, dy: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return dy.unsqueeze(-1) * ops.softmax(x)


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


def _taylor2_features_backward(ctx: Any, dy: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    d, long, dy = x.shape[-1], x.float(), dy.float()
    pairs = dy[..., 1 + d :].unflatten(-1, (d, d))
    both = (pairs + pairs.transpose(-1, -2)) @ long.unsqueeze(-1)
    return (dy[..., 1 : 1 + d] + both.squeeze(-1) * 0.5**0.5).to(x.dtype)


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

_operator(
    "omega(Tensor q, Tensor k, Tensor v, Tensor rq, Tensor rk, Tensor alpha, Tensor theta, Tensor eta, Tensor gamma,"
    " Tensor[] weights, Tensor[] momenta, Tensor? norm, str memory, str step, int chunk, bool before, float scale,"
    " bool predicts, float eps) -> (Tensor, Tensor[], Tensor[])",
    lambda *args: _launch.omega(PyTorch, *args),
    lambda q, k, v, rq, rk, alpha, theta, eta, gamma, weights, momenta, *rest: (
        v.new_empty((*q.shape[:-1], v.shape[-1])),
        [_like(w) for w in weights],
        [_like(s) for s in momenta],
    ),
)
_no_gradient("omega")

# Muon

_operator(
    "newton_schulz(Tensor g, str dtype, float[] steps, float stretch, float eps, bool eps_is_least, int restart) -> Tensor",
    lambda *args: _launch.newton_schulz(PyTorch, *args),
    lambda g, dtype, *rest: _like(g, getattr(torch, dtype)),
)
_no_gradient("newton_schulz")
