"""What the log says of a daemon that goes and comes."""

import os
import socket
import struct
import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any, List
from unittest import mock

import kvstored
from kvstored import _wire as wire
from kvstored.errors import Code
from kvstored.outage import Outage

from .daemon import Daemon, enter
from .test_client import GIVEN

PATIENCE = 60.0  # seconds; bounds what should take none
LOST, BACK = "WARNING:kvstored:kvstored: without the daemon (", "WARNING:kvstored:kvstored: attached to "


class Said(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 1000.0
        enter(self, mock.patch("kvstored.outage.time", SimpleNamespace(monotonic=lambda: self.now)))

    def until(self, said: Any, wanted: List[str]) -> None:
        """Waits until as many lines are said as are wanted, and compares how they begin."""
        deadline = time.monotonic() + PATIENCE
        while len(said.output) < len(wanted) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual([line.startswith(start) for line, start in zip(said.output, wanted)], [True] * len(wanted), said.output)
        self.assertEqual(len(said.output), len(wanted), said.output)


class Words(Said):
    def test_one_pair_for_an_outage(self) -> None:
        outage = Outage()
        with self.assertLogs("kvstored", "INFO") as said:
            for _ in range(500):
                outage.goes_on(kvstored.Disconnected("/s: gone"))
                self.now += 0.25
            outage.is_over("/s")
            outage.is_over("/s")
        self.until(said, [LOST + "/s: gone): ", BACK + "/s, after 125.0 s"])

    def test_flapping(self) -> None:
        """One pair in ten seconds, and what was said last is so."""
        outage = Outage()
        with self.assertLogs("kvstored", "INFO") as said:
            for _ in range(100):  # 20 s
                self.now += 0.1
                outage.goes_on(kvstored.Disconnected("gone"))
                self.now += 0.1
                outage.is_over("/s")
            self.until(said, [LOST, BACK] * 2)
            for _ in range(100):  # from then on it is away
                self.now += 0.25
                outage.goes_on(kvstored.Disconnected("gone"))
            self.until(said, [LOST, BACK] * 2 + [LOST])
            outage.is_over("/s")
        self.until(said, [LOST, BACK] * 3)

    def test_a_mistake_of_ours(self) -> None:
        """Has its traceback."""
        with self.assertLogs("kvstored", "INFO") as said:
            try:
                raise RuntimeError("by the test")
            except RuntimeError as e:
                Outage().goes_on(e)
        self.until(said, [LOST + "by the test): "])
        self.assertIn("Traceback", said.output[0])


class Lines(Said):
    def test_a_restart(self) -> None:
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            with self.assertLogs("kvstored", "INFO") as said:
                daemon.kill()
                self.until(said, [LOST + daemon.socket])
                daemon.start()
                daemon.wait()
                self.assertTrue(kv.wait_attached())
                self.until(said, [LOST, BACK + daemon.socket])
                for _ in range(20):  # soon after
                    assert kv._link is not None
                    kv._link.fail(kvstored.Disconnected("by the test"))
                    self.assertTrue(kv.wait_attached())
                kv.close()
            self.until(said, [LOST, BACK])

    def test_a_daemon_that_comes_later(self) -> None:
        with Daemon() as daemon:
            daemon.kill()
            with self.assertLogs("kvstored", "INFO") as said:
                with kvstored.Client(daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
                    self.until(said, [LOST + daemon.socket])
                    daemon.start()
                    daemon.wait()
                    self.assertTrue(kv.wait_attached())
                    self.until(said, [LOST, BACK + daemon.socket])

    def test_a_daemon_that_is_starting(self) -> None:
        """It is waited for as one that is away, and nothing is raised."""
        with Daemon() as daemon:
            daemon.kill()
            body = struct.pack("<B3xII20sII", 3, 20, 20, b"the daemon is coming", 0, 0)
            with self.assertLogs("kvstored", "INFO") as said:
                listener = socket.socket(socket.AF_UNIX)
                os.unlink(daemon.socket)
                listener.bind(daemon.socket)
                listener.listen(8)
                answered = threading.Event()

                def refuse() -> None:
                    for _ in range(3):
                        conn, _ = listener.accept()
                        with conn:
                            conn.recv(4096)
                            conn.sendall(wire.frame(wire.REPLY, wire.Op.HELLO, 0, body, Code.STARTING))
                    listener.close()
                    answered.set()

                threading.Thread(target=refuse).start()
                with kvstored.Client(daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
                    self.until(said, [LOST + "hello: starting: the daemon is coming"])
                    self.assertTrue(answered.wait(PATIENCE))
                    self.assertFalse(kv.attached)
                    daemon.start()
                    self.assertTrue(kv.wait_attached())
                    self.until(said, [LOST, BACK])

    def test_close_is_no_outage(self) -> None:
        with Daemon() as daemon, self.assertLogs("kvstored", "DEBUG") as said:
            kvstored.Client(daemon.socket, space=GIVEN, timeout=PATIENCE).close()
            kvstored._connection.log.debug("nothing else")
        self.assertEqual(said.output, ["DEBUG:kvstored:nothing else"])
