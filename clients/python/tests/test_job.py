"""A job by itself, from the answers it takes."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

from kvstored import Count, wire
from kvstored.job import Job, Reason


def state(chunks: int, done: bool = False) -> wire.JobState:
    refs = [wire.Ref(i * 64, 0, 64, 16) for i in range(chunks)]
    return wire.JobState(done, Reason.COMPLETE if done else Reason.RUNNING, "", Count(chunks, 4 * chunks), (), 0, refs)


class Answers(unittest.TestCase):
    def setUp(self) -> None:
        link: Any = object()
        self.job = Job(link, 1.0)._accept(1, wire.Match(), state(0))

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
        self.job._lose()
        self.take(state(3, done=True))
        self.assertEqual((len(self.job), self.job.state.reason), (0, Reason.CLOSED))


if __name__ == "__main__":
    unittest.main()
