"""A part of a made-up trace through the classes, as tests/playback.py plays whole ones."""

from __future__ import annotations

import random
import unittest
from typing import Iterator, List

from . import playback

SIZE = 64 * 1024  # bytes of a chunk: the least DRAM has 256 of them


def conversations() -> Iterator[playback.Request]:
    """Some conversations that go on in turns, more of them than DRAM holds."""
    r, prompts, next_block = random.Random(7), [[0] for _ in range(24)], 1
    for _ in range(120):
        blocks = r.choice(prompts[r.randrange(3) * 8 :])
        for _ in range(r.randint(2, 9)):
            blocks.append(next_block)
            next_block += 1
        yield playback.Request(len(blocks) * playback.BLOCK + r.randrange(playback.BLOCK), list(blocks))


class Playback(unittest.TestCase):
    def test_every_byte_is_right(self) -> None:
        """And each finds about as much."""
        rates: List[float] = []
        for engine in sorted(playback.ENGINES):
            r = playback.run(engine, conversations(), "lru", 256, size=SIZE)
            self.assertEqual((r.requests, r.wrong, r.in_front), (120, 0, 0))
            self.assertGreater(r.below, 0)
            rates.append(r.rate)
        self.assertLess(max(rates) - min(rates), 0.12)

    def test_tiers_in_front_hide_what_they_have(self) -> None:
        plain = playback.run("sglang", conversations(), "lru", 256, size=SIZE)
        small = playback.run("sglang", conversations(), "lru", 256, [30, 60], size=SIZE)
        self.assertEqual(small.wrong, 0)
        self.assertGreater(small.in_front, 0)
        self.assertLess(small.below, plain.below)

    def test_a_front_keeps_beginnings(self) -> None:
        front = playback.Front(3)
        front.use([1, 2, 3, 4, 5])
        self.assertEqual(front.run([1, 2, 3, 4]), 3)
        front.use([7])
        self.assertEqual((front.run([1, 2, 3]), front.run([7])), (2, 1))


if __name__ == "__main__":
    unittest.main()
