"""Leases taken ahead of the loads that they are for, and those that an engine holds by key."""

import collections
import logging
import threading
import time
from typing import Counter, Deque, Hashable, NamedTuple, Optional, Sequence

from .client import Client
from .job import Job, release_soon
from .prompt import Space

log = logging.getLogger("kvstored")

SECONDS = 5.0  # that a lease is kept for its load
# Kept and held at a time: together fewer than a connection may have jobs, which is 1,024.
_MOST, _MOST_HELD = 512, 384


def answered(job: Job) -> Job:
    """The job of a question. The log has which hints that went with it do not count."""
    for fault in job.faults:
        log.info("kvstored: hint %r does not count: %s", fault.name, fault.text)
    return job


class Hint(NamedTuple):
    job: Job
    until: float
    keys: Sequence[bytes]  # that it is for, where one load after the other comes
    space: Optional[Space]  # of those


class Hints:
    """The hinted leases of one engine, all its spaces together. They give way to
    whatever wants their room. Safe for threads, and for forks."""

    def __init__(self, client: Client) -> None:
        # Oldest first. Without a lock, which another thread might hold when the process forks.
        self.held: Deque[Hint] = collections.deque()
        self._chores = client._chores
        self._chores.append(self._expire)

    def keep(self, job: Job, keys: Sequence[bytes] = (), space: Optional[Space] = None) -> None:
        """Takes a job over: gives its lease back after some seconds, when the last of
        its keys is loaded, or when there are many."""
        if job.state.done and not job.match.total.chunks:
            job.release_soon()
            return
        self.held.append(Hint(job, time.monotonic() + SECONDS, keys, space))
        self._give_back(len(self.held) - _MOST)

    def take(self, job: Job) -> bool:
        """Hands a job back to a caller that will end it; False if its lease was given
        back already, or will be by another thread."""
        for hint in list(self.held):
            if hint.job is job:
                try:
                    self.held.remove(hint)
                    return True
                except (ValueError, IndexError):
                    return False  # another thread was faster
        return False

    def find(self, keys: Sequence[bytes], space: Space) -> Optional[Job]:
        """A job of which these keys are the first. It is not taken."""
        for hint in list(self.held):
            if len(hint.keys) >= len(keys) > 0 and hint.keys[len(keys) - 1] == keys[-1] and hint.space == space:
                if list(hint.keys[: len(keys)]) == list(keys):
                    return hint.job
        return None

    def loaded(self, keys: Sequence[bytes]) -> None:
        """Gives the leases back of which the last key is among those that were loaded."""
        ends = set(keys) if self.held else ()
        for hint in list(self.held) if ends else ():
            if hint.keys and hint.keys[-1] in ends and self.take(hint.job):
                hint.job.release_soon()

    def _give_back(self, n: int) -> None:
        """Gives the n oldest leases back."""
        for _ in range(n):
            try:
                hint = self.held.popleft()
            except IndexError:
                return  # another thread gave it back
            hint.job.release_soon()

    def _expire(self) -> None:
        """Called by the client now and then."""
        now = time.monotonic()
        try:
            while self.held[0].until <= now:
                self._give_back(1)
        except IndexError:
            pass  # there are no more

    def drop(self) -> bool:
        """Gives all leases back, as there is no room for something that is wanted
        now; whether there were any."""
        n = len(self.held)
        self._give_back(n)
        return n > 0

    def close(self) -> None:
        """Gives all leases back. Nothing may be called afterwards."""
        if self._expire in self._chores:
            self._chores.remove(self._expire)
        self.drop()


class _Lease(NamedTuple):
    job: Job
    until: float
    left: Counter[Hashable]  # keys that are still held


class Held(Hints):
    """:class:`Hints`, and leases that are held for an engine until it lets go of
    each key as often as it has asked for it, or for ``seconds``: a key that it
    forgets does not stay. They give way last of all, and beyond some hundred the
    oldest to the newest. Safe for threads."""

    def __init__(self, client: Client, seconds: float) -> None:
        self._seconds = seconds
        self._mu = threading.Lock()  # guards the field below
        self._leases: Deque[_Lease] = collections.deque()  # oldest first
        super().__init__(client)

    def hold(self, keys: Sequence[Hashable], job: Job) -> None:
        """Takes a job over. It is given back with the last of its keys."""
        with self._mu:
            self._leases.append(_Lease(job, time.monotonic() + self._seconds, collections.Counter(keys)))
        self._end(len(self._leases) - _MOST_HELD)

    def holds(self, key: Hashable) -> bool:
        with self._mu:
            return any(key in lease.left for lease in self._leases)

    def let_go(self, keys: Sequence[Hashable]) -> int:
        """Lets go of each key once, of the oldest lease that has it; how many were held."""
        n, over = 0, []
        with self._mu:
            for key in keys:
                lease = next((lease for lease in self._leases if key in lease.left), None)
                if lease is None:
                    continue
                n += 1
                lease.left[key] -= 1
                if not lease.left[key]:
                    del lease.left[key]
                if not lease.left:
                    self._leases.remove(lease)
                    over.append(lease.job)
        release_soon(over)
        return n

    def _expire(self) -> None:
        super()._expire()
        now = time.monotonic()
        self._end(sum(lease.until <= now for lease in list(self._leases)))

    def _end(self, n: int) -> None:
        """Ends the n oldest leases."""
        with self._mu:
            over = [self._leases.popleft() for _ in range(min(n, len(self._leases)))]
        release_soon(lease.job for lease in over)

    def drop(self) -> bool:
        if super().drop():
            return True
        n = len(self._leases)
        self._end(n)
        return n > 0

    def close(self) -> None:
        super().close()
        self._end(len(self._leases))
