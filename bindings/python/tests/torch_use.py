"""What `check_torch.py` checks of how functions are used: gradients that would be lost, streams, memory that is out, and Muon's settings."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Callable

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

import atlas_gpu as atlas
from torch_cases import Rule

Off = Callable[[list[Tensor], list[Tensor], float], float]
Raises = Callable[..., str]


def _memory(rule: Rule, device: str) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Tokens without residuals, weights and momenta of a rule without a norm."""
    inputs = rule.inputs(torch.float32, device)
    tokens, memory = inputs[:3] + inputs[5:9], inputs[9:]
    return tokens, memory[: rule.count], memory[rule.count :]


def learned_numbers(device: str, off: Off, raises: Raises) -> float:
    """Coefficients have gradients. Other numbers that require one are refused, and taken where none is asked for."""
    of = {"device": device}
    worst = 0.0
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 3e-2)):
        x = torch.randn(5, 7, dtype=dtype, **of).requires_grad_()
        for given in ([1.5], [0.5, -0.25, 0.125], [0.5, -0.25, 0.125, 1.5]):
            a, wanted = torch.tensor(given, requires_grad=True, **of), torch.tensor(given, dtype=torch.float64, requires_grad=True, **of)
            long, dy = x.detach().double().requires_grad_(), torch.randn(5, 7, dtype=dtype, **of)
            y, reference = atlas.poly_features(x, a), sum(c * long ** (i + 1) for i, c in enumerate(wanted))
            worst = max(worst, off([y], [reference], bound), off([y], [atlas.poly_features(x, given)], bound))
            got, want = torch.autograd.grad(y, (x, a), dy), torch.autograd.grad(reference, (long, wanted), dy.double())
            worst = max(worst, off(list(got), list(want), bound))
    one = torch.tensor(0.5, requires_grad=True, **of)
    assert torch.autograd.grad(atlas.poly_features(x, [1.0, one]).sum(), one)[0].isfinite()
    with torch.no_grad():
        off([atlas.poly_features(x, [one])], [atlas.poly_features(x, [0.5])], 0.0)
    tokens, weights, momenta = _memory(Rule("mlp"), device)
    q, w = torch.randn(1, 5, 2, 8, **of), torch.ones(7, **of, dtype=dtype)
    raises(ValueError, "ATL601", lambda: atlas.poly_features(x, torch.ones(5, requires_grad=True, **of)))
    raises(ValueError, "ATL607", lambda: atlas.poly_features(x, torch.ones(2, 1, requires_grad=True, **of)))
    raises(ValueError, "ATL606", lambda: atlas.poly_features(x.double(), [one]))
    for call in (
        lambda: atlas.windowed_attention(q, q, q, 3, scale=one),
        lambda: atlas.rms_norm(x, w, one),
        lambda: atlas.omega(*tokens, weights, momenta, **{**Rule("mlp").given(), "loss": one}),
        lambda: atlas.newton_schulz(x, eps=one),
    ):
        assert "`.item()` or `.detach()`" in raises(ValueError, "ATL651", call)
        with torch.no_grad():
            call()
    return worst


def forward_mode(device: str, raises: Raises) -> list[str]:
    """A tangent is refused by every operator and by a stream, and not dropped."""
    x, other = torch.randn(3, 4, device=device), torch.randn(3, 4, device=device)
    tokens, weights, momenta = _memory(Rule("mlp"), device)
    given = Rule("mlp").given()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, other)
        q = forward_ad.make_dual(tokens[0], tokens[1])
        found = [
            raises(NotImplementedError, "ATL651", lambda: atlas.softmax(dual)),
            raises(NotImplementedError, "ATL651", lambda: atlas.rms_norm(x.clone().requires_grad_(), dual[0])),
            raises(NotImplementedError, "ATL651", lambda: atlas.omega(q, *tokens[1:], weights, momenta, **given)),
            raises(NotImplementedError, "ATL651", lambda: atlas.omega(*tokens, [forward_ad.make_dual(w, w) for w in weights], momenta, **given)),
            raises(NotImplementedError, "ATL651", lambda: atlas.OmegaStream(weights, momenta, **given).push(q, *tokens[1:])),
        ]
        assert atlas.softmax(x).isfinite().all()
    found.append(raises(NotImplementedError, "ATL651", lambda: torch.func.jvp(atlas.log_sum_exp, (x,), (other,))))
    return found


