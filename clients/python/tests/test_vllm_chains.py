"""What the daemon learns of the order of vLLM's blocks, and what that costs, with
the newest form of vLLM and whole steps of its scheduler."""

import collections
import contextlib
import json
import random
import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any, Counter, Dict, Iterator, List, Sequence
from unittest import mock

import kvstored
import kvstored.chains
from kvstored.vllm.hints import configs
from kvstored.vllm.order import Order, Run, named, raw
from kvstored._wire import Op

from . import vllm_engine
from .daemon import Daemon, enter, leases_stay, until
from .frames import each, options
from .test_prefill import Clock
from .test_vllm_steps import FORMS, stand_in
from .vllm_engine import Engine, keys, row

CHUNK = 16  # tokens
_ROW = 4096


def positions(*groups: Sequence[bytes]) -> Dict[bytes, int]:
    """As a request of 0.30 has them, in no order."""
    ends = [(key, (n + 1) * CHUNK) for chunks in groups for n, key in enumerate(chunks)]
    return dict(random.sample(ends, len(ends)))


@contextlib.contextmanager
def frames() -> Iterator[Counter[int]]:
    """Counts the requests that are sent while it lasts."""
    ops: Counter[int] = collections.Counter()
    with each(lambda frame: ops.update([frame.op])):
        yield ops


