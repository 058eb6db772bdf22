"""Calls every function of the package on arrays of NumPy and compares with plain loops in f64: `python check_numpy.py`, with the wheel
and numpy installed, and without PyTorch; `--bundle` if the wheel has a bundle."""

import copy
import math
import sys
import threading
from pathlib import Path

import numpy as np

import atlas_gpu as atlas

rng = np.random.default_rng(1)
F32 = 2e-6


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def close(found, wanted, bound):
    assert found.shape == wanted.shape, f"{found.shape}, not {wanted.shape}"
    if wanted.size:
        error = np.abs(found.astype(np.float64) - wanted).max() / max(np.abs(wanted).max(), 1e-30)
        assert error <= bound, f"error {error:.1e}, bound {bound:.1e}"


def raises(kind, part, call, *args, **kwargs):
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    try:
        call(*args, **kwargs)
    except kind as error:
        assert "error[ATL" in str(error) and part in str(error), str(error)
    else:
        raise AssertionError(f"no {kind.__name__} of {call.__name__}")
    for now, then in zip(args, before):
        assert not isinstance(now, np.ndarray) or (now == then).all()


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


gelu = np.vectorize(lambda z: 0.5 * z * (1 + math.erf(z / math.sqrt(2))), otypes=[np.float64])


def rows():
    for shape in [(5, 7), (1, 1), (2, 3, 33), (9,), (0, 4)]:
        for dtype, bound in [(np.float32, F32), (np.float16, 2e-3)]:
            x = normal(*shape, dtype=dtype)
            long = x.astype(np.float64)
            close(atlas.softmax(x), softmax(long) if x.size else long, bound)
            wanted = np.log(np.exp(long).sum(axis=-1))
            close(atlas.log_sum_exp(x), wanted, bound)
            w = normal(shape[-1], dtype=dtype)
            wanted = long / np.sqrt((long**2).mean(axis=-1, keepdims=True) + 1e-3) * w
            close(atlas.rms_norm(x, w, 1e-3), wanted, bound)
            a = [0.5, -0.25, 0.125, 1.5]
            for count in range(1, 5):
                wanted = sum(a[i] * long ** (i + 1) for i in range(count))
                close(atlas.poly_features(x, a[:count]), wanted, bound)
            pairs = (long[..., :, None] * long[..., None, :] / math.sqrt(2)).reshape(*shape[:-1], shape[-1] ** 2)
            close(atlas.taylor2_features(x), np.concatenate([np.ones((*shape[:-1], 1)), long, pairs], axis=-1), bound)
    # Strides: every other column of the transpose.
    x = normal(12, 9).T[:, ::2]
    close(atlas.softmax(x), softmax(x.astype(np.float64)), F32)


def rotary():
    x, angle = normal(2, 5, 3, 8), rng.uniform(-3, 3, (5, 4))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    c, s = (a.astype(np.float64)[None, :, None, :] for a in (cos, sin))
    halves = np.concatenate([x[..., :4] * c - x[..., 4:] * s, x[..., 4:] * c + x[..., :4] * s], axis=-1)
    close(atlas.rotary(x, cos, sin), halves, F32)
    close(atlas.rotary(x[0], cos, sin), halves[0], F32)
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = np.stack([even * c - odd * s, odd * c + even * s], axis=-1).reshape(x.shape)
    close(atlas.rotary(x, cos, sin, interleaved=True), pairs, F32)


def attention():
    b, m, n, h, j, d, s, window = 2, 6, 9, 4, 2, 8, 3, 4
    q, k, v = normal(b, m, h, d), normal(b, n, j, d), normal(b, n, j, d)
    prefix = normal(j, s, d), normal(j, s, d)
    first = rng.integers(0, 4, (b, m)).astype(np.int32)
    for with_prefix, with_first in [(False, False), (True, True)]:
        given = {"prefix": prefix if with_prefix else None, "first": first if with_first else None}
        o, lse = atlas.windowed_attention(q, k, v, window, **given)
        wanted, sums = np.zeros(o.shape), np.zeros(lse.shape)
        for at in np.ndindex(b, m, h):
            i, group = at[1] + n - m, at[2] // (h // j)
            begin = max(i - window + 1, first[at[:2]] if with_first else 0, 0)
            keys, values = k[at[0], begin : i + 1, group], v[at[0], begin : i + 1, group]
            if with_prefix:
                keys, values = np.concatenate([prefix[0][group], keys]), np.concatenate([prefix[1][group], values])
            z = keys.astype(np.float64) @ q[at] / math.sqrt(d)
            if z.size:
                wanted[at] = softmax(z) @ values
            sums[at[0], at[2], at[1]] = np.log(np.exp(z).sum()) if z.size else -np.inf
        close(o, wanted, 1e-5)
        seen = np.isfinite(sums)
        assert (np.isfinite(lse) == seen).all()
        close(lse[seen], sums[seen], 1e-5)

    q, k, v = normal(3, j, 2, d), normal(3, n, j, d), normal(3, n, j, d)
    tokens = np.array([4, 20, 0], np.int32)
    for parts in (1, 4):
        o, lse = atlas.attention_decode(q, k, v, tokens, parts=parts)
        for at in np.ndindex(3, j, 2):
            filled = min(tokens[at[0]], n)
            z = k[at[0], :filled, at[1]].astype(np.float64) @ q[at] / math.sqrt(d)
            close(o[at], softmax(z) @ v[at[0], :filled, at[1]] if filled else np.zeros(d), 1e-5)
            assert not filled or abs(lse[at] - np.log(np.exp(z).sum())) < 1e-5


