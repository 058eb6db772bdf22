"""The library of kernels, and what it says about them."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from pathlib import Path
from typing import Any, Callable

import tvm_ffi

_lock = threading.Lock()
_module: Any = None
_c: Any = None
_signatures: dict[str, str] = {}


def library_path() -> Path:
    """The file of the library."""
    return Path(__file__).with_name("libkernels.so")


def bundle_path() -> Path | None:
    """The bundle in this package, if there is one: compiled kernels for GPUs. It is read when a GPU is first used."""
    beside = library_path().with_name("kernels.atlas")
    return beside if beside.is_file() else None


def _load() -> tuple[Any, Any]:
    global _module, _c
    with _lock:
        if _module is None:
            file = str(library_path())
            module, c = tvm_ffi.load_module(file), ctypes.CDLL(file)
            c.atlas_last_error.restype = ctypes.c_char_p
            bundle = bundle_path()
            if bundle is not None:
                # Before any GPU is opened, which has the bundles that are named by then.
                _check(c, c.atlas_bundle_for_gpus(os.fsencode(bundle)))
            _module, _c = module, c
        return _module, _c


def _check(c: Any, status: int) -> None:
    if status:
        raise ValueError((c.atlas_last_error() or b"").decode())


def function(name: str) -> Callable[..., Any]:
    """A kernel by its name, or a chain by its name in upper case, as a function of tvm-ffi."""
    found: Callable[..., Any] = _load()[0].get_function(name)
    return found


def add_bundle(path: str | os.PathLike[str], device: str = "cuda:0") -> None:
    """Adds a bundle of compiled kernels, as `atlas bundle` writes it, to all later calls on a device, before that of this package."""
    c, opened, data = _load()[1], ctypes.c_void_p(), Path(path).read_bytes()
    _check(c, c.atlas_device_open(device.encode(), ctypes.byref(opened)))
    try:
        _check(c, c.atlas_device_add_bundle(opened, data, ctypes.c_size_t(len(data))))
    finally:
        c.atlas_device_close(opened)


def signature(name: str) -> str | None:
    """The signature of a kernel, or of a chain by its name in upper case; `None` for another function of the library."""
    found = _signatures.get(name)
    if found is None:
        c, text = _load()[1], ctypes.c_char_p()
        ask = c.atlas_chain_signature if name.isupper() else c.atlas_kernel_signature
        if ask(name.lower().encode(), ctypes.byref(text)):
            return None
        found = _signatures[name] = (text.value or b"").decode()
    return found


class Param:
    """A parameter of a kernel or a chain."""

    def __init__(self, name: str, kind: str, whole: tuple[str, ...]) -> None:
        self.name = name
        self.is_tensor = "Tensor<" in kind
        self.is_written = kind.startswith("&mut")
        self.is_whole = kind in whole


def params(name: str) -> list[Param] | None:
    """The parameters of a kernel or a chain, behind which stand the dims whose sizes no tensor has."""
    text = signature(name)
    if text is None:
        return None
    types, _, inside = text.partition("(")
    tensors, _, sizes = inside[:-1].partition(";")
    # A type parameter that may be nothing but an integer.
    generic = re.findall(r"(\w+): ([\w |]+)", types.partition("<")[2])
    integers = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
    whole = (*integers, *(t for t, allowed in generic if set(allowed.split(" | ")) <= integers))
    found = [Param(*pair, whole) for pair in re.findall(r"(\w+): (&(?:mut )?Tensor<\w+, \[[^\]]*\]>|\w+)", tensors)]
    return found + [Param(size, "i64", whole) for size in re.findall(r"\w+", sizes)]
