"""KvstoredL2Adapter under the calls of LMCache's multi-process server, against a live daemon."""

from __future__ import annotations

import os
import random
import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence
from unittest import mock

from kvstored import lmcache_l2
from kvstored.lmcache_keys import grids
from kvstored.lmcache_l2 import KvstoredL2Adapter

from .clock import FAR, FastClock
from .daemon import Daemon, Served
from .frames import counted, left, run_of
from .lmcache_engine import Controllers, Memory, Object, ObjectKey, rank, succeeded
from .test_lmcache_backend import HISTORIES, hashed, wait_for
from .test_prefill import Clock

SIZE = 2000


def prompt(name: Any, n: int, after: Sequence[bytes] = ()) -> List[bytes]:
    return [*after, *(hashed(name, i) for i in range(len(after), n))]


def keys_of(chunks: Sequence[bytes], world: int = 1, ranks: Sequence[int] = (), groups: int = 1, **more: Any) -> List[ObjectKey]:
    """Chunk by chunk, of each rank and group."""
    workers = ranks or range(world)
    return [ObjectKey(c, kv_rank=rank(world, w), object_group_id=g, **more) for c in chunks for w in workers for g in range(groups)]


def right(key: ObjectKey, size: int = SIZE) -> bytes:
    return (hashed(key) * (size // 32 + 1))[:size]


class Case(Served):
    def adapter(self, socket: str = "", **params: Any) -> Controllers:
        given = {"socket": socket or self.daemon.socket, "lookup_timeout": 60, "transfer_timeout": 60, **params}
        adapter = KvstoredL2Adapter(given)
        self.addCleanup(adapter.close)
        adapter._client.wait_attached(60 if not socket.startswith("/non") else 0)
        return Controllers(adapter)

    def objects(self, keys: Sequence[ObjectKey], size: int = SIZE, blank: bool = False) -> List[Object]:
        memory, made = Memory(1 << 30), []
        for key in keys:
            obj = memory.allocate((1, size // 2), "uint8", 4)
            assert obj is not None
            obj._bytes[:] = bytes(size) if blank else right(key, size)
            made.append(obj)
        return made

    def store(self, c: Controllers, keys: List[ObjectKey]) -> None:
        self.assertTrue(c.store(keys, self.objects(keys)))

    def check(self, c: Controllers, keys: List[ObjectKey], there: List[bool]) -> None:
        objects = self.objects(keys, blank=True)
        self.assertEqual(c.load(keys, objects), there)
        for key, obj, ok in zip(keys, objects, there):
            if ok:
                self.assertEqual(bytes(obj.byte_array), right(key), key)


class Calls(Case):
    def test_store_lookup_load(self) -> None:
        c, keys = self.adapter(), keys_of(prompt("first", 5))
        self.assertEqual(c.lookup(keys), [False] * 5)
        self.store(c, keys)
        absent = keys_of(prompt("absent", 2))
        self.assertEqual(c.lookup([*keys, *absent]), [True] * 5 + [False] * 2)
        self.check(c, keys, [True] * 5)
        c.adapter.submit_unlock(keys)
        self.assertEqual(c.adapter._held._of, {})

    def test_layouts_change_no_answer(self) -> None:
        """Of each group, of some, of others, as the one that 0.5.2 gave, by name, or not at all."""
        c, keys = self.adapter(), keys_of(prompt("layouts", 3), groups=2)
        self.store(c, keys[:4])
        there = [True] * 4 + [False] * 2
        layout = SimpleNamespace(shapes=[(2, 4, 256, 64)], dtypes=["bfloat16"])
        for layouts in ({0: layout, 1: layout}, {1: layout}, {7: None}, {}, [], layout, "0"):
            with self.subTest(layouts=layouts):
                self.assertEqual(c.lookup(keys, layouts), there)
        submit, query = c.adapter.submit_lookup_and_lock_task, c.adapter.query_lookup_and_lock_result
        for task in (submit(keys), submit(keys, None), submit(keys=keys, group_layout_descs={0: layout}), submit(keys, layout_desc=layout)):
            self.assertEqual(c._bits(1, task, query, keys), there)
        self.assertEqual(c.lookup([], {0: layout}), [])

    def test_what_it_is_called(self) -> None:
        adapter = self.adapter().adapter
        if not hasattr(adapter, "set_backend_identity"):
            self.skipTest("LMCache's adapters have names from 0.5.3 on")
        adapter.set_backend_identity("plugin", shared=True)
        self.assertEqual((adapter._backend_name, adapter._shared), ("plugin", True))
        adapter.set_backend_identity("kvstored")
        self.assertEqual((adapter._backend_name, adapter._shared), ("kvstored", False))
        for wrong in ("", None):
            with self.assertRaises(ValueError):
                adapter.set_backend_identity(wrong, True)
        self.assertEqual((adapter._backend_name, adapter._shared), ("kvstored", False))

    def test_one_request_for_a_lookup_and_two_for_a_load(self) -> None:
        """Also of four ranks with two groups each."""
        for world, groups in ((1, 1), (4, 2)):
            c, keys = self.adapter(), keys_of(prompt("frames", 512 // world), world, groups=groups)
            for w in range(world):
                self.store(c, [k for k in keys if k.kv_rank == rank(world, w)])
            c.lookup(keys[:1])
            c.lookup(keys)  # all spaces are open
            with counted() as sent:
                self.assertEqual(c.lookup(keys), [True] * len(keys))
                self.assertEqual(sent, ["prefetch"])
                sent.clear()
                self.check(c, keys, [True] * len(keys))
                self.assertEqual(sent, ["prefetch", "release"])
            c.adapter.close()

    def test_measured_prefill_rate(self) -> None:
        c, clock = self.adapter(prefill_tokens_per_second="measured", prefill_depth=8000), Clock()
        c.adapter._prefill._clock = clock
        for n in range(8):
            self.assertEqual(c.adapter._prefill.rate, 0)
            keys = keys_of(prompt(f"measured {n}", 10), 2)
            self.assertEqual(c.lookup(keys), [False] * 20)
            clock.now += 2.56
            self.store(c, keys)
        self.assertEqual((c.adapter._prefill.rate, list(c.adapter._prefill.says())), (1000, [("prefill_depth", "8000")]))
        self.assertEqual(c.lookup(keys), [True] * 20)  # they are in DRAM

    def test_a_chunk_counts_if_all_ranks_have_it(self) -> None:
        c, chunks = self.adapter(), prompt("ranks", 4)
        self.store(c, keys_of(chunks, 2, [0]))
        self.store(c, keys_of(chunks[:3], 2, [1]))
        keys = keys_of(chunks, 2)
        self.assertEqual(c.lookup(keys), [True] * 6 + [False] * 2)
        self.check(c, keys[:6], [True] * 6)
        self.assertEqual(c.lookup(keys_of(chunks, 2, [0])), [True] * 4)

    def test_groups_of_other_chunks(self) -> None:
        """A group that keeps the last chunks only is asked for by itself."""
        c, chunks = self.adapter(), prompt("window", 6)
        whole, last = keys_of(chunks), [ObjectKey(h, object_group_id=1) for h in chunks[4:]]
        mixed = [k for h in chunks for k in (*whole, *last) if k.chunk_hash == h]
        self.store(c, mixed)
        self.assertEqual(c.lookup(mixed), [True] * 8)
        self.check(c, mixed, [True] * 8)

    def test_salts_models_and_ranks_do_not_meet(self) -> None:
        c, chunks = self.adapter(), prompt("apart", 2)
        self.store(c, keys_of(chunks, cache_salt="tenant"))
        for other in (keys_of(chunks), keys_of(chunks, cache_salt="other"), keys_of(chunks, 2, [0], cache_salt="tenant")):
            self.assertEqual(c.lookup(other), [False] * 2)
        self.assertEqual(c.lookup(keys_of(chunks, cache_salt="tenant", model_name="qwen")), [False] * 2)
        both = [*keys_of(chunks, cache_salt="tenant"), *keys_of(chunks)]
        self.assertEqual(c.lookup(both), [True] * 2 + [False] * 2)

    def test_chains_equal_the_prompts(self) -> None:
        """Of a prompt that is evicted in part, its beginning stays; also what two share."""
        with Daemon(dram="16MiB") as daemon:
            c = self.adapter(daemon.socket)
            first = prompt("chain", 40)
            second = prompt("branch", 60, after=first[:20])
            for chunks in (first, second[:30], second):
                keys = keys_of(chunks)
                n = sum(c.lookup(keys))
                self.store_large(c, keys[n:])
            (grid,) = grids(keys_of(second), c.adapter._names)
            for i in range(100):
                self.store_large(c, keys_of(prompt(("other", i), 3)))
                a, b = (run_of(left(c.adapter._client, grid.spaces[0], chunks)) for chunks in (first, second))
                self.assertTrue(min(a, b) >= 0 and (min(a, b) >= 20 or a == b), (a, b))
                if 0 < b < 60:
                    return
            self.fail("nothing was evicted in part")

    def store_large(self, c: Controllers, keys: List[ObjectKey]) -> None:
        self.assertTrue(c.store(keys, self.objects(keys, size=100_000)))

    def test_what_lacked_its_beginning_is_found(self) -> None:
        """The server's own memory had it; another server, or this one later, asks for all."""
        c, first = self.adapter(), prompt("shared", 4)
        self.store(c, keys_of(first))
        longer = prompt("longer", 9, after=first)
        c.lookup(keys_of(longer[4:]))
        self.store(c, keys_of(longer[4:]))
        for server in (c, self.adapter()):
            for _ in range(20):
                server.lookup(keys_of(prompt("absent", 3)))
            self.assertEqual(server.lookup(keys_of(longer)), [True] * 9)
            self.check(server, keys_of(longer), [True] * 9)

    def test_results_are_given_out_once(self) -> None:
        """As many tasks at a time as there may be; the controllers assert it."""
        c, keys = self.adapter(), keys_of(prompt("once", 3))
        self.store(c, keys)
        tasks = [c.adapter.submit_lookup_and_lock_task(keys) for _ in range(50)]
        results: Dict[int, Any] = {}
        self.assertTrue(wait_for(lambda: results.update({t: r for t in tasks if (r := c.adapter.query_lookup_and_lock_result(t)) is not None}) or len(results) == 50))
        self.assertTrue(all(r.test(i) for r in results.values() for i in range(3)))
        self.assertTrue(all(c.adapter.query_lookup_and_lock_result(t) is None for t in (*tasks, 999)))
        for _ in range(50):
            c.adapter.submit_unlock(keys)
        self.assertEqual((len(c.adapter._held._leases), c.adapter._held._of), (0, {}))

    def test_locks_end_by_themselves(self) -> None:
        c, keys = self.adapter(lock_seconds=0.2), keys_of(prompt("locks", 3))
        self.store(c, keys)
        self.assertEqual(c.lookup(keys), [True] * 3)
        self.assertTrue(wait_for(lambda: not c.adapter._held._leases and not c.adapter._held._of))
        c.adapter.submit_unlock(keys)  # never an error

    def test_buffers_of_another_size(self) -> None:
        c, keys = self.adapter(), keys_of(prompt("sizes", 3))
        self.store(c, keys)
        objects = self.objects(keys, size=SIZE + 2, blank=True)
        self.assertEqual(c.load(keys, objects), [False] * 3)

    def test_delete_list_usage_status(self) -> None:
        c = self.adapter()
        keys = [*keys_of(prompt("listed", 4)), *keys_of(prompt("salted", 2), cache_salt="s"), ObjectKey(hashed(1), "qwen")]
        self.store(c, keys)
        used = c.adapter.get_usage()
        self.assertEqual((used.total_bytes_used, used.total_capacity_bytes), (7 * SIZE, 0))
        self.assertEqual(used.bytes_by_cache_salt, {"": 5 * SIZE, "s": 2 * SIZE})
        page = c.adapter.list_l2_keys(model_name="llama", page_size=4)
        rest = c.adapter.list_l2_keys(model_name="llama", page_size=4, cursor=page.next_page_token)
        self.assertEqual({e.key for e in (*page.entries, *rest.entries)}, set(keys[:6]))
        self.assertIsNone(rest.next_page_token)
        for wrong in ({"page_size": 0}, {"cursor": "x"}):
            with self.assertRaises(ValueError):
                c.adapter.list_l2_keys(**wrong)
        c.adapter.delete(keys[:2])
        self.assertEqual(c.lookup(keys[:4]), [False] * 4)
        self.assertEqual(c.lookup(keys[2:4]), [True] * 2)
        self.assertEqual(len(c.adapter.list_l2_keys().entries), 5)
        self.assertTrue(c.adapter.report_status()["is_healthy"])

    def test_listeners_are_told(self) -> None:
        told: List[Any] = []

        class Adapter(KvstoredL2Adapter):
            def _notify_keys_stored(self, keys: Any, sizes: Any) -> None:
                told.append(("stored", len(keys), sum(sizes)))

            def _notify_keys_accessed(self, keys: Any) -> None:
                told.append(("accessed", len(keys)))

            def _notify_keys_deleted(self, keys: Any) -> None:  # of an older version
                told.append(("deleted", len(keys)))

        adapter = Adapter({"socket": self.daemon.socket, "lookup_timeout": 60, "transfer_timeout": 60})
        self.addCleanup(adapter.close)
        adapter._client.wait_attached(60)
        c, keys = Controllers(adapter), keys_of(prompt("told", 3))
        self.store(c, keys)
        c.lookup(keys)
        adapter.delete(keys)
        self.assertEqual(told, [("stored", 3, 3 * SIZE), ("accessed", 3), ("deleted", 3)])


class Trouble(Case):
    def test_nothing_waits_for_a_daemon_that_hangs(self) -> None:
        c, keys = self.adapter(lookup_timeout=FAR, transfer_timeout=FAR), keys_of(prompt("held", 4))
        self.store(c, keys)
        clock = FastClock(self)
        self.daemon.pause()
        try:
            with counted() as sent:
                lookups = [c.adapter.submit_lookup_and_lock_task(keys) for _ in range(100)]
                store = c.adapter.submit_store_task(keys_of(prompt("late", 2)), self.objects(keys[:2]))
                load = c.adapter.submit_load_task(keys, self.objects(keys, blank=True))
                c.adapter.submit_unlock(keys)
                self.assertIsNone(c.adapter.query_lookup_and_lock_result(lookups[0]))
                with clock.hurried():
                    found = [c._bits(1, t, c.adapter.query_lookup_and_lock_result, keys) for t in lookups]
                    self.assertEqual(found, [[False] * 4] * 100)
                    self.assertEqual(c._bits(2, load, c.adapter.query_load_result, keys), [False] * 4)
                    done: Dict[int, Any] = {}
                    self.assertTrue(wait_for(lambda: done.update(c.adapter.pop_completed_store_tasks()) or store in done))
                    self.assertFalse(succeeded(done[store]))
            self.assertLess(len(sent), 8)  # most of them ask nothing
        finally:
            self.daemon.resume()
        self.assertTrue(wait_for(lambda: c.lookup(keys) == [True] * 4))

    def test_nobody_asks_for_results(self) -> None:
        """They do not pile up: of very many the youngest are kept."""
        with mock.patch.object(lmcache_l2, "_RESULTS", 8):
            c, keys = self.adapter(), keys_of(prompt("asked", 2))
            self.store(c, keys)
            tasks = [c.adapter.submit_lookup_and_lock_task(keys) for _ in range(40)]
            results = c.adapter._kinds["lookup"]._results
            self.assertTrue(wait_for(lambda: c.adapter._kinds["lookup"]._waiting == 0))
            self.assertEqual(len(results), 8)
            self.assertTrue(set(results) <= set(tasks))
            self.assertIsNone(c.adapter.query_lookup_and_lock_result(next(t for t in tasks if t not in results)))
            self.assertEqual(c._bits(1, next(iter(results)), c.adapter.query_lookup_and_lock_result, keys), [True] * 2)

    def test_killed_and_started_again(self) -> None:
        with Daemon() as daemon:
            c = self.adapter(socket=daemon.socket, lookup_timeout=1, transfer_timeout=2)
            failures: List[BaseException] = []
            stop = threading.Event()

            def work() -> None:
                i = 0
                try:
                    while not stop.is_set():
                        i += 1
                        keys = keys_of(prompt(("killed", i % 5), 10))
                        c.store(keys, self.objects(keys))
                        there = c.lookup(keys)
                        objects = self.objects(keys, blank=True)
                        for key, obj, ok in zip(keys, objects, c.load(keys, objects)):
                            assert not ok or bytes(obj.byte_array) == right(key)
                        c.adapter.submit_unlock([k for k, ok in zip(keys, there) if ok])
                except BaseException as e:
                    failures.append(e)

            thread = threading.Thread(target=work)
            thread.start()
            for _ in range(3):
                time.sleep(0.3)
                daemon.kill()
                daemon.start()
                daemon.wait()
            time.sleep(0.3)
            stop.set()
            thread.join(60)
            self.assertEqual(failures, [])

    def test_without_a_daemon(self) -> None:
        c, keys = self.adapter("/nonexistent/s", lookup_timeout=0.2, transfer_timeout=0.2), keys_of(prompt("none", 3))
        self.assertEqual(c.lookup(keys), [False] * 3)
        self.assertFalse(c.store(keys, self.objects(keys)))
        self.assertEqual(c.load(keys, self.objects(keys)), [False] * 3)
        c.adapter.delete(keys)
        self.assertFalse(c.adapter.report_status()["is_healthy"])

    def test_keys_that_are_none(self) -> None:
        c = self.adapter()
        odd: List[Any] = [object(), 5]
        self.assertEqual(c.lookup(odd), [False] * 2)
        self.assertFalse(c.store(odd, self.objects(keys_of(prompt("odd", 2)))))
        self.assertEqual(c.load(odd, [None, None]), [False] * 2)  # type: ignore[list-item]
        c.adapter.submit_unlock(odd)
        c.adapter.submit_unlock(None)  # type: ignore[arg-type]

    def test_closed(self) -> None:
        """The descriptors are closed with the adapter, and nothing is touched afterwards."""
        adapter = KvstoredL2Adapter({"socket": self.daemon.socket})
        fds = Controllers(adapter).fds
        adapter.close()
        adapter.close()
        for fd in fds:
            with self.assertRaises(OSError):
                os.fstat(fd)
        task = adapter.submit_lookup_and_lock_task(keys_of(prompt("closed", 2)))
        self.assertFalse(adapter.query_lookup_and_lock_result(task).test(0))


class Options(unittest.TestCase):
    def test_wrong_ones(self) -> None:
        wrong: Dict[str, List[Any]] = {
            "socket": ["", 5, b"/s"],
            "chunk_tokens": [0, -1, 1 << 17, "256", 1.5, True],
            "lookup_timeout": ["0.5", 0, -1, True, None],
            "transfer_timeout": ["1", 0, 1e9],
            "lock_seconds": [0, "30", None],
            "verify": ["true", 1],
            "check_existing": [-1, "256", 1.5],
            "revision": [1, None],
            "namespace": [1, "x" * 2000],
            "prefill_tokens_per_second": [-1, "8000", True],
            "prefill_depth": [0, -1, "30k", 1.5],
            "host": ["127.0.0.1"],
        }
        for key, values in wrong.items():
            for value in values:
                with self.subTest(key, value=value), self.assertRaisesRegex(ValueError, f"KvstoredL2Adapter.*{key}"):
                    KvstoredL2Adapter({key: value})


class Histories(Case):
    dram = "512MiB"

    def test_histories(self) -> None:
        """Random stores, lookups, loads and deletions equal a dict."""
        r = random.Random(int(os.environ.get("KVSTORED_SEED", "20")))
        servers = [self.adapter(namespace="histories") for _ in range(2)]
        for history in range(HISTORIES):
            stored: set = set()
            world = r.choice((1, 2))
            chunks = [prompt((history, p), 8, after=prompt((history,), r.randint(0, 5))) for p in range(2)]
            for _ in range(r.randint(3, 9)):
                c = r.choice(servers)
                mine = r.choice(chunks)[: r.randint(1, 8)]
                keys = keys_of(mine, world)
                n = next((i for i, k in enumerate(keys) if k not in stored), len(keys)) // world
                step = r.choices(("store", "load", "delete"), (5, 5, 1))[0]
                with self.subTest(history=history, step=step):
                    if step == "store":
                        some = keys_of(mine[r.randint(0, len(mine) - 1) :], world, [r.randrange(world)] if r.random() < 0.5 else ())
                        self.store(c, some)
                        stored.update(some)
                    elif step == "delete":
                        gone = r.sample(keys, r.randint(1, len(keys)))
                        c.adapter.delete(gone)
                        stored -= set(gone)
                    else:
                        there = [i < n * world for i in range(len(keys))]
                        self.assertEqual(c.lookup(keys), there)
                        self.check(c, keys, there)
                        c.adapter.submit_unlock(keys[: n * world])
        for c in servers:
            self.assertEqual(c.adapter._held._of, {})


if __name__ == "__main__":
    unittest.main()