class Chains(unittest.TestCase):
    def setUp(self) -> None:
        enter(self, mock.patch.object(vllm_engine, "ROW", _ROW))
        leases_stay(self)

    def daemon(self, **sizes: str) -> Daemon:
        return enter(self, Daemon(**sizes))

    def engine(self, daemon: Daemon, rows: int = 600, **tier: Any) -> Engine:
        return stand_in(self, FORMS[-1], daemon.socket, rows, **tier)

    def unhurried(self, engine: Engine) -> Engine:
        """The engine with a step that ends only when its end is told, and answers that hold meanwhile."""
        engine.tier._lookups._patience = 600.0
        for answer in ("_HIT_SECONDS", "_MISS_SECONDS"):
            enter(self, mock.patch(f"kvstored.vllm.lookup.{answer}", 600.0))
        return engine

    def request(self, engine: Engine, name: str, *groups: Sequence[bytes]) -> Any:
        request = engine.request(name)
        request._offload_key_positions = positions(*groups)
        return request

    def store(self, engine: Engine, name: str, *groups: Sequence[bytes]) -> None:
        request = self.request(engine, name, *groups)
        for chunks in groups:
            for at in range(0, len(chunks), 200):
                engine.store(list(chunks[at : at + 200]), request)
                engine.settle()
        engine.finish(request)
        engine.step()

    def attempts(self, engine: Engine, request: Any, full: Sequence[bytes], window: Sequence[bytes] = (), size: int = 0) -> int:
        """The prefix of which everything is in host memory, asked for as vLLM does: in
        every step the first group from its start on, then the other from the end of
        what that has, until so many are there in a row."""
        results, deadline = engine.results, time.monotonic() + 60
        while time.monotonic() < deadline:
            found, defers = 0, False
            for key in full:
                answer = engine.manager.lookup(key, request)
                if answer == results.MISS:
                    break
                defers, found = defers or answer != results.HIT, found + 1
            run = 0
            for key in reversed(window[:found]):
                answer = engine.manager.lookup(key, request)
                defers = defers or answer in (results.RETRY, results.HIT_PENDING)
                run = run + 1 if answer in (results.HIT, results.HIT_PENDING) else 0
                if run == size:
                    break
            if not defers:
                return found
            engine.step()
            time.sleep(0.001)
        raise AssertionError("it is asked for ever")

    def there(self, engine: Engine, wanted: Sequence[bytes]) -> List[bool]:
        return engine.tier._pages.exists([raw(k) for k in wanted], 60.0)

    def test_one_question_and_one_load(self) -> None:
        daemon, wanted = self.daemon(), keys("one question", 512)
        first = self.engine(daemon)
        self.store(first, "stores", wanted)
        first.tier.shutdown()  # it may still have to say that its blocks were used
        engine = self.unhurried(self.engine(daemon))
        request = self.request(engine, "asks", wanted)
        with frames() as sent:
            self.assertEqual(self.attempts(engine, request, wanted), 512)
            engine.settle()
        self.assertEqual({op: sent[op] for op in (Op.BATCH, Op.LOOKUP, Op.PREFETCH)}, {Op.BATCH: 1, Op.LOOKUP: 0, Op.PREFETCH: 0})
        self.assertLessEqual(sum(sent.values()), 1 + 2, sent)  # and at most two for the load
        self.assertEqual(engine.load(wanted, request), [row(k) for k in wanted])

    def test_one_question_for_a_step(self) -> None:
        daemon = self.daemon()
        engine = self.unhurried(self.engine(daemon))
        prompts = [keys(f"step/{n}", 8) for n in range(64)]
        requests = [self.request(engine, f"step/{n}", wanted) for n, wanted in enumerate(prompts)]
        with frames() as sent:
            for request, wanted in zip(requests, prompts):
                engine.manager.lookup(wanted[0], request)
            engine.step()
            results, deadline = engine.results, time.monotonic() + 60
            for request, wanted in zip(requests, prompts):  # before the answer a lookup of another block is another question
                while engine.manager.lookup(wanted[0], request) in (results.RETRY, results.HIT_PENDING) and time.monotonic() < deadline:
                    engine.step()
                    time.sleep(0.001)
            for request, wanted in zip(requests, prompts):
                self.assertEqual(self.attempts(engine, request, wanted), 0)
        self.assertEqual({op: n for op, n in sent.items() if op != Op.RELEASE}, {Op.BATCH: 1})  # leases end after 5 s

    def test_the_end_of_a_prompt_has_no_place(self) -> None:
        """vLLM 0.33 makes a key of it: what follows it in another prompt follows it not in this one."""
        engine, whole, (tail,) = self.engine(self.daemon()), keys("whole", 4), keys("tail", 1)
        request = self.request(engine, "ends", whole)
        request._offload_key_positions[tail] = 4 * CHUNK + 5
        self.assertEqual(engine.tier._order.runs(request, [*whole, tail]), [Run(whole, []), Run([tail], None)])
        engine.store([*whole, tail], request)
        engine.settle()
        self.assertEqual(engine.load([tail], request), [row(tail)])

    def test_the_first_key_answers_for_all(self) -> None:
        daemon, wanted = self.daemon(), keys("the first", 40)
        first = self.engine(daemon)
        self.store(first, "stores", wanted)
        first.tier.shutdown()  # it may still have to say that its blocks were used
        engine = self.engine(daemon)
        request = self.request(engine, "asks", wanted)
        until(lambda: engine.tier.lookup(wanted[0], request) == engine.results.HIT or engine.tier.on_schedule_end())
        with frames() as sent:
            self.assertEqual({engine.tier.lookup(k, request) for k in wanted}, {engine.results.HIT})
        self.assertEqual(dict(sent), {})

    def test_what_another_request_has_found(self) -> None:
        """Each request is asked for as a whole, and loaded under a lease of its own."""
        daemon, wanted = self.daemon(), keys("found before", 40)
        first = self.engine(daemon)
        self.store(first, "stores", wanted[:20])
        first.tier.shutdown()
        engine = self.unhurried(self.engine(daemon))
        for name in ("one", "another"):
            request = self.request(engine, name, wanted)
            with frames() as sent:
                self.assertEqual(self.attempts(engine, request, wanted), 20)
                engine.settle()
            self.assertEqual({op: sent[op] for op in (Op.BATCH, Op.LOOKUP, Op.PREFETCH)}, {Op.BATCH: 1, Op.LOOKUP: 0, Op.PREFETCH: 0}, name)
            for key in list(engine.manager.primary_tier.rows):
                engine.manager.primary_tier.drop(key)  # host memory has had room for others

    def test_a_prompt_goes_from_its_end(self) -> None:
        """Its chunks are not alone: what room others take is that of its leaves."""
        daemon, wanted = self.daemon(dram="16MiB"), keys("a prompt", 1000)
        engine = self.engine(daemon)
        self.store(engine, "first", wanted)
        room = iter(range(100))
        while all(self.there(engine, wanted)):
            n = next(room)
            self.store(engine, f"other/{n}", keys(f"other/{n}", 200))
        there = self.there(engine, wanted)
        self.assertEqual(there, sorted(there, reverse=True))
        self.assertGreater(sum(there), 0)

    def test_a_window_is_loaded_only_where_it_is_needed(self) -> None:
        daemon, n, size = self.daemon(dram="64MiB"), 200, 8
        full, window = keys("hybrid", n), keys("hybrid", n, group=1)
        self.store(self.engine(daemon), "stores", full, window)
        engine = self.engine(daemon)
        request = self.request(engine, "asks", full, window)
        self.assertEqual(self.attempts(engine, request, full, window, size), n)
        engine.settle()
        needed = n + size
        loaded = [key for job in engine.manager.loads for key in job.keys]
        self.assertLessEqual(len(loaded), 1.05 * needed)
        self.assertEqual(engine.tier._counters.take()["bytes", "load"], len(loaded) * _ROW)
        wanted = [*full, *window[-size:]]
        self.assertEqual(engine.load(wanted, request), [row(k) for k in wanted])

    def test_a_hole_that_vllm_has(self) -> None:
        """What lies behind a block that only vLLM has is found all the same."""
        daemon, wanted = self.daemon(), keys("a hole", 30)
        first = self.engine(daemon)
        self.store(first, "before", wanted[:10])
        request = self.request(first, "behind", wanted)
        first.store(wanted[11:], request)
        first.settle()
        engine = self.engine(daemon)
        other = self.request(engine, "asks", wanted)
        taken = engine.manager.primary_tier.take([wanted[10]])  # it is in host memory
        taken[wanted[10]].ready = True
        engine.memory[taken[wanted[10]].at * _ROW :][:_ROW] = row(wanted[10])
        self.assertEqual(self.attempts(engine, other, wanted), 30)
        self.assertEqual(engine.load(wanted, other), [row(k) for k in wanted])

    def test_a_hit_elsewhere_is_a_use(self) -> None:
        """Blocks that a request had on the GPU outlive those of one that came later."""
        daemon = self.daemon(dram="16MiB")
        engine, used, unused = self.engine(daemon), keys("used", 400), keys("unused", 400)
        self.store(engine, "first", used)
        self.store(engine, "second", unused)
        request = self.request(engine, "hits", used)
        told, use = threading.Event(), engine.tier._lookups._use

        def uses(finished: List[Any]) -> None:
            use(finished)
            if any(one is request for one in finished):
                told.set()

        with mock.patch.object(engine.tier._lookups, "_use", uses):
            engine.finish(request)  # nothing was asked for
            engine.step()
            self.assertTrue(told.wait(60))
        room = iter(range(100))
        while all(self.there(engine, used)) and all(self.there(engine, unused)):
            n = next(room)
            self.store(engine, f"room/{n}", keys(f"room/{n}", 200))
        self.assertEqual(self.there(engine, used), [True] * 400)
        self.assertLess(sum(self.there(engine, unused)), 400)

    def test_hints_at_the_end(self) -> None:
        """What a request says of the future goes out when it ends, with its whole chain.
        What the daemon does not know is in the log, and changes nothing else."""
        daemon, wanted = self.daemon(), keys("hints", 20)
        engine = self.engine(daemon)
        self.store(engine, "stores", wanted)
        envelope = {"protocol_version": "0.1", "message_id": "m", "actions": []}
        request = self.request(engine, "hints", wanted)
        request.kv_hints = envelope
        request.kv_transfer_params = {"kvstored": {"session": "s", "pause_seconds": 3, "unknown": True, "no text": []}}
        sent: List[Any] = []
        real = engine.tier._client.hint

        def hint(prompt: Any, configs: Any, **more: Any) -> Any:
            sent.append((len(prompt.lengths), dict(configs)))
            return real(prompt, configs, **more)

        with mock.patch.object(engine.tier._client, "hint", hint), self.assertLogs("kvstored.vllm", "INFO") as said:
            engine.finish(request)
            engine.step()
            until(lambda: said.output)
        expected = {"session": "s", "pause_seconds": "3", "unknown": "true", "kv_hints": json.dumps(envelope)}
        self.assertEqual(sent, [(20, expected)])
        self.assertIn("hint 'unknown' does not count", said.output[0])

    def test_age(self) -> None:
        """What a request says of the age goes with what is stored of it, and is kept to."""
        daemon = self.daemon()
        engine = self.engine(daemon)
        for params, seconds in (({"max_age_seconds": 1}, 1.0), ({"max_age_seconds": "60"}, 60.0), ({}, 0.0)):
            wanted = keys(f"age {seconds}", 4)
            request = self.request(engine, f"age {seconds}", wanted)
            request.kv_transfer_params = {"kvstored": params}
            with options("reserve", "max_age") as told:
                self.assertEqual(engine.store(wanted, request), 4)
                engine.settle()
            self.assertEqual(told, [seconds])
            if seconds == 1:
                time.sleep(1.1)
            self.assertEqual(self.there(engine, wanted), [seconds != 1] * 4)

    def test_hints_that_make_no_sense(self) -> None:
        for params in (None, [], {"kvstored": 5}, {"kvstored": {"a": None}}, {"other": {}}):
            for envelope in (None, "text", 7, [], object()):
                self.assertEqual(configs(SimpleNamespace(kv_transfer_params=params, kv_hints=envelope)), [])

    def test_claims_that_lie(self) -> None:
        """Blocks under other parents, in circles and twice: no wrong byte, none lost."""
        daemon, blocks = self.daemon(), keys("lies", 60)
        engine, stored, r = self.engine(daemon, rows=32), set(), random.Random(7)
        for n in range(150):
            claimed = r.sample(blocks, 16)
            request = self.request(engine, f"lies/{n}", claimed)
            if r.random() < 0.5:
                found = self.attempts(engine, request, claimed)
                self.assertGreaterEqual(found, next((i for i, k in enumerate(claimed) if k not in stored), 16))
                self.assertEqual(engine.load(claimed[:found], request), [row(k) for k in claimed[:found]])
            else:
                engine.store(claimed[:10], request)
                stored.update(claimed[:10])
            engine.settle()
            engine.finish(request)
        self.assertEqual(self.there(engine, sorted(stored)), [True] * len(stored))

    def test_no_more_than_is_worth_loading(self) -> None:
        """An engine that computes faster than the disk loads is told of a miss."""
        daemon, wanted = self.daemon(dram="16MiB", disk="256MiB"), keys("worth", 100)
        engine = self.engine(daemon)
        self.store(engine, "stores", wanted)
        self.assertIsNotNone(engine.tier._client.flush(timeout=60))
        for n in range(30):  # it is only on disk then
            self.store(engine, f"room/{n}", keys(f"room/{n}", 200))
        measured = self.engine(daemon)
        request = self.request(measured, "measures", wanted[:20])
        self.attempts(measured, request, wanted[:20])
        fast = self.engine(daemon, prefill_tokens_per_second=1 << 31)
        request = self.request(fast, "asks", wanted)
        found = self.attempts(fast, request, wanted)
        self.assertLess(found, 100)
        slow = self.engine(daemon, prefill_tokens_per_second=1)
        self.assertEqual(self.attempts(slow, self.request(slow, "asks", wanted), wanted), 100)

    def test_prefill_depth(self) -> None:
        """It goes with each question, of one group or of several."""
        told: List[Any] = []
        for groups in ({}, {"groups": ["full", "window 16"]}):
            engine = self.engine(self.daemon(), prefill_depth=8000, **groups)
            real = engine.tier._client.ask

            def ask(*args: Any, **more: Any) -> Any:
                told.append(list(more["configs"]))
                return real(*args, **more)

            full, window = keys("depth", 4), keys("depth", 4, group=1)
            request = self.request(engine, "asks", full, *[window] * bool(groups))
            with mock.patch.object(engine.tier._client, "ask", ask):
                self.attempts(engine, request, full, window if groups else (), len(groups))
        self.assertEqual(told, [[("prefill_depth", "8000")]] * 2)

    def test_measured_prefill_rate(self) -> None:
        """What is missing of a prompt is computed between the question and the store."""
        daemon, clock, shared = self.daemon(), Clock(), keys("measured", 20)
        engine = self.engine(daemon, prefill_tokens_per_second="measured")
        engine.tier._prefill._clock = clock
        self.store(engine, "shared", shared)
        for n in range(8):
            self.assertEqual(engine.tier._lookups._prefill.rate, 0)
            wanted = [*shared, *keys(f"measured/{n}", 160)]
            request = self.request(engine, f"measured/{n}", wanted)
            self.assertEqual(self.attempts(engine, request, wanted), 20)
            clock.now += 160 * CHUNK / 1000
            engine.finish(request)
            self.store(engine, f"stores/{n}", wanted)
        self.assertEqual(engine.tier._lookups._prefill.rate, 1000)


class Orders(unittest.TestCase):
    """What is made of positions."""

    def said(self, *groups: Sequence[bytes]) -> Any:
        return SimpleNamespace(req_id="r", _offload_key_positions=positions(*groups))

    def test_positions(self) -> None:
        full, window = keys("p", 6), keys("p", 6, group=1)
        order, request = Order(), self.said(full, window)
        shuffled = random.sample([*full[2:5], *window[1:2], *window[4:]], 6)
        runs = sorted(order.runs(request, shuffled), key=lambda run: (run.keys[0][-4:], full.index(run.keys[0][:-4] + full[0][-4:])))
        digests = [kvstored.chains.digest(k) for k in full], [kvstored.chains.digest(named(k)) for k in window]
        self.assertEqual(
            runs,
            [Run(full[2:5], digests[0][:2]), Run(window[1:2], digests[1][:1]), Run(window[4:], digests[1][:4])],
        )
        request._offload_key_positions.update({key: 999 + n for n, key in enumerate(keys("more", 2))})  # decoded meanwhile
        self.assertEqual(order.runs(request, keys("more", 2)), [Run(keys("more", 2), digests[0])])
        self.assertEqual(order.runs(request, keys("unknown", 1)), [Run(keys("unknown", 1), None)])
