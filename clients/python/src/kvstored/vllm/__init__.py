"""A secondary tier for vLLM's OffloadingConnector (TieringOffloadingSpec).

    {"type": "KvstoredTier", "module_path": "kvstored.vllm"}

in ``secondary_tiers`` is all it takes; docs/engines/vllm.md has the whole line and
the further keys. vLLM copies between GPU and its host memory; this class moves
rows of that host memory. Every method but ``drain_jobs`` and ``shutdown``
returns at once, or within 0.2 ms (:mod:`.asking`), and none raises: three threads of the tier talk to the daemon,
for long lookups, loads and stores.
"""

import collections
import functools
import inspect
import logging
import os
import weakref
from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Set

from .. import _groups, options
from .._engine import Complaints, find, max_age, never_raises, nothing
from ..chains import digests
from ..client import Client
from ..memory import address
from ..pages import Place
from ..prefill import Prefill
from . import groups, stats
from .groups import Groups
from .hints import configs
from .jobs import Jobs, Transfer, Worker
from .lookup import Lookups
from .order import Order, Run, group, named
from .pool import KvstoredOffloadingSpec as KvstoredOffloadingSpec
from .space import fingerprint
from .stats import Counters, Events


_BASE = "vllm.v1.kv_offload.base"
SecondaryTierManager: Any = find("vllm.v1.kv_offload.tiering.base", "SecondaryTierManager") or object
LookupResult = find(_BASE, "LookupResult")
RequestOffloadingContext = find(_BASE, "RequestOffloadingContext")
Medium = find(_BASE, "Medium")
Locality = find(_BASE, "Locality")
CacheHitSource = find("vllm.v1.metrics.cache_hit_source", "CacheHitSource", newer=True)

log = logging.getLogger("kvstored.vllm")

_LATE_SECONDS = 5.0  # for what is under way at its deadline to be copied

KEYS = {
    **options.COMMON,
    "lookup_timeout": options.seconds(0.5),
    "transfer_timeout": options.seconds(10.0),
    "verify": options.flag(True),
    "model": options.text(),
    "groups": _groups.option("vLLM"),
    "enable_kv_events": options.flag(False),
    "locality": options.choice("LOCAL", "LOCAL", "REMOTE"),
    "backpressure": options.table(),
    "module_path": options.text(),
}


