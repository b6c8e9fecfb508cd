"""SGLang's host pools: where their pages lie, and what a prefix needs of each."""

import ctypes
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import _wire as wire
from .._groups import FULL, STATE, Found, Kind
from ..memory import address
from ..pages import Place
from .space import KV, get

# Of a page without bytes: DeepSeek V4's first pool only counts pages, which lie
# in other pools. What comes back is the same and goes nowhere.
_MARKER = b"a page without bytes"
_marker = ctypes.create_string_buffer(_MARKER, len(_MARKER))
_nowhere = ctypes.create_string_buffer(len(_MARKER))


class Side(NamedTuple):
    """A pool beside keys and values: of a prefix it must have all pages, or only the last ones."""

    name: str
    last: int = 0  # 0: all

    @classmethod
    def of(cls, transfer: Any) -> "Optional[Side]":
        """None for a pool that never shortens a hit."""
        policy = str(getattr(transfer.hit_policy, "value", transfer.hit_policy))
        if policy == "block_groups":
            return None
        return cls(pool_name(transfer.name), max(1, len(transfer.keys or ())) if policy == "trailing_pages" else 0)

    def kind(self, tokens: int) -> Kind:
        """``tokens``: of a page."""
        return FULL if not self.last else STATE if self.last == 1 else Kind(wire.GROUP_KINDS_WINDOW, self.last * tokens)


def told(names: Sequence[str], found: Found) -> Dict[str, int]:
    """Of each pool the longest prefix that it can serve by itself; of one that cannot serve
    all of what the others have, the longest that all can."""
    longest = found.ends[-1] if found.ends else 0
    counts = {name: longest if found.lacks >> i & 1 else found.run for i, name in enumerate(names)}
    return {name: n for name, n in counts.items() if n}


def pool_name(pool: Any) -> str:
    """A text, or a member of SGLang's PoolName, which equals it."""
    return str(getattr(pool, "value", pool))


class HostPools:
    """The host pools that SGLang has registered."""

    def __init__(self) -> None:
        self._named: Dict[str, Any] = {}
        self._first: Any = None

    def register_first(self, pool: Any) -> None:
        """The pool of the keys and values, or a group with it."""
        self._first = get(get(pool, "anchor_entry", None), "host_pool", pool)

    def register(self, name: str, pool: Any) -> None:
        self._named[name] = pool

    def all(self) -> List[Tuple[str, Any]]:
        return list({**({} if self._first is None else {KV: self._first}), **self._named}.items())

    def get(self, name: str) -> Any:
        """None if there is no such pool."""
        return self._named.get(name, self._first if name == KV else None)

    def places(self, name: str, pages: int, indices: Any, load: bool) -> List[Place]:
        """The pieces of each page, to load it or to store it. A ValueError where
        the indices are not those of so many pages."""
        pool = self.get(name)
        if pool is None:
            raise ValueError(f"SGLang has registered no pool {name!r}")
        if not pages:
            return []
        if indices is None:
            raise ValueError(f"{pages} pages of pool {name!r} without indices")
        of_page, rest = divmod(len(indices), pages)
        if rest:
            raise ValueError(f"{len(indices)} indices for {pages} pages of pool {name!r}")
        page = get(pool, "page_size", of_page)
        if of_page == page:
            return _pieces(pool, indices, pages, load)
        each = [_slots(pool, indices[i * of_page : (i + 1) * of_page], page) for i in range(pages)]
        return [_pieces(pool, slots, 1, load)[0] for slots in each]


def _slots(pool: Any, indices: Any, page: int) -> Any:
    """The pool's own indices of one page that is named by another number of them."""
    many, rest = divmod(len(indices), page)
    if not rest and many == get(pool, "dcp_size", 1):  # a page that is spread over so many ranks
        return pool.maybe_dcp_kernel_indices(indices)
    numbers = [int(i) for i in indices]
    if not rest and many and all(n == numbers[0] + i // many for i, n in enumerate(numbers)):
        return indices[::many]  # a source pool's, divided: each slot is named so many times
    raise ValueError(f"{len(numbers)} indices for a page of {page} slots")


def _pieces(pool: Any, indices: Any, pages: int, load: bool) -> List[Place]:
    pointers, sizes = (pool.get_page_buffer_meta(indices) if _has_pages(pool) else None) or ((), ())
    if not any(sizes):
        return [marker(load)] * pages
    n, rest = divmod(len(pointers), pages)
    if rest or not n or len(sizes) != len(pointers):
        raise ValueError(f"{len(pointers)} buffers of {len(sizes)} sizes for {pages} pages")
    pieces = [(int(p), int(s)) for p, s in zip(pointers, sizes)]
    return [pieces[i * n : (i + 1) * n] for i in range(pages)]


def _has_pages(pool: Any) -> bool:
    return hasattr(pool, "get_page_buffer_meta") or get(pool, "size_per_token", 0) != 0


def marker(load: bool) -> Place:
    """Of a page without bytes."""
    return ((ctypes.addressof(_nowhere if load else _marker), len(_MARKER)),)


def tensors(values: Sequence[Any], sizes: Optional[Sequence[Any]], load: bool) -> List[Place]:
    """Where tensors, buffers or plain addresses lie."""
    spans = [_span(v, None if sizes is None else sizes[i]) for i, v in enumerate(values)]
    return [(span,) if span[1] else marker(load) for span in spans]


def _span(value: Any, size: Optional[int]) -> Tuple[int, int]:
    if isinstance(value, int):
        if not size:
            raise ValueError("an address without a size")
        return value, int(size)
    if hasattr(value, "data_ptr"):
        if not value.is_contiguous():
            raise ValueError("a tensor that is not contiguous")
        return value.data_ptr(), value.numel() * value.element_size()
    return address(value), memoryview(value).nbytes
