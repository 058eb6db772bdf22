"""Calls the functions of the package on a GPU with kernels of its bundle alone: `ATLAS_CACHE_DIR= python check_bundle.py`, with a wheel that
has a bundle for this GPU and no compiler, and PyTorch. It compares each with the same call on the CPU, gradients too.

A rule may magnify rounding: Muon divides the gradient of a chunk by its singular values, of which many are small. Where a result is off by more
than the bound of its type, the call runs on the CPU again with inputs that are off by one rounding of that type. The GPU may be off by twice
as much as these are."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable

import torch
from torch import Tensor

import atlas_gpu as atlas

TYPES = (torch.float32, torch.float16, torch.bfloat16)
BOUNDS = {torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 6e-2}


def normal(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(shape)).to(dtype)


def flat(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    return [t for part in found for t in flat(part)]


def results(call: Callable[..., Any], inputs: list[Tensor], learns: bool) -> list[Tensor]:
    """What a call gives, and gradients by all inputs that are floats."""
    leaves = [t.detach().clone().requires_grad_(learns and t.is_floating_point()) for t in inputs]
    found = flat(call(*leaves))
    if not learns:
        return found
    total = sum((t.float().square().sum() for t in found if t.requires_grad), torch.zeros((), device=found[0].device))
    learned = [t for t in leaves if t.requires_grad]
    return [t.detach() for t in found] + [g for g in torch.autograd.grad(total, learned, allow_unused=True) if g is not None]


def off_by(found: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest error, by the largest number of each result."""
    pairs = zip(found, wanted, strict=True)
    return max(float((f.cpu().double() - w.double()).abs().max() / w.double().abs().max().clamp(min=1e-6)) for f, w in pairs)


def rounded(t: Tensor, dtype: torch.dtype) -> Tensor:
    """Each number off by half a step of the type, up or down."""
    if not t.is_floating_point():
        return t
    signs = torch.randint(0, 2, t.shape) * 2 - 1
    return (t.double() * (1 + signs * torch.finfo(dtype).eps / 2)).to(t.dtype)


def magnified(call: Callable[..., Any], inputs: list[Tensor], learns: bool, wanted: list[Tensor], dtype: torch.dtype) -> float:
    """How far results on the CPU are off after inputs that are off by a rounding."""
    return max(off_by(results(call, [rounded(t, dtype) for t in inputs], learns), wanted) for _ in range(3))


def sliced(memory: str, dtype: torch.dtype, d: int, tokens: int, heads: int) -> tuple[Callable[..., Any], list[Tensor]]:
    """A rule on slices of two projections, and the gradient of a sum."""
    window, m = 16, 4 * d
    shapes = [(d, d)] if memory == "linear" else [(d, m), (m, d)]
    projected = normal(2, tokens, 3 * heads, d, dtype=dtype, scale=d**-0.5)
    state = [normal(2, heads, *shape, scale=0.1) for shape in shapes]

    def call(projected: Tensor, gates: Tensor, *weights: Tensor) -> Any:
        q, k, v = projected.chunk(3, dim=2)
        alpha, theta, eta = 0.9 + 0.1 * gates[..., 0], 0.5 * gates[..., 1], gates[..., 2]
        still = [torch.zeros_like(w) for w in weights]
        y, _, _ = atlas.omega(q, k, v, alpha, gates[..., 1], 1e-3 * eta, gates[..., 3:], list(weights), still, memory=memory, chunk=64)
        return (y.abs() + theta[..., None].to(y.dtype)).sum()

    return call, [projected, torch.rand(2, tokens, heads, 3 + window) / window, *state]


def rule(memory: str, step: str, dtype: torch.dtype, window: int, d: int, tokens: int, heads: int) -> tuple[Callable[..., Any], list[Tensor]]:
    m = 4 * d
    shapes = {"linear": [(d, d)], "gated": [(d, m), (m, d), (m, d)]}.get(memory, [(d, m), (m, d)])
    gates = [0.9 + 0.1 * torch.rand(2, tokens, heads), 0.5 * torch.rand(2, tokens, heads), 1e-3 * torch.rand(2, tokens, heads)]
    inputs = [normal(2, tokens, heads, d, dtype=dtype, scale=d**-0.5) for _ in range(3)]
    inputs += [*gates, torch.rand(2, tokens, heads, window) / window]
    state = [normal(2, heads, *shape, scale=0.1) for shape in shapes]
    norm = [torch.ones(heads, d, dtype=dtype)] if memory == "normed" else []

    def call(*given: Tensor) -> Any:
        count = len(shapes)
        weights = list(given[7 : 7 + count])
        momenta = [torch.zeros_like(w) for w in weights]
        more = {"norm": given[-1]} if norm else {}
        return atlas.omega(*given[:7], weights, momenta, memory=memory, step=step, chunk=64, before=step == "muon_by_chunk", **more)

    return call, [*inputs, *state, *norm]


