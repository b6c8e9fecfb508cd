"""What a daemon should not answer and a caller should not give: neither costs more than
the call, and what makes no sense ends the connection, and with it each lease."""

import contextlib
import os
import shutil
import signal
import socket
import struct
import tempfile
import threading
import unittest
from typing import Any, Callable, Iterator, List
from unittest import mock

import kvstored
from kvstored import _wire as wire
from kvstored import bulk
from kvstored._connection import Link
from kvstored._wire import HEADER, Code, Op
from kvstored.pages import Pages

from .daemon import Served, enter, until
from .frames import each
from .test_client import GIVEN, chain, payload
from .test_link import PATIENCE, After, Interrupt

ARENA, WINDOW = 1 << 20, 1 << 20
Answer = Callable[[int, int, bytes], bytes]


def record(raw: bytes) -> bytes:
    return struct.pack("<II", len(raw), 0) + raw + bytes(-len(raw) % 8)


def array(layout: str, *rows: Any) -> bytes:
    raw = b"".join(struct.pack(layout, *row) for row in rows)
    return struct.pack("<IHH", len(rows), struct.calcsize(layout), 0) + raw + bytes(-len(raw) % 8)


def state(code: int, ready: int, *refs: Any, first: int = 0) -> bytes:
    return struct.pack("<HBxIQI4x", code, 0, first, ready * 4, ready) + array("<QI4x") + array("<QQII", *refs) + wire.NO_OPTIONS


def prefetched(job: int, of: bytes) -> bytes:
    return struct.pack("<QQI4x", job, 8, 2) + array("<QI4x") + struct.pack("<I4x", 0) + record(of) + wire.NO_OPTIONS


def released() -> bytes:
    return struct.pack("<H6x", 0) + record(state(0, 0)) + wire.NO_OPTIONS


class Stub:
    """A daemon whose answers a test makes. ``asked`` has the operations of all requests."""

    def __init__(self, answer: Answer, inline: bool = False) -> None:
        self.asked: List[int] = []
        self._answer, self._inline = answer, inline
        self._dir = tempfile.mkdtemp(prefix="kvs")
        self.socket = f"{self._dir}/s"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.socket)
        self._listener.listen(8)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer, peer.makefile("rb") as frames, contextlib.suppress(OSError):
            while True:
                head = frames.read(HEADER.size)
                if len(head) < HEADER.size:
                    return
                length, _, op, _, id = HEADER.unpack(head)
                body = frames.read(length)
                if op == Op.HELLO:
                    self._greet(peer, id)
                else:
                    self.asked.append(op)
                    peer.sendall(self._answer(op, id, body))

    def _greet(self, peer: socket.socket, id: int) -> None:
        fds, granted = [], 0 if self._inline else wire.FEATURES_ARENA | wire.FEATURES_STAGING
        for size in () if self._inline else (ARENA, WINDOW):
            fds.append(os.memfd_create("stub"))
            os.ftruncate(fds[-1], size)
        body = struct.pack("<HBBIQQQQIIIIQ", 2, 7, 1, granted, 5, 1, ARENA, WINDOW, len(fds), 1 << 20, 1 << 20, 1 << 20, 1 << 20)
        body += record(bytes(72)) + bytes(8) + struct.pack("<II", 1, 0) + struct.pack("<HHIII16s", 2, 0, 24, 0, 4, bytes(16))
        socket.send_fds(peer, [wire.frame(wire.REPLY, Op.HELLO, id, body)], fds)
        for fd in fds:
            os.close(fd)

    def close(self) -> None:
        self._listener.close()
        shutil.rmtree(self._dir)


def reply(op: int, id: int, body: bytes) -> bytes:
    return wire.frame(wire.REPLY, op, id, body)


