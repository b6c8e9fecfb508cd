"""A request, and a call: a request on its way."""

from __future__ import annotations

import threading
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from . import wire
from .errors import Error, Refused

Frame = Tuple[int, bytes]  # op and body of a request


def refusal(op: str, code: int, body: bytes) -> Refused:
    """What the body of a refused request's reply says."""
    r = wire.error_reply(body)
    return Refused(op, code, r.text, r.retry, r.after_ms / 1000, r.limit)


class Request(NamedTuple):
    """A request to be sent: how its reply is read, and what gives back what the
    reply brought when nobody waits for it any more. A callback is called once,
    unless the request could not be sent or the call was abandoned."""

    op: int
    body: bytes
    take: Callable[[bytes], Any]
    undo: Optional[Callable[[bytes], Optional[Frame]]] = None
    callback: Optional[Callable[["Call"], None]] = None
    jobs: int = 0  # that the reply to a batch may make
    #: Told why no reply is taken, by a call whose caller went ahead of it.
    lost: Optional[Callable[[Error], None]] = None
    #: Whether commits that wait for the next request go out behind this one. The
    #: daemon answers it first, and works on them while its caller goes on.
    leads: bool = False


class Watch(NamedTuple):
    """A step of a call that sends nothing: it ends when it is enough. ``among``
    is what :meth:`Link.look` is given when that may have changed."""

    among: List["Call"]
    enough: Callable[[], bool]
    seconds: Optional[float] = None  # that it may take; None: as the call that it is a step of


_PREFETCH = int(wire.Op.PREFETCH)


class Call:
    """A request on its way. ``value`` or ``error``, which is never raised itself,
    is set when it is ``done``."""

    __slots__ = (
        "id", "request", "jobs", "done", "value", "error", "reply", "parked", "left", "sent", "ahead", "waits", "turned",
        "enough", "deadline", "grace", "arrived", "wake",
    )  # fmt: skip

    def __init__(self, id: int, request: Request) -> None:
        self.id, self.request = id, request
        self.jobs = 1 if request.op == _PREFETCH else request.jobs  # that the reply may make
        self.done = self.parked = self.left = False
        self.waits = False  # for its turn; it is not sent yet
        self.ahead = False  # its caller did not wait for its turn, and hears of it by take or lost
        self.enough: Optional[Callable[[], bool]] = None  # of a watch, which is never sent
        self.turned = 0.0  # when that came; 0 if it did not wait for it
        self.deadline = 0.0
        self.grace: Optional[float] = None
        self.sent, self.arrived = False, 0  # of a call with a callback
        self.value: Any = None
        self.error: Optional[Error] = None
        self.reply: Optional[bytes] = None
        self.wake = threading.Lock()  # held; released once to wake the thread that parked
        self.wake.acquire()

    def ended(self) -> bool:
        return self.done

    def frame(self) -> bytes:
        body = self.request.body
        return wire.HEADER.pack(len(body), wire.REQUEST, self.request.op, 0, self.id) + body

    @property
    def name(self) -> str:
        return wire.Op(self.request.op).name.lower()

    def __repr__(self) -> str:
        state = "done" if self.done else "left" if self.left else "waits for its turn" if self.waits else "under way"
        return f"<Call {self.name} {self.id}, {state}>"
