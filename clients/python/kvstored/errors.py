"""What can go wrong, and which of it a caller of :class:`kvstored.Client` sees.

A client answers a miss where the daemon is away, late, full or stopping. What
is raised is a mistake of the caller: a :class:`Refused` with a code that says
so.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Optional


class Code(IntEnum):
    """The codes of errors, jobs, slots and results alike; docs/protocol.md says what
    to do about each."""

    OK = 0
    BAD_REQUEST = 1
    UNKNOWN_OP = 2
    VERSION = 3
    DENIED = 4
    TOO_LARGE = 5
    NO_SPACE = 6
    OVER_BUDGET = 7
    NOT_FOUND = 8
    UNKNOWN_SPACE = 9
    UNKNOWN_JOB = 10
    UNKNOWN_FILL = 11
    REVOKED = 12
    NOT_RESERVED = 13
    INCONSISTENT_CHAIN = 14
    CLOSED = 15
    TIER_OFF = 16
    TIMEOUT = 17
    INTERNAL = 18
    UNKNOWN_OPTION = 19
    UNSUPPORTED = 20
    OVER_QUOTA = 21
    STARTING = 22
    CANCELLED = 23
    UNKNOWN_CHAIN = 24
    RUNNING = 25
    PENDING = 26
    EXISTS = 27
    DIFFERS = 28
    CORRUPT = 29
    FAILED = 30
    GAP = 31
    NEVER_STORED = 32
    EVICTED = 33
    DECLINED = 34
    OTHER_SPACE = 35
    GROUP = 36


class Retry(IntEnum):
    """When what was refused may be tried again."""

    NEVER = 0  # not as it is
    RELEASE = 1  # when this client has released something
    LATER = 2  # after Refused.after seconds
    RECONNECT = 3  # on a new connection, after that


#: Codes that mean "do it differently", not "not now".
MISTAKES = frozenset(
    {
        Code.BAD_REQUEST,
        Code.UNKNOWN_OP,
        Code.VERSION,
        Code.DENIED,
        Code.TOO_LARGE,
        Code.INCONSISTENT_CHAIN,
        Code.UNKNOWN_OPTION,
        Code.UNSUPPORTED,
    }
)


class Error(Exception):
    """Any error of this package."""

    def fresh(self) -> "Error":
        """The same error, never raised yet. One that was raised refers to the
        frames it passed, and so to all that they use: it must not be kept."""
        return type(self)(*self.args)


class Disconnected(Error):
    """The connection is gone, and with it every job, lease and fill."""


class ProtocolError(Disconnected):
    """The daemon sent something that makes no sense; the connection is closed."""


class DeadlineExceeded(Error, TimeoutError):
    """The daemon did not answer within the time given."""


class Refused(Error):
    """The daemon refused a request. ``text`` says what is wrong and what to do,
    ``retry`` (a :class:`Retry`, or a number of a newer daemon) and ``after``
    (seconds) when to try again; ``limit``, if not None, is the largest value that
    would have passed."""

    def __init__(
        self, op: str, code: int, text: str, retry: int = Retry.NEVER, after: float = 0.0, limit: Optional[int] = None
    ) -> None:
        try:
            self.code: Code = Code(code)
        except ValueError:  # from a newer daemon
            self.code = Code.INTERNAL
        self.op, self.text, self.retry, self.after, self.limit = op, text, retry, after, limit
        super().__init__(op, code, text, retry, after, limit)

    def __str__(self) -> str:
        return f"{self.op}: {self.code.name.lower()}: {self.text}"
