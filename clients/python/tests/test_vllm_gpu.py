"""The pool on a GPU, for which a stand-in is taken: see tests/vllm_gpu.py."""

import inspect
import threading
import time
import unittest
from array import array
from types import SimpleNamespace
from typing import Any, List
from unittest import mock

from kvstored import _wire as wire
from kvstored import bulk, cuda, device
from kvstored.vllm import pool, transfers

from . import contracts
from . import test_vllm_pool as cpu
from .daemon import Daemon, enter, until
from .engines import needs_vllm
from .vllm_gpu import Gpu
from .test_vllm_pool import LAYERS, PAGE, blocks_of
from .vllm_engine import keys

BLOCK = LAYERS * PAGE


class OnGpu(cpu.Pool):
    """All that a pool on CPUs does, and what is a GPU's own."""

    mistakes = ("sum", "epoch")  # not even those of the manager, on CPUs
    lives = ("away", "present")

    def setUp(self) -> None:
        super().setUp()
        self.gpu = Gpu()
        self.gpu.install(self)

    def cache(self) -> cpu.Cache:
        cache = cpu.Cache("cuda")
        self.gpu.memory += [(bulk.address(layer, True), len(layer)) for layer in cache.layers]
        return cache

    def engine(self, daemon: Any = None, **given: Any) -> cpu.Engine:
        engine = super().engine(daemon, **given)
        locked = self.memory(engine)._locked
        if self.gpu.locking.is_set() and locked is not None and engine.worker._client.attached:
            self.assertTrue(locked.wait(60))
        return engine

    @staticmethod
    def memory(engine: cpu.Engine) -> Any:
        return engine.worker._memory

    def stored(self, engine: cpu.Engine, name: str, n: int = 4) -> List[bytes]:
        wanted = keys(name, n)
        self.assertEqual([r.transfer_size for r in engine.store(wanted, engine.request(f"stores {name}", wanted))], [n * BLOCK])
        return wanted

    def begin_load(self, engine: cpu.Engine, wanted: List[bytes], at: int = 10) -> int:
        """The job of a load that is queued, on the GPU if that copies."""
        request, job = engine.request(f"loads {time.monotonic()}", wanted), engine.job()
        self.assertEqual(engine.found(wanted, request), len(wanted))
        batches = len(self.gpu.batches)
        engine.worker.submit_load(job, engine.manager.prepare_load(wanted, request), blocks_of(range(at, at + len(wanted))))
        until(lambda: len(self.gpu.batches) > batches)
        return job

    def right(self, engine: cpu.Engine, wanted: List[bytes], at: int = 10) -> bool:
        return all(engine.cache.has(at + i, key) for i, key in enumerate(wanted))

    def through(self, engine: cpu.Engine) -> int:
        """Bytes that went through memory of the process since it was asked last."""
        lanes = [(lane._at, lane.room) for lane in (self.memory(engine)._up, self.memory(engine)._down)]
        rows = [row for batch in self.gpu.batches for row in batch]
        self.gpu.batches.clear()
        return sum(n for to, source, n in rows if any(at <= a < at + room for at, room in lanes for a in (to, source)))

    def test_straight(self) -> None:
        """Each job is one batch, from or to the daemon's memory, and a load is proved by the lease."""
        engine = self.engine(check_existing=0)
        wanted = self.stored(engine, "straight")
        self.assertEqual((len(self.gpu.batches), self.through(engine)), (1, 0))
        with mock.patch.object(engine.worker._client, "renew", wraps=engine.worker._client.renew) as renew:
            job = self.begin_load(engine, wanted)
            self.assertEqual([r.success for r in engine.finished(job)], [True])
        self.assertEqual((renew.call_count, len(self.gpu.batches), self.through(engine)), (1, 1, 0))
        self.assertTrue(self.right(engine, wanted))

    def test_while_memory_is_page_locked(self) -> None:
        """All goes through the process, as many blocks at a time as there is room for, and
        nothing waits; what is page-locked goes straight."""
        enter(self, mock.patch.object(device, "_BOUNCE_BYTES", 3 * BLOCK))
        self.gpu.locking.clear()
        engine = self.engine(check_existing=0)
        wanted = self.stored(engine, "meanwhile", 8)
        self.assertEqual((len(self.gpu.batches), self.through(engine)), (3, 8 * BLOCK))
        with mock.patch.object(engine.worker._client, "renew", side_effect=AssertionError("sums prove it")):
            engine.finished(self.begin_load(engine, wanted))
        self.assertTrue(self.right(engine, wanted))
        self.assertEqual(self.through(engine), 8 * BLOCK)
        self.gpu.locking.set()
        self.assertTrue(self.memory(engine)._locked.wait(60))
        engine.finished(self.begin_load(engine, wanted, at=20))
        self.assertTrue(self.right(engine, wanted, at=20))
        self.assertEqual(self.through(engine), 0)

    def test_ends_of_pieces(self) -> None:
        """Blocks lie over them, and the GPU refuses copies that do. Behind the last one that
        is page-locked all goes through the process."""
        enter(self, mock.patch.object(cuda, "PIECE_BYTES", 5 * 4096))
        whole = self.engine(check_existing=0)
        wanted = self.stored(whole, "ends", 20)
        self.gpu.most_locked = 9 * 5 * 4096
        with self.assertLogs("kvstored.cuda", "WARNING"):
            part = self.engine()
        self.gpu.batches.clear()
        for engine in (whole, part):
            engine.finished(self.begin_load(engine, wanted))
            self.assertTrue(self.right(engine, wanted))
            self.assertEqual(self.through(engine) > 0, engine is part)

    def test_a_lease_that_is_revoked_while_the_gpu_copies(self) -> None:
        """What it copied does not count: the blocks are loaded by their keys, or failed."""
        for again in (True, False):
            with self.subTest(again):
                engine = self.engine(transfer_timeout=2)
                wanted = self.stored(engine, f"revoked {again}")
                engine.worker.hands_failures = True
                self.gpu.copies.clear()
                job = self.begin_load(engine, wanted)
                (request,) = engine.manager._requests.values()
                assert request.job is not None and request.job.release()
                pages, others = engine.manager._groups.first, keys(f"others {again}", 60)
                self.assertEqual(pages.delete([key[:-4] + bytes(4) for key in wanted], 60), 4)
                noise = bytes(BLOCK)
                pages.store(others, [((bulk.address(noise), BLOCK),)] * len(others), 60)
                if again:
                    rows = [b"".join(engine.cache._page(key, layer) for layer in range(LAYERS)) for key in wanted]
                    pages.store([key[:-4] + bytes(4) for key in wanted], [((bulk.address(row), BLOCK),) for row in rows], 60, before=[])
                self.gpu.copies.set()
                self.assertEqual([r.success for r in engine.finished(job)], [True])
                self.assertEqual(engine.worker.failed, [] if again else [job])
                self.assertEqual(self.right(engine, wanted), again)

    def test_another_life_of_the_daemon(self) -> None:
        """It ends while the GPU copies, and the next one has the blocks, or not."""
        for disk in ("256MiB", "0"):
            with self.subTest(disk), Daemon(dram="16MiB", disk=disk) as daemon:
                engine = self.engine(daemon, transfer_timeout=5)
                wanted = self.stored(engine, "lives")
                engine.worker.hands_failures = True
                self.gpu.copies.clear()
                job, epoch = self.begin_load(engine, wanted), engine.worker._client.epoch
                daemon.process.terminate()
                daemon.process.wait(60)
                daemon.start()
                daemon.wait()
                until(lambda: engine.worker._client.epoch not in (None, epoch))
                self.gpu.copies.set()
                engine.finished(job)
                self.assertEqual(engine.worker.failed, [job] if disk == "0" else [])
                self.assertTrue(disk == "0" or self.right(engine, wanted))

    def test_without_sums(self) -> None:
        """The lease proves what goes through the process, too."""
        enter(self, mock.patch.object(bulk, "SUMS", False))
        for locked in (True, False):
            engine = self.engine()
            wanted = self.stored(engine, f"no sums {locked}")
            with mock.patch.object(engine.worker._memory, "_straight", locked):
                engine.finished(self.begin_load(engine, wanted))
            self.assertTrue(self.right(engine, wanted))
            with mock.patch.object(engine.worker._client, "renew", lambda *_: False):
                engine.finished(self.begin_load(engine, wanted, at=20))  # by key
            self.assertTrue(self.right(engine, wanted, at=20))

    def test_a_copy_that_is_refused(self) -> None:
        """Straight ones may all be: it is said once, and all goes through the process."""
        engine = self.engine(check_existing=0)
        wanted = self.stored(engine, "refused")
        self.through(engine)
        lane = self.memory(engine)._up
        self.gpu.refuses = lambda pieces: any(not lane._at <= source < lane._at + lane.room for _, source, _ in pieces)
        for turn in range(2):
            with self.assertLogs("kvstored.device", "WARNING") if not turn else self.assertNoLogs("kvstored.device", "WARNING"):
                engine.finished(self.begin_load(engine, wanted))
            self.assertTrue(self.right(engine, wanted))
            self.assertEqual(self.through(engine), 4 * BLOCK)

    def test_a_copy_that_fails(self) -> None:
        """A load has failed, a store is a miss."""
        engine = self.engine()
        wanted, others = self.stored(engine, "fails"), keys("fails too", 3)
        engine.worker.hands_failures = True
        self.gpu.fails = lambda pieces: True
        job = self.begin_load(engine, wanted)
        with self.assertLogs("kvstored.vllm"):
            self.assertEqual([r.success for r in engine.finished(job)], [True])
            self.assertEqual(engine.worker.failed, [job])
            self.assertEqual([r.transfer_size for r in engine.store(others, engine.request("others", others))], [0])
        self.gpu.fails, self.gpu.failed = lambda pieces: False, ""
        self.assertEqual(engine.found(others, engine.request("looks", others)), 0)

    def test_a_load_by_key_that_fails(self) -> None:
        """As of a daemon that was started since: what raises there has brought nothing."""
        engine = self.engine()
        wanted = self.stored(engine, "fails by key")
        engine.worker.hands_failures = True
        request = engine.request("loads", wanted)
        self.assertEqual(engine.found(wanted, request), len(wanted))
        load = engine.manager.prepare_load(wanted, request)
        self.gpu.fails = lambda pieces: True
        with self.assertLogs("kvstored.vllm") as logged:
            engine.worker.submit_load(99, load._replace(epoch=load.epoch + 1), blocks_of(range(10, 10 + len(wanted))))
            self.assertEqual([r.transfer_size for r in engine.finished(99)], [0])
            self.assertEqual(engine.worker.failed, [99])
            until(lambda: logged.records)  # the thread says so behind the end of the job
        self.gpu.fails = lambda pieces: False
        engine.manager.complete_load(wanted, request)

    def test_a_load_that_hangs(self) -> None:
        """Its blocks may be written to for as long as it does: it is not told as done."""
        enter(self, mock.patch.object(transfers, "_LATE_SECONDS", 0.1))
        engine = self.engine(transfer_timeout=0.3)
        wanted = self.stored(engine, "hangs")
        self.gpu.copies.clear()
        job, began = self.begin_load(engine, wanted), time.monotonic()
        with self.assertRaisesRegex(RuntimeError, "does not end"):
            engine.worker.wait([job])
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(engine.worker.get_finished(), [])
        self.gpu.copies.set()
        until(lambda: engine.worker._transfers[job].done.is_set())
        self.assertEqual(len(engine.worker.get_finished()), 1)

    def test_a_store_that_hangs(self) -> None:
        """vLLM has its blocks back soon. What is copied from them then is not stored, and no
        other store uses its memory meanwhile."""
        engine, other = self.engine(lookup_timeout=0.2), self.engine()
        late, later = keys("stores hang", 4), keys("stores hang, too", 4)
        stores = [engine.request(f"stores {i}", wanted) for i, wanted in enumerate((late, later))]
        self.gpu.copies.clear()
        batches = len(self.gpu.batches)
        for i, key in enumerate(late):
            engine.cache.fill(i, key)
        engine.worker.submit_store(1, blocks_of(range(4)), engine.manager.prepare_store(late, stores[0]).store_spec)
        until(lambda: len(self.gpu.batches) > batches)
        self.assertEqual([r.success for r in engine.finished(1)], [True])
        engine.worker.submit_store(2, blocks_of(range(4)), engine.manager.prepare_store(later, stores[1]).store_spec)
        self.assertEqual([(r.job_id, r.success) for r in engine.worker.get_finished()], [(2, True)])
        for i in range(4):
            engine.cache.fill(i, b"of another request")
        self.gpu.copies.set()
        until(lambda: engine.worker._stuck.over)
        self.assertEqual(other.found([*late], other.request("late", late)), 0)
        others = self.stored(engine, "others, later")
        other.finished(self.begin_load(other, others))
        self.assertTrue(self.right(other, others))

    def test_after_what_the_engine_has_begun(self) -> None:
        """A store has what is computed when it is asked for, a load what nothing before it overwrites."""
        engine, wanted, go = self.engine(), keys("order", 4), threading.Event()
        self.gpu.engine.put(go.wait)
        for i, key in enumerate(wanted):
            self.gpu.engine.put(lambda i=i, key=key: engine.cache.fill(i, key))
        spec = engine.manager.prepare_store(wanted, engine.request("stores", wanted)).store_spec
        engine.worker.submit_store(1, blocks_of(range(4)), spec)
        self.assertEqual(engine.worker.get_finished(), [])
        go.set()
        self.assertEqual([r.transfer_size for r in engine.finished(1)], [4 * BLOCK])
        go.clear()
        self.gpu.engine.put(go.wait)
        for i in range(10, 14):
            self.gpu.engine.put(lambda i=i: engine.cache.fill(i, b"of an earlier step"))
        job = self.begin_load(engine, wanted)
        self.assertEqual(engine.worker.get_finished(), [])
        go.set()
        engine.finished(job)
        self.assertTrue(self.right(engine, wanted))

    def test_a_slow_gpu(self) -> None:
        """Copies take what they take, and the engine's thread none of it."""
        engine = self.engine()
        wanted = self.stored(engine, "slow")
        self.gpu.latency, self.gpu.rate = 0.05, 4 * BLOCK / 0.1
        began = time.monotonic()
        job = self.begin_load(engine, wanted)
        (result,) = engine.finished(job)
        self.assertGreaterEqual(time.monotonic() - began, 0.15)
        self.assertGreaterEqual(result.transfer_time, 0.15)
        self.assertTrue(self.right(engine, wanted))

    def test_the_end(self) -> None:
        """Amid copies it does not wait for long, and unlocks no memory that the GPU may still use."""
        enter(self, mock.patch.object(transfers, "_LATE_SECONDS", 0.1))
        for hangs in (False, True):
            engine = self.engine(transfer_timeout=0.3)
            wanted = self.stored(engine, f"end {hangs}")
            if hangs:
                self.gpu.copies.clear()
            self.begin_load(engine, wanted)
            began = time.monotonic()
            engine.worker.shutdown()
            self.assertLess(time.monotonic() - began, 30)
            self.assertEqual(self.gpu.drivers[-1].closed, not hangs)

    def test_without_a_driver(self) -> None:
        enter(self, mock.patch.object(cuda, "Driver", mock.Mock(side_effect=OSError("no such file"))))
        engine = self.engine(check_existing=0)
        wanted = self.stored(engine, "no driver")
        engine.finished(self.begin_load(engine, wanted))
        self.assertTrue(self.right(engine, wanted))
        self.assertEqual(self.through(engine), 8 * BLOCK)

    def test_attaches_when_the_workers_do(self) -> None:
        """A daemon takes no connection whose memory is page-locked while it populates that."""
        for platform in ("cpu", "cuda"):
            with mock.patch.object(pool, "current_platform", SimpleNamespace(device_type=platform)):
                engine = self.engine()
            wants = [side._client._wants & wire.FEATURES_KEEP for side in (engine.manager, engine.worker)]
            self.assertEqual(wants, [wire.FEATURES_KEEP * (platform != "cpu"), wire.FEATURES_KEEP])

    def test_takes_what_vllm_calls(self) -> None:
        """In all forms that have workers of a pool."""
        forms = [form.stand_in("OffloadingWorker") for form in contracts.load("vllm")]
        for worker in filter(None, forms):
            for name in worker.__abstractmethods__:
                given = inspect.signature(getattr(worker, name)).parameters
                inspect.signature(getattr(transfers.PoolWorker, name)).bind(**dict.fromkeys(given))
        self.assertGreater(len(forms), forms.count(None))

    def test_copies_that_are_refused_in_silence(self) -> None:
        """Such a GPU copies nothing. What it would do: a block that is not brought counts as right."""
        told = SimpleNamespace(cuda="12.8", hip=None), SimpleNamespace(cuda="13.0", hip=None), SimpleNamespace(cuda=None, hip="7.1.25424")
        silent = SimpleNamespace(cuda="12.6", hip=None), SimpleNamespace(cuda=None, hip="7.0.51831"), SimpleNamespace(cuda=None, hip=None)
        for version in told:
            self.assertTrue(device._tells(version))
        for version, batched in (*zip(silent, (True,) * 3), (told[0], False)):
            vars(self.gpu.version).update(vars(version))
            self.gpu.batched = batched
            with self.assertRaisesRegex(ValueError, "take KvstoredTier"):
                self.engine()
        with mock.patch.object(device, "_tells", lambda _: True):
            engine = self.engine(check_existing=0)
        wanted, lane = self.stored(engine, "silent"), self.memory(engine)._up
        self.gpu.refuses = lambda pieces: any(not lane._at <= source < lane._at + lane.room for _, source, _ in pieces)
        self.assertEqual([r.success for r in engine.finished(self.begin_load(engine, wanted))], [True])
        self.assertFalse(self.right(engine, wanted))

    def test_an_event_that_is_not_recorded(self) -> None:
        """The stream is waited for: what it copies from or to is in use until then."""
        engine = self.engine(check_existing=0)
        wanted = self.stored(engine, "no event")
        self.gpu.copies.clear()
        self.gpu.events_left = 1  # the mark of the engine's
        job = self.begin_load(engine, wanted)
        self.assertFalse(engine.worker._transfers[job].done.wait(0.1))
        self.gpu.copies.set()
        self.assertEqual([r.success for r in engine.finished(job)], [True])
        self.assertTrue(self.right(engine, wanted))

    def test_no_memory_that_can_be_page_locked(self) -> None:
        self.gpu.most_pinned = 1 << 20
        with self.assertRaisesRegex(ValueError, "bytes of page-locked memory"):
            self.engine()

    def test_devices_of_which_nothing_is_known(self) -> None:
        with self.assertRaisesRegex(ValueError, "take KvstoredTier"):
            cpu.Engine(self.daemon.socket, cache=cpu.Cache("xpu"))


@needs_vllm
class Own(unittest.TestCase):
    """What the stand-in takes the place of."""

    def test_the_batch_copy(self) -> None:
        from vllm import _custom_ops

        self.assertEqual(list(inspect.signature(_custom_ops.swap_blocks_batch).parameters)[:3], ["src_ptrs", "dst_ptrs", "sizes"])

    def test_streams_and_events(self) -> None:
        import torch

        for name in ("Stream", "Event", "current_stream", "stream", "device"):
            self.assertTrue(callable(getattr(torch.cuda, name)))
        self.assertIn("blocking", inspect.signature(torch.cuda.Event.__new__).parameters)
        self.assertEqual(torch.frombuffer(array("q", [1, 1 << 60]), dtype=torch.int64).tolist(), [1, 1 << 60])
