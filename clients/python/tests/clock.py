"""The clock of the client, which a test lets run ahead: timeouts end that are further off
than any machine stands still."""

import contextlib
import sys
import time
import unittest
from types import SimpleNamespace
from typing import Iterator
from unittest import mock

from .daemon import enter

FAR = 600.0  # seconds; a timeout that ends within one of a clock that is hurried


class FastClock:
    """Given to all modules of the package until the test ends."""

    def __init__(self, test: unittest.TestCase) -> None:
        self._now = (0.0, 0.0, 1.0)  # seconds ahead since when, and how fast
        clock = SimpleNamespace(**{**vars(time), "monotonic": self.monotonic})
        for name, module in list(sys.modules.items()):
            if name.startswith("kvstored.") and getattr(module, "time", None) is time:
                enter(test, mock.patch.object(module, "time", clock))

    def monotonic(self) -> float:
        ahead, since, rate = self._now  # at once: threads read it
        now = time.monotonic()
        return now + ahead + (now - since) * (rate - 1)

    def _run(self, rate: float) -> None:
        self._now = (self.monotonic() - time.monotonic(), time.monotonic(), rate)

    @contextlib.contextmanager
    def hurried(self) -> Iterator[None]:
        """A thousand times as fast meanwhile."""
        self._run(1000.0)
        try:
            yield
        finally:
            self._run(1.0)
