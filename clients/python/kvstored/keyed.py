"""Prompts by the keys of their chunks, as a directory wants them."""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import keys, wire
from .directory import Directory, Row
from .prompt import Prompt
from .wire import Space, SpaceInfo

#: Chunks whose rows are remembered, of all prompts: one takes some 200 bytes.
_MOST_CHUNKS = keys.MOST_CHUNKS


class Keyed:
    """A prompt whose keys are computed as far as they are asked for. Safe for threads."""

    def __init__(self, directory: Directory, chain: keys.Chain, prompt: Prompt, info: SpaceInfo) -> None:
        self.chunks = chain.chunks - prompt.skip  # that may be read
        self._chain, self._prompt, self._info = chain, prompt, info
        self._row = directory.row_of(info.id)
        self._mu = threading.Lock()  # guards the fields below, which only grow
        self._hashes = bytearray()
        self._rows: List[Row] = []

    def rows(self, first: int, end: int) -> Sequence[Row]:
        """The rows of chunks, fewer where the daemon would refuse the next."""
        first, end = first + self._prompt.skip, min(end, self.chunks) + self._prompt.skip
        if len(self._rows) < end:
            with self._mu:
                for one in islice(self._chain.hashes, end - len(self._rows)):
                    self._hashes += one
                    self._rows.append(self._row(one))
        return self._rows[first:end]

    def record(self, chunks: int) -> bytes:
        """The chain up to so many of its chunks, which were read, for the daemon."""
        n, full, skip = chunks + self._prompt.skip, self._info.chunk_tokens, self._prompt.skip
        last = self._chain.last if n == self._chain.chunks else full
        raw = bytes(self._hashes[: 16 * n])
        return wire.chain_hashes(
            self._info.handle, 16, raw, 0 if last == full else last, skip, last != full, self._prompt.alone
        )


class Known:
    """The prompts of one connection. Those that cannot change are remembered, the last
    that have so many chunks together."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._mu = threading.Lock()  # guards the fields below
        self._prompts: Dict[Any, Keyed] = {}  # the oldest first
        self._chunks = 0

    def find(self, prompt: Prompt, space: Space, info: SpaceInfo) -> Optional[Keyed]:
        """A prompt by its keys, None where they are not known here."""
        name = _name(prompt, info)
        known = None if name is None else self._prompts.get(name)
        if known is not None:
            return known
        chain = keys.chain(prompt, space, info)
        if chain is None:
            return None
        made = Keyed(self._directory, chain, prompt, info)
        if name is not None:
            self._remember(name, made)
        return made

    def _remember(self, name: Any, made: Keyed) -> None:
        with self._mu:
            if name in self._prompts:
                return
            self._prompts[name] = made
            self._chunks += made.chunks
            while self._chunks > _MOST_CHUNKS and len(self._prompts) > 1:
                self._chunks -= self._prompts.pop(next(iter(self._prompts))).chunks


def _name(prompt: Prompt, info: SpaceInfo) -> Optional[Tuple[Any, ...]]:
    """What tells a prompt from all others that are remembered, which hold what they are
    made of; None for one that may change."""
    if prompt.ids is None and type(prompt.raw) is bytes:
        n = len(prompt.lengths)
        last = prompt.lengths[-1] if n else 0
        return prompt.raw, prompt.width, n, last, prompt.skip, bool(prompt.alone), info.handle
    kept = prompt.kept_as()
    if kept is None:
        return None
    return id(kept), prompt.skip, bool(prompt.save_unfull), bool(prompt.alone), info.handle
