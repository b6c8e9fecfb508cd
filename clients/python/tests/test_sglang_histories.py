"""Random histories of SGLang's ranks on one daemon, against a model of what is
stored: no page ever has other bytes than its rank and pool computed, and what
the model says may be found is found.

``KVSTORED_HISTORIES`` says how many (10,000 take some minutes), ``KVSTORED_SEED``
which.
"""

import collections
import hashlib
import itertools
import os
import random
import unittest
from types import SimpleNamespace
from typing import Any, Dict, List, Set, Tuple

from kvstored.sglang import KvstoredHiCache

from . import contracts
from .daemon import Daemon
from .sglang_engine import FAMILIES, LAYOUTS, PAGES, Controller, Rank, Shape
from .sglang_pools import MLATokenToKVPoolHost

HISTORIES = int(os.environ.get("KVSTORED_HISTORIES", "250"))
SEED = int(os.environ.get("KVSTORED_SEED", "15"))
ON_A_DAEMON = 400  # histories; more might not all fit into its memory
ON_A_FLEET = 8

FORM = contracts.load("sglang")[-1]


def make(kind: str, value: Any = None, /, **fields: Any) -> Any:
    return value if value is not None else FORM.stand_in(kind)(**fields)


class Fleet:
    """Engines of one model, of which each runs in another way than the first, by
    one thing; each with some of its ranks."""

    def __init__(self, r: random.Random, family: str, socket: str, larger: int = 1) -> None:
        self.family = family
        model, first = f"model-{r.randrange(3)}", self.shape(r)
        shapes = [first, *(self.other(r, first) for _ in range(r.randint(0, 2)))]
        self.controllers = [
            self.controller(Rank(model, family, shape, *at, larger=larger), socket)
            for shape in dict.fromkeys(shapes)
            for at in self.ranks(r, shape)
        ]

    def ways(self, tp: int) -> Dict[str, List[Any]]:
        spread = [1, 2] if tp > 1 and FAMILIES[self.family].kv.cls is MLATokenToKVPoolHost else [1]
        two = [1, 2]
        return dict(layout=LAYOUTS, tp=[1, 2, 8], pp=two, v1=[True, False], dtype=["bfloat16", "fp8"], dcp=spread, dp=two)

    def shape(self, r: random.Random) -> Shape:
        tp = r.choice([1, 2, 8])
        return Shape(**{**{way: r.choice([of[0], r.choice(of)]) for way, of in self.ways(tp).items()}, "tp": tp})

    def other(self, r: random.Random, shape: Shape) -> Shape:
        ways = self.ways(2 if shape.tp > 1 and shape.dcp > 1 else shape.tp)
        way = r.choice(sorted(set(ways) - {"tp"} if shape.dcp > 1 else ways))
        return shape._replace(**{way: r.choice(ways[way])})

    @staticmethod
    def ranks(r: random.Random, shape: Shape) -> List[Tuple[int, int, int]]:
        """The first, which may be the only one that writes, and some others."""
        first, *others = itertools.product(range(shape.tp), range(shape.pp), range(shape.dp))
        return [first, *r.sample(others, min(len(others), 3))]

    @staticmethod
    def controller(rank: Rank, socket: str) -> Controller:
        line = {"backend_name": "kvstored", "module_path": "kvstored.sglang", "class_name": "KvstoredHiCache"}
        extra = {**line, "interface_v1": int(rank.shape.v1), "socket": socket, "timeout": 60}
        target = KvstoredHiCache(SimpleNamespace(**rank.config, extra_config=extra), {})
        return Controller(FORM, target, rank, make)

    def close(self) -> None:
        for controller in self.controllers:
            controller.target.close()


def counts(sides: List[Any], there: List[List[bool]], hit: int) -> Dict[str, int]:
    """Of each pool what one answer about all of them has."""
    run = min((have + [False]).index(False) for s, have in zip(sides, there) if not s.last)
    if len(sides) == 1:
        return {"kv": run} if run else {}
    whole = {s.name: all(have[max(0, run - s.last) if s.last else 0 : run]) for s, have in zip(sides, there)}
    return {name: n for name, n in ((name, run if yes else hit) for name, yes in whole.items()) if n}


