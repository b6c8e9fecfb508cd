"""How fast an engine computes, by a clock that a test sets."""

import unittest
from typing import List, Union

from kvstored.prefill import MEASURED, Prefill


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Rate(unittest.TestCase):
    def setUp(self) -> None:
        self.clock = Clock()

    def measured(self, rate: Union[int, str] = MEASURED) -> Prefill:
        return Prefill(rate, clock=self.clock)

    def prompts(self, p: Prefill, rates: List[float], tokens: int = 4096) -> None:
        for n, rate in enumerate(rates):
            p.asked((self.clock.now, n), tokens)
            last = self.clock.now, n
            self.clock.now += tokens / rate
            p.stored([b"others", last])

    def test_median_of_the_last_prompts(self) -> None:
        p = self.measured()
        self.prompts(p, [1000.0] * 7)
        self.assertEqual(p.rate, 0)  # too few
        self.prompts(p, [4000.0])
        self.assertEqual(p.rate, 1000)
        self.prompts(p, [3000.0] * 200)
        self.assertEqual(p.rate, 3000)
        self.prompts(p, [9e6] * 15)  # the engine had these itself
        self.assertEqual(p.rate, 3000)

    def test_between_two(self) -> None:
        p = self.measured()
        self.prompts(p, [1000.0] * 4 + [3000.0] * 4)
        self.assertEqual(p.rate, 2000)

    def test_the_first_question_counts(self) -> None:
        p = self.measured()
        for n in range(8):
            p.asked(n, 4096)
            self.clock.now += 3.0
            p.asked(n, 4096)  # of another request, or of the same, which waits
            self.clock.now += 1.096
            p.stored([n, n])
        self.assertEqual(p.rate, 1000)

    def test_what_says_nothing(self) -> None:
        p = self.measured()
        self.prompts(p, [1000.0] * 20, tokens=2047)
        self.prompts(p, [1.0] * 20)  # after more than 300 s
        self.prompts(p, [1e9] * 20)  # no engine computes so fast
        p.asked("at once", 4096)
        p.stored(["at once"])
        p.stored(["never asked for"])
        self.assertEqual((p.rate, len(p._waiting)), (0, 0))

    def test_bounded(self) -> None:
        p = self.measured()
        for n in range(5000):
            p.asked(n, 4096)
        self.assertEqual(len(p._waiting), 1024)

    def test_given_or_off(self) -> None:
        for given in (0, 8000, 8000.7):
            p = Prefill(given, clock=self.clock)
            self.prompts(p, [1000.0] * 40)
            self.assertEqual((p.rate, len(p._waiting)), (int(given), 0))

    def test_depth(self) -> None:
        """It is said with each prompt that does not say its own."""
        other, own = ("session", "s"), ("prefill_depth", "5")
        self.assertEqual((list(Prefill(0).says().configs), list(Prefill(0).says([other]).configs)), ([], [other]))
        p = Prefill(9, 8000)
        self.assertEqual((p.says().prefill_rate, list(p.says([other]).configs)), (9, [("prefill_depth", "8000"), other]))
        self.assertEqual(list(p.says([own]).configs), [own])
