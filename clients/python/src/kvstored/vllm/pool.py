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
import itertools
import logging
import random
import time
from typing import Any, Collection, Deque, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .. import _groups, options
from .._engine import Complaints, find, never_raises, nothing
from .._groups import FULL, Member
from ..client import Asking, Client
from ..errors import Error
from ..job import ALL, Job
from ..prefill import Prefill
from ..prompt import Space
from . import groups
from .asking import Questions
from .compare import forms_of
from .families import Asked, Family, family
from .groups import Groups
from .jobs import Worker
from .order import Order, group, named, number, positions
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
_TOGETHER = 2048  # blocks of a question of the thread, their prefixes counted: some 20 ms
_BURST = 4  # times the timeout that a request waits at most where many come in one step
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
_NOWHERE: Row = (0, 0, 0)  # of a block that is loaded by its key


class Part(NamedTuple):
    """Blocks of one group of layers."""

    group: int  # as keys number it
    keys: List[bytes]
    before: Optional[List[bytes]]  # digests of what they follow; None: each stands alone
    refs: Sequence[List[Row]] = ()  # by rank


class Load(NamedTuple):
    """What is to be loaded, in the order of its blocks: it goes from the manager to the workers."""

    parts: List[Part]
    epoch: int  # of the daemon in whose memory they lie
    job: int  # whose lease they are under, shared with the workers


class Store(NamedTuple):
    """What is to be stored, in the order of its blocks."""

    parts: List[Part]
    compare: bool = False  # with what is stored, each of them


class _Request:
    """What a request has asked for, and its lease."""

    def __init__(self, context: Any, timeout: float) -> None:
        now = time.monotonic()
        self.context, self.until, self.last = context, now + timeout, now + _BURST * timeout
        self.keys: Dict[Any, None] = {}
        self.fresh = True  # of this step
        self.answered = self.late = self.loading = self.finished = False
        self.family: Optional[Family] = None  # the question about it
        self.job: Optional[Job] = None
        self.wanted: Collection[Any] = ()  # keys of the job, in its order
        self.rows: Dict[Any, List[Row]] = {}  # of blocks that are there, by rank: kept, as the job may be lost
        self.epoch = 0

    @property
    def ready(self) -> bool:
        return len(self.rows) >= len(self.wanted)


class _Question(NamedTuple):
    """About requests."""

    requests: List[_Request]
    asking: Asking


