"""For how long what a request stores may stay, from what it says of the future."""

from __future__ import annotations

import json
from typing import Any, Iterable, List, Tuple

_NAMES = ("max_age_seconds", "kvstored.max_age_seconds")
_MOST = 30 * 24 * 3600  # the daemon's, of what a request says


def max_age(configs: Iterable[Tuple[str, str]]) -> float:
    """Seconds, the least that is said; 0.0 where nothing is. A value that is none is
    passed over: the daemon, which gets the same configs with a lookup or at the end of
    a request, says what is wrong with it."""
    said: List[float] = []
    for name, value in configs:
        if name in _NAMES:
            said += _seconds(value)
        elif name in ("kv_hints", "kvstored.kv_hints"):
            said += _of_envelope(value)
    return min(said, default=0.0)


def _seconds(value: Any) -> List[float]:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return []
    return [seconds] if 1 <= seconds <= _MOST else []


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
