"""What `check_torch.py` checks of autocast: the operators give what they give for tensors that are cast by hand."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

import atlas_gpu as atlas
from torch_cases import CASES, Case, normal, outputs

Off = Callable[[list[Tensor], list[Tensor], float], float]
# Cases of operators that multiply matrices, and how many of their first tensors take the type of autocast.
PRODUCTS = {"windowed_attention": 5, "attention_decode": 3, "memory_read": 4, "omega": 5, "omega_linear": 5}


def _gradients(case: Case, inputs: list[Any], found: list[Tensor]) -> list[Tensor]:
    """By all that is learned, of the outputs through which gradients go."""
    leaves = [inputs[i] for i in case.learned]
    return list(torch.autograd.grad(sum(f.float().square().sum() for f in found if f.requires_grad), leaves)) if leaves else []


def products(device: str, off: Off) -> int:
    count = 0
    for case in (c for c in CASES if c.name in PRODUCTS):
        for dtype in (torch.bfloat16, torch.float16):
            inputs = case.inputs(torch.float32, device)
            for i in case.learned:
                inputs[i].requires_grad_()
            by_hand = [t.to(dtype) if i < PRODUCTS[case.name] else t for i, t in enumerate(inputs)]
            wanted = outputs(case.call(*by_hand))
            with torch.autocast(device, dtype):
                found = outputs(case.call(*inputs))
                # Gates that come of products have the type of autocast, too.
                again = outputs(case.call(*(t.to(dtype) if i == 5 else t for i, t in enumerate(inputs)))) if "omega" in case.name else found
                with torch.autocast(device, enabled=False):
                    alone = outputs(case.call(*inputs))
            assert [f.dtype for f in found] == [w.dtype for w in wanted] == [a.dtype for a in again], case.name
            assert found[0].dtype == dtype and alone[0].dtype == torch.float32, case.name
            off(found, wanted, 0.0)
            gradients = _gradients(case, inputs, found)
            assert all(g.dtype == torch.float32 for g in gradients), case.name
            off(gradients, _gradients(case, inputs, wanted), 0.0)
            count += 1
    return count


def widest(device: str, off: Off, raises: Callable[..., str]) -> int:
    """A norm of what a product gives has a weight in float32, which it takes without autocast only if it is cast."""
    x, w = normal(3, 11, 40, dtype=torch.bfloat16, device=device), normal(40, dtype=torch.float32, device=device)
    raises(ValueError, "ATL606", lambda: atlas.rms_norm(x, w))
    turn, angle = normal(2, 7, 3, 16, dtype=torch.bfloat16, device=device), torch.rand(7, 8, device=device)
    with torch.autocast(device, torch.bfloat16):
        found = [atlas.rms_norm(x, w), atlas.rotary(turn, angle.cos(), angle.sin()), atlas.rms_norm(x, w.bfloat16()), atlas.softmax(x)]
        raises(ValueError, "ATL606", lambda: atlas.rms_norm(x, w.double()))
    assert [f.dtype for f in found] == [torch.float32, torch.float32, torch.bfloat16, torch.bfloat16]
    wanted = [atlas.rms_norm(x.float(), w), atlas.rotary(turn.float(), angle.cos(), angle.sin())]
    off(found, [*wanted, atlas.rms_norm(x, w.bfloat16()), atlas.softmax(x)], 0.0)
    return len(found)


def compiled(device: str, off: Off) -> float:
    """The compiler sees the casts."""
    torch._dynamo.reset()
    inputs = next(c for c in CASES if c.name == "memory_read").inputs(torch.float32, device)

    def run(*args: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            return 2 * atlas.memory_read(*args)

    wanted = run(*inputs)
    found = torch.compile(run, fullgraph=True)(*inputs)
    assert found.dtype == wanted.dtype == torch.bfloat16
    return off([found], [wanted], 1e-6)
