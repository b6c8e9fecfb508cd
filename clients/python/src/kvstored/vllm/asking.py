"""Questions that vLLM's scheduler asks the daemon, and does not wait for.

They go out from the call that ends a step. The first lookup of a later step that finds
the answers takes note of them: no thread stands between. A request that begins alone is
asked for at its first lookup, and the step waits a moment for the answer: then the request
is scheduled in this step, and not in the next.
"""

import collections
import os
import time
from typing import Any, Callable, Deque, Iterable, List, Tuple

from .._engine import Complaints
from ..client import Asking
from ..errors import DeadlineExceeded, Refused
from ..job import Job
from .order import positions

INLINE_BLOCKS = 256  # of one step: a block takes 3 us of the scheduler's thread, one before it 1.5; a step some ms
_UNANSWERED = 64  # questions at most
_MOMENT_SECONDS = 200e-6  # that a step waits for answers, all together


def short(blocks: int, contexts: Iterable[Any]) -> bool:
    """Whether the scheduler's thread asks for so many blocks of some requests."""
    return blocks <= INLINE_BLOCKS and sum(len(positions(context)) for context in contexts) <= 2 * INLINE_BLOCKS


class Questions:
    """Those without an answer. For one thread."""

    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._asked: "Deque[Tuple[Asking, Callable[[List[Job]], Any]]]" = collections.deque()
        self._moment = _MOMENT_SECONDS  # that is left of this step's

    def __bool__(self) -> bool:
        return bool(self._asked)

    @property
    def full(self) -> bool:
        """Whether so many wait for an answer that no more are to be asked."""
        return len(self._asked) >= _UNANSWERED

    @property
    def quick(self) -> bool:
        """Whether this step may still wait for an answer, and none is late."""
        return not self._asked and self._moment > 0

    def end_step(self) -> None:
        self._moment = _MOMENT_SECONDS

    def add(self, asking: Asking, answer: Callable[[List[Job]], Any]) -> bool:
        """``answer`` takes the jobs. False where the daemon took no question at once: another
        thread was sending, or a space is not open yet."""
        if asking.call is None and isinstance(asking.error, DeadlineExceeded):
            return False
        self._asked.append((asking, answer))
        return True

    def hear_soon(self) -> None:
        """Takes note of the answers that come in what is left of the step's moment. It looks
        again and again: the kernel's timers are no finer."""
        began = now = time.monotonic()
        while self._asked and now - began < self._moment:
            os.sched_yield()
            self.hear()
            now = time.monotonic()
        self._moment -= now - began

    def hear(self) -> None:
        """Takes note of the answers that are there."""
        while self._asked:
            asking, answer = self._asked[0]
            try:
                jobs = asking.poll()
            except Refused as e:
                self._complaints.say("a question to the daemon")
                jobs = asking.lost(e)
            if jobs is None:
                return
            self._asked.popleft()
            try:
                answer(jobs)
            except Exception:
                self._complaints.say("an answer of the daemon")
