"""What the daemon answers, as callers see it."""

# pyright: strict, reportPrivateUsage=false

from enum import IntEnum
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Type

from . import _wire as wire
from ._wire import Code
from .errors import DeadlineExceeded, Error, Refused

_TIERS = {wire.TIERS_CPU: "cpu", wire.TIERS_DISK: "disk", wire.TIERS_REMOTE: "remote"}


class Count(NamedTuple):
    """So many chunks, and the tokens in them."""

    chunks: int = 0
    tokens: int = 0


class Missing(NamedTuple):
    """Why a chunk is not there: a :class:`Code`, the tier that had, has or declined it
    ("" for none), and the seconds since it left, or None if that is not known."""

    code: int
    tier: str = ""
    ago: Optional[int] = None

    def __repr__(self) -> str:
        ago = "" if self.ago is None else f", {self.ago} s ago"
        return f"<Missing {_name(Code, self.code).lower()}{self.tier and ', ' + self.tier}{ago}>"


class Need(NamedTuple):
    """The chunks of a group that a prefix needs, from the start of the prompt, and
    how many of them are in which tier."""

    space: int
    first: int
    chunks: int
    cpu: int
    disk: int
    remote: int


class Grouped(NamedTuple):
    """The longest prefix that all groups can use. ``run`` is how far the full ones
    reach, ``lacks`` has a bit for each group that lacks something there. ``lengths``,
    if they were asked for, are the usable ones in tokens, the longest first."""

    tokens: int
    run: int
    lacks: int
    needs: Tuple[Need, ...] = ()
    lengths: Tuple[int, ...] = ()


class Match(NamedTuple):
    """The longest leading run that is there, and where its chunks are nearest.

    Of the prompt's chunks, ``worth`` from the first on are there or worth
    storing; None if nobody said so. What is behind them would be declined.
    """

    total: Count = Count()
    cpu: Count = Count()
    disk: Count = Count()
    remote: Count = Count()
    worth: Optional[int] = None
    grouped: Optional[Grouped] = None
    #: Why the chunk behind the run is not there, where that was asked for.
    missing: Optional[Missing] = None

    @classmethod
    def of(cls, match: wire.Match, said: Any = None) -> "Match":
        """``said``: the reply that the match is part of."""
        counts = [_count(c) for c in (match.total, *match.tiers, *_NOTHING)]
        found = cls(counts[0], counts[1], counts[2], counts[3])
        if said is None:
            return found
        grouped, missing = said.grouped, said.missing
        if grouped is not None:
            grouped = Grouped(grouped.tokens, grouped.run, grouped.lacks, tuple(map(Need._make, grouped.needs)), tuple(said.lengths or ()))
        if missing is not None:
            code, tier, ago = missing
            missing = Missing(code, _TIERS.get(tier, ""), None if ago == wire.MAX_U32 else ago)
        return found._replace(worth=said.worth, grouped=grouped, missing=missing)


_NOTHING = ((0, 0),) * 3  # of tiers that are not told


def _count(count: Sequence[int]) -> Count:
    return Count(count[1], count[0])


class Advice(NamedTuple):
    """What of the match to load so that all of a prompt is ready soonest; the rest is to be computed."""

    load: Count
    micros: int  # until all of it is loaded or computed

    @classmethod
    def of(cls, advice: Optional[wire.Advice]) -> "Optional[Advice]":
        return None if advice is None else cls(_count(advice.load), advice.micros)


class Fault(NamedTuple):
    """What did not count of the configs of a request; all else did."""

    code: int  # a code
    action: int  #: number of the action in ``kv_hints``; -1: a config, and ``name`` is its name
    name: str  #: of an action its ``action_id``
    text: str  #: what is wrong, for people


def faults(told: Optional[Sequence[wire.Fault]]) -> Tuple[Fault, ...]:
    return tuple(Fault(f.code, -1 if f.action == wire.MAX_U32 else f.action, f.name, f.text) for f in told or ())


class Hinted(NamedTuple):
    """What became of a hint."""

    retained: Count = Count()  #: chunks that its claims cover now
    faults: Tuple[Fault, ...] = ()

    @classmethod
    def of(cls, reply: wire.HintReply) -> "Hinted":
        return cls(_count(reply.retained), faults(reply.hints))


