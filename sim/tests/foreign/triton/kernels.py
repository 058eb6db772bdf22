"""Triton kernels and how each is compiled: the second source of PTX that Atlas did not write."""

from dataclasses import dataclass

import triton
import triton.language as tl


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * columns + at, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def layer_norm(x, gamma, beta, out, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(v, axis=0) / columns
    centred = tl.where(inside, v - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    g = tl.load(gamma + at, mask=inside)
    b = tl.load(beta + at, mask=inside)
    tl.store(out + row * columns + at, (centred * scale * g + b).to(out.dtype.element_ty), mask=inside)


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr):
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    pa = a + rows[:, None] * k + inner[None, :]
    pb = b + inner[:, None] * n + columns[None, :]
    acc = tl.zeros((BM, BN), dtype=ACC)
    for _ in range(0, tl.cdiv(k, BK)):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc, out_dtype=ACC)
        pa += BK
        pb += BK * n
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], acc.to(c.dtype.element_ty), mask=inside)


@triton.jit
def matmul_descriptor(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(1) * BM
    column = tl.program_id(0) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, k, BK):
        acc = tl.dot(a.load([row, at]), b.load([column, at]).T, acc)
    c.store([row, column], acc.to(c.dtype))


@triton.jit
def matmul_specialised(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    across = tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BM) * across, tl.num_programs(0), warp_specialize=True):
        row = tile // across * BM
        column = tile % across * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for at in range(0, k, BK):
            acc = tl.dot(a.load([row, at]), b.load([column, at]).T, acc)
        rows = row + tl.arange(0, BM)
        columns = column + tl.arange(0, BN)
        inside = (rows[:, None] < m) & (columns[None, :] < n)
        tl.store(c + rows[:, None] * n + columns[None, :], acc.to(c.dtype.element_ty), mask=inside)


@triton.jit
def attention(q, k, v, out, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1) * length * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    keys = tl.arange(0, BN)
    d = tl.arange(0, D)
    query = tl.load(q + head + rows[:, None] * D + d[None, :])
    pk = k + head + keys[None, :] * D + d[:, None]
    pv = v + head + keys[:, None] * D + d[None, :]
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for _ in range(0, length // BN):
        s = tl.dot(query, tl.load(pk)) * (scale * 1.44269504)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        old = tl.exp2(top - new)
        total = total * old + tl.sum(p, 1)
        acc = tl.dot(p.to(q.dtype.element_ty), tl.load(pv), acc * old[:, None])
        top = new
        pk += BN * D
        pv += BN * D
    tl.store(out + head + rows[:, None] * D + d[None, :], acc / total[:, None])


@triton.jit
def histogram(x, bins, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(bins + tl.arange(0, BINS), tl.histogram(v, BINS, mask=at < n))


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def cumulative(x, sums, order, columns: tl.constexpr):
    row = tl.program_id(0) * columns
    at = tl.arange(0, columns)
    v = tl.load(x + row + at)
    tl.store(sums + row + at, tl.associative_scan(v, 0, plus))
    tl.store(order + row + at, tl.sort(v))


@dataclass
class Kernel:
    """One compilation: types in the order of the parameters, and what a launch with aligned pointers would find out."""

    name: str
    function: object
    arch: int
    types: dict
    constants: dict
    # Integers known to be multiples of 16; pointers always are.
    multiples: tuple = ()
    warps: int = 4
    stages: int = 2


F32 = "*fp32"
PRODUCT = dict(m="i32", n="i32", k="i32")
ATTENTION = dict(q="*fp16", k="*fp16", v="*fp16", out=F32, length="i32", scale="fp32")
TILE = dict(BM=64, BN=64, BK=32, ACC=tl.float32)
BOX = dict(BM=64, BN=64, BK=64)
KEYS = dict(BM=64, BN=32, D=32)


def boxes(c, operand="bf16"):
    """Descriptors of the three matrices of a product."""
    return dict(a=f"tensordesc<{operand}[64,64]>", b=f"tensordesc<{operand}[64,64]>", c=f"tensordesc<{c}[64,64]>")


def product(name, arch, operand, result="fp32", stages=2, **tile):
    """A product through pointers."""
    types = dict(a=f"*{operand}", b=f"*{operand}", c=f"*{result}") | PRODUCT
    return Kernel(f"triton_matmul_{name}", matmul, arch, types, TILE | tile, ("m", "n", "k"), stages=stages)


KERNELS = [
    Kernel("triton_vector_add", vector_add, 80, dict(x=F32, y=F32, out=F32, n="i32"), dict(BLOCK=512), ("n",)),
    Kernel("triton_softmax", softmax, 80, dict(x=F32, out=F32, columns="i32"), dict(BLOCK=512)),
    Kernel(
        "triton_layer_norm",
        layer_norm,
        90,
        dict(x="*bf16", gamma=F32, beta=F32, out="*bf16", columns="i32", epsilon="fp32"),
        dict(BLOCK=512),
        ("columns",),
    ),
    Kernel("triton_histogram", histogram, 80, dict(x="*i32", bins="*i32", n="i32"), dict(BLOCK=512, BINS=128)),
    Kernel("triton_cumulative", cumulative, 80, dict(x="*i32", sums="*i32", order="*i32"), dict(columns=256), warps=2),
    product("sm80", 80, "bf16", stages=3),
    product("sm90", 90, "bf16", stages=3),
    product("tf32_sm80", 80, "fp32"),
    product("tf32_sm90", 90, "fp32"),
    product("fp8_sm89", 89, "fp8e4nv"),
    product("i8_sm80", 80, "i8", "i32", ACC=tl.int32),
    product("f64_sm80", 80, "fp64", "fp64", BM=32, BN=32, BK=16, ACC=tl.float64),
    Kernel("triton_matmul_tma", matmul_descriptor, 90, boxes("bf16") | dict(k="i32"), BOX, ("k",)),
    Kernel("triton_matmul_fp8", matmul_descriptor, 90, boxes("fp32", "fp8e4nv") | dict(k="i32"), BOX, ("k",)),
    Kernel(
        "triton_matmul_specialised",
        matmul_specialised,
        90,
        dict(a="tensordesc<bf16[128,64]>", b="tensordesc<bf16[64,64]>", c="*bf16", m="i32", n="i32", k="i32"),
        BOX | dict(BM=128),
        ("m", "n", "k"),
    ),
    Kernel("triton_attention_sm80", attention, 80, ATTENTION, KEYS, ("length",)),
    Kernel("triton_attention_sm90", attention, 90, ATTENTION, KEYS, ("length",)),
]
