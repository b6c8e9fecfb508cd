"""Beside a thread that computes, whoever gives the interpreter's lock up waits for a switch
interval until it has it again. So loads and stores give it up a few times, however many
chunks they have."""

import random
import sys
import threading
import time
import unittest
from typing import Any, Callable, List, Tuple

import kvstored
from kvstored import Space, bulk
from kvstored.memory import address
from kvstored.pages import Pages
from kvstored.vllm.jobs import Worker

from .daemon import Served, enter

PIECES, SIZE = 20, 4000


def handovers(call: Callable[[], Any]) -> Tuple[Any, int]:
    """What a call in a thread of its own returns, and how often this thread, which does
    nothing but look, got the interpreter meanwhile. Nobody is made to give it up: the
    call does, or keeps it."""
    steps, results = 0, []  # type: ignore[var-annotated]

    def step(*_: Any) -> None:
        nonlocal steps
        steps += 1

    def run() -> None:
        sys.setprofile(step)
        try:
            results.append(call())
        finally:
            sys.setprofile(None)

    thread, interval = threading.Thread(target=run), sys.getswitchinterval()
    seen = n = 0
    sys.setswitchinterval(1000)
    try:
        thread.start()
        while thread.is_alive():
            if steps != seen:
                n, seen = n + 1, steps
            time.sleep(0)
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    return results[0], n


class Handovers(Served):
    dram = "128MiB"

    def setUp(self) -> None:
        space = Space(model=self.id(), dtype="u8", chunk_tokens=1, method="given:test")
        self.kv = enter(self, kvstored.Client(self.daemon.socket, space=space, timeout=60))
        self.assertTrue(self.kv.wait_attached(60))
        self.pages = Pages(self.kv, space)

    def test_of_jobs(self) -> None:
        for n in (10, 250):  # of 20 pieces each
            calls = 0 if bulk.EXTENSION else n * PIECES // 1024  # of the system, beyond the first
            # An answer that the daemon sends in two parts is read in two calls: the least of
            # some tries counts, and what gives the lock up for each chunk does so in all.
            counts = [self.of_a_job(n, turn) for turn in range(8)]
            self.assertLessEqual(min(stores for stores, _ in counts), 5 + calls, f"stores of {n} chunks: {counts}")
            self.assertLessEqual(min(loads for _, loads in counts), 3 + calls, f"loads of {n} chunks: {counts}")

    def of_a_job(self, n: int, turn: int) -> Tuple[int, int]:
        """Hand-overs of a store and of a load of n chunks, whose bytes come back."""
        source = random.Random(turn).randbytes(n * SIZE)
        target = bytearray(n * SIZE)
        keys = [b"%08d%08d" % (n + 1000 * turn, i) for i in range(n)]
        stored, stores = handovers(lambda: self.pages.store(keys, places(address(source), n), 60, False, []))
        self.assertEqual(stored, [True] * n)
        self.assertEqual(self.pages.find(keys, 60, []), n)
        loaded, loads = handovers(lambda: self.pages.load(keys, places(address(target), n), 60, []))
        self.assertEqual(loaded, n)
        self.assertTrue(target == source)
        return stores, loads


class Rests(unittest.TestCase):
    def test_of_an_engine_that_waits(self) -> None:
        """A thread that has work comes to it, though the engine never stops."""
        turns: List[int] = []
        worker, interval = Worker("test", lambda: turns.append(1)), sys.getswitchinterval()
        while not worker.idle:
            time.sleep(0.001)
        sys.setswitchinterval(1000)
        try:
            for n in (2, 3, 4):
                worker.wake()
                for _ in range(100_000):
                    worker.rest()
                    if len(turns) == n:
                        break
                self.assertEqual(len(turns), n)
        finally:
            sys.setswitchinterval(interval)
            worker.stop()
            worker.join(60)


def places(base: int, n: int) -> List[List[Tuple[int, int]]]:
    """Of each chunk its part of each layer."""
    part = SIZE // PIECES
    return [[(base + layer * n * part + i * part, part) for layer in range(PIECES)] for i in range(n)]
