"""Copies between blocks of a KV cache, on CPUs or a GPU, and the daemon's memory."""

import collections
import logging
import threading
import time
from typing import Any, Callable, Collection, Deque, Dict, List, Optional, Sequence, Tuple

from .. import bulk
from .._engine import find
from ..chains import digests
from ..client import Client
from ..device import Device, Streams
from ..errors import Error, Refused
from ..pages import Pages
from ..places import HOST, Host
from ..prompt import Space
from .compare import DIFFERENT, EQUAL, Alarm, Form, compared
from .jobs import Worker
from .stats import Counters

_BASE = "vllm.v1.kv_offload.base"
OffloadingWorker: Any = find(_BASE, "OffloadingWorker", newer=True) or object
TransferResult: Any = find(_BASE, "TransferResult", newer=True)

log = logging.getLogger("kvstored.vllm")

_LATE_SECONDS = 5.0  # for what is under way at its deadline to be copied

Place = Tuple[Tuple[int, int], ...]  # address and bytes of the pieces of a block: one for each layer


class _Transfer:
    """``mark``: what the engine had begun when it asked for this."""

    def __init__(self, job: int, do: Callable[["_Transfer"], int], seconds: float, mark: Any, store: bool = False, expedited: bool = False) -> None:
        self.job, self._do, self.mark, self.store, self.expedited = job, do, mark, store, expedited
        self.began, self.done, self.good = time.monotonic(), threading.Event(), False
        self.until = self.began + seconds
        self.dropped = self.over = False
        self.bytes = 0

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    def run(self) -> None:
        try:
            if not self.dropped:
                self.bytes = self._do(self)
        finally:
            self.over = True
            self.done.set()

    def drop(self) -> None:
        """Ends a store for vLLM, whose blocks may then have other bytes."""
        self.dropped = self.good = True
        self.done.set()


