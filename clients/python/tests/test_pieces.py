"""Prompts longer than DRAM, through a real daemon."""

from __future__ import annotations

import random
import unittest
from unittest import mock

import kvstored
from kvstored import Reason, Result, Space, tokens

from .daemon import Daemon

CHUNK = 256 << 10
CHUNKS = 192  # three times DRAM


class Long(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = Daemon("16MiB", "256MiB")
        self.addCleanup(self.daemon.close)
        self.daemon.wait()
        space = Space(model="m", dtype="u8", chunk_tokens=1)
        self.kv = kvstored.Client(self.daemon.socket, space=space, timeout=60)
        self.addCleanup(self.kv.close)
        self.assertTrue(self.kv.wait_attached(60))

    def payload(self, i: int) -> bytes:
        return random.Random(i).randbytes(64) * (CHUNK // 64)

    def test_stored_and_read_back(self) -> None:
        prompt = tokens(list(range(CHUNKS)))

        def write(i: int, memory: memoryview) -> None:
            memory[:] = self.payload(i)

        for result in (Result.STORED, Result.EXISTS):
            got = self.kv.store(prompt, [CHUNK] * CHUNKS, write)
            self.assertEqual([r.result for r in got], [result] * CHUNKS)
        n = pieces = 0
        for piece in self.kv.pieces(prompt):
            self.assertEqual(piece.first, n)
            for chunk in piece.chunks:
                self.assertEqual(chunk, self.payload(n))
                n += 1
            pieces += 1
        self.assertEqual((n, piece.reason), (CHUNKS, Reason.COMPLETE))
        self.assertGreater(pieces, 3)

    def test_pieces_end_where_memory_does(self) -> None:
        prompt = tokens(list(range(6)))
        self.kv.store(prompt, [CHUNK] * 6, lambda i, memory: None)
        with mock.patch("kvstored.pieces._PIECE_BYTES", 2 * CHUNK):
            got = [(p.first, len(p.chunks), p.reason) for p in self.kv.pieces(prompt)]
        more = Reason.OVER_BUDGET
        self.assertEqual(got, [(0, 2, more), (2, 2, more), (4, 2, Reason.COMPLETE)])

    def test_nothing_there(self) -> None:
        (piece,) = self.kv.pieces(tokens([7, 8, 9]))
        self.assertEqual((piece.first, piece.chunks), (0, []))

    def test_no_room(self) -> None:
        self.assertEqual(self.kv.store(tokens([1, 2]), [12 << 20] * 2, lambda i, m: None, wait=0.1), [])


if __name__ == "__main__":
    unittest.main()
