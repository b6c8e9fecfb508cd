"""Copies of many chunks by one call: out of a lease, and into slots."""

import random
from typing import List
from unittest import mock

import kvstored
from kvstored import Result, Space, tokens

from .daemon import Served, enter


class Copies(Served):
    def setUp(self) -> None:
        self.kv = enter(self, kvstored.Client(self.daemon.socket, space=Space(model=self.id(), dtype="u8", chunk_tokens=1), timeout=60))
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
        with mock.patch("kvstored.fill._COMMIT_BYTES", 150):
            put = self.kv.store(tokens([1, 2, 3, 4, 5]), [100, 200, 100, 200, 300], bytes(300) + rest)
        self.assertEqual([r.result for r in put], [Result.EXISTS] * 2 + [Result.STORED] * 3)
        mine = bytearray(900)
        with self.kv.prefetch(tokens([1, 2, 3, 4, 5])) as job:
            job.copy_to(mine)
        self.assertEqual((job.good, bytes(mine)), (True, first + rest))

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
