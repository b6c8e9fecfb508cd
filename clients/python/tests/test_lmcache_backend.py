"""KvstoredBackend under the calls of LMCache's storage manager, against a live daemon."""

import asyncio
import hashlib
import os
import random
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, List, Optional, Sequence
from unittest import mock

from kvstored import bulk
from kvstored.lmcache import KvstoredBackend
from kvstored.lmcache.keys import families

from .clock import FAR, FastClock
from .common import Common, hashed
from .daemon import Served, until
from .frames import counted, left, options
from .lmcache_engine import Key, Manager, Memory, Object

HISTORIES = int(os.environ.get("KVSTORED_HISTORIES", "250"))
SHAPE = (2, 1, 4, 32)  # 512 bytes


def prompt(name: Any, n: int, worker: int = 0, world: int = 1, after: Sequence[Key] = (), **more: Any) -> List[Key]:
    """The keys of a prompt's chunks, which begins as ``after``."""
    keys = list(after)
    while len(keys) < n:
        keys.append(Key(hashed(name, len(keys)), worker, world, **more))
    return keys


def right(key: Key, size: int) -> bytes:
    return hashlib.shake_128(key.to_string().encode()).digest(size)


class Case(Served):
    def engine(self, hot: bool = False, capacity: int = 64 << 20, socket: str = "", **extra: Any) -> Manager:
        options = {"socket": socket or self.daemon.socket, "lookup_timeout": 60, "transfer_timeout": 60, **extra}
        config = SimpleNamespace(chunk_size=256, extra_config={f"kvstored.{k}": v for k, v in options.items()})
        memory = Memory(capacity, hot)
        plugin = KvstoredBackend(config=config, dst_device="cpu", metadata=None, local_cpu_backend=memory, loop=None)
        manager = Manager(memory, plugin)
        self.addCleanup(manager.close)
        self.assertTrue(plugin._client.wait_attached(20) or socket)
        return manager

    def make(self, manager: Manager, keys: Sequence[Key], shape: Any = SHAPE) -> List[Object]:
        objects = []
        for key in keys:
            obj = manager.memory.allocate(shape, key.dtype, 1)
            assert obj is not None
            obj._bytes[:] = right(key, obj.get_size())
            objects.append(obj)
        return objects

    def put(self, manager: Manager, keys: List[Key], shape: Any = SHAPE) -> None:
        objects = self.make(manager, keys, shape)
        manager.put(keys, objects)
        kept = int(manager.memory.hot)
        until(lambda: all(o.references == kept for o in objects))

    def check(self, keys: Sequence[Key], objects: Sequence[Optional[Object]]) -> None:
        for key, obj in zip(keys, objects):
            assert obj is not None
            self.assertEqual(bytes(obj.byte_array), right(key, obj.get_size()), key)

    def taken(self, keys: Sequence[Key], objects: Sequence[Optional[Object]]) -> None:
        """They are right, and given back."""
        self.check(keys, objects)
        for obj in objects:
            obj.ref_count_down()  # type: ignore[union-attr]

    def left(self, it: Manager, keys: Sequence[Key]) -> List[bool]:
        (family,) = families(keys, it.plugin._names)
        return left(it.plugin._client, family.space, family.names)


