"""A piece of work and its baselines, and the ways to make a baseline of a function: eager, compiled, in a CUDA graph.

Without a GPU everything is made on the CPU, for the self-test: a graph is a plain call, and compiling stops before code
generation.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import Callable

import torch

from baselines import timing

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MODE = "max-autotune-no-cudagraphs"

# The coefficients in `atlas bench`.
POLY3 = (1.0, 0.5, -0.25)
RMS_EPS = 1e-6
NS_EPS = 1e-7
NS_STEP = (3.4445, -4.7750, 2.0315)


@dataclass
class Baseline:
    name: str
    make: Callable
    # Compilation is slow, and has a time limit.
    compiles: bool = False
    # It cannot run on a CPU, so the self-test leaves it out.
    gpu: bool = False


@dataclass
class Work:
    # The name for `atlas bench --only`; None if Atlas has no such benchmark.
    atlas: str | None
    name: str
    sizes: tuple
    tolerance: float
    bytes: int
    flops: int
    # How many rows of the first axis are compared at a time.
    rows: int
    # The reference of one output, or a tuple of references if the baselines return a tuple.
    reference: Callable
    baselines: list = field(default_factory=list)
    dtype: str = "bf16"
    # The sizes in Atlas's order, if that differs.
    atlas_sizes: tuple | None = None
    # Restores what the baselines change in place; called before an output is checked and before a round.
    reset: Callable = lambda: None

    @property
    def shape(self):
        return "x".join(str(n) for n in self.sizes)


def normal(*sizes, scale=1.0):
    return (torch.randn(*sizes, device=DEVICE, dtype=torch.float32) * scale).to(torch.bfloat16)


def uniform(*sizes, low=0.0, high=1.0):
    """Gates and weights, in f32."""
    return torch.rand(*sizes, device=DEVICE, dtype=torch.float32) * (high - low) + low


def compiler(fn, mode=MODE):
    """`fn` as torch.compile makes it, in a mode of it."""
    if DEVICE == "cpu":
        return torch.compile(fn, backend="aot_eager", fullgraph=True, dynamic=False)
    return torch.compile(fn, mode=mode, fullgraph=True, dynamic=False)


def compiled(fn, *args):
    made = compiler(fn)
    made(*args)
    if DEVICE != "cpu":
        torch.cuda.synchronize()
    return lambda: made(*args)


def both(name, make, **kind):
    """Two baselines that share what `make` gives: launched as usual, and from a CUDA graph."""
    made = functools.cache(make)
    return [
        Baseline(name, lambda: made(), **kind),
        Baseline(f"{name}, graph", lambda: timing.graphed(made()), **kind),
    ]


def with_compiled(fn, *args):
    return both("torch.compile", lambda: compiled(fn, *args), compiles=True)


def four_ways(fn, *args):
    """Eager and compiled, each launched as usual and from a CUDA graph."""
    return [*both("torch eager", lambda: lambda: fn(*args)), *with_compiled(fn, *args)]


def bmm_f32(a, b):
    """The product of bf16 matrices in f32, not rounded on the way."""
    return torch.bmm(a, b, out_dtype=torch.float32) if a.is_cuda else torch.bmm(a.float(), b.float())


def newton_schulz_steps(x):
    """Five quintic steps on `[b, n, m]`, n <= m, of spectral norm at most 1."""
    a, b, c = NS_STEP
    for _ in range(5):
        gram = x @ x.mT
        poly = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, poly, x, beta=a)
    return x


def orthogonalise(g, dtype):
    """Five steps on `g` divided by its Frobenius norm, rounded to `dtype` after the division."""
    return newton_schulz_steps((g / (g.norm(dim=(-2, -1), keepdim=True) + NS_EPS)).to(dtype))


def rates(work, ms):
    """Useful bytes and operations per second."""
    if not ms or not math.isfinite(ms):
        return {}
    out = {"gb_s": round(work.bytes / ms / 1e6, 1)}
    if work.flops:
        out["tflops"] = round(work.flops / ms / 1e9, 2)
    return out
