"""The pieces of work: inputs, the f64 reference, and the baselines, each a function that makes a callable.

Inputs follow the same distributions as those of `atlas bench`. A maker returns a callable that gives its output, or
a pair of it and a note.
"""

import math

import torch
import torch.nn.functional as F

from baselines import layer, memory, omega, timing, windows
from baselines.work import POLY3, RMS_EPS, Baseline, Work, both, compiled, normal, orthogonalise, with_compiled


def copy():
    n = 1 << 30
    source = normal(n)
    target = torch.empty_like(source)
    return Work(
        None, "copy", (n,), 0.0, 2 * 2 * n, 0, 1 << 27,
        lambda part: source[part].double(),
        [Baseline("torch copy_", lambda: lambda: target.copy_(source))],
    )


def poly3():
    n, d = 2_097_152, 64
    x = normal(n, d)
    a1, a2, a3 = POLY3

    def horner(x):
        return x * (a1 + x * (a2 + x * a3))

    return Work(
        "poly3", "poly3", (n, d), 3e-3, 2 * 2 * n * d, 6 * n * d, 1 << 18,
        lambda part: horner(x[part].double()),
        [
            Baseline("torch eager", lambda: lambda: horner(x)),
            Baseline("torch.compile", lambda: compiled(horner, x), compiles=True),
        ],
    )


def rms_norm():
    n, d = 32_768, 8192
    x, w = normal(n, d), normal(d)

    def reference(part):
        v = x[part].double()
        return v / (v.square().mean(-1, keepdim=True) + RMS_EPS).sqrt() * w.double()

    def norm(x, w):
        return F.rms_norm(x, (d,), w, RMS_EPS)

    def triton():
        from baselines import kernels

        return kernels.rms_norm(x, w, RMS_EPS)

    return Work(
        "rms_norm", "rms_norm", (n, d), 4e-3, 2 * 2 * n * d, 4 * n * d, 4096, reference,
        [
            Baseline("torch eager", lambda: lambda: norm(x, w)),
            Baseline("triton tuned", triton),
            Baseline("torch.compile", lambda: compiled(norm, x, w), compiles=True),
        ],
    )


def softmax():
    n, d = 32_768, 8192
    x = normal(n, d, scale=2.0)

    def soft(x):
        return F.softmax(x, -1)

    def triton():
        from baselines import kernels

        return kernels.softmax(x)

    return Work(
        "softmax", "softmax", (n, d), 4e-3, 2 * 2 * n * d, 5 * n * d, 4096,
        lambda part: F.softmax(x[part].double(), -1),
        [
            Baseline("torch eager", lambda: lambda: soft(x)),
            Baseline("triton tuned", triton),
            Baseline("torch.compile", lambda: compiled(soft, x), compiles=True),
        ],
    )


def memory_read(g, n, d, h, name="memory_read"):
    x, r = normal(g, n, d), normal(g, n, d)
    w2, w1 = normal(g, h, d, scale=d**-0.5), normal(g, d, h, scale=h**-0.5)

    def reference(part):
        hidden = torch.bmm(x[part].double(), w2[part].double().mT)
        return r[part].double() + torch.bmm(F.gelu(hidden), w1[part].double().mT)

    def plain(x, w2, w1, r):
        return r + torch.bmm(F.gelu(torch.bmm(x, w2.mT)), w1.mT)

    def added(x, w2, w1, r):
        return torch.baddbmm(r, F.gelu(torch.bmm(x, w2.mT)), w1.mT)

    inputs = (x, w2, w1, r)
    return Work(
        name, "memory_read", (g, n, d, h), 1e-2, 2 * g * (3 * n * d + 2 * d * h), 4 * g * n * d * h, 128,
        reference,
        [
            Baseline("torch eager", lambda: lambda: plain(*inputs)),
            Baseline("torch eager, graph", lambda: timing.graphed(lambda: plain(*inputs))),
            Baseline("torch eager baddbmm, graph", lambda: timing.graphed(lambda: added(*inputs))),
            *with_compiled(plain, *inputs),
        ],
    )


