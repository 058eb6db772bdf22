"""Kernels as functions of Python, on arrays of NumPy and tensors of PyTorch."""

from __future__ import annotations

import sys
from typing import Any, Callable

import tvm_ffi

from . import library


def function(name: str) -> Callable[..., Any]:
    """The function of a kernel. Arguments are those of its signature, by place or by name, outputs among them. It returns nothing."""
    found: list[Any] = []

    def call(*args: Any, **named: Any) -> Any:
        if not found:
            params = library.params(name)
            if params is None:
                raise RuntimeError(f"the library has a function `{name}` and says nothing of what it takes")
            found.append((library.function(name), params))
        launch, params = found[0]
        values = _in_order(name, params, args, named)
        torch = sys.modules.get("torch")
        if torch is not None and any(isinstance(v, torch.Tensor) for v in values):
            from . import torch_ops

            return torch_ops.call(name, params, values)
        return launch(*(_tensor(name, p, v) if p.is_tensor else v for p, v in zip(params, values)))

    call.__name__ = call.__qualname__ = name
    # Where programs find it, for `pickle` too.
    call.__module__ = __name__.rpartition(".")[0]
    call.__doc__ = f"The kernel `{name}`; `library.signature({name!r})` of this package says what it takes."
    return call


def _in_order(name: str, params: list[library.Param], args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    names = [p.name for p in params]
    if len(args) > len(names):
        raise TypeError(f"`{name}` takes {len(names)} arguments ({', '.join(names)}), and is given {len(args)}")
    values = dict(zip(names, args))
    for key, value in named.items():
        if key not in names:
            raise TypeError(f"`{name}` has no parameter `{key}`; it takes {', '.join(names)}")
        if key in values:
            raise TypeError(f"`{name}` is given `{key}` twice")
        values[key] = value
    missing = [n for n in names if n not in values]
    if missing:
        raise TypeError(f"`{name}` lacks {', '.join(f'`{n}`' for n in missing)}; outputs are arguments too. It is {library.signature(name)}")
    return [values[n] for n in names]


def _tensor(name: str, param: library.Param, x: Any) -> Any:
    """An array for tvm-ffi. DLPack has no array that may not be written, so a copy of such an input goes in."""
    if param.is_written and type(x).__module__.partition(".")[0] in ("jax", "jaxlib"):
        raise TypeError(f"`{name}` writes `{param.name}`, and an array of JAX never changes; see the page on JAX")
    if not hasattr(x, "flags"):
        if not hasattr(x, "__dlpack__"):
            raise TypeError(f"`{param.name}` of `{name}` is an array of NumPy or a tensor, and is given {type(x).__name__}")
        return tvm_ffi.from_dlpack(x)
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(x, masked.MaskedArray):
        raise TypeError(f"`{name}` takes no masked arrays, whose masks it would drop; pass `.filled(..)` or `.data`")
    # Those of CuPy say nothing of it.
    if not getattr(x.flags, "writeable", True):
        if param.is_written:
            raise ValueError(f"`{name}` writes `{param.name}`, and a read-only array is given; give it a copy")
        x = x.copy()
    return tvm_ffi.from_dlpack(x)
