"""Hybrid models in KvstoredOffloadingSpec: histories of vLLM's lookups, loads and stores by
group, against a store that has everything in a set.

``KVSTORED_HISTORIES`` says how many, ``KVSTORED_SEED`` which.
"""

import collections
import random
from types import SimpleNamespace
from typing import Any, Counter, Dict, List, Optional, Sequence, Set, Tuple
from unittest import mock

from kvstored.vllm import pool, transfers
from kvstored.vllm.order import group, named, number

from . import test_vllm_pool as plain
from .daemon import Daemon, enter, until
from .engines import LookupResult as Lookup
from .test_vllm_groups import GRAIN, HISTORIES, MODELS, SEED, Case, Model, spec_groups
from .test_vllm_pool import Result
from .vllm_scheduler import Group, Prompt, Scheduler, best

PAGE, LAYERS, BLOCKS = 512, 3, 900
ON_AN_ENGINE = 25  # histories
#: Of which chunks of all groups have as many tokens.
EVEN = [name for name, model in MODELS.items() if len({g.chunk for g in model.groups}) == 1 and len(model.groups) > 1]


class Cache(plain.Cache):
    """Groups overlay each other: each has the first tensors, of which every other one has one
    less. Its blocks are none of another's."""

    def __init__(self, groups: int) -> None:
        self.device = SimpleNamespace(type="cpu", index=0)
        self.layers = [bytearray((1 + BLOCKS) * PAGE) for _ in range(LAYERS)]
        self.tensors = [SimpleNamespace(tensor=self._tensor(a), page_size_bytes=PAGE) for a in self.layers]
        self.widths = [LAYERS - i % 2 for i in range(groups)]
        self.group_data_refs = [[SimpleNamespace(tensor_idx=i, page_size_bytes=PAGE) for i in range(n)] for n in self.widths]

    def _tensor(self, layer: bytearray) -> Any:
        return SimpleNamespace(**{**vars(super()._tensor(layer)), "stride": lambda _: PAGE})

    def write(self, block: int, key: bytes, index: int) -> None:
        for i in range(self.widths[index]):
            self.layers[i][block * PAGE : (block + 1) * PAGE] = self._page(key, i)[:PAGE]

    def right(self, block: int, key: bytes, index: int) -> bool:
        return all(self.layers[i][block * PAGE : (block + 1) * PAGE] == self._page(key, i)[:PAGE] for i in range(self.widths[index]))


