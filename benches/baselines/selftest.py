"""Checks baselines and references at small sizes; on a CPU all but the baselines that need a GPU.

The oracles are checked too: the Omega rule's dual form in f64 against the rule token by token, gradients against
autograd, attention by blocks of queries against one softmax. Planted mistakes must be seen.
"""

import torch
import torch.nn.functional as F

from baselines import check, layer, memory, omega, oracle, windows, works

# An unfused bf16 chain may miss the bound of one rounding; see `BASELINE_SLACK`.
SLACK = 4.0
EXACT = 1e-12
# The least error that a planted mistake must cause in f64.
SEEN = 1e-6

# Small works, by the group whose baselines they check.
SMALL = {
    "omega_step": [lambda: omega.omega_step(3, 32, 16, 24, 8, 4, "omega_mlp_step_plan")],
    "layer_step": [lambda: layer.layer_step(2, 640, 2, 16, 24, "layer", lambda _: layer.dense)],
    "omega_mlp": [
        lambda: omega.omega_mlp(3, 256, 16, 64, 32, 16),
        lambda: omega.omega_mlp(3, 100, 16, 64, 32, 5),
        lambda: omega.omega_mlp(2, 64, 48, 192, 16, 4),
    ],
    "memory_grad": [lambda: memory.memory_grad(5, 24, 16, 64)],
    "omega_muon_step": [lambda: memory.omega_muon_step(5, 24, 16, 64)],
    "fused_forward": [lambda: memory.fused_forward(2, 3, 40, 16, 64)],
    "muon_step": [lambda: memory.muon_step(3, 32, 128)],
    "windowed_attention": [lambda: windows.windowed_attention(2, 2, 512, 32, 128)],
    "attention_decode": [lambda: windows.attention_decode(3, 8, 2, 160, 32)],
    "window_sum": [lambda: windows.window_sum(3, 64, 20, 8), lambda: windows.window_sum(2, 50, 20, 7)],
    "window_loss": [lambda: windows.window_loss(3, 64, 20, 8)],
    "taylor2": [lambda: works.taylor2(100, 16)],
    "newton_schulz_small": [lambda: works.newton_schulz(4, 16, 64)],
}


class Report:
    def __init__(self):
        self.failed = 0

    def line(self, name, error, bound, above=False):
        """`error` must be within the bound, or above it where a mistake was planted."""
        fine = error > bound if above else error <= bound
        self.failed += not fine
        sign = ">" if above else "<="
        print(f"{'ok  ' if fine else 'FAIL'}  {name}: {error:.1e}, wanted {sign} {bound:.1e}", flush=True)

    def broken(self, name, error):
        self.failed += 1
        print(f"FAIL  {name}: {type(error).__name__}: {error}"[:600], flush=True)


def _apart(outputs, references):
    """The largest relative error of outputs that may be zero."""
    pairs = zip(outputs, references, strict=True)
    return max(check.rel_error(y, lambda part, r=r: r[part], 1 << 30) for y, r in pairs)


def _oracles(report):
    sizes = ((2, 9, 4), (2, 9, 4), (2, 9), (2, 4, 12), (2, 12, 4))
    x, v, weights, w1, w2 = (torch.randn(*size, dtype=torch.float64) for size in sizes)
    with torch.enable_grad():
        w1.requires_grad_()
        w2.requires_grad_()
        loss = (weights * (oracle.read(x, w1, w2) - v).square().sum(-1)).sum() / 2
        right = torch.autograd.grad(loss, (w1, w2))
    report.line("oracle, gradients", _apart(oracle.loss_gradients(x, v, weights, w1, w2), right), EXACT)
    q, k, v = (torch.randn(2, 3, 50, 8, dtype=torch.float64) for _ in range(3))
    for window in (1, 7, 50, 64):
        at = torch.arange(50)[:, None] - torch.arange(50)
        scores = (q @ k.mT * 0.3).masked_fill((at < 0) | (at >= window), float("-inf"))
        found = oracle.window_attention(q, k, v, window, 0.3)
        report.line(f"oracle, attention of window {window}", _apart([found], [F.softmax(scores, -1) @ v]), EXACT)
    x = torch.randn(2, 20, 3, dtype=torch.float64)
    right = torch.stack([x[:, max(0, t - 6) : t + 1].sum(1) for t in range(20)], 1)
    report.line("oracle, window sums", _apart([oracle.window_sums(x, 7)], [right]), EXACT)


