"""The groups of hybrid models in KvstoredTier: random histories of vLLM's lookups, against
a store that has everything in a set; what is loaded, leased and brought up is what the hit
needs, and nothing else.

``KVSTORED_HISTORIES`` says how many (10,000 take some minutes), ``KVSTORED_SEED`` which.
"""

import collections
import math
import os
import random
import time
import unittest
from types import SimpleNamespace
from typing import Any, Counter, Dict, List, NamedTuple, Set, Tuple
from unittest import mock

from kvstored.vllm.groups import of_spec
from kvstored.vllm.order import group, named

from . import engines, vllm_engine
from .daemon import Daemon, enter
from .test_vllm_steps import FORMS, stand_in
from .vllm_engine import Engine, row
from .vllm_scheduler import Group, Prompt, Scheduler, best, deferred

HISTORIES = int(os.environ.get("KVSTORED_HISTORIES", "200"))
SEED = int(os.environ.get("KVSTORED_SEED", "22"))
ON_AN_ENGINE = 25  # histories
GRAIN = 16
_ROW = 512


class Model(NamedTuple):
    groups: List[Group]
    kinds: List[str]  # as the user writes them
    align: int = 0


MODELS = {
    "windows": Model([Group(16), Group(16, 4)], ["full", "window 64"]),
    "two windows": Model([Group(16), Group(16, 2), Group(16, 7)], ["full", "window 32", "window 100"]),
    "states": Model([Group(16), Group(16, 1)], ["full", "state"], 16),
    "coarse": Model([Group(64), Group(64, 1)], ["full", "state"], 64),
    "window first": Model([Group(16, 3), Group(16)], ["window 48", "full"]),
    "all kinds": Model([Group(32), Group(32), Group(32, 4), Group(32, 2), Group(32, 1)], ["full", "full", "window 128", "local 64", "state"], 32),
    "other sizes": Model([Group(32), Group(16, 5)], ["full", "window 80"]),
    "three sizes": Model([Group(64), Group(32, 2), Group(16, 3)], ["full", "window 64", "window 48"]),
    "longer windows": Model([Group(16), Group(32, 2)], ["full", "window 64"]),
    "one full group": Model([Group(16)], ["full"]),
    "one left out": Model([Group(32), Group(16, behind=1), Group(16, 4, behind=1)], ["full", "full", "window 64"], 32),
}


def spec_groups(model: Model) -> Any:
    """As vLLM's normalized configuration has them."""
    groups = enumerate(model.groups)
    return tuple(SimpleNamespace(group_id=i + g.behind, tokens_per_block=g.chunk, layer_names=(f"layer.{i}",)) for i, g in groups)


class Case(unittest.TestCase):
    def setUp(self) -> None:
        enter(self, mock.patch.object(vllm_engine, "ROW", _ROW))

    def daemon(self, *args: Any, **sizes: str) -> Daemon:
        return enter(self, Daemon(*args, **sizes))

    def engine(self, daemon: Daemon, model: Model, rows: int = 2000, **tier: Any) -> Engine:
        real = engines.offloading_config
        with mock.patch.object(engines, "offloading_config", lambda **o: real(**{**o, "groups": spec_groups(model)})):
            engine = stand_in(self, FORMS[-1], daemon.socket, rows, **tier)
        engine.tier._lookups._patience = 600.0  # a machine that stands still for seconds ends no step
        return engine


