"""What KvstoredHiCache makes of SGLang's prefix_keys, against a live daemon."""

import json
import logging
import time
from types import SimpleNamespace
from typing import Any, List, Sequence

from kvstored.chains import digests
from kvstored.sglang import KvstoredHiCache
from kvstored.sglang.order import Order, hints

from .common import Common
from .daemon import Daemon, Served, leases_stay
from .frames import counted, left, options, run_of
from .sglang_pools import HostPool, chain, config
from .test_sglang import slots, value

BATCH = 128
SIZE = 3000


def large(size: int = SIZE) -> HostPool:
    """More pages than the others have."""
    return HostPool(600, 16, [size])


def info(prefix: Any = None, **extra: Any) -> Any:
    return SimpleNamespace(prefix_keys=prefix, extra_info=extra or None)


class Tree:
    """The calls of SGLang's cache controller for keys and values: batches of 128
    pages, of which each has the pages before it, unless the prompt begins there."""

    def __init__(self, backend: KvstoredHiCache, pool: HostPool, passes: bool = True) -> None:
        self.backend, self.pool, self.passes = backend, pool, passes

    def _batches(self, keys: Sequence[str], known: int) -> Any:
        prefix = list(keys[:known]) if self.passes and known else None
        for i in range(known, len(keys), BATCH):
            part = list(keys[i : i + BATCH])
            yield i, part, info(None if prefix is None else list(prefix))
            if prefix is not None:
                prefix += part

    def query(self, keys: Sequence[str], known: int = 0) -> int:
        hit = 0
        for _, part, extra in self._batches(keys, known):
            n = self.backend.batch_exists(part, extra)
            hit += n
            if n < len(part):
                break
        return hit

    def backup(self, keys: Sequence[str], known: int = 0) -> List[bool]:
        stored: List[bool] = []
        for i, part, extra in self._batches(keys, known):
            for p, key in enumerate(part, i):
                self.pool.fill(p, value(key, self.pool))
            stored += self.backend.batch_set_v1(part, slots(list(range(i, i + len(part)))), extra)
        return stored

    def load(self, keys: Sequence[str], known: int = 0) -> List[bool]:
        loaded: List[bool] = []
        for i, part, extra in self._batches(keys, known):
            loaded += self.backend.batch_get_v1(part, slots(list(range(i, i + len(part)))), extra)
        return loaded


