"""The daemon's memory as vLLM's own offload pool: an OffloadingSpec without host memory of
vLLM's.

    "spec_name": "KvstoredOffloadingSpec", "spec_module_path": "kvstored.vllm"

The manager, in vLLM's scheduler, leases what requests ask for; the workers copy between
blocks of the KV cache and the daemon's memory. The daemon is the only index: a store that
fails is a miss later, and nothing else.

No byte is believed because of what was leased. On CPUs a worker sums the bytes in the pass
that copies them, and reports a load as done only where that is the sum that the daemon has.
On a GPU it renews the manager's lease once the copy has ended: that is refused unless it
has held all the time, in this life of the daemon (:mod:`kvstored.device`). What does
not prove right is loaded once more by its keys; what cannot be had then is a load that
failed (:mod:`kvstored.vllm.connector`).
"""

import collections
import functools
import logging
import random
import time
from typing import Any, Collection, Deque, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .. import options
from .._engine import Complaints, find
from ..chains import digests
from ..client import Asking, Client
from ..errors import Error
from ..job import ALL, Job
from ..pages import Pages
from ..prefill import Prefill
from ..prompt import Prompt
from .asking import Questions, short
from .compare import forms_of
from .jobs import Worker
from .order import Order, group, named
from .space import fingerprint
from .stats import Counters, Events, definitions
from .transfers import PoolWorker


_BASE = "vllm.v1.kv_offload.base"
OffloadingSpec: Any = find(_BASE, "OffloadingSpec", newer=True) or object
OffloadingManager: Any = find(_BASE, "OffloadingManager", newer=True) or object
PrepareStoreOutput: Any = find(_BASE, "PrepareStoreOutput", newer=True)
LookupResult: Any = find(_BASE, "LookupResult")
RequestOffloadingContext: Any = find(_BASE, "RequestOffloadingContext")
Medium: Any = find(_BASE, "Medium")
Locality: Any = find(_BASE, "Locality")
CacheHitSource: Any = find("vllm.v1.metrics.cache_hit_source", "CacheHitSource", newer=True)

current_platform: Any = find("vllm.platforms", "current_platform", newer=True)

log = logging.getLogger("kvstored.vllm")

_HELD_SECONDS = 30.0  # that a lease waits for its request to be scheduled
_MISS_SECONDS = 5.0  # after which a request that waits asks again
_WAIT_SECONDS = 0.05  # between looks at what comes up from below
_DENIED_SECONDS = 30.0  # for which a space that the daemon refuses is not asked for again
_LOADS = 3  # of one request: one whose loads fail is computed in the end
_REQUESTS = 4096  # of which it is known how often they loaded

#: The keys of ``"kvstored"``, an object in kv_connector_extra_config.
KEYS = {
    **options.COMMON,
    "lookup_timeout": options.seconds(0.5),
    "transfer_timeout": options.seconds(10.0),
    "canary": options.check_existing(0),
    "distrust": options.flag(False),
    "enable_kv_events": options.flag(False),
    "model": options.text(),
}


Row = Tuple[int, int, int]  # offset, bytes and checksum


class Load(NamedTuple):
    """What is to be loaded: it goes from the manager to the workers."""

    keys: List[bytes]
    before: List[bytes]  # digests of what they follow
    refs: List[List[Row]]  # by rank
    epoch: int  # of the daemon in whose memory they lie
    job: int  # whose lease they are under, shared with the workers


class Store(NamedTuple):
    """What is to be stored, in the order of its blocks: runs, each with what it follows."""

    runs: List[Tuple[List[bytes], Optional[List[bytes]]]]
    compare: bool = False  # with what is stored, each of them


class _Request:
    """What a request has asked for, and its lease."""

    def __init__(self, context: Any, now: float) -> None:
        self.context, self.until = context, now
        self.keys: Dict[Any, None] = {}
        self.answered = self.loading = self.finished = False
        self.job: Optional[Job] = None
        self.numbers: Dict[Any, int] = {}  # of keys in the job
        self.before: List[bytes] = []
        self.rows: List[List[Row]] = []  # of those that are there, by number and rank: kept, as the job may be lost
        self.found = self.epoch = 0

    @property
    def ready(self) -> int:
        return len(self.rows)