class Manager(OffloadingManager):
    """Of one engine. Its methods are called one at a time, and none waits longer than a moment
    (:mod:`.asking`)."""

    # Of its events:
    medium: Any = Medium and Medium.STORAGE
    locality: Any = Locality and Locality.LOCAL
    tier_type = "KvstoredOffloadingSpec"

    def __init__(self, spec: "KvstoredOffloadingSpec") -> None:
        o = spec.options
        self._timeout, self._patience, self._canary = o["lookup_timeout"], o["transfer_timeout"], o["canary"]
        gpu = getattr(current_platform, "device_type", "cpu") != "cpu"
        # It attaches when the workers of GPUs do: once the daemon's memory is populated.
        self._client = Client(o["socket"], space=spec.space, name="vllm", timeout=self._patience, keep_staging=gpu)
        self._names = [n.to_bytes(4, "big") for n in spec.groups]
        self._groups = Groups(self._client, spec.space, groups.of_spec(spec) if len(self._names) > 1 else [FULL], spec, True, 0)
        self._ranks = spec.space.world
        self._bytes = spec.chunk_bytes if len(self._names) == 1 else 0  # of a block of any group; 0: not known here
        self._order, self._counters, self._complaints = Order(self._groups.tokens), Counters(), Complaints(log)
        self._prefill = Prefill(o["prefill_tokens_per_second"], o["prefill_depth"])
        self._requests: Dict[str, _Request] = {}
        self._fresh: List[_Request] = []  # of this step
        self._loads: "collections.OrderedDict[str, int]" = collections.OrderedDict()
        self._questions = Questions(self._complaints)
        self._long: Deque[List[_Request]] = collections.deque()  # of questions that its own thread asks, until they are told
        self._told: Deque[List[_Request]] = collections.deque()  # with an answer of which no step has heard
        self._denied = 0.0  # until when the daemon refuses a space
        self._able = self._told_kinds()
        self._forward = False  # whether vLLM is known to look up a prompt from its start on, and no groups beside
        self._heard = False  # whether this step has looked for answers
        self._canaries: "collections.OrderedDict[str, None]" = collections.OrderedDict()  # requests that compute what is there
        self._rising: Deque[_Request] = collections.deque()  # whose blocks come up
        self._events = Events(self, o["enable_kv_events"], spec, by_daemon=True)
        self._space_ids: Dict[bytes, bytes] = {}  # by group
        self._events.follow(self._client.socket, self._patience)
        self._client.open_spaces([spec.space_of(n, rank) for n in spec.groups for rank in range(self._ranks)])
        self._asker = Worker("ask", self._ask_next)
        self._waiter = Worker("rise", self._wait_next)

    # ---- called by vLLM's scheduler ----------------------------------------------

    def on_new_request(self, req_context: Any) -> Any:
        return RequestOffloadingContext()

    @never_raises(lambda _: LookupResult.MISS)
    def lookup(self, key: Any, req_context: Any) -> Any:
        """HIT for a block that is leased, in DRAM; RETRY while the daemon is asked, or
        the block comes up; else MISS."""
        now = time.monotonic()
        if self._pending() and not self._heard:
            self._heard = True  # an answer in the middle of a scan would be one to a part of it
            self._hear()
        if not self._client.attached or not self._able or self._loads.get(req_context.req_id, 0) >= _LOADS:
            return LookupResult.MISS
        request = self._requests.get(req_context.req_id)
        first = request is None  # of a scan
        if request is not None and request.rows and not request.loading and request.epoch != self._client.epoch:
            self._drop(req_context.req_id)  # its blocks are not there any more
            request = None
        if request is None:
            request = self._requests[req_context.req_id] = _Request(req_context, self._timeout)
            self._fresh.append(request)
            if first:
                self._ask_at_once(request, key)
        if not request.answered:
            if request.fresh:
                request.keys[key] = None
            request.late = request.late or now >= request.until
            return LookupResult.MISS if request.late else LookupResult.RETRY
        if key in request.rows:
            return LookupResult.HIT
        return LookupResult.RETRY if key in request.wanted and now < request.until else LookupResult.MISS

    def get_load_source(self, key: Any, req_context: Any) -> Any:
        return CacheHitSource.HOST

    def prepare_load(self, keys: Collection[Any], req_context: Any) -> Load:
        """Asks the daemon nothing, and cannot fail: all of it came with the lease."""
        request = self._requests[req_context.req_id]
        request.loading = True
        self._loads[req_context.req_id] = self._loads.get(req_context.req_id, 0) + 1
        while len(self._loads) > _REQUESTS:
            self._loads.popitem(last=False)
        parts = [self._part(request, list(run)) for _, run in itertools.groupby(keys, group)]
        return Load(parts, request.epoch, request.job.id if request.job else 0)

    def _part(self, request: _Request, keys: List[Any]) -> Part:
        """What is to be loaded of one group."""
        name, rows = group(keys[0]), [request.rows.get(key) or [_NOWHERE] * self._ranks for key in keys]
        found = None if self._groups.alone(name) else self._order.numbered(request.context, keys)
        before = None if found is None else found[0].before(found[1][0])
        return Part(number(name), [named(key) for key in keys], before, [list(of) for of in zip(*rows)])

    @never_raises(nothing(None))
    def complete_load(self, keys: Collection[Any], req_context: Any) -> None:
        self._events.loading(keys, self._space_id)  # the lease is held until it is dropped
        self._events.loaded(req_context.req_id, list(keys), self._space_id)
        self._events.taken([req_context.req_id])
        self._drop(req_context.req_id)

    @never_raises(lambda _: PrepareStoreOutput(keys_to_store=[], store_spec=Store([]), evicted_keys=[]))
    def prepare_store(self, keys: Collection[Any], req_context: Any) -> Any:
        """Names the blocks: the workers reserve and copy. With no daemon nothing is stored."""
        runs = self._order.runs(req_context, list(keys)) if self._client.attached and self._able else []
        if any(run.before is None for run in runs):  # then their order is not vLLM's
            runs = []
        stored = [key for run in runs for key in run.keys]
        if stored:
            self._prefill.stored(stored)
        parts: List[Part] = []
        for keys_of, before in runs:
            name = group(keys_of[0])
            self._events.storing(self._space_ids.get(name, b""), keys_of)
            parts.append(Part(number(name), [named(key) for key in keys_of], None if self._groups.alone(name) else before))
        store = Store(parts, req_context.req_id in self._canaries)
        return PrepareStoreOutput(keys_to_store=stored, store_spec=store, evicted_keys=[])

    @never_raises(nothing(None))
    def on_request_finished(self, req_context: Any) -> None:
        self._loads.pop(req_context.req_id, None)
        self._order.forget(req_context)
        request = self._requests.get(req_context.req_id)
        if request is not None and not request.loading:
            self._drop(req_context.req_id)

    @never_raises(nothing(None))
    def on_schedule_end(self, context: Any = None) -> None:
        """What was asked for in this step goes out; leases that waited too long go back."""
        if self._pending() and not self._heard:  # of requests that are gone
            self._hear()
        self._heard = False
        self._questions.end_step()
        if self._fresh:
            asked, self._fresh = self._fresh, []
            for request in asked:
                request.fresh = False
            if not self._questions.full and self._questions.short(sum(len(request.keys) for request in asked), [request.context for request in asked]):
                self._ask(asked)
            else:
                self._ask_later(asked)
        for worker in (self._asker, self._waiter):
            worker.rest()
        self._events.end_step()
        now = time.monotonic()
        for name, request in list(self._requests.items()):
            if request.answered and not request.loading and now > request.until and request.ready:
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
        self._groups.close()

    # ---- called by KvstoredConnector ---------------------------------------------

    def tell(self, configs: Iterable[Any], bounded: bool = False) -> None:
        """What vLLM's scheduler looks for in each group, which the specification need not say. Of a
        hybrid model with a draft model's layers nothing is found. ``bounded``: some groups are
        not offloaded, and scans end where those do."""
        windows = {c.group_idx: None if c.is_eagle_group else c.sliding_window_size_in_chunks or 0 for c in configs}
        if len(self._names) > 1:
            self._groups.tell(windows)
            self._able = self._told_kinds()
        else:
            self._forward = list(windows.values()) == [0] and not bounded

    def _told_kinds(self) -> bool:
        """Whether it is known what a prefix needs of each group."""
        return all(self._groups.kind(name) is not None for name in self._names)

    def _space_id(self, key: Any) -> bytes:
        return self._space_ids.get(group(key), b"")

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
        if time.monotonic() < self._denied or not self._able:
            return None
        about: List[Family] = []
        for request in asked:
            request.family = None if request.finished or request.late else self._family(request)
            if request.family is not None:
                about.append(request.family)
        if not about:
            return None
        names = list(about[0].groups)  # of all
        if self._events.enabled:
            self._space_ids = {name: self._groups.pages(name).space_id(self._timeout if patient else 0.0) for name in names}
        members = [Member(self._groups.pages(name).space, self._groups.kind(name) or FULL) for name in names]
        asking = _groups.ask(
            self._client, [f.prompt()._replace(space=members[0].space) for f in about], self._prefill, self._timeout,
            members if len(names) > 1 else (), [f.context.req_id for f in about],
            [m.space._replace(worker=rank) for rank in range(1, self._ranks) for m in members], self._patience, shared=True, patient=patient,
        )  # fmt: skip
        return _Question([request for request in asked if request.family is not None], asking)

    def _family(self, request: _Request) -> Optional[Family]:
        """What a request asks for; None where that is no question, as of a group alone."""
        asked: Dict[bytes, Asked] = {}
        for name in self._names:
            keys = [key for key in request.keys if group(key) == name]
            found = self._order.numbered(request.context, keys) if keys else None
            if found is None:
                return None
            asked[name] = Asked(keys, *found)
        if len(asked) > 1:
            return family(request.context, asked, self._names, self._groups, lambda key: "asked" if key in request.keys else None)
        ((name, only),) = asked.items()
        size = self._groups.tokens(name)
        return Family(request.context, asked, {name: size}, min(only.numbers) * size, (max(only.numbers) + 1) * size, 0)

    def _ask_at_once(self, request: _Request, key: Any) -> None:
        """Asks for a request at its first lookup, whose scan will go on to the prompt's end, and
        waits a moment for the answer."""
        busy = not (self._asker.idle and self._waiter.idle)  # each hand-over of the interpreter may take 5 ms
        if not self._forward or busy or len(self._fresh) > 1 or self._pending() or not self._questions.quick(request.context):
            return
        found = self._order.numbered(request.context, [key])
        keys = [] if found is None else found[0].keys[found[1][0] :]
        if not keys or not self._questions.short(len(keys), ()):
            return
        self._fresh.clear()
        request.keys, request.fresh = dict.fromkeys(keys), False
        self._ask([request])
        self._questions.hear_soon(len(keys))
        self._heard = True
        self._hear()

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
        """Has the thread ask, some at a time: each question has its own time to be answered."""
        some: List[_Request] = []
        blocks = 0
        for request in requests:
            request.until = request.last
            size = len(request.keys) + len(positions(request.context))
            if some and blocks + size > _TOGETHER:
                self._long.append(some)
                some, blocks = [], 0
            some.append(request)
            blocks += size
        self._long.append(some)
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
        if good and job.id and not canary and not request.late:
            self._take(request, job, epoch)
        else:
            job.release_soon()
        if canary:
            return
        assert request.family is not None
        found = job.ready if job.state.done else job.worth
        blocks, missing = request.family.behind(found.tokens if request.wanted else 0)
        self._counters.add("lookups", len(request.wanted), "hit")
        self._counters.add("lookups", blocks, "miss")
        if missing:
            self._prefill.asked(request.family.last, missing)

    def _compute(self, request: _Request) -> None:
        """Has vLLM compute what is there, which is then compared and not stored."""
        self._canaries[request.context.req_id] = None
        while len(self._canaries) > _REQUESTS:
            self._canaries.popitem(last=False)

    def _take(self, request: _Request, job: Job, epoch: int) -> None:
        assert request.family is not None
        request.epoch, request.job = epoch, job
        request.wanted = dict.fromkeys(request.family.needed(self._groups, request.family.skip + job.worth.tokens))
        self._rise(request, job)
        if not request.ready and not job.state.done:
            request.until = time.monotonic() + self._patience
            self._rising.append(request)
            self._waiter.wake()
        else:
            self._settle(request)
        if request.finished:  # while the daemon was asked
            job.release_soon()

    def _settle(self, request: _Request) -> None:
        """Nothing more comes up."""
        request.wanted = request.rows
        request.until = time.monotonic() + (_HELD_SECONDS if request.rows else _MISS_SECONDS)

    def _rise(self, request: _Request, job: Job) -> None:
        """Takes note of what is there: of one group from the first block on, and as long as a
        block is here; of several at once, as nothing is usable before."""
        assert request.family is not None
        try:
            rows = iter(job.refs)
        except IndexError:  # the request has ended meanwhile
            return
        there: Dict[Any, List[Row]] = {}
        for key in self._brought(request, job):
            refs = [(offset, size, total) for offset, total, size, _ in itertools.islice(rows, self._ranks)]
            if len(refs) < self._ranks or any(size != (self._bytes or size) for _, size, _ in refs):
                break
            there[key] = refs
        if len(there) > len(request.rows):  # of a job that is lost there are none
            request.rows = there

    def _brought(self, request: _Request, job: Job) -> Iterable[Any]:
        """The keys of a job's refs."""
        assert request.family is not None
        if len(self._names) == 1:
            return itertools.islice(request.wanted, len(job))
        needs = zip(request.family.groups.values(), job.needs)
        return [key for asked, need in needs for key in asked.chain.keys[need.first : need.first + need.chunks]]

    # ---- the manager's threads ---------------------------------------------------

    def _ask_next(self) -> Optional[float]:
        """Asks what is long, or was not sent at once, and waits for the answer."""
        if not self._long:
            return None
        question, until = None, time.monotonic() + self._timeout
        for request in self._long[0]:
            request.until = min(until, request.last)
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
            job.wait(ALL, max(_WAIT_SECONDS / (1 + len(self._rising)), 1e-3))
            self._rise(request, job)
            over = job.state.done or request.ready or time.monotonic() > request.until
        except (Error, IndexError):  # it was lost
            over = True
        if over:
            self._settle(request)
        else:
            self._rising.append(request)
        return 0