class Ref(NamedTuple):
    """Where a chunk lies in the daemon's memory, and its XXH3-64."""

    offset: int
    sum: int
    length: int
    tokens: int


class Chunk(NamedTuple):
    """A copy of a payload."""

    payload: bytes
    tokens: int
    sum: int

    def __repr__(self) -> str:
        return f"<Chunk of {self.tokens} tokens, {len(self.payload)} bytes>"


class Stored(NamedTuple):
    """What became of a chunk that was to be stored."""

    result: int  # a Result, or a number of a newer daemon
    sum: int  # XXH3-64 of what is stored now; 0 where nobody said it

    def __repr__(self) -> str:
        return f"<Stored {_name(Result, self.result).lower()}{f', sum {self.sum:#x}' if self.sum else ''}>"


class Flushed(NamedTuple):
    """What a flush has written below DRAM."""

    chunks: int
    bytes: int
    left: Dict[str, Tuple[int, int]]  # reason: chunks and bytes not written

    @classmethod
    def of(cls, reply: wire.FlushReply) -> "Flushed":
        return cls(reply.chunks, reply.bytes, {left.reason: (left.chunks, left.bytes) for left in reply.left})


class Grant(IntEnum):
    """What a slot is: those codes that a reserve may answer for one."""

    GRANTED = Code.OK  # write it and commit
    EXISTS = Code.EXISTS  # stored already
    PENDING = Code.PENDING  # another client is writing it


class Result(IntEnum):
    """What became of a chunk: those codes that a commit or put may answer for one."""

    STORED = Code.OK
    EXISTS = Code.EXISTS
    DIFFERS = Code.DIFFERS
    NOT_GRANTED = Code.NOT_RESERVED
    NO_SPACE = Code.NO_SPACE
    OVER_BUDGET = Code.OVER_BUDGET
    PENDING = Code.PENDING
    OVER_QUOTA = Code.OVER_QUOTA
    DECLINED = Code.DECLINED


#: Results of a chunk that is there.
THERE = (Result.STORED, Result.EXISTS, Result.DIFFERS)


class Reason(IntEnum):
    """Why a job or a fill is as short as it is: those codes that say so."""

    RUNNING = Code.RUNNING
    COMPLETE = Code.OK
    GAP = Code.GAP
    FAILED = Code.FAILED
    CORRUPT = Code.CORRUPT
    DEADLINE = Code.TIMEOUT
    NO_SPACE = Code.NO_SPACE
    OVER_BUDGET = Code.OVER_BUDGET
    CANCELLED = Code.CANCELLED
    REVOKED = Code.REVOKED
    CLOSED = Code.CLOSED
    OVER_QUOTA = Code.OVER_QUOTA


def reason_name(reason: int) -> str:
    """``COMPLETE``; or the number, where a newer daemon says one."""
    return _name(Reason, reason)


def _name(kind: Type[IntEnum], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return str(number)


_REFUSALS = {
    **{Code(reason): reason for reason in Reason if reason not in (Reason.RUNNING, Reason.COMPLETE)},
    Code.STARTING: Reason.CLOSED,
    Code.NOT_FOUND: Reason.GAP,
    Code.UNKNOWN_JOB: Reason.CANCELLED,
}


def reason_of(error: Error) -> Reason:
    """Why there is nothing, or nothing more, after an error: it was late, it was
    refused, or the connection is gone."""
    if isinstance(error, DeadlineExceeded):
        return Reason.DEADLINE
    if isinstance(error, Refused):
        return _REFUSALS.get(error.code, Reason.FAILED)
    return Reason.CLOSED


class State(NamedTuple):
    """How far a job is."""

    done: bool
    reason: int  # a Reason, or a number of a newer daemon
    ready: Count  # the leading run that can be read; it only grows
    failed_tier: str = ""  # disk or remote, with Reason.FAILED

    def __str__(self) -> str:
        tier = f"({self.failed_tier})" if self.failed_tier else ""
        return f"{reason_name(self.reason).lower()}{tier}, {self.ready.chunks} chunks ready"

    @classmethod
    def of(cls, state: wire.State) -> "State":
        return cls(state.code != Code.RUNNING, state.code, _count(state.ready), _TIERS.get(state.failed_tier, ""))

    @classmethod
    def lost(cls, error: Error) -> "State":
        """Of a job of which there is nothing any more."""
        return cls(True, reason_of(error), Count())
