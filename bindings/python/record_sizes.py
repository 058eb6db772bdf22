"""Writes `sizes.toml`: the launches of the package's functions at the sizes of models, for which the bundle of a wheel has kernels.

    python record_sizes.py --library target/release/libatlas_c.so --atlas target/release/atlas    # writes it anew
    python record_sizes.py --library target/debug/libatlas_c.so --check    # whether it lacks a kernel that a function launches

It runs the functions and their backward passes with NumPy, on the CPU: once for the CPU, and once in the place of each of a few GPUs, which take
other kernels where those leave them idle, or where they have no room (`ATLAS_RECORD_SIZES_AS`). Two things are not seen there, and are added:
bfloat16, which NumPy does not have, and large matrices, which take long on the CPU.

Arrays are views that promise little: their rows are apart by multiples of 8 elements, and numbers for each token by any number. Kernels for such
views serve contiguous arrays too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
SIZES = HERE / "sizes.toml"
HEADER = "# The launches that the bundle of a wheel has kernels for. Written by record_sizes.py.\n"
TYPES = ("float32", "float16")
MEMORIES = ("linear", "mlp", "gated", "normed")
# The shorter sides of matrices, which the kernel that divides by the norm holds whole. No other kernel does.
SIDES = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
# GPUs that take kernels of their own for a memory: by their room (99 and 227 KiB), and with clusters.
GPUS = ("sm_86", "sm_90a")


class Row(NamedTuple):
    """A launch, as `atlas bundle --sizes` reads it."""

    kernel: str
    types: str
    dims: str
    tensors: str

    def sizes(self) -> dict[str, int]:
        return {name: int(size) for name, _, size in (pair.partition("=") for pair in self.dims.split())}


@dataclass(frozen=True)
class Sizes:
    """What functions are called with. Kernels hold the elements of rows and heads whole, and the tokens of a chunk with their keys, so they
    are compiled for each. Of all other dims only divisors matter."""

    rows: tuple[int, ...]
    heads: tuple[int, ...]
    # Heads with a memory, which has four times as many hidden elements.
    keys: tuple[int, ...]
    features: tuple[int, ...]
    # Both sides of small matrices, which one program holds, and of others.
    small_matrices: tuple[int, ...]
    matrices: tuple[int, ...]
    # Heads that share a key.
    groups: tuple[int, ...]
    # Heads of packed documents, and of sequences without residuals.
    counts: tuple[int, ...]
    windows: tuple[int, ...]
    tokens: int
    chunk: int
    # Keys and hidden elements of a memory that no kernel holds whole.
    wide: tuple[int, int]
    # The window, chunk, key and hidden elements of the memory in the notebook: a small one, for which a rule may take other kernels.
    notebook: tuple[int, int, int, int]
    # The chunks of a sequence.
    chunks: int


# Numbers of tokens are odd: kernels that promise nothing about them serve all numbers.
OF_MODELS = Sizes(
    rows=(64, 128, 256, 512, 768, 1024, 2048, 4096, 8192),
    heads=(32, 64, 128),
    keys=(64, 128),
    features=(16, 32, 64),
    small_matrices=(16, 32, 64),
    matrices=(80, 144, 257),
    groups=(1, 4, 8),
    counts=(1, 2, 4, 8, 12, 16, 32),
    windows=(16,),
    tokens=257,
    chunk=64,
    wide=(320, 256),
    notebook=(2, 32, 32, 64),
    chunks=9,
)
# These take little time. The chunk is the shortest whose passes a GPU launches one by one, and the memory the smallest that clusters train.
SMALL = Sizes(
    rows=(8,), heads=(8,), keys=(24,), features=(4,), small_matrices=(4,), matrices=(80, 144), groups=(2,), counts=(2,), windows=(2,), tokens=12, chunk=32,
    wide=(320, 16), notebook=(2, 4, 8, 16), chunks=3,
)  # fmt: skip


def empty(dtype: str, *shape: int) -> Any:
    return np.zeros(shape, dtype)


def apart(dtype: str, *shape: int) -> Any:
    """Rows with a gap between them, as those of a slice."""
    return empty(dtype, *shape[:-1], shape[-1] + 8)[..., : shape[-1]]


def gates(b: int, n: int, h: int, window: int) -> tuple[Any, Any]:
    """One number for each token and head, and one for each token of a window, as slices of one projection."""
    every = empty("float32", b, n, h, window + 3)
    return every[..., 1], every[..., 3:]


def rows(of: Sizes) -> None:
    import atlas_gpu as atlas
    from atlas_gpu import _launch
    from atlas_gpu._arrays import NumPy

    for dtype in TYPES:
        for d in of.rows:
            x, w = apart(dtype, of.tokens, d), empty(dtype, d)
            atlas.softmax(x), atlas.log_sum_exp(x), atlas.rms_norm(x, w)
            _launch.rms_norm_backward(NumPy, apart(dtype, *x.shape), x, w, 1e-6)
            for count in range(1, 5):
                atlas.poly_features(x, [1.0] * count)
        atlas.log_sum_exp(apart(dtype, of.tokens, 257))
        for d in of.features:
            atlas.taylor2_features(apart(dtype, of.tokens, d))
        for d in of.heads:
            x, angles = apart(dtype, of.tokens, 3, d), apart(dtype, of.tokens, d // 2)
            for interleaved in (False, True):
                atlas.rotary(x, angles, angles, interleaved=interleaved)


def attention(of: Sizes) -> None:
    import atlas_gpu as atlas
    from atlas_gpu import _launch
    from atlas_gpu._arrays import NumPy

    n = of.tokens
    for dtype in TYPES:
        for d in of.heads:
            q, k = apart(dtype, 3, n, 6, d), apart(dtype, 3, n, 3, d)
            lse = empty("float32", 3, 6, n)
            # One for each token, and one for all where none is given.
            firsts = (empty("int32", 3, n), NumPy.full(q, (3, n), 0, "int32"))
            for s in (0, 17):
                prefix = empty(dtype, 3, s, d)
                for first in firsts:
                    atlas.windowed_attention(q, k, k, 64, prefix=(prefix, prefix), first=first)
                    _launch.windowed_attention_backward(NumPy, q, q, k, k, prefix, prefix, first, q, lse, 64, 1.0)
            for group in of.groups:
                atlas.attention_decode(apart(dtype, 3, 3, group, d), k, k, empty("int32", 3))


def matrices(of: Sizes) -> None:
    import atlas_gpu as atlas
    from atlas_gpu import _launch
    from atlas_gpu._arrays import NumPy

    for dtype in TYPES:
        for d in of.heads:
            for hidden in (4 * d, 4 * d + 1):
                x, w2, w1 = apart(dtype, 3, of.tokens, d), empty(dtype, 3, hidden, d), empty(dtype, 3, d, hidden)
                atlas.memory_read(x, w2, w1, x)
                _launch.memory_read_backward(NumPy, x, x, w2, w1)
        for sides in (of.small_matrices, of.matrices):
            for m, n in itertools.product(sides, sides):
                for given in {dtype, "float32"}:
                    for restart in (0, 2):
                        atlas.newton_schulz(empty(given, 3, m, n), dtype=dtype, restart=restart)


def memories(of: Sizes) -> None:
    for dtype in TYPES:
        for d in of.keys:
            for window in of.windows:
                for memory in MEMORIES:
                    rule_of(dtype, memory, (window, of.chunk, d, 4 * d), of.chunks, d == of.keys[0])
        for memory in MEMORIES:
            rule_of(dtype, memory, (of.windows[0], of.chunk, *of.wide), of.chunks, False)
        for d in of.heads:
            for heads in of.counts:
                documents(of, dtype, heads, d)
    for memory in MEMORIES:
        rule_of("float32", memory, of.notebook, of.chunks, False)


def rule_of(dtype: str, memory: str, sizes: tuple[int, int, int, int], chunks: int, with_muon: bool) -> None:
    """The launches of a rule. A small GPU has no room for some."""
    try:
        calls_of(dtype, memory, sizes, chunks, with_muon)
    except ValueError as error:
        if not os.environ.get("ATLAS_RECORD_SIZES_AS") or "no room" not in str(error):
            raise
        print(f"{os.environ['ATLAS_RECORD_SIZES_AS']}: {error}", file=sys.stderr)


def calls_of(dtype: str, memory: str, sizes: tuple[int, int, int, int], chunks: int, with_muon: bool) -> None:
    """Whole sequences with gradients, and pieces. Odd numbers of heads and of chunks promise nothing."""
    import atlas_gpu as atlas
    from atlas_gpu import _omega
    from atlas_gpu._arrays import NumPy

    window, chunk, d, m = sizes
    for step in _omega.STEPS if with_muon else ("descent",):
        # A step of Muon for each token takes long, and its kernels depend on no number of chunks.
        is_long = step == "muon_by_token"
        b, n, h = (1, chunk - 1, 1) if is_long else (3, chunks * chunk - 1, 3)
        x, (gate, gamma) = apart(dtype, b, n, h, d), gates(b, n, h, window)
        shapes = {"linear": [(d, d)], "gated": [(d, m), (m, d), (m, d)]}.get(memory, [(d, m), (m, d)])
        state = [empty("float32", b, h, *shape) for shape in shapes]
        norm = empty(dtype, h, d) if memory == "normed" else None
        before = step == "muon_by_chunk"
        given = {"memory": memory, "step": step, "chunk": chunk, "norm": norm}
        # Residuals for each token, and one zero for all where none are given.
        for residual in (x, NumPy.full(x, x.shape, 0.0)):
            residuals = {"residual_q": residual, "residual_k": residual}
            atlas.omega(x, x, x, gate, gate, gate, gamma, state, state, **residuals, **given)
            with atlas.OmegaStream(state, state, piece=min(n, 2 * chunk), before=before, **given) as stream:
                for piece in (slice(0, n // 2), slice(n // 2, n // 2 + 1)):
                    part = [t[:, piece] for t in (x, x, x, gate, gate, gate, gamma)]
                    stream.push(*part, residual_q=residual[:, piece], residual_k=residual[:, piece])
            if not is_long:
                tokens = [x, x, x, residual, residual, gate, gate, gate, gamma]
                rule = _omega.Rule(memory, step, chunk, before, 2.0, True, 1e-6)
                # A segment is the only one, or the first, between others, or the last. Views of one chunk are views of their own.
                for segment in sorted({chunks, math.isqrt(chunks), 1}):
                    y, *last, kept = _omega.omega_training(NumPy, tokens, state, state, norm, rule, segment)
                    by_last = [*last[0], *last[1]]
                    _omega.omega_training_backward(NumPy, apart(dtype, *y.shape), by_last, tokens, norm, kept, rule, segment)

def documents(of: Sizes, dtype: str, heads: int, d: int) -> None:
    """Packed documents, and a sequence without residuals, which is copied: kernels that hold the heads of a token whole."""
    import atlas_gpu as atlas

    n, window = 4 * of.chunk - 1, of.windows[0]
    x, (gate, gamma) = apart(dtype, 1, n, heads, d), gates(1, n, heads, window)
    state = [empty("float32", 2, heads, d, d)]
    starts = np.array([0, of.chunk, n], np.int32)
    given = {"memory": "linear", "chunk": of.chunk}
    tokens = (x, x, x, gate, gate, gate, gamma)
    atlas.omega_packed(*tokens, starts, state, state, longest=n - of.chunk, residual_q=x, residual_k=x, **given)
    atlas.omega_packed(*tokens, starts, state, state, longest=n - of.chunk, **given)
    atlas.omega(*tokens, [s[:1] for s in state], [s[:1] for s in state], **given)


PARTS = {part.__name__: part for part in (rows, attention, matrices, memories)}


def recorded(part: str, is_small: bool, gpu: str = "") -> Iterator[Row]:
    """The launches of a part, which runs in a process of its own: on the CPU, or in the place of a GPU."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sizes.toml"
        command = [sys.executable, __file__, "--part", part, *(["--small"] if is_small else [])]
        subprocess.run(command, check=True, env={**os.environ, "ATLAS_RECORD_SIZES": str(file), "ATLAS_RECORD_SIZES_AS": gpu})
        yield from read(file)


