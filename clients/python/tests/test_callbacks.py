"""Callbacks and coroutines: called once and in time, whatever they and the daemon do."""

from __future__ import annotations

import asyncio
import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any, List
from unittest import mock

import kvstored
from kvstored import wire
from kvstored.job import Job
from kvstored.call import Call, Request
from kvstored.link import Link

from .daemon import Daemon, Served
from .test_client import GIVEN, chain, payload, store

PATIENCE = 60.0  # seconds; bounds what should take none


def ping(callback: Any) -> Request:
    return Request(wire.Op.PING, wire.empty(), wire.plain_reply, callback=callback)


class Callbacks(Served):
    def client(self, timeout: float = PATIENCE) -> kvstored.Client:
        kv = kvstored.Client(self.daemon.socket, space=GIVEN, timeout=timeout)
        self.addCleanup(kv.close)
        return kv

    def link(self, kv: kvstored.Client) -> Link:
        assert kv._link is not None
        return kv._link

    def unanswered(self, kv: kvstored.Client) -> Job:
        """A job that the client thinks is still loading."""
        prompt = chain("unanswered", 1)
        store(kv, prompt, [payload(0)])
        job = kv.prefetch(prompt)
        job._state = job._state._replace(done=False, ready=wire.Count())
        return job

    def leases(self, n: int) -> None:
        """Wants so many chunks under lease in the daemon, now or soon."""
        kv, deadline = self.client(), time.monotonic() + PATIENCE
        while (live := kv.stats()["server"]["leases_live"]) != n:
            self.assertLess(time.monotonic(), deadline, f"{live} leases, not {n}")
            time.sleep(0.01)

    def test_a_callback_may_call_the_client(self) -> None:
        kv, got, done = self.client(), [], threading.Event()
        job = self.unanswered(kv)

        def callback(j: Job) -> None:
            got.extend([len(j), kv.ping(), j.release()])
            done.set()

        job.on_ready(callback)
        self.assertTrue(done.wait(PATIENCE))
        self.assertEqual(got, [1, True, True])

    def test_a_callback_that_raises_hurts_nobody(self) -> None:
        kv = self.client()
        with self.assertLogs("kvstored", "ERROR"):
            for failed in (threading.Event(), threading.Event()):

                def callback(_: Call, failed: threading.Event = failed) -> None:
                    failed.set()
                    raise RuntimeError("of the caller")

                self.link(kv).start([ping(callback)], time.monotonic() + PATIENCE)
                self.assertTrue(failed.wait(PATIENCE))
                self.assertTrue(kv.ping())
        self.assertTrue(kv._keeper is not None and kv._keeper.is_alive())

    def test_one_call_each(self) -> None:
        """Also when the connection ends, and while other threads read the socket."""
        kv, told, mu = self.client(), {}, threading.Lock()
        over = threading.Event()

        def read() -> None:
            while not over.is_set():
                kv.ping()

        readers = [threading.Thread(target=read) for _ in range(4)]
        for t in readers:
            t.start()
        sent = 0
        for i in range(300):

            def callback(_: Call, i: int = i) -> None:
                with mu:
                    told[i] = told.get(i, 0) + 1

            try:
                self.link(kv).start([ping(callback)], time.monotonic() + PATIENCE)
                sent += 1
            except kvstored.Error:
                pass
            if i == 250:
                self.link(kv).fail(kvstored.Disconnected("by the test"))
                kv.wait_attached()
        deadline = time.monotonic() + PATIENCE
        while len(told) < sent and time.monotonic() < deadline:
            time.sleep(0.01)
        over.set()
        for t in readers:
            t.join()
        kv.close()
        self.assertEqual((len(told), set(told.values())), (sent, {1}))

    def test_the_connection_ends_just_after_a_request_is_sent(self) -> None:
        """And is given up before the caller gets to say that it now waits."""
        kv, sent, called = self.client(), Link._sent, []

        def late(link: Link, calls: Any) -> None:
            link.fail(kvstored.Disconnected("by the test"))
            self.assertTrue(kv.wait_attached())  # again, so that nobody tends this one
            sent(link, calls)

        with mock.patch.object(Link, "_sent", late):
            self.link(kv).start([ping(called.append)], time.monotonic() + PATIENCE)
            self.assertIsInstance(called[0].error, kvstored.Disconnected)
            asked = kv.prefetch_async(chain("late", 1))
            self.assertEqual(len(asyncio.run(asyncio.wait_for(asked, PATIENCE))), 0)

    def test_a_reply_that_makes_no_sense(self) -> None:
        """Its caller has a miss at once, and the client connects again."""
        kv, link = self.client(), None
        for error in (wire.Malformed("short"), IndexError("none")):
            link, heard = self.link(kv), threading.Event()
            with mock.patch.object(wire, "plain_reply", side_effect=error):
                self.assertFalse(kv.ping())
            self.assertIsInstance(link.down, kvstored.ProtocolError)
            self.assertTrue(kv.wait_attached())
            with mock.patch.object(wire, "plain_reply", side_effect=error):
                self.link(kv).start([ping(lambda _: heard.set())], time.monotonic() + PATIENCE)
                self.assertTrue(heard.wait(PATIENCE))
            self.assertTrue(kv.wait_attached())

    def test_a_daemon_that_hangs(self) -> None:
        """Whoever waits with a callback or in a coroutine hears at the timeout."""
        kv = self.client()
        job, called = self.unanswered(kv), threading.Event()
        self.daemon.pause()
        try:
            job.on_ready(lambda _: called.set(), timeout=0.2)

            async def wait() -> List[int]:
                waited = await asyncio.wait_for(job.wait_async(timeout=0.2), PATIENCE)
                return [len(await asyncio.wait_for(kv.prefetch_async(chain("unanswered", 1), timeout=0.2), PATIENCE)), waited.ready.chunks]

            self.assertEqual(asyncio.run(wait()), [0, 0])
            self.assertTrue(called.wait(PATIENCE))
            self.assertFalse(kv.attached)  # so others do not try
        finally:
            self.daemon.resume()
        self.assertTrue(kv.wait_attached())
        self.leases(1)  # that of the job; what came too late went back
        self.assertTrue(job.release())
        self.leases(0)

    def test_a_coroutine_that_is_cancelled(self) -> None:
        """Its lease goes back, whether the reply has come or not."""
        kv, prompt = self.client(), chain("cancelled", 2)
        store(kv, prompt, [payload(0), payload(1)])

        async def cancelled(after: float) -> None:
            task = asyncio.ensure_future(kv.prefetch_async(prompt))
            await asyncio.sleep(after)
            task.cancel()
            try:
                (await task).release()
            except asyncio.CancelledError:
                pass

        for _ in range(10):
            for after in (0, 0.0002, 0.001, 0.01):
                asyncio.run(cancelled(after))
        self.leases(0)
        self.assertTrue(kv.ping())

    def test_waiting_ends_in_time(self) -> None:
        """The daemon is asked to answer before the caller must go."""
        for timeout in (0.01, 0.2, 2.0):
            kv = self.client()
            job, ends = self.unanswered(kv), []

            def answer(link: Link, request: Request, deadline: float, grace: Any) -> Any:
                ends.append(deadline)
                job._lose(kvstored.Disconnected("by the test"))

            clock = mock.patch("kvstored.ask.time", SimpleNamespace(monotonic=lambda: 1000.0))
            unpushed = mock.patch.object(Link, "pushes", False)
            with clock, unpushed, mock.patch.object(Link, "call", answer), mock.patch.object(wire, "wait", wraps=wire.wait) as wait:
                job.wait(timeout=timeout)
            self.assertEqual(ends, [1000.0 + timeout])
            self.assertLess(wait.call_args.args[2], 1000 * timeout)


