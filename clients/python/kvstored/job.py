"""Jobs: the prefix of a prompt, on its way into DRAM and leased as it arrives."""

from __future__ import annotations

import asyncio
import os
import time
from enum import IntEnum
from types import TracebackType
from typing import Any, Callable, Generator, Iterator, List, NamedTuple, Optional, Tuple, Type

from . import wire
from .errors import DeadlineExceeded, Disconnected, Error, ProtocolError, Refused
from .link import Call, Frame, Link, Request
from .memory import Mapping, checksum
from .wire import Count, Match, Op, Ref

#: Seconds before the end of a wait at which the daemon answers, so that its
#: answer comes in time.
_ANSWER = 0.05
#: As the number of tokens to wait for: everything that will be.
ALL = (1 << 63) - 1


class Reason(IntEnum):
    """Why a job or a fill is as short as it is."""

    RUNNING = 0
    COMPLETE = 1
    GAP = 2
    FAILED = 3
    CORRUPT = 4
    DEADLINE = 5
    NO_SPACE = 6
    OVER_BUDGET = 7
    CANCELLED = 8
    REVOKED = 9
    CLOSED = 10
    OVER_QUOTA = 11


class State(NamedTuple):
    done: bool
    reason: int  # a Reason, or a number of a newer daemon
    ready: Count  # the leading run that can be read; it only grows


_MISS = State(True, Reason.CLOSED, Count())


