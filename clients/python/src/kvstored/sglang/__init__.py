"""A storage backend for SGLang's HiCache, for its backend ``dynamic``.

docs/engines/sglang.md has the command line. Host pages are copied straight between
SGLang's host pool and the daemon's memory. No method but the constructor
raises: an exception would end a thread of SGLang, and with it the cache.
"""

import logging
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .. import _groups, options
from .._engine import Complaints, find, max_age, never_raises, nothing
from .._groups import Member
from ..client import Client
from ..hints import Hints
from ..pages import Before, Pages, Place
from ..prefill import Prefill
from .order import FLAG, Order, hints
from .pools import HostPools, Side, pool_name, tensors, told
from .space import KV, Names, check, check_lora, get
from .space import space as space_of


_STORAGE = "sglang.srt.mem_cache.hicache_storage"
HiCacheStorage: Any = find(_STORAGE, "HiCacheStorage") or object
PoolTransferResult: Any = find(_STORAGE, "PoolTransferResult")
StorageMetrics: Any = find("sglang.srt.observability.metrics_collector", "StorageMetrics", newer=True)

log = logging.getLogger("kvstored.sglang")

_SGLANGS = "backend_name", "module_path", "class_name", "interface_v1", "tp_lcm_size"  # keys that SGLang reads

KEYS = {
    **options.COMMON,
    "timeout": options.seconds(2.0),
    "verify": options.flag(True),
    "model": options.text(),
}

def _length(keys: Any) -> int:
    return len(keys) if hasattr(keys, "__len__") else 0


def _no_pages(keys: Any) -> List[bool]:
    return [False] * _length(keys)


def _no_transfers(transfers: Any) -> Dict[str, List[bool]]:
    named = [t for t in transfers if hasattr(t, "name")] if isinstance(transfers, (list, tuple)) else []
    return {pool_name(t.name): _no_pages(getattr(t, "keys", None)) for t in named}


