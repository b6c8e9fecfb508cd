"""What a test sees of a class besides its answers: the frames that it sends, and
what the daemon keeps of its prompts."""

from __future__ import annotations

import contextlib
from typing import Iterator, List, Sequence
from unittest import mock

import kvstored
from kvstored.call import Call
from kvstored.chains import digest
from kvstored.wire import Space


@contextlib.contextmanager
def counted() -> Iterator[List[str]]:
    """The names of all requests that leave this process meanwhile."""
    sent: List[str] = []
    frame = Call.frame

    def noted(call: Call) -> bytes:
        sent.append(call.name)
        return frame(call)

    with mock.patch.object(Call, "frame", noted):
        yield sent


def left(client: kvstored.Client, space: Space, names: Sequence[bytes]) -> List[bool]:
    """Which of these chunks the daemon has."""
    ask = [kvstored.hashes(digest(n), [space.chunk_tokens], space=space, alone=True) for n in names]
    return [client.lookup(prompt, timeout=20).total.chunks == 1 for prompt in ask]


def run_of(there: Sequence[bool]) -> int:
    """How many of them, which must be the first. -1: others are there too."""
    n = there.index(False) if False in there else len(there)
    return -1 if any(there[n:]) else n
