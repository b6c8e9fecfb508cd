"""A get returns bytes only when they are proved: under leases that are revoked at random,
while their blocks are used again, and under a daemon that is killed and keeps DRAM.

KVSTORED_GETS=100000 makes it longer."""

import collections
import hashlib
import os
import random
import subprocess
import threading
import time
import unittest
from typing import Any, Callable, Counter, List, Sequence
from unittest import mock

import kvstored
from kvstored import Result, Space, bulk

from .daemon import Daemon, binary, environment

GETS = int(os.environ.get("KVSTORED_GETS", "4000"))
SPACE = Space(model="proved", dtype="u8", chunk_tokens=4, method="given:proved")
CHUNKS, BYTES, KEYS = 3, 32 << 10, 300  # 28 MiB


def chunk(n: int, k: int) -> bytes:
    """Other bytes in each page of each chunk."""
    return b"".join(hashlib.sha256(f"{n} {k} {page}".encode()).digest() * 128 for page in range(BYTES // 4096))


WANT = [[chunk(n, k) for k in range(CHUNKS)] for n in range(KEYS)]


def prompt(n: int) -> kvstored.Prompt:
    names = [hashlib.sha256(f"key {n} {k}".encode()).digest()[:16] for k in range(CHUNKS)]
    return kvstored.hashes(b"".join(names), [4] * CHUNKS, space=SPACE)


class Load:
    """Threads that get, check each byte, and store what is not there."""

    def __init__(self, kv: kvstored.Client, pauses: "Pauses") -> None:
        self.kv, self.pauses, self.left = kv, pauses, GETS
        self.wrong: List[Any] = []
        self.done: Counter[str] = collections.Counter()
        self._mu = threading.Lock()

    def run(self, seed: int) -> None:
        rnd = random.Random(seed)
        mine = [bytearray(BYTES) for _ in range(CHUNKS)]
        while not self.wrong:
            if not self.kv.attached:
                time.sleep(0.001)  # misses would be all that is left
                continue
            with self._mu:
                if self.left <= 0:
                    return
                self.left -= 1
            n = self.pauses.read.n = rnd.randrange(KEYS)
            try:
                got = self.one(rnd.choice((self.into, self.get, self.job)), n, mine)
                if got < CHUNKS:
                    results = self.kv.put(prompt(n), WANT[n])
                    self.done["stored"] += sum(r.result == Result.STORED for r in results)
            except BaseException as e:
                self.wrong.append(e)

    def one(self, read: Callable[[int, List[bytearray]], Sequence[bytes]], n: int, mine: List[bytearray]) -> int:
        got = read(n, mine)
        self.done["chunks"] += len(got)
        self.done["short"] += len(got) < CHUNKS
        if list(got) != WANT[n][: len(got)]:
            self.wrong.append((read.__name__, n, len(got)))
        return len(got)

    def into(self, n: int, mine: List[bytearray]) -> Sequence[bytes]:
        for memory in mine:
            memory[:8] = bytes(8)
        return mine[: self.kv.get_into(prompt(n), mine)]

    def get(self, n: int, mine: List[bytearray]) -> Sequence[bytes]:
        return [c.payload for c in self.kv.get(prompt(n))]

    def job(self, n: int, mine: List[bytearray]) -> Sequence[bytes]:
        with self.kv.prefetch(prompt(n)) as job:
            self.pauses.pause()
            got = [bytes(block) for block in job]
        return got if job.good else []


class Pauses:
    """Now and then longer than a lease holds, while what is read is deleted and its room
    used again."""

    def __init__(self, kv: kvstored.Client) -> None:
        self._kv, self.read = kv, threading.local()

    def pause(self) -> None:
        n = getattr(self.read, "n", 0)
        if random.random() < 0.05:
            time.sleep(0.004)
            self._kv.delete(prompt(n))
            for other in random.sample(range(KEYS), 4):
                self._kv.put(prompt(other), WANT[other])

    def before(self, call: Any) -> Any:
        def paused(*args: Any) -> Any:
            self.pause()
            return call(*args)

        return paused

    def faked(self, copy: Any = bulk.copy, read: Any = bulk.read) -> Any:
        """The module that copies, with such pauses before it copies."""
        return mock.patch("kvstored.client.bulk", mock.Mock(wraps=bulk, copy=self.before(copy), read=self.before(read)))


class Proved(unittest.TestCase):
    def load(self, kv: kvstored.Client, pauses: Pauses, meanwhile: Callable[[Load], None]) -> Load:
        load = Load(kv, pauses)
        threads = [threading.Thread(target=load.run, args=(seed,)) for seed in range(4)]
        for t in threads:
            t.start()
        try:
            meanwhile(load)
        finally:
            for t in threads:
                t.join()
        self.assertEqual(load.wrong, [])
        self.assertGreater(load.done["chunks"], 0)
        return load

    def test_leases_that_are_revoked(self) -> None:
        """Also without a way to sum, where the daemon's word counts."""
        ways = [(bulk.copy, bulk.read)]
        ways.append((lambda *a: [None] * len(bulk.copy(*a)), lambda rows: [(p, None) for p, _ in bulk.read(rows)]))
        for copy, read in ways:
            with Daemon("16MiB", more="lease: {max_age: 2ms}\n") as daemon, kvstored.Client(daemon.socket, space=SPACE, timeout=60) as kv:
                pauses = Pauses(kv)
                proved, cut = kvstored.Client._proved, [0]

                def counted(client: Any, link: Any, job: int, rows: Sequence[Any], *rest: Any) -> int:
                    n = proved(client, link, job, rows, *rest)
                    cut[0] += n < len(rows)
                    return n

                with pauses.faked(copy, read), mock.patch.object(kvstored.Client, "_proved", counted):
                    load = self.load(kv, pauses, lambda _: None)
                self.assertGreater(cut[0], 0, "no lease was revoked while its chunks were copied")
                self.assertGreater(load.done["stored"], 1000, "nothing was used again")

    def test_a_daemon_that_is_killed_and_keeps_dram(self) -> None:
        daemon = Daemon.__new__(Daemon)
        with mock.patch.object(Daemon, "start", lambda _: None):
            daemon.__init__("32MiB, keep: true", more="stop: {flush: 0s}\n")  # type: ignore[misc]
        self.addCleanup(daemon.close)
        config = f"{daemon.dir}/c.yaml"
        keeper = subprocess.Popen([binary(), "serve", "--keeper", "--config", config], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=environment())
        self.addCleanup(keeper.wait)
        self.addCleanup(keeper.terminate)
        daemon.start()
        daemon.wait()
        with kvstored.Client(daemon.socket, space=SPACE, timeout=60) as kv:
            for n in range(KEYS):
                kv.put(prompt(n), WANT[n])
            kept: List[int] = []

            def kill(load: Load) -> None:
                while load.left > 0 and not load.wrong:
                    left = load.left
                    epoch = kv.epoch
                    daemon.kill()
                    daemon.start()
                    while kv.epoch in (None, epoch) and load.left > 0 and not load.wrong:
                        time.sleep(0.002)
                    kept.append(sum(kv.lookup(prompt(n)).total.chunks for n in range(KEYS)))
                    while load.left > max(0, left - GETS // 6) and not load.wrong:
                        time.sleep(0.002)

            pauses = Pauses(kv)
            with pauses.faked():
                self.load(kv, pauses, kill)
            self.assertGreater(len(kept), 1)
            self.assertGreater(max(kept), 0, "no chunk was kept")