def devices(device: str, raises: Raises) -> list[str]:
    """A real tensor beside one on `meta` is refused. Without that, outputs would be memory that nobody has written."""
    x, meta = torch.randn(3, 4, device=device), torch.randn(4, device="meta")
    tokens, weights, momenta = _memory(Rule("mlp"), device)
    assert atlas.rms_norm(torch.randn(3, 4, device="meta"), meta).device.type == "meta"
    given = Rule("mlp").given()
    return [
        raises(ValueError, "ATL696", lambda: atlas.rms_norm(x, meta)),
        raises(ValueError, "ATL696", lambda: atlas.rms_norm(torch.randn(3, 4, device="meta"), x[0])),
        raises(ValueError, "ATL696", lambda: atlas.omega(*tokens, [w.to("meta") for w in weights], momenta, **given)),
    ]


def streams(device: str, off: Off, raises: Raises) -> list[str]:
    """What a stream refuses leaves it as it was, and what it writes PyTorch knows."""
    rule = Rule("mlp")
    tokens, weights, momenta = _memory(rule, device)
    given = rule.given()
    wanted = atlas.omega(*tokens, weights, momenta, **given)[0]

    def new() -> atlas.OmegaStream:
        return atlas.OmegaStream(weights, momenta, **given)

    stream = new()
    leaf = [w.clone().requires_grad_() for w in weights]
    other = [w[:1] for w in weights]
    before = list(stream.weights)
    found = [
        raises(TypeError, "ATL651", lambda: copy.copy(stream)),
        raises(TypeError, "ATL651", lambda: copy.deepcopy(stream)),
        raises(TypeError, "ATL651", lambda: pickle.dumps(stream)),
        raises(RuntimeError, "ATL651", lambda: stream.restart(leaf, momenta)),
        raises(ValueError, "ATL604", lambda: stream.restart(other, [m[:1] for m in momenta])),
        raises(ValueError, "ATL604", lambda: stream.restart(weights, [m[0] for m in momenta])),
        raises(ValueError, "ATL604", lambda: stream.restart([w.half() for w in weights], momenta)),
        # A first push that fails does not say of which type the others are.
        raises(ValueError, "ATL60", lambda: stream.push(tokens[0].half(), *tokens[1:])),
    ]
    assert all(a is b for a, b in zip(stream.weights, before)) and stream.bytes == 0
    versions = [m._version for m in (*stream.weights, *stream.momenta)]
    off([stream.push(*tokens)], [wanted], 0.0)
    assert [m._version for m in (*stream.weights, *stream.momenta)] == [v + 1 for v in versions]
    # A backward pass that needs the weights as they were says so.
    p = torch.ones_like(stream.weights[0]).requires_grad_()
    loss = (p * stream.weights[0]).sum()
    stream.push(*tokens)
    try:
        loss.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("a gradient by weights that a push has changed")
    stream.weights[0].requires_grad_()
    found.append(raises(RuntimeError, "ATL651", lambda: stream.push(*tokens)))
    with torch.no_grad():
        stream.push(*tokens)
    # A sign that a tensor only notes is heeded, and refused where it would be written.
    negative = torch.complex(0 * tokens[0], -tokens[0]).conj().imag
    assert negative.is_neg()
    off([new().push(negative, *tokens[1:])], [wanted], 0.0)
    stream = new()
    stream.weights[0] = torch.complex(0 * weights[0], -weights[0]).conj().imag
    found.append(raises(ValueError, "ATL651", lambda: stream.push(*tokens)))
    off([atlas.OmegaStream(stream.weights, momenta, **given).push(*tokens)], [wanted], 0.0)
    with torch.inference_mode():
        off([new().push(*tokens)], [wanted], 0.0)
    return found


def streams_under_autocast(device: str, off: Off) -> float:
    """A stream takes what `omega` takes under autocast, and reads the same."""
    worst = 0.0
    for memory in ("mlp", "normed"):
        rule = Rule(memory)
        inputs = rule.inputs(torch.float32, device)
        norm = inputs.pop() if memory == "normed" else None
        tokens, weights, momenta = inputs[:3] + [t.bfloat16() for t in inputs[5:9]], inputs[9 : 9 + rule.count], inputs[9 + rule.count :]
        with torch.autocast(device, torch.bfloat16):
            given = {**rule.given(), "norm": norm}
            wanted = atlas.omega(*tokens, [w.bfloat16() for w in weights], momenta, **given)[0]
            with atlas.OmegaStream([w.bfloat16() for w in weights], momenta, **given) as stream:
                assert stream.weights[0].dtype == torch.float32
                found = stream.push(*tokens)
        assert found.dtype == torch.bfloat16
        worst = max(worst, off([found], [wanted], 1e-2))
    return worst


