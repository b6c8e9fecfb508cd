"""Reads of whole prompts into memory of the caller, without asking where that can be."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Tuple, Union

from .memory import address, copy_all, whole
from .prompt import Prompt
from .wire import Buffer

if TYPE_CHECKING:
    from .client import Client
    from .job import Job

#: Where chunks go: to a buffer, one behind the other, or to that which a function returns
#: for the number and the bytes of one.
Into = Union[Buffer, Callable[[int, int], Optional[Buffer]]]

_CPU = 1  # of search


def read(
    kv: "Client", prompt: Prompt, into: Into, search: int, policy: int, load_deadline: float, timeout: Optional[float]
) -> int:
    """See :meth:`Client.read`."""
    if not isinstance(prompt, Prompt):
        raise TypeError(f"a {type(prompt).__name__} is no prompt: make one with kvstored.tokens or kvstored.hashes")
    with _Room(into) as room:
        n, ended = _unasked(kv, prompt, search, room)
        if ended:
            return n
        ends = time.monotonic() + (kv.timeout if timeout is None else timeout)
        with kv.prefetch(prompt, search=search, policy=policy, load_deadline=load_deadline, timeout=timeout) as job:
            copied = _leased(kv, job, _readable(kv, prompt), n, room, ends)
        return copied if job.good else n


class _Room:
    """Where the chunks of one read go."""

    def __init__(self, into: Into) -> None:
        self._views: List[memoryview] = []  # of what is copied to
        self._ends = [0]  # of the chunks in the buffer
        if callable(into):
            self.at = self._asked(into)
            return
        view = whole(into, writable=True)
        self._views.append(view)
        self.at = self._behind(address(view), view.nbytes)

    def _behind(self, to: int, size: int) -> Callable[[int, int], int]:
        ends = self._ends

        def at(i: int, n: int) -> int:
            start = ends[i]
            if start + n > size:
                return 0
            ends[i + 1 :] = [start + n]
            return to + start

        return at

    def _asked(self, into: Callable[[int, int], Optional[Buffer]]) -> Callable[[int, int], int]:
        def at(i: int, n: int) -> int:
            memory = into(i, n)
            if memory is None:
                return 0
            view = whole(memory, writable=True)
            self._views.append(view)
            if view.nbytes < n:
                raise ValueError(f"chunk {i} has {n} bytes, its memory {view.nbytes}")
            return address(view)

        return at

    def __enter__(self) -> "_Room":
        return self

    def __exit__(self, *_: Any) -> None:
        for view in self._views:
            view.release()


def _unasked(kv: "Client", prompt: Prompt, search: int, room: _Room) -> Tuple[int, bool]:
    link = kv._link
    if link is None or link.unasked is None or search and not search & _CPU:
        return 0, False
    return link.unasked.read(link, prompt, kv._space(prompt.space), room.at)


def _readable(kv: "Client", prompt: Prompt) -> int:
    """Chunks that may be read: a daemon may be set to take a last chunk of fewer tokens
    for one of every prompt, and the directory is not."""
    link, ids = kv._link, prompt.ids
    info = None if link is None else link.spaces.get(kv._space(prompt.space))
    if ids is None or info is None or prompt.save_unfull:
        return sys.maxsize
    return len(ids) // info.chunk_tokens - prompt.skip


def _leased(kv: "Client", job: "Job", most: int, n: int, room: _Room, ends: float) -> int:
    """Copies the chunks of a job from number n on, as they become ready; how many there
    are in the end."""
    while True:
        state = job.state  # once: more may be ready, and the job done, when this is copied
        ready = min(state.ready.chunks, most)
        if n < ready:
            done = _mapped(job, n, ready, room) if kv.arena is not None else _fetched(kv, job, n, ready, room, ends)
            n += done
            if n < ready:
                return n
        before, left = state.ready.tokens, ends - time.monotonic()
        if n >= most or state.done or left <= 0:
            return n
        if job.wait(before + 1, left).ready.tokens == before:
            return n


def _mapped(job: "Job", n: int, ready: int, room: _Room) -> int:
    places: List[Tuple[int, int, int]] = []
    for i, (source, size) in enumerate(job.addresses()[n:ready], n):
        to = room.at(i, size)
        if not to:
            break
        places.append((to, source, size))
    copy_all(places)
    return len(places)


def _fetched(kv: "Client", job: "Job", n: int, ready: int, room: _Room, ends: float) -> int:
    """The same over the socket, where memory is not shared."""
    i = n
    while i < ready:
        got = kv.get(job.prompt, first=i, max_chunks=ready - i, timeout=max(0.0, ends - time.monotonic()))
        for chunk in got:
            to = room.at(i, len(chunk.payload))
            if not to:
                return i - n
            copy_all([(to, address(chunk.payload), len(chunk.payload))])
            i += 1
        if not got:
            break
    return i - n
