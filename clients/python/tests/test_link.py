"""A connection by itself: what ends it and that nothing else does, and who reads."""

import collections
import select
import signal
import sys
import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any, Callable, List
from unittest import mock

import kvstored
from kvstored import _wire as wire
from kvstored._connection import Call, Link
from kvstored._wire import HEADER, Op

from .daemon import Served, enter, until
from .test_client import GIVEN, chain, payload, store

PATIENCE = 60.0  # seconds; bounds what should take none


class Interrupt(BaseException):
    """What the handler of a signal raises."""


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


def ping(link: Link, seconds: float = PATIENCE) -> None:
    link.call(Op.PING, wire.ping(), time.monotonic() + seconds, wire.ping_reply)


class Interrupted(Served):
    """The handler of a signal may raise between any two steps: the connection ends, and
    nothing that was read is taken for something else."""

    def link(self) -> Link:
        link = Link(self.daemon.socket, wire.hello(name="test"), PATIENCE)
        self.addCleanup(link.close)
        return link

    def ended(self, link: Link) -> None:
        self.assertIsInstance(link.down, kvstored.Disconnected)
        with self.assertRaises(kvstored.Disconnected):
            ping(link)

    def test_half_a_request(self) -> None:
        """What follows is not taken for the rest of it."""
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE, inline=True) as kv:
            link, prompt = kv._link, chain("half", 1)
            assert link is not None
            self.daemon.pause()
            try:
                with mock.patch.object(Link, "_await_room", side_effect=Interrupt), self.assertRaises(Interrupt):
                    kv.put(prompt, [b"A" * (4 << 20)])
            finally:
                self.daemon.resume()
            self.ended(link)
            while not kv.put(chain("other", 1), [bytes(8 << 20)]):
                self.assertTrue(kv.wait_attached())
            self.assertEqual(kv.get(prompt), [])

    def test_steps(self) -> None:
        for method in ("send", "recv"):
            link = self.link()
            with self.subTest(method), mock.patch.object(link, "_sock", After(link._sock, method)):
                with self.assertRaises(Interrupt):
                    ping(link)
            self.ended(link)
        link = self.link()
        with mock.patch.object(link, "_send", side_effect=Interrupt), self.assertRaises(Interrupt):
            ping(link)
        self.ended(link)

    def test_a_signal_while_it_waits(self) -> None:
        """Others hear of it at once, and the client connects again."""

        def handler(*_: Any) -> None:
            raise Interrupt

        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, handler))
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            others: List[bool] = []
            threads = [threading.Thread(target=lambda: others.append(kv.ping())) for _ in range(3)]
            me, link = threading.get_ident(), kv._link
            assert link is not None

            def send() -> None:
                until(lambda: link._reading.locked())
                for t in threads:
                    t.start()
                until(lambda: len(link._sleeping) == 3)
                signal.pthread_kill(me, signal.SIGUSR1)

            sender = threading.Thread(target=send)
            self.daemon.pause()
            try:
                with self.assertRaises(Interrupt):
                    sender.start()
                    kv.prefetch(chain("signal", 1))
                for t in threads:
                    t.join(PATIENCE)
            finally:
                self.daemon.resume()
            sender.join()
            self.assertEqual(others, [False] * 3)
            self.assertTrue(kv.wait_attached())
            self.assertTrue(kv.ping())

    def test_at_each_step(self) -> None:
        """Wherever in a call it comes, the daemon holds nothing for this client for long."""
        prompt, want = chain("each step", 2), [payload(i) for i in range(2)]
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv:
            store(kv, prompt, want)
            fresh = iter(range(1 << 30))
            with mock.patch("kvstored.client._INLINE", 0):
                for name, call in (
                    ("get", lambda: kv.get(prompt)),
                    ("get_into", lambda: kv.get_into(prompt, [bytearray(len(p)) for p in want])),
                    ("put", lambda: kv.put(chain(next(fresh), 2), want)),
                ):
                    step = 0
                    while interrupted(call, step):
                        until(lambda: not held(kv), f"{name}, step {step}: the daemon holds it still")
                        step += 1
                    self.assertGreater(step, 50)
            self.assertEqual([chunk.payload for chunk in kv.get(prompt)], want)


