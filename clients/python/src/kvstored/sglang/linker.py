"""The daemon as the store directly below SGLang's device pools, without host memory of
SGLang's: its UnifiedCacheLinker, for the backend ``dynamic``.

    {"linker": "KvstoredLinker", "linker_module_path": "kvstored.sglang.linker"}

A lookup is one question that leases what it finds, and knows all checksums from then on.
Pages are copied from the daemon's memory, which stays mapped whatever becomes of the
daemon, layer by layer under the forward. What lies in the slots in the end has the
checksums, or the batch has failed. On a GPU a lease that has held until the last copy ended
proves as much; without it the slots are summed there too. They are not loaded once more: the
forward has computed with what it was told.
"""

import collections
import hashlib
import logging
import math
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from .. import _groups, bulk, options
from .._engine import Complaints, find, never_raises, nothing
from .._groups import Member
from ..answers import Need
from ..chains import Chains, digests
from ..client import Client
from ..device import Device, Streams
from ..hints import Hints
from ..job import ALL, Job, release_soon
from ..pages import Pages, Place
from ..places import HOST, Host, Payload
from ..prefill import Prefill
from .pools import Side, pool_name
from .space import KV, Names, check_lora
from .space import space as space_of

_LINKER = "sglang.srt.mem_cache.unified_cache.unified_cache_linker"
_POOLS = "sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler"
UnifiedCacheLinker: Any = find(_LINKER, "UnifiedCacheLinker", newer=True) or object
LayerWiseLoadCounter: Any = find(_LINKER, "LayerWiseLoadCounter", newer=True)
DevicePoolEntry: Any = find(_POOLS, "DevicePoolEntry", newer=True)
DevicePoolGroup: Any = find(_POOLS, "DevicePoolGroup", newer=True)
resolve_hybrid_device_pool_group: Any = find(_POOLS, "resolve_hybrid_device_pool_group", newer=True)

log = logging.getLogger("kvstored.sglang")

_BATCH = 128  # pages of one store, or of one load by keys
_ANSWERS = 1024  # requests whose lookup is remembered until they load
_ANSWER_SECONDS = 2.0  # less than a lease is kept

KEYS = {
    **options.COMMON,
    "lookup_timeout": options.seconds(0.5),
    "timeout": options.seconds(1.0),
    "model": options.text(),
}


class _Answer(NamedTuple):
    """To a lookup of keys: usable lengths, and what is leased: where pages lie, by pool and
    key. The job keeps them mapped."""

    keys: List[bytes]
    until: float
    ends: List[int] = []
    rows: Dict[Tuple[str, bytes], Payload] = {}
    job: Optional[Job] = None


class _Part(NamedTuple):
    """Pages of one pool that are to be loaded."""

    pool: Any
    keys: List[bytes]
    indices: Any
    rows: List[Payload]  # as many as keys where a lookup has leased all of them


class _Load(NamedTuple):
    parts: List[_Part]
    job: Optional[Job]


