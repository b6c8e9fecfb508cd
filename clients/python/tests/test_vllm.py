"""KvstoredTier against a live daemon, with stand-ins for vLLM's classes."""

from __future__ import annotations

import hashlib
import time
import unittest
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, List
from unittest import mock

import kvstored.vllm
from kvstored.vllm import KvstoredTier, fingerprint

from .daemon import Daemon
from .stub import Hanging

ROW = 96 * 1024
BLOCKS = 64


@dataclass
class JobMetadata:  # as vLLM's
    job_id: int
    keys: List[bytes]
    block_ids: Any
    is_promotion: bool = False
    req_context: Any = field(default_factory=SimpleNamespace)


def vllm_config(**cache: Any) -> Any:
    return SimpleNamespace(
        model_config=SimpleNamespace(model="llama", revision="main", dtype="bfloat16"),
        cache_config=SimpleNamespace(
            **{"block_size": 16, "cache_dtype": "auto", "prefix_caching_hash_algo": "sha256_cbor", **cache}
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1),
    )


def view() -> memoryview:
    return memoryview(bytearray(BLOCKS * ROW)).cast("B", (BLOCKS, ROW))


def keys(name: str, n: int) -> List[bytes]:
    return [hashlib.sha256(f"{name}/{i}".encode()).digest() + bytes(4) for i in range(n)]


def row(key: bytes) -> bytes:
    return hashlib.shake_128(key).digest(ROW)


def lookups(tier: KvstoredTier, wanted: List[bytes], within: float = 5.0) -> List[Any]:
    """As the scheduler asks: again and again, until nothing is pending."""
    deadline = time.monotonic() + within
    while True:
        answers = [tier.lookup(k, None) for k in wanted]
        if None not in answers or time.monotonic() > deadline:
            return answers
        time.sleep(0.002)


