"""Stores whose first chunks are committed while the next are written, and small ones."""

import random
import unittest
from typing import Any, List
from unittest import mock

import kvstored
from kvstored import Result, Space, bulk, tokens

from .daemon import Daemon, enter
from .frames import counted


class Stores(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = enter(self, Daemon("64MiB"))
        self.kv = self.client()

    def client(self, staging: int = 0, inline: bool = False) -> kvstored.Client:
        space = Space(model="m", dtype="u8", chunk_tokens=1)
        kv = enter(self, kvstored.Client(self.daemon.socket, space=space, timeout=60, staging_bytes=staging, inline=inline))
        self.assertTrue(kv.wait_attached(60))
        return kv

    def test_small_ones_take_one_round_trip(self) -> None:
        with counted() as sent:
            got = self.kv.put(tokens([1, 2]), [b"one", b"two!"])
            self.assertEqual([r.result for r in got], [Result.STORED] * 2)
            self.assertEqual([c.payload for c in self.kv.get(tokens([1, 2]))], [b"one", b"two!"])
        self.assertEqual(sent, ["put", "prefetch", "release"])

    def test_large_ones_go_through_memory(self) -> None:
        big = [bytes([i]) * (2 << 20) for i in range(3)]
        with counted() as sent:
            got = self.kv.put(tokens([5, 6, 7]), big)
        self.assertEqual(([r.result for r in got], sent), ([Result.STORED] * 3, ["reserve", "commit"]))
        self.assertEqual([c.payload for c in self.kv.get(tokens([5, 6, 7]))], big)
        again = self.kv.put(tokens([5, 6, 7]), big)
        self.assertEqual([r.result for r in again], [Result.EXISTS] * 3)
        self.assertEqual([c.payload for c in self.client(inline=True).get(tokens([5, 6, 7]))], big)

    def test_what_put_takes(self) -> None:
        """Buffers of all kinds, as their bytes."""
        kinds: List[Any] = [b"bytes", bytearray(b"array"), memoryview(b"view!"), memoryview(bytearray(8)).cast("I")]
        for more in (b"", bytes(1 << 20)):
            prompt = tokens([50 + len(more), *range(5)])
            self.assertEqual([r.result for r in self.kv.put(prompt, [*kinds, b"x" + more])], [Result.STORED] * 5)
            self.assertEqual([c.payload for c in self.kv.get(prompt)], [*map(bytes, kinds), b"x" + more])
        self.assertEqual(self.kv.put(tokens([60]), []), [])  # as of a prompt that is there

    def test_what_get_into_takes(self) -> None:
        prompt, want = tokens([70, 71, 72]), [b"one", b"two!!", b"three"]
        self.kv.put(prompt, want)
        self.assertEqual(repr(kvstored.Stored(99, 0)), "<Stored 99>")
        self.assertRegex(repr(self.kv.put(prompt, [b"two", b"two!!"])), r"\[<Stored differs, sum 0x\w+>, <Stored exists, sum 0x\w+>\]")
        for kv in (self.kv, self.client(inline=True)):
            mine = [bytearray(len(w)) for w in want]
            self.assertEqual(kv.get_into(prompt, mine), 3)
            self.assertEqual(mine, want)
            mine = [bytearray(3), bytearray(9), bytearray(5)]  # the second is not as long
            self.assertEqual((kv.get_into(prompt, mine), mine[0]), (1, b"one"))
            self.assertEqual(kv.get_into(prompt, mine[:1]), 1)
            self.assertEqual(kv.get_into(prompt, []), 0)
            self.assertEqual(kv.get_into(tokens([73]), mine), 0)
            for wrong in (bytes(3), memoryview(bytearray(6))[::2], memoryview(bytes(3)), "abc", 3, None):
                with self.subTest(repr(wrong)), self.assertRaises((TypeError, ValueError, BufferError)):
                    kv.get_into(prompt, [wrong])
            self.assertTrue(kv.ping())
        self.assertEqual(self.kv.stats()["server"]["leases_live"], 0)

    def test_a_buffer_that_is_resized_meanwhile(self) -> None:
        """It stays where the copy goes; afterwards it is the caller's again."""
        self.kv.put(tokens([74]), [bytes(range(200))])
        mine = bytearray(200)

        def resized(*args: Any) -> Any:
            with self.assertRaises(BufferError):
                mine.extend(bytes(1 << 20))
            return copy(*args)

        copy = bulk.copy
        with mock.patch.object(bulk, "copy", resized):
            self.assertEqual(self.kv.get_into(tokens([74]), [mine]), 1)
        self.assertEqual(mine, bytes(range(200)))
        mine.extend(b"more")

    def test_bounds_of_get(self) -> None:
        prompt, want = tokens([80, 81, 82]), [bytes([i]) * 100 for i in range(3)]
        self.kv.put(prompt, want)
        for kv in (self.kv, self.client(inline=True)):
            for bounds, got in (({}, want), ({"first": 1}, want[1:]), ({"max_chunks": 2}, want[:2]), ({"max_bytes": 250}, want[:2]), ({"max_bytes": 1}, want[:1])):
                self.assertEqual([c.payload for c in kv.get(prompt, **bounds)], got, bounds)

    def test_long_stores_are_committed_ahead(self) -> None:
        with counted() as sent, mock.patch("kvstored.fill._COMMIT_BYTES", 16):
            got = self.kv.store(tokens([1, 2, 3]), [8, 8, 8], lambda i, memory: None)
        self.assertEqual(sent, ["reserve", "commit", "commit"])
        self.assertEqual([r.result for r in got], [Result.STORED] * 3)

    def test_every_byte_through_a_small_window(self) -> None:
        kv, rnd = self.client(staging=256 << 10), random.Random(3)
        for n in range(40):
            chunks = [rnd.randbytes(rnd.randrange(1, 60 << 10)) for _ in range(rnd.randrange(1, 8))]
            got = kv.store(tokens([n] * len(chunks)), [len(c) for c in chunks], b"".join(chunks))
            self.assertEqual([r.result for r in got], [Result.STORED] * len(chunks), n)
            self.assertEqual([c.payload for c in kv.get(tokens([n] * len(chunks)))], chunks, n)

    def test_a_caller_that_fails(self) -> None:
        def write(i: int, memory: memoryview) -> None:
            if i == 2:
                raise KeyError(i)

        with mock.patch("kvstored.fill._COMMIT_BYTES", 8), self.assertRaises(KeyError):
            self.kv.store(tokens([1, 2, 3, 4]), [8] * 4, write)
        self.assertEqual(self.kv.lookup(tokens([1, 2, 3, 4])).total.chunks, 2)
        got = self.kv.store(tokens([1, 2, 3, 4]), [8] * 4, lambda i, memory: None)
        self.assertEqual([r.result for r in got], [Result.EXISTS] * 2 + [Result.STORED] * 2)

    def test_the_daemon_goes_away(self) -> None:
        def write(i: int, memory: memoryview) -> None:
            if i == 1:
                self.daemon.kill()

        with mock.patch("kvstored.fill._COMMIT_BYTES", 8):
            self.assertEqual(len(self.kv.store(tokens([1, 2]), [8, 8], write)), 0)
        self.assertEqual(self.kv.store(tokens([3]), [8], lambda i, memory: None), [])