def interrupted(call: Callable[[], Any], step: int) -> bool:
    """Makes a call, which is interrupted at a step: at one of its lines, or of the instructions
    of the client's own methods. False where it has fewer."""
    left = step

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal left
        file = frame.f_code.co_filename
        if not file.endswith(("client.py", "_connection.py", "job.py")) or threading.current_thread() is not me:
            return None
        frame.f_trace_opcodes = frame.f_code.co_name in ("get", "get_into", "_put", "_leased")
        if event == ("opcode" if frame.f_trace_opcodes else "line"):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise Interrupt
        return trace

    me = threading.current_thread()
    sys.settrace(trace)
    try:
        call()
        return False
    except Interrupt:
        return True
    finally:
        sys.settrace(None)


def held(kv: kvstored.Client) -> Any:
    """What the daemon holds for its clients."""
    stats = kv.stats()
    if not stats:
        return "not known"
    return stats["server"]["leases_live"] or {k: v for k, v in stats["store"]["class_bytes"].items() if v and k != "unwritten"}


class Waiting(Served):
    """Of threads that wait one reads, and hands others their answers."""

    def setUp(self) -> None:
        self.kv = enter(self, kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE))
        assert self.kv._link is not None
        self.link: Link = self.kv._link
        self.prompt = chain("waiting", 2)
        store(self.kv, self.prompt, [payload(0), payload(1)])

    def nothing_is_held(self) -> None:
        until(lambda: not held(self.kv))
        self.assertIs(self.kv._link, self.link)
        self.assertIsNone(self.link.down)

    def test_late_answers_go_back(self) -> None:
        for late in (
            lambda: self.kv.prefetch(self.prompt, timeout=0.01),
            lambda: self.kv.reserve(chain("reserved", 1), size=100, timeout=0.01),
            lambda: self.kv.batch([self.prompt] * 3, timeout=0.01),
            lambda: self.kv.get(self.prompt, timeout=0.01),
        ):
            self.daemon.pause()
            try:
                late()
            finally:
                self.daemon.resume()
            self.nothing_is_held()

    def test_one_that_leaves_has_another_read(self) -> None:
        """The one that reads is late first, and the others get theirs all the same."""
        answers: List[bool] = []
        others = [threading.Thread(target=lambda: answers.append(self.kv.ping())) for _ in range(3)]

        def first() -> None:
            answers.append(self.kv.ping(timeout=0.2))

        reader = threading.Thread(target=first)
        self.daemon.pause()
        try:
            reader.start()
            until(self.link._reading.locked)
            for t in others:
                t.start()
            until(lambda: len(self.link._sleeping) == 3)
            reader.join()
            until(lambda: self.link._reading.locked())
        finally:
            self.daemon.resume()
        for t in others:
            t.join()
        self.assertEqual(answers, [False, True, True, True])
        self.assertFalse(self.link._reading.locked())

    def test_a_long_wait_delays_nobody(self) -> None:
        """One that waits in the daemon reads for those that do not."""
        call, late = Call(), []
        call.op, call.id = Op.WAIT, 1 << 40  # of which the daemon does not hear
        self.link._calls[call.id] = call

        def slow() -> None:
            try:
                self.link._wait(call, time.monotonic() + 1.0, None)
            except kvstored.DeadlineExceeded:
                late.append(True)

        waiting = threading.Thread(target=slow)
        waiting.start()
        until(self.link._reading.locked)
        pings = 0
        while waiting.is_alive():
            self.assertTrue(self.kv.ping(timeout=PATIENCE))
            pings += 1
        waiting.join()
        self.assertEqual(late, [True])
        self.assertGreater(pings, 1)

    def test_a_callback_when_it_is_ready(self) -> None:
        """From a thread of its own, which may call the client; it may raise, too."""
        told: List[Any] = []
        job = self.kv.prefetch(self.prompt)
        done = threading.Event()

        def callback(ready: Any) -> None:
            told.extend([ready is job, self.kv.ping(), len(ready)])
            done.set()
            raise RuntimeError("of the caller")

        with mock.patch("kvstored.job.log.exception") as said, mock.patch.object(job, "wait", wraps=job.wait) as waited:
            job.on_ready(callback)
            self.assertTrue(done.wait(PATIENCE))
            until(lambda: said.called)
        self.assertEqual((told, waited.call_count), ([True, True, 2], 1))
        self.assertTrue(job.release())
        self.daemon.pause()
        try:
            hung = self.kv.prefetch(self.prompt, timeout=0.1)
            ended = threading.Event()
            hung.on_ready(lambda _: ended.set(), timeout=0.2)
            self.assertTrue(ended.wait(PATIENCE))
        finally:
            self.daemon.resume()
        self.assertTrue(self.kv.wait_attached())
        self.nothing_is_held()

    def test_a_release_without_room_to_send(self) -> None:
        """It is sent a little later, without a further call."""
        job = self.kv.prefetch(self.prompt)
        with mock.patch.object(Link, "_send", side_effect=kvstored.DeadlineExceeded("full")):
            job.release_soon()
            self.assertEqual(len(self.link._later), 1)
        until(lambda: job.good)
        self.nothing_is_held()

    def test_an_old_answer_is_no_sign_of_life(self) -> None:
        link = Link(self.daemon.socket, wire.hello(name="test"), PATIENCE)  # nobody tends it
        self.addCleanup(link.close)
        link.post(Op.PING, wire.ping())
        select.select([link._sock], [], [])
        self.daemon.pause()
        try:
            with self.assertRaises(kvstored.DeadlineExceeded):
                ping(link, 2.0)
            self.assertTrue(link.stalled, "the next call waits as long again")
        finally:
            self.daemon.resume()
        ping(link)
        self.assertFalse(link.stalled)

    def test_a_daemon_that_answers_again(self) -> None:
        """Its first sign of life is seen at once, though nobody waits for one."""
        self.daemon.pause()
        with mock.patch("kvstored._connection._TICK", 10 * PATIENCE):  # of what nobody waits for
            try:
                until(lambda: self.kv.attached and not self.kv.ping(timeout=0.1))  # it may be in its last tick
                self.assertFalse(self.kv.attached)
            finally:
                self.daemon.resume()
            until(lambda: self.kv.attached)

    def test_a_reply_that_makes_no_sense(self) -> None:
        """Its caller has a miss at once, and the client connects again."""
        for error in (wire.Malformed("short"), IndexError("none")):
            link = self.kv._link
            with mock.patch.object(wire, "ping_reply", side_effect=error):
                self.assertFalse(self.kv.ping())
            assert link is not None
            self.assertIsInstance(link.down, kvstored.ProtocolError)
            self.assertTrue(self.kv.wait_attached())
            self.assertTrue(self.kv.ping())