class _Question(NamedTuple):
    """About requests."""

    requests: List[_Request]
    asking: Asking


class Manager(OffloadingManager):
    """Of one engine. Its methods are called one at a time, and none waits."""

    # Of its events:
    medium: Any = Medium and Medium.STORAGE
    locality: Any = Locality and Locality.LOCAL
    tier_type = "KvstoredOffloadingSpec"

    def __init__(self, spec: "KvstoredOffloadingSpec") -> None:
        o = spec.options
        self._timeout, self._patience, self._canary = o["lookup_timeout"], o["transfer_timeout"], o["canary"]
        gpu = getattr(current_platform, "device_type", "cpu") != "cpu"
        # It attaches when the workers of GPUs do: once the daemon's memory is populated.
        self._client = Client(o["socket"], space=spec.spaces[0], name="vllm", timeout=self._patience, keep_staging=gpu)
        self._pages = Pages(self._client, spec.spaces[0], others=spec.spaces[1:])
        self._bytes = spec.chunk_bytes
        self._order, self._counters, self._complaints = Order(), Counters(), Complaints(log)
        self._prefill = Prefill(o["prefill_tokens_per_second"], o["prefill_depth"])
        self._requests: Dict[str, _Request] = {}
        self._fresh: List[_Request] = []  # of this step
        self._loads: "collections.OrderedDict[str, int]" = collections.OrderedDict()
        self._questions = Questions(self._complaints)
        self._long: Deque[List[_Request]] = collections.deque()  # of questions that its own thread asks, until they are told
        self._told: Deque[List[_Request]] = collections.deque()  # with an answer of which no step has heard
        self._denied = 0.0  # until when the daemon refuses a space
        self._heard = False  # whether this step has looked for answers
        self._canaries: "collections.OrderedDict[str, None]" = collections.OrderedDict()  # requests that compute what is there
        self._rising: Deque[_Request] = collections.deque()  # whose blocks come up
        self._events, self._space_id = Events(self, o["enable_kv_events"], spec, by_daemon=True), b""
        self._events.follow(self._client.socket, self._patience)
        self._client.open_spaces(spec.spaces)
        self._asker = Worker("ask", self._ask_next)
        self._waiter = Worker("rise", self._wait_next)

    # ---- called by vLLM's scheduler ----------------------------------------------

    def on_new_request(self, req_context: Any) -> Any:
        return RequestOffloadingContext()

    def lookup(self, key: Any, req_context: Any) -> Any:
        """HIT for a block that is leased, in DRAM; RETRY while the daemon is asked, or
        the block comes up; else MISS."""
        now = time.monotonic()
        if self._pending() and not self._heard:
            self._heard = True  # an answer in the middle of a scan would be one to a part of it
            self._hear()
        if not self._client.attached or self._loads.get(req_context.req_id, 0) >= _LOADS:
            return LookupResult.MISS
        request = self._requests.get(req_context.req_id)
        if request is None:
            request = self._requests[req_context.req_id] = _Request(req_context, now + self._timeout)
            self._fresh.append(request)
        if not request.answered:
            if request in self._fresh:
                request.keys[key] = None
            return LookupResult.RETRY if now < request.until else LookupResult.MISS
        number = request.numbers.get(key, request.found)
        if number >= request.found:
            return LookupResult.MISS
        if number < request.ready:
            return LookupResult.HIT
        return LookupResult.RETRY if now < request.until else LookupResult.MISS

    def get_load_source(self, key: Any, req_context: Any) -> Any:
        return CacheHitSource.HOST

    def prepare_load(self, keys: Collection[Any], req_context: Any) -> Load:
        """Asks the daemon nothing, and cannot fail: all of it came with the lease."""
        request = self._requests[req_context.req_id]
        request.loading = True
        self._loads[req_context.req_id] = self._loads.get(req_context.req_id, 0) + 1
        while len(self._loads) > _REQUESTS:
            self._loads.popitem(last=False)
        rows = [request.rows[request.numbers[key]] for key in keys]
        first = request.numbers[next(iter(keys))]
        before = request.before + digests([named(k) for k, n in request.numbers.items() if n < first])
        return Load([named(key) for key in keys], before, [list(of) for of in zip(*rows)], request.epoch, request.job.id if request.job else 0)

    def complete_load(self, keys: Collection[Any], req_context: Any) -> None:
        self._events.loading(keys, lambda _: self._space_id)  # the lease is held until it is dropped
        self._events.loaded(req_context.req_id, list(keys), lambda _: self._space_id)
        self._events.taken([req_context.req_id])
        self._drop(req_context.req_id)

    def prepare_store(self, keys: Collection[Any], req_context: Any) -> Any:
        """Names the blocks: the workers reserve and copy. With no daemon nothing is stored."""
        runs = self._order.runs(req_context, list(keys)) if self._client.attached else []
        if any(run.before is None for run in runs):  # then their order is not vLLM's
            runs = []
        stored = [key for run in runs for key in run.keys]
        if stored:
            self._prefill.stored(stored)
            self._events.storing(self._space_id, stored)
        store = Store([([named(key) for key in run.keys], run.before) for run in runs], req_context.req_id in self._canaries)
        return PrepareStoreOutput(keys_to_store=stored, store_spec=store, evicted_keys=[])

    def on_request_finished(self, req_context: Any) -> None:
        self._loads.pop(req_context.req_id, None)
        self._order.forget(req_context)
        request = self._requests.get(req_context.req_id)
        if request is not None and not request.loading:
            self._drop(req_context.req_id)

    def on_schedule_end(self, context: Any = None) -> None:
        """What was asked for in this step goes out; leases that waited too long go back."""
        if self._pending() and not self._heard:  # of requests that are gone
            self._hear()
        self._heard = False
        if self._fresh:
            asked, self._fresh = self._fresh, []
            if short(sum(len(request.keys) for request in asked), [request.context for request in asked]):
                self._ask(asked)
            else:
                self._ask_later(asked)
        for worker in (self._asker, self._waiter):
            worker.rest()
        self._events.end_step()
        now = time.monotonic()
        for name, request in list(self._requests.items()):
            if request.answered and not request.loading and now > request.until and request.ready >= request.found:
                self._drop(name)

    def take_events(self) -> Iterable[Any]:
        return self._events.take()

    def has_pending_work(self) -> bool:
        """Also while there may be an answer with a lease, of a request that is gone."""
        return self._events.waits or self._pending()

    def reset_cache(self) -> None:
        """vLLM forgets its blocks, and the loads under way; those of the daemon stay true."""
        for name in list(self._requests):
            self._drop(name)
        self._fresh = []
        self._events.forgotten()

    def get_stats(self) -> Any:
        return self._counters.stats()

    def shutdown(self) -> None:
        for worker in (self._asker, self._waiter):
            worker.stop()
        self._client.close()
        self._events.close()
        for worker in (self._asker, self._waiter):
            worker.join(self._timeout + 1.0)
        self._pages.close()

    def _drop(self, name: str) -> None:
        request = self._requests.pop(name, None)
        if request is not None:
            request.finished = True
            if request.job is not None:
                request.job.release_soon()

    def _pending(self) -> bool:
        """Whether there are questions of which no step has heard the answer."""
        return bool(self._questions or self._long or self._told)

    def _question(self, asked: List[_Request], patient: bool = False) -> Optional[_Question]:
        """One question for the prompts of a step, None where nothing is to be asked."""
        prompts: List[Tuple[_Request, Prompt]] = []
        if time.monotonic() < self._denied:
            return None
        for request in asked:
            chain = self._order.chains(request.context).get(group(next(iter(request.keys))))
            if request.finished or chain is None or any(key not in chain.numbers for key in request.keys):
                continue
            first, end = (f(chain.numbers[key] for key in request.keys) for f in (min, max))
            keys, request.before = chain.keys[first : end + 1], chain.before(first)
            request.numbers = {key: i for i, key in enumerate(keys)}
            prompts.append((request, self._pages.prompt([named(key) for key in keys], request.before)))
        if not prompts:
            return None
        if self._events.enabled:
            self._space_id = self._pages.space_id(self._timeout if patient else 0.0)
        say = self._prefill.says()
        asking = self._client.ask(
            [prompt for _, prompt in prompts], lookup_ids=[str(r.context.req_id)[:256] for r, _ in prompts], load_deadline=self._patience,
            ranks=self._pages.others, configs=say.configs, prefill_rate=say.prefill_rate, shared=True, patient=patient, timeout=self._timeout,
        )  # fmt: skip
        return _Question([request for request, _ in prompts], asking)

    def _ask(self, asked: List[_Request]) -> None:
        """Asks, and does not wait for the answer: the first lookup of a step that finds it
        there takes note of it."""
        question = None
        try:
            question = self._question(asked)
        except Exception:
            self._complaints.say("a question to the daemon")
        for request in asked:
            request.answered = True  # also where the daemon is not asked: with nothing found
        if question is None:
            return
        for request in question.requests:
            request.answered = False
        if not self._questions.add(question.asking, functools.partial(self._answer, question)):
            self._ask_later(question.requests)

    def _ask_later(self, requests: List[_Request]) -> None:
        self._long.append(requests)
        self._asker.wake()

    def _hear(self) -> None:
        """Takes note of the answers that are there."""
        self._questions.hear()
        while self._told:
            for request in self._told.popleft():
                request.answered = True

    def _answer(self, question: _Question, jobs: Sequence[Job]) -> None:
        """The requests hear of it in a step."""
        link = question.asking.link
        epoch = 0 if link is None else int(link.hello.epoch)
        good = link is not None and self._client.epoch == epoch
        for request, job in zip(question.requests, jobs):
            try:
                self._answer_one(request, job, epoch, good)
            except Exception:
                job.release_soon()
                self._complaints.say("an answer of the daemon")
        self._told.append(question.requests)

    def _answer_one(self, request: _Request, job: Job, epoch: int, good: bool) -> None:
        canary = job.worth.chunks > 0 and self._canary > 0 and random.randrange(self._canary) == 0
        if canary:
            self._compute(request)
        if good and job.id and not canary:
            self._take(request, job, epoch)
        else:
            job.release_soon()
        if canary:
            return
        missing = len(request.numbers) - request.found
        self._counters.add("lookups", request.found, "hit")
        self._counters.add("lookups", missing, "miss")
        if missing:
            self._prefill.asked(list(request.numbers)[-1], missing * self._pages.space.chunk_tokens)

    def _compute(self, request: _Request) -> None:
        """Has vLLM compute what is there, which is then compared and not stored."""
        self._canaries[request.context.req_id] = None
        while len(self._canaries) > _REQUESTS:
            self._canaries.popitem(last=False)

    def _take(self, request: _Request, job: Job, epoch: int) -> None:
        request.epoch, request.job, now = epoch, job, time.monotonic()
        self._rise(request, job)
        request.found = job.worth.chunks
        if request.ready < request.found and not job.state.done:
            request.until = now + self._patience
            self._rising.append(request)
            self._waiter.wake()
        else:
            request.found = request.ready
            request.until = now + (_HELD_SECONDS if request.found else _MISS_SECONDS)
        if request.finished:  # while the daemon was asked
            job.release_soon()

    def _rise(self, request: _Request, job: Job) -> None:
        """Takes note of what is there, from the first on, and as long as a block is here."""
        for number in range(request.ready, min(len(job), job.worth.chunks)):
            try:
                refs = [job.ref(number, rank) for rank in range(job.ranks)]
            except IndexError:  # the request has ended meanwhile
                break
            if any(ref.length != self._bytes for ref in refs):
                break
            request.rows.append([(ref.offset, ref.length, ref.sum) for ref in refs])

    # ---- the manager's threads ---------------------------------------------------

    def _ask_next(self) -> Optional[float]:
        """Asks what is long, or was not sent at once, and waits for the answer."""
        if not self._long:
            return None
        question = None
        try:
            question = self._question(self._long[0], patient=True)
            if question is not None:
                self._answer(question, question.asking.wait()[0])
        except Exception:
            if question is not None and question.asking.link is None:  # a space is refused: nothing of it is there
                self._denied = time.monotonic() + _DENIED_SECONDS
            self._complaints.say("a question to the daemon")
        self._told.append(self._long[0])
        self._long.popleft()
        return 0

    def _wait_next(self) -> Optional[float]:
        """Waits a little for one of those whose blocks come up."""
        if not self._rising:
            return None
        request = self._rising.popleft()
        job = request.job
        if request.finished or job is None:
            return 0
        try:
            job.wait(ALL, _WAIT_SECONDS)
            self._rise(request, job)
            over = job.state.done or request.ready >= request.found or time.monotonic() > request.until
        except (Error, IndexError):  # it was lost
            over = True
        if over:
            request.found = request.ready
            request.until = time.monotonic() + (_HELD_SECONDS if request.found else _MISS_SECONDS)
        else:
            self._rising.append(request)
        return 0


