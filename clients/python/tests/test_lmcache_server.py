"""KvstoredL2Adapter under LMCache's own storage manager and controllers, as of 0.5.6, where
that is installed, against a live daemon."""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import unittest
from typing import Any, List, Sequence, Tuple

from .daemon import Daemon, Served
from .test_lmcache_backend import wait_for

try:
    import torch
    from lmcache.v1.distributed import api, config
    from lmcache.v1.distributed.l2_adapters.config import add_l2_adapters_args, parse_args_to_l2_adapters_config
    from lmcache.v1.distributed.storage_manager import StorageManager

    LAYOUT = api.MemoryLayoutDesc(shapes=[torch.Size([2, 2, 256, 32])], dtypes=[torch.bfloat16])
    _Spec, _Group = api.PrefetchTaskSpec, api.GroupedObjectKeys
    MISSING = ""
except (ImportError, AttributeError) as e:
    MISSING = f"no LMCache with the storage manager of 0.5.6 here: {e}"

SIZE = 2 * 2 * 256 * 32 * 2


def keys_of(name: str, n: int, model: str = "llama", rank: Tuple[int, int] = (1, 0), group: int = 0, salt: str = "") -> List[Any]:
    world, worker = rank
    kv_rank = api.ObjectKey.ComputeKVRank(world, worker, world, worker)
    return [api.ObjectKey(hashlib.sha256(f"{name}/{i}".encode()).digest(), model, kv_rank, group, salt) for i in range(n)]


def right(key: Any) -> bytes:
    return random.Random(repr(key)).randbytes(SIZE)


class Server:
    """LMCache's, as far as it stores and prefetches."""

    def __init__(self, socket: str) -> None:
        params = {"socket": socket, "lookup_timeout": 60, "transfer_timeout": 60}
        line = {"type": "plugin", "module_path": "kvstored.lmcache_l2", "class_name": "KvstoredL2Adapter", "adapter_params": params}
        given = add_l2_adapters_args(argparse.ArgumentParser()).parse_args(["--l2-adapter", json.dumps({**line, "shared": True})])
        memory = config.L1ManagerConfig(config.L1MemoryManagerConfig(16 << 20, False, shm_name=""))
        adapters = parse_args_to_l2_adapters_config(given)
        self.manager = StorageManager(config.StorageManagerConfig(memory, config.EvictionConfig("LRU"), adapters))
        (self.adapter,) = self.manager._l2_adapters.values()

    def write(self, keys: Sequence[Any]) -> None:
        objects = self.manager.reserve_write(keys, LAYOUT)
        assert set(objects) == set(keys)
        for key, obj in objects.items():
            memoryview(obj.byte_array).cast("B")[:SIZE] = right(key)
        self.manager.finish_write(list(objects))

    def store(self, keys: Sequence[Any]) -> None:
        """Returns when the adapter lists them, and the server's own memory has none of them."""
        self.write(keys)
        assert wait_for(lambda: set(keys) <= set(self.adapter._listed))
        self.drop(keys)

    def drop(self, keys: Sequence[Any]) -> None:
        assert wait_for(lambda: not self.manager.delete_l1_keys(list(keys))[1])

    def fetch(self, *rows: Sequence[Any]) -> List[Tuple[int, int]]:
        """How many of each row come from the server's memory and from the adapter; all bytes
        are compared."""
        spec = _Spec([_Group(list(row), row[0].object_group_id, LAYOUT, -1) for row in rows], num_kv_readers=1, fetching_policy="prefix")
        handle = self.manager.submit_prefetch_task(spec)
        assert self.manager.wait_prefetch_status(handle, 120)
        result = self.manager.query_prefetch_status(handle)
        for row, cells in zip(rows, result.hit_cells):
            hit = cells.gather(list(row))
            if not hit:
                continue
            with self.manager.read_prefetched_results(hit) as objects:
                for key, obj in zip(hit, objects):
                    assert bytes(memoryview(obj.byte_array).cast("B")[:SIZE]) == right(key), key
            self.manager.finish_read_prefetched(hit, 1)
        for row in rows:
            self.drop(row)
        return [(l1.popcount(), l2.popcount()) for l1, l2 in zip(result.l1_hit_cells, result.l2_hit_cells)]


@unittest.skipIf(MISSING, MISSING)
class Live(Served):
    def server(self, socket: str = "") -> Server:
        server = Server(socket or self.daemon.socket)
        self.addCleanup(server.manager.close)
        server.adapter._client.wait_attached(60)
        return server

    def test_prefixes(self) -> None:
        s, keys = self.server(), keys_of("prefixes", 12)
        self.assertEqual(s.fetch(keys), [(0, 0)])
        s.store(keys[:7])
        self.assertEqual(s.fetch(keys), [(0, 7)])
        s.store(keys[7:])
        self.assertEqual(s.fetch(keys), [(0, 12)])
        self.assertEqual(self.server().fetch(keys), [(0, 12)])  # another server
        for other in (dict(model="qwen"), dict(salt="tenant"), dict(rank=(2, 1)), dict(group=1)):
            self.assertEqual(s.fetch(keys_of("prefixes", 12, **other)), [(0, 0)], other)

    def test_ranks(self) -> None:
        s, rows = self.server(), [keys_of("ranks", 6, rank=(2, r)) for r in (0, 1)]
        s.store(rows[0])
        s.store(rows[1][:4])
        self.assertEqual(s.fetch(*rows), [(0, 4), (0, 4)])

    def test_locks_are_given_back(self) -> None:
        s, keys = self.server(), keys_of("locks", 5)
        s.store(keys)
        self.assertEqual(s.fetch(keys), [(0, 5)])
        self.assertTrue(wait_for(lambda: not s.adapter._held._of))

    def test_what_it_is_called(self) -> None:
        adapter = self.server().adapter
        self.assertEqual((adapter._backend_name, adapter._shared), ("plugin", True))

    def test_a_daemon_that_ends_and_comes_again(self) -> None:
        with Daemon(disk="512MiB") as daemon:
            s, keys, kept = self.server(daemon.socket), keys_of("again", 8), keys_of("kept", 2)
            s.store(keys)
            daemon.process.terminate()  # type: ignore[union-attr]
            daemon.process.wait(60)  # type: ignore[union-attr]
            s.write(kept)
            self.assertEqual(s.fetch(kept), [(2, 0)])
            self.assertEqual(s.fetch(keys), [(0, 0)])
            daemon.start()
            daemon.wait()
            s.adapter._client.wait_attached(60)
            self.assertEqual(s.fetch(keys), [(0, 8)])


if __name__ == "__main__":
    unittest.main()
