"""A connection by itself: what ends it, and that nothing else does."""

from __future__ import annotations

import os
import signal
import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any, Callable, List
from unittest import mock

import kvstored
from kvstored import wire
from kvstored.call import Call, Request
from kvstored.link import Link

from .daemon import Daemon, Served
from .test_client import GIVEN, chain, payload, store

PATIENCE = 60.0  # seconds; bounds what should take none


class Interrupt(BaseException):
    """What the handler of a signal raises."""


def ping(callback: Any = None) -> Request:
    return Request(wire.Op.PING, wire.empty(), wire.plain_reply, callback=callback)


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
        self.assertEqual((link.background, list(link._calls), list(link._late)), (0, [given.id], [given]))
        link.call(ping(), time.monotonic() + PATIENCE)
        link.wait(given, time.monotonic() + PATIENCE)
        self.assertEqual(undone, [wire.NO_OPTIONS])

    def test_roused_by_two(self) -> None:
        """A thread that reads may take the byte before the one that wrote it goes on."""
        link, write = self.link(), os.write

        def taken(*args: Any) -> None:
            write(*args)
            link._drain()

        with mock.patch("kvstored.link.os.write", taken):
            link.rouse()
        link.rouse()
        self.assertEqual(os.read(link._waker[0], 9), b"\0")

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


class Waiting(Served):
    """The handler of a signal raises in a thread that waits: what the answer brings goes back."""

    def setUp(self) -> None:
        self.kv = kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE)
        self.addCleanup(self.kv.close)
        assert self.kv._link is not None
        self.link: Link = self.kv._link
        self.prompt = chain("waiting", 2)
        store(self.kv, self.prompt, [payload(0), payload(1)])
        self.undone: List[Any] = []
        undo = self.link._undo

        def noted(frame: Any) -> None:
            undo(frame)
            if frame is not None:
                self.undone.append(frame)

        patch = mock.patch.object(self.link, "_undo", noted)
        patch.start()
        self.addCleanup(patch.stop)

    def calls(self, op: int) -> List[Call]:
        with self.link._mu:
            return [call for call in self.link._calls.values() if call.request.op == op]

    def reads(self, op: int) -> bool:
        return any(self.link._reader is call for call in self.calls(op))

    def parked(self, op: int) -> bool:
        return any(call.parked for call in self.calls(op))

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.001)

    def signalled(self, when: Callable[[], bool], work: Callable[[], Any]) -> None:
        """Sends this thread a signal during work, and its handler raises."""

        def handler(*_: Any) -> None:
            raise Interrupt

        def send() -> None:
            self.until(when)
            signal.pthread_kill(me, signal.SIGUSR1)

        me, sender = threading.get_ident(), threading.Thread(target=send)
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, handler))
        with self.assertRaises(Interrupt):
            sender.start()
            work()
            sender.join()
        sender.join()

    def nothing_is_held(self, op: int) -> None:
        """After what came with the answer went back, by a request of this kind."""
        self.until(lambda: bool(self.undone))
        self.assertEqual([frame[0] for frame in self.undone], [op])
        deadline = time.monotonic() + PATIENCE
        while True:
            stats = self.kv.stats()
            held = {k: v for k, v in stats["store"]["class_bytes"].items() if v and k != "unwritten"}
            if not held and not stats["server"]["leases_live"]:
                break
            self.assertLess(time.monotonic(), deadline, f"still held: {held}")
            time.sleep(0.01)
        self.assertIs(self.kv._link, self.link)
        self.assertIsNone(self.link.down)
        self.undone.clear()

    def test_one_that_reads(self) -> None:
        kv, Op = self.kv, wire.Op
        for op, work, undo in (
            (Op.PREFETCH, lambda: kv.prefetch(self.prompt), Op.RELEASE),
            (Op.RESERVE, lambda: kv.reserve(chain("reserved", 1), size=100), Op.ABORT),
        ):
            with self.subTest(op):
                self.daemon.pause()
                try:
                    self.signalled(lambda: self.reads(op), work)
                finally:
                    self.daemon.resume()
                self.nothing_is_held(undo)

    def test_one_that_waits_for_a_reader(self) -> None:
        others: List[bool] = []
        other = threading.Thread(target=lambda: others.append(self.kv.ping()))
        self.daemon.pause()
        try:
            other.start()
            self.until(lambda: self.reads(wire.Op.PING))
            self.signalled(lambda: self.parked(wire.Op.PREFETCH), lambda: self.kv.prefetch(self.prompt))
        finally:
            self.daemon.resume()
        other.join()
        self.assertEqual(others, [True])
        self.nothing_is_held(wire.Op.RELEASE)

    def test_a_reader_others_wait_for(self) -> None:
        """Another one reads then, long before it would be too late."""
        others: List[bool] = []

        def waits() -> None:
            self.until(lambda: self.reads(wire.Op.PREFETCH))
            others.append(self.kv.ping())

        other = threading.Thread(target=waits)
        self.daemon.pause()
        try:
            other.start()
            self.signalled(lambda: self.parked(wire.Op.PING), lambda: self.kv.prefetch(self.prompt))
            self.until(lambda: self.reads(wire.Op.PING))
            self.assertTrue(self.reads(wire.Op.PING))
        finally:
            self.daemon.resume()
            other.join()
        self.assertEqual(others, [True])
        self.nothing_is_held(wire.Op.RELEASE)

    def test_one_that_has_its_answer(self) -> None:
        """But its caller has not yet."""

        def interrupted(reader: Any) -> None:
            Link._pass_on(self.link, reader)
            if isinstance(reader, Call) and reader.request.op == wire.Op.PREFETCH:
                self.assertTrue(reader.done)
                raise Interrupt

        with mock.patch.object(self.link, "_pass_on", interrupted), self.assertRaises(Interrupt):
            self.kv.prefetch(self.prompt)
        self.nothing_is_held(wire.Op.RELEASE)


class Flood:
    """A socket on which there is always more, and half a push takes a second."""

    stream = wire.frame(wire.PUSH, 5, 0, bytes(34)) * 50  # of 50 bytes each

    def __init__(self) -> None:
        self.now = 0  # seconds

    def send(self, data: memoryview, _: int) -> int:
        return len(data)

    def poll(self, _: float) -> Any:
        return [(0, 1)]

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