class Hanging(unittest.TestCase):
    def test_every_call_answers_a_miss(self) -> None:
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            prompt, other = chain("hang", 2), chain("other", 2)
            store(kv, prompt, [payload(0), payload(1)])
            job, fill = kv.prefetch(prompt), kv.reserve(other, size=100)
            self.assertEqual(len(list(fill)), 2)
            kv.timeout, job._timeout, fill._timeout = 0.2, 0.2, 0.2
            doubt = mock.patch("kvstored.link._DOUBT", -PATIENCE)  # a call that begins late says as much
            doubt.start()
            self.addCleanup(doubt.stop)
            calls = [
                (lambda: kv.ping(), False),
                (lambda: kv.lookup(prompt), kvstored.Match()),
                (lambda: len(kv.prefetch(prompt)), 0),
                (lambda: kv.warm(prompt)[0], kvstored.Match()),
                (lambda: [len(j) for j in kv.batch([prompt, other])[0]], [0, 0]),
                (lambda: list(kv.reserve(other, size=5)), []),
                (lambda: kv.put(prompt, [b"x", b"y"]), []),
                (lambda: kv.get(prompt), []),
                (lambda: kv.pin(prompt, "p").chunks, 0),
                (lambda: kv.unpin("p"), 0),
                (lambda: kv.delete(prompt), 0),
                (lambda: kv.flush(), None),
                (lambda: kv.stats(), {}),
                (lambda: job.renew(), 0),
                (lambda: job.release(), False),
                (lambda: fill.commit(), []),
            ]
            daemon.pause()
            try:
                for i, (call, miss) in enumerate(calls):
                    for stalled in (False, True):
                        link = kv._link
                        assert link is not None
                        link.stalled = stalled
                        began = time.monotonic()
                        self.assertEqual(call(), miss, f"call {i}")
                        self.assertLess(time.monotonic() - began, PATIENCE / 2, f"call {i}")
                        self.assertTrue(link.stalled)
            finally:
                daemon.resume()
            kv.timeout = PATIENCE
            self.assertTrue(kv.wait_attached())
            self.assertTrue(kv.ping())


if __name__ == "__main__":
    unittest.main()