def memory():
    g, n, d, hidden = 2, 5, 8, 12
    x, w2, w1, r = normal(g, n, d), normal(g, hidden, d), normal(g, d, hidden), normal(g, n, d)
    long = [a.astype(np.float64) for a in (x, w2, w1, r)]
    wanted = long[3] + gelu(long[0] @ long[1].transpose(0, 2, 1)) @ long[2].transpose(0, 2, 1)
    close(atlas.memory_read(x, w2, w1, r), wanted, 1e-5)


def newton_schulz():
    def iterate(g, steps):
        x = g.astype(np.float64) / max(np.linalg.norm(g), 1e-7)
        for a, b, c in steps:
            gram = x @ x.T
            x = (a * np.eye(len(x)) + b * gram + c * gram @ gram) @ x
        return x

    classic = [(3.4445, -4.7750, 2.0315)] * 5
    for shape in [(6, 11), (2, 11, 6), (3, 3)]:
        g = normal(*shape)
        stack = g.reshape(-1, *shape[-2:])
        wanted = np.stack([iterate(a if a.shape[0] <= a.shape[1] else a.T, classic) for a in stack])
        if shape[-2] > shape[-1]:
            wanted = wanted.transpose(0, 2, 1)
        close(atlas.newton_schulz(g), wanted.reshape(shape), 1e-4)
    g, steps = normal(4, 32), [(3.0, -3.2, 1.2), (2.5, -2.0, 0.5)]
    close(atlas.newton_schulz(g, coefficients=steps), iterate(g, steps), 1e-4)
    close(atlas.newton_schulz(g, coefficients=steps, restart=1), iterate(g, steps), 1e-4)


def omega_by_token(rule, q, k, v, rq, rk, gates, weights, momenta, norm):
    """The rule as it is defined. Gradients of a chunk are taken at the memory before it."""
    memory, chunk, before, scale, predicts, eps = rule
    alpha, theta, eta, gamma = gates
    b, n, h, _ = q.shape
    window, y = gamma.shape[-1], np.zeros((b, n, h, v.shape[-1]))
    weights, momenta = ([a.astype(np.float64) for a in of] for of in (weights, momenta))
    slope = np.vectorize(
        lambda z: 0.5 * (1 + math.erf(z / math.sqrt(2))) + z * math.exp(-z * z / 2) / math.sqrt(2 * math.pi), otypes=[np.float64]
    )

    def read(w, x, r):
        if memory == "linear":
            return r + w[0] @ x
        if memory == "gated":
            return r + w[0] @ (gelu(w[1] @ x) * (w[2] @ x))
        return r + w[0] @ gelu(w[1] @ x)

    def gradient(w, x, r, wanted):
        error = scale * ((read(w, x, r) if predicts else 0) - wanted)
        if memory == "linear":
            return [np.outer(error, x)]
        z, back = w[1] @ x, w[0].T @ error
        if memory == "gated":
            up = w[2] @ x
            return [np.outer(error, gelu(z) * up), np.outer(back * up * slope(z), x), np.outer(back * gelu(z), x)]
        return [np.outer(error, gelu(z)), np.outer(back * slope(z), x)]

    for at in np.ndindex(b, h):
        w, s = [a[at] for a in weights], [a[at] for a in momenta]
        for t in range(n):
            if t % chunk == 0:
                start = [a.copy() for a in w]
            here = (at[0], t, at[1])
            if before:
                y[here] = read(w, q[here], rq[here])
            step = [np.zeros(a.shape) for a in w]
            for j in range(window):
                i = t - (window - 1) + j
                if i >= 0:
                    key = (at[0], i, at[1])
                    for total, part in zip(step, gradient(start, k[key], rk[key], v[key])):
                        total += gamma[here][j] * part
            for a, m, u in zip(w, s, step):
                m[...] = theta[here] * m + u
                a[...] = alpha[here] * a - eta[here] * m
            if not before:
                y[here] = read(w, q[here], rq[here])
    return y, weights, momenta


