"""A directory and an arena in files, written as internal/directory does, and a process
that never stops to move, replace and clear chunks while another reads them."""

from __future__ import annotations

import mmap
import os
import random
import struct
import sys
import tempfile
from typing import Dict, Optional

from kvstored.memory import Mapping

PAGE = 4096
SPACE_ID = bytes(range(16))
PI = (0x243F6A8885A308D3, 0x13198A2E03707345, 0xA4093822299F31D1, 0x082EFA98EC4E6C89, 0x452821E638D01377)
MAGIC, VERSION, SLOTS, ARENA, HOLDS, KEPT = range(6)


class Files:
    """A directory of 8 * sets slots and an arena of so many pages, and their writer."""

    def __init__(self, sets: int, pages: int, path: Optional[str] = None) -> None:
        self.path = path or tempfile.mkdtemp(prefix="kvs")
        self.sizes = {"directory": PAGE + sets * 512, "arena": pages * PAGE}
        self.fds: Dict[str, int] = {}
        for name, size in self.sizes.items():
            self.fds[name] = os.open(f"{self.path}/{name}", os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(self.fds[name], size)
        self.words = memoryview(mmap.mmap(self.fds["directory"], self.sizes["directory"])).cast("Q")
        self.arena = mmap.mmap(self.fds["arena"], self.sizes["arena"])
        self.sets, self.turn = sets, 0
        if path is None:
            self.words[VERSION], self.words[SLOTS], self.words[ARENA] = 1 | 64 << 32, 8 * sets, pages * PAGE
            self.words[HOLDS], self.words[MAGIC] = 1, int.from_bytes(b"kvsPLACE", "little")

    def mapping(self, name: str) -> Mapping:
        return Mapping(self.fds[name], self.sizes[name], writable=False)

    def slot(self, key: bytes) -> Optional[int]:
        """The first word of the slot of a key that lies somewhere."""
        want = list(struct.unpack("<4Q", key))
        for at in self.slots(key):
            if self.words[at + 5] and self.words[at + 1 : at + 5].tolist() == want:
                return at
        return None

    def slots(self, key: bytes) -> range:
        k = struct.unpack("<4Q", key)
        p, q = (k[0] ^ PI[0]) * (k[1] ^ PI[1]), (k[2] ^ PI[2]) * (k[3] ^ PI[3])
        high, low = 1 << 64, (1 << 64) - 1
        r = (p // high ^ q & low ^ k[0]) * (q // high ^ p & low ^ k[1] ^ PI[4])
        first = (PAGE + (r // high ^ r & low) % self.sets * 512) // 8
        return range(first, first + 64, 8)

    def put(self, key: bytes, page: int, size: int) -> Optional[bytes]:
        """Says where a payload lies; the key that had to give way."""
        at, gone = self.slot(key), None
        if at is None:
            at = next((one for one in self.slots(key) if not self.words[one + 5]), None)
        if at is None:
            self.turn += 1
            at = self.slots(key)[self.turn % 8]
            gone = self.words[at + 1 : at + 5].tobytes()
        self.words[at] += 1
        for i, word in enumerate((*struct.unpack("<4Q", key), page << 32 | size, 0), 1):
            self.words[at + i] = word
        self.words[at] += 1
        return gone

    def clear(self, key: bytes) -> None:
        at = self.slot(key)
        if at is not None:
            self.words[at] += 1
            self.words[at + 5] = 0
            self.words[at] += 1

    def write(self, page: int, payload: bytes) -> None:
        self.arena[page * PAGE : page * PAGE + len(payload)] = payload


def payload(key: int, size: int) -> bytes:
    """What a chunk of the process has: each of its words names it."""
    return struct.pack("<Q", key) * (size // 8)


def hash_of(key: int) -> bytes:
    return struct.pack("<QQ", key, 0)


KEYS, PLACES, CHUNK_PAGES = 12, 4, 64


def main() -> None:
    """Puts one chunk after another where one of the last was."""
    files, rnd = Files(2, PLACES * CHUNK_PAGES, sys.argv[1]), random.Random(sys.argv[2])
    there: Dict[int, int] = {}  # keys by place
    size = CHUNK_PAGES * PAGE
    payloads = [payload(key, size) for key in range(1, KEYS + 1)]
    print("ready", flush=True)
    while True:
        place = rnd.randrange(PLACES)
        if place in there:
            files.clear(hash_of(there[place]) + SPACE_ID)
        key = rnd.choice([k for k in range(1, KEYS + 1) if k not in there.values()])
        files.write(place * CHUNK_PAGES, payloads[key - 1])
        there[place] = key
        files.put(hash_of(key) + SPACE_ID, place * CHUNK_PAGES, size)


if __name__ == "__main__":
    main()