class KvstoredTier(SecondaryTierManager):
    """The daemon as a tier below vLLM's host memory. Its ``KEYS``:

    ``socket``: the daemon's, if it is not where a client looks.
    ``lookup_timeout``: seconds after which a lookup without an answer is a miss.
    ``transfer_timeout``: seconds for one load or store job; a late one fails.
    ``verify``: compare checksums of what is loaded.
    ``check_existing``: one page in so many that is to be stored is compared
    with what is stored already; 0 for none.
    ``model``, ``revision``: of the weights, in place of what vLLM says.
    ``namespace``: further text that must be equal for blocks to be shared.
    ``prefill_tokens_per_second``: that this engine computes, so that no more is
    found than is loaded sooner than computed; 0 if that is not known, "measured"
    to take it from the calls.
    ``prefill_depth``: tokens into a prompt at which one takes twice as long to compute
    as the first, where the daemon weighs that and its space does not say.
    ``groups``: of a hybrid model, what a prefix needs of each group of layers, where
    vLLM does not say.
    ``enable_kv_events``: tell vLLM's KV events what was stored and what has gone, if
    those are on and the daemon's ``events.enabled`` is set.
    ``locality``: LOCAL or REMOTE, for vLLM's filters and events.
    ``backpressure``, ``module_path``: the factory's.
    """

    medium: Any = Medium and Medium.STORAGE
    locality: Any = None
    _complaints = Complaints(log)

    def __init__(
        self, offloading_spec: Any = None, primary_kv_view: Optional[memoryview] = None, tier_type: str = "KvstoredTier", **keys: Any
    ) -> None:
        """``keys``: what the user gives, and what vLLM hands over to every tier. A
        ValueError says what is wrong with the former."""
        spec = offloading_spec
        o = options.check("KvstoredTier", _of_user(keys, spec, tier_type), KEYS)
        if primary_kv_view is None or primary_kv_view.ndim < 2:
            raise ValueError("KvstoredTier needs primary_kv_view as rows of bytes, one for each block")
        self._row = primary_kv_view.nbytes // len(primary_kv_view)
        space = fingerprint(spec, self._row, o["model"], o["revision"], o["namespace"])  # which says what is too old
        super().__init__(spec, primary_kv_view, **_of_base({"tier_type": tier_type, **keys}))
        self.tier_type = tier_type
        self.locality = Locality[o["locality"]]
        self._rows, self._base = len(primary_kv_view), address(primary_kv_view)
        self._transfer_timeout = o["transfer_timeout"]
        self._counters, self._events = Counters(), Events(self, o["enable_kv_events"], spec)
        self._client = Client(o["socket"], space=space, name="vllm", timeout=self._transfer_timeout)  # it is checked there
        kinds = _groups.given(o["groups"]) or groups.of_spec(spec)
        self._groups = Groups(self._client, space, kinds, spec, o["verify"], o["check_existing"])
        self._pages = self._groups.first
        self._client.on_attach(self._attached)
        self._events.follow(self._client.socket, self._transfer_timeout)
        self._jobs = Jobs()
        self._loads: Deque[Transfer] = collections.deque()
        self._stores: Deque[Transfer] = collections.deque()
        self._order = Order(self._groups.tokens)
        self._prefill = Prefill(o["prefill_tokens_per_second"], o["prefill_depth"])
        self._lookups = Lookups(self._groups, self._order, o["lookup_timeout"], self._counters, self._prefill)
        self._lookups.rows, self._lookups.row_bytes = self._rows, self._row
        self._info = {"kvstored_socket": self._client.socket, "kvstored_namespace": o["namespace"], "kvstored_revision": o["revision"]}
        self._loader = Worker("load", functools.partial(self._turn, self._loads, self._load))
        self._storer = Worker("store", functools.partial(self._turn, self._stores, self._store))
        _tiers.add(self)

    # ---- called by vLLM's scheduler ----------------------------------------

    @staticmethod
    def get_tier_type() -> str:
        return "KvstoredTier"

    @never_raises(lambda _: _result(False))
    def lookup(self, key: Any, req_context: Any = None) -> Any:
        """HIT for a block that is in any tier of the daemon's, MISS, or RETRY while the
        daemon is being asked. A HIT is leased for some seconds."""
        there = not self._jobs.closed and self._client.attached and self._lookups.get(key, req_context)
        return _result(there)

    @property
    def cache_hit_source(self) -> Any:
        """Where the block that was found last comes from: vLLM asks as soon as it has the answer."""
        return self._lookups.source if CacheHitSource is None else CacheHitSource(self._lookups.source)

    def submit_store(self, job_metadata: Any) -> None:
        """Its result comes as soon as the daemon has the bytes in DRAM."""
        self._submit(job_metadata, self._stores, self._storer)

    def submit_load(self, job_metadata: Any) -> None:
        self._submit(job_metadata, self._loads, self._loader)

    @never_raises(nothing(None))
    def _submit(self, metadata: Any, queue: Deque[Transfer], worker: Worker) -> None:
        try:
            job = Transfer(metadata, self._transfer_timeout)
        except Exception:
            self._jobs.refuse(metadata.job_id)
            raise
        self._jobs.add(job, queue)
        worker.wake()
        if queue is self._stores:
            self._prefill.stored(job.keys)
            self._lookups.storing(job.context)

    @never_raises(lambda _: [])
    def get_finished_jobs(self) -> Iterable[Any]:
        self._loader.rest()
        results = self._jobs.take()
        self._events.taken([result.job_id for result in results])
        return results

    def has_pending_work(self) -> bool:
        """Whether a job is under way, or has ended and vLLM does not know yet; or a question,
        whose leases would stay if nobody heard of them."""
        return bool(self._jobs or self._lookups.questions) or self._events.waits

    @never_raises(nothing(None))
    def on_new_request(self, req_context: Any) -> Any:
        return RequestOffloadingContext()

    @never_raises(nothing(None))
    def on_request_finished(self, req_context: Any) -> None:
        """Its blocks that vLLM had on the GPU or in host memory count as used."""
        self._lookups.finished(req_context)

    @never_raises(nothing(None))
    def on_schedule_end(self, context: Any = None) -> None:
        """What was asked for in this step goes out, as one question."""
        self._lookups.end_step()
        self._lookups.worker.rest()
        self._events.end_step()

    @never_raises(lambda _: [])
    def take_events(self) -> Iterable[Any]:
        """What was stored, and what has gone, since the last call."""
        return self._events.take()

    @classmethod
    @never_raises(lambda _: {})
    def build_metric_definitions(cls, extra_config: Dict[str, Any]) -> Dict[str, Any]:
        return stats.definitions()

    @never_raises(nothing(None))
    def get_stats(self) -> Any:
        """What was counted since the last call, None if nothing was."""
        return self._counters.stats()

    @classmethod
    @never_raises(nothing(()))
    def config_info_keys(cls, tier_config: Dict[str, Any]) -> Any:
        return ("kvstored_socket", "kvstored_namespace", "kvstored_revision")

    @never_raises(lambda _: {})
    def config_info(self) -> Dict[str, str]:
        """What this tier is, for vLLM's metric of its configuration."""
        return self._info

    @never_raises(nothing(None))
    def drain_jobs(self) -> None:
        """Blocks until every job has finished or failed, as vLLM asks of it before it
        forgets all blocks; not much longer than the last one has time."""
        self._events.forgotten()
        left = self._jobs.drain(_LATE_SECONDS)
        if left:
            log.error("kvstored: %d jobs are not finished long after their deadline", left)

    @never_raises(nothing(None))
    def shutdown(self) -> None:
        """Fails the jobs that are not finished. What is being copied is waited for."""
        self._jobs.closed = True
        workers = (self._lookups.worker, self._loader, self._storer)
        for worker in workers:
            worker.stop()
        self._client.close()  # a call that is under way fails
        self._events.close()
        for worker in workers:
            worker.join(self._transfer_timeout + _LATE_SECONDS)
        self._jobs.sweep()
        self._groups.close()

    # ---- the tier's threads ----------------------------------------------------

    def _turn(self, queue: Deque[Transfer], do: Callable[[Transfer], None]) -> Optional[float]:
        if not queue:
            return None
        job = queue.popleft()
        try:
            do(job)
        finally:
            self._jobs.finish(job, False)  # if it raised, or was not even begun
        return 0

    def _load(self, job: Transfer) -> None:
        places, loaded = dict(zip(job.keys, self._places(job))), set()
        self._lookups.loaded(job.context, job.keys)
        self._events.loading(job.keys, self._space_id)
        for run in self._order.runs(job.context, job.keys):
            there = self._load_run(job, run, [places[k] for k in run.keys])
            loaded.update(k for k, ok in zip(run.keys, there) if ok)
        brought = [key for key in job.keys if key in loaded]
        for key in job.keys:
            if key not in loaded:
                self._lookups.absent(job.context, key)
        self._events.loaded(job.id, brought, self._space_id)
        self._count("load", job, len(brought))
        self._jobs.finish(job, len(brought) == len(job.keys), brought, len(brought) * self._row)

    def _load_run(self, job: Transfer, run: Run, places: List[Place]) -> List[bool]:
        """Loads blocks under the lease that their lookup took, and what that lacks by itself."""
        keys, pages = [named(k) for k in run.keys], self._groups.pages(group(run.keys[0]))
        lease, first = self._lookups.lease(job.context, run.keys)
        n = 0 if lease is None else pages.unload(lease, first, places, job.left)
        if run.before is not None and n < len(keys):
            n += pages.load(keys[n:], places[n:], job.left, run.before + digests(keys[:n]))
        if n == len(keys):
            return [True] * n
        return [True] * n + pages.load_each(keys[n:], places[n:], job.left)

    def _store(self, job: Transfer) -> None:
        places, stored = dict(zip(job.keys, self._places(job))), set()
        age = max_age(configs(job.context))
        for run in self._order.runs(job.context, job.keys):
            keys, rows, name = [named(k) for k in run.keys], [places[k] for k in run.keys], group(run.keys[0])
            before = None if self._groups.alone(name) else run.before
            pages = self._groups.pages(name)
            space = pages.space_id(job.left) if self._events.enabled else b""
            self._events.storing(space, run.keys)
            done = pages.store(keys, rows, job.left, patient=False, before=before, max_age=age)
            stored.update(k for k, ok in zip(run.keys, done) if ok)
            self._events.stored(space, [k for k, ok in zip(run.keys, done) if ok])
        there = [key for key in job.keys if key in stored]
        self._lookups.forget(job.context, there)
        self._count("store", job, len(there))
        self._jobs.finish(job, len(there) == len(job.keys), size=len(there) * self._row)

    def _space_id(self, key: Any) -> bytes:
        return self._groups.pages(group(key)).space_id(self._transfer_timeout)

    def _count(self, direction: str, job: Transfer, done: int) -> None:
        self._counters.add("bytes", done * self._row, direction)
        self._counters.add("failed_blocks", len(job.keys) - done, direction)

    def _places(self, job: Transfer) -> List[Place]:
        if not all(0 <= i < self._rows for i in job.rows):
            raise ValueError(f"job {job.id}: rows {job.rows} of {self._rows}")
        return [((self._base + i * self._row, self._row),) for i in job.rows]

    def _attached(self, arena: Any) -> None:
        self._counters.add("reconnects", 1 if self._was_attached else 0)
        self._was_attached = True

    _was_attached = False

    def _forked(self) -> None:
        """In a child there is no thread: everything is a miss, and jobs fail."""
        self._counters.forked()
        self._events.forked()
        self._jobs.forked()


