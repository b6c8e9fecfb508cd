"""Shared mappings, their addresses, and copies that do not hold the interpreter.

A :class:`Mapping` is one descriptor of the daemon, mapped. It is not inherited
by a forked child: there its pages are gone, and what still refers to them reads
zeros.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import weakref
from typing import Any, Callable, Iterable, List, Optional, Tuple

from .errors import ProtocolError
from .wire import Buffer


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("rest", ctypes.c_void_p * 5),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)


def address(buffer: Any) -> int:
    """Where a contiguous buffer lies. It may move or end when ``buffer`` does."""
    view = _PyBuffer()
    _get_buffer(buffer, ctypes.byref(view), 0)
    try:
        return view.buf or 0
    finally:
        _release_buffer(ctypes.byref(view))


#: copy(to, from, bytes) between addresses. It lets other threads run meanwhile.
copy = ctypes.memmove


#: Bytes of one call of ``copy`` at most. Of 64 KiB to 8 MiB a call this is the fastest:
#: 1 MiB takes 34 us so, 42 us in sixteen, 38 to 49 us in calls of 1 MiB and more (AMD EPYC).
_PIECE = 512 << 10


def copy_all(places: Iterable[Tuple[int, int, int]]) -> None:
    """:data:`copy` of each (to, from, bytes). What follows the one before on both sides
    is copied with it."""
    to = source = size = 0
    for at, of, n in places:
        if at != to + size or of != source + size:
            _copy(to, source, size)
            to, source, size = at, of, 0
        size += n
    _copy(to, source, size)


def _copy(to: int, source: int, size: int) -> None:
    for done in range(0, size, _PIECE):
        copy(to + done, source + done, min(_PIECE, size - done))


def whole(buffer: Any, writable: bool = False) -> memoryview:
    """All of a buffer. A ValueError says that it does not lie in one piece, or is
    read-only where it is to be written."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise ValueError("a buffer that lies in pieces: want one that is contiguous")
    if writable and view.readonly:
        raise ValueError("a buffer that is read-only: want one that can be written")
    return view


class _Shared(mmap.mmap):
    """Pages that a forked child does not have."""

    address = 0
    prot = 0
    leave: Optional[Callable[[], None]] = None  # called before they are unmapped

    def __del__(self) -> None:
        if self.leave is not None:
            self.leave()

    def replace(self) -> None:
        """In a forked child: puts pages of zeros where views still look."""
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        fixed_noreplace, noreserve = 0x100000, 0x4000  # noreserve: pages that nobody touches
        got = libc.mmap(
            ctypes.c_void_p(self.address),
            ctypes.c_size_t(len(self)),
            self.prot,
            mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed_noreplace | noreserve,
            -1,
            ctypes.c_long(0),
        )
        if got != self.address:  # somebody else is there by now, and must not be unmapped
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


#: What one huge page maps. Memory that is mapped from elsewhere on is mapped page by
#: page when it is first read, which takes as long as copying it.
_HUGE = 2 << 20
#: Spacers at a time, each of which takes a descriptor meanwhile. A process whose address
#: space has many holes needs a few dozen.
_SPACERS = 128


def _pages(fd: int, size: int, prot: int) -> _Shared:
    """The pages of a descriptor, from a multiple of ``_HUGE`` on where that can be had.

    An address cannot be asked for here. But the system goes downwards: below a spacer
    of the right length the next pages lie right."""
    pages = _Shared(fd, size, flags=mmap.MAP_SHARED, prot=prot)
    spacers: List[mmap.mmap] = []
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        while address(pages) % _HUGE and size >= 2 * _HUGE and len(spacers) <= _SPACERS:
            off = (address(pages) - whole) % _HUGE
            length = off + (size - off) // _HUGE * _HUGE  # long, to go where pages go
            spacers.append(mmap.mmap(fd, length, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))
            below = _Shared(fd, size, flags=mmap.MAP_SHARED, prot=prot)
            spacers.append(pages)
            pages = below
    except OSError:  # no more address space or descriptors: pages stay where they are
        pass
    finally:
        for spacer in spacers:
            spacer.close()
    return pages


class Mapping:
    """One shared mapping. ``view`` must not be used when the process has forked."""

    def __init__(self, fd: int, size: int, writable: bool) -> None:
        if os.fstat(fd).st_size < size:
            raise ProtocolError(f"a descriptor of {os.fstat(fd).st_size} bytes, {size} were announced")
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        pages = _pages(fd, size, prot)
        if writable and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # of a kernel that has no huge pages
                pages.madvise(mmap.MADV_HUGEPAGE)
        self.size = size
        self.view = memoryview(pages)
        self.address = address(self.view)
        if hasattr(mmap, "MADV_DONTFORK"):  # elsewhere they are inherited
            pages.address, pages.prot = self.address, prot
            _shared.add(pages)
            pages.madvise(mmap.MADV_DONTFORK)

    def before_unmap(self, callback: Callable[[], None]) -> None:
        """Has ``callback`` called once before the pages are unmapped: when the last
        view of them goes, on the thread that drops it."""
        self.view.obj.leave = callback  # type: ignore[attr-defined]

    def slice(self, offset: int, length: int) -> memoryview:
        self.at(offset, length)
        return self.view[offset : offset + length]

    def at(self, offset: int, length: int) -> int:
        """The address of an offset that so many bytes follow."""
        if offset > self.size or length > self.size - offset:
            raise ProtocolError(f"bytes {offset} to {offset + length} of a mapping of {self.size}")
        return self.address + offset


# Not of mappings: a view outlives its mapping, and a lease its connection.
_shared: "weakref.WeakSet[_Shared]" = weakref.WeakSet()


def _after_fork() -> None:
    for pages in list(_shared):
        pages.replace()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _find_checksum() -> Optional[Callable[[int, int], int]]:
    for name in ("libxxhash.so.0", "libxxhash.0.dylib"):
        try:
            function = ctypes.CDLL(name).XXH3_64bits
        except (OSError, AttributeError):
            continue
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_size_t), ctypes.c_uint64
        return function
    return None


#: XXH3-64 of (address, bytes), from the system's libxxhash; None where it is missing.
checksum_at = _find_checksum()


def checksum(payload: Buffer) -> Optional[int]:
    """XXH3-64 (seed 0) of a payload, None where neither libxxhash nor the xxhash package is there."""
    if checksum_at is not None:
        return checksum_at(address(payload), len(payload))
    try:
        import xxhash  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    return xxhash.xxh3_64_intdigest(payload)
