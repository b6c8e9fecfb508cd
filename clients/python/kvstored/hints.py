"""Leases taken ahead of the loads that they are for."""

from __future__ import annotations

import collections
import logging
import time
from typing import Deque, NamedTuple, Optional, Sequence

from .client import Client
from .job import Job
from .wire import Space

log = logging.getLogger("kvstored")

SECONDS = 5.0  # that a lease is kept for its load
_MOST = 512  # kept at a time: a connection may have 1,024 jobs


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
