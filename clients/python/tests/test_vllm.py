"""KvstoredTier against a live daemon, with vLLM's classes where they can be
imported, and stand-ins otherwise."""

from __future__ import annotations

import enum
import hashlib
import inspect
import os
import subprocess
import sys
import threading
import time
import unittest
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional
from unittest import mock

import kvstored.vllm
import kvstored.vllm_plugin
from kvstored.vllm import KvstoredTier, SecondaryTierManager, fingerprint

from . import engines
from .daemon import Daemon, Served
from .engines import HIT, MISS, RETRY, context, needs_vllm, offloading_config, transfer, vllm_config
from .stub import Hanging
from .test_fork import in_child

ROW = 96 * 1024
BLOCKS = 64


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
        answers = [tier.lookup(k, context()) for k in wanted]
        if RETRY not in answers or time.monotonic() > deadline:
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


class Tier(Served):
    def tier(self, memory: memoryview, **options: Any) -> KvstoredTier:
        options = {"offloading_spec": SimpleNamespace(vllm_config=vllm_config()), "tier_type": "KvstoredTier", **options}
        tier = KvstoredTier(primary_kv_view=memory, socket=self.daemon.socket, **options)
        self.addCleanup(tier.shutdown)
        return tier

    def test_store_evict_load(self) -> None:
        memory, wanted = view(), keys("roundtrip", 40)
        flat = memory.cast("B")
        tier = self.tier(memory)
        self.assertEqual(set(lookups(tier, wanted)), {MISS})
        for i, key in enumerate(wanted):
            flat[i * ROW : (i + 1) * ROW] = row(key)
        tier.submit_store(transfer(1, wanted, list(range(40))))
        self.assertTrue(finished(tier, 1))
        flat[:] = bytes(len(flat))  # evicted here
        self.assertEqual(set(lookups(tier, wanted)), {HIT})
        other = self.tier(memory, offloading_spec=None, vllm_config=vllm_config())  # another engine, the older form
        self.assertEqual(set(lookups(other, wanted)), {HIT})
        other.submit_load(transfer(2, wanted, [63 - i for i in range(40)], load=True))
        self.assertTrue(finished(other, 2))
        for i, key in enumerate(wanted):
            self.assertEqual(flat[(63 - i) * ROW : (64 - i) * ROW], row(key))

    def test_one_absent_block_fails_the_load(self) -> None:
        tier = self.tier(view())
        stored, absent = keys("half", 1), keys("absent", 1)
        tier.submit_store(transfer(1, stored, [0]))
        self.assertTrue(finished(tier, 1))
        tier.submit_load(transfer(2, stored + absent, [1, 2], load=True))
        self.assertFalse(finished(tier, 2))
        tier.submit_load(transfer(3, stored, [BLOCKS], load=True))  # no such row
        self.assertFalse(finished(tier, 3))

    def test_no_copy_begins_after_the_deadline(self) -> None:
        tier, wanted = self.tier(view()), keys("late copies", 4)
        tier.submit_store(transfer(1, wanted, list(range(4))))
        self.assertTrue(finished(tier, 1))
        late, copied = [0.0], []

        def slow(to: int, address: int, size: int) -> None:
            copied.append(to)
            late[0] = 3600.0

        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late[0])
        with mock.patch("kvstored.pages.copy", slow), mock.patch("kvstored.pages.time", clock):
            tier._pages.load([kvstored.vllm._raw(k) for k in wanted], [((0, ROW),)] * 4, 30.0)
        self.assertEqual(len(copied), 1)

    def test_drain(self) -> None:
        tier = self.tier(view())
        for n in range(5):
            tier.submit_store(transfer(n, keys(f"drain{n}", 10), list(range(10))))
        self.assertTrue(tier.has_pending_work())
        tier.drain_jobs()
        self.assertTrue(tier.has_pending_work())  # the results are not fetched yet
        self.assertEqual(sorted(r.job_id for r in tier.get_finished_jobs()), [0, 1, 2, 3, 4])
        self.assertFalse(tier.has_pending_work())

    def test_a_job_after_the_end_fails(self) -> None:
        tier = self.tier(view())
        tier.shutdown()
        tier.submit_store(transfer(1, keys("late", 2), [0, 1]))
        tier.submit_load(transfer(2, keys("late", 2), [0, 1], load=True))
        self.assertTrue(tier.has_pending_work())  # the results are not fetched yet
        self.assertEqual(not_returned({"drain_jobs": tier.drain_jobs}), [])
        self.assertEqual([(r.job_id, r.success) for r in tier.get_finished_jobs()], [(1, False), (2, False)])
        self.assertFalse(tier.has_pending_work())

    def test_jobs_while_it_ends(self) -> None:
        """Each ends once, whenever it comes."""
        for _ in range(20):
            tier = self.tier(view())
            jobs, began = list(range(50)), threading.Event()

            def submit() -> None:
                for job in jobs:
                    tier.submit_load(transfer(job, keys("ends", 1), [0], load=True))
                    began.set()

            thread = threading.Thread(target=submit)
            thread.start()
            began.wait(30)
            tier.shutdown()
            thread.join(30)
            self.assertEqual(not_returned({"drain_jobs": tier.drain_jobs}), [])
            self.assertEqual(sorted(r.job_id for r in tier.get_finished_jobs()), jobs)

    def test_drain_gives_up(self) -> None:
        """On a thread that does not come back in time, and on a result that cannot be made."""
        tier, go = self.tier(view(), transfer_timeout=0.1), threading.Event()
        self.addCleanup(go.set)
        late = mock.patch.object(kvstored.vllm, "_LATE_SECONDS", 0.1)
        with late, mock.patch.object(tier._pages, "load", lambda *_: go.wait(60) and 0):
            tier.submit_load(transfer(1, keys("gives up", 1), [0], load=True))
            with self.assertLogs("kvstored.vllm", "ERROR"):
                self.assertEqual(not_returned({"drain_jobs": tier.drain_jobs}), [])
            self.assertTrue(tier.has_pending_work())
            go.set()
            self.assertFalse(finished(tier, 1))
        other = self.tier(view(), transfer_timeout=60)
        broken = mock.patch.object(kvstored.vllm, "_job_result", mock.Mock(side_effect=TypeError("of a new vLLM")))
        with broken, mock.patch.object(kvstored.vllm.log, "exception"):
            other.submit_load(transfer(2, keys("gives up", 1), [0], load=True))
            self.assertEqual(not_returned({"drain_jobs": other.drain_jobs}), [])
        self.assertFalse(other.has_pending_work())

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork here")
    def test_a_forked_child_waits_for_nothing(self) -> None:
        tier, stored = self.tier(view()), keys("forked", 2)
        tier.submit_store(transfer(1, stored, [0, 1]))
        self.assertTrue(finished(tier, 1))
        self.assertEqual(lookups(tier, stored), [HIT] * 2)
        self.daemon.pause()
        try:
            tier.submit_load(transfer(2, stored, [2, 3], load=True))  # under way
            while tier._loads:
                time.sleep(0.002)
            tier.submit_load(transfer(3, stored, [4, 5], load=True))  # waits for it

            def child() -> None:
                assert [tier.lookup(k) for k in stored] == [MISS] * 2
                tier.submit_store(transfer(4, stored, [0, 1]))
                assert not_returned({"drain_jobs": tier.drain_jobs}) == []
                ended = sorted((r.job_id, r.success) for r in tier.get_finished_jobs())
                assert ended == [(2, False), (3, False), (4, False)], ended
                assert not_returned({"shutdown": tier.shutdown}) == []

            with tier._idle:  # as another thread may have it
                self.assertEqual(in_child(child), 0)
        finally:
            self.daemon.resume()
        tier.drain_jobs()
        self.assertEqual([r.job_id for r in tier.get_finished_jobs()], [2, 3])  # the parent goes on

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
            (result,) = tier.get_finished_jobs()
            self.assertEqual((result.job_id, result.success, result.successful_keys), (2, False, stored))
            self.assertGreater(result.transfer_time, 0)
        self.assertEqual(flat[3 * ROW : 5 * ROW], row(stored[1]) + row(stored[0]))

    def test_has_what_vllm_calls(self) -> None:
        """All that a scheduler calls is in scheduler_calls, and has the abstract
        methods of every form of SecondaryTierManager so far."""
        tier = self.tier(view())
        calls = set(scheduler_calls(tier, keys("calls", 1), 0))
        public = {n for n, _ in inspect.getmembers(SecondaryTierManager, inspect.isfunction) if n[0] != "_"}
        self.assertLessEqual(public - {"drain_jobs", "shutdown", "get_tier_type"}, calls)
        forms = "lookup submit_store submit_load get_finished get_finished_jobs on_new_request"
        self.assertLessEqual(set(forms.split()), calls)
        self.assertTrue(callable(tier.get_tier_type) and callable(tier.drain_jobs))

    def test_no_call_waits_for_the_daemon(self) -> None:
        """However long the tier's thread is in a call: here until all others have returned."""
        for doing in ("exists", "load", "store"):
            with self.subTest(doing):
                tier, wanted = self.tier(view()), keys(f"waits/{doing}", 4)
                busy, go = threading.Event(), threading.Event()
                real = getattr(tier._pages, doing)

                def waits(*args: Any) -> Any:
                    busy.set()
                    go.wait(60)
                    return real(*args)

                with mock.patch.object(tier._pages, doing, waits):
                    self.addCleanup(go.set)
                    calls = scheduler_calls(tier, wanted, 100)
                    calls[{"exists": "lookup", "load": "submit_load", "store": "submit_store"}[doing]]()
                    self.assertTrue(busy.wait(30))
                    self.assertEqual(not_returned(scheduler_calls(tier, wanted, 200)), [])
                    self.assertFalse(go.is_set())
                    go.set()
                    tier.drain_jobs()

    def test_engines_that_differ_share_nothing(self) -> None:
        def normalized(**other: Any) -> Any:
            return SimpleNamespace(config=offloading_config(**other))

        chunks = dict(tokens_per_hash=16, blocks_per_chunk=2)
        group = dict(tokens_per_block=16, layer_names=("layer.0",))
        spaces = [
            fingerprint(vllm_config(), ROW),
            fingerprint(vllm_config(block_size=32), ROW),
            fingerprint(vllm_config(cache_dtype="fp8"), ROW),
            fingerprint(vllm_config(prefix_caching_hash_algo="xxhash"), ROW),
            fingerprint(vllm_config(), ROW + 1),
            fingerprint(vllm_config(), ROW, namespace="other"),
            fingerprint(vllm_config(), ROW, revision="other"),
            fingerprint(SimpleNamespace(vllm_config=vllm_config(), blocks_per_chunk=2), ROW),
            fingerprint(normalized(), ROW),
            fingerprint(normalized(), ROW + 1),
            fingerprint(normalized(), ROW, revision="other"),
            fingerprint(normalized(model=lambda make: make("OffloadingModelConfig", name="llama", dtype="fp8")), ROW),
            fingerprint(normalized(parallel=lambda make: engines.parallel(make, tp=4)), ROW),
            fingerprint(normalized(groups=lambda make: (make("OffloadingGroupConfig", **group),)), ROW),
            fingerprint(normalized(cache=lambda make: make("OffloadingCacheConfig", **chunks)), ROW),
        ]
        self.assertEqual(len(set(spaces)), len(spaces))
        self.assertEqual(fingerprint(normalized(), ROW), fingerprint(normalized(engine_id="restarted"), ROW))
        self.assertEqual({s.model for s in spaces}, {"llama"})
        with self.assertRaises(ValueError):
            fingerprint(SimpleNamespace(), ROW)

    def test_what_changes_the_bytes_is_part_of_the_space(self) -> None:
        class Backend(enum.Enum):
            FLASH = "a.b.Flash"
            TRITON = "a.b.Triton"

        def whole(part: str = "", **fields: Any) -> Any:
            config = vllm_config()
            config.attention_config = SimpleNamespace(backend=None, backend_per_kind={})
            for name, value in fields.items():
                setattr(getattr(config, part), name, value)
            return fingerprint(config, ROW)

        def override(config: Any) -> Any:
            return config

        versions = [mock.patch.dict("sys.modules", vllm=SimpleNamespace(__version__=v)) for v in ("1.0", "1.1")]
        environment = mock.patch.dict(os.environ, VLLM_ATTENTION_BACKEND="FLASH")
        with environment:
            spaces = [whole(), fingerprint(SimpleNamespace(config=offloading_config()), ROW)]
        for version in versions:
            with version:
                spaces += [whole(), fingerprint(SimpleNamespace(config=offloading_config()), ROW)]
        told = SimpleNamespace(**{**vars(offloading_config()), "kv_cache_layout": "LBHNC"})
        spaces += [
            fingerprint(SimpleNamespace(config=offloading_config()), ROW),
            fingerprint(SimpleNamespace(config=told), ROW),
            whole(),
            whole("model_config", quantization="fp8"),
            whole("model_config", quantization="awq"),
            whole("model_config", quantization_config={"linear": "fp8"}),
            whole("model_config", hf_overrides={"rope_theta": 1}),
            whole("model_config", hf_overrides={"rope_theta": 2}),
            whole("model_config", hf_overrides=override),
            whole("attention_config", backend=Backend.TRITON),
            whole("attention_config", backend_per_kind={"mla": Backend.FLASH}),
        ]
        self.assertEqual(len(set(spaces)), len(spaces))
        self.assertEqual(spaces[0], whole("attention_config", backend=Backend.FLASH))  # said in another way
        self.assertEqual(whole(), whole("model_config", hf_overrides={}))
        one, other = {"a": object(), "b": [1, {"x": 1, "y": 2}]}, {"b": [1, {"y": 2, "x": 1}], "a": object()}
        self.assertEqual(whole("model_config", hf_overrides=one), whole("model_config", hf_overrides=other))

    def test_a_restart_does_not_change_the_space(self) -> None:
        program = (
            "import enum; from tests.engines import vllm_config; from kvstored.vllm_space import fingerprint\n"
            "Kind = enum.Enum('Kind', 'A B')\n"
            "def f(config): return config\n"
            "c = vllm_config(); c.model_config.hf_overrides = {'f': f, 'o': object(), 's': {'a', 'b', 'c'}, 'k': Kind.A}\n"
            "print(fingerprint(c, 1))"
        )
        seen = set()
        for seed in "123":
            run = [sys.executable, "-B", "-c", program]
            ran = subprocess.run(run, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            seen.add(ran.stdout)
        self.assertEqual(len(seen), 1, seen)

    def test_canonical_formats(self) -> None:
        """As each vLLM names them, and by its version where none is named."""
        path = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.canonical_mapping"

        def tag(module: Any, version: str = "1.0", **config: Any) -> str:
            there = mock.patch.dict("sys.modules", {path: module, "vllm": SimpleNamespace(__version__=version)})
            with there:
                spec = SimpleNamespace(config=SimpleNamespace(**{**vars(offloading_config()), **config}))
                return dict(fingerprint(spec, ROW).tags).get("canonical", "")

        def raises() -> str:
            raise RuntimeError("there is no current config")

        asked = SimpleNamespace(canonical_format_id=lambda: "v1-nhd")
        told = SimpleNamespace(canonical_format_id=lambda kv_cache_layout: f"v2-{kv_cache_layout.lower()}")
        wanted = dict(canonical_layout=True)
        self.assertEqual(tag(asked), "")
        self.assertEqual(tag(asked, **wanted), "v1-nhd")
        self.assertEqual(tag(told, **wanted, kv_cache_layout="LBHNC"), "v2-lbhnc")
        self.assertEqual(tag(None, **wanted, canonical_format="v3"), "v3")
        with self.assertLogs("kvstored.vllm", "WARNING"):
            unnamed = [
                tag(module, version, **wanted)
                for version in ("1.0", "1.1")
                for module in (None, SimpleNamespace(), told, SimpleNamespace(canonical_format_id=raises))
            ]
        self.assertEqual(unnamed, ["of vLLM 1.0"] * 4 + ["of vLLM 1.1"] * 4)

    def test_nothing_is_there_while_the_daemon_is_away(self) -> None:
        with Daemon() as daemon:
            spec = SimpleNamespace(vllm_config=vllm_config())
            tier = KvstoredTier(primary_kv_view=view(), socket=daemon.socket, offloading_spec=spec)
            self.addCleanup(tier.shutdown)
            wanted = keys("away", 8)
            tier.submit_store(transfer(1, wanted, list(range(8))))
            self.assertTrue(finished(tier, 1))
            self.assertEqual(lookups(tier, wanted), [HIT] * 8)
            daemon.kill()
            while tier._client.attached:
                time.sleep(0.01)
            for key, (_, until) in list(tier._answers.items()):
                tier._answers[key] = (True, until + 3600)  # what was answered before counts no more
            self.assertEqual([tier.lookup(key, None) for key in wanted], [MISS] * 8)

    def test_what_is_wrong_with_the_hashes_is_said(self) -> None:
        for algorithm, seed, want in (
            ("sha256_cbor", "0", []),
            ("sha256_cbor", None, ["PYTHONHASHSEED"]),
            ("builtin", "0", ["hash-algo"]),
            ("builtin", None, ["hash-algo", "PYTHONHASHSEED"]),
        ):
            others = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
            env = others if seed is None else {**others, "PYTHONHASHSEED": seed}
            with mock.patch.dict(os.environ, env, clear=True), mock.patch("kvstored.vllm_space.log.warning") as said:
                fingerprint(SimpleNamespace(vllm_config=vllm_config(prefix_caching_hash_algo=algorithm)), ROW)
            text = " ".join(str(arg) for call in said.call_args_list for arg in call.args)
            self.assertEqual([w for w in ("hash-algo", "PYTHONHASHSEED") if w in text], want, text)

    def test_a_stopped_daemon_blocks_nothing(self) -> None:
        tier = self.tier(view(), lookup_timeout=0.2, transfer_timeout=1.0)
        wanted = keys("stopped", 8)
        tier.submit_store(transfer(1, wanted, list(range(8))))
        self.assertTrue(finished(tier, 1))
        done: List[int] = []
        self.daemon.pause()
        try:
            tier._answers.clear()
            for job in range(100, 108, 2):
                self.assertEqual(not_returned(scheduler_calls(tier, wanted, job, done)), [])
            self.assertEqual(lookups(tier, wanted), [MISS] * 8)
        finally:
            self.daemon.resume()
        self.assertEqual(ended(tier, done, 8), list(range(100, 108)))  # each exactly once
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and lookups(tier, wanted) != [HIT] * 8:
            time.sleep(0.05)
        self.assertEqual(lookups(tier, wanted), [HIT] * 8)


    def test_shutdown_waits_for_no_daemon(self) -> None:
        tier = self.tier(view(), transfer_timeout=3600)
        self.daemon.pause()
        try:
            tier.submit_load(transfer(1, keys("stopped", 1), [0], load=True))
            while tier._loads:
                time.sleep(0.002)
            self.assertEqual(not_returned({"shutdown": tier.shutdown}), [])
        finally:
            self.daemon.resume()
        self.assertEqual([(r.job_id, r.success) for r in tier.get_finished_jobs()], [(1, False)])


def scheduler_calls(
    tier: KvstoredTier, wanted: List[bytes], job: int, done: Optional[List[int]] = None
) -> Dict[str, Callable[[], Any]]:
    """The calls of vLLM's TieringOffloadingManager in a step, with two jobs, in
    their order. Jobs that have ended are added to ``done``."""
    rows, request, done = list(range(len(wanted))), context(), [] if done is None else done

    def finished(ask: Callable[[], Any]) -> None:
        done.extend(r.job_id for r in ask())

    calls = {
        "on_new_request": lambda: tier.on_new_request(request),
        "get_finished_jobs": lambda: finished(tier.get_finished_jobs),
        "get_finished": lambda: finished(tier.get_finished),
        "lookup": lambda: [tier.lookup(k, request) for k in wanted],
        "touch": lambda: tier.touch(wanted, request),
        "submit_store": lambda: tier.submit_store(transfer(job, wanted, rows)),
        "serve_external_requests": lambda: tier.serve_external_requests(SimpleNamespace()),
        "submit_load": lambda: tier.submit_load(transfer(job + 1, wanted, rows, load=True)),
        "on_schedule_end": lambda: tier.on_schedule_end(*engines.STEP_END),
        "on_request_finished": lambda: tier.on_request_finished(request),
        "has_pending_work": lambda: tier.has_pending_work(),
        "take_events": lambda: list(tier.take_events()),
        "get_stats": lambda: tier.get_stats(),
    }
    return {name: call for name, call in calls.items() if hasattr(tier, name)}


def not_returned(calls: Dict[str, Callable[[], Any]]) -> List[str]:
    """The calls that do not return, given more time than any machine needs."""
    returned: List[str] = []

    def run() -> None:
        for name, call in calls.items():
            call()
            returned.append(name)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    return [name for name in calls if name not in returned]


def ended(tier: KvstoredTier, done: List[int], n: int) -> List[int]:
    """The jobs that have ended, n of them at least, with those that are told of already."""
    deadline = time.monotonic() + 20
    while len(done) < n and time.monotonic() < deadline:
        done.extend(r.job_id for r in tier.get_finished_jobs())
        time.sleep(0.01)
    return sorted(done)


class Engine:
    """Makes the calls of vLLM's scheduler on its own TieringOffloadingManager,
    with host memory of some rows in place of a GPU's copies."""

    def __init__(self, socket: str, rows: int) -> None:
        spec = engines.offloading_spec(socket, rows, ROW)
        self.manager = spec.get_manager()
        (self.tier,) = self.manager.secondary_tiers
        self.memory = self.manager.primary_tier.get_kv_memoryview().cast("B")

    def request(self, name: str) -> Any:
        request = context(name)
        if hasattr(self.manager, "on_new_request"):
            self.manager.on_new_request(request)
        return request

    def step(self) -> None:
        if hasattr(self.manager, "on_schedule_end"):
            self.manager.on_schedule_end(*engines.STEP_END)
        list(self.manager.take_events())

    def store(self, wanted: List[bytes], request: Any) -> int:
        """How many of them were not in host memory yet, and are now."""
        output = self.manager.prepare_store(wanted, request)
        for key, at in zip(output.keys_to_store, output.store_spec.block_ids):
            self.memory[at * ROW : (at + 1) * ROW] = row(key)
        self.manager.complete_store(output.keys_to_store, request)
        return len(output.keys_to_store)

    def load(self, wanted: List[bytes], request: Any) -> List[bytes]:
        """The blocks of the longest run that is there."""
        deadline, run = time.monotonic() + 20, 0
        while run < len(wanted) and time.monotonic() < deadline:
            answer = self.manager.lookup(wanted[run], request)
            if answer == MISS:
                break
            if answer == HIT:
                run += 1
            else:
                for key in wanted[run + 1 :]:
                    self.manager.lookup(key, request)
                self.step()
                time.sleep(0.001)
        rows = self.manager.prepare_load(wanted[:run], request).block_ids
        blocks = [bytes(self.memory[at * ROW : (at + 1) * ROW]) for at in rows]
        self.manager.complete_load(wanted[:run], request)
        return blocks

    def settle(self) -> None:
        """Until no job is under way."""
        deadline = time.monotonic() + 20
        while self.manager._transfer_jobs and time.monotonic() < deadline:
            self.step()
            time.sleep(0.001)

    def close(self) -> None:
        self.memory.release()
        self.manager.shutdown()


@needs_vllm
class Managed(Served):
    """The tier as vLLM makes it of the documented configuration, under vLLM's manager."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        kvstored.vllm_plugin.register()
        kvstored.vllm_plugin.register()  # in every process, and who knows how often

    def engine(self) -> Engine:
        engine = Engine(self.daemon.socket, rows=16)
        self.addCleanup(engine.close)
        return engine

    def test_store_evict_load(self) -> None:
        engine, wanted, other = self.engine(), keys("managed", 12), keys("managed too", 12)
        self.assertIsInstance(engine.tier, KvstoredTier)
        self.assertIsInstance(engine.tier, engines.tiering.SecondaryTierManager)
        first = engine.request("first")
        self.assertEqual(engine.load(wanted, first), [])
        self.assertEqual(engine.store(wanted, first), 12)
        engine.settle()
        self.assertEqual(engine.store(other, first), 12)  # evicts most of the others from host memory
        engine.settle()
        if hasattr(engine.manager, "on_request_finished"):
            engine.manager.on_request_finished(first)
        second = engine.request("second")
        for again in (wanted, other, [*wanted[:5], *other[:5]]):
            self.assertEqual(engine.load(again, second), [row(k) for k in again])
            engine.settle()
        half = [*wanted[:3], *keys("managed by nobody", 1), *wanted[3:6]]
        self.assertEqual(engine.load(half, second), [row(k) for k in half[:3]])
        restarted = self.engine()
        self.assertEqual(restarted.load(wanted, restarted.request("third")), [row(k) for k in wanted])

    def test_found_by_its_module(self) -> None:
        """Without the plugin, in versions that know module_path."""
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

        if "module_path = tier_config" not in inspect.getsource(SecondaryTierFactory):
            self.skipTest("this vLLM does not know module_path")
        with mock.patch.dict(SecondaryTierFactory._registry, clear=True):
            for line in engines.documented()["secondary_tiers"]:
                self.assertIs(SecondaryTierFactory.get_tier_class(line), KvstoredTier)

    def test_reset(self) -> None:
        engine, wanted = self.engine(), keys("reset", 10)
        if not hasattr(SecondaryTierManager, "drain_jobs"):
            self.skipTest("this vLLM does not know drain_jobs")
        request = engine.request("first")
        self.assertEqual(engine.store(wanted, request), 10)
        engine.manager.reset_cache()  # at once: it drains
        self.assertEqual(engine.load(wanted, engine.request("second")), [row(k) for k in wanted])

    def test_the_daemon_dies(self) -> None:
        with Daemon(dram="16MiB") as daemon:
            engine = Engine(daemon.socket, rows=16)
            self.addCleanup(engine.close)
            wanted, request = keys("dies", 8), engine.request("first")
            self.assertEqual(engine.store(wanted, request), 8)
            daemon.kill()
            engine.settle()
            self.assertEqual(engine.load(wanted, request), [row(k) for k in wanted])  # of host memory
            self.assertEqual(engine.load(keys("dead", 2), request), [])
            self.assertEqual(engine.store(keys("dead", 16), request), 16)
            engine.settle()
            self.assertEqual(dict(engine.manager._transfer_jobs), {})


class Absent(unittest.TestCase):
    def test_a_hanging_daemon_blocks_nothing(self) -> None:
        """Not the calls of the scheduler; the constructor waits for a second at most."""
        with Hanging() as socket:
            began = time.monotonic()
            tier = KvstoredTier(vllm_config(), view(), socket=socket)
            self.assertLess(time.monotonic() - began, 5)
            self.addCleanup(tier.shutdown)
            done: List[int] = []
            for job in range(100, 104, 2):
                self.assertEqual(not_returned(scheduler_calls(tier, keys("hang", 8), job, done)), [])
            self.assertEqual(ended(tier, done, 4), list(range(100, 104)))
            self.assertEqual(lookups(tier, keys("hang", 8)), [MISS] * 8)


if __name__ == "__main__":
    unittest.main()
