"""The directory of the daemon's memory: where chunks lie, for reads without asking.

Nothing keeps a chunk where it is while it is copied. So each slot has a number that is
odd while the slot is written, and another one afterwards: a copy is the chunk if the
number was even before and is the same after. Only a processor that makes loads in the
order of the program can tell so, which is x86-64; checksums, which tell elsewhere, take
far too long here. Without them a directory that says ``kept`` is of no use either: its
arena may be another daemon's by now.

docs/directory.md has the format.
"""

from __future__ import annotations

import platform
import struct
from typing import Any, Callable, List, Optional, Sequence, Tuple

from .memory import Mapping, copy_all
from .wire import MAX_U32

_HEADER_BYTES = 4096
_MAGIC, _VERSION, _SLOTS, _ARENA, _HOLDS, _KEPT = range(6)  # words of the header
_SLOT_BYTES, _SET_SLOTS = 64, 8
_SET_BYTES = _SLOT_BYTES * _SET_SLOTS
_MAGIC_WORD = int.from_bytes(b"kvsPLACE", "little")
_VERSION_WORD = 1 | _SLOT_BYTES << 32
_KEY_AT = 8  # in a slot, behind its number
_SLOT = struct.Struct("<32sQ")  # from there on: the key, and its place
_ALIGN_BITS = 12  # of places
_M64 = (1 << 64) - 1
_DIRECT = 2  # put mode: other clients write to the arena
_QQ = struct.Struct("<QQ")
_PI = (0x243F6A8885A308D3, 0x13198A2E03707345, 0xA4093822299F31D1, 0x082EFA98EC4E6C89, 0x452821E638D01377)
#: What is copied before the numbers are looked at again, once it is so much.
_GROUP_CHUNKS, _GROUP_BYTES = 32, 4 << 20


def find_directory(mapping: Optional[Mapping], arena: Optional[Mapping], put_mode: int) -> "Optional[Directory]":
    """The directory of an arena, where there is one that can be used here."""
    if mapping is None or arena is None or put_mode == _DIRECT or mapping.size < _HEADER_BYTES:
        return None
    if platform.machine() not in ("x86_64", "AMD64"):
        return None
    words = mapping.view[: mapping.size & -8].cast("Q")
    slots = words[_SLOTS]
    if words[_MAGIC] != _MAGIC_WORD or words[_VERSION] != _VERSION_WORD or words[_ARENA] != arena.size:
        return None
    if slots < _SET_SLOTS or slots & (slots - 1) or slots > (mapping.size - _HEADER_BYTES) // _SLOT_BYTES:
        return None
    return Directory(mapping, words, arena)


#: Where the set of a key begins, and the 32 bytes of the key: hash and id of the space.
Row = Tuple[int, bytes]


class Directory:
    """A directory that this process maps. Safe for threads."""

    def __init__(self, mapping: Mapping, words: "memoryview[int]", arena: Mapping) -> None:
        self._pages: Any = mapping.view.obj
        self._words, self._arena = words, arena
        self._mask = words[_SLOTS] // _SET_SLOTS - 1

    @property
    def holds(self) -> bool:
        """Whether chunks may be read. Once false it stays so."""
        return self._words[_HOLDS] == 1 and self._words[_KEPT] == 0

    def row_of(self, space: bytes) -> Callable[[bytes], Row]:
        """What makes the rows of hashes of a space."""
        k2, k3 = _QQ.unpack(space)
        q = (k2 ^ _PI[2]) * (k3 ^ _PI[3])
        low, high, mask = q & _M64, q >> 64 ^ _PI[4], self._mask
        a, b, unpack = _PI[0], _PI[1], _QQ.unpack

        def row(hash: bytes) -> Row:
            k0, k1 = unpack(hash)
            p = (k0 ^ a) * (k1 ^ b)
            r = (p >> 64 ^ low ^ k0) * (high ^ p & _M64 ^ k1)
            return _HEADER_BYTES + ((r >> 64 ^ r) & mask) * _SET_BYTES, hash + space

        return row

    def copy(self, rows: Sequence[Row], room: Callable[[int, int], int], first: int = 0) -> Tuple[int, bool]:
        """Copies the leading run of chunks that are here, each to the address that
        ``room`` gives for its number, from ``first`` on, and its bytes; 0 ends it. How many
        are copied, and whether ``room`` ended it."""
        done, ended = 0, False
        while done < len(rows) and not ended:
            places, slots, ended = self._find(rows[done : done + _GROUP_CHUNKS], room, first + done)
            copy_all(places)
            good = self._unchanged(slots)
            done += good
            if good < len(slots):
                return done, False
            if not slots:
                break
        return done, ended

    def _find(
        self, rows: Sequence[Row], room: Callable[[int, int], int], first: int
    ) -> Tuple[List[Tuple[int, int, int]], List[Tuple[int, int]], bool]:
        """What to copy of a group: to, from and bytes of each chunk, the word and the
        number of its slot; and whether ``room`` ended it."""
        find, words, unpack, pages = self._pages.find, self._words, _SLOT.unpack_from, self._pages
        base, end, total = self._arena.address, self._arena.size, 0
        places: List[Tuple[int, int, int]] = []
        slots: List[Tuple[int, int]] = []
        for i, (at, key) in enumerate(rows, first):
            at = find(key, at + _KEY_AT, at + _SET_BYTES)
            if at < 0 or at % _SLOT_BYTES != _KEY_AT or total >= _GROUP_BYTES:
                break
            word = at >> 3
            word -= 1
            number = words[word]  # the first load that counts
            found, place = unpack(pages, at)
            size, offset = place & MAX_U32, place >> 32 << _ALIGN_BITS
            if number & 1 or found != key or not size or offset + size > end:
                break
            to = room(i, size)
            if not to:
                return places, slots, True
            places.append((to, base + offset, size))
            slots.append((word, number))
            total += size
        return places, slots, False

    def _unchanged(self, slots: Sequence[Tuple[int, int]]) -> int:
        """How many leading slots say what they said."""
        words, n = self._words, 0
        for word, number in slots:
            if words[word] != number:
                break
            n += 1
        return n if self.holds else 0
