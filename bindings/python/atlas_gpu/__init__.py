"""The kernels of Atlas, on arrays of NumPy and tensors of PyTorch.

A function takes arrays of one library and returns new ones of the same. Tensors of PyTorch may be on a GPU: then it runs on
PyTorch's current stream, and `torch.ops.atlas_gpu` has it as an operator, from the first call or `import atlas_gpu.torch_ops` on. NumPy
and PyTorch are not needed both. A mistake raises TypeError, ValueError or RuntimeError, whose message has a code such as ATL604 and says
what to do.
"""

from typing import TYPE_CHECKING

from ._library import add_bundle, bundle_path, chains, kernels, library_path, load, signature
from ._ops import (
    attention_decode,
    log_sum_exp,
    memory_read,
    newton_schulz,
    poly_features,
    rms_norm,
    rotary,
    softmax,
    taylor2_features,
    windowed_attention,
)
from ._room import empty_cache
from ._rules import OmegaStream, omega, omega_packed

if TYPE_CHECKING:
    from .muon import Muon

__all__ = [
    "Muon",
    "OmegaStream",
    "add_bundle",
    "attention_decode",
    "bundle_path",
    "chains",
    "empty_cache",
    "kernels",
    "library_path",
    "load",
    "log_sum_exp",
    "memory_read",
    "newton_schulz",
    "omega",
    "omega_packed",
    "poly_features",
    "rms_norm",
    "rotary",
    "signature",
    "softmax",
    "taylor2_features",
    "windowed_attention",
]


def __getattr__(name: str) -> object:
    # The optimizer is a class of PyTorch's, which not everybody has.
    if name == "Muon":
        from .muon import Muon

        return Muon
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
