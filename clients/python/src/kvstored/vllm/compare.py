"""Whether KV that was computed again is the KV that is stored.

The last bits of what is computed depend on the batch, on CPUs too. So bytes are compared
as numbers, by layer and head, keys and values apart.
"""

import collections
import logging
import time
from typing import Any, Deque, List, NamedTuple, Optional, Sequence

from .._engine import find

log = logging.getLogger("kvstored.vllm")

EQUAL, LAST_BITS, DIFFERENT = "equal", "last_bits", "different"
#: Other bytes of an element type whose numbers are not known.
UNEQUAL = "unequal"

#: Of a head's root mean square, and of its largest number.
_MEAN, _LARGEST = 2.0**-6, 2.0**-3
_HOUR, _MANY = 3600.0, 3


class Form(NamedTuple):
    """How a layer lies in a block."""

    bytes: int
    parts: int  # of equal length: keys and values of each head
    dtype: Any  # torch's; None if it is none that can be compared


def form(cache: Any, size: int, layout: str) -> Form:
    """Of a layer's cache, as vLLM registers it. On CPUs it has for each block and head
    keys, and then values."""
    floats = [find("torch", name) for name in ("float16", "bfloat16", "float32")]
    whole = cache.stride(0) * cache.element_size() >= size  # else a block is several of its rows
    known = layout == "LBHNC" and cache.dim() == 4 and whole and any(cache.dtype == dtype for dtype in floats)
    return Form(size, 2 * int(cache.shape[1]) if known else 1, cache.dtype if known else None)


def compared(mine: bytes, stored: bytes, forms: Sequence[Form]) -> str:
    """What a block is, beside the stored one of the same key."""
    if mine == stored:
        return EQUAL
    at, worst = 0, LAST_BITS
    for layer in forms:
        a, b = mine[at : at + layer.bytes], stored[at : at + layer.bytes]
        at += layer.bytes
        if a == b:
            continue
        if layer.dtype is None:
            worst = UNEQUAL
        elif not _near(a, b, layer):
            return DIFFERENT
    return worst


def _near(mine: bytes, stored: bytes, layer: Form) -> bool:
    a, b = (_numbers(of, layer) for of in (mine, stored))
    off, largest = a - b, b.abs().amax(1)
    mean = (b * b).mean(1).sqrt()
    near = ((off * off).mean(1).sqrt() <= _MEAN * mean) & (off.abs().amax(1) <= _LARGEST * largest)
    return bool(near.all())  # not where a number is none


def _numbers(of: bytes, layer: Form) -> Any:
    torch: Any = __import__("torch")
    return torch.frombuffer(bytearray(of), dtype=layer.dtype).double().view(layer.parts, -1)


class Alarm:
    """Says so where many blocks are different, and whether it did. For one thread."""

    def __init__(self) -> None:
        self._times: Deque[float] = collections.deque(maxlen=_MANY)

    def add(self, space: Any, now: Optional[float] = None) -> bool:
        now = time.monotonic() if now is None else now
        self._times.append(now)
        if len(self._times) < _MANY or now - self._times[0] > _HOUR:
            return False
        self._times.clear()
        log.warning(
            "kvstored: %d blocks that were computed again are different from those stored under their keys: the keys do "
            "not tell apart what differs in %r. Give this engine another namespace, or revision; vllm:kvstored_compared counts them",
            _MANY, space,
        )  # fmt: skip
        return True


def forms_of(caches: Any, names: Sequence[str], sizes: Sequence[int], layout: str) -> List[Form]:
    """Of the pieces of a block; empty where vLLM has not told all of them."""
    if not isinstance(caches, dict) or len(names) != len(sizes) or any(name not in caches for name in names):
        return []
    return [form(caches[name], size, layout) for name, size in zip(names, sizes)]
