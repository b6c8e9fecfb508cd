"""What vLLM's scheduler asks of a tier: which blocks are there.

It asks for one block at a time and must not wait. The first question for a
block is queued; a thread asks the daemon for all that are queued, leases those
that are there, and keeps the answers for a while.
"""

from __future__ import annotations

import collections
import itertools
import time
from typing import Any, Deque, Dict, Iterable, List, NamedTuple, Optional, Tuple

from . import hints
from .job import Job
from .pages import Pages
from .vllm_jobs import Worker
from .vllm_stats import Counters

_HIT_SECONDS = hints.SECONDS - 1.0  # less than the lease that a hit takes
_MISS_SECONDS = 1.0
_CACHED = 1 << 17  # answers kept
_BATCH = 1024  # blocks of one question
_LOOK_SECONDS = 0.01  # between looks at what the remote tier has been found to have


class _Search(NamedTuple):
    """Blocks that the daemon is asking its remote tier for."""

    job: Job
    keys: List[Any]
    until: float


class Lookups:
    """Answers for keys, which are told apart as vLLM gives them."""

    def __init__(self, pages: Pages, timeout: float, counters: Counters) -> None:
        self._pages, self._timeout, self._counters = pages, timeout, counters
        # Deques and dicts are shared without a lock: each operation on them is atomic.
        self._answers: Dict[Any, Tuple[bool, float]] = {}  # until when
        self._asked: Dict[Any, float] = {}  # since when
        self._queue: Deque[Any] = collections.deque()
        self._searches: List[_Search] = []  # the thread's
        self.worker = Worker("lookup", self._turn)

    def get(self, key: Any) -> Optional[bool]:
        """Whether a block is there, None while the daemon is being asked. Returns at once."""
        now = time.monotonic()
        answer = self._answers.get(key)
        if answer is not None and answer[1] > now:
            return answer[0]
        since = self._asked.get(key)
        if since is None:
            self._asked[key] = now
            self._queue.append(key)
            self.worker.wake()
            return None
        return None if now - since < self._timeout else False

    def forget(self, keys: Iterable[Any]) -> None:
        """Drops what was answered before these were stored, or failed to load."""
        for key in keys:
            self._answers.pop(key, None)

    def absent(self, key: Any) -> None:
        """Takes note of a block that could not be loaded."""
        self._answer({key: False})

    # ---- the thread ------------------------------------------------------------

    def _turn(self) -> Optional[float]:
        keys = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH))]
        if keys:
            self._ask(keys)
        self._searches = [search for search in self._searches if self._goes_on(search)]
        return 0 if self._queue else _LOOK_SECONDS if self._searches else None

    def _ask(self, keys: List[Any]) -> None:
        there: List[Any] = []
        try:
            there = self._leased(keys)
        finally:
            self._answer(dict.fromkeys(there, True))
            found = set(there)
            self._search([key for key in keys if key not in found])

    def _leased(self, keys: List[Any]) -> List[Any]:
        """Those of the keys that are there, leased where they are in DRAM, and else on
        their way up."""
        found = self._pages.exists([raw(k) for k in keys], self._timeout)
        there = [k for k, yes in zip(keys, found) if yes]
        return there[: self._pages.find([raw(k) for k in there], self._timeout)]

    def _search(self, keys: List[Any]) -> None:
        """Has the daemon ask its remote tier, if there is one, for each group of
        layers by itself: it finds the leading run of what it is asked for."""
        for _, run in itertools.groupby(keys, key=lambda k: raw(k)[-4:]):
            wanted = list(run)
            job = self._pages.lease([raw(k) for k in wanted], self._timeout)
            if job is None or job.state.done:
                self._answer(dict.fromkeys(wanted, False))
                continue
            self._searches.append(_Search(job, wanted, time.monotonic() + self._timeout))
            job.on_ready(lambda _: self.worker.wake(), timeout=self._timeout)

    def _goes_on(self, search: _Search) -> bool:
        """Answers what has been found. What the remote tier has is known before it is in DRAM."""
        over = search.job.state.done or time.monotonic() >= search.until
        found = self._pages.exists([raw(k) for k in search.keys], self._timeout)
        there = {k: True for k, yes in zip(search.keys, found) if yes}
        left = [k for k in search.keys if k not in there]
        self._answer({**there, **(dict.fromkeys(left, False) if over else {})})
        search.keys[:] = left
        return bool(left) and not over

    def _answer(self, answers: Dict[Any, bool]) -> None:
        now = time.monotonic()
        if len(self._answers) > _CACHED:
            self._answers.clear()
        for key, there in answers.items():
            self._answers[key] = (there, now + (_HIT_SECONDS if there else _MISS_SECONDS))
            self._asked.pop(key, None)
        hits = sum(answers.values())
        self._counters.add("lookups", hits, "hit")
        self._counters.add("lookups", len(answers) - hits, "miss")


def raw(key: Any) -> bytes:
    return bytes(key) if isinstance(key, (bytes, bytearray, memoryview)) else repr(key).encode()
