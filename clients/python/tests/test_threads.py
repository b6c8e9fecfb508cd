"""Sixteen threads on one connection, all doing everything at once."""

import random
import threading
import unittest
from typing import Any, Dict, List
from unittest import mock

import kvstored
from kvstored._connection import Link

from .daemon import Daemon, until
from .test_client import GIVEN, chain, payload, store
from .test_link import held

THREADS, ROUNDS, PROMPTS = 16, 60, 24


def want(n: int) -> List[bytes]:
    return [payload(("threads", n, k), 500 + 1500 * k) for k in range(4)]


class Threads(unittest.TestCase):
    def work(self, kv: kvstored.Client, seed: int, done: Dict[str, int]) -> None:
        rnd = random.Random(seed)
        for _ in range(ROUNDS):
            n = rnd.randrange(PROMPTS)
            prompt, payloads = chain(("threads", n), 4), want(n)
            what = rnd.choice(["store", "read", "read", "lookup", "put", "get", "late", "late read", "cancel", "callback"])
            if what == "store":
                store(kv, prompt, payloads)
            elif what == "put":
                kv.put(prompt, payloads)
            elif what == "get":
                got = [c.payload for c in kv.get(prompt)]
                self.assertEqual(got, payloads[: len(got)])
                done["bytes"] += sum(map(len, got))
            elif what == "read":
                with kv.prefetch(prompt) as job:
                    job.wait()
                    got = [bytes(b) for b in job]
                self.assertTrue(job.good or not got)
                self.assertEqual(got, payloads[: len(got)])
                done["bytes"] += sum(map(len, got))
            elif what == "lookup":
                self.assertIn(kv.lookup(prompt).total.chunks, range(5))
            elif what == "late":  # most of these leave before the answer comes
                kv.lookup(prompt, timeout=1e-6)
                kv.reserve(prompt, size=100, timeout=1e-6).abort()
            elif what == "late read":
                with kv.prefetch(prompt, timeout=rnd.choice([1e-6, 1e-4, 1e-3])) as job:
                    got = [bytes(b) for b in job]
                if job.good:
                    self.assertEqual(got, payloads[: len(got)])
            elif what == "cancel":
                kv.prefetch(prompt).release_soon()
            else:
                told = threading.Event()
                job = kv.prefetch(prompt)
                job.on_ready(lambda _: told.set())
                self.assertTrue(told.wait(60))
                job.release_soon()
            done[what] += 1

    def test_everything_at_once(self) -> None:
        with Daemon() as daemon, kvstored.Client(daemon.socket, space=GIVEN, timeout=60) as kv:
            link, wrong, late = kv._link, [], [0]
            assert link is not None
            leave = Link._leave

            def counted(link: Link, call: Any, undo: Any) -> bool:
                left = leave(link, call, undo)
                late[0] += left
                return left

            done = [dict.fromkeys(["bytes", "store", "put", "get", "read", "lookup", "late", "late read", "cancel", "callback"], 0) for _ in range(THREADS)]

            def run(n: int) -> None:
                try:
                    self.work(kv, n, done[n])
                except BaseException as e:
                    wrong.append(e)

            with mock.patch.object(Link, "_leave", counted):
                threads = [threading.Thread(target=run, args=(n,)) for n in range(THREADS)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
            if wrong:
                raise wrong[0]
            self.assertIs(kv._link, link, "it was not one connection")
            self.assertIsNone(link.down)
            for name in done[0]:
                self.assertGreater(sum(d[name] for d in done), 0, name)
            self.assertGreater(late[0], 0, "nobody left before an answer")
            # What answers brought for those who had left went back.
            until(lambda: kv.ping() and not held(kv))
