"""Stores in one round trip each: the commit of one fill and the reservation of the
next go out together, and the daemon takes over what is written while more is."""

from __future__ import annotations

import collections
import itertools
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Deque, Iterator, List, Optional, Sequence, Type, Union

from . import wire
from .call import Call, Request
from .errors import DeadlineExceeded, Error
from .fill import FillCalls, Grant, Result
from .link import Link
from .memory import address, copy_all, whole
from .prompt import Prompt
from .state import Reason
from .wire import Buffer, Op, Stored

if TYPE_CHECKING:
    from .client import Client

#: Commits that are under way at most. One more than the daemon works on keeps it
#: busy; each keeps its part of the staging window until it is done.
_IN_FLIGHT = 2
#: From so many bytes on slots are committed while the ones behind them are written.
_COMMIT_BYTES = 1 << 20
_NOT_GRANTED = Stored(Result.NOT_GRANTED, 0)
_NO_ROOM = (Result.NO_SPACE, Result.OVER_BUDGET, Result.OVER_QUOTA)


class _Commit:
    """A commit of ``count`` slots from ``first`` on, that goes out with the next
    request of its link."""

    def __init__(self, link: Link, fill: FillCalls, first: int, count: int) -> None:
        self._link, self._fill, self._first, self._count = link, fill, first, count
        self._call: Call = link.later(Request(Op.COMMIT, wire.fill(fill.id, first, count), wire.store_reply))

    def wait(self, deadline: float) -> None:
        """Puts the results into the fill; or none into it, if they are not known."""
        try:
            if not self._call.done:
                self._link.start([], deadline)  # what is not sent
            results = self._link.wait(self._call, deadline)
        except Error as e:
            self._fill.results = []
            if isinstance(e, DeadlineExceeded):  # it may not even be sent
                self._link.later(Request(Op.ABORT, wire.fill(self._fill.id, self._first, self._count), wire.empty_reply))
            return
        if self._fill.results:
            self._fill.results[self._first : self._first + self._count] = results


class Commits:
    """The commits that one thread has under way."""

    def __init__(self) -> None:
        self._under: Deque[_Commit] = collections.deque()

    def __bool__(self) -> bool:
        return bool(self._under)

    def write(self, link: Link, fill: FillCalls, write: Callable[[int, int], Any], deadline: float) -> None:
        """Has the granted slots written and committed: the first while the next are
        written, the last with the next request, or by :meth:`finish`. ``write`` is
        called with the first slot of a part and the one behind it. Where it raises,
        what is not committed is given back."""
        fill.results = [_NOT_GRANTED] * len(fill)
        first = 0
        try:
            for end in _parts(fill):
                write(first, end)
                if fill.id:
                    self._commit(_Commit(link, fill, first, end - first), deadline)
                    if end < len(fill):
                        link.start([], deadline)
                first = end
        except BaseException:
            if fill.id and first < len(fill):
                link.later(Request(Op.ABORT, wire.fill(fill.id, first, len(fill) - first), wire.empty_reply))
            raise
        finally:
            fill._end()

    def _commit(self, commit: _Commit, deadline: float) -> None:
        while len(self._under) >= _IN_FLIGHT:
            self._under.popleft().wait(deadline)
        self._under.append(commit)

    def finish(self, deadline: float) -> None:
        """Waits until none is under way. From then on fills have their results."""
        while self._under:
            self._under.popleft().wait(deadline)


def _parts(fill: FillCalls) -> Iterator[int]:
    """Where the parts of a fill end that are committed one after the other."""
    # A prompt that its quota cuts short ends there: what is committed before the
    # rest is refused could be written, and let go for the rest.
    if fill.reason != Reason.OVER_QUOTA:
        size = 0
        for end, (grant, length, _) in enumerate(fill._rows[:-1], 1):
            if grant == Grant.GRANTED:
                size += length
                if size >= _COMMIT_BYTES:
                    yield end
                    size = 0
    yield len(fill)