class Calls(Case):
    def test_put_and_get(self) -> None:
        m, keys = self.engine(), prompt("first", 5)
        self.assertEqual(m.lookup(keys), (0, {}))
        self.put(m, keys)
        self.assertEqual(m.lookup(keys + prompt("absent", 2)), (5, {1: keys}))
        objects = m.get(1, keys)
        self.check(keys, objects)
        dtype = getattr(sys.modules.get("torch"), "bfloat16", "bfloat16")  # LMCache imports torch
        told = [(o.meta.shape, o.meta.dtype, getattr(o.meta.fmt, "value", o.meta.fmt)) for o in objects]
        self.assertEqual(told, [(SHAPE, dtype, 1)] * 5)
        self.assertEqual([o.references for o in objects], [1] * 5)
        for obj in objects:
            obj.ref_count_down()
        self.assertEqual(m.memory.used, 0)
        self.assertEqual(m.get(1, prompt("absent", 3)), [None] * 3)
        self.assertEqual(m.plugin.batched_get_blocking(prompt("absent", 3)), [])  # the next backend is asked
        self.assertIsNone(m.plugin.get_blocking(prompt("absent", 1)[0]))

    def test_what_was_copied_under_a_lease_that_did_not_hold(self) -> None:
        """It is copied again, and nothing of the first copies is handed out or kept."""
        m, keys, made = self.engine(), prompt("revoked", 4), []  # type: ignore[var-annotated]
        self.put(m, keys)
        self.assertEqual(m.plugin.batched_contains(keys), 4)
        allocate, copy, sums = m.memory.allocate, bulk.copy, []

        def allocated(*args: Any, **more: Any) -> Any:
            made.append(allocate(*args, **more))
            return made[-1]

        def revoked(*args: Any) -> List[Any]:
            sums.append(copy(*args))
            if len(sums) > 1:
                return sums[-1]
            for obj in made:
                obj._bytes[:] = bytes(obj.get_size())
            return [total ^ 1 for total in sums[0]]

        with mock.patch.object(m.memory, "allocate", allocated), mock.patch.object(bulk, "copy", revoked):
            objects = m.plugin.batched_get_blocking(keys)
        self.assertEqual(len(made), 8)
        self.taken(keys, objects)
        self.assertEqual(m.memory.used, 0)

    def test_what_lies_behind_a_missing_chunk_is_given_back(self) -> None:
        """Of two ranks' chunks in one call, LMCache has no use for those behind the first gap."""
        m, gap, rest = self.engine(), prompt("gap", 3), prompt("gap", 3, worker=1, world=2)
        self.put(m, [gap[0], gap[2]])
        self.put(m, rest)
        with mock.patch.object(m.memory, "allocate", wraps=m.memory.allocate) as allocate:
            objects = m.plugin.batched_get_blocking([*gap, *rest])
        self.assertEqual(allocate.call_count, 4, "the first, and the other rank's")
        self.check(gap[:1], objects[:1])
        self.assertEqual(objects[1:], [None] * 5)
        self.assertEqual(m.memory.used, objects[0].get_size())
        objects[0].ref_count_down()
        self.assertEqual(m.memory.used, 0)

    def test_one_request_for_a_lookup_and_two_for_a_load(self) -> None:
        m, keys = self.engine(), prompt("frames", 512)
        self.put(m, keys)
        with counted() as sent:
            self.assertEqual(m.lookup(keys)[0], 512)
            self.assertEqual(sent, ["prefetch"])
            sent.clear()
            objects = m.get(1, keys)
            self.assertEqual(sent, ["prefetch", "release"])
        self.taken(keys, objects)
        m.unpin(keys)

    def test_what_is_stored_alone_is_found_in_a_chain(self) -> None:
        m, keys = self.engine(), prompt("scattered", 8)
        m.lookup(prompt("something else", 1))
        for key in keys[::-1]:
            self.put(m, [key])
        self.assertEqual(self.engine().lookup(keys)[0], 8)

    def test_kinds_of_objects(self) -> None:
        """A last chunk that is shorter, and keys of layers."""
        m, keys = self.engine(), prompt("kinds", 3)
        self.put(m, keys[:2])
        self.put(m, keys[2:], shape=(2, 1, 1, 32))
        objects = m.get(1, keys)
        self.assertEqual([o.get_size() for o in objects], [512, 512, 128])
        self.taken(keys, objects)
        layers = [Key(hashed("layered", c), layer=layer) for c in range(3) for layer in range(4)]
        self.put(m, layers)
        self.assertEqual(m.lookup(layers + [Key(hashed("layered", 9), layer=0)])[0], 12)
        objects = m.get(1, layers)
        self.taken(layers, objects)
        self.assertEqual(m.memory.used, 0)

    def test_a_cancelled_load_gives_its_objects_back(self) -> None:
        m, keys = self.engine(), prompt("cancelled", 8)
        self.put(m, keys)
        self.daemon.pause()
        try:
            load = asyncio.run_coroutine_threadsafe(m.plugin.batched_get_non_blocking("r", keys), m.loop)
            time.sleep(0.05)
            load.cancel()
        finally:
            self.daemon.resume()
        m.plugin._threads.submit(lambda: None).result(30)
        until(lambda: m.memory.used == 0)

    def test_request_configs_that_are_hints(self) -> None:
        configs = (("session", "s1"), ("retain_priority", 80), ("lmcache.kvstored.covers_output", True), ("lmcache.tag.user", "u"), ("other", 1))
        m, keys = self.engine(prefill_depth=8000), prompt("hints", 2, configs=configs)
        with options("prefetch", "configs") as told:
            self.assertEqual(m.lookup(keys)[0], 0)
        self.assertEqual(list(told[0]), [("prefill_depth", "8000"), ("session", "s1"), ("retain_priority", "80"), ("covers_output", "true")])

    def test_age(self) -> None:
        """What a request says of the age goes with its stores, and is kept to."""
        m = self.engine()
        for said, seconds in (("1", 1.0), (60, 60.0), (None, 0.0), ("soon", 0.0)):
            keys = prompt(f"age {said}", 2, configs=(("max_age_seconds", said),))
            with options("reserve", "max_age") as told:
                self.put(m, keys)
            self.assertEqual(told, [seconds])
            if seconds == 1:
                time.sleep(1.1)
            self.assertEqual(self.left(m, keys), [seconds != 1] * 2)

    def test_pins_are_counters(self) -> None:
        m, keys = self.engine(), prompt("pins", 4)
        self.put(m, keys)
        name = keys[2].to_string()
        self.assertEqual(m.plugin.batched_contains(keys, pin=True), 4)
        self.assertTrue(m.plugin.pin(keys[2]))
        self.assertFalse(m.plugin.remove(keys[2], force=False))
        for left in (True, False):
            self.assertTrue(m.plugin.unpin(keys[2]))
            self.assertEqual(m.plugin._held.holds(name), left)
        self.assertFalse(m.plugin.unpin(keys[2]))
        self.assertEqual(len(m.plugin._held._leases), 1)  # the other three
        m.unpin(keys)
        self.assertFalse(m.plugin._held._leases)
        self.assertTrue(m.plugin.remove(keys[2], force=False))

    def test_a_forgotten_pin_ends(self) -> None:
        m, keys = self.engine(pin_seconds=0.2), prompt("forgotten", 4)
        self.put(m, keys)
        self.assertEqual(m.plugin.batched_contains(keys, pin=True), 4)
        until(lambda: not m.plugin._held._leases)

    def test_more_pins_than_a_connection_has_jobs(self) -> None:
        """The oldest give way: what is asked for next does not wait for its turn."""
        m, keys = self.engine(pin_seconds=600), prompt("many", 1)
        self.put(m, keys)
        for _ in range(1100):
            self.assertTrue(m.plugin.pin(keys[0]))
        self.assertEqual(len(m.plugin._held._leases), 384)
        self.assertLess(m.plugin._client.stats()["server"]["leases_live"], 1024)

    def test_remove_and_clear(self) -> None:
        m, keys = self.engine(namespace="clear"), prompt("removed", 6)
        self.put(m, keys)
        self.assertTrue(m.plugin.remove(keys[5]))
        self.assertFalse(m.plugin.remove(keys[5]))
        self.assertEqual(m.plugin.batched_remove(keys[3:]), 2)
        self.assertEqual(m.lookup(keys)[0], 3)
        self.assertEqual(m.plugin.clear(), 3 * 256)
        self.assertEqual(m.lookup(keys)[0], 0)

    def test_callbacks_and_tasks(self) -> None:
        m, keys = self.engine(), prompt("callbacks", 3)
        objects, told = self.make(m, keys), []

        def stored(key: Key) -> None:
            told.append((key, m.plugin.batched_contains([key])))
            if key == keys[1]:
                raise ValueError("of the engine")

        m.plugin.batched_submit_put_task(keys, objects, on_complete_callback=stored)
        for obj in objects:
            obj.ref_count_down()
        until(lambda: len(told) == 3)
        self.assertEqual(told, [(key, 1) for key in keys])
        self.assertFalse(any(m.plugin.exists_in_put_tasks(k) for k in keys))
        self.assertEqual(m.memory.used, 0)

    def test_memory_that_cannot_be_given_back(self) -> None:
        """The thread that stores goes on, and gives the other objects back."""
        m, keys = self.engine(), prompt("stuck", 3)
        objects = self.make(m, keys)
        real, asked = objects[0].ref_count_down, []

        def fails() -> None:
            asked.append(1)
            raise ValueError("of the engine")

        objects[0].ref_count_down = fails  # type: ignore[method-assign]
        with self.assertLogs("kvstored.lmcache", "ERROR"):
            m.plugin.batched_submit_put_task(keys, objects)
            until(lambda: asked and not m.plugin._puts)
        for down in (real, real, objects[1].ref_count_down, objects[2].ref_count_down):
            down()
        until(lambda: m.memory.used == 0)
        self.put(m, prompt("after it", 3))
        self.assertEqual(m.lookup(keys)[0], 3)

    def test_no_memory_of_the_engine(self) -> None:
        """As many objects as there is room for; the others are None."""
        m, keys = self.engine(capacity=512 * 10), prompt("narrow", 8)
        self.put(m, keys)
        kept = self.make(m, prompt("in the way", 5))
        objects = m.get(1, keys)
        self.check(keys, objects[:5])
        self.assertEqual(objects[5:], [None] * 3)
        for obj in (*kept, *objects[:5]):
            obj.ref_count_down()
        self.assertEqual(m.memory.used, 0)

    def test_more_than_may_wait(self) -> None:
        m, keys = self.engine(pending_bytes=512 * 3), prompt("bounded", 8)
        self.daemon.pause()
        try:
            m.put(keys, self.make(m, keys))
            self.assertEqual(m.memory.used, 512 * 3)
        finally:
            self.daemon.resume()
        until(lambda: not m.plugin._puts)
        self.assertEqual((m.memory.used, m.lookup(keys)[0]), (0, 3))

    def test_a_scheduler_has_no_memory(self) -> None:
        m, keys = self.engine(), prompt("scheduler", 3)
        self.put(m, keys)
        config = SimpleNamespace(chunk_size=256, extra_config={"kvstored.socket": self.daemon.socket})
        plugin = KvstoredBackend(config=config, dst_device="cpu", metadata=None, local_cpu_backend=None, loop=None)
        self.addCleanup(plugin.close)
        plugin._client.wait_attached(20)
        self.assertEqual(plugin.batched_contains(keys), 3)
        self.assertEqual((plugin.batched_get_blocking(keys), plugin.get_allocator_backend()), ([], None))

