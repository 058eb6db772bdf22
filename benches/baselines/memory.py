"""Works of the two-layer memory beside the Omega rule, and of Muon: gradients, whole steps, the fused read."""

import torch
import torch.nn.functional as F

from baselines import oracle
from baselines.work import (
    DEVICE, NS_EPS, NS_STEP, POLY3, RMS_EPS, Baseline, Work, bmm_f32, both, compiled, four_ways, normal, orthogonalise,
    uniform, with_compiled,
)

# For a step that is measured alone. Its bound is that of Newton-Schulz, so the old weights must not hide the update.
ALPHA, THETA, ETA = 0.9, 0.5, 0.5
LEARNING_RATE, WEIGHT_DECAY, MOMENTUM = 0.5, 0.1, 0.95


def _window(g, n, d, h):
    """Keys, values, their weights, and W1 and W2."""
    return (
        normal(g, n, d), normal(g, n, d), uniform(g, n),
        normal(g, d, h, scale=h**-0.5), normal(g, h, d, scale=d**-0.5),
    )


def _errors(x, v, weights, w1, w2):
    """GELU's outputs, the weighed errors, and what they ask of the first layer's outputs."""
    z = torch.bmm(x, w2.mT)
    a = F.gelu(z)
    e = torch.baddbmm(x - v, a, w1.mT) * weights[..., None].to(x.dtype)
    return a, e, torch.ops.aten.gelu_backward(torch.bmm(e, w1), z)


def memory_grad(g, n, d, h, name="memory_grad"):
    """Gradients by W1 and W2 of a weighted window, in f32."""
    args = _window(g, n, d, h)

    def gradients(x, v, weights, w1, w2):
        a, e, delta = _errors(x, v, weights, w1, w2)
        return bmm_f32(e.mT, a), bmm_f32(delta.mT, x)

    def rounded(x, v, weights, w1, w2):
        a, e, delta = _errors(x, v, weights, w1, w2)
        return torch.bmm(e.mT, a).float(), torch.bmm(delta.mT, x).float()

    def reference(part):
        x, v, weights, w1, w2 = (a[part].double() for a in args)
        return oracle.loss_gradients(x, v, weights, w1, w2)

    return Work(
        name.replace("memory_grad", "memory_grad_plan"), "memory_grad", (g, n, d, h), 1e-2,
        g * (4 * n * d + 4 * n + 2 * 2 * d * h + 4 * 2 * d * h),
        10 * g * n * d * h, 128, reference,
        [
            *four_ways(gradients, *args),
            # If bf16 products cannot be accumulated in f32.
            *both("torch.compile, bf16 gradients", lambda: compiled(rounded, *args), compiles=True),
        ],
    )


def omega_muon_step(g, n, d, h):
    """One step of momentum and Muon on a window, both layers in place: `[layer, G, d, h]`, W2 transposed."""
    x, v, weights, w1, w2 = _window(g, n, d, h)
    start = torch.stack((w1, w2.mT)).float()
    # As large as a window's gradients, which are ill-conditioned by themselves.
    momentum = torch.randn_like(start) * 4
    w, s = start.clone(), momentum.clone()
    alpha, theta, eta = (torch.full((g, 1, 1), value, device=DEVICE) for value in (ALPHA, THETA, ETA))

    def step(w, s, x, v, weights):
        low = w.to(x.dtype)
        a, e, delta = _errors(x, v, weights, low[0], low[1].mT)
        s.mul_(theta)
        s[0].add_(torch.bmm(e.mT, a))
        s[1].add_(torch.bmm(x.mT, delta))
        update = orthogonalise(s.flatten(0, 1), x.dtype).view_as(s)
        w.mul_(alpha).addcmul_(eta, update, value=-1)
        return w[0], w[1].mT, s[0], s[1].mT

    def stacked(w, s, x, v, weights):
        """Nothing in place until the end, for a compiler; the gradients of both layers are one tensor."""
        low = w.to(x.dtype)
        a, e, delta = _errors(x, v, weights, low[0], low[1].mT)
        new = theta * s + torch.stack((torch.bmm(e.mT, a), torch.bmm(x.mT, delta)))
        s.copy_(new)
        w.copy_(alpha * w - eta * orthogonalise(new.flatten(0, 1), x.dtype).view_as(new))
        return w[0], w[1].mT, s[0], s[1].mT

    def reset():
        w.copy_(start)
        s.copy_(momentum)

    def reference(part):
        w1, w2 = start[0, part].double(), start[1, part].double().mT
        gradients = oracle.loss_gradients(x[part].double(), v[part].double(), weights[part].double(), w1, w2)
        old = momentum[0, part].double(), momentum[1, part].double().mT
        s1, s2 = (THETA * m + gradient for m, gradient in zip(old, gradients))
        new1, new2 = (ALPHA * m - ETA * oracle.newton_schulz(u) for m, u in ((w1, s1), (w2, s2)))
        return new1, new2, s1, s2

    p = 2 * d * h
    return Work(
        "omega_muon_step_plan", "omega_muon_step", (g, n, d, h), 3e-2, g * (16 * p + 4 * n * d + 4 * n),
        g * (10 * n * d * h + 2 * (20 * d * d * h + 10 * d**3) + 4 * p), 128, reference,
        [
            *both("torch eager", lambda: lambda: step(w, s, x, v, weights)),
            *with_compiled(step, w, s, x, v, weights),
            *both("torch.compile, stacked", lambda: compiled(stacked, w, s, x, v, weights), compiles=True),
        ],
        reset=reset,
    )


