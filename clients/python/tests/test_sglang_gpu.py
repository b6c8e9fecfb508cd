"""KvstoredLinker on a GPU, for which a stand-in is taken: see tests/vllm_gpu.py."""

import threading
import time
from typing import Any, Dict, List, Optional, Sequence
from unittest import mock

from kvstored import cuda, device
from kvstored.job import Job
from kvstored.sglang import linker
from kvstored.sglang.linker import KvstoredLinker

from . import test_sglang_linker as cpu
from .daemon import Daemon, enter, leases_stay, until
from .sglang_pools import chain
from .test_sglang_linker import LAYERS, MHATokenToKVPool, buffers, page
from .vllm_gpu import Gpu

PAGE_BYTES = 2 * LAYERS * cpu.PAGE * 2 * 8 * 2


class OnGpu(cpu.Linked):
    def setUp(self) -> None:
        super().setUp()
        self.gpu = Gpu()
        self.gpu.serve(self)
        self.addCleanup(lambda: self.assertTrue(all(driver.closed for driver in self.gpu.drivers)))

    def linker(self, kvcache: Any, name: str = "model", socket: Optional[str] = None, more: Optional[Dict[str, Any]] = None, **extra: Any) -> KvstoredLinker:
        scaled = getattr(kvcache, "k_scale_buffer", None) is not None
        if scaled or buffers(kvcache)[0].device.type != "cpu":
            return super().linker(kvcache, name, socket, more, **extra)
        self.gpu.memory += [(b.data_ptr(), b.nbytes) for b in buffers(kvcache)]
        with mock.patch.object(linker, "streams_of", lambda _: self.gpu.by_driver()):
            made = super().linker(kvcache, name, socket, more, **extra)
        self.addCleanup(self.gpu.locking.set)  # for the close, which comes after
        made.record_offload_ready = lambda: [self.gpu.event()]  # type: ignore[method-assign]
        if socket != cpu.NOWHERE:
            until(lambda: made._client.attached)  # a daemon takes no memory that is page-locked while it populates that
        if socket != cpu.NOWHERE and self.gpu.locking.is_set():
            self.assertTrue(made._memory._locked.wait(60))  # type: ignore[attr-defined]
        return made

    def found(self, target: KvstoredLinker, kvcache: Any, name: str, n: int = 6) -> List[str]:
        """Keys of what is stored, and leased for a load; page i has the values of key i."""
        keys = chain(name, n)
        self.fill(kvcache, range(n))
        self.assertTrue(self.offloaded(target, self.transfers(keys, range(n))))
        self.assertEqual(len(target.lookup("request", self.transfers(keys))), n)
        self.gpu.batches.clear()
        return keys

    def right(self, kvcache: Any, at: Sequence[int]) -> bool:
        return [page(kvcache, p) for p in at] == [page(kvcache, p) for p in range(len(at))]

    def through(self, target: KvstoredLinker) -> int:
        """Bytes that went through memory of the process since it was asked last."""
        lanes = [(lane._at, lane.room) for lane in (target._memory._up, target._memory._down)]  # type: ignore[attr-defined]
        rows = [row for batch in self.gpu.batches for row in batch]
        self.gpu.batches.clear()
        return sum(n for to, source, n in rows if any(at <= a < at + room for at, room in lanes for a in (to, source)))


