"""Methods that never raise, since an exception would end a thread of an engine."""

from __future__ import annotations

import functools
import logging
import threading
import time
from typing import Any, Callable, TypeVar, cast

_LOG_SECONDS = 30.0

F = TypeVar("F", bound=Callable[..., Any])


class Complaints:
    """What failed, in the log, but not more than once in half a minute."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._mu = threading.Lock()
        self._said = -_LOG_SECONDS

    def say(self, what: str) -> None:
        """Called where an exception was caught."""
        now = time.monotonic()
        with self._mu:
            quiet = now - self._said < _LOG_SECONDS
            self._said = self._said if quiet else now
        if not quiet:
            self._log.exception("kvstored: %s failed and counts as a miss", what)


def never_raises(otherwise: Callable[..., Any]) -> Callable[[F], F]:
    """What a method returns instead of raising, made from its first argument. Its
    object has ``_complaints``."""

    def wrap(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except Exception:
                self._complaints.say(method.__name__)
                return otherwise(next(iter((*args, *kwargs.values())), None))

        return cast(F, guarded)

    return wrap


def nothing(value: Any) -> Callable[..., Any]:
    return lambda _: value