class KvstoredOffloadingSpec(OffloadingSpec):
    """The daemon's memory as vLLM's pool: see the module."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        o = self.options = options.check("KvstoredOffloadingSpec", _given(config.extra_config), KEYS)
        if len(config.groups) != 1:
            raise ValueError(f"KvstoredOffloadingSpec holds one group of layers so far, and this model has {len(config.groups)}: take KvstoredTier")
        if config.cache.blocks_per_chunk != 1 or getattr(config, "canonical_layout", False):
            raise ValueError('KvstoredOffloadingSpec stores block by block: leave "block_size" and "canonical_layout" out of kv_connector_extra_config')
        self.chunk_bytes = int(config.worker_kv_bytes_per_block)
        world = int(config.parallel.world_size)
        # Rows of vLLM's host memory, as KvstoredTier has them, are whole pages.
        space = fingerprint(self, -(-self.chunk_bytes // 4096) * 4096, o["model"], o["revision"], o["namespace"])
        self.spaces = [space._replace(world=world, worker=rank) for rank in range(world)]
        self.caches: Any = None  # by layer, as vLLM registers them: from KvstoredConnector
        self._manager: Optional[Manager] = None
        self._worker: Optional[PoolWorker] = None

    @classmethod
    def build_metric_definitions(cls, extra_config: Dict[str, Any]) -> Dict[str, Any]:
        return definitions()

    def get_manager(self) -> Manager:
        if self._manager is None:
            self._manager = Manager(self)
        return self._manager

    def get_worker(self, kv_caches: Any) -> PoolWorker:
        if self._worker is None:
            o, rank = self.options, int(self.config.parallel.rank)
            sizes = [ref.page_size_bytes for ref in kv_caches.group_data_refs[0]]
            forms = forms_of(self.caches, self.config.groups[0].layer_names, sizes, str(getattr(self.config, "kv_cache_layout", "")))
            self._worker = PoolWorker(
                kv_caches, self.spaces[rank], rank, o["socket"], o["transfer_timeout"], o["check_existing"], o["lookup_timeout"], forms, o["distrust"]
            )
        return self._worker


def _given(extra: Any) -> Dict[str, Any]:
    given = extra.get("kvstored", {})
    if not isinstance(given, dict):
        raise ValueError(f'"kvstored" in kv_connector_extra_config is {given!r}: it must be an object')
    return given
