"""Operators whose kernels PyTorch calls in the library itself, without Python in between."""

from __future__ import annotations

import os
from typing import Any, Callable

import torch

from ._library import c_library, check

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
            fn = _asked_for(getattr(torch.ops.atlas_gpu, op_name).default, fn)
        super().impl(op_name, fn, dispatch_key, **more)


def _asked_for(op: Any, learn: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel for gradients, as `torch.library.register_autograd` makes it, for calls in which one is asked for. That one enters and leaves
    several contexts in each call."""
    is_grad_enabled, behind = torch.is_grad_enabled, getattr(torch._C, "_after_autograd_keyset", None)
    any_requires_grad = getattr(torch._C, "_any_requires_grad", None)
    # What `op.redispatch` calls.
    redispatch = getattr(getattr(op, "_handle", None), "redispatch_boxed", None)
    if behind is None or any_requires_grad is None or redispatch is None:
        return learn

    def kernel(keyset: Any, *args: Any) -> Any:
        if is_grad_enabled() and any_requires_grad(*args):
            return learn(keyset, *args)
        return redispatch(keyset & behind, *args)

    return kernel
