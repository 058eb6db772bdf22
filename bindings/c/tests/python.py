"""Calls kernels from Python by tvm-ffi: `python3 python.py path/to/libatlas_c.so`, with numpy and apache-tvm-ffi installed."""

import sys
import threading

import numpy as np
import tvm_ffi

atlas = tvm_ffi.load_module(sys.argv[1])
rng = np.random.default_rng(1)


def tensor(array):
    return tvm_ffi.from_dlpack(array) if isinstance(array, np.ndarray) else array


def launch(kernel, *args):
    atlas[kernel](*map(tensor, args))


def softmax(x):
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def close(found, wanted, bound):
    error = np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-30)
    assert error <= bound, f"error {error:.1e}, bound {bound:.1e}"


def raises(kind, part, *args):
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    try:
        launch(*args)
    except kind as error:
        assert part in str(error), str(error)
    else:
        raise AssertionError(f"no {kind.__name__}: {args}")
    # Nothing is written.
    for now, then in zip(args, before):
        assert not isinstance(now, np.ndarray) or (now == then).all()


# Contiguous, strided and transposed, f32 and f16; of an odd size, of one element, and of none.
for rows, columns in [(5, 7), (1, 1), (64, 130), (0, 4)]:
    for dtype, bound in [(np.float32, 1e-6), (np.float16, 2e-3)]:
        x = rng.standard_normal((rows, columns)).astype(dtype)
        wanted = softmax(x) if rows else x
        y = np.empty_like(x)
        launch("softmax", x, y)
        wide = np.zeros((rows, 2 * columns), dtype)
        launch("softmax", np.ascontiguousarray(x.T).T, wide[:, ::2])
        if rows:
            close(y, wanted, bound)
            close(wide[:, ::2], wanted, bound)
        assert (wide[:, 1::2] == 0).all()

x, w = rng.standard_normal((33, 48)).astype(np.float32), rng.standard_normal(48).astype(np.float32)
y = np.empty_like(x)
launch("rms_norm", x, w, y, 1e-6)
close(y, w * x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-6), 1e-6)

a, b = rng.standard_normal((37, 19)).astype(np.float32), rng.standard_normal((23, 19)).astype(np.float32)
c = np.empty((37, 23), np.float32)
launch("matmul", a, b, c)
close(c, a.astype(np.float64) @ b.T, 1e-5)

# A chain: its arguments, and the sizes that no argument has.
q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in [(1, 1, 2, 4), (1, 6, 1, 4), (1, 6, 1, 4)])
tokens, o, lse = np.array([5], np.int32), np.zeros((1, 1, 2, 4), np.float32), np.zeros((1, 1, 2), np.float32)
decode = (q, k, v, tokens, 0.5, o, lse)
for sizes in [(), (2, 2), (-1,), (1.5,), (o,)]:
    raises(ValueError, "ATL696", "ATTENTION_DECODE", *decode, *sizes)
raises(TypeError, "ATL697", "ATTENTION_DECODE", *decode, "2")
raises(ValueError, "ATL643", "ATTENTION_DECODE", q, k, v[:, :5], tokens, 0.5, o, lse, 2)
raises(ValueError, "ATL643", "ATTENTION_DECODE", q, k, v, tokens, 0.5, o.astype(np.float16), lse, 2)
for parts in (1, 2, 7):
    launch("ATTENTION_DECODE", *decode, parts)
    close(o[0, 0], softmax(0.5 * q[0, 0] @ k[0, :5, 0].T) @ v[0, :5, 0], 1e-5)

# The iteration of Muon, of no step: a matrix divided by its norm.
g, out = rng.standard_normal((2, 3, 5)).astype(np.float32), np.zeros((2, 3, 5), np.float32)
launch("newton_schulz", g, out, 1.0, 1e-7, 1, 0)
close(out, g / np.sqrt((g.astype(np.float64) ** 2).sum(axis=(1, 2), keepdims=True)), 1e-6)
out[:] = 7
raises(ValueError, "ATL696", "newton_schulz", g, out, 1.0, 1e-7, 1)
raises(ValueError, "ATL696", "newton_schulz", g, out, 1.0, 1e-7, 1, 0, 3.0)
raises(ValueError, "ATL696", "newton_schulz", g, out, 1.0, 1e-7, 1, -1)
raises(ValueError, "ATL696", "newton_schulz", g, out[:1], 1.0, 1e-7, 1, 0)
raises(ValueError, "ATL696", "newton_schulz", g[0], out[0], 1.0, 1e-7, 1, 0)
raises(ValueError, "ATL696", "newton_schulz", g, 1.0, 1.0, 1e-7, 1, 0)

x, y = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
raises(ValueError, "ATL601", "softmax", x)
raises(ValueError, "ATL604", "softmax", x, y[:, :3])
raises(ValueError, "ATL606", "softmax", x, y.astype(np.float16))
raises(ValueError, "ATL609", "softmax", x, x)
raises(ValueError, "ATL602", "softmax", x, 1.0)
raises(ValueError, "ATL696", "softmax", x.astype(np.int8), y)
raises(TypeError, "ATL697", "softmax", x, "y")
raises(TypeError, "ATL697", "softmax", None, None)
raises(TypeError, "ATL697", "softmax")


def many():
    for seed in range(20):
        x = np.random.default_rng(seed).standard_normal((9, 11)).astype(np.float32)
        y = np.empty_like(x)
        launch("softmax", x, y)
        close(y, softmax(x), 1e-6)


failed = []
threads = [threading.Thread(target=lambda: many() or None) for _ in range(4)]
threading.excepthook = lambda failure: failed.append(failure.exc_value)
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
print("all right")
