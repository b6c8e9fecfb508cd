"""LMCache as stand-ins that call plug-ins as it does: in the engine's process its
own memory and its storage manager, and the multi-process server's controllers.

What they do, and in which order, was read from storage_manager.py of
000620e37e, local_cpu_backend.py, and the L2 adapters of 000e877; the text here is ours.
"""

import asyncio
import collections
import contextlib
import importlib
import os
import select
import sys
import threading
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import contracts, lmcache_bitmap


class Key(NamedTuple):
    """Of a chunk of one rank."""

    chunk_hash: Any
    worker_id: int = 0
    world_size: int = 1
    model_name: str = "llama"
    dtype: str = "bfloat16"
    layer: Optional[int] = None
    configs: Any = None

    @property
    def request_configs(self) -> Any:
        return dict(self.configs) if self.configs else None

    def to_string(self) -> str:
        text = self.chunk_hash.hex() if isinstance(self.chunk_hash, bytes) else f"{self.chunk_hash:x}"
        name = f"{self.model_name}@{self.world_size}@{self.worker_id}@{text}@{self.dtype}"
        return name if self.layer is None else f"{name}@{self.layer}"


class Meta:
    def __init__(self, shape: Any, dtype: Any, fmt: Any) -> None:
        self.shape, self.dtype, self.fmt = shape, dtype, fmt


class Object:
    """A memory object; its memory is the pool's again with its last reference."""

    def __init__(self, pool: "Memory", shape: Any, dtype: Any, fmt: Any, size: int) -> None:
        self.meta, self._pool, self._bytes = Meta(shape, dtype, fmt), pool, bytearray(size)
        self.references = 1
        self._mu = threading.Lock()

    @property
    def byte_array(self) -> memoryview:
        assert self.references > 0, "an object is used after its last reference"
        return memoryview(self._bytes)

    def get_size(self) -> int:
        return len(self._bytes)

    def ref_count_up(self) -> None:
        with self._mu:
            assert self.references > 0
            self.references += 1

    def ref_count_down(self) -> None:
        with self._mu:
            self.references -= 1
            assert self.references >= 0, "a reference is given back twice"
            if self.references == 0:
                self._pool.freed(self)


class Memory:
    """The engine's own memory: allocator and first backend. ``hot``: it keeps objects."""

    def __init__(self, capacity: int, hot: bool = True) -> None:
        self.capacity, self.hot, self.used = capacity, hot, 0
        self.cache: "collections.OrderedDict[Key, Object]" = collections.OrderedDict()
        self.keys_in_request: List[Key] = []
        self._mu = threading.RLock()

    def allocate(self, shapes: Any, dtypes: Any, fmt: Any = None, eviction: bool = True, busy_loop: bool = True) -> Optional[Object]:
        size = 2
        for n in shapes:
            size *= n
        with self._mu:
            while self.used + size > self.capacity:
                if not eviction or not self._evict():
                    return None
            self.used += size
        return Object(self, shapes, dtypes, fmt, size)

    def _evict(self) -> bool:
        for key, obj in self.cache.items():
            if obj.references == 1:
                del self.cache[key]
                obj.ref_count_down()
                return True
        return False

    def freed(self, obj: Object) -> None:
        with self._mu:
            self.used -= obj.get_size()

    def batched_contains(self, keys: Sequence[Key], pin: bool = False) -> int:
        with self._mu:
            n = next((i for i, k in enumerate(keys) if k not in self.cache), len(keys))
            if pin:
                self.keys_in_request += keys[:n]
            return n

    async def batched_async_contains(self, lookup_id: str, keys: Sequence[Key], pin: bool = False) -> int:
        return self.batched_contains(keys, pin)

    async def batched_get_non_blocking(self, lookup_id: str, keys: Sequence[Key], transfer_spec: Any = None) -> List[Object]:
        return [o for o in self.batched_get_blocking(keys) if o is not None]

    def batched_get_blocking(self, keys: Sequence[Key]) -> List[Optional[Object]]:
        found: List[Optional[Object]] = []
        with self._mu:
            for key in keys:
                obj = self.cache.get(key)
                if obj is not None:
                    self.cache.move_to_end(key)
                    obj.ref_count_up()
                found.append(obj)
        return found if any(o is not None for o in found) else []

    def batched_submit_put_task(self, keys: Sequence[Key], objs: Sequence[Object], transfer_spec: Any = None) -> None:
        with self._mu:
            for key, obj in zip(keys, objs):
                if self.hot and key not in self.cache:
                    obj.ref_count_up()
                    self.cache[key] = obj

    def unpin(self, key: Key) -> bool:
        return True

    def touch_cache(self) -> None:
        with self._mu:
            self.keys_in_request = []

    def clear(self) -> None:
        with self._mu:
            while self.cache:
                self.cache.popitem()[1].ref_count_down()


