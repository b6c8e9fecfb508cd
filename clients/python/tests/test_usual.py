"""Replies that are read at once where they have their usual shape: what is read so is
what reading field by field finds."""

from __future__ import annotations

import random
import struct
import unittest
from typing import Any, Callable, List

from kvstored import wire
from kvstored.wire import Count, Match


def tiers(*counts: Count) -> bytes:
    return struct.pack("<IHH", len(counts), 16, 0) + b"".join(struct.pack("<QI4x", c.tokens, c.chunks) for c in counts)


def state(code: int, chunks: int, refs: int) -> bytes:
    rows = b"".join(struct.pack("<QQII", 65536 * i, i, 65536, 4) for i in range(refs))
    told = struct.pack("<HBxIQI4x", code, 0, 0, 4 * chunks, chunks)
    body = told + tiers(Count(chunks, 4 * chunks), Count(), Count()) + struct.pack("<IHH", refs, 24, 0) + rows + bytes(8)
    return struct.pack("<II", len(body), 0) + body


def prefetched(refs: int) -> bytes:
    of = struct.pack("<QI4x", 28, 7) + tiers(Count(1, 4), Count(2, 8), Count(4, 16))
    return struct.pack("<Q", 9) + of + struct.pack("<I4x", 7) + state(0, refs, refs) + bytes(8)


def released(code: int) -> bytes:
    return struct.pack("<H6x", code) + state(12, 0, 0) + bytes(8)


def outcome(read: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return read(body)
    except wire.Malformed:
        return wire.Malformed


def slowly(body: bytes) -> wire.Prefetched:
    return wire._Cursor(body).prefetched()


def good(body: bytes) -> bool:
    """release_reply, field by field."""
    c = wire._Cursor(body)
    (code,) = c.read(wire._CODE8)
    c.record().state()
    c.options()
    return code == 0


def damaged(body: bytes) -> List[bytes]:
    """With each byte another, cut short, and longer."""
    rnd = random.Random(27)
    flips = [body[:i] + bytes([body[i] ^ (1 << bit)]) + body[i + 1 :] for i in range(len(body)) for bit in range(8)]
    cuts = [body[:n] for n in range(len(body))] + [body + bytes(n) for n in (1, 8, 24)]
    moved = [body[:i] + bytes(8) + body[i:] for i in range(0, len(body), 8)]
    noise = [bytes(rnd.randrange(256) if rnd.random() < 0.02 else b for b in body) for _ in range(2000)]
    return [*flips, *cuts, *moved, *noise]


class Usual(unittest.TestCase):
    def test_it_is_taken(self) -> None:
        for refs in (0, 1, 16):
            job = wire.leased(prefetched(refs))
            assert job is not None
            self.assertEqual((job.job, job.reason, job.ready), (9, 0, Count(refs, 4 * refs)))
            self.assertEqual(job.match(), Match(Count(7, 28), Count(1, 4), Count(2, 8), Count(4, 16), 7))
        self.assertEqual([wire.release_reply(released(code)) for code in (0, 12)], [True, False])

    def test_prefetch_reads_the_same(self) -> None:
        for refs in (0, 1, 3):
            body = prefetched(refs)
            self.assertEqual(wire.prefetch_reply(body), slowly(body))
            for other in damaged(body):
                self.assertEqual(outcome(wire.prefetch_reply, other), outcome(slowly, other), other.hex())

    def test_release_reads_the_same(self) -> None:
        for body in (released(0), released(12)):
            for other in [body, *damaged(body)]:
                self.assertEqual(outcome(wire.release_reply, other), outcome(good, other), other.hex())

    def test_a_job_that_goes_on_is_none(self) -> None:
        body = bytearray(prefetched(2))
        struct.pack_into("<H", body, wire._LEASED_STATE, wire.RUNNING)
        self.assertIsNone(wire.leased(body))


if __name__ == "__main__":
    unittest.main()
