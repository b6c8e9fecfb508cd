"""KvstoredOffloadingSpec: the daemon's memory as vLLM's pool. Stand-ins take the place of
vLLM's classes, bytes that of a KV cache; e2e/vllm has the real ones."""

import array
import contextlib
import hashlib
import os
import threading
import time
from types import SimpleNamespace
from typing import Any, Dict, List, NamedTuple, Optional, Sequence
from unittest import mock

from kvstored import Code, DeadlineExceeded, Refused, bulk
from kvstored.vllm import asking, compare, pool, transfers
from kvstored.vllm.families import Asked, Family
from kvstored.vllm.order import Chain

from . import engines
from .daemon import Daemon, Served, enter, until
from .engines import LookupResult as Lookup
from .vllm_engine import keys

LAYERS, PAGE, BLOCKS = 3, 4096, 32


class Result(NamedTuple):
    job_id: int
    success: bool
    transfer_size: Optional[int] = None
    transfer_time: Optional[float] = None


class Cache:
    """The KV cache of a CPU, or of a stand-in for a GPU: a tensor for each layer, a row for
    each block behind the first, which vLLM has for what is not there."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = SimpleNamespace(type=device, index=1)
        self.layers = [bytearray((1 + BLOCKS) * PAGE) for _ in range(LAYERS)]
        self.tensors = [SimpleNamespace(tensor=self._tensor(a), page_size_bytes=PAGE) for a in self.layers]
        self.group_data_refs = [[SimpleNamespace(tensor_idx=i, page_size_bytes=PAGE) for i in range(LAYERS)]]

    def _tensor(self, layer: bytearray) -> Any:
        at = bulk.address(layer, True)
        return SimpleNamespace(data_ptr=lambda: at, stride=lambda _: PAGE, element_size=lambda: 1, device=self.device)

    def fill(self, block: int, key: bytes) -> None:
        for i, layer in enumerate(self.layers):
            layer[(block + 1) * PAGE : (block + 2) * PAGE] = self._page(key, i)

    def has(self, block: int, key: bytes) -> bool:
        return all(layer[(block + 1) * PAGE : (block + 2) * PAGE] == self._page(key, i) for i, layer in enumerate(self.layers))

    @staticmethod
    def _page(key: bytes, layer: int) -> bytes:
        return hashlib.shake_128(key + bytes([layer])).digest(PAGE)


def blocks_of(numbers: Sequence[int]) -> Any:
    return SimpleNamespace(block_ids=array.array("i", [n + 1 for n in numbers]), group_sizes=[len(numbers)], block_indices=[0])


class Engine:
    """Calls manager and worker as vLLM does, each with a specification of its own."""

    def __init__(self, socket: str, rank: int = 0, ranks: int = 1, cache: Optional[Cache] = None, **given: Any) -> None:
        options = {"socket": socket, "lookup_timeout": 60, "transfer_timeout": 60, **given}
        extra = {"spec_name": "KvstoredOffloadingSpec", "kvstored": options}
        self.specs = [pool.KvstoredOffloadingSpec(config(extra, rank, ranks)) for rank in (0, rank)]
        self.cache = cache or Cache()
        self.manager, self.worker = self.specs[0].get_manager(), self.specs[1].get_worker(self.cache)
        self._jobs = 0

    def close(self) -> None:
        self.manager.shutdown()
        self.worker.shutdown()

    def request(self, name: str, of: List[bytes]) -> Any:
        context = SimpleNamespace(req_id=name, _offload_key_positions={key: 16 * (i + 1) for i, key in enumerate(of)})
        self.manager.on_new_request(context)
        return context

    def step(self) -> None:
        self.manager.on_schedule_end(None)

    def scan(self, of: List[bytes], context: Any) -> List[Any]:
        return [self.manager.lookup(key, context) for key in of]

    def found(self, of: List[bytes], context: Any) -> int:
        """How long the run is that is there, once no answer is RETRY; a step at a time."""
        answers = [Lookup.RETRY]

        def answered() -> bool:
            answers[:] = self.scan(of, context)
            self.step()
            return Lookup.RETRY not in answers

        until(answered)
        return ([a is Lookup.HIT for a in answers] + [False]).index(False)

    def job(self) -> int:
        self._jobs += 1
        return self._jobs

    def store(self, of: List[bytes], context: Any, at: int = 0, salt: bytes = b"") -> List[Result]:
        for i, key in enumerate(of):
            self.cache.fill(at + i, salt + key)
        output, job = self.manager.prepare_store(of, context), self.job()
        if not output.keys_to_store:
            return []
        self.worker.submit_store(job, blocks_of([at + of.index(key) for key in output.keys_to_store]), output.store_spec)
        return self.finished(job)

    def load(self, of: List[bytes], context: Any, at: int = 0, spec: Any = None) -> List[Result]:
        job = self.job()
        self.worker.submit_load(job, self.manager.prepare_load(of, context) if spec is None else spec, blocks_of(range(at, at + len(of))))
        results = self.finished(job)
        self.manager.complete_load(of, context)
        return results

    def finished(self, job: int) -> List[Result]:
        self.worker.wait({job})
        return self.worker.get_finished()


def config(extra: Dict[str, Any], rank: int = 0, ranks: int = 1) -> Any:
    def parallel(make: Any) -> Any:
        return SimpleNamespace(**{**vars(engines.parallel(lambda kind, **fields: SimpleNamespace(**fields), ranks)), "rank": rank})

    return engines.offloading_config(extra_config=extra, worker_kv_bytes_per_block=LAYERS * PAGE, parallel=parallel)


class Pool(Served):
    cache = Cache
    #: What a load finds out about that the manager says, and the worker has mapped.
    mistakes: Sequence[str] = ("sum", "place", "epoch")
    lives: Sequence[str] = ("away", "of before", "present")

    def setUp(self) -> None:
        for module, name, value in ((pool, "PrepareStoreOutput", SimpleNamespace), (transfers, "TransferResult", Result)):
            enter(self, mock.patch.object(module, name, value))

    def engine(self, daemon: Any = None, **given: Any) -> Engine:
        engine = Engine((daemon or self.daemon).socket, cache=self.cache(), **given)
        self.addCleanup(engine.close)
        if daemon is None or daemon.process.poll() is None:
            until(lambda: engine.manager._client.attached and engine.worker._client.attached)
        return engine

    def test_store_and_load(self) -> None:
        """By another engine, which never computed it; also a part, from the middle on."""
        first, wanted = self.engine(), keys("a", 8)
        request = first.request("stores", wanted)
        self.assertEqual(first.found(wanted, request), 0)
        (result,) = first.store(wanted, request)
        self.assertEqual((result.success, result.transfer_size), (True, 8 * LAYERS * PAGE))
        other = self.engine()
        for name, part, at in (("all", wanted, 0), ("the rest", wanted[3:], 10)):
            request = other.request(name, [*wanted, *keys("more", 2)])
            self.assertEqual(other.found([*part, *keys("more", 2)], request), len(part))
            by_key = AssertionError if bulk.SUMS else None  # as the lease holds
            pages = other.worker._groups[0].pages
            with mock.patch.object(pages, "load", wraps=pages.load, side_effect=by_key):
                (result,) = other.load(part, request, at)
            self.assertEqual((result.success, result.transfer_size), (True, len(part) * LAYERS * PAGE))
            self.assertTrue(all(other.cache.has(at + i, key) for i, key in enumerate(part)))
        self.assertEqual(other.manager._requests, {})

    def test_what_is_not_proved_is_loaded_by_key(self) -> None:
        """Whatever the lease says: other bytes, another place, another life of the daemon."""
        engine, wanted = self.engine(), keys("b", 6)
        engine.store(wanted, engine.request("stores", wanted))
        for name in self.mistakes:
            request = engine.request(name, wanted)
            self.assertEqual(engine.found(wanted, request), 6)
            spec = engine.manager.prepare_load(wanted, request)
            rows = spec.parts[0].refs[0]
            if name == "sum":
                rows[2] = (*rows[2][:2], rows[2][2] ^ 1)
            elif name == "place":
                rows[2] = (rows[3][0], *rows[2][1:])
            else:
                spec = spec._replace(epoch=spec.epoch + 1)
            for layer in engine.cache.layers:
                layer[:] = bytes(len(layer))
            (result,) = engine.load(wanted, request, spec=spec)
            self.assertTrue(result.success)
            self.assertTrue(all(engine.cache.has(i, key) for i, key in enumerate(wanted)), name)

    def test_ranks(self) -> None:
        """A block is there once all ranks have stored theirs; each loads its own."""
        ranks, wanted = [self.engine(rank=rank, ranks=2) for rank in (0, 1)], keys("r", 4)
        stores = ranks[0].request("stores", wanted)
        for rank, engine in enumerate(ranks):
            self.assertEqual(ranks[0].found(wanted, ranks[0].request(f"before {rank}", wanted)), 0)
            engine.store(wanted, stores, salt=bytes([rank]))
        loads = ranks[0].request("loads", wanted)
        self.assertEqual(ranks[0].found(wanted, loads), 4)
        spec = ranks[0].manager.prepare_load(wanted, loads)
        for rank, engine in enumerate(ranks):
            (result,) = engine.load(wanted, loads, at=10, spec=spec)
            self.assertTrue(result.success)
            self.assertTrue(all(engine.cache.has(10 + i, bytes([rank]) + key) for i, key in enumerate(wanted)))

    def test_a_rank_without_the_present_memory(self) -> None:
        """The manager says HIT, and one rank has not mapped the memory of this life of the
        daemon, or maps that of before: it loads by key, or its load fails. No byte is wrong."""
        daemon = enter(self, Daemon(dram="16MiB", disk="256MiB"))
        own = f"{daemon.dir}/rank-1"
        os.symlink(daemon.socket, own)
        ranks, wanted = [Engine(socket, rank=rank, ranks=2, cache=self.cache(), transfer_timeout=2) for rank, socket in enumerate((daemon.socket, own))], keys("o", 4)
        for engine in ranks:
            self.addCleanup(engine.close)
            until(lambda engine=engine: engine.manager._client.attached and engine.worker._client.attached)
        stores = ranks[0].request("stores", wanted)
        for rank, engine in enumerate(ranks):
            engine.store(wanted, stores, salt=bytes([rank]))
        ranks[1].worker.hands_failures = True
        before, epoch = ranks[1].worker._client.arena, ranks[0].manager._client.epoch
        os.unlink(own)
        daemon.process.terminate()  # with all of it on disk
        daemon.process.wait(60)
        daemon.start()
        daemon.wait()
        until(lambda: ranks[0].manager._client.epoch not in (None, epoch) and not ranks[1].worker._client.attached)
        for life in self.lives:
            if not os.path.lexists(own) and life != "away":
                os.symlink(daemon.socket, own)
                until(lambda: ranks[1].worker._client.attached)
            request = ranks[0].request(life, wanted)
            self.assertEqual(ranks[0].found(wanted, request), 4, life)
            spec, job, worker = ranks[0].manager.prepare_load(wanted, request), ranks[1].job(), ranks[1].worker
            copy = worker._copy

            def copy_of_before(*args: Any) -> int:
                with mock.patch.object(worker._client._link, "arena", before):
                    return copy(*args)

            with mock.patch.object(worker, "_copy", copy_of_before if life == "of before" else copy):
                worker.submit_load(job, spec, blocks_of(range(10, 14)))
                ranks[1].finished(job)
            self.assertEqual(worker.failed, [job] if life == "away" else [])
            right = [ranks[1].cache.has(10 + i, b"\1" + key) for i, key in enumerate(wanted)]
            self.assertEqual(right, [life != "away"] * 4, life)
            ranks[0].manager.complete_load(wanted, request)
            ranks[1].cache.fill(10, b"other")

    def test_a_request_that_ends_amid_its_answer(self) -> None:
        """Its lease goes back, and the other requests of the question have theirs."""
        with Daemon() as daemon:
            engine, wanted = self.engine(daemon), keys("e", 3)
            engine.store(wanted, engine.request("stores", wanted))
            contexts = [engine.request(name, wanted) for name in "ab"]
            manager, take = engine.manager, engine.manager._take

            def taken(request: Any, job: Any, epoch: int) -> None:
                if request.context is contexts[0]:
                    request.job = job
                    manager._drop("a")
                take(request, job, epoch)

            with mock.patch.object(manager, "_take", taken):
                for context in contexts:
                    engine.scan(wanted, context)
                self.assertEqual(engine.found(wanted, contexts[1]), 3)
            manager.on_request_finished(contexts[1])
            until(lambda: manager._client.stats()["server"]["leases_live"] == 0)

    def test_a_lost_lease_is_no_error(self) -> None:
        """Between a HIT and prepare_load, which cannot fail."""
        with Daemon() as daemon:
            engine, wanted = self.engine(daemon), keys("l", 3)
            engine.store(wanted, engine.request("stores", wanted))
            request = engine.request("loads", wanted)
            self.assertEqual(engine.found(wanted, request), 3)
            daemon.kill()
            until(lambda: not engine.manager._client.attached)
            self.assertEqual(len(engine.manager.prepare_load(wanted, request).parts[0].refs[0]), 3)

    def test_blocks_and_keys_that_do_not_match(self) -> None:
        """Nothing is stored under another's key, and what is loaded is no block of another."""
        engine, wanted = self.engine(), keys("m", 3)
        store = engine.manager.prepare_store(wanted, engine.request("stores", wanted)).store_spec
        with self.assertLogs("kvstored.vllm", "ERROR"):
            engine.worker.submit_store(1, blocks_of([0, 1]), store)
            self.assertEqual([r.transfer_size for r in engine.finished(1)], [0])
        request = engine.request("loads", wanted)
        self.assertEqual(engine.found(wanted, request), 0)
        unknown = engine.request("unknown", wanted[:2])
        self.assertEqual(engine.manager.prepare_store(wanted, unknown).keys_to_store, [])  # where the third stands nobody says
        with self.assertLogs("kvstored.vllm", "ERROR"):
            engine.worker.submit_load(2, pool.Load([pool.Part(0, wanted, [], [[(0, LAYERS * PAGE, 0)] * 3])], 1, 1), blocks_of([0, 1]))
            self.assertEqual([r.success for r in engine.finished(2)], [False])

    def test_blocks_that_were_never_computed(self) -> None:
        """vLLM has block 0 in their place: no key is stored with it, and nothing is loaded to it."""
        engine, wanted = self.engine(), keys("z", 3)
        never = blocks_of([0, -1, 2])
        self.assertEqual(list(never.block_ids), [1, 0, 3])
        store = engine.manager.prepare_store(wanted, engine.request("stores", wanted)).store_spec
        with self.assertLogs("kvstored.vllm", "ERROR"):
            engine.worker.submit_store(1, never, store)
            self.assertEqual([r.transfer_size for r in engine.finished(1)], [0])
        self.assertEqual(engine.found(wanted, engine.request("looks", wanted)), 0)
        engine.store(wanted, engine.request("stores", wanted))
        request = engine.request("loads", wanted)
        self.assertEqual(engine.found(wanted, request), 3)
        with self.assertLogs("kvstored.vllm", "ERROR"):
            engine.worker.submit_load(2, engine.manager.prepare_load(wanted, request), never)
            self.assertEqual([r.success for r in engine.finished(2)], [False])

    def test_a_load_that_fails(self) -> None:
        """It is told as failed, or to a connector that takes that; then the request computes."""
        with Daemon() as daemon:
            engine, wanted = self.engine(daemon, transfer_timeout=0.5), keys("c", 4)
            engine.store(wanted, engine.request("stores", wanted))
            request = engine.request("loads", wanted)
            self.assertEqual(engine.found(wanted, request), 4)
            spec = engine.manager.prepare_load(wanted, request)
            daemon.kill()
            until(lambda: not engine.worker._client.attached)
            self.assertEqual([r.success for r in engine.load(wanted, request, spec=spec)], [False])
            engine.worker.hands_failures = True
            job = engine.job()
            engine.worker.submit_load(job, spec, blocks_of(range(4)))
            self.assertEqual([r.success for r in engine.finished(job)], [True])
            self.assertEqual(engine.worker.failed, [job])
            engine.worker.submit_load(job + 1, spec, blocks_of(range(4)), expedited=True)
            with self.assertRaisesRegex(RuntimeError, "sync_load_budget_bytes"):
                engine.worker.wait({job + 1})
            self.assertEqual(set(engine.scan(wanted, request)), {Lookup.MISS})

    def test_a_request_loads_three_times_at_most(self) -> None:
        engine, wanted = self.engine(), keys("d", 2)
        engine.store(wanted, engine.request("stores", wanted))
        request = engine.request("again", wanted)
        for _ in range(3):
            self.assertEqual(engine.found(wanted, request), 2)
            engine.load(wanted, request)
        self.assertEqual(engine.found(wanted, request), 0)
        engine.manager.on_request_finished(request)
        self.assertEqual(engine.found(wanted, engine.request("again", wanted)), 2)

    def test_a_lease_ends_between_steps(self) -> None:
        """However late: within a step what was a HIT stays one."""
        engine, wanted = self.engine(), keys("e", 3)
        engine.store(wanted, engine.request("stores", wanted))
        request = engine.request("waits", wanted)
        self.assertEqual(engine.found(wanted, request), 3)
        engine.manager._requests["waits"].until = 0.0
        self.assertEqual(engine.scan(wanted, request), [Lookup.HIT] * 3)
        job = engine.manager._requests["waits"].job
        engine.step()
        self.assertFalse(job is None or job._leased())
        self.assertEqual(engine.scan(wanted, request), [Lookup.RETRY] * 3)
        self.assertEqual(engine.found(wanted, request), 3)

    def test_what_lies_below_comes_up(self) -> None:
        daemon = enter(self, Daemon(dram="16MiB", disk="256MiB"))
        engine, wanted = self.engine(daemon), keys("f", 16)
        engine.store(wanted, engine.request("stores", wanted))
        engine.close()
        daemon.process.terminate()
        daemon.process.wait(60)
        daemon.start()
        daemon.wait()
        engine = self.engine(daemon)
        request = engine.request("loads", wanted)
        until(lambda: engine.found(wanted, request) == 16 or engine.manager._requests.pop("loads", None) is None)
        self.assertEqual([r.success for r in engine.load(wanted, request)], [True])
        self.assertTrue(all(engine.cache.has(i, key) for i, key in enumerate(wanted)))

    def test_without_the_daemon(self) -> None:
        """An engine starts, finds and stores nothing, and attaches when it comes."""
        with Daemon() as daemon:
            daemon.kill()
            engine, wanted = self.engine(daemon), keys("g", 3)
            request = engine.request("first", wanted)
            self.assertEqual(engine.scan(wanted, request), [Lookup.MISS] * 3)
            self.assertEqual(engine.store(wanted, request), [])
            daemon.start()
            daemon.wait()
            until(lambda: engine.manager._client.attached and engine.worker._client.attached)
            (result,) = engine.store(wanted, request)
            self.assertEqual(result.transfer_size, 3 * LAYERS * PAGE)
            self.assertEqual(engine.found(wanted, engine.request("second", wanted)), 3)

    def test_a_daemon_that_hangs(self) -> None:
        """After one timeout everything is a miss at once, until it answers."""
        with Daemon() as daemon:
            engine, wanted = self.engine(daemon, lookup_timeout=0.2), keys("h", 3)
            engine.store(wanted, engine.request("stores", wanted))
            daemon.pause()
            try:
                self.assertEqual(engine.found(wanted, engine.request("first", wanted)), 0)
                until(lambda: engine.step() or not engine.manager._client.attached)  # a request may be late before its question
                self.assertEqual(engine.scan(wanted, engine.request("second", wanted)), [Lookup.MISS] * 3)
                self.assertEqual(engine.store(wanted, engine.request("third", wanted)), [])
            finally:
                daemon.resume()
            until(lambda: engine.manager._client.attached)
            engine.manager._timeout = 60.0
            self.assertEqual(engine.found(wanted, engine.request("fourth", wanted)), 3)

    def hurried(self, engine: Engine, window: Optional[int] = None) -> None:
        """An engine of which it is known what it looks up, and whose moments are long."""
        for name in ("_MOMENT_SECONDS", "_LATE_SECONDS"):
            enter(self, mock.patch.object(asking, name, 60.0))
        engine.manager.tell([SimpleNamespace(group_idx=0, is_eagle_group=False, sliding_window_size_in_chunks=window)])

    def quiet(self, engine: Engine) -> None:
        until(lambda: engine.step() or not engine.manager.has_pending_work())

    def test_an_answer_that_is_quick(self) -> None:
        """It is there at the first lookup, for the first request of a step."""
        engine, wanted, other = self.engine(), keys("quick", 8), keys("other", 2)
        engine.store(wanted, engine.request("stores", wanted))
        self.hurried(engine)
        request = engine.request("all", wanted)
        self.assertEqual(engine.scan(wanted, request), [Lookup.HIT] * 8)
        second = engine.request("second", wanted)
        self.assertEqual(engine.scan(wanted, second), [Lookup.RETRY] * 8)
        self.assertEqual(engine.found(wanted, second), 8)
        self.assertTrue(engine.load(wanted, request)[0].success)
        self.quiet(engine)
        part = engine.request("part", [*wanted, *other])
        self.assertEqual(engine.scan([*wanted[3:], *other], part), [Lookup.HIT] * 5 + [Lookup.MISS] * 2)
        self.assertEqual(list(engine.manager._requests["part"].keys), [*wanted[3:], *other])

    def test_answers_that_no_step_waits_for(self) -> None:
        engine, wanted = self.engine(), keys("slowly", 8)
        engine.store(wanted, engine.request("stores", wanted))
        busy = mock.patch.object(type(engine.manager._waiter), "idle", mock.PropertyMock(return_value=False))
        long = mock.patch.object(asking, "INLINE_BLOCKS", 7)
        for name, window, patch, params in (
            ("of a window", 5, contextlib.nullcontext(), {}),
            ("beside a busy thread", None, busy, {}),
            ("long", None, long, {}),
            ("capped", None, contextlib.nullcontext(), {"max_load_tokens": 32}),
        ):
            self.hurried(engine, window)
            request = engine.request(name, wanted)
            request.kv_transfer_params = params
            with patch:
                self.assertEqual(engine.scan(wanted, request), [Lookup.RETRY] * 8, name)
            self.assertEqual(engine.found(wanted, request), 8)
            self.quiet(engine)

    def test_a_moment_in_vain(self) -> None:
        """An answer that comes in the middle of a scan counts from the next one on, and some steps
        wait for none."""
        engine, wanted = self.engine(), keys("in vain", 8)
        engine.store(wanted, engine.request("stores", wanted))
        self.hurried(engine)
        questions, request = engine.manager._questions, engine.request("late", wanted)
        self.daemon.pause()
        try:
            with mock.patch.object(asking, "_MOMENT_SECONDS", 1e-3):
                self.assertIs(engine.manager.lookup(wanted[0], request), Lookup.RETRY)
        finally:
            self.daemon.resume()
        ((asked, _),) = questions._asked
        until(lambda: asked.link is not None and asked.call is not None and asked.link.answered(asked.call))
        self.assertEqual(engine.scan(wanted[1:], request), [Lookup.RETRY] * 7)
        engine.step()
        self.assertEqual(engine.scan(wanted, request), [Lookup.HIT] * 8)
        waits = 0
        while not questions.quick(request):
            engine.step()
            waits += 1
        self.assertEqual(waits, asking._PAUSE_STEPS - 1)

    def test_a_question_that_is_not_sent_at_once(self) -> None:
        """As another thread sends, or a space is not open yet: a thread asks it."""
        engine, wanted = self.engine(), keys("n", 3)
        engine.store(wanted, engine.request("stores", wanted))
        link = engine.manager._client._link
        assert link is not None
        for name in ("sends", "opens"):
            request = engine.request(name, wanted)
            self.assertEqual(engine.scan(wanted, request), [Lookup.RETRY] * 3)
            if name == "sends":
                with link._writing:
                    engine.step()
            else:
                link.spaces.clear()
                engine.step()
            self.assertNotIn(Lookup.MISS, engine.scan(wanted, request))  # a daemon may be fast
            self.assertEqual(engine.found(wanted, request), 3)
            engine.load(wanted, request)
        engine.manager._timeout = 0.1
        request = engine.request("waits", wanted)
        engine.scan(wanted, request)
        with link._writing:
            until(lambda: engine.step() or request.req_id not in engine.manager._requests)

    def test_a_long_question(self) -> None:
        """The scheduler's thread makes it not, and does not read the answer; an answer in the
        middle of a scan counts from the next one on."""
        engine, wanted = self.engine(), keys("o", 6)
        engine.store(wanted, engine.request("stores", wanted))
        for most, by in ((6, "MainThread"), (5, "kvstored-vllm-ask")):
            request, threads, go = engine.request(by, wanted), set(), threading.Event()
            if most == 6:
                go.set()

            def noted(method: Any) -> Any:
                def call(*given: Any, **more: Any) -> Any:
                    threads.add(threading.current_thread().name)
                    go.wait(60)
                    return method(*given, **more)

                return call

            with (
                mock.patch.object(asking, "INLINE_BLOCKS", most),
                mock.patch.object(engine.manager, "_answer", noted(engine.manager._answer)),
                mock.patch.object(engine.manager._client, "ask", noted(engine.manager._client.ask)),
            ):
                self.assertEqual(engine.scan(wanted, request), [Lookup.RETRY] * 6)
                engine.step()
                if most == 5:
                    self.assertEqual(engine.scan(wanted[:1], request), [Lookup.RETRY])
                    go.set()
                    until(lambda: engine.manager._told)
                    self.assertEqual(engine.scan(wanted[1:], request), [Lookup.RETRY] * 5)
                self.assertEqual(engine.found(wanted, request), 6)
            self.assertEqual(threads, {by})
            engine.load(wanted, request)

    def test_many_requests_of_one_step(self) -> None:
        """They are asked for some at a time, and each question has its own time to be answered."""
        engine, wanted = self.engine(lookup_timeout=2), {name: keys(name, 4) for name in "uvwxyz"}
        for name, of in wanted.items():
            engine.store(of, engine.request(f"stores {name}", of))
        requests, asks = {name: engine.request(name, of) for name, of in wanted.items()}, []
        ask = engine.manager._client.ask

        def slow(prompts: Any, **more: Any) -> Any:
            asks.append(len(prompts))
            time.sleep(0.4)  # a slow daemon: six questions take longer than one may
            return ask(prompts, **more)

        with mock.patch.object(asking, "INLINE_BLOCKS", 0), mock.patch.object(pool, "_TOGETHER", 8), mock.patch.object(engine.manager._client, "ask", slow):
            for name, of in wanted.items():
                self.assertEqual(engine.scan(of, requests[name]), [Lookup.RETRY] * 4)
            for name, of in wanted.items():
                self.assertEqual(engine.found(of, requests[name]), 4)
        self.assertEqual(asks, [1] * 6)

    def test_questions_that_are_not_answered(self) -> None:
        """So many at most: the thread asks what is more, one after the other."""
        engine, wanted = self.engine(lookup_timeout=30), keys("many", 2)
        questions, ask, asks = engine.manager._questions, engine.manager._client.ask, []

        def noted(*given: Any, **more: Any) -> Any:
            asks.append(threading.current_thread().name)
            return ask(*given, **more)

        self.daemon.pause()
        try:
            with mock.patch.object(asking, "_UNANSWERED", 3), mock.patch.object(engine.manager._client, "ask", noted):
                for n in range(6):
                    engine.scan(wanted, engine.request(f"many {n}", wanted))
                    engine.step()
                until(lambda: "kvstored-vllm-ask" in asks)
                self.assertEqual((len(questions._asked), asks.count("MainThread")), (3, 3))
        finally:
            self.daemon.resume()
        for n in range(6):
            self.assertEqual(engine.found(wanted, engine.request(f"many {n}", wanted)), 0)

    def test_an_answer_that_is_late(self) -> None:
        """Its request is computed: nothing is held for it."""
        engine, wanted = self.engine(lookup_timeout=0.1), keys("late", 3)
        engine.store(wanted, engine.request("stores", wanted))
        manager, request = engine.manager, engine.request("late", wanted)
        answer, go = manager._answer, threading.Event()

        def later(*given: Any) -> None:
            go.wait(60)
            answer(*given)

        with mock.patch.object(asking, "INLINE_BLOCKS", 0), mock.patch.object(manager, "_answer", later):
            engine.scan(wanted, request)
            engine.step()
            until(lambda: engine.scan(wanted, request) == [Lookup.MISS] * 3)
            asked = manager._requests["late"]
            go.set()
            until(lambda: manager._told)
        self.assertEqual((asked.job, asked.rows), (None, {}))

    def test_what_raises_in_a_question(self) -> None:
        """Nothing is found, and it is said; the engine goes on."""
        engine, wanted = self.engine(), keys("p", 3)
        engine.store(wanted, engine.request("stores", wanted))
        for most in (256, 0):
            for number, patch in enumerate((mock.patch.object(engine.manager._order, "chains", side_effect=KeyError), mock.patch.object(engine.manager, "_take", side_effect=KeyError))):
                engine.manager._complaints._until.clear()
                with patch, mock.patch.object(asking, "INLINE_BLOCKS", most), self.assertLogs("kvstored.vllm", "ERROR") as said:
                    self.assertEqual(engine.found(wanted, engine.request(f"raises {most} {number}", wanted)), 0)
                self.assertEqual(len(said.output), 1)
        self.assertEqual(engine.found(wanted, engine.request("\ud800", wanted)), 0)
        self.assertEqual(engine.found(wanted, engine.request("well", wanted)), 3)

    def test_blocks_that_come_up_while_the_answer_is_read(self) -> None:
        """The thread that waits for them may be faster than the one that reads."""
        engine = self.engine()
        manager, request, (key,) = engine.manager, pool._Request(SimpleNamespace(req_id="rises"), 0.0), keys("rises", 1)
        request.family = Family(None, {key[-4:]: Asked([key], Chain([key]), [0])}, {key[-4:]: 16}, 0, 16, 0)
        job = mock.MagicMock(id=7, refs=[], worth=SimpleNamespace(tokens=16), state=SimpleNamespace(done=False))
        job.wait = lambda *_: setattr(job.state, "done", True)
        with mock.patch.object(manager._waiter, "wake", lambda: manager._wait_next()):
            manager._take(request, job, 1)
        self.assertEqual((request.job, request.wanted, len(manager._rising)), (job, {}, 0))

    def test_a_job_that_is_lost_while_blocks_come_up(self) -> None:
        """What was a HIT stays one, and prepare_load has it."""
        manager, request, wanted = self.engine().manager, pool._Request(SimpleNamespace(req_id="lost"), 0.0), keys("lost", 2)
        request.family, request.wanted = Family(None, {}, {}, 0, 32, 0), dict.fromkeys(wanted)
        for refs in ([(64, 7, LAYERS * PAGE, 16)], []):
            job = mock.MagicMock(refs=refs)
            job.__len__.return_value = len(refs)
            manager._rise(request, job)
            self.assertEqual(request.rows, {wanted[0]: [(64, LAYERS * PAGE, 7)]})

    def test_a_space_that_is_refused(self) -> None:
        """It is said once, nothing is found, and the daemon does not hang."""
        engine, wanted = self.engine(), keys("q", 3)
        manager = engine.manager
        manager._client._link.spaces.clear()

        def opens(link: Any, space: Any, deadline: float) -> Any:
            raise Refused("open_space", Code.DENIED, "no right") if deadline else DeadlineExceeded("not at once")

        with mock.patch.object(manager._client, "_info", side_effect=opens) as refused, self.assertLogs("kvstored.vllm") as said:
            for name in ("looks", "looks again"):
                self.assertEqual(engine.found(wanted, engine.request(name, wanted)), 0)
            self.assertEqual(len([line for line in said.output if "a question to the daemon" in line]), 1)
            self.assertEqual(refused.call_count, 2)

    def test_an_answer_to_nobody(self) -> None:
        """There is work until it has come, or its lease would stay; and what vLLM forgets
        while it is loaded is not held."""
        engine, wanted = self.engine(), keys("t", 3)
        engine.store(wanted, engine.request("stores", wanted))
        request = engine.request("gone", wanted)
        engine.scan(wanted, request)
        engine.step()
        engine.manager.on_request_finished(request)
        self.assertTrue(engine.manager.has_pending_work())
        until(lambda: engine.step() or not engine.manager.has_pending_work())
        request = engine.request("loads", wanted)
        self.assertEqual(engine.found(wanted, request), 3)
        spec = engine.manager.prepare_load(wanted, request)
        engine.manager.reset_cache()
        self.assertEqual(engine.manager._requests, {})
        self.assertEqual([r.success for r in engine.load(wanted, request, spec=spec)], [True])

    def test_a_store_that_waits_is_bounded(self) -> None:
        """Nothing of a cache is read after the wait for it, or what was is not stored."""
        with Daemon() as daemon:
            engine, wanted = self.engine(daemon, transfer_timeout=0.3), keys("i", 3)
            daemon.pause()
            try:
                began = time.monotonic()
                self.assertEqual([r.success for r in engine.store(wanted, engine.request("stores", wanted))], [True])
                self.assertLess(time.monotonic() - began, 30)
            finally:
                daemon.resume()
            other = self.engine(daemon)
            self.assertEqual(other.found(wanted, other.request("loads", wanted)), 0)

    def test_stores_of_a_daemon_that_hangs(self) -> None:
        """Where the engine wants the blocks of a store it has them soon, and what they have
        then is not stored; the next stores are dropped at once."""
        with Daemon() as daemon:
            engine, wanted = self.engine(daemon, lookup_timeout=0.1), keys("k", 6)
            stores = engine.request("stores", wanted)
            for i, key in enumerate(wanted):
                engine.cache.fill(i, key)
            specs = [engine.manager.prepare_store(of, stores).store_spec for of in (wanted[:3], wanted[3:])]
            daemon.pause()
            try:
                engine.worker.submit_store(1, blocks_of(range(3)), specs[0])
                engine.worker.wait([1])
                engine.worker.submit_store(2, blocks_of(range(3, 6)), specs[1])
                self.assertEqual([(r.job_id, r.success) for r in engine.worker.get_finished()], [(1, True), (2, True)])
                for i in range(6):
                    engine.cache.fill(i, b"of another request")
            finally:
                daemon.resume()
            until(lambda: engine.worker._stuck.over)
            other = self.engine(daemon)
            self.assertEqual(other.found(wanted, other.request("loads", wanted)), 0)
            self.assertEqual([r.success for r in engine.store(wanted, stores)], [True])
            self.assertEqual(other.found(wanted, other.request("loads later", wanted)), 6)

    def test_events(self) -> None:
        """What the daemon says that it has is told, once; and again once it is loaded after vLLM forgot it."""

        class Spec(pool.KvstoredOffloadingSpec):
            def __init__(self, *given: Any) -> None:
                super().__init__(*given)  # vLLM's own has it of its configuration
                self.kv_events_config = SimpleNamespace(enable_kv_cache_events=True)

        with Daemon(more="events: {enabled: true}\n") as daemon:
            with mock.patch.object(pool, "KvstoredOffloadingSpec", Spec):
                engine, wanted = self.engine(daemon, enable_kv_events=True), keys("m", 3)
            until(lambda: engine.manager._events._live)
            told: List[Any] = []

            def more(removed: bool) -> None:
                told.clear()
                until(lambda: bool(told.extend(engine.manager.take_events()) or sum(len(event.keys) for event in told) >= len(wanted)))
                self.assertEqual({(event.medium, event.removed) for event in told}, {(engine.manager.medium, removed)})
                self.assertEqual(sorted(key for event in told for key in event.keys), sorted(wanted))

            stores = engine.request("stores", wanted)
            self.assertEqual(engine.found(wanted, stores), 0)
            engine.store(wanted, stores)
            more(removed=False)
            engine.manager.reset_cache()
            loads = engine.request("loads", wanted)
            self.assertEqual(engine.found(wanted, loads), 3)
            self.assertEqual(list(engine.manager.take_events()), [])
            engine.load(wanted, loads)
            engine.manager.complete_load(wanted, loads)
            self.assertTrue(engine.manager.has_pending_work())
            for _ in range(3):
                engine.step()
            self.assertFalse(engine.manager.has_pending_work())
            more(removed=False)
            daemon.kill()
            more(removed=True)

    def test_canaries(self) -> None:
        """What is there is computed all the same, compared and not stored again, and in no
        counter a miss."""
        with mock.patch.object(pool, "forms_of", lambda *_: [compare.Form(PAGE, 1, None)] * LAYERS):
            engine, wanted = self.engine(canary=1), keys("l", 4)
        engine.store(wanted, engine.request("stores", wanted))
        self.assertEqual(engine.worker.counters.take(), {})
        engine.manager._counters.take()
        again = engine.request("again", wanted)
        self.assertEqual(engine.found(wanted, again), 0)
        self.assertEqual(engine.manager._counters.take(), {})
        engine.store(wanted, again)
        self.assertEqual(engine.worker.counters.take(), {("compared", "equal"): 4})
        other = engine.request("other", wanted)
        engine.found(wanted, other)
        engine.store(wanted, other, salt=b"other")
        self.assertEqual(engine.worker.counters.take(), {("compared", "unequal"): 4})
        reader = self.engine()
        request = reader.request("reads", wanted)
        self.assertEqual(reader.found(wanted, request), 4)
        reader.load(wanted, request)
        self.assertTrue(all(reader.cache.has(i, key) for i, key in enumerate(wanted)))

    def test_distrust(self) -> None:
        """Where its option says so, blocks that prove different make the space one miss, for all engines."""
        forms = mock.patch.object(pool, "forms_of", lambda *_: [compare.Form(PAGE, 1, None)] * LAYERS)
        different = mock.patch.object(transfers, "compared", lambda *_: compare.DIFFERENT)
        for distrust in (False, True):
            with self.subTest(distrust), Daemon(disk="256MiB") as daemon, forms, different:
                engine, wanted = self.engine(daemon, canary=1, distrust=distrust), keys("d", 4)
                engine.store(wanted, engine.request("stores", wanted))
                other = engine.request("other", wanted)
                engine.found(wanted, other)
                with self.assertLogs("kvstored.vllm", "WARNING") as said:
                    engine.store(wanted, other, salt=b"other")
                self.assertEqual(engine.worker.counters.take(), {("compared", "different"): 3 if distrust else 4})
                self.assertEqual(any("distrusts the space now" in line for line in said.output), distrust)
                reader = self.engine(daemon)
                self.assertEqual(reader.found(wanted, reader.request("reads", wanted)), 0 if distrust else 4)

    def test_what_is_wrong_is_said(self) -> None:
        for given, says in (
            ({"kvstored": "x"}, "it must be an object"),
            ({"kvstored": {"sockets": "/x"}}, "knows no 'sockets'"),
            ({"kvstored": {"lookup_timeout": 0}}, "'lookup_timeout' is 0"),
            ({"kvstored": {"namespace": 7}}, "'namespace' is 7"),
            ({"kvstored": {"prefill_depth": -1}}, "'prefill_depth' is -1"),
        ):
            with self.assertRaisesRegex(ValueError, says):
                pool.KvstoredOffloadingSpec(config(given))
        made = config({})
        fields = {**vars(made), "cache": SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=2)}
        with self.assertRaisesRegex(ValueError, "block by block"):
            pool.KvstoredOffloadingSpec(SimpleNamespace(**fields))


class AtOnce(Pool):
    """Of which it is known what it looks up: a step waits a moment for its first question's answer."""

    # What these look at lies between a step's end and the answer.
    test_a_lease_ends_between_steps: Any = None
    test_a_long_question: Any = None
    test_a_question_that_is_not_sent_at_once: Any = None
    test_an_answer_to_nobody: Any = None
    test_what_raises_in_a_question: Any = None

    def engine(self, daemon: Any = None, **given: Any) -> Engine:
        engine = super().engine(daemon, **given)
        engine.manager.tell([SimpleNamespace(group_idx=0, is_eagle_group=False, sliding_window_size_in_chunks=None)])
        return engine