def omega():
    b, n, h, d, e, hidden, window, chunk = 2, 7, 2, 4, 5, 6, 3, 3
    q, k, v = normal(b, n, h, d), normal(b, n, h, d), normal(b, n, h, e)
    rq, rk = normal(b, n, h, e), normal(b, n, h, e)
    gates = [rng.uniform(low, high, (b, n, h)).astype(np.float32) for low, high in [(0.9, 1), (0.2, 0.6), (0.01, 0.05)]]
    gates.append(rng.uniform(0, 0.5, (b, n, h, window)).astype(np.float32))
    shapes = {"linear": [(e, d)], "mlp": [(e, hidden), (hidden, d)], "gated": [(e, hidden), (hidden, d), (hidden, d)]}
    losses = {"square": 2, "half_square": 1, "mean_square": 2 / e, "dot": 1, 0.5: 0.5}
    for memory, of in shapes.items():
        for loss, before in [("square", False), ("dot", True), ("mean_square", False), (0.5, True)]:
            weights = [0.3 * normal(b, h, *shape) for shape in of]
            momenta = [0.1 * normal(b, h, *shape) for shape in of]
            kept = [a.copy() for a in weights + momenta]
            found = atlas.omega(
                q, k, v, *gates, weights, momenta, memory=memory, chunk=chunk, loss=loss, before=before, residual_q=rq, residual_k=rk
            )
            rule = (memory, chunk, before, losses[loss], loss != "dot", 0)
            wanted = omega_by_token(rule, q, k, v, rq, rk, gates, weights, momenta, None)
            close(found[0], wanted[0], 1e-5)
            for got, want in zip([*found[1], *found[2]], [*wanted[1], *wanted[2]]):
                close(got, want, 1e-5)
            assert all((a == b).all() for a, b in zip(weights + momenta, kept)), "the memory that is given stays"
    # A chunk that is longer than the sequence is the sequence.
    found, wanted = (atlas.omega(q, k, v, *gates, weights, momenta, memory="gated", chunk=chunk) for chunk in (10**9, n))
    assert all((a == b).all() for a, b in zip([found[0], *found[1], *found[2]], [wanted[0], *wanted[1], *wanted[2]]))
    # Every form and step has a chain that takes it, and what it reads is finite.
    norm = np.ones((h, e), np.float32)
    for memory in ("linear", "mlp", "gated", "normed"):
        for step in ("descent", "muon_by_token", "muon_by_chunk"):
            weights = [0.3 * normal(b, h, *shape) for shape in shapes["mlp" if memory == "normed" else memory]]
            momenta = [np.zeros_like(w) for w in weights]
            given = {"memory": memory, "step": step, "chunk": chunk, "norm": norm if memory == "normed" else None}
            y, after, _ = atlas.omega(q, k, v, *gates, weights, momenta, before=step == "muon_by_chunk", **given)
            assert np.isfinite(y).all() and not all((a == b).all() for a, b in zip(weights, after))


def omega_in_parts():
    """Pieces of a sequence, and documents one after the other, are read as wholes are."""
    b, n, h, d, e, hidden, window, chunk = 2, 7, 2, 4, 5, 6, 3, 3
    tokens = [normal(b, n, h, d), normal(b, n, h, d), normal(b, n, h, e)]
    tokens += [rng.uniform(low, high, (b, n, h)).astype(np.float32) for low, high in [(0.9, 1), (0.2, 0.6), (0.01, 0.05)]]
    tokens.append(rng.uniform(0, 0.5, (b, n, h, window)).astype(np.float32))
    rq, rk = normal(b, n, h, e), normal(b, n, h, e)
    weights = [0.3 * normal(b, h, e, hidden), 0.3 * normal(b, h, hidden, d)]
    momenta, kept = [0.1 * w for w in weights], [w.copy() for w in weights]
    wanted = atlas.omega(*tokens, weights, momenta, chunk=chunk, residual_q=rq, residual_k=rk)[0]
    for piece, ends in [(4, (2, 3, 7)), (1, (7,)), (9, (1, 6, 6, 7))]:
        stream = atlas.OmegaStream(weights, momenta, chunk=chunk, piece=piece)
        for _ in range(2):
            for begin, end in zip((0, *ends), ends):
                part = slice(begin, end)
                read = stream.push(*(t[:, part] for t in tokens), residual_q=rq[:, part], residual_k=rk[:, part])
                assert (read == wanted[:, part]).all(), (piece, begin, end)
            stream.restart(weights, momenta)
        assert stream.bytes > 0
        stream.close()
        assert stream.bytes == 0
    starts, one = np.array([0, 2, 7], np.int32), [t[:1] for t in tokens]
    found = atlas.omega_packed(*one, starts, weights, momenta, longest=5, chunk=chunk, residual_q=rq[:1], residual_k=rk[:1])
    for at, part in enumerate((slice(0, 2), slice(2, 7))):
        memory = ([m[at : at + 1] for m in of] for of in (weights, momenta))
        alone = atlas.omega(*(t[:, part] for t in one), *memory, chunk=chunk, residual_q=rq[:1, part], residual_k=rk[:1, part])
        close(found[0][:, part], alone[0], F32)
        for got, want in zip([*found[1], *found[2]], [*alone[1], *alone[2]]):
            close(got[at : at + 1], want, F32)
    assert all((a == b).all() for a, b in zip(weights, kept)), "the memory that is given stays"


