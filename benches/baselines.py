#!/usr/bin/env python3
"""Times PyTorch, torch.compile and Triton, and Atlas between them, on one GPU in one run.

    python3 benches/baselines.py --out baselines.json --atlas target/release/atlas
    python3 benches/baselines.py --self-test

Every output is checked against an f64 reference in the same run. A baseline that fails is a line in the result, not the
end of the run. The JSON is written after every work, so that nothing measured is lost.
"""

import argparse
import gc
import json
import math
import statistics
import sys
import time

# Write no __pycache__ folders beside the sources.
sys.dont_write_bytecode = True

import torch

from baselines import check, selftest, timing, works
from baselines.atlas import Atlas, find
from baselines.work import rates

# An unfused bf16 chain rounds after each operation, and may miss the bound of one rounding. It still counts as a
# baseline up to this multiple of the bound.
BASELINE_SLACK = 4.0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FILE", help="where the JSON goes")
    parser.add_argument("--self-test", action="store_true", help="check baselines at small sizes; needs no GPU")
    parser.add_argument("--atlas", metavar="COMMAND", help="the atlas command line; without it only baselines are timed")
    parser.add_argument("--only", metavar="NAME", action="append", choices=sorted(works.GROUPS), help="only this group")
    parser.add_argument("--rounds", type=int, default=3, help="how often baselines and Atlas alternate")
    parser.add_argument("--runs", type=int, default=40, help="timed runs of a baseline in each round")
    parser.add_argument("--seconds", type=float, default=20, metavar="S", help="seconds of a baseline's runs in each round")
    parser.add_argument("--baseline-limit", type=float, default=75, metavar="S", help="seconds to prepare one baseline")
    parser.add_argument("--compile-budget", type=float, default=200, metavar="S", help="seconds to compile in all")
    parser.add_argument("--atlas-limit", type=float, default=120, metavar="S", help="seconds for one call of atlas")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--skip", metavar="TEXT", action="append", default=[], help="leave out baselines with this in their name")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not options.out and not options.self_test:
        parser.error("--out: say where the JSON goes")
    if options.runs < 30:
        parser.error("--runs: a median needs at least 30")
    return options


def say(text):
    print(text, file=sys.stderr, flush=True)


def finite(value):
    """JSON has no infinity."""
    return value if value is None or math.isfinite(value) else str(value)


