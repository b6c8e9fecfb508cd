"""Copies of many chunks by one call: out of a lease, and into the slots of a Writer."""

from __future__ import annotations

import random
import unittest
from typing import List, Tuple
from unittest import mock

import kvstored
from kvstored import Result, Space, memory, tokens

from .daemon import Served


class CopyAll(unittest.TestCase):
    def test_as_one_by_one(self) -> None:
        rnd = random.Random(5)
        for _ in range(300):
            source, n = rnd.randbytes(4096), rnd.randrange(12)
            got, want = bytearray(4096), bytearray(4096)
            at, base = memory.address(got), memory.address(source)
            places: List[Tuple[int, int, int]] = []
            to = of = 0
            for _ in range(n):
                size = rnd.randrange(1, 200)
                to += rnd.choice([0, 0, 0, 7])
                of += rnd.choice([0, 0, 0, 11])
                want[to : to + size] = source[of : of + size]
                places.append((at + to, base + of, size))
                to, of = to + size, of + size
            with mock.patch.object(memory, "_PIECE", rnd.choice([1, 64, 1000, 1 << 20])):
                memory.copy_all(places)
            self.assertEqual(got, want)

    def test_neighbours_are_one_copy(self) -> None:
        calls: List[Tuple[int, int, int]] = []
        with mock.patch.object(memory, "copy", lambda *place: calls.append(place)):
            memory.copy_all([(100, 900, 8), (108, 908, 8), (116, 1000, 8), (200, 1008, 8)])
        self.assertEqual(calls, [(100, 900, 16), (116, 1000, 8), (200, 1008, 8)])


class Copies(Served):
    def setUp(self) -> None:
        self.kv = kvstored.Client(self.daemon.socket, space=Space(model=self.id(), dtype="u8", chunk_tokens=1), timeout=60)
        self.addCleanup(self.kv.close)
        self.rnd = random.Random(self.id())

    def put(self, ids: List[int], sizes: List[int]) -> bytes:
        payloads = self.rnd.randbytes(sum(sizes))
        got = self.kv.store(tokens(ids), sizes, payloads)
        self.assertEqual([r.result for r in got], [Result.STORED] * len(ids))
        return payloads

    def test_out_of_one_buffer_into_another(self) -> None:
        for n, sizes in enumerate(([1000] * 6, [1, 70000, 3, 600000, 17])):
            payloads = self.put([n] * len(sizes), sizes)
            mine = bytearray(b"\xff" * (len(payloads) + 9))
            with self.kv.prefetch(tokens([n] * len(sizes))) as job:
                self.assertEqual(job.copy_to(mine), len(payloads))
            self.assertTrue(job.good)
            self.assertEqual(bytes(mine), payloads + b"\xff" * 9)

    def test_some_are_there(self) -> None:
        """Those are passed over in the buffer, and what is behind them lies right."""
        first = self.put([1, 2], [100, 200])
        rest = self.rnd.randbytes(600)
        with mock.patch("kvstored.writer._COMMIT_BYTES", 150), self.kv.writer() as w:
            put = w.put(tokens([1, 2, 3, 4, 5]), [100, 200, 100, 200, 300], bytes(300) + rest)
        self.assertEqual([r.result for r in put.results()], [Result.EXISTS] * 2 + [Result.STORED] * 3)
        mine = bytearray(900)
        with self.kv.prefetch(tokens([1, 2, 3, 4, 5])) as job:
            job.copy_to(mine)
        self.assertEqual((job.good, bytes(mine)), (True, first + rest))

    def test_longer_than_the_window(self) -> None:
        kv = kvstored.Client(self.daemon.socket, space=self.kv.space, timeout=60, staging_bytes=256 << 10)
        self.addCleanup(kv.close)
        sizes, payloads = [50000] * 20, self.rnd.randbytes(1000000)
        self.assertEqual([r.result for r in kv.store(tokens([7] * 20), sizes, payloads)], [Result.STORED] * 20)
        mine = bytearray(1000000)
        with kv.prefetch(tokens([7] * 20)) as job:
            job.copy_to(mine)
        self.assertEqual((job.good, bytes(mine)), (True, payloads))

    def test_buffers_that_are_no_payloads(self) -> None:
        for wrong, error in (
            (bytes(19), ValueError),
            (bytes(21), ValueError),
            (memoryview(bytes(40))[::2], ValueError),
            ("a" * 20, TypeError),
            ([bytes(10), bytes(10)], TypeError),
            (None, TypeError),
        ):
            with self.subTest(repr(wrong)), self.assertRaises(error):
                self.kv.store(tokens([8, 8]), [10, 10], wrong)  # type: ignore[arg-type]
        self.assertEqual(self.kv.lookup(tokens([8, 8])).total.chunks, 0)

    def test_buffers_that_cannot_be_filled(self) -> None:
        payloads = self.put([9, 9], [10, 10])
        job = self.kv.prefetch(tokens([9, 9]))
        small = bytearray(19)
        for wrong, error in (
            (small, ValueError),
            (bytes(20), ValueError),
            (memoryview(bytearray(40))[::2], ValueError),
            ([0] * 20, TypeError),
            (20, TypeError),
        ):
            with self.subTest(repr(wrong)), self.assertRaises(error):
                job.copy_to(wrong)
        self.assertEqual(small, bytes(19))
        with self.assertRaises(IndexError):
            job.copy_to(bytearray(20), rank=1)
        mine = bytearray(20)
        job.copy_to(mine)
        self.assertTrue(job.release())
        self.assertEqual(bytes(mine), payloads)
        with self.assertRaises(IndexError):
            job.copy_to(mine)

    def test_a_job_of_nothing(self) -> None:
        with self.kv.prefetch(tokens([10])) as job:
            self.assertEqual(job.copy_to(bytearray()), 0)


if __name__ == "__main__":
    unittest.main()
