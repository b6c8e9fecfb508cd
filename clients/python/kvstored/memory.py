"""Shared mappings, their addresses, and copies that do not hold the interpreter.

A :class:`Mapping` is one descriptor of the daemon, mapped. It is not inherited
by a forked child: there its pages are gone, and what still refers to them reads
zeros.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Callable, Optional

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


class Mapping:
    """One shared mapping. ``view`` must not be used when the process has forked."""

    def __init__(self, fd: int, size: int, writable: bool) -> None:
        if os.fstat(fd).st_size < size:
            raise ProtocolError(f"a descriptor of {os.fstat(fd).st_size} bytes, {size} were announced")
        self._prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._map = mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=self._prot)
        if hasattr(mmap, "MADV_DONTFORK"):
            self._map.madvise(mmap.MADV_DONTFORK)
        self.size = size
        self.view = memoryview(self._map)
        self.address = address(self.view)

    def slice(self, offset: int, length: int) -> memoryview:
        if offset > self.size or length > self.size - offset:
            raise ProtocolError(f"bytes {offset} to {offset + length} of a mapping of {self.size}")
        return self.view[offset : offset + length]

    def abandon(self) -> None:
        """In a forked child: nothing is mapped here any more. Views read zeros."""
        if not hasattr(mmap, "MADV_DONTFORK"):
            return  # it was inherited after all
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        fixed_noreplace = 0x100000
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed_noreplace
        libc.mmap(
            ctypes.c_void_p(self.address),
            ctypes.c_size_t(self.size),
            self._prot,
            flags | 0x4000,  # MAP_NORESERVE: pages that nobody touches
            -1,
            ctypes.c_long(0),
        )


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
        import xxhash
    except ImportError:
        return None
    return xxhash.xxh3_64_intdigest(payload)
