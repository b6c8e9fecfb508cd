"""A connection by itself: what ends it, and that nothing else does."""

from __future__ import annotations

import time
import unittest
from types import SimpleNamespace
from typing import Any, Callable
from unittest import mock

import kvstored
from kvstored import wire
from kvstored.link import Link, Request

from .daemon import Daemon, Served
from .test_client import GIVEN, chain

PATIENCE = 20.0  # seconds; bounds what should take none


class Interrupt(BaseException):
    """What the handler of a signal raises."""


def ping(callback: Any = None) -> Request:
    return Request(wire.Op.PING, wire.empty(), wire.empty_reply, callback=callback)


class After:
    """Something of which one method, after it has done its work, is interrupted."""

    def __init__(self, of: Any, method: str) -> None:
        self._of, self._method = of, method

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._of, name)
        if name != self._method:
            return method

        def interrupted(*args: Any) -> None:
            method(*args)
            raise Interrupt

        return interrupted


class Interrupted(Served):
    """The handler of a signal may raise between any two steps."""

    def link(self) -> Link:
        link = Link(self.daemon.socket, wire.hello(0, "test"), PATIENCE)
        self.addCleanup(link.close)
        return link

    def interrupted(self, work: Callable[[], Any]) -> None:
        with self.assertRaises(Interrupt):
            work()

    def ended(self, link: Link) -> None:
        self.assertIsInstance(link.down, kvstored.Disconnected)
        with self.assertRaises(kvstored.Disconnected):
            link.call(ping(), time.monotonic() + PATIENCE)

    def test_half_a_request(self) -> None:
        """What follows is not taken for the rest of it."""
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            link, prompt = kv._link, chain("half", 1)
            assert link is not None
            self.daemon.pause()
            try:
                with mock.patch.object(link, "_writable", After(link._writable, "poll")):
                    self.interrupted(lambda: kv.put(prompt, [b"A" * (4 << 20)]))
            finally:
                self.daemon.resume()
            self.ended(link)
            while not kv.put(chain("other", 1), [bytes(8 << 20)]):
                self.assertTrue(kv.wait_attached())
            self.assertEqual(kv.get(prompt), [])

    def test_between_sent_and_counted(self) -> None:
        link = self.link()
        with mock.patch.object(link, "_sock", After(link._sock, "send")):
            self.interrupted(lambda: link.call(ping(), time.monotonic() + PATIENCE))
        self.ended(link)

    def test_before_anything_is_sent(self) -> None:
        """Nobody waits for what was not sent, and the link goes on."""
        link, undone = self.link(), []
        given = link.later(Request(wire.Op.PING, wire.empty(), undone.append))
        with mock.patch.object(link, "_send", side_effect=Interrupt):
            self.interrupted(lambda: link.start([ping(), ping(lambda _: None)], time.monotonic() + PATIENCE))
        self.assertEqual((link.background, list(link._calls), list(link._late)), (0, [], [given]))
        link.call(ping(), time.monotonic() + PATIENCE)
        link.wait(given, time.monotonic() + PATIENCE)
        self.assertEqual(undone, [b""])

    def test_between_received_and_kept(self) -> None:
        link = self.link()
        with mock.patch.object(link, "_sock", After(link._sock, "recv")):
            self.interrupted(lambda: link.call(ping(), time.monotonic() + PATIENCE))
        self.ended(link)

    def test_while_a_reply_is_read(self) -> None:
        link = self.link()
        broken = ping()._replace(take=mock.Mock(side_effect=Interrupt))
        self.interrupted(lambda: link.call(broken, time.monotonic() + PATIENCE))
        self.ended(link)


class Flood:
    """A socket on which there is always more, and half a push takes a second."""

    stream = wire.frame(wire.PUSH, 5, 0, bytes(34)) * 50  # of 50 bytes each

    def __init__(self) -> None:
        self.now = 0  # seconds

    def send(self, data: memoryview, _: int) -> int:
        return len(data)

    def poll(self, _: float) -> bool:
        return True

    def recv(self, _: int) -> bytes:
        data = self.stream[25 * self.now :][:25]
        self.now += 1
        return data


class Late(unittest.TestCase):
    def test_a_daemon_that_never_stops_to_send(self) -> None:
        """Frames that answer nobody keep nobody past the deadline, and what was read stays."""
        with Daemon() as daemon:
            link, flood = Link(daemon.socket, wire.hello(0, "test"), PATIENCE), Flood()
            self.addCleanup(link.close)
            clock = SimpleNamespace(monotonic=lambda: flood.now, perf_counter=lambda: flood.now)
            with mock.patch.multiple(link, _sock=flood, _readable=flood), mock.patch("kvstored.link.time", clock):
                with self.assertRaises(kvstored.DeadlineExceeded):
                    link.call(ping(), 5)
            self.assertEqual((flood.now, bytes(link._in)), (5, flood.stream[:25]))
            self.assertIsNone(link.down)


if __name__ == "__main__":
    unittest.main()
