"""Chunks that are found and copied by the directory of the daemon's memory."""

from __future__ import annotations

import mmap
import platform
import random
import shutil
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple
from unittest import mock

from kvstored.directory import Directory, find_directory
from kvstored.memory import address

from . import directory_writer as writer
from .daemon import skip
from .directory_writer import PAGE, SPACE_ID, Files, hash_of, payload


class Case(unittest.TestCase):
    def setUp(self) -> None:
        if platform.machine() != "x86_64":
            skip(self, "reads without asking are for x86-64")

    def files(self, sets: int, pages: int) -> Files:
        files = Files(sets, pages)
        self.addCleanup(shutil.rmtree, files.path, True)
        return files

    def open(self, files: Files) -> Directory:
        found = find_directory(files.mapping("directory"), files.mapping("arena"), 1)
        assert found is not None
        return found

    def copy(self, directory: Directory, hashes: List[bytes], seen: Any = lambda i, n: None) -> List[bytes]:
        """The chunks that are copied, into memory of their own each."""
        into: List[bytearray] = []

        def room(i: int, n: int) -> int:
            seen(i, n)
            del into[i:]
            into.append(bytearray(n))
            return address(into[i])

        n, ended = directory.copy([directory.row_of(SPACE_ID)(h) for h in hashes], room)
        self.assertFalse(ended)
        return [bytes(b) for b in into[:n]]


class Copies(Case):
    def test_as_a_dict(self) -> None:
        rnd = random.Random(1)
        files = self.files(4, 256)
        directory, model = self.open(files), {}  # type: Tuple[Directory, Dict[bytes, Tuple[int, bytes]]]
        keys = [rnd.randbytes(16) for _ in range(30)] + [hash_of(n) for n in range(1, 31)]
        for _ in range(3000):
            key = rnd.choice(keys)
            free = rnd.choice(sorted(set(range(128)) - {page for page, _ in model.values()}))
            if rnd.random() < 0.3 and key in model:
                files.clear(key + SPACE_ID)
                del model[key]
            else:
                data = rnd.randbytes(rnd.randrange(1, 2 * PAGE))
                files.write(2 * free, data)
                gone = files.put(key + SPACE_ID, 2 * free, len(data))
                model[key] = free, data
                if gone is not None:
                    del model[gone[:16]]
            for key in rnd.sample(keys, 3):
                self.assertEqual(self.copy(directory, [key]), [model[key][1]] if key in model else [])
        self.assertGreater(len(model), 20)
        run = rnd.sample(sorted(model), len(model))
        self.assertEqual(self.copy(directory, run), [model[key][1] for key in run])
        self.assertEqual(self.copy(directory, [*run[:7], bytes(16), *run[7:]]), [model[key][1] for key in run[:7]])

    def test_more_than_a_group(self) -> None:
        files = self.files(64, 4096)
        hashes = [hash_of(n) for n in range(1, 101)]
        for n, one in enumerate(hashes):
            files.write(40 * n, payload(n, 160000))
            self.assertIsNone(files.put(one + SPACE_ID, 40 * n, 160000))
        self.assertEqual(self.copy(self.open(files), hashes), [payload(n, 160000) for n in range(100)])

    def test_room_ends_it(self) -> None:
        files = self.files(1, 8)
        for n in range(1, 4):
            files.put(hash_of(n) + SPACE_ID, n, 8)
        directory, got = self.open(files), bytearray(16)
        rows = [directory.row_of(SPACE_ID)(hash_of(n)) for n in range(1, 4)]
        to = address(got)
        for most in range(3):
            self.assertEqual(directory.copy(rows, lambda i, n: to + 8 * i if i < most else 0), (most, True))
        self.assertEqual(directory.copy(rows[:2], lambda i, n: to + 8 * (i - 5), 5), (2, False))


