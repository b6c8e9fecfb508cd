"""KvstoredHiCache under the steps of SGLang's cache controller, in each form of its
interface, with each family of pools: with stand-ins of the form's classes, and
with SGLang's own where they are on the path."""

import contextlib
import importlib
import inspect
import queue
import unittest
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List
from unittest import mock

import kvstored.sglang
from sglang.srt.mem_cache import hicache_storage

from . import contracts
from .daemon import Served
from .sglang_engine import FAMILIES, PAGE, Controller, Rank, Shape
from .sglang_pools import chain

FORMS = contracts.load("sglang")
_STORAGE = "sglang.srt.mem_cache.hicache_storage"
own = hicache_storage if hasattr(hicache_storage, "__file__") else None  # else stand-ins


class Stage:
    """A form with its classes: stand-ins, or SGLang's own."""

    def __init__(self, form: contracts.Form, backend: Any, real: bool) -> None:
        self.form, self.backend, self.real = form, backend, real

    def cls(self, name: str) -> Any:
        return getattr(importlib.import_module(_STORAGE), name)

    def make(self, kind: str, value: Any = None, /, **fields: Any) -> Any:
        return self.cls(kind)(**fields) if value is None else self.cls(kind)(value)

    def config(self, rank: Rank, **extra: Any) -> Any:
        """The part of it that this form's configuration has."""
        config = self.cls("HiCacheStorageConfig")
        known = inspect.signature(config).parameters
        return config(**{k: v for k, v in rank.config.items() if k in known}, extra_config=extra)

    def controller(self, rank: Rank, **extra: Any) -> Controller:
        line = {"backend_name": "kvstored", "module_path": "kvstored.sglang", "class_name": "KvstoredHiCache"}
        config = self.config(rank, **line, interface_v1=int(rank.shape.v1), **extra)
        target = self.backend(config, {})
        assert isinstance(target, self.cls("HiCacheStorage"))
        return Controller(self.form, target, rank, self.make)


@contextlib.contextmanager
def stage(form: contracts.Form) -> Iterator[Stage]:
    with form.installed("kvstored.sglang") as (module,):
        yield Stage(form, module.KvstoredHiCache, False)


class Forms(unittest.TestCase):
    def test_every_call_is_taken(self) -> None:
        for form in FORMS:
            with stage(form) as s:
                self.assertEqual(form.refused(s.backend), [], form)

    def test_sglangs_own_is_in_the_data(self) -> None:
        if own is None:
            self.skipTest("SGLang is not on the path: only stand-ins are tested")
        form, differences = contracts.nearest(FORMS)
        print(f"SGLang is {form.name}")
        self.assertEqual(differences, [])


class Hybrid:
    """SGLang's own HybridCacheController of one rank: its functions of the storage,
    without its threads and process groups."""

    def __init__(self, module: Any, controller: Controller) -> None:
        self.module, self.ours, self.rank = module, controller, controller.rank
        self.it = it = object.__new__(module.HybridCacheController)
        entries = {controller.pool_name(n): SimpleNamespace(host_pool=pool) for n, pool in self.rank.pools.items()}
        it.mem_pool_host = SimpleNamespace(entry_map=entries, layout_lease=contextlib.nullcontext)
        it.storage_backend, it.storage_backend_type, it.page_size = controller.target, "dynamic", PAGE
        it.storage_config = controller.make("HiCacheStorageConfig", **self.rank.config)
        it.page_get_func, it.page_set_func = it._page_get_zero_copy, it._page_set_zero_copy
        it.prefetch_sync_queue = queue.Queue()
        it.append_host_mem_release = lambda *_, **__: None

    def transfers(self, keys: List[str]) -> Any:
        """Pools with indices of their own have them already."""
        sides = self.rank.family.sides
        made = self.ours.transfers(keys, sides)
        for transfer, side in zip(made, sides):
            if side.source is None:
                self.ours.resolve([transfer], [side], keys, 0)
        return made

    def backup(self, keys: List[str]) -> Any:
        indices = self.rank.pools["kv"].slots(list(range(len(keys))))
        operation = self.module.StorageOperation(
            indices, [0] * (PAGE * len(keys)), hash_value=list(keys), pool_transfers=self.transfers(keys)
        )
        self.it._page_backup(operation)
        return operation

    def prefetch(self, keys: List[str]) -> Any:
        """Asks for keys and loads what is there; the hit, and the operation."""
        kv, made = self.rank.pools["kv"], self.transfers(keys)
        operation = self.module.PrefetchOperation(
            self.module.CacheRequestHandle("r", 0), [0] * (PAGE * len(keys)), pool_transfers=made
        )
        with mock.patch.object(self.module, "get_storage_hash_str", return_value=keys):
            operation.hash_value, tokens = self.it._storage_hit_query(operation)
        hit = tokens // PAGE
        operation.host_indices = kv.slots(list(range(hit)))
        for transfer, side in zip(made, self.rank.family.sides):
            if side.source is None:  # the window that the hit ends with
                self.ours.resolve([transfer], [side], keys[:hit][-side.last :] if side.last else keys[:hit], 0)
                transfer.host_indices = self.rank.pools[side.name].slots(list(range(max(0, hit - side.last), hit)))
        self.rank.wipe()
        self.it._page_transfer(operation)
        return hit, operation


