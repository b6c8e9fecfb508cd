"""What can go wrong, and which of it a caller of :class:`kvstored.Client` sees.

A client answers a miss where the daemon is away, late, full or stopping. What
is raised is a mistake of the caller: a :class:`Refused` with a code that says
so.
"""

# pyright: strict, reportPrivateUsage=false

from enum import IntEnum
from typing import Optional

from . import _wire as wire
from ._wire import Code


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


#: Codes that mean "not now, for want of room"; reasons and results have the same numbers.
NO_ROOM = (Code.NO_SPACE, Code.OVER_BUDGET, Code.OVER_QUOTA)


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


def refusal(op: int, code: int, body: wire.Buffer) -> Refused:
    """What the body of a refused request's reply says."""
    r = wire.read_error(body, 0, len(body))[0]
    return Refused(wire.Op(op).name.lower(), code, r.text, r.retry, r.after_ms / 1000, r.limit)
