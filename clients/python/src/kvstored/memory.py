"""Shared mappings and their addresses.

A :class:`Mapping` is one descriptor of the daemon, mapped. It is not inherited
by a forked child: there its pages are gone, and what still refers to them reads
zeros.
"""

# pyright: strict, reportPrivateUsage=false

import contextlib
import ctypes
import mmap
import os
import weakref
from typing import Any, Callable, List, Optional

from . import bulk
from ._wire import Buffer
from .bulk import address
from .errors import ProtocolError


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
        if writable:
            with contextlib.suppress(OSError):  # of a kernel that has no huge pages
                pages.madvise(mmap.MADV_HUGEPAGE)
        self.size = size
        self.view = memoryview(pages)
        self.address = address(self.view)
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


os.register_at_fork(after_in_child=_after_fork)


def checksum(payload: Buffer) -> Optional[int]:
    """XXH3-64 (seed 0) of a payload, None where nothing is there that computes it."""
    return bulk.total(address(payload), len(payload))
