"""Page-locking, with stand-ins for the CUDA runtime."""

from __future__ import annotations

import time
import unittest
from typing import List, Tuple

import kvstored
from kvstored.cuda import Registration

from .daemon import Daemon


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


if __name__ == "__main__":
    unittest.main()