def features_under_autocast(device: str, off: Off) -> float:
    """The backward pass keeps f32 under autocast."""
    x, dy = torch.randn(6, 9, device=device).requires_grad_(), torch.randn(6, 91, device=device)
    wanted = torch.autograd.grad(atlas.taylor2_features(x), x, dy)
    with torch.autocast(device, torch.bfloat16):
        found = torch.autograd.grad(atlas.taylor2_features(x), x, dy)
    return off(list(found), list(wanted), 0.0)


def chunks(device: str, off: Off) -> float:
    """A chunk that is longer than the sequence is the sequence: what is read, the memory behind it and gradients are the same."""
    worst, bound = 0.0, 0.0 if device == "cpu" else 1e-4
    for memory in ("linear", "mlp", "gated", "normed"):
        for step in ("descent", "muon_by_token", "muon_by_chunk"):
            for before in (False, True):
                rule = Rule(memory, before=before)
                inputs = rule.inputs(torch.float32, device)
                norm = inputs.pop() if memory == "normed" else None
                leaves = [t[:, :5] if i < 9 else t for i, t in enumerate(inputs)]
                learns = step == "descent" or (step == "muon_by_chunk" and before)
                # The operator takes chunks as they are given.
                values = [memory, step, 0, before, 2.0, True, 1e-6]

                def run(chunk: int) -> list[Tensor]:
                    of = [t.clone().requires_grad_(learns) for t in leaves]
                    parts = (*of[:9], of[9 : 9 + rule.count], of[9 + rule.count :], norm, *values[:2], chunk, *values[3:])
                    operator = torch.ops.atlas_gpu.omega_training if learns else torch.ops.atlas_gpu.omega
                    y, weights, momenta = operator(*parts, *([0] if learns else []))[:3]
                    out = [y, *weights, *momenta]
                    if learns:
                        out += torch.autograd.grad(sum(t.square().sum() for t in out), of)
                    return [t.detach() for t in out]

                wanted = run(64)
                worst = max(worst, off(run(5), wanted, bound))
                # The function cuts it, so a chunk of any length has room.
                tokens, given = leaves[:3] + leaves[5:9], {**rule.given(), "step": step, "norm": norm, "loss": "square"}
                residuals = {"residual_q": leaves[3], "residual_k": leaves[4]}
                long = 10**9 if device == "cpu" else 64
                y = atlas.omega(*tokens, leaves[9 : 9 + rule.count], leaves[9 + rule.count :], **residuals, **{**given, "chunk": long, "eps": 1e-6})[0]
                worst = max(worst, off([y], wanted[:1], bound))
    return worst


