"""How many calls of Python and C a get, a put and a step of vLLM's scheduler are made of."""

import sys
import unittest
from typing import Any, Callable

import kvstored
from kvstored import bulk

from .daemon import Served
from .engines import STEP_END, context
from .test_client import GIVEN, chain
from .vllm_engine import keys
from .vllm_tier import Tiers, view

GET, PUT, MORE = 70, 90, 12  # calls of one chunk, and for each further one
LOOKUP, STEP = 20, 40  # of a block, and of the end of a step however many were asked for
ANSWER = 2  # of a get: the answer to its release, where that comes with the next reply; 7 alone


def calls_of(work: Callable[[], Any]) -> int:
    calls = 0

    def called(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls - 2  # work and setprofile themselves


@unittest.skipUnless(bulk.EXTENSION, "without the extension a copy is more calls")
class Calls(Served):
    def count(self, kv: kvstored.Client, work: Callable[[], Any]) -> int:
        """The least of some times, each with no answer under way: the client's thread
        may read, too."""
        return min(calls_of(work) for _ in range(10) if kv.ping())

    def test_calls(self) -> None:
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=60) as kv:
            for size in (4 << 10, 64 << 10, 256 << 10):
                for n in (1, 2, 16):
                    prompts = [chain(("calls", size, n, i), n) for i in range(12)]
                    payloads, mine = [bytes(size)] * n, [bytearray(size) for _ in range(n)]
                    left = prompts[1:]
                    with self.subTest(size=size, n=n):
                        self.assertEqual(len(kv.put(prompts[0], payloads)), n)
                        self.assertLessEqual(self.count(kv, lambda: kv.put(left.pop(), payloads)), PUT + 1 + MORE * (n - 1))  # pop
                        self.assertEqual(kv.get_into(prompts[0], mine), n)
                        self.assertLessEqual(self.count(kv, lambda: kv.get_into(prompts[0], mine)), GET - ANSWER + MORE * (n - 1))
                        self.assertLessEqual(self.count(kv, lambda: kv.get(prompts[0])), GET - ANSWER + MORE * (n - 1))


class Steps(Tiers):
    def test_calls(self) -> None:
        tier, wanted, request = self.tier(view()), keys("calls", 1000), context()
        tier._lookups._patience = 600.0  # the step ends when that is told
        self.assertLessEqual(calls_of(lambda: [tier.lookup(key, request) for key in wanted]), LOOKUP * len(wanted) + 1)
        self.assertLessEqual(calls_of(lambda: tier.on_schedule_end(*STEP_END)), STEP)
