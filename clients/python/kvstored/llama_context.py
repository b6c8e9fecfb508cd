"""The sequences of a llama.cpp context as bytes: any range of tokens, or the whole.

llama.cpp writes and reads the state of whole sequences only. A sequence is a mark
on cells of the KV cache, and marks can be copied for a range of positions. So a
second sequence, the *keeper*, holds the cells while the sequence itself is marked
on one range at a time: what llama.cpp writes then is that range, to any address,
and what it reads is added behind what the keeper holds. That needs one buffer of
cells for all sequences (``kv_unified``).

A context belongs to one thread at a time, as it does for ``llama_decode``.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import Any, Iterator, Optional

_ALL = -1  # as the end of a range, and as its start


class Sequences:
    """The sequences of one context."""

    def __init__(self, functions: Any, ctx: Any, keeper: Optional[int] = None) -> None:
        """``functions``: llama.cpp's, under their names: the module llama_cpp, or any
        object that has them. ``keeper``: the number of a sequence that the caller
        never uses; the last one that the library knows, if none is given. A
        ValueError where the context's sequences do not share one buffer."""
        self._f, self._ctx = functions, ctx
        self.model = functions.llama_get_model(ctx)
        self._memory = functions.llama_get_memory(ctx)
        if not self._memory:
            raise ValueError("the context has no memory: models that only compute embeddings have no prefix to keep")
        if functions.llama_model_has_encoder(self.model):
            raise ValueError("the model has an encoder: its KV depends on more than the tokens that a prompt is found by")
        self.window = int(functions.llama_model_n_swa(self.model))
        #: Whether only the state of a whole sequence has a meaning: recurrent
        #: models, and those with layers that see a window.
        self.whole = bool(
            self.window or functions.llama_model_is_recurrent(self.model) or functions.llama_model_is_hybrid(self.model)
        )
        sequences = int(functions.llama_n_seq_max(ctx))
        #: Buffers of cells. A state that was written with one number of them cannot be read with another.
        self.buffers = 1 if functions.llama_n_ctx_seq(ctx) == functions.llama_n_ctx(ctx) else sequences
        if not self.whole and self.buffers > 1:
            raise ValueError(
                f"the context has a KV buffer for each of its {sequences} sequences, and a range of tokens cannot be taken out of "
                "such a one: set kv_unified to true in its llama_context_params (--kv-unified), or n_seq_max to 1"
            )
        known = int(functions.llama_max_parallel_sequences())
        if keeper is not None and not 0 <= keeper < known:
            raise ValueError(f"keeper is {keeper}: it must be from 0 to {known - 1}, the sequences that llama.cpp knows")
        self._keeper = known - 1 if keeper is None else keeper
        if not self.whole and keeper is None and self._keeper < functions.llama_n_seq_max(ctx):
            raise ValueError(
                f"the context uses all {self._keeper + 1} sequences that llama.cpp knows: make it with a smaller n_seq_max, "
                "or give the number of one that is never used as keeper"
            )

    def check(self, seq: int) -> None:
        """Raises a ValueError where a sequence cannot be the caller's. llama.cpp takes
        numbers below 0 for all sequences, and ends the process at those it does not know."""
        most = int(self._f.llama_n_seq_max(self._ctx))
        if not 0 <= seq < most:
            raise ValueError(f"seq is {seq}: the context has sequences 0 to {most - 1}, by its n_seq_max")
        if seq == self._keeper and not self.whole:
            raise ValueError(f"seq is {seq}, which is the keeper: give another keeper, a sequence that is never used")

    def held(self, seq: int) -> int:
        """How many tokens a sequence holds; 0 where it does not hold its first."""
        first, last = self._first(seq), self._last(seq)
        return last + 1 if first == 0 or (self.whole and first > 0) else 0

    def cut(self, seq: int, count: int) -> int:
        """Removes all but the first ``count`` tokens. Returns how many there are
        then: a model that cannot go back has none."""
        held = self.held(seq)
        if count >= held > 0:
            return held
        if 0 < count < held and self._remove(seq, count, _ALL):
            if 0 <= self._first(seq) <= (max(0, count - self.window) if self.window else 0):
                return count
        self._remove(seq, _ALL, _ALL)
        return 0

    # ---- the whole -----------------------------------------------------------

    def size(self, seq: int) -> int:
        """Bytes of what :meth:`write` would write of a sequence."""
        return int(self._f.llama_state_seq_get_size(self._ctx, seq))

    def write(self, seq: int, address: int, size: int) -> bool:
        """Writes a sequence to memory; whether that took ``size`` bytes, and no other number."""
        at = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
        return int(self._f.llama_state_seq_get_data(self._ctx, at, size, seq)) == size

    def read(self, seq: int, address: int, size: int, count: int) -> bool:
        """Makes a sequence what was written of one, whose last token is number
        ``count - 1``. Otherwise it is empty."""
        at = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
        if int(self._f.llama_state_seq_set_data(self._ctx, at, size, seq)) == size and self._last(seq) == count - 1:
            return True
        self._remove(seq, _ALL, _ALL)
        return False

    # ---- ranges --------------------------------------------------------------

    @contextmanager
    def loading(self, seq: int, have: int) -> Iterator["Loading"]:
        """Adds ranges to the first ``have`` tokens of a sequence. Until the end of
        the ``with`` block the sequence is not to be used."""
        keeper = self._keeper
        self._remove(keeper, _ALL, _ALL)
        if have:
            self._copy(seq, keeper, 0, have)
        load = Loading(self, seq, have)
        try:
            yield load
        finally:
            self._restore(seq)

    @contextmanager
    def apart(self, seq: int) -> Iterator["Apart"]:
        """Takes ranges of a sequence apart. Until the end of the ``with`` block it
        is not to be used; afterwards it is as it was."""
        self._remove(self._keeper, _ALL, _ALL)
        self._copy(seq, self._keeper, _ALL, _ALL)
        try:
            yield Apart(self, seq)
        finally:
            self._restore(seq)

    def _restore(self, seq: int) -> None:
        self._remove(seq, _ALL, _ALL)
        self._copy(self._keeper, seq, _ALL, _ALL)
        self._remove(self._keeper, _ALL, _ALL)

    # ---- marks ---------------------------------------------------------------

    def _first(self, seq: int) -> int:
        return int(self._f.llama_memory_seq_pos_min(self._memory, seq))

    def _last(self, seq: int) -> int:
        return int(self._f.llama_memory_seq_pos_max(self._memory, seq))

    def _copy(self, source: int, to: int, first: int, end: int) -> None:
        self._f.llama_memory_seq_cp(self._memory, source, to, first, end)

    def _remove(self, seq: int, first: int, end: int) -> bool:
        if self._last(seq) < 0:
            return True  # nothing is there: that is soon known, and all cells are looked at otherwise
        return bool(self._f.llama_memory_seq_rm(self._memory, seq, first, end))


