"""What `check_torch.py` checks: each function with inputs, what PyTorch computes instead in f64, and how far the two may lie apart."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch import Tensor

import atlas_gpu as atlas
import atlas_gpu.torch_ops  # noqa: F401 - the operators

# What one rounding of the element type is, and what a product of such rows may add up to.
ROUNDING = {torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-8}


@dataclass
class Case:
    """A function, and how to check it."""

    name: str
    # Its inputs: tensors, of which those that are floats may be learned, and other values.
    inputs: Callable[[torch.dtype, str], list[Any]]
    call: Callable[..., Any]
    # The same in PyTorch, of inputs in f64.
    reference: Callable[..., Any]
    # The inputs that have gradients.
    learned: tuple[int, ...] = ()
    # Roundings that a result may be off, relative to the largest number in it.
    roundings: float = 8
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float16, torch.bfloat16)

    def bound(self, dtype: torch.dtype) -> float:
        # In f32 sums are longer than the roundings of their terms.
        return self.roundings * ROUNDING[dtype] * (16 if dtype == torch.float32 else 1)


def normal(*shape: int, dtype: torch.dtype, device: str, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(shape, dtype=torch.float64)).to(device, dtype)


def on_threads(count: int, device: str, work: Callable[[int], None]) -> int:
    """Calls `work` with the numbers of as many threads, on a stream each on a GPU, and raises what failed first."""
    failed: list[BaseException] = []
    on_gpu = device == "cuda"

    def run(at: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream() if on_gpu else None):
                work(at)
        except BaseException as error:
            failed.append(error)

    if on_gpu:
        torch.cuda.synchronize()
    started = [threading.Thread(target=run, args=(at,)) for at in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if failed:
        raise failed[0]
    return count


def outputs(result: Any) -> list[Tensor]:
    """The tensors of a result, in order."""
    return [result] if isinstance(result, Tensor) else [t for part in result for t in outputs(part)]


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), w, 1e-5)


def angles(dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    angle = torch.rand(7, 8, dtype=torch.float64) * 6 - 3
    return angle.cos().to(device, dtype), angle.sin().to(device, dtype)


def halves(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = x.unflatten(-1, (2, -1)).unbind(-2)
    c, s = c.unsqueeze(-2), s.unsqueeze(-2)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def neighbours(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    c, s = c.unsqueeze(-2), s.unsqueeze(-2)
    return torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)


def taylor2(x: Tensor) -> Tensor:
    pairs = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2) / math.sqrt(2)
    return torch.cat([torch.ones_like(x[..., :1]), x, pairs], -1)


def windowed(q: Tensor, k: Tensor, v: Tensor, pk: Tensor, pv: Tensor, first: Tensor, window: int = 5) -> tuple[Tensor, Tensor]:
    """Attention of all queries to all keys, with those that are not seen taken out."""
    (_, m, h, d), (b, n, j, _) = q.shape, k.shape
    k, v = (t.repeat_interleave(h // j, 2).transpose(1, 2) for t in (k, v))
    pk, pv = (t.repeat_interleave(h // j, 0).expand(b, -1, -1, -1) for t in (pk, pv))
    row = torch.arange(n - m, n, device=q.device)[None, :, None]
    key = torch.arange(n, device=q.device)[None, None, :]
    seen = (key <= row) & (key > row - window) & (key >= first[:, :, None])
    z = (q.transpose(1, 2) @ k.transpose(-1, -2)).masked_fill(~seen[:, None], -math.inf)
    z = torch.cat([q.transpose(1, 2) @ pk.transpose(-1, -2), z], -1) / math.sqrt(d)
    return (z.softmax(-1) @ torch.cat([pv, v], 2)).transpose(1, 2), z.logsumexp(-1)


def windowed_inputs(dtype: torch.dtype, device: str) -> list[Any]:
    of = {"dtype": dtype, "device": device}
    first = torch.randint(0, 6, (2, 9), dtype=torch.int32).to(device)
    tensors = [normal(2, 9, 4, 16, **of), normal(2, 12, 2, 16, **of), normal(2, 12, 2, 16, **of)]
    return [*tensors, normal(2, 3, 16, **of), normal(2, 3, 16, **of), first]


def decode(q: Tensor, k: Tensor, v: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    free = torch.arange(k.shape[1], device=q.device)[None, :] >= tokens[:, None]
    z = torch.einsum("sjrd,swjd->sjrw", q, k) / math.sqrt(q.shape[-1])
    z = z.masked_fill(free[:, None, None, :], -math.inf)
    return torch.einsum("sjrw,swjd->sjrd", z.softmax(-1), v), z.logsumexp(-1)


def decode_inputs(dtype: torch.dtype, device: str) -> list[Any]:
    of = {"dtype": dtype, "device": device}
    tokens = torch.tensor([3, 40, 17], dtype=torch.int32, device=device)
    return [normal(3, 2, 4, 16, **of), normal(3, 33, 2, 16, **of), normal(3, 33, 2, 16, **of), tokens]


def memory_read(x: Tensor, w2: Tensor, w1: Tensor, r: Tensor) -> Tensor:
    return r + torch.nn.functional.gelu(x @ w2.mT) @ w1.mT


def memory_inputs(dtype: torch.dtype, device: str) -> list[Any]:
    of = {"dtype": dtype, "device": device}
    return [normal(2, 19, 32, **of), normal(2, 48, 32, scale=0.2, **of), normal(2, 32, 48, scale=0.2, **of), normal(2, 19, 32, **of)]


CLASSIC = (3.4445, -4.7750, 2.0315)


def newton_schulz(g: Tensor) -> Tensor:
    x = g.mT if g.shape[-2] > g.shape[-1] else g
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    a, b, c = CLASSIC
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if g.shape[-2] > g.shape[-1] else x


@dataclass
class Rule:
    """An Omega rule by descent."""

    memory: str
    before: bool = False
    loss: str = "square"
    eps: float = 0.1

    def given(self) -> dict[str, Any]:
        return {"memory": self.memory, "chunk": 4, "loss": self.loss, "before": self.before, "eps": self.eps}

    @property
    def count(self) -> int:
        return {"linear": 1, "mlp": 2, "gated": 3, "normed": 2}[self.memory]

    def call(self, *args: Tensor) -> Any:
        """Arguments are tokens, residuals, weights and momenta, and the norm of a memory that has one."""
        tokens, rest = args[:9], list(args[9:])
        norm = rest.pop() if self.memory == "normed" else None
        given = {"residual_q": tokens[3], "residual_k": tokens[4], "norm": norm, **self.given()}
        return atlas.omega(*tokens[:3], *tokens[5:], rest[: self.count], rest[self.count :], **given)

    def read(self, w: list[Tensor], x: Tensor, r: Tensor, norm: Tensor | None) -> Tensor:
        of = lambda m: (m @ x.unsqueeze(-1)).squeeze(-1)  # noqa: E731
        if self.memory == "linear":
            return r + of(w[0])
        z = torch.nn.functional.gelu(of(w[1]))
        z = z * of(w[2]) if self.memory == "gated" else z
        z = (w[0] @ z.unsqueeze(-1)).squeeze(-1)
        if norm is not None:
            z = torch.nn.functional.layer_norm(z, (z.shape[-1],), eps=self.eps) * norm
        return r + z

    def reference(self, *args: Tensor) -> list[Tensor]:
        """The rule as it is defined, with autograd for the gradients of a window. They are taken at the memory before a chunk, and
        autograd goes through them."""
        q, k, v, rq, rk, alpha, theta, eta, gamma = args[:9]
        rest = list(args[9:])
        norm = rest.pop() if self.memory == "normed" else None
        w, s = rest[: self.count], rest[self.count :]
        learns, rows = torch.is_grad_enabled() and any(a.requires_grad for a in args), []
        for t in range(q.shape[1]):
            if t % 4 == 0:
                start = [m if m.requires_grad else m.detach().requires_grad_() for m in w]
            if self.before:
                rows.append(self.read(w, q[:, t], rq[:, t], norm))
            with torch.enable_grad():
                loss = q.new_zeros(())
                for j in range(gamma.shape[-1]):
                    i = t - (gamma.shape[-1] - 1) + j
                    if i >= 0:
                        found = self.read(start, k[:, i], rk[:, i], norm)
                        of = -(found * v[:, i]).sum(-1) if self.loss == "dot" else (found - v[:, i]).square().sum(-1)
                        loss = loss + (gamma[:, t, :, j] * of).sum()
                step = torch.autograd.grad(loss, start, create_graph=learns)
            a, b, c = (g[:, t, :, None, None] for g in (alpha, theta, eta))
            s = [b * m + u for m, u in zip(s, step)]
            w = [a * m - c * u for m, u in zip(w, s)]
            if not self.before:
                rows.append(self.read(w, q[:, t], rq[:, t], norm))
        return [torch.stack(rows, 1), *w, *s]

    def inputs(self, dtype: torch.dtype, device: str) -> list[Any]:
        b, n, h, d, e, m, window = 2, 10, 2, 8, 8, 12, 3
        of, gates = {"dtype": dtype, "device": device}, {"dtype": torch.float32, "device": device}
        uniform = lambda low, high, *shape: (low + (high - low) * torch.rand(shape, dtype=torch.float64)).to(device, torch.float32)  # noqa: E731
        tensors = [normal(b, n, h, d, **of), normal(b, n, h, d, **of)] + [normal(b, n, h, e, **of) for _ in range(3)]
        tensors += [uniform(0.9, 1, b, n, h), uniform(0.2, 0.6, b, n, h), uniform(0.005, 0.02, b, n, h), uniform(0, 0.5, b, n, h, window)]
        shapes = [(e, d)] if self.memory == "linear" else [(e, m), *[(m, d)] * (self.count - 1)]
        tensors += [normal(b, h, *s, scale=scale, **gates) for scale in (0.3, 0.05) for s in shapes]
        return tensors + ([uniform(0.8, 1.2, h, e).to(dtype)] if self.memory == "normed" else [])

    def case(self, name: str, **more: Any) -> Case:
        # A memory that predicts nothing does not see residuals of keys.
        learned = tuple(i for i in range(9 + 2 * self.count + (self.memory == "normed")) if i != 4 or self.loss != "dot")
        return Case(name, self.inputs, self.call, self.reference, learned, roundings=48, **more)


def rows(*shape: int) -> Callable[[torch.dtype, str], list[Any]]:
    return lambda dtype, device: [normal(*shape, dtype=dtype, device=device)]


def normed(dtype: torch.dtype, device: str) -> list[Any]:
    return [normal(3, 11, 40, dtype=dtype, device=device), normal(40, dtype=dtype, device=device)]


def turned(dtype: torch.dtype, device: str) -> list[Any]:
    return [normal(2, 7, 3, 16, dtype=dtype, device=device), *angles(dtype, device)]


POLY = [0.5, -0.25, 0.125]

CASES = [
    Case("softmax", rows(3, 11, 40), atlas.softmax, lambda x: x.softmax(-1), (0,)),
    Case("log_sum_exp", rows(3, 11, 40), atlas.log_sum_exp, lambda x: x.logsumexp(-1), (0,)),
    Case("rms_norm", normed, lambda x, w: atlas.rms_norm(x, w, 1e-5), rms_norm, (0, 1)),
    Case("rotary", turned, atlas.rotary, halves, (0,)),
    Case("rotary_interleaved", turned, lambda *a: atlas.rotary(*a, interleaved=True), neighbours, (0,)),
    Case(
        "poly_features",
        rows(3, 11, 40),
        lambda x: atlas.poly_features(x, POLY),
        lambda x: sum(a * x ** (i + 1) for i, a in enumerate(POLY)),
        (0,),
    ),
    Case("taylor2_features", rows(5, 6, 9), atlas.taylor2_features, taylor2, (0,)),
    Case(
        "windowed_attention",
        windowed_inputs,
        lambda q, k, v, pk, pv, first: atlas.windowed_attention(q, k, v, 5, prefix=(pk, pv), first=first),
        windowed,
        (0, 1, 2, 3, 4),
        # Weights are rounded to the element type before they are met with values.
        roundings=24,
    ),
    Case("attention_decode", decode_inputs, lambda *a: atlas.attention_decode(*a, parts=3), decode, roundings=16),
    Case("memory_read", memory_inputs, atlas.memory_read, memory_read, (0, 1, 2, 3), roundings=24),
    # Five steps magnify a rounding of what they begin with; in 16 bits they are within a few per cent, as the page says.
    Case("newton_schulz", rows(2, 16, 40), atlas.newton_schulz, newton_schulz, roundings=64, dtypes=(torch.float32, torch.float16)),
    Case("newton_schulz_tall", rows(2, 40, 16), atlas.newton_schulz, newton_schulz, roundings=64, dtypes=(torch.float32, torch.float16)),
    Rule("mlp").case("omega"),
    Rule("linear", before=True, loss="dot").case("omega_linear", dtypes=(torch.float32,)),
    Rule("gated", before=True).case("omega_gated", dtypes=(torch.float32,)),
    Rule("normed").case("omega_normed", dtypes=(torch.float32,)),
]


def operators(device: str) -> list[tuple[str, tuple[Any, ...]]]:
    """Every operator with arguments, for `torch.library.opcheck`."""
    of = {"dtype": torch.float32, "device": device}
    learn = lambda tensors: [t.requires_grad_() if t.is_floating_point() else t for t in tensors]  # noqa: E731
    copies = lambda *lists: [[t.clone() for t in tensors] for tensors in lists]  # noqa: E731
    x = normal(4, 6, **of)
    w = normal(6, **of)
    q, k, v, pk, pv, first = windowed_inputs(torch.float32, device)
    attention = (q, k, v, pk, pv, first, 5, 0.25)
    o, lse = torch.ops.atlas_gpu.windowed_attention(*attention)
    memory = memory_inputs(torch.float32, device)
    rule = Rule("mlp").inputs(torch.float32, device)
    memory_of = (rule[9:11], rule[11:13], None)
    numbers = ("mlp", "descent", 4, False, 2.0, True, 0.0)
    kept = torch.ops.atlas_gpu.omega_training(*rule[:9], *memory_of, *numbers, 2)[3]
    last = [torch.ones_like(m) for m in rule[9:13]]
    packed = [t[:1] for t in rule[:9]]
    starts = torch.tensor([0, 3, 10], dtype=torch.int32, device=device)
    turn = turned(torch.float32, device)
    steps = [*CLASSIC] * 2
    return [
        ("softmax", tuple(learn([x.clone()]))),
        ("log_sum_exp", tuple(learn([x.clone()]))),
        ("rms_norm", (*learn([x.clone(), w.clone()]), 1e-5)),
        ("rms_norm_backward", (x, x, w, 1e-5)),
        ("rotary", (turn[0].requires_grad_(), turn[1], turn[2], False)),
        ("rotary", (turn[0].detach(), turn[1], turn[2], True)),
        ("poly_features", (*learn([x.clone()]), POLY)),
        ("taylor2_features", tuple(learn([x.clone()]))),
        ("windowed_attention", attention),
        ("windowed_attention_backward", (torch.ones_like(o), *attention[:6], o, lse, 5, 0.25)),
        ("attention_decode", (*decode_inputs(torch.float32, device), 0.25, 3)),
        ("memory_read", tuple(learn([t.clone() for t in memory]))),
        ("memory_read_backward", (torch.ones_like(memory[3]), *memory[:3])),
        ("newton_schulz", (normal(2, 5, 8, **of), "bfloat16", steps, 1.0, 1e-7, True, 0)),
        ("omega", (*rule[:9], *memory_of, *numbers)),
        ("omega_training", (*learn(*copies(rule[:9])), *map(learn, copies(rule[9:11], rule[11:13])), None, *numbers, 2)),
        ("omega_training_backward", (torch.ones_like(rule[2]), last, *rule[:9], None, kept, *numbers, 2)),
        ("omega_packed", (*packed, starts, *memory_of, *numbers, 7)),
    ]
