"""Values under single keys, as engines hand them over.

Where an engine says what a run of keys follows (``before``, the digests of the
chain from the start of the prompt, [] where the run begins it), they are chunks
of a prompt; else (None) each is a chunk that stands alone. Many are asked for,
leased or stored in one round trip. Nothing here raises because of the daemon, and
copies let other threads run.

What an engine says of the order may be wrong: the daemon finds each value by its key
all the same.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import hints, options, wire
from .chains import digests
from .client import Client
from .errors import Error
from .existing import Existing, Place
from .hints import Hints
from .job import Job, Reason
from .call import Call, Request
from .link import Link
from .memory import address, checksum_at, copy
from .questions import WINDOW, answers
from .storing import Storing, size_of
from .wire import Op, Space

_RUN = 32  # values of one question
_LOADS = 64  # runs that one load is made of, where values are missing between
_NO_ROOM = (Reason.NO_SPACE, Reason.OVER_BUDGET, Reason.OVER_QUOTA)

#: The chain before a run of keys; None: each stands alone.
Before = Optional[Sequence[bytes]]
#: A place, or what makes one for a payload, given its address and bytes; None: there is none.
Target = Union[Place, Callable[[int, int], Optional[Place]]]
#: Takes over a lease of so many keys.
Keep = Optional[Callable[[Job, int], None]]


class Said(NamedTuple):
    """What an engine says with a question of a prompt."""

    #: Tokens a second that it computes: more than is worth loading is not found.
    prefill_rate: int = 0
    #: Its request configs that are hints: see docs/protocol-more.md.
    configs: Sequence[Tuple[str, str]] = ()


Say = Optional[Said]


class Pages:
    """The values of one space. Safe for threads."""

    def __init__(
        self,
        client: Client,
        space: Space,
        verify: bool = True,
        hints: Optional[Hints] = None,
        check_existing: int = options.CHECK_EXISTING,
        others: Sequence[Space] = (),
    ) -> None:
        """``hints``: those of an engine with several spaces, which closes them itself.
        ``check_existing``: see :class:`Existing`. ``others``: the spaces of the other
        ranks, where values of all ranks are asked for and loaded together."""
        self._existing = Existing(space, check_existing)
        self.others = tuple(others)
        self.client, self.space, self.verify = client, space, verify and checksum_at is not None
        self._shares_hints = hints is not None
        self._hints = Hints(client) if hints is None else hints

    def _chain(self, link: Link, keys: Sequence[bytes], deadline: float, before: Before = None) -> bytes:
        handle = self.client._info(link, self.space, deadline).handle
        if before is None:
            return wire.chain_hashes(handle, 16, b"".join(digests(keys)), alone=True)
        return wire.chain_hashes(handle, 16, b"".join([*before, *digests(keys)]), skip=len(before))

    def space_id(self, seconds: float) -> bytes:
        """The daemon's name of the space; empty while there is no connection."""
        try:
            return self.client._info(self.client._attached(), self.space, time.monotonic() + seconds).id
        except Error:
            return b""

    def _ranks(self, link: Link, deadline: float) -> List[int]:
        return [self.client._info(link, space, deadline).handle for space in self.others]

    def _prefetch(
        self,
        link: Link,
        keys: Sequence[bytes],
        deadline: float,
        load_seconds: float,
        callback: Any = None,
        before: Before = None,
        say: "Say" = None,
    ) -> Request:
        said = say or Said()
        ranks = self._ranks(link, deadline)
        body = wire.prefetch(
            self._chain(link, keys, deadline, before),
            deadline_ms=max(1, int(load_seconds * 1000)),
            configs=said.configs,
            ranks=ranks,
            prefill_rate=said.prefill_rate,
        )
        job = Job(link, self.client.timeout, ranks=1 + len(ranks))
        return Request(Op.PREFETCH, body, job._begin, Job._undo, callback)

    def lookup(self, link: Link, keys: Sequence[bytes], deadline: float, before: Before = None) -> Request:
        """How long the run of values is that are there."""
        body = wire.lookup(self._chain(link, keys, deadline, before), ranks=self._ranks(link, deadline))
        return Request(Op.LOOKUP, body, wire.lookup_reply)

    # ---- what is there -------------------------------------------------------

    def find(
        self, keys: Sequence[bytes], timeout: float, before: Before = None, say: Say = None, keep: Keep = None
    ) -> int:
        """How many values are there from the first on, in one round trip. They
        start to come up to DRAM and are leased for some seconds, so that they
        are still there when they are loaded. ``keep`` takes that lease over, and is
        told of how many keys it is."""
        distinct = list(dict.fromkeys(keys))
        job = self.take(distinct, timeout, before if len(distinct) == len(keys) else None, say)
        found = self.found(job)
        if job is not None and found and keep is not None:
            keep(job, found)
        elif job is not None:
            self._hints.keep(job, distinct[:found], self.space)
        if len(distinct) == len(keys):
            return found
        there = set(distinct[:found])
        return next((i for i, k in enumerate(keys) if k not in there), len(keys))

    @staticmethod
    def found(job: Optional[Job]) -> int:
        """Chunks that are there, as far as they are worth loading."""
        if job is None:
            return 0
        most = job.match.total.chunks
        return most if job.advice is None else min(most, job.advice.load.chunks)

    def exists(self, keys: Sequence[bytes], timeout: float) -> List[bool]:
        """Which values are there, wherever they are in ``keys``."""
        found: Dict[bytes, bool] = dict.fromkeys(keys, False)
        distinct, deadline = list(found), time.monotonic() + timeout
        # An answer is how long a run is from its start, so what lies behind the
        # first one that is not there is asked for again, each by itself.
        runs = [distinct[i : i + _RUN] for i in range(0, len(distinct), _RUN)]
        try:
            while runs:
                link = self.client._ready()
                if link is None:
                    break
                now, runs = runs[:WINDOW], runs[WINDOW:]
                requests = [self.lookup(link, run, deadline) for run in now]
                for run, match in zip(now, answers(link, requests, deadline)):
                    if match is None:
                        continue
                    there = match.total.chunks
                    found.update(dict.fromkeys(run[:there], True))
                    runs += [[k] for k in run[there + 1 :]]
        except Error:
            pass  # the space could not be opened
        return [found[k] for k in keys]

    # ---- hints ---------------------------------------------------------------

    def lease(self, keys: Sequence[bytes], timeout: float, before: Before = None, say: Say = None) -> Optional[Job]:
        """Leases a run of values for some seconds, as :meth:`find` does. Until the
        job is done the daemon may still be asking its remote tier for more than it
        has matched. None if there is no answer."""
        job = self.take(keys, timeout, before, say)
        if job is not None:
            self._hints.keep(job)
        return job

    def take(self, keys: Sequence[bytes], timeout: float, before: Before = None, say: Say = None) -> Optional[Job]:
        """:meth:`lease` for a caller that gives the job back itself."""
        link, deadline = self.client._ready(), time.monotonic() + timeout
        if link is None or not keys:
            return None
        try:
            return hints.answered(link.call(self._prefetch(link, keys, deadline, hints.SECONDS, None, before, say), deadline))
        except Error:
            return None

    def keep(self, job: Job) -> None:
        """Takes a job over, and gives its lease back after some seconds."""
        self._hints.keep(job)

    def hint(self, keys: Sequence[bytes], before: Before = None, say: Say = None) -> None:
        """:meth:`lease` of distinct values for a caller that wants no answer. Returns
        at once. The answer may take the client's timeout: to all calls the daemon
        looks stalled when one is late."""
        link, deadline = self.client._ready(), time.monotonic() + self.client.timeout
        if link is None or not keys:
            return
        try:
            distinct = list(dict.fromkeys(keys))
            request = self._prefetch(link, distinct, deadline, hints.SECONDS, self._hinted, before, say)
            link.start([request], deadline)
        except Error:
            pass  # it was only a hint

    def _hinted(self, call: Call) -> None:
        if call.value is not None:
            self._hints.keep(hints.answered(call.value))

    # ---- loading -------------------------------------------------------------

    def load(self, keys: Sequence[bytes], places: Sequence[Target], timeout: float, before: Before = None) -> int:
        """Copies values to their places, and returns how many from the first on: under
        the lease that :meth:`find` has of them, else under one of its own.
        The next one is not there, is not as long as its place, does not match its
        checksum, or its lease did not hold; what lies in its place and in those
        behind it is undefined. No copy begins after the timeout: the places may
        be somebody else's then. Of several ranks a place has the pieces of each, one
        list a rank."""
        deadline, lease = time.monotonic() + timeout, self._hints.find(keys, self.space)
        loaded = 0 if lease is None else self.unload(lease, 0, places, timeout)
        chain = None if before is None or len(set(keys)) < len(keys) else [*before, *digests(keys)]
        while loaded < len(keys) and time.monotonic() < deadline:
            run = _distinct(keys[loaded:])
            at = None if chain is None else chain[: len(chain) - len(keys) + loaded]
            try:
                n, crowded = self._load(run, places[loaded:], deadline, at)
            except Error:
                break
            loaded += n
            if n < len(run) and not (crowded and (n or self._hints.drop())):
                break
        self._hints.loaded(keys[:loaded])
        return loaded

    def load_each(self, keys: Sequence[bytes], places: Sequence[Place], timeout: float) -> List[bool]:
        """Which values were copied to their places: as :meth:`load`, but goes on
        behind one that cannot be had."""
        loaded, deadline = [False] * len(keys), time.monotonic() + timeout
        todo = list(range(len(keys)))
        for _ in range(_LOADS):
            n = self.load([keys[i] for i in todo], [places[i] for i in todo], deadline - time.monotonic())
            for i in todo[:n]:
                loaded[i] = True
            rest = todo[n + 1 :]
            left = deadline - time.monotonic()
            if not rest or left <= 0:
                break
            there = self.exists([keys[i] for i in rest], left)
            todo = [i for i, yes in zip(rest, there) if yes]
        return loaded

    def _load(
        self, keys: Sequence[bytes], places: Sequence[Target], deadline: float, before: Before
    ) -> Tuple[int, bool]:
        """Loads a leading run of keys; whether more room would have made it longer."""
        link = self.client._ready()
        if link is None:
            return 0, False
        if link.arena is None:
            return self._load_inline(link, keys, places, deadline, before), False
        job = link.call(self._prefetch(link, keys, deadline, deadline - time.monotonic(), None, before), deadline)
        return self._unload(job, 0, places, deadline), job.state.reason in _NO_ROOM

    def unload(self, job: Job, first: int, places: Sequence[Target], timeout: float) -> int:
        """Copies values of a lease, from number ``first`` of it on, and gives it back:
        :meth:`load` without asking once more. 0 if it is not held any more."""
        link = self.client._ready()
        if link is None or link.arena is None or job._link is not link or job.ranks != 1 + len(self.others):
            return 0
        if not self._hints.take(job):
            return 0
        return self._unload(job, first, places, time.monotonic() + timeout)

    def _unload(self, job: Job, first: int, places: Sequence[Target], deadline: float) -> int:
        loaded = 0
        try:
            for i, place in enumerate(places[: max(0, job.match.total.chunks - first)], first):
                if not self._copy(job, i, place, deadline):
                    break
                loaded += 1
        finally:
            good = job.release(max(0.05, deadline - time.monotonic()))
        return loaded if good else 0

    def _load_inline(
        self, link: Link, keys: Sequence[bytes], places: Sequence[Target], deadline: float, before: Before
    ) -> int:
        """Loads a leading run of keys over the socket, where the daemon does not let
        this user map its memory; as many at a time as fit into one reply."""
        loaded = 0
        chain = None if before is None else [*before, *digests(keys)]
        while loaded < len(keys) and time.monotonic() < deadline and not self.others:
            left = max(1, int((deadline - time.monotonic()) * 900))
            at = None if chain is None else chain[: len(chain) - len(keys) + loaded]
            body = wire.get(self._chain(link, keys[loaded:], deadline, at), deadline_ms=left)
            chunks = link.call(Request(Op.GET, body, wire.get_reply), deadline)
            for payload, _, total in chunks:
                if time.monotonic() >= deadline or not self._copy_from(address(payload), len(payload), places[loaded], total):
                    return loaded
                loaded += 1
            if not chunks:
                break
        return loaded

    def _copy(self, job: Job, i: int, place: Any, deadline: float) -> bool:
        if len(job) <= i:
            job.wait((i + 1) * self.space.chunk_tokens, deadline - time.monotonic())
        if len(job) <= i or time.monotonic() >= deadline:
            return False
        places = place if self.others else [place]
        return all(self._copy_from(*job.address(i, r), places[r], job.ref(i, r).sum) for r in range(job.ranks))

    def _copy_from(self, at: int, length: int, target: Target, total: int) -> bool:
        """Copies a payload to its place; False if it is not as long or as it was."""
        place = None if callable(target) else target
        if place is not None and length != size_of(place):
            return False
        if self.verify and checksum_at is not None and checksum_at(at, length) != total:
            return False
        if callable(target):
            place = target(at, length)
        if place is None or length != size_of(place):
            return False
        for to, size in place:
            copy(to, at, size)
            at += size
        return True

    # ---- storing -------------------------------------------------------------

    def store(
        self,
        keys: Sequence[bytes],
        places: Sequence[Place],
        timeout: float,
        patient: bool = True,
        before: Before = None,
        max_age: float = 0.0,
    ) -> List[bool]:
        """Copies values from their places. True: it is there, perhaps with other
        bytes but of this length, or another client is just storing it. Where room
        is short it waits for the tiers below to catch up, if ``patient``, which
        takes up to half of the time. No copy begins after the timeout. ``max_age`` is
        for how many seconds what is stored may stay; 0: as the daemon says."""
        there = Storing(self, keys, places, before, patient, max_age).run(time.monotonic() + timeout)
        return [there.get(k, False) for k in keys]

    def delete(self, keys: Sequence[bytes], timeout: float) -> int:
        """Forgets values in every tier; how many were there."""
        link, deadline = self.client._ready(), time.monotonic() + timeout
        if link is None or not keys:
            return 0
        try:
            body = wire.delete(self._chain(link, list(dict.fromkeys(keys)), deadline))
            return link.call(Request(Op.DELETE, body, wire.number_reply), deadline)
        except Error:
            return 0

    def close(self) -> None:
        """Gives hinted leases back, unless they are shared. Nothing may be called afterwards."""
        if not self._shares_hints:
            self._hints.close()


def _distinct(keys: Sequence[bytes]) -> Sequence[bytes]:
    """The leading run of keys in which none comes twice."""
    seen = set()
    for i, key in enumerate(keys):
        if key in seen:
            return keys[:i]
        seen.add(key)
    return keys
