"""Values under single keys, for engines that hand over pages without their order.

Each key is a chunk that stands alone; many are asked for, leased or stored in
one round trip. Nothing here raises because of the daemon, and copies let other
threads run.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import hints, options, wire
from .client import Client
from .errors import Code, DeadlineExceeded, Error, Refused
from .existing import Existing, Place
from .fill import Fill, Grant, Result, Slot
from .hints import Hints
from .job import Job, Reason
from .call import Call, Request
from .link import Link
from .memory import address, checksum_at, copy
from .questions import WINDOW, answers
from .wire import Op, Space
from .writer import Commits

_RUN = 32  # values of one question
_STORES = 256  # values of one reservation
_LOADS = 64  # runs that one load is made of, where values are missing between
_THERE = (Result.STORED, Result.EXISTS, Result.DIFFERS)
_NO_ROOM = (Reason.NO_SPACE, Reason.OVER_BUDGET, Reason.OVER_QUOTA)
_REFUSED = (Code.NO_SPACE, Code.OVER_BUDGET, Code.OVER_QUOTA)


class Pages:
    """The values of one space. Safe for threads."""

    def __init__(
        self,
        client: Client,
        space: Space,
        verify: bool = True,
        hints: Optional[Hints] = None,
        check_existing: int = options.CHECK_EXISTING,
    ) -> None:
        """``hints``: those of an engine with several spaces, which closes them itself.
        ``check_existing``: see :class:`Existing`."""
        self._existing = Existing(space, check_existing)
        self.client, self.space, self.verify = client, space, verify and checksum_at is not None
        self._shares_hints = hints is not None
        self._hints = Hints(client) if hints is None else hints

    def _chain(self, link: Link, keys: Sequence[bytes], deadline: float) -> bytes:
        handle = self.client._info(link, self.space, deadline).handle
        digests = b"".join([hashlib.sha256(k).digest()[:16] for k in keys])
        return wire.chain_hashes(handle, 16, digests, alone=True)

    def _prefetch(
        self, link: Link, keys: Sequence[bytes], deadline: float, load_seconds: float, callback: Any = None
    ) -> Request:
        body = wire.prefetch(self._chain(link, keys, deadline), deadline_ms=max(1, int(load_seconds * 1000)))
        return Request(Op.PREFETCH, body, Job(link, self.client.timeout)._begin, Job._undo, callback)

    def lookup(self, link: Link, keys: Sequence[bytes], deadline: float) -> Request:
        """How long the run of values is that are there."""
        return Request(Op.LOOKUP, wire.lookup(self._chain(link, keys, deadline)), wire.lookup_reply)

    # ---- what is there -------------------------------------------------------

    def find(self, keys: Sequence[bytes], timeout: float) -> int:
        """How many values are there from the first on, in one round trip. They
        start to come up to DRAM and are leased for some seconds, so that they
        are still there when they are loaded."""
        distinct = list(dict.fromkeys(keys))
        job = self.lease(distinct, timeout)
        found = 0 if job is None else job.match.total.chunks
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
                now, runs = runs[:WINDOW], runs[WINDOW:]
                requests = [self.lookup(link, run, deadline) for run in now]
                for run, match in zip(now, answers(link, requests, deadline)):
                    if match is None:
                        continue
                    there = match.total.chunks
                    found.update(dict.fromkeys(run[:there], True))
                    runs += [[k] for k in run[there + 1 :]]
        except Error:
            pass  # the space could not be opened
        return [found[k] for k in keys]

    # ---- hints ---------------------------------------------------------------

    def lease(self, keys: Sequence[bytes], timeout: float) -> Optional[Job]:
        """Leases a run of values for some seconds, as :meth:`find` does. Until the
        job is done the daemon may still be asking its remote tier for more than it
        has matched. None if there is no answer."""
        link, deadline = self.client._ready(), time.monotonic() + timeout
        if link is None or not keys:
            return None
        try:
            job = link.call(self._prefetch(link, keys, deadline, hints.SECONDS), deadline)
        except Error:
            return None
        self._hints.keep(job)
        return job

    def hint(self, keys: Sequence[bytes]) -> None:
        """:meth:`lease` of distinct values for a caller that wants no answer. Returns
        at once. The answer may take the client's timeout: to all calls the daemon
        looks stalled when one is late."""
        link, deadline = self.client._ready(), time.monotonic() + self.client.timeout
        if link is None or not keys:
            return
        try:
            distinct = list(dict.fromkeys(keys))
            link.start([self._prefetch(link, distinct, deadline, hints.SECONDS, self._hinted)], deadline)
        except Error:
            pass  # it was only a hint

    def _hinted(self, call: Call) -> None:
        if call.value is not None:
            self._hints.keep(call.value)

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
            if n < len(run) and not (crowded and (n or self._hints.drop())):
                break
        return loaded

    def load_each(self, keys: Sequence[bytes], places: Sequence[Place], timeout: float) -> List[bool]:
        """Which values were copied to their places: as :meth:`load`, but goes on
        behind one that cannot be had."""
        loaded, deadline = [False] * len(keys), time.monotonic() + timeout
        todo = list(range(len(keys)))
        for _ in range(_LOADS):
            n = self.load([keys[i] for i in todo], [places[i] for i in todo], deadline - time.monotonic())
            for i in todo[:n]:
                loaded[i] = True
            rest = todo[n + 1 :]
            left = deadline - time.monotonic()
            if not rest or left <= 0:
                break
            there = self.exists([keys[i] for i in rest], left)
            todo = [i for i, yes in zip(rest, there) if yes]
        return loaded

    def _load(self, keys: Sequence[bytes], places: Sequence[Place], deadline: float) -> Tuple[int, bool]:
        """Loads a leading run of keys; whether more room would have made it longer."""
        link = self.client._ready()
        if link is None:
            return 0, False
        if link.arena is None:
            return self._load_inline(link, keys, places, deadline), False
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

    def _load_inline(self, link: Link, keys: Sequence[bytes], places: Sequence[Place], deadline: float) -> int:
        """Loads a leading run of keys over the socket, where the daemon does not let
        this user map its memory; as many at a time as fit into one reply."""
        loaded = 0
        while loaded < len(keys) and time.monotonic() < deadline:
            left = max(1, int((deadline - time.monotonic()) * 900))
            body = wire.get(self._chain(link, keys[loaded:], deadline), deadline_ms=left)
            chunks = link.call(Request(Op.GET, body, wire.get_reply), deadline)
            for payload, _, total in chunks:
                if time.monotonic() >= deadline or not self._copy_from(address(payload), len(payload), places[loaded], total):
                    return loaded
                loaded += 1
            if not chunks:
                break
        return loaded

    def _copy(self, job: Job, i: int, place: Place, deadline: float) -> bool:
        if len(job) <= i:
            job.wait((i + 1) * self.space.chunk_tokens, deadline - time.monotonic())
        if len(job) <= i or time.monotonic() >= deadline:
            return False
        at, length = job.address(i)
        return self._copy_from(at, length, place, job.ref(i).sum)

    def _copy_from(self, at: int, length: int, place: Place, total: int) -> bool:
        """Copies a payload to its place; False if it is not as long or as it was."""
        if length != sum(size for _, size in place):
            return False
        if self.verify and checksum_at is not None and checksum_at(at, length) != total:
            return False
        for to, size in place:
            copy(to, at, size)
            at += size
        return True

    # ---- storing -------------------------------------------------------------

    def store(
        self, keys: Sequence[bytes], places: Sequence[Place], timeout: float, patient: bool = True
    ) -> List[bool]:
        """Copies values from their places. True: it is there, perhaps with other
        bytes but of this length, or another client is just storing it. Where room
        is short it waits for the tiers below to catch up, if ``patient``, which
        takes up to half of the time. No copy begins after the timeout."""
        there: Dict[bytes, bool] = {}
        deadline = time.monotonic() + timeout
        todo = {k: p for k, p in zip(keys, places) if self._fits(p)}
        commits, parts = Commits(), []
        while todo and time.monotonic() < deadline:
            link = self.client._ready()
            if link is None or link.staging is None:
                break
            window = self._window(todo, link.staging.size // 4)  # two threads store two at the same time
            try:
                part, crowded = self._store(link, commits, window, deadline, patient)
            except Error:
                break
            if part.fill.slots:
                parts.append(part)
            elif commits:
                commits.finish(deadline)  # they may have the room
            elif not crowded:
                break
            elif not self._hints.drop():
                del todo[window[0][0]]  # there is no room for this one, or better use
            for key, _ in window[: len(part.fill)]:
                del todo[key]
        commits.finish(deadline)
        for part in parts:
            there.update(part.there(self._existing))
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
        self, link: Link, commits: Commits, window: Sequence[Tuple[bytes, Place]], deadline: float, patient: bool
    ) -> Tuple["_Part", bool]:
        """Stores a leading run; and whether more room would have made it longer."""
        wait_ms = max(1, int((deadline - time.monotonic()) * 500)) if patient else 0  # half is left for the copies
        sizes, sums = [_size(p) for _, p in window], self._existing.sums([p for _, p in window])
        body = wire.reserve(self._chain(link, [k for k, _ in window], deadline), sizes, wait_ms=wait_ms, sums=sums)
        fill = Fill(link, self.client.timeout)
        part = _Part(window, sizes, fill)
        try:
            link.call(Request(Op.RESERVE, body, fill._begin, Fill._undo, leads=True), deadline)
        except Refused as e:
            return part, e.code in _REFUSED

        def gather(slot: Slot) -> None:
            if time.monotonic() >= deadline:  # the places, and the slots in the end, may be somebody else's
                raise DeadlineExceeded("storing")
            _gather(slot, window[slot.index][1])

        try:
            commits.write(link, fill, gather, deadline)
        except DeadlineExceeded:
            pass  # nothing begins any more
        return part, fill.reason in _NO_ROOM

    def close(self) -> None:
        """Gives hinted leases back, unless they are shared. Nothing may be called afterwards."""
        if not self._shares_hints:
            self._hints.close()


class _Part(NamedTuple):
    """Values that were reserved together: the first of window, as many as the fill has."""

    window: Sequence[Tuple[bytes, Place]]
    sizes: Sequence[int]
    fill: Fill

    def there(self, existing: Existing) -> Dict[bytes, bool]:
        """Which of them are there, once all is committed."""
        results = self.fill.results or [None] * len(self.fill)
        return {
            key: exists or slot.grant == Grant.PENDING or (r is not None and r.result in _THERE)
            for (key, _), exists, slot, r in zip(
                self.window, existing.stored(self.fill, self.sizes), self.fill.slots, results
            )
        }


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
    for source, size in place:
        copy(to, source, size)
        to += size
