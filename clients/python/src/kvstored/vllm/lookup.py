"""What vLLM's scheduler asks of a tier: which blocks are there.

It asks for one block at a time and must not wait. What it asks in one step is
queued, and answered as *retry*, so that it goes on to the end of each prompt. When
the step ends the daemon is asked once for all prompts of it, which leases what
is there and begins to bring it up; the step's first prompt is asked for before (:mod:`.asking`).
A thread asks what is long, or waits for the daemon. The answers are kept for a while, each for the
request that asked: what another one has found is neither leased for this one nor
counted as used by it.

The groups of layers of a hybrid model are asked for together (:mod:`.families`).
Where that cannot be, a group that is asked for from its end on, as windows are, needs
only the last blocks that are there: of it nothing is leased before vLLM loads it.
"""

import collections
import functools
import itertools
import logging
import math
import os
import time
from typing import Any, Callable, Collection, Deque, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from .. import _groups, hints
from .._groups import FULL
from .._engine import Complaints
from ..client import Asking
from ..errors import Error, Refused
from ..job import Job
from ..pages import Pages
from ..prefill import Prefill
from ..prompt import Prompt
from .asking import INLINE_BLOCKS, Questions
from .families import Asked, Families, Family, answer, family
from .groups import Groups
from .hints import configs
from .jobs import Worker
from .order import Chain, Order, Run, group, named
from .stats import Counters

log = logging.getLogger("kvstored.vllm")

_HIT_SECONDS = hints.SECONDS - 1.0  # less than the lease that a hit takes
_MISS_SECONDS = 1.0
_CACHED = 1 << 17  # answers kept
_STEP_SECONDS = 0.1  # that a step may take until it is asked anyway
_BATCH = 256  # prompts of one question
_LEASES = 1024  # kept for the load that follows
_LOOK_SECONDS = 0.01  # between looks at what the remote tier has been found to have
_STRAYS = 3  # requests
_REQUESTS = 4096  # of which it is known what was counted
_BUCKET_SECONDS = 30.0  # for which it is known whether there is a remote tier to ask


#: Where blocks come from, in the words of vLLM's CacheHitSource, which has none for a bucket.
HOST, DISK, BUCKET = "host", "disk", "external_unspecified"

_Single = Tuple[Any, Any]  # a block and the request that it is asked for, the latter first
# By block; None: behind one that is missing, or to be asked for once more. Until when, and whether that was invited.
_Answers = Dict[Any, Tuple[Optional[bool], float, bool]]


class _Asked(NamedTuple):
    """A block that a request asks for."""

    request: Any
    key: Any
    context: Any
    behind: bool  # one that was missing
    again: bool  # this one was missing, some time ago


class _Question(NamedTuple):
    """The run of a request's chain that vLLM wants, and which of it was asked for."""

    context: Any
    run: Run
    asked: List[Any]


class _Search(NamedTuple):
    """Blocks that the daemon is asking its remote tier for."""

    job: Job
    context: Any
    keys: List[Any]
    until: float


class Lease(NamedTuple):
    """What a question has leased: blocks of one group, by number."""

    job: Job
    numbers: Dict[Any, int]


