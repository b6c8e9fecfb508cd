"""KvstoredTier against a live daemon, with vLLM's classes where they can be
imported, and stand-ins otherwise."""

import os
import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any, List
from unittest import mock

import kvstored.vllm
from kvstored import bulk
from kvstored import memory as addresses
from kvstored.vllm.order import raw

from .daemon import in_child
from .engines import HIT, MISS, context, transfer
from .vllm_engine import ROW, keys
from .vllm_tier import BLOCKS, Tiers, finished, lookups, not_returned, view


class Tier(Tiers):

    def test_one_absent_block_fails_the_load(self) -> None:
        tier = self.tier(view())
        stored, absent = keys("half", 1), keys("absent", 1)
        tier.submit_store(transfer(1, stored, [0]))
        self.assertTrue(finished(tier, 1))
        tier.submit_load(transfer(2, stored + absent, [1, 2], load=True))
        self.assertFalse(finished(tier, 2))
        tier.submit_load(transfer(3, stored, [BLOCKS], load=True))  # no such row
        self.assertFalse(finished(tier, 3))

    def test_no_copy_begins_after_the_deadline(self) -> None:
        tier, wanted = self.tier(view()), keys("late copies", 4)
        tier.submit_store(transfer(1, wanted, list(range(4))))
        self.assertTrue(finished(tier, 1))
        target, copy, ends = bytearray(ROW), bulk.copy, []

        def late(pieces: bytes, counts: bytes, until: float) -> List[Any]:
            ends.append(until - time.monotonic())
            return copy(pieces, counts, time.monotonic())

        with mock.patch.object(bulk, "copy", late):
            n = tier._pages.load([raw(k) for k in wanted], [((addresses.address(target), ROW),)] * 4, 3000.0)
        self.assertEqual((n, target), (0, bytes(ROW)))
        self.assertTrue(ends and all(0 < left <= 3000 for left in ends), ends)

    def test_no_copy_of_a_store_begins_after_the_deadline(self) -> None:
        """By then the rows may hold other blocks. Nothing of it is stored, and the keys are free."""
        tier, wanted = self.tier(view()), [raw(k) for k in keys("late stores", 4)]
        late, ends, source = [0.0], [], bytearray(ROW)
        places = [((addresses.address(source), ROW),)] * 4

        def slow(pieces: bytes, until: float) -> None:
            ends.append(until - time.monotonic())
            late[0] = 36000.0

        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late[0])
        with mock.patch.object(bulk, "copy", slow), mock.patch("kvstored.storing.time", clock):
            self.assertEqual(tier._pages.store(wanted, places, 3000.0), [False] * 4)
        self.assertTrue(len(ends) == 1 and 0 < ends[0] <= 3000, ends)
        self.assertEqual(tier._pages.exists(wanted, 10.0), [False] * 4)
        self.assertEqual(tier._pages.store(wanted, places, 3000.0), [True] * 4)

    def test_a_job_after_the_end_fails(self) -> None:
        tier = self.tier(view())
        tier.shutdown()
        tier.submit_store(transfer(1, keys("late", 2), [0, 1]))
        tier.submit_load(transfer(2, keys("late", 2), [0, 1], load=True))
        self.assertTrue(tier.has_pending_work())  # the results are not fetched yet
        self.assertEqual(not_returned({"drain_jobs": tier.drain_jobs}), [])
        self.assertEqual([(r.job_id, r.success) for r in tier.get_finished_jobs()], [(1, False), (2, False)])
        self.assertFalse(tier.has_pending_work())

    def test_jobs_while_it_ends(self) -> None:
        """Each ends once, whenever it comes."""
        for _ in range(20):
            tier = self.tier(view())
            jobs, began = list(range(50)), threading.Event()

            def submit() -> None:
                for job in jobs:
                    tier.submit_load(transfer(job, keys("ends", 1), [0], load=True))
                    began.set()

            thread = threading.Thread(target=submit)
            thread.start()
            began.wait(30)
            tier.shutdown()
            thread.join(30)
            self.assertEqual(not_returned({"drain_jobs": tier.drain_jobs}), [])
            self.assertEqual(sorted(r.job_id for r in tier.get_finished_jobs()), jobs)

    def test_drain_gives_up(self) -> None:
        """On a thread that does not come back in time, and on a result that cannot be made."""
        tier, go = self.tier(view(), transfer_timeout=0.1), threading.Event()
        self.addCleanup(go.set)
        late = mock.patch.object(kvstored.vllm, "_LATE_SECONDS", 0.1)
        with late, mock.patch.object(tier._pages, "load_each", lambda *_: go.wait(60) and [False]):
            tier.submit_load(transfer(1, keys("gives up", 1), [0], load=True))
            with self.assertLogs("kvstored.vllm", "ERROR"):
                self.assertEqual(not_returned({"drain_jobs": tier.drain_jobs}), [])
            self.assertTrue(tier.has_pending_work())
            go.set()
            self.assertFalse(finished(tier, 1))
        other = self.tier(view(), transfer_timeout=60)
        broken = mock.patch("kvstored.vllm.jobs._result", mock.Mock(side_effect=TypeError("of a new vLLM")))
        with broken, mock.patch.object(kvstored.vllm.log, "exception"):
            other.submit_load(transfer(2, keys("gives up", 1), [0], load=True))
            self.assertEqual(not_returned({"drain_jobs": other.drain_jobs}), [])
        self.assertFalse(other.has_pending_work())

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork here")
    def test_a_forked_child_waits_for_nothing(self) -> None:
        tier, stored = self.tier(view()), keys("forked", 2)
        tier.submit_store(transfer(1, stored, [0, 1]))
        self.assertTrue(finished(tier, 1))
        self.assertEqual(lookups(tier, stored), [HIT] * 2)
        self.daemon.pause()
        try:
            tier.submit_load(transfer(2, keys("no lease", 2), [2, 3], load=True))  # under way
            while tier._loads:
                time.sleep(0.002)
            tier.submit_load(transfer(3, stored, [4, 5], load=True))  # waits for it

            def child() -> None:
                assert [tier.lookup(k) for k in stored] == [MISS] * 2
                tier.submit_store(transfer(4, stored, [0, 1]))
                assert not_returned({"drain_jobs": tier.drain_jobs}) == []
                ended = sorted((r.job_id, r.success) for r in tier.get_finished_jobs())
                assert ended == [(2, False), (3, False), (4, False)], ended
                assert not_returned({"shutdown": tier.shutdown}) == []

            with tier._jobs._idle:  # as another thread may have it
                self.assertEqual(in_child(child), 0)
        finally:
            self.daemon.resume()
        tier.drain_jobs()
        self.assertEqual([r.job_id for r in tier.get_finished_jobs()], [2, 3])  # the parent goes on

    def test_nothing_raises(self) -> None:
        """A job that makes no sense fails; a key that makes none is a miss."""
        tier = self.tier(view())
        broken = [
            SimpleNamespace(job_id=1, keys=keys("broken", 2), is_promotion=False),  # no rows
            SimpleNamespace(job_id=2, keys=keys("broken", 2), block_ids=[0], is_promotion=True),
            SimpleNamespace(job_id=3, keys=None, block_ids=[0], is_promotion=True),
            SimpleNamespace(job_id=4, keys=keys("broken", 1), chunk_ids=["a"], is_promotion=True),
            SimpleNamespace(job_id=5, keys=keys("broken", 1), chunk_ids=[BLOCKS], is_promotion=True),
        ]
        with mock.patch.object(kvstored.vllm.log, "exception"):
            for job in broken:
                (tier.submit_load if job.is_promotion else tier.submit_store)(job)
            tier.submit_load(None)
            self.assertEqual(tier.lookup([], context()), MISS)  # type: ignore[arg-type]
        tier.drain_jobs()
        results = sorted((r.job_id, r.success) for r in tier.get_finished_jobs())
        self.assertEqual(results, [(job.job_id, False) for job in broken])
