"""Reads of prompts into memory of the caller, by the directory and the ordinary way."""

from __future__ import annotations

import random
import threading
import time
import unittest
from typing import Any, Dict, List
from unittest import mock

import kvstored
from kvstored import Code, Refused, Result, Space, hashes, memory, tokens, unasked, wire

from .daemon import Daemon, Served

PATIENCE = 60.0  # seconds; bounds what should take none
SIZE = 5000


class Reads(Served):
    def setUp(self) -> None:
        self.rnd = random.Random(self.id())
        self.space = Space(model=self.id(), dtype="u8", chunk_tokens=4, method="given:test")
        self.kv = self.client()

    def client(self, **options: Any) -> kvstored.Client:
        kv = kvstored.Client(self.daemon.socket, space=self.space, timeout=PATIENCE, **options)
        self.addCleanup(kv.close)
        self.assertTrue(kv.wait_attached(PATIENCE))
        return kv

    def store(self, prompt: kvstored.Prompt, sizes: List[int]) -> bytes:
        payloads = self.rnd.randbytes(sum(sizes))
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        got = self.kv.store(prompt, sizes, lambda i, m: m.__setitem__(slice(None), payloads[ends[i] - sizes[i] : ends[i]]))
        self.assertEqual([r.result for r in got], [Result.STORED] * len(sizes))
        return payloads

    def hashes(self, n: int, **options: Any) -> kvstored.Prompt:
        return hashes(self.rnd.randbytes(16 * n), [4] * n, **options)

    def read(self, prompt: kvstored.Prompt, size: int, kv: Any = None, asks: bool = False, **options: Any) -> "tuple[int, bytearray]":
        """A read that asks the daemon, or does not."""
        kv, into = kv or self.kv, bytearray(size)
        with mock.patch.object(kv, "prefetch", wraps=kv.prefetch) as prefetch:
            n = kv.read(prompt, into, **options)
        self.assertEqual(prefetch.called, asks)
        return n, into

    def counted(self) -> Dict[str, Any]:
        return self.kv.stats()["server"]

    def hits(self, want: int) -> Dict[str, Any]:
        """What is counted once so many chunks were hit: the thread of the client may be
        about to tell of the last."""
        ends = time.monotonic() + PATIENCE
        while True:
            counted = self.counted()
            if counted["hit_chunks"]["cpu"] >= want:
                self.assertEqual(counted["hit_chunks"]["cpu"], want)
                return counted
            self.assertLess(time.monotonic(), ends)


