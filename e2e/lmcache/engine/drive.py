"""What the tests drive of LMCache: its StorageManager over an L2 adapter (``manager``), as its
server has it, or the engine of one process over a storage plug-in or Redis (``engine``)."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import time
from typing import Any, Dict, List, Sequence

import lines

lines.quiet()

import torch  # noqa: E402
from lmcache.utils import mock_up_broadcast_fn, mock_up_broadcast_object_fn  # noqa: E402
from lmcache.v1.cache_engine import LMCacheEngineBuilder  # noqa: E402
from lmcache.v1.config import LMCacheEngineConfig  # noqa: E402
from lmcache.v1.distributed.api import GroupedObjectKeys, MemoryLayoutDesc, ObjectKey, PrefetchTaskSpec  # noqa: E402
from lmcache.v1.distributed.config import EvictionConfig, L1ManagerConfig, L1MemoryManagerConfig, StorageManagerConfig  # noqa: E402
from lmcache.v1.distributed.l2_adapters.config import add_l2_adapters_args, parse_args_to_l2_adapters_config  # noqa: E402
from lmcache.v1.distributed.storage_manager import StorageManager  # noqa: E402
from lmcache.v1.gpu_connector.mock_gpu_connector import MockGPUConnector  # noqa: E402
from lmcache.v1.metadata import LMCacheMetadata  # noqa: E402

_SECONDS = 120.0  # for what takes no time on a quiet machine
_CHUNK = 256  # tokens
_LAYOUT = MemoryLayoutDesc(shapes=[torch.Size([2, 4, _CHUNK, 64])], dtypes=[torch.bfloat16])
_BYTES = 2 * 4 * _CHUNK * 64 * 2


def until(what: str, condition: Any) -> None:
    end = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.01)


class Manager:
    """A row is the chunks of a prompt for one rank and object group: ``prompt``, ``chunks`` (so
    many), ``world``, ``rank``, ``group``, ``window`` (in chunks), ``salt`` and ``model``."""

    def __init__(self, adapter: Dict[str, Any]) -> None:
        parser = add_l2_adapters_args(argparse.ArgumentParser())
        parsed = parse_args_to_l2_adapters_config(parser.parse_args(["--l2-adapter", json.dumps(adapter)]))
        memory = L1ManagerConfig(L1MemoryManagerConfig(64 << 20, False, shm_name=""))
        self._manager = StorageManager(StorageManagerConfig(memory, EvictionConfig("LRU"), parsed))
        (self._adapter,) = self._manager._l2_adapters.values()
        self._stored = 0  # chunks, of stores that have ended in whichever way
        self._count()

    def _count(self) -> None:
        submit, pop, sizes = self._adapter.submit_store_task, self._adapter.pop_completed_store_tasks, {}

        def submitted(keys: Any, *more: Any) -> Any:
            task = submit(keys, *more)
            sizes[task] = len(keys)
            return task

        def popped() -> Any:
            done = pop()
            self._stored += sum(sizes.pop(task) for task in done)
            return done

        self._adapter.submit_store_task, self._adapter.pop_completed_store_tasks = submitted, popped

    def close(self) -> None:
        self._manager.close()

    def healthy(self) -> bool:
        """Waits until the adapter is attached."""
        until("the adapter is attached", lambda: self._adapter.report_status()["is_healthy"])
        return True

    def put(self, row: Dict[str, Any], at: Sequence[int]) -> None:
        """Stores chunks of a row in the server's memory, and below as far as the adapter takes them."""
        keys, before = _keys(row, at), self._stored
        objects = self._manager.reserve_write(keys, _LAYOUT)
        assert len(objects) == len(keys), (len(objects), len(keys))
        for key, obj in objects.items():
            memoryview(obj.byte_array).cast("B")[:_BYTES] = _content(key)
        self._manager.finish_write(list(objects))
        until("the stores have ended", lambda: self._stored == before + len(keys))

    def drop(self, row: Dict[str, Any], at: Sequence[int]) -> None:
        """Has the server's memory forget chunks."""
        keys = _keys(row, at)
        until("the server's memory lets go", lambda: not self._manager.delete_l1_keys(keys)[1])

    def forget(self, row: Dict[str, Any], at: Sequence[int]) -> None:
        """Deletes chunks below the server's memory."""
        self._adapter.delete(_keys(row, at))

    def get(self, rows: Sequence[Dict[str, Any]], policy: str = "prefix") -> Dict[str, Any]:
        """Which chunks a request has, where they came from, and how many have other bytes."""
        groups = [(_keys(row, range(row["chunks"])), row.get("group", 0), row.get("window", -1)) for row in rows]
        task = PrefetchTaskSpec([GroupedObjectKeys(keys, g, _LAYOUT, window) for keys, g, window in groups], num_kv_readers=1, fetching_policy=policy)
        handle = self._manager.submit_prefetch_task(task)
        self._manager.wait_prefetch_status(handle, _SECONDS)
        result = self._manager.query_prefetch_status(handle)
        assert result is not None, "the prefetch has not ended"
        wrong, bits = 0, []
        for cells, (keys, _, _) in zip(result.hit_cells, groups):
            hit = [key for i, key in enumerate(keys) if cells.test(i)]
            bits.append("".join("01"[cells.test(i)] for i in range(len(keys))))
            if hit:
                with self._manager.read_prefetched_results(hit) as objects:
                    assert objects is not None and len(objects) == len(hit)
                    wrong += sum(bytes(memoryview(o.byte_array).cast("B")[:_BYTES]) != _content(k) for k, o in zip(hit, objects))
                self._manager.finish_read_prefetched(hit, 1)
        return {"bits": bits, "own": result.l1_hit_count, "below": result.l2_hit_count, "wrong": wrong}


