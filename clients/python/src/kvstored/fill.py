"""Fills: room for chunks to be stored."""

# pyright: strict, reportPrivateUsage=false

import itertools
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import _wire as wire
from ._connection import Call, Frame, Link, due
from ._wire import Op
from .answers import Grant, Reason, Result, Stored, reason_name, reason_of
from .errors import DeadlineExceeded, Disconnected, Error, ProtocolError

_GRANTED = int(Grant.GRANTED)
_NOT_GRANTED = Stored(Result.NOT_GRANTED, 0)
#: Commits that are under way at most. One more than the daemon works on keeps it
#: busy; each keeps its part of the staging window until it is done.
_IN_FLIGHT = 2
#: From so many bytes on slots are committed while the ones behind them are written.
_COMMIT_BYTES = 1 << 20


def undo(body: wire.Buffer) -> List[Frame]:
    """What gives back what the late reply to a reserve has brought."""
    fill = wire.reserve_reply(body).fill
    return [(Op.ABORT, wire.abort(fill))] if fill else []


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


class Fill:
    """Made by :meth:`Client.reserve`. Slot i is chunk first + i of the prompt.

    Write the granted slots, then leave the ``with`` block, which commits, or
    aborts if it is left by an exception. The memory belongs to somebody else
    from then on. For one thread at a time.
    """

    id = 0
    #: Why there is no fill, where that was not the daemon's word.
    error: Optional[Error] = None

    def __init__(
        self, link: Optional[Link], timeout: float, reply: Optional[wire.ReserveReply] = None, sizes: Sequence[int] = (), error: Optional[Error] = None
    ) -> None:
        """``sizes``: those that were asked for, one for all or one each."""
        self._link, self.timeout = link, timeout
        self._over = reply is None
        self._rows: Sequence[wire.Row] = ()  # of each slot code, bytes and offset
        self._slots: Optional[List[Slot]] = None  # once they are asked for
        #: What became of each slot, after the commit; empty if that is not known.
        self.results: List[Stored] = []
        #: Numbers of slots whose chunk is there with another checksum than the one given with ``sums``.
        self.differ: Sequence[int] = ()
        if reply is None:
            self.error = error or Disconnected("there is no connection to the daemon")
            #: Why there are fewer slots than chunks asked for: a :class:`Reason`. Also
            #: where there is no fill; ``error`` has the words.
            self.reason = int(reason_of(self.error))
            return
        assert link is not None
        self.id, self.reason, rows, differ = reply
        self.differ = differ or ()
        window = link.staging
        for (grant, length, offset), size in zip(rows, itertools.chain(sizes, itertools.repeat(sizes[0] if len(sizes) == 1 else 0))):
            if grant == _GRANTED and (window is None or offset + length > window.size or length != size):
                raise link.fail(ProtocolError(f"a slot of {length} bytes at {offset} for {size}, or outside the staging window"))
        self._rows = rows

    @property
    def slots(self) -> List[Slot]:
        """A slot for each chunk that there was room for, or that needs none."""
        if self._slots is None:
            window = None if self._link is None else self._link.staging
            self._slots = []
            for i, (grant, length, offset) in enumerate(self._rows):
                if grant != _GRANTED or window is None:
                    self._slots.append(Slot(i, grant, length, None, 0))
                else:
                    self._slots.append(Slot(i, grant, length, window.slice(offset, length), window.address + offset))
            if self._over:
                self._end()
        return self._slots

    def granted(self, first: int = 0, end: Optional[int] = None) -> List[Tuple[int, int, int]]:
        """Number, address and bytes of each slot to be written, of those from first to end."""
        window = None if self._link is None else self._link.staging
        base = 0 if window is None else window.address
        rows = enumerate(self._rows[first:end], first)
        return [(i, base + offset, length) for i, (grant, length, offset) in rows if grant == _GRANTED]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[GrantedSlot]:
        """The slots to be written."""
        return (GrantedSlot(s.index, s.grant, s.length, s.memory, s.address) for s in self.slots if s.memory is not None)

    def __repr__(self) -> str:
        granted = sum(grant == _GRANTED for grant, _, _ in self._rows)
        state = "over" if self._over else "open"
        why = f", {self.error}" if self.error else ""
        return f"<Fill {self.id}: {granted} of {len(self)} slots granted, {reason_name(self.reason).lower()}, {state}{why}>"

    # ---- the end -------------------------------------------------------------

    def commit(self, timeout: Optional[float] = None) -> List[Stored]:
        """Makes the granted slots visible. A result for every slot; none if the
        daemon went away or was late, and then nobody knows."""
        if not self._over:
            deadline = due(timeout, self.timeout)
            self.results = [_NOT_GRANTED] * len(self)
            if self.id:
                Part(self, 0, 0, deadline).wait(deadline)
            self._end()
        return self.results

    def abort(self, timeout: Optional[float] = None) -> None:
        """Gives back what was not committed."""
        over = self._over
        self._end()
        if not over and self.id and self._link is not None:
            deadline = due(timeout, self.timeout)
            try:
                self._link.end(self._link.post(Op.ABORT, wire.abort(self.id), deadline), deadline, wire.abort_reply)
            except Error:
                pass  # what is not given back now, the daemon takes back with the connection

    def _end(self) -> None:
        self._over = True
        for s in self._slots or ():
            if s.memory is not None:
                try:
                    s.memory.release()
                except BufferError:
                    pass  # an array still looks at it

    def __enter__(self) -> "Fill":
        return self

    def __exit__(self, kind: Optional[type], *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()


class Part:
    """The commit of ``count`` slots from ``first`` on; 0: of all that follow."""

    def __init__(self, fill: Fill, first: int, count: int, deadline: float) -> None:
        assert fill._link is not None
        self._link, self._fill, self._first, self._count = fill._link, fill, first, count
        self._call: Call = self._link.post(Op.COMMIT, wire.commit(fill.id, first, count), deadline)

    def wait(self, deadline: float) -> None:
        """Puts the results into the fill; or none into it, if they are not known."""
        fill = self._fill
        try:
            reply = self._link.end(self._call, deadline, wire.commit_reply)
        except Error as e:
            fill.results = []
            if isinstance(e, DeadlineExceeded):  # it may not even be sent
                self._link.post(Op.ABORT, wire.abort(fill.id, self._first, self._count))
            return
        if fill.results:
            fill.results[self._first : self._first + len(reply.results)] = map(Stored._make, reply.results)


class Commits:
    """The commits that one thread has under way."""

    def __init__(self) -> None:
        self._under: List[Part] = []

    def __bool__(self) -> bool:
        return bool(self._under)

    def write(self, fill: Fill, write: Callable[[int, int], Any], deadline: float, at_once: bool = False) -> None:
        """Has the granted slots written and committed: the first while the next are
        written. ``write`` is called with the first slot of a part and the one behind
        it; ``at_once``: of all. Where it raises, what is not committed is given back."""
        fill.results = [_NOT_GRANTED] * len(fill)
        first = 0
        try:
            for end in [len(fill)] if at_once else _parts(fill):
                write(first, end)
                if fill.id:
                    if len(self._under) >= _IN_FLIGHT:
                        self._under.pop(0).wait(deadline)
                    self._under.append(Part(fill, first, end - first, deadline))
                first = end
        except BaseException:
            if fill.id and first < len(fill) and fill._link is not None:
                fill._link.post(Op.ABORT, wire.abort(fill.id, first, len(fill) - first))
            raise
        finally:
            fill._end()

    def finish(self, deadline: float) -> None:
        """Waits until none is under way. From then on fills have their results."""
        while self._under:
            self._under.pop(0).wait(deadline)


def _parts(fill: Fill) -> Iterator[int]:
    """Where the parts of a fill end that are committed one after the other."""
    # A prompt that its quota cuts short ends there: what is committed before the
    # rest is refused could be written, and let go for the rest.
    if fill.reason != Reason.OVER_QUOTA:
        size = 0
        for end, (grant, length, _) in enumerate(fill._rows[:-1], 1):
            if grant == _GRANTED:
                size += length
                if size >= _COMMIT_BYTES:
                    yield end
                    size = 0
    yield len(fill)


def outcome(grant: int, stored: Stored) -> Stored:
    """What was not granted is there, or somebody else is writing it."""
    if grant == _GRANTED:
        return stored
    return stored._replace(result=Result.PENDING if grant == Grant.PENDING else Result.EXISTS)
