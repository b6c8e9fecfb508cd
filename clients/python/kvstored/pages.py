"""Values under single keys, for engines that hand over pages without their order.

Each key is a chunk that stands alone; many are asked for, leased or stored in
one round trip. Nothing here raises because of the daemon, and copies let other
threads run.
"""

from __future__ import annotations

import collections
import hashlib
import time
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import wire
from .client import Client
from .errors import Code, DeadlineExceeded, Disconnected, Error, Refused
from .fill import Fill, Grant, Result, Slot
from .job import Job, Reason
from .link import Call, Link, Request
from .memory import checksum_at, copy
from .wire import Op, Space

#: Where a value is or goes: address and bytes of its pieces, in order.
Place = Sequence[Tuple[int, int]]

_WINDOW = 512  # requests on their way at once
_RUN = 32  # values of one question
_STORES = 256  # values of one reservation
_HINT_SECONDS = 5.0
_HINTS = 128  # kept at a time: a connection may have only so many jobs
_THERE = (Result.STORED, Result.EXISTS, Result.DIFFERS)
_NO_ROOM = (Reason.NO_SPACE, Reason.OVER_BUDGET, Reason.OVER_QUOTA)
_REFUSED = (Code.NO_SPACE, Code.OVER_BUDGET, Code.OVER_QUOTA)


class _Hint(NamedTuple):
    """A lease taken ahead of the load that it is for."""

    job: Job
    until: float


