"""The library: where it is, its kernels and chains as functions, and what it says about them."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from pathlib import Path
from typing import Any, Callable

import tvm_ffi

_VARIABLE = "ATLAS_GPU_LIBRARY"
_BUNDLE = "kernels.atlas"
_lock = threading.Lock()
_path: Path | None = None
_module: Any = None
_c: ctypes.CDLL | None = None
_functions: dict[str, Callable[..., Any]] = {}
_signatures: dict[str, str] = {}


def library_path() -> Path:
    """The file of the library: that of `load`, else of the variable ATLAS_GPU_LIBRARY, else that of this package."""
    if _path is not None:
        return _path
    named = os.environ.get(_VARIABLE)
    return Path(named) if named else Path(__file__).with_name("libatlas_c.so")


def bundle_path() -> Path | None:
    """The bundle beside the library, if there is one: compiled kernels, which a GPU of this process searches after the bundles of
    `add_bundle`. It is read when a GPU is first used, and never on the CPU."""
    beside = library_path().with_name(_BUNDLE)
    return beside if beside.is_file() else None


def load(path: str | os.PathLike[str] | None = None) -> None:
    """Loads the library. Every function does so when it is first called, and so does `import atlas_gpu.torch_ops`; a path has to come
    before that."""
    global _path, _module, _c
    with _lock:
        if _module is not None:
            if path is not None and Path(path).resolve() != library_path().resolve():
                raise RuntimeError(f"error[ATL696]: the library {library_path()} is loaded already; call `load` before any function")
            return
        file = Path(path) if path is not None else library_path()
        if not file.exists():
            raise RuntimeError(f"error[ATL696]: there is no library {file}; build it with `cargo build --release -p atlas-gpu-c`")
        module = tvm_ffi.load_module(str(file))
        c = ctypes.CDLL(str(file))
        c.atlas_last_error.restype = ctypes.c_char_p
        c.atlas_kernel_name.restype = c.atlas_chain_name.restype = ctypes.c_char_p
        c.atlas_kernel_name.argtypes = c.atlas_chain_name.argtypes = [ctypes.c_size_t]
        c.atlas_kernel_count.restype = c.atlas_chain_count.restype = ctypes.c_size_t
        _path, _c = file, c
        bundle = bundle_path()
        if bundle is not None:
            # Before any GPU is opened, which has the bundles that are named by then.
            check(c.atlas_bundle_for_gpus(os.fsencode(bundle)))
        _module = module


def function(name: str) -> Callable[..., Any]:
    """A kernel by its name, a chain by its name in upper case, as a function of tvm-ffi."""
    found = _functions.get(name)
    if found is None:
        if _module is None:
            load()
        found = _functions[name] = _module.get_function(name)
    return found


def c_library() -> ctypes.CDLL:
    """The library by its C interface, for questions that no kernel answers."""
    if _c is None:
        load()
    assert _c is not None
    return _c


def check(status: int) -> None:
    """Raises the last error of a call of C."""
    if status:
        raise ValueError((c_library().atlas_last_error() or b"").decode())


def add_bundle(path: str | os.PathLike[str], device: str = "cuda:0") -> None:
    """Adds a bundle of compiled kernels, as `atlas bundle` writes it, to all later calls on a device, before that of `bundle_path`."""
    c, opened, data = c_library(), ctypes.c_void_p(), Path(path).read_bytes()
    check(c.atlas_device_open(device.encode(), ctypes.byref(opened)))
    try:
        check(c.atlas_device_add_bundle(opened, data, ctypes.c_size_t(len(data))))
    finally:
        c.atlas_device_close(opened)


def kernels() -> list[str]:
    """The names of all kernels."""
    c = c_library()
    return [c.atlas_kernel_name(i).decode() for i in range(c.atlas_kernel_count())]


def chains() -> list[str]:
    """The names of all chains."""
    c = c_library()
    return [c.atlas_chain_name(i).decode() for i in range(c.atlas_chain_count())]


def signature(name: str) -> str:
    """The signature of a kernel, or of a chain if the name is in upper case."""
    found = _signatures.get(name)
    if found is None:
        c, text = c_library(), ctypes.c_char_p()
        ask = c.atlas_chain_signature if name.isupper() else c.atlas_kernel_signature
        check(ask(name.lower().encode(), ctypes.byref(text)))
        found = _signatures[name] = (text.value or b"").decode()
    return found


def parameters(name: str) -> tuple[list[str], list[str]]:
    """The parameters of a kernel or a chain, and the dims whose sizes stand behind them."""
    inside = signature(name)
    inside = inside[inside.index("(") + 1 : -1]
    params, _, sizes = inside.partition(";")
    return re.findall(r"(\w+): ", params), re.findall(r"\w+", sizes)
