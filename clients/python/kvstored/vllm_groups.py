"""The groups of layers of a hybrid model in vLLM: the space of each, and what a prefix
needs of it.

A block of one group and those of the others that end at the same token have the same
hash; the last four bytes of a key are the number of its group. So each group but the
first has a space of its own, where its chunks have the names that the first one's have.

What a prefix needs of a group comes from the specs of vLLM's KV cache groups, from the
tier's key ``groups``, or from what vLLM loads of it.
"""

from __future__ import annotations

import collections
import logging
from typing import Any, Counter, Deque, Dict, List, Optional, Sequence

from . import wire
from .client import Client
from .group_kinds import FULL, MOST_GROUPS, STATE, Kind
from .hints import Hints
from .pages import Pages
from .vllm_order import number
from .wire import Space

log = logging.getLogger("kvstored.vllm")

_LOADS = 16  # of a group that are remembered


def of_spec(spec: Any) -> List[Optional[Kind]]:
    """The kinds that vLLM's specs say; empty for a version that hands none to a tier."""
    for holder in (spec, getattr(spec, "config", None), getattr(spec, "vllm_config", None)):
        cache = getattr(holder, "kv_cache_config", None)
        groups = getattr(cache, "kv_cache_groups", None) or getattr(holder, "kv_cache_groups", None)
        if isinstance(groups, (list, tuple)) and groups:
            return [_of_group(getattr(group, "kv_cache_spec", None)) for group in groups[:MOST_GROUPS]]
    return []


def _of_group(spec: Any) -> Optional[Kind]:
    inner = getattr(spec, "kv_cache_specs", None)  # of layers of one type
    if isinstance(inner, dict) and inner:
        spec = next(iter(inner.values()))
    names = " ".join(cls.__name__ for cls in type(spec).__mro__)
    if "Mamba" in names:
        return STATE
    for name, field in (("SlidingWindow", "sliding_window"), ("ChunkedLocal", "attention_chunk_size")):
        if name in names:
            tokens = getattr(spec, field, None)
            return Kind(wire.WINDOW, tokens) if isinstance(tokens, int) and tokens > 0 else None
    return FULL if "FullAttention" in names or "MLAAttention" in names else None


def chunks(spec: Any) -> List[int]:
    """Tokens in a chunk of each group; empty where vLLM does not say."""
    config = getattr(spec, "config", None)
    try:
        return [int(g.tokens_per_block) * int(config.cache.blocks_per_chunk) for g in config.groups]  # type: ignore[union-attr]
    except (AttributeError, TypeError):
        return []


class Groups:
    """The groups of one engine. Safe for the threads of a tier."""

    def __init__(
        self, client: Client, space: Space, kinds: Sequence[Optional[Kind]], sizes: Sequence[int], verify: bool, check_existing: int
    ) -> None:
        """``sizes``: tokens in a chunk of each, as far as they are known."""
        self._client, self._space, self._sizes = client, space, list(sizes)
        self._hints = Hints(client)
        self._options = verify, check_existing
        # Each operation on a dict is atomic.
        self._kinds: Dict[bytes, Kind] = {i.to_bytes(4, "big"): kind for i, kind in enumerate(kinds) if kind is not None}
        self._given = set(self._kinds)
        self._pages: Dict[bytes, Pages] = {}
        self._loads: Dict[bytes, Deque[int]] = {}
        self.first = self.pages(bytes(4))

    def pages(self, group: bytes) -> Pages:
        """The values of a group."""
        n = number(group)
        pages = self._pages.get(group if n else bytes(4))
        if pages is None:
            space = self._space
            if n:
                space = space._replace(group=str(n), chunk_tokens=self.tokens(group))
            verify, check_existing = self._options
            made = Pages(self._client, space, verify, self._hints, check_existing)
            pages = self._pages.setdefault(group if n else bytes(4), made)
        return pages

    def tokens(self, group: bytes) -> int:
        """In a chunk of a group."""
        n = number(group)
        return max(1, min(self._sizes[n], 1 << 16)) if n < len(self._sizes) else self._space.chunk_tokens

    def kind(self, group: bytes) -> Optional[Kind]:
        """None for one of which it is not known yet."""
        return self._kinds.get(group)

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
        self._learned(group, STATE if most == 1 else Kind(wire.WINDOW, most * self.tokens(group)))

    def _learned(self, group: bytes, kind: Kind) -> None:
        if self._kinds.get(group) != kind:
            self._kinds[group] = kind
            if number(group) or kind != FULL:
                log.info('kvstored: group %d is "%s", by what vLLM loads; the tier\'s key "groups" would say it', number(group), kind)

    def alone(self, group: bytes) -> bool:
        """Whether chunks of a group are stored without what they follow, of which most are nowhere."""
        return self._kinds.get(group, FULL).kind != wire.FULL

    def close(self) -> None:
        """Gives hinted leases back. Nothing may be called afterwards."""
        self._hints.close()
