"""Page-locking, with a stand-in for NVIDIA's driver."""

import ctypes
import gc
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from array import array
from pathlib import Path
from typing import Any, List, Optional
from unittest import mock

import kvstored
from kvstored import _wire as wire
from kvstored import bulk, cuda
from kvstored import Space

from . import driver
from .daemon import ROOT, Daemon, Served, binary, enter, in_child, until

SPACE = Space(model="gpu", dtype="bf16", chunk_tokens=16)
BENCH = str(ROOT / "bench" / "gpu" / "gpu.py")


class Stub:
    """The stand-in, in the place of the driver for as long as a test runs."""

    def __init__(self, test: unittest.TestCase) -> None:
        load, path = ctypes.CDLL, f"{driver.folder(test)}/libcuda.so.1"
        self.library = load(path)

        def library(name: Any, *args: Any, **kwargs: Any) -> Any:
            return load(path if name == "libcuda.so.1" else name, *args, **kwargs)

        enter(test, mock.patch.object(ctypes, "CDLL", library))
        for name, value in (("devices", 2), ("read_only", 1), ("refuses", 0), ("lost", 0), ("unlocked", 0), ("no_batches", 0), ("batches", 0), ("last_device", -1)):
            self.set(name, value)

    def set(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self.library, name).value = value

    def get(self, name: str) -> int:
        return ctypes.c_int.in_dll(self.library, name).value


