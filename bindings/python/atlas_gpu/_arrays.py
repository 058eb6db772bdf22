"""The few operations on arrays that functions need, for NumPy and for PyTorch."""

from __future__ import annotations

import math
import sys
from typing import Any, Sequence

import tvm_ffi

Array = Any


class NumPy:
    """Arrays of NumPy. They are on the CPU."""

    # NumPy itself has no bfloat16.
    DTYPES = ("float32", "float16")

    @staticmethod
    def call(name: str, args: Sequence[Any]) -> Any:
        import numpy as np

        from ._library import function

        # DLPack has no array that may not be written, and such views repeat their elements. What a call writes is looked at before.
        def tensor(x: Any) -> Any:
            if not isinstance(x, np.ndarray):
                return x
            return tvm_ffi.from_dlpack(x if x.flags.writeable else x.copy())

        try:
            return function(name)(*map(tensor, args))
        except (ValueError, RuntimeError) as error:
            if "error[ATL638]" in str(error):
                raise MemoryError(str(error)) from error
            raise

    @staticmethod
    def check_written(op: str, param: str, written: Sequence[Array]) -> None:
        """Refuses arrays that cannot be written where they are."""
        if not all(x.flags.writeable for x in written):
            raise ValueError(f"error[ATL651]: `{op}` writes `{param}`, and a read-only array is given; give it a copy")

    @staticmethod
    def empty(like: Array, shape: Sequence[int], dtype: str | None = None) -> Array:
        import numpy as np

        return np.empty(shape, like.dtype if dtype is None else dtype)

    @staticmethod
    def full(like: Array, shape: Sequence[int], value: float, dtype: str | None = None) -> Array:
        import numpy as np

        # One element, which all places share, as of PyTorch: kernels see the same strides. `broadcast_to` would give a view that may not be
        # written, and DLPack has no such arrays.
        one = np.full((1,) * len(shape), value, like.dtype if dtype is None else dtype)
        return np.lib.stride_tricks.as_strided(one, shape, (0,) * len(shape))

    @staticmethod
    def expand(x: Array, shape: Sequence[int]) -> Array:
        import numpy as np

        return np.broadcast_to(x, shape)

    @staticmethod
    def copy(x: Array) -> Array:
        return x.copy()

    @staticmethod
    def rows(x: Array) -> Array:
        """The array, or a copy where the elements of its last axis are apart: kernels would read each by itself, several times."""
        import numpy as np

        return x if not x.ndim or x.strides[-1] == x.itemsize else np.ascontiguousarray(x)

    @staticmethod
    def dtype_name(x: Array) -> str:
        return str(x.dtype)


class PyTorch:
    """Tensors of PyTorch, on any device."""

    DTYPES = ("float32", "float16", "bfloat16")

    # Whether PyTorch hands tensors to tvm-ffi itself, those that require gradients too.
    _hands_over: bool | None = None

    @staticmethod
    def call(name: str, args: Sequence[Any]) -> Any:
        from ._library import function

        if PyTorch._hands_over is None:
            import torch

            PyTorch._hands_over = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
        # Memory says nothing of a sign that a tensor only notes. Operators are never given such tensors.
        args = [a.resolve_neg() if is_torch(a) and a.is_neg() else a for a in args]
        if not PyTorch._hands_over:
            args = [a.detach() if is_torch(a) else a for a in args]
        return function(name)(*args)

    @staticmethod
    def check_written(op: str, param: str, written: Sequence[Array]) -> None:
        """Refuses tensors that cannot be written where they are."""
        if any(x.is_neg() for x in written):
            raise ValueError(f"error[ATL651]: `{op}` writes `{param}`, and a view with the opposite sign is given; give it `.resolve_neg()`")

    @staticmethod
    def empty(like: Array, shape: Sequence[int], dtype: str | None = None) -> Array:
        import torch

        return like.new_empty(shape, dtype=None if dtype is None else getattr(torch, dtype))

    @staticmethod
    def full(like: Array, shape: Sequence[int], value: float, dtype: str | None = None) -> Array:
        import torch

        # One element, which all places share.
        return like.new_full((1,) * len(shape), value, dtype=None if dtype is None else getattr(torch, dtype)).expand(shape)

    @staticmethod
    def expand(x: Array, shape: Sequence[int]) -> Array:
        return x.expand(shape)

    @staticmethod
    def copy(x: Array) -> Array:
        import torch

        return x.clone(memory_format=torch.contiguous_format).resolve_neg()

    @staticmethod
    def rows(x: Array) -> Array:
        """As that of NumPy."""
        return x if not x.ndim or x.stride(-1) == 1 else x.contiguous()

    @staticmethod
    def dtype_name(x: Array) -> str:
        return str(x.dtype).removeprefix("torch.")


def is_torch(x: Any) -> bool:
    """Whether it is a tensor of PyTorch, without importing that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def of(name: str, *arrays: Any) -> type[NumPy] | type[PyTorch]:
    """The library of the arrays of a call, which is one. None stands for an array that is left out."""
    given = [x for x in arrays if x is not None]
    if given and all(is_torch(x) for x in given):
        return PyTorch
    numpy = sys.modules.get("numpy")
    if given and numpy is not None and all(isinstance(x, numpy.ndarray) for x in given):
        masked = sys.modules.get("numpy.ma")
        if masked is not None and any(isinstance(x, masked.MaskedArray) for x in given):
            raise TypeError(f"error[ATL697]: `{name}` takes no masked arrays, whose masks it would drop; pass `.filled(..)` or `.data`")
        return NumPy
    kinds = sorted({type(x).__name__ for x in given})
    wanted = "tensors of PyTorch or arrays of NumPy, all of one library"
    raise TypeError(f"error[ATL697]: `{name}` takes {wanted}, and is given {', '.join(kinds)}")


def rows(x: Array) -> Array:
    """An array as rows, `[N, D]`. One of two axes stays as it lies."""
    if x.ndim == 2:
        return x
    if x.ndim == 0:
        raise ValueError("error[ATL603]: an array of no axes has no rows; give it one")
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
