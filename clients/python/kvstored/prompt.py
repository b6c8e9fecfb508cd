"""Which chunks a call is about."""

from __future__ import annotations

import threading
from typing import Dict, NamedTuple, Optional, Sequence, Tuple

from . import wire
from .wire import Buffer, Space, SpaceInfo


class Prompt(NamedTuple):
    """The chunks of one prompt, made by :func:`tokens` or :func:`hashes`.

    Every chunk number and every count in calls and results starts after
    ``skip``, which leaves leading chunks out that only give the position.
    """

    ids: Optional[Sequence[int]] = None
    width: int = 0
    raw: Buffer = b""
    lengths: Sequence[int] = ()
    skip: int = 0
    save_unfull: bool = False
    space: Optional[Space] = None  # None: the one of the client
    alone: bool = False
    ref: int = 0  # of a live job of the connection, whose prompt it is
    keep: Optional["Prompt"] = None  # made by kept of this one
    #: Tokens between two hashes, with groups of which some have shorter chunks than the
    #: first: it divides the chunks of all. 0: each chunk has a hash.
    grain: int = 0

    def kept(self) -> "Prompt":
        """This prompt, for several calls: each connection sends its tokens or hashes
        once, with the first lookup, prefetch, get or reserve, and refers to them from
        then on. The daemon keeps the last 16 of a connection; one that it keeps no
        more is sent again, and one of more than 65,536 chunks with each call. What it
        was made of must not change for as long as the result is used."""
        return self._replace(keep=self)

    def kept_as(self) -> Optional["Prompt"]:
        """What the daemon may be told to keep: None for a prompt that is not made by
        :meth:`kept`, or has other tokens or hashes since."""
        k = self.keep
        if k is None or self.ref or self.ids is not k.ids or self.raw is not k.raw or self.lengths is not k.lengths:
            return None
        return k if self.width == k.width else None

    def chain(self, space: SpaceInfo, keep: int = 0) -> bytes:
        """The chain of what is not named by ``ref``; ``keep``, if not 0, is the number
        under which the daemon keeps it. A ValueError says that a chunk but the last is
        not full."""
        if self.ids is not None:
            return wire.chain_tokens(space.handle, self.ids, self.skip, self.save_unfull, keep)
        full, lengths = self.grain or space.chunk_tokens, self.lengths
        last = lengths[-1] if lengths else full
        if lengths.count(full) + (last != full) != len(lengths):
            i, n = next((i, n) for i, n in enumerate(lengths) if n != full)
            raise ValueError(f"chunk {i} has {n} tokens: all but the last have those of the space, {full}")
        return wire.chain_hashes(
            space.handle, self.width, self.raw, 0 if last == full else last, self.skip, self.save_unfull, self.alone, keep
        )

    def __repr__(self) -> str:
        what = f"of job {self.ref}" if self.ref else f"{len(self.ids)} tokens" if self.ids is not None else f"{len(self.lengths)} hashes"
        skip = f", {self.skip} chunks skipped" if self.skip else ""
        kept = ", kept" if self.keep is not None else ""
        return f"<Prompt {what}{skip}{', each alone' if self.alone else ''}{kept}{f', {self.space}' if self.space else ''}>"


class Kept:
    """The chains that one connection has sent to be kept, by the numbers that they
    have there. Safe for threads."""

    def __init__(self, limits: wire.Limits) -> None:
        self._most, self._chunks = limits.kept_chains, limits.kept_chunks
        self._mu = threading.Lock()  # guards the fields below
        # Oldest first. The prompts are held, so that no other has the address of one.
        self._sent: Dict[Tuple[int, int, bool, bool], Tuple[int, Prompt]] = {}
        self._last = 0

    def number(self, prompt: Prompt, space: SpaceInfo) -> Tuple[int, bool]:
        """The number of a prompt, and whether its chain was sent; 0 if it is not to be
        kept. No number is given twice: one that the daemon keeps no more names nothing."""
        of = prompt.kept_as()
        if of is None:
            return 0, False
        n = len(of.lengths) if of.ids is None else -(-len(of.ids) // max(1, space.chunk_tokens))
        if n > self._chunks or not self._most:
            return 0, False
        key = (id(of), space.handle, bool(prompt.save_unfull), bool(prompt.alone))
        with self._mu:
            known = self._sent.get(key)
            if known is not None:
                return known[0], True
            self._last += 1
            self._sent[key] = self._last, of
            if len(self._sent) > self._most:
                del self._sent[next(iter(self._sent))]
            return self._last, False


def tokens(
    ids: Sequence[int], *, skip: int = 0, save_unfull: bool = False, space: Optional[Space] = None
) -> Prompt:
    """A prompt of token ids; the daemon computes the hashes. ``save_unfull``
    takes a last chunk of fewer tokens too, which is otherwise left off."""
    return Prompt(ids=ids, skip=skip, save_unfull=save_unfull, space=space)


def hashes(
    raw: Buffer,
    lengths: Sequence[int],
    *,
    width: int = 16,
    skip: int = 0,
    alone: bool = False,
    space: Optional[Space] = None,
) -> Prompt:
    """A prompt whose chain hashes the engine computed: ``width`` bytes (8, 16 or
    32) of ``raw`` for each chunk, ``lengths`` the tokens of each chunk. With
    ``alone`` the chunks are no prompt: each is the first of its own, and they
    are only named together."""
    if len(raw) != width * len(lengths):
        raise ValueError(f"{len(raw)} bytes of hashes for {len(lengths)} chunks of {width} bytes each")
    return Prompt(width=width, raw=raw, lengths=lengths, skip=skip, save_unfull=True, space=space, alone=alone)
