"""Values under single keys, for engines that hand over pages without their order.

Each key is a prompt of one chunk. Many are asked for at once: their requests go
out together and cost one round trip. Nothing here raises because of the daemon,
and copies let other threads run.
"""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import wire
from .client import Client
from .errors import DeadlineExceeded, Disconnected, Error
from .fill import Fill, Grant, Result
from .job import Job
from .link import Call, Link, Request
from .memory import checksum_at, copy
from .wire import Op, Space

#: Where a value is or goes: address and bytes of its pieces, in order.
Place = Sequence[Tuple[int, int]]

_WINDOW = 128  # requests on their way at once
_LOADS = 32  # leases of one load at once
_HINTS = 256  # leases taken ahead of their load
_HINT_SECONDS = 5.0
_THERE = (Result.STORED, Result.EXISTS, Result.DIFFERS)


class Pages:
    """The values of one space. Safe for threads."""

    def __init__(self, client: Client, space: Space, verify: bool = True) -> None:
        self.client, self.space, self.verify = client, space, verify and checksum_at is not None
        self._mu = threading.Lock()  # guards the fields below
        self._hints: Dict[bytes, Tuple[Job, float]] = {}  # until when
        self._asked = 0  # hints on their way
        self._timer: Optional[threading.Timer] = None

    def _chain(self, link: Link, key: bytes, deadline: float) -> bytes:
        handle = self.client._handle(link, self.space, deadline)
        digest = hashlib.sha256(key).digest()[:16]
        return wire.chain_hashes(handle, 16, digest, (self.space.chunk_tokens,))

    def _ask(
        self, link: Link, requests: Sequence[Request], deadline: float, drop: Callable[[Any], None] = lambda _: None
    ) -> List[Any]:
        """The values of the replies, None for those that were refused or are late;
        drop gives back what came too late."""
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
                    if not link.abandon(late) and late.value is not None:
                        drop(late.value)
                break
            except Error:
                values.append(None)
        return values

    # ---- what is there -------------------------------------------------------

    def exists(self, keys: Sequence[bytes], timeout: float, leading: bool = False) -> List[bool]:
        """Which values are there. With leading, nothing is asked long after the first that is not."""
        found: List[bool] = []
        deadline = time.monotonic() + timeout
        try:
            while len(found) < len(keys):
                link = self.client._ready()
                if link is None or (leading and not all(found[-_WINDOW:])):
                    break
                window = keys[len(found) : len(found) + _WINDOW]
                requests = [
                    Request(Op.LOOKUP, wire.lookup(self._chain(link, k, deadline)), wire.lookup_reply) for k in window
                ]
                answers = self._ask(link, requests, deadline)
                found += [m is not None and m.total.chunks == 1 for m in answers]
        except Error:
            pass  # the space could not be opened
        return found + [False] * (len(keys) - len(found))

    def hint(self, keys: Sequence[bytes]) -> None:
        """Starts to bring values up to DRAM and leases them for some seconds, so
        that they are still there when they are loaded. Returns at once."""
        link = self.client._ready()
        if link is None:
            return
        with self._mu:
            keys = [k for k in keys if k not in self._hints][: _HINTS - len(self._hints) - self._asked]
            self._asked += len(keys)
        deadline = time.monotonic() + 0.1
        try:
            requests = [self._prefetch(link, k, deadline, self._hinted(k)) for k in keys]
            if requests:
                link.start(requests, deadline)
        except Error:
            with self._mu:
                self._asked -= len(keys)

    def _hinted(self, key: bytes) -> Callable[[Call], None]:
        def answered(call: Call) -> None:
            job: Optional[Job] = call.value
            with self._mu:
                self._asked = max(0, self._asked - 1)
                if job is not None and key not in self._hints:
                    self._hints[key], job = (job, time.monotonic() + _HINT_SECONDS), None
                    if self._timer is None:
                        self._timer = threading.Timer(_HINT_SECONDS, self._expire)
                        self._timer.daemon = True
                        self._timer.start()
            if job is not None:
                job.release_soon()

        return answered

    def _expire(self) -> None:
        now = time.monotonic()
        with self._mu:
            old = [k for k, (_, until) in self._hints.items() if until <= now]
            jobs = [self._hints.pop(k)[0] for k in old]
            self._timer = None
            if self._hints:
                self._timer = threading.Timer(_HINT_SECONDS / 4, self._expire)
                self._timer.daemon = True
                self._timer.start()
        for job in jobs:
            job.release_soon()

    def _prefetch(self, link: Link, key: bytes, deadline: float, callback: Any = None) -> Request:
        job = Job(self.client, link)
        return Request(Op.PREFETCH, wire.prefetch(self._chain(link, key, deadline)), job._begin, Job._undo, callback)

    # ---- loading -------------------------------------------------------------

    def load(self, keys: Sequence[bytes], places: Sequence[Place], timeout: float) -> List[bool]:
        """Copies values to their places. False: it is not there, is not as long as
        its place, does not match its checksum, or its lease did not hold; what
        lies in its place then is undefined."""
        loaded: List[bool] = []
        deadline = time.monotonic() + timeout
        for at in range(0, len(keys), _LOADS):
            window = keys[at : at + _LOADS]
            try:
                loaded += self._load(window, places[at : at + _LOADS], deadline)
            except Error:
                loaded += [False] * len(window)
        return loaded

    def _load(self, keys: Sequence[bytes], places: Sequence[Place], deadline: float) -> List[bool]:
        link = self.client._ready()
        if link is None:
            return [False] * len(keys)
        with self._mu:
            jobs = {k: self._hints.pop(k)[0] for k in keys if k in self._hints}
        for key in [k for k, job in jobs.items() if job._link is not link]:
            jobs.pop(key).release_soon()
        missing = [k for k in dict.fromkeys(keys) if k not in jobs]
        requests = [self._prefetch(link, k, deadline) for k in missing]
        for key, job in zip(missing, self._ask(link, requests, deadline, Job.release_soon)):
            if job is not None:
                jobs[key] = job
        copied = {k: self._copy(job, place, deadline) for k, place in zip(keys, places) for job in [jobs.get(k)] if job}
        held = self._release(link, jobs, deadline)
        return [copied.get(k, False) and held.get(k, False) for k in keys]

    def _copy(self, job: Job, place: Place, deadline: float) -> bool:
        if not job.wait(1, deadline - time.monotonic()).ready.chunks:
            return False
        address, length = job.address(0)
        if length != sum(size for _, size in place):
            return False
        if self.verify and checksum_at(address, length) != job.ref(0).sum:
            return False
        for to, size in place:
            copy(to, address, size)
            address += size
        return True

    def _release(self, link: Link, jobs: Dict[bytes, Job], deadline: float) -> Dict[bytes, bool]:
        requests = [Request(Op.RELEASE, wire.job(job.id), wire.release_reply) for job in jobs.values()]
        answers = self._ask(link, requests, deadline)
        for job, good in zip(jobs.values(), answers):
            job.good = bool(good)
        return {k: bool(good) for k, good in zip(jobs, answers)}

    # ---- storing -------------------------------------------------------------

    def store(self, keys: Sequence[bytes], places: Sequence[Place], timeout: float) -> List[bool]:
        """Copies values from their places. True: it is there, or somebody else is just storing it."""
        stored: List[bool] = []
        deadline = time.monotonic() + timeout
        sizes = [sum(size for _, size in place) for place in places]
        while len(stored) < len(keys):
            link = self.client._ready()
            if link is None or link.staging is None or time.monotonic() >= deadline:
                break
            at = end = len(stored)
            room = link.staging.size // 2  # two threads store at the same time
            while end < len(keys) and end - at < _LOADS and (end == at or sum(sizes[at : end + 1]) <= room):
                end += 1
            try:
                stored += self._store(link, keys[at:end], places[at:end], sizes[at:end], deadline)
            except Error:
                stored += [False] * (end - at)
        return stored + [False] * (len(keys) - len(stored))

    def _store(
        self, link: Link, keys: Sequence[bytes], places: Sequence[Place], sizes: Sequence[int], deadline: float
    ) -> List[bool]:
        fits = [0 < size <= link.hello.max_payload for size in sizes]
        wait_ms = max(1, int((deadline - time.monotonic()) * 500))  # half of what is left for the copies
        requests = [
            Request(
                Op.RESERVE,
                wire.reserve(self._chain(link, k, deadline), [size], wait_ms=wait_ms),
                Fill(self.client, link)._begin,
                Fill._undo,
            )
            for k, size, fit in zip(keys, sizes, fits)
            if fit
        ]
        fills = iter(self._ask(link, requests, deadline, lambda f: f.id and link.later(Op.ABORT, wire.fill(f.id))))
        answered: List[Optional[Fill]] = [next(fills) if fit else None for fit in fits]
        there = [fill is not None and len(fill) == 1 for fill in answered]
        commits, which = [], []
        for i, fill in enumerate(answered):
            if fill is not None and len(fill) == 1 and fill.slots[0].grant == Grant.GRANTED:
                to = fill.slots[0].address
                for address, size in places[i]:
                    copy(to, address, size)
                    to += size
                commits.append(fill._commit_request())
                which.append(i)
        for i, results in zip(which, self._ask(link, commits, deadline)):
            there[i] = bool(results) and results[0].result in _THERE
        return there

    def close(self) -> None:
        """Gives hinted leases back."""
        with self._mu:
            jobs = [job for job, _ in self._hints.values()]
            self._hints.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        for job in jobs:
            job.release_soon()
