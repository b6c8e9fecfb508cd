"""LMCache's memory objects as payloads: their bytes, and behind them how they are read."""

import ctypes
import json
import struct
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .._engine import find
from ..memory import address
from ..pages import Place

MemoryFormat: Any = find("lmcache.v1.memory_management", "MemoryFormat")

_TAIL = struct.Struct("<I4s")  # bytes of the description before it
_MAGIC = b"kvL1"
_DESCRIPTION_BYTES = 4096  # at most
_described: Dict[Any, bytes] = {}
_DESCRIBED = 256  # kept: an engine has a few


def bytes_of(obj: Any) -> Tuple[int, int]:
    """Where the bytes of an object lie, and how many there are."""
    view, size = memoryview(obj.byte_array), int(obj.get_size())
    if view.nbytes < size:
        raise ValueError(f"a memory object of {size} bytes shows {view.nbytes}")
    return address(view), size


def place(obj: Any) -> Place:
    """Of what is stored for an object. Its description lies in this module."""
    tail = _description(obj)
    return (bytes_of(obj), (address(tail), len(tail)))


def _description(obj: Any) -> bytes:
    meta = obj.meta
    shapes, dtypes = getattr(meta, "shapes", None), getattr(meta, "dtypes", None)
    many = shapes is not None and dtypes is not None  # of a hybrid model
    if shapes is None or dtypes is None:
        shapes, dtypes = [meta.shape], [meta.dtype]
    fmt = int(getattr(meta.fmt, "value", meta.fmt))
    said = ([list(map(int, s)) for s in shapes], [str(d) for d in dtypes], fmt, many)
    text = json.dumps(said, separators=(",", ":"))
    tail = _described.get(text)
    if tail is None:
        if len(_described) >= _DESCRIBED or len(text) > _DESCRIPTION_BYTES:
            raise ValueError(f"{len(_described)} kinds of memory objects, and one more of {len(text)} bytes")
        tail = _described[text] = text.encode() + _TAIL.pack(len(text), _MAGIC)
    return tail


class Arrivals:
    """Objects that are made for payloads as they come, by the number of the payload: one
    that comes again, as the lease of its first copy did not hold, has a new object."""

    def __init__(self, allocate: Callable[..., Any]) -> None:
        self._allocate = allocate
        self.objects: Dict[int, Any] = {}
        self._tails: Dict[int, Any] = {}  # where descriptions are copied to, each to its own

    def place(self, number: int, at: int, length: int) -> Optional[Place]:
        """Where a payload goes; None where it is none of an object, or there is no memory."""
        self._give_back(number)
        tail = _TAIL.unpack(ctypes.string_at(at + length - _TAIL.size, _TAIL.size)) if length > _TAIL.size else (0, b"")
        size = length - _TAIL.size - tail[0]
        if tail[1] != _MAGIC or tail[0] > _DESCRIPTION_BYTES or size <= 0:
            return None
        obj = self._made(json.loads(ctypes.string_at(at + size, tail[0])))
        if obj is None:
            return None
        self.objects[number] = obj
        where = bytes_of(obj)
        if where[1] != size:
            return None
        rest = self._tails[number] = ctypes.create_string_buffer(length - size)
        return (where, (ctypes.addressof(rest), length - size))

    def _made(self, said: Sequence[Any]) -> Any:
        shapes, dtypes, fmt, many = said
        shape, dtype = [_shape(s) for s in shapes], [_dtype(d) for d in dtypes]
        fmt = fmt if MemoryFormat is None else MemoryFormat(fmt)
        return self._allocate(shape if many else shape[0], dtype if many else dtype[0], fmt, eviction=True, busy_loop=False)

    def keep(self, n: int) -> List[Any]:
        """The first n; the others are given back."""
        for number in [number for number in self.objects if number >= n]:
            self._give_back(number)
        return [self.objects[number] for number in range(n)]

    def _give_back(self, number: int) -> None:
        obj = self.objects.pop(number, None)
        if obj is not None:
            obj.ref_count_down()


def _shape(dims: Sequence[int]) -> Any:
    torch = sys.modules.get("torch")
    return tuple(dims) if torch is None else torch.Size(dims)


def _dtype(name: str) -> Any:
    """LMCache has imported torch; without it a text stands for itself."""
    return getattr(sys.modules.get("torch"), name.rpartition(".")[2], name)