class Loading:
    """A sequence that grows by ranges. Made by :meth:`Sequences.loading`."""

    def __init__(self, of: Sequences, seq: int, have: int) -> None:
        self._of, self._seq = of, seq
        #: Tokens that the sequence will hold.
        self.count = have

    def add(self, address: int, size: int, first: int, end: int) -> bool:
        """Takes what was written of the tokens from ``first`` up to ``end`` in place
        of all from ``first`` on. Whether it was that, and there was room for it."""
        of, seq = self._of, self._seq
        # Before, so that its cells come where theirs were: the order of cells is that
        # of sums, and decides on the last bits of what is computed.
        self.cut(first)
        if not of.read(seq, address, size, end) or of._first(seq) != first:
            return False
        of._copy(seq, of._keeper, first, end)
        self.count = end
        return True

    def cut(self, count: int) -> None:
        """Removes all but the first ``count`` tokens."""
        if count < self.count:
            # Cells that only the sequence itself still marks would not be free.
            self._of._remove(self._seq, count, _ALL)
            self._of._remove(self._of._keeper, count, _ALL)
            self.count = count


class Apart:
    """A sequence whose ranges can be written. Made by :meth:`Sequences.apart`."""

    def __init__(self, of: Sequences, seq: int) -> None:
        self._of, self._seq = of, seq

    def size(self, first: int, end: int) -> int:
        """Bytes of what :meth:`write` writes of these tokens."""
        self._mark(first, end)
        return self._of.size(self._seq)

    def write(self, first: int, end: int, address: int, size: int) -> bool:
        """Writes the tokens from ``first`` up to ``end`` to memory; whether that took
        ``size`` bytes, and no other number."""
        self._mark(first, end)
        return self._of.write(self._seq, address, size)

    def _mark(self, first: int, end: int) -> None:
        of, seq = self._of, self._seq
        of._remove(seq, _ALL, _ALL)
        of._copy(of._keeper, seq, first, end)
