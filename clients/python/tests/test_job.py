"""A job by itself, from the answers it takes."""

from __future__ import annotations

import unittest
from types import SimpleNamespace
from typing import Any, List
from unittest import mock

import kvstored
from kvstored import Count, Disconnected, wire
from kvstored.job import Job, Reason

from .daemon import Served
from .test_client import GIVEN, chain, payload, store

PATIENCE = 60.0  # seconds; bounds what should take none


def state(chunks: int, done: bool = False) -> wire.JobState:
    refs = [wire.Ref(i * 64, 0, 64, 16) for i in range(chunks)]
    return wire.JobState(done, Reason.COMPLETE if done else Reason.RUNNING, "", Count(chunks, 4 * chunks), (), 0, refs)


class Answers(unittest.TestCase):
    def setUp(self) -> None:
        link: Any = SimpleNamespace(jobs={}, down=None)
        self.job = Job(link, 1.0)._accept(wire.Prefetched(1, wire.Match(), state(0)))

    def take(self, answer: wire.JobState) -> None:
        with mock.patch.object(wire, "job_state", lambda _: answer):
            self.job._update(b"")

    def test_in_any_order(self) -> None:
        """Answers to several threads: what is ready only grows, and what is done stays done."""
        for answer, ready in ((state(3), 3), (state(1), 3), (state(4, done=True), 4), (state(4), 4), (state(2), 4)):
            self.take(answer)
            self.assertEqual(len(self.job), ready)
        self.assertTrue(self.job.state.done)
        self.assertEqual(self.job.state.reason, Reason.COMPLETE)

    def test_what_is_lost_stays_lost(self) -> None:
        self.take(state(3))
        self.job._lose(Disconnected("by the test"))
        self.take(state(3, done=True))
        self.assertEqual((len(self.job), self.job.state.reason), (0, Reason.CLOSED))


class Kept(Served):
    def test_a_job_that_is_given_back_while_it_loads_is_forgotten(self) -> None:
        """By all ways to end it; no push comes for it any more."""
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            store(kv, chain("kept", 1), [payload(0)])
            ends: List[Any] = [kvstored.Job.release, kvstored.Job.cancel, kvstored.Job.release_soon]
            for end in ends:
                job = kv.prefetch(chain("kept", 1))
                job._state = job._state._replace(done=False)
                assert kv._link is not None
                kv._link.jobs[job.id] = job
                end(job)
                self.assertEqual(kv._link.jobs, {}, end)


if __name__ == "__main__":
    unittest.main()
