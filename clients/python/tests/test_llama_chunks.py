"""One restore of kvstored.llamacpp: what is verified when, and what llama.cpp is given."""

import ctypes
import threading
import unittest
from types import SimpleNamespace
from typing import Any, List, Tuple
from unittest import mock

import kvstored
from kvstored.llamacpp import chunks
from kvstored.llamacpp.chunks import Reading, Verifier
from kvstored.llamacpp.context import Sequences

from .daemon import enter, until
from .llama_case import LlamaCase, clear, evaluate, text


class Chunks:
    """A job whose chunks are all there, of 64 bytes each; chunk i has the sum i."""

    def __init__(self, count: int) -> None:
        self._memory = [ctypes.create_string_buffer(bytes([i]) * 64, 64) for i in range(count)]

    def __len__(self) -> int:
        return len(self._memory)

    def block(self, i: int) -> memoryview:
        return memoryview(self._memory[i])

    def ref(self, i: int) -> Any:
        return SimpleNamespace(tokens=32, sum=i)

    def address(self, i: int) -> Tuple[int, int]:
        return ctypes.addressof(self._memory[i]), 64

    def release(self, timeout: float) -> bool:
        return True


class Ahead(unittest.TestCase):
    """Large payloads are verified by a thread while llama.cpp copies."""

    def setUp(self) -> None:
        self.computed: List[Tuple[int, bool]] = []  # which chunk, and whether the thread did it
        self.gate = threading.Event()
        self.gate.set()
        for name, value in (("_LARGE_BYTES", 64), ("checksum_at", self.checksum)):
            enter(self, mock.patch.object(chunks, name, value))
        self.verifier = Verifier()

    def checksum(self, address: int, size: int) -> int:
        by_thread = threading.current_thread() is not threading.main_thread()
        if by_thread:
            self.gate.wait(60)
        found = ctypes.string_at(address, 1)[0]
        self.computed.append((found, by_thread))
        return found

    def reading(self, chunks: int) -> Reading:
        return Reading(Chunks(chunks), self.verifier)  # pyright: ignore[reportArgumentType]

    def test_one_ahead_and_no_further(self) -> None:
        reading = self.reading(4)
        for i in range(4):
            self.assertIsNotNone(reading.payload(i, 32 * i))
            until(lambda: len(self.computed) == min(i + 2, 4))
        self.assertIsNone(reading.end(60))
        self.assertEqual(sorted(self.computed), [(0, False), (1, True), (2, True), (3, True)])

    def test_a_wrong_one_that_the_thread_found(self) -> None:
        reading = self.reading(3)
        self.assertIsNotNone(reading.payload(0, 0))
        ctypes.memset(reading.job.address(2)[0], 9, 64)
        self.assertIsNotNone(reading.payload(1, 32))
        until(lambda: (9, True) in self.computed)
        self.assertIsNone(reading.payload(2, 64))
        self.assertIsNone(reading.end(60))

    def test_a_thread_that_is_late_is_not_waited_for(self) -> None:
        self.gate.clear()
        reading = self.reading(4)
        for i in range(4):
            self.assertIsNotNone(reading.payload(i, 32 * i))
        self.assertEqual(self.computed, [(0, False), (1, False), (2, False), (3, False)])
        self.gate.set()
        self.assertIsNone(reading.end(60))
        self.assertLessEqual(len(self.computed), 5)  # chunk 1, which it had begun with

    def test_nothing_is_read_after_the_end(self) -> None:
        reading = self.reading(3)
        self.gate.clear()
        reading.payload(0, 0)
        other = threading.Timer(0.05, self.gate.set)
        other.start()
        reading.end(60)  # waits for what is being read
        known = list(self.computed)
        reading.verify(2)
        self.assertEqual(self.computed, known)
        other.join()


class Loaded(LlamaCase):
    """On llama.cpp itself."""

    def setUp(self) -> None:
        self.kv, self.llm = self.client(self.daemon()), self.llama()
        self.cache_ = self.cache(self.kv, self.llm)

    def test_large_payloads(self) -> None:
        """The same answers with the thread at work."""
        prompt = text(1, 300)
        self.fill(self.llm, self.cache_, prompt)
        with mock.patch.object(chunks, "_LARGE_BYTES", 1):
            self.check(self.llm, self.cache_, prompt, 288)
            self.check(self.llm, self.cache_, prompt[:200] + text(2, 100), 192)

    def test_marks(self) -> None:
        """The first chunk becomes the sequence itself; the others come by way of the spare one."""
        prompt = text(3, 100)
        self.fill(self.llm, self.cache_, prompt)
        clear(self.llm)
        with mock.patch.object(Sequences, "_copy", autospec=True, side_effect=Sequences._copy) as copy:
            self.assertEqual(self.cache_.restore(prompt), 96)
        spare = self.cache_._sequences.spare
        self.assertEqual([call.args[1:] for call in copy.call_args_list], [(spare, 0, 32, 64), (spare, 0, 64, 96)])
        self.assertEqual(self.cache_._sequences.held(spare), 0)

    def test_what_is_no_state_of_these_tokens(self) -> None:
        """A payload whose checksum is right is not believed what its name says."""
        one, two = text(4, 100), text(5, 100)
        self.fill(self.llm, self.cache_, one)
        with self.kv.prefetch(kvstored.tokens(one, space=self.cache_.space)) as job:
            job.wait(timeout=60)
            first, second = bytes(job.block(0)), bytes(job.block(1))
        spoiled = {"of later tokens": second, "cut off": first[:-64], "empty": bytes(len(first)), "longer": first + bytes(64)}
        for at in (0, 1):
            for name, payload in {**spoiled, "of earlier tokens": first}.items():
                if payload is (first, second)[at]:
                    continue
                with self.subTest(at=at, name=name):
                    llm = self.llama()
                    cache = self.cache(self.kv, llm, namespace=f"{at} {name}")
                    payloads = [first, payload] if at else [payload]
                    self.kv.put(kvstored.tokens(two[: 32 * len(payloads)], space=cache.space), payloads)
                    evaluate(llm, text(6, 50), 0, 32)
                    self.assertEqual(cache.restore(two), 32 * at)
                    self.assertEqual([cache._sequences.held(seq) for seq in (0, cache._sequences.spare)], [32 * at, 0])
