"""One layer of an ATLAS model in PyTorch, projections left out: the memory by the Omega rule gates attention over a window.

The memory is the chunk-parallel form of `omega.py`. The attention is FlexAttention over the prefix and the window. Tensors
lie as each part wants them, heads before tokens, so the baseline pays for no transposes.
"""

import functools
import math

import torch
import torch.nn.functional as F

from baselines import omega, oracle
from baselines.work import DEVICE, RMS_EPS, Work, both, compiled, compiler, normal

CHUNK, MEMORY_WINDOW = 64, 16
WINDOW, PREFIX = 512, 16


def combine(attended, memory, wa, wm):
    """norm(attended) * sigmoid(norm(memory)), with the weights of each head."""
    width = attended.shape[-1]
    return (F.rms_norm(attended, (width,), None, RMS_EPS) * wa
            * torch.sigmoid(F.rms_norm(memory, (width,), None, RMS_EPS) * wm))


def attention(q, k, v, pk, pv):
    """A function of nothing that gives windowed attention with a prefix, by compiled FlexAttention."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    b, h, t, d = q.shape

    def seen(_b, _h, at, key):
        own = key - PREFIX
        return (key < PREFIX) | ((at >= own) & (at - own < WINDOW))

    mask = create_block_mask(seen, None, None, t, t + PREFIX, device=DEVICE)

    def run(q, k, v, pk, pv):
        ks = torch.cat((pk.expand(b, h, PREFIX, d), k), 2)
        vs = torch.cat((pv.expand(b, h, PREFIX, d), v), 2)
        return flex_attention(q, ks, vs, block_mask=mask, scale=d**-0.5)

    return compiled(run, q, k, v, pk, pv)


def layer(b, t, h, d, m, name):
    args = omega.inputs(b * h, t, d, m, CHUNK, MEMORY_WINDOW)
    aq, ak, av = (normal(b, h, t, d) for _ in range(3))
    pk, pv = normal(1, h, PREFIX, d), normal(1, h, PREFIX, d)
    wa, wm = normal(h, 1, d), normal(h, 1, d)

    def eager():
        attend = attention(aq, ak, av, pk, pv)
        return lambda: combine(attend(), omega.omega(*args, CHUNK)[0].view(b, h, t, d), wa, wm)

    def by_compiled_parts():
        attend = attention(aq, ak, av, pk, pv)
        parts = {"prepare": compiler(omega.prepare), "step": compiler(omega.step)}
        both_of = compiler(combine)

        def run():
            return both_of(attend(), omega.omega(*args, CHUNK, **parts)[0].view(b, h, t, d), wa, wm)

        run()
        return run

    @functools.cache
    def expected():
        memory = oracle.omega(*args, CHUNK)[0].view(b, h, t, d)
        attended = []
        for first in range(0, t, WINDOW):
            start = max(first - WINDOW + 1, 0)
            q = aq[:, :, first : first + WINDOW].double()
            ks = torch.cat((pk.expand(b, h, PREFIX, d), ak[:, :, start : first + WINDOW]), 2).double()
            vs = torch.cat((pv.expand(b, h, PREFIX, d), av[:, :, start : first + WINDOW]), 2).double()
            own = torch.arange(start, start + ks.shape[2] - PREFIX, device=DEVICE)
            at = torch.arange(first, first + q.shape[2], device=DEVICE)[:, None] - own
            hidden = F.pad((at < 0) | (at >= WINDOW), (PREFIX, 0))
            scores = (q @ ks.mT * d**-0.5).masked_fill(hidden, -math.inf)
            attended.append(F.softmax(scores, -1) @ vs)
        return combine(torch.cat(attended, 2), memory, wa.double(), wm.double())

    n = CHUNK + MEMORY_WINDOW - 1
    chunks = math.ceil(t / CHUNK)
    return Work(
        name + "_plan", "layer", (b, t, h, d, m), 2e-2,
        b * h * (14 * t * d + 4 * t * (3 + MEMORY_WINDOW) + 32 * d * m),
        b * h * (chunks * ((14 * n + 8 * CHUNK) * d * m + 4 * CHUNK * n * (d + m)) + 4 * t * d * (min(WINDOW, t) + PREFIX)),
        1,
        lambda part: expected()[part],
        [
            *both("torch eager, compiled attention", eager, compiles=True, gpu=True),
            *both("torch.compile of a chunk and of the rest", by_compiled_parts, compiles=True, gpu=True),
        ],
    )


GROUPS = {
    "layer": [
        lambda: layer(8, 2048, 16, 64, 256, "layer_340m"),
        lambda: layer(8, 2048, 16, 48, 192, "layer_170m"),
        lambda: layer(8, 2048, 16, 96, 384, "layer_760m"),
    ],
    "layer_long": [lambda: layer(1, 32768, 16, 64, 256, "layer_340m_long")],
}
