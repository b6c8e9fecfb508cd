"""The bits of KvstoredL2Adapter: whose they are, and what the stand-in for LMCache's does."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
import unittest
from typing import Any, Dict, Iterator, Optional
from unittest import mock

from kvstored import lmcache_bitmap
from kvstored.lmcache_bitmap import StandIn

from . import contracts

FORMS = {form.name: form for form in contracts.load("lmcache")}
L2 = [form for form in FORMS.values() if form.data["target"] == "L2AdapterInterface"]
NATIVE, OLD = lmcache_bitmap.MODULES


class Chosen(unittest.TestCase):
    @contextlib.contextmanager
    def adapter(self, form: contracts.Form, without: bool = False, modules: Optional[Dict[str, Any]] = None) -> Iterator[Any]:
        """Our module where LMCache has this form, ``without`` its bitmap, and these modules."""
        classes = {path: c for path, c in form.classes.items() if not (without and path.endswith(".Bitmap"))}
        form = contracts.Form("lmcache", {**form.data, "classes": classes})
        with mock.patch.dict(sys.modules), form.installed():
            sys.modules.update(modules or {})
            with imported_anew() as module:
                yield module, form

    def test_lmcaches_own(self) -> None:
        """By either name; what is in both places is the newer one's."""
        for name in ("0.5.3 resp", "0.5.4 resp", "0.5.6 resp"):
            with self.subTest(name), self.adapter(FORMS[name]) as (module, form):
                self.assertIs(module.Bitmap, form.stand_in("Bitmap"))
                module.KvstoredL2Adapter({"socket": "/nonexistent/s"}).close()
        older = types.ModuleType(OLD)
        older.Bitmap = StandIn  # type: ignore[attr-defined]
        with self.adapter(FORMS["0.5.6 resp"], modules={OLD: older}) as (module, form):
            self.assertIs(module.Bitmap, form.stand_in("Bitmap"))

    def test_an_adapter_takes_the_calls(self) -> None:
        for form in L2:
            with self.subTest(form.name), self.adapter(form) as (module, _):
                self.assertEqual(form.refused(module.KvstoredL2Adapter), [])

    def test_lmcache_without_one(self) -> None:
        """The constructor says so. With another bitmap each prefetch would end, also of L1's own."""
        renamed, other, broken = types.ModuleType(NATIVE), types.ModuleType(NATIVE), types.ModuleType(NATIVE)
        other.Bitmap = object  # type: ignore[attr-defined]
        broken.__getattr__ = undefined  # type: ignore[method-assign]
        for modules, why in (
            ({}, "No module named 'lmcache.lmcache_native'.*No module named 'lmcache.native_storage_ops'"),
            ({NATIVE: None}, "import of lmcache.lmcache_native halted"),
            ({NATIVE: renamed}, "module 'lmcache.lmcache_native' has no attribute 'Bitmap'"),
            ({NATIVE: other}, "lmcache.lmcache_native: TypeError"),
            ({NATIVE: broken}, "lmcache.lmcache_native: RuntimeError: undefined symbol"),
        ):
            with self.subTest(why), self.adapter(FORMS["0.5.6 resp"], without=True, modules=modules) as (module, _):
                message = f"KvstoredL2Adapter: LMCache (of an unknown version|[0-9.]+) has no Bitmap .*{why}.* install "
                for given in ({"socket": "/nonexistent/s"}, None, {"socket": 5}):
                    with self.assertRaisesRegex(ImportError, message):
                        module.KvstoredL2Adapter(given)

    def test_without_lmcache(self) -> None:
        nowhere = mock.patch.dict(sys.modules, {"lmcache": None})
        with contracts._aside("lmcache"), nowhere, imported_anew() as module:
            self.assertIs(module.Bitmap, StandIn)
            module.KvstoredL2Adapter({"socket": "/nonexistent/s"}).close()


def undefined(name: str) -> Any:
    raise RuntimeError(f"undefined symbol: {name}")


@contextlib.contextmanager
def imported_anew() -> Iterator[Any]:
    """kvstored.lmcache_l2, imported anew."""
    with contracts._aside("kvstored.lmcache_l2"):
        yield importlib.import_module("kvstored.lmcache_l2")


def bitmap(cls: Any, size: int, *bits: int) -> Any:
    made = cls(size)
    for i in bits:
        made.set(i)
    return made


class Bits(unittest.TestCase):
    """Of the stand-in."""

    cls: Any = StandIn

    def text(self, bits: Any) -> str:
        return repr(bits).strip("'")

    def test_counts_and_gathers(self) -> None:
        for size, bits in ((0, []), (1, []), (1, [0]), (8, [0, 7]), (9, [8]), (12, [1, 3, 9]), (200, [*range(0, 200, 3)])):
            with self.subTest(size=size, bits=bits):
                b, items = bitmap(self.cls, size, *bits), [f"key {i}" for i in range(size)]
                self.assertEqual([i for i in range(size) if b.test(i)], bits)
                self.assertEqual((b.popcount(), b.get_indices_list(), b.get_indices_set()), (len(bits), bits, set(bits)))
                self.assertEqual(b.gather(items), [items[i] for i in bits])
                self.assertEqual(b.gather(tuple(items)), [items[i] for i in bits])
                self.assertEqual(self.text(b), "".join("01"[i in bits] for i in range(size)))
                self.assertEqual((len(b), b.size(), bool(b)), (size, size, size > 0))

    def test_beyond_the_end(self) -> None:
        """Nothing is there, and nothing is set."""
        b = bitmap(self.cls, 4, 2, 4, 5, 1000)
        self.assertEqual((self.text(b), b.popcount(), b.test(4), b.test(1000)), ("0010", 1, False, False))
        b.clear(1000)
        self.assertEqual((b.gather("abc"), b.gather("ab"), b.gather("abcdefg")), (["c"], [], ["c"]))

    def test_what_is_no_bit(self) -> None:
        b = self.cls(4)
        for wrong in (-1, 1.5, "1", None):
            for call in (b.set, b.test, b.clear, self.cls):
                with self.subTest(wrong=wrong, call=call), self.assertRaises(TypeError):
                    call(wrong)
        for items in (None, {1, 2}, 5):
            with self.assertRaises(TypeError):
                b.gather(items)
        self.assertEqual(self.text(b), "0000")

    def test_together(self) -> None:
        a, b = bitmap(self.cls, 5, 0, 1, 4), bitmap(self.cls, 4, 1, 2)
        got = [self.text(x) for x in (a & b, a | b, ~a, ~b, a & ~b, self.cls(0) | self.cls(0))]
        self.assertEqual(got, ["0100", "1110", "00110", "1001", "1000", ""])
        self.assertEqual([x.count_leading_ones() for x in (a, b, ~b, ~self.cls(3), self.cls(0))], [2, 0, 1, 3, 0])
        a.clear(0)
        self.assertEqual(self.text(a), "01001")

    def test_a_copy_is_another(self) -> None:
        a = bitmap(self.cls, 3, 1)
        b = a.copy()
        b.set(0)
        self.assertEqual((self.text(a), self.text(b)), ("010", "110"))


class Real(Bits):
    """LMCache's own has the contract that the stand-in has."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.cls, why = lmcache_bitmap.native()
        if not hasattr(cls.cls, "__len__"):
            raise unittest.SkipTest(f"no LMCache from 0.5.6 on here: {why or cls.cls}")


if __name__ == "__main__":
    unittest.main()
