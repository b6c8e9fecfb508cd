"""One restore: chunks of a prompt into a sequence, as they come."""

import os
import queue
import threading
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import bulk
from ..client import Client
from ..answers import Reason
from ..job import Job
from ..prompt import Space, tokens as chunks_of
from .context import Loading

WAIT_COMPLETE = 2  # the policy under which a job goes on until all is there
checksum_at = bulk.total if bulk.SUMS else None
_LARGE_BYTES = 1 << 20  # from which it is worth another thread


class Read(NamedTuple):
    """A chunk that is read under a lease."""

    first: int  # its first token
    address: int
    size: int
    sum: int

    def is_right(self) -> bool:
        """Whether it is what was stored; True where no checksum can be computed."""
        return checksum_at is None or checksum_at(self.address, self.size) == self.sum


class Verifier:
    """A thread that computes the checksum of a large payload while llama.cpp copies
    the one before. It starts with the first of them, and ends with the process."""

    def __init__(self) -> None:
        self._queue: "Optional[queue.SimpleQueue[Tuple[Reading, int]]]" = None
        self._pid = 0

    def start(self, reading: "Reading", i: int) -> None:
        """Has chunk ``i`` verified."""
        if self._queue is None or self._pid != os.getpid():  # a forked child has no threads of its parent
            self._queue, self._pid = queue.SimpleQueue(), os.getpid()
            threading.Thread(target=self._run, args=(self._queue,), name="kvstored-verify", daemon=True).start()
        self._queue.put((reading, i))

    @staticmethod
    def _run(tasks: "queue.SimpleQueue[Tuple[Reading, int]]") -> None:
        while True:
            reading, i = tasks.get()
            reading.verify(i)


class Reading:
    """The payloads that are read under one lease. Each is verified before llama.cpp
    reads it. Where the daemon does not confirm the lease, as it went away for
    example, its memory may have been another's meanwhile: then all are verified
    once more. What is as it was has never been anything else."""

    def __init__(self, job: Job, verifier: Optional[Verifier] = None) -> None:
        self.job, self._verifier = job, verifier
        self._reads: List[Read] = []  # of all chunks that have come
        self._asked = 0  # how many were asked for
        self._ahead: Dict[int, bool] = {}  # what the thread found
        self._mu, self._ended = threading.Lock(), False  # locked while the thread reads
        self._alive: Optional[memoryview] = None  # keeps the memory mapped when the lease is over

    def payload(self, i: int, first: int) -> Optional[Read]:
        """Chunk ``i`` of the job, whose first token is ``first``; None where it cannot
        be had, or is not what was stored. They are asked for in order. The thread
        begins with the one behind it, and no further: what it has read is in the
        processor's cache for llama.cpp."""
        self._asked = i + 1
        try:
            self._take(i, first)
        except IndexError:
            return None  # this user may not map the daemon's memory
        read = self._reads[i]
        if self._verifier is not None and self._asked < len(self._reads) and read.size >= _LARGE_BYTES:
            self._verifier.start(self, self._asked)
        right = self._ahead.pop(i, None)
        return read if (read.is_right() if right is None else right) else None

    def _take(self, i: int, first: int) -> None:
        """Keeps what has come, of the first chunk that and the one behind it."""
        have, come = len(self._reads), len(self.job) if i else min(2, len(self.job))
        if self._alive is None:
            self._alive = memoryview(self.job.block(i))
        for n in range(have, come):
            ref = self.job.ref(n)
            at, size = self.job.address(n)
            self._reads.append(Read(first + (n - i) * ref.tokens, at, size, ref.sum))

    def verify(self, i: int) -> None:
        """By the thread: verifies chunk ``i``, if it was not asked for yet."""
        with self._mu:
            if not self._ended and i >= self._asked:
                self._ahead[i] = self._reads[i].is_right()

    def end(self, timeout: float) -> Optional[int]:
        """Gives the lease back. The first token of the first chunk that may have been
        wrong; None if all were right."""
        with self._mu:
            self._ended = True  # the thread reads no more
        good, wrong = self.job.release(timeout), None
        if not good:
            again = self._reads[: self._asked]
            wrong = next((r.first for r in again if checksum_at is None or not r.is_right()), None)
        if self._alive is not None:
            self._alive.release()
        return wrong


class Restore:
    """The stored prefix of one prompt, as many chunks at a time as one lease holds."""

    def __init__(
        self, client: Client, space: Space, loading: Loading, prefill_rate: int = 0, verifier: Optional[Verifier] = None
    ) -> None:
        self._client, self._space, self._loading, self._verifier = client, space, loading, verifier
        self._chunk, self._prefill_rate = space.chunk_tokens, prefill_rate

    def run(self, tokens: Sequence[int], deadline: float) -> None:
        """Adds what comes before the deadline, behind what the sequence holds."""
        prompt = chunks_of(tokens, skip=self._loading.count // self._chunk, space=self._space)
        while time.monotonic() < deadline:
            left = deadline - time.monotonic()
            job = self._client.prefetch(
                prompt, policy=WAIT_COMPLETE, load_deadline=left, prefill_rate=self._prefill_rate, timeout=left
            )
            reading = Reading(job, self._verifier)
            try:
                added = self._chunks(reading, prompt.skip, deadline)
            finally:
                reason = job.reason
                wrong = reading.end(max(0.05, deadline - time.monotonic()))
                if wrong is not None:
                    self._loading.cut(wrong)
            if wrong is not None or not added or reason != Reason.OVER_BUDGET:
                return
            prompt = prompt._replace(skip=prompt.skip + added)

    def _chunks(self, reading: Reading, skip: int, deadline: float) -> int:
        """Adds the chunks of one job; how many."""
        job, added = reading.job, 0
        while True:
            ready = job.ready
            while added < ready.chunks and time.monotonic() < deadline:
                if not self._add(reading, added, (skip + added) * self._chunk):
                    return added
                added += 1
            if job.state.done and added >= len(job):  # a job that was lost has none any more
                return added
            if time.monotonic() >= deadline:
                return added
            job.wait(ready.tokens + 1, deadline - time.monotonic())

    def _add(self, reading: Reading, i: int, first: int) -> bool:
        read = reading.payload(i, first)
        return read is not None and self._loading.add(read.address, read.size, first, first + self._chunk)
