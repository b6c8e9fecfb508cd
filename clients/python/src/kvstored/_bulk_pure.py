"""What the extension ``_bulk`` does, without it: see :mod:`kvstored.bulk`.

Linux copies between lists of pieces of one process in one system call. Sums are taken
by libxxhash, or by the package xxhash, from the copies; they keep the interpreter's
lock, since giving it up for each would be what :mod:`kvstored.bulk` is there to avoid.
"""

import ctypes
import functools
import logging
import math
import os
import time
from array import array
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple

log = logging.getLogger("kvstored")

#: Below so many bytes copies keep the lock, as in the extension.
_KEEPS_LOCK = 256 << 10
#: Below so many bytes a sum does: some milliseconds at most.
_SUM_KEEPS_LOCK = 4 << 20
#: Pieces of one system call at most (IOV_MAX).
_PIECES = 1024

_libc, _libc_locked = ctypes.CDLL(None), ctypes.PyDLL(None)
_VECTOR = ctypes.c_void_p, ctypes.c_ulong
for _library in (_libc, _libc_locked):
    _library.memmove.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    _library.memmove.restype = ctypes.c_void_p
    _library.process_vm_readv.argtypes = (ctypes.c_int, *_VECTOR, *_VECTOR, ctypes.c_ulong)
    _library.process_vm_readv.restype = ctypes.c_ssize_t
_Pieces = Sequence[Tuple[int, int, int]]

_View = ctypes.c_void_p * 11  # a Py_buffer, which begins with the address
_get_buffer = ctypes.pythonapi["PyObject_GetBuffer"]  # one of its own: that by name is shared with other packages
_get_buffer.argtypes = (ctypes.py_object, _View, ctypes.c_int)
_release_buffer = ctypes.pythonapi["PyBuffer_Release"]
_release_buffer.argtypes = (_View,)


def address(buffer: Any, writable: bool = False) -> int:
    """Where a contiguous buffer lies. It may move or end when ``buffer`` does."""
    view = _View()
    _get_buffer(buffer, view, int(writable))
    try:
        return view[0] or 0
    finally:
        _release_buffer(view)


# ---- sums --------------------------------------------------------------------


def _library_sum() -> Optional[Callable[[_Pieces], int]]:
    try:
        held, free = ctypes.PyDLL("libxxhash.so.0"), ctypes.CDLL("libxxhash.so.0")
        held.XXH3_createState.restype = ctypes.c_void_p
        held.XXH3_64bits_digest.restype = ctypes.c_uint64
    except (OSError, AttributeError):
        return None
    for function in (held.XXH3_64bits_reset, held.XXH3_64bits_digest, held.XXH3_freeState):
        function.argtypes = (ctypes.c_void_p,)
    for library in (held, free):
        library.XXH3_64bits_update.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def total(pieces: _Pieces) -> int:
        state = held.XXH3_createState()
        if not state:
            raise MemoryError
        try:
            held.XXH3_64bits_reset(state)
            for at, _, n in pieces:
                (held if n < _SUM_KEEPS_LOCK else free).XXH3_64bits_update(state, at, n)
            return held.XXH3_64bits_digest(state)
        finally:
            held.XXH3_freeState(state)

    return total


def _package_sum() -> Optional[Callable[[_Pieces], int]]:
    try:
        from xxhash import xxh3_64  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None

    def total(pieces: _Pieces) -> int:
        state = xxh3_64()
        for at, _, n in pieces:
            if n:
                state.update((ctypes.c_char * n).from_address(at))
        return state.intdigest()

    return total


_sum = _library_sum() or _package_sum()
#: Whether sums can be computed; where not, all are None.
SUMS = _sum is not None


@functools.lru_cache(maxsize=None)
def _say() -> None:
    """Once a process."""
    log.warning(
        "kvstored: the package was built without its extension: copies take longer and hold other threads up%s",
        "" if SUMS else "; without libxxhash and the package xxhash checksums are not compared",
    )


# ---- pieces ------------------------------------------------------------------


def _words(of: bytes, name: str, width: int) -> "array[int]":
    if not isinstance(of, bytes):
        raise TypeError(f"{name}: want bytes, as packed() makes them")
    if len(of) % (8 * width):
        raise ValueError(f"{name}: {len(of)} bytes are not a multiple of {8 * width}")
    return array("Q", of)


def _rows(words: "array[int]") -> List[Tuple[int, int, int]]:
    return list(zip(words[0::3], words[1::3], words[2::3]))


