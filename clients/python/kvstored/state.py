"""How far a job is, and why it is as short as it is."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from .errors import Code, DeadlineExceeded, Error, Refused
from .wire import Count


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
    try:
        return Reason(reason).name
    except ValueError:
        return str(reason)


class State(NamedTuple):
    done: bool
    reason: int  # a Reason, or a number of a newer daemon
    ready: Count  # the leading run that can be read; it only grows
    failed_tier: str = ""  # disk or remote, with Reason.FAILED

    def __str__(self) -> str:
        tier = f"({self.failed_tier})" if self.failed_tier else ""
        return f"{reason_name(self.reason).lower()}{tier}, {self.ready.chunks} chunks ready"


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


def lost(error: Error) -> State:
    """The state of a job of which there is nothing any more."""
    return State(True, reason_of(error), Count())
