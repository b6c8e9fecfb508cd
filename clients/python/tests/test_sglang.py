"""KvstoredHiCache against a live daemon, with SGLang's classes where they can be
imported and stand-ins otherwise, and stand-ins for the layouts of its host pools."""

from __future__ import annotations

import hashlib
import inspect
import os
import time
import unittest
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple
from unittest import mock

import kvstored.pages
import kvstored.sglang
from kvstored import bulk
from kvstored.memory import address
from kvstored.sglang import KvstoredHiCache

from . import frames
from .daemon import Daemon, Served, leases_stay, skip
from .frames import counted
from .stub import Hanging

try:
    from sglang.srt.mem_cache import hicache_storage as own
except ImportError:
    own = None

try:
    import torch
except ImportError:
    torch = None

PAGE = 16  # tokens
PAGES = 48


class Pool:
    """A host pool of some buffers, of which each page has a piece in every one."""

    def __init__(self, layout: str, pieces: int, size: int) -> None:
        self.layout, self.page_size, self.dtype = layout, PAGE, "bfloat16"
        self.pieces, self.size = pieces, size
        self.buffers = [bytearray(PAGES * size) for _ in range(pieces)]

    def get_page_buffer_meta(self, indices: Any) -> Tuple[List[int], List[int]]:
        indices = indices.tolist() if hasattr(indices, "tolist") else indices
        pages = [indices[i] // PAGE for i in range(0, len(indices), PAGE)]
        pointers = [address(b) + p * self.size for p in pages for b in self.buffers]
        return pointers, [self.size] * len(pointers)

    def page(self, p: int) -> bytes:
        return b"".join(b[p * self.size : (p + 1) * self.size] for b in self.buffers)

    def fill(self, p: int, value: bytes) -> None:
        for i, b in enumerate(self.buffers):
            b[p * self.size : (p + 1) * self.size] = value[i * self.size : (i + 1) * self.size]

    def wipe(self) -> None:
        for b in self.buffers:
            b[:] = bytes(len(b))


LAYOUTS = {
    "page_first MHA": lambda: Pool("page_first", 2, 64 * 1024),
    "MLA": lambda: Pool("page_first", 1, 100 * 1000),
    "layer_first": lambda: Pool("layer_first", 2 * 6, 8 * 1024),
}


def slots(pages: List[int]) -> Any:
    indices = [p * PAGE + t for p in pages for t in range(PAGE)]
    return indices if torch is None else torch.tensor(indices, dtype=torch.int64)


def config(name: str, rank: int = 0, **more: Any) -> Any:
    fields: Dict[str, Any] = dict(
        tp_rank=rank,
        tp_size=2,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=False,
        enable_storage_metrics=False,
        is_page_first_layout=True,
        model_name=name,
        **more,
    )
    if own is None:
        return SimpleNamespace(**fields)
    known = inspect.signature(own.HiCacheStorageConfig).parameters
    return own.HiCacheStorageConfig(**{k: v for k, v in fields.items() if k in known})


def chain(name: str, n: int) -> List[str]:
    return [hashlib.sha256(f"{name}/{i}".encode()).hexdigest() for i in range(n)]


def value(key: str, pool: Pool) -> bytes:
    return hashlib.shake_128(key.encode()).digest(pool.pieces * pool.size)


class HiCache(Served):
    dram = "128MiB"

    def backend(self, cfg: Any, pool: Optional[Pool] = None, **extra: Any) -> KvstoredHiCache:
        cfg.extra_config = {"socket": self.daemon.socket, "timeout": 60, **extra}
        backend = KvstoredHiCache(cfg, {})
        self.addCleanup(backend.close)
        if pool is not None:
            backend.register_mem_pool_host(pool)
        return backend

    def filled(self, name: str, pool: Pool, n: int = PAGES, **extra: Any) -> Tuple[KvstoredHiCache, List[str]]:
        """A backend with a chain of n pages stored."""
        backend, keys = self.backend(config(name), pool, **extra), chain(name, n)
        for p, key in enumerate(keys):
            pool.fill(p, value(key, pool))
        self.assertEqual(backend.batch_set_v1(keys, slots(list(range(n)))), [True] * n)
        pool.wipe()
        return backend, keys

    def test_v1_in_each_layout(self) -> None:
        for name, make in LAYOUTS.items():
            with self.subTest(name):
                pool = make()
                backend, keys = self.filled(name, pool)
                self.assertEqual(backend.batch_exists(keys), PAGES)
                order = list(reversed(range(PAGES)))
                self.assertEqual(backend.batch_get_v1(keys, slots(order)), [True] * PAGES)
                for p, key in zip(order, keys):
                    self.assertEqual(pool.page(p), value(key, pool))
                again = backend.batch_set_v1(keys, slots(order))  # present already
                self.assertEqual(again, [True] * PAGES)

    def test_a_leading_run(self) -> None:
        pool = LAYOUTS["MLA"]()
        backend, keys = self.filled("run", pool, 10)
        broken = keys[:4] + chain("absent", 1) + keys[4:]
        self.assertEqual(backend.batch_exists(broken), 4)
        self.assertEqual(backend.batch_get_v1(broken, slots(list(range(11)))), [True] * 4 + [False] * 7)
        self.assertEqual(backend.batch_exists(chain("absent", 3)), 0)
        self.assertTrue(backend.exists(keys[5]))
        self.assertFalse(backend.exists(broken[4]))

    def test_thousands_of_pages(self) -> None:
        leases_stay(self)
        pool = LAYOUTS["MLA"]()
        backend, keys = self.filled("many", pool, 40)
        with counted() as sent:
            self.assertEqual(backend.batch_exists(keys + chain("more", 4000)), 40)
            self.assertEqual(sent, ["prefetch"])  # one request, which is the hint too
            self.assertEqual([len(h.job) for h in backend._hints.held], [40])  # leased
            sent.clear()
            self.assertEqual(backend.batch_get_v1(keys, slots(list(range(40)))), [True] * 40)
            self.assertEqual(sent, ["release"])  # the lease of the question has served, and its end is not waited for
            self.assertFalse(backend._hints.held)
        self.assertEqual(pool.page(39), value(keys[39], pool))

    def test_hints_give_way(self) -> None:
        """Leases that were only taken ahead never keep a load or store from its room."""
        pool = LAYOUTS["layer_first"]()
        with Daemon(dram="32MiB") as daemon:
            backend = self.backend(config("room"), pool, socket=daemon.socket)
            for part in range(6):  # 4.5 MiB each: two of them are more than this client may lease
                keys = chain(f"room{part}", PAGES)
                for p, key in enumerate(keys):
                    pool.fill(p, value(key, pool))
                self.assertEqual(backend.batch_set_v1(keys, slots(list(range(PAGES)))), [True] * PAGES)
                self.assertEqual(backend.batch_exists(keys), PAGES)
                pool.wipe()
                self.assertEqual(backend.batch_get_v1(keys, slots(list(range(PAGES)))), [True] * PAGES)
                self.assertEqual(pool.page(PAGES - 1), value(keys[-1], pool))

    def test_more_queries_than_a_connection_has_jobs(self) -> None:
        pool = LAYOUTS["MLA"]()
        backend, keys = self.filled("often", pool, 2)
        self.assertEqual({backend.batch_exists(keys) for _ in range(1200)}, {2})

    def test_pages_that_come_twice(self) -> None:
        pool = LAYOUTS["MLA"]()
        backend, keys = self.filled("twice", pool, 3)
        twice = [keys[0], keys[1], keys[0], keys[2]]
        self.assertEqual(backend.batch_exists(twice), 4)
        self.assertEqual(backend.batch_exists([*twice, *chain("none", 1), keys[0]]), 4)
        self.assertEqual(backend.batch_get_v1(twice, slots([0, 1, 2, 3])), [True] * 4)
        self.assertEqual(pool.page(2), value(keys[0], pool))
        self.assertEqual(backend.batch_set_v1(twice, slots([0, 1, 2, 3])), [True] * 4)

    def test_a_short_value_is_false(self) -> None:
        pool = LAYOUTS["MLA"]()
        backend, keys = self.filled("short", pool, 3)
        pool.size += 1
        pool.buffers = [bytearray(PAGES * pool.size)]
        self.assertEqual(backend.batch_get_v1(keys, slots([0, 1, 2])), [False] * 3)

    def test_a_bad_checksum_is_false(self) -> None:
        if not bulk.SUMS:
            skip(self, "neither the extension nor libxxhash is here: nothing is verified")
        pool = LAYOUTS["MLA"]()
        backend, keys = self.filled("sum", pool, 3)
        copy = bulk.copy

        def wrong(*args: Any) -> List[int]:
            return [total ^ (i == 1) for i, total in enumerate(copy(*args))]  # of the second page

        with mock.patch.object(bulk, "copy", wrong):
            self.assertEqual(backend.batch_get_v1(keys, slots([0, 1, 2])), [True, False, False])

    def test_v0(self) -> None:
        backend, keys = self.backend(config("v0"), LAYOUTS["MLA"]()), chain("v0", 3)
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
        backend, keys = self.backend(config("tensors"), LAYOUTS["MLA"]()), chain("tensors", 3)
        values = [torch.rand(2, 30, 7).to(torch.float16) for _ in keys]
        self.assertTrue(backend.batch_set(keys[:2], values[:2]))
        self.assertTrue(backend.set(keys[2], values[2].transpose(0, 1).contiguous().transpose(0, 1)))  # strided
        targets = [torch.zeros(2, 30, 7, dtype=torch.float16) for _ in keys]
        for want, got in zip(values, backend.batch_get(keys, targets)):
            self.assertTrue(torch.equal(want, got))
        self.assertIsNone(backend.get(keys[0], torch.zeros(7)))  # of another size

    def test_nothing_raises(self) -> None:
        backend, keys = self.backend(config("wrong")), chain("wrong", 2)  # no pool registered
        self.assertEqual(backend.batch_get_v1(keys, slots([0, 1])), [False] * 2)
        self.assertEqual(backend.batch_set_v1(keys, slots([0, 1])), [False] * 2)
        self.assertEqual(backend.batch_get(keys, None), [None] * 2)
        self.assertFalse(backend.batch_set(keys, [object(), object()]))
        self.assertEqual(backend.batch_exists(None), 0)
        self.assertIsNone(backend.clear())
        self.assertIsNone(backend.get_stats())
        with self.assertRaises(ValueError):  # but the constructor, at once
            KvstoredHiCache(config(""))

    def test_a_stopped_daemon_is_a_miss_in_time(self) -> None:
        pool = LAYOUTS["MLA"]()
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
        deadline = time.monotonic() + 60
        while backend.batch_exists(keys) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(backend.batch_get_v1(keys, slots([0, 1, 2, 3])), [True] * 4)

    def test_stats(self) -> None:
        class StorageMetrics:  # as SGLang's
            def __init__(self) -> None:
                self.prefetch_pgs, self.backup_pgs = [], []
                self.prefetch_bandwidth, self.backup_bandwidth = [], []

        with mock.patch.object(kvstored.sglang, "StorageMetrics", StorageMetrics):
            pool, cfg = LAYOUTS["MLA"](), config("stats")
            cfg.enable_storage_metrics = True
            backend, keys = self.backend(cfg, pool), chain("stats", 4)
            self.assertEqual(backend.batch_set_v1(keys, slots(list(range(4)))), [True] * 4)
            self.assertEqual(backend.batch_get_v1(keys[:3], slots([0, 1, 2])), [True] * 3)
            stats = backend.get_stats()
            self.assertEqual((stats.prefetch_pgs, stats.backup_pgs), ([3], [4]))
            self.assertEqual((len(stats.prefetch_bandwidth), len(stats.backup_bandwidth)), (1, 1))
            self.assertEqual(backend.get_stats().backup_pgs, [])


class Absent(unittest.TestCase):
    def test_a_hanging_daemon_is_a_miss(self) -> None:
        with Hanging() as socket:
            cfg = config("hang")
            cfg.extra_config = {"socket": socket, "timeout": 0.2}
            backend, keys = KvstoredHiCache(cfg, {}), chain("hang", 100)
            self.addCleanup(backend.close)
            backend.register_mem_pool_host(LAYOUTS["MLA"]())
            with counted() as asked:
                self.assertEqual(backend.batch_exists(keys), 0)
                self.assertEqual(backend.batch_get_v1(keys[:2], slots([0, 1])), [False] * 2)
            self.assertEqual(asked, [])  # so nothing waits


if __name__ == "__main__":
    unittest.main()