class Shared(Common, Case):
    def start(self, socket: str, size: int = 512, **options: Any) -> Manager:
        m = self.engine(socket=socket, capacity=256 << 20, **options)
        m.shape = (size // 2,)  # type: ignore[attr-defined]
        return m

    def keys(self, names: Sequence[bytes]) -> List[Key]:
        return [Key(name) for name in names]

    def find(self, it: Manager, keys: List[Key]) -> int:
        n, _ = it.lookup(keys)
        it.unpin(keys[:n])
        return n

    def put(self, it: Any, keys: List[Key], known: int = 0) -> bool:  # type: ignore[override]
        super().put(it, keys[known:], it.shape)
        return True

    def load(self, it: Manager, keys: List[Key]) -> int:
        for found in (it.get(1, keys), it.prefetch("load", keys).result(60)):
            objects = [obj for obj in found if obj is not None]
            self.taken(keys, objects)
        it.unpin(keys)
        return len(objects)

    def prefill(self, it: Manager) -> Any:
        return it.plugin._prefill

    def hurry(self, it: Manager) -> None:
        it.plugin._options.update(lookup_timeout=1.0, transfer_timeout=2.0)

    def idle(self, it: Manager) -> bool:
        return it.memory.used == 0 and not it.plugin._held._leases


class Trouble(Case):
    def test_nothing_waits_for_a_daemon_that_hangs(self) -> None:
        """Neither the event loop, nor a store. A lookup of the caller's own thread waits
        for its timeout, and only once."""
        m, keys = self.engine(lookup_timeout=FAR, transfer_timeout=FAR), prompt("held", 4)
        self.put(m, keys)
        clock = FastClock(self)
        self.daemon.pause()
        try:
            ticks: List[float] = []
            stop = threading.Event()

            async def tick() -> None:
                while not stop.is_set():
                    ticks.append(time.monotonic())
                    await asyncio.sleep(0.01)

            ticking = asyncio.run_coroutine_threadsafe(tick(), m.loop)
            load = m.prefetch("held", keys)
            m.put(prompt("stored meanwhile", 3), self.make(m, prompt("stored meanwhile", 3)))
            until(lambda: len(ticks) > 20)
            self.assertFalse(load.done())
            with clock.hurried():
                self.assertEqual(load.result(60), [])
            self.assertEqual([m.lookup(prompt("new", 4))[0] for _ in range(1000)], [0] * 1000)  # none of them waits
            stop.set()
            ticking.result(60)
        finally:
            self.daemon.resume()
        until(lambda: m.lookup(keys)[0] == 4)
        until(lambda: m.memory.used == 0)

    def test_without_a_daemon(self) -> None:
        m, keys = self.engine(socket="/nonexistent/s", lookup_timeout=0.2, transfer_timeout=0.2), prompt("none", 3)
        self.assertEqual(m.lookup(keys), (0, {}))
        m.put(keys, self.make(m, keys))
        self.assertEqual(m.prefetch("none", keys).result(10), [])
        self.assertEqual((m.plugin.clear(), m.plugin.remove(keys[0])), (0, False))
        until(lambda: m.memory.used == 0)

    def test_keys_that_are_none(self) -> None:
        class Odd(Key):
            def to_string(self) -> str:
                return "one@text"

        m, odd = self.engine(), [Odd(1)]
        objects = self.make(m, prompt("odd", 1))
        self.assertEqual(m.plugin.batched_contains(odd, True), 0)
        self.assertEqual(m.plugin.batched_get_blocking(odd), [])
        self.assertFalse(m.plugin.pin(odd[0]) or m.plugin.unpin(odd[0]) or m.plugin.remove(odd[0]))
        m.put(odd, objects)
        until(lambda: m.memory.used == 0)

    def test_closed(self) -> None:
        m, keys = self.engine(), prompt("closed", 3)
        self.put(m, keys)
        m.put(keys, self.make(m, keys))
        m.plugin.close()
        self.assertEqual(m.memory.used, 0)
        self.assertEqual(m.plugin.batched_contains(keys), 0)
        m.put(keys, self.make(m, keys))
        self.assertEqual(m.prefetch("closed", keys).result(10), [])
        self.assertEqual(m.memory.used, 0)


class Histories(Case):
    dram = "512MiB"

    def test_histories(self) -> None:
        """Random lookups, loads, stores and removals of two ranks equal a dict."""
        r = random.Random(int(os.environ.get("KVSTORED_SEED", "20")))
        ranks = [self.engine(namespace="histories") for _ in range(2)]
        for history in range(HISTORIES):
            stored: set = set()
            prompts = [prompt(("history", history, p), 8, after=prompt(("history", history), r.randint(0, 5))) for p in range(2)]
            for _ in range(r.randint(3, 9)):
                worker = r.randrange(2)
                m = ranks[worker]
                keys = [k._replace(worker_id=worker, world_size=2) for k in r.choice(prompts)][: r.randint(1, 8)]
                there = next((i for i, k in enumerate(keys) if k not in stored), len(keys))
                step = r.choices(("put", "get", "async", "remove"), (5, 3, 2, 1))[0]
                with self.subTest(history=history, step=step):
                    if step == "put":
                        first = r.randint(0, len(keys) - 1)
                        self.put(m, keys[first:])
                        stored.update(keys[first:])
                    elif step == "remove":
                        gone = r.sample(keys, r.randint(1, len(keys)))
                        self.assertEqual(m.plugin.batched_remove(gone), len(stored & set(gone)))
                        stored -= set(gone)
                    else:
                        self.assertEqual(m.lookup(keys)[0], there)
                        objects = m.prefetch("r", keys).result(30) if step == "async" else m.get(1, keys)[:there]
                        self.assertEqual(len(objects), there)
                        self.taken(keys, objects)
                        for _ in range(1 + (step == "async")):
                            m.unpin(keys[:there])
        for m in ranks:
            self.assertEqual((m.memory.used, len(m.plugin._held._leases)), (0, 0))
