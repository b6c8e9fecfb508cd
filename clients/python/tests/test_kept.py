"""Kept prompts: their chain is sent once for each connection."""

from __future__ import annotations

import asyncio
import contextlib
import unittest
from typing import Any, Iterator, List, NamedTuple, Optional
from unittest import mock

import kvstored
from kvstored import Result, tokens, wire
from kvstored.call import Call, Request
from kvstored.wire import HEADER, Op

from .daemon import Daemon
from .test_client import GIVEN, SPACE, chain, payload, store

CHAINS, CHUNKS = 16, 65536  # that a connection keeps


class Sent(NamedTuple):
    op: Op
    form: Optional[int]  # of its chain, where it has one
    id: int  # of the chain
    size: int  # bytes of the frame


@contextlib.contextmanager
def requests() -> Iterator[List[Sent]]:
    """What is sent meanwhile."""
    sent: List[Sent] = []
    frame = Call.frame

    def noted(call: Call) -> bytes:
        whole = frame(call)
        body, op = call.request.body, Op(call.request.op)
        chained = op in (Op.LOOKUP, Op.PREFETCH, Op.GET, Op.RESERVE, Op.DELETE)
        sent.append(Sent(op, body[12] if chained else None, int.from_bytes(body[24:32], "little"), len(whole)))
        return whole

    with mock.patch.object(Call, "frame", noted):
        yield sent


