"""Copies and sums: the extension, with and without vector instructions, and the pure way
answer alike, and as the daemon does."""

import atexit
import functools
import importlib.machinery
import importlib.util
import math
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import unittest
from array import array
from pathlib import Path
from typing import Any, Dict
from unittest import mock

import kvstored
from kvstored import _bulk_pure, bulk
from kvstored.bulk import packed

from .daemon import ROOT

SOURCE = Path(kvstored.__file__).parent / "_bulk.c"


@functools.lru_cache(maxsize=None)
def extension(*flags: str) -> Any:
    """The extension, compiled here; None where it cannot be."""
    compiler, headers = shutil.which("gcc") or shutil.which("cc"), sysconfig.get_path("include")
    if compiler is None or not os.path.exists(os.path.join(headers, "Python.h")):
        return None
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, True)
    built = os.path.join(folder, "_bulk.abi3.so")
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
    subprocess.run([compiler, "-O3", "-shared", "-fPIC", *warnings, *flags, f"-I{headers}", "-o", built, SOURCE], check=True)
    loader = importlib.machinery.ExtensionFileLoader("_bulk", built)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("_bulk", loader))
    loader.exec_module(module)
    return module


class Way(unittest.TestCase):
    """A test of each way."""

    def ways(self, sums: bool = True) -> Dict[str, Any]:
        """Those that there are here; ``sums``: that can sum."""
        out = {"extension": extension(), "words": extension("-DWITHOUT_VECTORS")}
        if _bulk_pure.SUMS or not sums:
            out["pure"] = _bulk_pure
        out = {name: way for name, way in out.items() if way is not None}
        if not out:
            self.skipTest("neither a compiler with Python.h nor libxxhash is here")
        return out


def pattern(n: int) -> bytes:
    """The bytes that testdata/sums.txt has sums of."""
    return bytes((i * 2654435761 >> 24) & 255 for i in range(n))


