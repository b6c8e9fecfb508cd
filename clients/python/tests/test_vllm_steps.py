"""Whole steps of vLLM's scheduler on KvstoredTier under a live daemon: with the
stand-ins of every form of contracts/vllm.json, and with vLLM's own classes where
they can be imported."""

import random
import time
import unittest
from typing import Any, Callable, Dict, List, Tuple
from unittest import mock

import kvstored.vllm

from . import contracts, engines
from .daemon import Daemon, Served, enter, until
from .engines import needs_vllm
from .vllm_engine import ROW, Engine, keys, row

FORMS = contracts.load("vllm")
MODULES = ("kvstored.vllm", "kvstored.vllm.jobs", "kvstored.vllm.lookup", "kvstored.vllm.order", "kvstored.vllm.stats", "kvstored.vllm.space")


class Scripts:
    """Each is run with one engine after the other."""

    daemon: Daemon
    engine: Callable[..., Engine]
    assertEqual: Any
    assertTrue: Any
    assertLess: Any

    def name(self) -> str:
        """Of blocks that no other test has."""
        return f"{self}/{random.random()}"

    def evicted(self) -> Tuple[Engine, List[bytes], Any]:
        """An engine, blocks that its host memory has no more, and the request that stored them."""
        engine, wanted = self.engine(), keys(self.name(), 6)
        first = engine.request("first")
        engine.store(wanted, first)
        engine.settle()
        engine.store(keys(self.name(), 15), first)
        engine.settle()
        return engine, wanted, first

    def test_store_evict_load(self) -> None:
        engine, wanted, other = self.engine(), keys(self.name(), 12), keys(self.name(), 12)
        first = engine.request("first")
        self.assertEqual(engine.load(wanted, first), [])
        self.assertEqual(engine.store(wanted, first), 12)
        engine.settle()
        self.assertEqual(engine.store(other, first), 12)  # evicts most of the others from host memory
        engine.settle()
        engine.finish(first)
        second = engine.request("second")
        for again in (wanted, other, [*wanted[:5], *other[:5]]):
            self.assertEqual(engine.load(again, second), [row(k) for k in again])
            engine.settle()
        half = [*wanted[:3], *keys(self.name(), 1), *wanted[3:6]]
        self.assertEqual(engine.load(half, second), [row(k) for k in half[:3]])
        engine.finish(second)
        restarted = self.engine()
        self.assertEqual(restarted.load(wanted, restarted.request("third")), [row(k) for k in wanted])

    def test_groups_and_windows(self) -> None:
        """As hybrid models ask: a group from its start, another from its end on, both
        again and again. Each block is loaded once."""
        engine, name = self.engine(), self.name()
        full, window = keys(name, 5), keys(name, 5, group=1)
        first = engine.request("first")
        engine.store(full + window, first)
        engine.settle()
        engine.store(keys(self.name(), 14), first)
        engine.settle()
        second = engine.request("second")
        for _ in range(3):
            engine.ask([*full, *window[::-1], *full[::-1]], second)
        engine.settle()
        self.assertEqual(engine.load([*window[::-1], *full], second), [row(k) for k in [*window[::-1], *full]])
        if hasattr(engine.manager, "loads"):
            loaded = [k for job in engine.manager.loads for k in job.keys]
            self.assertEqual(len(loaded), len(set(loaded)))

    def test_a_preempted_request(self) -> None:
        """Its promotions go on; it ends, and others have its blocks."""
        engine, wanted, first = self.evicted()
        preempted = engine.request("preempted")
        engine.ask(wanted, preempted)
        engine.finish(preempted)
        engine.finish(first)
        engine.settle()
        self.assertEqual(engine.load(wanted, engine.request("third")), [row(k) for k in wanted])

    def test_a_hit_that_cannot_be_loaded(self) -> None:
        """Its block is a miss then; what else the job was to bring is there, where vLLM lets it say so."""
        engine, wanted, _ = self.evicted()
        second = engine.request("second")
        real = engine.tier._load_run
        lost = wanted[2]

        def loses(job: Any, run: Any, places: Any) -> List[bool]:
            return [ok and k != lost for k, ok in zip(run.keys, real(job, run, places))]

        with mock.patch.object(engine.tier, "_load_run", loses):
            engine.ask(wanted, second)
            engine.settle()
            self.assertEqual(engine.ask([lost], second), {lost: engine.results.MISS})
        self.assertEqual(engine.load(wanted[:2], second), [row(k) for k in wanted[:2]])
        self.assertEqual(engine.load(wanted[3:], second), [row(k) for k in wanted[3:]])

    def test_a_request_that_is_gone_before_its_answer(self) -> None:
        """What is heard of it then is kept for nobody, and another one of its name is asked for anew."""
        engine, wanted, first = self.evicted()
        engine.finish(first)
        for n in range(20):
            gone = engine.request(f"gone {n}")
            asked = [*wanted, *keys(self.name(), 40)]
            for i, key in enumerate(asked):
                getattr(gone, "set_offload_key_position", lambda *_: None)(key, 16 * (i + 1))
            for key in asked:
                engine.manager.lookup(key, gone)
            engine.step()  # the question goes out
            engine.finish(gone)
        lookups = engine.tier._lookups

        def kept() -> int:
            engine.step()
            lookups._hear()
            return sum(len(of) for of in (lookups._asked, lookups._answers, lookups._counted, lookups._sources, lookups._leases))

        until(lambda: kept() == 0 and lookups.worker.idle and not lookups.questions)
        self.assertEqual(engine.load(wanted, engine.request("gone 3")), [row(k) for k in wanted])

    def test_reset(self) -> None:
        engine, wanted = self.engine(), keys(self.name(), 10)
        request = engine.request("first")
        self.assertEqual(engine.store(wanted, request), 10)
        engine.manager.reset_cache()  # at once: it drains
        if hasattr(engine.manager, "on_reset_flushed"):
            engine.manager.on_reset_flushed()  # 0.33 promotes nothing before
        self.assertEqual(engine.load(wanted, engine.request("second")), [row(k) for k in wanted])

    def test_shutdown_in_the_middle(self) -> None:
        engine, wanted = self.engine(), keys(self.name(), 8)
        request = engine.request("first")
        engine.store(wanted, request)
        engine.ask(keys(self.name(), 3), request)
        began = time.monotonic()
        engine.close()
        self.assertLess(time.monotonic() - began, 30)

    def test_the_daemon_dies(self) -> None:
        with Daemon(dram="16MiB") as daemon:
            engine = self.engine(daemon.socket)
            wanted, request = keys(self.name(), 8), engine.request("first")
            self.assertEqual(engine.store(wanted, request), 8)
            daemon.kill()
            engine.settle()
            self.assertEqual(engine.load(wanted, request), [row(k) for k in wanted])  # of host memory
            self.assertEqual(engine.load(keys(self.name(), 2), request), [])
            self.assertEqual(engine.store(keys(self.name(), 16), request), 16)
            engine.settle()
            self.assertEqual(dict(engine.jobs), {})

    def test_events_and_metrics(self) -> None:
        """What the form has of them."""
        engine, wanted = self.engine(), keys(self.name(), 5)
        request = engine.request("first")
        engine.load(wanted, request)
        engine.store(wanted, request)
        engine.settle()
        engine.step()
        events = [event for event in engine.events if event.medium == engine.tier.medium]  # not of host memory
        self.assertEqual([key for event in events for key in event.keys], [])  # that daemon tells none
        self.assertTrue(engine.tier.build_metric_definitions({}))
        counts = dict(engine.manager.get_stats().reduce())
        self.assertEqual(counts["vllm:kvstored_bytes:('store',)"], 5 * ROW)
        self.assertEqual(counts["vllm:kvstored_lookups:('miss',)"], 5)


