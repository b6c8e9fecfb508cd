"""The sequences of a llama.cpp context as bytes: any range of tokens, or the whole.

llama.cpp writes and reads the state of whole sequences only. A sequence is a mark
on cells of the KV cache, and marks can be copied for a range of positions. So a
second sequence, the *spare* one, stands in. What llama.cpp reads becomes the spare
sequence, and the sequence itself gets the marks of these cells too; only the first
range is read into the sequence itself, which is empty then. To write, the
spare one holds all cells while the sequence itself is marked on one range at a time:
llama.cpp does not write a sequence that its context was not made with. That needs
one buffer of cells for all sequences (``kv_unified``).

A context belongs to one thread at a time, as it does for ``llama_decode``.
"""

import ctypes
from contextlib import contextmanager
from typing import Any, Iterator, Optional

_ALL = -1  # as the end of a range, and as its start


class Sequences:
    """The sequences of one context."""

    def __init__(self, functions: Any, ctx: Any, spare: Optional[int] = None) -> None:
        """``functions``: llama.cpp's, under their names: the module llama_cpp, or any
        object that has them. ``spare``: the number of a sequence that the caller
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
        if spare is not None and not 0 <= spare < known:
            raise ValueError(f"spare is {spare}: it must be from 0 to {known - 1}, the sequences that llama.cpp knows")
        #: The number of the spare sequence.
        self.spare = known - 1 if spare is None else spare
        if not self.whole and spare is None and self.spare < functions.llama_n_seq_max(ctx):
            raise ValueError(
                f"the context uses all {self.spare + 1} sequences that llama.cpp knows: make it with a smaller n_seq_max, "
                "or give the number of one that is never used as spare"
            )

    def check(self, seq: int) -> None:
        """Raises a ValueError where a sequence cannot be the caller's. llama.cpp takes
        numbers below 0 for all sequences, and ends the process at those it does not know."""
        most = int(self._f.llama_n_seq_max(self._ctx))
        if not 0 <= seq < most:
            raise ValueError(f"seq is {seq}: the context has sequences 0 to {most - 1}, by its n_seq_max")
        if seq == self.spare and not self.whole:
            raise ValueError(f"seq is {seq}, which is the spare one: give as spare another sequence that is never used")

    def held(self, seq: int) -> int:
        """How many tokens a sequence holds, by its last; 0 where it does not hold its
        first. One that is missing in between is not seen here, but by a store."""
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
        """Adds ranges to the first ``have`` tokens of a sequence, which are all it has."""
        self._remove(self.spare, _ALL, _ALL)
        try:
            yield Loading(self, seq, have)
        finally:
            self._remove(self.spare, _ALL, _ALL)

    @contextmanager
    def apart(self, seq: int) -> Iterator["Apart"]:
        """Takes ranges of a sequence apart. Until the end of the ``with`` block it
        is not to be used; afterwards it is as it was."""
        self._remove(self.spare, _ALL, _ALL)
        self._copy(seq, self.spare, _ALL, _ALL)
        try:
            yield Apart(self, seq)
        finally:
            self._remove(seq, _ALL, _ALL)
            self._copy(self.spare, seq, _ALL, _ALL)
            self._remove(self.spare, _ALL, _ALL)

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
        #: Tokens that the sequence holds.
        self.count = have

    def add(self, address: int, size: int, first: int, end: int) -> bool:
        """Takes what was written of the tokens from ``first`` up to ``end`` in place
        of all from ``first`` on. Whether it was that, and there was room for it."""
        of = self._of
        # Before, so that its cells come where theirs were: the order of cells is that
        # of sums, and decides on the last bits of what is computed.
        self.cut(first)
        # An empty sequence has nothing to lose, and needs no marks from another.
        into = of.spare if first else self._seq
        if not of.read(into, address, size, end):
            return False
        if of._first(into) != first:
            of._remove(into, _ALL, _ALL)
            return False
        if into != self._seq:
            of._copy(into, self._seq, first, end)
        self.count = end
        return True

    def cut(self, count: int) -> None:
        """Removes all but the first ``count`` tokens."""
        if count < self.count:
            # Cells that only the spare sequence still marks would not be free.
            self._of._remove(self._of.spare, _ALL, _ALL)
            self._of._remove(self._seq, count, _ALL)
            self.count = count


class Apart:
    """A sequence whose ranges can be written. Made by :meth:`Sequences.apart`."""

    def __init__(self, of: Sequences, seq: int) -> None:
        self._of, self._seq = of, seq

    def size(self, first: int, end: int) -> int:
        """Bytes of what :meth:`write` writes of these tokens; 0 where one of them is
        missing, as what is written of a token is the same for each."""
        one, two, size = (self._size(first, min(to, end)) for to in (first + 1, first + 2, end))
        if end == first + 1:
            return size if size > self._size(first, first) else 0
        return size if two > one and size == one + (two - one) * (end - first - 1) else 0

    def _size(self, first: int, end: int) -> int:
        self._mark(first, end)
        return self._of.size(self._seq)

    def write(self, first: int, end: int, address: int, size: int) -> bool:
        """Writes the tokens from ``first`` up to ``end`` to memory; whether that took
        ``size`` bytes, and no other number."""
        self._mark(first, end)
        return self._of.write(self._seq, address, size)

    def _mark(self, first: int, end: int) -> None:
        of = self._of
        of._remove(self._seq, _ALL, _ALL)
        if first < end:
            of._copy(of.spare, self._seq, first, end)
