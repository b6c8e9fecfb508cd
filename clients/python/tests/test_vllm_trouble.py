"""KvstoredTier where the daemon is slow, stopped, away, back again, or hangs."""

import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any, Dict, List
from unittest import mock

from kvstored import _connection as connection, bulk
from kvstored.vllm import KvstoredTier, asking
from kvstored.vllm.order import Chain, group

from . import HELLO, engines
from .daemon import Daemon, until
from .engines import HIT, MISS, RETRY, context, offloading_config, transfer
from .frames import counted
from .stub import Hanging
from .vllm_engine import keys
from .vllm_tier import Tiers, ended, finished, lookups, not_returned, scheduler_calls, view


class Trouble(Tiers):
    def test_no_call_waits_for_the_daemon(self) -> None:
        """However long the tier's thread is in a call: here until all others have returned."""
        for doing, call in {"ask": "lookup", "load": "submit_load", "store": "submit_store"}.items():
            with self.subTest(doing):
                tier, wanted = self.tier(view()), keys(f"waits/{doing}", 4)
                busy, go = threading.Event(), threading.Event()
                of: Any = tier._client if doing == "ask" else tier._pages
                real = getattr(of, doing)
                tier._order.chains = lambda _, wanted=wanted: {group(wanted[0]): Chain(wanted)}  # as requests say

                def waits(*args: Any, **more: Any) -> Any:
                    busy.set()
                    go.wait(300)
                    return real(*args, **more)

                with mock.patch.object(asking, "INLINE_BLOCKS", 0), mock.patch.object(of, doing, waits):
                    self.addCleanup(go.set)
                    calls = scheduler_calls(tier, wanted, 100)
                    calls[call]()
                    calls["on_schedule_end"]()
                    self.assertTrue(busy.wait(60))
                    self.assertEqual(not_returned(scheduler_calls(tier, wanted, 200)), [])
                    self.assertFalse(go.is_set())
                    go.set()
                    tier.drain_jobs()

    def test_nothing_is_there_while_the_daemon_is_away(self) -> None:
        with Daemon() as daemon:
            tier = self.tier(view(), socket=daemon.socket)
            wanted = keys("away", 8)
            tier.submit_store(transfer(1, wanted, list(range(8))))
            self.assertTrue(finished(tier, 1))
            self.assertEqual(lookups(tier, wanted), [HIT] * 8)
            daemon.kill()
            while tier._client.attached:
                time.sleep(0.01)
            for answers in tier._lookups._answers.values():
                for key, (_, end, _) in list(answers.items()):
                    answers[key] = (True, end + 3600, False)  # what was answered before counts no more
            self.assertEqual([tier.lookup(key, None) for key in wanted], [MISS] * 8)

    def test_a_store_that_ends_while_answers_are_heard(self) -> None:
        """Its thread takes blocks out of the answers that the scheduler is going through."""
        looks, wanted = self.tier(view())._lookups, keys("heard", 4)
        news = dict.fromkeys(wanted, (True, time.monotonic() + 60, False))

        class Asked(Dict[Any, float]):
            def pop(self, key: Any, *otherwise: Any) -> Any:
                news.pop(key, None)
                return super().pop(key, *otherwise)

        looks._asked["heard"] = Asked(dict.fromkeys(wanted, 0.0))
        looks._news.append(("heard", news))
        looks._hear()
        self.assertEqual(looks._asked, {})

    def test_requests_that_ask_for_more(self) -> None:
        """A few say all: no more of them are kept."""
        looks, (key,) = self.tier(view())._lookups, keys("more", 1)
        looks._windows.add(group(key))
        for i in range(10):
            looks._answers[i] = {key: (None, time.monotonic() + 60, False)}
            looks.get(key, SimpleNamespace(req_id=i))
        self.assertEqual(len(looks._strays), 3)

    def test_a_lease_that_does_not_hold(self) -> None:
        """What was copied under it may be anything: what is not proved to be right does not count."""
        with Daemon() as daemon:
            tier = self.tier(view(), socket=daemon.socket)
            wanted = keys("does not hold", 4)
            tier.submit_store(transfer(1, wanted, list(range(4))))
            self.assertTrue(finished(tier, 1))
            for wrong in (0, 2):
                tier._counters.take()
                self.assertEqual(lookups(tier, wanted), [HIT] * 4)
                copy, calls = bulk.copy, []

                def kills(*args: Any) -> List[Any]:
                    calls.append(args)
                    daemon.kill()
                    return [total ^ (i >= 4 - wrong) for i, total in enumerate(copy(*args))]

                with mock.patch.object(bulk, "copy", kills):
                    tier.submit_load(transfer(2, wanted, list(range(4, 8)), load=True))
                    self.assertEqual(finished(tier, 2), not wrong)
                self.assertEqual((len(calls), tier._counters.take().get(("failed_blocks", "load"), 0)), (1, wrong))
                daemon.again()
                self.assertTrue(tier._client.wait_attached(60))
                tier.submit_store(transfer(1, wanted, list(range(4))))
                self.assertTrue(finished(tier, 1))

    def test_a_stopped_daemon_blocks_nothing(self) -> None:
        tier = self.tier(view())
        wanted = keys("stopped", 8)
        tier.submit_store(transfer(1, wanted, list(range(8))))
        self.assertTrue(finished(tier, 1))
        done: List[int] = []
        tier._lookups._timeout, tier._transfer_timeout, tier._client.timeout = 0.2, 1.0, 1.0
        self.daemon.pause()
        try:
            tier._lookups._answers.clear()
            for job in range(100, 108, 2):
                self.assertEqual(not_returned(scheduler_calls(tier, wanted, job, done)), [])
            self.assertEqual(lookups(tier, wanted), [MISS] * 8)
        finally:
            self.daemon.resume()
        self.assertEqual(ended(tier, done, 8), list(range(100, 108)))  # each exactly once
        tier._lookups._timeout, tier._transfer_timeout, tier._client.timeout = 60.0, 60.0, 60.0
        deadline, found = time.monotonic() + 60, lookups(tier, wanted)
        while time.monotonic() < deadline and found != [HIT] * 8:
            time.sleep(0.05)
            found = lookups(tier, wanted)
        self.assertEqual(found, [HIT] * 8)

    def test_a_hanging_daemon_costs_one_timeout(self) -> None:
        """Then everything is a miss at once, and jobs fail, until it answers a ping."""
        tier = self.tier(view())
        wanted, other = keys("hangs", 8), keys("hangs too", 8)
        tier.submit_store(transfer(1, wanted, list(range(8))))
        self.assertTrue(finished(tier, 1))
        tier._lookups._timeout = 0.2
        self.daemon.pause()
        try:
            self.assertEqual(lookups(tier, other), [MISS] * 8)
            until(lambda: tier.on_schedule_end(*engines.STEP_END) or not tier._client.attached)  # the question has its own time
            with counted() as sent:
                self.assertEqual([tier.lookup(k, context("second")) for k in wanted], [MISS] * 8)  # none is RETRY
                tier.on_schedule_end(*engines.STEP_END)
                tier.submit_store(transfer(2, other, list(range(8))))
                self.assertFalse(finished(tier, 2))
            self.assertLessEqual({*sent}, {"ping"})
        finally:
            self.daemon.resume()
        tier._lookups._timeout = 60.0
        until(lambda: tier._client.attached)
        self.assertEqual(lookups(tier, wanted), [HIT] * 8)

    def test_an_answer_that_a_store_overtakes(self) -> None:
        """It is dropped, and the block can be asked for again."""
        tier, wanted = self.tier(view()), keys("overtaken", 2)
        answered = threading.Event()
        real = tier._lookups._answer
        told = mock.patch.object(tier._lookups, "_answer", lambda *a, **more: (real(*a, **more), answered.set()))
        with told, mock.patch.object(asking, "INLINE_BLOCKS", 0):
            self.assertEqual([tier.lookup(k, context()) for k in wanted], [RETRY] * 2)
            tier._lookups.end_step()
            self.assertTrue(answered.wait(60))
            tier.submit_store(transfer(1, wanted, [0, 1]))
            self.assertTrue(finished(tier, 1))
        self.assertEqual(lookups(tier, wanted), [HIT] * 2)

    def test_shutdown_waits_for_no_daemon(self) -> None:
        tier = self.tier(view(), transfer_timeout=3600)
        self.daemon.pause()
        try:
            tier.submit_load(transfer(1, keys("stopped", 1), [0], load=True))
            while tier._loads:
                time.sleep(0.002)
            self.assertEqual(not_returned({"shutdown": tier.shutdown}), [])
        finally:
            self.daemon.resume()
        self.assertEqual([(r.job_id, r.success) for r in tier.get_finished_jobs()], [(1, False)])

    def test_reconnects_are_counted(self) -> None:
        with Daemon() as daemon:
            tier = self.tier(view(), socket=daemon.socket)
            self.assertNotIn(("reconnects", ""), tier._counters.take())
            first = tier._client.epoch
            daemon.again()
            until(lambda: tier._client.epoch not in (None, first))
            self.assertEqual(tier._counters.take().get(("reconnects", "")), 1)
            tier.submit_store(transfer(1, keys("reconnected", 4), list(range(4))))
            self.assertTrue(finished(tier, 1))


class Absent(unittest.TestCase):
    def test_a_hanging_daemon_blocks_nothing(self) -> None:
        """Not the calls of the scheduler; the constructor waits for a second at most."""
        hello, link = mock.patch.object(connection, "_HELLO", HELLO), mock.patch.object(connection, "Link", wraps=connection.Link)
        with Hanging() as socket, hello, link as attached:
            tier = KvstoredTier(SimpleNamespace(config=offloading_config()), view(), socket=socket)
            self.addCleanup(tier.shutdown)
            self.assertLessEqual(attached.call_args_list[0].args[2], 1)
            done: List[int] = []
            for job in range(100, 104, 2):
                self.assertEqual(not_returned(scheduler_calls(tier, keys("hang", 8), job, done)), [])
            self.assertEqual(ended(tier, done, 4), list(range(100, 104)))
            self.assertEqual(lookups(tier, keys("hang", 8)), [MISS] * 8)
