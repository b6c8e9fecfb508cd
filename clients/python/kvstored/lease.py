"""A lease: the prefix of a prompt, readable for as long as it is held."""

from __future__ import annotations

import os
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from . import wire
from .call import Call, Frame, Request
from .errors import Disconnected, Error, ProtocolError
from .link import Link
from .memory import Mapping, address, checksum, copy_all, whole
from .prompt import Prompt
from .state import Reason, State, lost, reason_name
from .wire import Advice, Count, Fault, Match, Op, Ref

_QUEUED = State(False, Reason.RUNNING, Count())


class Lease:
    """What a job has, however it is waited for: its chunks lie in the daemon's
    memory until the lease is given back, and are good if ``good`` is true
    afterwards."""

    def __init__(self, link: Optional[Link], timeout: float, error: Optional[Error] = None, ranks: int = 1) -> None:
        """A job of nothing: for good, because of an error, or on its way."""
        self._link, self._timeout, self.ranks = link, timeout, ranks
        # Only the thread that reads the socket changes these: first refs, then
        # the state that says how many of them there are. So nobody needs a lock.
        self._refs: List[Tuple[int, int, int, int]] = []  # of all ranks of chunk 0, then of chunk 1, ...; each as a Ref has it
        self._views: List[memoryview] = []
        self._watches: List[Call] = []
        if link is None:
            self._lose(error or Disconnected("there is no connection to the daemon"))

    _state = _QUEUED
    _given: Optional[Call] = None  # the release that release_soon began
    _asked = False  # a wait was sent, which a policy may ask for
    _match: "Match | wire.Leased" = Match()
    id = 0
    #: What of the match to load and what to compute, where it was asked for.
    advice: Optional[Advice] = None
    #: What did not count of the configs that were given; all else did.
    faults: Tuple[Fault, ...] = ()
    #: Why there is no job, or no more of it, where that was not the daemon's word.
    error: Optional[Error] = None
    #: True after a release that the daemon confirmed, False after any other; None while leased.
    good: Optional[bool] = None

    @property
    def match(self) -> Match:
        """What was found of the prompt."""
        found = self._match
        if isinstance(found, wire.Leased):
            found = self._match = found.match()
        return found

    # ---- state ---------------------------------------------------------------

    def _begin(self, body: bytes) -> "Lease":
        usual = wire.leased(body)
        if usual is None or usual.ready.chunks * self.ranks > len(usual.refs):
            return self._accept(wire.prefetch_reply(body))
        self.id, self._match, self._refs = usual.job, usual, usual.refs
        self._state = State(True, usual.reason, usual.ready)
        self._changed()
        return self

    def _accept(self, reply: wire.Prefetched) -> "Lease":
        self.id, self._match, self.advice, self.faults = reply.job, reply.match, reply.advice, reply.faults
        self._state = self._take(reply.state)
        if not reply.state.done and self._link is not None:
            self._link.jobs[reply.job] = self
        self._changed()
        return self

    @staticmethod
    def _undo(body: bytes) -> Optional[Frame]:
        return Op.RELEASE, wire.numbered(wire.prefetch_reply(body)[0])

    def _update(self, body: bytes) -> State:
        """Takes an answer or a push."""
        return self._news(wire.job_state(body))

    def _news(self, state: wire.JobState) -> State:
        """Takes a state. Those to several threads may come in any order, and what
        was lost stays lost."""
        old, new = self._state, self._take(state)
        if self.error is None and (new.done, new.ready.chunks) >= (old.done, old.ready.chunks):
            self._state = new
            self._changed()
        return self._state

    def _take(self, s: wire.JobState) -> State:
        """Keeps the refs of a state."""
        have = len(self._refs)
        if s.refs and s.first * self.ranks > have:
            raise ProtocolError(f"job {self.id}: refs from chunk {s.first}, but {have // self.ranks} came before")
        self._refs.extend(s.refs[max(0, have - s.first * self.ranks) :])
        if s.ready.chunks * self.ranks > len(self._refs):
            raise ProtocolError(f"job {self.id}: {s.ready.chunks} chunks are ready, {len(self._refs)} refs came")
        return State(s.done, s.reason, s.ready, s.failed_tier)

    def _lose(self, error: Error) -> None:
        if self.error is None:
            self.error = error.fresh()
            self._state = lost(error)
            self._changed()

    def _changed(self) -> None:
        """Tells those who wait."""
        link = self._link
        if link is not None:
            if self._state.done:
                link.jobs.pop(self.id, None)
            if self._watches:
                link.look(self._watches)

    @property
    def state(self) -> State:
        """The newest state that arrived."""
        if not self._state.done and self._link is not None and self._link.down is not None:
            self._lose(self._link.down)
        return self._state

    @property
    def reason(self) -> int:
        """Why the job is as short as it is: a :class:`Reason`. Also where there is
        none: it was late (DEADLINE), it was refused (OVER_BUDGET and others), or
        the connection was closed (CLOSED); ``error`` has the words."""
        return self.state.reason

    @property
    def ready(self) -> Count:
        return self.state.ready

    @property
    def waits_for_its_turn(self) -> bool:
        """Whether the connection has as many jobs as it may, and this one is not
        one of them yet. :meth:`wait` waits for that too."""
        return not self.id and not self._state.done

    @property
    def prompt(self) -> Prompt:
        """The prompt of the job by reference, so that it is not sent again. It is
        good on the same connection, until the job ends."""
        if not self.id:
            raise ValueError(f"{self!r} has no prompt to refer to")
        return Prompt(ref=self.id)

    def __len__(self) -> int:
        return self.ready.chunks

    def __repr__(self) -> str:
        if self.good is None and self._given is None:
            held = "leased" if self.id and not self.error else "without a lease"
        else:
            held = "given back" if self.good is None else f"good={self.good}"
        what = "waits for its turn" if self.waits_for_its_turn else f"{self.state}, {self.match.total.chunks} matched"
        return f"<{type(self).__name__} {self.id}: {what}, {held}{f', {self.error}' if self.error else ''}>"

    # ---- reading -------------------------------------------------------------

    def ref(self, i: int, rank: int = 0) -> Ref:
        """Where chunk i lies; IndexError if it is not ready under a live lease.
        Of a job of several ranks, ``rank`` counts them as they were named."""
        return Ref._make(self._row(i, rank))

    def _row(self, i: int, rank: int) -> Tuple[int, int, int, int]:
        """What a Ref has."""
        ready = self._state.ready.chunks
        if not self._leased():
            raise IndexError(f"chunk {i} of job {self.id} is not leased any more: the job was given back")
        if not 0 <= i < ready:
            raise IndexError(f"chunk {i} of job {self.id} is not ready: {ready} are")
        if not 0 <= rank < self.ranks:
            raise IndexError(f"rank {rank} of job {self.id}: it has {self.ranks}")
        return self._refs[i * self.ranks + rank]

    def block(self, i: int, rank: int = 0) -> memoryview:
        """The payload of chunk i where it lies in the daemon's memory: read-only,
        and good only under the lease. Copies are good if ``good`` is true after
        the release."""
        r = self.ref(i, rank)
        view = self._arena(i).slice(r.offset, r.length)
        self._views.append(view)
        return view

    def blocks(self, rank: int = 0) -> Sequence[memoryview]:
        """The payloads of all chunks that are ready, of one rank."""
        return [self.block(i, rank) for i in range(len(self))]

    def _arena(self, i: int) -> Mapping:
        if self._link is None or self._link.arena is None or self._link.pid != os.getpid():
            raise IndexError(f"chunk {i} of job {self.id}: its memory is gone, or this user may not map it: see Client.get")
        return self._link.arena

    def __iter__(self) -> Iterator[memoryview]:
        for i in range(len(self)):
            yield self.block(i)

    def address(self, i: int, rank: int = 0) -> Tuple[int, int]:
        """Address and bytes of chunk i, for copies that do not hold the interpreter."""
        offset, _, length, _ = self._row(i, rank)
        return self._arena(i).at(offset, length), length

    def addresses(self, rank: int = 0) -> List[Tuple[int, int]]:
        """:meth:`address` of all chunks that are ready, of one rank."""
        n = len(self)
        if not n:
            return []
        self._row(n - 1, rank)  # checks the lease, and the rank
        arena = self._arena(0)
        base, size, rows = arena.address, arena.size, self._refs[rank : n * self.ranks : self.ranks]
        return [(base + at if at + n <= size else arena.at(at, n), n) for at, _, n, _ in rows]

    def copy_to(self, memory: Any, rank: int = 0) -> int:
        """Copies all chunks that are ready to a writable buffer, one behind the other,
        and returns their bytes. Other threads run meanwhile. A ValueError says that the
        buffer is too small; then nothing is copied."""
        with whole(memory, writable=True) as view:
            to, size, places = address(view), 0, []
            for at, n in self.addresses(rank):
                places.append((to + size, at, n))
                size += n
            if size > view.nbytes:
                raise ValueError(f"a buffer of {view.nbytes} bytes: {len(places)} chunks of {size} bytes are ready")
            copy_all(places)
        return size

    def verify(self, i: int, rank: int = 0) -> bool:
        """Whether chunk i matches its checksum; True where none can be computed."""
        total = checksum(self.block(i, rank))
        return total is None or total == self.ref(i, rank).sum

    # ---- the end -------------------------------------------------------------

    def release_soon(self) -> None:
        """Gives the lease back with the next request, which saves a round trip.
        ``good`` is None until the answer has come; ``release`` waits for it."""
        if self._link is None or not self.id:
            self._drop()
        elif self._leased():
            self._let_go()
            self._given = self._link.later(Request(Op.RELEASE, wire.numbered(self.id), self._given_back))

    def _given_back(self, body: bytes) -> None:
        self.good = wire.release_reply(body)
        self._changed()

    def _drop(self) -> None:
        """Ends what has no lease: nothing is given back but a place in the queue."""
        self._let_go()
        if self.good is None:
            self.good = False
            if self._pending is not None and self._link is not None:
                self._link._disown(self._pending)
                self._state = State(True, Reason.CANCELLED, Count())
                self._changed()

    _pending: Optional[Call] = None  # the call that waits for its turn

    def _leased(self) -> bool:
        return self.good is None and self._given is None

    def _let_go(self) -> None:
        """Nothing is read any more, and no push is waited for."""
        if self._link is not None:
            self._link.jobs.pop(self.id, None)
        for view in self._views:
            try:
                view.release()
            except BufferError:
                pass  # an array still looks at it
        self._views.clear()
