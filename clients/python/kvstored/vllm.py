"""A secondary tier for vLLM's OffloadingConnector (TieringOffloadingSpec).

    {"type": "KvstoredTier", "module_path": "kvstored.vllm"}

in ``secondary_tiers`` is all it takes; docs/engines.md has the whole line and
the further keys. vLLM copies between GPU and its host memory; this class moves
rows of that host memory. Every method but ``drain_jobs`` and ``shutdown``
returns at once: one thread of the tier talks to the daemon.
"""

from __future__ import annotations

import collections
import inspect
import logging
import os
import threading
import time
import weakref
from typing import Any, Collection, Deque, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import engine, options
from .client import Client
from .memory import address
from .pages import Pages, Place
from .vllm_space import fingerprint


class _Manager:  # without vLLM: enough of it for tests
    def __init__(self, spec: Any, primary_kv_view: memoryview, tier_type: str = "") -> None:
        self._primary_kv_view, self.tier_type = primary_kv_view, tier_type


class _Result(NamedTuple):
    job_id: int
    success: bool


SecondaryTierManager: Any = engine.find("vllm.v1.kv_offload.tiering.base", "SecondaryTierManager") or _Manager
JobResult: Any = engine.find("vllm.v1.kv_offload.tiering.base", "JobResult") or _Result
LookupResult = engine.find("vllm.v1.kv_offload.base", "LookupResult", newer=True)  # older: True, False, None
RequestOffloadingContext = engine.find("vllm.v1.kv_offload.base", "RequestOffloadingContext", newer=True)

log = logging.getLogger("kvstored.vllm")

_HIT_SECONDS = 4.0  # less than the lease that a hit takes
_MISS_SECONDS = 1.0
_CACHED = 1 << 17  # answers kept
_STEP = 8  # blocks stored between looks at what is more urgent
_LATE_SECONDS = 5.0  # for what is under way at its deadline to be copied

KEYS = {
    "socket": options.socket(),
    "lookup_timeout": options.seconds(0.5),
    "transfer_timeout": options.seconds(10.0),
    "verify": options.flag(True),
    "model": options.text(),
    "revision": options.text(),
    "namespace": options.text(),
    "module_path": options.text(),
}