class Steps(Served):
    dram = "128MiB"

    def each(self, run: Any) -> None:
        for form in FORMS:
            with stage(form) as s:
                self.families(s, run)
        if own is not None:
            self.families(self.real(), run)

    @staticmethod
    def real() -> Stage:
        return Stage(contracts.nearest(FORMS).form, kvstored.sglang.KvstoredHiCache, True)

    def families(self, s: Stage, run: Any) -> None:
        for family in FAMILIES:
            with self.subTest(s.form.name, family=family, real=s.real):
                run(s, family)

    def ranks(self, s: Stage, family: str, shape: Shape, model: str) -> List[Controller]:
        made = [
            s.controller(Rank(f"{model} {s.form.name} {s.real}", family, shape, tp, pp), socket=self.daemon.socket, timeout=60)
            for tp in range(shape.tp)
            for pp in range(shape.pp)
        ]
        for controller in made:
            self.addCleanup(controller.target.close)
        return made

    def check(self, controller: Controller, keys: List[str], hit: int, loaded: Dict[str, List[bool]]) -> None:
        rank = controller.rank
        for side in (rank.family.kv, *rank.family.sides):
            first = max(0, hit - side.last) if side.last else 0
            self.assertEqual(loaded[side.name], [True] * (hit - first), side.name)
            for p in range(first, hit):
                self.assertEqual(rank.pools[side.name].page(p), rank.right(side.name, keys[p]), (side.name, p))

    def test_backup_and_prefetch(self) -> None:
        """Of a prompt and of a longer one; each rank finds what is written for it."""

        def run(s: Stage, family: str) -> None:
            for v1 in (True, False):
                controllers = self.ranks(s, family, Shape(tp=2, v1=v1), f"steps {family} {v1}")
                keys = chain(family, 9)
                for first, end in ((0, 6), (6, 8)):
                    for controller in controllers:
                        controller.rank.fill(keys[first:end], first)
                        for name, stored in controller.backup(keys[first:end], first).items():
                            self.assertEqual(set(stored), {True}, name)
                for controller in controllers:
                    expected = self.finds(controller, family)
                    self.assertEqual(controller.query(keys)[0], expected)
                    controller.rank.wipe()
                    if expected:
                        self.check(controller, keys, expected, controller.prefetch(keys[:expected]))

        self.each(run)

    @staticmethod
    def finds(controller: Controller, family: str) -> int:
        """Of 8 pages, which are all written by rank 0."""
        sides = (controller.rank.family.kv, *controller.rank.family.sides)
        own = controller.rank.identity
        first = Rank(controller.rank.config["model_name"], family, controller.rank.shape)
        return 8 if all(first.identity(s.name) == own(s.name) or controller.rank.writes(s) for s in sides) else 0

    def test_under_sglangs_own_controller(self) -> None:
        try:
            module = importlib.import_module("sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller")
        except ImportError:
            self.skipTest("SGLang's hybrid controller is not on the path: only our reading of it is tested")

        def run(s: Stage, family: str) -> None:
            if not FAMILIES[family].sides:
                return
            hybrids = [Hybrid(module, c) for c in self.ranks(s, family, Shape(tp=2), f"own {family}")]
            keys = chain(f"own {family}", 6)
            for hybrid in hybrids:
                hybrid.rank.fill(keys, 0)
                self.assertEqual(hybrid.backup(keys).completed_tokens, self.backs_up(hybrid) * PAGE)
            for hybrid in hybrids:
                expected = 6 if self.finds(hybrid.ours, family) else 0
                hit, operation = hybrid.prefetch([*keys, *chain("absent", 2)])
                self.assertEqual(hit, expected)
                if hit:
                    for side in (hybrid.rank.family.kv, *hybrid.rank.family.sides):
                        for p in range(max(0, hit - side.last) if side.last else 0, hit):
                            right = hybrid.rank.right(side.name, keys[p])
                            self.assertEqual(hybrid.rank.pools[side.name].page(p), right, (side.name, p))

        self.families(self.real(), run)

    @staticmethod
    def backs_up(hybrid: Hybrid) -> int:
        """Pages that count as backed up: on other ranks of MLA those of state alone."""
        return 6 if not hybrid.it.backup_skip or "mamba" in hybrid.rank.pools else 0

    def test_last_keys_are_cut_again(self) -> None:
        """What the ranks agree on is shorter than what each found: the window is that
        of the shorter prefix."""

        def run(s: Stage, family: str) -> None:
            if not any(side.last for side in FAMILIES[family].sides):
                return
            (controller,) = self.ranks(s, family, Shape(), f"cut {family}")
            keys = chain(f"cut {family}", 8)
            for first, end in ((0, 5), (5, 8)):
                controller.rank.fill(keys[first:end], first)
                controller.backup(keys[first:end], first)
            self.assertEqual(controller.query(keys)[0], 8)
            controller.rank.wipe()
            self.check(controller, keys, 5, controller.prefetch(keys[:5]))

        self.each(run)

    def test_a_page_that_is_gone_ends_the_prefetch(self) -> None:
        """After it nothing counts, and the pools that hold last pages are not asked."""

        def run(s: Stage, family: str) -> None:
            (controller,) = self.ranks(s, family, Shape(), f"gone {family}")
            keys = chain(f"gone {family}", 4)
            controller.rank.fill(keys[:3], 0)
            controller.backup(keys[:3], 0)
            loaded = controller.prefetch(keys)
            self.assertEqual(loaded["kv"], [True] * 3 + [False])
            for side in controller.rank.family.sides:
                if side.last:
                    self.assertNotIn(side.name, loaded)

        self.each(run)

    def test_the_daemon_dies_between_steps(self) -> None:
        """Every answer keeps its form: the steps of the controller assert it."""
        form = FORMS[-1]
        with stage(form) as s:
            for family in FAMILIES:
                rank = Rank("dead", family, Shape())
                controller = s.controller(rank, socket="/nonexistent/s", timeout=0.2)
                self.addCleanup(controller.target.close)
                keys = chain("dead", 3)
                with self.subTest(family):
                    self.assertEqual(controller.query(keys), (0, {}))
                    self.assertFalse(any(any(stored) for stored in controller.backup(keys, 0).values()))
                    self.assertEqual(set(controller.prefetch(keys)["kv"]), {False})
                    for event in ("clear", "stats"):
                        controller.run(event)

    def test_fields_of_the_answer(self) -> None:
        """Where SGLang's answer may name the prefixes that can be restored, it does."""
        for form in FORMS:
            with stage(form) as s:
                (controller,) = self.ranks(s, "MHA, state", Shape(), "restorable")
                keys = chain(f"restorable {form.name}", 7)
                for end in (3, 6):
                    controller.rank.fill(keys[:end], 0)
                    controller.backup(keys[:end], 0)
                found = controller.run(
                    "query_v2", keys=keys, transfers=controller.transfers(keys, controller.rank.family.sides), extra_info=None
                )
                self.assertEqual(type(found).__name__, "PoolTransferResult")
                self.assertEqual(found.restorable_prefix_pages, [3, 6])
