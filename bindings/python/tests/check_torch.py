"""Checks the package with PyTorch, on a GPU if there is one: `python3 check_torch.py --library libatlas_c.so --out out.json`.

Needs PyTorch 2.10 or later and apache-tvm-ffi. Prints one JSON object, which says of each check what it found; the exit status is 1 if any
failed. Without a GPU it does what a CPU can do.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

parser = argparse.ArgumentParser()
parser.add_argument("--library", help="the C library; without it, that of the installed package")
parser.add_argument("--out", help="where the JSON is written, too")
parser.add_argument("--only", default="", help="checks whose names have this text")
parser.add_argument("--device", help="cuda or cpu")
parser.add_argument("--path", default="library", help="library or python: who runs the operators, see docs/src/pytorch.md")
args = parser.parse_args()
if args.library:
    os.environ["ATLAS_GPU_LIBRARY"] = str(Path(args.library).resolve())
if args.path == "python":
    os.environ["ATLAS_GPU_TORCH"] = "python"

import torch  # noqa: E402

import atlas_gpu as atlas  # noqa: E402
import torch_mixed as mixed  # noqa: E402
import torch_rules as rules  # noqa: E402
import torch_timing as timing  # noqa: E402
import torch_use as use  # noqa: E402
from atlas_gpu._library import function  # noqa: E402
from torch_cases import CASES, Case, normal, on_threads, operators, outputs, turned  # noqa: E402

DEVICE = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
GPU = DEVICE == "cuda"
results: dict[str, Any] = {}


def check(name: str, run: Callable[[], Any], *, on_gpu: bool = False) -> None:
    """Runs a check, and keeps what it returns or why it failed."""
    if args.only not in name or (on_gpu and not GPU):
        return
    begun = time.perf_counter()
    try:
        torch.manual_seed(7)
        found = {"ok": True, "found": run()}
    except BaseException as error:
        lines = traceback.format_exc().strip().splitlines()
        found = {"ok": False, "error": f"{type(error).__name__}: {error}"[:2000], "at": lines[-6:]}
    found["seconds"] = round(time.perf_counter() - begun, 3)
    results[name] = found
    print(f"{'ok    ' if found['ok'] else 'FAILED'} {name}", file=sys.stderr, flush=True)


def off(found: list[torch.Tensor], wanted: list[torch.Tensor], bound: float) -> float:
    """The largest difference, relative to the largest number of each tensor. Infinities are the same ones."""
    assert len(found) == len(wanted), f"{len(found)} outputs, not {len(wanted)}"
    worst = 0.0
    for f, w in zip(found, wanted):
        assert f.shape == w.shape, f"shape {tuple(f.shape)}, not {tuple(w.shape)}"
        f, w = f.detach().double(), w.detach().double()
        finite = w.isfinite()
        assert bool((f.isfinite() == finite).all()), "a number is infinite, or none, where the other is not"
        if w[finite].numel():
            worst = max(worst, float((f - w)[finite].abs().max() / w[finite].abs().max().clamp(min=1e-30)))
    assert worst <= bound, f"off by {worst:.2e}, bound {bound:.2e}"
    return worst


def long(values: list[Any]) -> list[Any]:
    return [v.detach().double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values]


def forward(case: Case, dtype: torch.dtype) -> float:
    inputs = case.inputs(dtype, DEVICE)
    return off(outputs(case.call(*inputs)), outputs(case.reference(*long(inputs))), case.bound(dtype))


def learned(case: Case, inputs: list[Any]) -> list[torch.Tensor]:
    return [inputs[i].requires_grad_() for i in case.learned]


def backward(case: Case, dtype: torch.dtype) -> float:
    inputs = case.inputs(dtype, DEVICE)
    others = long(inputs)
    all_found, all_wanted = outputs(case.call(*_with(inputs, case))), outputs(case.reference(*_with(others, case)))
    # Through some outputs no gradient goes.
    first, second = zip(*[(f, w) for f, w in zip(all_found, all_wanted) if f.requires_grad])
    weights = [normal(*f.shape, dtype=f.dtype, device=DEVICE) for f in first]
    got = torch.autograd.grad(first, [inputs[i] for i in case.learned], weights)
    want = torch.autograd.grad(second, [others[i] for i in case.learned], [w.double() for w in weights])
    # A gradient meets what the forward pass has rounded.
    return off(list(got), list(want), 3 * case.bound(dtype))


def _with(inputs: list[Any], case: Case) -> list[Any]:
    learned(case, inputs)
    return inputs


def compiled(case: Case) -> float:
    torch._dynamo.reset()
    dtype = torch.float32
    inputs = _with(case.inputs(dtype, DEVICE), case)
    whole = torch.compile(lambda *a: [2 * t for t in outputs(case.call(*a))], fullgraph=True)
    found = whole(*inputs)
    worst = off(found, [2 * t for t in outputs(case.call(*inputs))], 1e-6)
    if case.learned:
        leaves = [inputs[i] for i in case.learned]
        got = torch.autograd.grad(found[0].square().sum(), leaves)
        want = torch.autograd.grad((2 * outputs(case.call(*inputs))[0]).square().sum(), leaves)
        worst = max(worst, off(list(got), list(want), 1e-4))
    return worst


def captured(case: Case) -> float:
    """Records a graph, changes its inputs, replays it, and compares with a call."""
    dtype = case.dtypes[-1]
    inputs, others = case.inputs(dtype, DEVICE), case.inputs(dtype, DEVICE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        case.call(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = case.call(*inputs)
    for kept, new in zip(inputs, others):
        if isinstance(kept, torch.Tensor):
            kept.copy_(new)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    return off(outputs(found), outputs(case.call(*others)), 0.0)


def on_a_stream(case: Case) -> float:
    """Behind a long copy of its inputs on a side stream. On another stream it would read zeros."""
    dtype = case.dtypes[-1]
    inputs = case.inputs(dtype, DEVICE)
    wanted = outputs(case.call(*inputs))
    late = [torch.zeros_like(t) if isinstance(t, torch.Tensor) else t for t in inputs]
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        for to, of in zip(late, inputs):
            if isinstance(to, torch.Tensor):
                to.copy_(of)
        found = outputs(case.call(*late))
    torch.cuda.synchronize()
    return off(found, wanted, 0.0)


def opcheck(name: str, values: tuple[Any, ...]) -> Any:
    found = torch.library.opcheck(getattr(torch.ops.atlas_gpu, name).default, values)
    assert set(found.values()) == {"SUCCESS"}, found
    return found


def strided() -> float:
    x = normal(40, 33, dtype=torch.float32, device=DEVICE).t()[::2, ::3]
    worst = off([atlas.softmax(x)], [x.double().softmax(-1)], 1e-5)
    cube = normal(6, 5, 8, dtype=torch.float32, device=DEVICE).permute(1, 2, 0)
    worst = max(worst, off([atlas.softmax(cube)], [cube.double().softmax(-1)], 1e-5))
    w = normal(12, dtype=torch.float32, device=DEVICE)[::2]
    wanted = torch.nn.functional.rms_norm(cube.double(), (6,), w.double(), 1e-5)
    worst = max(worst, off([atlas.rms_norm(cube, w, 1e-5)], [wanted], 1e-5))
    case = next(c for c in CASES if c.name == "windowed_attention")
    inputs = case.inputs(torch.float32, DEVICE)
    turned = [t.transpose(0, 1).contiguous().transpose(0, 1) if t.ndim == 4 else t for t in inputs]
    return max(worst, off(outputs(case.call(*turned)), outputs(case.reference(*long(turned))), case.bound(torch.float32)))


def empty() -> list[Any]:
    of = {"dtype": torch.float32, "device": DEVICE}
    found = [atlas.softmax(torch.empty(0, 7, **of)), atlas.log_sum_exp(torch.empty(2, 0, 7, **of))]
    x = torch.empty(0, 7, **of).requires_grad_()
    y = atlas.rms_norm(x, torch.ones(7, **of).requires_grad_())
    y.sum().backward()
    found += [y, x.grad, atlas.taylor2_features(torch.empty(0, 3, **of)), atlas.newton_schulz(torch.empty(0, 3, 4, **of))]
    q, k = torch.empty(0, 3, 2, 16, **of), torch.empty(0, 3, 2, 16, **of)
    found += list(atlas.windowed_attention(q, k, k, 2))
    return [list(t.shape) for t in found]


def raises(kind: type[Exception], part: str, call: Callable[[], Any]) -> str:
    try:
        call()
    except kind as error:
        assert "error[ATL" in str(error) and part in str(error), str(error)
        return str(error)
    raise AssertionError(f"no {kind.__name__} with {part}")


def mistakes() -> list[str]:
    of = {"dtype": torch.float32, "device": DEVICE}
    x, w = normal(3, 4, **of), normal(4, **of)
    y = torch.full((3, 4), 7.0, device=DEVICE)
    q, first = normal(1, 2, 2, 4, **of), torch.zeros(1, dtype=torch.int32, device=DEVICE)
    # Numbers of NumPy and of tensors are numbers.
    half = torch.tensor(0.5)
    off([atlas.poly_features(x, [half, half.numpy()])], [0.5 * x + 0.5 * x * x], 1e-6)
    off([atlas.newton_schulz(x, coefficients=torch.tensor([[3.0, -3.2, 1.2]]), dtype=torch.float32)],
        [atlas.newton_schulz(x, coefficients=(3.0, -3.2, 1.2), steps=1)], 0.0)  # fmt: skip
    found = [
        raises(ValueError, "ATL606", lambda: atlas.softmax(x.double())),
        raises(ValueError, "ATL604", lambda: atlas.rms_norm(x, normal(5, **of))),
        raises(ValueError, "ATL606", lambda: atlas.rms_norm(x, w.half())),
        raises(TypeError, "ATL697", lambda: atlas.softmax([1.0])),
        # Numbers of other kinds.
        raises(ValueError, "ATL607", lambda: atlas.poly_features(x, 0.5)),
        raises(ValueError, "ATL607", lambda: atlas.poly_features(x, ["a"])),
        raises(ValueError, "ATL607", lambda: atlas.newton_schulz(x, coefficients=torch.tensor(3.0))),
        raises(ValueError, "ATL607", lambda: atlas.newton_schulz(x, steps=2.5)),
        raises(ValueError, "ATL607", lambda: atlas.newton_schulz(x, restart=True / 2)),
        raises(ValueError, "ATL606", lambda: atlas.newton_schulz(x, dtype="foo")),
        raises(ValueError, "ATL606", lambda: atlas.newton_schulz(x, dtype=torch.int32)),
        raises(ValueError, "ATL607", lambda: atlas.rms_norm(x, w, "small")),
        raises(ValueError, "ATL607", lambda: atlas.windowed_attention(q, q, q, 0)),
        raises(ValueError, "ATL607", lambda: atlas.windowed_attention(q, q, q, 2.0)),
        raises(ValueError, "ATL601", lambda: atlas.windowed_attention(q, q, q, 3, prefix=(q,))),
        raises(ValueError, "ATL601", lambda: atlas.windowed_attention(q, q, q, 3, prefix=q)),
        raises(ValueError, "ATL607", lambda: atlas.attention_decode(q, q, q, first, parts=2.7)),
        raises(ValueError, "ATL607", lambda: atlas.attention_decode(q, q, q, first, parts=0)),
        raises(RuntimeError, "ATL651", lambda: atlas.newton_schulz(x.clone().requires_grad_()).sum().backward()),
        # With outputs of the caller: nothing is written.
        raises(ValueError, "ATL604", lambda: function("softmax")(x, y[:, :3])),
        raises(ValueError, "ATL606", lambda: function("softmax")(x.half(), y)),
        raises(ValueError, "ATL609", lambda: function("softmax")(y, y)),
        raises(ValueError, "ATL601", lambda: function("softmax")(x)),
        raises(ValueError, "ATL696", lambda: function("RMS_NORM_GRAD")(x, w, x, 1e-5, y)),
        raises(ValueError, "ATL604", lambda: function("rms_norm")(x, w[:3], y, 1e-5)),
    ]
    if GPU:
        found.append(raises(ValueError, "ATL696", lambda: function("softmax")(y, x.cpu())))
        found.append(raises(ValueError, "ATL696", lambda: atlas.rms_norm(x, w.cpu())))
    assert bool((y == 7).all()), "something was written"
    return found


def path() -> str:
    """That the operators run as `--path` says, and that the library refuses what it has no kernel for."""
    import atlas_gpu.torch_ops as torch_ops
    from atlas_gpu import _native

    key = DEVICE.upper()
    found = {name: of[key] for name, of in torch_ops.paths.items()}
    other = {name: how for name, how in found.items() if how.partition(":")[0] != args.path}
    assert found and not other, other
    if args.path == "library":
        for schema, device in (("softmax(Tensor y) -> Tensor", key), ("softmax(Tensor x) -> Tensor", "Meta")):
            why = _native.register(schema, device)
            assert why is not None and "error[ATL696]" in why, why
    return args.path


def direct() -> list[str]:
    """Mistakes in calls of operators themselves, which the library finds without Python in between."""
    ops = torch.ops.atlas_gpu
    of = {"dtype": torch.float32, "device": DEVICE}
    x, q, first = normal(3, 4, **of), normal(1, 2, 2, 4, **of), torch.zeros(1, dtype=torch.int32, device=DEVICE)
    turn = turned(torch.float32, DEVICE)
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("ATL606", lambda: ops.softmax(x.double())),
        ("ATL606", lambda: ops.softmax(x.long())),
        ("ATL603", lambda: ops.softmax(x[0, 0])),
        ("ATL604", lambda: ops.rms_norm(x, x[0, :3], 1e-5)),
        ("ATL601", lambda: ops.poly_features(x, [1.0] * 5)),
        ("ATL603", lambda: ops.rotary(x, x, x, False)),
        ("ATL604", lambda: ops.rotary(turn[0], turn[1][..., :3], turn[2], False)),
        ("ATL643", lambda: ops.attention_decode(q, q, q[..., :3], first, 0.5, 2)),
    ]
    found = [raises(ValueError, code, call) for code, call in calls]
    with torch.inference_mode():
        assert [raises(ValueError, code, call) for code, call in calls] == found
    # A call that fails leaves nothing behind for the next one.
    off([ops.softmax(x)], [x.double().softmax(-1)], 1e-5)
    return found


def threads() -> int:
    cases = [c for c in CASES if c.name in ("softmax", "attention_decode", "omega", "newton_schulz")]
    prepared = [(c, i := c.inputs(c.dtypes[0], DEVICE), [t.clone() for t in outputs(c.call(*i))]) for c in cases]

    def many(_: int) -> None:
        for _ in range(30 if GPU else 3):
            for case, inputs, wanted in prepared:
                found = outputs(case.call(*inputs))
                if GPU:
                    torch.cuda.current_stream().synchronize()
                off(found, wanted, 0.0)

    return on_threads(4, DEVICE, many)


def in_a_child() -> str:
    """A child of a process that has not opened CUDA yet runs kernels on the CPU."""
    child = os.fork()
    if child == 0:
        x = torch.randn(3, 5)
        os._exit(0 if torch.allclose(atlas.softmax(x), x.softmax(-1), atol=1e-6) else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"
    return "ok"


def main() -> int:
    check("fork before CUDA", in_a_child)
    for case in CASES:
        for dtype in case.dtypes:
            kind = str(dtype).removeprefix("torch.")
            check(f"forward {case.name} {kind}", lambda c=case, d=dtype: forward(c, d))
            if case.learned:
                check(f"backward {case.name} {kind}", lambda c=case, d=dtype: backward(c, d))
    check("strides", strided)
    check("empty", empty)
    check("path", path)
    check("mistakes", mistakes)
    check("mistakes in operators", direct)
    check("omega: slopes with Muon", lambda: rules.slopes_with_muon(DEVICE))
    check("omega: segments", lambda: rules.segments(DEVICE, off))
    check("omega: in models", lambda: rules.in_models(DEVICE, off))
    check("omega: in a graph", lambda: rules.in_a_graph(off), on_gpu=True)
    check("omega: pieces", lambda: rules.pieces(DEVICE, off))
    check("omega: documents", lambda: rules.documents(DEVICE, off))
    check("omega: empty", lambda: rules.empty(DEVICE))
    check("omega: threads", lambda: rules.threads(DEVICE, off))
    check("omega: mistakes", lambda: rules.mistakes(DEVICE, raises))
    check("threads", threads)
    check("autocast: products", lambda: mixed.products(DEVICE, off))
    check("autocast: widest", lambda: mixed.widest(DEVICE, off, raises))
    check("gradients: numbers", lambda: use.learned_numbers(DEVICE, off, raises))
    check("gradients: forward mode", lambda: use.forward_mode(DEVICE, raises))
    check("devices", lambda: use.devices(DEVICE, raises))
    check("streams: what they refuse", lambda: use.streams(DEVICE, off, raises))
    check("streams: dropped while a graph is recorded", lambda: use.dropped_while_recording(DEVICE), on_gpu=True)
    check("omega: chunks longer than the sequence", lambda: use.chunks(DEVICE, off))
    check("omega: compiled for all lengths", lambda: use.compiled_once(DEVICE))
    check("omega: graphs side by side", lambda: use.graphs_side_by_side(off), on_gpu=True)
    check("memory: out of it", lambda: use.out_of_memory(DEVICE))
    check("memory: workspaces are freed", lambda: use.workspaces(DEVICE, off, raises))
    check("Muon: settings and batches", lambda: use.muon_settings(DEVICE, off, raises))
    check("autocast: streams", lambda: use.streams_under_autocast(DEVICE, off))
    check("autocast: features", lambda: use.features_under_autocast(DEVICE, off))
    check("autocast: compile", lambda: mixed.compiled(DEVICE, off))
    for number, (name, values) in enumerate(operators(DEVICE)):
        check(f"opcheck {number} {name}", lambda n=name, v=values: opcheck(n, v))
    for case in CASES:
        check(f"compile {case.name}", lambda c=case: compiled(c))
    for case in CASES:
        check(f"graph {case.name}", lambda c=case: captured(c), on_gpu=True)
        check(f"stream {case.name}", lambda c=case: on_a_stream(c), on_gpu=True)
    check("Muon beside torch.optim.Muon", lambda: timing.losses(DEVICE))
    check("Muon's state is that of torch.optim.Muon", lambda: timing.state(DEVICE))
    check("time of a step of Muon", timing.muon, on_gpu=True)
    check("host time of a call", lambda: timing.host(DEVICE, ctypes.CDLL(str(atlas.library_path()))))
    check("memory after many calls", timing.memory, on_gpu=True)
    about = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if GPU else "cpu",
        "library": str(atlas.library_path()),
        "path": args.path,
        "failed": [name for name, found in results.items() if not found["ok"]],
        "passed": sum(found["ok"] for found in results.values()),
    }
    text = json.dumps({"about": about, "checks": results}, indent=1, default=str)
    print(text)
    if args.out:
        Path(args.out).write_text(text + "\n")
    return 1 if about["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
