"""A storage backend for SGLang's HiCache, for its backend ``dynamic``.

docs/engines.md has the command line. Host pages are copied straight between
SGLang's host pool and the daemon's memory. No method but the constructor
raises: an exception would end a thread of SGLang, and with it the cache.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from . import engine, options
from .client import Client
from .memory import address
from .pages import Pages, Place
from .wire import Space


class _Storage:  # without SGLang: enough of it for tests
    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        if not hasattr(self, "registered_pools"):
            self.registered_pools: Dict[Any, Any] = {}
        self.registered_pools[host_pool_name] = host_pool


class _TransferResult(NamedTuple):
    kv_hit_pages: int
    extra_pool_hit_pages: Dict[str, int]


_STORAGE = "sglang.srt.mem_cache.hicache_storage"
HiCacheStorage: Any = engine.find(_STORAGE, "HiCacheStorage") or _Storage
PoolTransferResult: Any = engine.find(_STORAGE, "PoolTransferResult", newer=True) or _TransferResult


def _storage_metrics() -> Any:
    """SGLang's class, which has moved, or None."""
    places = "sglang.srt.observability.metrics_collector", "sglang.srt.metrics.collector"
    found = (engine.find(module, "StorageMetrics", newer=True) for module in places)
    return next((metrics for metrics in found if metrics is not None), None)


StorageMetrics = _storage_metrics()

log = logging.getLogger("kvstored.sglang")

_KV = "kv"
_LOG_SECONDS = 30.0

KEYS = {
    "socket": options.socket(),
    "timeout": options.seconds(2.0),
    "verify": options.flag(True),
    "revision": options.text(),
    "namespace": options.text(),
    "model": options.text(),
}

F = TypeVar("F", bound=Callable[..., Any])