class Player:
    """One engine with a scheduler of its own, and what is stored."""

    def __init__(self, test: unittest.TestCase, engine: Engine, model: Model) -> None:
        self.test, self.engine, self.model = test, engine, model
        self.scheduler = Scheduler(model.groups, engine.results, model.align)
        self.stored: Set[bytes] = set()  # in the daemon
        self._requests = 0

    def request(self, prompt: Prompt) -> Any:
        self._requests += 1
        request = self.engine.request(f"request {self._requests}")
        request._offload_key_positions = self.scheduler.positions(prompt)
        return request

    @property
    def memory(self) -> Any:
        return self.engine.manager.primary_tier

    def lookup(self, prompt: Prompt, computed: int, request: Any) -> int:
        """The hit, once nothing of it is on its way."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            self.answers: Dict[bytes, Any] = {}  # of this round

            def ask(key: bytes) -> Any:
                self.answers[key] = self.engine.manager.lookup(key, request)
                return self.answers[key]

            found = self.scheduler.lookup(prompt, computed, ask)
            if found is not None:
                return found
            self.engine.step()
            time.sleep(0)
        raise AssertionError("it is asked for ever")

    def said(self, prompt: Prompt) -> List[Tuple[int, int, str, bool, bool]]:
        """The answers of the last round: group, chunk, answer, whether it is stored, or in memory."""
        names = {key: (i, n) for i, g in enumerate(self.model.groups) for n, key in enumerate(prompt.keys(i, g))}
        return [(*names[key], str(answer), key in self.stored, key in self.memory.rows) for key, answer in self.answers.items()]

    def play(self, prompt: Prompt, computed: int) -> Tuple[int, int]:
        """The hit of a prompt and the best there is; what it needs has the right bytes."""
        request, before = self.request(prompt), len(self.engine.manager.loads)
        ready = {key for key, at in self.memory.rows.items() if at.ready}
        want = best(self.scheduler, prompt, computed, self.stored | ready)
        hit = self.lookup(prompt, computed, request)
        told = {key for key, answer in self.answers.items() if answer == self.engine.results.HIT}
        self.deferred = deferred(self.scheduler, prompt, computed, self.stored | ready, told)
        needed = self.scheduler.needs(prompt, computed, hit) if hit > computed else []
        rows = self.engine.manager.prepare_load(needed, request).block_ids
        for key, at in zip(needed, rows):
            self.test.assertEqual(bytes(self.engine.memory[at * _ROW : (at + 1) * _ROW]), row(key))
        self.engine.manager.complete_load(needed, request)
        self.engine.step()
        self.engine.settle()
        loaded = [key for job in self.engine.manager.loads[before:] for key in job.keys]
        self.outside = set(loaded) - set(needed)
        self.engine.finish(request)
        self.engine.step()
        return hit, want

    def store(self, prompt: Prompt, keys: List[bytes]) -> None:
        request, deadline = self.request(prompt), time.monotonic() + 60
        left = [key for key in keys if key not in self.memory.rows]  # of others the tier hears nothing
        self.stored.update(left)
        while True:
            for at in range(0, len(keys), 100):
                self.engine.store(keys[at : at + 100], request)
                self.engine.settle()
            # What was evicted is refused while a lease of it lasts, and the tier's threads
            # give leases back in their own time.
            there = {name: self.there(name, left) for name in {group(key) for key in left}}
            left = [key for key in left if not there[group(key)][key]]
            if not left:
                break
            self.test.assertLess(time.monotonic(), deadline, "it is refused for ever")
            self.drop(left)
        self.engine.finish(request)
        self.engine.step()

    def there(self, name: bytes, keys: List[bytes]) -> Dict[bytes, bool]:
        """Which blocks of a group the daemon has."""
        of = [key for key in keys if group(key) == name]
        return dict(zip(of, self.engine.tier._groups.pages(name).exists([named(key) for key in of], 60)))

    def sparse(self, prompt: Prompt, ends: List[int]) -> List[bytes]:
        """All of the full groups, and of the others what prefixes with these ends need."""
        keys: List[bytes] = []
        for i, g in enumerate(self.model.groups):
            own = prompt.keys(i, g)
            wanted = range(len(own)) if not g.window else {
                n for end in ends for n in range(max(0, end // g.chunk - g.window), end // g.chunk)
            }  # fmt: skip
            keys += [own[n] for n in sorted(wanted) if n < len(own)]
        return keys

    def evict(self, keys: List[bytes]) -> None:
        """From the daemon, of which nothing is remembered then."""
        tier = self.engine.tier
        tier._groups._hints.drop()
        tier._client.ping()
        for name in {group(key) for key in keys}:
            pages, some = tier._groups.pages(name), [named(key) for key in keys if group(key) == name]
            pages.delete(some, 60)
        self.stored -= set(keys)
        self.forget()

    def forget(self) -> None:
        """Answers that are too old."""
        self.engine.tier._lookups._news.clear()
        self.engine.tier._lookups._answers.clear()

    def drop(self, keys: List[bytes]) -> None:
        """From host memory."""
        for key in keys:
            if key in self.memory.rows:
                self.memory.drop(key)


class Histories(Case):
    def test_histories(self) -> None:
        self.done: Counter[str] = collections.Counter()
        r, left, n = random.Random(SEED), HISTORIES, 0
        models = list(MODELS.items())
        with Daemon("256MiB") as daemon:
            while left > 0:
                name, model = models[n % len(models)]
                given = {} if n % 5 == 4 else {"groups": model.kinds}
                engine = self.engine(daemon, model, **given)
                player = Player(self, engine, model)
                for _ in range(min(left, ON_AN_ENGINE)):
                    with self.subTest(name, history=n, given=bool(given)):
                        self.history(r, player, f"{SEED}/{n}/{left}", bool(given))
                    left -= 1
                engine.tier.shutdown()
                n += 1
        if HISTORIES >= 200:
            for what in ("hit", "missed", "shorter", "evicted", "from memory", "pure"):
                self.assertGreater(self.done[what], HISTORIES / 8, dict(self.done))
        print(f"{HISTORIES} histories, seed {SEED}: {dict(self.done)}")

    def history(self, r: random.Random, player: Player, salt: str, given: bool) -> None:
        trunk = [r.randrange(1 << 30) for _ in range(24)]
        player.drop(list(player.memory.rows))
        player.stored.clear()
        for _ in range(r.randint(3, 9)):
            cut = r.randint(0, 24)
            blocks = trunk[:cut] + [r.randrange(3) for _ in range(r.randint(0, 8))]
            if not blocks:
                continue
            prompt = Prompt.of(blocks, GRAIN, len(blocks) * GRAIN + r.randint(0, GRAIN - 1) - r.randint(0, 1), salt)
            step = r.random()
            if step < 0.4:
                ends = r.sample(range(GRAIN, prompt.tokens + 1, GRAIN), min(3, prompt.tokens // GRAIN)) if prompt.tokens >= GRAIN else []
                player.store(prompt, player.sparse(prompt, [*ends, prompt.tokens]))
            elif step < 0.55 and player.stored:
                some = r.sample(sorted(player.stored), r.randint(1, len(player.stored)))
                player.evict(some[: r.choice([1, 2, 8, 1000])])
                self.done["evicted"] += 1
            else:
                self.look(r, player, prompt, given)

    def look(self, r: random.Random, player: Player, prompt: Prompt, given: bool) -> None:
        pure = r.random() < 0.5
        rows = list(player.memory.rows)
        player.drop(rows if pure else r.sample(rows, r.randint(0, len(rows))))
        grid = max(g.chunk for g in player.model.groups)
        computed = r.choice([0, 0, grid, r.randint(0, prompt.tokens // grid) * grid])
        if computed >= prompt.tokens:
            return
        if r.random() < 0.3:
            player.forget()
        hit, want = player.play(prompt, computed)
        if hit != want and hit == player.deferred:
            self.done["vLLM's own"] += 1
        else:
            self.assertEqual(hit, want, (prompt.tokens, computed, pure, player.said(prompt)))
        full = min(len(prompt.keys(i, g)) * g.chunk for i, g in enumerate(player.model.groups) if not g.window)
        self.done["hit" if hit > computed else "missed"] += 1
        self.done["shorter"] += hit < full
        self.done["from memory"] += not pure
        if pure and given and len(player.model.groups) > 1 and len({g.chunk for g in player.model.groups}) == 1:
            self.done["pure"] += 1
            self.assertEqual(player.outside, set(), (prompt.tokens, computed))


class Kinds(Case):
    """Where the kinds of groups come from, and what becomes of mistakes."""

    def test_kinds_from_windows_in_chunks(self) -> None:
        """As 0.33 says them; nothing is believed where one group lacks it, or it makes no sense."""

        def kinds(*windows: Any) -> List[Any]:
            groups = [SimpleNamespace(tokens_per_block=16, **({} if w == "-" else {"sliding_window_size_in_chunks": w})) for w in windows]
            return of_spec(SimpleNamespace(config=SimpleNamespace(groups=groups, cache=SimpleNamespace(blocks_per_chunk=2))))

        self.assertEqual([str(k) for k in kinds(None, 4, 1)], ["full", "window 128", "state"])
        self.assertEqual(kinds(None, "-"), [])
        self.assertEqual([k and str(k) for k in kinds(None, 0, "2", -1)], ["full", None, None, None])

    def test_a_group_that_is_left_out(self) -> None:
        """A window in which no prefix is looked for, as DeepSeek V4.1 has it, is not offloaded:
        the groups behind it keep their numbers, kinds and sizes, and what is there is found."""
        daemon, model = self.daemon(), MODELS["one left out"]
        player = Player(self, self.engine(daemon, model, groups=model.kinds), model)
        groups, names = player.engine.tier._groups, [n.to_bytes(4, "big") for n in range(4)]
        self.assertEqual([str(groups.kind(name)) for name in names], ["full", "None", "full", "window 64"])
        self.assertEqual([groups.tokens(name) for name in names], [32, 32, 16, 16])
        prompt = Prompt.of(range(20), GRAIN, 20 * GRAIN, "left out")
        player.store(prompt, player.sparse(prompt, [16 * GRAIN]))
        player.drop(list(player.memory.rows))
        self.assertEqual(player.play(prompt, 0), (16 * GRAIN,) * 2)

    def test_learned(self) -> None:
        """What vLLM does not say and the user neither is learned from its first load."""
        daemon, model = self.daemon(), MODELS["two windows"]
        player = Player(self, self.engine(daemon, model), model)
        prompts = [Prompt.of([n, *range(20)], GRAIN, 21 * GRAIN, "learned") for n in range(3)]
        for prompt in prompts:
            player.store(prompt, player.sparse(prompt, [10 * GRAIN, prompt.tokens - GRAIN]))
        player.drop(list(player.memory.rows))
        with self.assertLogs("kvstored.vllm", "INFO") as said:
            self.assertEqual(player.play(prompts[0], 0), (20 * GRAIN,) * 2)
        for learned in ('group 1 is "window 32"', 'group 2 is "window 112"'):
            self.assertIn(learned, "".join(said.output))
        for prompt in prompts[1:]:
            player.engine.tier._counters.take()
            self.assertEqual(player.play(prompt, 0), (20 * GRAIN,) * 2)
            self.assertEqual(player.outside, set())

    def test_with_a_bucket(self) -> None:
        """That vLLM asks once more for what only the bucket may have is no sign of a draft model."""
        daemon, model = self.daemon(), Model([Group(16), Group(16, 1)], ["full", "state"], 16)
        player = Player(self, self.engine(daemon, model, groups=model.kinds), model)
        with mock.patch.object(player.engine.tier._lookups, "_bucket", (True, math.inf)):
            for n in range(4):
                prompt = Prompt.of([n, *range(20)], GRAIN, 22 * GRAIN - 1, "bucket")
                player.store(prompt, player.sparse(prompt, [12 * GRAIN]))
                player.drop(list(player.memory.rows))
                self.assertEqual(player.play(prompt, 0), (12 * GRAIN,) * 2)
        self.assertEqual(player.engine.tier._lookups._strays, set())

    def test_with_a_draft_model(self) -> None:
        """Its group must have a block more than is used: the class sees that vLLM asks for more, and
        asks in another way then."""
        daemon, model = self.daemon(), Model([Group(16, draft=True), Group(16, 1)], ["full", "state"], 16)
        player = Player(self, self.engine(daemon, model, groups=model.kinds), model)
        hits: List[Tuple[int, int]] = []
        for n in range(6):
            prompt = Prompt.of([n, *range(20)], GRAIN, 22 * GRAIN - 1, "draft")
            player.store(prompt, player.sparse(prompt, [5 * GRAIN, 12 * GRAIN]))
            player.drop(list(player.memory.rows))
            hits.append(player.play(prompt, 0))
        self.assertEqual([want for _, want in hits], [12 * GRAIN] * 6)
        self.assertEqual([hit for hit, _ in hits[3:]], [12 * GRAIN] * 3, hits)


class Tiers(Case):
    def promoted(self, engine: Engine) -> int:
        """Chunks that came from disk."""
        loads: Dict[str, Any] = engine.tier._client.stats()["store"]["loads"]
        return loads["disk"]["chunks"]

    def test_only_what_is_needed_comes_up(self) -> None:
        """From disk: one question, and of a prompt with states at many of its ends one state."""
        daemon, model = self.daemon(dram="16MiB", disk="256MiB"), MODELS["states"]
        with mock.patch.object(vllm_engine, "ROW", 64 << 10), mock.patch(f"{__name__}._ROW", 64 << 10):
            first = Player(self, self.engine(daemon, model, 200, groups=model.kinds), model)
            prompt = Prompt.of(range(60), GRAIN, 60 * GRAIN, "disk")
            first.store(prompt, first.sparse(prompt, [n * GRAIN for n in range(10, 60, 10)]))
            for n in range(8):
                other = Prompt.of([n, *range(40)], GRAIN, 41 * GRAIN, "others")
                first.store(other, first.sparse(other, [40 * GRAIN]))
                first.drop(list(first.memory.rows))
            self.assertIsNotNone(first.engine.tier._client.flush(timeout=60))
            first.engine.tier.shutdown()
            player = Player(self, self.engine(daemon, model, 200, groups=model.kinds), model)
            player.stored = first.stored
            player.play(Prompt.of([0, *range(40)], GRAIN, 41 * GRAIN, "others"), 0)  # measures the disk
            before = self.promoted(player.engine)
            self.assertEqual(player.play(prompt, 0), (50 * GRAIN,) * 2)
            self.assertEqual(player.outside, set())
            needed = 50 + 1  # blocks and a state
            self.assertLessEqual(self.promoted(player.engine) - before, needed)

    def test_killed_between_groups(self) -> None:
        """kill -9 when one group of a longer prefix is stored and another is not: the hit is the
        longest that all groups have, at least what was flushed, and its bytes are right."""
        daemon, model = self.daemon(dram="16MiB", disk="256MiB"), MODELS["all kinds"]
        grain, lengths = 32, range(4, 40, 6)
        blocks = list(range(40))
        flushed, everything = 0, set()  # type: ignore[var-annotated]
        for n in lengths:
            player = Player(self, self.engine(daemon, model, groups=model.kinds), model)
            prompt = Prompt.of(blocks[:n], grain, n * grain + 1, "killed")
            keys = player.sparse(prompt, [n * grain])
            parts = {name: [k for k in keys if group(k) == name] for name in dict.fromkeys(map(group, keys))}
            missing = sorted(parts)[n // 6 % len(parts)]
            for name, part in parts.items():
                if name != missing:
                    player.store(prompt, part)
            everything |= player.stored
            daemon.again()
            after = Player(self, self.engine(daemon, model, groups=model.kinds), model)
            after.stored = everything
            hit, most = after.play(prompt, 0)
            self.assertLessEqual(hit, most)
            self.assertGreaterEqual(hit, flushed)
            self.assertEqual(after.outside, set())
            after.store(prompt, keys)
            self.assertIsNotNone(after.engine.tier._client.flush(timeout=60))
            everything |= after.stored
            flushed = n * grain