def read(file: Path) -> Iterator[Row]:
    """The launches in a file that a program or this one wrote."""
    for table in file.read_text().split("[[launch]]")[1:]:
        found = dict(re.findall(r'^(\w+) = "(.*)"$', table, re.MULTILINE))
        yield Row(*(found.get(key, "") for key in Row._fields))


def as_slices(row: Row) -> Row:
    """The CPU does not tell how an address is aligned. Numbers for each token begin anywhere in a projection."""
    return row._replace(tensors=re.sub(r"\b(alpha|theta|eta|gamma)=16:", r"\1=4:", row.tensors))


def as_bfloat16(row: Row) -> Row:
    return row._replace(types=row.types.replace("=f16", "=bf16"))


class Signatures:
    """The tensors of kernels, and their dims, from the signatures of the library; and the dims that kernels hold whole, of which the program
    `atlas` knows."""

    def __init__(self, atlas: str | None) -> None:
        import atlas_gpu

        self._signature = atlas_gpu.signature
        listed = subprocess.run([atlas, "list", "--json"], check=True, capture_output=True).stdout if atlas else "[]"
        self.whole = {kernel["name"]: {dim["name"] for dim in kernel["dims"] if dim["whole"]} for kernel in json.loads(listed)}

    def tensors(self, kernel: str) -> dict[str, list[str]]:
        found = re.findall(r"(\w+): &(?:mut )?Tensor<\w+, \[([^]]*)\]>", self._signature(kernel))
        return {name: dims.split(", ") for name, dims in found}


