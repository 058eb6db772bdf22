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

# The Omega rule on a linear memory: numbers of the rule, tokens, the memory, and what is read.
B, N, H, D, E, W, CHUNK, PIECE = 2, 7, 2, 3, 4, 2, 3, 4


def f32(*shape, low=-1.0, high=1.0):
    return rng.uniform(low, high, shape).astype(np.float32)


def zeros(*shape):
    return np.zeros(shape, np.float32)


TOKENS = [f32(B, N, H, D), f32(B, N, H, D), f32(B, N, H, E), f32(B, N, H, E), f32(B, N, H, E)]
TOKENS += [f32(B, N, H, low=0.9), f32(B, N, H, low=0.2, high=0.6), f32(B, N, H, low=0.02, high=0.1), f32(B, N, H, W, low=0.0)]
MEMORY = [f32(B, H, E, D), f32(B, H, E, D)]


def rule(*between, memory=0, step=0):
    return [memory, step, CHUNK, *between, 0, 1, 2.0, 0.0]


def learn(tokens, memory, segment=2):
    """What is read, the memory behind it, and the states that are kept."""
    chunks = -(-tokens[0].shape[1] // CHUNK)
    memory, y = [m.copy() for m in memory], zeros(*tokens[2].shape)
    kept = [zeros(-(-chunks // segment), *m.shape) for m in memory]
    launch("omega_forward", *rule(segment), *tokens, *memory, y, *kept)
    return [y, *memory, kept]


y, w, s, kept = learn(TOKENS, MEMORY)
# As the chain: gates, numbers, tokens, the memory and what is read; then the sizes that no argument has.
memory, read = [m.copy() for m in MEMORY], zeros(B, N, H, E)
q, k, v, rq, rk, alpha, theta, eta, gamma = TOKENS
chunks = -(-N // CHUNK)
launch("OMEGA_LINEAR", alpha, theta, eta, gamma, 0, chunks, q, k, v, rq, rk, *memory, read, 2.0, 1, chunks, CHUNK, 8)
for found, wanted in zip((y, w, s), (read, *memory)):
    assert (found == wanted).all()
assert all((states[0] == m).all() for states, m in zip(kept, MEMORY)) and all(states.shape[0] == 2 for states in kept)

# Gradients are slopes of the loss, along a random direction of each input.
dy, last = f32(B, N, H, E), [f32(B, H, E, D), f32(B, H, E, D)]


def gradients(kept, segment=2):
    padded = chunks * CHUNK
    by = [zeros(B, padded, H, D), zeros(B, N, H, D), zeros(B, N, H, E), zeros(B, N, H, E)]
    by += [zeros(B, padded, H) for _ in range(3)] + [zeros(B, padded, H, W), *map(np.zeros_like, MEMORY)]
    launch("omega_backward", *rule(segment), *TOKENS, *kept, dy, *last, *by)
    return [g[:, :N] for g in by[:8]] + by[8:]


found = gradients(kept)
inputs = [*TOKENS, *MEMORY]
# That by residuals of queries is `dy`.
for at, by in zip(range(11), [*found[:3], dy, *found[3:]]):
    to = f32(*inputs[at].shape)

    def loss(step):
        moved = [(x + step * to).astype(np.float32) if i == at else x for i, x in enumerate(inputs)]
        return sum(float((a.astype(np.float64) * b).sum()) for a, b in zip(learn(moved[:9], moved[9:])[:3], (dy, *last)))

    slope, wanted = (loss(1e-2) - loss(-1e-2)) / 2e-2, float((by.astype(np.float64) * to).sum())
    assert abs(slope - wanted) < 2e-3 * max(abs(wanted), 1), (at, slope, wanted)
# Segments of other lengths change roundings alone, and a call with another rule has a workspace of its own.
for segment in (1, 3):
    for a, b in zip(gradients(learn(TOKENS, MEMORY, segment)[3], segment), found):
        close(a, b, 1e-5)

by = [zeros(B, 9, H, D)] + [zeros(1)] * 9
raises(ValueError, "ATL603", "omega_backward", *rule(2), *TOKENS, *kept, dy, *last, *by)
raises(ValueError, "ATL696", "omega_backward", *rule(2), *TOKENS, *kept, dy, *last, *by[1:])
raises(ValueError, "ATL604", "omega_forward", *rule(3), *TOKENS, *MEMORY, y, *kept)
raises(ValueError, "ATL651", "omega_forward", *rule(2, step=1), *TOKENS, *MEMORY, y, *kept)
raises(ValueError, "ATL696", "omega_forward", *rule(2, memory=4), *TOKENS, *MEMORY, y, *kept)
raises(ValueError, "ATL696", "omega_forward", *rule(2), *TOKENS, *MEMORY, y, *kept, 1)
raises(ValueError, "ATL696", "omega_forward", *rule(2)[:-1], 1e300, *TOKENS, *MEMORY, y, *kept)
raises(TypeError, "ATL697", "omega_forward", 0, 0)
raises(TypeError, "ATL697", "omega_forward", *rule(2), "q", *TOKENS[1:], *MEMORY, y, *kept)

# A sequence in pieces.
for ends in [(1, 5, 6, 7), (7,), (2, 7)]:
    number = atlas["omega_stream_open"](*rule(W, PIECE), 0, tensor(q), tensor(v))
    for again in range(2):
        memory, read = [m.copy() for m in MEMORY], zeros(B, N, H, E)
        for begin, end in zip((0, *ends), ends):
            launch("omega_stream_push", number, *(t[:, begin:end] for t in TOKENS), *memory, read[:, begin:end])
        assert (read == y).all(), (ends, again)
        atlas["omega_stream_restart"](number)
    assert atlas["omega_stream_bytes"](number) > 0
    raises(ValueError, "ATL604", "omega_stream_push", number, *TOKENS[:8], f32(B, N, H, W + 1), *memory, read)
    atlas["omega_stream_close"](number)
    raises(ValueError, "ATL696", "omega_stream_push", number, *TOKENS, *memory, read)
    atlas["omega_stream_close"](number)
raises(ValueError, "ATL652", "omega_stream_open", *rule(W, PIECE, step=2), 0, q, v)
raises(ValueError, "ATL696", "omega_stream_restart", -1)

# Documents one after the other, the second of which is empty. No document has the first token.
one, starts = [t[:1] for t in TOKENS], np.array([1, 3, 3, 7], np.int32)
memory, read = [f32(3, H, E, D), f32(3, H, E, D)], np.full((1, N, H, E), 7, np.float32)
wanted = [m.copy() for m in memory]
launch("omega_packed", *rule(PIECE), *one, starts, *memory, read)
assert (read[:, 0] == 0).all() and (memory[0][1] == wanted[0][1]).all()
for at, (begin, end) in enumerate([(1, 3), (3, 3), (3, 7)]):
    if begin < end:
        alone = learn([t[:, begin:end] for t in one], [m[at : at + 1] for m in wanted])
        close(read[:, begin:end], alone[0], 1e-6)
        close(memory[0][at], alone[1][0], 1e-6)
raises(ValueError, "ATL605", "omega_packed", *rule(PIECE), *one, starts.astype(np.int64), *memory, read)
raises(ValueError, "ATL652", "omega_packed", *rule(PIECE, step=2), *one, starts, *memory, read)

x, y = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
raises(ValueError, "ATL601", "softmax", x)
raises(ValueError, "ATL604", "softmax", x, y[:, :3])
raises(ValueError, "ATL606", "softmax", x, y.astype(np.float16))
raises(ValueError, "ATL609", "softmax", x, x)
raises(ValueError, "ATL602", "softmax", x, 1.0)
raises(ValueError, "ATL696", "softmax", x.astype(np.uint32), y)
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
