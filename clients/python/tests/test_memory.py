"""Where memory of the daemon is mapped."""

import mmap
import os
import random
import resource
import unittest
from typing import List

from kvstored.memory import Mapping

HUGE = 2 << 20
HUGE_PAGES = os.path.exists("/sys/kernel/mm/transparent_hugepage")


def flags(address: int) -> List[str]:
    """What the kernel notes of the mapping that begins there."""
    inside = False
    with open("/proc/self/smaps", encoding="ascii", errors="replace") as lines:
        for line in lines:
            words = line.split()
            if words[0] == "VmFlags:" and inside:
                return words[1:]
            if not words[0].endswith(":"):
                inside = int(words[0].split("-")[0], 16) == address
    return []


@unittest.skipUnless(hasattr(os, "memfd_create"), "memory files are Linux's")
class Aligned(unittest.TestCase):
    """Huge pages are mapped as such only from a multiple of their size on."""

    def test_beside_others_of_all_sizes(self) -> None:
        kept = []
        for size in (4 << 20, 5 << 20, 64 << 20, (64 << 20) + 4096, (64 << 20) + 100, 1 << 30):
            for writable in (False, True, False):
                fd = os.memfd_create("test")
                os.ftruncate(fd, size)
                mapping = Mapping(fd, size, writable)
                os.close(fd)
                self.assertEqual(mapping.address % HUGE, 0, f"{size} bytes")
                self.assertEqual(bytes(mapping.slice(size - 3, 3)), bytes(3))
                kept.append(mapping)
            del kept[0]  # a hole for the next

    def test_among_holes(self) -> None:
        """As an engine's address space has them that has mapped and unmapped much."""
        rnd, kept = random.Random(1), []  # type: ignore[var-annotated]
        for n in range(600):
            size = rnd.choice((4 << 20, 5 << 20, 64 << 20, (64 << 20) + 4096, (64 << 20) + 100, 1 << 30))
            fd = os.memfd_create("test")
            os.ftruncate(fd, size)
            kept.append(Mapping(fd, size, writable=False))
            os.close(fd)
            self.assertEqual(kept[-1].address % HUGE, 0, f"{n}, {size} bytes")
            while len(kept) > rnd.randrange(1, 120):
                del kept[rnd.randrange(len(kept))]

    def test_only_what_is_written_is_advised(self) -> None:
        """The kernel gives a staging window huge pages where it is asked to; the arena
        is the daemon's to advise."""
        for writable in (False, True):
            fd = os.memfd_create("test")
            os.ftruncate(fd, 4 << 20)
            mapping = Mapping(fd, 4 << 20, writable)
            os.close(fd)
            self.assertEqual("hg" in flags(mapping.address), writable and HUGE_PAGES)

    def test_with_room_for_one_only(self) -> None:
        """Where there is address space for the pages and no spacer, they are mapped anywhere."""
        size = 1 << 30
        fd = os.memfd_create("test")
        os.ftruncate(fd, size)
        with open("/proc/self/statm", encoding="ascii") as sizes:
            used = int(sizes.read().split()[0]) * mmap.PAGESIZE
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + size + (64 << 20), before[1]))
        try:
            mapping = Mapping(fd, size, writable=False)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
            os.close(fd)
        self.assertEqual(bytes(mapping.slice(size - 3, 3)), bytes(3))

    def test_one_that_is_small(self) -> None:
        fd = os.memfd_create("test")
        os.ftruncate(fd, 4096)
        self.assertEqual(len(Mapping(fd, 4096, writable=True).view), 4096)
        os.close(fd)