class Engine:
    """Of one rank, or of the first of two: manager, workers and vLLM's scheduler."""

    def __init__(self, socket: str, model: Model, ranks: int = 1, tell: bool = True, **given: Any) -> None:
        self.model, self.scheduler = model, Scheduler(model.groups, Lookup, model.align)
        self.numbers = [i + g.behind for i, g in enumerate(model.groups)]
        extra = {"kvstored": {"socket": socket, "lookup_timeout": 60, "transfer_timeout": 60, **given}}
        made = [pool.KvstoredOffloadingSpec(config(extra, model, rank, ranks)) for rank in range(ranks)]
        self.caches = [Cache(len(model.groups)) for _ in made]
        self.manager: Any = made[0].get_manager()
        self.workers = [spec.get_worker(cache) for spec, cache in zip(made, self.caches)]
        if tell:
            self.manager.tell(self.configs())
        self.stored: Set[bytes] = set()
        self._jobs = self._requests = 0
        until(lambda: self.manager._client.attached and all(worker._client.attached for worker in self.workers))

    def configs(self) -> List[Any]:
        """As vLLM's scheduler has them."""
        return [
            SimpleNamespace(group_idx=n, sliding_window_size_in_chunks=g.window or None, is_eagle_group=g.draft)
            for n, g in zip(self.numbers, self.model.groups)
        ]

    def close(self) -> None:
        self.manager.shutdown()
        for worker in self.workers:
            worker.shutdown()

    def request(self, prompt: Prompt) -> Any:
        self._requests += 1
        context = SimpleNamespace(req_id=f"request {self._requests}", _offload_key_positions=self.scheduler.positions(prompt))
        self.manager.on_new_request(context)
        return context

    def index(self, key: bytes) -> int:
        return self.numbers.index(number(group(key)))

    def blocks(self, keys: Sequence[bytes], at: int = 1) -> Any:
        """Blocks of their own for all keys, which come group by group."""
        sizes = [sum(self.index(key) == i for key in keys) for i in range(len(self.numbers))]
        ids = range(at, at + len(keys))
        return SimpleNamespace(block_ids=pool_array(ids), group_sizes=sizes, block_indices=[0] * len(sizes))

    def lookup(self, prompt: Prompt, computed: int, context: Any) -> int:
        found: List[Optional[int]] = [None]

        def answered() -> bool:
            self.said: Dict[bytes, Any] = {}

            def ask(key: bytes) -> Any:
                self.said[key] = self.manager.lookup(key, context)
                return self.said[key]

            found[0] = self.scheduler.lookup(prompt, computed, ask)
            self.manager.on_schedule_end(None)
            return found[0] is not None

        until(answered)
        assert found[0] is not None
        return found[0]

    def load(self, keys: List[bytes], context: Any, spec: Any = None) -> bool:
        """Whether all ranks say that they have; what they have is right then."""
        spec, job = self.manager.prepare_load(keys, context) if spec is None else spec, self.job()
        for cache, worker in zip(self.caches, self.workers):
            for layer in cache.layers:
                layer[:] = b"?" * len(layer)
            worker.submit_load(job, spec, self.blocks(keys, 20))
        ended = [self.ended(worker, job).success for worker in self.workers]
        self.manager.complete_load(keys, context)
        for rank, (cache, good) in enumerate(zip(self.caches, ended)):
            right = all(cache.right(20 + i, bytes([rank]) + key, self.index(key)) for i, key in enumerate(keys))
            assert right or not good, "a load that is no load of these keys is told as done"
        return all(ended)

    def store(self, prompt: Prompt, keys: List[bytes]) -> None:
        """All ranks store all of them, group by group."""
        context = self.request(prompt)
        output = self.manager.prepare_store(keys, context)
        assert list(output.keys_to_store) == keys, "in vLLM's own order"
        job = self.job()
        for rank, (cache, worker) in enumerate(zip(self.caches, self.workers)):
            for i, key in enumerate(keys):
                cache.write(1 + i, bytes([rank]) + key, self.index(key))
            worker.submit_store(job, self.blocks(keys), output.store_spec)
            self.ended(worker, job)
        self.stored.update(keys)
        self.manager.on_request_finished(context)

    def job(self) -> int:
        self._jobs += 1
        return self._jobs

    def ended(self, worker: Any, job: int) -> Any:
        worker.wait({job})
        (result,) = worker.get_finished()
        return result

    def needs(self, prompt: Prompt, *ends: int) -> List[bytes]:
        """All of the full groups, and of the others what prefixes with these ends need."""
        keys: List[bytes] = []
        for i, g in enumerate(self.model.groups):
            own = prompt.keys(i, g)
            wanted = {n for end in ends for n in range(max(0, end // g.chunk - g.window), end // g.chunk)}
            keys += [key for n, key in enumerate(own) if not g.window or n in wanted]
        return keys

    def evict(self, keys: List[bytes]) -> None:
        for name in {group(key) for key in keys}:
            pages = self.manager._groups.pages(name)
            until(lambda: pages.delete([named(key) for key in keys if group(key) == name], 60) >= 0)
        self.stored -= set(keys)


def pool_array(ids: Sequence[int]) -> Any:
    return SimpleNamespace(tolist=lambda: list(ids))


def config(extra: Dict[str, Any], model: Model, rank: int, ranks: int) -> Any:
    made = vars(plain.config(extra, rank, ranks))
    return SimpleNamespace(**{**made, "groups": spec_groups(model), "worker_kv_bytes_per_block": LAYERS * PAGE})


class Groups(Case):
    def setUp(self) -> None:
        super().setUp()
        for module, name, value in ((pool, "PrepareStoreOutput", SimpleNamespace), (transfers, "TransferResult", Result)):
            enter(self, mock.patch.object(module, name, value))

    def of(self, daemon: Daemon, model: Model, *given: Any, **more: Any) -> Engine:
        engine = Engine(daemon.socket, model, *given, **more)
        self.addCleanup(engine.close)
        return engine

    def play(self, engine: Engine, prompt: Prompt, computed: int) -> Tuple[int, int]:
        """The hit of a prompt, of which all that is needed was loaded, and the best there is."""
        context = engine.request(prompt)
        hit = engine.lookup(prompt, computed, context)
        there = {key for key, said in engine.said.items() if said is Lookup.HIT}
        self.assertLessEqual(there, engine.stored)
        if hit > computed:
            needed = engine.scheduler.needs(prompt, computed, hit)
            self.assertLessEqual(set(needed), there)
            self.assertTrue(engine.load(needed, context))
        engine.manager.on_request_finished(context)
        return hit, best(engine.scheduler, prompt, computed, engine.stored)


class Histories(Groups):
    def test_histories(self) -> None:
        self.done: Counter[str] = collections.Counter()
        r, left, n = random.Random(SEED), HISTORIES, 0
        models = list(MODELS.items())
        with Daemon("256MiB") as daemon:
            while left > 0:
                name, model = models[n % len(models)]
                engine = self.of(daemon, model, 1 + n % 2, namespace=str(n))
                for _ in range(min(left, ON_AN_ENGINE)):
                    with self.subTest(name, history=n):
                        self.history(r, engine, f"{SEED}/{n}/{left}", name in EVEN)
                    left -= 1
                n += 1
        if HISTORIES >= 200:
            for what in ("hit", "missed", "shorter", "evicted"):
                self.assertGreater(self.done[what], HISTORIES / 8, dict(self.done))

    def history(self, r: random.Random, engine: Engine, salt: str, even: bool) -> None:
        trunk = [r.randrange(1 << 30) for _ in range(24)]
        for _ in range(r.randint(3, 9)):
            cut = r.randint(0, 24)
            blocks = trunk[:cut] + [r.randrange(3) for _ in range(r.randint(0, 8))]
            prompt = Prompt.of(blocks, GRAIN, len(blocks) * GRAIN + r.randint(0, GRAIN - 1) - r.randint(0, 1), salt)
            step, grid = r.random(), max(g.chunk for g in engine.model.groups)
            if prompt.tokens < grid:
                continue
            if step < 0.4:
                keys = engine.needs(prompt, prompt.tokens, *r.sample(range(GRAIN, prompt.tokens + 1, GRAIN), min(3, prompt.tokens // GRAIN)))
                engine.store(prompt, keys)
            elif step < 0.55 and engine.stored:
                some = r.sample(sorted(engine.stored), r.randint(1, len(engine.stored)))
                engine.evict(some[: r.choice([1, 2, 8, 1000])])
                self.done["evicted"] += 1
            else:
                self.look(r, engine, prompt, grid, even)

    def look(self, r: random.Random, engine: Engine, prompt: Prompt, grid: int, even: bool) -> None:
        computed = r.choice([0, 0, grid, r.randint(0, prompt.tokens // grid) * grid])
        if computed >= prompt.tokens:
            return
        hit, want = self.play(engine, prompt, computed)
        if even:
            self.assertEqual(hit, want, (prompt.tokens, computed, engine.said))
        else:  # the daemon knows no prefix that ends within a chunk
            self.assertLessEqual(hit, want)
            self.assertGreaterEqual(hit, min(want, self.on_grid(engine, prompt, computed, grid)), (prompt.tokens, computed))
        full = min(len(prompt.keys(i, g)) * g.chunk for i, g in enumerate(engine.model.groups) if not g.window)
        self.done["hit" if hit > computed else "missed"] += 1
        self.done["shorter"] += hit < full

    def on_grid(self, engine: Engine, prompt: Prompt, computed: int, grid: int) -> int:
        """The longest prefix of whole chunks of all groups."""
        for end in range(prompt.tokens // grid * grid, computed, -grid):
            if end < prompt.tokens and set(engine.scheduler.needs(prompt, computed, end)) <= engine.stored:
                return end
        return computed


class Blocks(Groups):
    """What is loaded and stored of each group."""

    PROMPT = Prompt.of(range(20), GRAIN, 20 * GRAIN + 5, "blocks")

    def filled(self, daemon: Daemon, *given: Any, name: str = "two windows", **more: Any) -> Engine:
        engine = self.of(daemon, MODELS[name], *given, **more)
        engine.store(self.PROMPT, engine.needs(self.PROMPT, 12 * GRAIN, 20 * GRAIN))
        return engine

    def test_what_is_not_proved_is_loaded_by_key(self) -> None:
        """In each group, whatever the lease says: other bytes, the place of another group's
        block, another life of the daemon, or a block that was not leased."""
        daemon = self.daemon()
        for ranks in (1, 2):
            engine = self.filled(daemon, ranks, namespace=str(ranks))
            for name in ("sum", "place", "epoch", "nowhere"):
                for part in range(3):
                    context = engine.request(self.PROMPT)
                    self.assertEqual(engine.lookup(self.PROMPT, 0, context), 20 * GRAIN)
                    needed = engine.scheduler.needs(self.PROMPT, 0, 20 * GRAIN)
                    if name == "nowhere":
                        del engine.manager._requests[context.req_id].rows[[key for key in needed if number(group(key)) == part][-1]]
                    spec = engine.manager.prepare_load(needed, context)
                    rows = spec.parts[part].refs[-1]
                    if name == "sum":
                        rows[-1] = (*rows[-1][:2], rows[-1][2] ^ 1)
                    elif name == "place":
                        other = spec.parts[part - 2 if part == 2 else part + (part == 0) * 2].refs[-1][0]
                        rows[0] = (other[0], *rows[0][1:])
                    elif name == "epoch":
                        spec = spec._replace(epoch=spec.epoch + 1)
                    self.assertTrue(engine.load(needed, context, spec))

    def test_a_group_that_is_gone(self) -> None:
        """Between the answer and the load: the load fails, and is not told as done."""
        engine = self.filled(self.daemon(), transfer_timeout=2)
        context = engine.request(self.PROMPT)
        self.assertEqual(engine.lookup(self.PROMPT, 0, context), 20 * GRAIN)
        needed = engine.scheduler.needs(self.PROMPT, 0, 20 * GRAIN)
        spec = engine.manager.prepare_load(needed, context)
        engine.manager._requests[context.req_id].job.release()
        engine.evict([key for key in needed if number(group(key)) == 2])
        self.assertFalse(engine.load(needed, context, spec._replace(epoch=spec.epoch + 1)))
        self.assertEqual(self.play(engine, self.PROMPT, 0), (12 * GRAIN,) * 2)

    def test_only_what_is_needed_comes_up(self) -> None:
        """From disk, of states at many ends one, and a few more as long as nobody knows how fast the disk is."""
        daemon, ends = self.daemon(dram="16MiB", disk="256MiB"), range(2 * GRAIN, 21 * GRAIN, 2 * GRAIN)
        engine = self.of(daemon, MODELS["states"])
        engine.store(self.PROMPT, engine.needs(self.PROMPT, *ends))
        daemon.process.terminate()
        daemon.process.wait(60)
        daemon.start()
        daemon.wait()
        engine = self.of(daemon, MODELS["states"])
        engine.stored = set(engine.needs(self.PROMPT, *ends))
        until(lambda: self.play(engine, self.PROMPT, 0) == (20 * GRAIN,) * 2)
        loads: Dict[str, Any] = engine.manager._client.stats()["store"]["loads"]
        self.assertLess(loads["disk"]["chunks"], 20 + len(ends) / 2)

    def test_blocks_that_were_never_computed(self) -> None:
        """A window's block that is vLLM's block 0: nothing of that store is there."""
        engine = self.of(self.daemon(), MODELS["two windows"])
        keys, context = engine.needs(self.PROMPT, 20 * GRAIN), engine.request(self.PROMPT)
        blocks = engine.blocks(keys)
        blocks.block_ids = pool_array([*blocks.block_ids.tolist()[:-1], 0])
        with self.assertLogs("kvstored.vllm", "ERROR"):
            engine.workers[0].submit_store(1, blocks, engine.manager.prepare_store(keys, context).store_spec)
            self.assertEqual(engine.ended(engine.workers[0], 1).transfer_size, 0)
        self.assertEqual(engine.lookup(self.PROMPT, 0, engine.request(self.PROMPT)), 0)

    def test_blocks_of_another_group(self) -> None:
        """As many as there are keys, and one of them is another group's: none is stored."""
        engine = self.of(self.daemon(), MODELS["two windows"])
        keys, context = engine.needs(self.PROMPT, 20 * GRAIN), engine.request(self.PROMPT)
        blocks = engine.blocks(keys)
        blocks.group_sizes[1] += 1
        blocks.group_sizes[2] -= 1
        with self.assertLogs("kvstored.vllm", "ERROR"):
            engine.workers[0].submit_store(1, blocks, engine.manager.prepare_store(keys, context).store_spec)
            self.assertEqual(engine.ended(engine.workers[0], 1).transfer_size, 0)

    def test_the_end_of_a_prompt_that_is_no_chunk(self) -> None:
        """vLLM makes a key of it: nothing is found under it, and the chunks before it keep their places."""
        engine = self.filled(self.daemon(), name="coarse")
        tail = b"tail" * 8
        for part in (Prompt.of(range(20), GRAIN, 20 * GRAIN + 5, "blocks"), Prompt.of(range(3), GRAIN, 3 * GRAIN + 1, "short")):
            context = engine.request(part)
            for n in range(2):
                context._offload_key_positions[tail + n.to_bytes(4, "big")] = part.tokens // GRAIN * GRAIN - GRAIN
            hit = engine.lookup(part, 0, context)
            self.assertEqual(hit, 0 if part.tokens < 64 else 320)
            answers = [Lookup.RETRY]
            until(lambda: answers.append(engine.manager.lookup(tail + bytes(4), context)) or engine.manager.on_schedule_end(None) or answers[-1] is not Lookup.RETRY)
            self.assertIs(answers[-1], Lookup.MISS)


class Kinds(Groups):
    def test_a_group_that_is_left_out(self) -> None:
        """A window in which no prefix is looked for, as DeepSeek V4.1 has it, is not offloaded: the
        groups behind it keep their numbers, and what is there is found and loaded."""
        model = MODELS["one left out"]
        only = Model([Group(16), Group(16, behind=1)], ["full", "full"], 16)
        for model, end in ((model, 16), (only, 20)):
            engine = self.of(self.daemon(), model)
            prompt = Prompt.of(range(20), GRAIN, 20 * GRAIN + 1, "left out")
            engine.store(prompt, engine.needs(prompt, 16 * GRAIN))
            self.assertEqual(self.play(engine, prompt, 0), (end * GRAIN,) * 2)

    def test_kinds_that_nobody_tells(self) -> None:
        """Nothing is stored or found, and vLLM never waits for it."""
        engine = self.of(self.daemon(), MODELS["windows"], tell=False)
        prompt = Prompt.of(range(8), GRAIN, 8 * GRAIN + 1, "untold")
        keys = engine.needs(prompt, 8 * GRAIN)
        self.assertEqual(engine.manager.prepare_store(keys, engine.request(prompt)).keys_to_store, [])
        self.assertEqual(engine.lookup(prompt, 0, engine.request(prompt)), 0)
        engine.manager.tell(engine.configs())
        engine.store(prompt, keys)
        self.assertEqual(self.play(engine, prompt, 0), (8 * GRAIN,) * 2)

    def test_with_a_draft_model(self) -> None:
        """Nothing is stored or found of a hybrid model: the tier asks for more than is used."""
        engine = self.of(self.daemon(), Model([Group(16, draft=True), Group(16, 1)], ["full", "state"], 16))
        prompt = Prompt.of(range(8), GRAIN, 8 * GRAIN + 1, "draft")
        self.assertEqual(engine.manager.prepare_store(engine.needs(prompt, 8 * GRAIN), engine.request(prompt)).keys_to_store, [])
        self.assertEqual(engine.lookup(prompt, 0, engine.request(prompt)), 0)
