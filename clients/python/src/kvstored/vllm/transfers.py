"""Copies between blocks of a KV cache, on CPUs or a GPU, and the daemon's memory."""

import collections
import itertools
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
from ..hints import Hints
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


class _Group:
    """Blocks of one group of layers: where they lie in the engine, and in the daemon."""

    def __init__(self, rows: Sequence[Tuple[int, int]], refs: Sequence[Any], forms: Sequence[Form]) -> None:
        self._rows = [(*rows[ref.tensor_idx], ref.page_size_bytes) for ref in refs]
        self.bytes = sum(size for _, _, size in self._rows)  # of a block
        self.forms = forms
        self.pages: Pages

    def place(self, block: int) -> Place:
        return tuple((base + block * stride, size) for base, stride, size in self._rows)


class PoolWorker(OffloadingWorker):
    """Of one rank. Each job is one call that lets other threads run, whatever the number of
    its pieces. vLLM calls the methods from its own thread, and none but ``wait`` and
    ``shutdown`` waits."""

    def __init__(
        self, kv_caches: Any, spaces: Dict[int, Space], rank: int, socket: Optional[str], seconds: float, check_existing: int, patience: float,
        forms: Sequence[Sequence[Form]] = (), distrust: bool = False,
    ) -> None:  # fmt: skip
        """``spaces``: of groups of layers, in vLLM's order, by the numbers that keys have.
        ``patience``: seconds that vLLM, where it wants the blocks of stores, waits for these.
        ``forms``: of the pieces of a block of each group, empty if they are not known.
        ``distrust``: what is stored, for all engines, where blocks prove different."""
        self._caches, self._rank, self._seconds, self._patience = kv_caches, rank, seconds, patience
        rows = [(t.tensor.data_ptr(), t.tensor.stride(0) * t.tensor.element_size()) for t in kv_caches.tensors]
        self._groups = {n: _Group(rows, *of) for n, *of in zip(spaces, kv_caches.group_data_refs, forms or itertools.repeat(()))}
        device = kv_caches.tensors[0].tensor.device
        streams = None if device.type == "cpu" else streams_of(device)
        self._client = Client(socket, space=next(iter(spaces.values())), name="vllm-worker", timeout=seconds, keep_staging=streams is not None)
        most = max(of.bytes for of in self._groups.values())
        self._memory: Host = HOST if streams is None else Device(streams, self._client, most)
        self._hints = Hints(self._client)
        for n, of in self._groups.items():
            of.pages = Pages(self._client, spaces[n], hints=self._hints, check_existing=check_existing, memory=self._memory)
        self._transfers: Dict[int, _Transfer] = {}
        #: Whether failed loads have a taker, and so may be reported.
        self.hands_failures = False
        #: Jobs of the last get_finished that brought nothing.
        self.failed: List[int] = []
        self._distrust = distrust
        self._alarm, self.counters = Alarm(), Counters()
        self._stuck: Optional[_Transfer] = None  # a store that was dropped
        self._loads: Deque[_Transfer] = collections.deque()
        self._stores: Deque[_Transfer] = collections.deque()
        self._threads = [Worker(name, lambda queue=queue: _next(queue)) for name, queue in (("load", self._loads), ("store", self._stores))]

    # ---- called by vLLM ----------------------------------------------------------

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        transfer = _Transfer(job_id, lambda t: self._store(t, dst_spec, src_spec), self._seconds, self._memory.mark(), store=True)
        if self._stuck is not None and not self._stuck.over:
            transfer.drop()
        return self._submit(transfer, self._stores, 1)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
        transfer = _Transfer(job_id, lambda t: self._load(t, src_spec, dst_spec), self._seconds, self._memory.mark(), expedited=expedited)
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
        self._hints.close()

    # ---- its threads -------------------------------------------------------------

    def _places(self, parts: Sequence[Any], blocks: Any) -> List[List[Place]]:
        """Where vLLM's blocks lie, for each part. Empty where they are not those of the keys, or one is
        the block 0, which vLLM has in the place of those that were never computed."""
        ids, counts, sizes = blocks.block_ids.tolist(), dict.fromkeys(self._groups, 0), list(blocks.group_sizes)
        for part in parts:
            counts[part.group] = counts.get(part.group, 0) + len(part.keys)
        if list(counts.values()) != sizes or not all(ids):
            log.error("kvstored: vLLM copies %s blocks of its groups, for keys of %s, or such as were never computed: none is copied", sizes, counts)
            return []
        rest = iter(ids)
        own = {n: iter([of.place(id) for id in itertools.islice(rest, size)]) for (n, of), size in zip(self._groups.items(), sizes)}
        return [list(itertools.islice(own[part.group], len(part.keys))) for part in parts]

    def _store(self, transfer: _Transfer, store: Any, blocks: Any) -> int:
        """A store that fails is a miss later: to vLLM it is done."""
        transfer.good, size = True, 0
        self._memory.after(transfer.mark, up=False)
        for (n, keys, before, *_), places in zip(store.parts, self._places(store.parts, blocks)):
            of = self._groups[n]
            same: Optional[Dict[bytes, bool]] = {} if of.forms else None
            there = of.pages.store(
                keys, places, transfer.left, patient=False, before=before, dropped=lambda: transfer.dropped, compare=store.compare, same=same
            )
            self._compare(transfer, of, dict(zip(keys, places)), same or {})
            size += sum(there) * of.bytes
        return size

    def _compare(self, transfer: _Transfer, of: _Group, places: Dict[bytes, Place], same: Dict[bytes, bool]) -> None:
        """Counts what blocks are that were computed again, beside those that are stored."""
        for key, equal in same.items():
            kind: Optional[str] = EQUAL
            if not equal:
                mine, stored = self._memory.read(places[key]), self._client.get(of.pages.prompt([key]), timeout=transfer.left)
                kind = compared(mine, stored[0].payload, of.forms) if stored and not transfer.dropped else None
            if kind is not None:
                self.counters.add("compared", 1, kind)
            if kind == DIFFERENT and self._alarm.add(of.pages.space) and self._distrust:
                self._distrusts(of.pages.space)

    def _distrusts(self, space: Space) -> None:
        try:
            done = self._client.distrust(space, timeout=self._patience)
        except Refused as e:
            log.warning("kvstored: the daemon does not distrust the space for this engine: %s", e)
            return
        said = "distrusts the space now: all of it is a miss until `kvstored forget --distrust`" if done else "was told to distrust the space, and does not say that it keeps that"
        log.warning("kvstored: the daemon %s", said)

    def _load(self, transfer: _Transfer, load: Any, blocks: Any) -> int:
        self._memory.after(transfer.mark, up=True)
        places, size = self._places(load.parts, blocks), 0
        try:
            n = self._copy(load, list(itertools.chain(*places)), transfer.until)
        except (Error, IndexError, ValueError):  # the mapping ended
            n = 0
        for part, at in zip(load.parts, places):  # what the lease did not hold, or is of another life of the daemon, by key
            done, n = min(n, len(at)), max(0, n - len(at))
            if done < len(at):
                done += self._load_by_key(part, at, done, transfer)
            size += done * self._groups[part.group].bytes
            if done < len(at):
                log.warning("kvstored: a block that was leased could not be loaded: vLLM computes it")
                return size
        transfer.good = len(places) == len(load.parts)  # last: what raises before has brought nothing
        return size

    def _load_by_key(self, part: Any, places: List[Place], n: int, transfer: _Transfer) -> int:
        """How many blocks of a part were loaded, from number n on; all, or the load has failed."""
        pages, keys, before = self._groups[part.group].pages, part.keys[n:], part.before
        more = pages.load(keys, places[n:], transfer.left, None if before is None else [*before, *digests(part.keys[:n])])
        if more < len(keys):
            loaded = pages.load_each(keys[more:], places[n + more :], transfer.left)
            more += len(loaded) if all(loaded) else 0
        return more

    def _copy(self, load: Any, places: List[Place], until: float) -> int:
        """Copies from where the manager's lease says that the blocks lie; how many of them
        are proved, from the first on: their bytes, as they were stored here, have the sum,
        or the lease has held until they were."""
        link = self._client._ready()
        if link is None or link.arena is None or link.hello.epoch != load.epoch:
            return 0
        arena, rows = link.arena, [row for part in load.parts for row in part.refs[self._rank]]
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