class Manager:
    """The storage manager of one rank: its memory first, the plug-in last."""

    def __init__(self, memory: Memory, plugin: Any) -> None:
        self.memory, self.plugin = memory, plugin
        self.backends = [memory, plugin]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self._one_load: Optional[asyncio.Lock] = None

    def lookup(self, keys: List[Key], pin: bool = True) -> Tuple[int, Dict[int, List[Key]]]:
        """How many chunks are somewhere, and which backend has which."""
        total, where = 0, {}
        for i, backend in enumerate(self.backends):
            n = backend.batched_contains(keys, pin)
            assert isinstance(n, int) and 0 <= n <= len(keys), n
            if n:
                where[i] = keys[:n]
                total += n
            keys = keys[n:]
            if not keys:
                break
        self.memory.touch_cache()
        return total, where

    def put(self, keys: List[Key], objects: List[Object]) -> None:
        for backend in self.backends:
            assert backend.batched_submit_put_task(keys, objects, transfer_spec=None) is None
        for obj in objects:
            obj.ref_count_down()

    def get(self, backend: int, keys: List[Key]) -> List[Optional[Object]]:
        """What one backend has; of the plug-in's the engine's memory takes a reference too."""
        objects = self.backends[backend].batched_get_blocking(keys)
        assert isinstance(objects, list)
        if objects and backend and None not in objects:
            self.memory.batched_submit_put_task(keys, objects)  # type: ignore[arg-type]
        return objects or [None] * len(keys)

    def unpin(self, keys: Sequence[Key]) -> None:
        for backend in self.backends:
            for key in keys:
                backend.unpin(key)

    def prefetch(self, lookup_id: str, keys: List[Key], chunk_tokens: int = 256) -> Any:
        """The asynchronous path: tier by tier on the event loop, one load at a time.
        A future of the objects that are there, in order."""
        return asyncio.run_coroutine_threadsafe(self._prefetch(lookup_id, keys, chunk_tokens), self.loop)

    async def _prefetch(self, lookup_id: str, keys: List[Key], chunk_tokens: int) -> List[Object]:
        self._one_load = self._one_load or asyncio.Lock()
        lengths = [i * chunk_tokens for i in range(len(keys) + 1)]
        tasks, expected = [], []
        for backend in self.backends:
            n = await backend.batched_async_contains(lookup_id, keys, True)
            if n:
                spec = {"cum_chunk_lengths": lengths[: n + 1]}
                tasks.append(asyncio.ensure_future(self._alone(backend.batched_get_non_blocking(lookup_id, keys[:n], spec))))
                expected.append(n)
            keys, lengths = keys[n:], lengths[n:]
            if not keys:
                break
        self.memory.touch_cache()
        got = await asyncio.gather(*tasks)
        kept: List[Object] = []
        for i, objects in enumerate(got):
            kept += objects
            if len(objects) < expected[i]:
                for later in got[i + 1 :]:
                    for obj in later:
                        obj.ref_count_down()
                break
        return kept

    async def _alone(self, load: Any) -> Any:
        assert self._one_load is not None
        async with self._one_load:
            return await load

    def close(self) -> None:
        self.plugin.close()
        self.memory.clear()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()


# ---- the multi-process server ---------------------------------------------------