class Job:
    """Made by :meth:`Client.prefetch`. Leave its ``with`` block, or call
    :meth:`release`, to give the lease back; only if ``good`` is true afterwards
    are the bytes that were read the right ones."""

    def __init__(self, link: Optional[Link], timeout: float) -> None:
        """A job of nothing, on its way if there is a link. ``timeout`` is that of
        calls that are given none."""
        self._link, self._timeout = link, timeout
        # Only the thread that reads the socket changes these: first refs, then
        # the state that says how many of them there are. So nobody needs a lock.
        self._state = _MISS
        self._refs: List[Ref] = []
        self._views: List[memoryview] = []
        self._given: Optional[Call] = None  # the release that release_soon began
        self.id = 0
        self.match = Match()
        #: True after a release that the daemon confirmed, False after any other; None while leased.
        self.good: Optional[bool] = None

    def _deadline(self, timeout: Optional[float]) -> float:
        return time.monotonic() + (self._timeout if timeout is None else timeout)

    # ---- state ---------------------------------------------------------------

    def _begin(self, body: bytes) -> "Job":
        return self._accept(*wire.prefetch_reply(body))

    def _accept(self, id: int, match: Match, state: wire.JobState) -> "Job":
        self.id, self.match = id, match
        self._state = self._take(state)
        return self

    @staticmethod
    def _undo(body: bytes) -> Optional[Frame]:
        return Op.CANCEL, wire.job(wire.prefetch_reply(body)[0])

    def _update(self, body: bytes) -> State:
        """Takes an answer. Those to several threads may come in any order, and
        what was lost stays lost."""
        old, new = self._state, self._take(wire.job_state(body))
        if old is not _MISS and (new.done, new.ready.chunks) >= (old.done, old.ready.chunks):
            self._state = new
        return self._state

    def _take(self, s: wire.JobState) -> State:
        """Keeps the refs of a state."""
        have = len(self._refs)
        if s.refs and s.first > have:
            raise ProtocolError(f"job {self.id}: refs from chunk {s.first}, but {have} came before")
        self._refs.extend(s.refs[max(0, have - s.first) :])
        if s.ready.chunks > len(self._refs):
            raise ProtocolError(f"job {self.id}: {s.ready.chunks} chunks are ready, {len(self._refs)} refs came")
        return State(s.done, s.reason, s.ready)

    @property
    def state(self) -> State:
        """The newest state that arrived."""
        return self._state

    @property
    def ready(self) -> Count:
        return self.state.ready

    def __len__(self) -> int:
        return self.ready.chunks

    # ---- waiting -------------------------------------------------------------

    def _enough(self, min_tokens: int) -> bool:
        s = self.state
        return s.done or s.ready.tokens >= min_tokens or not self._leased()

    def _wait_request(self, min_tokens: int, left: float, callback: Optional[Callable[[Call], None]] = None) -> Request:
        left -= min(_ANSWER, left / 2)
        millis = min(max(1, int(left * 1000)), wire.MAX_U32)
        return Request(Op.WAIT, wire.wait(self.id, min_tokens, millis, len(self._refs)), self._update, callback=callback)

    def wait(self, min_tokens: int = ALL, timeout: Optional[float] = None) -> State:
        """Returns when that much is ready, when the job is done, or just before
        the timeout; the state says what can be used."""
        deadline = self._deadline(timeout)
        left = deadline - time.monotonic()
        while not self._enough(min_tokens) and self._link is not None and left > 0:
            try:
                self._link.call(self._wait_request(min_tokens, left), deadline)
            except DeadlineExceeded:
                break
            except (Disconnected, Refused):
                self._lose()
            left = deadline - time.monotonic() - _ANSWER
        return self.state

    def _lose(self) -> None:
        self._state = _MISS

    def on_ready(self, callback: Callable[["Job"], Any], min_tokens: int = ALL, timeout: Optional[float] = None) -> None:
        """Calls back, from a thread of the client, when that much is ready, the
        job is done, or just before the timeout; at once if that is so already.
        There is one such thread: while it is in a callback, others wait."""
        deadline = self._deadline(timeout)

        def answered(call: Optional[Call]) -> None:
            left = deadline - time.monotonic()
            if call is not None:
                left -= _ANSWER
                if isinstance(call.error, DeadlineExceeded):
                    left = 0.0
                elif call.error is not None:
                    self._lose()
            if self._enough(min_tokens) or left <= 0 or self._link is None:
                callback(self)
                return
            try:
                self._link.start([self._wait_request(min_tokens, left, answered)], deadline)
            except Error:
                self._lose()
                callback(self)

        answered(None)

    async def wait_async(self, min_tokens: int = ALL, timeout: Optional[float] = None) -> State:
        """:meth:`wait` for asyncio."""
        ready = Wakeup()
        self.on_ready(lambda _: ready.set(), min_tokens, timeout)
        await ready
        return self.state

    # ---- reading -------------------------------------------------------------

    def ref(self, i: int) -> Ref:
        """Where chunk i lies; IndexError if it is not ready under a live lease."""
        ready = self._state.ready.chunks
        if not self._leased() or not 0 <= i < ready:
            raise IndexError(f"chunk {i} of job {self.id} is not ready: {ready} are")
        return self._refs[i]

    def block(self, i: int) -> memoryview:
        """The payload of chunk i where it lies in the daemon's memory: read-only,
        and good only under the lease. Copies are good if ``good`` is true after
        the release."""
        r = self.ref(i)
        view = self._arena(i).slice(r.offset, r.length)
        self._views.append(view)
        return view

    def _arena(self, i: int) -> Mapping:
        if self._link is None or self._link.arena is None or self._link.pid != os.getpid():
            raise IndexError(f"chunk {i} of job {self.id}: its memory is gone")
        return self._link.arena

    def __iter__(self) -> Iterator[memoryview]:
        for i in range(len(self)):
            yield self.block(i)

    def address(self, i: int) -> Tuple[int, int]:
        """Address and bytes of chunk i, for copies that do not hold the interpreter."""
        r = self.ref(i)
        arena = self._arena(i)
        arena.slice(r.offset, r.length)  # checks the bounds
        return arena.address + r.offset, r.length

    def verify(self, i: int) -> bool:
        """Whether chunk i matches its checksum; True where none can be computed."""
        total = checksum(self.block(i))
        return total is None or total == self.ref(i).sum

    # ---- the end -------------------------------------------------------------

    def renew(self, timeout: Optional[float] = None) -> float:
        """Starts the age of the lease anew; seconds it holds from now, 0 if it does not."""
        if self._link is None or not self._leased():
            return 0.0
        try:
            request = Request(Op.RENEW, wire.job(self.id), wire.renew_reply)
            return self._link.call(request, self._deadline(timeout)) / 1000
        except Error:
            return 0.0

    def release(self, timeout: Optional[float] = None) -> bool:
        """Gives the lease back. What was read is good only if this returns True."""
        if self._given is not None:
            return self._confirm(self._given, timeout)
        if self.good is not None:
            return self.good
        link, self.good = self._link, False
        self._drop_views()
        if link is None:
            return False
        try:
            request = Request(Op.RELEASE, wire.job(self.id), wire.release_reply)
            self.good = link.call(request, self._deadline(timeout))
        except Error:
            self.good = False
        return bool(self.good)

    def release_soon(self) -> None:
        """Gives the lease back with the next request, which saves a round trip.
        ``good`` is None until the answer has come; :meth:`release` waits for it."""
        if self._link is None:
            self.good = False
        elif self._leased():
            self._drop_views()
            self._given = self._link.later(Request(Op.RELEASE, wire.job(self.id), self._given_back))

    def _given_back(self, body: bytes) -> None:
        self.good = wire.release_reply(body)

    def _confirm(self, given: Call, timeout: Optional[float]) -> bool:
        link, deadline = self._link, self._deadline(timeout)
        assert link is not None  # given went out there
        try:
            if not given.done:
                link.start([], deadline)
            link.wait(given, deadline)
        except Error:
            self.good = False
        return bool(self.good)

    def _leased(self) -> bool:
        return self.good is None and self._given is None

    def cancel(self, timeout: Optional[float] = None) -> State:
        """Ends the loading and the lease, where nothing was read."""
        if self._leased() and self._link is not None:
            self.good = False
            self._drop_views()
            try:
                request = Request(Op.CANCEL, wire.job(self.id), self._update)
                self._link.call(request, self._deadline(timeout))
            except Error:
                self._lose()
        return self.state

    def _drop_views(self) -> None:
        for view in self._views:
            try:
                view.release()
            except BufferError:
                pass  # an array still looks at it
        self._views.clear()

    def __enter__(self) -> "Job":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.release()


class Wakeup:
    """What a coroutine awaits and any thread sets."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: "asyncio.Future[None]" = self._loop.create_future()

    def set(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._resolve)
        except RuntimeError:
            pass  # the loop is closed: nobody awaits it any more

    def _resolve(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def __await__(self) -> Generator[Any, None, None]:
        return self._future.__await__()