class TestLinkerOnGpu(OnGpu, cpu.TestLinker):
    """All that it does on CPUs, and what is a GPU's own."""

    def test_straight(self) -> None:
        """Each layer is one batch from the daemon's memory, told once it has ended, the last
        one once the lease has proved all."""
        kvcache = MHATokenToKVPool()
        target = self.linker(kvcache, check_existing=0)
        keys, told = self.found(target, kvcache, "straight"), []  # type: ignore[var-annotated]
        counter, renew = target.layer_done_counter, Job.renew

        def complete(index: int, layer: int) -> None:
            told.append((layer, len(self.gpu.batches)))
            type(counter).complete(counter, index, layer)

        def renewed(job: Job, timeout: float) -> float:
            told.append("proved")
            return renew(job, timeout)

        with mock.patch.object(counter, "complete", complete), mock.patch.object(Job, "renew", renewed):
            self.assertTrue(self.loaded(target, self.transfers(keys, range(20, 26))))
        self.assertEqual(told, [(0, 1), (1, 2), "proved", (2, 3)])
        self.assertEqual(self.through(target), 0)
        self.assertTrue(self.right(kvcache, range(20, 26)))

    def test_while_memory_is_page_locked(self) -> None:
        """All goes through the process, as many pages at a time as there is room for, however
        long that takes, and before the first layer is told."""
        enter(self, mock.patch.object(device, "_BOUNCE_BYTES", 2 * PAGE_BYTES))
        self.gpu.locking.clear()
        kvcache = MHATokenToKVPool()
        target = self.linker(kvcache, check_existing=0)
        keys = self.found(target, kvcache, "meanwhile")
        target._timeouts = 30, 1e-9
        with mock.patch.object(Job, "renew", side_effect=AssertionError("sums prove it")):
            self.assertTrue(self.loaded(target, self.transfers(keys, range(20, 26))))
        self.assertEqual((len(self.gpu.batches), self.through(target)), (3, 6 * PAGE_BYTES))
        self.assertTrue(self.right(kvcache, range(20, 26)))

    def test_a_lease_that_ends_while_the_gpu_copies(self) -> None:
        """Sums of the slots prove instead what the forward has computed with."""
        for torn in (False, True):
            with self.subTest(torn=torn):
                kvcache = MHATokenToKVPool()
                target = self.linker(kvcache, f"ends {torn}")
                keys = self.found(target, kvcache, f"ends {torn}")

                def renew(job: Job, timeout: float) -> float:
                    if torn:
                        kvcache.v_buffer[1][23 * cpu.PAGE] = 5.0
                    return 0.0

                with mock.patch.object(Job, "renew", renew):
                    self.assertEqual(self.loaded(target, self.transfers(keys, range(20, 26))), not torn)
                self.assertEqual(self.right(kvcache, range(20, 26)), not torn)

    def test_other_bytes_than_were_stored(self) -> None:
        """Those that the sums of bounced pages do not prove: nothing of them reaches the GPU."""
        self.gpu.locking.clear()
        kvcache = MHATokenToKVPool()
        target = self.linker(kvcache, timeout=2)
        keys, before = self.found(target, kvcache, "wrong"), page(kvcache, 20)
        rows = target._answered["request"].rows
        rows.update({key: (at, size, total ^ 1) for key, (at, size, total) in rows.items()})
        with mock.patch.object(linker.Pages, "load", return_value=0), self.assertLogs("kvstored.sglang", "WARNING"):
            self.assertFalse(self.loaded(target, self.transfers(keys, range(20, 26))))
        self.assertEqual((page(kvcache, 20), len(self.gpu.batches)), (before, 0))

    def test_a_copy_that_is_refused(self) -> None:
        """Straight ones may all be: it is said once, and all goes through the process."""
        kvcache = MHATokenToKVPool()
        target = self.linker(kvcache, check_existing=0)
        lane = target._memory._up  # type: ignore[attr-defined]
        for turn in range(2):
            keys = self.found(target, kvcache, f"refused {turn}")
            self.gpu.refuses = lambda pieces: any(not lane._at <= source < lane._at + lane.room for _, source, _ in pieces)
            with self.assertLogs("kvstored.device", "WARNING") if not turn else self.assertNoLogs("kvstored", "WARNING"):
                self.assertTrue(self.loaded(target, self.transfers(keys, range(20, 26))))
            self.assertTrue(self.right(kvcache, range(20, 26)))
            self.assertEqual(self.through(target), 6 * PAGE_BYTES)
            self.gpu.refuses = lambda pieces: False

    def test_a_copy_that_fails(self) -> None:
        """At the first layer or later: the load has failed, and SGLang is told."""
        for nth in range(LAYERS):
            with self.subTest(nth):
                self.gpu.fails, self.gpu.failed = lambda pieces: False, ""
                kvcache = MHATokenToKVPool()
                target = self.linker(kvcache, f"fails {nth}")
                keys = self.found(target, kvcache, f"fails {nth}")
                self.gpu.fails = lambda pieces: len(self.gpu.batches) > nth
                with self.assertLogs("kvstored", "WARNING"):
                    self.assertFalse(self.loaded(target, self.transfers(keys, range(20, 26))))
                    self.assertFalse(self.offloaded(target, self.transfers(chain(f"more {nth}", 6), range(6))))

    def test_slow_copies_are_told_when_they_end(self) -> None:
        kvcache = MHATokenToKVPool()
        target = self.linker(kvcache)
        keys = self.found(target, kvcache, "slow")
        self.gpu.copies.clear()
        self.assertTrue(target.load("request", self.transfers(keys, range(20, 26))))
        index = target.start_layer_wise_loading()
        first, *_ = futures = target.layer_done_counter.futures[index]
        with self.assertRaises(TimeoutError):
            first.result(0.2)
        self.gpu.copies.set()
        first.result(60)
        self.assertTrue(target.finish_layer_wise_loading(index))
        self.assertTrue(all(future.done() for future in futures) and self.right(kvcache, range(20, 26)))

    def test_after_what_the_engine_has_begun(self) -> None:
        """A store has what is computed when it is asked for, a load what nothing before it overwrites."""
        kvcache, go = MHATokenToKVPool(), threading.Event()
        target, keys = self.linker(kvcache), chain("order", 6)
        self.gpu.engine.put(go.wait)
        self.gpu.engine.put(lambda: self.fill(kvcache, range(6)))
        self.assertTrue(target.offload(self.transfers(keys, range(6))))
        time.sleep(0.05)
        self.assertEqual((target.num_completed_offloads(), self.gpu.batches), (0, []))
        go.set()
        self.assertTrue(self.popped(target))
        self.assertEqual(len(target.lookup("request", self.transfers(keys))), 6)
        go.clear()
        self.gpu.engine.put(go.wait)
        self.gpu.engine.put(lambda: self.fill(kvcache, range(20, 26), 2))
        self.assertTrue(target.load("request", self.transfers(keys, range(20, 26))))
        index, self.gpu.batches = target.start_layer_wise_loading(), []
        time.sleep(0.05)
        self.assertEqual(self.gpu.batches, [])
        go.set()
        self.assertTrue(target.finish_layer_wise_loading(index))
        self.assertTrue(self.right(kvcache, range(20, 26)))

    def test_without_a_driver(self) -> None:
        """It is refused: nothing copies."""
        with mock.patch.object(cuda, "Driver", mock.Mock(side_effect=OSError("no such file"))):
            gpu = mock.Mock(entries=[mock.Mock(kv_buffer=[mock.Mock(device=mock.Mock(type="cuda", index=0))])])
            with self.assertRaisesRegex(ValueError, "KvstoredHiCache: no such file"):
                linker.streams_of(gpu)


class TestTroubleOnGpu(OnGpu, cpu.TestTrouble):
    def test_a_daemon_that_hangs_while_the_gpu_copies(self) -> None:
        """The load waits for its timeout, once, and has the sums."""
        with Daemon() as daemon:
            leases_stay(self)
            kvcache = MHATokenToKVPool()
            target = self.linker(kvcache, socket=daemon.socket)
            keys = self.found(target, kvcache, "hangs")
            target._timeouts = 0.3, 0.3
            daemon.pause()
            began = time.monotonic()
            self.assertTrue(self.loaded(target, self.transfers(keys, range(20, 26))))
            self.assertLess(time.monotonic() - began, 30)
            self.assertTrue(not target._client.attached and self.right(kvcache, range(20, 26)))
            daemon.resume()
