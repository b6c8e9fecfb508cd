"""What a prefix needs of each group of layers of a hybrid model, as a user writes it."""

from __future__ import annotations

import re
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from . import options, wire

MOST_GROUPS = 64  # of a model
_KINDS = "full", "window", "local", "state"


class Kind(NamedTuple):
    """What a prefix needs of a group: see :class:`wire.Group`."""

    kind: int
    tokens: int = 0

    def __str__(self) -> str:
        return f"{_KINDS[self.kind]} {self.tokens}" if self.tokens else _KINDS[self.kind]

    def window(self, chunk: int) -> int:
        """How many chunks of so many tokens a prefix needs at its end; 0 for all."""
        return 1 if self.kind == wire.STATE else -(-self.tokens // chunk)

    def needs(self, chunk: int, skip: int, n: int) -> Tuple[int, int]:
        """Which chunks a prefix of n needs, of which the first ``skip`` are there already."""
        window = self.window(chunk)
        return max(n - window if window else 0, skip), n


FULL = Kind(wire.FULL)
STATE = Kind(wire.STATE)


def option(owner: str) -> options.Option:
    """A kind for each group, in the order of the engine."""
    allowed = f'a list of "full", "window N", "local N" (N tokens) or "state", one for each group of {owner}'
    return options.Option(None, allowed, lambda v: v is None or _list(v))


def _list(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= MOST_GROUPS and all(_parsed(kind) is not None for kind in value)


def _parsed(text: Any) -> Optional[Kind]:
    found = re.fullmatch(r"(full|state)|(?:window|local) ([1-9][0-9]{0,8})", text) if isinstance(text, str) else None
    if found is None:
        return None
    # Engines ask for chunked attention as for a window: for as many blocks in a row.
    return {"full": FULL, "state": STATE}.get(found[1]) or Kind(wire.WINDOW, int(found[2]))


def given(value: Optional[Sequence[str]]) -> List[Optional[Kind]]:
    """The kinds that the user gave."""
    return [_parsed(text) for text in value or ()]
