"""The Omega rule for users: on whole sequences, on packed documents, and on sequences that come in pieces."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any, Sequence

from . import _arrays, _omega, _room
from ._arrays import Array, PyTorch
from ._numbers import arrays, real, whole
from ._omega import Rule


def _torch() -> Any:
    from . import torch_ops

    return torch_ops


def _rule(op: str, memory: str, step: str, chunk: int, before: bool, loss: str | float, eps: float, value: int) -> Rule:
    if loss == "mean_square":
        scale = 2.0 / max(value, 1)
    elif isinstance(loss, str):
        if loss not in _omega.LOSSES:
            known = ", ".join(_omega.LOSSES)
            raise ValueError(f"error[ATL696]: there is no loss `{loss}`; the losses are {known}, mean_square, and a factor")
        scale = _omega.LOSSES[loss]
    else:
        scale = real(op, "loss", loss)
    chunk = whole(op, "chunk", chunk, 1)
    return Rule(memory, step, chunk, bool(before), scale, loss != "dot", real(op, "eps", eps))


def _no_longer_than(rule: Rule, kind: Any, q: Array) -> Rule:
    """The rule with chunks no longer than the sequence, which reads and teaches the same: there is one chunk. On the CPU a chunk costs what a
    full one does. On a GPU other chunks are other kernels, which have to be compiled or in a bundle."""
    if kind is PyTorch and (q.device.type != "cpu" or _torch().torch.compiler.is_compiling()):
        return rule
    return replace(rule, chunk=q.shape[1]) if 0 < q.shape[1] < rule.chunk else rule


def _with_residuals(kind: Any, tokens: Sequence[Array], residual_q: Array | None, residual_k: Array | None) -> list[Array]:
    """The tokens in the order of the library, with rows side by side; residuals that are left out are zeros."""
    q, k, v, *gates = tokens
    zeros = kind.full(v, (*q.shape[:-1], v.shape[-1]), 0.0)
    residuals = (zeros if r is None else kind.rows(r) for r in (residual_q, residual_k))
    return [kind.rows(q), kind.rows(k), kind.rows(v), *residuals, *gates]


@_room.says_when_out
def omega(
    q: Array,
    k: Array,
    v: Array,
    alpha: Array,
    theta: Array,
    eta: Array,
    gamma: Array,
    weights: Sequence[Array],
    momenta: Sequence[Array],
    *,
    memory: str = "mlp",
    step: str = "descent",
    chunk: int = 64,
    loss: str | float = "square",
    before: bool = False,
    residual_q: Array | None = None,
    residual_k: Array | None = None,
    norm: Array | None = None,
    eps: float = 1e-6,
    segment: int = 0,
) -> tuple[Array, list[Array], list[Array]]:
    """The Omega rule: a memory that learns while it reads. `q` and `k` are `[B, N, H, D]`, `v` and residuals `[B, N, H, E]`; the gates
    `alpha`, `theta` and `eta` `[B, N, H]`, and `gamma` `[B, N, H, W]`, the oldest token of a window first, are float32.

    `memory` is `linear`, `mlp`, `gated` or `normed`; its `weights` are float32: `[B, H, E, D]`, or `[B, H, E, M]` and one or two of
    `[B, H, M, D]`. `momenta` have the same shapes. `norm`, `[H, E]`, is the weight of the norm inside a memory `normed`, which adds `eps`
    to a variance. `step` is `descent`, `muon_by_token` or `muon_by_chunk`. `loss` is `square`, `half_square`, `mean_square`, `dot`, or the
    factor of an error. With `before`, a token reads the memory before its own step. Residuals are zeros if they are left out.

    Returns what tokens read, `[B, N, H, E]`, and the weights and momenta behind the last one; those that are given stay as they are.

    With PyTorch there are gradients by all tensors, through all that is returned: of rules by `descent`, and of `muon_by_chunk` with
    `before`. Where one is asked for, the state before each `segment` of chunks is kept, and the backward pass computes the states
    inside a segment again; 0 stands for about the square root of all chunks. Other rules raise ATL651 in the backward pass."""
    weights, momenta = arrays("omega", "weights", weights), arrays("omega", "momenta", momenta)
    kind = _arrays.of("omega", q, k, v, alpha, theta, eta, gamma, *weights, *momenta, residual_q, residual_k, norm)
    rule = _rule("omega", memory, step, chunk, before, loss, eps, v.shape[-1] if v.ndim else 1)
    segment = whole("omega", "segment", segment)
    _omega.check_axes("omega", q, v, gamma, weights)
    rule = _no_longer_than(rule, kind, q)
    tokens = _with_residuals(kind, (q, k, v, alpha, theta, eta, gamma), residual_q, residual_k)
    given: list[Any] = [*tokens, weights, momenta, norm, *rule.values()]
    if kind is not PyTorch:
        return _omega.omega(kind, *given)
    has_gradients = step == "descent" or (step == "muon_by_chunk" and rule.before)
    if has_gradients and _torch().learns(*tokens, *weights, *momenta, norm):
        y, new_weights, new_momenta, _ = _torch().ops.omega_training(*given, segment)
    else:
        y, new_weights, new_momenta = _torch().ops.omega(*given)
    return y, new_weights, new_momenta


@_room.says_when_out
def omega_packed(
    q: Array,
    k: Array,
    v: Array,
    alpha: Array,
    theta: Array,
    eta: Array,
    gamma: Array,
    starts: Array,
    weights: Sequence[Array],
    momenta: Sequence[Array],
    *,
    longest: int,
    memory: str = "mlp",
    step: str = "descent",
    chunk: int = 64,
    loss: str | float = "square",
    before: bool = False,
    residual_q: Array | None = None,
    residual_k: Array | None = None,
    norm: Array | None = None,
    eps: float = 1e-6,
) -> tuple[Array, list[Array], list[Array]]:
    """The Omega rule on documents one after the other, each with a memory of its own. Tokens are as those of `omega` with `B` of 1:
    `q` is `[1, P, H, D]`. `starts`, `[B + 1]` in int32, ascends: document `b` has the tokens from `starts[b]` to before `starts[b + 1]`,
    and may have none. `weights` and `momenta` are `[B, H, .., ..]`. `longest` is the number of tokens of the longest document.

    Returns what tokens read, `[1, P, H, E]`, and the weights and momenta behind the last token of each document. What is read of tokens in
    no document is 0. Of a document with more tokens than `longest`, the memory is trained on the first ones, and what is read of the
    others is NaN. A rule by which a token would read what later ones have taught is refused (ATL652): `muon_by_chunk` without `before`.
    There is no gradient."""
    weights, momenta = arrays("omega_packed", "weights", weights), arrays("omega_packed", "momenta", momenta)
    kind = _arrays.of("omega_packed", q, k, v, alpha, theta, eta, gamma, starts, *weights, *momenta, residual_q, residual_k, norm)
    rule = _rule("omega_packed", memory, step, chunk, before, loss, eps, v.shape[-1] if v.ndim else 1)
    longest = whole("omega_packed", "longest", longest, 1)
    _omega.check_axes("omega_packed", q, v, gamma, weights)
    tokens = _with_residuals(kind, (q, k, v, alpha, theta, eta, gamma), residual_q, residual_k)
    if kind is PyTorch:
        found = _torch().ops.omega_packed(*tokens, starts, weights, momenta, norm, *rule.values(), longest)
        y, new_weights, new_momenta = found
        return y, new_weights, new_momenta
    return _omega.omega_packed(kind, tokens, starts, weights, momenta, norm, rule, longest)


class OmegaStream:
    """The Omega rule on a sequence that comes in pieces of any lengths: what is read is what `omega` reads on all tokens at once.

    It begins with a copy of `weights` and `momenta`, which are as those of `omega`, and keeps the tokens of the chunk that is not full
    yet and those that windows reach. `piece` is how many tokens are computed at once at most: longer pieces are cut, and take no more
    memory. The rule is given as to `omega`. There is no gradient.

    Pushes on several streams of PyTorch are ordered by the caller. No CUDA graph should record a push: a replay would not go on in the
    sequence. It cannot be copied or pickled: make another one of its `weights` and `momenta`, which begins a sequence with them. One that is
    dropped while a graph is recorded is closed by a later call."""

    weights: list[Array]
    """The weights now. A push changes them in place."""
    momenta: list[Array]
    """The momenta now, likewise."""

    def __init__(
        self,
        weights: Sequence[Array],
        momenta: Sequence[Array],
        *,
        memory: str = "mlp",
        step: str = "descent",
        chunk: int = 64,
        piece: int = 64,
        loss: str | float = "square",
        before: bool = False,
        norm: Array | None = None,
        eps: float = 1e-6,
    ) -> None:
        weights, momenta = arrays("OmegaStream", "weights", weights), arrays("OmegaStream", "momenta", momenta)
        self._kind = _arrays.of("OmegaStream", *weights, *momenta, norm)
        self._piece = whole("OmegaStream", "piece", piece, 1)
        _omega.check_memory("OmegaStream", memory, step, weights, momenta, norm)
        if any(w.ndim != 4 for w in (*weights, *momenta)):
            raise ValueError(
                "error[ATL603]: weights and momenta of `OmegaStream` are [B, H, .., ..], but shapes are "
                f"{[tuple(w.shape) for w in (*weights, *momenta)]}"
            )
        self._rule = _rule("OmegaStream", memory, step, chunk, before, loss, eps, weights[0].shape[2])
        if self._kind is PyTorch:
            _torch().refuse_to_learn("OmegaStream", *weights, *momenta, norm)
            weights, momenta = (_torch().torch_autocast.of_memory(m) for m in (weights, momenta))
        # The library has its address as long as the stream is open.
        self._norm = None if norm is None else self._kind.copy(norm)
        self._number: int | None = None
        self._set_memory(weights, momenta)

    def _set_memory(self, weights: Sequence[Array], momenta: Sequence[Array]) -> None:
        self.weights, self.momenta = ([self._kind.copy(m) for m in of] for of in (weights, momenta))

    @_room.says_when_out
    def push(
        self,
        q: Array,
        k: Array,
        v: Array,
        alpha: Array,
        theta: Array,
        eta: Array,
        gamma: Array,
        *,
        residual_q: Array | None = None,
        residual_k: Array | None = None,
    ) -> Array:
        """What the tokens that come next read, `[B, N, H, E]`. They are as those of `omega`, under autocast too, and may be none; all
        pieces have tensors of one element type and one window. If something does not fit, nothing changes."""
        _room.close_late()
        arrays = (q, k, v, alpha, theta, eta, gamma, residual_q, residual_k)
        if _arrays.of("OmegaStream.push", *arrays) is not self._kind:
            raise TypeError("error[ATL697]: `push` of `OmegaStream` takes arrays of the library that its memory is of")
        _omega.check_axes("OmegaStream.push", q, v, gamma, self.weights)
        if self._kind is PyTorch:
            _torch().refuse_to_learn("OmegaStream.push", *arrays, *self.weights, *self.momenta)
        memory = [*self.weights, *self.momenta]
        self._kind.check_written("OmegaStream.push", "weights and momenta", memory)
        tokens = _with_residuals(self._kind, (q, k, v, alpha, theta, eta, gamma), residual_q, residual_k)
        if self._kind is PyTorch:
            tokens = _torch().torch_autocast.of_tokens(tokens)
        q, v, is_first = tokens[0], tokens[2], self._number is None
        try:
            if is_first:
                self._open(q, v, gamma.shape[-1])
            y = self._kind.empty(v, (*q.shape[:3], v.shape[-1]))
            self._kind.call("omega_stream_push", [self._number, *tokens, *memory, y])
        except BaseException:
            # The library's stream has the sizes of these tokens, which may be what does not fit.
            if is_first:
                self.close()
            raise
        if self._kind is PyTorch:
            _torch().was_written(memory)
        return y

    def _open(self, q: Array, v: Array, window: int) -> None:
        hidden = 0 if self._rule.memory == "linear" else self.weights[0].shape[-1]
        norm = self._norm
        if norm is not None and self._kind is PyTorch:
            norm = _torch().torch_autocast.of_tokens([norm])[0]
        norms = () if norm is None else (norm,)
        numbers = self._rule.numbers(window, self._piece)
        self._number = number = int(self._kind.call("omega_stream_open", [*numbers, hidden, q, v, *norms]))
        # It holds the norm as long as the library has its address.
        self._close = weakref.finalize(self, _close, number, norm)

    def restart(self, weights: Sequence[Array] | None = None, momenta: Sequence[Array] | None = None) -> None:
        """Forgets the tokens so far: what comes next is the start of a sequence. The memory stays as it is, unless another one is given."""
        if (weights is None) != (momenta is None):
            raise ValueError("error[ATL601]: `restart` of `OmegaStream` takes weights and momenta, or neither")
        _room.close_late()
        if weights is not None and momenta is not None:
            op = "OmegaStream.restart"
            weights, momenta = arrays(op, "weights", weights), arrays(op, "momenta", momenta)
            if _arrays.of(op, *weights, *momenta) is not self._kind:
                raise TypeError("error[ATL697]: `restart` of `OmegaStream` takes arrays of the library that its memory is of")
            _omega.check_memory(op, self._rule.memory, self._rule.step, weights, momenta, self._norm)
            if self._kind is PyTorch:
                _torch().refuse_to_learn(op, *weights, *momenta)
                weights, momenta = (_torch().torch_autocast.of_memory(m) for m in (weights, momenta))
            self._check_like(weights, momenta)
            self._set_memory(weights, momenta)
        if self._number is not None:
            self._kind.call("omega_stream_restart", [self._number])

    def _check_like(self, weights: Sequence[Array], momenta: Sequence[Array]) -> None:
        """Refuses a memory that is not like the one that is there."""

        def of(memory: Sequence[Array]) -> list[str]:
            return [f"{self._kind.dtype_name(m)} {tuple(m.shape)} on {getattr(m, 'device', 'cpu')}" for m in memory]

        found, wanted = of([*weights, *momenta]), of([*self.weights, *self.momenta])
        if found != wanted:
            raise ValueError(
                f"error[ATL604]: `restart` of `OmegaStream` takes weights and momenta like those it has, {wanted}, and is given {found}; "
                "make a new stream for others"
            )

    def __reduce_ex__(self, _protocol: object) -> Any:
        # Copies of modules and pickles would name one and the same stream of the library.
        raise TypeError(
            "error[ATL651]: an `OmegaStream` is neither copied nor pickled, because its last tokens are in the library; make another one of "
            "its `weights` and `momenta`, which begins a sequence with them"
        )

    @property
    def bytes(self) -> int:
        """The bytes that it holds on its device beside the memory; 0 before the first push."""
        return 0 if self._number is None else int(self._kind.call("omega_stream_bytes", [self._number]))

    def close(self) -> None:
        """Waits for its device, and gives up what it holds there. A push begins a sequence then."""
        if self._number is not None:
            self._close()
            self._number = None

    def __enter__(self) -> OmegaStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(number: int, _norm: Array | None) -> None:
    _room.close_stream(number)