class Plain(Reads):
    def test_as_get_does(self) -> None:
        for n, sizes in ((1, [1]), (7, [SIZE] * 7), (5, [1, 70000, 4096, 600000, 17])):
            prompt = self.hashes(n)
            payloads = self.store(prompt, sizes)
            for _ in range(2):
                self.assertEqual(self.read(prompt, sum(sizes)), (n, payloads))
            self.assertEqual(b"".join(c.payload for c in self.kv.get(prompt)), payloads)
            first = sizes[0]
            self.assertEqual(self.read(prompt._replace(skip=1), sum(sizes) - first, asks=n == 1)[1], payloads[first:])

    def test_tokens_and_kept_prompts(self) -> None:
        self.space = self.space._replace(method="sha256", salt="pepper")
        self.kv = self.client()
        prompt = tokens([self.rnd.randrange(1 << 32) for _ in range(21)])
        payloads = self.store(prompt._replace(save_unfull=True), [SIZE] * 6)
        self.assertEqual(self.read(prompt, 6 * SIZE), (5, payloads[: 5 * SIZE] + bytes(SIZE)))
        whole = prompt._replace(save_unfull=True).kept()
        for _ in range(2):
            self.assertEqual(self.read(whole, 6 * SIZE), (6, payloads))
        self.assertEqual(self.read(whole._replace(skip=5), SIZE), (1, payloads[5 * SIZE :]))
        other = tokens([self.rnd.randrange(1 << 32) for _ in range(20)])
        self.assertEqual(self.read(other, SIZE, asks=True), (0, bytes(SIZE)))

    def test_hashes_that_change_in_place(self) -> None:
        raws = [self.rnd.randbytes(32) for _ in range(2)]
        payloads = [self.store(hashes(raw, [4] * 2), [SIZE] * 2) for raw in raws]
        changing = bytearray(raws[0])
        prompt = hashes(changing, [4] * 2)
        self.assertEqual(self.read(prompt, 2 * SIZE), (2, payloads[0]))
        changing[:] = raws[1]
        self.assertEqual(self.read(prompt, 2 * SIZE), (2, payloads[1]))

    def test_a_buffer_or_a_function(self) -> None:
        prompt = self.hashes(4)
        payloads = self.store(prompt, [SIZE] * 4)
        self.assertEqual(self.read(prompt, 3 * SIZE - 1), (2, payloads[: 2 * SIZE] + bytes(SIZE - 1)))
        self.assertEqual(self.read(prompt, 4 * SIZE + 9), (4, payloads + bytes(9)))
        into = [bytearray(SIZE + 9) for _ in range(4)]
        asked: List[Any] = []

        def function(i: int, size: int) -> Any:
            asked.append((i, size))
            return into[i] if i < 3 else None

        self.assertEqual(self.kv.read(prompt, function), 3)
        self.assertEqual([b[:SIZE] for b in into], [*(payloads[i * SIZE :][:SIZE] for i in range(3)), bytes(SIZE)])
        self.assertEqual(asked, [(i, SIZE) for i in range(4)])
        for b in into:
            b.append(0)  # nothing holds it

    def test_what_the_directory_has_not(self) -> None:
        """The rest of a run goes the ordinary way, into the same memory."""
        prompt = self.hashes(6)
        payloads = self.store(prompt, [SIZE] * 6)
        with self.first_of_directory(2):
            before = self.counted()["hit_chunks"]["cpu"]
            self.assertEqual(self.read(prompt, 6 * SIZE, asks=True), (6, payloads))
            self.hits(before + 6)
            self.assertEqual(self.read(prompt, 4 * SIZE, asks=True), (4, payloads[: 4 * SIZE]))
            into = [bytearray(SIZE) for _ in range(6)]
            self.assertEqual(self.kv.read(prompt, lambda i, size: into[i] if i < 5 else None), 5)
            self.assertEqual(b"".join(into), payloads[: 5 * SIZE] + bytes(SIZE))

    def test_without_a_directory(self) -> None:
        prompt, inline = self.hashes(3), self.client(inline=True)
        payloads = self.store(prompt, [SIZE] * 3)
        with mock.patch.object(unasked, "Unasked", lambda *_: None):
            for kv in (inline, self.client()):
                self.assertEqual(self.read(prompt, 3 * SIZE, kv, asks=True), (3, payloads))
                self.assertEqual(self.read(prompt, 2 * SIZE, kv, asks=True)[0], 2)
        self.assertEqual(self.read(prompt, 3 * SIZE, asks=True, search=2)[0], 0)
        self.assertEqual(self.read(prompt, 3 * SIZE, search=3), (3, payloads))

    def test_a_lease_that_was_lost(self) -> None:
        """Chunks that were copied under it do not count; those before do."""
        daemon = Daemon()
        self.addCleanup(daemon.close)
        daemon.wait()
        self.kv = kv = kvstored.Client(daemon.socket, space=self.space, timeout=PATIENCE)
        self.addCleanup(kv.close)
        self.assertTrue(kv.wait_attached(PATIENCE))
        prompt = self.hashes(6)
        payloads = self.store(prompt, [SIZE] * 6)
        into = bytearray(6 * SIZE)

        def function(i: int, size: int) -> memoryview:
            if i == 4:
                daemon.kill()
            return memoryview(into)[i * size : (i + 1) * size]

        with self.first_of_directory(2):
            self.assertEqual(kv.read(prompt, function), 2)
        self.assertEqual(into[: 2 * SIZE], payloads[: 2 * SIZE])

    def test_the_last_becomes_ready_while_others_are_copied(self) -> None:
        prompt, into, running = self.hashes(4), bytearray(4 * SIZE), []  # type: ignore[var-annotated]
        payloads, prefetch = self.store(prompt, [SIZE] * 4), self.kv.prefetch

        def two_are_ready(*args: Any, **options: Any) -> kvstored.Job:
            job = prefetch(*args, **options)
            running.append((job, job.wait()))
            job._state = job._state._replace(done=False, ready=wire.Count(2, 8))
            return job

        def function(i: int, size: int) -> memoryview:
            if i == 1:
                job, whole = running[0]
                job._state = whole  # by another thread
            return memoryview(into)[i * size : (i + 1) * size]

        with self.first_of_directory(0), mock.patch.object(self.kv, "prefetch", two_are_ready):
            self.assertEqual(self.kv.read(prompt, function), 4)
        self.assertEqual(into, payloads)

    def first_of_directory(self, n: int) -> Any:
        """Has the directory only know so many chunks of each prompt."""
        assert self.kv._link is not None and self.kv._link.unasked is not None
        directory = self.kv._link.unasked._directory
        copy = directory.copy
        return mock.patch.object(directory, "copy", lambda rows, room, first: copy(rows[:n], room, first))

    def test_deleted(self) -> None:
        prompt = self.hashes(4)
        payloads = self.store(prompt, [SIZE] * 4)
        self.assertEqual(self.read(prompt, 4 * SIZE), (4, payloads))
        self.kv.delete(prompt._replace(skip=2))
        self.assertEqual(self.read(prompt, 4 * SIZE, asks=True)[0], 2)
        self.kv.delete(prompt)
        self.assertEqual(self.read(prompt, 4 * SIZE, asks=True), (0, bytes(4 * SIZE)))
        again = self.store(prompt, [SIZE] * 4)
        self.assertEqual(self.read(prompt, 4 * SIZE), (4, again))

    def test_the_daemon_is_told(self) -> None:
        prompt = hashes(self.rnd.randbytes(48), [4, 4, 1])
        self.store(prompt, [SIZE] * 3)
        for times in (1, 63, 64, 65, 200):
            before = self.counted()
            for _ in range(times):
                self.assertEqual(self.read(prompt, 3 * SIZE)[0], 3)
            after = self.hits(before["hit_chunks"]["cpu"] + 3 * times)
            self.assertEqual(after["hit_tokens"]["cpu"] - before["hit_tokens"]["cpu"], 9 * times)
            self.assertEqual(after["prefetches"] - before["prefetches"], times)

    def test_many_reads_are_told_by_themselves(self) -> None:
        prompt, untold = self.hashes(1), self.untold()
        self.store(prompt, [SIZE])
        link = self.kv._link
        assert link is not None
        with mock.patch.object(link, "tend"):  # by the thread of the client, now and then
            for _ in range(63):
                self.assertEqual(self.read(prompt, SIZE)[0], 1)
            self.assertEqual(len(untold._next.reads), 63)
            self.assertEqual(self.read(prompt, SIZE)[0], 1)
        self.assertIsNone(untold._next)

    def test_a_user_that_may_not_read_any_more(self) -> None:
        prompt, untold = self.hashes(1), self.untold()
        self.store(prompt, [SIZE])
        with mock.patch.object(wire, "read", lambda chains: wire.empty()):  # a request that is no good, so far
            self.assertEqual(self.read(prompt, SIZE)[0], 1)
            self.kv.ping()
        (told,) = untold._out
        assert told.error is not None
        told.error = Refused("read", Code.DENIED, "")
        self.assertEqual(self.read(prompt, SIZE)[0], 1)  # hears of it
        self.assertEqual(self.read(prompt, SIZE, asks=True)[0], 1)

    def test_requests_with_an_answer_are_forgotten(self) -> None:
        prompt, untold = self.hashes(1), self.untold()
        self.store(prompt, [SIZE])
        for _ in range(40):
            self.assertEqual(self.read(prompt, SIZE)[0], 1)
            self.kv.ping()
        self.assertLess(len(untold._out), 3)

    def untold(self) -> Any:
        assert self.kv._link is not None and self.kv._link.unasked is not None
        return self.kv._link.unasked._untold

    def test_the_last_reads_are_told(self) -> None:
        prompt, other = self.hashes(3), self.client()
        self.store(prompt, [SIZE] * 3)
        before = self.counted()["hit_chunks"]["cpu"]
        self.assertEqual(self.read(prompt._replace(skip=1), 2 * SIZE, other)[0], 2)
        other.close()
        self.hits(before + 2)

    def test_wrong_arguments(self) -> None:
        prompt = self.hashes(2)
        self.store(prompt, [SIZE] * 2)
        wrong: List[Any] = [
            (b"prompt", bytearray(9), TypeError, "no prompt"),
            (prompt, bytes(2 * SIZE), ValueError, "read-only"),
            (prompt, memoryview(bytearray(4 * SIZE))[::2], ValueError, "pieces"),
            (prompt, 2 * SIZE, TypeError, "bytes-like"),
            (prompt, lambda i, size: bytearray(size - 1), ValueError, f"chunk 0 has {SIZE} bytes"),
            (prompt, lambda i, size: bytes(size), ValueError, "read-only"),
            (hashes(bytes(32), [3, 4]), bytearray(9), ValueError, "chunk 0 has 3 tokens"),
            (prompt._replace(space="m"), bytearray(9), TypeError, "no space"),
        ]
        for p, into, error, says in wrong:
            with self.subTest(says), self.assertRaisesRegex(error, says):
                self.kv.read(p, into)
        with self.assertRaises(kvstored.Refused):
            self.kv.read(hashes(bytes(16) + b"x" * 16, [4] * 2), bytearray(9))
        self.assertEqual(self.read(prompt, 2 * SIZE)[0], 2)

    def test_another_thread_closes_the_client(self) -> None:
        prompt = self.hashes(64)
        payloads = self.store(prompt, [SIZE] * 64)
        for delay in range(12):
            kv, reading = self.client(), threading.Event()
            closer = threading.Thread(target=lambda: (reading.wait(PATIENCE), kv.close()))
            closer.start()
            left = [delay]
            n = 1
            while n:
                left[0] -= 1
                if left[0] <= 0:
                    reading.set()
                into = bytearray(64 * SIZE)
                n = kv.read(prompt, into)
                self.assertEqual(into[: n * SIZE], payloads[: n * SIZE])
            closer.join(PATIENCE)
            self.assertFalse(closer.is_alive())

    def test_many_threads(self) -> None:
        prompts = [self.hashes(20) for _ in range(4)]
        stored = [self.store(p, [SIZE] * 20) for p in prompts]
        before = self.counted()["hit_chunks"]["cpu"]
        right: List[int] = []

        def work(seed: int) -> None:
            rnd = random.Random(seed)
            for _ in range(100):
                k = rnd.randrange(4)
                into = bytearray(20 * SIZE)
                if self.kv.read(prompts[k], into) == 20 and into == stored[k]:
                    right.append(k)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(right), 400)
        self.hits(before + 4 * 100 * 20)