class KvstoredHiCache(HiCacheStorage):
    """The daemon as the storage below SGLang's host memory.

    Its ``KEYS`` in ``extra_config``: ``socket``; ``timeout``, seconds for one
    call; ``verify``, compare checksums of what is loaded; ``check_existing``,
    one page in so many that is to be stored is compared with what is stored
    already; ``revision``, of the weights; ``namespace``, further text that must
    be equal for pages to be shared; ``model``, in place of SGLang's name;
    ``prefill_tokens_per_second``, that this engine computes, so that no more is
    found than is loaded sooner than computed, or "measured" to take it from the calls;
    ``prefill_depth``, tokens into a prompt at which one takes twice as long to compute.
    The constructor raises a ValueError that says what is wrong with them.
    """

    def __init__(self, storage_config: Any, kwargs: Optional[Dict[str, Any]] = None) -> None:
        self._config = storage_config
        extra = getattr(storage_config, "extra_config", None) or {}
        o = _options(extra)
        model = o["model"] or str(getattr(storage_config, "model_name", None) or "")
        if not model:
            raise ValueError('KvstoredHiCache: SGLang gives no model name: add "model" to the extra config')
        check_lora()
        self._names = Names(model, o["revision"], o["namespace"])
        self._timeout, self._verify = o["timeout"], o["verify"]
        self._check_existing = o["check_existing"]
        self._prefill = Prefill(o["prefill_tokens_per_second"], o["prefill_depth"])
        self._order = Order(passes=extra.get(FLAG) is True)
        # Which pages of keys and values SGLang will ask for: its tensors of them, or their buffers.
        self._flat = "class_name" in extra and not extra.get("interface_v1")
        self._client = Client(o["socket"], name="sglang", timeout=self._timeout)
        self._hints = Hints(self._client)
        self._complaints = Complaints(log)
        self._pools = HostPools()
        self._mu = threading.Lock()  # guards the fields below
        self._pages: Dict[Tuple[str, bool], Pages] = {}
        self._moved: Dict[str, List[Tuple[int, float]]] = {"prefetch": [], "backup": []}  # pages, GiB/s

    # ---- pools -----------------------------------------------------------------

    @never_raises(nothing(None))
    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host
        self._pools.register_first(mem_pool_host)
        self._forget(KV)

    @never_raises(nothing(None))
    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        self._pools.register(pool_name(host_pool_name), host_pool)
        self._forget(pool_name(host_pool_name))

    def on_host_pools_registered(self) -> None:
        """All pools are known. A ValueError, on which SGLang goes on without this class, says
        which of them this package cannot tell apart from others."""
        for name, pool in self._pools.all():
            check(name, pool)

    def _forget(self, name: str) -> None:
        """All pools have pages of as many tokens as the first."""
        with self._mu:
            self._pages = {key: pages for key, pages in self._pages.items() if name not in (KV, key[0])}

    def _of(self, name: str = KV, flat: bool = False) -> Pages:
        """The values of one pool. ``flat``: of pages that SGLang gathers into tensors."""
        with self._mu:
            pages = self._pages.get((name, flat))
            if pages is None:
                page = get(self._pools.get(KV), "page_size", None)
                where = space_of(name, self._config, self._pools.get(name), self._names, flat, page)
                pages = self._pages[name, flat] = Pages(
                    self._client, where, self._verify, self._hints, self._check_existing
                )
            return pages

    # ---- what is there ---------------------------------------------------------

    @never_raises(nothing(False))
    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    @never_raises(nothing(0))
    def batch_exists(self, keys: List[str], extra_info: Any = None) -> int:
        """How many pages are there from the first on. They are promoted to DRAM
        and leased for some seconds, for the load that follows."""
        name, raw = _pool_of(keys), _raw(keys)
        pages = self._of(name, self._flat or name != KV)
        if name != KV:
            return pages.find(raw, self._timeout)
        run = self._order.said("query", raw, extra_info)
        found = pages.find(raw, self._timeout, self._order.before(run), self._prefill.says(hints(extra_info)))
        self._order.went_on("query", run, found == len(raw), extra_info)
        self._missing(pages, raw, found)
        return found

    def _missing(self, pages: Pages, raw: List[bytes], found: int) -> None:
        if found < len(raw):
            self._prefill.asked(raw[-1], (len(raw) - found) * pages.space.chunk_tokens)

    @never_raises(lambda _: PoolTransferResult(0, {}))
    def batch_exists_v2(self, keys: List[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        """The longest prefix that every pool can serve, and what is known of each by
        itself. One request is about all pools, and leases what will be loaded for some
        seconds."""
        sides = [side for side in map(Side.of, pool_transfers or ()) if side is not None]
        if not sides:
            found = self.batch_exists(keys, extra_info)
            return PoolTransferResult(found, {KV: found} if found else {}, list(range(1, found + 1)))
        raw, first = _raw(keys), self._of(KV, self._flat)
        before = self._order.before(self._order.said("query", raw, extra_info))
        tokens = first.space.chunk_tokens
        members = [Member(first.space), *(Member(self._of(side.name).space, side.kind(tokens)) for side in sides)]
        there = _groups.find(self._client, members, raw, self._timeout, before, self._prefill.says(hints(extra_info)))
        if there.job is not None:
            self._hints.keep(there.job)
        ends = [n for n in there.ends if n <= there.worth]
        longest = ends[-1] if ends else 0
        self._missing(first, raw, longest)
        return PoolTransferResult(longest, told([KV, *(side.name for side in sides)], there), ends)

    # ---- host pages ------------------------------------------------------------

    @never_raises(_no_pages)
    def batch_get_v1(self, keys: List[str], host_indices: Any, extra_info: Any = None) -> List[bool]:
        raw, places = _raw(keys), self._pools.places(KV, len(keys), host_indices, load=True)
        return self._get(self._of(), raw, places, self._timeout, self._order.before(self._order.said("get", raw, extra_info)))

    @never_raises(_no_pages)
    def batch_set_v1(self, keys: List[str], host_indices: Any, extra_info: Any = None) -> List[bool]:
        raw, places = _raw(keys), self._pools.places(KV, len(keys), host_indices, load=False)
        run = self._order.said("set", raw, extra_info)
        stored = self._set(self._of(), raw, places, self._timeout, self._order.before(run), extra_info)
        self._order.went_on("set", run, all(stored), extra_info)
        return stored

    @never_raises(_no_transfers)
    def batch_get_v2(self, transfers: List[Any], extra_info: Any = None) -> Dict[str, List[bool]]:
        until = time.monotonic() + self._timeout
        return {pool_name(t.name): self._transfer(t, True, until) for t in transfers}

    @never_raises(_no_transfers)
    def batch_set_v2(self, transfers: List[Any], extra_info: Any = None) -> Dict[str, List[bool]]:
        until = time.monotonic() + self._timeout
        return {pool_name(t.name): self._transfer(t, False, until, extra_info) for t in transfers}

    def _transfer(self, transfer: Any, load: bool, until: float, extra_info: Any = None) -> List[bool]:
        keys, name = list(transfer.keys or ()), pool_name(transfer.name)
        try:
            raw, places = _raw(keys), self._pools.places(name, len(keys), transfer.host_indices, load)
            before = self._order.before(self._order.said("beside", raw, None))
            left = until - time.monotonic()
            if load:
                return self._get(self._of(name), raw, places, left, before)
            return self._set(self._of(name), raw, places, left, before, extra_info)
        except Exception:
            self._complaints.say(name)
            return _no_pages(keys)

    def _get(self, pages: Pages, raw: List[bytes], places: Sequence[Place], timeout: float, before: Before) -> List[bool]:
        """Loads pages; what follows a page that failed counts as failed too."""
        began = time.monotonic()
        run = pages.load(raw, places, timeout, before)
        self._count("prefetch", places[:run], began)
        return [True] * run + [False] * (len(raw) - run)

    def _set(
        self, pages: Pages, raw: List[bytes], places: Sequence[Place], timeout: float, before: Before, extra_info: Any = None
    ) -> List[bool]:
        began = time.monotonic()
        self._prefill.stored(raw)
        stored = pages.store(raw, places, timeout, before=before, max_age=max_age(hints(extra_info)))
        self._count("backup", [p for p, ok in zip(places, stored) if ok], began)
        return stored

    # ---- tensors ---------------------------------------------------------------

    @never_raises(nothing(None))
    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """The target, filled; None if the page is not there."""
        return self.batch_get([key], [target_location], None if target_sizes is None else [target_sizes])[0]

    @never_raises(lambda keys: [None] * _length(keys))
    def batch_get(self, keys: List[str], target_locations: Any = None, target_sizes: Any = None) -> List[Any]:
        """The targets, filled: a leading run of them, then None."""
        raw, places = _raw(keys), tensors(target_locations, target_sizes, load=True)
        loaded = self._get(self._of(_pool_of(keys), flat=True), raw, places, self._timeout, self._remembered(keys))
        return [target if ok else None for target, ok in zip(target_locations, loaded)]

    @never_raises(nothing(False))
    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        location = None if target_location is None else [target_location]
        return self.batch_set([key], None if value is None else [value], location, [target_sizes])

    @never_raises(nothing(False))
    def batch_set(
        self, keys: List[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        sources = target_locations if values is None else [_contiguous(v) for v in values]
        raw, places = _raw(keys), tensors(sources, target_sizes, load=False)
        return all(self._set(self._of(_pool_of(keys), flat=True), raw, places, self._timeout, self._remembered(keys)))

    def _remembered(self, keys: Sequence[str]) -> Before:
        """What pages of keys and values follow that come without anything said of it."""
        if _pool_of(keys) != KV:
            return None
        return self._order.before(self._order.said("tensors", _raw(keys), None))

    # ---- the rest --------------------------------------------------------------

    @never_raises(nothing(None))
    def clear(self) -> None:
        """Forgets the pages of this rank, where the daemon lets this process (the right admin)."""
        with self._mu:
            spaces = [pages.space for pages in self._pages.values()]
        for space in spaces:
            self._client.delete_space(space, timeout=self._timeout)

    @never_raises(nothing(None))
    def get_stats(self) -> Any:
        """Pages of each load and store since the last call, and their rates."""
        if StorageMetrics is None or not getattr(self._config, "enable_storage_metrics", False):
            return None
        with self._mu:
            moved, self._moved = self._moved, {"prefetch": [], "backup": []}
        stats = StorageMetrics()
        for kind, moves in moved.items():
            getattr(stats, f"{kind}_pgs").extend(pages for pages, _ in moves)
            getattr(stats, f"{kind}_bandwidth").extend(rate for _, rate in moves)
        return stats

    @never_raises(nothing(None))
    def close(self) -> None:
        self._hints.close()
        self._client.close()

    def _count(self, kind: str, moved: Sequence[Place], began: float) -> None:
        if getattr(self._config, "enable_storage_metrics", False) and moved:
            gib = sum(size for place in moved for _, size in place) / (1 << 30)
            with self._mu:
                rates = self._moved[kind][-1023:]  # if nobody asks
                self._moved[kind] = rates + [(len(moved), gib / max(time.monotonic() - began, 1e-9))]


def _options(extra: Dict[str, Any]) -> Dict[str, Any]:
    """The user's, checked. SGLang reads some keys of the extra config itself, and
    takes some of them out; which ones depends on its version."""
    own = {k: v for k, v in extra.items() if k not in _SGLANGS and not str(k).startswith(("prefetch_", "hicache_"))}
    return options.check("KvstoredHiCache", own, KEYS)


def _pool_of(keys: Sequence[str]) -> str:
    """Where SGLang gathers pages into tensors, a key names its pool behind the hash."""
    names = {key.partition(".")[2] or KV for key in keys}
    if len(names) > 1:
        raise ValueError(f"keys of several pools in one call: {', '.join(sorted(names))}")
    return names.pop() if names else KV


def _raw(keys: Sequence[str]) -> List[bytes]:
    return [k.encode() for k in keys]


def _contiguous(value: Any) -> Any:
    return value.contiguous() if hasattr(value, "contiguous") else value
