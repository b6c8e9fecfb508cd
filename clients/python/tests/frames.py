"""What a test sees of a class besides its answers: the frames that it sends, and
what the daemon keeps of its prompts."""

import contextlib
import time
from typing import Any, Callable, Iterator, List, NamedTuple, Sequence
from unittest import mock

import kvstored
from kvstored._connection import Link
from kvstored._wire import HEADER, Op
from kvstored.chains import digest


class Frame(NamedTuple):
    op: Op
    left: float  # seconds until it is late


@contextlib.contextmanager
def sent() -> Iterator[List[Frame]]:
    """All requests that leave this process meanwhile."""
    frames: List[Frame] = []
    with each(frames.append):
        yield frames


@contextlib.contextmanager
def counted() -> Iterator[List[str]]:
    """Their names."""
    names: List[str] = []
    with each(lambda frame: names.append(frame.op.name.lower())):
        yield names


@contextlib.contextmanager
def each(told: Callable[[Frame], None]) -> Iterator[None]:
    send = Link._send

    def noted(link: Link, out: bytes, size: int, deadline: float, payloads: Sequence[Any] = ()) -> None:
        if out:
            told(Frame(Op(HEADER.unpack_from(out)[2]), deadline - time.monotonic()))
        send(link, out, size, deadline, payloads)

    with mock.patch.object(Link, "_send", noted):
        yield


@contextlib.contextmanager
def options(call: str, name: str) -> Iterator[List[Any]]:
    """What a call of the client is given under a name, each time meanwhile."""
    given: List[Any] = []
    real = getattr(kvstored.Client, call)

    def noted(client: kvstored.Client, *args: Any, **more: Any) -> Any:
        given.append(more[name])
        return real(client, *args, **more)

    with mock.patch.object(kvstored.Client, call, noted):
        yield given


def left(client: kvstored.Client, space: kvstored.Space, names: Sequence[bytes]) -> List[bool]:
    """Which of these chunks the daemon has."""
    ask = [kvstored.hashes(digest(n), [space.chunk_tokens], space=space, alone=True) for n in names]
    return [client.lookup(prompt, timeout=20).total.chunks == 1 for prompt in ask]


def run_of(there: Sequence[bool]) -> int:
    """How many of them, which must be the first. -1: others are there too."""
    n = there.index(False) if False in there else len(there)
    return -1 if any(there[n:]) else n
