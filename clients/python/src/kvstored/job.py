"""Jobs: the prefix of a prompt, on its way into DRAM and leased as it arrives."""

# pyright: strict, reportPrivateUsage=false

import logging
import os
import threading
import time
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

from . import _wire as wire
from . import bulk
from ._connection import Call, Frame, Link, due
from ._wire import Op
from .answers import Advice, Count, Fault, Match, Need, Ref, State, faults
from .errors import DeadlineExceeded, Disconnected, Error, ProtocolError
from .memory import Mapping, checksum, whole

log = logging.getLogger("kvstored")

#: Seconds before the end of a wait at which the daemon answers, so that its
#: answer comes in time.
_ANSWER = 0.05
#: As the number of tokens to wait for: everything that will be.
ALL = (1 << 63) - 1


def undo(body: wire.Buffer) -> List[Frame]:
    """What gives back what the late reply to a prefetch has brought."""
    return [(Op.RELEASE, wire.release(wire.prefetch_reply(body).job))]


def release_soon(jobs: "Iterable[Job]") -> None:
    """:meth:`Job.release_soon` of many, in one message where they are of one connection."""
    links = {job._link: job._give_back(0.0, later=True) for job in jobs if job._leased()}
    for link in links:
        if link is not None:
            link.tend()


class Job:
    """Made by :meth:`Client.prefetch`. Leave its ``with`` block, or call
    :meth:`release`, to give the lease back; only if ``good`` is true afterwards
    are the bytes that were read the right ones.

    Chunks lie in the daemon's memory until then. For one thread at a time, but for
    :meth:`release_soon`."""

    #: Why there is no job, or no more of it, where that was not the daemon's word.
    error: Optional[Error] = None
    #: What did not count of the configs that were given; all else did.
    faults: Tuple[Fault, ...] = ()
    id = 0

    def __init__(
        self, link: Optional[Link], timeout: float, reply: Optional[wire.Prefetched] = None, ranks: int = 1, error: Optional[Error] = None
    ) -> None:
        self._link, self.timeout, self.ranks = link, timeout, ranks
        self._refs: List[wire.Row] = []  # of all ranks of chunk 0, then of chunk 1, ...; each as a Ref has it
        self._views: List[memoryview] = []
        self._reply = reply
        self._needs: List[wire.Row] = []
        self._given: Optional[Call] = None  # the release that release_soon sent
        self._good: Optional[bool] = None
        if reply is None:
            self._lose(error or Disconnected("there is no connection to the daemon"))
            return
        self.id = reply.job
        if reply.hints:
            self.faults = faults(reply.hints)
        self._take(reply.state)

    # ---- state ---------------------------------------------------------------

    def _take(self, s: wire.State) -> None:
        """Keeps the refs of a state, each in its place whoever else waits, and the state."""
        assert self._link is not None
        at, refs = s.first * self.ranks, s.refs
        if refs and at > len(self._refs):
            raise self._link.fail(ProtocolError(f"job {self.id}: refs from chunk {s.first}, but {len(self._refs) // self.ranks} came before"))
        self._refs[at : at + len(refs)] = refs
        if s.ready[1] * self.ranks > len(self._refs):
            raise self._link.fail(ProtocolError(f"job {self.id}: {s.ready[1]} chunks are ready, {len(self._refs)} refs came"))
        self._needs = s.needs or self._needs
        self._state = State.of(s)

    def _lose(self, error: Error) -> None:
        if self.error is None:
            self.error = error.fresh()
            self._state = State.lost(error)

    @property
    def state(self) -> State:
        """The newest state that was asked for."""
        if not self._state.done and self._link is not None and self._link.down is not None:
            self._lose(self._link.down)
        return self._state

    @property
    def match(self) -> Match:
        """What was found of the prompt."""
        return Match() if self._reply is None else Match.of(self._reply.match, self._reply)

    @property
    def alone(self) -> List[int]:
        """Which chunks behind the leading run are held too, where that was asked for: of
        several ranks those of each, counted as refs are. They are there until the job is
        given back, and have to be asked for again to be read."""
        words = (self._reply.alone if self._reply is not None else None) or ()
        return [32 * at + bit for at, word in enumerate(words) for bit in range(32) if word >> bit & 1]

    @property
    def advice(self) -> Optional[Advice]:
        """What of the match to load and what to compute, where it was asked for."""
        return None if self._reply is None else Advice.of(self._reply.advice)

    @property
    def worth(self) -> Count:
        """What of the match is worth loading: all of it, where no advice was asked for."""
        total, advice = self.match.total, self.advice
        return total if advice is None else min(total, advice.load)

    @property
    def reason(self) -> int:
        """Why the job is as short as it is: a :class:`Reason`. Also where there is
        none: it was late (DEADLINE), it was refused (OVER_BUDGET and others), or
        the connection was closed (CLOSED); ``error`` has the words."""
        return self.state.reason

    @property
    def ready(self) -> Count:
        return self.state.ready

    def __len__(self) -> int:
        return self.state.ready.chunks

    def __repr__(self) -> str:
        if self._leased():
            held = "leased" if self.id and not self.error else "without a lease"
        else:
            held = "given back" if self.good is None else f"good={self.good}"
        return f"<Job {self.id}: {self.state}, {self.match.total.chunks} matched, {held}{f', {self.error}' if self.error else ''}>"

    # ---- waiting -------------------------------------------------------------

    def wait(self, min_tokens: int = ALL, timeout: Optional[float] = None) -> State:
        """Returns when that much is ready, when the job is done, or just before
        the timeout; the state says what can be used."""
        if not self._enough(min_tokens):
            deadline = due(timeout, self.timeout)
            while not self._enough(min_tokens):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                try:
                    self._ask(min_tokens, left, deadline)
                except DeadlineExceeded:
                    break
                except Error as e:
                    self._lose(e)
        return self.state

    def _enough(self, min_tokens: int) -> bool:
        s = self._state
        return s.done or s.ready.tokens >= min_tokens or not self._leased()

    def _ask(self, min_tokens: int, left: float, deadline: float) -> None:
        assert self._link is not None
        millis = max(1, int(min((left - min(_ANSWER, left / 2)) * 1000, wire.MAX_U32)))
        body = wire.wait(self.id, min_tokens, len(self._refs) // self.ranks, deadline=millis)
        state = self._link.call(Op.WAIT, body, deadline, wire.wait_reply)
        if self.error is None:  # what was lost stays lost
            self._take(state)

    def on_ready(self, callback: "Callable[[Job], Any]", min_tokens: int = ALL, timeout: Optional[float] = None) -> None:
        """Calls back, from a thread of its own, when that much is ready, the job is
        done, or just before the timeout."""

        def waits() -> None:
            self.wait(min_tokens, timeout)
            try:
                callback(self)
            except Exception:
                log.exception("kvstored: a callback failed")

        threading.Thread(target=waits, name="kvstored-ready", daemon=True).start()

    # ---- reading -------------------------------------------------------------

    def ref(self, i: int, rank: int = 0) -> Ref:
        """Where chunk i lies; IndexError if it is not ready under a live lease.
        Of a job of several ranks, ``rank`` counts them as they were named."""
        return Ref._make(self._row(i, rank))

    @property
    def needs(self) -> List[Need]:
        """Of groups, once the job is done: the chunks of each that :attr:`refs` are of."""
        return list(map(Need._make, self._needs))

    @property
    def refs(self) -> "List[wire.Row]":
        """What a :class:`Ref` has, of all ranks of the first chunk that is ready, then of the next;
        of groups all of the first one, then of the next, once the job is done. IndexError
        without a live lease."""
        if not self._leased():
            raise IndexError(f"job {self.id} was given back")
        return self._refs[:] if self._needs else self._refs[: len(self) * self.ranks]

    def placed(self) -> List[Tuple[int, int, int]]:
        """Address, bytes and checksum of what :attr:`refs` are of."""
        arena = self._arena(0)
        return [(arena.at(at, n), n, total) for at, total, n, _ in self.refs]

    def _row(self, i: int, rank: int) -> wire.Row:
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
        the release. Without that memory it is a copy that came over the socket."""
        r = self._row(i, rank)
        view = self._fetched(i, r) if self._unmapped and not rank else self._arena(i).slice(r[0], r[2])
        self._views.append(view)
        return view

    @property
    def _unmapped(self) -> bool:
        """Whether payloads cross the socket."""
        return self._link is not None and self._link.arena is None and self._link.pid == os.getpid()

    def _fetched(self, i: int, row: wire.Row) -> memoryview:
        """The payload of chunk i over the socket; IndexError where it cannot be had."""
        assert self._link is not None
        body = wire.get(wire.chain(0, wire.FORMS_REF, 0, 0, 0, self.id), i, 1, max(1, row[2]))
        try:
            payload = self._link.call(Op.GET, body, time.monotonic() + self.timeout, wire.get_reply).payloads
        except Error as e:
            raise IndexError(f"chunk {i} of job {self.id} does not come over the socket: {e}") from e
        view = memoryview(payload)[: row[2]].toreadonly()
        if len(view) != row[2] or checksum(view) not in (None, row[1]):
            raise IndexError(f"chunk {i} of job {self.id} is not what was stored: its lease did not hold")
        return view

    def _arena(self, i: int) -> Mapping:
        if self._link is None or self._link.arena is None or self._link.pid != os.getpid():
            raise IndexError(f"chunk {i} of job {self.id}: its memory is gone, or this user may not map it: see Client.get")
        return self._link.arena

    def __iter__(self) -> Iterator[memoryview]:
        """The payloads of the first rank. Where they cross the socket they end before one
        that cannot be had."""
        for i in range(len(self)):
            try:
                view = self.block(i)
            except IndexError:
                if self._unmapped:
                    return
                raise
            yield view

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
        return [(arena.at(at, size), size) for at, _, size, _ in self._refs[rank : n * self.ranks : self.ranks]]

    def payloads(self, first: int, end: int) -> List[Tuple[int, int, int]]:
        """Address, bytes and checksum of some chunks that are ready, of all ranks of the
        first, then of all of the next."""
        self._row(end - 1, 0)
        arena = self._arena(first)
        return [(arena.at(at, n), n, total) for at, total, n, _ in self._refs[first * self.ranks : end * self.ranks]]

    def copy_to(self, memory: Any, rank: int = 0) -> int:
        """Copies all chunks that are ready to a writable buffer, one behind the other,
        and returns their bytes. Other threads run meanwhile. A ValueError says that the
        buffer is too small; then nothing is copied."""
        with whole(memory, writable=True) as view:
            to, size = bulk.address(view, True), 0
            pieces: List[int] = []
            places = [(bulk.address(v), v.nbytes) for v in self] if self._unmapped and not rank else self.addresses(rank)
            for at, n in places:
                pieces += (to + size, at, n)
                size += n
            if size > view.nbytes:
                raise ValueError(f"a buffer of {view.nbytes} bytes: {len(places)} chunks of {size} bytes are ready")
            bulk.copy(bulk.packed(pieces))
        return size

    def verify(self, i: int, rank: int = 0) -> bool:
        """Whether chunk i matches its checksum; True where none can be computed."""
        total = checksum(self.block(i, rank))
        return total is None or total == self._row(i, rank)[1]

    # ---- the end -------------------------------------------------------------

    @property
    def good(self) -> Optional[bool]:
        """True after a release that the daemon confirmed, False after any other; None
        while leased, and until the answer to :meth:`release_soon` has come."""
        if self._good is None and self._given is not None and self._given.body is not None:
            self._answered(0.0)
        return self._good

    def release(self, timeout: Optional[float] = None) -> bool:
        """Gives the lease back. What was read is good only if this returns True."""
        if self.good is None:
            deadline = due(timeout, self.timeout)
            if self._given is None:
                self._give_back(deadline)
            self._answered(deadline)
        return bool(self._good)

    def release_soon(self) -> None:
        """Gives the lease back without waiting for the answer: ``good`` is None until it
        has come; ``release`` waits for it."""
        if self._leased():
            self._give_back(0.0)

    def _give_back(self, deadline: float, later: bool = False) -> None:
        self._let_go()
        if self._link is None or not self.id:
            self._good = False
        else:
            self._given = self._link.post(Op.RELEASE, wire.release(self.id), deadline, later)

    def _answered(self, deadline: float) -> None:
        if self._given is None:
            return
        assert self._link is not None
        try:
            self._good = self._link.end(self._given, deadline, wire.release_reply).code == 0
        except Error:
            self._good = False

    def renew(self, timeout: Optional[float] = None) -> float:
        """Starts the age of the lease anew; seconds it holds from now, 0 if it does not."""
        if self._link is None or not self._leased() or not self.id:
            return 0.0
        deadline = due(timeout, self.timeout)
        try:
            return self._link.call(Op.RENEW, wire.renew(self.id), deadline, wire.renew_reply).holds_ms / 1000
        except Error:
            return 0.0

    def _leased(self) -> bool:
        return self._good is None and self._given is None

    def _let_go(self) -> None:
        """Nothing is read any more."""
        for view in self._views:
            try:
                view.release()
            except BufferError:
                pass  # an array still looks at it
        self._views.clear()

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
