"""One layer of an ATLAS model in PyTorch, projections left out: the memory by the Omega rule gates attention over a window.

The memory is the chunk-parallel form of `omega.py`. The attention is FlexAttention over the prefix and the window. Tensors
lie as each part wants them, heads before tokens, so the baseline pays for no transposes.
"""

import functools
import math

import torch
import torch.nn.functional as F

from baselines import omega, oracle
from baselines.work import DEVICE, MODE, RMS_EPS, Baseline, Work, both, compiled, compiler, normal

CHUNK, MEMORY_WINDOW = 64, 16
WINDOW, PREFIX = 512, 16

# The longest sequence whose reference goes token by token.
LONGEST_BY_TOKEN = 4096


def combine(attended, memory, wa, wm):
    """norm(attended) * sigmoid(norm(memory)), with the weights of each head."""
    width = attended.shape[-1]
    return (F.rms_norm(attended, (width,), None, RMS_EPS) * wa
            * torch.sigmoid(F.rms_norm(memory, (width,), None, RMS_EPS) * wm))


def windowed(tokens):
    """Attention over the prefix and the window, by FlexAttention, as a function of q, k, v and the prefix's keys and values."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(_b, _h, at, key):
        own = key - PREFIX
        return (key < PREFIX) | ((at >= own) & (at - own < WINDOW))

    mask = create_block_mask(seen, None, None, tokens, tokens + PREFIX, device=DEVICE)

    def run(q, k, v, pk, pv):
        ks = torch.cat((pk.expand(len(k), -1, -1, -1), k), 2)
        vs = torch.cat((pv.expand(len(v), -1, -1, -1), v), 2)
        return flex_attention(q, ks, vs, block_mask=mask, scale=q.shape[-1] ** -0.5)

    return run


def dense(q, k, v, pk, pv):
    """The same by one softmax over all keys, so that it needs the square of the tokens."""
    ks = torch.cat((pk.expand(len(k), -1, -1, -1), k), 2)
    vs = torch.cat((pv.expand(len(v), -1, -1, -1), v), 2)
    at = torch.arange(q.shape[2], device=DEVICE)
    behind = at[:, None] - at
    hidden = F.pad((behind < 0) | (behind >= WINDOW), (PREFIX, 0))
    scores = (q @ ks.mT * q.shape[-1] ** -0.5).masked_fill(hidden, -math.inf)
    return F.softmax(scores, -1) @ vs


def banded(q, k, v, pk, pv):
    """The same by blocks of `WINDOW` queries, each with the keys that it sees."""
    attended = []
    for first in range(0, q.shape[2], WINDOW):
        start = max(first - WINDOW + 1, 0)
        block = q[:, :, first : first + WINDOW]
        ks = torch.cat((pk.expand(len(k), -1, -1, -1), k[:, :, start : first + WINDOW]), 2)
        vs = torch.cat((pv.expand(len(v), -1, -1, -1), v[:, :, start : first + WINDOW]), 2)
        own = torch.arange(start, start + ks.shape[2] - PREFIX, device=DEVICE)
        behind = torch.arange(first, first + block.shape[2], device=DEVICE)[:, None] - own
        hidden = F.pad((behind < 0) | (behind >= WINDOW), (PREFIX, 0))
        scores = (block @ ks.mT * q.shape[-1] ** -0.5).masked_fill(hidden, -math.inf)
        attended.append(F.softmax(scores, -1) @ vs)
    return torch.cat(attended, 2)


def layer(b, t, h, d, m, name, pieces=1):
    """Pieces of t tokens each, the same tokens in all of them."""
    args = omega.inputs(b * h, t, d, m, CHUNK, MEMORY_WINDOW)
    aq, ak, av = (normal(b, h, t, d) for _ in range(3))
    pk, pv = normal(1, h, PREFIX, d), normal(1, h, PREFIX, d)
    wa, wm = normal(h, 1, d), normal(h, 1, d)

    def eager():
        attend = compiled(windowed(t), aq, ak, av, pk, pv)
        return lambda: combine(attend(), omega.omega(*args, CHUNK)[0].view(b, h, t, d), wa, wm)

    def by_compiled_parts(mode):
        attend = compiled(windowed(t), aq, ak, av, pk, pv)
        parts = {"prepare": compiler(omega.prepare, mode), "step": compiler(omega.step, mode)}
        both_of = compiler(combine, mode)

        def run():
            return both_of(attend(), omega.omega(*args, CHUNK, **parts)[0].view(b, h, t, d), wa, wm)

        run()
        return run

    @functools.cache
    def expected():
        # Token by token a long sequence takes minutes. The self-test compares both forms.
        form = oracle.omega if t <= LONGEST_BY_TOKEN else omega.omega
        memory = form(*(x.double() for x in args), CHUNK)[0].view(b, h, t, d)
        attended = banded(*(x.double() for x in (aq, ak, av, pk, pv)))
        return combine(attended, memory, wa.double(), wm.double())

    n = CHUNK + MEMORY_WINDOW - 1
    chunks = math.ceil(t / CHUNK)
    ways = {
        "torch eager, compiled attention": eager,
        "torch.compile of a chunk and of the rest": lambda: by_compiled_parts(None),
        "torch.compile, tuned, of a chunk and of the rest": lambda: by_compiled_parts(MODE),
    }
    return Work(
        name + "_plan", "layer", (b, t * pieces, h, d, m), 2e-2,
        pieces * b * h * (14 * t * d + 4 * t * (3 + MEMORY_WINDOW) + 32 * d * m),
        pieces * b * h * (chunks * ((14 * n + 8 * CHUNK) * d * m + 4 * CHUNK * n * (d + m)) + 4 * t * d * (min(WINDOW, t) + PREFIX)),
        1,
        lambda part: expected()[part],
        [
            Baseline(baseline.name, lambda made=baseline.make: omega.piece_by_piece(made(), pieces), compiles=True, gpu=True)
            for name, make in ways.items()
            for baseline in both(name, make)
        ],
    )


def layer_step(b, t, h, d, m, name, attend=windowed, pieces=1):
    """A training step: the layer's output y, and the gradients of <y, dy> by all that the layer is given.

    Of pieces of t tokens each, the same tokens in all of them, a gradient goes no further back than its piece begins."""
    memory = omega.inputs(b * h, t, d, m, CHUNK, MEMORY_WINDOW)
    heads = [normal(b, h, t, d) for _ in range(3)]
    shared = [*(normal(1, h, PREFIX, d) for _ in range(2)), *(normal(h, 1, d) for _ in range(2))]
    dy = normal(b, h, t, d)

    def gradients(memory, heads, shared, dy, attend, prepare=omega.prepare, step=omega.advanced, combine=combine):
        """Gradients by memory and heads begin with the axis of sequences; those by what sequences share, with an axis of 1."""
        wanted = [x.detach().requires_grad_() for x in (*memory, *heads, *shared)]
        of_memory, of_heads, of_shared = wanted[: len(memory)], wanted[len(memory) : -len(shared)], wanted[-len(shared) :]
        with torch.enable_grad():
            read = omega.outputs(*of_memory, CHUNK, prepare, step).view(dy.shape)
            y = combine(attend(*of_heads, *of_shared[:2]), read, *of_shared[2:])
        found = torch.autograd.grad(y, wanted, dy)
        apart = [x.unflatten(0, (-1, h)) for x in found[: len(memory)]] + list(found[len(memory) : -len(shared)])
        return (y.detach(), *apart, *(x[None] for x in found[-len(shared) :]))

    @functools.cache
    def expected():
        each = []
        for i in range(b):
            args = [x[i * h : (i + 1) * h] for x in memory], [x[i : i + 1] for x in heads], shared, [dy[i : i + 1]]
            memory_, heads_, shared_, (dy_,) = ([x.double() for x in part] for part in args)
            each.append(gradients(memory_, heads_, shared_, dy_, banded))
        outputs = list(zip(*each))
        apart = len(outputs) - len(shared)
        return (*(torch.cat(x) for x in outputs[:apart]), *(sum(x) for x in outputs[apart:]))

    def eager():
        attention = attend(t)
        attention = attention if attention is dense else compiler(attention, None)
        return lambda: gradients(memory, heads, shared, dy, attention)

    def by_compiled_parts():
        # Without a search for the fastest kernels, which takes minutes for the two passes of a chunk.
        attention = attend(t)
        parts = {"prepare": omega.prepare, "step": omega.advanced, "combine": combine}
        parts = {part: compiler(fn, None) for part, fn in parts.items()}
        attention = attention if attention is dense else compiler(attention, None)
        return lambda: gradients(memory, heads, shared, dy, attention, **parts)

    work = layer(b, t, h, d, m, name, pieces)
    return Work(
        name + "_step_plan", "layer_step", work.sizes, work.tolerance,
        pieces * b * h * (32 * t * d + 8 * t * (3 + MEMORY_WINDOW) + 48 * d * m), 7 * work.flops // 2, b,
        lambda part: tuple(x[part] for x in expected()),
        [
            *omega.step_both("torch eager, compiled attention", eager, pieces, compiles=True),
            *omega.step_both("torch.compile of a chunk and of the rest", by_compiled_parts, pieces, compiles=True),
        ],
    )


GROUPS = {
    "layer_step": [lambda: layer_step(8, 2048, 16, 64, 256, "layer_340m")],
    "layer_long_step": [lambda: layer_step(1, 32768, 16, 64, 256, "layer_340m_long")],
    "layer_million_step": [lambda: layer_step(1, 32768, 16, 64, 256, "layer_340m_million", pieces=32)],
    "layer": [
        lambda: layer(8, 2048, 16, 64, 256, "layer_340m"),
        lambda: layer(8, 2048, 16, 48, 192, "layer_170m"),
        lambda: layer(8, 2048, 16, 96, 384, "layer_760m"),
    ],
    "layer_1300m": [lambda: layer(8, 2048, 8, 256, 1024, "layer_1300m")],
    "layer_long": [lambda: layer(1, 32768, 16, 64, 256, "layer_340m_long")],
    "layer_million": [lambda: layer(1, 32768, 16, 64, 256, "layer_340m_million", pieces=32)],
}