class Run:
    def __init__(self, options):
        self.options = options
        self.atlas = Atlas(options.atlas, options.atlas_limit) if options.atlas else None
        self.compile_left = options.compile_budget
        # Paths are meaningless on another machine.
        kept = {k: v for k, v in vars(options).items() if k not in ("out", "atlas", "self_test")}
        self.result = {"record": timing.record(), "options": kept, "works": []}

    def save(self):
        with open(self.options.out, "w", encoding="utf-8") as file:
            json.dump(self.result, file, indent=1)
            file.write("\n")

    def prepare(self, work, baseline):
        """A row for the baseline and, if it works, its callable."""
        row = {"name": baseline.name}
        limit = self.options.baseline_limit
        if any(text in baseline.name for text in self.options.skip):
            return {**row, "error": "left out by --skip"}, None
        if baseline.compiles:
            if self.options.no_compile:
                return {**row, "error": "left out by --no-compile"}, None
            if self.compile_left <= 0:
                return {**row, "error": "the budget for compiling was spent"}, None
            limit = min(limit, self.compile_left)
        start = time.monotonic()
        fn = None
        try:
            with timing.limited(limit):
                made = baseline.make()
                fn, note = made if isinstance(made, tuple) else (made, None)
                # The preparation may have run it.
                work.reset()
                output = fn()
                torch.cuda.synchronize()
            row["prepare_s"] = round(time.monotonic() - start, 1)
            if note:
                row["note"] = note
            error = check.rel_error(output, work.reference, work.rows)
            row["rel_err"] = finite(error)
            row["within_tolerance"] = error <= work.tolerance
            row["counts"] = error <= work.tolerance * BASELINE_SLACK
        except (Exception, timing.WallLimit) as error:
            row["error"] = f"{type(error).__name__}: {error}"[:800]
            fn = None
            if baseline.compiles:
                torch._dynamo.reset()
        # Without the time of the reference.
        row.setdefault("prepare_s", round(time.monotonic() - start, 1))
        if baseline.compiles:
            self.compile_left -= row["prepare_s"]
        return row, fn

    def measure(self, work, row, fn):
        try:
            work.reset()
            with timing.limited(self.options.baseline_limit):
                median, runs = timing.median(fn, self.options.runs, self.options.seconds)
            row.setdefault("rounds_ms", []).append(median)
            row["runs"] = runs
        except (Exception, timing.WallLimit) as error:
            row["error"] = f"{type(error).__name__}: {error}"[:800]

    def group(self, name):
        """Prepares a group's baselines, then lets them and Atlas take turns."""
        made = [make() for make in works.GROUPS[name]]
        entries = []
        for work in made:
            rows = []
            for baseline in work.baselines:
                row, fn = self.prepare(work, baseline)
                say(f"  {name} {work.shape} {baseline.name}: {row.get('error', 'ready')} ({row.get('prepare_s', 0)} s)")
                rows.append((row, fn))
            entries.append((work, rows, {"rounds_ms": []}))
        timing.warm()
        for turn in range(self.options.rounds):
            for work, rows, _ in entries:
                for row, fn in rows:
                    if fn is not None and "error" not in row:
                        self.measure(work, row, fn)
            self.ask_atlas(entries)
            say(f"  {name}: round {turn + 1} of {self.options.rounds}")
        for work, rows, atlas in entries:
            self.result["works"].append(self.conclude(work, [row for row, _ in rows], atlas))
        self.save()

    def ask_atlas(self, entries):
        if self.atlas is None or all(work.atlas is None for work, _, _ in entries):
            return
        for work, _, atlas in entries:
            if work.atlas is None:
                continue
            value = self.atlas.bench(work.atlas)
            if isinstance(value, str):
                atlas["error"] = value
                continue
            found = find(value, work)
            if found is None or found.get("median_ms") is None:
                atlas["error"] = f"no result for {work.atlas} {work.shape} {work.dtype}"
                continue
            # Baselines are timed in graphs as well, and the best time of each side counts.
            recorded = (found.get("graph") or {}).get("median_ms")
            atlas["in_a_graph"] = recorded is not None and recorded < found["median_ms"]
            atlas["rounds_ms"].append(min(found["median_ms"], recorded or found["median_ms"]))
            atlas.update({k: v for k, v in found.items() if k not in ("name", "shape", "dtype", "median_ms")})
            atlas["machine"] = value.get("record")

    def conclude(self, work, rows, atlas):
        for row in rows:
            if row.get("rounds_ms"):
                row["median_ms"] = statistics.median(row["rounds_ms"])
                row.update(rates(work, row["median_ms"]))
        entry = {
            "name": work.name,
            "shape": work.shape,
            "dtype": work.dtype,
            "tolerance": work.tolerance,
            "bytes": work.bytes,
            "flops": work.flops,
            "clocks": timing.clocks(),
            "baselines": rows,
        }
        able = [r for r in rows if r.get("median_ms") and r.get("counts") and "error" not in r]
        best = min(able, key=lambda r: r["median_ms"], default=None)
        if best:
            entry["best_baseline"] = {"name": best["name"], "median_ms": best["median_ms"]}
        if atlas["rounds_ms"]:
            atlas["median_ms"] = statistics.median(atlas["rounds_ms"])
            atlas.update(rates(work, atlas["median_ms"]))
            bound = atlas.get("tolerance", work.tolerance)
            atlas["correct"] = isinstance(atlas.get("rel_err"), (int, float)) and atlas["rel_err"] <= bound
            if best:
                entry["ratio"] = best["median_ms"] / atlas["median_ms"]
        if len(atlas) > 1 or atlas["rounds_ms"]:
            entry["atlas"] = atlas
        return entry


def table(entries):
    """Work, shape, Atlas, the best baseline, how many times faster Atlas is, and both as parts of the copy's rate."""
    copied = next((e["best_baseline"]["median_ms"] for e in entries if e["name"] == "copy" and "best_baseline" in e), None)
    rate = next((e["bytes"] / copied for e in entries if e["name"] == "copy"), None) if copied else None
    lines = [("work", "shape", "atlas ms", "best baseline", "baseline ms", "ratio", "atlas/copy", "")]
    for e in entries:
        atlas, best = e.get("atlas", {}), e.get("best_baseline", {})
        ms = atlas.get("median_ms")
        note = atlas.get("error", "")[:60] if not ms else "" if atlas.get("correct") else "WRONG RESULT"
        lines.append((
            e["name"],
            e["shape"],
            f"{ms:.5f}" if ms else "-",
            best.get("name", "none"),
            f"{best['median_ms']:.5f}" if best else "-",
            f"{e['ratio']:.3f}" if "ratio" in e else "-",
            f"{e['bytes'] / ms / rate:.3f}" if ms and rate else "-",
            note,
        ))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines)


def main():
    options = arguments()
    if options.self_test:
        return selftest.run(options.only, options.no_compile)
    if not torch.cuda.is_available():
        print("error: PyTorch sees no CUDA GPU here", file=sys.stderr)
        return 1
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    run = Run(options)
    start = time.monotonic()
    for name in options.only or works.GROUPS:
        say(f"{name} ({time.monotonic() - start:.0f} s)")
        try:
            run.group(name)
        except Exception as error:
            run.result["works"].append({"name": name, "shape": "", "dtype": "", "error": f"{type(error).__name__}: {error}"[:800]})
            say(f"  {name}: {error}")
        # The limit on recompilations of a function would otherwise count all shapes.
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
    run.result["record"]["at_end"] = timing.clocks()
    run.result["record"]["seconds"] = round(time.monotonic() - start, 1)
    run.save()
    print(table([e for e in run.result["works"] if "error" not in e]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