def finished(tier: KvstoredTier, job: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for result in tier.get_finished():
            assert result.job_id == job
            return result.success
        time.sleep(0.002)
    raise AssertionError("the job does not finish")


class Tier(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = Daemon(dram="64MiB")
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.wait()

    def tier(self, memory: memoryview, **options: Any) -> KvstoredTier:
        options = {"offloading_spec": SimpleNamespace(vllm_config=vllm_config()), "tier_type": "KvstoredTier", **options}
        tier = KvstoredTier(primary_kv_view=memory, socket=self.daemon.socket, **options)
        self.addCleanup(tier.shutdown)
        return tier

    def test_store_evict_load(self) -> None:
        memory, wanted = view(), keys("roundtrip", 40)
        flat = memory.cast("B")
        tier = self.tier(memory)
        self.assertEqual(set(lookups(tier, wanted)), {False})
        for i, key in enumerate(wanted):
            flat[i * ROW : (i + 1) * ROW] = row(key)
        tier.submit_store(JobMetadata(1, wanted, list(range(40))))
        self.assertTrue(finished(tier, 1))
        flat[:] = bytes(len(flat))  # evicted here
        self.assertEqual(set(lookups(tier, wanted)), {True})
        other = self.tier(memory, offloading_spec=None, vllm_config=vllm_config())  # another engine, the older form
        self.assertEqual(set(lookups(other, wanted)), {True})
        other.submit_load(JobMetadata(2, wanted, [63 - i for i in range(40)], is_promotion=True))
        self.assertTrue(finished(other, 2))
        for i, key in enumerate(wanted):
            self.assertEqual(flat[(63 - i) * ROW : (64 - i) * ROW], row(key))

    def test_one_absent_block_fails_the_load(self) -> None:
        tier = self.tier(view())
        stored, absent = keys("half", 1), keys("absent", 1)
        tier.submit_store(JobMetadata(1, stored, [0]))
        self.assertTrue(finished(tier, 1))
        tier.submit_load(JobMetadata(2, stored + absent, [1, 2]))
        self.assertFalse(finished(tier, 2))
        tier.submit_load(JobMetadata(3, stored, [BLOCKS]))  # no such row
        self.assertFalse(finished(tier, 3))

    def test_drain(self) -> None:
        tier = self.tier(view())
        for job in range(5):
            tier.submit_store(JobMetadata(job, keys(f"drain{job}", 10), list(range(10))))
        self.assertTrue(tier.has_pending_work())
        tier.drain_jobs()
        self.assertTrue(tier.has_pending_work())  # the results are not fetched yet
        self.assertEqual(sorted(r.job_id for r in tier.get_finished_jobs()), [0, 1, 2, 3, 4])
        self.assertFalse(tier.has_pending_work())

    def test_newer_answers(self) -> None:
        results = SimpleNamespace(HIT="hit", MISS="miss", RETRY="retry")
        with mock.patch.object(kvstored.vllm, "LookupResult", results):
            tier = self.tier(view())
            self.assertEqual(tier.lookup(b"new", None), "retry")
            deadline = time.monotonic() + 5
            while tier.lookup(b"new", None) == "retry" and time.monotonic() < deadline:
                time.sleep(0.002)
            self.assertEqual(tier.lookup(b"new", None), "miss")

    def test_newer_jobs(self) -> None:
        """chunk_ids in place of block_ids, and the keys that a failed load did bring."""

        @dataclass
        class TransferJob:
            job_id: int
            keys: List[bytes]
            chunk_ids: Any

        @dataclass
        class Result:
            job_id: int
            success: bool
            successful_keys: Any = None
            transfer_time: Any = None

        memory, stored = view(), keys("newer", 2)
        flat = memory.cast("B")
        with mock.patch.object(kvstored.vllm, "JobResult", Result):
            tier = self.tier(memory)
            flat[: 2 * ROW] = row(stored[0]) + row(stored[1])
            tier.submit_store(TransferJob(1, stored, [0, 1]))
            self.assertTrue(finished(tier, 1))
            tier.submit_load(TransferJob(2, [*stored, *keys("absent", 1)], [4, 3, 2]))
            tier.drain_jobs()
            self.assertEqual(list(tier.get_finished_jobs()), [Result(2, False, stored)])
        self.assertEqual(flat[3 * ROW : 5 * ROW], row(stored[1]) + row(stored[0]))

    def test_has_what_vllm_calls(self) -> None:
        """The abstract methods of SecondaryTierManager, in all its forms so far."""
        tier = self.tier(view())
        calls = "lookup submit_store submit_load get_finished get_finished_jobs get_tier_type on_new_request drain_jobs"
        for name in calls.split():
            self.assertTrue(callable(getattr(tier, name)), name)

    def test_engines_that_differ_share_nothing(self) -> None:
        spaces = [
            fingerprint(vllm_config(), ROW),
            fingerprint(vllm_config(block_size=32), ROW),
            fingerprint(vllm_config(cache_dtype="fp8"), ROW),
            fingerprint(vllm_config(prefix_caching_hash_algo="xxhash"), ROW),
            fingerprint(vllm_config(), ROW + 1),
            fingerprint(vllm_config(), ROW, namespace="other"),
            fingerprint(SimpleNamespace(vllm_config=vllm_config(), blocks_per_chunk=2), ROW),
        ]
        self.assertEqual(len(set(spaces)), len(spaces))
        with self.assertRaises(ValueError):
            fingerprint(SimpleNamespace(), ROW)

    def test_a_stopped_daemon_blocks_nothing(self) -> None:
        tier = self.tier(view(), lookup_timeout=0.2, transfer_timeout=1.0)
        wanted = keys("stopped", 8)
        tier.submit_store(JobMetadata(1, wanted, list(range(8))))
        self.assertTrue(finished(tier, 1))
        self.daemon.pause()
        try:
            tier._answers.clear()
            slowest = calls(self, tier, wanted, 1.5)
        finally:
            self.daemon.resume()
        self.assertLess(slowest, 0.5)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and lookups(tier, wanted) != [True] * 8:
            time.sleep(0.05)
        self.assertEqual(lookups(tier, wanted), [True] * 8)


def calls(test: unittest.TestCase, tier: KvstoredTier, wanted: List[bytes], seconds: float) -> float:
    """Makes all calls of a scheduler; the longest of them."""
    slowest, job, done = 0.0, 100, []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for call in (
            lambda: [tier.lookup(k, None) for k in wanted],
            lambda: tier.submit_load(JobMetadata(job, wanted, list(range(len(wanted))))),
            lambda: tier.submit_store(JobMetadata(job + 1, wanted, list(range(len(wanted))))),
            lambda: done.extend(tier.get_finished_jobs()),
            lambda: tier.touch(wanted, None),
        ):
            began = time.monotonic()
            call()
            slowest = max(slowest, time.monotonic() - began)
        job += 2
        time.sleep(0.01)
    deadline = time.monotonic() + 20
    while len(done) < job - 100 and time.monotonic() < deadline:
        done.extend(tier.get_finished_jobs())
        time.sleep(0.01)
    test.assertEqual(sorted(r.job_id for r in done), list(range(100, job)))  # each exactly once
    return slowest


class Absent(unittest.TestCase):
    def test_a_hanging_daemon_blocks_nothing(self) -> None:
        """Not the calls of the scheduler; the constructor waits for a second at most."""
        with Hanging() as socket:
            began = time.monotonic()
            tier = KvstoredTier(vllm_config(), view(), socket=socket)
            self.assertLess(time.monotonic() - began, 5)
            self.addCleanup(tier.shutdown)
            self.assertLess(calls(self, tier, keys("hang", 8), 1.5), 0.5)
            self.assertEqual(lookups(tier, keys("hang", 8)), [False] * 8)


if __name__ == "__main__":
    unittest.main()
