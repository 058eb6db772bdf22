"""Muon beside PyTorch's, and times of calls, for `check_torch.py`."""

from __future__ import annotations

import copy
import ctypes
import statistics
import time
from typing import Any, Callable

import torch

import atlas_gpu as atlas
from atlas_gpu._library import check, function
from torch_cases import CASES, newton_schulz


def _train(kind: Any, device: str, steps: int, nudge: float = 0.0) -> list[float]:
    """The losses of a model of two layers on one problem. `nudge` is what the first weights are off, relative to themselves."""
    torch.manual_seed(3)
    of = {"device": device}
    first = [0.1 * torch.randn(96, 32, **of), 0.1 * torch.randn(16, 96, **of)]
    x, target = torch.randn(256, 32, **of), torch.randn(16, 32, **of)
    y = (x @ target.T).tanh()
    inside, outside = (torch.nn.Parameter(w * (1 + nudge * torch.randn_like(w).sign())) for w in first)
    optimizer = kind([inside, outside], lr=0.02, weight_decay=0.01)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((x @ inside.T).relu() @ outside.T - y).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def losses(device: str) -> dict[str, Any]:
    """Whether both learn alike: their losses are as close as those of PyTorch's own after a nudge of half a rounding of bf16, the type of
    its iteration."""
    steps = 200
    theirs, ours = _train(torch.optim.Muon, device, steps), _train(atlas.Muon, device, steps)
    nudged = [_train(torch.optim.Muon, device, steps, sign * 2**-9) for sign in (1, -1)]

    def apart(others: list[float]) -> float:
        return max(abs(a - b) / b for a, b in zip(others, theirs))

    noise = max(map(apart, nudged))
    found = {"first": ours[0], "last": [ours[-1], theirs[-1]], "apart": apart(ours), "noise": noise}
    assert ours[-1] < 0.2 * ours[0] and apart(ours) <= 2 * noise, found
    return found


RATE, MOMENTUM = 0.1, 0.9


def _stepped(kind: Any, start: list[torch.Tensor], grads: list[torch.Tensor], state: Any) -> tuple[list[torch.Tensor], Any]:
    """Matrices after a step from a state, and the state then."""
    params = [torch.nn.Parameter(m.clone()) for m in start]
    for p, g in zip(params, grads):
        p.grad = g.clone()
    optimizer = kind(params, lr=RATE, weight_decay=0.1, adjust_lr_fn="match_rms_adamw", momentum=MOMENTUM)
    if state is not None:
        optimizer.load_state_dict(copy.deepcopy(state))
    optimizer.step()
    return [p.detach() for p in params], copy.deepcopy(optimizer.state_dict())


