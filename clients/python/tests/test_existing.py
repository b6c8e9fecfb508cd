"""Other bytes under a known key are noticed, and the first copy stays."""

import unittest
from pathlib import Path
from typing import List
from unittest import mock

import kvstored
from kvstored import options
from kvstored.existing import Existing
from kvstored import bulk
from kvstored.memory import address
from kvstored.pages import Pages

from .daemon import Daemon, enter, skip

PATIENCE = 60.0  # seconds; bounds what should take none
SPACE = kvstored.Space(model="existing", dtype="u8", chunk_tokens=4, method="given:test", world=4, worker=3)


class Compared(unittest.TestCase):
    def setUp(self) -> None:
        if not bulk.SUMS:
            skip(self, "libxxhash is not installed")
        self.daemon = enter(self, Daemon())
        self.kv = enter(self, kvstored.Client(self.daemon.socket, timeout=PATIENCE))
        self.keep: List[bytearray] = []

    def pages(self, every: int) -> Pages:
        pages = Pages(self.kv, SPACE, check_existing=every)
        self.addCleanup(pages.close)
        return pages

    def place(self, data: bytes, pieces: int = 1) -> list:
        memory = bytearray(data)
        self.keep.append(memory)
        size = len(data) // pieces
        return [(address(memory) + i * size, size) for i in range(pieces)]

    def counted(self) -> List[int]:
        return list(self.kv.stats()["server"]["puts_differ"].values())

    def test_it_is_counted_and_logged_and_the_first_copy_stays(self) -> None:
        pages, first, other = self.pages(1), b"a" * 1000, b"a" * 999 + b"b"
        self.assertEqual(pages.store([b"k"], [self.place(first)], PATIENCE), [True])
        with self.assertNoLogs("kvstored", "WARNING") if hasattr(self, "assertNoLogs") else mock.MagicMock():
            self.assertEqual(pages.store([b"k"], [self.place(first, pieces=4)], PATIENCE), [True])
        self.assertEqual(self.counted(), [])
        with self.assertLogs("kvstored", "WARNING") as said:
            for _ in range(3):
                self.assertEqual(pages.store([b"k"], [self.place(other)], PATIENCE), [True])
        self.assertEqual(len(said.output), 1)
        self.assertIn("rank 3 of 4", said.output[0])
        self.assertEqual(self.counted(), [3])
        got = bytearray(1000)
        self.assertEqual(pages.load([b"k"], [[(address(got), 1000)]], PATIENCE), 1)
        self.assertEqual(bytes(got), first)
        log = Path(self.daemon.dir, "log").read_text()
        self.assertEqual(log.count("other bytes under a known key"), 1)
        for what in ('"rank":3', '"model":"existing"', '"key":"', '"space":"'):
            self.assertIn(what.replace('"', ""), log.replace('"', "").replace("=", ":"))

    def test_another_length_is_not_stored(self) -> None:
        pages = self.pages(0)
        keys, places = [b"k", b"l"], [self.place(b"a" * 1000), self.place(b"a" * 500)]
        self.assertEqual(pages.store(keys[:1], places[:1], PATIENCE), [True])
        with self.assertLogs("kvstored", "WARNING"):
            self.assertEqual(pages.store(keys, [self.place(b"a" * 1001), places[1]], PATIENCE), [False, True])
        self.assertEqual(self.counted(), [1])

    def test_none_is_compared(self) -> None:
        pages = self.pages(0)
        for data in (b"a" * 100, b"b" * 100):
            self.assertEqual(pages.store([b"k"], [self.place(data)], PATIENCE), [True])
        self.assertEqual(self.counted(), [])

    def test_one_in_so_many(self) -> None:
        existing = Existing(SPACE, options.CHECK_EXISTING)
        places = [self.place(b"x")] * (256 * 100)
        self.assertTrue(40 < len(existing.sums(places)) < 250)
        self.assertEqual(existing.sums([]), [])

    def test_reserve_names_what_differs(self) -> None:
        with kvstored.Client(self.daemon.socket, space=SPACE, timeout=PATIENCE) as kv:
            prompt = kvstored.hashes(bytes(range(1, 33)), [4, 4])
            with kv.reserve(prompt, sizes=[10, 20]) as fill:
                for slot in fill:
                    slot.memory[:] = bytes(slot.length)
            total = kvstored.checksum(bytes(10))
            assert total is not None
            again = kv.reserve(prompt, sizes=[10, 20], sums=[(0, total), (1, 1)])
            self.assertEqual((again.differ, [s.length for s in again.slots], len(list(again))), ([1], [10, 20], 0))