class Nonsense(unittest.TestCase):
    """Of a daemon: the connection ends, so that what it holds for this one goes back."""

    @contextlib.contextmanager
    def client(self, answers: Any, inline: bool = False) -> Iterator[kvstored.Client]:
        def answer(op: int, id: int, body: bytes) -> bytes:
            return reply(op, id, answers.get(op, released() if op == Op.RELEASE else wire.NO_OPTIONS))

        self.stub = Stub(answer, inline)
        self.addCleanup(self.stub.close)
        with kvstored.Client(self.stub.socket, space=GIVEN, timeout=PATIENCE, inline=inline) as kv:
            yield kv

    def ends(self, answers: Any, call: Callable[[kvstored.Client], Any], want: Any) -> None:
        with self.client(answers) as kv:
            link = kv._link
            assert link is not None
            self.assertEqual(call(kv), want)
            self.assertIsInstance(link.down, kvstored.ProtocolError)
            self.assertTrue(kv.wait_attached())

    def test_chunks_outside_the_arena(self) -> None:
        for ref in ((ARENA - 4, 1, 8, 4), (1 << 63, 1, 8, 4), (0, 1, (1 << 32) - 1, 4)):
            answers = {Op.PREFETCH: prefetched(7, state(0, 1, ref))}
            with self.subTest(ref):
                self.ends(answers, lambda kv: kv.get(chain("out", 1)), [])
                if ref[2] == 8:
                    self.ends(answers, lambda kv: kv.get_into(chain("out", 1), [bytearray(8)]), 0)

    def test_a_job_that_cannot_be(self) -> None:
        for of in (state(0, 2, (0, 1, 8, 4)), state(0, 1, (0, 1, 8, 4), first=3)):
            answers = {Op.PREFETCH: prefetched(7, of)}
            self.ends(answers, lambda kv: len(kv.prefetch(chain("job", 2))), 0)
            self.ends(answers, lambda kv: kv.get(chain("job", 2)), [])

    def test_values_outside_the_arena(self) -> None:
        """An engine has a miss, and hears of nothing."""
        memory = bytearray(8)
        place = [[(bulk.address(memory, True), 8)]]
        answers = {Op.PREFETCH: prefetched(7, state(0, 1, (ARENA - 4, 1, 8, 4)))}
        self.ends(answers, lambda kv: Pages(kv, GIVEN).load([b"key"], place, PATIENCE), 0)

    def test_a_slot_of_another_length(self) -> None:
        for length in (4, 4096):
            slots = struct.pack("<QH6x", 9, 0) + array("<H2xIQ", (0, length, 0)) + wire.NO_OPTIONS
            self.ends({Op.RESERVE: slots}, lambda kv: len(kv.reserve(chain("slot", 1), size=8)), 0)

    def test_payloads_that_are_not_those_of_their_sums(self) -> None:
        """Where they cross the socket, too."""
        good, bad = b"good", b"evil"
        total = bulk.total(bulk.address(good), 4)
        if total is None:
            self.skipTest("nothing here computes a sum")
        chunks = array("<IIQ", (4, 4, total), (4, 4, total)) + wire.NO_OPTIONS
        with self.client({Op.GET: chunks + good + bad}, inline=True) as kv:
            self.assertEqual([c.payload for c in kv.get(chain("sum", 2))], [good])
            into = [bytearray(4), bytearray(4)]
            self.assertEqual((kv.get_into(chain("sum", 2), into), bytes(into[0])), (1, good))

    def test_a_daemon_that_never_stops_to_send(self) -> None:
        """Reading what nobody waits for ends all the same."""
        with self.client({}) as kv:
            link = kv._link
            assert link is not None
            frame, reads = wire.frame(wire.PUSH, Op.EVENTS, 0, bytes(64)), [0]

            def recv(*_: Any) -> bytes:
                reads[0] += 1
                if reads[0] > 10_000:
                    raise AssertionError("it goes on for ever")
                return frame

            with link._reading:  # the client's thread has none of it
                real, fake = link._sock, mock.Mock(wraps=link._sock, recv=recv)
                link._sock = fake
            link.tend()
            link._sock = real

    def test_late_results_leave_those_that_are_known(self) -> None:
        """A put in two parts, of which the second is refused."""
        rounds = [struct.pack("<QH6x", 9, Code.NO_SPACE) + array("<H2xIQ", (0, 200 << 10, 0)) + wire.NO_OPTIONS]
        refused = struct.pack("<B3xI", 2, 0) + bytes(8) + wire.NO_OPTIONS

        def answer(op: int, id: int, _: bytes) -> bytes:
            if op == Op.COMMIT:
                return reply(op, id, array("<H6xQ", (0, 77)) + wire.NO_OPTIONS)
            if rounds:
                return reply(op, id, rounds.pop())
            return wire.frame(wire.REPLY, op, id, refused, Code.NO_SPACE)

        stub = Stub(answer)
        self.addCleanup(stub.close)
        with kvstored.Client(stub.socket, space=GIVEN, timeout=PATIENCE) as kv:
            self.assertEqual(kv.put(chain("two", 2), [bytes(200 << 10)] * 2), [(kvstored.Result.STORED, 77)])


