"""A job or a fill of nothing says why: it was late, refused, or the connection is gone."""

import unittest
from typing import Any, List
from unittest import mock

import kvstored
from kvstored import Reason
from kvstored._connection import Link
from kvstored.answers import reason_of

from .daemon import Daemon, Served, enter
from .stub import Hanging
from .test_client import GIVEN, chain, payload, store

PATIENCE = 60.0  # seconds; bounds what should take none


class Words(unittest.TestCase):
    def test_every_code(self) -> None:
        for code in kvstored.Code:
            reason = reason_of(kvstored.Refused("prefetch", code, "by the test"))
            self.assertNotIn(reason, (Reason.RUNNING, Reason.COMPLETE), code)
            if code.name in Reason.__members__ and code != kvstored.Code.RUNNING:
                self.assertEqual(reason.name, code.name)
        self.assertEqual(reason_of(kvstored.DeadlineExceeded("late")), Reason.DEADLINE)
        self.assertEqual(reason_of(kvstored.Disconnected("gone")), Reason.CLOSED)
        self.assertEqual(reason_of(kvstored.ProtocolError("odd")), Reason.CLOSED)


class Live(Served):
    def setUp(self) -> None:
        self.kv = enter(self, kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE))
        self.prompt = chain("reasons", 2)
        store(self.kv, self.prompt, [payload(0), payload(1)])

    def made(self, kv: kvstored.Client) -> List[Any]:
        """By all ways to make one."""

        jobs, _ = kv.batch([self.prompt])
        return [kv.prefetch(self.prompt), *jobs, kv.reserve(self.prompt, size=1)]

    def say(self, reason: Reason, words: str, made: List[Any]) -> None:
        for one in made:
            self.assertEqual((one.reason, len(one)), (reason, 0), one)
            self.assertRegex(str(one.error), words)
            self.assertIn(reason.name.lower(), repr(one))
        self.assertTrue(all(job.state.done for job in made[:-1]))

    def test_late(self) -> None:
        self.kv.timeout = 0.1
        self.daemon.pause()
        try:
            made = self.made(self.kv)
        finally:
            self.daemon.resume()
        self.say(Reason.DEADLINE, "no answer in time|does not answer", made)

    def test_refused(self) -> None:
        for code, reason in ((kvstored.Code.OVER_BUDGET, Reason.OVER_BUDGET), (kvstored.Code.CLOSED, Reason.CLOSED)):
            refused = kvstored.Refused("prefetch", code, "too much")

            def call(*_: Any) -> Any:
                raise refused.fresh()

            with mock.patch.object(Link, "begin", call):
                self.say(reason, "too much", self.made(self.kv))

    def test_refused_by_the_daemon(self) -> None:
        """Of a batch, one that is over the number of jobs that a connection may have."""
        jobs = [self.kv.prefetch(self.prompt) for _ in range(1024)]
        for refused in (self.kv.prefetch(self.prompt), *self.kv.batch([self.prompt])[0]):
            self.assertEqual((refused.reason, refused.state.done), (Reason.OVER_BUDGET, True))
            self.assertRegex(str(refused.error), "1024 jobs")
        for job in jobs:
            job.release_soon()
        self.assertEqual({job.release() for job in jobs}, {True})

    def test_a_closed_connection(self) -> None:
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            store(kv, self.prompt, [payload(0), payload(1)])
            running = kv.prefetch(self.prompt)
            running._state = running._state._replace(done=False)
            daemon.kill()
            self.assertEqual(running.wait().reason, Reason.CLOSED)
            while kv.attached:
                pass
            made = self.made(kv)
            self.say(Reason.CLOSED, "away|closed|reset|pipe", made)

    def test_no_daemon(self) -> None:
        with kvstored.Client("/nonexistent/s", space=GIVEN) as kv:
            self.say(Reason.CLOSED, "away", self.made(kv))
        with Hanging() as path, kvstored.Client(path, space=GIVEN, timeout=0.05) as kv:
            self.say(Reason.CLOSED, "away", self.made(kv))