def compiled_once(device: str) -> int:
    """A training step is compiled for any number of tokens: again for whole chunks and for one segment, and not for each length."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    rule, counter = Rule("linear"), CompileCounterWithBackend("aot_eager")
    step = torch.compile(lambda *a: rule.call(*a)[0].square().sum(), backend=counter, dynamic=True, fullgraph=True)
    inputs = rule.inputs(torch.float32, device)
    for tokens in (10, 9, 7, 6):
        step(*[(t[:, :tokens] if i < 9 else t).clone().requires_grad_() for i, t in enumerate(inputs)]).backward()
    found: int = counter.frame_count
    # The first of these lengths, and a guard on segments.
    assert found <= 3, f"compiled {found} times for 4 lengths"
    return found


def out_of_memory(device: str) -> list[str]:
    """Memory that is out is `torch.OutOfMemoryError`, with the bytes, also in operators themselves and in inference mode."""
    if device != "cpu":
        rows = torch.zeros(1, device=device).expand(2**36, 4)
    else:
        rows = torch.zeros(1).expand(2**45, 4)
    found = []
    for call in (lambda: atlas.softmax(rows), lambda: torch.ops.atlas_gpu.softmax(rows), lambda: torch.inference_mode()(atlas.softmax)(rows)):
        try:
            call()
        except torch.OutOfMemoryError as error:
            found.append(str(error))
        # The Python path asks PyTorch itself, whose error for the CPU is another one.
        except RuntimeError as error:
            assert "DefaultCPUAllocator" in str(error), error
            continue
        else:
            raise AssertionError("there was room")
        assert "bytes" in found[-1] or "GiB" in found[-1], found[-1]
    return found


def workspaces(device: str, off: Off, raises: Raises) -> str:
    """Workspaces are freed, and made again by the next call."""
    rule = Rule("mlp")
    leaves = [t.requires_grad_() for t in rule.inputs(torch.float32, device)]

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(rule.call(*leaves)[0].sum(), leaves[:1]))

    wanted = gradients()
    for _ in range(2):
        atlas.empty_cache()
    off(gradients(), wanted, 0.0)
    return "ok"


def muon_settings(device: str, off: Off, raises: Raises) -> list[str]:
    """Settings are refused before anything changes. Batches of few matrices take the steps of one batch."""
    from atlas_gpu import muon

    def params(count: int = 2) -> list[Tensor]:
        torch.manual_seed(3)
        made = [torch.randn(8, 6, device=device).requires_grad_() for _ in range(count)]
        for p in made:
            p.grad = torch.randn_like(p)
        return made

    found = [raises(ValueError, "ATL601", lambda: atlas.Muon(params(), ns_coefficients=a)) for a in ((), (3.0, -3.2), (1.0,) * 6)]
    found.append(raises(ValueError, "ATL696", lambda: atlas.Muon([{"params": params(), "adjust_lr_fn": "best"}])))
    for key, value in (("adjust_lr_fn", "best"), ("ns_coefficients", (1.0, 2.0)), ("ns_steps", 100), ("ns_steps", 2.5)):
        made = params()
        optimizer = atlas.Muon([{"params": made[:1]}, {"params": made[1:]}])
        optimizer.step()
        kept = [p.detach().clone() for p in made] + [optimizer.state[p]["momentum_buffer"].clone() for p in made]
        optimizer.param_groups[1][key] = value
        found.append(raises(ValueError, "error[ATL", optimizer.step))
        off([*made, *(optimizer.state[p]["momentum_buffer"] for p in made)], kept, 0.0)
    x = torch.randn(1, 4, 4, device=device)
    for count in (2, 4):
        found.append(raises(ValueError, "ATL601", lambda: torch.ops.atlas_gpu.newton_schulz(x, "float32", [1.0] * count, 1.0, 1e-7, True, 0)))
    found.append(raises(ValueError, "ATL601", lambda: torch.ops.atlas_gpu.newton_schulz(x.to("meta"), "float32", [1.0], 1.0, 1e-7, True, 0)))
    together, ends = muon._TOGETHER, []
    try:
        # Five matrices of 192 bytes: all at once, two by two, and one by one.
        for limit in (together, 400, 1):
            muon._TOGETHER = limit
            made = params(5)
            optimizer = atlas.Muon(made, lr=0.1)
            for _ in range(2):
                optimizer.step()
            ends.append([p.detach() for p in made])
    finally:
        muon._TOGETHER = together
    off(ends[1], ends[0], 0.0)
    off(ends[2], ends[0], 0.0)
    return found


def dropped_while_recording(device: str) -> str:
    """A stream that is dropped while a graph is recorded is closed behind that. `empty_cache` is refused there."""
    tokens, weights, momenta = _memory(Rule("mlp"), device)
    stream = atlas.OmegaStream(weights, momenta, **Rule("mlp").given())
    stream.push(*tokens)
    x, graph = torch.randn(64, device=device), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = 2 * x
        del stream
        try:
            atlas.empty_cache()
        except RuntimeError as error:
            assert "error[ATL656]" in str(error), error
        else:
            raise AssertionError("it waited for the device while a graph is recorded")
        z = 2 * y
    graph.replay()
    assert bool((z == 4 * x).all())
    from atlas_gpu import _room

    assert len(_room._late) == 1
    atlas.empty_cache()
    assert not _room._late
    return "ok"


def graphs_side_by_side(off: Off) -> float:
    """Two graphs with a call between them have a workspace each, so they may run at the same time."""
    rule = Rule("mlp")
    sets = [[t.requires_grad_() for t in rule.inputs(torch.float32, "cuda")] for _ in range(2)]

    def step(leaves: list[Tensor]) -> list[Tensor]:
        y = rule.call(*leaves)[0]
        return [y.detach(), *torch.autograd.grad(y.square().sum(), leaves)]

    wanted = [[t.clone() for t in step(leaves)] for leaves in sets]
    graphs: list[tuple[Any, list[Tensor]]] = []
    for leaves in sets:
        step(leaves)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = step(leaves)
        graphs.append((graph, found))
    worst = 0.0
    for _ in range(50):
        for graph, _ in graphs:
            with torch.cuda.stream(torch.cuda.Stream()):
                graph.replay()
        torch.cuda.synchronize()
        for (_, found), want in zip(graphs, wanted):
            worst = max(worst, off(found, want, 0.0))
    return worst
