"""What the library keeps between calls, and what happens where memory is out."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Out of memory: in the library, and in PyTorch where the library asks it for an output.
_OUT = ("error[ATL638]", "error[ATL698]: PyTorch could not allocate")


def out_of_memory(error: Exception) -> Exception | None:
    """The exception of PyTorch for one that says that memory is out; None for others."""
    torch = sys.modules.get("torch")
    text = str(error)
    if torch is None or isinstance(error, torch.OutOfMemoryError) or not text.startswith(_OUT):
        return None
    mend = "what PyTorch and Atlas keep unused is freed by torch.cuda.empty_cache() and atlas_gpu.empty_cache()"
    out: Exception = torch.OutOfMemoryError(f"{text}; {mend}")
    return out


def says_when_out(f: F) -> F:
    """The function, where memory that is out raises `torch.OutOfMemoryError`."""

    @functools.wraps(f)
    def call(*args: Any, **more: Any) -> Any:
        try:
            return f(*args, **more)
        except (ValueError, RuntimeError) as error:
            out = out_of_memory(error)
            if out is None:
                raise
            raise out from error

    return call  # type: ignore[return-value]


_late: list[int] = []


def is_recording() -> bool:
    """Whether PyTorch records a CUDA graph on the stream of this thread, or on the one of `torch.cuda.graph`. Nothing may wait for a device
    then: the recording would fail."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    if torch.cuda.is_current_stream_capturing():
        return True
    stream = torch.cuda.graph.default_capture_stream
    if stream is None:
        return False
    with torch.cuda.stream(stream):
        return bool(torch.cuda.is_current_stream_capturing())


def close_stream(number: int) -> None:
    """Closes a stream of the library, or puts that off while a graph is recorded."""
    _late.append(number)
    close_late()


def close_late() -> None:
    """Closes streams whose closing was put off."""
    if not _late or is_recording():
        return
    from ._library import function

    while True:
        try:
            number = _late.pop()
        except IndexError:
            # Another thread was here.
            return
        function("omega_stream_close")(number)


def empty_cache() -> None:
    """Frees workspaces that are kept for the next call of `omega` with gradients and of `omega_packed`, when all work on their devices has
    run. Those that a CUDA graph uses stay. The next call with such sizes allocates again."""
    if is_recording():
        raise RuntimeError("error[ATL656]: `empty_cache` waits for devices, and a CUDA graph is recorded; call it before or after that")
    close_late()
    from ._library import function

    function("omega_empty_cache")()