class KvstoredLinker(UnifiedCacheLinker):
    """Of one rank. SGLang calls all methods from its scheduler's thread.

    Its ``KEYS`` in ``linker_extra_config``: ``socket``; ``lookup_timeout``, seconds that the
    scheduler waits for the answer of a lookup, and for what comes up from below DRAM;
    ``timeout``, seconds for a store of some pages, and for a load whose lease was lost; the
    others as those of KvstoredHiCache. The constructor raises a ValueError that says what
    is wrong with them, or with the pools."""

    def __init__(
        self, server_args: Any, params: Any, *, components: Set[Any], extra_config: Optional[Dict[str, Any]] = None, forward_stream: Any = None
    ) -> None:
        o = options.check("KvstoredLinker", extra_config or {}, KEYS)
        if not bulk.SUMS:
            raise ValueError("KvstoredLinker proves what it loads: that needs the extension of the wheel, or libxxhash")
        check_lora()
        self.forward_stream = forward_stream
        self._group = device_pools(params, components)
        self.pools = self._group.entry_map
        self.layer_done_counter = LayerWiseLoadCounter(self._group.num_layers)
        if any(pool_name(name) == "mamba" for name in self.pools):
            params.req_to_token_pool.register_layer_transfer_counter(self.layer_done_counter)
        self._timeouts, streams = (o["lookup_timeout"], o["timeout"]), streams_of(self._group)
        self._client = Client(o["socket"], name="sglang-linker", timeout=o["timeout"], keep_staging=streams is not None)
        largest = max(sum(size for component in pool.buffer_meta for _, _, size in component) for pool in self.pools.values())
        self._memory: Host = HOST if streams is None else Device(streams, self._client, largest)
        self._hints, self._chains = Hints(self._client), Chains()
        self._complaints = Complaints(log)
        self._prefill = Prefill(o["prefill_tokens_per_second"], o["prefill_depth"])
        config, self._owns = ranks(params, self._group.rank_replicated)
        names = Names(o["model"] or str(server_args.model_path), o["revision"], o["namespace"])
        self._page = int(params.page_size)
        kvcache = params.token_to_kv_pool_allocator.get_kvcache()
        self._pages = {
            pool_name(name): Pages(
                self._client,
                space_of(pool_name(name), config, DevicePages.of(pool, kvcache), names, False, self._page),
                check_existing=o["check_existing"],
                memory=self._memory,
            )
            for name, pool in self.pools.items()
        }
        self._answered: "collections.OrderedDict[str, _Answer]" = collections.OrderedDict()  # by request
        self._queued: Dict[str, _Load] = {}
        self._offloads: "Deque[Future[bool]]" = collections.deque()
        self._loader = ThreadPoolExecutor(1, "kvstored-load")
        self._storer = ThreadPoolExecutor(1, "kvstored-store")

    # ---- what is there -----------------------------------------------------------

    @never_raises(lambda _: [])
    def lookup(self, rid: str, transfers: List[Any]) -> List[int]:
        """All lengths, in pages, that every pool can serve; of one that waits below DRAM
        for longer than the timeout nothing is said. SGLang asks for a request that waits
        again in each step: the answer to the same keys stays for some seconds."""
        asked = [(Side.of(t), t) for t in self._group.resolve_transfers(transfers)]
        sides = sorted(((side, t) for side, t in asked if side is not None), key=lambda side: side[0].last > 0)  # full ones first
        if not sides:
            return []
        keys, known = _raw(sides[0][1]), self._answered.get(rid)
        if known is None or known.keys != keys or known.until < time.monotonic():
            self._forget(rid)
            known = self._answered[rid] = self._ask([side for side, _ in sides], keys)
            if len(self._answered) > _ANSWERS:
                self._forget(next(iter(self._answered)))
        return known.ends

    def _ask(self, sides: Sequence[Side], keys: List[bytes]) -> _Answer:
        nothing, began = _Answer(keys, time.monotonic() + _ANSWER_SECONDS), time.monotonic()
        if not self._client.attached or self._client.arena is None:
            return nothing._replace(until=began)
        members = [Member(self._pages[side.name].space, side.kind(self._page)) for side in sides]
        run = digests(keys)
        self._chains.learn(run, begins=True)
        before = self._chains.before(run[:1]) or []
        there = _groups.find(
            self._client, members, keys, self._timeouts[0], before, self._prefill.says(), self._timeouts[0]
        )
        job = there.job
        if job is None:
            return nothing
        self._hints.keep(job)
        job.wait(ALL, self._timeouts[0] - (time.monotonic() - began))
        longest = job.ready.tokens // self._page
        if longest < len(keys):
            self._prefill.asked(keys[-1], (len(keys) - longest) * self._page)
        if not longest:
            return nothing
        payloads, rows = iter(job.placed()), {}
        needs = job.needs or [Need(0, len(before), len(job), 0, 0, 0)]
        for side, need in zip(sides, needs):
            first = need.first - len(before)
            rows.update(zip(((side.name, key) for key in keys[first : first + need.chunks]), payloads))
        return nothing._replace(ends=[n for n in there.ends if n <= longest], rows=rows, job=job)

    def _forget(self, rid: str) -> None:
        known = self._answered.pop(rid, None)
        if known is not None and known.job is not None and self._hints.take(known.job):
            known.job.release_soon()

    # ---- loads -------------------------------------------------------------------

    @never_raises(nothing(False))
    def load(self, rid: str, transfers: List[Any]) -> bool:
        parts = self._group.resolve_transfers(transfers, allow_partial=True, allow_missing_kv=True)
        known = self._answered.pop(rid, None)
        job = known.job if known is not None and known.job is not None and self._hints.take(known.job) else None
        rows = {} if known is None or job is None else known.rows  # which only a job keeps mapped
        if parts:
            self._queued[rid] = _Load([self._part(t, rows) for t in parts], job)
        elif job is not None:
            job.release_soon()
        return bool(parts)

    def _part(self, transfer: Any, rows: Dict[Tuple[str, bytes], Payload]) -> _Part:
        name, keys = pool_name(transfer.name), _raw(transfer)
        return _Part(self.pools[transfer.name], keys, transfer.host_indices, [rows[name, key] for key in keys if (name, key) in rows])

    def cancel_queued_load(self, rid: str) -> bool:
        load = self._queued.pop(rid, None)
        if load is not None and load.job is not None:
            load.job.release_soon()
        return load is not None

    def start_layer_wise_loading(self) -> int:
        if not self._queued:
            return -1
        queued, self._queued = list(self._queued.values()), {}
        ready = [] if self._memory is HOST else self.record_offload_ready()  # until then slots may be in use
        index = int(self.layer_done_counter.update_producer())
        self._loader.submit(self._load_batch, index, queued, ready)
        return index

    def finish_layer_wise_loading(self, counter_index: int) -> bool:
        return bool(self.layer_done_counter.finish(counter_index))

    def _load_batch(self, index: int, loads: List[_Load], ready: Sequence[Any]) -> None:
        try:
            for event in ready:
                self._memory.wait(event)
            layered: List[_Load] = []
            for load in loads:
                held = load.job is not None and load.job.state.done and load.job.error is None
                if held and all(len(part.rows) == len(part.keys) and self._memory.straight(part.rows) for part in load.parts):
                    layered.append(load)
                elif not all(map(self._load_whole, load.parts)):
                    raise LookupError("pages that were found cannot be had any more")
            self._load_layers(index, layered)
        except BaseException as e:
            unknown = None if isinstance(e, LookupError) else e
            log.warning("kvstored: a load failed, and SGLang aborts the requests of its batch: %s", e, exc_info=unknown)
            self.layer_done_counter.fail(index, e)
        finally:
            release_soon(load.job for load in loads if load.job is not None)

    def _load_layers(self, index: int, loads: Sequence[_Load]) -> None:
        """Copies pages layer by layer, and proves them before the last one is told."""
        parts = [part for load in loads for part in load.parts]
        places = [_places(part.pool, part.indices, len(part.keys)) for part in parts]
        for part, of in zip(parts, places):
            if any(sum(n for _, n in place) != size for place, (_, size, _) in zip(of, part.rows)):
                raise LookupError("pages have other lengths than were stored")
        at = [(part, part.pool.prepare_locations(part.indices)) for part in parts]
        for layer in range(self._group.num_layers):
            triples: List[int] = []
            for part, locations in at:
                pieces = part.pool.get_prepared_layer_range_meta(locations, layer)
                for (source, _, _), *page in zip(part.rows, *(pieces or ())) if pieces else ():
                    for to, size, offset in zip(*page):
                        triples += (to, source + offset, size)
            if not self._memory.copy(triples):
                if layer or not all(map(self._load_whole, parts)):  # of which nothing was told yet
                    raise LookupError("the GPU does not copy")
                loads, parts, at = [], [], []
            if layer < self._group.num_layers - 1:
                self.layer_done_counter.complete(index, layer)
        for part, of in () if self._held(loads) else zip(parts, places):
            sums = self._memory.sums(of, up=True)
            wrong = sum(got != want for got, (_, _, want) in zip(sums, part.rows))
            if wrong:
                raise LookupError(f"{wrong} of {len(sums)} pages have other bytes than were stored")
        self.layer_done_counter.complete(index, self._group.num_layers - 1)

    def _held(self, loads: Sequence[_Load]) -> bool:
        """Whether leases prove what a GPU has copied until now. Of CPUs sums do."""
        if self._memory is HOST:
            return False
        return self._client.attached and all(load.job is not None and load.job.renew(self._timeouts[0]) > 0 for load in loads)

    def _load_whole(self, part: _Part) -> bool:
        """For pages that are not all up under a lease, or not page-locked for a GPU: from
        where the job's lie, as far as that is proved, and else by their keys. What waits for
        nobody has as long as it takes."""
        keys, places, pages = part.keys, _places(part.pool, part.indices, len(part.keys)), self._pages[pool_name(part.pool.name)]
        n = self._memory.scatter(part.rows, places, True, math.inf) if len(part.rows) == len(keys) else 0
        while n < len(keys):
            some, at = keys[n : n + _BATCH], places[n : n + _BATCH]
            if pages.load(some, at, self._timeouts[1], self._chains.before(digests(some))) < len(some):
                return False
            n += len(some)
        return True

    # ---- stores ------------------------------------------------------------------

    @never_raises(nothing(False))
    def offload(self, transfers: List[Any], session_id: Optional[str] = None) -> bool:
        parts = self._group.resolve_transfers(transfers, allow_partial=True)
        if parts:
            self._offloads.append(self._storer.submit(self._store_all, parts, self.record_offload_ready()))
        return bool(parts)

    def _store_all(self, parts: Sequence[Any], ready: Sequence[Any]) -> bool:
        """Full pools come last: where they are found the others are there."""
        try:
            for event in ready:
                self._memory.wait(event)
            parts = sorted(parts, key=lambda t: not getattr(Side.of(t), "last", 0))
            return not self._owns or all(map(self._store, parts))
        except Exception:
            self._complaints.say("offload")
            return False

    def _store(self, transfer: Any) -> bool:
        keys, pages = _raw(transfer), self._pages[pool_name(transfer.name)]
        places = _places(self.pools[transfer.name], transfer.host_indices, len(keys))
        self._prefill.stored(keys)
        for i in range(0, len(keys), _BATCH):
            part = keys[i : i + _BATCH]
            stored = pages.store(part, places[i : i + _BATCH], self._timeouts[1], before=self._chains.before(digests(part)))
            if not all(stored):
                return False
        return True

    def num_completed_offloads(self) -> int:
        return next((i for i, offload in enumerate(self._offloads) if not offload.done()), len(self._offloads))

    def pop_completed_offload(self) -> bool:
        return self._offloads.popleft().result()

    # ---- the end -----------------------------------------------------------------

    def reset(self) -> None:
        """Nothing is under way any more; what is stored stays."""
        for rid in list(self._queued):
            self.cancel_queued_load(rid)
        for rid in list(self._answered):
            self._forget(rid)
        for executor in (self._loader, self._storer):
            executor.submit(int).result()
        self._offloads.clear()
        self.layer_done_counter.reset()

    def close(self) -> None:
        self.reset()
        for executor in (self._loader, self._storer):
            executor.shutdown()
        for pages in self._pages.values():
            pages.close()
        self._hints.close()
        self._client.close()
        self._memory.close()