class KvstoredTier(SecondaryTierManager):
    """The daemon as a tier below vLLM's host memory. Its ``KEYS``:

    ``socket``: the daemon's, if it is not where a client looks.
    ``lookup_timeout``: seconds after which a lookup without an answer is a miss.
    ``transfer_timeout``: seconds for one load or store job; a late one fails.
    ``verify``: compare checksums of what is loaded.
    ``model``, ``revision``: of the weights, in place of what vLLM says.
    ``namespace``: further text that must be equal for blocks to be shared.
    ``module_path``: the factory's; one that looks tiers up by name leaves it in.
    """

    def __init__(
        self,
        spec: Any = None,
        primary_kv_view: Optional[memoryview] = None,
        tier_type: str = "KvstoredTier",
        *,
        offloading_spec: Any = None,
        vllm_config: Any = None,
        **keys: Any,
    ) -> None:
        """``keys``: what the user gives; a ValueError says what is wrong with them."""
        o = options.check("KvstoredTier", keys, KEYS)
        spec = next((s for s in (spec, offloading_spec, vllm_config) if s is not None), None)
        if primary_kv_view is None or primary_kv_view.ndim < 2:
            raise ValueError("KvstoredTier needs primary_kv_view as rows of bytes, one for each block")
        if "tier_type" in inspect.signature(SecondaryTierManager.__init__).parameters:
            super().__init__(spec, primary_kv_view, tier_type)
        else:
            super().__init__(spec, primary_kv_view)
        self._row = primary_kv_view.nbytes // len(primary_kv_view)
        self._rows, self._base = len(primary_kv_view), address(primary_kv_view)
        self._lookup_timeout, self._transfer_timeout = o["lookup_timeout"], o["transfer_timeout"]
        space = fingerprint(spec, self._row, o["model"], o["revision"], o["namespace"])
        self._client = Client(o["socket"], space=space, name="vllm", timeout=self._transfer_timeout)  # it is checked there
        self._pages = Pages(self._client, space, o["verify"])
        # Deques and dicts are shared without a lock: each operation on them is atomic.
        self._answers: Dict[Any, Tuple[bool, float]] = {}  # until when
        self._asked: Dict[Any, float] = {}  # since when
        self._lookups: Deque[Any] = collections.deque()
        self._loads: Deque[Any] = collections.deque()
        self._stores: Deque[Any] = collections.deque()
        self._finished: Deque[Any] = collections.deque()
        self._idle = threading.Condition()
        # Under _idle; no job is queued any more once _closed is set:
        self._pending: Set["_Job"] = set()  # jobs that are not finished
        self._latest = 0.0  # deadline of all jobs
        self._closed = False
        self._wake = threading.Event()
        _tiers.add(self)
        self._thread = threading.Thread(target=self._run, name="kvstored-vllm", daemon=True)
        self._thread.start()

    # ---- called by vLLM's scheduler: nothing here waits ------------------------

    @staticmethod
    def get_tier_type() -> str:
        return "KvstoredTier"

    def lookup(self, key: Any, req_context: Any = None) -> Any:
        """HIT, MISS, or RETRY while the daemon is being asked."""
        if self._closed:
            return _result(False)
        now = time.monotonic()
        if not self._client.attached:
            return _result(False)
        answer = self._answers.get(key)
        if answer is not None and answer[1] > now:
            return _result(answer[0])
        since = self._asked.get(key)
        if since is None:
            self._asked[key] = now
            self._lookups.append(key)
            self._wake.set()
            return _result(None)
        return _result(None if now - since < self._lookup_timeout else False)

    def submit_store(self, job_metadata: Any) -> None:
        self._submit(self._stores, job_metadata)

    def submit_load(self, job_metadata: Any) -> None:
        self._submit(self._loads, job_metadata)

    def _submit(self, queue: Deque[Any], job: Any) -> None:
        queued = _Job(job, time.monotonic() + self._transfer_timeout)
        with self._idle:
            self._pending.add(queued)
            self._latest = queued.deadline
            closed = self._closed
            if not closed:
                queue.append(queued)
        if closed:  # nobody would take it from its queue
            self._finish(queued, False)
        self._wake.set()

    def get_finished_jobs(self) -> Iterable[Any]:
        done: List[Any] = []
        while self._finished:
            done.append(self._finished.popleft())
        return done

    get_finished = get_finished_jobs  # its older name

    def has_pending_work(self) -> bool:
        """Whether a job is under way, or has ended and vLLM does not know yet."""
        return bool(self._pending or self._finished)

    def touch(self, keys: Collection[Any], req_context: Any = None) -> None:
        """Nothing: the daemon counts a load as a use."""

    def on_new_request(self, req_context: Any) -> Any:
        return RequestOffloadingContext() if RequestOffloadingContext is not None else None

    def on_request_finished(self, req_context: Any) -> None:
        pass

    def on_schedule_end(self, context: Any = None) -> None:
        pass

    def drain_jobs(self) -> None:
        """Blocks until every job has finished or failed, as vLLM asks of it; not
        much longer than the last one has time."""
        with self._idle:
            seconds = self._latest + _LATE_SECONDS - time.monotonic()
            if not self._idle.wait_for(lambda: not self._pending, max(0.0, seconds)):
                log.error("kvstored: %d jobs are not finished long after their deadline", len(self._pending))

    def shutdown(self) -> None:
        """Fails the jobs that are not finished. What is being copied is waited for."""
        self._closed = True
        self._wake.set()
        self._client.close()  # a call that is under way fails
        self._thread.join(self._transfer_timeout + _LATE_SECONDS)
        self._pages.close()

    # ---- the tier's thread -----------------------------------------------------

    def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._closed:
                break
            try:
                busy = self._ask() or self._load() or self._store()
            except Exception:
                log.exception("kvstored: the tier goes on")
                busy = True
            if not busy:
                self._wake.wait(1.0)
        self._sweep()

    def _sweep(self) -> None:
        """Fails all jobs, as there is no thread for them any more."""
        with self._idle:
            left = list(self._pending)
        for job in left:
            self._finish(job, False)

    def _forked(self) -> None:
        """In a child there is no thread: everything is a miss, and jobs fail."""
        self._closed = True
        self._idle = threading.Condition()  # the other may be held by a thread that is not here
        self._sweep()

    def _ask(self) -> bool:
        keys: List[Any] = []
        while self._lookups and len(keys) < 1024:
            keys.append(self._lookups.popleft())
        if not keys:
            return False
        found: List[bool] = [False] * len(keys)
        try:
            found = self._pages.exists([_raw(k) for k in keys], self._lookup_timeout)
            self._pages.hint([_raw(k) for k, there in zip(keys, found) if there])
        finally:
            self._answer(keys, found)
            for key in keys:
                self._asked.pop(key, None)
        return True

    def _answer(self, keys: Iterable[Any], found: Iterable[bool]) -> None:
        now = time.monotonic()
        if len(self._answers) > _CACHED:
            self._answers.clear()
        for key, there in zip(keys, found):
            self._answers[key] = (there, now + (_HIT_SECONDS if there else _MISS_SECONDS))

    def _load(self) -> bool:
        if not self._loads:
            return False
        job, loaded = self._loads.popleft(), 0
        job.start()
        try:
            loaded = self._pages.load(job.raw(), self._places(job), job.deadline - time.monotonic())
            if loaded < len(job.keys):
                self._answer([job.keys[loaded]], [False])
        finally:
            self._finish(job, loaded == len(job.keys), job.keys[:loaded])
        return True

    def _store(self) -> bool:
        """Stores some blocks of the first job: lookups and loads are more urgent."""
        if not self._stores:
            return False
        job, done = self._stores[0], False
        job.start()
        try:
            end = job.at + _STEP
            part = self._places(job)[job.at : end]
            stored = self._pages.store(job.raw()[job.at : end], part, job.deadline - time.monotonic())
            self._answer([k for k, ok in zip(job.keys[job.at : end], stored) if ok], stored)
            job.at, done = end, all(stored)
        finally:
            if not done or job.at >= len(job.keys):
                self._stores.popleft()
                self._finish(job, done)
        return True

    def _places(self, job: "_Job") -> List[Place]:
        if not all(0 <= i < self._rows for i in job.ids) or len(job.ids) != len(job.keys):
            raise ValueError(f"job {job.id}: {len(job.keys)} keys for blocks {job.ids} of {self._rows}")
        return [((self._base + i * self._row, self._row),) for i in job.ids]

    def _finish(self, job: "_Job", success: bool, loaded: Sequence[Any] = ()) -> None:
        with self._idle:
            if job not in self._pending:
                return  # while the tier ends two may come to it
            try:
                self._finished.append(_job_result(job, success, loaded))
            finally:
                self._pending.remove(job)
                self._idle.notify_all()


