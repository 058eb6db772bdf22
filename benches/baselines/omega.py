"""The Omega rule of a two-layer memory in PyTorch: the chunk-parallel dual form, batched over the heads.

All that does not depend on the memory (mixing weights, masked scores of queries and keys, scaled keys) is made for all
chunks at once; what is left of a chunk is ten batched products and what lies between them. Operands are bf16, the
state f32.

Both layers keep their state as `[G, 2, d, h]`: W1 over S1, and the transposes of W2 over S2. So the queries meet W and
S in one product along 2 d, and one product updates both.
"""

import functools
import math

import torch
import torch.nn.functional as F

from baselines import oracle, timing
from baselines.work import DEVICE, Baseline, Work, both, compiler, normal, uniform


def halo_of(c):
    """Keys before a chunk: c - 1, rounded up to eight, so that rows of scores stay aligned. Those beyond weigh 0."""
    return math.ceil((c - 1) / 8) * 8


def mixing(alpha, theta, eta, gamma, b):
    """What each key of a chunk and its halo weighs in M and S after each token, by a recurrence over the rows.

    Of gates `[G, T]` and `gamma` `[G, T, c]`, T a multiple of b, with N = b + halo:
    psi `[G, C, b, N]`; lam and s `[G, C, b]`, the parts of W and -S at the anchor in M; the last phi `[G, C, N]`; the
    last beta `[G, C]`, the part of S at the anchor in S.
    """
    g, t, c = gamma.shape
    halo = halo_of(c)
    n = b + halo
    # Rows of N + 1 elements, read back as rows of N: each starts one column further right than the previous one.
    rows = F.pad(gamma.flip(-1), (halo + 1 - c, b)).view(g, t // b, b * (n + 1))
    band = rows[..., : b * n].view(g, t // b, b, n)
    alpha, theta, eta = (gate.view(g, t // b, b, 1) for gate in (alpha, theta, eta))
    # beta and s follow the same recurrences from 1 and 0, so they are one more column.
    band = F.pad(band, (0, 1))
    phi = F.pad(torch.zeros_like(band[:, :, 0, :n]), (0, 1), value=1.0)
    psi = torch.zeros_like(phi)
    out = []
    for i in range(b):
        phi = torch.addcmul(band[:, :, i], theta[:, :, i], phi)
        psi = torch.addcmul(eta[:, :, i] * phi, alpha[:, :, i], psi)
        out.append(psi)
    psi = torch.stack(out, 2)
    return psi[..., :n], alpha[..., 0].cumprod(-1), psi[..., n], phi[..., :n], phi[..., n]


def prepare(k, v, q, alpha, theta, eta, gamma, w1, w2, b):
    """For all chunks: the inputs of `step`, each with the chunk as its second axis; and the state at the start."""
    g, t, d = k.shape
    low = k.dtype
    psi, lam, s, phi, beta = mixing(alpha, theta, eta, gamma, b)
    n = psi.shape[-1]

    def windows(x):
        return F.pad(x, (0, 0, n - b, 0)).unfold(1, n, b).mT

    x = windows(k).contiguous()
    rest = windows(k - v).contiguous()
    queries = q.view(g, t // b, b, d)
    scores = torch.bmm(queries.flatten(0, 1), x.flatten(0, 1).mT).view_as(psi)
    masked = (scores * -psi).to(low)
    # Weighted rows of keys for the updates of W and S; rows of queries for W and S.
    tail = torch.stack((-psi[:, :, -1], phi), -1)[..., None].to(low)
    both_keys = (x[:, :, :, None] * tail).flatten(-2)
    part = torch.stack((lam, -s), -1)[..., None]
    both_queries = (queries[:, :, :, None] * part).to(low).flatten(-2)
    # W <- lam W - s S + .., S <- beta S + ..: the factor of each matrix itself, and of S.
    kept = torch.stack((lam[..., -1], beta), -1)[..., None, None]
    crossed = torch.stack((-s[..., -1], torch.zeros_like(beta)), -1)[..., None, None]
    state1 = torch.stack((w1, torch.zeros_like(w1)), 1)
    state2 = torch.stack((w2.mT, torch.zeros_like(w2.mT)), 1)
    chunks = (x, rest, both_keys, both_queries, masked, (-psi).to(low), tail, part, queries, kept, crossed)
    return chunks, (state1, state2, state1.to(low), state2.to(low))


def step(out, *chunk):
    """One chunk: its outputs go to `out`; gives the state after it, in f32 and as operands."""
    y, *state = advanced(*chunk)
    out.copy_(y)
    return state


def advanced(
    state1, state2, low1, low2,
    x, rest, both_keys, both_queries, masked, psi, tail, part, queries, kept, crossed,
):
    """One chunk: its outputs, and the state after it, in f32 and as operands."""
    w1, w2 = low1[:, 0], low2[:, 0]
    stacked1, stacked2 = low1.flatten(1, 2), low2.flatten(1, 2)
    # The errors of the keys at the anchor, and their gradients for the first layer's outputs.
    z = torch.bmm(x, w2)
    a = F.gelu(z)
    e = torch.baddbmm(rest, a, w1.mT)
    delta = torch.ops.aten.gelu_backward(torch.bmm(e, w1), z)
    # The queries against a memory that is never materialised.
    hidden = F.gelu(torch.baddbmm(torch.bmm(both_queries, stacked2), masked, delta))
    mixed = torch.bmm(hidden, a.mT) * psi
    own = torch.bmm(hidden, stacked1.mT).unflatten(-1, part.shape[2:3] + (-1,))
    y = (own * part).sum(2) + torch.baddbmm(queries, mixed, e)
    u1 = torch.bmm((e[:, :, None] * tail).flatten(-2).mT, a).view_as(state1)
    u2 = torch.bmm(both_keys.mT, delta).view_as(state2)
    state1 = torch.addcmul(torch.addcmul(u1, kept, state1), crossed, state1[:, 1:])
    state2 = torch.addcmul(torch.addcmul(u2, kept, state2), crossed, state2[:, 1:])
    return y, state1, state2, state1.to(low1.dtype), state2.to(low2.dtype)


def omega(k, v, q, alpha, theta, eta, gamma, w1, w2, b, prepare=prepare, step=step):
    """y and the last W1, W2, S1, S2, as `oracle.omega`; W1 and W2 in the type of the state."""
    t = q.shape[1]
    short = -t % b
    if short:
        # A padding token with weight 0 and no decay.
        k, v, q, gamma = (F.pad(x, (0, 0, 0, short)) for x in (k, v, q, gamma))
        alpha, theta = (F.pad(x, (0, short), value=1.0) for x in (alpha, theta))
        eta = F.pad(eta, (0, short))
    chunks, state = prepare(k, v, q, alpha, theta, eta, gamma, w1, w2, b)
    y = torch.empty_like(q)
    outs = y.view(y.shape[0], -1, b, y.shape[-1])
    for out, *chunk in zip(outs.unbind(1), *(x.unbind(1) for x in chunks)):
        state = step(out, *state, *chunk)
    state1, state2 = state[:2]
    return y[:, :t], state1[:, 0], state2[:, 0].mT, state1[:, 1], state2[:, 1].mT


def inputs(g, t, d, h, b, c):
    """Keys and queries of length 1; rates at which a chunk's gradients, all of one anchor, do not overshoot."""

    def unit():
        return F.normalize(torch.randn(g, t, d, device=DEVICE), dim=-1).to(torch.bfloat16)

    return (
        unit(), normal(g, t, d), unit(),
        uniform(g, t, low=0.998), uniform(g, t, low=0.5, high=0.9), uniform(g, t, high=16 / (b * c * h)),
        uniform(g, t, c),
        normal(g, d, h, scale=h**-0.5).float(), normal(g, h, d).float(),
    )


def omega_mlp(g, t, d, h, b, c, name="omega_mlp"):
    args = inputs(g, t, d, h, b, c)
    n = b + c - 1
    reference = functools.cache(lambda: oracle.omega(*args, b))

    def by_compiled_parts():
        # Only one chunk is compiled. The whole sequence would be one very long program.
        parts = {"prepare": compiler(prepare), "step": compiler(step)}
        omega(*args, b, **parts)
        return lambda: omega(*args, b, **parts)

    return Work(
        name.replace("omega_mlp", "omega_mlp_plan"), "omega_mlp", (g, t, d, h, b, c), 1e-2,
        g * (8 * t * d + 4 * t * (c + 3) + 16 * 2 * d * h),
        g * math.ceil(t / b) * ((14 * n + 8 * b) * d * h + 4 * b * n * (d + h)), 128,
        lambda part: tuple(r[part] for r in reference()),
        [
            *both("torch eager", lambda: lambda: omega(*args, b)),
            *both("torch.compile of a chunk", by_compiled_parts, compiles=True),
        ],
    )


def gradients(k, v, q, alpha, theta, eta, gamma, w1, w2, dy, b, prepare=prepare, step=advanced):
    """y, and the gradients of <y, dy> by k, v, q, the gates, gamma, W1 and W2, by autograd of the chunk-parallel form."""
    with torch.enable_grad():
        return differentiated(k, v, q, alpha, theta, eta, gamma, w1, w2, dy, b, prepare, step)


def differentiated(k, v, q, alpha, theta, eta, gamma, w1, w2, dy, b, prepare, step):
    wanted = [x.detach().requires_grad_() for x in (k, v, q, alpha, theta, eta, gamma, w1, w2)]
    y = outputs(*wanted, b, prepare, step)
    return (y.detach(), *torch.autograd.grad(y, wanted, dy))


def outputs(k, v, q, alpha, theta, eta, gamma, w1, w2, b, prepare=prepare, step=advanced):
    """y of the chunk-parallel form, which autograd can differentiate. T is a multiple of b."""
    chunks, state = prepare(k, v, q, alpha, theta, eta, gamma, w1, w2, b)
    outs = []
    for chunk in zip(*(x.unbind(1) for x in chunks)):
        y, *state = step(*state, *chunk)
        outs.append(y.to(q.dtype))
    return torch.cat(outs, 1)


def noted(run):
    """`run`, with a note of the memory that it takes besides its inputs."""
    run()
    if DEVICE == "cpu":
        return run
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return run, f"{(torch.cuda.max_memory_allocated() - before) / 1e6:.0f} MB besides the inputs"


def piece_by_piece(run, pieces):
    """The same for each piece. A memory that goes on from one to the next would take a copy of its state as well."""

    def all_pieces():
        for _ in range(pieces):
            found = run()
        return found

    return all_pieces if pieces > 1 else run


def step_both(name, make, pieces=1, **kind):
    """Two baselines of a training step, launched as usual and from a CUDA graph, with a note of the memory that the first takes."""
    made = functools.cache(make)
    return [
        Baseline(name, lambda: noted(piece_by_piece(made(), pieces)), **kind),
        Baseline(f"{name}, graph", lambda: piece_by_piece(timing.graphed(made()), pieces), **kind),
    ]


def omega_step(g, t, d, h, b, c, name):
    """A training step of the memory: forward and backward. Memory besides the inputs is in a baseline's note."""
    args = (*inputs(g, t, d, h, b, c), normal(g, t, d))
    n = b + c - 1

    @functools.cache
    def reference(first, last):
        return gradients(*(x[first:last].double() for x in args), b)

    def by_compiled_parts():
        # Without a search for the fastest kernels, which takes minutes for the two passes of a chunk.
        parts = {"prepare": compiler(prepare, None), "step": compiler(advanced, None)}
        return lambda: gradients(*args, b, **parts)

    def eager():
        return lambda: gradients(*args, b)

    return Work(
        name, "omega_step", (g, t, d, h, b, c), 1e-2,
        g * (34 * t * d + 12 * t * (c + 3) + 48 * d * h),
        3 * g * math.ceil(t / b) * ((14 * n + 8 * b) * d * h + 4 * b * n * (d + h)), 16,
        lambda part: reference(part.start, part.stop),
        [
            *step_both("torch eager", eager),
            *step_both("torch.compile of a chunk", by_compiled_parts, compiles=True),
        ],
    )


GROUPS = {
    "omega_step": [lambda: omega_step(128, 2048, 64, 256, 64, 16, "omega_mlp_step_plan")],
    "omega_step_few": [lambda: omega_step(16, 2048, 64, 256, 64, 16, "omega_mlp_step_plan_few")],
    "omega_mlp": [lambda: omega_mlp(128, 2048, 64, 256, 64, 16)],
    "omega_mlp_48": [lambda: omega_mlp(128, 2048, 48, 192, 64, 16, "omega_mlp_48")],
    "omega_mlp_few": [lambda: omega_mlp(16, 2048, 64, 256, 64, 16, "omega_mlp_few")],
    "omega_mlp_96": [lambda: omega_mlp(64, 2048, 96, 384, 64, 16, "omega_mlp_96")],
    "omega_mlp_short": [lambda: omega_mlp(128, 2048, 64, 256, 16, 4, "omega_mlp_short")],
}