def stand_in(test: unittest.TestCase, form: contracts.Form, socket: str, rows: int = 16, **tier: Any) -> Engine:
    """On the stand-ins of a form, which are there for as long as the test."""
    modules = enter(test, form.installed(*MODULES))
    stats = modules[MODULES.index("kvstored.vllm.stats")]
    stats.ConnectorStats = recording(stats.ConnectorStats)
    lookups = modules[MODULES.index("kvstored.vllm.lookup")]
    lookups._HIT_SECONDS = lookups._MISS_SECONDS = 600.0  # a machine that stands still for seconds makes no answer old
    engine = Engine.of(form, modules[0], socket, rows, **tier)
    test.addCleanup(engine.manager.shutdown)
    return engine


def recording(base: Any) -> Any:
    """A stand-in for vLLM's stats that keeps what it is told, as vLLM's does."""

    class Stats(base):
        def __init__(self) -> None:
            self.counts: Dict[str, int] = {}

        def increase_counter(self, counter_name: str, counter_increase_value: int = 1, labelvalues: Any = ()) -> None:
            name = f"{counter_name}:{labelvalues}" if labelvalues else counter_name
            self.counts[name] = self.counts.get(name, 0) + counter_increase_value

        def reduce(self) -> Dict[str, int]:
            return self.counts

    return Stats


def of_form(form: contracts.Form) -> type:
    class OfForm(Scripts, Served):
        def engine(self, socket: str = "") -> Engine:  # type: ignore[override]
            return stand_in(self, form, socket or self.daemon.socket, enable_kv_events=True)

        def test_nothing_is_refused(self) -> None:
            tier = self.engine().tier
            self.assertEqual(form.refused(type(tier)), [])
            self.assertTrue(tier._events.enabled)

    return type(f"Form{form.name.title()}".replace(" ", "").replace(".", "_").replace("-", "_"), (OfForm,), {})


for _form in FORMS:
    _test = of_form(_form)
    globals()[_test.__name__] = _test
del _test, _form


@needs_vllm
class Managed(Scripts, Served):
    """With vLLM's own."""

    def engine(self, socket: str = "") -> Engine:  # type: ignore[override]
        engine = Engine.real(socket or self.daemon.socket, 16)
        self.addCleanup(engine.manager.shutdown)
        return engine

    def test_its_interface_is_in_the_data(self) -> None:
        form, differences = contracts.nearest(FORMS)
        self.assertEqual(differences, [], f"vLLM's interface is nearest to {form}, and differs from it")

    def test_it_is_made_of_the_documented_line(self) -> None:
        engine = self.engine()
        self.assertTrue(isinstance(engine.tier, kvstored.vllm.KvstoredTier))
        self.assertTrue(isinstance(engine.tier, engines.tiering.SecondaryTierManager))

    def test_found_by_its_module(self) -> None:
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

        with mock.patch.dict(SecondaryTierFactory._registry, clear=True):
            for line in engines.documented()["secondary_tiers"]:
                self.assertIs(SecondaryTierFactory.get_tier_class(line), kvstored.vllm.KvstoredTier)