def _gates(t, **changed):
    """f64 inputs of the Omega rule for two heads, with gates large enough that each of them matters."""
    b, c = changed.pop("b"), changed.pop("c")
    args = [x.double().cpu() for x in omega.inputs(2, t, 8, 32, b, c)]
    args[3] = torch.rand_like(args[3]) * 0.5 + 0.5
    args[5] = torch.rand_like(args[5]) * 0.05
    for i, name in enumerate(("alpha", "theta", "eta", "gamma")):
        if name in changed:
            args[3 + i] = changed[name](args[3 + i])
    return args


def _some_zero(x):
    x = x.clone()
    x[:, 5::7] = 0
    return x


def _omega(report):
    cases = {
        "a tail, the window within a chunk": dict(t=23, b=8, c=5),
        "the window longer than a chunk": dict(t=23, b=4, c=9),
        "the window longer than all": dict(t=23, b=4, c=40),
        "one token a chunk": dict(t=20, b=1, c=4),
        "a window of one": dict(t=20, b=4, c=1),
        "a chunk longer than all": dict(t=9, b=16, c=3),
        "one token": dict(t=1, b=4, c=4),
        "alpha 0 within a chunk": dict(t=23, b=8, c=5, alpha=_some_zero),
        "theta 0": dict(t=23, b=8, c=5, theta=torch.zeros_like),
        "gamma 0 for whole windows": dict(t=23, b=8, c=5, gamma=_some_zero),
        "eta 0": dict(t=23, b=8, c=5, eta=torch.zeros_like),
    }
    for name, case in cases.items():
        b = case["b"]
        args = _gates(**case)
        report.line(f"omega in f64, {name}", _apart(omega.omega(*args, b), oracle.omega(*args, b)), EXACT)
    args = _gates(t=64, b=16, c=5)
    right = oracle.omega(*args, 16)
    halo_less = args[6].clone()
    for t in range(64):
        halo_less[:, t, t % 16 + 1 :] = 0
    planted = {
        "no halo": ((*args[:6], halo_less, *args[7:]), 16),
        "gamma reversed": ((*args[:6], args[6].flip(-1), *args[7:]), 16),
        "another chunk": (args, 8),
        "theta and alpha swapped": ((*args[:3], args[4], args[3], *args[5:]), 16),
    }
    for name, (changed, b) in planted.items():
        report.line(f"omega in f64, planted: {name}", _apart(omega.omega(*changed, b)[:1], right[:1]), SEEN, above=True)


def _baselines(report, group, compiles):
    for make in SMALL.get(group, []):
        work = make()
        for baseline in work.baselines:
            name = f"{work.name} {work.shape} {baseline.name}"
            if baseline.name == "copy beside it" or (baseline.compiles and not compiles):
                continue
            if baseline.gpu and not torch.cuda.is_available():
                print(f"left  {name}: needs a GPU")
                continue
            try:
                made = baseline.make()
                fn = made[0] if isinstance(made, tuple) else made
                work.reset()
                error = check.rel_error(fn(), work.reference, work.rows)
                report.line(name, error, work.tolerance * SLACK)
            except Exception as error:
                report.broken(name, error)


def run(only, no_compile):
    """The exit status."""
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    report = Report()
    if not only:
        _oracles(report)
    if not only or "omega_mlp" in only:
        _omega(report)
    for group in only or SMALL:
        _baselines(report, group, not no_compile)
    print(f"{report.failed} failed" if report.failed else "all passed")
    return 1 if report.failed else 0
