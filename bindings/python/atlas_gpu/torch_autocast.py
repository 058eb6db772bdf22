"""What the operators take under `torch.autocast`: those that multiply matrices the type of autocast, as PyTorch's own do, and those that
meet tensors of several types the widest of these. The others take one tensor, of any type."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

_library = torch.library.Library("atlas_gpu", "IMPL")
_KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}

# By operator, the places of arguments that take the type of autocast, and of those that are always float32: gates and memories.
_PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "windowed_attention": ((0, 1, 2, 3, 4), ()),
    "attention_decode": ((0, 1, 2), ()),
    "memory_read": ((0, 1, 2, 3), ()),
    "omega": ((0, 1, 2, 3, 4, 11), (5, 6, 7, 8, 9, 10)),
    "omega_training": ((0, 1, 2, 3, 4, 11), (5, 6, 7, 8, 9, 10)),
    "omega_packed": ((0, 1, 2, 3, 4, 12), (5, 6, 7, 8, 10, 11)),
}
# The places of arguments that take the widest of their types.
_WIDEST: dict[str, tuple[int, ...]] = {"rms_norm": (0, 1), "rotary": (0, 1, 2)}


def _is_cast(value: Any, device: str) -> bool:
    """PyTorch leaves float64 and what lies on other devices as it is."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.device.type == device and value.dtype != torch.float64


def _cast(value: Any, device: str, dtype: torch.dtype) -> Any:
    if isinstance(value, (list, tuple)):
        return [_cast(v, device, dtype) for v in value]
    return value.to(dtype) if _is_cast(value, device) else value


def _without_autocast(name: str, device: str, values: list[Any]) -> Any:
    with torch.autocast(device, enabled=False):
        return getattr(torch.ops.atlas_gpu, name)(*values)


def _product(name: str, device: str, *args: Any) -> Any:
    values, (short, long) = list(args), _PRODUCTS[name]
    for places, dtype in ((short, torch.get_autocast_dtype(device)), (long, torch.float32)):
        for i in places:
            values[i] = _cast(values[i], device, dtype)
    return _without_autocast(name, device, values)


def _widened(name: str, device: str, *args: Any) -> Any:
    values, places = list(args), _WIDEST[name]
    types = [values[i].dtype for i in places if _is_cast(values[i], device)]
    for i in places if types else ():
        values[i] = _cast(values[i], device, reduce(torch.promote_types, types))
    return _without_autocast(name, device, values)


def _is_on(x: Tensor) -> bool:
    return x.device.type in _KEYS and torch.is_autocast_enabled(x.device.type)


def of_tokens(tokens: list[Tensor]) -> list[Tensor]:
    """Tokens, residuals and gates as `omega` takes them under autocast, for what is no operator."""
    device = tokens[0].device.type
    if not _is_on(tokens[0]):
        return tokens
    return [_cast(t, device, torch.get_autocast_dtype(device) if i < 5 else torch.float32) for i, t in enumerate(tokens)]


def of_memory(memory: list[Tensor]) -> list[Tensor]:
    """A memory as `omega` takes it under autocast."""
    return _cast(memory, memory[0].device.type, torch.float32) if memory and _is_on(memory[0]) else memory


for _device, _key in _KEYS.items():
    for _name in _PRODUCTS:
        _library.impl(_name, partial(_product, _name, _device), _key)
    for _name in _WIDEST:
        _library.impl(_name, partial(_widened, _name, _device), _key)