def fused_forward(batch, heads, t, d, h):
    """Elementwise features, memory read, RMS norm with a weight per head, SiLU gate."""
    q, gate = normal(batch, heads, t, d), normal(batch, heads, t, d)
    weight = normal(heads, d)
    w1, w2 = normal(batch, heads, d, h, scale=h**-0.5), normal(batch, heads, h, d, scale=d**-0.5)
    a1, a2, a3 = POLY3

    def forward(q, gate, weight, w1, w2):
        phi = q * (a1 + q * (a2 + q * a3))
        hidden = F.gelu(torch.bmm(phi.flatten(0, 1), w2.flatten(0, 1).mT))
        m = torch.baddbmm(q.flatten(0, 1), hidden, w1.flatten(0, 1).mT).view_as(q)
        return F.silu(gate) * (F.rms_norm(m, (d,), None, RMS_EPS) * weight[:, None])

    def reference(part):
        x = q[part].double()
        hidden = F.gelu((a1 * x + a2 * x**2 + a3 * x**3) @ w2[part].double().mT)
        m = x + hidden @ w1[part].double().mT
        m = m / (m.square().mean(-1, keepdim=True) + RMS_EPS).sqrt() * weight.double()[:, None]
        z = gate[part].double()
        return z * torch.sigmoid(z) * m

    g = batch * heads
    return Work(
        "fused_forward", "fused_forward", (g, t, d, h), 1e-2,
        2 * g * (3 * t * d + 2 * d * h) + 2 * heads * d, g * t * (4 * d * h + 15 * d), 1, reference,
        four_ways(forward, q, gate, weight, w1, w2),
    )


def muon_step(count, n, m, atlas="muon_step_plan"):
    """torch.optim.Muon's step with Nesterov, f32 and in place; n <= m, so that no scale comes of the shape."""
    start = torch.randn(count, n, m, device=DEVICE) * m**-0.5
    old = torch.randn_like(start) * 0.1
    gradient = torch.randn_like(start)
    w, buf = start.clone(), old.clone()
    lists = [list(x.unbind(0)) for x in (w, buf, gradient)]

    def by_foreach(w, buf, gradient):
        """As an optimiser has them, one tensor each; only Newton-Schulz is batched."""
        torch._foreach_lerp_(buf, gradient, 1 - MOMENTUM)
        update = orthogonalise(torch.stack(torch._foreach_lerp(gradient, buf, MOMENTUM)), torch.bfloat16)
        torch._foreach_mul_(w, 1 - LEARNING_RATE * WEIGHT_DECAY)
        torch._foreach_add_(w, list(update.float().unbind(0)), alpha=-LEARNING_RATE)

    def batched(w, buf, gradient):
        buf.lerp_(gradient, 1 - MOMENTUM)
        update = orthogonalise(gradient.lerp(buf, MOMENTUM), torch.bfloat16)
        w.mul_(1 - LEARNING_RATE * WEIGHT_DECAY).add_(update, alpha=-LEARNING_RATE)

    def result(fn):
        def run():
            fn()
            return w, buf

        return run

    def library():
        made = torch.optim.Muon(
            [torch.nn.Parameter(x) for x in lists[0]],
            lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, momentum=MOMENTUM, ns_coefficients=NS_STEP, eps=NS_EPS,
        )
        for p, b, g in zip(made.param_groups[0]["params"], *lists[1:]):
            p.grad = g
            made.state[p]["momentum_buffer"] = b
        return result(made.step)

    def reset():
        w.copy_(start)
        buf.copy_(old)

    def reference(part):
        g = gradient[part].double()
        new = MOMENTUM * old[part].double() + (1 - MOMENTUM) * g
        update = oracle.newton_schulz((1 - MOMENTUM) * g + MOMENTUM * new)
        return (1 - LEARNING_RATE * WEIGHT_DECAY) * start[part].double() - LEARNING_RATE * update, new

    low, high = min(n, m), max(n, m)
    return Work(
        atlas, atlas.removesuffix("_plan"), (count, n, m), 3e-2, 20 * count * n * m,
        count * (20 * low * low * high + 10 * low**3), 2, reference,
        [
            Baseline("torch.optim.Muon", library),
            *both("torch eager foreach", lambda: result(lambda: by_foreach(*lists))),
            *both("torch eager batched", lambda: result(lambda: batched(w, buf, gradient))),
            *both("torch.compile foreach", lambda: result(compiled(by_foreach, *lists)), compiles=True),
            *both("torch.compile batched", lambda: result(compiled(batched, w, buf, gradient)), compiles=True),
        ],
        dtype="f32",
        reset=reset,
    )


GROUPS = {
    "memory_grad": [
        lambda: memory_grad(512, 64, 64, 256),
        lambda: memory_grad(256, 128, 128, 512, "memory_grad_128x128"),
    ],
    "omega_muon_step": [lambda: omega_muon_step(128, 64, 64, 256)],
    "fused_forward": [lambda: fused_forward(8, 16, 2048, 64, 256)],
    "muon_step": [lambda: muon_step(24, 1024, 4096)],
    # The same polynomial from the Gram matrix; its baselines are those of the step.
    "muon_step_gram": [lambda: muon_step(24, 1024, 4096, "muon_step_gram_plan")],
}
