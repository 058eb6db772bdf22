"""Draws docs/src/roofline.svg: time of kernels against the bytes they move, beside the roofline of the GPU.

The times are those of the configs that Atlas chose on an H200: of random sizes in benches/results/h200-choice.json, and of the sizes of
`atlas bench` in benches/results/h200-bench.json, which also has the measured rate of a copy. Run it again after either file changes:

    python3 benches/picture.py
"""

import json
import math
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches" / "results"
OUT = ROOT / "docs" / "src" / "roofline.svg"

# Kernels that read [N, D] once and write it once in bf16: four bytes per element.
KERNELS = {"softmax": "#1f6fb4", "rms_norm": "#c8501e", "poly3": "#2a8f5a"}
BYTES_PER_ELEMENT = 4

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 46, 50
BYTES = (4e6, 4e9)
MICROSECONDS = (1.0, 1e3)


def points():
    """Kernel, bytes, microseconds; and the rate of a copy in bytes per microsecond."""
    choice = json.loads((RESULTS / "h200-choice.json").read_text())
    bench = json.loads((RESULTS / "h200-bench.json").read_text())
    found = []
    for work in choice["works"]:
        name, _, dims = work["name"].partition(" ")
        found.append((name, dims or work["dims"], work["chosen"] * 1e3))
    for work in bench["results"]:
        found.append((work["name"], work["shape"], work["median_ms"] * 1e3))
    out = []
    for name, dims, time in found:
        sizes = [int(n) for n in re.findall(r"\b[ND]=?(\d+)", dims)]
        if name in KERNELS and len(sizes) == 2:
            out.append((name, math.prod(sizes) * BYTES_PER_ELEMENT, time))
    return out, bench["record"]["copy_gb_s"] * 1e3


def scale(value, ends, low, high):
    share = math.log(value / ends[0]) / math.log(ends[1] / ends[0])
    return low + share * (high - low)


def x(value):
    return scale(value, BYTES, LEFT, WIDTH - RIGHT)


def y(value):
    return scale(value, MICROSECONDS, HEIGHT - BOTTOM, TOP)


def text(at_x, at_y, words, anchor="middle", more=""):
    return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}"{more}>{words}</text>'


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def axes():
    grid = 'stroke="#d8d8d8"'
    out = []
    for value, label in ((1e7, "10 MB"), (1e8, "100 MB"), (1e9, "1 GB")):
        out.append(line(x(value), TOP, x(value), HEIGHT - BOTTOM, grid))
        out.append(text(x(value), HEIGHT - BOTTOM + 18, label))
    for value in (1, 10, 100, 1000):
        out.append(line(LEFT, y(value), WIDTH - RIGHT, y(value), grid))
        out.append(text(LEFT - 8, y(value) + 4, f"{value} µs", "end"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "bytes that the kernel has to move"))
    return out


def drawing():
    found, rate = points()
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
        "<title>Time of three kernels against the bytes they move, on an NVIDIA H200</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(LEFT, 20, "Time on one NVIDIA H200, bf16, L2 flushed, configs that Atlas chose", "start", ' font-weight="bold"'),
    ]
    out += axes()
    low, high = max(BYTES[0], MICROSECONDS[0] * rate), BYTES[1]
    out.append(line(x(low), y(low / rate), x(high), y(high / rate), 'stroke="#333333" stroke-width="2"'))
    label = f"roofline: the rate of a copy, {rate / 1e6:.2f} TB/s"
    out.append(text(x(1e9), y(1e9 / rate) + 90, label))
    for n, (name, colour) in enumerate(KERNELS.items()):
        for _, moved, time in (p for p in found if p[0] == name):
            out.append(f'<circle cx="{x(moved):.1f}" cy="{y(time):.1f}" r="4.5" fill="{colour}" fill-opacity="0.85"/>')
        at = TOP + 18 + 20 * n
        out.append(f'<circle cx="{LEFT + 18}" cy="{at - 4}" r="4.5" fill="{colour}"/>')
        out.append(text(LEFT + 30, at, name, "start"))
    return "\n".join(out + ["</svg>"]) + "\n"


if __name__ == "__main__":
    picture = drawing()
    assert len(picture.encode()) <= 30 * 1024
    OUT.write_text(picture)
    print(f"wrote {OUT.relative_to(ROOT)}")
