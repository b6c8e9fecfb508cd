"""What vLLM asks for of a prompt in all groups of a hybrid model, as one question.

Of what the daemon has, a prompt can use the longest prefix at whose end each group has
its need. That alone is leased and brought up; a block behind it is a miss, so that vLLM
loads none in vain.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from . import hints
from .chains import digests
from .client import Client
from .errors import Code, Refused
from .job import Job
from .pages import Pages
from .prompt import Prompt, hashes
from .vllm_groups import FULL, Groups
from .vllm_order import Chain, named

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
    tokens: int  # in a chunk of each group
    skip: int  # chunks of which vLLM has all that it asks for
    end: int  # chunks of the longest prefix that is asked for
    #: Chunks from which on what vLLM has itself, of groups that it asks for, makes no
    #: prefix usable that the daemon would not find.
    reach: int

    def prompt(self) -> Prompt:
        keys = next(iter(self.groups.values())).chain.keys[: self.end]
        return hashes(b"".join(digests([named(k) for k in keys])), [self.tokens] * len(keys), skip=self.skip)


def family(
    context: Any, asked: Mapping[bytes, Asked], all_groups: Sequence[bytes], groups: Groups, known: Callable[[Any], Any]
) -> Optional[Family]:
    """None where blocks are to be asked for by themselves: what a group needs is not known
    yet, a group is not asked for, or chunks differ in tokens. ``known`` says of a block what
    was answered lately, or that it was asked for; None for others, which vLLM has."""
    kinds = {name: groups.kind(name) for name in asked}
    full = [name for name in asked if kinds[name] == FULL]
    if len(asked) < 2 or not full or None in kinds.values() or set(all_groups) - set(asked):
        return None
    tokens = groups.tokens(full[0])
    if any(groups.tokens(name) != tokens for name in asked):
        return None
    low = {name: _low(a, known) for name, a in asked.items()}
    high = {name: _high(a, known) for name, a in asked.items()}
    skip, end = min(low.values()), max(high.values())
    for name in full:
        if known(asked[name].chain.keys[high[name] - 1]) is False:  # it is asked for no further
            end = min(end, high[name])
    if end <= skip:
        return None
    reach = skip
    for name, a in asked.items():
        numbers, chunks = set(a.numbers), range(end - 1, skip - 1, -1)
        holes = (i for i in chunks if i not in numbers and not low[name] <= i < high[name] or known(a.chain.keys[i]) is None)
        hole = next(holes, None) if len(numbers) < len(chunks) else None
        if hole is not None:
            reach = max(reach, hole + 1 + (kinds[name] or FULL).window(tokens))
    ordered = [full[0], *(name for name in asked if name != full[0])]
    return Family(context, {name: asked[name] for name in ordered}, tokens, skip, end, reach)


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
    n = family.skip + Pages.found(job)
    if n < family.reach:
        return None
    there: Dict[Any, Optional[bool]] = {}
    behind: List[Any] = []
    for name, asked in family.groups.items():
        low, high = (groups.kind(name) or FULL).needs(family.tokens, family.skip, n)
        needed = dict.fromkeys(asked.chain.keys[low:high] if n > family.skip else (), True)
        there.update(needed)
        for key, number in zip(asked.keys, asked.numbers):
            if number >= n:
                behind.append(key)
            elif key not in needed:
                there[key] = None
    return Answer(there, behind)


class Questions:
    """Asks about families, as long as the daemon knows groups."""

    def __init__(self, client: Client, groups: Groups) -> None:
        self._client, self._groups = client, groups
        self._without: Any = None  # a connection to a daemon that knows none

    def able(self) -> bool:
        link = self._client._ready()
        return link is not None and link is not self._without

    def ask(self, families: Sequence[Family], rate: int, timeout: float) -> List[Job]:
        """A job for each. All have the same groups."""
        link = self._client._ready()
        groups = self._groups
        kinds = [(name, groups.kind(name) or FULL) for name in families[0].groups]
        members = [(groups.pages(name).space, kind.kind, kind.tokens) for name, kind in kinds]
        jobs, _ = self._client.batch(
            [f.prompt()._replace(space=members[0][0]) for f in families],
            lookup_ids=[str(getattr(f.context, "req_id", None))[:256] for f in families],
            load_deadline=hints.SECONDS,
            groups=members,
            prefill_rate=rate,
            timeout=timeout,
        )
        if any(isinstance(job.error, Refused) and job.error.code in _UNKNOWN for job in jobs):
            self._without = link
        return jobs


def refused(job: Job) -> bool:
    """Whether the daemon is to be asked in another way."""
    return isinstance(job.error, Refused)