def _never_raises(otherwise: Callable[..., Any]) -> Callable[[F], F]:
    """What a method returns instead of raising, made from its arguments."""

    def wrap(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: "KvstoredHiCache", *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except Exception:
                self._complain(method.__name__)
                return otherwise(*args, **kwargs)

        return guarded  # type: ignore[return-value]

    return wrap


def _no_pages(keys: Sequence[str] = (), *_: Any, **__: Any) -> List[bool]:
    return [False] * len(keys)


class KvstoredHiCache(HiCacheStorage):
    """The daemon as the storage below SGLang's host memory.

    Its ``KEYS`` in ``extra_config``: ``socket``; ``timeout``, seconds for one
    call; ``verify``, compare checksums of what is loaded; ``revision``, of the
    weights; ``namespace``, further text that must be equal for pages to be
    shared; ``model``, where SGLang gives no model name. The constructor raises a
    ValueError that says what is wrong with them.
    """

    def __init__(self, storage_config: Any, kwargs: Optional[Dict[str, Any]] = None) -> None:
        self._config = storage_config
        extra = getattr(storage_config, "extra_config", None) or {}
        o = options.check("KvstoredHiCache", {k: v for k, v in extra.items() if k in KEYS}, KEYS)
        others = sorted(str(k) for k in extra if k not in KEYS and not _sglangs(k))
        if others:  # perhaps a newer SGLang's, so that is no reason to stop it
            log.warning("KvstoredHiCache passes over %s in the extra config: it knows %s", ", ".join(others), ", ".join(KEYS))
        self._model = o["model"] or str(getattr(storage_config, "model_name", None) or "")
        if not self._model:
            raise ValueError('KvstoredHiCache: SGLang gives no model name: add "model" to the extra config')
        self._revision, self._namespace = o["revision"], o["namespace"]
        self._timeout, self._verify = o["timeout"], o["verify"]
        self._client = Client(o["socket"], name="sglang", timeout=self._timeout)
        self._mu = threading.Lock()  # guards the fields below
        self._pages: Dict[str, Pages] = {}
        self._complained = -_LOG_SECONDS
        self._moved: Dict[str, List[Tuple[int, float]]] = {"prefetch": [], "backup": []}  # pages, GiB/s

    # ---- pools -----------------------------------------------------------------

    @_never_raises(lambda *_, **__: None)
    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        with self._mu:
            self._pages.pop(_KV, None)

    def _pool(self, name: str) -> Any:
        pools = {_name(k): pool for k, pool in getattr(self, "registered_pools", {}).items()}
        return pools.get(name) or (getattr(self, "mem_pool_host", None) if name == _KV else None)

    def _of(self, name: str = _KV) -> Pages:
        """The values of one pool."""
        with self._mu:
            pages = self._pages.get(name)
            if pages is None:
                pages = self._pages[name] = Pages(self._client, self._space(name), self._verify)
            return pages

    def _space(self, name: str) -> Space:
        """Whatever differs in anything here is never mixed up."""
        c, pool = self._config, self._pool(name)

        def of(thing: Any, field: str, default: Any) -> Any:
            value = getattr(thing, field, None)
            return default if value is None else value

        # Pools say how elements are stored; for fp8 of any kind that is as uint8.
        stored = of(pool, "dtype", "unknown")
        element = of(of(pool, "device_pool", None), "dtype", stored)
        rank, ranks = (0, 1) if of(c, "is_mla_model", False) else (of(c, "tp_rank", 0), of(c, "tp_size", 1))
        tags = [
            ("namespace", self._namespace),
            ("layout", str(of(pool, "layout", ""))),
            ("pool", "" if pool is None else type(pool).__name__),
            ("sglang", str(getattr(sys.modules.get("sglang"), "__version__", ""))),
        ]
        for short, at, size in (("pp", "pp_rank", "pp_size"), ("cp", "attn_cp_rank", "attn_cp_size")):
            if of(c, size, 1) > 1:
                tags.append((short, f"{of(c, at, 0)}/{of(c, size, 1)}"))
        return Space(
            model=self._model,
            revision=self._revision,
            dtype=str(stored) if element == stored else f"{element} as {stored}",
            chunk_tokens=max(1, min(int(of(pool, "page_size", 1)), 1 << 16)),
            method="given:sglang",
            world=int(ranks),
            worker=int(rank),
            group="" if name == _KV else name,
            tags=tuple((k, v) for k, v in tags if v),
        )

    def _places(self, name: str, keys: Sequence[str], host_indices: Any) -> List[Place]:
        """The pieces of each page: a pool has one or more, the same number for all."""
        pointers, sizes = self._pool(name).get_page_buffer_meta(host_indices)
        n, rest = divmod(len(pointers), len(keys) or 1)
        if rest or len(sizes) != len(pointers):
            raise ValueError(f"{len(pointers)} buffers of {len(sizes)} sizes for {len(keys)} pages")
        pieces = [(int(p), int(s)) for p, s in zip(pointers, sizes)]
        return [pieces[i * n : (i + 1) * n] for i in range(len(keys))]

    # ---- what is there ---------------------------------------------------------

    @_never_raises(lambda *_, **__: False)
    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    @_never_raises(lambda *_, **__: 0)
    def batch_exists(self, keys: List[str], extra_info: Any = None) -> int:
        """How many pages are there from the first on. They are brought up to DRAM
        and leased for some seconds, for the load that follows."""
        return self._of().find(_raw(keys), self._timeout)

    @_never_raises(lambda *_, **__: PoolTransferResult(0, {}))
    def batch_exists_v2(self, keys: List[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        """The longest run that every pool can serve: all of its pages, or only the last ones."""
        run = self.batch_exists(keys, extra_info)
        found: Dict[str, List[bool]] = {}
        trailing: Dict[str, int] = {}
        for transfer in pool_transfers or ():
            name = _name(transfer.name)
            found[name] = self._of(name).exists(_raw(keys[:run]), self._timeout)
            if str(getattr(transfer.hit_policy, "value", transfer.hit_policy)) == "trailing_pages":
                trailing[name] = max(1, len(transfer.keys or ()))

        def served(run: int, name: str) -> bool:
            first = max(0, run - trailing[name]) if name in trailing else 0
            return all(found[name][first:run])

        while run and not all(served(run, name) for name in found):
            run -= 1
        return PoolTransferResult(run, {name: sum(there[:run]) for name, there in found.items()})

    # ---- host pages ------------------------------------------------------------

    @_never_raises(_no_pages)
    def batch_get_v1(self, keys: List[str], host_indices: Any, extra_info: Any = None) -> List[bool]:
        return self._get(_KV, keys, self._places(_KV, keys, host_indices))

    @_never_raises(_no_pages)
    def batch_set_v1(self, keys: List[str], host_indices: Any, extra_info: Any = None) -> List[bool]:
        return self._set(_KV, keys, self._places(_KV, keys, host_indices))

    @_never_raises(lambda transfers=(), *_, **__: {_name(t.name): _no_pages(t.keys or ()) for t in transfers})
    def batch_get_v2(self, transfers: List[Any], extra_info: Any = None) -> Dict[str, List[bool]]:
        return {_name(t.name): self._transfer(self._get, t) for t in transfers}

    @_never_raises(lambda transfers=(), *_, **__: {_name(t.name): _no_pages(t.keys or ()) for t in transfers})
    def batch_set_v2(self, transfers: List[Any], extra_info: Any = None) -> Dict[str, List[bool]]:
        return {_name(t.name): self._transfer(self._set, t) for t in transfers}

    def _transfer(self, move: Callable[..., List[bool]], transfer: Any) -> List[bool]:
        keys, name = list(transfer.keys or ()), _name(transfer.name)
        try:
            return move(name, keys, self._places(name, keys, transfer.host_indices))
        except Exception:
            self._complain(name)
            return _no_pages(keys)

    def _get(self, name: str, keys: Sequence[str], places: Sequence[Place]) -> List[bool]:
        """Loads pages; what follows a page that failed counts as failed too."""
        began = time.monotonic()
        run = self._of(name).load(_raw(keys), places, self._timeout)
        self._count("prefetch", places[:run], began)
        return [True] * run + [False] * (len(keys) - run)

    def _set(self, name: str, keys: Sequence[str], places: Sequence[Place]) -> List[bool]:
        began = time.monotonic()
        stored = self._of(name).store(_raw(keys), places, self._timeout)
        self._count("backup", [p for p, ok in zip(places, stored) if ok], began)
        return stored

    # ---- tensors ---------------------------------------------------------------

    @_never_raises(lambda *_, **__: None)
    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """The target, filled; None if the page is not there."""
        return self.batch_get([key], [target_location], None if target_sizes is None else [target_sizes])[0]

    @_never_raises(lambda keys=(), *_, **__: [None] * len(keys))
    def batch_get(self, keys: List[str], target_locations: Any = None, target_sizes: Any = None) -> List[Any]:
        """The targets, filled: a leading run of them, then None."""
        places = _spans(target_locations, target_sizes)
        loaded = self._get(_KV, keys, places)
        return [target if ok else None for target, ok in zip(target_locations, loaded)]

    @_never_raises(lambda *_, **__: False)
    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        location = None if target_location is None else [target_location]
        return self.batch_set([key], None if value is None else [value], location, [target_sizes])

    @_never_raises(lambda *_, **__: False)
    def batch_set(
        self, keys: List[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        sources = target_locations if values is None else [_contiguous(v) for v in values]
        return all(self._set(_KV, keys, _spans(sources, target_sizes)))

    # ---- the rest --------------------------------------------------------------

    @_never_raises(lambda *_, **__: None)
    def clear(self) -> None:
        """Forgets the pages of this rank, where the daemon lets this process (the right admin)."""
        with self._mu:
            spaces = [pages.space for pages in self._pages.values()]
        for space in spaces:
            self._client.delete_space(space, timeout=self._timeout)

    @_never_raises(lambda *_, **__: None)
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

    @_never_raises(lambda *_, **__: None)
    def close(self) -> None:
        with self._mu:
            pools = list(self._pages.values())
        for pages in pools:
            pages.close()
        self._client.close()

    def _count(self, kind: str, moved: Sequence[Place], began: float) -> None:
        if getattr(self._config, "enable_storage_metrics", False) and moved:
            gib = sum(size for place in moved for _, size in place) / (1 << 30)
            with self._mu:
                rates = self._moved[kind][-1023:]  # if nobody asks
                self._moved[kind] = rates + [(len(moved), gib / max(time.monotonic() - began, 1e-9))]

    def _complain(self, what: str) -> None:
        now = time.monotonic()
        with self._mu:
            quiet = now - self._complained < _LOG_SECONDS
            self._complained = self._complained if quiet else now
        if not quiet:
            log.exception("kvstored: %s failed and counts as a miss", what)


def _sglangs(key: str) -> bool:
    """Whether SGLang reads this key of ``extra_config`` itself. Some of them it
    takes out, which ones depends on its version."""
    known = "backend_name", "module_path", "class_name", "interface_v1", "tp_lcm_size"
    return key in known or str(key).startswith(("prefetch_", "hicache_"))


def _name(pool: Any) -> str:
    """Of a pool: a text, or a member of SGLang's PoolName, which equals it."""
    return str(getattr(pool, "value", pool))


def _raw(keys: Sequence[str]) -> List[bytes]:
    return [k.encode() for k in keys]


def _contiguous(value: Any) -> Any:
    return value.contiguous() if hasattr(value, "contiguous") else value


def _spans(values: Sequence[Any], sizes: Optional[Sequence[Any]] = None) -> List[Place]:
    """Where tensors, buffers or plain addresses lie."""
    return [((_span(v, None if sizes is None else sizes[i])),) for i, v in enumerate(values)]


def _span(value: Any, size: Optional[int]) -> Tuple[int, int]:
    if isinstance(value, int):
        return value, int(size or 0)
    if hasattr(value, "data_ptr"):
        if not value.is_contiguous():
            raise ValueError("a tensor that is not contiguous")
        return value.data_ptr(), value.numel() * value.element_size()
    return address(value), memoryview(value).nbytes
