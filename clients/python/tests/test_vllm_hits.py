"""What a HIT of KvstoredTier promises, with the newest form of vLLM: it is leased,
may lie on disk or in a bucket, gives way, and ends by itself."""

import logging
import sys
import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any, Dict, List
from unittest import mock

import kvstored
from kvstored import hints
from kvstored.prefill import Prefill
from kvstored.vllm.lookup import Lookups
from kvstored.vllm.order import Order
from kvstored.vllm.stats import Counters

from .daemon import Daemon, enter, until
from .frames import options
from .test_vllm_steps import FORMS, stand_in
from .vllm_engine import ROW, Engine, keys, row


class Hits(unittest.TestCase):
    def daemon(self, **sizes: str) -> Daemon:
        return enter(self, Daemon(**sizes))

    def engine(self, daemon: Daemon) -> Engine:
        return stand_in(self, FORMS[-1], daemon.socket)

    def stats(self, daemon: Daemon) -> Dict[str, Any]:
        with kvstored.Client(daemon.socket, space=kvstored.Space(model="m", dtype="x"), timeout=60) as client:
            return client.stats()

    def leased(self, daemon: Daemon) -> int:
        return self.stats(daemon)["store"]["class_bytes"]["lease"]

    def store(self, engine: Engine, wanted: List[bytes]) -> Any:
        """Through host memory, which has room for 16 rows."""
        request = engine.request("stores")
        for at in range(0, len(wanted), 16):
            engine.store(wanted[at : at + 16], request)
            engine.settle()
        return request

    def hit(self, engine: Engine, wanted: List[bytes], request: Any) -> None:
        """vLLM has no row for them: only the tier is asked."""
        until(lambda: {engine.tier.lookup(k, request) for k in wanted} == {engine.results.HIT})

    def test_a_waiting_request_counts_once(self) -> None:
        """It asks for its blocks again and again: neither class nor daemon counts that,
        and what has come meanwhile is found."""
        daemon = self.daemon()
        engine, wanted = self.engine(daemon), keys("waits", 6)
        engine.tier._counters.take()
        request = engine.request("waits")
        for again in range(3):
            engine.tier._lookups._answers.clear()  # they are old
            self.assertEqual(engine.run(wanted, request), 0)
        counts = engine.tier._counters.take()
        self.assertEqual((counts.get(("lookups", "miss")), counts.get(("lookups", "hit"))), (6, None))
        asked = self.stats(daemon)["server"]["asked_chunks"]
        self.assertEqual(asked, 6)
        engine.store(wanted, engine.request("another"))
        engine.settle()
        engine.manager.primary_tier.rows.clear()  # vLLM's host memory has them no more
        engine.tier._lookups._answers.clear()
        self.hit(engine, wanted, request)

    def test_an_answer_that_is_quick(self) -> None:
        """It is there at the first lookup, and no step is lost. Not before it is known that vLLM
        looks up prompts from their start on, and not beside other questions."""
        engine, there, missing = self.engine(self.daemon()), keys("there", 16), keys("missing", 16)
        self.store(engine, there)
        for name in ("_MOMENT_SECONDS", "_LATE_SECONDS"):
            enter(self, mock.patch.object(sys.modules["kvstored.vllm.asking"], name, 60.0))
        asks(engine, keys("teaches", 2))
        until(lambda: engine.step() or not engine.tier.has_pending_work())
        for name, wanted, answer in (("missing", missing, engine.results.MISS), ("there", there, engine.results.HIT)):
            request = prompt(engine, name, wanted)
            self.assertIs(engine.tier.lookup(wanted[0], request), answer)
            self.assertFalse(engine.tier.has_pending_work())
            asks(engine, keys(f"second of a step, {name}", 3))
            until(lambda: engine.step() or not engine.tier.has_pending_work())
        self.assertEqual({engine.tier.lookup(key, request) for key in there}, {engine.results.HIT})
        for name, value in (("INLINE_BLOCKS", 2), ("_PAUSE_STEPS", 0)):
            with mock.patch.object(sys.modules["kvstored.vllm.asking"], name, value):
                if value:
                    asks(engine, keys("long", 3))
                else:
                    self.assertIs(engine.tier.lookup(keys("short", 1)[0], prompt(engine, "short", keys("short", 3))), engine.results.MISS)
            until(lambda: engine.step() or not engine.tier.has_pending_work())

    def test_an_answer_costs_one_step(self) -> None:
        """It is there for the next one, and no thread of the tier's takes part."""
        engine, there, missing = self.engine(self.daemon()), keys("there", 16), keys("missing", 16)
        self.store(engine, there)
        slow(self)
        lookups = engine.tier._lookups
        for wanted, answer in ((missing, engine.results.MISS), (there, engine.results.HIT)):
            request = asks(engine, wanted)
            until(lambda: lookups.worker.idle)
            with mock.patch.object(lookups.worker, "wake") as wake:
                engine.step()
                ((asked, _),) = lookups.questions._asked
                self.assertTrue(engine.tier.has_pending_work(), "nobody would hear of it")
                until(lambda asked=asked: asked.link.answered(asked.call))
                self.assertIs(engine.tier.lookup(wanted[0], request), answer)
                wake.assert_not_called()
            self.assertFalse(engine.tier.has_pending_work())

    def test_a_thread_asks_what_is_long(self) -> None:
        """Of a step that is all requests together."""
        engine, asked = self.engine(self.daemon()), []
        slow(self)
        real = engine.tier._client.ask

        def ask(prompts: Any, **more: Any) -> Any:
            asked.append((len(prompts), more["patient"]))
            return real(prompts, **more)

        with mock.patch.object(engine.tier._client, "ask", ask), mock.patch.object(sys.modules["kvstored.vllm.asking"], "INLINE_BLOCKS", 8):
            for sizes in ((3, 5), (4, 2, 3)):
                requests = {n: asks(engine, keys(f"long/{sizes}/{n}", n)) for n in sizes}
                until(lambda: engine.tier._lookups.worker.idle)
                engine.step()
                until(lambda: engine.step() or all(engine.tier.lookup(keys(f"long/{sizes}/{n}", 1)[0], r) is engine.results.MISS for n, r in requests.items()))
        self.assertEqual(asked, [(2, False), (3, True)])

    def test_a_hit_says_from_where(self) -> None:
        daemon = self.daemon(dram="16MiB", disk="256MiB")
        engine, wanted = self.engine(daemon), keys("where", 12)
        request = self.store(engine, wanted)
        engine.finish(request)
        fresh = engine.request("dram")
        self.hit(engine, wanted, fresh)
        self.assertEqual(engine.tier.cache_hit_source, "host")
        daemon.stop()
        daemon.again()
        until(lambda: engine.tier._client.attached)
        later = engine.request("disk")

        def hits() -> bool:
            answers = {engine.tier.lookup(k, later) for k in wanted}
            if engine.results.MISS in answers:  # the daemon has not read its disk yet
                engine.tier._lookups._answers.clear()
            return answers == {engine.results.HIT}

        until(hits)
        self.assertEqual(engine.tier.cache_hit_source, "disk")

    def test_too_little_host_memory_is_said(self) -> None:
        """vLLM then stores nothing, and says nothing of it."""
        engine = self.engine(self.daemon())  # of 16 rows
        for name, blocks, said in (("fits", 16, 0), ("does not", 17, 1), ("is said once", 18, 0)):
            request, wanted = engine.request(name), keys(name, blocks)
            request._offload_key_positions = {key: 16 * (at + 1) for at, key in enumerate(wanted)}
            engine.run(wanted, request)
            done = threading.Event()
            with mock.patch.object(engine.tier._lookups._order, "forget", lambda context: done.set()):
                with self.assertLogs("kvstored.vllm", "WARNING") as log:
                    logging.getLogger("kvstored.vllm").warning("the first")
                    engine.finish(request)
                    engine.step()
                    self.assertTrue(done.wait(60))
            self.assertEqual(len(log.output) - 1, said, log.output)
            if said:
                self.assertIn(f"Set cpu_bytes_to_use to {17 * ROW} at least", log.output[-1])

    def test_an_unused_hit_is_leased_and_ends(self) -> None:
        now = [time.monotonic()]
        enter(self, mock.patch("kvstored.hints.time", SimpleNamespace(monotonic=lambda: now[0])))
        daemon = self.daemon(dram="32MiB")
        engine, wanted = self.engine(daemon), keys("unused", 6)
        request = self.store(engine, wanted)
        self.assertEqual(self.leased(daemon), 0)
        self.hit(engine, wanted, request)
        self.assertEqual(self.leased(daemon), 6 * ROW)
        now[0] += hints.SECONDS
        until(lambda: self.leased(daemon) == 0)

    def test_hits_give_way(self) -> None:
        """Leases that nobody uses take no more than their share of DRAM, and stores get their room."""
        daemon = self.daemon(dram="16MiB")
        engine, wanted = self.engine(daemon), keys("in the way", 96)
        request = self.store(engine, wanted)
        self.hit(engine, wanted, request)
        self.assertLessEqual(self.leased(daemon), 0.4 * (16 << 20))
        self.store(engine, keys("wants room", 160))  # fails in settle if a job has no result
        self.assertNotIn(("failed_blocks", "store"), engine.tier._counters.take())

    def test_on_disk_is_a_hit(self) -> None:
        daemon = self.daemon(dram="16MiB", disk="256MiB")
        engine, wanted = self.engine(daemon), keys("on disk", 320)  # 30 MiB
        with kvstored.Client(daemon.socket, space=kvstored.Space(model="m", dtype="x"), timeout=60) as client:
            for at in range(0, len(wanted), 16):  # DRAM drops what a slow disk has not taken by then
                self.store(engine, wanted[at : at + 16])
                self.assertEqual(client.flush(timeout=60).left, {})
        second = self.engine(daemon)
        request = second.request("second")
        self.hit(second, wanted[:160], request)
        self.assertEqual(second.load(wanted[:12], request), [row(k) for k in wanted[:12]])
        self.assertEqual(second.load(wanted[-12:], request), [row(k) for k in wanted[-12:]])

    def test_a_store_waits_for_no_disk(self) -> None:
        """The daemon is not asked to wait until it has caught up."""
        daemon = self.daemon(dram="16MiB", disk="256MiB")
        engine = self.engine(daemon)
        with options("reserve", "wait") as waits:
            self.store(engine, keys("much", 400))  # more than twice what DRAM holds
        self.assertEqual(set(waits), {0})
        self.assertNotIn(("failed_blocks", "store"), engine.tier._counters.take())


