"""Every call awaited: the same answers, and a loop that goes on."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import time
import unittest
from typing import Any

import kvstored
from kvstored import Grant, Reason, Result

from .clock import FAR, FastClock
from .daemon import Daemon, Served
from .test_client import GIVEN, chain, payload, store

PATIENCE = 60.0  # seconds; bounds what should take none
RANKS = [GIVEN._replace(world=2, worker=r) for r in range(2)]


class Calls(Served):
    def run_with(self, work: Any) -> None:
        async def run() -> None:
            async with kvstored.AsyncClient(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
                await work(kv)

        asyncio.run(asyncio.wait_for(run(), 3 * PATIENCE))

    def test_the_same_calls(self) -> None:
        """Each call of Client is one of AsyncClient, with the same signature, awaited."""
        for sync, awaited in ((kvstored.Client, kvstored.AsyncClient), (kvstored.Job, kvstored.AsyncJob), (kvstored.Fill, kvstored.AsyncFill)):
            own = {n for n, f in vars(sync).items() if hasattr(f, "__wrapped__") and not n.endswith("_async")}
            self.assertTrue(own)
            for name in own:
                call = getattr(awaited, name)
                self.assertTrue(inspect.iscoroutinefunction(call), name)
                self.assertEqual(inspect.signature(call), inspect.signature(getattr(sync, name)), name)
                self.assertTrue(call.__doc__, name)

    def test_all_of_it(self) -> None:
        async def work(kv: kvstored.AsyncClient) -> None:
            prompt, want = chain("async all", 3), [payload(i) for i in range(3)]
            self.assertTrue(await kv.ping())
            async with await kv.reserve(prompt, sizes=[len(p) for p in want]) as fill:
                for slot in fill:
                    slot.memory[:] = want[slot.index]
            self.assertEqual([r.result for r in fill.results], [Result.STORED] * 3)
            self.assertEqual((await kv.lookup(prompt)).cpu.chunks, 3)
            async with await kv.prefetch(prompt, pin=True, lookup_id="async") as job:
                self.assertEqual((await job.wait()).reason, Reason.COMPLETE)
                self.assertEqual([bytes(b) for b in job], want)
                self.assertGreater(await job.renew(), 0)
                self.assertEqual((await kv.lookup(job.prompt)).total.chunks, 3)
            self.assertTrue(job.good)
            self.assertEqual(await kv.unpin("async"), 3)
            self.assertEqual((await kv.pin(prompt, "again")).chunks, 3)
            self.assertEqual(await kv.unpin("again"), 3)
            jobs, order = await kv.batch([prompt, prompt], lookup_ids=["a", "b"], pin=True, configs=[("turn_over", "done")])
            self.assertEqual(([len(j) for j in jobs], sorted(order)), ([3, 3], [0, 1]))
            self.assertEqual([await kv.unpin(name) for name in "ab"], [3, 3])
            jobs[0].release_soon()
            self.assertEqual([await jobs[0].release(), (await jobs[1].cancel()).done], [True, True])
            self.assertEqual((await kv.warm(prompt, wait=5))[1].ready.chunks, 3)
            self.assertEqual([c.payload for c in await kv.get(prompt)], want)
            self.assertIsNotNone(await kv.flush(timeout=PATIENCE))
            self.assertTrue(await kv.stats())
            raw = bytes(prompt.raw)
            self.assertEqual([await kv.delete_hashes(raw[32:]), await kv.delete(prompt)], [1, 2])
            self.assertEqual([r.result for r in await kv.put(prompt, want)], [Result.STORED] * 3)
            with self.assertRaises(kvstored.Refused):
                await kv.delete(kvstored.hashes(bytes(16), [4]))
            async with await kv.reserve(chain("aborted", 1), size=10) as fill:
                await fill.abort()
            self.assertEqual((await kv.lookup(chain("aborted", 1))).total.chunks, 0)

        self.run_with(work)

    def test_ranks_and_advice(self) -> None:
        raw = hashlib.sha256(b"ranks").digest()
        prompts = [kvstored.hashes(raw, [4, 4], space=space) for space in RANKS]
        with kvstored.Client(self.daemon.socket, timeout=PATIENCE) as kv:
            store(kv, prompts[0], [payload((0, i)) for i in range(2)])
            store(kv, kvstored.hashes(raw[:16], [4], space=RANKS[1]), [payload((1, 0))])
            self.assertEqual(kv.lookup(prompts[0]).total.chunks, 2)
            self.assertEqual(kv.lookup(prompts[0], ranks=RANKS[1:]).total.chunks, 1)
            with kv.prefetch(prompts[0], ranks=RANKS[1:], prefill_rate=1000) as job:
                self.assertEqual(len(job), 1)
                self.assertEqual([bytes(job.block(0, r)) for r in range(2)], [payload((r, 0)) for r in range(2)])
                assert job.advice is not None
                self.assertEqual(job.advice.load.chunks, 1)
                for i, r in ((1, 0), (0, 2), (0, -1), (-1, 0)):
                    with self.assertRaises(IndexError):
                        job.block(i, r)
            self.assertTrue(job.good)
            (job,), _ = kv.batch(prompts[:1], ranks=RANKS[1:])
            self.assertEqual([bytes(b) for b in job.blocks(1)], [payload((1, 0))])
            self.assertTrue(job.release())

    def test_wrong_input(self) -> None:
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            prompt = chain("wrong", 1)
            for wrong in (
                lambda: kv.prefetch(prompt, ranks=[GIVEN]),  # named twice
                lambda: kv.prefetch(prompt, ranks=[GIVEN._replace(worker=0, world=2, chunk_tokens=8)]),
                lambda: kv.prefetch(prompt, pin=True),  # without a name
                lambda: kv.prefetch(prompt, policy=9),
                lambda: kv.batch([prompt] * 1025),
            ):
                with self.assertRaises(kvstored.Refused):
                    wrong()
            for raw, width in ((bytes(16), 15), (bytes(17), 16), (bytes(8), 0)):
                with self.assertRaisesRegex(ValueError, "8, 16 or 32"):
                    kv.delete_hashes(raw, width=width)
            with self.assertRaisesRegex(ValueError, "no prompt"):
                kvstored.Job(None, 1.0).prompt


class Cancelled(Served):
    """What a task that is cancelled was giving back is given back."""

    async def cancelled(self, calls: Any) -> None:
        tasks = [asyncio.ensure_future(c) for c in calls]
        await asyncio.sleep(0)  # they have begun, and wait
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        self.assertTrue(all(isinstance(d, asyncio.CancelledError) for d in done), done)

    async def soon(self, left: Any) -> None:
        """Returns when nothing is left."""
        deadline = time.monotonic() + PATIENCE
        while what := await left():
            self.assertLess(time.monotonic(), deadline, what)
            await asyncio.sleep(0.01)

    def test_leases(self) -> None:
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            store(kv, chain("cancelled", 1), [payload(0)])

        async def run() -> None:
            async with kvstored.AsyncClient(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
                jobs = [await kv.prefetch(chain("cancelled", 1)) for _ in range(40)]
                await self.cancelled(j.release() if i % 2 else j.cancel() for i, j in enumerate(jobs))

                async def left() -> Any:
                    return (await kv.stats())["server"]["leases_live"] or kv._link._turns.taken  # type: ignore[union-attr]

                await self.soon(left)

        asyncio.run(run())

    def test_fills(self) -> None:
        async def run() -> None:
            async with kvstored.AsyncClient(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
                fills = [await kv.reserve(chain(("fill", i), 1), size=10) for i in range(40)]
                await self.cancelled(f.commit() if i % 2 else f.abort() for i, f in enumerate(fills))

                async def left() -> Any:
                    again = [await kv.reserve(chain(("fill", i), 1), size=10) for i in range(40)]
                    pending = [fill for fill in again if fill.slots[0].grant == Grant.PENDING]
                    await asyncio.gather(*(fill.abort() for fill in again))
                    return pending

                await self.soon(left)

        asyncio.run(run())


class Stopped(unittest.TestCase):
    """A daemon that is stopped keeps neither a coroutine past its time nor the loop at all."""

    def test_the_loop_goes_on(self) -> None:
        async def run(daemon: Daemon) -> None:
            async with kvstored.AsyncClient(daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
                prompt, big = chain("stopped", 1), bytes(4 << 20)
                self.assertTrue(await kv.ping())
                job = await kv.prefetch(prompt)
                clock = FastClock(self)
                daemon.pause()
                kv.timeout = job._timeout = FAR
                try:
                    calls = [kv.lookup(prompt), kv.prefetch(prompt), kv.put(prompt, [big]), kv.put(prompt, [big]), kv.stats(), job.release()]
                    answers = asyncio.gather(*calls)
                    for _ in range(20):
                        await asyncio.sleep(0.01)
                    self.assertFalse(answers.done())
                    with clock.hurried():
                        await asyncio.wait([answers], timeout=PATIENCE)
                    self.assertTrue(answers.done())
                finally:
                    daemon.resume()
                match, late, *rest = await answers
                self.assertTrue(await kv.wait_attached(PATIENCE))
                self.assertEqual((match, late.reason, rest), (kvstored.Match(), Reason.DEADLINE, [[], [], {}, False]))

        with Daemon() as daemon:
            asyncio.run(run(daemon))


if __name__ == "__main__":
    unittest.main()