def _exact(start: torch.Tensor, grad: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """The same step in f64, from the momentum before it."""
    start, grad, buffer = start.double(), grad.double(), buffer.double()
    buffer = buffer.lerp(grad, 1 - MOMENTUM)
    step = newton_schulz(grad.lerp(buffer, MOMENTUM))
    return start * (1 - RATE * 0.1) - RATE * 0.2 * max(start.shape) ** 0.5 * step


def state(device: str) -> list[dict[str, Any]]:
    """A state of one goes on in the other, and its step is no further from the exact one. Wide, tall, of 16 bits, two of one shape."""
    shapes = [(8, 12, torch.float32), (8, 12, torch.float32), (12, 8, torch.float32), (16, 16, torch.bfloat16)]
    start, grads = ([torch.randn(m, n, device=device).to(dtype) for m, n, dtype in shapes] for _ in range(2))
    assert issubclass(atlas.Muon, torch.optim.Muon)
    between, kept = _stepped(atlas.Muon, start, grads, None)
    ours, theirs = (_stepped(kind, between, grads, kept)[0] for kind in (atlas.Muon, torch.optim.Muon))
    found = []
    for i, (a, b, w, g) in enumerate(zip(ours, theirs, between, grads)):
        exact = _exact(w, g, kept["state"][i]["momentum_buffer"])
        size = (exact - w.double()).norm()
        errors = [float((x.double() - exact).norm() / size) for x in (a, b)]
        found.append({"shape": list(w.shape), "dtype": str(w.dtype), "atlas": errors[0], "torch": errors[1]})
        assert errors[0] <= 1.1 * errors[1] + 1e-3, found
    return found


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    """The median time of a call with its work on the GPU."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def muon() -> dict[str, float]:
    """A step on 24 matrices of 1024 x 4096, as a model of 12 layers has them."""
    found = {}
    for name, kind in (("atlas", atlas.Muon), ("torch", torch.optim.Muon)):
        p = [torch.nn.Parameter(torch.randn(1024, 4096, device="cuda")) for _ in range(24)]
        for q in p:
            q.grad = torch.randn_like(q)
        found[name] = _seconds(kind(p).step, 15)
        del p
    found["atlas by torch"] = found["atlas"] / found["torch"]
    return found


class _Value(ctypes.Union):
    _fields_ = [("tensor", ctypes.c_void_p), ("real", ctypes.c_double), ("whole", ctypes.c_int64)]


class _Arg(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("value", _Value)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


def _from_c(c: ctypes.CDLL, x: torch.Tensor, y: torch.Tensor) -> Callable[[], Any]:
    """The softmax by the C interface, prepared, with arguments made before. What is left of Python is one call."""
    device, prepared = ctypes.c_void_p(), ctypes.c_void_p()
    check(c.atlas_device_open(b"cuda:0" if x.is_cuda else b"cpu", ctypes.byref(device)))
    shape = (ctypes.c_int64 * 2)(*x.shape)
    code, bits = {torch.float32: (2, 32), torch.bfloat16: (4, 16)}[x.dtype]
    kept = [
        _Tensor(t.data_ptr(), 2 if x.is_cuda else 1, 0, 2, code, bits, 1, ctypes.addressof(shape), None, 0) for t in (x, y)
    ]
    listed = (_Arg * 2)(*(_Arg(0, 0, _Value(tensor=ctypes.addressof(t))) for t in kept))
    count = ctypes.c_size_t(2)
    check(c.atlas_prepare(device, b"softmax", listed, count, ctypes.byref(prepared)))
    launch = c.atlas_prepared_launch
    keep = (kept, shape, device)

    def call() -> Any:
        assert keep
        return launch(prepared, None, listed, count)

    return call


def _microseconds(call: Callable[[], Any], device: str, repeats: int) -> float:
    """The host time of a call: the median of rounds, in each of which the queue does not fill."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        for _ in range(100):
            call()
        times.append((time.perf_counter() - begun) / 100 * 1e6)
        if device == "cuda":
            torch.cuda.synchronize()
    return round(statistics.median(times), 2)


def host(device: str, c: ctypes.CDLL) -> dict[str, float]:
    """Microseconds of host time a call. On the CPU they hold the work itself."""
    x = torch.randn(64, 1024, device=device).to(torch.bfloat16 if device == "cuda" else torch.float32)
    y = torch.empty_like(x)
    softmax, operator, eager = function("softmax"), torch.ops.atlas_gpu.softmax.default, atlas.softmax
    calls: dict[str, Callable[[], Any]] = {
        "C, prepared, by ctypes": _from_c(c, x, y),
        "ctypes, a function that does nothing": c.atlas_last_error_code,
        "tvm-ffi, output of the caller": lambda: softmax(x, y),
        "torch.ops.atlas_gpu.softmax": lambda: operator(x),
        "atlas_gpu.softmax": lambda: eager(x),
        "torch.softmax(out=)": lambda: torch.softmax(x, -1, out=y),
        "torch.softmax": lambda: torch.softmax(x, -1),
    }
    for name in ("attention_decode", "omega"):
        case = next(case for case in CASES if case.name == name)
        inputs = case.inputs(case.dtypes[-1], device)
        calls[f"atlas_gpu.{name}"] = lambda case=case, inputs=inputs: case.call(*inputs)
    for call in calls.values():
        call()
    repeats = 30 if device == "cuda" else 1
    found = {name: _microseconds(call, device, repeats) for name, call in calls.items()}
    # Without a look at whether a gradient is asked for.
    with torch.inference_mode():
        for name in ("torch.ops.atlas_gpu.softmax", "torch.softmax", "atlas_gpu.attention_decode", "atlas_gpu.omega"):
            found[f"{name}, inference mode"] = _microseconds(calls[name], device, repeats)
    return found


def memory() -> dict[str, int]:
    """What the GPU has free before and after many calls with workspaces. Every size is seen before."""
    cases = [case for case in CASES if case.name in ("omega", "attention_decode", "newton_schulz", "windowed_attention")]
    prepared = [(case, case.inputs(case.dtypes[-1], "cuda")) for case in cases]
    streams = [torch.cuda.Stream() for _ in range(3)]

    def many(count: int) -> int:
        for i in range(count):
            with torch.cuda.stream(streams[i % 3]):
                for case, inputs in prepared:
                    case.call(*inputs)
        torch.cuda.synchronize()
        return torch.cuda.mem_get_info()[0]

    before, after = many(30), many(600)
    assert before - after < 8 << 20, f"{before - after} bytes are gone"
    return {"free before": before, "free after": after}
