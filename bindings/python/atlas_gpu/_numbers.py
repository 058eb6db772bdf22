"""Numbers and names that users pass, checked before a library takes them for something else."""

from __future__ import annotations

import operator
import sys
from typing import Any, Sequence


def _refused(of: str, param: str, wanted: str, found: Any) -> ValueError:
    text = repr(found)
    return ValueError(f"error[ATL607]: `{param}` of `{of}` is {wanted}, and {text[:80]} is given")


def whole(of: str, param: str, x: Any, least: int = 0) -> int:
    """A whole number from `least` on. A float is none, even if it has no fraction."""
    try:
        found = operator.index(x)
    except TypeError:
        found = least - 1
    if found < least:
        raise _refused(of, param, f"a whole number from {least} on", x)
    return found


def asks_for_gradient(x: Any) -> bool:
    """Whether it is a tensor of PyTorch, or a list with one, by which a gradient is asked for."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.is_grad_enabled():
        return False
    return any(isinstance(a, torch.Tensor) and a.requires_grad for a in (x if isinstance(x, (list, tuple)) else (x,)))


def real(of: str, param: str, x: Any) -> float:
    """A number, which may be one of NumPy or a tensor of one element. One by which a gradient is asked for is refused: none would come."""
    if asks_for_gradient(x):
        raise ValueError(
            f"error[ATL651]: `{of}` has no gradient by `{param}`, and a tensor that requires one is given; pass `.item()` or `.detach()` of it"
        )
    try:
        return float(x)
    except (TypeError, ValueError, RuntimeError):
        raise _refused(of, param, "a number", x) from None


def reals(of: str, param: str, x: Any) -> list[float]:
    """A list of numbers, which may be an array of one axis."""
    try:
        listed = list(x)
    except TypeError:
        raise _refused(of, param, "a list of numbers", x) from None
    return [real(of, param, a) for a in listed]


def dtype_name(of: str, x: Any, known: Sequence[str]) -> str:
    """The name of an element type, which may be one of PyTorch or NumPy."""
    found = str(getattr(x, "__name__", None) or getattr(x, "name", None) or x).removeprefix("torch.")
    if found not in known:
        raise ValueError(f"error[ATL606]: `dtype` of `{of}` is one of {', '.join(known)}, and {found} is given")
    return found


def arrays(of: str, param: str, x: Any) -> list[Any]:
    """A list of arrays. An array itself is none, although it can be iterated."""
    if not isinstance(x, (tuple, list)):
        raise TypeError(f"error[ATL697]: `{param}` of `{of}` is a list of arrays, and {type(x).__name__} is given")
    return list(x)


def pair(of: str, param: str, x: Any) -> tuple[Any, Any]:
    """Two arrays."""
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        found = f"{len(x)} of them" if isinstance(x, (tuple, list)) else type(x).__name__
        raise ValueError(f"error[ATL601]: `{param}` of `{of}` is a pair of arrays, and {found} is given")
    return x[0], x[1]
