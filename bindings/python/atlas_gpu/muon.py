"""Muon in the place of `torch.optim.Muon`."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch
from torch import Tensor

from . import torch_ops

_SCALES: dict[str | None, Callable[[int, int], float]] = {
    None: lambda rows, cols: math.sqrt(max(1.0, rows / cols)),
    "original": lambda rows, cols: math.sqrt(max(1.0, rows / cols)),
    "match_rms_adamw": lambda rows, cols: 0.2 * math.sqrt(max(rows, cols)),
    "spectral_unclamped": lambda rows, cols: math.sqrt(rows / cols),
}


class Muon(torch.optim.Muon):
    """`torch.optim.Muon` with the iteration of Atlas: the same arguments, the same state, the same steps but for rounding. Matrices of
    one shape are made orthogonal together."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on all parameters that have gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params: list[Tensor] = []
            grads: list[Tensor] = []
            buffers: list[Tensor] = []
            self._init_group(group, params, grads, buffers)
            if params:
                _step(group, params, grads, buffers)
        return loss


def _step(group: dict[str, Any], params: list[Tensor], grads: list[Tensor], buffers: list[Tensor]) -> None:
    momentum, rate = group["momentum"], float(group["lr"])
    if not 0 <= group["ns_steps"] < 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    torch._foreach_lerp_(buffers, grads, 1 - momentum)
    updates = torch._foreach_lerp(grads, buffers, momentum) if group["nesterov"] else buffers
    kept = 1 - rate * group["weight_decay"]
    if all(p.is_cuda for p in params):
        torch._foreach_mul_(params, kept)
    else:
        # On the CPU, the list form rounds the factor to the element type first.
        for p in params:
            p.mul_(kept)
    alike: dict[Any, list[int]] = {}
    for i, p in enumerate(params):
        alike.setdefault((p.shape, p.device, p.dtype), []).append(i)
    coefficients = [float(x) for x in group["ns_coefficients"]] * group["ns_steps"]
    scale_of = _SCALES[group["adjust_lr_fn"]]
    for (shape, _, dtype), which in alike.items():
        stack = params[which[0]].new_empty((len(which), *shape), dtype=torch.bfloat16)
        torch._foreach_copy_(list(stack.unbind(0)), [updates[i] for i in which])
        steps = torch_ops.ops.newton_schulz(stack, "bfloat16", coefficients, 1.0, group["eps"], True, 0)
        listed = list(steps.to(dtype).unbind(0))
        torch._foreach_add_([params[i] for i in which], listed, alpha=-rate * scale_of(*shape))