def _raw(transfer: Any) -> List[bytes]:
    return [key.encode() for key in transfer.keys]


def _places(pool: Any, indices: Any, pages: int) -> List[Place]:
    """The pieces of each page, in the order in which they are stored."""
    pointers, sizes = pool.get_page_buffer_meta(indices)
    n = len(pointers) // pages
    pieces = list(zip(pointers, sizes))
    return [pieces[i * n : (i + 1) * n] for i in range(pages)]


# ---- pools -------------------------------------------------------------------------


class DevicePages(NamedTuple):
    """A device's pool, as its pages are told apart."""

    device_pool: Any
    dtype: Any
    page_size: int
    layout: str
    start_layer: Any
    end_layer: Any

    @classmethod
    def of(cls, pool: Any, kvcache: Any) -> "DevicePages":
        """``layout``: shapes and types of all parts of a page, in their order, and which layer has which."""
        held = [[(tuple(b.shape[1:]), str(b.dtype)) for b in component] for component in pool.components]
        layout = hashlib.sha256(repr((held, sorted(pool.layer_mapping.items()))).encode()).hexdigest()[:16]
        layers = (getattr(kvcache, name, None) for name in ("start_layer", "end_layer"))
        return cls(pool.device_pool, pool.kv_buffer[0].dtype, pool.page_size, f"device {layout}", *layers)