class Changes(Case):
    """What happens between the look at a slot and the copy, which comes after room."""

    def check(self, change: Callable[[Files], Any], want: int) -> None:
        files = self.files(1, 8)
        for n in range(1, 4):
            files.write(n, payload(n, PAGE))
            files.put(hash_of(n) + SPACE_ID, n, PAGE)
        directory = self.open(files)
        got = self.copy(directory, [hash_of(n) for n in range(1, 4)], seen=lambda i, n: i == 2 and change(files))
        self.assertEqual(got, [payload(n, PAGE) for n in range(1, want + 1)])

    def test_of_a_chunk(self) -> None:
        def replace(files: Files) -> None:
            files.clear(hash_of(2) + SPACE_ID)
            files.write(2, payload(9, PAGE))

        def replace_all(files: Files) -> None:
            replace(files)
            files.put(hash_of(9) + SPACE_ID, 2, PAGE)

        def there_and_back(files: Files) -> None:
            replace_all(files)
            files.clear(hash_of(9) + SPACE_ID)
            files.write(2, payload(2, PAGE))
            files.put(hash_of(2) + SPACE_ID, 2, PAGE)

        def begin(files: Files) -> None:
            files.words[files.slot(hash_of(1) + SPACE_ID) or 0] += 1

        for change, want in ((replace, 1), (replace_all, 1), (there_and_back, 1), (begin, 0), (lambda _: None, 3)):
            self.check(change, want)

    def test_of_the_header(self) -> None:
        for word, value in ((writer.HOLDS, 0), (writer.HOLDS, 2), (writer.KEPT, 1)):
            self.check(lambda files: files.words.__setitem__(word, value), 0)

    def test_slots_that_are_no_use(self) -> None:
        def spoilt(word: int, value: int) -> List[bytes]:
            files = self.files(1, 8)
            files.put(hash_of(1) + SPACE_ID, 1, 8)
            files.words[(files.slot(hash_of(1) + SPACE_ID) or 0) + word] = value
            return self.copy(self.open(files), [hash_of(1)])

        self.assertEqual(spoilt(0, 2), [bytes(8)])
        for word, value in ((0, 3), (1, 5), (4, 0), (5, 0), (5, 1 << 32), (5, 8 << 32 | 1), (5, 7 << 32 | 4097), (5, (1 << 64) - 1)):
            with self.subTest(word=word, value=value):
                self.assertEqual(spoilt(word, value), [])
        self.assertEqual(len(spoilt(5, 7 << 32 | 4096)), 1)

    def test_a_key_between_two_slots(self) -> None:
        """Bytes that look like a key, but lie where none begins."""
        files = self.files(1, 8)
        files.words[512] = 2
        files.words[514:518] = memoryview(hash_of(1) + SPACE_ID).cast("Q")
        files.words[518] = 8
        self.assertEqual(self.copy(self.open(files), [hash_of(1)]), [])

    def test_a_slot_that_is_another_s_when_its_number_is_read(self) -> None:
        files = self.files(1, 8)
        files.put(hash_of(1) + SPACE_ID, 1, 8)
        directory = self.open(files)

        class Late(mmap.mmap):
            def find(self, *args: Any) -> int:
                at = super().find(*args)
                files.clear(hash_of(1) + SPACE_ID)
                files.put(hash_of(2) + SPACE_ID, 1, 8)
                return at

        directory._pages = Late(files.fds["directory"], files.sizes["directory"])
        self.assertEqual(self.copy(directory, [hash_of(1)]), [])


class Broken(Case):
    def opened(self, change: Callable[[Files], Any] = lambda _: None, put_mode: int = 1) -> bool:
        files = self.files(4, 8)
        change(files)
        return find_directory(files.mapping("directory"), files.mapping("arena"), put_mode) is not None

    def test_headers(self) -> None:
        self.assertTrue(self.opened())
        words: List[Tuple[int, int]] = [(writer.MAGIC, 0), (writer.VERSION, 2 | 64 << 32), (writer.VERSION, 1 | 128 << 32)]
        words += [(writer.SLOTS, n) for n in (0, 1, 4, 24, 64, 1 << 63)] + [(writer.ARENA, n) for n in (0, 7 * PAGE, 1 << 62)]
        for word, value in words:
            with self.subTest(word=word, value=value):
                self.assertFalse(self.opened(lambda files: files.words.__setitem__(word, value)))

    def test_where_it_is_not_to_be_used(self) -> None:
        self.assertFalse(self.opened(put_mode=2))
        with mock.patch.object(platform, "machine", lambda: "aarch64"):
            self.assertFalse(self.opened())
        files = self.files(4, 8)
        self.assertIsNone(find_directory(None, files.mapping("arena"), 1))
        self.assertIsNone(find_directory(files.mapping("directory"), None, 1))
        files.sizes["directory"] = PAGE - 8
        self.assertIsNone(find_directory(files.mapping("directory"), files.mapping("arena"), 1))


class Beside(Case):
    def test_a_writer(self) -> None:
        """Another process overwrites chunks all the time: a read has the whole of its own, or nothing."""
        size = writer.CHUNK_PAGES * PAGE
        files = self.files(2, writer.PLACES * writer.CHUNK_PAGES)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.directory_writer", files.path, "3"], cwd=Path(__file__).parents[1], stdout=subprocess.PIPE
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        process.stdout.readline()
        directory, rnd, good, tried = self.open(files), random.Random(4), 0, 0
        while good < 500:
            tried += 1
            self.assertLess(tried, 1 << 20)
            key = rnd.randrange(1, writer.KEYS + 1)
            for got in self.copy(directory, [hash_of(key)]):
                self.assertEqual(got, payload(key, size))
                good += 1
            self.assertIsNone(process.poll())


if __name__ == "__main__":
    unittest.main()
