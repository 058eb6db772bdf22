"""Compiles the kernels beside this file to sim/tests/ptx and writes the index there.

Usage: python build.py [--ptxas PTXAS] with Triton 3.6.0 importable (it needs neither PyTorch nor a GPU) and nvcc of
CUDA 13.0 in PATH or in $NVCC; its headers include those of libcu++. The packages that were used are nvidia-cuda-nvcc,
nvidia-nvvm and nvidia-cuda-crt 13.0.88, nvidia-cuda-runtime 13.0.96, nvidia-cuda-cccl 13.0.85 and triton 3.6.0.
Other versions give other text, which is why the result is committed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "ptx"
WIDTHS = {"8": 1, "16": 2, "32": 4, "64": 8}
# Kernels that nvcc compiles: architecture, block, bytes of dynamic shared memory.
CUDA = {
    "atomics": ("80", [64, 1, 1], 0),
    "attention_f32": ("80", [128, 1, 1], 0),
    "barrier_copy": ("80", [128, 1, 1], 0),
    "bitonic_sort": ("80", [256, 1, 1], 512 * 6),
    "bulk_copy": ("90a", [160, 1, 1], 0),
    "bulk_reduce": ("90a", [64, 1, 1], 0),
    "cluster_reduce": ("90a", [128, 1, 1], 0),
    "coalesced": ("80", [64, 1, 1], 0),
    "collatz": ("80", [128, 1, 1], 0),
    "compact": ("80", [128, 1, 1], 0),
    "dot_i8": ("80", [64, 1, 1], 0),
    "elementary": ("80", [64, 1, 1], 0),
    "half_math": ("80", [64, 1, 1], 0),
    "histogram": ("80", [128, 1, 1], 0),
    "interpreter": ("80", [64, 1, 1], 0),
    "last_block": ("80", [128, 1, 1], 0),
    "layer_norm": ("80", [64, 1, 1], 0),
    "mma_cp_async": ("80", [128, 1, 1], 0),
    "multicast": ("90a", [64, 1, 1], 0),
    "quantise": ("90a", [64, 1, 1], 0),
    "saxpy": ("80", [64, 1, 1], 0),
    "scan": ("80", [256, 1, 1], 0),
    "sgemm_tiled": ("80", [32, 8, 1], 0),
    "softmax_rows": ("80", [128, 1, 1], 0),
    "vector_add": ("80", [128, 1, 1], 0),
    # Three stages of two tiles, the tile of results, six barriers; rounded up to the alignment.
    "wgmma_specialised": ("90a", [256, 1, 1], 58368),
    "wgmma_tma": ("90a", [128, 1, 1], 0),
}


def entry(text):
    """What the text itself says: target, name of the entry, parameters, cluster."""
    name, params = re.search(r"\.visible \.entry (\w+)\((.*?)\)", text, re.S).groups()
    slots = []
    for line in params.strip().splitlines():
        align = re.search(r"\.align (\d+) \.b8", line)
        count = re.search(r"\[(\d+)\]", line)
        width = WIDTHS[re.search(r"\.[usbf](8|16|32|64)\b", line).group(1)]
        size = int(count.group(1)) if count else width
        slots.append({"bytes": size, "align": int(align.group(1)) if align else width})
    cluster = re.search(r"\.reqnctapercluster (\d+), (\d+), (\d+)", text)
    target = re.search(r"^\.target (\w+)", text, re.M).group(1)
    return target, name, slots, [int(d) for d in cluster.groups()] if cluster else [1, 1, 1]


def record(name, source, compiler, text, block, shared, names):
    target, function, slots, cluster = entry(text)
    assert len(names) == len(slots), (name, names, slots)
    return {
        "file": f"{name}.ptx",
        "source": source,
        "compiler": compiler,
        "target": target,
        "entry": function,
        "block": block,
        "cluster": cluster,
        "dynamic_shared": shared,
        "params": [{"name": n} | s for n, s in zip(names, slots)],
    }


def cuda(nvcc, name):
    arch, block, shared = CUDA[name]
    source = HERE / "cuda" / f"{name}.cu"
    to = OUT / f"{name}.ptx"
    flags = ["-ptx", f"-arch=compute_{arch}", "-O3", "-std=c++17", "-DNDEBUG"]
    subprocess.run([nvcc, *flags, source.name, "-o", str(to)], check=True, cwd=source.parent)
    signature = re.search(rf"\b{name}\((.*?)\) \{{", source.read_text(), re.S).group(1)
    names = [p.split()[-1].lstrip("*&") for p in signature.split(",")]
    version = re.search(r"V(\d+\.\d+\.\d+)", to.read_text()).group(1)
    return record(name, f"cuda/{name}.cu", f"nvcc {version}", to.read_text(), block, shared, names)


def triton(kernel):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.function.arg_names
    types = {n: "constexpr" if n in kernel.constants else kernel.types[n] for n in names}
    aligned = [n for n in names if types[n].startswith("*") or n in kernel.multiples]
    source = ASTSource(
        fn=kernel.function,
        signature=types,
        constexprs=kernel.constants,
        attrs={(names.index(n),): [["tt.divisibility", 16]] for n in aligned},
    )
    options = {"num_warps": kernel.warps, "num_stages": kernel.stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", kernel.arch, 32), options=options)
    meta = compiled.metadata
    assert meta.global_scratch_size == meta.profile_scratch_size == 0, kernel.name
    text = compiled.asm["ptx"]
    (OUT / f"{kernel.name}.ptx").write_text(text)
    # A descriptor by value is its map, its shape and its strides; two hidden pointers end the list.
    params = []
    for n in names:
        if types[n].startswith("tensordesc"):
            params += [n, f"{n}.shape0", f"{n}.shape1", f"{n}.stride0", f"{n}.stride1"]
        elif n not in kernel.constants:
            params.append(n)
    params += ["global_scratch", "profile_scratch"]
    compiler = f"triton {triton.__version__}"
    block = [32 * meta.num_warps, 1, 1]
    row = record(kernel.name, "triton/kernels.py", compiler, text, block, meta.shared, params)
    maps = [n for n in names if types[n].startswith("tensordesc")]
    if maps:
        row["tensor_maps"] = {
            n: {"box": m["block_size"][::-1], "element_bytes": m["elem_size"], "swizzle_bytes": 16 << m["swizzle"]}
            for n, m in zip(maps, meta.tensordesc_meta)
        }
    return row


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--ptxas", help="assemble every result with it")
    ptxas = arguments.parse_args().ptxas
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    OUT.mkdir(exist_ok=True)
    rows = [cuda(os.environ.get("NVCC", "nvcc"), name) for name in sorted(CUDA)]
    sys.path.insert(0, str(HERE / "triton"))
    sys.dont_write_bytecode = True
    from kernels import KERNELS

    rows += [triton(kernel) for kernel in KERNELS]
    for row in rows if ptxas else []:
        target = f"-arch={row['target']}"
        subprocess.run([ptxas, target, str(OUT / row["file"]), "-o", os.devnull], check=True)
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    (OUT / "MANIFEST.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