def device_pools(params: Any, components: Set[Any]) -> Any:
    """SGLang's view of its pools; of plain models, and of those with windows, for which
    it has none, one of our own."""
    kvcache, page = params.token_to_kv_pool_allocator.get_kvcache(), params.page_size
    more = params.sidecar_draft_device_pools or params.mtp_draft_device_pools or any(c.name == "MAMBA" for c in components)
    entries = [] if more else _plain(kvcache, page)
    if entries:
        group = DevicePoolGroup(entries, 1 + max(layer for e in entries for layer in e.layer_mapping), page, rank_replicated=_latent(kvcache))
    else:
        group = resolve_hybrid_device_pool_group(kvcache=kvcache, page_size=page, params=params, components=components)
    for pool in group.entries:
        parts = {part for of in pool.layer_mapping.values() for part in ([of] if isinstance(of, int) else of)}
        if any(parts != {*range(len(component))} for component in pool.components) or not {*pool.layer_mapping} <= {*range(group.num_layers)}:
            raise ValueError(
                f"KvstoredLinker loads by layers, and those of the pool {pool_name(pool.name)} ({pool.layer_mapping} of {group.num_layers}) "
                f"have not all {[len(component) for component in pool.components]} parts of a page: take KvstoredHiCache"
            )
    return group


