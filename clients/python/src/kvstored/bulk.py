"""Copies and checksums of many pieces, each in one call that lets other threads run.

A thread that calls a function of C gives the interpreter's lock up and has to wait
for it again, up to 5 ms beside a thread that computes. So copies of a whole job are
one call: the extension ``_bulk``, where it was built, copies and sums in one pass;
elsewhere ``_bulk_pure`` has one system call for some thousand pieces.

A *piece* is bytes that lie together, a *payload* a run of pieces, which lie anywhere.
Addresses are the caller's care: a wrong one ends the process. All functions are safe
for threads, and raise a ValueError for pieces that cannot be: beyond the end of memory,
without an address, or lying over their own copy.
"""

from array import array
from typing import Iterable, Optional

try:
    from ._bulk import address, copy, read, sums, write

    EXTENSION = SUMS = True
except ImportError:  # built without a compiler, or an interpreter that it does not fit
    from ._bulk_pure import SUMS, address, copy, read, sums, write

    EXTENSION = False

__all__ = ["EXTENSION", "SUMS", "address", "copy", "packed", "read", "sums", "total", "write"]


def packed(numbers: Iterable[int]) -> bytes:
    """Numbers as :func:`copy` and :func:`sums` take them."""
    return array("Q", numbers).tobytes()


def total(at: int, size: int) -> Optional[int]:
    """The XXH3-64 of bytes that lie together; None where it cannot be computed."""
    return sums(packed((at, size)), packed((1,)))[0]
