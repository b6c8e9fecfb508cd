"""What users write about a client or a class of an engine, checked when it is made."""

import os
from typing import Any, Callable, Dict, Mapping, NamedTuple

from .prefill import MEASURED

_DAY = 86400
_TEXT_BYTES = 1024  # of a text of the protocol
_PATH_BYTES = 107  # of the path of a socket


class Option(NamedTuple):
    default: Any
    allowed: str  # as the user reads it
    fits: Callable[[Any], bool]


def check(owner: str, given: Mapping[str, Any], known: Mapping[str, Option]) -> Dict[str, Any]:
    """All options: those given, and the defaults of the others. A ValueError names
    what is not known or does not fit. Nothing is converted: a number is no text."""
    for key, value in given.items():
        if key not in known:
            raise ValueError(f"{owner} knows no {key!r} (given as {value!r}): it knows {', '.join(sorted(known))}")
        if not known[key].fits(value):
            raise ValueError(f"{owner}: {key!r} is {value!r}: it must be {known[key].allowed}")
    return {**{key: option.default for key, option in known.items()}, **given}


def seconds(default: float) -> Option:
    return Option(default, f"a number of seconds above 0, at most {_DAY}", lambda v: _number(v) and 0 < v <= _DAY)


def size(default: int) -> Option:
    return Option(default, "a number of bytes from 0 on", lambda v: _number(v) and isinstance(v, int) and 0 <= v < 1 << 63)


def rate() -> Option:
    """Of prompt tokens that an engine computes; 0: not known."""
    return Option(
        0,
        f'a number of tokens a second from 0 to 4294967295, or "{MEASURED}"',
        lambda v: v == MEASURED or _number(v) and 0 <= v < 1 << 32,
    )


def depth() -> Option:
    """Into a prompt, where a token takes twice as long to compute as the first; None: as the daemon says."""
    return Option(
        None, "a whole number of tokens from 1 to 1000000000", lambda v: _number(v) and isinstance(v, int) and 0 < v <= 10**9
    )


def tokens(default: int) -> Option:
    """Of a chunk."""
    return Option(default, "a whole number from 1 to 65536", lambda v: _number(v) and isinstance(v, int) and 0 < v <= 1 << 16)


#: Of values that are to be stored, one in so many is compared with what exists.
CHECK_EXISTING = 256


def check_existing(default: int = CHECK_EXISTING) -> Option:
    return Option(
        default,
        "a whole number from 0 on: one value in so many is compared with what exists, 0 for none",
        lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 31,
    )


def flag(default: bool) -> Option:
    return Option(default, "true or false", lambda v: isinstance(v, bool))


def text(default: str = "") -> Option:
    return Option(default, f"a text of at most {_TEXT_BYTES} bytes", lambda v: _text(v, _TEXT_BYTES))


def choice(default: str, *allowed: str) -> Option:
    return Option(default, f"one of {', '.join(allowed)}", lambda v: isinstance(v, str) and v in allowed)


def table() -> Option:
    """What another program reads; None where it is left out."""
    return Option(None, "an object", lambda v: v is None or isinstance(v, dict))


def socket() -> Option:
    """Of a daemon; None to look where it may be."""
    return Option(
        None, f"the path of a socket, at most {_PATH_BYTES} bytes", lambda v: v is None or (bool(v) and _text(v, _PATH_BYTES))
    )


#: Those of each class of an engine.
COMMON = {
    "socket": socket(),
    "check_existing": check_existing(),
    "revision": text(),
    "namespace": text(),
    "prefill_tokens_per_second": rate(),
    "prefill_depth": depth(),
}


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any, most: int) -> bool:
    return isinstance(value, str) and len(os.fsencode(value)) <= most
