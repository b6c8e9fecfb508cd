"""Turns: the daemon keeps a bounded number of jobs for a connection, so those
beyond it wait here, in the order in which they were asked for."""

from __future__ import annotations

import collections
import time
from typing import Deque, List

from . import wire
from .call import Call
from .errors import DeadlineExceeded
from .wire import Op

#: Live jobs of a connection; docs/protocol.md, "Order and limits".
LIMIT = 1024


class Queued(DeadlineExceeded):
    """The request still waits for its turn, and goes out when that comes."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.call = call

    def __str__(self) -> str:
        return f"{self.call.name}: it still waits for its turn"


#: Operations that give a job back.
ENDS = (Op.RELEASE,)


class Turns:
    """The jobs of one connection. The lock of its link guards all of it."""

    def __init__(self) -> None:
        self.taken = 0  # live jobs, and those that requests under way may make
        self.queue: Deque[Call] = collections.deque()
        self.moved = 0.0  # when the queue began, a call last left it for its turn, or a job was last given back

    def enter(self, call: Call) -> bool:
        """Whether a call may be sent now; otherwise it is queued."""
        jobs = call.jobs
        if call.request.op in ENDS:
            self.moved = time.monotonic()
        if not jobs or not self.queue and self.taken + jobs <= max(LIMIT, jobs):
            self.taken += jobs
            return True
        if not self.queue:
            self.moved = time.monotonic()
        call.waits = True
        self.queue.append(call)
        return False

    def drop(self, call: Call) -> bool:
        """Takes a call back that waits for its turn; False if it does not."""
        if not call.waits:
            return False
        call.waits = False
        self.queue.remove(call)
        return True

    def unsent(self, call: Call) -> None:
        self.taken -= call.jobs

    def answered(self, call: Call, status: int, body: bytes) -> None:
        """Counts what a reply made or ended."""
        if call.request.op in ENDS:
            self.taken -= not status  # else it was ended before
        elif call.jobs:
            self.taken -= call.jobs - (0 if status else _made(call.request.op, body))

    def clear(self) -> None:
        """When the connection has ended: nobody waits for a turn any more."""
        for call in self.queue:
            call.waits = False
        self.queue.clear()

    def next(self) -> List[Call]:
        """Those whose turn has come."""
        going: List[Call] = []
        while self.queue and self.taken + self.queue[0].jobs <= max(LIMIT, self.queue[0].jobs):
            call = self.queue.popleft()
            call.waits, call.turned = False, time.monotonic()
            self.taken += call.jobs
            self.moved = call.turned
            going.append(call)
        return going


def _made(op: int, body: bytes) -> int:
    """How many jobs the reply to a prefetch or a batch has made."""
    if op != Op.BATCH:
        return 1
    return sum(answer.prefetch is not None for answer in wire.batch_reply(body)[0])
