"""When a thread that waits for a reply looks for it before it sleeps: never at
another's cost."""

from __future__ import annotations

import time
from typing import Any, Callable, NamedTuple

#: Seconds of a look: many replies come sooner than a thread falls asleep and wakes.
_GLANCE = 50e-6
#: From so many seconds between two looks on, another thread had the processor, or
#: another thread of this interpreter wanted to run.
_LOST = 1e-3
#: Seconds for which it is off at first, and at most; each time that it is off again
#: before it was on for as long doubles them.
_FIRST, _LONGEST = 1.0, 8.0
#: Seconds between looks at the pressure, which the kernel reckons every two; where
#: threads waited for processors for more than a quarter of them, it is switched off. What is
#: older than _STALE says nothing of now.
_PRESSURE_EVERY, _PRESSED, _STALE = 2.0, 0.25, 2 * _LONGEST


class Polling(NamedTuple):
    """What looking for replies came to in this process."""

    polls: int
    gained: int  #: the reply came
    vain: int  #: it did not
    lost: int  #: times switched off because another thread had the processor
    pressed: int  #: because threads waited for processors
    off: bool  #: now


def _stalled() -> float:
    """Seconds since the boot for which some thread of the machine waited for a
    processor; 0 where the kernel does not say."""
    try:
        with open("/proc/pressure/cpu", "rb", buffering=0) as f:
            return int(f.read(256).split(b"\n", 1)[0].rpartition(b"total=")[2]) / 1e6
    except (OSError, ValueError):
        return 0.0


class Glance:
    """All looks of a process. Threads may race for its counts, which are only told."""

    def __init__(self, now: Callable[[], float] = time.perf_counter, stalled: Callable[[], float] = _stalled) -> None:
        self._now, self._stalled = now, stalled
        self._off = self._pause = 0.0
        self._checked, self._waited = -1.0, 0.0
        self._looking = False
        self._polls = self._gained = self._vain = self._lost = self._pressed = 0

    def look(self, poll: Callable[[int], Any]) -> Any:
        """What ``poll(0)`` returns, soon."""
        ready = poll(0)
        if ready or self._looking:
            return ready
        start = last = self._now()
        if start < self._off or self._under_pressure(start):
            return ready
        self._looking = True  # one thread of a process at a time
        self._polls += 1
        try:
            while True:
                ready = poll(0)
                at = self._now()
                if at - last > _LOST:
                    self._lost += 1
                    self._switch_off(at)
                    return ready
                if ready:
                    self._gained += 1
                    return ready
                if at - start > _GLANCE:
                    self._vain += 1
                    return ready
                last = at
        finally:
            self._looking = False

    def _under_pressure(self, at: float) -> bool:
        since = at - self._checked
        if 0 <= self._checked and since < _PRESSURE_EVERY:
            return False
        first, before = self._checked < 0, self._waited
        self._checked, self._waited = at, self._stalled()
        if first or since > _STALE or self._waited - before <= _PRESSED * since:
            return False
        self._pressed += 1
        self._switch_off(at)
        return True

    def _switch_off(self, at: float) -> None:
        again = at - self._off < self._pause
        self._pause = min(2 * self._pause, _LONGEST) if again else _FIRST
        self._off = at + self._pause
        self._checked = -1.0  # what waits while it is off says nothing: waking for each message is pressure too

    def read(self) -> Polling:
        return Polling(self._polls, self._gained, self._vain, self._lost, self._pressed, self._now() < self._off)


_process = Glance()
look = _process.look


def polling() -> Polling:
    """How often this process looked for a reply before it slept, and what came of it."""
    return _process.read()
