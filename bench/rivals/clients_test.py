"""That a byte which is not what was put is found, wherever a client brings it."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path
from typing import Dict, List, Sequence, Union

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))

from clients import Other, Player, Rival  # noqa: E402

Player.POOL, Player.ROOM, Player.PINGS = 1 << 20, 1 << 18, 3
SIZE = 4096


class Memory(Rival):
    """Keeps values here. Of one get it spoils a byte, or brings the value before."""

    def __init__(self, objects: bool, spoil: int = -1, stale: int = -1, short: int = -1) -> None:
        self.objects, self.spoil, self.stale, self.short = objects, spoil, stale, short
        self.kept: Dict[str, bytes] = {}
        self.gets = 0

    def ping(self) -> None:
        pass

    def put(self, keys: List[str], values: List[memoryview], together: memoryview) -> None:
        assert b"".join(values) == bytes(together)
        self.kept.update((k, bytes(v)) for k, v in zip(keys, values))

    def get(self, keys: List[str], rooms: List[memoryview], room: memoryview) -> Union[Sequence[bytes], memoryview]:
        got = [bytearray(self.kept[k]) for k in keys]
        n, self.gets = self.gets, self.gets + 1
        if n == self.spoil:
            got[-1][-1] ^= 1
        if n == self.short:
            got[-1].pop()
        if self.objects:
            return [bytes(g) for g in got]
        if n != self.stale:
            for to, g in zip(rooms, got):
                to[:] = g
        return room

    def remove(self, keys: List[str]) -> None:
        for k in keys:
            del self.kept[k]


class TestPlayer(unittest.TestCase):
    def test_right(self) -> None:
        for objects in (True, False):
            for count in (1, 3):
                rival = Memory(objects)
                took = Player(rival).cell(SIZE, count, 50)
                self.assertEqual([len(took["put"]), len(took["get"])], [50, 50])
                self.assertEqual(rival.kept, {})

    def test_other_bytes(self) -> None:
        for count in (1, 3):
            for n in (0, 1, 2, 40):  # of those before the time starts too
                for wrong in (Memory(True, spoil=n), Memory(False, spoil=n), Memory(False, stale=n), Memory(True, short=n)):
                    with self.assertRaises(Other):
                        Player(wrong).cell(SIZE, count, 50)

    def test_pings(self) -> None:
        self.assertEqual(len(Player(Memory(True)).cell(0, 0, 0)["ping"]), 3)


if __name__ == "__main__":
    unittest.main()