class Sums(Way):
    def test_golden(self) -> None:
        lines = (Path(ROOT) / "testdata" / "sums.txt").read_text().splitlines()
        golden = [(int(n), int(total, 16)) for n, total in (line.split() for line in lines if not line.startswith("#"))]
        self.assertGreater(len(golden), 20)
        of = pattern(golden[-1][0])
        at = bulk.address(of)
        pieces = packed(v for n, _ in golden for v in (at, n))
        for name, way in self.ways().items():
            with self.subTest(name):
                self.assertEqual(way.sums(pieces, packed([1] * len(golden))), [total for _, total in golden])

    def test_lengths_of_each_form_in_any_pieces(self) -> None:
        of = random.Random(1).randbytes(2300)
        at = bulk.address(of)
        ways = self.ways()
        for n in [*range(0, 260), *range(960, 1100), *range(2000, 2200)]:
            for cut in (n, 1, 7, 64, 100):
                pieces = [v for i in range(0, max(n, 1), max(cut, 1)) for v in (at + i, min(cut, n - i))]
                got = {name: way.sums(packed(pieces), packed([len(pieces) // 2])) for name, way in ways.items()}
                self.assertEqual(len({v[0] for v in got.values()}), 1, (n, cut, got))


class Copies(Way):
    def test_random_pieces(self) -> None:
        r = random.Random(2)
        size = 1 << 20
        source = r.randbytes(size)
        at = bulk.address(source)
        for _ in range(150):
            rows, counts = self.random_rows(r, at, size)
            results = {}
            for name, way in self.ways().items():
                target = bytearray(b"\xa5") * size
                to = bulk.address(target, True)
                total = way.copy(packed(v for a, b, n in rows for v in (to + a, b, n)), packed(counts))
                self.assertEqual(way.sums(packed(v for a, _, n in rows for v in (to + a, n)), packed(counts)), total)
                results[name] = total, bytes(target)
            want = bytearray(b"\xa5") * size
            for a, b, n in rows:
                want[a : a + n] = source[b - at : b - at + n]
            for name, (total, target) in results.items():
                self.assertEqual(len(total), len(counts), name)
                self.assertTrue(target == want, f"{name}: {rows}")
                self.assertEqual(total, next(iter(results.values()))[0], name)

    def random_rows(self, r: random.Random, at: int, size: int) -> Any:
        """Pieces one behind the other in the target with gaps, from anywhere."""
        rows, counts, to = [], [], 0
        while to < size * 3 // 4 and len(counts) < 40:
            counts.append(r.choice((0, 1, 1, 2, r.randrange(20), r.randrange(300))))
            for _ in range(counts[-1]):
                n = min(r.choice((0, 1, r.randrange(64), r.randrange(300), r.randrange(1, 1 << r.randrange(1, 19)))), size - to)
                rows.append((to, at + r.randrange(size - n + 1), n))
                to = min(size, to + n + r.choice((0, 0, 1, 64)))
        return rows, counts

    def test_more_pieces_than_one_call_takes_and_no_sums(self) -> None:
        source = random.Random(3).randbytes(3000 * 100)
        at = bulk.address(source)
        for name, way in self.ways(sums=False).items():
            for call in (True, False):
                with self.subTest(name, call=call), mock.patch.object(
                    _bulk_pure, "_system_move", _bulk_pure._system_move if call else lambda *_: -1
                ):
                    target = bytearray(len(source))
                    to = bulk.address(target, True)
                    rows = packed(v for i in range(3000) for v in (to + 100 * i, at + 100 * (2999 - i), 100))
                    self.assertEqual(way.copy(rows), [])
                    self.assertTrue(target == b"".join(source[100 * i : 100 * i + 100] for i in reversed(range(3000))))

    def test_nothing_begins_too_late(self) -> None:
        source, target = bytes(range(100)), bytearray(100)
        pieces = packed((bulk.address(target, True), bulk.address(source), 100))
        for name, way in self.ways(sums=False).items():
            with self.subTest(name):
                self.assertEqual(way.copy(pieces, packed([1]), time.monotonic() - 1), [])
                self.assertEqual(way.copy(pieces, b"", time.monotonic() - 1), [])
                self.assertEqual(target, bytes(100))
                self.assertEqual(len(way.copy(pieces, counts=packed([1]), until=math.inf)), 1)
                self.assertEqual(target, source)
                target[:] = bytes(100)

    def test_reads_and_writes(self) -> None:
        source = random.Random(4).randbytes(600_000)
        at = bulk.address(source)
        cuts = [(0, 0), (0, 1), (1, 5), (77, 241), (5, 600_000 - 5), (0, 300_000)]
        for name, way in self.ways().items():
            with self.subTest(name):
                got = way.read([(at + i, n) for i, n in cuts])
                self.assertTrue([p for p, _ in got] == [source[i : i + n] for i, n in cuts])
                pieces = packed(v for i, n in cuts for v in (at + i, n))
                self.assertEqual([total for _, total in got], way.sums(pieces, packed([1] * len(cuts))))
                target = bytearray(600_100)
                to = bulk.address(target, writable=True)
                self.assertIsNone(way.write([(to, b"four"), (to + 5, array("I", [1, 2])), (0, b""), (to + 20, memoryview(source)[9:])]))
                self.assertTrue(target[:20] == b"four\0" + array("I", [1, 2]).tobytes() + bytes(7))
                self.assertTrue(target[20:600_011] == source[9:])
                self.assertEqual((way.read(()), way.write(())), ([], None))

    def test_others_run_meanwhile(self) -> None:
        """Nobody is made to give the lock up here: only a copy that does lets this thread see it."""
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        source, target = bytes(8 << 20), bytearray(8 << 20)
        pieces = packed((bulk.address(target, True), bulk.address(source), len(source)))
        for name, way in self.ways(sums=False).items():
            with self.subTest(name):
                copying = seen = False

                def run() -> None:
                    nonlocal copying
                    while not seen and thread.tries:
                        thread.tries -= 1
                        copying = True
                        way.copy(pieces)
                        copying = False

                thread: Any = threading.Thread(target=run)
                thread.tries = 1000
                sys.setswitchinterval(1000)
                thread.start()
                while thread.is_alive() and not seen:
                    seen = copying
                    time.sleep(0)
                thread.join()
                sys.setswitchinterval(interval)
                self.assertTrue(seen)


class Hostile(Way):
    """What cannot be is an error, of the same kind each way, before a byte is copied."""

    def refused(self, kind: Any, call: str, *args: Any) -> None:
        for name, way in self.ways(sums=False).items():
            with self.subTest(name, call=call, args=args):
                with self.assertRaises(kind):
                    getattr(way, call)(*args)

    def test_copy(self) -> None:
        memory = bytearray(4096)
        at = bulk.address(memory, True)
        good = packed((at, at + 64, 64))
        for wrong in ([1, 2, 3], bytearray(24), "pieces", None, memoryview(good), 7):
            self.refused(TypeError, "copy", wrong)
            self.refused(TypeError, "copy", good, wrong)
        self.refused(TypeError, "copy")
        self.refused(TypeError, "copy", good, b"", "soon")
        for pieces in (good[:-1], good + b"\0" * 8, b"1"):
            self.refused(ValueError, "copy", pieces)
        for counts in ([], [0], [2], [1, 1], [2**64 - 1, 2], [2**64 - 1], [2**63, 2**63, 1, 2**63]):
            if counts:
                self.refused(ValueError, "copy", good, packed(counts))
        self.refused(ValueError, "copy", good, b"1234567")
        for row in (
            (at, at, 1),  # over itself
            (at, at + 63, 64),
            (at + 63, at, 64),
            (0, at, 1),  # nowhere
            (at, 0, 1),
            (at, 2**64 - 1, 2),  # beyond the end
            (2**64 - 1, at, 2),
            (at, at + 64, 2**64 - 1),
            (1, at, 2**63),
        ):
            self.refused(ValueError, "copy", packed((at, at + 64, 64, *row)))
            self.refused(ValueError, "copy", packed((at, at + 64, 64, *row)), packed([2]))
        self.refused(ValueError, "copy", packed((1, 2**62, 2**61) * 4))  # in all
        self.assertEqual(memory, bytes(4096))

    def test_sums(self) -> None:
        at = bulk.address(b"hello")
        self.refused(TypeError, "sums", packed((at, 5)))
        self.refused(ValueError, "sums", packed((at, 5)), b"")
        self.refused(ValueError, "sums", packed((at, 5, 1)), packed([1]))
        self.refused(ValueError, "sums", packed((0, 5)), packed([1]))
        self.refused(ValueError, "sums", packed((at, 2**64 - 5)), packed([1]))

    def test_objects(self) -> None:
        at = bulk.address(b"hello")
        for rows in (5, None, [at], [[at, 5]], [(at,)], [(at, 5, 5)], [("x", 5)], [(at, None)]):
            self.refused(TypeError, "read", rows)
            self.refused(TypeError, "write", rows)
        for error, row in ((OverflowError, (-1, 5)), (OverflowError, (2**64, 5)), (ValueError, (at, -1)), (ValueError, (0, 5))):
            self.refused(error, "read", [row])
        self.refused(OverflowError, "write", [(-1, b"hello")])
        self.refused(ValueError, "write", [(0, b"hello")])
        self.refused(BufferError, "write", [(at, memoryview(b"hello")[::2])])
        self.refused(TypeError, "address", 5)
        self.refused(BufferError, "address", b"read-only", True)
        self.refused(BufferError, "address", memoryview(b"hello")[::2])


class Choice(unittest.TestCase):
    def test_says_once_that_the_extension_is_missing(self) -> None:
        _bulk_pure._say.cache_clear()
        with mock.patch.object(_bulk_pure.log, "warning") as warning:
            for _ in range(3):
                _bulk_pure.copy(b"")
        self.assertEqual(warning.call_count, 1)

    def test_without_any_sum(self) -> None:
        with mock.patch.object(_bulk_pure, "_sum", None):
            self.assertEqual(_bulk_pure.sums(packed((bulk.address(b"hello"), 5)), packed([1])), [None])
            self.assertEqual(_bulk_pure.read([(bulk.address(b"hello"), 5)]), [(b"hello", None)])