def mistakes():
    x, w = normal(3, 4), normal(4)
    raises(ValueError, "ATL606", atlas.softmax, x.astype(np.float64))
    raises(ValueError, "ATL696", atlas.softmax, x.astype(np.uint32))
    raises(ValueError, "ATL603", atlas.softmax, np.zeros((), np.float32))
    raises(TypeError, "ATL697", atlas.softmax, [1.0, 2.0])
    raises(ValueError, "ATL604", atlas.rms_norm, x, normal(5))
    raises(ValueError, "ATL606", atlas.rms_norm, x, w.astype(np.float16))
    raises(ValueError, "ATL601", atlas.poly_features, x, [])
    raises(ValueError, "ATL603", atlas.rotary, x, x, x)
    raises(ValueError, "ATL604", atlas.rotary, normal(3, 2, 4), normal(3, 3), normal(3, 3))
    raises(ValueError, "ATL603", atlas.windowed_attention, x, x, x, 3)
    raises(ValueError, "ATL604", atlas.windowed_attention, normal(1, 2, 2, 8), normal(1, 2, 1, 8), normal(1, 3, 1, 8), 3)
    raises(ValueError, "ATL603", atlas.newton_schulz, w)
    raises(ValueError, "ATL601", atlas.newton_schulz, x, coefficients=[1.0, 2.0])
    raises(ValueError, "ATL607", atlas.newton_schulz, x, steps=-3)
    raises(ValueError, "f32 can hold", atlas.newton_schulz, x, eps=1e300)
    raises(ValueError, "f32 can hold", atlas.newton_schulz, x, coefficients=(1e300, 0.0, 0.0))
    number, q, first = np.float32(0.5), normal(1, 2, 2, 4), np.zeros(1, np.int32)
    close(atlas.poly_features(x, [number, number]), 0.5 * x + 0.5 * x.astype(np.float64) ** 2, F32)
    close(atlas.newton_schulz(x, coefficients=np.array([3.0, -3.2, 1.2]), steps=2), atlas.newton_schulz(x, coefficients=[(3.0, -3.2, 1.2)] * 2), 0.0)
    assert atlas.newton_schulz(x, dtype=np.float16).dtype == np.float16
    raises(ValueError, "ATL607", atlas.poly_features, x, number)
    raises(ValueError, "ATL607", atlas.poly_features, x, [None])
    raises(ValueError, "ATL607", atlas.newton_schulz, x, coefficients=number)
    raises(ValueError, "ATL607", atlas.newton_schulz, x, coefficients=np.array(0.5))
    raises(ValueError, "ATL607", atlas.newton_schulz, x, steps=2.5)
    raises(ValueError, "ATL606", atlas.newton_schulz, x, dtype="foo")
    raises(ValueError, "ATL606", atlas.newton_schulz, x, dtype="bfloat16")
    raises(ValueError, "ATL607", atlas.windowed_attention, q, q, q, 0)
    raises(ValueError, "ATL607", atlas.windowed_attention, q, q, q, 2.7)
    raises(ValueError, "ATL601", atlas.windowed_attention, q, q, q, 3, prefix=(q,))
    raises(ValueError, "ATL607", atlas.attention_decode, q, q, q, first, parts=2.7)
    gates = [normal(1, 4, 1)] * 3
    q, v, memory = normal(1, 4, 1, 3), normal(1, 4, 1, 5), [normal(1, 1, 5, 3)]
    rule = {"memory": "linear", "chunk": 2}
    raises(ValueError, "ATL696", atlas.omega, q, q, v, *gates, normal(1, 4, 1, 2), memory, memory, memory="deep")
    raises(ValueError, "ATL696", atlas.omega, q, q, v, *gates, normal(1, 4, 1, 2), memory, memory, loss="cubic", **rule)
    raises(ValueError, "ATL601", atlas.omega, q, q, v, *gates, normal(1, 4, 1, 2), memory, [], **rule)
    raises(ValueError, "ATL643", atlas.omega, q, q, v, *gates, normal(1, 5, 1, 2), memory, memory, **rule)
    raises(ValueError, "ATL603", atlas.omega, q, q, v, *gates, normal(1, 4, 2), memory, memory, **rule)
    raises(ValueError, "ATL607", atlas.omega, q, q, v, *gates, normal(1, 4, 1, 2), memory, memory, memory="linear", chunk=2.5)
    raises(ValueError, "ATL607", atlas.omega, q, q, v, *gates, normal(1, 4, 1, 2), memory, memory, **rule, loss=[2.0])
    raises(TypeError, "ATL697", atlas.omega, q, q, v, *gates, normal(1, 4, 1, 2), memory[0], memory, **rule)
    starts = np.array([0, 4], np.int32)
    raises(ValueError, "ATL604", atlas.omega_packed, q, q, v, *gates, normal(1, 4, 1, 2), starts[:1], memory, memory, longest=4, **rule)
    stream = atlas.OmegaStream(memory, memory, **rule)
    raises(ValueError, "ATL604", stream.push, q, q, v, *gates, normal(1, 5, 1, 2))
    stream.close()
    # What would be written is not copied in silence, and a mask is not dropped.
    stream.weights[0].setflags(write=False)
    raises(ValueError, "ATL651", stream.push, q, q, v, *gates, normal(1, 4, 1, 2))
    stream.restart(memory, memory)
    assert stream.push(q, q, v, *gates, normal(1, 4, 1, 2)).shape == v.shape
    kept = [w.copy() for w in stream.weights]
    raises(ValueError, "ATL604", stream.restart, [memory[0][0]], memory)
    raises(ValueError, "ATL604", stream.restart, memory, [memory[0][..., :2]])
    raises(TypeError, "ATL651", copy.deepcopy, stream)
    assert all((a == b).all() for a, b in zip(stream.weights, kept))
    # A first push that fails leaves the stream open for others.
    stream.close()
    raises(ValueError, "ATL60", stream.push, q.astype(np.float16), q, v, *gates, normal(1, 4, 1, 2))
    assert stream.bytes == 0
    stream.push(q, q, v, *gates, normal(1, 4, 1, 2))
    raises(TypeError, "ATL697", atlas.softmax, np.ma.masked_array(x, mask=x > 0))
    long = {"longest": 4, "memory": "linear", "chunk": 10**8}
    raises(MemoryError, "ATL638", atlas.omega_packed, q, q, v, *gates, normal(1, 4, 1, 2), starts, memory, memory, **long)
    atlas.empty_cache()
    raises(ValueError, "ATL650", atlas.add_bundle, __file__, "cpu")
    raises(ValueError, "ATL696", atlas.add_bundle, __file__, "gpu")
    raises(RuntimeError, "ATL696", atlas.load, "/nowhere/libatlas_c.so")