def _of_user(keys: Dict[str, Any], spec: Any, tier_type: str) -> Dict[str, Any]:
    """Of a tier's keywords, those that the user wrote. What vLLM hands over and this
    package does not know is said once; a mistake of the user's stays in."""
    written = _written(spec, tier_type)
    base = inspect.signature(SecondaryTierManager.__init__).parameters
    of_user = {k: v for k, v in keys.items() if k in KEYS or (k in written if written is not None else k not in base)}
    strange = keys.keys() - of_user.keys() - base.keys() - _noted
    if strange:
        _noted.update(strange)
        log.info("kvstored: vLLM gives its tiers %s, which this package does not know", ", ".join(sorted(strange)))
    return of_user


_noted: Set[str] = set()  # keywords that were said


def _written(spec: Any, tier_type: str) -> Optional[Set[str]]:
    """The keys of this kind of tier in vLLM's configuration, None where that is not found."""
    extra = getattr(spec, "extra_config", None)
    tiers = extra.get("secondary_tiers") if isinstance(extra, dict) else None
    if not isinstance(tiers, list):
        return None
    return {key for tier in tiers if isinstance(tier, dict) and tier.get("type") == tier_type for key in tier}


def _of_base(keys: Dict[str, Any]) -> Dict[str, Any]:
    """What the class above takes of it."""
    return {k: keys[k] for k in inspect.signature(SecondaryTierManager.__init__).parameters if k in keys}


def _result(found: Optional[bool]) -> Any:
    if found is None:
        return LookupResult.RETRY
    return LookupResult.HIT if found else LookupResult.MISS


_tiers: "weakref.WeakSet[KvstoredTier]" = weakref.WeakSet()


def _after_fork() -> None:
    for tier in list(_tiers):
        tier._forked()


os.register_at_fork(after_in_child=_after_fork)
