"""Stores whose commits go out with the next reservation, through a real daemon."""

from __future__ import annotations

import random
import time
import unittest
from typing import List
from unittest import mock

import kvstored
from kvstored import Result, Space, tokens
from kvstored.link import Link
from kvstored.wire import HEADER, Op

from .daemon import Daemon


def operations(sent: bytes) -> List[Op]:
    """Those of the frames that were sent together."""
    out: List[Op] = []
    while sent:
        length, _, op, _, _ = HEADER.unpack_from(sent)
        out.append(Op(op))
        sent = sent[HEADER.size + length :]
    return out


class Writers(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = Daemon("64MiB")
        self.addCleanup(self.daemon.close)
        self.daemon.wait()
        self.kv = self.client()

    def client(self, staging: int = 0) -> kvstored.Client:
        space = Space(model="m", dtype="u8", chunk_tokens=1)
        kv = kvstored.Client(self.daemon.socket, space=space, timeout=60, staging_bytes=staging)
        self.addCleanup(kv.close)
        self.assertTrue(kv.wait_attached(60))
        return kv

    def sent(self) -> List[List[Op]]:
        """What is sent from now on, write by write."""
        out: List[List[Op]] = []
        send = Link._send

        def noted(link: Link, frames: bytes, deadline: float) -> None:
            out.append(operations(frames))
            send(link, frames, deadline)

        patch = mock.patch.object(Link, "_send", noted)
        patch.start()
        self.addCleanup(patch.stop)
        return out

    def test_one_round_trip_a_put(self) -> None:
        sent = self.sent()
        with self.kv.writer() as w, mock.patch.object(Link, "tend", lambda link, timeout: time.sleep(0.01)):
            puts = [w.put(tokens([i]), [8], lambda i, memory: None) for i in range(3)]
            got = [put.results() for put in puts]
        joined = [Op.RESERVE, Op.COMMIT]
        self.assertEqual([s for s in sent if s], [[Op.RESERVE], joined, joined, [Op.COMMIT]])
        self.assertEqual([[r.result for r in rs] for rs in got], [[Result.STORED]] * 3)

    def test_long_puts_are_committed_ahead(self) -> None:
        sent = self.sent()
        with mock.patch("kvstored.writer._COMMIT_BYTES", 16):
            got = self.kv.store(tokens([1, 2, 3]), [8, 8, 8], lambda i, memory: None)
        self.assertEqual(sum(s.count(Op.COMMIT) for s in sent), 2)
        self.assertEqual([r.result for r in got], [Result.STORED] * 3)

    def test_every_byte_through_a_small_window(self) -> None:
        kv, rnd = self.client(staging=256 << 10), random.Random(3)
        prompts = [[rnd.randbytes(rnd.randrange(1, 60 << 10)) for _ in range(rnd.randrange(1, 8))] for _ in range(40)]
        with kv.writer() as w:
            puts = []
            for n, chunks in enumerate(prompts):

                def write(i: int, memory: memoryview, chunks: List[bytes] = chunks) -> None:
                    memory[:] = chunks[i]

                puts.append(w.put(tokens([n] * len(chunks)), [len(c) for c in chunks], write))
        for n, (put, chunks) in enumerate(zip(puts, prompts)):
            self.assertEqual([r.result for r in put.results()], [Result.STORED] * len(chunks), n)
            with kv.prefetch(tokens([n] * len(chunks))) as job:
                self.assertEqual([bytes(b) for b in job], chunks, n)
            self.assertTrue(job.good)

    def test_a_caller_that_fails(self) -> None:
        def write(i: int, memory: memoryview) -> None:
            if i == 2:
                raise KeyError(i)

        with mock.patch("kvstored.writer._COMMIT_BYTES", 8), self.assertRaises(KeyError):
            self.kv.store(tokens([1, 2, 3, 4]), [8] * 4, write)
        self.assertEqual(self.kv.lookup(tokens([1, 2, 3, 4])).total.chunks, 2)
        got = self.kv.store(tokens([1, 2, 3, 4]), [8] * 4, lambda i, memory: None)
        self.assertEqual([r.result for r in got], [Result.EXISTS] * 2 + [Result.STORED] * 2)

    def test_the_daemon_goes_away(self) -> None:
        with self.kv.writer() as w:
            known = w.put(tokens([1]), [8], lambda i, memory: None)
            self.assertEqual(len(known.results()), 1)
            lost = w.put(tokens([2]), [8], lambda i, memory: None)
            self.daemon.kill()
            self.assertEqual(lost.results(), [])
            self.assertEqual(w.put(tokens([3]), [8], lambda i, memory: None).results(), [])
        self.assertEqual([r.result for r in known.results()], [Result.STORED])