def threads():
    failed = []

    def many(seed):
        try:
            of = np.random.default_rng(seed)
            for _ in range(20):
                x = of.standard_normal((9, 11)).astype(np.float32)
                close(atlas.softmax(x), softmax(x.astype(np.float64)), F32)
        except BaseException as error:
            failed.append(error)

    started = [threading.Thread(target=many, args=(seed,)) for seed in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not failed, failed


def package():
    assert "torch" not in sys.modules
    assert {"softmax", "rms_norm"} <= set(atlas.kernels()) and {"omega_mlp", "attention_decode"} <= set(atlas.chains())
    assert atlas.signature("ATTENTION_DECODE").startswith("attention_decode<") and atlas.signature("ATTENTION_DECODE").endswith("; X)")
    assert atlas.library_path().exists()
    assert Path(atlas.__file__).with_name("py.typed").exists()
    beside = atlas.library_path().with_name("kernels.atlas")
    assert atlas.bundle_path() == (beside if "--bundle" in sys.argv else None)
    if "--bundle" in sys.argv:
        # It can be read, and is a bundle. Nothing here has read it so far.
        atlas.add_bundle(beside, "cpu")


for part in (rows, rotary, attention, memory, newton_schulz, omega, omega_in_parts, mistakes, threads, package):
    part()
print("all right")