class Pages:
    """The values of one space. Safe for threads."""

    def __init__(self, client: Client, space: Space, verify: bool = True) -> None:
        self.client, self.space, self.verify = client, space, verify and checksum_at is not None
        # Oldest first. Without a lock, which somebody might hold when the process forks.
        self._hints: Deque[_Hint] = collections.deque()
        client._chores.append(self._expire)

    def _chain(self, link: Link, keys: Sequence[bytes], deadline: float) -> bytes:
        handle = self.client._handle(link, self.space, deadline)
        digests = b"".join([hashlib.sha256(k).digest()[:16] for k in keys])
        return wire.chain_hashes(handle, 16, digests, [self.space.chunk_tokens] * len(keys), alone=True)

    def _prefetch(
        self, link: Link, keys: Sequence[bytes], deadline: float, load_seconds: float, callback: Any = None
    ) -> Request:
        body = wire.prefetch(self._chain(link, keys, deadline), deadline_ms=max(1, int(load_seconds * 1000)))
        return Request(Op.PREFETCH, body, Job(link, self.client.timeout)._begin, Job._undo, callback)

    # ---- what is there -------------------------------------------------------

    def find(self, keys: Sequence[bytes], timeout: float) -> int:
        """How many values are there from the first on, in one round trip. They
        start to come up to DRAM and are leased for some seconds, so that they
        are still there when they are loaded."""
        link, deadline = self.client._ready(), time.monotonic() + timeout
        if link is None or not keys:
            return 0
        distinct = list(dict.fromkeys(keys))
        try:
            job = link.call(self._prefetch(link, distinct, deadline, _HINT_SECONDS), deadline)
        except Error:
            return 0
        self._keep(job)
        found = job.match.total.chunks
        if len(distinct) == len(keys):
            return found
        there = set(distinct[:found])
        return next((i for i, k in enumerate(keys) if k not in there), len(keys))

    def exists(self, keys: Sequence[bytes], timeout: float) -> List[bool]:
        """Which values are there, wherever they are in ``keys``."""
        found: Dict[bytes, bool] = dict.fromkeys(keys, False)
        distinct, deadline = list(found), time.monotonic() + timeout
        # An answer is how long a run is from its start, so what lies behind the
        # first one that is not there is asked for again, each by itself.
        runs = [distinct[i : i + _RUN] for i in range(0, len(distinct), _RUN)]
        try:
            while runs:
                link = self.client._ready()
                if link is None:
                    break
                now, runs = runs[:_WINDOW], runs[_WINDOW:]
                requests = [
                    Request(Op.LOOKUP, wire.lookup(self._chain(link, run, deadline)), wire.lookup_reply) for run in now
                ]
                for run, match in zip(now, self._ask(link, requests, deadline)):
                    if match is None:
                        continue
                    there = match.total.chunks
                    found.update(dict.fromkeys(run[:there], True))
                    runs += [[k] for k in run[there + 1 :]]
        except Error:
            pass  # the space could not be opened
        return [found[k] for k in keys]

    def _ask(self, link: Link, requests: Sequence[Request], deadline: float) -> List[Any]:
        """The values of the replies, None for those that were refused or are late."""
        values: List[Any] = []
        try:
            calls = link.start(requests, deadline)
        except Error:
            return [None] * len(requests)
        for i, call in enumerate(calls):
            try:
                values.append(link.wait(call, deadline))
            except (DeadlineExceeded, Disconnected):
                values += [None] * (len(calls) - i)
                for late in calls[i + 1 :]:
                    link.abandon(late)
                break
            except Error:
                values.append(None)
        return values

    # ---- hints ---------------------------------------------------------------

    def hint(self, keys: Sequence[bytes]) -> None:
        """Starts to bring values up to DRAM and leases them for some seconds.
        Returns at once."""
        link, deadline = self.client._ready(), time.monotonic() + 0.1
        if link is None or not keys:
            return
        try:
            distinct = list(dict.fromkeys(keys))
            link.start([self._prefetch(link, distinct, deadline, _HINT_SECONDS, self._hinted)], deadline)
        except Error:
            pass  # it was only a hint

    def _hinted(self, call: Call) -> None:
        if call.value is not None:
            self._keep(call.value)

    def _keep(self, job: Job) -> None:
        if not job.match.total.chunks:
            job.release_soon()
            return
        self._hints.append(_Hint(job, time.monotonic() + _HINT_SECONDS))
        self._give_back(len(self._hints) - _HINTS)

    def _give_back(self, n: int) -> None:
        """Gives the n oldest leases back."""
        for _ in range(n):
            try:
                hint = self._hints.popleft()
            except IndexError:
                return  # somebody else gave it back
            hint.job.release_soon()

    def _expire(self) -> None:
        """Called by the client now and then."""
        now = time.monotonic()
        try:
            while self._hints[0].until <= now:
                self._give_back(1)
        except IndexError:
            pass  # there are no more

    def _drop_hints(self) -> bool:
        """Gives all hinted leases back, as there is no room for something that is
        wanted now; whether there were any."""
        n = len(self._hints)
        self._give_back(n)
        return n > 0

    # ---- loading -------------------------------------------------------------

    def load(self, keys: Sequence[bytes], places: Sequence[Place], timeout: float) -> int:
        """Copies values to their places, and returns how many from the first on.
        The next one is not there, is not as long as its place, does not match its
        checksum, or its lease did not hold; what lies in its place and in those
        behind it is undefined. No copy begins after the timeout: the places may
        be somebody else's then."""
        loaded, deadline = 0, time.monotonic() + timeout
        while loaded < len(keys) and time.monotonic() < deadline:
            run = _distinct(keys[loaded:])
            try:
                n, crowded = self._load(run, places[loaded:], deadline)
            except Error:
                break
            loaded += n
            if n < len(run) and not (crowded and (n or self._drop_hints())):
                break
        return loaded

    def _load(self, keys: Sequence[bytes], places: Sequence[Place], deadline: float) -> Tuple[int, bool]:
        """Loads a leading run of keys; whether more room would have made it longer."""
        link = self.client._ready()
        if link is None:
            return 0, False
        job = link.call(self._prefetch(link, keys, deadline, deadline - time.monotonic()), deadline)
        loaded = 0
        try:
            for i, place in enumerate(places[: job.match.total.chunks]):
                if not self._copy(job, i, place, deadline):
                    break
                loaded += 1
        finally:
            good = job.release(max(0.05, deadline - time.monotonic()))
        return (loaded if good else 0), job.state.reason in _NO_ROOM

    def _copy(self, job: Job, i: int, place: Place, deadline: float) -> bool:
        if len(job) <= i:
            job.wait((i + 1) * self.space.chunk_tokens, deadline - time.monotonic())
        if len(job) <= i or time.monotonic() >= deadline:
            return False
        address, length = job.address(i)
        if length != sum(size for _, size in place):
            return False
        if self.verify and checksum_at is not None and checksum_at(address, length) != job.ref(i).sum:
            return False
        for to, size in place:
            copy(to, address, size)
            address += size
        return True

    # ---- storing -------------------------------------------------------------

    def store(self, keys: Sequence[bytes], places: Sequence[Place], timeout: float) -> List[bool]:
        """Copies values from their places. True: it is there, or somebody else is just storing it."""
        there: Dict[bytes, bool] = {}
        deadline = time.monotonic() + timeout
        todo = {k: p for k, p in zip(keys, places) if self._fits(p)}
        while todo and time.monotonic() < deadline:
            link = self.client._ready()
            if link is None or link.staging is None:
                break
            window = self._window(todo, link.staging.size // 2)  # two threads store at the same time
            try:
                part, crowded = self._store(link, window, deadline)
            except Error:
                break
            if not part:
                if not crowded:
                    break
                if not self._drop_hints():
                    part = {window[0][0]: False}  # there is no room for this one, or better use
            there.update(part)
            todo = {k: p for k, p in todo.items() if k not in part}
        return [there.get(k, False) for k in keys]

    def _fits(self, place: Place) -> bool:
        hello = self.client.hello
        return hello is not None and 0 < _size(place) <= hello.max_payload

    @staticmethod
    def _window(todo: Dict[bytes, Place], room: int) -> List[Tuple[bytes, Place]]:
        """The first of todo that fit the room, and one at least."""
        window: List[Tuple[bytes, Place]] = []
        for key, place in todo.items():
            room -= _size(place)
            if len(window) == _STORES or (window and room < 0):
                break
            window.append((key, place))
        return window

    def _store(
        self, link: Link, window: Sequence[Tuple[bytes, Place]], deadline: float
    ) -> Tuple[Dict[bytes, bool], bool]:
        """Stores a leading run; which of it is there, and whether more room would
        have made it longer."""
        wait_ms = max(1, int((deadline - time.monotonic()) * 500))  # half of what is left for the copies
        body = wire.reserve(
            self._chain(link, [k for k, _ in window], deadline), [_size(p) for _, p in window], wait_ms=wait_ms
        )
        try:
            fill = link.call(Request(Op.RESERVE, body, Fill(link, self.client.timeout)._begin, Fill._undo), deadline)
        except Refused as e:
            return {}, e.code in _REFUSED
        for slot, (_, place) in zip(fill.slots, window):
            if slot.grant == Grant.GRANTED:
                _gather(slot, place)
        results = fill.commit(deadline - time.monotonic()) or [None] * len(fill)
        part = {
            key: slot.grant in (Grant.EXISTS, Grant.PENDING) or (r is not None and r.result in _THERE)
            for (key, _), slot, r in zip(window, fill.slots, results)
        }
        return part, fill.reason in _NO_ROOM

    def close(self) -> None:
        """Gives hinted leases back. Nothing may be called afterwards."""
        if self._expire in self.client._chores:
            self.client._chores.remove(self._expire)
        self._drop_hints()


def _distinct(keys: Sequence[bytes]) -> Sequence[bytes]:
    """The leading run of keys in which none comes twice."""
    seen = set()
    for i, key in enumerate(keys):
        if key in seen:
            return keys[:i]
        seen.add(key)
    return keys


def _size(place: Place) -> int:
    return sum(size for _, size in place)


def _gather(slot: Slot, place: Place) -> None:
    to = slot.address
    for address, size in place:
        copy(to, address, size)
        to += size
