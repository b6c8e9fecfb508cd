"""Whose bits KvstoredL2Adapter answers in."""

import contextlib
import importlib
import sys
import types
import unittest
from typing import Any, Dict, Iterator
from unittest import mock

from . import contracts
from .lmcache_bitmap import Bitmap
from .lmcache_engine import l2, stand_ins

L2 = [form for form in contracts.load("lmcache") if form.data["target"] == "L2AdapterInterface"]
NATIVE, OLD = l2._NATIVE


class Chosen(unittest.TestCase):
    @contextlib.contextmanager
    def without(self, modules: Dict[str, Any]) -> Iterator[Any]:
        """Our module where LMCache has no bitmap, and these modules."""
        classes = {path: c for path, c in L2[-1].classes.items() if not path.endswith(".Bitmap")}
        with stand_ins(contracts.Form("lmcache", {**L2[-1].data, "classes": classes}), modules) as module:
            yield module

    def test_lmcaches_own(self) -> None:
        """By either name; an adapter on it takes LMCache's calls."""
        for form in L2:
            with self.subTest(form.name), stand_ins(form) as module:
                self.assertIs(module.Bitmap, Bitmap)
                module.KvstoredL2Adapter({"socket": "/nonexistent/s"}).close()
                self.assertEqual(form.refused(module.KvstoredL2Adapter), [])

    def test_lmcache_without_one(self) -> None:
        """The constructor says so. With another bitmap each prefetch would end, also of L1's own."""
        renamed, other, broken = types.ModuleType(NATIVE), types.ModuleType(NATIVE), types.ModuleType(NATIVE)
        other.Bitmap = object  # type: ignore[attr-defined]
        broken.__getattr__ = undefined  # type: ignore[method-assign]
        gone = "No module named 'lmcache.lmcache_native'.*No module named 'lmcache.native_storage_ops'"
        for modules, why in (
            ({}, gone),
            ({NATIVE: None}, "import of lmcache.lmcache_native halted"),
            ({NATIVE: renamed}, "module 'lmcache.lmcache_native' has no attribute 'Bitmap'"),
            ({NATIVE: other}, "lmcache.lmcache_native: TypeError"),
            ({NATIVE: broken}, "lmcache.lmcache_native: RuntimeError: undefined symbol"),
        ):
            with self.subTest(why), self.without(modules) as module:
                for given in ({"socket": "/nonexistent/s"}, None, {"socket": 5}):
                    with self.assertRaisesRegex(ImportError, f"KvstoredL2Adapter: .* Bitmap.*{why}.* install "):
                        module.KvstoredL2Adapter(given)

    def test_without_lmcache(self) -> None:
        with contracts._aside("lmcache", "kvstored.lmcache.l2"), mock.patch.dict(sys.modules, {"lmcache": None}):
            module = importlib.import_module("kvstored.lmcache.l2")
            with self.assertRaisesRegex(ImportError, "KvstoredL2Adapter: .* Bitmap .*No module named .* install "):
                module.KvstoredL2Adapter({})


def undefined(name: str) -> Any:
    raise RuntimeError(f"undefined symbol: {name}")


class Interface(unittest.TestCase):
    def test_the_engine_on_the_path(self) -> None:
        """What LMCache's own classes have and the data has not, by name."""
        try:
            import lmcache  # noqa: F401
        except ImportError as e:
            self.skipTest(f"no LMCache here: {e}")
        form, differences = contracts.nearest(L2)
        self.assertEqual(differences, [], f"LMCache's interface is nearest to {form}, and differs from it")