def calls(dtype: torch.dtype) -> list[tuple[str, Callable[..., Any], list[Tensor], bool]]:
    listed: list[tuple[str, Callable[..., Any], list[Tensor], bool]] = []
    pad = functools.partial(torch.nn.functional.pad, pad=(8, 8), value=1.0)
    for n, d in ((512, 64), (333, 1024), (512, 4096)):
        x, w = normal(n, d, dtype=dtype), normal(d, dtype=dtype)
        listed += [
            (f"softmax {n} {d}", atlas.softmax, [x], True),
            (f"log_sum_exp {n} {d}", atlas.log_sum_exp, [x], True),
            (f"rms_norm {n} {d}", atlas.rms_norm, [x, w], True),
            (f"rms_norm {n} {d} sliced", lambda x, w: atlas.rms_norm(x.abs()[:, 8:-8], w[8:-8].abs()).float().sum(), [pad(x), pad(w)], True),
            (f"poly_features {n} {d}", lambda x: atlas.poly_features(x, [1.0, 0.5, 0.25]), [x], True),
        ]
    listed.append(("taylor2_features", atlas.taylor2_features, [normal(512, 16, dtype=dtype)], True))
    for d in (64, 128):
        q, k = normal(2, 256, 8, d, dtype=dtype), normal(2, 256, 2, d, dtype=dtype)
        angle = torch.rand(256, d // 2)
        listed += [
            (f"rotary {d}", lambda x, a: atlas.rotary(x, a.cos().to(x.dtype).detach(), a.sin().to(x.dtype).detach()), [q, angle], False),
            (f"windowed_attention {d}", lambda q, k, v: atlas.windowed_attention(q, k, v, 64)[0], [q, k, k + 1], True),
            (
                f"attention_decode {d}",
                lambda q, k, v: atlas.attention_decode(q, k, v, torch.full((2,), 100, dtype=torch.int32, device=q.device)),
                [normal(2, 2, 4, d, dtype=dtype), k, k + 1],
                False,
            ),
            (
                f"memory_read {d}",
                atlas.memory_read,
                [normal(2, 256, d, dtype=dtype), *(normal(2, *s, dtype=dtype, scale=0.1) for s in ((4 * d, d), (d, 4 * d))), normal(2, 256, d, dtype=dtype)],
                True,
            ),
        ]
        for memory in ("linear", "mlp", "gated", "normed") if dtype != torch.float16 else ():
            # Few heads, whose passes over a chunk are launches, and many; numbers of tokens with a short last segment and a short chunk.
            for tokens, heads in ((320, 2), (256, 2), (300, 32)):
                listed.append((f"omega {memory} {d} {tokens} {heads}", *rule(memory, "descent", dtype, 16, d, tokens, heads), True))
            if memory in ("linear", "mlp"):
                listed.append((f"omega {memory} {d} sliced", *sliced(memory, dtype, d, 300, 3), True))
            if d == 64:
                listed.append((f"omega {memory} by chunk", *rule(memory, "muon_by_chunk", dtype, 16, d, 320, 2), True))
    for shape in ((2, 256, 1024), (32, 64)):
        listed.append((f"newton_schulz {shape}", atlas.newton_schulz, [normal(*shape, dtype=dtype)], False))
    return listed


def main() -> None:
    if os.environ.get("ATLAS_CACHE_DIR") != "":
        sys.exit("set ATLAS_CACHE_DIR to nothing: kernels that other programs stored would hide what the bundle lacks")
    if atlas.bundle_path() is None:
        sys.exit(f"there is no bundle beside {atlas.library_path()}: make the wheel with --bundle")
    print(f"the bundle is {atlas.bundle_path()}, the GPU {torch.cuda.get_device_name()}")
    torch.manual_seed(1)
    failed, count = 0, 0
    for dtype in TYPES:
        for name, call, inputs, learns in calls(dtype):
            count += 1
            try:
                found = results(call, [t.cuda() for t in inputs], learns)
                wanted = results(call, inputs, learns)
                off, bound = off_by(found, wanted), BOUNDS[dtype]
                if not off <= bound:
                    moved = magnified(call, inputs, learns, wanted, dtype)
                    print(f"{name} {dtype}: off by {off:.1e} of the largest number; roundings of the inputs move it by {moved:.1e}")
                    bound = max(bound, 2 * moved)
                if not off <= bound:
                    raise AssertionError(f"off by {off:.1e} of the largest number, more than {bound:.0e}")
            except Exception as error:
                failed += 1
                print(f"{name} {dtype}: {str(error)[:600]}")
    print(f"{count - failed} of {count} calls are right")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
