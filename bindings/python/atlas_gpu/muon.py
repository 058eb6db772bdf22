"""Muon in the place of `torch.optim.Muon`."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch
from torch import Tensor

from . import torch_ops
from ._numbers import reals, whole

_SCALES: dict[str | None, Callable[[int, int], float]] = {
    None: lambda rows, cols: math.sqrt(max(1.0, rows / cols)),
    "original": lambda rows, cols: math.sqrt(max(1.0, rows / cols)),
    "match_rms_adamw": lambda rows, cols: 0.2 * math.sqrt(max(rows, cols)),
    "spectral_unclamped": lambda rows, cols: math.sqrt(rows / cols),
}


# Bytes of gradients whose matrices are made orthogonal together. More would take more memory, and hardly less time.
_TOGETHER = 64 << 20


class Muon(torch.optim.Muon):
    """`torch.optim.Muon` with the iteration of Atlas: the same arguments, the same state, the same steps but for rounding. Matrices of
    one shape are made orthogonal together."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, with what is different for them."""
        # PyTorch refuses what is no group.
        if isinstance(param_group, dict):
            _check({**self.defaults, **param_group})
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on all parameters that have gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # Before any parameter or momentum changes.
        for group in self.param_groups:
            _check(group)
        for group in self.param_groups:
            params: list[Tensor] = []
            grads: list[Tensor] = []
            buffers: list[Tensor] = []
            self._init_group(group, params, grads, buffers)
            if params:
                _step(group, params, grads, buffers)
        return loss


def _check(group: dict[str, Any]) -> None:
    """Refuses settings that a step cannot be taken with."""
    if whole("Muon", "ns_steps", group["ns_steps"]) >= 100:
        raise ValueError(f"error[ATL607]: `ns_steps` of `Muon` is a whole number from 0 to 99, and {group['ns_steps']} is given")
    coefficients = reals("Muon", "ns_coefficients", group["ns_coefficients"])
    if len(coefficients) != 3:
        raise ValueError(f"error[ATL601]: `ns_coefficients` of `Muon` are three numbers, and {len(coefficients)} are given")
    if group["adjust_lr_fn"] not in _SCALES:
        known = ", ".join(str(name) for name in _SCALES)
        raise ValueError(f"error[ATL696]: `adjust_lr_fn` of `Muon` is one of {known}, and {group['adjust_lr_fn']} is given")


def _step(group: dict[str, Any], params: list[Tensor], grads: list[Tensor], buffers: list[Tensor]) -> None:
    momentum, rate = group["momentum"], float(group["lr"])
    torch._foreach_lerp_(buffers, grads, 1 - momentum)
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
    for (shape, _, dtype), all_alike in alike.items():
        first = params[all_alike[0]]
        count = max(1, _TOGETHER // max(first.numel() * first.element_size(), 1))
        for at in range(0, len(all_alike), count):
            which = all_alike[at : at + count]
            updates = [buffers[i] for i in which]
            if group["nesterov"]:
                updates = list(torch._foreach_lerp([grads[i] for i in which], updates, momentum))
            stack = first.new_empty((len(which), *shape), dtype=torch.bfloat16)
            torch._foreach_copy_(list(stack.unbind(0)), updates)
            del updates
            steps = torch_ops.ops.newton_schulz(stack, "bfloat16", coefficients, 1.0, group["eps"], True, 0)
            listed = list(steps.to(dtype).unbind(0))
            torch._foreach_add_([params[i] for i in which], listed, alpha=-rate * scale_of(*shape))