def streams_of(group: Any) -> Optional[Streams]:
    """Those of the GPU that has the pools; None for CPUs."""
    device, *others = {b.device for pool in group.entries for b in pool.kv_buffer}
    if device.type == "cpu" and not others:
        return None
    try:
        if device.type == "cuda" and not others:
            return Streams(device)
        why = ""
    except OSError as e:
        why = f": {e}"
    raise ValueError(f"KvstoredLinker copies on CPUs and NVIDIA GPUs, and not on {device}: take KvstoredHiCache{why}")


def _plain(kvcache: Any, page: int) -> List[Any]:
    """Keys and values, and those of windows; nothing of pools that hold more."""
    kind = type(kvcache).__name__
    if kind == "SWAKVPool":
        full, window = kvcache.full_kv_pool, kvcache.swa_kv_pool
        if {type(full).__name__, type(window).__name__} != {"MHATokenToKVPool"}:
            return []
        of = {windowed: {layer: at for layer, (at, is_window) in kvcache.layers_mapping.items() if is_window == windowed} for windowed in (False, True)}
        return [_entry(KV, full, of[False], page), _entry("swa", window, of[True], page)]
    if kind in ("MHATokenToKVPool", "MLATokenToKVPool"):
        return [_entry(KV, kvcache, {i: i for i in range(kvcache.layer_num)}, page)]
    return []


def _latent(kvcache: Any) -> bool:
    return hasattr(kvcache, "kv_buffer")


def _entry(name: str, pool: Any, layers: Dict[int, int], page: int) -> Any:
    if getattr(pool, "k_scale_buffer", None) is not None or getattr(pool, "native_k_scale_buffer", None) is not None:
        raise ValueError("KvstoredLinker stores no KV cache with scales beside it")
    named = find("sglang.srt.mem_cache.hicache_storage", "PoolName")(name)
    buffers = list(pool.kv_buffer) if _latent(pool) else [*pool.k_buffer, *pool.v_buffer]
    n = 0 if _latent(pool) else len(pool.k_buffer)
    mapping = {layer: (at, n + at) if n else at for layer, at in layers.items()}
    return DevicePoolEntry(
        name=named, indices_from_pool=named, device_pool=pool, components=[buffers], layer_mapping=mapping, page_size=page, rows_are_pages=False
    )


def ranks(params: Any, replicated: bool) -> Tuple[Any, bool]:
    """Which of the ranks this one is, and whether it stores: of ranks that hold the same the first does."""
    distributed = find("torch", "distributed")
    group, rank, size = params.attn_tp_cache_group or params.tp_cache_group, 0, 1
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, size = distributed.get_rank(group=group), distributed.get_world_size(group=group)
    config = SimpleNamespace(
        tp_rank=0 if replicated else rank, tp_size=1 if replicated else size, pp_rank=params.pp_rank, pp_size=params.pp_size,
        attn_cp_rank=params.attn_cp_rank, attn_cp_size=params.attn_cp_size,
    )  # fmt: skip
    return config, not replicated or rank == 0
