"""The groups of layers of a hybrid model in vLLM: the space of each, and what a prefix
needs of it.

A block of one group and those of the others that end at the same token have the same
hash; the last four bytes of a key are the number of its group. So each group but the
first has a space of its own, where its chunks have the names that the first one's have.

What a prefix needs of a group comes from vLLM's configuration, from the tier's key
``groups``, or from what vLLM loads of it.
"""

import collections
import logging
from typing import Any, Counter, Deque, Dict, List, Optional, Sequence

from .. import _wire as wire
from ..client import Client
from .._groups import FULL, STATE, Kind
from ..hints import Hints
from ..pages import Pages
from ..prompt import Space
from .order import number

log = logging.getLogger("kvstored.vllm")

_LOADS = 16  # of a group that are remembered


def numbers(spec: Any) -> List[int]:
    """Of the groups that vLLM offloads, as keys have them: it leaves out those in which no
    prefix is looked for, like the window of DeepSeek V4.1."""
    return [int(getattr(group, "group_id", i)) for i, group in enumerate(spec.config.groups)]


def of_spec(spec: Any) -> List[Optional[Kind]]:
    """The kinds that vLLM says; empty for a version that says none."""
    groups = spec.config.groups
    if groups and all(hasattr(group, _WINDOW) for group in groups):
        return [_of_window(getattr(group, _WINDOW), size) for group, size in zip(groups, chunks(spec))]
    return []


_WINDOW = "sliding_window_size_in_chunks"  # of a group, from 0.33 on


def _of_window(chunks: Any, tokens: int) -> Optional[Kind]:
    """None for a layer that looks back without a bound. A state is one chunk, and so is a
    window that is no longer: either way a prefix needs the last chunk."""
    if chunks is None:
        return FULL
    if not isinstance(chunks, int) or chunks < 1:
        return None
    return STATE if chunks == 1 else Kind(wire.GROUP_KINDS_WINDOW, chunks * tokens)


def chunks(spec: Any) -> List[int]:
    """Tokens in a chunk of each group."""
    return [int(group.tokens_per_block) * int(spec.config.cache.blocks_per_chunk) for group in spec.config.groups]


def space_of(space: Space, n: int, tokens: int) -> Space:
    """That of group n, of whose chunks each has so many tokens."""
    return space._replace(group=str(n), chunk_tokens=max(1, min(tokens, 1 << 16))) if n else space


class Groups:
    """The groups of one engine. Safe for the threads of a tier."""

    def __init__(
        self, client: Client, space: Space, kinds: Sequence[Optional[Kind]], spec: Any, verify: bool, check_existing: int
    ) -> None:
        """``kinds``: of the groups that ``spec`` has, as far as they are known."""
        self._client, self._space = client, space
        known = numbers(spec)
        self._sizes = dict(zip(known, chunks(spec)))
        if len(known) < len(kinds):  # the user knows more of them
            known = list(range(len(kinds)))
        self._hints = Hints(client)
        self._options = verify, check_existing
        # Each operation on a dict is atomic.
        self._kinds: Dict[bytes, Kind] = {n.to_bytes(4, "big"): kind for n, kind in zip(known, kinds) if kind is not None}
        self._given = set(self._kinds)
        self._pages: Dict[bytes, Pages] = {}
        self._loads: Dict[bytes, Deque[int]] = {}
        self.first = self.pages(bytes(4))

    def pages(self, group: bytes) -> Pages:
        """The values of a group."""
        n = number(group)
        pages = self._pages.get(group if n else bytes(4))
        if pages is None:
            space = space_of(self._space, n, self.tokens(group))
            verify, check_existing = self._options
            made = Pages(self._client, space, verify, self._hints, check_existing)
            pages = self._pages.setdefault(group if n else bytes(4), made)
        return pages

    def tokens(self, group: bytes) -> int:
        """In a chunk of a group."""
        size = self._sizes.get(number(group), self._space.chunk_tokens)
        return max(1, min(size, 1 << 16))

    @property
    def one(self) -> bool:
        """Whether the model is known to have no other than the first."""
        return len(self._sizes) == 1

    def kind(self, group: bytes) -> Optional[Kind]:
        """None for one of which it is not known yet."""
        return self._kinds.get(group)

    def tell(self, windows: Dict[int, Optional[int]]) -> None:
        """How many chunks in a row vLLM's scheduler looks for in each group; 0 for all from
        the start on, None where it is no such number."""
        for n, chunks in windows.items():
            name = n.to_bytes(4, "big")
            kind = None if chunks is None else _of_window(chunks or None, self.tokens(name))
            if kind is not None:
                self._kinds[name] = kind
            else:
                self._kinds.pop(name, None)

    def full(self, group: bytes) -> None:
        """A group was asked for from its start on."""
        if group not in self._kinds:
            self._learned(group, FULL)

    def loaded(self, group: bytes, run: int) -> None:
        """So many chunks in a row of a group that is asked for from its end on were
        enough for vLLM."""
        if group in self._given:
            return
        loads = self._loads.setdefault(group, collections.deque(maxlen=_LOADS))
        loads.append(run)
        counted: Counter[int] = collections.Counter(sorted(loads))
        most = counted.most_common(1)[0][0]
        self._learned(group, STATE if most == 1 else Kind(wire.GROUP_KINDS_WINDOW, most * self.tokens(group)))

    def _learned(self, group: bytes, kind: Kind) -> None:
        if self._kinds.get(group) != kind:
            self._kinds[group] = kind
            if number(group) or kind != FULL:
                log.info('kvstored: group %d is "%s", by what vLLM loads; the tier\'s key "groups" would say it', number(group), kind)

    def alone(self, group: bytes) -> bool:
        """Whether chunks of a group are stored without what they follow, of which most are nowhere."""
        return self._kinds.get(group, FULL).kind != wire.GROUP_KINDS_FULL

    def close(self) -> None:
        """Gives hinted leases back. Nothing may be called afterwards."""
        self._hints.close()
