"""What vLLM's scheduler asks of a tier: which blocks are there.

It asks for one block at a time and must not wait. What it asks in one step is
queued, and answered as *retry*, so that it goes on to the end of each prompt. When
the step ends a thread asks the daemon once for all prompts of it, which leases what
is there and begins to bring it up; the answers are kept for a while.

A group of layers that is asked for from its end on, as windows are, needs only the
last blocks that are there: of it nothing is leased before vLLM loads it.
"""

from __future__ import annotations

import collections
import math
import itertools
import logging
import time
from typing import Any, Deque, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from . import hints, prompt
from .chains import digests
from .errors import Error
from .job import Job
from .pages import Pages
from .vllm_hints import configs
from .vllm_jobs import Worker
from .vllm_order import Chain, Order, Run, group, raw
from .vllm_stats import Counters

log = logging.getLogger("kvstored.vllm")

_HIT_SECONDS = hints.SECONDS - 1.0  # less than the lease that a hit takes
_MISS_SECONDS = 1.0
_CACHED = 1 << 17  # answers kept
_STEP_SECONDS = 0.1  # that a step may take until it is asked anyway
_STEPLESS_SECONDS = 0.002  # the same, where a version does not tell the end
_BATCH = 256  # prompts of one question
_LEASES = 1024  # kept for the load that follows
_LOOK_SECONDS = 0.01  # between looks at what the remote tier has been found to have


class _Asked(NamedTuple):
    key: Any
    context: Any
    behind: bool  # one that was missing


class _Question(NamedTuple):
    """The run of a request's chain that vLLM wants, and which of it was asked for."""

    context: Any
    run: Run
    asked: List[Any]


class _Search(NamedTuple):
    """Blocks that the daemon is asking its remote tier for."""

    job: Job
    keys: List[Any]
    until: float


class Lease(NamedTuple):
    """What a question has leased: blocks of one group, by number."""

    job: Job
    numbers: Dict[Any, int]


