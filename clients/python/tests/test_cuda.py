"""Page-locking, with stand-ins for the CUDA runtime: functions, torch, and a library."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from types import SimpleNamespace
from typing import Any, List, Tuple
from unittest import mock

import kvstored
from kvstored import cuda
from kvstored.cuda import Registration

from .daemon import Daemon, skip

LIBRARY = """
#include <stddef.h>
void *at; size_t size; unsigned flags; int devices = 1;
int cudaGetDeviceCount(int *n) { *n = devices; return 0; }
int cudaHostRegister(void *p, size_t n, unsigned f) { at = p; size = n; flags = f; return 0; }
int cudaHostUnregister(void *p) { if (p != at) return 1; at = 0; return 0; }
"""


class Cuda(unittest.TestCase):
    def test_registered_again_after_a_restart(self) -> None:
        locked: List[Tuple[int, int]] = []
        unlocked: List[int] = []

        def lock(at: int, size: int, flags: int) -> int:
            locked.append((at, size))
            return 0

        with Daemon(dram="16MiB") as daemon, kvstored.Client(daemon.socket, timeout=5) as kv:
            registration = Registration(kv, lock, lambda at: unlocked.append(at) or 0)
            self.assertTrue(registration.active)
            self.assertEqual(locked, [(kv.arena.address, kv.arena.size)])
            epoch = kv.epoch
            daemon.kill()
            daemon.start()
            daemon.wait()
            deadline = time.monotonic() + 5
            while kv.epoch in (None, epoch) and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertEqual(len(locked), 2)
            self.assertEqual(unlocked, [locked[0][0]])
            registration.close()
            self.assertFalse(registration.active)
            self.assertEqual(len(unlocked), 2)

    def test_a_refusal_is_no_error(self) -> None:
        with Daemon(dram="16MiB") as daemon, kvstored.Client(daemon.socket, timeout=5) as kv:
            self.assertFalse(Registration(kv, lambda *_: 801, lambda _: 0).active)
            self.assertTrue(kv.ping())

    def test_through_torch(self) -> None:
        locked: List[Tuple[int, int, int]] = []
        runtime = SimpleNamespace(
            cudaHostRegister=lambda *a: locked.append(a) or 0, cudaHostUnregister=lambda at: locked.clear() or 0
        )
        torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True, cudart=lambda: runtime))
        with Daemon(dram="16MiB") as daemon, kvstored.Client(daemon.socket, timeout=5) as kv:
            with mock.patch.dict(sys.modules, {"torch": torch}):
                registration = cuda.register(kv)
            self.assertEqual(locked, [(kv.arena.address, kv.arena.size, 9)])
            registration.close()
            self.assertEqual(locked, [])

    def test_through_the_library(self) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            skip(self, "there is no C compiler")
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", f"{folder}/stub.so"]
        subprocess.run(command, input=LIBRARY, text=True, check=True)
        load, stub = ctypes.CDLL, ctypes.CDLL(f"{folder}/stub.so")

        def library(name: Any, *args: Any, **kwargs: Any) -> Any:
            if not str(name).startswith("libcudart"):
                return load(name, *args, **kwargs)
            if name == "libcudart.so.12":
                return stub
            raise OSError(name)

        with Daemon(dram="16MiB") as daemon, kvstored.Client(daemon.socket, timeout=5) as kv:
            with mock.patch.dict(sys.modules, {"torch": None}), mock.patch.object(ctypes, "CDLL", library):
                registration = cuda.register(kv)
                self.assertTrue(registration.active)
                at, size = ctypes.c_void_p.in_dll(stub, "at"), ctypes.c_size_t.in_dll(stub, "size")
                self.assertEqual((at.value, size.value), (kv.arena.address, kv.arena.size))
                registration.close()
                self.assertIsNone(ctypes.c_void_p.in_dll(stub, "at").value)
                ctypes.c_int.in_dll(stub, "devices").value = 0
                self.assertIsNone(cuda.register(kv))  # no GPU


if __name__ == "__main__":
    unittest.main()
