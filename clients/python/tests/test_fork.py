"""A forked child has nothing of its parent's, and takes nothing from it."""

import os
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import kvstored
from kvstored.memory import address
from kvstored.pages import Pages

from .daemon import Daemon, enter, in_child
from .stub import Hanging
from .test_client import GIVEN, chain, payload, store
from .test_memory import flags

# Run as a program of its own, so that the child can end as programs do.
PROGRAM = """
import gc, os, sys, threading
import kvstored
from tests.test_client import GIVEN, chain, payload, store

kv = kvstored.Client(sys.argv[1], space=GIVEN, timeout=60)
prompt, want = chain("fork", 2), [payload(0), payload(1)]
store(kv, prompt, want)
job, left = kv.prefetch(prompt), kv.prefetch(prompt)
block = job.block(0)
fill = kv.reserve(chain("fill", 1), size=100)
(slot,) = fill
slot.memory[:] = b"p" * 100
deferred = kv.prefetch(prompt)
deferred.release_soon()
pid = os.fork()
if pid == 0:
    slot.memory[:] = b"c" * 100  # into nothing
    assert fill.commit() == [], "the child committed the parent's fill"
    with left:
        pass
    assert left.good is False, "the child released the parent's lease"
    assert job.renew() == 0, "the child renewed the parent's lease"
    assert not deferred.release()
    if sys.argv[2] == "drop":
        del block, slot, job, left, fill, deferred, kv
        gc.collect()
    elif sys.argv[2] == "close":
        kv.close()
    else:
        assert kv.wait_attached(60), "the child does not attach"
        assert store(kv, chain("child", 1), [payload("child")])[0].result == kvstored.Result.STORED
    sys.exit(0)  # and all that is left is collected
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child failed"
assert bytes(block) == want[0] and bytes(job.block(1)) == want[1]
assert job.release() and left.release() and deferred.release(), "the parent lost a lease"
assert [r.result for r in fill.commit()] == [kvstored.Result.STORED], "the parent lost its fill"
with kv.prefetch(chain("fill", 1)) as stored:
    got = bytes(stored.block(0))
assert stored.good and got == b"p" * 100
there = kv.lookup(chain("child", 1)).total.chunks
assert there == (sys.argv[2] == "use"), there
"""


class Fork(unittest.TestCase):
    def test_however_the_child_ends(self) -> None:
        here = Path(__file__).resolve().parents[1]
        with Daemon() as daemon:
            for end in ("drop", "close", "use"):
                with self.subTest(end):
                    done = subprocess.run(
                        [sys.executable, "-B", "-c", PROGRAM, daemon.socket, end],
                        cwd=here,
                        env={**os.environ, "PYTHONPATH": str(here / "src")},
                        capture_output=True,
                        text=True,
                    )
                    self.assertEqual(done.returncode, 0, done.stderr)
                    with kvstored.Client(daemon.socket, space=GIVEN, timeout=60) as kv:
                        for name in ("fork", "fill", "child"):
                            kv.delete(chain(name, 2))

    def test_the_mappings_are_not_inherited(self) -> None:
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=60) as kv:
            link = kv._link
            assert link is not None and link.arena is not None and link.staging is not None
            for mapping in (link.arena, link.staging):
                self.assertIn("dc", flags(mapping.address), "not mapped with MADV_DONTFORK")
                self.assertEqual(bool("wr" in flags(mapping.address)), mapping is link.staging)

            def look() -> None:
                for mapping in (link.arena, link.staging):
                    assert "sh" not in flags(mapping.address), "the child shares the daemon's memory"

            self.assertEqual(in_child(look), 0)

    def test_memory_of_an_earlier_connection(self) -> None:
        """Of a daemon that was killed, and of a client that was closed."""
        with Daemon() as daemon:
            kv = enter(self, kvstored.Client(daemon.socket, space=GIVEN, timeout=60))
            prompt = chain("earlier", 1)
            store(kv, prompt, [payload(1)])
            with kvstored.Client(daemon.socket, space=GIVEN, timeout=60) as closed:
                ended = closed.prefetch(prompt).block(0)
            old = kv.prefetch(prompt)
            block, epoch = old.block(0), kv.epoch
            daemon.kill()
            daemon.start()
            while kv.epoch in (None, epoch):
                self.assertTrue(kv.wait_attached(60))
                time.sleep(0.005)  # the end of the earlier one may not be known yet
            self.assertEqual(bytes(block), payload(1))  # mapped still

            def look() -> None:
                assert bytes(block) == bytes(ended) == bytes(10_000), "the child sees what the parent leased"
                try:
                    old.address(0)
                    raise AssertionError("the child reads under the parent's lease")
                except IndexError:
                    pass
                assert not old.release()

            self.assertEqual(in_child(look), 0)

    def test_leases_taken_ahead_end_in_the_child_too(self) -> None:
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=60) as kv:
            pages, keys, memory = Pages(kv, GIVEN), [b"ahead"], bytearray(100)
            self.addCleanup(pages.close)
            self.assertEqual(pages.store(keys, [[(address(memory), 100)]], 60), [True])
            self.assertEqual(pages.find(keys, 60), 1)

            def look() -> None:
                assert kv.wait_attached(60), "the child does not attach"
                with mock.patch("kvstored.hints.SECONDS", 100):
                    assert pages.find(keys, 10) == 1
                job, deadline = pages._hints.held[-1].job, time.monotonic() + 60
                with mock.patch("kvstored.hints.time", SimpleNamespace(monotonic=lambda: time.monotonic() + 200)):
                    while job.good is None:
                        assert time.monotonic() < deadline, "it is leased still"
                        time.sleep(0.01)
                assert job.good and not pages._hints.held

            self.assertEqual(in_child(look), 0)

    def test_in_the_middle_of_hello(self) -> None:
        """The parent's connection ends with the parent, whatever the child does."""
        hanging = Hanging()
        with hanging as path:
            client = threading.Thread(target=kvstored.Client, args=(path,), kwargs={"timeout": 0.5}, daemon=True)
            client.start()
            accepted, _ = hanging.listener.accept()
            self.assertTrue(accepted.recv(1 << 16))
            reads, writes = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.read(reads, 1)
                os._exit(0)
            accepted.settimeout(60)
            try:
                self.assertEqual(accepted.recv(1), b"")  # the parent has given up
            finally:
                os.write(writes, b"-")
                os.waitpid(pid, 0)
                for fd in (reads, writes):
                    os.close(fd)

    def test_threads_that_use_it_first(self) -> None:
        """Two that do so in a child at once start one thread that connects."""
        both, looked = threading.Barrier(2), threading.local()

        class Child(kvstored.Client):
            lazily = False

            @property
            def _keep_lazily(self) -> bool:
                lazily = Child.lazily
                if lazily and not hasattr(looked, "once"):
                    looked.once = True
                    both.wait(20)
                return lazily

            @_keep_lazily.setter
            def _keep_lazily(self, lazily: bool) -> None:
                Child.lazily = lazily

        with Child("/nonexistent/s") as kv, mock.patch.object(kv, "_keep") as keep:
            Child.lazily = True
            threads = [threading.Thread(target=kv._use) for _ in range(2)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        keep.assert_called_once()
