"""Leases that an engine asked for by key, and gives back by key."""

from __future__ import annotations

import collections
import threading
import time
from typing import Deque, Dict, Hashable, List, Sequence

from .client import Client
from .hints import Hints
from .job import Job

_MOST = 384  # leases held at a time: with those of Hints, fewer than a connection may have jobs


class _Lease:
    """A job, and which of its keys are still held."""

    __slots__ = ("job", "left", "until")

    def __init__(self, job: Job, keys: Sequence[Hashable], until: float) -> None:
        self.job, self.until = job, until
        self.left = collections.Counter(keys)


class Held(Hints):
    """:class:`Hints`, and leases that are held for an engine until it lets go of
    each key as often as it has asked for it, or for ``seconds``: a key that it
    forgets does not stay. They give way last of all, and beyond some hundred the
    oldest to the newest. Safe for threads."""

    def __init__(self, client: Client, seconds: float) -> None:
        super().__init__(client)
        self._seconds = seconds
        self._mu = threading.Lock()  # guards the fields below
        self._of: Dict[Hashable, Deque[_Lease]] = {}
        self._leases: Deque[_Lease] = collections.deque()  # oldest first
        self._chores.append(self._forget)

    def hold(self, keys: Sequence[Hashable], job: Job) -> None:
        """Takes a job over. It is given back with the last of its keys."""
        lease = _Lease(job, keys, time.monotonic() + self._seconds)
        with self._mu:
            self._leases.append(lease)
            for key in keys:
                self._of.setdefault(key, collections.deque()).append(lease)
            n = len(self._leases) - _MOST
        self._end(max(0, n))

    def holds(self, key: Hashable) -> bool:
        with self._mu:
            return key in self._of

    def let_go(self, keys: Sequence[Hashable]) -> int:
        """Lets go of each key once; how many were held."""
        over: List[Job] = []
        n = 0
        with self._mu:
            for key in keys:
                held = self._of.get(key)
                if not held:
                    continue
                lease = held.popleft()
                if not held:
                    del self._of[key]
                n += 1
                lease.left[key] -= 1
                if not +lease.left:
                    self._leases.remove(lease)
                    over.append(lease.job)
        for job in over:
            job.release_soon()
        return n

    def _forget(self) -> None:
        """Called by the client now and then."""
        now = time.monotonic()
        with self._mu:
            n = sum(lease.until <= now for lease in self._leases)
        self._end(n)

    def _end(self, n: int) -> None:
        """Ends the n oldest leases."""
        over: List[Job] = []
        with self._mu:
            for _ in range(min(n, len(self._leases))):
                lease = self._leases.popleft()
                over.append(lease.job)
                for key in +lease.left:
                    held = collections.deque(other for other in self._of.get(key, ()) if other is not lease)
                    if held:
                        self._of[key] = held
                    else:
                        self._of.pop(key, None)
        for job in over:
            job.release_soon()

    def drop(self) -> bool:
        if super().drop():
            return True
        n = len(self._leases)
        self._end(n)
        return n > 0

    def close(self) -> None:
        if self._forget in self._chores:
            self._chores.remove(self._forget)
        super().close()
        self._end(len(self._leases))