class Lookups:
    """Answers for keys, which are told apart as vLLM gives them."""

    def __init__(
        self, pages: Pages, order: Order, timeout: float, counters: Counters, prefill_rate: int = 0, steps: bool = False
    ) -> None:
        """``steps``: the end of each is told."""
        self._pages, self._order, self._timeout, self._counters = pages, order, timeout, counters
        self._rate, self._patience = prefill_rate, _STEP_SECONDS if steps else _STEPLESS_SECONDS
        # Deques and dicts are shared without a lock: each operation on them is atomic.
        self._answers: Dict[Any, Tuple[Optional[bool], float]] = {}  # until when; None: behind one that is missing
        self._news: Deque[Dict[Any, Tuple[Optional[bool], float]]] = collections.deque()  # for the next step
        self._steps, self._heard = steps, -math.inf  # when a step began to ask
        self._asked: Dict[Any, float] = {}  # since when
        self._queue: Deque[_Asked] = collections.deque()
        self._used: Deque[Any] = collections.deque(maxlen=_LEASES)  # requests that have finished
        self._leases: "collections.OrderedDict[Tuple[Any, bytes], Lease]" = collections.OrderedDict()
        self._ended = False  # the step
        # The thread's:
        self._searches: List[_Search] = []
        self._windows: Set[bytes] = set()  # groups that are asked for from their end
        self._first: "collections.OrderedDict[Any, Dict[bytes, int]]" = collections.OrderedDict()  # that was asked for
        self.worker = Worker("lookup", self._turn)

    # ---- called by the scheduler -------------------------------------------------

    def get(self, key: Any, context: Any = None) -> Optional[bool]:
        """Whether a block is there, None while the daemon is being asked. Returns at once."""
        now = time.monotonic()
        if self._steps and now - self._heard > self._patience:  # a new step, or one whose end is not told
            self._heard = now
            self._hear()
        answer = self._answers.get(key)
        behind = False
        if answer is not None and answer[1] > now:
            if answer[0] is not None:
                return answer[0]
            behind = True
        since = self._asked.get(key)
        if since is None:
            self._asked[key] = now
            self._queue.append(_Asked(key, context, behind))
            if len(self._queue) == 1:
                self.worker.wake()
            return None
        return None if now - since < self._timeout else False

    def end_step(self) -> None:
        """Nothing more is asked for in this step."""
        self._heard = -math.inf
        if self._queue or self._used:
            self._ended = True
            self.worker.wake()

    def finished(self, context: Any) -> None:
        """A request has ended: what it found in the GPU or in host memory was used too."""
        self._used.append(context)

    def _hear(self) -> None:
        """Takes note of answers, between two scans: one that saw a part of an answer
        would load that part by itself."""
        while self._news:
            answers = self._news.popleft()
            self._answers.update(answers)
            for key in answers:
                self._asked.pop(key, None)

    # ---- called by the threads of jobs ---------------------------------------------

    def forget(self, keys: Iterable[Any]) -> None:
        """Drops what was answered before these were stored, or failed to load."""
        news = list(self._news)
        for key in keys:
            self._answers.pop(key, None)
            for answers in news:
                answers.pop(key, None)

    def absent(self, key: Any) -> None:
        """Takes note of a block that could not be loaded."""
        self._answer({key: False})

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
        left = self._step_left()
        if left <= 0:
            self._ended = False
            self._ask([self._queue.popleft() for _ in range(len(self._queue))])
            self._use([self._used.popleft() for _ in range(len(self._used))])
        self._searches = [search for search in self._searches if self._goes_on(search)]
        if self._queue or self._searches:
            return max(0.0, min(self._step_left(), _LOOK_SECONDS))
        return None

    def _step_left(self) -> float:
        """Seconds until what was asked for goes out."""
        if self._ended or not self._queue:
            return 0.0 if self._ended or self._used else _LOOK_SECONDS
        since = self._asked.get(self._queue[0].key, 0.0)
        return since + self._patience - time.monotonic()

    def _ask(self, asked: List[_Asked]) -> None:
        """One question for the runs, and one round trip or two for what is no run."""
        try:
            questions, single = self._sort(asked)
            for at in range(0, len(questions), _BATCH):
                self._ask_runs(questions[at : at + _BATCH])
            if single:
                self._ask_each(single)
        except Exception:
            self._answer({a.key: False for a in asked if a.key in self._asked})
            raise

    def _sort(self, asked: List[_Asked]) -> Tuple[List[_Question], List[Any]]:
        questions: List[_Question] = []
        single = [a.key for a in asked if a.behind]
        contexts: Dict[Any, Tuple[Any, Dict[bytes, List[Any]]]] = {}
        for a in asked:
            if not a.behind:
                _, groups = contexts.setdefault(_name(a.context), (a.context, {}))
                groups.setdefault(group(a.key), []).append(a.key)
        for context, groups in contexts.values():
            self._order.learn(context, next(iter(groups.values())))
            for name, keys in groups.items():
                question = self._question(context, name, keys)
                if question is None:
                    single += keys
                else:
                    questions.append(question)
        return questions, single

    def _question(self, context: Any, name: bytes, keys: List[Any]) -> Optional[_Question]:
        """About the blocks of one group, in the order in which vLLM asked for them;
        None if it asked from the end."""
        found = self._order.numbered(context, keys)
        if found is None:
            return _Question(context, Run(keys, None), keys)
        chain, numbers = found
        if len(keys) > 1 and numbers[1] < numbers[0]:
            self._windows.add(name)
        elif len(keys) > 1:
            self._windows.discard(name)
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

    # ---- runs --------------------------------------------------------------------

    def _ask_runs(self, questions: List[_Question]) -> None:
        until = time.monotonic() + self._timeout
        jobs, _ = self._pages.client.batch(
            [self._prompt(q.run) for q in questions],
            lookup_ids=[str(_name(q.context))[:256] for q in questions],
            load_deadline=hints.SECONDS,
            prefill_rate=self._rate,
            timeout=self._timeout,
        )
        for question, job in zip(questions, jobs):
            self._answer_run(question, job, until)

    def _prompt(self, run: Run) -> prompt.Prompt:
        values = digests([raw(key) for key in run.keys])
        lengths = [self._pages.space.chunk_tokens] * (len(values) + len(run.before or ()))
        return prompt.hashes(
            b"".join([*(run.before or ()), *values]), lengths, skip=len(run.before or ()), alone=run.before is None
        )

    def _answer_run(self, question: _Question, job: Job, until: float) -> None:
        keys = question.run.keys
        n = Pages.found(job)
        if n and job.id:  # before the answer: vLLM loads as soon as it has that
            self._leases[_name(question.context), group(keys[0])] = Lease(job, {key: i for i, key in enumerate(keys[:n])})
            while len(self._leases) > _LEASES:
                self._leases.popitem(last=False)
        self._answer(dict.fromkeys(keys[:n], True))
        if job.id:
            self._pages.keep(job)
        missing, asked = keys[n:], set(question.asked)
        wanted = [key for key in missing if key in asked]
        if not wanted:
            return
        if not job.id or n < job.match.total.chunks:  # no answer, or it is sooner computed
            self._answer(dict.fromkeys(wanted, False))
        elif job.state.done:
            # Of those behind the first one that is missing nothing is known: vLLM may
            # have that one, and asks again.
            self._answer({**dict.fromkeys(wanted), missing[0]: False})
        else:
            self._search(missing, until)

    # ---- single blocks -------------------------------------------------------------

    def _ask_each(self, keys: List[Any]) -> None:
        found = self._pages.exists([raw(k) for k in keys], self._timeout)
        there = {k for k, yes in zip(keys, found) if yes}
        self._answer(dict.fromkeys(there, True))
        left = [key for key in keys if key not in there]
        for _, run in itertools.groupby(left, key=group):
            self._search(list(run), time.monotonic() + self._timeout)

    def _search(self, keys: List[Any], until: float) -> None:
        """Has the daemon ask its remote tier, if there is one: it finds the leading run
        of what it is asked for."""
        job = self._pages.lease([raw(k) for k in keys], until - time.monotonic())
        if job is None or job.state.done:
            self._answer(dict.fromkeys(keys, False))
            return
        self._searches.append(_Search(job, keys, until))
        job.on_ready(lambda _: self.worker.wake(), timeout=self._timeout)

    def _goes_on(self, search: _Search) -> bool:
        """Answers what has been found. What the remote tier has is known before it is in DRAM."""
        over = search.job.state.done or time.monotonic() >= search.until
        found = self._pages.exists([raw(k) for k in search.keys], self._timeout)
        there = {k: True for k, yes in zip(search.keys, found) if yes}
        left = [k for k in search.keys if k not in there]
        self._answer({**there, **(dict.fromkeys(left, False) if over else {})})
        search.keys[:] = left
        return bool(left) and not over

    def _answer(self, answers: Mapping[Any, Optional[bool]]) -> None:
        now = time.monotonic()
        if len(self._answers) > _CACHED:
            self._answers.clear()
        self._news.append({key: (there, now + (_HIT_SECONDS if there else _MISS_SECONDS)) for key, there in answers.items()})
        if not self._steps:
            self._hear()
        hits = sum(map(bool, answers.values()))
        self._counters.add("lookups", hits, "hit")
        self._counters.add("lookups", len(answers) - hits, "miss")

    # ---- requests that have finished ---------------------------------------------

    def _use(self, contexts: List[Any]) -> None:
        """Counts what lies in DRAM and was never asked for, as vLLM had it itself, and
        passes on what the requests say of the future."""
        prompts: List[prompt.Prompt] = []
        for context in contexts:
            first = self._first.pop(_name(context), {})
            for name, chain in self._order.chains(context).items():
                n = first.get(name, len(chain.keys))
                if n and name not in self._windows:
                    prompts.append(self._prompt(Run(chain.keys[:n], [])))
                self._tell(context, chain)
            self._order.forget(context)
        for at in range(0, len(prompts), _BATCH):
            jobs, _ = self._pages.client.batch(prompts[at : at + _BATCH], search=_DRAM, timeout=self._timeout)
            for job in jobs:
                job.release_soon()

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
