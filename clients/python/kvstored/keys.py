"""The hashes of a prompt's chunks, computed as the daemon computes them."""

from __future__ import annotations

import array
import hashlib
import struct
from typing import Iterator, NamedTuple, Optional, Sequence

from .prompt import Prompt
from .wire import Space, SpaceInfo

#: Chunks of a prompt whose hashes are computed here, at most: of 4 MiB each they are
#: 64 GiB. It is the number of the client in Go.
MOST_CHUNKS = 16 << 10

_HASH_BYTES = 16
_DOMAIN = b"kvstored-chain-1"
_U32 = struct.Struct("<I")


class Chain(NamedTuple):
    """The chunks of a prompt, those that are skipped too."""

    hashes: Iterator[bytes]  # 16 bytes each; it ends early where the daemon would refuse one
    chunks: int
    last: int  # tokens of the last one


def chain(prompt: Prompt, space: Space, info: SpaceInfo) -> Optional[Chain]:
    """The chain of a prompt; None where it is long, where the daemon alone computes its
    hashes, or would refuse it."""
    if prompt.ref or prompt.grain or prompt.skip < 0:
        return None
    full = info.chunk_tokens
    if prompt.ids is not None:
        chunks, rest = divmod(len(prompt.ids), full)
        if space.method != "sha256" or prompt.alone:
            return None
        last = full
        if prompt.save_unfull and rest:
            chunks, last = chunks + 1, rest
        found = Chain(_distinct(_computed(prompt.ids, full, chunks, _seed(space, full))), chunks, last)
    else:
        chunks, width = len(prompt.lengths), prompt.width
        last = prompt.lengths[-1] if chunks else 0
        given = width == _HASH_BYTES or (space.method + ":").startswith("given:") and width in (8, 32)
        if not given or not 0 < last <= full or any(n != full for n in prompt.lengths[:-1]):
            return None
        found = Chain(_distinct(_cut(bytes(prompt.raw), width)), chunks, last)
    return found if prompt.skip < chunks <= MOST_CHUNKS else None


def _seed(space: Space, chunk_tokens: int) -> bytes:
    """What stands for the hash before the first chunk."""
    method, salt = space.method.encode(), space.salt.encode()
    form = (_DOMAIN, _U32.pack(len(method)), method, _U32.pack(chunk_tokens), _U32.pack(len(salt)), salt)
    return hashlib.sha256(b"".join(form)).digest()[:_HASH_BYTES]


def _computed(ids: Sequence[int], size: int, chunks: int, last: bytes) -> Iterator[bytes]:
    for at in range(0, chunks * size, size):
        try:
            tokens = array.array("I", ids[at : at + size]).tobytes()
        except (OverflowError, TypeError):
            return  # the request says what is wrong with them
        last = hashlib.sha256(last + tokens).digest()[:_HASH_BYTES]
        yield last


def _cut(raw: bytes, width: int) -> Iterator[bytes]:
    used = min(width, _HASH_BYTES)
    pad = bytes(_HASH_BYTES - used)
    for at in range(0, len(raw), width):
        yield raw[at : at + used] + pad


def _distinct(hashes: Iterator[bytes]) -> Iterator[bytes]:
    """Hashes up to the first that is zero, or is there already."""
    seen = {bytes(_HASH_BYTES)}
    for n, one in enumerate(hashes, 2):
        seen.add(one)
        if len(seen) < n:
            return
        yield one
