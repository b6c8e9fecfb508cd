"""Object groups in KvstoredL2Adapter: random histories of LMCache's server, which folds the
bits of all groups into the longest prefix that each can serve, against a set.

``KVSTORED_HISTORIES`` says how many (10,000 take some minutes), ``KVSTORED_SEED`` which.
"""

import collections
import os
import random
from typing import Counter, Dict, List, NamedTuple, Sequence, Set, Tuple
from unittest import mock

from kvstored.client import Asking
from kvstored.errors import Code, Refused
from kvstored.job import Job

from .daemon import Daemon
from .frames import counted
from .lmcache_engine import Controllers, ObjectKey
from .test_lmcache_backend import HISTORIES
from .test_lmcache_l2 import Case, keys_of, prompt

SEED = int(os.environ.get("KVSTORED_SEED", "22"))
TOKENS = 256


class Model(NamedTuple):
    kinds: List[str]  # as the user writes them
    windows: List[int]  # in chunks, as LMCache has them; -1 for all

    def chunks(self, group: int, n: int) -> range:
        """Those that a prefix of n chunks needs of a group."""
        window = self.windows[group]
        return range(max(0, n - window) if window > 0 else 0, n)


MODELS = {
    "window": Model(["full", "window 512"], [-1, 2]),
    "odd window": Model(["full", "window 600"], [-1, 3]),
    "state": Model(["full", "state"], [-1, 1]),
    "window first": Model(["window 1024", "full"], [4, -1]),
    "three": Model(["full", "window 256", "state"], [-1, 1, 1]),
}