class Odd(Served):
    """Streams that a daemon should not send."""

    def given(self, *parts: bytes) -> Link:
        """A link that reads these, one after the other, and then nothing."""
        link = Link(self.daemon.socket, wire.hello(name="test"), PATIENCE)
        link._sock.close()
        left = list(parts)

        def recv(size: int, flags: int = 0) -> bytes:
            return left.pop(0) if left else b""

        def recv_into(view: memoryview, size: int, flags: int) -> int:
            part = recv(0)
            left[:0] = [part[len(view) :]] if part[len(view) :] else []
            view[: len(part)] = part[: len(view)]
            return len(part[: len(view)])

        link._sock = SimpleNamespace(  # type: ignore[assignment]
            recv=recv, recv_into=recv_into, send=lambda out, _: len(out), setsockopt=lambda *_: None, shutdown=lambda _: None,
            close=lambda: None,
        )  # fmt: skip
        return link

    def test_frames_in_pieces(self) -> None:
        reply = wire.frame(wire.REPLY, Op.PING, 1, wire.NO_OPTIONS)
        push = wire.frame(wire.PUSH, Op.PREFETCH, 9, bytes(400))
        stream = push + reply
        for n in (1, 3, 16, 17, 100, len(stream)):
            link = self.given(*(stream[at : at + n] for at in range(0, len(stream), n)))
            ping(link)
            self.assertIsNone(link.down)

    def test_what_ends_it(self) -> None:
        reply = wire.frame(wire.REPLY, Op.PING, 1, wire.NO_OPTIONS)
        for stream in (
            b"",
            reply[:20],
            wire.frame(wire.REPLY, Op.PING, 2, wire.NO_OPTIONS),  # answers nothing
            wire.frame(wire.REPLY, Op.LOOKUP, 1, wire.NO_OPTIONS),  # another operation
            wire.frame(7, Op.PING, 1, wire.NO_OPTIONS),
            HEADER.pack(1 << 31, wire.REPLY, Op.PING, 0, 1),
            wire.frame(wire.REPLY, Op.PING, 1, b""),
            wire.frame(wire.REPLY, Op.PING, 1, b"short", 6),
        ):
            link = self.given(stream)
            with self.subTest(stream), self.assertRaises(kvstored.Error):
                ping(link)
            with self.assertRaises(kvstored.Error):
                ping(link)

    def test_a_daemon_that_never_stops_to_send(self) -> None:
        """Frames that answer nobody keep nobody past the deadline, and what was read stays."""
        flood, now = wire.frame(wire.PUSH, 5, 0, bytes(34)) * 50, [0.0]
        link = self.given(*(flood[at : at + 25] for at in range(0, len(flood), 25)))
        recv = link._sock.recv

        def slow(size: int, flags: int = 0) -> bytes:
            now[0] += 1
            return recv(size, flags)

        with mock.patch.object(link._sock, "recv", slow), mock.patch("kvstored._connection.time", SimpleNamespace(monotonic=lambda: now[0])):
            with self.assertRaises(kvstored.DeadlineExceeded):
                link.call(Op.PING, wire.ping(), 5, wire.ping_reply)
        self.assertIsNone(link.down)