def newton_schulz(b, n, m):
    """Five quintic steps on b matrices of n x m."""
    g = normal(b, n, m)
    return Work(
        "newton_schulz_small" + ("" if (n, m) == (64, 256) else f"_{n}x{m}"), "newton_schulz_small", (b, n, m), 3e-2,
        2 * 2 * b * n * m,
        b * (20 * n * n * m + 10 * n**3), 128,
        lambda part: orthogonalise(g[part].double(), torch.float64),
        [
            Baseline("torch eager, graph", lambda: timing.graphed(lambda: orthogonalise(g, g.dtype))),
            *with_compiled(lambda g: orthogonalise(g, g.dtype), g),
        ],
    )


def matmul(m, n, k, name):
    """A linear layer's product: the weights lie with their rows along K."""
    a, b = normal(m, k), normal(n, k)

    def product(a, b):
        return a @ b.mT

    return Work(
        name, "matmul", (m, k, n), 1e-2, 2 * (m * k + n * k + m * n), 2 * m * n * k, 64,
        lambda part: a[part].double() @ b.double().mT,
        [Baseline("cuBLAS", lambda: lambda: product(a, b))],
    )


def linear_gelu(m, n, k, name):
    """A linear layer and its exact GELU."""
    x, w, b = normal(m, k), normal(n, k) * k**-0.5, normal(n)

    def layer(x, w, b):
        return F.gelu(F.linear(x, w, b))

    return Work(
        name, "linear_gelu", (m, k, n), 1e-2, 2 * (m * k + n * k + n + m * n), 2 * m * n * k, 64,
        lambda part: F.gelu(x[part].double() @ w.double().mT + b.double()),
        [
            Baseline("cuBLAS and eager", lambda: lambda: layer(x, w, b)),
            Baseline("torch.compile", lambda: compiled(layer, x, w, b), compiles=True),
        ],
    )


def attention(h, n, d, name):
    """All keys, no mask; heads as PyTorch wants them."""
    q, k, v = normal(1, h, n, d), normal(1, h, n, d), normal(1, h, n, d)
    scale = 0.18 * math.log(2.0)

    def flash():
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def run():
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return F.scaled_dot_product_attention(q, k, v, scale=scale)[0]

        return run

    def reference(part):
        scores = q[0, part].double() @ k[0, part].double().mT * scale
        return F.softmax(scores, -1) @ v[0, part].double()

    return Work(
        name, "attention", (h, n, d, n), 1e-2, 2 * 4 * h * n * d, 4 * h * n * n * d, 4, reference,
        [Baseline("torch flash", flash)],
    )


def log_sum_exp(n, v, name):
    x = normal(n, v)

    def plain(x):
        return torch.logsumexp(x, -1)

    return Work(
        name, "log_sum_exp", (n, v), 4e-3, 2 * n * v, 4 * n * v, 512,
        lambda part: torch.logsumexp(x[part].double(), -1),
        [
            Baseline("torch eager", lambda: lambda: plain(x)),
            Baseline("torch.compile", lambda: compiled(plain, x), compiles=True),
        ],
    )


def rotary(n, h, p, d):
    x = normal(n, h, p, d)
    c, s = normal(n, d), normal(n, d)
    target = torch.empty_like(x)

    def turn(x, c, s):
        a, b = x[:, :, 0].float(), x[:, :, 1].float()
        c, s = c[:, None].float(), s[:, None].float()
        return torch.stack((a * c - b * s, b * c + a * s), 2).to(x.dtype)

    return Work(
        "rotary", "rotary", (n, h, p, d), 3e-3, 2 * n * d * (4 * h + 2), 6 * n * h * d, 4096,
        lambda part: turn(x[part].double(), c[part].double(), s[part].double()),
        [
            # Moves the same bytes and computes nothing, so its output is not that of the work.
            Baseline("copy beside it", lambda: (lambda: target.copy_(x), "a copy of x")),
            Baseline("torch.compile", lambda: compiled(turn, x, c, s), compiles=True),
        ],
    )


