"""The codec of this client against the schema of the protocol, with random messages:
requests are read by it, replies made by it, also as a later daemon would make them."""

import random
import unittest
from typing import Any, Callable, Iterator, Tuple

from kvstored import Code, Space, hashes
from kvstored import _wire as wire
from kvstored._wire import Op
from kvstored.errors import Retry

from . import schema
from .daemon import ROOT
from .schema import SCHEMA
from .test_golden import reader


def replies() -> "Iterator[Tuple[str, Callable[[bytes], Any], Any]]":
    for name in SCHEMA["operations"]:
        yield (name, *reader(wire.REPLY, name))
    for name in SCHEMA["pushes"]:
        yield (f"push {name}", *reader(wire.PUSH, name))
    yield "error", lambda body: wire.read_error(body, 0, len(body))[0], "error"


class Requests(unittest.TestCase):
    def test_every_operation(self) -> None:
        """A request is read as what it was to say."""
        rng = random.Random(1)
        for name, operation in SCHEMA["operations"].items():
            fields = [f for f in operation["request"] if f != "payloads"]
            for i in range(50):
                body, value = schema.make(fields, rng)
                if name == "hello":
                    body = wire.MAGIC + body[4:]
                with self.subTest(name, i=i):
                    made = schema.request(wire, name, fields, value)
                    self.assertEqual(len(made) % 8, 0, "a body is a multiple of 8 bytes")
                    self.assertEqual(schema.read(fields, made), schema.read(fields, body))

    def test_numbers(self) -> None:
        self.assertEqual({op.name.lower(): int(op) for op in Op}, {n: o["op"] for n, o in SCHEMA["operations"].items()})
        self.assertEqual({code.name.lower(): int(code) for code in Code}, schema.codes())
        self.assertEqual({r.name.lower(): int(r) for r in Retry}, SCHEMA["enums"]["retry"])
        self.assertEqual((wire.VERSION, wire.MAGIC.decode()), (SCHEMA["version"], SCHEMA["magic"]))
        self.assertEqual((wire.MOST_REPLY_BYTES, wire.MOST_SUMS), (SCHEMA["limits"]["reply_bytes"], SCHEMA["limits"]["sums"]))

    def test_ten_minutes(self) -> None:
        """The first frames that docs/protocol.md names."""
        text = (ROOT / "docs" / "ten_minutes.hex").read_text()
        raw = bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))
        chain = hashes(b"\1" * 8, [4], width=8)._replace(save_unfull=False).chain(wire.SpaceInfo(0, 4, b""))
        hello = wire.hello(name="demo", space=Space("demo", "bf16", 4, "given").record())
        made = [
            wire.frame(wire.REQUEST, Op.HELLO, 1, hello),
            wire.frame(wire.REQUEST, Op.PUT, 2, wire.put(chain, 0, 5, [5]) + b"hello\0\0\0"),
            wire.frame(wire.REQUEST, Op.GET, 3, wire.get(chain)),
        ]
        self.assertTrue(raw.startswith(b"".join(made)))


class Replies(unittest.TestCase):
    def each(self, grown: bool) -> None:
        rng = random.Random(1)
        for name, read, fields in replies():
            for i in range(200):
                body, value = schema.make(fields, rng, grown)
                want = None if fields == ["options none"] else schema.told(fields, value)
                with self.subTest(name, i=i):
                    self.assertEqual(read(body), want)
                    self.assertEqual(read(memoryview(body)), want)

    def test_as_the_schema_says(self) -> None:
        self.each(grown=False)

    def test_of_a_later_daemon(self) -> None:
        self.each(grown=True)

    def test_cut_short(self) -> None:
        """A body that ends early is malformed, wherever it ends."""
        rng = random.Random(4)
        for name, read, fields in replies():
            for _ in range(20):
                body, _ = schema.make(fields, rng)
                for end in range(0, len(body), 8):
                    with self.subTest(name, end=end), self.assertRaises(wire.Malformed):
                        read(body[:end])

    def test_damaged(self) -> None:
        """Whatever comes is read, or it is malformed: nothing else is raised, nothing takes long."""
        rng = random.Random(5)
        for name, read, fields in replies():
            for _ in range(300):
                body, _ = schema.make(fields, rng)
                noise = bytes(rng.randrange(256) if rng.random() < 0.05 else b for b in body)
                try:
                    read(noise)
                except wire.Malformed:
                    pass

    def test_options(self) -> None:
        def body(*tags: int) -> bytes:
            return len(tags).to_bytes(8, "little") + b"".join(t.to_bytes(4, "little") + bytes(4) for t in tags)

        wire.ping_reply(body(5, 9))
        for bad in (body(9, 5), body(5, 5), body(0x8005), body(5)[:-8]):
            with self.assertRaises(wire.Malformed):
                wire.ping_reply(bad)
