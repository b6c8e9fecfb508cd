"""Which chunks a call is about."""

# pyright: strict, reportPrivateUsage=false

import array
import sys
from typing import NamedTuple, Optional, Sequence, Tuple

from . import _wire as wire
from ._wire import Buffer, SpaceInfo


class Space(NamedTuple):
    """All that must be equal for payloads to be exchangeable. Its ``repr`` does not show the salt.

    ``dtype``: names element type and layout. ``chunk_tokens``: 1 to 65,536. ``method``: who
    names chunks: ``sha256`` and ``xxh64``: the daemon, by their tokens (:func:`tokens`); ``given``
    or ``given:NAME``: the engine (:func:`hashes`). ``world``: ranks that share the model, each
    with payloads of its own; ``worker``: this one, from 0 on. ``group``: layers of a hybrid model
    that keep KV alike; "" for the only one. ``salt``: separates tenants; nobody stores or logs it.
    ``tags``: names and values of all else, such as a namespace; 32 at most, each name once."""

    model: str
    dtype: str
    chunk_tokens: int = 256
    method: str = "sha256"
    revision: str = ""
    lora: str = ""
    world: int = 1
    worker: int = 0
    group: str = ""
    salt: str = ""
    tags: Tuple[Tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        rank = f", rank {self.worker} of {self.world}" if self.world > 1 else ""
        more = [f"{name}={getattr(self, name)}" for name in ("revision", "lora", "group") if getattr(self, name)]
        more += [f"{name}={value}" for name, value in self.tags] + (["salted"] if self.salt else [])
        return f"<Space {self.model} {self.dtype}, {self.chunk_tokens} tokens, {self.method}{rank}{''.join(', ' + m for m in more)}>"

    def record(self) -> bytes:
        """As it goes into a frame."""
        tags = [wire.pair(name, value) for name, value in sorted(self.tags, key=lambda tag: tag[0].encode())]
        texts = (self.model, self.revision, self.lora, self.dtype, self.method, self.group, self.salt)
        return wire.space(self.world, self.worker, self.chunk_tokens, bytes(16), *texts, tags)  # salt digest 0: the salt itself is known


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
    #: Tokens between two hashes, with groups of which some have shorter chunks than the
    #: first: it divides the chunks of all. 0: each chunk has a hash.
    grain: int = 0

    def chain(self, space: SpaceInfo) -> bytes:
        """The chain of it, as it goes into a frame. A ValueError says that a chunk but the
        last is not full."""
        handle, skip = space.handle, self.skip
        if self.ids is not None:
            return wire.chain(handle, wire.FORMS_TOKENS, int(self.save_unfull), skip, 0, 0, _packed(self.ids), 4)
        full, lengths = self.grain or space.chunk_tokens, self.lengths
        last = lengths[-1] if lengths else full
        if lengths.count(full) + (last != full) != len(lengths):
            i, n = next((i, n) for i, n in enumerate(lengths) if n != full)
            raise ValueError(f"chunk {i} has {n} tokens: all but the last have those of the space, {full}")
        flags = self.save_unfull | self.alone << 1
        return wire.chain(handle, wire.FORMS_HASHES, flags, skip, 0 if last == full else last, 0, self.raw, self.width)

    def __repr__(self) -> str:
        what = f"{len(self.ids)} tokens" if self.ids is not None else f"{len(self.lengths)} hashes"
        skip = f", {self.skip} chunks skipped" if self.skip else ""
        return f"<Prompt {what}{skip}{', each alone' if self.alone else ''}{f', {self.space}' if self.space else ''}>"


def tokens(
    ids: Sequence[int], *, skip: int = 0, save_unfull: bool = False, space: Optional[Space] = None
) -> Prompt:
    """A prompt of token ids; the daemon computes the hashes. ``save_unfull``
    takes a last chunk of fewer tokens too, which is otherwise left off."""
    if not hasattr(ids, "__len__"):
        raise TypeError(f"a {type(ids).__name__} is no sequence of token ids, such as a list of whole numbers")
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


def _packed(ids: Sequence[int]) -> bytes:
    """Token ids of 32 bits. Those that lie so already are only copied."""
    if sys.byteorder == "little" and isinstance(ids, (array.array, memoryview)):
        lie = memoryview(ids)
        if lie.format == "I" and lie.itemsize == 4:
            return lie.tobytes()
    return wire.numbers(ids)