class Cuda(Served):
    dram = "16MiB"

    def setUp(self) -> None:
        self.stub = Stub(self)
        self.assertEqual((self.stub.get("mapped"), self.stub.get("retained")), (0, 0))

    def tearDown(self) -> None:
        gc.collect()
        self.assertEqual((self.stub.get("mapped"), self.stub.get("retained")), (0, 0))

    def client(self, keep: bool = False, daemon: Optional[Daemon] = None) -> kvstored.Client:
        kv = enter(self, kvstored.Client((daemon or self.daemon).socket, space=SPACE, timeout=60, keep_staging=keep))
        return kv

    def register(self, kv: kvstored.Client, device: Optional[int] = None) -> cuda.Registration:
        registration = cuda.register(kv, device)
        assert registration is not None and registration.wait(60)
        return registration

    def test_copies(self) -> None:
        """One call, or one for each piece."""
        source, to, gpu = bytes(range(64)), bytearray(64), cuda.Driver(1)
        at, into = bulk.address(source), bulk.address(to, True)
        for no_batches in (0, 1):
            self.stub.set("no_batches", no_batches)
            to[:] = bytes(64)
            gpu.copy(1, array("q", [into, into + 32]), array("q", [at + 16, at]), array("q", [16, 8]))
            self.assertEqual(to, source[16:32] + bytes(16) + source[:8] + bytes(24))
            self.assertEqual(self.stub.get("batches"), 1)
        with self.assertRaisesRegex(RuntimeError, "cuMemcpyAsync.*INVALID_VALUE"):
            gpu.copy(0, array("q", [into]), array("q", [at]), array("q", [1]))
        gpu.close()

    def test_flags_and_what_is_page_locked(self) -> None:
        registration = self.register(self.client())
        self.assertEqual((registration.arena, registration.staging, self.stub.get("mapped")), (True, False, 1))
        self.assertEqual(self.stub.get("last_flags"), 0x08 | 0x01)
        registration.close()
        self.assertEqual((registration.arena, self.stub.get("mapped")), (False, 0))
        registration.close()

        kv = self.client(keep=True)
        assert kv.hello is not None
        self.assertTrue(kv.hello.granted & wire.FEATURES_KEEP)
        registration = self.register(kv)
        self.assertEqual((registration.arena, registration.staging, self.stub.get("mapped")), (True, True, 2))
        self.assertEqual(self.stub.get("last_flags"), 0x01)  # the window's: it is writable
        registration.close()
        self.assertEqual(self.stub.get("unlocked"), 3)

    def test_piece_by_piece(self) -> None:
        """Beside all else; what is not page-locked yet is known, and what lies in two pieces."""
        begun, go = threading.Event(), threading.Event()
        call = cuda.Driver.register

        def register(driver: cuda.Driver, mapping: Any, offset: int, size: int) -> str:
            if offset == 8 << 20:
                begun.set()
                go.wait(60)
            return "no more" if offset == 12 << 20 else call(driver, mapping, offset, size)

        enter(self, mock.patch.object(cuda, "PIECE_BYTES", 4 << 20))
        enter(self, mock.patch.object(cuda.Driver, "register", register))
        kv = self.client()
        registration = cuda.register(kv)
        assert registration is not None and kv.arena is not None
        self.assertTrue(begun.wait(60))
        self.assertTrue(kv.ping())
        at = kv.arena.address
        self.assertEqual((self.stub.get("mapped"), registration.arena, registration.wait(0)), (2, False, False))
        self.assertEqual([registration.locked(at + (o << 20), 4 << 20) for o in (0, 2, 4, 6, 8)], [True, False, True, False, False])
        self.assertEqual([registration.parts(at + (o << 20), n << 20) for o, n in ((3, 2), (6, 3), (8, 1))], [[1 << 20, 1 << 20], [], []])
        with self.assertLogs("kvstored.cuda", "WARNING") as logs:
            go.set()
            self.assertTrue(registration.wait(60))
        self.assertRegex(logs.output[0], "page-locks 12582912 of 16777216 bytes of the arena")
        self.assertEqual((self.stub.get("mapped"), registration.arena, registration.locked(at + (8 << 20), 4 << 20)), (3, False, True))
        registration.close()
        self.assertEqual((self.stub.get("unlocked"), registration.locked(at, 1)), (3, False))

    def test_cut(self) -> None:
        with mock.patch.object(cuda, "PIECE_BYTES", 10):
            for at, size, parts in ((100, 10, [10]), (100, 0, []), (105, 3, [3]), (105, 5, [5]), (105, 6, [5, 1]), (109, 22, [1, 10, 10, 1])):
                self.assertEqual(list(cuda.cut(100, at, size)), parts)

    def test_nobody_waits_for_a_thread_that_is_none(self) -> None:
        """It cannot start, or ends by an exception."""
        for of, name in ((threading.Thread, "start"), (cuda.Registration, "_lock_all")):
            kv = self.client()
            with mock.patch.object(of, name, side_effect=RuntimeError("no thread")), mock.patch.object(threading, "excepthook"):
                with mock.patch.object(logging.getLogger("kvstored"), "disabled", True):
                    registration = self.register(kv)
            self.assertFalse(registration.arena)
            registration.close()

    def test_a_window_that_shrinks_is_not_page_locked(self) -> None:
        """As with a daemon that does not know the wish: the driver would go on
        copying to pages that were given back."""
        hello = wire.hello

        def without(wants: int, **more: Any) -> bytes:
            return hello(wants=wants & ~wire.FEATURES_KEEP, **more)

        with mock.patch.object(wire, "hello", without):
            registration = self.register(self.client(keep=True))
        self.assertEqual((registration.arena, registration.staging, self.stub.get("mapped")), (True, False, 1))
        registration.close()

    def test_registered_again_after_a_restart(self) -> None:
        """What a job still holds stays page-locked until it ends."""
        with Daemon(dram="16MiB") as daemon:
            kv = self.client(True, daemon)
            registration = self.register(kv)
            prompt = kvstored.tokens(list(range(16)))
            with kv.reserve(prompt, size=4096) as fill:
                for slot in fill:
                    slot.memory[:] = b"k" * 4096
            job = kv.prefetch(prompt)
            block = job.block(0)
            del fill, slot
            epoch = kv.epoch
            daemon.kill()
            daemon.start()
            daemon.wait()
            until(lambda: kv.epoch not in (None, epoch))
            self.assertTrue(kv.wait_attached(60) and registration.wait(60))
            self.assertEqual((registration.arena, registration.staging), (True, True))
            self.assertIn(self.stub.get("mapped"), (3, 4))  # the window of before may be gone
            self.assertEqual(bytes(block), b"k" * 4096)
            job.release()
            del job, block
            gc.collect()
            self.assertEqual(self.stub.get("mapped"), 2)
            registration.close()
            self.assertEqual((self.stub.get("mapped"), self.stub.get("unlocked")), (0, 4))
            kv.close()

    def test_unlocked_before_it_is_unmapped(self) -> None:
        """Else the next mapping, at the same address, would be refused."""
        kv = self.client()
        registration = self.register(kv)
        assert kv.arena is not None
        address, maps = kv.arena.address, Path("/proc/self/maps")
        there: List[bool] = []
        unregister = registration._driver.unregister

        def looking(at: int) -> str:
            there.append(f"{at:x}-" in maps.read_text())
            return unregister(at)

        with mock.patch.object(registration._driver, "unregister", looking):
            kv.close()
            kv._link = None
            gc.collect()
            self.assertEqual(there, [True])
        self.assertNotIn(f"{address:x}-", maps.read_text())
        registration.close()

    def test_the_gpu_of_the_caller(self) -> None:
        """A connection is made again by a thread that has chosen no GPU."""
        context, old = ctypes.c_void_p(2), ctypes.c_void_p()  # of GPU 1
        self.assertEqual(self.stub.library.cuCtxPushCurrent_v2(context), 0)
        try:
            registration = self.register(self.client())
        finally:
            self.stub.library.cuCtxPopCurrent_v2(ctypes.byref(old))
        self.assertEqual((old.value, self.stub.get("last_device")), (2, 1))
        threads = [threading.Thread(target=registration.close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for device, expected in ((None, 0), (1, 1)):
            self.register(self.client(), device).close()
            self.assertEqual(self.stub.get("last_device"), expected)

    def test_bad_devices(self) -> None:
        kv = self.client()
        for device in (2, -1, 1 << 40):
            with self.assertRaisesRegex(ValueError, f"no GPU {device}: the driver has 2"):
                cuda.register(kv, device)
        for device in ("0", 1.0, True):
            with self.assertRaisesRegex(TypeError, "number of a GPU"):
                cuda.register(kv, device)  # type: ignore[arg-type]

    def test_a_gpu_that_knows_no_read_only_memory(self) -> None:
        self.stub.set("read_only", 0)
        with self.assertLogs("kvstored.cuda", "WARNING") as logs:
            registration = self.register(self.client(keep=True))
        self.assertEqual((registration.arena, registration.staging), (False, True))
        self.assertRegex(logs.output[0], r"page-locks 0 of 16777216 bytes of the arena \(CUDA_ERROR_INVALID_VALUE \(1\)\)")
        registration.close()

    def test_a_refusal_is_no_error(self) -> None:
        self.stub.set("refuses", 2)
        kv = self.client(keep=True)
        with self.assertLogs("kvstored.cuda", "WARNING") as logs:
            registration = self.register(kv)
        self.assertEqual(len(logs.output), 2)
        self.assertEqual((registration.arena, registration.staging), (False, False))
        self.assertTrue(kv.ping())
        self.stub.set("refuses", 0)
        registration.close()

    def test_a_context_that_is_gone(self) -> None:
        """The engine has reset its GPU: nothing is page-locked, and all goes on."""
        with Daemon(dram="16MiB") as daemon:
            kv = self.client(True, daemon)
            registration = self.register(kv)
            self.stub.set("lost", 1)
            epoch = kv.epoch
            with self.assertLogs("kvstored.cuda", "WARNING") as logs:
                daemon.kill()
                daemon.start()
                daemon.wait()
                until(lambda: kv.epoch not in (None, epoch))
                self.assertTrue(registration.wait(60))
            self.assertEqual((registration.arena, registration.staging, len(logs.output)), (False, False, 2))
            self.assertIn("(error (709))", logs.output[0])
            self.assertTrue(kv.ping())
            registration.close()
            kv.close()
        self.stub.library.forget()

    def test_without_a_gpu(self) -> None:
        kv = self.client()
        self.stub.set("devices", 0)
        with self.assertLogs("kvstored.cuda", "INFO") as logs:
            self.assertIsNone(cuda.register(kv))
        self.assertIn("CUDA_ERROR_NO_DEVICE (100)", logs.output[0])
        with mock.patch.object(ctypes, "CDLL", mock.Mock(side_effect=OSError("no such file"))):
            self.assertIsNone(cuda.register(kv))

    def test_a_forked_child_leaves_it_alone(self) -> None:
        kv = self.client()
        registration = self.register(kv)
        registration._over.clear()  # as when a thread is at it
        self.stub.set("last_flags", -1)

        def child() -> None:
            assert kv.wait_attached(60) and registration.wait()
            for address in list(registration._held):  # as when the last view goes
                registration._unlock(address)
            registration.close()
            calls = tuple(map(self.stub.get, ("last_flags", "mapped", "unlocked", "retained")))
            assert calls == (-1, 1, 0, 1), calls

        self.assertEqual(in_child(child), 0)
        self.assertTrue(registration.arena)
        registration.close()


class Bench(unittest.TestCase):
    """bench/gpu, which has a GPU only where somebody runs it by hand."""

    def run_it(self, *args: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        variables["LD_LIBRARY_PATH"] = driver.folder(self)
        command = [sys.executable, "-B", BENCH, *args]
        return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120)

    def test_without_a_gpu(self) -> None:
        done = self.run_it(STUB_DEVICES="0")
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertEqual(done.stderr, "there is no NVIDIA GPU to measure with: cuInit of the NVIDIA driver: CUDA_ERROR_NO_DEVICE (100)\n")

    def test_bad_options(self) -> None:
        sizes = [f"--arena={bad}" for bad in ("16", "16GB", "-1GiB", "1.5GiB", "", "15MiB", "9999999GiB")]
        for bad in (*sizes, "--prompt=4GiB", "--rounds=0", "--rounds=many", "--pause=-1"):
            done = self.run_it(bad)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"{bad.partition('=')[2]!r} is none of ", done.stderr)

    def processes(self, program: str) -> List[str]:
        """Those that run a program, by its path."""
        found = []
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if line.read_bytes().split(b"\0")[0] == os.fsencode(program):
                    found.append(line.parent.name)
            except OSError:
                continue  # it has ended
        return found

    def test_all_of_it(self) -> None:
        program = f"{tempfile.mkdtemp(prefix='kvstored-test-')}/kvstored"  # a name for this run's daemons alone
        self.addCleanup(shutil.rmtree, os.path.dirname(program))
        os.symlink(binary(), program)
        done = self.run_it("--arena", "16MiB", "--rounds", "1", "--prompt", "4MiB", "--pause", "1", KVSTORED_BIN=program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("WRONG", done.stdout)
        for line in (
            "| arena, hugepages: off | 16 MiB | yes | none | CUDA_ERROR_INVALID_VALUE (1) |  |  |",
            "| arena, window page-locked again | True, True |",
            "| keep_staging: True, page-locked: yes | 0 of 16 |",
        ):
            self.assertIn(line, done.stdout)
        self.assertRegex(done.stdout, r"\| 64 x 64 KiB \|.*\| 0 of 128 \|")
        self.assertRegex(done.stdout, r"\| unmapped, then a copy from there \| ends with status -11: ")  # it is killed
        self.assertEqual(self.processes(program), [], "daemons that were left behind")