def _keys(row: Dict[str, Any], at: Sequence[int]) -> List[Any]:
    world, rank = row.get("world", 1), row.get("rank", 0)
    kv_rank = ObjectKey.ComputeKVRank(world, rank, world, rank)
    names = [hashlib.sha256(f"{row['prompt']}/{i}".encode()).digest() for i in at]
    return [ObjectKey(name, row.get("model", "m"), kv_rank, row.get("group", 0), row.get("salt", "")) for name in names]


def _content(key: Any) -> bytes:
    return random.Random(repr(key)).randbytes(_BYTES)


class Connector(MockGPUConnector):
    """KV that follows from the tokens before it. What is loaded is compared."""

    def __init__(self, shape: Any) -> None:
        super().__init__(shape)
        self.tokens: List[int] = []
        self.wrong = self.loaded = 0

    def kv(self, obj: Any, start: int, end: int) -> Any:
        g = torch.Generator().manual_seed(hash((tuple(self.tokens[:end]), start)) & 0x7FFFFFFF)
        return torch.randint(0, 255, obj.tensor.shape, generator=g, dtype=torch.int32).to(torch.bfloat16)

    def batched_from_gpu(self, objects: Any, starts: Any, ends: Any, **_: Any) -> None:
        for obj, start, end in zip(objects, starts, ends):
            obj.tensor.copy_(self.kv(obj, start, end))

    def batched_to_gpu(self, objects: Any, starts: Any, ends: Any, **_: Any) -> None:
        for obj, start, end in zip(objects, starts, ends):
            self.wrong += not torch.equal(obj.tensor, self.kv(obj, start, end))
            self.loaded += end - start


class Engine:
    """The engine of one process. ``name`` tells engines of one process apart."""

    def __init__(self, config: str, name: str = "one", model: str = "m", world: int = 1, rank: int = 0) -> None:
        meta = LMCacheMetadata(model, world, world, rank, rank, torch.bfloat16, (4, 2, _CHUNK, 4, 64), role="worker", chunk_size=_CHUNK)
        self._name, self._connector = name, Connector(meta.kv_shape)
        self._engine = LMCacheEngineBuilder.get_or_create(
            name, LMCacheEngineConfig.from_file(config), meta, self._connector, mock_up_broadcast_fn, mock_up_broadcast_object_fn
        )
        self._engine.post_init()

    def close(self) -> None:
        if "RemoteBackend" not in " ".join(self.backends()):  # whose threads keep a process for ever
            LMCacheEngineBuilder.destroy(self._name)

    def backends(self) -> List[str]:
        return list(self._engine.storage_manager.storage_backends)

    def store(self, tokens: List[int]) -> None:
        self._connector.tokens = tokens
        self._engine.store(torch.tensor(tokens))

    def look(self, tokens: List[int], own: bool = False) -> Dict[str, Any]:
        """What of a prompt is found, and what was loaded; without ``own`` the engine's memory
        is emptied before."""
        self._connector.tokens, self._connector.wrong, self._connector.loaded = tokens, 0, 0
        if not own:
            self._engine.storage_manager.clear(locations=["LocalCPUBackend"])
        found = self._engine.lookup(tokens, lookup_id="look", pin=True)
        had = int(self._engine.retrieve(torch.tensor(tokens)).sum())
        self._engine.lookup_unpin("look")
        return {"found": found, "had": had, "loaded": self._connector.loaded, "wrong": self._connector.wrong}

    def clear(self) -> int:
        return int(self._engine.clear())


def make(manager: Any = None, engine: Any = None) -> Any:
    return Engine(**engine) if manager is None else Manager(manager)


if __name__ == "__main__":
    served = lines.serve(make)
    if served is not None:
        served.close()
    sys.stderr.flush()
    os._exit(0)