def _check(pieces: _Pieces) -> int:
    """Bytes of all."""
    total = 0
    for i, (to, source, n) in enumerate(pieces):
        total += n
        if max(to, source) + n >= 1 << 64 or total >= 1 << 63:
            wrong = "goes beyond the end of memory"
        elif n and not (to and source):
            wrong = "has no address"
        elif n and to < source + n and source < to + n:
            wrong = "lies over the bytes it is copied from"
        else:
            continue
        raise ValueError(f"piece {i} of {n} bytes {wrong}")
    return total


def _payloads(pieces: _Pieces, counts: "array[int]") -> List[_Pieces]:
    if sum(counts) != len(pieces):
        raise ValueError(f"counts: they add up to {sum(counts)} pieces, there are {len(pieces)}")
    out, at = [], 0
    for n in counts:
        out.append(pieces[at : at + n])
        at += n
    return out


def _move(words: "array[int]", locked: bool) -> None:
    """Copies some pieces, up to those of one system call."""
    library, n = _libc_locked if locked else _libc, len(words) // 3
    to, source = array("Q", bytes(16 * n)), array("Q", bytes(16 * n))
    to[0::2], source[0::2] = words[0::3], words[1::3]
    to[1::2] = source[1::2] = words[2::3]
    if _system_move(library, to, source, n) != sum(words[2::3]):  # a kernel forbids it, or memory is a device's
        for at, of, size in _rows(words):
            library.memmove(at, of, size)


def _system_move(library: Any, to: "array[int]", source: "array[int]", n: int) -> int:
    """Bytes that were copied; -1 where the system does not do it."""
    return library.process_vm_readv(os.getpid(), to.buffer_info()[0], n, source.buffer_info()[0], n, 0)


def copy(pieces: bytes, counts: bytes = b"", until: float = math.inf) -> List[Any]:
    """Copies pieces, packed triples of the address to copy to, that to copy from, and
    bytes. ``counts``, packed as well, says how many pieces each payload has: the XXH3-64
    of each is returned, of the bytes that were stored. Without counts nothing is summed.
    The places of a call do not overlap: here sums are taken when all of it is copied.
    No payload (no piece, without counts) is begun after ``until``, as time.monotonic()
    counts; the list is shorter then, and what lies in the places of others is undefined."""
    words, split = _words(pieces, "pieces", 3), _words(counts, "counts", 1)
    rows = _rows(words)
    locked = _check(rows) < _KEEPS_LOCK
    payloads = _payloads(rows, split) if counts else []
    _say()
    done = 0
    while done < len(rows) and time.monotonic() < until:
        _move(words[3 * done : 3 * (done + _PIECES)], locked)
        done += _PIECES
    out: List[Any] = []
    for payload in payloads:
        done -= len(payload)
        if done < 0:
            break
        out.append(_sum(payload) if _sum else None)
    return out


def sums(pieces: bytes, counts: bytes) -> List[Any]:
    """The XXH3-64 of payloads: ``pieces`` are packed pairs of address and bytes,
    ``counts`` as in :func:`copy`."""
    words, split = _words(pieces, "pieces", 2), _words(counts, "counts", 1)
    rows = [(at, at + n, n) for at, n in zip(words[0::2], words[1::2])]
    _check(rows)
    payloads = _payloads(rows, split)
    return [_sum(payload) if _sum else None for payload in payloads]


# ---- objects -----------------------------------------------------------------


def _row(i: int, row: Any) -> Tuple[Any, Any]:
    if not isinstance(row, tuple) or len(row) != 2:
        raise TypeError(f"row {i}: want a tuple of two")
    return row


def read(rows: Iterable[Tuple[int, int]]) -> List[Tuple[bytes, Any]]:
    """Payloads at an address and of so many bytes, each with its XXH3-64."""
    places = []
    for i, row in enumerate(rows):
        at, n = _row(i, row)
        if n < 0:
            raise ValueError(f"row {i}: {n} bytes")
        places.append((1 << 63, *array("Q", (at, n))))
    _check(places)
    _say()
    out: List[Tuple[bytes, Any]] = []
    for _, at, n in places:
        payload = ctypes.string_at(at, n)
        out.append((payload, _sum([(address(payload), 0, n)]) if _sum else None))
    return out


def write(rows: Iterable[Tuple[int, Any]]) -> None:
    """Copies contiguous buffers to addresses."""
    views, words = [], array("Q")
    for i, row in enumerate(rows):
        to, of = _row(i, row)
        view = memoryview(of)
        views.append(view)  # so that none moves
        words.extend((to, address(view), view.nbytes))
    locked = _check(_rows(words)) < _KEEPS_LOCK
    _say()
    for i in range(0, len(words), 3 * _PIECES):
        _move(words[i : i + 3 * _PIECES], locked)
