"""Values under single keys, as engines hand them over.

Where an engine says what a run of keys follows (``before``, the digests of the
chain from the start of the prompt, [] where the run begins it), they are chunks
of a prompt; else (None) each is a chunk that stands alone. Many are asked for,
leased or stored in one round trip. Nothing here raises because of the daemon, and
copies let other threads run: those of a call are one call of :mod:`kvstored.bulk`.

What an engine says of the order may be wrong: the daemon finds each value by its key
all the same.
"""

import time
from contextlib import suppress
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from . import bulk, hints, options
from .answers import Chunk, Match
from .chains import chained, digests
from .client import Client
from .errors import NO_ROOM, ProtocolError, Refused
from .existing import Existing
from .hints import Hints
from .job import Job
from .memory import address
from .places import HOST, Host, Payload, Place, Target
from .prefill import Said
from .prompt import Prompt, Space
from .storing import Storing

_RUN = 32  # values of one question
_LOADS = 64  # runs that one load is made of, where values are missing between

#: The chain before a run of keys; None: each stands alone.
Before = Optional[Sequence[bytes]]
#: Takes over a lease of so many keys.
Keep = Optional[Callable[[Job, int], None]]


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
        memory: Host = HOST,
    ) -> None:
        """``hints``: those of an engine with several spaces, which closes them itself.
        ``check_existing``: see :class:`Existing`. ``others``: the spaces of the other
        ranks, where values of all ranks are asked for and loaded together. ``memory``: in which
        places are."""
        self._existing, self._memory = Existing(space, check_existing, memory), memory
        self.others = tuple(others)
        self.client, self.space, self.verify = client, space, verify and bulk.SUMS
        self._shares_hints = hints is not None
        self._hints = Hints(client) if hints is None else hints

    def prompt(self, keys: Sequence[bytes], before: Before = None) -> Prompt:
        """A run of values, as the client names it."""
        return chained(self.space, keys, before)

    def space_id(self, seconds: float) -> bytes:
        """The daemon's name of the space; empty while there is no connection."""
        return self.client.space_id(self.space, seconds)

    # ---- what is there -------------------------------------------------------

    def find(
        self, keys: Sequence[bytes], timeout: float, before: Before = None, say: Said = Said(), keep: Keep = None
    ) -> int:
        """How many values are there from the first on, in one round trip. They
        start to come up to DRAM and are leased for some seconds, so that they
        are still there when they are loaded. ``keep`` takes that lease over, and is
        told of how many keys it is."""
        distinct = list(dict.fromkeys(keys))
        job = self.take(distinct, timeout, before if len(distinct) == len(keys) else None, say)
        found = 0 if job is None else job.worth.chunks
        if job is not None and found and keep is not None:
            keep(job, found)
        elif job is not None:
            self._hints.keep(job, distinct[:found], self.space)
        if len(distinct) == len(keys):
            return found
        there = set(distinct[:found])
        return next((i for i, k in enumerate(keys) if k not in there), len(keys))

    def exists(self, keys: Sequence[bytes], timeout: float) -> List[bool]:
        """Which values are there, wherever they are in ``keys``."""
        found: Dict[bytes, bool] = dict.fromkeys(keys, False)
        distinct, deadline = list(found), time.monotonic() + timeout
        # An answer is how long a run is from its start, so what lies behind the
        # first one that is not there is asked for again, each by itself.
        runs = [distinct[i : i + _RUN] for i in range(0, len(distinct), _RUN)]
        while runs and time.monotonic() < deadline and self.client.attached:
            asked, again = [(self.prompt(run), self.others) for run in runs], []
            matches: Sequence[Match] = ()
            with suppress(Refused):
                matches = self.client.lookups(asked, deadline - time.monotonic())
            for run, match in zip(runs, matches):
                there = match.total.chunks
                found.update(dict.fromkeys(run[:there], True))
                again += [[k] for k in run[there + 1 :]]
            runs = again
        return [found[k] for k in keys]

    # ---- hints ---------------------------------------------------------------

    def lease(self, keys: Sequence[bytes], timeout: float, before: Before = None, say: Said = Said()) -> Optional[Job]:
        """Leases a run of values for some seconds, as :meth:`find` does. Until the
        job is done the daemon may still be asking its remote tier for more than it
        has matched. None if there is no answer."""
        job = self.take(keys, timeout, before, say)
        if job is not None:
            self._hints.keep(job)
        return job

    def take(
        self, keys: Sequence[bytes], timeout: float, before: Before = None, say: Said = Said(), alone: bool = False
    ) -> Optional[Job]:
        """:meth:`lease` for a caller that gives the job back itself. ``alone``: and of what is
        there behind the first value that is not, ``job.alone``."""
        if not keys:
            return None
        with suppress(Refused):
            job = self.client.prefetch(
                self.prompt(keys, before), load_deadline=hints.SECONDS, configs=say.configs, ranks=self.others,
                prefill_rate=say.prefill_rate, alone=alone, timeout=timeout,
            )  # fmt: skip
            if job.error is None:
                return hints.answered(job)
        return None

    def keep(self, job: Job) -> None:
        """Takes a job over, and gives its lease back after some seconds."""
        self._hints.keep(job)

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
            n, crowded = self._load(run, places[loaded:], deadline, at)
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
            return self._load_inline(keys, places, deadline, before), False
        left = deadline - time.monotonic()
        try:
            job = self.client.prefetch(self.prompt(keys, before), load_deadline=max(left, 1e-3), ranks=self.others, timeout=left)
        except Refused:
            return 0, False
        return self._unload(job, 0, places, deadline), job.state.reason in NO_ROOM

    def unload(self, job: Job, first: int, places: Sequence[Target], timeout: float) -> int:
        """Copies values of a lease, from number ``first`` of it on, and gives it back:
        :meth:`load` without asking once more. 0 if it is not held any more."""
        link = self.client._ready()
        if link is None or link.arena is None or job._link is not link or job.ranks != 1 + len(self.others):
            return 0
        if not self._hints.take(job):
            return 0
        return self._unload(job, first, places, time.monotonic() + timeout)

    def _unload(self, job: Job, first: int, places: Sequence[Target], deadline: float, kept: bool = False) -> int:
        """``kept``: the caller gives the lease back, where sums prove what was read under it."""
        loaded, n = 0, min(len(places), max(0, job.match.total.chunks - first))
        try:
            while loaded < n:
                end = min(self._ready(job, first + loaded, first + n, deadline), first + n)
                payloads = job.payloads(first + loaded, end) if end > first + loaded else []
                targets = places[loaded : end - first]
                got = self._scatter(payloads, targets, deadline)
                loaded += got
                if not got or first + loaded < end:
                    break
        except ProtocolError as e:  # a value outside the arena
            assert job._link is not None
            job._link.fail(e)
        finally:
            good = kept and self.verify or self._give_back(job, deadline)
        return loaded if good else 0

    def _ready(self, job: Job, at: int, end: int, deadline: float) -> int:
        """How many chunks of a job are there; at least one beyond ``at``, if that can be
        had. What is still to come up is copied by halves: a wait for each chunk would be
        as many hand-overs of the interpreter."""
        if len(job) <= at:
            job.wait((at + (end - at + 1) // 2) * self.space.chunk_tokens, deadline - time.monotonic())
        return len(job)

    def _give_back(self, job: Job, deadline: float) -> bool:
        """Gives a lease back; whether what was read under it is right."""
        if self.verify:
            job.release_soon()
            return True
        return job.release(max(0.05, deadline - time.monotonic()))

    def _scatter(self, payloads: Sequence[Payload], places: Sequence[Target], deadline: float) -> int:
        """Copies payloads of all ranks; how many chunks from the first on."""
        if self.others:
            places = [place for ranks in places for place in ranks]  # type: ignore[union-attr, misc]
        return self._memory.scatter(payloads, places, self.verify, deadline) // (1 + len(self.others))

    def _load_inline(
        self, keys: Sequence[bytes], places: Sequence[Target], deadline: float, before: Before
    ) -> int:
        """Loads a leading run of keys over the socket, where the daemon does not let
        this user map its memory; as many at a time as fit into one reply."""
        loaded = 0
        chain = None if before is None else [*before, *digests(keys)]
        while loaded < len(keys) and time.monotonic() < deadline and not self.others:
            at = None if chain is None else chain[: len(chain) - len(keys) + loaded]
            chunks: Sequence[Chunk] = ()
            with suppress(Refused):
                chunks = self.client.get(self.prompt(keys[loaded:], at), timeout=deadline - time.monotonic())
            payloads = [(address(payload), len(payload), total) for payload, _, total in chunks]
            got = self._memory.scatter(payloads, places[loaded:], self.verify, deadline)
            loaded += got
            if got < len(chunks) or not chunks:
                break
        return loaded

    # ---- storing -------------------------------------------------------------

    def store(
        self,
        keys: Sequence[bytes],
        places: Sequence[Place],
        timeout: float,
        patient: bool = True,
        before: Before = None,
        max_age: float = 0.0,
        dropped: Callable[[], bool] = bool,
        compare: bool = False,
        same: Optional[Dict[bytes, bool]] = None,
    ) -> List[bool]:
        """Copies values from their places. True: it is there, perhaps with other
        bytes but of this length, or another client is just storing it. Where room
        is short it waits for the tiers below to catch up, if ``patient``, which
        takes up to half of the time. No copy begins after the timeout. ``max_age`` is
        for how many seconds what is stored may stay; 0: as the daemon says. From
        when ``dropped`` says yes on, nothing is taken from the places that is stored.
        ``compare``: all that exist, and not one in ``check_existing``. ``same`` takes
        for the compared ones whether they have the bytes of their places."""
        storing = Storing(self.client, self._hints, self._existing, keys, places, before, patient, max_age, dropped, compare, same, self._memory)
        there = storing.run(time.monotonic() + timeout)
        return [there.get(k, False) for k in keys]

    def delete(self, keys: Sequence[bytes], timeout: float) -> int:
        """Forgets values in every tier; how many were there."""
        with suppress(Refused):
            return self.client.delete(self.prompt(list(dict.fromkeys(keys))), timeout) if keys else 0
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
