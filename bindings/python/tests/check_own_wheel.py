"""Checks a package that `atlas wheel` made, named `own`, of a library with the `softmax` that ships: the
functions on arrays of NumPy, and on tensors of PyTorch where that is installed. With `--device cuda`, those on the GPU."""

from __future__ import annotations

import argparse
import importlib.metadata
import pickle
from pathlib import Path
from typing import Any, Callable

import numpy as np

import own
from own import library


def softmax(x: Any) -> Any:
    e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def refused(kind: type[Exception], text: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except kind as error:
        assert text in str(error), f"{error} lacks {text!r}"
        return
    raise AssertionError(f"nothing is refused where {text!r} is expected")


def on_numpy() -> None:
    x = np.random.default_rng(1).standard_normal((5, 37)).astype(np.float32)
    y = np.empty_like(x)
    assert own.softmax(x, y) is None
    assert np.abs(y - softmax(x)).max() < 1e-6
    own.softmax(y=y, x=np.asfortranarray(x) + 1)
    assert np.abs(y - softmax(x)).max() < 1e-6
    still = x.copy()
    still.flags.writeable = False
    own.softmax(still, y)
    assert np.abs(y - softmax(x)).max() < 1e-6
    refused(ValueError, "writes `y`", lambda: own.softmax(x, still))
    refused(TypeError, "lacks `y`", lambda: own.softmax(x))
    refused(TypeError, "no parameter `z`", lambda: own.softmax(x, z=y))
    refused(TypeError, "twice", lambda: own.softmax(x, y, y=y))
    refused(TypeError, "takes 2 arguments", lambda: own.softmax(x, y, 1))
    refused(TypeError, "is given list", lambda: own.softmax([1.0], y))
    refused(TypeError, "masked", lambda: own.softmax(np.ma.masked_array(x), y))
    refused(ValueError, "ATL604", lambda: own.softmax(x, y[:3]))


def on_torch(torch: Any, device: str) -> None:
    import own.torch_ops  # noqa: F401 - defines the operators

    x = torch.randn(5, 37, device=device)
    y = torch.empty_like(x)
    wanted = torch.softmax(x.double(), -1)
    own.softmax(x, y)
    assert (y - wanted).abs().max() < 1e-6
    torch.ops.own.softmax(x.t().contiguous().t(), y.zero_())
    assert (y - wanted).abs().max() < 1e-6
    before = y._version
    own.softmax(x, y)
    assert y._version > before, "PyTorch is not told of what is written"
    learned = x.clone().requires_grad_()
    refused(RuntimeError, "no gradient", lambda: own.softmax(learned, y))
    with torch.no_grad():
        own.softmax(learned, y)
    refused(RuntimeError, "Tensor", lambda: torch.ops.own.softmax(1.0, y))
    refused(TypeError, "tensor of PyTorch", lambda: own.softmax(np.ones((5, 37), np.float32), y))
    refused(NotImplementedError, "forward mode", lambda: torch.func.jvp(lambda a: own.softmax(a, y.clone()) or a, (x,), (x,)))

    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = torch.empty_like(x)
            own.softmax(x, y)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            (y,) = ctx.saved_tensors
            return y * (dy - (dy * y).sum(-1, keepdim=True))

    torch.autograd.gradcheck(Softmax.apply, (learned,), eps=1e-2, atol=1e-3)
    torch.library.opcheck(torch.ops.own.softmax.default, (x, y))

    def twice(x: Any) -> Any:
        y = torch.empty_like(x)
        torch.ops.own.softmax(x * 2, y)
        return y + 1

    found = torch.compile(twice, fullgraph=True)(x)
    assert (found - 1 - torch.softmax(x.double() * 2, -1)).abs().max() < 1e-6
    if device != "cuda":
        return
    graph, y = torch.cuda.CUDAGraph(), torch.zeros_like(x)
    with torch.cuda.graph(graph):
        own.softmax(x, y)
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert (y - torch.softmax(x.double(), -1)).abs().max() < 1e-6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    assert library.signature("softmax").startswith("softmax<T:"), library.signature("softmax")
    assert "softmax" in own.__all__ and own.softmax.__name__ == "softmax"
    stubs = (Path(own.__file__).parent / "__init__.pyi").read_text()
    assert "def softmax(x: Any, y: Any) -> None:" in stubs, stubs
    # Every file of the list is there, as pip checked when it installed them.
    files = importlib.metadata.files("own") or []
    assert any(f.name == "libkernels.so" for f in files), files
    assert pickle.loads(pickle.dumps(own.softmax)) is own.softmax
    on_numpy()
    try:
        import torch
    except ImportError:
        print("own wheel: functions on arrays of NumPy agree; PyTorch is not installed")
        return
    on_torch(torch, args.device)
    print(f"own wheel: functions on arrays of NumPy and operators of PyTorch {torch.__version__} on {args.device} agree")


if __name__ == "__main__":
    main()
