"""The client against a live daemon."""

import ctypes
import errno
import gc
import hashlib
import math
import os
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any, List
from unittest import mock

import kvstored
from kvstored import Result, Space, hashes, tokens
from kvstored._connection import Link
from kvstored.memory import address
from kvstored.pages import Pages

from .daemon import Daemon, Served, enter, skip, until
from .frames import counted
from .stub import Hanging

SPACE = Space(model="m", dtype="u8", chunk_tokens=4)
GIVEN = Space(model="m", dtype="u8", chunk_tokens=4, method="given:test")


def payload(seed: object, size: int = 10_000) -> bytes:
    return hashlib.shake_128(repr(seed).encode()).digest(size)


def chain(name: object, n: int) -> kvstored.Prompt:
    raw = b"".join(hashlib.sha256(repr((name, i)).encode()).digest()[:16] for i in range(n))
    return hashes(raw, [4] * n, space=GIVEN)


def store(kv: kvstored.Client, prompt: kvstored.Prompt, payloads: list) -> list:
    with kv.reserve(prompt, sizes=[len(p) for p in payloads]) as fill:
        for slot in fill:
            slot.memory[:] = payloads[slot.index]
    return fill.results


class Live(Served):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.kv = kvstored.Client(cls.daemon.socket, space=SPACE, timeout=60)
        cls.addClassCleanup(cls.kv.close)

    def test_store_and_read_back(self) -> None:
        ids = list(range(100, 112))
        prompt, want = tokens(ids), [payload(i) for i in range(3)]
        self.assertEqual(self.kv.lookup(prompt).total.chunks, 0)
        self.assertIsNone(self.kv.lookup(prompt).missing)
        self.assertEqual(self.kv.lookup(prompt, why=True).missing, kvstored.Missing(kvstored.Code.NEVER_STORED))
        self.assertEqual(repr(kvstored.Missing(33, "disk", 60)), "<Missing evicted, disk, 60 s ago>")
        self.assertEqual([r.result for r in store(self.kv, prompt, want)], [Result.STORED] * 3)
        self.assertEqual(self.kv.lookup(prompt).cpu, kvstored.Count(3, 12))
        self.assertIsNone(self.kv.lookup(prompt, why=True).missing)
        with self.kv.prefetch(prompt) as job:
            self.assertEqual(len(job), 3)
            self.assertTrue(job.wait().done)
            self.assertTrue(all(block.readonly for block in job))
            self.assertEqual([bytes(block) for block in job], want)
            self.assertTrue(job.verify(1))
            self.assertGreater(job.renew(), 0)
        self.assertTrue(job.good)
        with self.assertRaises(IndexError):
            job.block(0)
        again = store(self.kv, prompt, want)
        self.assertEqual(again, [(Result.NOT_GRANTED, 0)] * 3)

    def test_an_exception_aborts(self) -> None:
        prompt = chain("aborted", 1)
        with self.assertRaises(KeyError), self.kv.reserve(prompt, size=10) as fill:
            self.assertEqual(len(list(fill)), 1)
            raise KeyError
        self.assertEqual(self.kv.lookup(prompt).total.chunks, 0)
        self.assertEqual(len(list(self.kv.reserve(prompt, size=10))), 1)

    def test_without_room_for_mappings(self) -> None:
        """Where this process lacks address space, payloads cross the socket."""
        prompt, want = chain("unmapped", 2), [payload(i, 70_000) for i in range(2)]
        full = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        with mock.patch("kvstored._connection.Mapping", side_effect=full), self.assertLogs("kvstored", "WARNING"):
            kv = kvstored.Client(self.daemon.socket, timeout=60)
        with kv:
            self.assertEqual([r.result for r in kv.put(prompt, want)], [Result.STORED] * 2)
            self.assertEqual([c.payload for c in kv.get(prompt)], want)
            with kv.prefetch(prompt) as job:
                job.wait()
                self.assertEqual([bytes(block) for block in job], want)
                room = bytearray(140_000)
                self.assertEqual(job.copy_to(room), 140_000)
                self.assertEqual(room, b"".join(want))
                self.assertTrue(job.verify(1))
                kv.delete(prompt)
                with mock.patch.object(job._link, "call", side_effect=kvstored.Disconnected("gone")):
                    self.assertEqual(list(job), [])
            self.assertTrue(job.good)
            with kv.reserve(chain("nowhere", 1), size=10) as fill:
                self.assertEqual(list(fill), [])
            self.assertIn("cannot be mapped", str(fill.error))

    def test_mistakes_are_raised(self) -> None:
        with self.assertRaises(kvstored.Refused) as caught:
            self.kv.lookup(hashes(bytes(16), [4], space=GIVEN))
        self.assertEqual(caught.exception.code, kvstored.Code.BAD_REQUEST)
        with self.assertRaises(kvstored.Refused):
            kvstored.Client(self.daemon.socket, space=SPACE._replace(model=""))

    def test_a_request_beyond_what_the_daemon_takes_is_refused(self) -> None:
        prompt = tokens(memoryview(bytes(80 << 20)).cast("I"))
        other = tokens(list(range(300, 304)))
        store(self.kv, other, [payload("lease")])
        with self.kv.prefetch(other) as job:
            for ask in (
                lambda: self.kv.lookup(prompt),
                lambda: self.kv.reserve(prompt, size=10, count=1),
                lambda: self.kv.batch([prompt]),
            ):
                with self.assertRaises(kvstored.Refused) as caught:
                    ask()
                self.assertEqual(caught.exception.code, kvstored.Code.TOO_LARGE)
                self.assertIn("send a shorter prompt", str(caught.exception))
        self.assertTrue(job.good, "the connection, and its leases, are gone")

    def test_a_wrong_argument_is_named(self) -> None:
        prompt: Any = tokens(list(range(8)))
        wrong: Any
        for wrong, said, ask in (
            ([1, 2], "a list is no prompt", self.kv.prefetch),
            ([1, 2], "a list is no prompt", self.kv.get),
            ([1, 2], "a list is no prompt", lambda w: self.kv.get_into(w, [bytearray(1)])),
            (None, "a NoneType is no sequence of token ids", tokens),
            (iter([1]), "a list_iterator is no sequence of token ids", tokens),
            (tokens([1, -7, 2, 3]), "-7 does not fit", self.kv.lookup),
            (tokens([1.5] * 4), "1.5 does not fit", self.kv.delete),  # type: ignore[list-item]
            (tokens([1, 2], skip=-1), "-1 does not fit", self.kv.get),
            ("rank", "'r' is no space", lambda w: self.kv.prefetch(prompt, ranks=w)),
            (-2, "-2 does not fit", lambda w: self.kv.reserve(prompt, size=w)),
            (1 << 40, "1099511627776 does not fit", lambda w: self.kv.reserve(prompt, size=w)),
            (None, "None does not fit", lambda w: self.kv.reserve(prompt, size=1, sums=[(0, w)])),
            (-3, "-3 does not fit", lambda w: self.kv.prefetch(prompt, prefill_rate=w)),
            (300, "300 does not fit", lambda w: self.kv.prefetch(prompt, policy=w)),
            (None, "None is no text", lambda w: self.kv.pin(prompt, w)),
        ):
            with self.subTest(said), self.assertRaisesRegex((TypeError, ValueError), said):
                list(ask(wrong))
        self.assertTrue(self.kv.ping())

    def test_a_timeout_that_is_no_number(self) -> None:
        """Nothing waits for ever by it; without an end one may wait."""
        prompt = tokens(list(range(8)))
        job, fill = self.kv.prefetch(prompt), self.kv.reserve(prompt, size=1)
        for call in (
            self.kv.ping, self.kv.stats, self.kv.flush, self.kv.space_id, self.kv.wait_attached, job.wait, job.renew, job.release,
            fill.commit, fill.abort, lambda timeout: self.kv.get(prompt, timeout=timeout),
            lambda timeout: self.kv.put(prompt, [b"1"], timeout=timeout), lambda timeout: self.kv.reserve(prompt, size=1, timeout=timeout),
        ):  # fmt: skip
            with self.subTest(call), self.assertRaisesRegex(ValueError, "timeout of nan"):
                job._state = job._state._replace(done=False)
                call(timeout=math.nan)
        self.assertTrue(self.kv.ping(math.inf) and job.wait(timeout=math.inf).done and job.release(math.inf))
        self.assertIsNotNone(self.kv.flush(timeout=math.inf))

    def test_repr_says_whether_there_is_a_lease(self) -> None:
        prompt = tokens(list(range(200, 208)))
        store(self.kv, prompt, [payload(0), payload(1)])
        job = self.kv.prefetch(prompt)
        self.assertIn("leased", repr(job))
        job.release()
        with self.assertRaisesRegex(IndexError, "not leased any more"):
            job.block(0)
        self.assertIn("without a lease", repr(kvstored.Job(None, 1.0)))

    def test_the_socket_is_a_path(self) -> None:
        with kvstored.Client(Path(self.daemon.socket), timeout=60) as kv:
            self.assertTrue(kv.ping())

    def test_the_socket_for_redis(self) -> None:
        with self.assertRaisesRegex(kvstored.Refused, "listen.socket"):
            kvstored.Client(f"{self.daemon.dir}/r", timeout=60)

    def test_a_batch_too_late(self) -> None:
        prompt = chain("late", 2)
        store(self.kv, prompt, [payload(1), payload(2)])

        def late(link: Link, call: Any, deadline: float, undo: Any) -> None:
            self.assertTrue(link._leave(call, undo))
            raise kvstored.DeadlineExceeded("late")

        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=60) as kv:
            link = kv._link
            with mock.patch.object(Link, "_wait", late):
                jobs, order = kv.batch([prompt, prompt])
            self.assertEqual(([len(j) for j in jobs], order), ([0, 0], [0, 1]))
            self.assertTrue(kv.ping())  # its leases go back with the next requests
            self.assertEqual(kv.lookup(prompt).total.chunks, 2)
            self.assertEqual(kv.stats()["server"]["leases_live"], 0)
            self.assertIs(kv._link, link)

    def test_pins_deletes_stats(self) -> None:
        prompt = chain("pinned", 2)
        store(self.kv, prompt, [payload(1), payload(2)])
        self.assertEqual(self.kv.pin(prompt, "p").chunks, 2)
        self.assertEqual(self.kv.unpin("p"), 2)
        self.assertEqual(self.kv.unpin("p"), 0)
        for wrong in (0.0001, 0.0004, -1, -0.0001, math.nan, 5_000_000, math.inf):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, f"max_age of {wrong} seconds: want 0.001 to 4,294,967, or 0 "):
                self.kv.pin(prompt, "p", max_age=wrong)
        for right in (0.001, 1e6, 4_294_967):
            self.assertEqual(self.kv.pin(prompt, "p", max_age=right).chunks, 2)
        self.assertIsNotNone(self.kv.flush(timeout=60))
        self.assertTrue(self.kv.stats())
        self.assertEqual(self.kv.delete(prompt), 2)
        self.assertEqual(self.kv.lookup(prompt).total.chunks, 0)

    def test_releases_that_are_not_waited_for(self) -> None:
        prompt, want = chain("deferred", 2), [payload(i) for i in range(2)]
        store(self.kv, prompt, want)
        jobs = []
        for _ in range(10):
            job = self.kv.prefetch(prompt)
            self.assertEqual([bytes(b) for b in job], want)
            job.release_soon()
            with self.assertRaises(IndexError):
                job.block(0)
            jobs.append(job)
        self.assertEqual([job.release() for job in jobs], [True] * 10)
        self.assertEqual([job.good for job in jobs], [True] * 10)
        job = self.kv.prefetch(prompt)
        job.release_soon()
        until(lambda: job.good is not None)  # without a next request too
        self.assertTrue(job.good)

    def test_addresses(self) -> None:
        """Of what is ready, for as long as it is leased; those of one rank each."""
        prompt, want = chain("addresses", 3), [payload(i) for i in range(3)]
        store(self.kv, prompt, want)
        job = self.kv.prefetch(prompt)
        self.assertEqual(job.addresses(), [job.address(i) for i in range(3)])
        self.assertEqual([ctypes.string_at(*at) for at in job.addresses()], want)
        with self.assertRaises(IndexError):
            job.addresses(1)
        job.release()
        with self.assertRaises(IndexError):
            job.addresses()
        self.assertEqual(self.kv.prefetch(chain("nothing", 1)).addresses(), [])
        other = GIVEN._replace(model="the other rank's")
        store(self.kv, prompt._replace(space=other), want)
        two = self.kv.prefetch(prompt, ranks=[other])
        self.assertEqual([two.addresses(r) for r in range(2)], [[two.address(i, r) for i in range(3)] for r in range(2)])
        two.release()

    def test_chunks_that_stand_alone(self) -> None:
        raw = [hashlib.sha256(f"alone/{i}".encode()).digest()[:16] for i in range(5)]

        def some(*which: int) -> kvstored.Prompt:
            return hashes(b"".join(raw[i] for i in which), [4] * len(which), alone=True, space=GIVEN)

        store(self.kv, some(0, 1, 3), [payload(i) for i in (0, 1, 3)])
        self.assertEqual(self.kv.lookup(some(3, 0)).total.chunks, 2)
        self.assertEqual(self.kv.lookup(some(0, 1, 2, 3)).total.chunks, 2)
        with self.kv.prefetch(some(3, 1)) as job:
            self.assertEqual([bytes(b) for b in job], [payload(3), payload(1)])
        self.assertTrue(job.good)

    def test_warm(self) -> None:
        prompt = chain("warm", 3)
        store(self.kv, prompt, [payload(i) for i in range(3)])
        match, state = self.kv.warm(prompt, wait=60)
        self.assertEqual((match.total.chunks, state.ready.chunks, state.done), (3, 3, True))
        self.kv.prefetch(prompt, lookup_id="warm-1").release()
        self.assertEqual(self.kv.warm(lookup_id="warm-1", wait=60)[1].ready.chunks, 3)
        self.assertTrue(self.kv.warm(lookup_id="nobody")[1].done)

    def test_batch(self) -> None:
        prompts = [chain("alone", 2), chain("shared", 4), chain("shared", 3)]
        store(self.kv, prompts[1], [payload(i) for i in range(4)])
        jobs, order = self.kv.batch(prompts)
        self.assertEqual(sorted(order[:2]), [1, 2])
        self.assertEqual([job.wait().ready.chunks for job in jobs], [0, 4, 3])
        self.assertEqual(bytes(jobs[2].block(2)), payload(2))
        self.assertTrue(all(job.release() for job in jobs))

    def test_a_question_that_takes_more_than_the_socket(self) -> None:
        """All of it is sent as the daemon reads, by the thread that keeps the connection and
        is woken for that: none waits for the next time that it looks."""
        with kvstored.Client(self.daemon.socket, space=GIVEN, timeout=60) as kv:
            kv.open_spaces([GIVEN])
            link, tends = kv._link, Link.tend
            assert link is not None
            looks: List[Any] = []

            def noted(link: Link) -> None:
                looks.extend([link] * bool(link._rest))
                tends(link)

            with mock.patch.object(Link, "tend", noted), mock.patch.object(link, "on_rest", wraps=link.on_rest) as woken:
                asking = kv.ask([chain(i, 2000) for i in range(64)], timeout=60)
                self.assertTrue(woken.called)
                until(lambda: asking.poll() is not None)
            self.assertLess(len(looks), 4)

    def test_arrays(self) -> None:
        try:
            import numpy
        except ImportError:
            skip(self, "numpy is not installed")
        want = numpy.arange(24, dtype=numpy.float32).reshape(4, 6)
        prompt = chain("array", 1)
        with self.kv.reserve(prompt, size=want.nbytes) as fill:
            for slot in fill:
                kvstored.as_numpy(slot.memory, numpy.float32, (4, 6))[:] = want
        with self.kv.prefetch(prompt) as job:
            got = kvstored.as_numpy(job.block(0), numpy.float32, (4, 6))
            self.assertFalse(got.flags.writeable)
            self.assertEqual(got.ctypes.data, job.address(0)[0])
            copied = got.copy()
        self.assertTrue(job.good)
        numpy.testing.assert_array_equal(copied, want)

    def test_a_shared_job_is_renewed_by_others(self) -> None:
        """As long as it is held, and by no client of another daemon."""
        prompt = chain("shared", 1)
        store(self.kv, prompt, [b"shared"])
        with kvstored.Client(self.daemon.socket, timeout=60) as other:
            for shared in (True, False):
                (job,), _ = self.kv.ask([prompt], shared=shared).wait()
                self.assertEqual(other.renew(job.id, other.epoch or 0), shared)
            (job,), _ = self.kv.ask([prompt], shared=True).wait()
            self.assertFalse(other.renew(job.id, (other.epoch or 0) ^ 1))
            self.assertTrue(job.release())
            self.assertFalse(other.renew(job.id, other.epoch or 0))
        self.assertFalse(other.renew(job.id, 1))

    def test_scattered_values(self) -> None:
        """Runs are asked for as one; what lies behind a gap is found as well."""
        pages = Pages(self.kv, GIVEN)
        self.addCleanup(pages.close)
        keys = [f"scattered/{i}".encode() for i in range(200)]
        there = [i < 64 or i % 7 == 0 or 100 <= i < 130 for i in range(200)]
        memory = bytearray(100)
        stored = [k for k, is_there in zip(keys, there) if is_there]
        self.assertTrue(all(pages.store(stored, [[(address(memory), 100)]] * len(stored), 60)))
        self.assertEqual(pages.exists(keys, 60), there)
        self.assertEqual(pages.exists([*keys, keys[0], keys[1]], 60), [*there, True, True])
        with counted() as sent:
            self.assertEqual(pages.exists(keys[:64], 60), [True] * 64)
        self.assertEqual(sent, ["lookup"] * 2)
        self.assertEqual(pages.exists([], 60), [])


