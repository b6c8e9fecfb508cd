"""The object groups of LMCache's server as groups of a hybrid model.

The server asks for all objects of a prompt and takes what the longest prefix needs that
all groups can serve: of a group with a window its last chunks. So does the daemon.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence

from .. import _groups
from .._groups import FULL, Kind, Member
from ..chains import chained
from ..client import Client
from ..errors import Refused
from ..job import Job
from ..prefill import Prefill
from ..prompt import Space
from .keys import Grid


class Usable(NamedTuple):
    """The longest prefix that all groups can serve, and what it needs."""

    job: Job  # leases it
    chunks: int
    at: List[int]  # which of the keys it needs


class ObjectGroups:
    """What a prefix needs of each object group; without kinds all of each."""

    def __init__(self, client: Client, kinds: Sequence[Optional[Kind]]) -> None:
        self._client, self._kinds = client, [kind or FULL for kind in kinds]
        if kinds and FULL not in self._kinds:
            raise ValueError("'groups' has no \"full\" one: without it no length of a prompt is certain; leave it out")

    def kind(self, space: Space) -> Kind:
        n = _number(space)
        return self._kinds[n] if n < len(self._kinds) else FULL

    def sparse(self, spaces: Sequence[Space]) -> bool:
        """Whether a prefix needs not all chunks of some of these."""
        return any(self.kind(space) != FULL for space in spaces)

    def apart(self, grid: Grid) -> List[Grid]:
        """The grid as one for each space, where not all are full."""
        if len(grid.spaces) == 1 or not self.sparse(grid.spaces):
            return [grid]
        return [Grid([space], grid.names, [[chunk[n]] for chunk in grid.at]) for n, space in enumerate(grid.spaces)]

    def find(self, grid: Grid, before: Optional[Sequence[bytes]], prefill: Prefill, timeout: float) -> Optional[Usable]:
        """One round trip. None where each group is to be asked for by itself."""
        ranks = _ranks(grid)
        if ranks is None:
            return None
        order = sorted(ranks[0], key=lambda n: (self.kind(grid.spaces[ranks[0][n]]) != FULL, n))
        first, *others = [[Member(grid.spaces[rank[n]], self.kind(grid.spaces[rank[n]])) for n in order] for rank in ranks]
        if first[0].kind != FULL:
            return None
        tokens, skip = first[0].space.chunk_tokens, len(before or ())
        prompt = chained(first[0].space, grid.names, before or ())
        (job,), _ = _groups.ask(self._client, [prompt], prefill, timeout, first, ranks=[m.space for rank in others for m in rank]).wait()
        if isinstance(job.error, Refused):
            raise job.error
        n = job.worth.tokens // tokens
        at: List[int] = []
        for rank in ranks:
            for number, (_, kind) in zip(order, first):
                low, high = kind.needs(tokens, skip, skip + n)
                at += [grid.at[i - skip][rank[number]] for i in range(low, high)]
        return Usable(job, n, at)


def _number(space: Space) -> int:
    return int(space.group or 0)


def _ranks(grid: Grid) -> Optional[List[Dict[int, int]]]:
    """For each rank which of the spaces is that of a group; None where a rank lacks one, or
    there is one group only."""
    ranks: Dict[Space, Dict[int, int]] = {}
    for i, space in enumerate(grid.spaces):
        ranks.setdefault(space._replace(group=""), {})[_number(space)] = i
    found = list(ranks.values())
    alike = all(list(rank) == list(found[0]) for rank in found)
    return found if alike and len(found[0]) > 1 else None
