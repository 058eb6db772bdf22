"""Operators whose kernels PyTorch calls in the library itself, without Python in between."""

from __future__ import annotations

import os
from typing import Any, Callable

import torch
from torch.autograd import forward_ad

from ._library import c_library, check
from ._room import out_of_memory

VARIABLE = "ATLAS_GPU_TORCH"


def register(schema: str, device: str) -> str | None:
    """Has the library register its kernel of an operator for `CPU` or `CUDA`. If it does not, this says why."""
    if os.environ.get(VARIABLE) == "python":
        return f"{VARIABLE} is `python`"
    try:
        c = c_library()
        # A library of an earlier version has no such function.
        call = c.atlas_torch_register
        check(call(schema.encode(), device.encode()))
    except (RuntimeError, ValueError, AttributeError, OSError) as error:
        return str(error)
    return None


class Library(torch.library.Library):
    """A library of operators, in which a gradient costs little where none is asked for."""

    def impl(self, op_name: str, fn: Any, dispatch_key: str = "", **more: Any) -> None:
        if dispatch_key == "Autograd" and more.get("with_keyset"):
            fn = _asked_for(op_name, getattr(torch.ops.atlas_gpu, op_name).default, fn)
        super().impl(op_name, fn, dispatch_key, **more)


def has_tangent(*args: Any) -> bool:
    """Whether an argument is a tensor with a tangent of forward mode, or a list with one."""
    if forward_ad._current_level < 0:
        return False
    flat = [a for of in args for a in (of if isinstance(of, (list, tuple)) else (of,))]
    return any(isinstance(a, torch.Tensor) and forward_ad.unpack_dual(a).tangent is not None for a in flat)


def no_forward_mode(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"error[ATL651]: `{name}` of atlas_gpu has no gradient in forward mode, and a tensor with a tangent is given; use reverse mode"
    )


def _asked_for(name: str, op: Any, learn: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel for gradients, as `torch.library.register_autograd` makes it, for calls in which one is asked for. That one enters and leaves
    several contexts in each call, and would drop tangents. Memory that is out is said as PyTorch says it."""
    is_grad_enabled, behind = torch.is_grad_enabled, getattr(torch._C, "_after_autograd_keyset", None)
    any_requires_grad: Any = getattr(torch._C, "_any_requires_grad", None)
    # What `op.redispatch` calls.
    redispatch: Any = getattr(getattr(op, "_handle", None), "redispatch_boxed", None)
    is_known = not (behind is None or any_requires_grad is None or redispatch is None)

    def kernel(keyset: Any, *args: Any) -> Any:
        # Outside of forward mode this is one comparison.
        if forward_ad._current_level >= 0 and has_tangent(*args):
            raise no_forward_mode(name)
        try:
            if not is_known or (is_grad_enabled() and any_requires_grad(*args)):
                return learn(keyset, *args)
            return redispatch(keyset & behind, *args)
        except (ValueError, RuntimeError) as error:
            out = out_of_memory(error)
            if out is None:
                raise
            raise out from error

    return kernel