def fold(model: Model, there: Set[ObjectKey], keys: Sequence[ObjectKey]) -> Tuple[int, Set[ObjectKey]]:
    """What the server makes of the bits of all keys: how many chunks every group can serve,
    and the objects that it retains for them."""
    by: Dict[int, Dict[bytes, List[ObjectKey]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for key in keys:
        by[key.object_group_id][key.chunk_hash].append(key)
    whole = {g: [all(k in there for k in ranks) for ranks in chunks.values()] for g, chunks in by.items()}
    n = max(n for n in range(len(by[0]) + 1) if all(whole[g][i] for g in by for i in model.chunks(g, n)))
    kept = {k for g in by for i in model.chunks(g, n) for k in list(by[g].values())[i]}
    return n, kept


class GroupCase(Case):
    def ask(self, c: Controllers, keys: List[ObjectKey]) -> Set[ObjectKey]:
        return {key for key, yes in zip(keys, c.lookup(keys)) if yes}

    def sparse(self, model: Model, chunks: Sequence[bytes], world: int, ends: Sequence[int]) -> List[ObjectKey]:
        """All of the full groups, and of the others what prefixes with these ends need."""
        keys = keys_of(chunks, world, groups=len(model.windows))
        wanted = {(g, chunks[i]) for g in range(len(model.windows)) for n in ends for i in model.chunks(g, n)}
        return [k for k in keys if model.windows[k.object_group_id] < 0 or (k.object_group_id, k.chunk_hash) in wanted]


class Groups(GroupCase):
    def test_one_request_and_no_more_than_is_needed(self) -> None:
        model, chunks = MODELS["three"], prompt("one request", 40)
        c = self.adapter(groups=model.kinds)
        self.store(c, self.sparse(model, chunks, 2, [10, 30]))
        keys = keys_of(chunks, 2, groups=3)
        c.lookup(keys[:6])  # the spaces are open
        with counted() as sent:
            found = self.ask(c, keys)
            self.assertEqual([op for op in sent if op != "release"], ["batch"])
        self.assertEqual(found, fold(model, set(self.sparse(model, chunks[:30], 2, [30])), keys)[1])
        self.assertEqual(len(found), 2 * (30 + 1 + 1))
        needed = [k for k in keys if k in found]
        self.check(c, needed, [True] * len(needed))
        c.adapter.submit_unlock(needed)
        self.assertFalse(c.adapter._held._leases)

    def test_a_question_that_is_refused(self) -> None:
        """It is a miss of all, and said."""
        c, keys = self.adapter(groups=["full", "state"]), keys_of(prompt("refused", 4), groups=2)
        self.store(c, keys)
        refused = Job(None, 1.0, error=Refused("batch", Code.BAD_REQUEST, "no"))
        with mock.patch.object(Asking, "wait", lambda _: ([refused], [0])), self.assertLogs("kvstored.lmcache", "ERROR"):
            self.assertEqual(self.ask(c, keys), set())
        self.assertEqual(len(self.ask(c, keys)), 5)


class Histories(GroupCase):
    dram = "512MiB"

    def test_histories(self) -> None:
        done: Counter[str] = collections.Counter()
        r, models = random.Random(SEED), list(MODELS.items())
        with Daemon("512MiB") as daemon:
            servers = {
                name: [self.adapter(daemon.socket, groups=kinds, namespace=name) for kinds in (model.kinds, model.kinds, None)] for name, model in models
            }
            for n in range(HISTORIES):
                name, model = models[n % len(models)]
                with self.subTest(name, history=n):
                    self.history(r, servers[name], model, n, done)
        if HISTORIES >= 100:
            for what in ("hit", "missed", "shorter", "deleted", "from the middle"):
                self.assertGreater(done[what], HISTORIES / 10, dict(done))
        print(f"{HISTORIES} histories of object groups, seed {SEED}: {dict(done)}")

    def history(self, r: random.Random, servers: List[Controllers], model: Model, n: int, done: Counter[str]) -> None:
        stored: Set[ObjectKey] = set()
        world = r.choice((1, 1, 2))
        roots = [prompt((n, p), 12, after=prompt((n,), r.randint(0, 9))) for p in range(2)]
        for _ in range(r.randint(4, 10)):
            c, chunks = r.choice(servers), r.choice(roots)[: r.randint(1, 12)]
            keys = keys_of(chunks, world, groups=len(model.windows))
            step = r.random()
            if step < 0.4:
                ends = [len(chunks), r.randint(1, len(chunks))]
                some = self.sparse(model, chunks, world, ends) if r.random() < 0.7 else keys
                some = some if r.random() < 0.7 else [k for k in some if r.random() < 0.9]
                if some:
                    self.store(c, some)
                    stored.update(some)
            elif step < 0.55 and stored:
                gone = r.sample(sorted(stored), min(len(stored), r.choice((1, 2, 5))))
                c.adapter.delete(gone)
                stored -= set(gone)
                done["deleted"] += 1
            else:
                self.look(r, c, model, chunks, keys, stored, done)

    def look(
        self, r: random.Random, c: Controllers, model: Model, chunks: List[bytes], keys: List[ObjectKey], stored: Set[ObjectKey], done: Counter[str]
    ) -> None:
        # The server's own memory may have the beginning, and asks for the rest.
        first = r.choice((0, 0, r.randrange(len(chunks))))
        if first:
            c.adapter.submit_unlock(sorted(self.ask(c, keys)))  # the lookup says what comes before
            own = {k for k in keys if chunks.index(k.chunk_hash) < first}
            done["from the middle"] += 1
        else:
            own = set()
        asked = [k for k in keys if k not in own]
        found = self.ask(c, asked)
        hit, kept = fold(model, stored | own, keys)
        self.assertEqual(fold(model, found | own, keys)[0], hit, (len(chunks), first))
        # Without groups it is all that is there: the server takes what it needs.
        self.assertEqual(found, kept - own if c.adapter._options["groups"] else stored & set(asked))
        done["hit" if hit > first else "missed"] += 1
        done["shorter"] += hit < len(chunks)
        needed = [k for k in asked if k in found]
        self.check(c, needed, [True] * len(needed))
        c.adapter.submit_unlock(needed)