class Put:
    """Chunks that a :class:`Writer` stores."""

    def __init__(self, writer: "Writer") -> None:
        self._writer = writer
        self._fills: List[FillCalls] = []

    def results(self, timeout: Optional[float] = None) -> List[Stored]:
        """A result for each chunk, up to the first that had no room, or that nobody
        knows of because the daemon went away or was late."""
        self._writer.flush(timeout)
        out: List[Stored] = []
        for fill in self._fills:
            for (grant, _, _), r in zip(fill._rows, fill.results):
                if grant == Grant.GRANTED and r.result in _NO_ROOM:
                    return out
                out.append(_result(grant, r))
            if len(fill.results) < len(fill):
                return out
        return out


class Writer:
    """Stores chunks of one prompt after another, in one round trip each. For one
    thread at a time. Leave its ``with`` block, call :meth:`flush`, or ask for the
    results: what was put last is not committed before, or only some tenths of a
    second later."""

    def __init__(self, kv: "Client") -> None:
        self._kv = kv
        self._commits = Commits()

    def put(
        self,
        prompt: Prompt,
        sizes: Sequence[int],
        write: Union[Callable[[int, memoryview], Any], Buffer],
        *,
        first: int = 0,
        wait: float = 0.0,
        timeout: Optional[float] = None,
    ) -> Put:
        """As :meth:`Client.store`, but returns when the last chunk is written."""
        if callable(write):
            return self._put(prompt, sizes, _called(write, first), first, wait, timeout)
        with whole(write) as payloads:
            if payloads.nbytes != sum(sizes):
                raise ValueError(f"payloads of {payloads.nbytes} bytes: the sizes are {sum(sizes)} in all")
            return self._put(prompt, sizes, _copied(address(payloads), sizes), first, wait, timeout)

    def _put(
        self, prompt: Prompt, sizes: Sequence[int], write: "_Write", first: int, wait: float, timeout: Optional[float]
    ) -> Put:
        put, at = Put(self), 0
        limit = self._kv.timeout + wait if timeout is None else timeout
        while at < len(sizes):
            fill = self._reserve(prompt, sizes[at:] if at else sizes, first + at, wait, limit)
            link = fill._link
            if link is None or not len(fill):
                break
            put._fills.append(fill)
            self._commits.write(link, fill, write(fill, at), time.monotonic() + limit)
            at += len(fill)
            if fill.reason == Reason.OVER_QUOTA:
                self._commits.finish(time.monotonic() + limit)
        return put

    def _reserve(self, prompt: Prompt, sizes: Sequence[int], first: int, wait: float, limit: float) -> FillCalls:
        """Asks for room; once more where commits under way may have it."""
        told = sizes[:1] if sizes.count(sizes[0]) == len(sizes) else sizes
        while True:
            busy = bool(self._commits)
            fill = self._kv.reserve(prompt, sizes=told, first=first, count=len(sizes), wait=wait, timeout=limit, leads=True)
            if len(fill) or not busy:
                return fill
            self._commits.finish(time.monotonic() + limit)

    def flush(self, timeout: Optional[float] = None) -> None:
        """Commits what is not committed, and waits for that."""
        self._commits.finish(self._kv._deadline(timeout))

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.flush()


#: Makes what writes the slots of a fill, whose first is chunk ``at`` of those given.
_Write = Callable[[FillCalls, int], Callable[[int, int], Any]]


def _called(write: Callable[[int, memoryview], Any], first: int) -> _Write:
    """Has a caller write each slot."""

    def of(fill: FillCalls, at: int) -> Callable[[int, int], Any]:
        def part(begin: int, end: int) -> None:
            for slot in fill.slots[begin:end]:
                if slot.memory is not None:
                    write(first + at + slot.index, slot.memory)

        return part

    return of


def _copied(source: int, sizes: Sequence[int]) -> _Write:
    """Copies payloads that lie one behind the other."""
    places = list(itertools.accumulate(sizes, initial=source))

    def of(fill: FillCalls, at: int) -> Callable[[int, int], Any]:
        def part(begin: int, end: int) -> None:
            copy_all([(slot, places[at + i], length) for i, slot, length in fill._granted(begin, end)])

        return part

    return of


def _result(grant: int, r: Stored) -> Stored:
    """What was not granted is there, or somebody else is writing it."""
    if grant == Grant.GRANTED:
        return r
    return r._replace(result=Result.PENDING if grant == Grant.PENDING else Result.EXISTS)