_tiers: "weakref.WeakSet[KvstoredTier]" = weakref.WeakSet()


def _after_fork() -> None:
    for tier in list(_tiers):
        tier._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Job:
    """What is needed of vLLM's JobMetadata, and how much of it is done."""

    def __init__(self, metadata: Any, deadline: float) -> None:
        self.id, self.keys = metadata.job_id, list(metadata.keys)
        ids = getattr(metadata, "block_ids", None)
        self.ids = [int(i) for i in (metadata.chunk_ids if ids is None else ids)]
        self.deadline, self.at = deadline, 0
        self.began: Optional[float] = None

    def start(self) -> None:
        if self.began is None:
            self.began = time.monotonic()

    def raw(self) -> List[bytes]:
        return [_raw(k) for k in self.keys]


def _raw(key: Any) -> bytes:
    return bytes(key) if isinstance(key, (bytes, bytearray, memoryview)) else repr(key).encode()


def _result(found: Optional[bool]) -> Any:
    if LookupResult is None:
        return found
    if found is None:
        return LookupResult.RETRY
    return LookupResult.HIT if found else LookupResult.MISS


def _job_result(job: _Job, success: bool, loaded: Sequence[Any]) -> Any:
    """Newer versions take what was loaded before a job failed, and its seconds."""
    takes = inspect.signature(JobResult).parameters
    more: Dict[str, Any] = {}
    if loaded and not success and "successful_keys" in takes:
        more["successful_keys"] = loaded
    if job.began is not None and "transfer_time" in takes:
        more["transfer_time"] = time.monotonic() - job.began
    return JobResult(job.id, success, **more)