class PoolWorker(OffloadingWorker):
    """Of one rank. Each job is one call that lets other threads run, whatever the number of
    its pieces. vLLM calls the methods from its own thread, and none but ``wait`` and
    ``shutdown`` waits."""

    def __init__(
        self, kv_caches: Any, space: Space, rank: int, socket: Optional[str], seconds: float, check_existing: int, patience: float,
        forms: Sequence[Form] = (), distrust: bool = False,
    ) -> None:  # fmt: skip
        """``patience``: seconds that vLLM, where it wants the blocks of stores, waits for these.
        ``forms``: of the pieces of a block, empty if they are not known. ``distrust``: what is
        stored, for all engines, where blocks prove different."""
        self._caches, self._rank, self._seconds, self._patience = kv_caches, rank, seconds, patience
        self._rows = [(t.tensor.data_ptr(), t.tensor.stride(0) * t.tensor.element_size()) for t in kv_caches.tensors]
        (self._refs,) = kv_caches.group_data_refs
        self._bytes = sum(ref.page_size_bytes for ref in self._refs)  # of a block
        device = kv_caches.tensors[0].tensor.device
        streams = None if device.type == "cpu" else streams_of(device)
        self._client = Client(socket, space=space, name="vllm-worker", timeout=seconds, keep_staging=streams is not None)
        self._memory: Host = HOST if streams is None else Device(streams, self._client, self._bytes)
        self._pages = Pages(self._client, space, check_existing=check_existing, memory=self._memory)
        self._transfers: Dict[int, _Transfer] = {}
        #: Whether failed loads have a taker, and so may be reported.
        self.hands_failures = False
        #: Jobs of the last get_finished that brought nothing.
        self.failed: List[int] = []
        self._distrust = distrust
        self._forms, self._alarm, self.counters = forms, Alarm(), Counters()
        self._stuck: Optional[_Transfer] = None  # a store that was dropped
        self._loads: Deque[_Transfer] = collections.deque()
        self._stores: Deque[_Transfer] = collections.deque()
        self._threads = [Worker(name, lambda queue=queue: _next(queue)) for name, queue in (("load", self._loads), ("store", self._stores))]

    # ---- called by vLLM ----------------------------------------------------------

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        blocks = src_spec.block_ids.tolist()
        transfer = _Transfer(job_id, lambda t: self._store(t, dst_spec, blocks), self._seconds, self._memory.mark(), store=True)
        if self._stuck is not None and not self._stuck.over:
            transfer.drop()
        return self._submit(transfer, self._stores, 1)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
        blocks = dst_spec.block_ids.tolist()
        transfer = _Transfer(job_id, lambda t: self._load(t, src_spec, blocks), self._seconds, self._memory.mark(), expedited=expedited)
        return self._submit(transfer, self._loads, 0)

    def _submit(self, transfer: _Transfer, queue: Deque[_Transfer], thread: int) -> bool:
        self._transfers[transfer.job] = transfer
        (queue.appendleft if transfer.expedited else queue.append)(transfer)
        self._threads[thread].wake()
        return True

    def get_finished(self) -> List[Any]:
        self._threads[0].rest()
        ended = [t for t in self._transfers.values() if t.done.is_set()]
        self.failed = [t.job for t in ended if not t.good]
        for transfer in ended:
            del self._transfers[transfer.job]
        return [TransferResult(t.job, t.good or self.hands_failures, t.bytes, time.monotonic() - t.began) for t in ended]

    def wait(self, job_ids: Collection[int]) -> None:
        """Until jobs have ended. A store is dropped where it takes long: the daemon hangs, or
        the GPU; what it copies then is not committed. A load that does not end may still
        write to its blocks, and raises. With those of an expedited one vLLM computes
        at once, and cannot be told that they are not there."""
        until = time.monotonic() + self._patience
        for transfer in [self._transfers[job] for job in job_ids if job in self._transfers]:
            if transfer.store:
                if not transfer.done.wait(max(0.0, until - time.monotonic())):
                    transfer.drop()
                    self._stuck = transfer
            else:
                if not transfer.done.wait(max(0.0, transfer.left) + _LATE_SECONDS):
                    raise RuntimeError("kvstored: a load does not end, and its blocks cannot be used")
                if transfer.expedited and not transfer.good:
                    raise RuntimeError("kvstored: a load that vLLM waits for has failed: leave sync_load_budget_bytes out")

    def shutdown(self) -> None:
        transfers = list(self._transfers.values())
        until = max((t.until for t in transfers), default=0.0) + _LATE_SECONDS
        for transfer in transfers:
            transfer.done.wait(max(0.0, until - time.monotonic()))
        for thread in self._threads:
            thread.stop()
        self._client.close()
        if all([thread.join(_LATE_SECONDS) for thread in self._threads]):
            self._memory.close()  # else the GPU may still copy
        self._pages.close()

    # ---- its threads -------------------------------------------------------------

    def _place(self, block: int) -> Place:
        rows = (self._rows[ref.tensor_idx] + (ref.page_size_bytes,) for ref in self._refs)
        return tuple((base + block * stride, size) for base, stride, size in rows)

    def _store(self, transfer: _Transfer, store: Any, blocks: List[int]) -> int:
        """A store that fails is a miss later: to vLLM it is done."""
        transfer.good, at, size = True, 0, 0
        if len(blocks) != sum(len(keys) for keys, _ in store.runs):
            log.error("kvstored: vLLM stores %d blocks under other keys than it was told: they are not stored", len(blocks))
            return 0
        self._memory.after(transfer.mark, up=False)
        places = [self._place(block) for block in blocks]
        for keys, before in store.runs:
            run = places[at : at + len(keys)]
            same: Optional[Dict[bytes, bool]] = {} if self._forms else None
            there = self._pages.store(
                keys, run, transfer.left, patient=False, before=before, dropped=lambda: transfer.dropped, compare=store.compare, same=same
            )
            self._compare(transfer, dict(zip(keys, run)), same or {})
            size += sum(there) * sum(n for _, n in places[0])
            at += len(keys)
        return size

    def _compare(self, transfer: _Transfer, places: Dict[bytes, Place], same: Dict[bytes, bool]) -> None:
        """Counts what blocks are that were computed again, beside those that are stored."""
        for key, equal in same.items():
            kind: Optional[str] = EQUAL
            if not equal:
                mine, stored = self._memory.read(places[key]), self._client.get(self._pages.prompt([key]), timeout=transfer.left)
                kind = compared(mine, stored[0].payload, self._forms) if stored and not transfer.dropped else None
            if kind is not None:
                self.counters.add("compared", 1, kind)
            if kind == DIFFERENT and self._alarm.add(self._pages.space) and self._distrust:
                self._distrusts()

    def _distrusts(self) -> None:
        try:
            done = self._client.distrust(timeout=self._patience)
        except Refused as e:
            log.warning("kvstored: the daemon does not distrust the space for this engine: %s", e)
            return
        said = "distrusts the space now: all of it is a miss until `kvstored forget --distrust`" if done else "was told to distrust the space, and does not say that it keeps that"
        log.warning("kvstored: the daemon %s", said)

    def _load(self, transfer: _Transfer, load: Any, blocks: List[int]) -> int:
        if len(blocks) != len(load.keys):
            log.error("kvstored: vLLM loads %d blocks for %d keys", len(blocks), len(load.keys))
            return 0
        self._memory.after(transfer.mark, up=True)
        places = [self._place(block) for block in blocks]
        try:
            n = self._copy(load, places, transfer.until)
        except (Error, IndexError, ValueError):  # the mapping ended
            n = 0
        if n < len(places):  # the lease did not hold, or is of another life of the daemon
            before = [*load.before, *digests(load.keys[:n])]
            n += self._pages.load(load.keys[n:], places[n:], transfer.left, before)
        if n < len(places):
            loaded = self._pages.load_each(load.keys[n:], places[n:], transfer.left)
            n += len(loaded) if all(loaded) else 0
        transfer.good = n == len(places)
        if not transfer.good:
            log.warning("kvstored: a block that was leased could not be loaded: vLLM computes it")
        return n * sum(size for _, size in places[0])

    def _copy(self, load: Any, places: List[Place], until: float) -> int:
        """Copies from where the manager's lease says that the blocks lie; how many of them
        are proved, from the first on: their bytes, as they were stored here, have the sum,
        or the lease has held until they were."""
        link = self._client._ready()
        if link is None or link.arena is None or link.hello.epoch != load.epoch:
            return 0
        arena, rows = link.arena, load.refs[self._rank]
        payloads = [(arena.at(offset, size), size, total) for offset, size, total in rows]
        return self._memory.scatter(payloads, places, bulk.SUMS, until, lambda: self._client.renew(load.job, load.epoch, self._patience))


def streams_of(device: Any) -> Streams:
    """Those of a GPU, for which vLLM copies batches; else a ValueError."""
    swap = find("vllm._custom_ops", "swap_blocks_batch") if device.type == "cuda" else None
    if swap is None:
        raise ValueError(f"KvstoredOffloadingSpec copies on CPUs and CUDA-like devices: on {device} take KvstoredTier")
    return Streams(device, swap)


def _next(queue: Deque[_Transfer]) -> Optional[float]:
    if not queue:
        return None
    queue.popleft().run()
    return 0
