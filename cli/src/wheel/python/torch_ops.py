"""Kernels as operators of PyTorch, `torch.ops.NAME_OF_THIS_PACKAGE`: for `torch.compile`, on PyTorch's current stream, in its CUDA graphs.

An operator writes its outputs, which are arguments, and returns nothing. It has no gradient: for one, write a `torch.autograd.Function`.
"""

from __future__ import annotations

import keyword
import sys
from typing import Any

import torch
from torch.autograd import forward_ad

from . import library

_package = __name__.rpartition(".")[0]
_name = _package.replace(".", "_")
_operators = torch.library.Library(_name, "DEF")
_ops = getattr(torch.ops, _name)
_defined: dict[str, Any] = {}


def _word(name: str) -> str:
    """A name for an operator or its parameter. Words of Python, and what PyTorch's namespaces have of their own, get an underscore."""
    return f"{name}_" if keyword.iskeyword(name) or name in ("name", "self") else name


def operator(name: str, params: list[library.Param]) -> Any:
    """The operator of a kernel."""
    found = _defined.get(name)
    if found is not None:
        return found
    described = []
    for i, p in enumerate(params):
        written = f"(a{i}!)" if p.is_written else ""
        described.append(f"Tensor{written} {_word(p.name)}" if p.is_tensor else f"{'int' if p.is_whole else 'float'} {_word(p.name)}")
    known = _word(name)
    _operators.define(f"{known}({', '.join(described)}) -> ()", tags=(torch.Tag.pt2_compliant_tag,))
    op = getattr(_ops, known).default
    launch = library.function(name)

    def run(*args: Any) -> None:
        launch(*(x.detach() if isinstance(x, torch.Tensor) and x.requires_grad else x for x in args))

    def learn(*args: Any) -> None:
        if forward_ad._current_level >= 0 and any(
            isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in args
        ):
            raise NotImplementedError(f"`{name}` of {_package} has no gradient in forward mode, and a tensor with a tangent is given")
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
            raise RuntimeError(
                f"`{name}` of {_package} has no gradient; call it in a torch.autograd.Function or under torch.no_grad(), or detach what goes in"
            )
        with torch._C._AutoDispatchBelowAutograd():
            op(*args)

    def count(*args: Any) -> None:
        # A backward pass that needs what was there before refuses what is there now.
        torch.autograd.graph.increment_version([x for p, x in zip(params, args) if p.is_written and not x.is_inference()])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            op(*args)

    for device in ("CPU", "CUDA"):
        _operators.impl(known, run, device)
    _operators.impl(known, count, "ADInplaceOrView")
    _operators.impl(known, learn, "Autograd")
    torch.library.register_fake(f"{_name}::{known}", lambda *args: None, lib=_operators)
    _defined[name] = op
    return op


def call(name: str, params: list[library.Param], values: list[Any]) -> None:
    """Calls an operator."""
    devices = {v.device for v in values if isinstance(v, torch.Tensor) and v.dim()}
    if len(devices) > 1:
        raise ValueError(f"`{name}` takes tensors of one device, and is given some of {', '.join(sorted(map(str, devices)))}")
    for p, v in zip(params, values):
        if p.is_tensor and not isinstance(v, torch.Tensor):
            raise TypeError(f"`{p.name}` of `{name}` is a tensor of PyTorch, as others of this call are, and is given {type(v).__name__}")
        if not p.is_tensor and isinstance(v, torch.Tensor) and v.requires_grad:
            raise RuntimeError(f"`{name}` of {_package} has no gradient by the number `{p.name}`; detach it")
        if p.is_written and v.is_neg():
            raise ValueError(f"`{name}` writes `{p.name}`, and a view with the opposite sign is given; give it `.resolve_neg()`")
    operator(name, params)(*values)


# All of them from the import on, so that a program can name them.
for _kernel in sys.modules[_package].__all__:
    _params = library.params(_kernel)
    if _params is not None:
        operator(_kernel, _params)
