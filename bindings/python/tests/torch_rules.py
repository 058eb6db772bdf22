"""What `check_torch.py` checks of the Omega rule beside its cases: Muon, segments, pieces, documents, and mistakes."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import atlas_gpu as atlas
from torch_cases import Rule, on_threads, outputs

MEMORIES = ("linear", "mlp", "gated", "normed")
Off = Callable[[list[Tensor], list[Tensor], float], float]


def _parts(rule: Rule, inputs: list[Tensor]) -> tuple[list[Tensor], dict[str, Any], list[Tensor], list[Tensor], Tensor | None]:
    """Tokens without residuals, residuals, weights, momenta, and a norm."""
    tokens, rest = inputs[:9], inputs[9:]
    norm = rest.pop() if rule.memory == "normed" else None
    residuals = {"residual_q": tokens[3], "residual_k": tokens[4]}
    return tokens[:3] + tokens[5:], residuals, rest[: rule.count], rest[rule.count :], norm


def slopes_with_muon(device: str) -> float:
    """With a step of Muon for each chunk, which is read before it, the gradient is the slope along a direction."""
    worst = 0.0
    for memory in MEMORIES:
        rule = Rule(memory, before=True)
        inputs = rule.inputs(torch.float32, device)
        to = [torch.randn(t.shape, device=device) * t.abs().mean() for t in inputs]

        def loss(given: list[Tensor]) -> Tensor:
            tokens, residuals, weights, momenta, norm = _parts(rule, given)
            more = {**rule.given(), "step": "muon_by_chunk", "norm": norm}
            found = outputs(atlas.omega(*tokens, weights, momenta, **residuals, **more))
            return torch.stack([(t * (t.detach() * 0 + weight)).sum() for t, weight in zip(found, (1.0, -0.5, 2.0, 0.3, 0.7, 0.9, 1.1))]).sum()

        leaves = [t.clone().requires_grad_() for t in inputs]
        slope = sum(float((g * d).sum()) for g, d in zip(torch.autograd.grad(loss(leaves), leaves), to))
        moved = [float(loss([t + step * d for t, d in zip(inputs, to)])) for step in (3e-3, -3e-3)]
        wanted = (moved[0] - moved[1]) / 6e-3
        worst = max(worst, abs(slope - wanted) / max(abs(wanted), 1.0))
    assert worst < 2e-2, worst
    return worst


def segments(device: str, off: Off) -> float:
    """How chunks are put into segments changes gradients by roundings alone. Without a gradient nothing is kept."""
    rule, worst = Rule("mlp"), 0.0
    inputs = rule.inputs(torch.float32, device)

    def gradients(segment: int) -> list[Tensor]:
        tokens, residuals, weights, momenta, _ = _parts(rule, leaves)
        found = outputs(atlas.omega(*tokens, weights, momenta, **residuals, **rule.given(), segment=segment))
        return list(torch.autograd.grad(sum(t.square().sum() for t in found), leaves))

    leaves = [t.clone().requires_grad_() for t in inputs]
    wanted = gradients(0)
    for segment in (1, 2, 3, 100):
        worst = max(worst, off(gradients(segment), wanted, 1e-5))
    with torch.no_grad():
        assert not any(t.requires_grad for t in outputs(rule.call(*leaves)))
    # One input alone, and one output alone.
    only = inputs[5].clone().requires_grad_()
    (_, weights, _) = rule.call(*inputs[:5], only, *inputs[6:])
    (by,) = torch.autograd.grad(weights[1].square().sum(), only)
    assert bool(by.abs().sum() > 0)
    return worst


def in_models(device: str, off: Off) -> float:
    """Under checkpointing, compiled for any number of tokens, and from a gradient that repeats one element."""
    rule = Rule("normed")
    leaves = [t.requires_grad_() for t in rule.inputs(torch.bfloat16, device)]

    def of(read: Callable[..., Tensor], leaves: list[Tensor]) -> list[Tensor]:
        return list(torch.autograd.grad(read(*leaves).sum(), leaves))

    def read(*leaves: Tensor) -> Tensor:
        return rule.call(*leaves)[0]

    wanted = of(read, leaves)
    assert [g.dtype for g in wanted] == [t.dtype for t in leaves]
    worst = off(of(lambda *a: checkpoint(read, *a, use_reentrant=False), leaves), wanted, 0.0)
    torch._dynamo.reset()
    whole = torch.compile(read, fullgraph=True, dynamic=True)
    for tokens in (10, 9, 4):
        some = [(t[:, :tokens] if i < 9 else t).detach().clone().requires_grad_() for i, t in enumerate(leaves)]
        worst = max(worst, off(of(whole, some), of(read, some), 1e-2))
    return worst


def in_a_graph(off: Off) -> float:
    """Records a step of training and packed documents, changes what they read, replays them, and compares with calls."""
    rule = Rule("mlp")
    kept, others = ([t.requires_grad_() for t in rule.inputs(torch.bfloat16, "cuda")] for _ in range(2))
    starts = torch.tensor([0, 3, 10], dtype=torch.int32, device="cuda")

    def step(leaves: list[Tensor]) -> list[Tensor]:
        found = outputs(rule.call(*leaves))
        gradients = torch.autograd.grad(sum(t.float().square().sum() for t in found), leaves)
        with torch.no_grad():
            tokens, residuals, weights, momenta, _ = _parts(rule, leaves)
            rest = {k: r[:1] for k, r in residuals.items()}
            packed = atlas.omega_packed(*(t[:1] for t in tokens), starts, weights, momenta, longest=7, **rest, **rule.given())
        return [*(t.detach() for t in found), *gradients, *outputs(packed)]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(kept)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step(kept)
    with torch.no_grad():
        for to, of in zip(kept, others):
            to.copy_(of)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    worst = off(found, step(others), 0.0)
    # Sizes that no call has had are refused while a graph is recorded.
    short = [t[:, :5] if i < 9 else t for i, t in enumerate(kept)]
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            step(short)
    except ValueError as error:
        assert "call once before it is recorded" in str(error), error
    else:
        raise AssertionError("a workspace was allocated for a graph")
    return worst


def pieces(device: str, off: Off) -> float:
    """What is read in pieces is what is read at once."""
    worst = 0.0
    for memory in MEMORIES:
        for step, before in (("descent", False), ("muon_by_token", False), ("muon_by_chunk", True)):
            rule = Rule(memory, before=before)
            tokens, residuals, weights, momenta, norm = _parts(rule, rule.inputs(torch.float32, device))
            given = {**rule.given(), "step": step, "norm": norm}
            wanted = atlas.omega(*tokens, weights, momenta, **residuals, **given)
            # Behind two chunks of four tokens.
            two = [t[:, :8] for t in tokens]
            there = atlas.omega(*two, weights, momenta, **{k: r[:, :8] for k, r in residuals.items()}, **given)
            # Windows of two calls do not reach over the seam, so pieces are not calls.
            behind = atlas.omega(*(t[:, 8:] for t in tokens), *there[1:], **{k: r[:, 8:] for k, r in residuals.items()}, **given)[0]
            if step != "muon_by_chunk":
                assert not torch.allclose(behind, wanted[0][:, 8:], atol=1e-4)
            with atlas.OmegaStream(weights, momenta, **given, piece=5) as stream:
                assert stream.bytes == 0
                for ends in ((1, 2, 9, 10), (10,)):
                    read, begin = [], 0
                    for end in ends:
                        part = slice(begin, end)
                        rest = {k: r[:, part] for k, r in residuals.items()}
                        read.append(stream.push(*(t[:, part] for t in tokens), **rest))
                        begin = end
                    found = [torch.cat(read, 1), *stream.weights, *stream.momenta]
                    worst = max(worst, off(found, [wanted[0], *there[1], *there[2]], 1e-5))
                    assert stream.bytes > 0
                    stream.restart(weights, momenta)
            assert stream.bytes == 0
    # The memory that was given is as it was, and two streams know nothing of each other.
    rule = Rule("mlp")
    tokens, residuals, weights, momenta, _ = _parts(rule, rule.inputs(torch.float32, device))
    first, second = (atlas.OmegaStream(weights, momenta, **rule.given()) for _ in range(2))
    a = first.push(*tokens, **residuals)
    assert bool((a == second.push(*tokens, **residuals)).all())
    assert not any(bool((a == b).all()) for a, b in zip(first.weights, weights))
    assert not bool((a == first.push(*tokens, **residuals)).all()), "a sequence goes on"
    return worst


def documents(device: str, off: Off) -> float:
    """Documents one after the other are read as each alone is."""
    worst = 0.0
    for memory in MEMORIES:
        rule = Rule(memory)
        tokens, residuals, weights, momenta, norm = _parts(rule, rule.inputs(torch.float32, device))
        one = [t[:1] for t in tokens]
        rest = {k: r[:1] for k, r in residuals.items()}
        given = {**rule.given(), "norm": norm}
        starts = torch.tensor([1, 7, 10], dtype=torch.int32, device=device)
        found = atlas.omega_packed(*one, starts, weights, momenta, longest=6, **rest, **given)
        assert bool((found[0][:, 0] == 0).all())
        # As one document, tokens behind the seam would read what those before it have taught.
        whole = atlas.omega(*one, *([m[:1] for m in of] for of in (weights, momenta)), **rest, **given)[0]
        assert not torch.allclose(whole[:, 7:], found[0][:, 7:], atol=1e-3)
        for at, part in enumerate((slice(1, 7), slice(7, 10))):
            alone = atlas.omega(
                *(t[:, part] for t in one), *([m[at : at + 1] for m in of] for of in (weights, momenta)),
                **{k: r[:, part] for k, r in rest.items()}, **given,
            )  # fmt: skip
            of_one = [found[0][:, part], *(m[at : at + 1] for of in found[1:] for m in of)]
            worst = max(worst, off(of_one, outputs(alone), 1e-5))
        # What is too long for a row is read as NaN.
        short = atlas.omega_packed(*one, starts, weights, momenta, longest=5, **rest, **given)[0]
        assert bool(short[:, 6].isnan().all()) and bool(short[:, 7:].isfinite().all())
    return worst


def empty(device: str) -> list[list[int]]:
    """No tokens, and no sequences: nothing is read, and gradients by nothing are nothing."""
    found = []
    for sequences, tokens in ((2, 0), (0, 6)):
        rule = Rule("mlp")
        inputs = [t[:sequences, :tokens] if i < 9 else t[:sequences] for i, t in enumerate(rule.inputs(torch.float32, device))]
        leaves = [t.clone().requires_grad_() for t in inputs]
        y, weights, momenta = rule.call(*leaves)
        gradients = torch.autograd.grad(y.sum() + sum(m.sum() for m in (*weights, *momenta)), leaves)
        assert all(g.shape == t.shape for g, t in zip(gradients, leaves))
        assert tokens or all(bool((m == 1).all()) for m in gradients[9:]), "the memory goes through as it is"
        found.append(list(y.shape))
        given, residuals, weights, momenta, _ = _parts(rule, inputs)
        found.append(list(atlas.OmegaStream(weights, momenta, **rule.given()).push(*given, **residuals).shape))
    return found


def threads(device: str, off: Off) -> int:
    """Trainings of the same sizes share a workspace, on several threads too."""
    rule = Rule("gated")
    sets = [[t.requires_grad_() for t in rule.inputs(torch.float32, device)] for _ in range(4)]

    def gradients(inputs: list[Tensor]) -> list[Tensor]:
        return list(torch.autograd.grad(sum(t.square().sum() for t in outputs(rule.call(*inputs))), inputs))

    wanted = [gradients(inputs) for inputs in sets]

    def many(at: int) -> None:
        for _ in range(5):
            off(gradients(sets[at]), wanted[at], 0.0)

    return on_threads(4, device, many)


def mistakes(device: str, raises: Callable[..., str]) -> list[str]:
    rule = Rule("mlp")
    inputs = rule.inputs(torch.float32, device)
    tokens, residuals, weights, momenta, _ = _parts(rule, inputs)
    given, leaf = rule.given(), tokens[0].clone().requires_grad_()
    starts = torch.tensor([0, 4, 10], dtype=torch.int32, device=device)
    one = [t[:1] for t in tokens]
    stream = atlas.OmegaStream(weights, momenta, **given)
    stream.push(*tokens)
    before = [m.clone() for m in stream.weights]
    cut = [*tokens[:3], tokens[3][:, 1:], *tokens[4:]]
    muon = {**given, "step": "muon_by_chunk"}

    def omega(*tokens: Tensor, weights: list[Tensor] = weights, momenta: list[Tensor] = momenta, **more: Any) -> Any:
        return atlas.omega(*tokens, weights, momenta, **{**given, **more})

    found = [
        # Rules without gradients say so, where one is asked for.
        raises(RuntimeError, "ATL651", lambda: omega(leaf, *tokens[1:], step="muon_by_chunk")[0].sum().backward()),
        raises(RuntimeError, "ATL651", lambda: omega(leaf, *tokens[1:], step="muon_by_token")[0].sum().backward()),
        raises(RuntimeError, "ATL651", lambda: atlas.omega_packed(leaf[:1], *one[1:], starts, weights, momenta, longest=9, **given)[0].sum().backward()),
        raises(RuntimeError, "ATL651", lambda: stream.push(leaf, *tokens[1:])),
        raises(RuntimeError, "ATL651", lambda: atlas.OmegaStream([w.clone().requires_grad_() for w in weights], momenta, **given)),
        raises(ValueError, "ATL696", lambda: omega(leaf, *tokens[1:], memory="deep")),
        raises(ValueError, "ATL696", lambda: omega(leaf, *tokens[1:], step="leap")),
        raises(ValueError, "ATL601", lambda: omega(leaf, *tokens[1:], momenta=momenta[:1])),
        raises(TypeError, "ATL697", lambda: omega(leaf, *tokens[1:], momenta=momenta[0])),
        raises(TypeError, "ATL697", lambda: atlas.OmegaStream(None, momenta, **given)),
        raises(ValueError, "ATL604", lambda: omega(leaf, *tokens[1:3], tokens[3][:, 1:], *tokens[4:])),
        raises(ValueError, "ATL605", lambda: omega(leaf, *tokens[1:3], tokens[3].half(), *tokens[4:])),
        raises(ValueError, "ATL603", lambda: omega(leaf[0], *tokens[1:])),
        raises(ValueError, "ATL607", lambda: omega(leaf, *tokens[1:], chunk=0)),
        raises(ValueError, "ATL607", lambda: omega(leaf, *tokens[1:], segment=1.5)),
        raises(ValueError, "ATL604", lambda: stream.push(*cut)),
        raises(TypeError, "ATL697", lambda: stream.push(*(t.cpu().numpy() for t in tokens))),
        raises(ValueError, "ATL601", lambda: stream.restart(weights)),
        raises(ValueError, "ATL652", lambda: atlas.OmegaStream(weights, momenta, **muon).push(*tokens)),
        raises(ValueError, "ATL652", lambda: atlas.omega_packed(*one, starts, weights, momenta, longest=9, **muon)),
        raises(ValueError, "ATL605", lambda: atlas.omega_packed(*one, starts.long(), weights, momenta, longest=9, **given)),
        raises(ValueError, "ATL607", lambda: atlas.omega_packed(*one, starts, weights, momenta, longest=2.5, **given)),
    ]
    assert all(bool((a == b).all()) for a, b in zip(stream.weights, before)), "something was written"
    return found
