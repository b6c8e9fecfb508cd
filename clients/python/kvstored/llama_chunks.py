"""One restore: chunks of a prompt into a sequence, as they come."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import List, NamedTuple, Optional, Sequence

from .client import Client
from .job import Job, Reason
from .llama_context import Loading
from .memory import checksum_at
from .prompt import tokens as chunks_of
from .wire import Space

WAIT_COMPLETE = 2  # the policy under which a job goes on until all is there
_AHEAD = 2  # chunks that are verified before their turn
_LARGE_BYTES = 512 << 10  # from which it is worth another thread


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
    """A thread that computes checksums of large payloads while llama.cpp copies the
    ones before. It starts with the first of them, and ends with the process."""

    def __init__(self) -> None:
        self._pool, self._pid = ThreadPoolExecutor(1, "kvstored-verify"), os.getpid()

    def start(self, read: Read) -> "Future[bool]":
        if self._pid != os.getpid():  # a forked child has no threads of its parent
            self._pool, self._pid = ThreadPoolExecutor(1, "kvstored-verify"), os.getpid()
        return self._pool.submit(read.is_right)


class Reading:
    """The payloads that are read under one lease. Each is verified before llama.cpp
    reads it. Where the daemon does not confirm the lease, as it went away for
    example, its memory may have been another's meanwhile: then all are verified
    once more. What is as it was has never been anything else."""

    def __init__(self, job: Job, verifier: Optional[Verifier] = None) -> None:
        self.job, self._verifier = job, verifier
        self._reads: List[Read] = []  # the pieces that were asked for, and some more
        self._right: "List[Optional[Future[bool]]]" = []
        self._asked = 0
        self._alive: Optional[memoryview] = None  # keeps the memory mapped when the lease is over

    def payload(self, i: int, first: int) -> Optional[Read]:
        """Chunk ``i`` of the job, whose first token is ``first``; None where it cannot
        be had, or is not what was stored. They are asked for in order."""
        try:
            self._start(i, first)
        except IndexError:
            return None  # this user may not map the daemon's memory
        read, right = self._reads[i], self._right[i]
        if not (read.is_right() if right is None else right.result()):
            return None
        self._asked = i + 1
        return read

    def _start(self, i: int, first: int) -> None:
        """Begins to verify chunk ``i`` and, by the thread, some that follow it."""
        while len(self._reads) < min(len(self.job), i + 1 + _AHEAD):
            n = len(self._reads)
            if self._alive is None:
                self._alive = memoryview(self.job.block(n))
            ref = self.job.ref(n)
            at, size = self.job.address(n)
            read = Read(first + (n - i) * ref.tokens, at, size, ref.sum)
            large = n > i and size >= _LARGE_BYTES and self._verifier is not None
            self._reads.append(read)
            self._right.append(self._verifier.start(read) if large and self._verifier is not None else None)

    def end(self, timeout: float) -> Optional[int]:
        """Gives the lease back. The first token of the first chunk that may have been
        wrong; None if all were right."""
        for right in self._right:
            if right is not None:
                right.result()  # the thread reads no more
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
            while added < len(job) and time.monotonic() < deadline:
                if not self._add(reading, added, (skip + added) * self._chunk):
                    return added
                added += 1
            if job.state.done and added >= len(job):  # a job that was lost has none any more
                return added
            if time.monotonic() >= deadline:
                return added
            job.wait(job.ready.tokens + 1, deadline - time.monotonic())

    def _add(self, reading: Reading, i: int, first: int) -> bool:
        read = reading.payload(i, first)
        return read is not None and self._loading.add(read.address, read.size, first, first + self._chunk)
