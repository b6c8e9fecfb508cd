"""Which chunks a call is about."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

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

    def chain(self, space: SpaceInfo) -> bytes:
        """The chain of what is not named by ``ref``. A ValueError says that a chunk
        but the last is not full."""
        if self.ids is not None:
            return wire.chain_tokens(space.handle, self.ids, self.skip, self.save_unfull)
        full = space.chunk_tokens
        for i, n in enumerate(self.lengths):
            if n != full and i + 1 < len(self.lengths):
                raise ValueError(f"chunk {i} has {n} tokens: all but the last have those of the space, {full}")
        last = self.lengths[-1] if self.lengths else full
        return wire.chain_hashes(
            space.handle, self.width, self.raw, 0 if last == full else last, self.skip, self.save_unfull, self.alone
        )

    def __repr__(self) -> str:
        what = f"of job {self.ref}" if self.ref else f"{len(self.ids)} tokens" if self.ids is not None else f"{len(self.lengths)} hashes"
        skip = f", {self.skip} chunks skipped" if self.skip else ""
        return f"<Prompt {what}{skip}{', each alone' if self.alone else ''}{f', {self.space}' if self.space else ''}>"


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
