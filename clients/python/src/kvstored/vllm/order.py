"""Which of vLLM's blocks follows which.

A key is the hash of a block and four bytes that name its group of layers. A request says
of each full chunk of each group at which token it ends; those of one group, in that order,
are a chain. It is a claim: order decides what is evicted and loaded first, never which
bytes are returned.
"""

import collections
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..chains import digest
from .._groups import MOST_GROUPS

_REQUESTS = 4096  # of which the chains are kept
_GROUP = 4  # bytes of a key that name the group

Before = Optional[List[bytes]]


class Run(NamedTuple):
    """Blocks that follow each other, and the digests of those before them: None if
    that is not known, and each stands alone."""

    keys: List[Any]
    before: Before


class Chain:
    """The chunks of one group of a request, in their order."""

    __slots__ = ("keys", "numbers", "_digests")

    def __init__(self, keys: List[Any]) -> None:
        self.keys = keys
        self.numbers = {key: n for n, key in enumerate(keys)}
        self._digests: List[bytes] = []

    def before(self, n: int) -> List[bytes]:
        """The digests of the first n."""
        known = self._digests  # replaced whole: another thread may do the same
        if len(known) < n:
            known = self._digests = known + [digest(named(key)) for key in self.keys[len(known) : n]]
        return known[:n]


ByGroup = Dict[bytes, Chain]


class Order:
    """The order of one engine's blocks. Safe for the threads of a tier."""

    def __init__(self, tokens: Callable[[bytes], int] = lambda _: 1) -> None:
        """``tokens``: in a full chunk of a group. A key of fewer, which vLLM makes of the end of a
        prompt, has no place in a chain."""
        self._tokens = tokens
        # Replaced whole, so that no lock is needed: how many positions, and what they make.
        self._requests: "collections.OrderedDict[Any, Tuple[int, ByGroup]]" = collections.OrderedDict()

    def chains(self, context: Any) -> ByGroup:
        """What a request says, by group; nothing where it does not."""
        said = positions(context)
        if not said:
            return {}
        held = self._requests.get(context.req_id)
        if held is None or held[0] != len(said):
            held = len(said), _chains(dict(said), self._tokens)
            self._requests[context.req_id] = held
            while len(self._requests) > _REQUESTS:
                self._requests.popitem(last=False)
        return held[1]

    def forget(self, context: Any) -> None:
        """A request that has ended. What is still stored of it says its order again."""
        self._requests.pop(getattr(context, "req_id", None), None)

    def numbered(self, context: Any, keys: Sequence[Any]) -> Optional[Tuple[Chain, List[int]]]:
        """A chain that has blocks of one group, and their numbers in it. None where
        no chain is known that has them all."""
        chain = self.chains(context).get(group(keys[0]))
        if chain is None:
            return None
        numbers = [chain.numbers.get(key, -1) for key in keys]
        return None if min(numbers) < 0 else (chain, numbers)

    def runs(self, context: Any, keys: Sequence[Any]) -> List[Run]:
        """Blocks in any order, as runs."""
        groups: Dict[bytes, List[Any]] = {}
        for key in keys:
            groups.setdefault(group(key), []).append(key)
        return [run for part in groups.values() for run in self._runs(context, part)]

    def _runs(self, context: Any, keys: List[Any]) -> List[Run]:
        chain = self.chains(context).get(group(keys[0]))
        if chain is None:
            return [Run(keys, None)]
        numbers = sorted(n for n in (chain.numbers.get(key, -1) for key in keys) if n >= 0)
        runs = [Run(chain.keys[first:end], chain.before(first)) for first, end in _consecutive(numbers)]
        alone = [key for key in keys if key not in chain.numbers]
        return [*runs, Run(alone, None)] if alone else runs


def positions(context: Any) -> Dict[Any, int]:
    """At which token each full chunk of a request ends; nothing where it does not say."""
    said = getattr(context, "_offload_key_positions", None)
    return said if isinstance(said, dict) else {}


def _chains(said: Dict[Any, int], tokens: Callable[[bytes], int]) -> ByGroup:
    groups: Dict[bytes, List[Any]] = {}
    for key in sorted(said, key=said.__getitem__):
        groups.setdefault(group(key), []).append(key)
    sizes = {name: tokens(name) for name in groups}
    return {name: Chain([key for key in keys if said[key] % sizes[name] == 0]) for name, keys in groups.items()}


def _consecutive(numbers: List[int]) -> Iterator[Tuple[int, int]]:
    """The first, and the one behind the last, of each run of consecutive numbers."""
    first = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            yield numbers[first], numbers[i - 1] + 1
            first = i


def raw(key: Any) -> bytes:
    return bytes(key) if isinstance(key, (bytes, bytearray, memoryview)) else repr(key).encode()


def group(key: Any) -> bytes:
    """The group of layers of a key."""
    return raw(key)[-_GROUP:]


def number(group: bytes) -> int:
    """Of a group of layers; 0 for bytes that name none."""
    n = int.from_bytes(group, "big")
    return n if n < MOST_GROUPS else 0


def named(key: Any) -> bytes:
    """What the daemon knows a block by in the space of its group: the key of the block of
    the first group that ends at the same token."""
    own = raw(key)
    return own[:-_GROUP] + bytes(_GROUP) if number(own[-_GROUP:]) else own
