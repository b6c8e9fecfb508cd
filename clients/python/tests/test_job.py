"""A job by itself, from the answers it takes."""

import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kvstored import Disconnected, Reason
from kvstored import _wire as wire
from kvstored.job import Job


def state(chunks: int, done: bool = False, first: int = 0) -> wire.State:
    refs = [(i * 64, 0, 64, 16) for i in range(first, chunks)]
    return wire.State(Reason.COMPLETE if done else Reason.RUNNING, 0, first, (4 * chunks, chunks), [], refs)


class Answers(unittest.TestCase):
    def setUp(self) -> None:
        self.link: Any = SimpleNamespace(down=None, fail=lambda e: e)
        self.job = Job(self.link, 1.0, wire.Prefetched(1, wire.Match((0, 0), []), 0, state(0)))

    def test_refs_come_once(self) -> None:
        for answer, ready in ((state(3), 3), (state(4, first=3), 4), (state(6, first=2), 6), (state(6, True, 6), 6)):
            self.job._take(answer)
            self.assertEqual((len(self.job), self.job._refs), (ready, [(i * 64, 0, 64, 16) for i in range(ready)]))
        self.assertEqual((self.job.state.done, self.job.state.reason), (True, Reason.COMPLETE))

    def test_refs_that_lack(self) -> None:
        for wrong in (state(3, first=1), state(2)._replace(ready=(12, 3))):
            with self.assertRaises(Disconnected):
                self.job._take(wrong)

    def test_a_lost_connection_loses_it(self) -> None:
        """Also where the last answer comes after that."""
        self.job._take(state(3))
        self.link.down = Disconnected("by the test")
        self.assertEqual((len(self.job), self.job.reason), (0, Reason.CLOSED))
        with mock.patch.object(self.link, "call", lambda *_: state(3, done=True), create=True):
            self.job._ask(1, 1.0, 1.0)
        self.assertEqual((len(self.job), self.job.reason), (0, Reason.CLOSED))

    def test_a_tier_that_fails_is_named(self) -> None:
        self.job._take(state(0)._replace(code=Reason.FAILED, failed_tier=wire.TIERS_REMOTE))
        self.assertEqual((self.job.reason, self.job.state.failed_tier), (Reason.FAILED, "remote"))
        self.assertEqual(str(self.job.state), "failed(remote), 0 chunks ready")