class KvstoredOffloadingSpec(OffloadingSpec):
    """The daemon's memory as vLLM's pool: see the module."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        o = self.options = options.check("KvstoredOffloadingSpec", _given(config.extra_config), KEYS)
        if config.cache.blocks_per_chunk != 1 or getattr(config, "canonical_layout", False):
            raise ValueError('KvstoredOffloadingSpec stores block by block: leave "block_size" and "canonical_layout" out of kv_connector_extra_config')
        self.chunk_bytes = int(config.worker_kv_bytes_per_block)
        world = int(config.parallel.world_size)
        # Rows of vLLM's host memory, as KvstoredTier has them, are whole pages.
        space = fingerprint(self, -(-self.chunk_bytes // 4096) * 4096, o["model"], o["revision"], o["namespace"])
        if len(config.groups) > 1:  # a block has its own group's bytes only, which need not fill a row
            space = space._replace(tags=(*space.tags, ("rows", "groups")))
        self.groups = groups.numbers(self)
        self._tokens = dict(zip(self.groups, groups.chunks(self)))
        self.space = space._replace(world=world)
        self.caches: Any = None  # by layer, as vLLM registers them: from KvstoredConnector
        self._manager: Optional[Manager] = None
        self._worker: Optional[PoolWorker] = None

    def space_of(self, group: int, rank: int) -> Space:
        """That of a group of layers, by its number, and of a rank."""
        return groups.space_of(self.space._replace(worker=rank), group, self._tokens[group])

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
            layout = str(getattr(self.config, "kv_cache_layout", ""))
            forms = [
                forms_of(self.caches, of.layer_names, [ref.page_size_bytes for ref in refs], layout)
                for of, refs in zip(self.config.groups, kv_caches.group_data_refs)
            ]
            spaces = {n: self.space_of(n, rank) for n in self.groups}
            self._worker = PoolWorker(
                kv_caches, spaces, rank, o["socket"], o["transfer_timeout"], o["check_existing"], o["lookup_timeout"], forms, o["distrust"]
            )
        return self._worker


def _given(extra: Any) -> Dict[str, Any]:
    given = extra.get("kvstored", {})
    if not isinstance(given, dict):
        raise ValueError(f'"kvstored" in kv_connector_extra_config is {given!r}: it must be an object')
    return given