class Whole(unittest.TestCase):
    def test_a_frame_is_not_sent_in_another(self) -> None:
        """While the first of two pieces is sent another thread leaves a frame for later."""
        link, sent = Link.__new__(Link), bytearray()

        def send(data: Any, flags: int) -> int:
            n = len(data) if sent else 3
            if not sent:
                link._later.append(b"<other>")
            sent.extend(data[:n])
            return n

        link._sock = SimpleNamespace(send=send)  # type: ignore[assignment]
        link._writing, link._later, link._rest = threading.Lock(), collections.deque(), b""
        link.down, link._arrived, link.on_rest = None, 0, lambda: None
        link._send(b"<frame>", 7, time.monotonic() + 60)
        self.assertEqual(bytes(sent), b"<frame>")
        link._send(b"", 0, time.monotonic() + 60)
        self.assertEqual(bytes(sent), b"<frame><other>")


class Left(unittest.TestCase):
    def test_an_answer_that_comes_while_its_caller_leaves(self) -> None:
        """Either the caller has it or it is given back."""
        for when in ("before", "between", "after"):
            link: Any = SimpleNamespace(post=mock.Mock())
            gives = mock.Mock(return_value=[(Op.RELEASE, b"")])

            class Racing(Call):
                looks = 0

                @property
                def body(self) -> Any:  # type: ignore[override]
                    Racing.looks += 1
                    return b"answer" if when == "before" or (when == "between" and Racing.looks > 1) else None

            call: Any = Racing()
            call.op = Op.PREFETCH
            left = Link._leave(link, call, gives)
            if when == "after":
                call.then(0, b"answer")
            elif when == "between":
                call.then(0, b"answer")  # the one that reads had not seen it yet
            with self.subTest(when):
                self.assertEqual(left, when == "after")
                self.assertEqual(link.post.called, when == "after")
