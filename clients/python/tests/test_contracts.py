"""The data of contracts/ itself, what is built from it, and how it is compared."""

import abc
import enum
import importlib
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import contracts

ENGINES = sorted(p.stem for p in Path(contracts.__file__).parent.glob("*.json"))


class Data(unittest.TestCase):
    def test_every_form_is_whole(self) -> None:
        """Its calls are of methods that its classes have, with the parameters that they have."""
        for form in (form for engine in ENGINES for form in contracts.load(engine)):
            with self.subTest(repr(form)):
                self.assertTrue(form.data["about"] and form.data["read"])
                caller = next(cls for cls in form.stand_ins.values() if getattr(cls, "__abstractmethods__", None))
                callee = form.stand_in(form.data.get("target", caller.__name__))
                self.assertEqual(form.refused(callee), [])
                self.assertEqual(len(form.refused(object)), sum(map(len, form.calls.values())))
                for path, data in form.classes.items():
                    self.assertEqual(contracts.compare(form.stand_ins[path], data), [])

    def test_installed(self) -> None:
        """A module of ours is another one meanwhile, and the same as before afterwards."""
        before = importlib.import_module("kvstored.options")
        with contracts.load("vllm")[-1].installed("kvstored.options") as (options,):
            self.assertIsNot(options, before)
            self.assertIs(importlib.import_module("kvstored").options, options)  # "from . import options"
        self.assertIs(importlib.import_module("kvstored.options"), before)
        self.assertIs(importlib.import_module("kvstored").options, before)

    def test_names_are_unique(self) -> None:
        for engine in ENGINES:
            names = [form.name for form in contracts.load(engine)]
            self.assertEqual(len(names), len(set(names)))


class Thing(abc.ABC):
    """What ``described`` describes."""

    def __init__(self, size: int) -> None:
        self.size = size

    @abc.abstractmethod
    def get(self, key: bytes, wait: bool = False) -> None: ...

    @classmethod
    def make(cls, config: dict) -> "Thing": ...


@dataclass
class Row:
    key: bytes
    size: int = 0


class Kind(enum.Enum):
    A = 1
    B = 2


def described(**changed: Any) -> Any:
    methods = {"__init__": "(self, size)", "get": "(self, key, wait=False) -> ...", "make": "(cls, config)"}
    return {"sets": {"size": "size"}, "methods": {**methods, **changed}}


class Compared(unittest.TestCase):
    def differences(self, real: Any = Thing, *, remove: str = "", **changed: Any) -> str:
        data = described(**changed)
        data["methods"].pop(remove, None)
        return "; ".join(contracts.compare(real, data))

    def test_what_is_the_same(self) -> None:
        self.assertEqual(self.differences(), "")
        self.assertEqual(contracts.compare(Row, {"fields": "(key, size=...)"}), [])
        self.assertEqual(contracts.compare(Kind, {"members": {"A": 1, "B": 2}}), [])

    def test_what_differs_is_named(self) -> None:
        for want, changed in (
            ("Thing.make is not in the data", dict(remove="make")),
            ("Thing.put is gone", dict(put="(self, key)")),
            ("Thing.get: wait is not in the data", dict(get="(self, key) -> ...")),
            ("Thing.get: pool is gone", dict(get="(self, key, wait=False, pool=None) -> ...")),
            ("Thing.get: wait has the default False, in the data True", dict(get="(self, key, wait=True) -> ...")),
            ("Thing.get: wait is positional or keyword, in the data keyword-only", dict(get="(self, key, *, wait=False) -> ...")),
            ("Thing.get takes self, key, wait, in the data self, wait, key", dict(get="(self, wait=False, key=...) -> ...")),
            ("Thing.get is abstract", dict(get="(self, key, wait=False)")),
            ("Thing.make is a classmethod, in the data a function", dict(make="(self, cls, config)")),
        ):
            self.assertIn(want, self.differences(**changed))
        row = contracts.compare(Row, {"fields": "(key)"})
        self.assertEqual(row, ["Row: size is not in the data", "Row.size is not in the data"])
        kind = contracts.compare(Kind, {"members": {"A": 1, "C": 3}})
        self.assertEqual(kind, ["Kind.B is not in the data", "Kind.C is gone"])
        self.assertIn("is gone", contracts.differences("json.Nothing", {"members": {}})[0])
        self.assertIn("is gone", contracts.differences("no_such_engine.Thing", {"members": {}})[0])
