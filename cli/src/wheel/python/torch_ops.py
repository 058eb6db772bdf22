"""Kernels as operators of PyTorch, `torch.ops.NAME_OF_THIS_PACKAGE`: for `torch.compile`, on PyTorch's current stream, in its CUDA graphs.

An operator writes its outputs, which are arguments, and returns nothing. It has no gradient: for one, write a `torch.autograd.Function`.
"""

from __future__ import annotations

from typing import Any

import torch

from . import library

_name = __name__.rpartition(".")[0]
_operators = torch.library.Library(_name, "DEF")
_ops = getattr(torch.ops, _name)
_defined: dict[str, Any] = {}


def operator(name: str, params: list[library.Param]) -> Any:
    """The operator of a kernel."""
    found = _defined.get(name)
    if found is not None:
        return found
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    described = []
    for i, p in enumerate(params):
        written = f"({next(letters, f'a{i}')}!)" if p.is_written else ""
        described.append(f"Tensor{written} {p.name}" if p.is_tensor else f"{'int' if p.is_whole else 'float'} {p.name}")
    _operators.define(f"{name}({', '.join(described)}) -> ()", tags=(torch.Tag.pt2_compliant_tag,))
    op = getattr(_ops, name).default
    launch = library.function(name)

    def run(*args: Any) -> None:
        launch(*(x.detach() if isinstance(x, torch.Tensor) and x.requires_grad else x for x in args))

    def learn(*args: Any) -> None:
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
            raise RuntimeError(
                f"`{name}` of {_name} has no gradient; call it in a torch.autograd.Function or under torch.no_grad(), or detach what goes in"
            )
        with torch._C._AutoDispatchBelowAutograd():
            op(*args)

    def count(*args: Any) -> None:
        # A backward pass that needs what was there before refuses what is there now.
        torch.autograd.graph.increment_version([x for p, x in zip(params, args) if p.is_written and not x.is_inference()])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            op(*args)

    for device in ("CPU", "CUDA"):
        _operators.impl(name, run, device)
    _operators.impl(name, count, "ADInplaceOrView")
    _operators.impl(name, learn, "Autograd")
    torch.library.register_fake(f"{_name}::{name}", lambda *args: None, lib=_operators)
    _defined[name] = op
    return op


def call(name: str, params: list[library.Param], values: list[Any]) -> None:
    """Calls an operator. PyTorch says what is no tensor."""
    operator(name, params)(*values)


# All of them from the import on, so that a program can name them.
for _kernel in dir(__import__(_name)):
    _params = None if _kernel.startswith("_") else library.params(_kernel)
    if _params is not None:
        operator(_kernel, _params)