class Mistakes(Served):
    """Of a caller: they are raised, and cost neither the connection nor a lease."""

    def setUp(self) -> None:
        self.kv = enter(self, kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE))
        assert self.kv._link is not None
        self.link = self.kv._link
        self.prompt = chain("mistakes", 2)
        self.kv.put(self.prompt, [payload(0), payload(1)])

    def nothing_is_lost(self) -> None:
        self.assertIsNone(self.link.down)
        until(lambda: not self.kv.stats()["server"]["leases_live"])
        self.assertEqual([c.payload for c in self.kv.get(self.prompt)], [payload(0), payload(1)])

    def test_payloads_that_lie_in_pieces(self) -> None:
        for size in (64, 1 << 20):
            with self.subTest(size), self.assertRaises(ValueError):
                self.kv.put(chain("pieces", 1), [memoryview(bytes(2 * size))[::2]])
        self.nothing_is_lost()

    def test_payloads_that_are_none(self) -> None:
        for given in (None, "text", 7, [1, 2]):
            with self.subTest(given), self.assertRaises(TypeError):
                self.kv.put(chain("none", 1), [given])  # type: ignore[list-item]
        self.nothing_is_lost()

    def test_payloads_that_come_one_by_one(self) -> None:
        for size in (8, 200 << 10):
            one_by_one = chain(("one by one", size), 2)
            self.assertEqual(len(self.kv.put(one_by_one, iter([bytes(size)] * 2))), 2)  # type: ignore[arg-type]
            self.assertEqual([c.payload for c in self.kv.get(one_by_one)], [bytes(size)] * 2)
        self.nothing_is_lost()

    def test_bounds(self) -> None:
        for bounds in (dict(max_chunks=1.5), dict(max_chunks="2"), dict(max_bytes="2"), dict(max_chunks=-1), dict(max_bytes=-1), dict(first=-1)):
            with self.subTest(bounds), self.assertRaises((TypeError, ValueError)):
                self.kv.get(self.prompt, **bounds)  # type: ignore[arg-type]
        self.nothing_is_lost()

    def test_more_buffers_than_a_connection_has_jobs(self) -> None:
        n = wire.MOST_LIVE + 10
        many = chain("many", n)
        self.kv.put(many, [b"%d" % (i % 10) for i in range(n)])
        into = [bytearray(1) for _ in range(n)]
        self.assertEqual(self.kv.get_into(many, into), n)
        self.assertEqual(bytes(into[n - 1]), b"%d" % ((n - 1) % 10))

    def test_no_end_to_a_wait(self) -> None:
        """Also for one that waits while another reads."""
        answers: List[Any] = []

        def wait() -> None:
            try:
                answers.append(self.kv.ping(timeout=float("inf")))
            except BaseException as e:
                answers.append(e)

        threads = [threading.Thread(target=wait) for _ in range(3)]
        self.daemon.pause()
        try:
            for t in threads:
                t.start()
            until(lambda: len(self.link._sleeping) == 2 or bool(answers))
        finally:
            self.daemon.resume()
        for t in threads:
            t.join()
        self.assertEqual(answers, [True] * 3)
        self.nothing_is_lost()

    def test_two_that_wait_for_a_job(self) -> None:
        """As on_ready does beside its caller: each chunk keeps its number."""
        refs = [(0, 1, 8, 4), (4096, 2, 8, 4), (8192, 3, 8, 4)]
        job = self.kv.prefetch(self.prompt)
        job._refs = []
        of = wire.job_push(state(0, 3, *refs))

        class Between(wire.State):
            @property
            def refs(self) -> Any:  # type: ignore[override]
                if not job._refs:
                    job._take(of)  # the other's answer
                return refs

        job._take(Between(*of))
        self.assertEqual(job._refs, refs)
        job.release()

    def test_a_release_that_is_waited_for(self) -> None:
        """It waits for the one that writes, and not for the next request."""
        for end in (lambda: self.kv.prefetch(self.prompt).release(), lambda: self.kv.reserve(chain("end", 1), size=8).abort()):
            left: List[float] = []
            with each(lambda frame: left.append(frame.left) if frame.op in (Op.RELEASE, Op.ABORT) else None):
                end()
            self.assertGreater(left[0], 1)