class Others(unittest.TestCase):
    """Daemons that do other things than serve out of DRAM."""

    def begin(self, **options: Any) -> None:
        self.daemon = Daemon(**options)
        self.addCleanup(self.daemon.close)
        self.daemon.wait()
        self.kv = kvstored.Client(
            self.daemon.socket, space=Space(model="m", dtype="u8", chunk_tokens=4, method="given:test"), timeout=PATIENCE
        )
        self.addCleanup(self.kv.close)
        self.assertTrue(self.kv.wait_attached(PATIENCE))

    def put(self, raw: bytes, fill: int) -> None:
        data = bytes([fill]) * (1 << 20)
        n = len(raw) // 16
        stored = self.kv.store(hashes(raw, [4] * n), [len(data)] * n, lambda i, m: memory.copy(memory.address(m), memory.address(data), len(m)))
        self.assertEqual(len(stored), n)

    def check(self, raw: bytes, fill: int) -> int:
        into = bytearray(len(raw) // 16 << 20)
        n = self.kv.read(hashes(raw, [4] * (len(raw) // 16)), into)
        self.assertEqual(into[: n << 20], bytes([fill]) * (n << 20))
        return n

    def test_chunks_that_were_evicted(self) -> None:
        """Old chunks are gone or come from the disk; never are they those that took their place."""
        for disk in ("0", "1GiB"):
            self.begin(dram="64MiB", disk=disk)
            raws = [random.Random(n).randbytes(10 * 16) for n in range(20)]
            for n, raw in enumerate(raws):
                self.put(raw, n + 1)
            self.assertIsNotNone(self.kv.flush())
            got = [self.check(raw, n + 1) for n, raw in enumerate(raws)]
            if disk != "0":
                self.assertEqual(got, [10] * 20)
            else:
                self.assertEqual(got[:10], [0] * 10)
                self.assertEqual(got[-3:], [10] * 3)

    def test_a_daemon_that_takes_the_last_chunk_of_every_prompt(self) -> None:
        """It does not become one more where the rest is read the ordinary way."""
        self.begin(more="chunk: {save_unfull: true}\n")
        self.kv.space = Space(model="m", dtype="u8", chunk_tokens=4)
        prompt, into = tokens(range(10)), bytearray(b"\xff" * 3000)
        self.assertEqual(len(self.kv.store(prompt, [1000] * 3, bytes(3000))), 3)
        self.assertEqual(self.kv.read(prompt, into), 2)
        with mock.patch.object(unasked.Unasked, "read", lambda *_: (0, False)):
            self.assertEqual(self.kv.read(prompt, into), 2)
        self.assertEqual(into, bytes(2000) + b"\xff" * 1000)
        self.assertEqual(self.kv.read(prompt._replace(save_unfull=True), into), 3)

    def test_a_daemon_that_went_away(self) -> None:
        self.begin()
        raw = random.Random(1).randbytes(32)
        self.put(raw, 7)
        self.assertEqual(self.check(raw, 7), 2)
        link = self.kv._link
        assert link is not None and link.unasked is not None
        self.daemon.process.terminate()
        self.daemon.process.wait(PATIENCE)
        self.assertFalse(link.unasked._directory.holds)
        self.assertEqual(self.check(raw, 7), 0)
        self.daemon.start()
        self.daemon.wait()
        self.assertTrue(self.kv.wait_attached(PATIENCE))
        self.put(raw, 8)
        self.assertEqual(self.check(raw, 8), 2)

    def test_a_daemon_that_was_killed(self) -> None:
        """Its memory is still there and says that it holds; the connection is not."""
        self.begin()
        raw = random.Random(1).randbytes(32)
        self.put(raw, 7)
        self.assertEqual(self.check(raw, 7), 2)
        link = self.kv._link
        assert link is not None and link.unasked is not None
        with mock.patch.object(link, "tend"):  # by the thread of the client, now and then
            self.daemon.kill()
            self.assertTrue(link.unasked._directory.holds)
            link.unasked._looked = 0.0
            self.assertEqual(self.check(raw, 7), 0)

    def test_a_daemon_that_was_killed_beside_a_reader(self) -> None:
        """Another thread reads from the socket, and has not seen the end yet."""
        self.begin()
        raw = random.Random(1).randbytes(32)
        self.put(raw, 7)
        self.assertEqual(self.check(raw, 7), 2)
        link, prompt, into = self.kv._link, hashes(raw, [4] * 2), bytearray(1 << 20)
        assert link is not None and link.unasked is not None
        at = memory.address(memory.whole(into, writable=True))
        with mock.patch.object(link, "tend"), mock.patch.object(link, "catch_up"):
            for want in (2, 0):
                link.unasked._looked = 0.0
                self.assertEqual(link.unasked.read(link, prompt, self.kv._space(None), lambda i, n: at)[0], want)
                self.daemon.kill()

    def test_a_daemon_that_does_not_answer(self) -> None:
        """Reads go on without it, and it is told when it answers again."""
        self.begin()
        raw = random.Random(2).randbytes(32)
        self.put(raw, 7)
        before = self.kv.stats()["server"]["hit_chunks"]["cpu"]
        link = self.kv._link
        self.daemon.pause()
        try:
            # By the thread of the client, now and then: sixteen requests without an answer, and no more is told.
            with mock.patch.object(link, "tend"):
                for _ in range(100):
                    self.assertEqual(self.check(raw, 7), 2)
        finally:
            self.daemon.resume()
        ends = time.monotonic() + PATIENCE
        while self.kv.stats()["server"]["hit_chunks"]["cpu"] != before + 200:
            self.assertLess(time.monotonic(), ends)


if __name__ == "__main__":
    unittest.main()
