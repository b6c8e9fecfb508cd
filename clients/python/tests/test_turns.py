"""Jobs beyond those that a connection may have wait for their turn, in order."""

from __future__ import annotations

import asyncio
import threading
import time
import unittest
from typing import Any, List
from unittest import mock

import kvstored
from kvstored import turns, wire
from kvstored.call import Call, Request
from kvstored.link import Link
from kvstored.state import Reason
from kvstored.turns import Turns

from .daemon import Daemon, Served
from .test_client import GIVEN, chain, payload, store

PATIENCE = 60.0  # seconds; bounds what should take none
MANY, PROMPTS = 10_000, 100


def want(i: int) -> List[bytes]:
    return [payload(("turn", i % PROMPTS, k), 500) for k in range(2)]


def prompt(i: int) -> kvstored.Prompt:
    return chain(("turn", i % PROMPTS), 2)


class Many(Served):
    """10,000 at once on one connection, over what is in DRAM: all of them right."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        with kvstored.Client(cls.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            for i in range(PROMPTS):
                store(kv, prompt(i), want(i))

    def right(self, job: Any, i: int) -> bool:
        return [bytes(b) for b in job] == want(i)

    def nothing_is_left(self, kv: Any) -> None:
        link = kv._link
        self.assertIsNone(link.down)
        self.assertEqual((link._turns.taken, len(link._turns.queue), link.background), (0, 0, 0))

    def test_coroutines_that_read_at_once(self) -> None:
        async def run() -> int:
            async with kvstored.AsyncClient(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:

                async def one(i: int) -> bool:
                    async with await kv.prefetch(prompt(i)) as job:
                        right = self.right(job, i)
                    return right and job.good is True

                right = sum(await asyncio.gather(*(one(i) for i in range(MANY))))
                self.nothing_is_left(kv)
                return right

        self.assertEqual(asyncio.run(run()), MANY)

    def test_coroutines_that_keep_what_they_have(self) -> None:
        """All are asked for before the first is given back."""

        async def run() -> int:
            async with kvstored.AsyncClient(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
                # Those that have their turn are answered, the others wait beyond their timeout.
                jobs = await asyncio.gather(*(kv.prefetch(prompt(i), timeout=PATIENCE if i < turns.LIMIT else 1) for i in range(MANY)))
                self.assertGreater(sum(job.waits_for_its_turn for job in jobs), 0)
                right = 0
                for i, job in enumerate(jobs):
                    await job.wait(timeout=PATIENCE)
                    right += self.right(job, i) and await job.release()
                self.nothing_is_left(kv)
                return right

        self.assertEqual(asyncio.run(run()), MANY)

    def test_one_thread(self) -> None:
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            jobs = [kv.prefetch(prompt(i)) for i in range(turns.LIMIT)]
            kv.timeout = 0.5  # of those that wait for their turn
            jobs += [kv.prefetch(prompt(i)) for i in range(turns.LIMIT, MANY)]
            right = 0
            for i, job in enumerate(jobs):
                job.wait(timeout=PATIENCE)
                right += self.right(job, i) and job.release(PATIENCE)
            self.assertEqual(right, MANY)
            self.nothing_is_left(kv)

    def test_threads(self) -> None:
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv, mock.patch.object(turns, "LIMIT", 5):
            wrong: List[Any] = []

            def work(n: int) -> None:
                try:
                    for i in range(n, n + 50):
                        with kv.prefetch(prompt(i)) as job:
                            right = self.right(job, i)
                        if not (right and job.good):
                            wrong.append(job)
                except BaseException as e:
                    wrong.append(e)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(wrong, [])
            self.nothing_is_left(kv)

    def test_a_batch_takes_as_many_turns(self) -> None:
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv, mock.patch.object(turns, "LIMIT", 5):
            first, _ = kv.batch([prompt(i) for i in range(4)])
            later: List[Any] = []
            waits = threading.Thread(target=lambda: later.extend(kv.batch([prompt(i) for i in range(3)])[0]))
            waits.start()
            while not kv._link._turns.queue:  # type: ignore[union-attr]
                time.sleep(0.001)
            self.assertEqual([first[0].release(), first[1].release()], [True, True])
            waits.join()
            self.assertEqual([self.right(job, i) for i, job in enumerate(later)], [True] * 3)
            self.assertEqual([job.release() for job in [*first[2:], *later]], [True] * 5)
            self.nothing_is_left(kv)

    def test_a_job_that_is_released_before_its_turn(self) -> None:
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv, mock.patch.object(turns, "LIMIT", 1):
            first, late, last = kv.prefetch(prompt(0)), kv.prefetch(prompt(1), timeout=0.05), kv.prefetch(prompt(2), timeout=0.05)
            self.assertEqual([len(first), late.waits_for_its_turn, last.waits_for_its_turn], [2, True, True])
            self.assertFalse(late.state.done)
            self.assertIn("waits for its turn", repr(late))
            self.assertFalse(late.wait(timeout=0.05).done)
            self.assertFalse(late.release())
            self.assertEqual(late.reason, Reason.CANCELLED)
            self.assertTrue(first.release())
            self.assertEqual(last.wait().ready.chunks, 2)
            self.assertTrue(self.right(last, 2) and last.release())
            self.nothing_is_left(kv)

    def test_a_coroutine_that_leaves_the_queue(self) -> None:
        async def run() -> None:
            async with kvstored.AsyncClient(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
                first = await kv.prefetch(prompt(0))
                tasks = [asyncio.ensure_future(kv.prefetch(prompt(i))) for i in range(3)]
                await asyncio.sleep(0.01)
                tasks[0].cancel()
                tasks[2].cancel()
                self.assertTrue(await first.release())
                async with await tasks[1] as job:
                    self.assertTrue(self.right(job, 1))
                self.nothing_is_left(kv)

        with mock.patch.object(turns, "LIMIT", 1):
            asyncio.run(run())

    def test_a_coroutine_that_leaves_a_queue_that_moves(self) -> None:
        """Cancelled after its first timeout, while it waits for others that end."""

        async def run() -> None:
            async with kvstored.AsyncClient(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
                first = await kv.prefetch(prompt(0))
                kv.timeout = 0.05
                task = asyncio.ensure_future(kv.prefetch(prompt(1)))
                while not any(call.enough for call in list(kv._link._calls.values())):  # type: ignore[union-attr]
                    await asyncio.sleep(0.001)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                kv.timeout = PATIENCE
                self.assertTrue(await first.release())
                self.assertTrue(await kv.ping())
                self.nothing_is_left(kv)

        with mock.patch.object(turns, "LIMIT", 1), mock.patch.object(Link, "stuck", lambda *_: False):
            asyncio.run(run())


class Ends(unittest.TestCase):
    """A daemon that stops or goes ends the wait for a turn."""

    def test_with_the_connection(self) -> None:
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            with mock.patch.object(turns, "LIMIT", 1):
                first, queued = kv.prefetch(prompt(0)), kv.prefetch(prompt(1), timeout=0.05)
                daemon.kill()
                self.assertEqual(queued.wait().reason, Reason.CLOSED)
            self.assertEqual((first.state.done, first.release(), queued.release()), (True, False, False))

    def test_stopped(self) -> None:
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            with mock.patch.object(turns, "LIMIT", 1):
                kv.prefetch(prompt(0))
                kv.timeout = 1.0
                daemon.pause()
                try:
                    began = time.monotonic()
                    jobs = [kv.prefetch(prompt(i)) for i in range(100)]
                    self.assertLess(time.monotonic() - began, PATIENCE)
                    self.assertTrue(all(job.waits_for_its_turn for job in jobs))
                finally:
                    daemon.resume()


def prefetch(jobs: int = 0) -> Call:
    op = wire.Op.BATCH if jobs else wire.Op.PREFETCH
    return Call(0, Request(op, b"", wire.empty_reply, jobs=jobs))


class Order(unittest.TestCase):
    def test_first_come_first_served(self) -> None:
        """A small one does not pass a large one that waits."""
        q, end = Turns(), Call(0, Request(wire.Op.RELEASE, b"", wire.empty_reply))
        with mock.patch.object(turns, "LIMIT", 3):
            two, large, small = (prefetch() for _ in range(2)), prefetch(3), prefetch()
            self.assertEqual([q.enter(c) for c in (*two, large, small)], [True, True, False, False])
            q.answered(end, 0, b"\0")
            self.assertEqual(q.next(), [])
            q.answered(end, 0, b"\0")
            self.assertEqual(q.next(), [large])
            self.assertEqual(q.taken, 3)
            q.unsent(large)
            self.assertEqual(q.next(), [small])

    def test_what_counts(self) -> None:
        q = Turns()
        self.assertTrue(q.enter(prefetch()))
        q.answered(prefetch(), int(kvstored.Code.NO_SPACE), b"")
        self.assertEqual(q.taken, 0)
        q.enter(prefetch())
        end = Call(0, Request(wire.Op.RELEASE, b"", wire.empty_reply))
        q.answered(end, int(kvstored.Code.UNKNOWN_JOB), b"")  # it was counted when it ended
        self.assertEqual(q.taken, 1)
        with mock.patch.object(turns, "LIMIT", 1):  # what is larger than all there is goes alone
            large = prefetch(2)
            self.assertFalse(q.enter(large))
            q.answered(end, 0, b"")
            self.assertEqual(q.next(), [large])


if __name__ == "__main__":
    unittest.main()