def slow(test: unittest.TestCase) -> None:
    """Steps wait for no answer."""
    enter(test, mock.patch.object(sys.modules["kvstored.vllm.asking"].Questions, "quick", lambda *_: False))


def prompt(engine: Engine, name: str, wanted: List[bytes]) -> Any:
    request = engine.request(name)
    request._offload_key_positions = {key: 16 * (at + 1) for at, key in enumerate(wanted)}
    return request


def asks(engine: Engine, wanted: List[bytes]) -> Any:
    """A request for a prompt, of which nothing is known yet."""
    request = prompt(engine, f"asks {wanted[0].hex()}", wanted)
    answers = {engine.tier.lookup(key, request) for key in wanted}
    assert answers == {engine.results.RETRY}, answers
    return request


class Bucket(unittest.TestCase):
    """What only a remote tier has, with a stand-in for Pages: the daemon learns of it while it looks."""

    def lookups(self) -> Any:
        self.known: List[bytes] = []
        self.state = SimpleNamespace(done=False)
        asked = SimpleNamespace(state=self.state, on_ready=lambda *_, **__: None)
        self.leases: List[List[bytes]] = []

        def lease(wanted: List[bytes], timeout: float) -> Any:
            self.leases.append(wanted)
            return asked

        nothing = SimpleNamespace(chunks=0)
        job = SimpleNamespace(id=1, state=self.state, match=SimpleNamespace(total=nothing, disk=nothing, remote=nothing), worth=nothing)
        pages: Any = SimpleNamespace(
            exists=lambda wanted, timeout: [k in self.known for k in wanted],
            lease=lease,
            keep=lambda job: None,
            prompt=lambda keys, before: None,
            client=SimpleNamespace(ask=lambda prompts, **_: SimpleNamespace(call=1, poll=lambda: [job] * len(prompts)), _ready=lambda: None),
            space=SimpleNamespace(chunk_tokens=16),
        )
        groups: Any = SimpleNamespace(first=pages, pages=lambda name: pages, one=False)
        lookups = Lookups(groups, Order(), 60.0, Counters(), Prefill(0))
        self.addCleanup(lookups.worker.stop)
        return lookups

    def test_a_hit_before_it_is_in_dram(self) -> None:
        wanted = keys("bucket", 4)
        lookups = self.lookups()
        self.assertEqual([lookups.get(k) for k in wanted], [None] * 4)
        lookups.end_step()
        lookups.end_step()
        until(lambda: bool(self.leases))
        self.assertEqual([lookups.get(k) for k in wanted], [None] * 4)
        self.known = wanted[:3]  # found, and not up yet: the job is not done
        until(lambda: [lookups.get(k) for k in wanted] == [True, True, True, None])
        self.state.done = True
        lookups.worker.wake()
        until(lambda: lookups.get(wanted[3]) is False)

    def test_each_group_is_a_run(self) -> None:
        wanted = [*keys("full", 3), *keys("window", 2, group=1)]
        lookups = self.lookups()
        lookups._patience = 600.0  # the step ends when that is told
        self.assertEqual([lookups.get(k) for k in wanted], [None] * 5)
        lookups.end_step()
        lookups.end_step()
        until(lambda: sum(map(len, self.leases)) == 5)
        self.assertEqual(sorted(map(len, self.leases)), [2, 3])

    def test_a_part_of_a_window(self) -> None:
        """What is there of one is no hit while another block of it is asked for: it would be loaded by itself."""
        first, second = keys("window", 2, group=1)
        lookups = self.lookups()
        lookups._patience = 600.0  # the step ends when that is told
        lookups._windows.add(first[-4:])
        lookups._answer(None, {second: True})
        self.assertEqual([lookups.get(key) for key in (second, first, second)], [True, None, None])
        lookups.end_step()
        self.assertTrue(lookups.get(second))

    def test_nothing_below(self) -> None:
        """A daemon without a bucket is done at once: a miss."""
        wanted = keys("nowhere", 3)
        lookups = self.lookups()
        self.state.done = True
        until(lambda: [lookups.get(k) for k in wanted] == [False] * 3 or lookups.end_step())
