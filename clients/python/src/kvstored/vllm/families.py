"""What vLLM asks for of a prompt in all groups of a hybrid model, as one question.

Of what the daemon has, a prompt can use the longest prefix at whose end each group has
its need. That alone is leased and brought up; a block behind it is a miss, so that vLLM
loads none in vain.
"""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import _groups
from .._groups import FULL, Member
from ..client import Asking, Client
from ..errors import Code, Refused
from ..job import Job
from ..prefill import Prefill
from ..prompt import Prompt, hashes
from .groups import Groups
from .order import Chain

_UNKNOWN = Code.UNSUPPORTED, Code.UNKNOWN_OPTION


class Asked(NamedTuple):
    """The blocks of one group that vLLM asks for, and their numbers in the chain."""

    keys: List[Any]
    chain: Chain
    numbers: List[int]


class Family(NamedTuple):
    """A question about one prompt. The first group is full."""

    context: Any
    groups: Dict[bytes, Asked]
    sizes: Dict[bytes, int]  # tokens in a chunk of each
    skip: int  # tokens of which vLLM has all that it asks for
    end: int  # tokens of the longest prefix that is asked for
    #: Tokens from which on what vLLM has itself, of groups that it asks for, makes no
    #: prefix usable that the daemon would not find.
    reach: int

    @property
    def uneven(self) -> bool:
        """Whether chunks differ in tokens. Then vLLM uses prefixes that end within a chunk,
        which the daemon does not look for."""
        return len(set(self.sizes.values())) > 1

    def prompt(self) -> Prompt:
        grain = min(self.sizes.values())
        finest = next(name for name, size in self.sizes.items() if size == grain)
        names = self.groups[finest].chain.before(self.end // grain)
        first = next(iter(self.sizes.values()))
        return hashes(b"".join(names), [grain] * len(names), skip=self.skip // first)._replace(grain=grain if self.uneven else 0)

    def needed(self, groups: Groups, n: int) -> List[Any]:
        """The keys that a prefix of n tokens needs, all of the first group, then of the next."""
        keys: List[Any] = []
        for name, asked in self.groups.items() if n > self.skip else ():
            size = self.sizes[name]
            low, high = (groups.kind(name) or FULL).needs(size, self.skip // size, n // size)
            keys += asked.chain.keys[low:high]
        return keys

    def behind(self, found: int) -> Tuple[int, int]:
        """How many of the blocks that are asked for lie behind so many tokens, and how many
        tokens the prompt has there."""
        n = self.skip + found
        return sum(i >= n // self.sizes[name] for name, asked in self.groups.items() for i in asked.numbers), self.end - n

    @property
    def last(self) -> Any:
        """The key of the first group's last block."""
        name, asked = next(iter(self.groups.items()))
        return asked.chain.keys[self.end // self.sizes[name] - 1]


def family(
    context: Any, asked: Mapping[bytes, Asked], all_groups: Sequence[bytes], groups: Groups, known: Callable[[Any], Any]
) -> Optional[Family]:
    """None where blocks are to be asked for by themselves: what a group needs is not known
    yet, a group is not asked for, or no chunk's tokens are a multiple of another's. ``known`` says of a block what
    was answered lately, or that it was asked for; None for others, which vLLM has."""
    kinds = {name: groups.kind(name) for name in asked}
    full = [name for name in asked if kinds[name] == FULL]
    if len(asked) < 2 or not full or None in kinds.values() or set(all_groups) - set(asked):
        return None
    sizes = {name: groups.tokens(name) for name in [full[0], *(name for name in asked if name != full[0])]}
    rising = sorted(set(sizes.values()))
    if any(more % less for less, more in zip(rising, rising[1:])):
        return None
    low = {name: _low(a, known) for name, a in asked.items()}
    high = {name: _high(a, known) for name, a in asked.items()}
    skip, end = min(low[name] * size for name, size in sizes.items()), max(high[name] * size for name, size in sizes.items())
    for name in full:
        if known(asked[name].chain.keys[high[name] - 1]) is False:  # it is asked for no further
            end = min(end, high[name] * sizes[name])
    skip, end = skip // rising[-1] * rising[-1], end // rising[-1] * rising[-1]
    if end <= skip:
        return None
    reach = skip
    for name, a in asked.items():
        numbers, chunks = set(a.numbers), range(end // sizes[name] - 1, skip // sizes[name] - 1, -1)
        holes = (i for i in chunks if i not in numbers and not low[name] <= i < high[name] or known(a.chain.keys[i]) is None)
        hole = next(holes, None) if len(numbers) < len(chunks) else None
        if hole is not None:
            reach = max(reach, (hole + 1 + (kinds[name] or FULL).window(sizes[name])) * sizes[name])
    return Family(context, {name: asked[name] for name in sizes}, sizes, skip, end, reach)


def _low(asked: Asked, known: Callable[[Any], Any]) -> int:
    """The first block of those that are asked for now, or were just before these."""
    low = min(asked.numbers)
    while low > 0 and known(asked.chain.keys[low - 1]) is not None:
        low -= 1
    return low


def _high(asked: Asked, known: Callable[[Any], Any]) -> int:
    """The block behind the last of those."""
    high = max(asked.numbers) + 1
    while high < len(asked.chain.keys) and known(asked.chain.keys[high]) is not None:
        high += 1
    return high


class Answer(NamedTuple):
    there: Dict[Any, Optional[bool]]  # None for what is to be asked for by itself
    behind: List[Any]  # what was asked for behind the longest usable prefix


def answer(family: Family, groups: Groups, job: Job) -> Optional[Answer]:
    """None where vLLM's own blocks may make a longer prefix usable."""
    n = family.skip + job.worth.tokens
    if n < family.reach:
        return None
    there: Dict[Any, Optional[bool]] = dict.fromkeys(family.needed(groups, n), True)
    behind: List[Any] = []
    for name, asked in family.groups.items():
        for key, number in zip(asked.keys, asked.numbers):
            if number >= n // family.sizes[name]:
                behind.append(key)
            else:
                there.setdefault(key, None)
    return Answer(there, behind)


class Families:
    """Asks about families, as long as the daemon knows groups."""

    def __init__(self, client: Client, groups: Groups) -> None:
        self._client, self._groups = client, groups
        self._without: Any = None  # a connection to a daemon that knows none

    def able(self) -> bool:
        link = self._client._ready()
        return link is not None and link is not self._without

    def ask(self, families: Sequence[Family], prefill: Prefill, timeout: float, patient: bool) -> Asking:
        """Asks for a job for each. All have the same groups."""
        groups = self._groups
        members = [Member(groups.pages(name).space, groups.kind(name) or FULL) for name in families[0].groups]
        prompts = [f.prompt()._replace(space=members[0].space) for f in families]
        requests = [getattr(f.context, "req_id", None) for f in families]
        return _groups.ask(self._client, prompts, prefill, timeout, members, requests, patient=patient)

    def heard(self, asking: Asking, jobs: Sequence[Job]) -> None:
        """Takes note of a daemon that knows no groups."""
        if any(isinstance(job.error, Refused) and job.error.code in _UNKNOWN for job in jobs):
            self._without = asking.link
