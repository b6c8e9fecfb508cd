"""Which prefixes of a chain the pools of SGLang can serve."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from . import wire
from .families import Member
from .pages import Pages


class Side(NamedTuple):
    """A pool: of a prefix it must have all pages, or only the last ones."""

    name: str
    last: int = 0  # 0: all

    @classmethod
    def of(cls, transfer: Any) -> "Side":
        policy = getattr(transfer, "hit_policy", "all_pages")
        trailing = str(getattr(policy, "value", policy)) == "trailing_pages"
        return cls(pool_name(transfer.name), max(1, len(transfer.keys or ())) if trailing else 0)

    def ends(self, there: Sequence[bool]) -> List[int]:
        """The lengths of the prefixes that it can serve, from its pages that are there."""
        ends, run = [], 0
        for n, page in enumerate(there, 1):
            run = run + 1 if page else 0
            if run >= (min(self.last, n) if self.last else n):
                ends.append(n)
        return ends

    def needs(self, prefix: List[bytes]) -> List[bytes]:
        """Which pages of a prefix it must have."""
        return prefix[-self.last :] if self.last else prefix


def served(sides: Sequence[Side], there: Sequence[Sequence[bool]]) -> Tuple[Dict[str, int], List[int]]:
    """Of each pool the longest prefix that it can serve within that of the first
    pool, none behind one that serves nothing; and the lengths that all can serve.

    The first is what the file back end of SGLang answers per pool. As the hit it
    takes the least of them, which a pool that keeps last pages only may not have
    (SGLang's issue 39147); the greatest length that all can serve is one that
    every pool has.
    """
    hits: Dict[str, int] = {}
    common = set(range(1, len(there[0]) + 1))
    most = len(there[0])
    for side, pages in zip(sides, there):
        ends = side.ends(pages[:most])
        common &= set(ends)
        if not ends:
            break
        hits[side.name] = ends[-1]
        most = hits[sides[0].name]
    return hits, sorted(common)


def members(sides: Sequence[Side], pools: Sequence[Pages]) -> List[Member]:
    """The pools as groups of a hybrid model."""
    tokens = pools[0].space.chunk_tokens

    def member(side: Side, pages: Pages) -> Member:
        if side.last == 1:
            return Member(pages, wire.STATE)
        return Member(pages, wire.WINDOW, side.last * tokens) if side.last else Member(pages)

    return [member(side, pages) for side, pages in zip(sides, pools)]


def told(sides: Sequence[Side], run: int, lacks: int, ends: Sequence[int]) -> Dict[str, int]:
    """The counts of :func:`served` as far as one answer about all pools has them: of a
    pool that cannot serve all of what the others have, the longest that all can."""
    longest = ends[-1] if ends else 0
    counts = {side.name: longest if lacks >> i & 1 else run for i, side in enumerate(sides)}
    return {name: n for name, n in counts.items() if n}


def pool_name(pool: Any) -> str:
    """A text, or a member of SGLang's PoolName, which equals it."""
    return str(getattr(pool, "value", pool))
