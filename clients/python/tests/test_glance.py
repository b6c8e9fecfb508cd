"""When looking for a reply before sleeping is right."""

from __future__ import annotations

import unittest
from typing import Any, List

from kvstored.glance import _FIRST, _LONGEST, Glance, _stalled


class Machine:
    """One whose clock and scheduler a test is."""

    def __init__(self) -> None:
        self.at = 100.0
        self.waited = 5.0
        self.reads = 0
        self.glance = Glance(lambda: self.at, self.stalled)

    def stalled(self) -> float:
        self.reads += 1
        return self.waited

    def look(self, *steps: float, ready: bool = False) -> int:
        """A look of which each poll takes so long; how many there were."""
        left: List[float] = list(steps)
        polls = 0

        def poll(_: int) -> Any:
            nonlocal polls
            polls += 1
            if polls > 1:
                self.at += left.pop(0) if left else 1e-3 / 2
            return [(3, 1)] if ready and not left and polls > 1 else []

        self.glance.look(poll)
        return polls


class Glances(unittest.TestCase):
    def test_what_comes_of_it(self) -> None:
        m = Machine()
        self.assertEqual(m.look(1e-6, 1e-6, ready=True), 3)
        self.assertEqual(m.look(30e-6, 30e-6), 3)
        self.assertEqual(m.glance.read()[:5], (2, 1, 1, 0, 0))

    def test_a_lost_processor(self) -> None:
        m = Machine()
        for n, pause in enumerate([_FIRST, 2 * _FIRST, 4 * _FIRST, _LONGEST, _LONGEST], 1):
            m.look(3e-3, 1e-6, ready=True)
            self.assertTrue(m.glance.read().off)
            self.assertEqual(m.glance.read().lost, n)
            m.at += pause - 1e-3
            self.assertEqual(m.look(1e-6, ready=True), 1, "it looks on")
            m.at += 2e-3
        m.at += 2 * _LONGEST
        m.look(3e-3, ready=True)
        m.at += _FIRST + 1e-3
        self.assertEqual(m.look(1e-6, ready=True), 2, "it was on for long, and is off for longer than at first")

    def test_pressure(self) -> None:
        m = Machine()
        for n, (waited, looks) in enumerate([(0.0, True), (0.4, True), (0.6, False), (2.0, True), (0.4, True)]):
            m.at += 2.0
            m.waited += waited
            self.assertEqual(m.look(1e-6, ready=True) > 1, looks, n)
        before = m.reads
        for _ in range(1000):
            m.look(1e-7, ready=True)
        self.assertEqual(m.reads, before)
        m.at += 1000.0
        m.waited += 1000.0
        self.assertEqual(m.look(1e-6, ready=True), 2, "what was long ago counts")
        self.assertEqual(m.glance.read().pressed, 1)

    def test_one_thread_looks(self) -> None:
        m, calls = Machine(), []

        def poll(_: int) -> Any:
            m.at += 20e-6
            calls.append(0)
            if len(calls) > 1:  # the look is under way
                self.assertEqual(m.glance.look(lambda _: []), [])
            return []

        m.glance.look(poll)
        self.assertEqual((m.glance.read().polls, len(calls)), (1, 4))

    def test_this_kernel(self) -> None:
        self.assertGreaterEqual(_stalled(), 0.0)
