"""KvstoredHiCache against a live daemon, with stand-ins for SGLang's host pools."""

import hashlib
import os
import time
from typing import Any, List, Optional, Tuple
from unittest import mock

import kvstored.pages
import kvstored.sglang
from kvstored.sglang import KvstoredHiCache

from . import frames
from .daemon import Served, until
from .sglang_pools import HostPool, chain, config, tensor

try:
    import torch
except ImportError:
    torch = None

PAGE = 16  # tokens
PAGES = 48


def mla() -> HostPool:
    return HostPool(PAGES, PAGE, [100 * 1000])


def slots(pages: List[int]) -> Any:
    return tensor([p * PAGE + t for p in pages for t in range(PAGE)])


def value(key: str, pool: HostPool) -> bytes:
    return hashlib.shake_128(key.encode()).digest(pool.bytes_of_page)


class HiCache(Served):
    dram = "128MiB"

    def backend(self, cfg: Any, pool: Optional[HostPool] = None, **extra: Any) -> KvstoredHiCache:
        cfg.extra_config = {"socket": self.daemon.socket, "timeout": 60, **extra}
        backend = KvstoredHiCache(cfg, {})
        self.addCleanup(backend.close)
        if pool is not None:
            backend.register_mem_pool_host(pool)
        return backend

    def filled(self, name: str, pool: HostPool, n: int = PAGES, **extra: Any) -> Tuple[KvstoredHiCache, List[str]]:
        """A backend with a chain of n pages stored."""
        backend, keys = self.backend(config(name), pool, **extra), chain(name, n)
        for p, key in enumerate(keys):
            pool.fill(p, value(key, pool))
        self.assertEqual(backend.batch_set_v1(keys, slots(list(range(n)))), [True] * n)
        pool.wipe()
        return backend, keys

    def test_a_leading_run(self) -> None:
        pool = mla()
        backend, keys = self.filled("run", pool, 10)
        broken = keys[:4] + chain("absent", 1) + keys[4:]
        self.assertEqual(backend.batch_exists(broken), 4)
        self.assertEqual(backend.batch_get_v1(broken, slots(list(range(11)))), [True] * 4 + [False] * 7)
        self.assertEqual(backend.batch_exists(chain("absent", 3)), 0)
        self.assertTrue(backend.exists(keys[5]))
        self.assertFalse(backend.exists(broken[4]))

    def test_more_queries_than_a_connection_has_jobs(self) -> None:
        pool = mla()
        backend, keys = self.filled("often", pool, 2)
        self.assertEqual({backend.batch_exists(keys) for _ in range(1200)}, {2})

    def test_pages_that_come_twice(self) -> None:
        pool = mla()
        backend, keys = self.filled("twice", pool, 3)
        twice = [keys[0], keys[1], keys[0], keys[2]]
        self.assertEqual(backend.batch_exists(twice), 4)
        self.assertEqual(backend.batch_exists([*twice, *chain("none", 1), keys[0]]), 4)
        self.assertEqual(backend.batch_get_v1(twice, slots([0, 1, 2, 3])), [True] * 4)
        self.assertEqual(pool.page(2), value(keys[0], pool))
        self.assertEqual(backend.batch_set_v1(twice, slots([0, 1, 2, 3])), [True] * 4)

    def test_v0(self) -> None:
        backend, keys = self.backend(config("v0"), mla()), chain("v0", 3)
        values = [os.urandom(5000) for _ in keys]
        self.assertTrue(backend.set(keys[0], values[0]))
        self.assertTrue(backend.batch_set(keys, values))
        targets = [bytearray(5000) for _ in keys]
        self.assertIs(backend.get(keys[0], targets[0]), targets[0])
        self.assertEqual(backend.batch_get(keys, targets), values)
        absent = [keys[0], *chain("none", 1), keys[1]]
        self.assertEqual(backend.batch_get(absent, targets), [values[0], None, None])
        self.assertIsNone(backend.get(absent[1], targets[0]))

    def test_tensors(self) -> None:
        if torch is None:
            self.skipTest("torch is not installed")
        backend, keys = self.backend(config("tensors"), mla()), chain("tensors", 3)
        values = [torch.rand(2, 30, 7).to(torch.float16) for _ in keys]
        self.assertTrue(backend.batch_set(keys[:2], values[:2]))
        self.assertTrue(backend.set(keys[2], values[2].transpose(0, 1).contiguous().transpose(0, 1)))  # strided
        targets = [torch.zeros(2, 30, 7, dtype=torch.float16) for _ in keys]
        for want, got in zip(values, backend.batch_get(keys, targets)):
            self.assertTrue(torch.equal(want, got))
        self.assertIsNone(backend.get(keys[0], torch.zeros(7)))  # of another size

    def test_a_stopped_daemon_is_a_miss_in_time(self) -> None:
        pool = mla()
        backend, keys = self.filled("stopped", pool, 4, timeout=600)
        patient, backend._timeout = backend._timeout, 0.3
        self.daemon.pause()
        try:
            with frames.sent() as asked:
                began = time.monotonic()
                self.assertEqual(backend.batch_exists(keys), 0)
                self.assertEqual(backend.batch_get_v1(keys, slots([0, 1, 2, 3])), [False] * 4)
                self.assertEqual(backend.batch_set_v1(chain("new", 2), slots([0, 1])), [False] * 2)
                self.assertLess(time.monotonic() - began, 60)
            self.assertTrue(asked)
            self.assertLessEqual(max(frame.left for frame in asked), 0.3)
        finally:
            self.daemon.resume()
        backend._timeout = patient
        until(lambda: backend.batch_exists(keys) == 4)
        self.assertEqual(backend.batch_get_v1(keys, slots([0, 1, 2, 3])), [True] * 4)

    def test_stats(self) -> None:
        class StorageMetrics:  # as SGLang's
            def __init__(self) -> None:
                self.prefetch_pgs, self.backup_pgs = [], []
                self.prefetch_bandwidth, self.backup_bandwidth = [], []

        with mock.patch.object(kvstored.sglang, "StorageMetrics", StorageMetrics):
            pool, cfg = mla(), config("stats")
            cfg.enable_storage_metrics = True
            backend, keys = self.backend(cfg, pool), chain("stats", 4)
            self.assertEqual(backend.batch_set_v1(keys, slots(list(range(4)))), [True] * 4)
            self.assertEqual(backend.batch_get_v1(keys[:3], slots([0, 1, 2])), [True] * 3)
            stats = backend.get_stats()
            self.assertEqual((stats.prefetch_pgs, stats.backup_pgs), ([3], [4]))
            self.assertEqual((len(stats.prefetch_bandwidth), len(stats.backup_bandwidth)), (1, 1))
            self.assertEqual(backend.get_stats().backup_pgs, [])