class Lookups:
    """Answers for keys, which are told apart as vLLM gives them."""

    def __init__(self, groups: Groups, order: Order, timeout: float, counters: Counters, prefill: Prefill) -> None:
        self._groups, self._pages = groups, groups.first
        self._order, self._timeout, self._counters, self._prefill = order, timeout, counters, prefill
        self._patience = _STEP_SECONDS
        self._families, self._together = Families(self._pages.client, groups), True
        self._complaints = Complaints(log)
        #: Those that the scheduler's thread has asked.
        self.questions = Questions(self._complaints)
        self._strays: Set[Any] = set()  # requests for which more was asked for than their groups need
        self._uneven = False  # whether chunks of groups differ in tokens: then more is asked for anyway
        self._bucket = False, -math.inf  # whether there is one to ask, known since when
        #: From which tier the block comes that was found last, in the words of vLLM's CacheHitSource.
        self.source = HOST
        #: Requests of which vLLM handed blocks over to be stored.
        self.stores: "collections.OrderedDict[Any, None]" = collections.OrderedDict()
        self.rows = 0  # of vLLM's host memory; 0: not known
        self.row_bytes = 0
        # Deques and dicts are shared without a lock: each operation on them is atomic.
        self._answers: "collections.OrderedDict[Any, _Answers]" = collections.OrderedDict()  # by request
        self._counted: "collections.OrderedDict[Any, Dict[Any, bool]]" = collections.OrderedDict()  # by request: first answers
        self._sources: "collections.OrderedDict[Any, Dict[Any, str]]" = collections.OrderedDict()  # by request: of blocks that are not in DRAM
        self._added = 0  # answers since they were last counted
        self._news: Deque[Tuple[Any, _Answers]] = collections.deque()  # for the next step
        self._heard = -math.inf  # when a step began to ask
        self._asked: Dict[Any, Dict[Any, float]] = {}  # by request: blocks without an answer, since when
        self._deferred: Set[Tuple[Any, bytes]] = set()  # windows of requests of which a block was asked for in this scan
        self._queue: Deque[_Asked] = collections.deque()  # of this step
        self._used: Deque[Any] = collections.deque(maxlen=_LEASES)  # requests that have finished
        self._gone: "collections.OrderedDict[Any, None]" = collections.OrderedDict()  # those of which an answer may still come
        self._leases: "collections.OrderedDict[Tuple[Any, bytes], Lease]" = collections.OrderedDict()
        self._todo: Deque[Callable[[], None]] = collections.deque()  # for the thread
        self._searches: List[_Search] = []  # the thread's
        self._windows: Set[bytes] = set()  # groups that are asked for from their end
        self._first: "collections.OrderedDict[Any, Dict[bytes, int]]" = collections.OrderedDict()  # that was asked for
        self.worker = Worker("lookup", self._turn)

    # ---- called by the scheduler -------------------------------------------------

    def get(self, key: Any, context: Any = None) -> Optional[bool]:
        """Whether a block is there, None while the daemon is being asked. Returns within a moment (:mod:`.asking`)."""
        now = time.monotonic()
        if now - self._heard > self._patience:  # a new step, or one that takes long
            self._heard = now
            self._hear()
        name = _name(context)
        self._gone.pop(name, None)  # another one of that name
        if name not in self._asked and name not in self._counted and name not in self._answers:
            self._ask_at_once(key, context)
        window = (name, group(key)) if self._windows and group(key) in self._windows else None
        known = self._answers.get(name)
        answer = None if known is None else known.get(key)
        behind = False
        if answer is not None and answer[1] > now:
            if answer[0] is not None:
                self.source = self._sources.get(name, {}).get(key, HOST)
                # Of a window, a part of what is there would be loaded by itself.
                return None if answer[0] and window in self._deferred else answer[0]
            behind = True
            # A window of more than the usable prefix needs, unless its scan went on as it was invited to.
            if window and len(self._strays) < _STRAYS and not (self._uneven or answer[2] or window in self._deferred):
                self._strays.add(name)
        if window:
            self._deferred.add(window)
        asked = self._asked.get(name)
        if asked is None:
            asked = self._asked[name] = {}
        since = asked.get(key)
        if since is None:
            asked[key] = now
            again = not self._counted.get(name, {}).get(key, True)
            self._queue.append(_Asked(name, key, context, behind, again))
            return None
        return None if now - since < self._timeout else False

    def end_step(self) -> None:
        """Nothing more is asked for in this step. What is short is asked here, unless the thread
        works: who calls the system beside it waits up to 5 ms for the interpreter."""
        if self._heard == -math.inf:  # of requests that are gone
            self._hear()
        self._heard = -math.inf
        self.questions.end_step()
        contexts = {a.request: a.context for a in itertools.islice(self._queue, INLINE_BLOCKS)}
        if contexts and self.worker.idle and not self.questions.full and self.questions.short(len(self._queue), contexts.values()):
            asked, self._queue = self._queue, collections.deque()
            self._ask(asked, patient=False)
        self._ask_later()
        if self._used:
            self.worker.wake()

    def _ask_at_once(self, key: Any, context: Any) -> None:
        """Asks for a request at its first lookup, and waits a moment for the answer: where vLLM is
        known to look up prompts from their start on, and has one group of layers."""
        name, of = group(key), _name(context)
        if not self._groups.one or self._groups.kind(name) != FULL or name in self._windows:
            return
        if self._queue or not self.worker.idle or not self.questions.quick(context):
            return
        found = self._order.numbered(context, [key])
        keys = [] if found is None else found[0].keys[found[1][0] :]
        if not keys or not self.questions.short(len(keys), ()):
            return
        self._asked[of] = dict.fromkeys(keys, time.monotonic())
        self._ask([_Asked(of, k, context, behind=False, again=False) for k in keys], patient=False)
        self.questions.hear_soon(len(keys))
        self._hear()

    def _ask_later(self) -> None:
        if self._queue:
            self._later(self._ask, self._queue)  # whole: it may be thousands
            self._queue = collections.deque()

    def _later(self, do: Callable[..., None], *given: Any) -> None:
        """Has the thread do what may wait for the daemon."""
        self._todo.append(functools.partial(do, *given))
        self.worker.wake()

    def storing(self, context: Any) -> None:
        """vLLM hands blocks of a request over to be stored."""
        self.stores[_name(context)] = None
        while len(self.stores) > _REQUESTS:
            self.stores.popitem(last=False)

    def finished(self, context: Any) -> None:
        """A request has ended: what it found in the GPU or in host memory was used too, and
        what is still answered is kept for nobody."""
        self._asked.pop(_name(context), None)
        self._gone[_name(context)] = None
        while len(self._gone) > _REQUESTS:
            self._gone.popitem(last=False)
        self._used.append(context)

    def _hear(self) -> None:
        """Takes note of answers, between two scans: one that saw a part of an answer
        would load that part by itself."""
        self._deferred.clear()
        self._ask_later()  # what is left is of a step that takes long
        self.questions.hear()
        while self._news:
            name, answers = self._news.popleft()
            self._answers.setdefault(name, {}).update(answers)
            asked = self._asked.get(name, {})
            for key in list(answers):  # which the thread of a store may take from
                asked.pop(key, None)
            if not asked:
                self._asked.pop(name, None)
            self._added += len(answers)
        if self._added > _CACHED // 8:
            self._added, kept = 0, sum(map(len, list(self._answers.values())))
            while kept > _CACHED:
                kept -= len(self._answers.popitem(last=False)[1])

    # ---- called by the threads of jobs ---------------------------------------------

    def forget(self, context: Any, keys: Iterable[Any]) -> None:
        """Drops what was answered before these were stored."""
        name = _name(context)
        told = [self._answers.get(name, {}), *(answers for of, answers in list(self._news) if of == name)]
        for key in keys:
            for answers in told:
                if answers.pop(key, None) is not None:
                    self._asked.get(name, {}).pop(key, None)  # it may be asked for again

    def absent(self, context: Any, key: Any) -> None:
        """Takes note of a block that could not be loaded."""
        self._strays.discard(_name(context))
        self._answer(context, {key: False})

    def lease(self, context: Any, keys: List[Any]) -> Tuple[Optional[Job], int]:
        """Takes over the lease that a request has of a run, and the number of its first
        block in it; None if there is none."""
        lease = self._leases.pop((_name(context), group(keys[0])), None)
        first = None if lease is None else lease.numbers.get(keys[0])
        if lease is None or first is None or any(lease.numbers.get(k, first + i) != first + i for i, k in enumerate(keys)):
            return None, 0
        return lease.job, first

    # ---- the thread ------------------------------------------------------------

    def _turn(self) -> Optional[float]:
        while self._todo:
            self._todo.popleft()()
        self._use([self._used.popleft() for _ in range(len(self._used))])
        self._searches = [search for search in self._searches if self._goes_on(search)]
        return _LOOK_SECONDS if self._searches else None

    def _ask(self, asked: Collection[_Asked], patient: bool = True) -> None:
        """One question for the prompts of hybrid models, one for the other runs, and one
        round trip or two for what is no run. Where it must not wait (not ``patient``), the
        thread asks what is more than one question."""
        try:
            if patient:
                asked = self._not_again(asked)
            else:
                again = {a.request for a in asked if a.again}
                if again:
                    self._later(self._ask, [a for a in asked if a.request in again])
                    asked = [a for a in asked if a.request not in again]
            whole, questions, single = self._sort(asked)
            for _, alike in itertools.groupby(whole, key=lambda f: list(f.groups)):
                self._ask_families(list(alike), patient)
            for at in range(0, len(questions), _BATCH):
                self._ask_runs(questions[at : at + _BATCH], patient)
            if single:
                self._ask_each(single) if patient else self._later(self._ask_each, single)
        except Exception:
            for a in asked:
                if a.key in self._asked.get(a.request, {}):
                    self._answer(a.context, {a.key: False})
            raise

    def _hears(self, asking: Asking, answer: Callable[[List[Job]], None], ask: Callable[[], None], patient: bool) -> None:
        """Has a question answered, now or in a step, or asked by the thread."""
        if patient:
            answer(asking.wait()[0])
        elif not self.questions.add(asking, answer):
            self._later(ask)

    def _not_again(self, asked: Collection[_Asked]) -> Collection[_Asked]:
        """A request that waits asks for its missing blocks again and again. Whether one of
        them is there by now is looked up first: a lookup counts as no request for a prompt."""
        again = [a for a in asked if a.again]
        if not again:
            return asked
        found = self._exist(list(dict.fromkeys(a.key for a in again)))
        there = {a.request for a in again if found[a.key]}
        for a in again:
            if a.request not in there:
                self._answer(a.context, {a.key: False})
        return [a for a in asked if not a.again or a.request in there]

    def _sort(self, asked: Collection[_Asked]) -> Tuple[List[Family], List[_Question], List[_Single]]:
        whole: List[Family] = []
        questions: List[_Question] = []
        single = [(a.context, a.key) for a in asked if a.behind]
        contexts: Dict[Any, Tuple[Any, Dict[bytes, List[Any]]]] = {}
        for a in asked:
            if not a.behind:
                _, groups = contexts.setdefault(a.request, (a.context, {}))
                groups.setdefault(group(a.key), []).append(a.key)
        for context, groups in contexts.values():
            of_all = self._family(context, groups)
            if of_all is not None:
                whole.append(of_all)
                continue
            runs, each = self._apart(context, groups)
            questions += runs
            single += each
        return whole, questions, single

    def _apart(self, context: Any, groups: Mapping[bytes, List[Any]]) -> Tuple[List[_Question], List[_Single]]:
        """Each group by itself: what is a run, and what is not."""
        questions: List[_Question] = []
        single: List[_Single] = []
        for name, keys in groups.items():
            question = self._question(context, name, keys)
            if question is None:
                single += [(context, key) for key in keys]
            else:
                questions.append(question)
        return questions, single

    def _family(self, context: Any, groups: Mapping[bytes, List[Any]]) -> Optional[Family]:
        """What is asked for of all groups, if that is one question."""
        if len(self._strays) >= _STRAYS and self._together:
            self._together = False
            log.info("kvstored: vLLM asks for more than its groups need, as with a draft model: each group is asked for by itself")
        if not self._together or len(groups) < 2 or not self._families.able():
            return None
        asked: Dict[bytes, Asked] = {}
        for name, keys in groups.items():
            found = self._order.numbered(context, keys)
            if found is None:
                return None
            asked[name] = Asked(keys, *found)
            self._direction(name, found[1])
        now, of = time.monotonic(), _name(context)

        def known(key: Any) -> Any:
            waits = key in self._asked.get(of, {})  # looked at first: _hear takes it out when the answer is there
            there, until, _ = self._answers.get(of, {}).get(key, (None, now, False))
            if until <= now:
                return "asked" if waits else None
            return "asked" if there is None else there

        return family(context, asked, list(self._order.chains(context)), self._groups, known)

    def _direction(self, name: bytes, numbers: List[int]) -> None:
        """Takes note of whether a group is asked for from its end."""
        if len(numbers) < 2:
            return
        if numbers[1] < numbers[0]:
            self._windows.add(name)
            return
        self._windows.discard(name)
        self._groups.full(name)

    def _question(self, context: Any, name: bytes, keys: List[Any]) -> Optional[_Question]:
        """About the blocks of one group, in the order in which vLLM asked for them;
        None if it asked from the end."""
        found = self._order.numbered(context, keys)
        if found is None:
            return _Question(context, Run(keys, None), keys)
        chain, numbers = found
        self._direction(name, numbers)
        first = min(numbers)
        self._note(context, name, first)
        if name in self._windows:
            return None
        end = max(numbers) + 1 if len(keys) > 1 else len(chain.keys)
        return _Question(context, Run(chain.keys[first:end], chain.before(first)), keys)

    def _note(self, context: Any, name: bytes, first: int) -> None:
        groups = self._first.setdefault(_name(context), {})
        groups[name] = min(first, groups.get(name, first))
        while len(self._first) > _LEASES:
            self._first.popitem(last=False)

    # ---- all groups of a model ---------------------------------------------------

    def _ask_families(self, whole: List[Family], patient: bool = True) -> None:
        if time.monotonic() - self._bucket[1] > _BUCKET_SECONDS:
            if not patient:
                self._later(self._ask_families, whole)
                return
            # There is no such block.
            job = self._pages.lease([os.urandom(32)], self._timeout)
            self._bucket = job is not None and not job.state.done, time.monotonic()
        for at in range(0, len(whole), _BATCH):
            some = whole[at : at + _BATCH]
            asking = self._families.ask(some, self._prefill, self._timeout, patient)

            def answered(jobs: List[Job], some: List[Family] = some, asking: Asking = asking) -> None:
                self._families.heard(asking, jobs)
                for asked, job in zip(some, jobs):
                    self._answer_family(asked, job)

            self._hears(asking, answered, functools.partial(self._ask_families, some), patient)

    def _answer_family(self, asked: Family, job: Job) -> None:
        found = None if isinstance(job.error, Refused) else answer(asked, self._groups, job)
        if job.id:
            self._pages.keep(job)
        if _name(asked.context) in self._gone:
            return
        if found is None:
            self._later(self._ask_apart, asked)
            return
        for name, a in asked.groups.items():
            self._note(asked.context, name, min(a.numbers))
        # Of windows and states the daemon knows only what it has heard of.
        self._uneven = self._uneven or asked.uneven
        asks = asked.uneven or bool(job.id) and self._bucket[0]
        self._note_sources(asked.context, [key for key, yes in found.there.items() if yes], job, each=False)
        self._answer(asked.context, found.there)
        self._answer(asked.context, dict.fromkeys(found.behind, None if asks else False), 0 if asks else _HIT_SECONDS, invited=asks)

    def _ask_apart(self, asked: Family) -> None:
        runs, single = self._apart(asked.context, {name: a.keys for name, a in asked.groups.items()})
        if runs:
            self._ask_runs(runs)
        self._ask_each(single)

    def _of(self, key: Any) -> Pages:
        """The values of the group of a block."""
        return self._groups.pages(group(key))

    def loaded(self, context: Any, keys: List[Any]) -> None:
        """What vLLM loads says how much it needs of the groups that it asks for from
        their end: the run that its search ended at is the first one."""
        groups: Dict[bytes, List[Any]] = {}
        for key in keys:
            groups.setdefault(group(key), []).append(key)
        for name in [name for name in groups if name in self._windows]:
            found = self._order.numbered(context, groups[name])
            numbers = sorted(found[1]) if found is not None else []
            if not numbers or numbers[0] == self._first.get(_name(context), {}).get(name, 0):
                continue
            run = next((i for i, n in enumerate(numbers) if n != numbers[0] + i), len(numbers))
            self._groups.loaded(name, run)

    # ---- runs --------------------------------------------------------------------

    def _ask_runs(self, questions: List[_Question], patient: bool = True) -> None:
        until = time.monotonic() + self._timeout
        prompts, requests = [self._prompt(q.run) for q in questions], [_name(q.context) for q in questions]
        asking = _groups.ask(self._pages.client, prompts, self._prefill, self._timeout, requests=requests, patient=patient)

        def answered(jobs: List[Job]) -> None:
            for question, job in zip(questions, jobs):
                self._answer_run(question, job, until)

        self._hears(asking, answered, functools.partial(self._ask_runs, questions), patient)

    def _prompt(self, run: Run) -> Prompt:
        return self._of(run.keys[0]).prompt([named(key) for key in run.keys], run.before)

    def _answer_run(self, question: _Question, job: Job, until: float) -> None:
        if _name(question.context) in self._gone:
            if job.id:
                self._pages.keep(job)
            return
        keys = question.run.keys
        n = job.worth.chunks
        if n and job.id:  # before the answer: vLLM loads as soon as it has that
            self._leases[_name(question.context), group(keys[0])] = Lease(job, {key: i for i, key in enumerate(keys[:n])})
            while len(self._leases) > _LEASES:
                self._leases.popitem(last=False)
        self._note_sources(question.context, keys[:n], job, each=True)
        self._answer(question.context, dict.fromkeys(keys[:n], True))
        if job.id:
            self._pages.keep(job)
        missing, asked = keys[n:], set(question.asked)
        if missing and question.run.before is not None:
            self._prefill.asked(missing[-1], len(missing) * self._pages.space.chunk_tokens)
        wanted = [key for key in missing if key in asked]
        if not wanted:
            return
        if not job.id or n < job.match.total.chunks:  # no answer, or it is sooner computed
            self._answer(question.context, dict.fromkeys(wanted, False))
        elif job.state.done:
            # Of those behind the first one that is missing nothing is known: vLLM may
            # have that one, and asks again.
            self._count(_name(question.context), dict.fromkeys(wanted, False))
            self._answer(question.context, {**dict.fromkeys(wanted), missing[0]: False})
        else:
            self._later(self._search, question.context, missing, until)

    def _note_sources(self, context: Any, keys: List[Any], job: Job, each: bool) -> None:
        """Takes note of where blocks come from. The daemon says how many lie in which
        tier, not which: the first are taken for those in DRAM, or, where the keys are
        of several groups, all for those that are farthest."""
        if not job.id or not keys:
            return
        disk, bucket = job.match.disk.chunks, job.match.remote.chunks
        near = len(keys) - disk - bucket if each else 0
        if not disk and not bucket:
            return
        named = self._sources.setdefault(_name(context), {})
        for i, key in enumerate(keys):
            if i >= near:
                named[key] = BUCKET if i >= near + disk or not each and bucket else DISK
        while len(self._sources) > _REQUESTS:
            self._sources.popitem(last=False)

    # ---- single blocks -------------------------------------------------------------

    def _ask_each(self, single: List[_Single]) -> None:
        found = self._exist(list(dict.fromkeys(key for _, key in single)))
        left: List[_Single] = []
        for context, key in single:
            if found[key]:
                self._answer(context, {key: True})
            else:
                left.append((context, key))
        for _, run in itertools.groupby(left, key=lambda s: (_name(s[0]), group(s[1]))):
            of = list(run)
            self._search(of[0][0], [key for _, key in of], time.monotonic() + self._timeout)

    def _exist(self, keys: List[Any]) -> Dict[Any, bool]:
        found: Dict[Any, bool] = {}
        for name in dict.fromkeys(map(group, keys)):
            of = [key for key in keys if group(key) == name]
            found.update(zip(of, self._of(of[0]).exists([named(k) for k in of], self._timeout)))
        return found

    def _search(self, context: Any, keys: List[Any], until: float) -> None:
        """Has the daemon ask its remote tier, if there is one: it finds the leading run
        of what it is asked for."""
        job = self._of(keys[0]).lease([named(k) for k in keys], until - time.monotonic())
        if job is None or job.state.done:
            self._answer(context, dict.fromkeys(keys, False))
            return
        self._searches.append(_Search(job, context, keys, until))
        job.on_ready(lambda _: self.worker.wake(), timeout=self._timeout)

    def _goes_on(self, search: _Search) -> bool:
        """Answers what has been found. What the remote tier has is known before it is in DRAM."""
        over = search.job.state.done or time.monotonic() >= search.until
        there = {k: True for k, yes in self._exist(search.keys).items() if yes}
        left = [k for k in search.keys if k not in there]
        self._answer(search.context, {**there, **(dict.fromkeys(left, False) if over else {})})
        search.keys[:] = left
        return bool(left) and not over

    def _answer(
        self, context: Any, answers: Mapping[Any, Optional[bool]], seconds: float = 0.0, invited: bool = False
    ) -> None:
        """``seconds``: for which they hold, where that is not as usual. ``invited``: None has
        vLLM ask once more."""
        if _name(context) in self._gone:
            return
        now = time.monotonic()
        until = {yes: now + (seconds or (_HIT_SECONDS if yes else _MISS_SECONDS)) for yes in (True, False, None)}
        self._news.append((_name(context), {k: (yes, until[yes], invited) for k, yes in answers.items()}))
        self._count(_name(context), answers)

    def _count(self, name: Any, answers: Mapping[Any, Optional[bool]]) -> None:
        """Counts the first answer for each block of a request: one that waits asks again."""
        counted = self._counted.setdefault(name, {})
        new = {key: yes for key, yes in answers.items() if yes is not None and key not in counted}
        counted.update(new)
        while len(self._counted) > _REQUESTS:
            self._counted.popitem(last=False)
        hits = sum(new.values())
        self._counters.add("lookups", hits, "hit")
        self._counters.add("lookups", len(new) - hits, "miss")

    # ---- requests that have finished ---------------------------------------------

    def _use(self, contexts: List[Any]) -> None:
        """Counts what lies in DRAM and was never asked for, as vLLM had it itself, and
        passes on what the requests say of the future."""
        prompts: List[Prompt] = []
        for context in contexts:
            self._answers.pop(_name(context), None)
            self._sources.pop(_name(context), None)
            first, counted = self._first.pop(_name(context), {}), self._counted.pop(_name(context), {})
            self._room(context, first, counted)
            for name in set(map(group, counted)):
                self._leases.pop((_name(context), name), None)  # of no load any more: it ends by itself
            for name, chain in self._order.chains(context).items():
                n = first.get(name, len(chain.keys))
                if n and name not in self._windows and not self._groups.alone(name):
                    prompts.append(self._prompt(Run(chain.keys[:n], [])))
                self._tell(context, chain)
            self._order.forget(context)
        for at in range(0, len(prompts), _BATCH):
            jobs, _ = self._pages.client.batch(prompts[at : at + _BATCH], search=_DRAM, timeout=self._timeout)
            for job in jobs:
                job.release_soon()

    def _room(self, context: Any, first: Mapping[bytes, int], counted: Mapping[Any, bool]) -> None:
        """Says so once where vLLM stored none of the blocks that a request computed, as
        its host memory has not even the rows for them: it then stores nothing, ever."""
        computed = sum(
            sum(not counted.get(key) for key in chain.keys[first[name] :])
            for name, chain in self._order.chains(context).items()
            if name in first
        )
        stored = _name(context) in self.stores
        self.stores.pop(_name(context), None)
        if stored or not 0 < self.rows < computed:
            return
        log.warning(
            "kvstored: vLLM stored none of the %d blocks that a request computed: its host memory has room for %d. "
            "Set cpu_bytes_to_use to %d at least, and to more where requests come together",
            computed, self.rows, computed * self.row_bytes,
        )  # fmt: skip
        self.rows = 0

    def _tell(self, context: Any, chain: Chain) -> None:
        said = configs(context)
        if not said:
            return
        try:
            hinted = self._pages.client.hint(self._prompt(Run(chain.keys, [])), said, timeout=self._timeout)
            for fault in hinted.faults:
                log.info("kvstored: request %s: hint %r does not count: %s", _name(context), fault.name, fault.text)
        except Error as e:
            log.info("kvstored: request %s: its hints do not count: %s", _name(context), e)


_DRAM = 1  # of a search


def _name(context: Any) -> Any:
    """Of a request."""
    return getattr(context, "req_id", None)
