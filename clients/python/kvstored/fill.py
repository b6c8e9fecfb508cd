"""Fills: room for chunks to be stored."""

from __future__ import annotations

import time
from enum import IntEnum
from types import TracebackType
from typing import Iterator, List, NamedTuple, Optional, Type

from . import wire
from .errors import Error, ProtocolError
from .link import Frame, Link, Request
from .wire import Op, Stored


class Grant(IntEnum):
    GRANTED = 0  # write it and commit
    EXISTS = 1  # stored already
    PENDING = 2  # somebody else is writing it


class Result(IntEnum):
    STORED = 0
    EXISTS = 1
    DIFFERS = 2
    NOT_GRANTED = 3
    NO_SPACE = 4
    OVER_BUDGET = 5
    PENDING = 6
    OVER_QUOTA = 7


class Slot(NamedTuple):
    """One chunk of a fill. ``memory`` is None unless it was granted."""

    index: int  # type: ignore[assignment]  # not that of a tuple
    grant: int
    length: int
    memory: Optional[memoryview]
    address: int  # of memory; 0 if there is none


class Fill:
    """Made by :meth:`Client.reserve`. Slot i is chunk first + i of the prompt.

    Write the granted slots, then leave the ``with`` block, which commits, or
    aborts if it is left by an exception. The memory belongs to somebody else
    from then on.
    """

    def __init__(self, link: Optional[Link], timeout: float) -> None:
        """A fill without slots, until a reply brings some. ``timeout`` is that of
        calls that are given none."""
        self._link, self._timeout = link, timeout
        self._over = link is None
        self.id = 0
        self.reason = 6 if link is None else 1
        self.slots: List[Slot] = []
        #: What became of each slot, after the commit; empty if that is not known.
        self.results: List[Stored] = []

    def _deadline(self, timeout: Optional[float]) -> float:
        return time.monotonic() + (self._timeout if timeout is None else timeout)

    def _begin(self, body: bytes) -> "Fill":
        self.id, self.reason, slots = wire.reserve_reply(body)
        assert self._link is not None
        staging = self._link.staging
        for i, s in enumerate(slots):
            memory, address = None, 0
            if s.grant == Grant.GRANTED:
                if staging is None:
                    raise ProtocolError("slots were granted without a staging window")
                memory, address = staging.slice(s.offset, s.length), staging.address + s.offset
            self.slots.append(Slot(i, s.grant, s.length, memory, address))
        return self

    @staticmethod
    def _undo(body: bytes) -> Optional[Frame]:
        id, _, _ = wire.reserve_reply(body)
        return (Op.ABORT, wire.fill(id)) if id else None

    def __len__(self) -> int:
        return len(self.slots)

    def __iter__(self) -> Iterator[Slot]:
        """The slots to be written."""
        return (s for s in self.slots if s.memory is not None)

    def commit(self, timeout: Optional[float] = None) -> List[Stored]:
        """Makes the granted slots visible. A result for every slot; none if the
        daemon went away or was late, and then nobody knows."""
        if not self._over and self.id and self._link is not None:
            self._over = True
            try:
                request = self._commit_request()
                self.results = self._link.call(request, self._deadline(timeout))
            except Error:
                self.results = []
        elif not self._over:
            self.results = [Stored(Result.NOT_GRANTED, 0)] * len(self.slots)
        self._end()
        return self.results

    def _commit_request(self) -> Request:
        return Request(Op.COMMIT, wire.fill(self.id), wire.store_reply)

    def abort(self, timeout: Optional[float] = None) -> None:
        """Gives back what was not committed."""
        if not self._over and self.id and self._link is not None:
            self._over = True
            try:
                self._link.call(Request(Op.ABORT, wire.fill(self.id), wire.empty_reply), self._deadline(timeout))
            except Error:
                pass  # the daemon takes it back with the connection
        self._end()

    def _end(self) -> None:
        self._over = True
        for s in self.slots:
            if s.memory is not None:
                try:
                    s.memory.release()
                except BufferError:
                    pass  # an array still looks at it

    def __enter__(self) -> "Fill":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()
