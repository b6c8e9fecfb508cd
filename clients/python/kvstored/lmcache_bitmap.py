"""The bits that an L2 adapter answers LMCache's controllers.

They count, gather and combine them with bits of their own, so they must be LMCache's:
with others the server ends every prefetch, also of what its own memory has.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import operator
from typing import Any, List, Sequence, Set, Tuple

MODULES = "lmcache.lmcache_native", "lmcache.native_storage_ops"  # since 0.5.4, and before


class StandIn:
    """LMCache's, for tests without it: beyond the end nothing is set, and nothing found."""

    def __init__(self, size: int) -> None:
        self._size, self._bits = _index(size), 0

    def set(self, index: int) -> None:
        if _index(index) < self._size:
            self._bits |= 1 << index

    def clear(self, index: int) -> None:
        self._bits &= ~(1 << _index(index))

    def test(self, index: int) -> bool:
        return bool(self._bits >> _index(index) & 1)

    def size(self) -> int:
        return self._size

    __len__ = size  # one of no bits is false

    def copy(self) -> "StandIn":
        return self._of(self._size, self._bits)

    def popcount(self) -> int:
        return len(self.get_indices_list())

    def count_leading_ones(self) -> int:
        return next((i for i in range(self._size) if not self.test(i)), self._size)

    def get_indices_list(self) -> List[int]:
        return [i for i in range(self._size) if self.test(i)]

    def get_indices_set(self) -> Set[int]:
        return set(self.get_indices_list())

    def gather(self, items: Sequence[Any]) -> List[Any]:
        """Those that have a bit; of fewer items than bits, or more, what both have."""
        if not hasattr(items, "__getitem__"):
            raise TypeError(f"gather() takes a sequence, not a {type(items).__name__}")
        return [item for i, item in enumerate(items) if self.test(i)]

    def __and__(self, other: "StandIn") -> "StandIn":
        """As long as the shorter one, as ``|`` is."""
        return self._of(min(self._size, other._size), self._bits & other._bits)

    def __or__(self, other: "StandIn") -> "StandIn":
        return self._of(min(self._size, other._size), self._bits | other._bits)

    def __invert__(self) -> "StandIn":
        return self._of(self._size, ~self._bits)

    def __repr__(self) -> str:
        return "".join("01"[self.test(i)] for i in range(self._size))

    @classmethod
    def _of(cls, size: int, bits: int) -> "StandIn":
        made = cls(size)
        made._bits = bits & ((1 << size) - 1)
        return made


def _index(value: Any) -> int:
    n = operator.index(value)
    if n < 0:
        raise TypeError(f"a bit is numbered from 0 on, not {n}")
    return n


def native() -> Tuple[Any, str]:
    """LMCache's own, or None and why there is none."""
    reasons = []
    for module in MODULES:
        try:
            found = importlib.import_module(module).Bitmap
            found(1).set(0)
            return found, ""
        except Exception as e:
            reasons.append(f"{module}: {type(e).__name__}: {e}")
    return None, "; ".join(reasons)


def missing(adapter: str, reason: str) -> ImportError:
    """What to tell the user of an LMCache that has none."""
    try:
        version = importlib.metadata.version("lmcache")
    except importlib.metadata.PackageNotFoundError:
        version = "of an unknown version"
    return ImportError(
        f"{adapter}: LMCache {version} has no Bitmap as this package knows it ({reason}), and without it every "
        f"prefetch of its server would fail: install one that has {MODULES[0]}, such as 0.5.6, or a newer kvstored"
    )
