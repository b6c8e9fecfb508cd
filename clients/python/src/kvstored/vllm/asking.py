"""Questions that vLLM's scheduler asks the daemon.

They go out from the call that ends a step, and it does not wait. The first lookup of a later
step that finds the answers takes note of them: no thread stands between. The first request of
a step is asked for at its first lookup, where that tells all that the scan will ask for, and
the lookup waits a moment: where the answer is there by then, the request is scheduled in this
step.
"""

import collections
import time
from typing import Any, Callable, Collection, Deque, List, Tuple

from .._engine import Complaints
from ..client import Asking
from ..errors import DeadlineExceeded, Refused
from ..job import Job
from .order import positions

INLINE_BLOCKS = 256  # of one step: a block takes 3 us of the scheduler's thread, one before it 1.5; a step some ms
_UNANSWERED = 64  # questions at most
_MOMENT_SECONDS = 200e-6  # that a step waits for an answer
_LATE_SECONDS = 1e-3  # that this may take, where another thread has the interpreter
_PAUSE_STEPS = 32  # after a moment in vain, or one that took so long


class Questions:
    """Those without an answer. For one thread."""

    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._asked: "Deque[Tuple[Asking, Callable[[List[Job]], Any]]]" = collections.deque()
        self._spent = 0  # blocks of this step that were asked for at a lookup
        self._pause = 0  # steps that are not to wait for an answer

    def __bool__(self) -> bool:
        return bool(self._asked)

    @property
    def full(self) -> bool:
        """Whether so many wait for an answer that no more are to be asked."""
        return len(self._asked) >= _UNANSWERED

    def short(self, blocks: int, contexts: Collection[Any]) -> bool:
        """Whether the scheduler's thread asks for so many blocks more of some requests."""
        return self._spent + blocks <= INLINE_BLOCKS and sum(len(positions(context)) for context in contexts) <= 2 * INLINE_BLOCKS

    def quick(self, context: Any) -> bool:
        """Whether a request may be asked for at its first lookup: this step has asked for none
        so, no answer is missing, and the prompt is short and looked up as a whole."""
        params = getattr(context, "kv_transfer_params", None) or {}
        return not (self._asked or self._spent or self._pause or "max_load_tokens" in params) and self.short(0, [context])

    def end_step(self) -> None:
        self._spent, self._pause = 0, max(0, self._pause - 1)

    def add(self, asking: Asking, answer: Callable[[List[Job]], Any]) -> bool:
        """``answer`` takes the jobs. False where the daemon took no question at once: another
        thread was sending, or a space is not open yet."""
        if asking.call is None and isinstance(asking.error, DeadlineExceeded):
            return False
        self._asked.append((asking, answer))
        return True

    def hear_soon(self, blocks: int) -> None:
        """Waits a moment for the answer about so many blocks, and takes note of it. Where none
        comes, or the interpreter comes back late, the next steps wait for none."""
        self._spent = max(1, blocks)
        began = now = time.monotonic()
        while self._asked and now - began < _MOMENT_SECONDS and self._asked[0][0].soon(began + _MOMENT_SECONDS - now):
            self.hear()
            now = time.monotonic()
        if self._asked or time.monotonic() - began > _LATE_SECONDS:
            self._pause = _PAUSE_STEPS

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
