"""The maths of the memory in f64, as plainly as it is written: slow, and nothing shared with the baselines."""

import math

import torch
import torch.nn.functional as F

from baselines.work import NS_EPS, NS_STEP


def gelu_slope(z):
    """The derivative of GELU in its erf form."""
    return 0.5 * (1 + torch.erf(z / math.sqrt(2))) + z * torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def read(x, w1, w2):
    """M(x) = x + W1 gelu(W2 x), rows are tokens."""
    return x + F.gelu(x @ w2.mT) @ w1.mT


def loss_gradients(x, v, weights, w1, w2):
    """Gradients by W1 and W2 of the sum over tokens of weight/2 ||M(x) - v||^2."""
    z = x @ w2.mT
    a = F.gelu(z)
    e = x + a @ w1.mT - v
    delta = gelu_slope(z) * (e @ w1)
    weights = weights[..., None]
    return (weights * e).mT @ a, (weights * delta).mT @ x


def newton_schulz(g):
    """Five quintic steps on matrices of any aspect."""
    tall = g.shape[-2] > g.shape[-1]
    x = g.mT if tall else g
    x = x / (x.square().sum((-2, -1), keepdim=True).sqrt() + NS_EPS)
    a, b, c = NS_STEP
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def omega(k, v, q, alpha, theta, eta, gamma, w1, w2, b):
    """The Omega rule token by token: gradients at the anchor of the token's chunk, the window across chunks.

    `k`, `v`, `q` are `[G, T, d]`, the gates `[G, T]`, `gamma[g, t, o]` weighs token t - o; S starts at 0. Gives y and
    the last W1, W2, S1, S2.
    """
    k, v, q, alpha, theta, eta, gamma, w1, w2 = (
        x.double() for x in (k, v, q, alpha, theta, eta, gamma, w1, w2)
    )
    window = gamma.shape[-1]
    s1, s2 = torch.zeros_like(w1), torch.zeros_like(w2)
    y = torch.empty_like(q)
    for t in range(q.shape[1]):
        if t % b == 0:
            anchor = w1, w2
        seen = min(window, t + 1)
        part = slice(t + 1 - seen, t + 1)
        # The oldest token of the window comes first.
        weights = gamma[:, t, :seen].flip(-1)
        u1, u2 = loss_gradients(k[:, part], v[:, part], weights, *anchor)
        a, th, et = (gate[:, t, None, None] for gate in (alpha, theta, eta))
        s1, s2 = th * s1 + u1, th * s2 + u2
        w1, w2 = a * w1 - et * s1, a * w2 - et * s2
        y[:, t] = read(q[:, t : t + 1], w1, w2)[:, 0]
    return y, w1, w2, s1, s2


def window_attention(q, k, v, window, scale):
    """Softmax over a token and the `window` - 1 before it, of `[.., t, d]`; that many queries at a time."""
    q, k, v = q.double(), k.double(), v.double()
    t = q.shape[-2]
    parts = []
    for first in range(0, t, window):
        last = min(first + window, t)
        start = max(first - window + 1, 0)
        at = torch.arange(first, last, device=q.device)[:, None] - torch.arange(start, last, device=q.device)
        scores = q[..., first:last, :] @ k[..., start:last, :].mT * scale
        scores = scores.masked_fill((at < 0) | (at >= window), float("-inf"))
        parts.append(F.softmax(scores, -1) @ v[..., start:last, :])
    return torch.cat(parts, -2)


def window_sums(x, c):
    """The sum over a token and the c - 1 before it along axis 1, term by term."""
    out = x.double().clone()
    for o in range(1, min(c, x.shape[1])):
        out[:, o:] += x[:, : x.shape[1] - o]
    return out