class Histories(unittest.TestCase):
    def test_histories(self) -> None:
        self.done: Dict[str, int] = collections.Counter()
        r, left, families = random.Random(SEED), HISTORIES, itertools.cycle(FAMILIES)
        while left > 0:
            with Daemon("256MiB") as daemon:
                for _ in range(0, min(left, ON_A_DAEMON), ON_A_FLEET):
                    self.on_a_fleet(r, Fleet(r, next(families), daemon.socket), min(left, ON_A_FLEET))
                    left -= ON_A_FLEET
        if HISTORIES >= 100:
            for what in ("stored", "evicted", "found", "missed", "loaded"):
                self.assertGreater(self.done[what], HISTORIES / 2, dict(self.done))
        print(f"{HISTORIES} histories, seed {SEED}: {dict(self.done)}")

    def test_where_there_is_no_room(self) -> None:
        """The daemon evicts as it likes: what comes is right all the same."""
        self.done = collections.Counter()
        r = random.Random(SEED)
        with Daemon("16MiB") as daemon:
            for family in FAMILIES:
                fleet = Fleet(r, family, daemon.socket, larger=1000)
                chains = [[hashlib.sha256(f"{family}/{c}/{i}".encode()).hexdigest() for i in range(PAGES)] for c in range(9)]
                stored: Dict[Any, Set[str]] = collections.defaultdict(set)
                try:
                    for _ in range(max(30, HISTORIES // 10)):
                        controller, keys = r.choice(fleet.controllers), r.choice(chains)
                        with self.subTest(family, rank=controller.rank.at, shape=controller.rank.shape):
                            self.crowded(r, controller, keys, stored)
                finally:
                    fleet.close()
        for what in ("stored", "evicted", "loaded"):
            self.assertGreater(self.done[what], 0, dict(self.done))

    def crowded(self, r: random.Random, controller: Controller, keys: List[str], stored: Dict[Any, Set[str]]) -> None:
        rank = controller.rank
        rank.wipe()
        if r.random() < 0.5:
            rank.fill(keys, 0)
            for name, done in controller.backup(keys, 0).items():
                stored[rank.identity(name)].update(keys[len(keys) - len(done) :])
                self.done["stored"] += sum(done)
            return
        hit, _ = controller.query(keys)
        once = [key in stored[rank.identity("kv")] for key in keys]
        self.assertTrue(all(once[:hit]))
        self.done["evicted"] += sum(once[hit:])
        for name, loaded in controller.prefetch(keys[:hit]).items():
            for p, ok in enumerate(loaded, hit - len(loaded)):
                if ok:
                    self.assertEqual(rank.pools[name].page(p), rank.right(name, keys[p]), (name, p))
                    self.done["loaded"] += 1

    def on_a_fleet(self, r: random.Random, fleet: Fleet, histories: int) -> None:
        try:
            for _ in range(histories):
                name = f"{r.getrandbits(64):x}"
                keys = [hashlib.sha256(f"{name}/{i}".encode()).hexdigest() for i in range(r.randint(1, PAGES))]
                self.history(r, fleet, keys)
        finally:
            fleet.close()

    def history(self, r: random.Random, fleet: Fleet, keys: List[str]) -> None:
        stored: Dict[Any, Set[str]] = collections.defaultdict(set)
        actors = r.sample(fleet.controllers, min(len(fleet.controllers), r.randint(1, 4)))
        for _ in range(r.randint(4, 16)):
            controller = r.choice(actors)
            step = r.choices((self.backup, self.load, self.evict), (5, 5, 1))[0]
            if step == self.evict:  # a page under a lease, with others behind it, is not stored again before that ends
                for actor in actors:
                    actor.target._hints.drop()
                    actor.target._client.ping()
            with self.subTest(fleet.family, rank=controller.rank.at, shape=controller.rank.shape, step=step.__name__):
                step(r, controller, keys, stored)

    def backup(self, r: random.Random, controller: Controller, keys: List[str], stored: Dict[Any, Set[str]]) -> None:
        rank = controller.rank
        first, end = sorted(r.sample(range(len(keys) + 1), 2))
        first = 0 if r.random() < 0.6 else first
        rank.wipe()
        rank.fill(keys[first:end], first)
        results = controller.backup(keys[first:end], first)
        written = {s.name: s.last for s in rank.family.sides if rank.writes(s)}
        if rank.writes(rank.family.kv):
            written["kv"] = 0
        whole = {name: [True] * min(last or end - first, end - first) for name, last in written.items()}
        self.assertEqual(results, whole)
        for name, last in written.items():
            stored[rank.identity(name)].update(keys[max(first, end - last) if last else first : end])
            self.done["stored"] += len(results[name])

    def load(self, r: random.Random, controller: Controller, keys: List[str], stored: Dict[Any, Set[str]]) -> None:
        rank, sides = controller.rank, [controller.rank.family.kv, *controller.rank.family.sides]
        there = [[key in stored[rank.identity(side.name)] for key in keys] for side in sides]

        def able(n: int) -> bool:
            return all(all(have[max(0, n - s.last) if s.last else 0 : n]) for s, have in zip(sides, there))

        hit, found = controller.query(keys)
        self.assertEqual((hit, found), (max(filter(able, range(len(keys) + 1))), counts(sides, there, hit)))
        self.done["found" if hit else "missed"] += 1
        rank.wipe()
        for name, loaded in controller.prefetch(keys[:hit]).items():
            side = next(s for s in sides if s.name == name)
            first = max(0, hit - side.last) if side.last else 0
            self.assertEqual(loaded, [True] * (hit - first), name)
            for p in range(first, hit):
                self.assertEqual(rank.pools[name].page(p), rank.right(name, keys[p]), f"{name}, page {p} of {hit}")
                self.done["loaded"] += 1
        self.past_the_hit(r, controller, keys, there)

    def past_the_hit(self, r: random.Random, controller: Controller, keys: List[str], there: List[List[bool]]) -> None:
        """A page that nobody promised comes if it is there, and not otherwise."""
        rank, p = controller.rank, r.randrange(len(keys))
        rank.wipe()
        (ok,) = controller._get_kv([keys[p]], [p])
        self.assertEqual(ok, there[0][p])
        if ok:
            self.assertEqual(rank.pools["kv"].page(p), rank.right("kv", keys[p]))

    def evict(self, r: random.Random, controller: Controller, keys: List[str], stored: Dict[Any, Set[str]]) -> None:
        rank, target = controller.rank, controller.target
        name = r.choice(sorted(rank.pools))
        pages = target._of(name, name == "kv" and not rank.shape.v1)
        some = r.sample(keys, r.randint(1, len(keys)))
        gone = pages.delete([k.encode() for k in some], 20)
        self.assertEqual(gone, len(stored[rank.identity(name)] & set(some)))
        stored[rank.identity(name)] -= set(some)
        self.done["evicted"] += gone