@contextlib.contextmanager
def stand_ins(form: contracts.Form, modules: Optional[Dict[str, Any]] = None) -> Iterator[Any]:
    """kvstored.lmcache.l2 imported anew, where LMCache is this form with a bitmap that works,
    unless it has none, and these modules of it."""
    with form.installed():
        for module in ("lmcache.lmcache_native", "lmcache.native_storage_ops"):
            if hasattr(sys.modules.get(module), "Bitmap"):
                sys.modules[module].Bitmap = lmcache_bitmap.Bitmap  # type: ignore[attr-defined]
        for module, names in {"api": ("KeyEntry", "KeyListPage"), "internal_api": ("L2StoreResult",)}.items():
            for name in names:
                setattr(contracts._module(f"lmcache.v1.distributed.{module}"), name, getattr(lmcache_bitmap, name))
        sys.modules.update(modules or {})
        with contracts._aside("kvstored.lmcache.l2"):
            yield importlib.import_module("kvstored.lmcache.l2")


def _l2() -> Any:
    try:
        importlib.import_module("lmcache.v1.distributed.l2_adapters.base")
    except ImportError:
        with stand_ins(contracts.load("lmcache")[-1]) as module:
            pass
        sys.modules[module.__name__] = module
    return importlib.import_module("kvstored.lmcache.l2")


#: kvstored.lmcache.l2 on LMCache's own classes, where they can be imported, else on stand-ins.
l2 = _l2()


class ObjectKey(NamedTuple):
    chunk_hash: bytes
    model_name: str = "llama"
    kv_rank: int = 1 << 24
    object_group_id: int = 0
    cache_salt: str = ""

    def to_encoded_object_key(self) -> "ObjectKey":
        return self


def rank(world: int, worker: int) -> int:
    return world << 24 | worker << 16 | world << 8 | worker


class Controllers:
    """The server's store and prefetch controller, which poll an adapter's events."""

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter
        self.fds = [adapter.get_store_event_fd(), adapter.get_lookup_and_lock_event_fd(), adapter.get_load_event_fd()]
        assert len(set(self.fds)) == 3
        self._poll = [select.poll() for _ in self.fds]
        for poll, fd in zip(self._poll, self.fds):
            poll.register(fd, select.POLLIN)

    def _wait(self, kind: int, seconds: float = 30.0) -> None:
        if self._poll[kind].poll(seconds * 1000):
            os.read(self.fds[kind], 8)

    def store(self, keys: List[ObjectKey], objects: List[Object]) -> bool:
        task, done = self.adapter.submit_store_task(keys, objects), {}
        while task not in done:
            self._wait(0)
            done.update(self.adapter.pop_completed_store_tasks())
        assert self.adapter.pop_completed_store_tasks().get(task) is None
        return done[task].is_successful()

    def lookup(self, keys: List[ObjectKey], layouts: Any = None) -> List[bool]:
        """With the layout of each group, which only tells the adapter something."""
        layouts = {getattr(k, "object_group_id", 0): None for k in keys} if layouts is None else layouts
        task = self.adapter.submit_lookup_and_lock_task(keys, layouts)
        return self._bits(1, task, self.adapter.query_lookup_and_lock_result, keys)

    def load(self, keys: List[ObjectKey], objects: List[Object]) -> List[bool]:
        return self._bits(2, self.adapter.submit_load_task(keys, objects), self.adapter.query_load_result, keys)

    def _bits(self, kind: int, task: int, query: Any, keys: List[ObjectKey]) -> List[bool]:
        result = query(task)
        while result is None:
            self._wait(kind)
            result = query(task)
        assert query(task) is None, "a result is given out twice"
        return bits_of(result, keys)


def bits_of(result: Any, keys: Sequence[Any]) -> List[bool]:
    """As the prefetch controller takes them: their number must be that of the keys."""
    there = [result.test(i) for i in range(len(keys))]
    if hasattr(result, "__len__"):  # since 0.5.6
        assert len(result) == len(keys), "as many bits as keys"
    assert result.get_indices_list() == [i for i, yes in enumerate(there) if yes]
    assert result.gather(keys) == [key for key, yes in zip(keys, there) if yes]
    assert result.popcount() == sum(there)
    return there
