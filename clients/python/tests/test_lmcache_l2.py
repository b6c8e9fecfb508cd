"""KvstoredL2Adapter under the calls of LMCache's multi-process server, against a live daemon."""

import os
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence
from unittest import mock

from kvstored._connection import Link
from kvstored.client import Asking
from kvstored.lmcache.keys import grids

from .clock import FAR, FastClock
from .common import Common, hashed
from .daemon import Served, until
from .frames import counted, left
from .lmcache_engine import Controllers, Memory, Object, ObjectKey, l2, rank

KvstoredL2Adapter = l2.KvstoredL2Adapter

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
    def test_layouts_change_no_answer(self) -> None:
        """Of each group, of some, of others, as the one that 0.5.0 gave, by name, or not at all."""
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

    def test_many_spaces_are_one_question(self) -> None:
        """As LMCache's benchmark asks: of each rank other keys. What is missing ends none of them."""
        c, chunks = self.adapter(), prompt("many", 24)
        keys = [ObjectKey(chunk, kv_rank=rank(12, i // 2)) for i, chunk in enumerate(chunks)]
        there = [i % 3 != 1 for i in range(24)]
        self.store(c, [k for k, yes in zip(keys, there) if yes])
        c.lookup(keys)  # the spaces are open
        with counted() as sent:
            self.assertEqual(c.lookup(keys), there)
            self.assertEqual([op for op in sent if op != "release"], ["batch"])
            sent.clear()
            self.check(c, keys, there)
            self.assertEqual(sent[0], "batch")
        with mock.patch.object(Link, "_send", autospec=True, side_effect=Link._send) as send:
            c.adapter.submit_unlock([k for k, yes in zip(keys, there) if yes] * 2)
        self.assertLess(send.call_count, 4, "messages that give 24 leases back")
        self.assertFalse(c.adapter._held._leases)

    def test_what_is_missing_ends_nothing(self) -> None:
        """One question for all keys; what is loaded follows no other than in the prompt."""
        c, keys = self.adapter(), keys_of(prompt("holes", 12))
        there = [i not in (0, 3, 7) for i in range(12)]
        self.store(c, [k for k, yes in zip(keys, there) if yes])
        with counted() as sent:
            self.assertEqual(c.lookup(keys), there)
            self.assertEqual([op for op in sent if op != "open_space"], ["prefetch"])
        self.check(c, keys, there)
        self.check(c, keys[5:9], there[5:9])
        c.adapter.submit_unlock([k for k, yes in zip(keys, there) if yes])
        self.assertFalse(c.adapter._held._leases)
        self.assertEqual(c.adapter._client.stats()["store"]["inconsistent_chunks"], 0)

    def test_results_are_given_out_once(self) -> None:
        """As many tasks at a time as there may be; the controllers assert it."""
        c, keys = self.adapter(), keys_of(prompt("once", 3))
        self.store(c, keys)
        tasks = [c.adapter.submit_lookup_and_lock_task(keys) for _ in range(50)]
        results: Dict[int, Any] = {}
        until(lambda: results.update({t: r for t in tasks if (r := c.adapter.query_lookup_and_lock_result(t)) is not None}) or len(results) == 50)
        self.assertTrue(all(r.test(i) for r in results.values() for i in range(3)))
        self.assertTrue(all(c.adapter.query_lookup_and_lock_result(t) is None for t in (*tasks, 999)))
        for _ in range(50):
            c.adapter.submit_unlock(keys)
        self.assertFalse(c.adapter._held._leases)

    def test_locks_end_by_themselves(self) -> None:
        c, keys = self.adapter(lock_seconds=0.2), keys_of(prompt("locks", 3))
        self.store(c, keys)
        self.assertEqual(c.lookup(keys), [True] * 3)
        until(lambda: not c.adapter._held._leases)
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
        self.assertEqual(c.lookup(keys[:4]), [False] * 2 + [True] * 2)
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

            def _notify_keys_deleted(self, keys: Any, sizes: Any) -> None:
                told.append(("deleted", len(keys), sum(sizes)))

        adapter = Adapter({"socket": self.daemon.socket, "lookup_timeout": 60, "transfer_timeout": 60})
        self.addCleanup(adapter.close)
        adapter._client.wait_attached(60)
        c, keys = Controllers(adapter), keys_of(prompt("told", 3))
        self.store(c, keys)
        c.lookup(keys)
        adapter.delete(keys)
        self.assertEqual(told, [("stored", 3, 3 * SIZE), ("accessed", 3), ("deleted", 3, 3 * SIZE)])


class Shared(Common, Case):
    def start(self, socket: str, size: int = SIZE, **options: Any) -> Controllers:
        c = self.adapter(socket, **options)
        c.size = size  # type: ignore[attr-defined]
        return c

    def keys(self, names: Sequence[bytes]) -> List[ObjectKey]:
        return keys_of(names)

    def find(self, it: Controllers, keys: List[ObjectKey]) -> int:
        there = it.lookup(keys)
        it.adapter.submit_unlock([key for key, yes in zip(keys, there) if yes])
        return (there + [False]).index(False)

    def put(self, it: Any, keys: List[ObjectKey], known: int = 0) -> bool:
        return it.store(keys[known:], self.objects(keys[known:], it.size))

    def load(self, it: Any, keys: List[ObjectKey]) -> int:
        objects = self.objects(keys, it.size, blank=True)
        there = it.load(keys, objects)
        for key, obj, yes in zip(keys, objects, there):
            self.assertTrue(not yes or bytes(obj.byte_array) == right(key, it.size), key)
        return (there + [False]).index(False)

    def left(self, it: Controllers, keys: List[ObjectKey]) -> List[bool]:
        (grid,) = grids(keys, it.adapter._names)
        return left(it.adapter._client, grid.spaces[0], grid.names)

    def prefill(self, it: Controllers) -> Any:
        return it.adapter._prefill

    def hurry(self, it: Controllers) -> None:
        it.adapter._options.update(lookup_timeout=1.0, transfer_timeout=2.0)

    def idle(self, it: Controllers) -> bool:
        return not it.adapter._held._leases


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
                    until(lambda: done.update(c.adapter.pop_completed_store_tasks()) or store in done)
                    self.assertFalse(done[store].is_successful())
            self.assertLess(len(sent), 8)  # most of them ask nothing
        finally:
            self.daemon.resume()
        until(lambda: c.lookup(keys) == [True] * 4)

    def test_a_part_that_fails_leaves_no_lease(self) -> None:
        """Neither its own nor those of the parts behind it."""
        c, chunks = self.adapter(), prompt("fails", 4)
        keys = [ObjectKey(chunk, kv_rank=rank(4, i)) for i, chunk in enumerate(chunks)]
        self.store(c, keys)
        self.assertEqual(c.lookup(keys), [True] * 4)  # the spaces are open
        c.adapter.submit_unlock(keys)
        wait = Asking.wait
        for part, call in (("_found", lambda: c.lookup(keys)), ("_got", lambda: c.load(keys, self.objects(keys, blank=True)))):
            jobs: List[Any] = []
            real, calls = getattr(c.adapter, part), iter(range(9))

            def asked(asking: Asking) -> Any:
                got = wait(asking)
                jobs.extend(got[0])
                return got

            def second_fails(*args: Any) -> Any:
                if next(calls) == 1:
                    raise RuntimeError("a part fails")
                return real(*args)

            with self.subTest(part), mock.patch.object(Asking, "wait", asked), mock.patch.object(c.adapter, part, second_fails):
                self.assertEqual(call(), [False] * 4)
                self.assertEqual([job._leased() for job in jobs], [False] * 4)

    def test_nobody_asks_for_results(self) -> None:
        """They do not pile up: of very many the youngest are kept."""
        with mock.patch.object(l2, "_RESULTS", 8):
            c, keys = self.adapter(), keys_of(prompt("asked", 2))
            self.store(c, keys)
            tasks = [c.adapter.submit_lookup_and_lock_task(keys) for _ in range(40)]
            results = c.adapter._kinds["lookup"]._results
            until(lambda: c.adapter._kinds["lookup"]._waiting == 0)
            self.assertEqual(len(results), 8)
            self.assertTrue(set(results) <= set(tasks))
            self.assertIsNone(c.adapter.query_lookup_and_lock_result(next(t for t in tasks if t not in results)))
            self.assertEqual(c._bits(1, next(iter(results)), c.adapter.query_lookup_and_lock_result, keys), [True] * 2)

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