def rotary_interleaved(n, h, d, p):
    """As `rotary`, where the partner of an element is its neighbour."""
    x = normal(n, h, d, p)
    c, s = normal(n, d), normal(n, d)
    target = torch.empty_like(x)

    def turn(x, c, s):
        a, b = x[..., 0].float(), x[..., 1].float()
        c, s = c[:, None].float(), s[:, None].float()
        return torch.stack((a * c - b * s, b * c + a * s), -1).to(x.dtype)

    return Work(
        "rotary_interleaved", "rotary_interleaved", (n, h, d, p), 3e-3, 2 * n * d * (4 * h + 2), 6 * n * h * d, 4096,
        lambda part: turn(x[part].double(), c[part].double(), s[part].double()),
        [
            # Moves the same bytes and computes nothing, so its output is not that of the work.
            Baseline("copy beside it", lambda: (lambda: target.copy_(x), "a copy of x")),
            Baseline("torch.compile", lambda: compiled(turn, x, c, s), compiles=True),
        ],
    )


def _features(name, n, d, m, outputs, fn, *constants):
    """A map of `[n, d]` to `outputs` times `[n, m]`, beside a copy that moves as many bytes."""
    x = normal(n, d) * d**-0.5
    source = normal(n * (d + outputs * m) // 2)
    target = torch.empty_like(source)
    shape = (n, m) if outputs == 1 else (n, outputs, m)
    nothing = torch.zeros(1, device="cuda", dtype=torch.bfloat16).expand(shape)
    dims = (n, d, m) if outputs == 1 else (n, d, m, outputs)
    return Work(
        name, name, dims, 3e-3, 2 * n * (d + outputs * m), 2 * n * d * m, 1 << 14,
        lambda part: fn(x[part].double(), *(c.double() for c in constants)),
        [
            Baseline("copy beside it", lambda: (lambda: (target.copy_(source), nothing)[1], "a copy of as many bytes")),
            Baseline("torch eager", lambda: lambda: fn(x, *constants)),
            Baseline("torch.compile", lambda: compiled(fn, x, *constants), compiles=True),
        ],
    )


def favor_features(n, d, m):
    def fn(x, w):
        scaled = 0.35 * x
        return torch.exp(scaled @ w.T - scaled.square().sum(-1, keepdim=True) / 2 - 0.5) / m**0.5

    return _features("favor_features", n, d, m, 1, fn, normal(m, d))


def fourier_features(n, d, m):
    b = torch.rand(m, device="cuda", dtype=torch.float32) * 2 * math.pi
    return _features(
        "fourier_features", n, d, m, 1,
        lambda x, w, b: (torch.cos(x @ w.T + b) * (2 / m) ** 0.5).to(x.dtype), normal(m, d), b,
    )


def fourier_pairs(n, d, m):
    def fn(x, w):
        z = x @ w.T
        return torch.stack((torch.cos(z), torch.sin(z)), 1) / m**0.5

    return _features("fourier_pairs", n, d, m, 2, fn, normal(m, d))


def rbf_features(n, d, m):
    g = torch.rand(m, device="cuda", dtype=torch.float32) * 0.2 + 0.4

    def fn(x, c, g):
        squares = x.square().sum(-1, keepdim=True) + c.square().sum(-1) - 2 * (x @ c.T)
        return torch.exp(-g * squares.clamp(min=0)).to(x.dtype)

    return _features("rbf_features", n, d, m, 1, fn, normal(m, d) * d**-0.5, g)


def taylor2(n, d):
    """1, x, and all d^2 products of two coordinates over the root of two: of s = q . k it keeps 1 + s + s^2 / 2."""
    m = 1 + d + d * d
    x = normal(n, d)
    source = normal(n * (d + m) // 2)
    target = torch.empty_like(source)
    nothing = torch.zeros(1, device=x.device, dtype=torch.bfloat16).expand(n, m)
    out = torch.empty(n, m, device=x.device, dtype=torch.bfloat16)

    def plain(x):
        squares = (x[:, :, None] * (x * 0.5**0.5)[:, None]).flatten(1)
        return torch.cat((torch.ones_like(x[:, :1]), x, squares), 1)

    def precise(x):
        squares = (x.float()[:, :, None] * (x.float() * 0.5**0.5)[:, None]).flatten(1)
        return torch.cat((torch.ones_like(x[:, :1]), x, squares.to(x.dtype)), 1)

    def in_place():
        out[:, 0] = 1
        out[:, 1 : d + 1] = x
        torch.mul(x[:, :, None], (x * 0.5**0.5)[:, None], out=out[:, d + 1 :].unflatten(1, (d, d)))
        return out

    return Work(
        "taylor2", "taylor2", (n, d, m), 3e-3, 2 * n * (d + m), n * (d + d * d), 1 << 14,
        lambda part: plain(x[part].double()),
        [
            Baseline("copy beside it", lambda: (lambda: (target.copy_(source), nothing)[1], "a copy of as many bytes")),
            *both("torch eager cat", lambda: lambda: plain(x)),
            *both("torch eager in place", lambda: in_place),
            *both("torch.compile", lambda: compiled(precise, x), compiles=True),
        ],
    )


def transpose(n, m):
    x = normal(n, m)
    target = torch.empty_like(x)
    return Work(
        "transpose", "transpose", (n, m), 0.0, 2 * 2 * n * m, 0, 1 << 12,
        lambda part: x.T[part].double(),
        [
            Baseline("copy beside it", lambda: (lambda: target.copy_(x), "a copy of x")),
            Baseline("torch eager", lambda: lambda: x.T.contiguous()),
            Baseline("torch.compile", lambda: compiled(lambda x: x.T.contiguous(), x), compiles=True),
        ],
    )


# Functions that make works, by the name for `--only`. One group is in memory at a time.
GROUPS = {
    "copy": [copy],
    "poly3": [poly3],
    "rms_norm": [rms_norm],
    "softmax": [softmax],
    "memory_read": [
        lambda: memory_read(512, 64, 64, 256),
        lambda: memory_read(256, 256, 64, 256, "memory_read_256x64"),
        lambda: memory_read(256, 128, 128, 512, "memory_read_256x128"),
        lambda: memory_read(128, 2000, 48, 192, "memory_read_2000x48"),
    ],
    "newton_schulz_small": [
        lambda: newton_schulz(512, 64, 256),
        lambda: newton_schulz(512, 128, 512),
        lambda: newton_schulz(512, 48, 192),
    ],
    "matmul": [
        lambda: matmul(2048, 2048, 2048, "matmul_2048"),
        lambda: matmul(4096, 4096, 4096, "matmul_4096"),
        lambda: matmul(8192, 8192, 8192, "matmul_8192"),
        lambda: matmul(64, 4096, 4096, "matmul_skinny"),
        lambda: linear_gelu(8192, 4096, 1024, "linear_gelu"),
    ],
    "attention": [lambda: attention(64, 4096, 128, "attention_128"), lambda: attention(64, 4096, 64, "attention_64")],
    "log_sum_exp": [
        lambda: log_sum_exp(8192, 32000, "log_sum_exp"),
        lambda: log_sum_exp(8192, 50257, "log_sum_exp_odd"),
    ],
    "rotary": [lambda: rotary(32768, 32, 2, 64), lambda: rotary_interleaved(32768, 32, 64, 2)],
    "features": [
        lambda: favor_features(2_097_152, 64, 256),
        lambda: fourier_features(2_097_152, 64, 256),
        lambda: fourier_pairs(2_097_152, 64, 256),
        lambda: rbf_features(2_097_152, 64, 256),
    ],
    "transpose": [lambda: transpose(8192, 8192)],
    "taylor2": [lambda: taylor2(262_144, 64)],
    **omega.GROUPS,
    **layer.GROUPS,
    **memory.GROUPS,
    **windows.GROUPS,
}