class Keeping(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.wait()
        self.kv = kvstored.Client(self.daemon.socket, space=SPACE, timeout=60)
        self.addCleanup(self.kv.close)

    def lookup(self, prompt: kvstored.Prompt, chunks: int) -> List[Sent]:
        with requests() as sent:
            self.assertEqual(self.kv.lookup(prompt).total.chunks, chunks)
        return [s for s in sent if s.op == Op.LOOKUP]

    def test_it_is_sent_once(self) -> None:
        """512 chunks: less than 60 % of the bytes of version 1, which sent 20 a chunk."""
        prompt = chain("long", 512).kept()
        self.kv.lookup(chain("other", 1))  # opens the space
        with requests() as sent:
            self.kv.lookup(prompt)
            fill = self.kv.reserve(prompt, size=4096, count=512)
        self.assertEqual([(s.op, s.form) for s in sent], [(Op.LOOKUP, wire.HASHES), (Op.RESERVE, wire.KEPT)])
        self.assertEqual({s.id for s in sent}, {1})
        self.assertEqual(len(fill), 512)
        fill.abort()
        self.assertLess(sum(s.size for s in sent), 0.6 * 2 * (HEADER.size + 16 + 20 * 512))

    def test_all_calls_mean_the_same(self) -> None:
        prompt = chain("all", 4)
        payloads = [payload(i) for i in range(4)]
        store(self.kv, prompt._replace(raw=prompt.raw[:48], lengths=[4] * 3), payloads[:3])
        kept = prompt.kept()
        self.lookup(kept, 3)
        with requests() as sent:
            with self.kv.prefetch(kept) as job:
                self.assertEqual([bytes(b) for b in job], payloads[:3])
            self.assertEqual([c.payload for c in self.kv.get(kept._replace(skip=1))], payloads[1:3])
            results = store(self.kv, kept._replace(skip=2), payloads[2:])
            self.assertEqual([r.result for r in results], [Result.NOT_GRANTED, Result.STORED])
            self.assertEqual([p.chunks for p in self.kv.pieces(kept)], [payloads])
            puts = self.kv.store(kept, [8] * 4, lambda i, memory: None)
            self.assertEqual([r.result for r in puts], [Result.EXISTS] * 4)
        self.assertEqual({s.form for s in sent if s.op in (Op.PREFETCH, Op.GET, Op.RESERVE)}, {wire.KEPT})
        self.assertEqual(self.kv.delete(kept), 4)

    def test_what_the_daemon_forgot_is_sent_again(self) -> None:
        prompts = [chain(("many", i), 1 + i % 3).kept() for i in range(2 * CHAINS + 3)]
        for i, p in enumerate(prompts):
            store(self.kv, p, [payload((i, k)) for k in range(1 + i % 3)])
        for i, p in enumerate(prompts):
            self.assertEqual([s.form for s in self.lookup(p, 1 + i % 3)], [wire.HASHES], i)
            self.assertEqual([s.form for s in self.lookup(p, 1 + i % 3)], [wire.KEPT], i)

    def test_a_number_that_is_not_kept(self) -> None:
        """By other chains of the connection, that the client does not count."""
        prompt = chain("forgotten", 2).kept()
        store(self.kv, prompt, [payload(0), payload(1)])
        link = self.kv._link
        assert link is not None
        info = link.spaces[GIVEN]
        for n in range(1000, 1000 + CHAINS):
            body = wire.lookup(wire.chain_hashes(info.handle, 16, n.to_bytes(16, "little"), keep=n))
            link.call(Request(Op.LOOKUP, body, wire.lookup_reply), self.kv._deadline(60))
        again = self.lookup(prompt, 2)
        self.assertEqual([s.form for s in again], [wire.KEPT, wire.HASHES])
        self.assertEqual({s.id for s in again}, {1})
        self.assertEqual([s.form for s in self.lookup(prompt, 2)], [wire.KEPT])

    def test_a_new_connection_is_sent_it_again(self) -> None:
        prompt = tokens(list(range(8))).kept()
        store(self.kv, prompt, [payload(0), payload(1)])
        self.daemon.kill()
        with requests():
            self.assertEqual(self.kv.lookup(prompt).total.chunks, 0)
        self.daemon.start()
        self.assertTrue(self.kv.wait_attached(60))
        store(self.kv, chain("moved", 1).kept(), [payload(3)])  # has the number that the prompt had
        self.assertEqual([s.form for s in self.lookup(prompt, 0)], [wire.TOKENS])
        store(self.kv, prompt, [payload(0), payload(1)])
        with self.kv.prefetch(prompt) as job:
            self.assertEqual([bytes(b) for b in job], [payload(0), payload(1)])

    def test_other_hashes_are_another_prompt(self) -> None:
        prompt, other = chain("mine", 2).kept(), chain("yours", 1)
        store(self.kv, prompt, [payload(0), payload(1)])
        self.assertEqual([s.form for s in self.lookup(prompt._replace(raw=other.raw, lengths=[4]), 0)], [wire.HASHES])
        self.assertEqual([s.form for s in self.lookup(prompt._replace(lengths=[4, 3]), 2)], [wire.HASHES])
        self.assertEqual([s.form for s in self.lookup(prompt._replace(alone=True), 2)], [wire.HASHES])
        self.assertEqual([s.form for s in self.lookup(prompt._replace(alone=True), 2)], [wire.KEPT])
        ids = tokens(list(range(6))).kept()
        store(self.kv, ids, [payload(0)])
        self.assertEqual([s.form for s in self.lookup(ids._replace(save_unfull=True), 1)], [wire.TOKENS])
        self.assertEqual([s.form for s in self.lookup(ids._replace(space=SPACE._replace(salt="s")), 0)], [wire.TOKENS])
        self.assertEqual([s.form for s in self.lookup(ids, 1)], [wire.KEPT])
        self.assertEqual([s.form for s in self.lookup(kvstored.hashes(prompt.raw, prompt.lengths, space=GIVEN).kept(), 2)], [wire.HASHES])

    def test_one_that_is_too_long_is_sent_each_time(self) -> None:
        prompt = tokens([0] * (4 * CHUNKS + 4)).kept()
        for _ in range(2):
            self.assertEqual([(s.form, s.id) for s in self.lookup(prompt, 0)], [(wire.TOKENS, 0)])

    def test_one_that_waits_for_its_turn(self) -> None:
        prompt = chain("turns", 1).kept()
        store(self.kv, prompt, [payload(0)])
        with mock.patch("kvstored.turns.LIMIT", 1), mock.patch("kvstored.link.LIMIT", 1), requests() as sent:
            first = self.kv.prefetch(prompt)
            second = self.kv.prefetch(prompt, timeout=0.05)
            self.assertTrue(second.waits_for_its_turn)
            first.release()
            self.assertEqual(second.wait().ready.chunks, 1)
            second.release()
        self.assertEqual([s.form for s in sent if s.op == Op.PREFETCH], [wire.KEPT, wire.HASHES])

    def test_mistakes(self) -> None:
        wrong: Any
        for wrong in (tokens([1, -7, 2, 3]).kept(), chain("skip", 2)._replace(skip=-1).kept(), chain("wide", 2)._replace(lengths=[3, 4]).kept()):
            for _ in range(2):
                with self.assertRaises(ValueError):
                    self.kv.lookup(wrong)
        beyond = chain("beyond", 2)._replace(skip=3).kept()
        for _ in range(2):
            with self.assertRaises(kvstored.Refused) as caught:
                self.kv.lookup(beyond)
            self.assertEqual(caught.exception.code, kvstored.Code.BAD_REQUEST)
        job = self.kv.prefetch(chain("job", 1))
        self.assertEqual([s.form for s in self.lookup(kvstored.Prompt(ref=job.id).kept(), 0)], [wire.REF])
        job.release()

    def test_asyncio(self) -> None:
        async def main() -> List[Sent]:
            async with kvstored.AsyncClient(self.daemon.socket, space=SPACE, timeout=60) as kv:
                prompt = chain("async", 2).kept()
                with requests() as sent:
                    async with await kv.reserve(prompt, size=4, count=2) as fill:
                        for slot in fill:
                            slot.memory[:] = b"data"
                    self.assertEqual((await kv.lookup(prompt)).total.chunks, 2)
                return sent

        self.assertEqual([s.form for s in asyncio.run(main()) if s.form is not None], [wire.HASHES, wire.KEPT])


if __name__ == "__main__":
    unittest.main()
