"""What the classes for SGLang and LMCache have in common: the order of a prompt, what is worth
loading, how fast an engine computes, and a daemon that comes and goes."""

import hashlib
import random
import threading
import time
from typing import Any, List

from .daemon import Daemon, until
from .frames import run_of
from .test_prefill import Clock


def hashed(*parts: Any) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def names(prompt: Any, n: int) -> List[bytes]:
    return [hashed(prompt, i) for i in range(n)]


class Common:
    """The tests, for a TestCase that says how its engine makes the calls."""

    start: Any  #: (socket, size, **options): the class of one engine, for chunks of so many bytes
    keys: Any  #: (names): the engine's keys
    find: Any  #: (it, keys): how many there are from the first on, all of which may go again
    put: Any  #: (it, keys, known=0): stores all but the first; whether they are there
    load: Any  #: (it, keys): how many come from the first on; each is as it was stored
    left: Any  #: (it, keys): which of them the daemon has
    prefill: Any  #: (it): its Prefill
    hurry: Any  #: (it): gives its calls a second
    idle: Any  #: (it): whether it holds nothing, of the daemon's or the engine's
    daemon: Daemon
    assertEqual: Any
    assertLess: Any
    assertTrue: Any
    fail: Any

    def test_chains_equal_the_prompts(self) -> None:
        """Of a prompt that is evicted in part, its beginning stays; also what two share."""
        with Daemon(dram="16MiB") as daemon:
            it = self.start(daemon.socket, 100_000)
            first = self.keys(names("chain", 40))
            second = first[:20] + self.keys(names("branch", 40))
            for keys in (first, second[:30], second):
                self.assertTrue(self.put(it, keys, self.find(it, keys)))
            for i in range(100):
                self.assertTrue(self.put(it, self.keys(names(("other", i), 3))))
                a, b = (run_of(self.left(it, keys)) for keys in (first, second))
                self.assertTrue(min(a, b) >= 0 and (min(a, b) >= 20 or a == b), (a, b))
                if 0 < b < 60:
                    return
            self.fail("nothing was evicted in part")

    def test_no_more_than_is_worth_loading(self) -> None:
        """What is in DRAM counts; the rest is on a disk, and this engine computes at once."""
        with Daemon(dram="32MiB", disk="256MiB") as daemon:
            slow = self.start(daemon.socket, 500_000)
            fast = self.start(daemon.socket, 500_000, prefill_tokens_per_second=2**32 - 1)
            keys = self.keys(names("worth", 40))
            for i in range(2):
                self.assertTrue(self.put(slow, keys))
                for p in range(5):
                    self.put(slow, self.keys(names(("others", i, p), 8)))
                if not i:
                    self.load(slow, keys)  # how fast the disk is, the daemon knows now
            until(lambda: self.find(slow, keys) == 40)
            self.assertLess(self.find(fast, keys), self.find(slow, keys))

    def test_measured_prefill_rate(self) -> None:
        it, clock = self.start(self.daemon.socket, prefill_tokens_per_second="measured"), Clock()
        prefill = self.prefill(it)
        prefill._clock = clock
        for n in range(8):
            keys = self.keys(names(("measured", n), 128))
            self.assertEqual((self.find(it, keys), prefill.rate), (0, 0))
            clock.now += 4
            self.assertTrue(self.put(it, keys))
        self.assertEqual((prefill.rate, self.find(it, keys)), (self.tokens * 32, 128))  # they are in DRAM

    tokens = 256  # of a chunk

    def test_a_daemon_that_comes_and_goes(self) -> None:
        """In the middle of everything: no exception leaves, no byte is wrong, and in the end
        nothing is held."""
        failures: List[BaseException] = []
        stop = threading.Event()

        def work(n: int) -> None:
            r, i = random.Random(n), 0
            try:
                it = self.start(daemon.socket)
                self.hurry(it)
                while not stop.is_set():
                    i += 1
                    keys = self.keys(names(("killed", n, i % 7), r.randint(1, 20)))
                    for call in (self.find, self.load, self.put):
                        call(it, keys)
                until(lambda: self.idle(it))
            except BaseException as e:
                failures.append(e)

        with Daemon() as daemon:
            threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
            for thread in threads:
                thread.start()
            for _ in range(3):
                time.sleep(0.3)
                daemon.again()
                daemon.pause()
                time.sleep(0.2)
                daemon.resume()
            time.sleep(0.3)
            stop.set()
            for thread in threads:
                thread.join(60)
        self.assertEqual(failures, [])