class Sockets(unittest.TestCase):
    def test_default(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch("os.geteuid", return_value=12):
            for env, there, want in [
                ({"KVSTORED_SOCKET": "/x/s", "XDG_RUNTIME_DIR": folder}, "kvstored.sock", "/x/s"),
                ({"XDG_RUNTIME_DIR": folder}, "kvstored.sock", f"{folder}/kvstored.sock"),
                ({"TMPDIR": folder}, "kvstored-12.sock", f"{folder}/kvstored-12.sock"),
                ({"XDG_RUNTIME_DIR": f"{folder}/none"}, "kvstored.sock", kvstored.DEFAULT_SOCKET),
            ]:
                Path(folder, there).touch()
                with mock.patch.dict(os.environ, env, clear=True):
                    self.assertEqual(kvstored.default_socket(), want)
        with mock.patch("os.geteuid", return_value=0), mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": "/"}, clear=True):
            self.assertEqual(kvstored.default_socket(), kvstored.DEFAULT_SOCKET)


def shared_mappings() -> int:
    """How many memories of daemons are mapped here."""
    return Path("/proc/self/maps").read_text().count("/memfd:")


class Restarts(unittest.TestCase):
    def test_absent_daemon_is_a_miss(self) -> None:
        with kvstored.Client("/nonexistent/s", space=SPACE, timeout=600) as kv:
            began = time.monotonic()
            self.assertFalse(kv.ping())
            self.assertEqual(kv.lookup(tokens([1, 2, 3, 4])), kvstored.Match())
            with kv.prefetch(tokens([1, 2, 3, 4])) as job:
                self.assertEqual(len(job), 0)
            self.assertFalse(job.good)
            with kv.reserve(tokens([1, 2, 3, 4]), size=5) as fill:
                self.assertEqual(list(fill), [])
            self.assertEqual(fill.results, [])
            self.assertLess(time.monotonic() - began, 60)

    def test_earlier_memory_is_unmapped(self) -> None:
        """At once, without the collector, when nothing refers to it any more."""
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=60) as kv:
            over = threading.Event()

            def work() -> None:
                while not over.is_set():
                    kv.lookup(chain("memory", 1))

            threads = [threading.Thread(target=work) for _ in range(4)]
            gc.collect()
            gc.disable()
            self.addCleanup(gc.enable)
            before = shared_mappings()
            for t in threads:
                t.start()
            try:
                for _ in range(3):
                    epoch = kv.epoch
                    daemon.again()
                    while kv.epoch in (None, epoch):
                        self.assertTrue(kv.wait_attached(60))
            finally:
                over.set()
                for t in threads:
                    t.join()
            until(lambda: shared_mappings() <= before)  # the client's thread has yet to see the new connection
            self.assertEqual(shared_mappings(), before)

    def test_a_callback_at_attach_is_called_once(self) -> None:
        """Also one that is given while the client attaches."""
        told = []
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=60) as kv:
            late = threading.Thread(target=kv.on_attach, args=(told.append,))

            def meanwhile(arena: Any) -> None:
                if arena is not first and not late.ident:
                    late.start()
                    late.join(0.1)  # it may be called before this returns, or after

            first = kv.arena
            kv.on_attach(meanwhile)
            kv._link.fail(kvstored.Disconnected("by the test"))
            self.assertTrue(kv.wait_attached())
            late.join()
            self.assertEqual(told, [kv.arena])

    def test_a_slow_callback_at_attach(self) -> None:
        """Who waits for the connection does so no longer than told."""
        entered, done, goes_on = threading.Event(), threading.Event(), threading.Event()
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=60) as kv:
            first = kv.arena

            def slow(arena: Any) -> None:
                if arena is not first:
                    entered.set()
                    goes_on.wait(60)
                    done.set()

            kv.on_attach(slow)
            kv._link.fail(kvstored.Disconnected("by the test"))
            self.assertTrue(entered.wait(60))
            self.assertFalse(kv.wait_attached(0.05))
            self.assertFalse(kv.ping())
            self.assertFalse(done.is_set())
            goes_on.set()
            self.assertTrue(kv.wait_attached())
            self.assertTrue(done.is_set())

    def test_close_waits_for_no_hello(self) -> None:
        with Hanging() as path, mock.patch("kvstored._connection._HELLO", 600), mock.patch(
            "kvstored._connection.Link", wraps=Link
        ) as attached:
            kv = kvstored.Client(path, space=GIVEN, timeout=0.05)
            kv.timeout = 600
            while attached.call_args.args[2] != 600 or kv._give_up is None:
                self.assertTrue(kv._keeper.is_alive())
                time.sleep(0.01)
            kv.timeout = 20
            kv.close()
            self.assertFalse(kv._keeper.is_alive())

    def test_without_descriptors(self) -> None:
        """It is a miss where the engine has too many files open, until it has fewer."""
        error = OSError(errno.EMFILE, "too many open files")
        with Daemon() as daemon:
            with mock.patch("socket.socket", side_effect=error) as asked:
                kv = enter(self, kvstored.Client(daemon.socket, space=GIVEN, timeout=60))
                self.assertFalse(kv.ping())
                while asked.call_count < 3 and kv._keeper.is_alive():
                    kv._wake.set()
            self.assertTrue(kv.wait_attached())

    def test_the_thread_outlives_whatever_is_raised(self) -> None:
        with Daemon() as daemon:
            for broken in ("tend", "__init__"):
                warned = threading.Event()
                raises = mock.patch.object(Link, broken, side_effect=RuntimeError(broken))
                log = mock.patch("kvstored._connection.log.warning", lambda *_, **__: warned.set())
                with self.subTest(broken), kvstored.Client(daemon.socket, space=GIVEN, timeout=60) as kv:
                    with raises, log:
                        if broken == "__init__":
                            kv._link.fail(kvstored.Disconnected("by the test"))
                        self.assertTrue(warned.wait(60))
                    self.assertTrue(kv.wait_attached())
                    self.assertTrue(kv._keeper.is_alive())
                    self.assertTrue(kv.ping())

    def test_it_never_waits_long_to_attach(self) -> None:
        """However long the daemon has been away."""
        with kvstored.Client("/nonexistent/s", space=SPACE) as kv:
            waits: list = []
            wait, many = kv._wake.wait, threading.Event()

            def at_once(timeout: float) -> bool:
                waits.append(timeout)
                if len(waits) < 100:
                    return False
                many.set()
                return wait(timeout)

            with mock.patch.object(kv._wake, "wait", at_once):
                self.assertTrue(many.wait(60))
        self.assertLess(max(waits), 0.5)
        self.assertGreater(min(waits), 0.005)

    def test_a_lease_does_not_outlive_the_daemon(self) -> None:
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=60) as kv:
            prompt = chain("lost", 1)
            store(kv, prompt, [payload(1)])
            job = kv.prefetch(prompt)
            block = job.block(0)
            daemon.kill()
            self.assertEqual(len(bytes(block)), 10_000)  # mapped still, but nobody's word for it
            self.assertFalse(job.release())