class Prefixes(Common, Served):
    dram, tokens = "128MiB", 16

    def start(self, socket: str, size: int = SIZE, **options: Any) -> Tree:
        return self.tree("common", socket=socket, size=size, **options)

    def keys(self, names: Sequence[bytes]) -> List[str]:
        return [name.hex() for name in names]

    def find(self, it: Tree, keys: List[str]) -> int:
        return it.query(keys)

    def put(self, it: Tree, keys: List[str], known: int = 0) -> bool:
        return all(it.backup(keys, known))

    def load(self, it: Tree, keys: List[str]) -> int:
        it.pool.wipe()
        n = sum(it.load(keys))
        self.check(it, keys[:n])
        return n

    def left(self, it: Tree, keys: List[str]) -> List[bool]:
        return left(it.backend._client, it.backend._of().space, [key.encode() for key in keys])

    def prefill(self, it: Tree) -> Any:
        return it.backend._prefill

    def hurry(self, it: Tree) -> None:
        it.backend._timeout = 1.0

    def idle(self, it: Tree) -> bool:
        return True  # a lease of its queries ends by itself

    def tree(self, name: str, passes: bool = True, socket: str = "", size: int = SIZE, **extra: Any) -> Tree:
        cfg, pool = config(name), large(size)
        cfg.extra_config = {"socket": socket or self.daemon.socket, "timeout": 60, **extra}
        backend = KvstoredHiCache(cfg, {})
        self.addCleanup(backend.close)
        backend.register_mem_pool_host(pool)
        backend._client.wait_attached(60)
        return Tree(backend, pool, passes)

    def check(self, tree: Tree, keys: Sequence[str], first: int = 0) -> None:
        for p in range(first, len(keys)):
            self.assertEqual(tree.pool.page(p), value(keys[p], tree.pool), p)

    def test_one_request_for_a_lookup_and_two_for_a_load(self) -> None:
        leases_stay(self)
        tree, keys = self.tree("frames"), chain("frames", 512)
        self.assertEqual(set(tree.backup(keys)), {True})
        raw, extra = keys, info([])
        with counted() as sent:
            self.assertEqual(tree.backend.batch_exists(raw, extra), 512)
            self.assertEqual(sent, ["prefetch"])
            sent.clear()
            self.assertEqual(tree.backend.batch_exists_v2(raw, None, extra).kv_hit_pages, 512)
            self.assertEqual(sent, ["prefetch"])
            tree.pool.wipe()
            sent.clear()
            self.assertEqual(tree.backend.batch_get_v1(raw, slots(list(range(512))), extra), [True] * 512)
            self.assertEqual([s for s in sent if s != "release"], [])  # it is leased
            tree.pool.wipe()
            tree.backend._hints.drop()
            sent.clear()
            self.assertEqual(tree.backend.batch_get_v1(raw, slots(list(range(512))), extra), [True] * 512)
            self.assertEqual([s for s in sent if s != "release"], ["prefetch"])
        self.check(tree, keys)

    def test_contradictions_lose_nothing(self) -> None:
        """One engine passes prefixes, one does not, one passes those of another prompt."""
        keys = chain("disputed", 12)
        trees = [self.tree("disputed", passes) for passes in (True, False, True)]
        wrong = info(chain("a lie", 3))
        trees[2].backend.batch_exists(keys[4:8], wrong)
        self.assertEqual(trees[2].backend.batch_set_v1(keys[4:8], slots([4, 5, 6, 7]), wrong), [True] * 4)
        for p in range(4, 8):
            trees[2].pool.fill(p, value(keys[p], trees[2].pool))
        trees[2].backend.clear()
        self.assertEqual(trees[2].backend.batch_set_v1(keys[4:8], slots([4, 5, 6, 7]), wrong), [True] * 4)
        self.assertEqual(set(trees[1].backup(keys, 8)), {True})
        self.assertEqual(set(trees[0].backup(keys[:4])), {True})
        for tree in trees:
            self.assertEqual((tree.query(keys), tree.query(keys, 4), tree.query(keys, 8)), (12, 8, 4))
            tree.pool.wipe()
            self.assertEqual(tree.load(keys), [True] * 12)
            self.check(tree, keys)

    def test_v2_remembers_what_the_query_said(self) -> None:
        """Pools beside keys and values are stored in the order of the query's prompt."""
        with Daemon(dram="16MiB") as daemon:
            tree = self.tree("beside", socket=daemon.socket)
            index = large(60_000)
            tree.backend.register_mem_host_pool_v2(index, "indexer")
            keys = chain("beside", 120)
            transfer = SimpleNamespace(name="indexer", keys=keys, host_indices=slots(list(range(120))), hit_policy="all_pages")
            self.assertEqual(tree.backend.batch_exists_v2(keys, [transfer], info([])).kv_hit_pages, 0)
            self.assertEqual(tree.backend.batch_set_v2([transfer]), {"indexer": [True] * 120})
            space = tree.backend._of("indexer").space
            for i in range(60):
                more = SimpleNamespace(name="indexer", keys=chain(f"more {i}", 8), host_indices=slots(list(range(8))))
                tree.backend.batch_set_v2([more])
                there = left(tree.backend._client, space, [k.encode() for k in keys])
                if not all(there):
                    self.assertGreater(run_of(there), 0)
                    return
            self.fail("nothing was evicted")

    def test_quirks_of_what_is_passed(self) -> None:
        tree, keys = self.tree("quirks"), chain("quirks", 3)
        for i, prefix in enumerate(([], (None,), [None], "text", 5, {"a": 1}, [b"x"], keys, keys[::-1] * 2, ...)):
            with self.subTest(prefix=prefix):
                own = chain(f"quirk {i}", 3)
                self.assertEqual(tree.backend.batch_exists(own, info(prefix)), 0)
                self.assertEqual(tree.backend.batch_set_v1(own, slots([0, 1, 2]), info(prefix)), [True] * 3)
                self.assertEqual(tree.backend.batch_exists(own, info(prefix)), 3)
                self.assertEqual(tree.backend.batch_get_v1(own, slots([0, 1, 2]), info(prefix)), [True] * 3)
        self.assertEqual(tree.backend.batch_exists([], info([])), 0)
        self.assertEqual(tree.backend.batch_get_v1([], [], info([])), [])

    def test_its_absence_is_said_once(self) -> None:
        silent, passing = self.tree("silent"), self.tree("passing")
        with self.assertLogs("kvstored.sglang", "WARNING") as said:
            for i in range(200):
                silent.backend.batch_exists(chain(f"silent {i}", 1), info())
            for i in range(200):
                passing.backend.batch_exists(chain(f"passing {i}", 2)[1:], info(chain(f"passing {i}", 1)))
        self.assertEqual(len([m for m in said.output if "hicache_storage_pass_prefix_keys" in m]), 1)

    def test_what_is_remembered_is_bounded(self) -> None:
        order = Order(passes=True)
        order._chains._most = 100
        for i in range(50):
            order.said("query", [b"%d/%d" % (i, n) for n in range(10)], info([]))
        self.assertLessEqual(len(order._chains._before), 100)
        self.assertIsNone(order.before([b"unknown"]))

    def test_whole_batches_go_on(self) -> None:
        """Without prefixes the batches of one prompt follow each other."""
        tree, keys = self.tree("batches", passes=False), chain("batches", 300)
        self.assertEqual(set(tree.backup(keys)), {True})
        raw = digests([key.encode() for key in keys])
        self.assertEqual(tree.backend._order.before(raw[256:]), raw[:256])

    def test_what_was_said_first_stays(self) -> None:
        order = Order(passes=True)
        for before in ("1", "3"):
            order.said("query", [b"2"], info([before]))
        self.assertEqual(order.before(digests([b"2"])), digests([b"1"]))
        self.assertIsNone(order.before(digests([b"2", b"another"])))  # no run of one chain

    def test_a_circle_is_no_chain(self) -> None:
        tree, keys = self.tree("circle"), chain("circle", 4)
        tree.backend.batch_exists(keys[2:], info(keys[:2]))
        tree.backend.batch_exists(keys[:2], info(keys[2:]))
        self.assertEqual(set(tree.backup(keys[::-1])), {True})
        self.assertEqual(tree.query(keys), 4)

    def test_hints(self) -> None:
        """Those of a request, and the depth, go with each question, of one pool or of several; the
        log has what the daemon says of those that do not count."""
        action = {"action_id": "a", "action_type": "kv.evaporate", "action_version": "1.0"}
        envelope = {"protocol_version": "0.1", "message_id": "m", "actions": [action]}
        self.assertEqual((hints(info([])), hints(None), hints(info([], other=1))), ((), (), ()))
        tree, keys = self.tree("hints", prefill_depth=8000), chain("hints", 2)
        tree.backup(keys)
        tree.backend.register_mem_host_pool_v2(large(), "indexer")
        beside = SimpleNamespace(name="indexer", keys=None, hit_policy="all_pages")
        for said, configs in ((info([]), []), (info([], kv_hints=envelope), [("kv_hints", json.dumps(envelope))])):
            with options("prefetch", "configs") as told, self.assertLogs("kvstored", "INFO") as logs:
                logging.getLogger("kvstored").info("the first")
                self.assertEqual(tree.backend.batch_exists(keys, said), 2)
                tree.backend.batch_exists_v2(keys, [beside], said)
            self.assertEqual([list(given) for given in told], [[("prefill_depth", "8000"), *configs]] * 2)
            self.assertEqual(sum("'a' does not count: the daemon knows no action" in line for line in logs.output), 2 * len(configs), logs.output)

    def test_age(self) -> None:
        """The envelope of a backup says how old its pages become."""
        tree = self.tree("age")
        for seconds in (1, 60):
            action = {"action_type": "kvstored.max_age", "action_version": "1.0", "payload": {"seconds": seconds}}
            keys = chain(f"age {seconds}", 2)
            for p, key in enumerate(keys):
                tree.pool.fill(p, value(key, tree.pool))
            stored = tree.backend.batch_set_v1(keys, slots([0, 1]), info([], kv_hints={"actions": [action]}))
            self.assertEqual(stored, [True, True])
            if seconds == 1:
                time.sleep(1.1)
            self.assertEqual(tree.backend.batch_exists(keys, info([])), 0 if seconds == 1 else 2)
