"""Works over windows of tokens: attention with a window, attention of one token to a cache, sums and losses."""

import functools

import torch
import torch.nn.functional as F

from baselines import oracle
from baselines.work import DEVICE, Work, both, compiled, four_ways, normal

SDPA = F.scaled_dot_product_attention


def _backend(name, fn):
    """`fn` with one backend of SDPA."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run():
        with sdpa_kernel(getattr(SDPBackend, name)):
            return fn()

    return run


def windowed_attention(b, h, t, d, w, name="windowed_attention"):
    """Each token sees itself and the w - 1 before it."""
    q, k, v = normal(b, h, t, d), normal(b, h, t, d), normal(b, h, t, d)
    scale = d**-0.5

    def seen(_b, _h, at, key):
        return (at >= key) & (at - key < w)

    def flex(block):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        mask = create_block_mask(seen, None, None, t, t, device=DEVICE, BLOCK_SIZE=block)
        return compiled(lambda q, k, v: flex_attention(q, k, v, block_mask=mask, scale=scale), q, k, v)

    @functools.cache
    def by_tokens():
        """Tokens before heads, as the flash kernels want them."""
        return tuple(x.transpose(1, 2).contiguous() for x in (q, k, v))

    def varlen():
        from torch.nn.attention.varlen import varlen_attn

        packed = tuple(x.flatten(0, 1) for x in by_tokens())
        starts = torch.arange(0, (b + 1) * t, t, dtype=torch.int32, device=DEVICE)

        def run():
            out = varlen_attn(*packed, starts, starts, t, t, scale=scale, window_size=(w - 1, 0))
            return out.view(b, t, h, d).transpose(1, 2)

        return run

    def flash():
        packed = by_tokens()

        def run():
            out = torch.ops.aten._flash_attention_forward(
                *packed, None, None, t, t, 0.0, True, False,
                scale=scale, window_size_left=w - 1, window_size_right=0,
            )
            return out[0].transpose(1, 2)

        return run

    def by_blocks(q, k, v, mask):
        """A block of w queries against its own keys and those of the block before."""
        def pairs(x):
            return F.pad(x, (0, 0, w, 0)).unfold(2, 2 * w, w).mT.flatten(0, 1)

        out = SDPA(q.view(b * h, t // w, w, d), pairs(k), pairs(v), attn_mask=mask, scale=scale)
        return out.view(b, h, t, d)

    def blocks(backend):
        if t % w:
            raise ValueError(f"{t} tokens are not a multiple of {w}")
        at = torch.arange(w, device=DEVICE)[:, None] + w - torch.arange(2 * w, device=DEVICE)
        mask = ((at >= 0) & (at < w)).repeat(1, t // w, 1, 1)
        # There is no block before the first one.
        mask[:, 0, :, :w] = False
        return _backend(backend, lambda: by_blocks(q, k, v, mask)) if backend else lambda: by_blocks(q, k, v, mask)

    useful = w * t - w * (w - 1) // 2 if t >= w else t * (t + 1) // 2
    return Work(
        name, "windowed_attention", (b, h, t, d, w), 1e-2, 2 * 4 * b * h * t * d, 4 * b * h * d * useful, 1,
        lambda part: oracle.window_attention(q[part], k[part], v[part], w, scale),
        [
            *both("FlexAttention", lambda: flex(128), compiles=True),
            *both("varlen_attn", varlen, gpu=True),
            *both("flash with a window", flash, gpu=True),
            *both("SDPA by blocks", lambda: blocks(None)),
            *both("SDPA cuDNN by blocks", lambda: blocks("CUDNN_ATTENTION"), gpu=True),
            *both("SDPA efficient by blocks", lambda: blocks("EFFICIENT_ATTENTION"), gpu=True),
        ],
        atlas_sizes=(b, t, h, d, t, h, 0),
    )


def attention_decode(s, hq, hkv, w, d):
    """One token of each sequence to its w cached ones; hq / hkv heads share keys and values."""
    q, k, v = normal(s, hq, 1, d), normal(s, hkv, w, d), normal(s, hkv, w, d)
    scale = d**-0.5
    group = hq // hkv
    # All keys are visible, so the heads of a group may take the place of tokens.
    packed = q.view(s, hkv, group, d)

    def shared():
        return SDPA(q, k, v, scale=scale, enable_gqa=True)

    def as_tokens():
        return SDPA(packed, k, v, scale=scale).view_as(q)

    def flex():
        from torch.nn.attention.flex_attention import flex_attention

        return compiled(lambda q, k, v: flex_attention(q, k, v, scale=scale, enable_gqa=True), q, k, v)

    def manual(q, k, v):
        scores = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT).float() * scale
        return torch.bmm(F.softmax(scores, -1).to(q.dtype), v.flatten(0, 1)).view(s, hq, 1, d)

    def reference(part):
        scores = packed[part].double() @ k[part].double().mT * scale
        return (F.softmax(scores, -1) @ v[part].double()).view(-1, hq, 1, d)

    return Work(
        "attention_decode_plan", "attention_decode", (s, hq, hkv, w, d), 1e-2, 2 * s * d * (2 * w * hkv + 2 * hq),
        4 * s * hq * w * d, 4, reference,
        [
            *both("SDPA enable_gqa", lambda: shared),
            *both("SDPA packed", lambda: as_tokens),
            *both("SDPA flash, packed", lambda: _backend("FLASH_ATTENTION", as_tokens), gpu=True),
            *both("SDPA cuDNN, packed", lambda: _backend("CUDNN_ATTENTION", as_tokens), gpu=True),
            *both("SDPA efficient, packed", lambda: _backend("EFFICIENT_ATTENTION", as_tokens), gpu=True),
            *four_ways(manual, packed, k, v),
            *both("FlexAttention", flex, compiles=True),
        ],
        # The keys of a sequence are split into four parts.
        atlas_sizes=(s, hkv, group, d, w, 4),
    )


def _unfolded(x, c):
    """Sums of windows of axis 1, `[b, t, ..]`."""
    return F.pad(x, (0, 0) * (x.dim() - 2) + (c - 1, 0)).unfold(1, c, 1).sum(-1)


def window_sum(b, t, d, c):
    x = torch.randn(b, t, d, device=DEVICE)

    def unfolded(x):
        return _unfolded(x, c)

    def by_difference(x):
        sums = x.cumsum(1)
        sums[:, c:] -= sums[:, :-c].clone()
        return sums

    def doubled(x):
        """Sums of 2, 4, 8.. tokens, each of two sums of half as many."""
        for k in range(c.bit_length() - 1):
            x = x + F.pad(x, (0, 0, 1 << k, 0))[:, :t]
        return x

    def pooled(x):
        return F.avg_pool2d(F.pad(x, (0, 0, c - 1, 0))[:, None], (c, 1), stride=1, divisor_override=1)[:, 0]

    own = torch.ones(c, c, device=DEVICE).tril()
    before = 1 - own

    def by_products(x):
        """Blocks of c tokens: triangles of ones times a block and the one before it."""
        blocks = x.view(-1, c, d)
        count = blocks.shape[0]
        out = torch.bmm(own.expand(count, c, c), blocks)
        out[1:].baddbmm_(before.expand(count - 1, c, c), blocks[:-1])
        # There is no block before the first one of a sequence.
        out[:: t // c].copy_(own @ blocks[:: t // c])
        return out.view(b, t, d)

    baselines = [
        *both("torch eager unfold", lambda: lambda: unfolded(x)),
        *both("torch eager cumsum", lambda: lambda: by_difference(x)),
        *both("torch eager pool", lambda: lambda: pooled(x)),
        *both("torch.compile unfold", lambda: compiled(unfolded, x), compiles=True),
        *both("torch.compile cumsum", lambda: compiled(by_difference, x), compiles=True),
    ]
    if c & (c - 1) == 0:
        baselines += [
            *both("torch eager doubling", lambda: lambda: doubled(x)),
            *both("torch.compile doubling", lambda: compiled(doubled, x), compiles=True),
        ]
    if t % c == 0:
        baselines += both("cuBLAS by blocks", lambda: lambda: by_products(x))
    return Work(
        "window_sum_f32", "window_sum", (b, t, d, c), 1e-6, 2 * 4 * b * t * d, b * t * d * c, 1,
        lambda part: oracle.window_sums(x[part], c), baselines, dtype="f32",
        atlas_sizes=(b, t // 8, 8, d),
    )


def window_loss(b, t, d, c):
    """Half the sum of squared errors of a token and the c - 1 before it, in f32."""
    y, v = normal(b, t, d), normal(b, t, d)

    def loss(y, v):
        return _unfolded(0.5 * (y.float() - v.float()).square().sum(-1), c)

    def by_convolution(y, v):
        error = 0.5 * (y.float() - v.float()).square().sum(-1)
        ones = error.new_ones(1, 1, c)
        return F.conv1d(F.pad(error, (c - 1, 0))[:, None], ones)[:, 0]

    return Work(
        "window_loss_plan", "window_loss", (b, t, d, c), 4e-3, b * t * (4 * d + 4), b * t * (3 * d + c), 1,
        lambda part: oracle.window_sums(0.5 * (y[part].double() - v[part].double()).square().sum(-1), c),
        [
            *four_ways(loss, y, v),
            *both("torch eager conv1d", lambda: lambda: by_convolution(y, v)),
        ],
    )


GROUPS = {
    "windowed_attention": [
        lambda: windowed_attention(4, 16, 4096, 128, 512, "windowed_attention_4096"),
        lambda: windowed_attention(2, 16, 16384, 128, 512, "windowed_attention_16384"),
    ],
    "attention_decode": [lambda: attention_decode(64, 32, 8, 2048, 128)],
    "window_sum": [lambda: window_sum(16, 8192, 512, 64)],
    "window_loss": [lambda: window_loss(16, 8192, 512, 64)],
}