class Signals(Served):
    """A handler may raise, or close the client, between any two steps."""

    def test_reading_what_nobody_waits_for(self) -> None:
        """What was read is not lost from the middle of the stream."""
        link = Link(self.daemon.socket, wire.hello(name="test"), PATIENCE)
        self.addCleanup(link.close)
        link.post(Op.PING, wire.ping())
        with mock.patch.object(link, "_sock", After(link._sock, "recv")), self.assertRaises(Interrupt):
            while link.down is None:
                link.tend()
        self.assertIsInstance(link.down, kvstored.Disconnected)

    def test_locks_that_are_never_released(self) -> None:
        for lock in ("_writing", "_reading"):
            with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE) as kv, self.subTest(lock):
                link = kv._link
                assert link is not None
                me, held = threading.get_ident(), getattr(link, lock)

                class Mine(After):
                    def __enter__(self) -> None:
                        held.__enter__()

                    def __exit__(self, *_: Any) -> None:
                        held.__exit__(None, None, None)

                    def __getattr__(self, name: str) -> Any:
                        if name == "acquire" and threading.get_ident() != me:
                            return held.acquire
                        return super().__getattr__(name)

                with mock.patch.object(link, lock, Mine(held, "acquire")), mock.patch("kvstored._connection._CLOSE", 0.01):
                    while True:
                        try:
                            kv.ping()
                        except Interrupt:
                            break
                    ended = threading.Thread(target=link.close, daemon=True)
                    ended.start()
                    ended.join(PATIENCE)
                    self.assertFalse(ended.is_alive())
                    link._sock.close()
                self.assertTrue(kv.wait_attached())
                self.assertTrue(kv.ping())

    def test_a_handler_that_closes_the_client(self) -> None:
        """While a request waits for room: nobody waits for a lock of his own."""
        kv = kvstored.Client(self.daemon.socket, space=GIVEN, timeout=PATIENCE, inline=True)
        link, me = kv._link, threading.get_ident()
        assert link is not None
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, lambda *_: kv.close()))
        waits = Link._await_room

        def waiting(link: Link, deadline: float) -> bool:
            signal.pthread_kill(me, signal.SIGUSR1)
            return waits(link, deadline)

        self.daemon.pause()
        try:
            with mock.patch.object(Link, "_await_room", waiting):
                self.assertEqual(kv.put(chain("handler", 1), [bytes(4 << 20)]), [])
        finally:
            self.daemon.resume()
        self.assertIsNotNone(link.down)

    def test_a_socket_that_is_read_stays_open(self) -> None:
        """Its number may be that of the next connection the moment it is closed."""
        link = Link(self.daemon.socket, wire.hello(name="test"), PATIENCE)
        with mock.patch("kvstored._connection._CLOSE", PATIENCE), link._reading:
            closing = threading.Thread(target=link.close)
            closing.start()
            until(lambda: link.down is not None and link._writing.locked() or not closing.is_alive())
            self.assertNotEqual(link._sock.fileno(), -1)
        closing.join()
        self.assertEqual(link._sock.fileno(), -1)