def divisor(size: int) -> int:
    return min(size & -size, 128)


def longer(row: Row, side: int) -> Row:
    """The same of a matrix with another shorter side. The other side is divided by the same numbers as before."""
    sizes = row.sizes()
    sizes.update(M=side, N=sizes["N"] + -(-side // 128) * 128)
    return row._replace(dims=" ".join(f"{dim}={size}" for dim, size in sizes.items()))


def all_rows(is_small: bool, known: Signatures) -> set[Row]:
    found = {row for part in PARTS for row in recorded(part, is_small)}
    found.update(row for gpu in GPUS for row in recorded("memories", is_small, gpu))
    for row in list(found):
        if row.kernel == "ns_normalise" and row.sizes()["M"] == 80 and row.sizes()["N"] == 144:
            found.update(longer(row, side) for side in SIDES)
    found = {as_slices(row) for row in found}
    found |= {as_bfloat16(row) for row in found}
    # The kernels of memories are by far the most, and few models are trained in float16.
    return {row for row in found if not (row.kernel.startswith(("omega", "memory_recall")) and "=f16" in row.types)}


def fewest(rows: set[Row], known: Signatures) -> set[Row]:
    """The launches whose kernels serve all of them. Two that differ by what divides a dim take one kernel if the dim is the last axis of no
    tensor: then it does not decide how rows are aligned, and the kernel that promises less is as fast."""

    kept: dict[Any, list[tuple[list[int], Row]]] = {}
    for row in sorted(rows):
        last = {dims[-1] for dims in known.tensors(row.kernel).values()}
        fixed, free = [], []
        for dim, size in row.sizes().items():
            if dim in known.whole[row.kernel]:
                fixed.append(size)
            elif dim in last:
                fixed.append(divisor(size))
            else:
                free.append(divisor(size))
        key = row.kernel, row.types, row.tensors, tuple(fixed)
        others = kept.setdefault(key, [])
        if not any(all(theirs <= own for theirs, own in zip(other, free)) for other, _ in others):
            others[:] = [(other, r) for other, r in others if not all(own <= theirs for own, theirs in zip(free, other))]
            others.append((free, row))
    return {row for others in kept.values() for _, row in others}


def write(rows: set[Row], file: Path) -> None:
    def table(row: Row) -> str:
        return "[[launch]]\n" + "".join(f'{key} = "{value}"\n' for key, value in zip(Row._fields, row) if value)

    file.write_text(HEADER + "\n".join(map(table, sorted(rows))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--library", help="the library that runs the functions; without it, that of ATLAS_GPU_LIBRARY")
    parser.add_argument("--atlas", help="the program `atlas`, which knows the dims that kernels hold whole; not for --check")
    parser.add_argument("--check", action="store_true", help="say which kernels the file lacks, and write none")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--small", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.library:
        os.environ["ATLAS_GPU_LIBRARY"] = str(Path(args.library).resolve())
    if args.part:
        PARTS[args.part](SMALL if args.small else OF_MODELS)
        return
    if not args.check and not args.atlas:
        parser.error("--atlas is needed to write the file")
    known = Signatures(args.atlas)
    rows = all_rows(args.check, known)
    if not args.check:
        rows = fewest(rows, known)
        write(rows, SIZES)
        print(f"{len(rows)} launches of {len({row.kernel for row in rows})} kernels are in {SIZES}")
        return
    kept = {(row.kernel, row.types) for row in read(SIZES)}
    lacking = sorted({(row.kernel, row.types) for row in rows} - kept)
    if lacking:
        named = ", ".join(" ".join(filter(None, pair)) for pair in lacking)
        sys.exit(f"{SIZES} lacks launches that functions of the package make: {named}; run record_sizes.py without --check")
    print(f"{SIZES} has the {len({row.kernel for row in rows})} kernels that functions launch")


if __name__ == "__main__":
    main()
