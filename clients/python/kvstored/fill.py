"""Fills: room for chunks to be stored."""

from __future__ import annotations

from enum import IntEnum
from types import TracebackType
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple, Type

from . import wire
from .ask import Ask, Asker, Going, Steps, call, or_later
from .call import Frame, Request
from .errors import Code, Disconnected, Error, ProtocolError
from .link import Link
from .state import Reason, reason_name, reason_of
from .wire import Op, Stored


class Grant(IntEnum):
    """What a slot is: those codes that a reserve may answer for one."""

    GRANTED = Code.OK  # write it and commit
    EXISTS = Code.EXISTS  # stored already
    PENDING = Code.PENDING  # another client is writing it


_GRANTED = int(Grant.GRANTED)


class Result(IntEnum):
    """What became of a chunk: those codes that a commit or put may answer for one."""

    STORED = Code.OK
    EXISTS = Code.EXISTS
    DIFFERS = Code.DIFFERS
    NOT_GRANTED = Code.NOT_RESERVED
    NO_SPACE = Code.NO_SPACE
    OVER_BUDGET = Code.OVER_BUDGET
    PENDING = Code.PENDING
    OVER_QUOTA = Code.OVER_QUOTA
    DECLINED = Code.DECLINED


class Slot(NamedTuple):
    """One chunk of a fill. ``memory`` is None unless it was granted."""

    index: int  # type: ignore[assignment]  # not that of a tuple
    grant: int
    length: int  # of what is there already, where it EXISTS; 0 if the daemon does not know
    memory: Optional[memoryview]
    address: int  # of memory; 0 if there is none

    def __repr__(self) -> str:
        return _slot(self.index, self.grant, self.length)


class GrantedSlot(NamedTuple):
    """A slot to be written."""

    index: int  # type: ignore[assignment]
    grant: int
    length: int
    memory: memoryview
    address: int

    def __repr__(self) -> str:
        return _slot(self.index, self.grant, self.length)


def _slot(index: int, grant: int, length: int) -> str:
    name = {int(g): g.name.lower() for g in Grant}.get(grant, str(grant))
    return f"<Slot {index}: {name}, {length} bytes>"


class FillCalls(Asker):
    """What can be asked of a fill. Slot i is chunk first + i of the prompt."""

    def __init__(self, link: Optional[Link], timeout: float, error: Optional[Error] = None) -> None:
        """A fill without slots, until a reply brings some. ``timeout`` is that of
        calls that are given none."""
        self._link, self._timeout = link, timeout
        self._over = link is None
        self.id = 0
        #: Why there are fewer slots than chunks asked for: a :class:`Reason`. Also
        #: where there is no fill; ``error`` has the words.
        self.reason = int(Reason.COMPLETE)
        #: Why there is no fill, where that was not the daemon's word.
        self.error: Optional[Error] = None
        if link is None:
            self.error = error or Disconnected("there is no connection to the daemon")
            self.reason = int(reason_of(self.error))
        self._rows: Sequence[Tuple[int, int, int]] = ()  # of each slot what a wire.Slot has
        self._slots: Optional[List[Slot]] = None  # once they are asked for
        #: Numbers of slots whose chunk is there with another checksum than the one given with ``sums``.
        self.differ: List[int] = []
        #: What became of each slot, after the commit; empty if that is not known.
        self.results: List[Stored] = []

    @property
    def timeout(self) -> float:  # type: ignore[override]
        return self._timeout

    def _attached(self) -> Link:
        if self._link is None:
            raise Disconnected("there is no connection to the daemon")
        return self._link

    def _begin(self, body: bytes) -> "FillCalls":
        id, self.reason, rows, self.differ = wire.reserve_reply(body)
        self.id = id
        assert self._link is not None
        window = self._link.staging
        for grant, length, offset in rows:
            if grant == _GRANTED and (window is None or offset + length > window.size):
                if window is None:
                    raise ProtocolError("slots were granted without a staging window")
                window.at(offset, length)
        self._rows = rows
        return self

    @property
    def slots(self) -> List[Slot]:
        """A slot for each chunk that there was room for, or that needs none."""
        if self._slots is None:
            self._slots = [Slot(i, *self._slot(*row)) for i, row in enumerate(self._rows)]
            if self._over:
                self._end()
        return self._slots

    def _slot(self, grant: int, length: int, offset: int) -> Tuple[int, int, Optional[memoryview], int]:
        window = None if self._link is None else self._link.staging
        if grant != _GRANTED or window is None:
            return grant, length, None, 0
        return grant, length, window.slice(offset, length), window.address + offset

    def _granted(self, first: int, end: int) -> List[Tuple[int, int, int]]:
        """Number, address and bytes of each slot to be written, of those from first to end."""
        window = None if self._link is None else self._link.staging
        base = 0 if window is None else window.address
        rows = enumerate(self._rows[first:end], first)
        return [(i, base + offset, length) for i, (grant, length, offset) in rows if grant == _GRANTED]

    @staticmethod
    def _undo(body: bytes) -> Optional[Frame]:
        id = wire.reserve_reply(body)[0]
        return (Op.ABORT, wire.fill(id)) if id else None

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[GrantedSlot]:
        """The slots to be written."""
        return (GrantedSlot(s.index, s.grant, s.length, s.memory, s.address) for s in self.slots if s.memory is not None)

    def __repr__(self) -> str:
        granted = sum(grant == _GRANTED for grant, _, _ in self._rows)
        state = "over" if self._over else "open"
        why = f", {self.error}" if self.error else ""
        return f"<{type(self).__name__} {self.id}: {granted} of {len(self)} slots granted, {reason_name(self.reason).lower()}, {state}{why}>"

    def _commit(self, timeout: Optional[float] = None) -> Ask[List[Stored]]:
        """Makes the granted slots visible. A result for every slot; none if the
        daemon went away or was late, and then nobody knows."""

        def steps(going: Going) -> Steps[List[Stored]]:
            if not self._over and self.id:
                self._over = True
                self.results = yield from or_later(going.link, self._commit_request(), self._abort_request())
            elif not self._over:
                self.results = [Stored(Result.NOT_GRANTED, 0)] * len(self)
            self._end()
            return self.results

        def miss(_: Error) -> List[Stored]:
            self._end()
            self.results = []
            return self.results

        return Ask(steps, miss, timeout, raises=False)

    def _commit_request(self) -> Request:
        return Request(Op.COMMIT, wire.fill(self.id), wire.store_reply)

    def _abort_request(self) -> Request:
        return Request(Op.ABORT, wire.fill(self.id), wire.empty_reply)

    def _abort(self, timeout: Optional[float] = None) -> Ask[None]:
        """Gives back what was not committed."""

        def steps(going: Going) -> Steps[None]:
            over, self._over = self._over, True
            self._end()
            if not over and self.id:
                yield from or_later(going.link, self._abort_request(), self._abort_request())

        # What is not given back now, the daemon takes back with the connection.
        return Ask(steps, lambda _: self._end(), timeout, raises=False)

    def _end(self) -> None:
        self._over = True
        for s in self._slots or ():
            if s.memory is not None:
                try:
                    s.memory.release()
                except BufferError:
                    pass  # an array still looks at it


class Fill(FillCalls):
    """Made by :meth:`Client.reserve`. Slot i is chunk first + i of the prompt.

    Write the granted slots, then leave the ``with`` block, which commits, or
    aborts if it is left by an exception. The memory belongs to somebody else
    from then on.
    """

    commit = call(FillCalls._commit)
    abort = call(FillCalls._abort)

    def __enter__(self) -> "Fill":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()
