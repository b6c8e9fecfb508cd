"""Reads that the daemon was not asked for, and what it is told of them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, List, Optional

from . import wire
from .call import Call, Request
from .errors import Code, Error, Refused
from .wire import Op

if TYPE_CHECKING:
    from .link import Link

#: A request tells of so many reads, or of so many bytes of their chains; those of the
#: client in Go. Fewer go with any other request, and when the link is tended.
_MOST, _MOST_BYTES = 64, 64 << 10
#: Of one request at most, and requests without an answer. Where the daemon is slow to
#: answer, it is not told of reads beyond that.
_LIMIT, _LIMIT_BYTES, _LIMIT_OUT = 1024, 1 << 20, 16


class _Told(Call):
    """A request that tells of reads until it is sent."""

    __slots__ = ("untold", "reads", "size")

    def __init__(self, untold: "Untold", id: int) -> None:
        super().__init__(id, Request(Op.READ, b"", wire.plain_reply))
        self.untold, self.size = untold, 0
        self.reads: List[bytes] = []

    def frame(self) -> bytes:
        self.untold.sending(self)
        body = wire.read(self.reads)
        return wire.HEADER.pack(len(body), wire.REQUEST, Op.READ, 0, self.id) + body


class Untold:
    """The reads of one connection that the daemon is not told of yet. Safe for threads."""

    def __init__(self) -> None:
        #: Set where the user may not read any more: the daemon is asked for every chunk.
        self.off = False
        self._mu = threading.Lock()  # guards the fields below; the link takes it, and it takes nothing
        self._next: Optional[_Told] = None  # takes reads
        self._out: List[_Told] = []  # that were sent; the first may be answered

    def add(self, link: "Link", record: bytes) -> None:
        """Takes a read, and tells of all if it is time. Waits for nothing."""
        with self._mu:
            told, fresh = self._next, self._next is None
            if told is None:
                if self._left() >= _LIMIT_OUT:
                    return
                told = self._next = _Told(self, link.next_id())
            if len(told.reads) < _LIMIT and told.size < _LIMIT_BYTES:
                told.reads.append(record)
                told.size += len(record)
            due = len(told.reads) >= _MOST or told.size >= _MOST_BYTES
        if fresh:
            link.put_off(told)
        if due:
            self._tell(link)

    def sending(self, told: _Told) -> None:
        """Takes no more reads into a request that goes out."""
        with self._mu:
            if self._next is told:
                self._next = None
                self._out.append(told)

    def _tell(self, link: "Link") -> None:
        """Sends what is due, unless the request before has no answer: then it goes out
        when the link is tended."""
        try:
            if self._unanswered():
                link.catch_up()
            if not self._unanswered():
                link.start([], time.monotonic())
        except Error:
            pass  # the next who asks learns why

    def _unanswered(self) -> int:
        """How many requests have no answer."""
        with self._mu:
            return self._left()

    def _left(self) -> int:
        """The same, with the lock held. Those that have one are forgotten."""
        while self._out and self._out[0].done:
            error = self._out.pop(0).error
            self.off |= isinstance(error, Refused) and error.code == Code.DENIED
        return len(self._out)

    def farewell(self, link: "Link") -> None:
        """Tells of the last reads if that takes no waiting."""
        if self._next is not None and link.down is None:
            try:
                link.start([], time.monotonic())
            except Error:
                pass
