"""What the classes for engines share: the engine's own classes in whichever version is
installed, methods that never raise, and what requests say of the future."""

import functools
import hashlib
import importlib
import json
import logging
import time
from typing import Any, Callable, Dict, Iterable, List, Tuple, TypeVar, cast

log = logging.getLogger("kvstored")

_LOG_SECONDS = 30.0  # from one failure that is said to the next
_AGE_NAMES = ("max_age_seconds", "kvstored.max_age_seconds")
_MOST_AGE = 30 * 24 * 3600  # the daemon's, of what a request says
_TAG_BYTES = 512

F = TypeVar("F", bound=Callable[..., Any])


def find(module: str, name: str, newer: bool = False) -> Any:
    """What an engine calls so, or None. That is said, unless the engine is not
    installed; with ``newer`` supported versions are known not to have it."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        missing = e.name if isinstance(e, ModuleNotFoundError) else None
        if missing is None or missing != module.partition(".")[0]:
            log.log(
                logging.INFO if newer else logging.WARNING,
                "kvstored: %s has no %s as this package knows it (%s): %s",
                module,
                name,
                e,
                "taken for an older version" if newer else "this engine will not work with it",
            )
        return None


class Complaints:
    """What failed, in the log, but of each not more than once in half a minute."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._until: Dict[str, float] = {}  # what; a lock might be held when the process forks

    def say(self, what: str) -> None:
        """Called where an exception was caught."""
        now = time.monotonic()
        if now >= self._until.get(what, now):
            self._until[what] = now + _LOG_SECONDS
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


def max_age(configs: Iterable[Tuple[str, str]]) -> float:
    """Seconds, the least that is said; 0.0 where nothing is. A value that is none is
    passed over: the daemon, which gets the same configs with a lookup or at the end of
    a request, says what is wrong with it."""
    said: List[float] = []
    for name, value in configs:
        if name in _AGE_NAMES:
            said += _seconds(value)
        elif name in ("kv_hints", "kvstored.kv_hints"):
            said += _of_envelope(value)
    return min(said, default=0.0)


def _seconds(value: Any) -> List[float]:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return []
    return [seconds] if 1 <= seconds <= _MOST_AGE else []


def _of_envelope(text: str) -> List[float]:
    try:
        actions = json.loads(text).get("actions")
    except (ValueError, AttributeError):
        return []
    found: List[float] = []
    for action in actions if isinstance(actions, list) else []:
        if isinstance(action, dict) and action.get("action_type") == "kvstored.max_age":
            payload = action.get("payload")
            if str(action.get("action_version", "")).partition(".")[0] == "1" and isinstance(payload, dict):
                found += _seconds(payload.get("seconds"))
    return found


def short(text: str) -> str:
    """A text that fits into a space: a digest of one that is too long."""
    raw = text.encode()
    return text if len(raw) <= _TAG_BYTES else hashlib.sha256(raw).hexdigest()
