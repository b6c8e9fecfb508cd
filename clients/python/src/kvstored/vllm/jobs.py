"""Jobs of vLLM's tiering manager, the threads that do them, and their results."""

import collections
import logging
import threading
import time
from typing import Any, Callable, Collection, Deque, List, Optional, Set

from .._engine import find

log = logging.getLogger("kvstored.vllm")

_TROUBLED_SECONDS = 0.1  # of a thread, after a turn that raised
_REST_SECONDS = 0.0003  # of a step of the engine, for a thread that has work
_PAUSE_SECONDS = 0.001  # vLLM's own, in a step that runs no model, where the engine has a process of its own


JobResult: Any = find("vllm.v1.kv_offload.tiering.base", "JobResult")
_TELLS_BYTES = hasattr(JobResult, "transfer_bytes")  # which came with 0.32


class Transfer:
    """What is needed of vLLM's TransferJob: keys, and for each the row of host memory that
    it is in or goes to."""

    def __init__(self, metadata: Any, seconds: float) -> None:
        self.id, self.keys = metadata.job_id, list(metadata.keys)
        self.context = metadata.req_context
        self.rows = [int(i) for i in metadata.chunk_ids]
        if len(self.rows) != len(self.keys):
            raise ValueError(f"job {self.id}: {len(self.keys)} keys for {len(self.rows)} rows")
        self.began = time.monotonic()
        self.deadline = self.began + seconds

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()


class Jobs:
    """The jobs that are under way, and the results that vLLM has not taken yet.
    Each job has one result. Safe for threads."""

    def __init__(self) -> None:
        self._idle = threading.Condition()
        # Under _idle; no job is added any more once closed is set:
        self._pending: Set[Transfer] = set()
        self._latest = 0.0  # deadline of all jobs
        self._results: Deque[Any] = collections.deque()
        self.closed = False

    def __bool__(self) -> bool:
        return bool(self._pending or self._results)

    def add(self, job: Transfer, queue: Deque[Transfer]) -> None:
        """Queues a job, which fails at once if there is nobody left to do it."""
        with self._idle:
            self._pending.add(job)
            self._latest = max(self._latest, job.deadline)
            if not self.closed:
                queue.append(job)
                return
        self.finish(job, False)

    def refuse(self, job_id: Any) -> None:
        """The result of a job that makes no sense."""
        self._results.append(JobResult(job_id, False))

    def finish(self, job: Transfer, success: bool, loaded: Collection[Any] = (), size: int = 0) -> None:
        """Ends a job, unless it has ended. ``loaded``: keys that a load brought before
        it failed. ``size``: bytes that were moved."""
        with self._idle:
            if job not in self._pending:
                return  # while the tier ends two may come to it
            try:
                self._results.append(_result(job, success, loaded, size))
            finally:
                self._pending.remove(job)
                self._idle.notify_all()

    def take(self) -> List[Any]:
        """The results since the last call."""
        return [self._results.popleft() for _ in range(len(self._results))]

    def drain(self, late: float) -> int:
        """Returns when every job has ended, or ``late`` seconds after the last one
        should have; how many have not."""
        with self._idle:
            self._idle.wait_for(lambda: not self._pending, max(0.0, self._latest + late - time.monotonic()))
            return len(self._pending)

    def sweep(self) -> None:
        """Fails all jobs, as there is no thread for them any more."""
        self.closed = True
        with self._idle:
            left = list(self._pending)
        for job in left:
            self.finish(job, False)

    def forked(self) -> None:
        """In a forked child, which has no thread of the tier's."""
        self._idle = threading.Condition()  # the other may be held by a thread that is not here
        self.sweep()


def _result(job: Transfer, success: bool, loaded: Collection[Any], size: int) -> Any:
    """With what was loaded before a job failed, its seconds, and its bytes."""
    brought = tuple(loaded) if loaded and not success else None
    more = {"transfer_bytes": size} if _TELLS_BYTES else {}
    return JobResult(job.id, success, successful_keys=brought, transfer_time=time.monotonic() - job.began, **more)


class Worker:
    """A thread that takes turns. A turn returns the seconds until the next one,
    None if that may wait until the worker is woken."""

    def __init__(self, name: str, turn: Callable[[], Optional[float]]) -> None:
        self._turn, self._stopped, self._wake, self._idle = turn, False, threading.Event(), threading.Event()
        self._rested = 0.0
        self._thread = threading.Thread(target=self._run, name=f"kvstored-vllm-{name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._idle.clear()
        self._wake.set()

    @property
    def idle(self) -> bool:
        """Whether there is no turn under way, nor to come."""
        return self._idle.is_set()

    def rest(self) -> None:
        """Called once a step. Lets the thread run if it has work, beside an engine that steps
        without a pause: the thread would wait up to 5 ms for the interpreter, each time that it
        has given it up. A step that has a pause, or computes, gets none here."""
        if not self._idle.is_set() and time.monotonic() - self._rested < _PAUSE_SECONDS:
            self._idle.wait(_REST_SECONDS)
        self._rested = time.monotonic()

    def stop(self) -> None:
        """Lets the turn under way be the last; ``join`` waits for it."""
        self._stopped = True
        self._wake.set()

    def join(self, seconds: float) -> bool:
        """Whether the last turn is over."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            self._idle.clear()
            try:
                pause = self._turn()
            except Exception:
                log.exception("kvstored: the tier goes on")
                pause = _TROUBLED_SECONDS
            if pause != 0:
                if not self._wake.is_set():
                    self._idle.set()
                self._wake.wait(pause)
