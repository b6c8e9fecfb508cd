"""Golden frames of testdata/wire, which Go reads and writes too: requests made here are
those bytes, and replies say here what they say to the schema, and as callers see it.
test_schema has every message, with random values."""

import threading
import unittest
from pathlib import Path
from typing import Any, Callable, Tuple

import kvstored
from kvstored import _wire as wire
from kvstored import Count, Match, Missing
from kvstored._connection import version_reply
from kvstored.answers import Advice, Fault, Flushed, Grouped, Hinted, Need, State

from . import schema
from .daemon import ROOT
from .schema import SCHEMA
from .stub import Hanging

GOLDEN = ROOT / "testdata" / "wire"
OPERATIONS = {o["op"]: name for name, o in SCHEMA["operations"].items()}
PUSHES = {p["op"]: name for name, p in SCHEMA["pushes"].items()}


def read(path: Path) -> bytes:
    return bytes.fromhex("".join(line.partition("#")[0] for line in path.read_text().splitlines()))


def reader(kind: int, of: str) -> "Tuple[Callable[[bytes], Any], Any]":
    """What reads such a reply or push here, and its fields."""
    if kind == wire.PUSH:
        return getattr(wire, f"{of}_push"), SCHEMA["pushes"][of]["body"]
    return getattr(wire, f"{of}_reply"), SCHEMA["operations"][of]["reply"]


class Golden(unittest.TestCase):
    def test_each(self) -> None:
        seen = set()
        for path in sorted(GOLDEN.glob("*.hex")):
            raw = read(path)
            length, kind, op, code, _ = wire.HEADER.unpack_from(raw)
            body = raw[wire.HEADER.size :]
            if code or "version" in path.stem or path.stem == "ping_option_request" or path.stem.startswith("newer_"):
                continue  # errors, and what no client or daemon of this version sends
            of = (PUSHES if kind == wire.PUSH else OPERATIONS)[op]
            seen.add((kind, of))
            with self.subTest(path.stem):
                self.assertEqual(length, len(body))
                if kind == wire.REQUEST:
                    fields = SCHEMA["operations"][of]["request"]
                    self.assertEqual(schema.request(wire, of, fields, schema.read(fields, body)).hex(), body.hex())
                else:
                    decode, fields = reader(kind, of)
                    want = None if fields == ["options none"] else schema.told(fields, schema.read(fields, body))
                    self.assertEqual(decode(body), want)
        every = {(kind, of) for kind in (wire.REQUEST, wire.REPLY) for of in SCHEMA["operations"]}
        self.assertEqual(seen, every | {(wire.PUSH, of) for of in SCHEMA["pushes"]})

    def test_of_a_newer_daemon(self) -> None:
        """What it has added is passed over."""
        for path in sorted((GOLDEN / "newer").glob("*.hex")):
            newer, now = read(path), read(GOLDEN / path.name)
            _, kind, op, code, _ = wire.HEADER.unpack_from(now)
            decode: Callable[[bytes], Any] = lambda body: wire.read_error(body, 0, len(body))[0]  # noqa: E731
            if not code:
                decode, _ = reader(kind, (PUSHES if kind == wire.PUSH else OPERATIONS)[op])
            with self.subTest(path.stem):
                self.assertEqual(decode(newer[wire.HEADER.size :]), decode(now[wire.HEADER.size :]))

    def body(self, name: str) -> bytes:
        return read(GOLDEN / f"{name}.hex")[wire.HEADER.size :]

    def test_as_callers_see_it(self) -> None:
        match = Match(Count(3, 768), Count(1, 256), Count(2, 512), Count(), 4)
        of = wire.lookup_reply(self.body("lookup_why_reply"))
        self.assertEqual(Match.of(of.match, of), match._replace(missing=Missing(33, "disk", 3600)))
        of = wire.lookup_reply(self.body("lookup_lengths_reply"))
        needs = (Need(1, 0, 3, 1, 2, 0), Need(2, 2, 1, 0, 1, 0))
        self.assertEqual(Match.of(of.match, of), match._replace(worth=3, grouped=Grouped(768, 1024, 2, needs, (768, 256))))
        job = wire.prefetch_reply(self.body("prefetch_why_reply"))
        self.assertEqual(Match.of(job.match, job).missing, Missing(32))
        self.assertEqual(Advice.of(wire.prefetch_reply(self.body("prefetch_advice_reply")).advice), Advice(Count(2, 512), 1500))
        self.assertEqual(State.of(wire.wait_reply(self.body("wait_reply"))), State(True, 30, Count(2, 512), "disk"))
        self.assertEqual(State.of(wire.job_push(self.body("newer_wait_reply"))), State(True, 999, Count(1, 256)))
        self.assertEqual(Flushed.of(wire.flush_reply(self.body("flush_reply"))), Flushed(40, 40 << 16, {"tier_off": (1, 65536)}))
        hinted = Hinted.of(wire.hint_reply(self.body("hint_reply")))
        self.assertEqual(hinted.retained, Count(3, 768))
        self.assertEqual(hinted.faults[1], Fault(1, -1, "pause_seconds", '"soon" is no number'))
        refused = kvstored.errors.refusal(wire.Op.RESERVE, 6, self.body("error_later_reply"))
        self.assertEqual((refused.text, refused.retry, refused.after), ("no room", 2, 0.1))

    def test_a_daemon_of_version_1(self) -> None:
        """Its recorded answer is one clear error, and the client is closed."""
        self.assertEqual("update the older", version_reply(self.body("version_reply")))
        answer = bytearray(read(GOLDEN / "version_1_reply.hex"))
        daemon = Hanging()
        with daemon as path:

            def serve() -> None:
                conn, _ = daemon.listener.accept()
                with conn:
                    answer[8:16] = conn.recv(4096)[8:16]  # the id
                    conn.sendall(answer)

            threading.Thread(target=serve).start()
            with self.assertRaises(kvstored.Refused) as caught:
                kvstored.Client(path)
        self.assertEqual(kvstored.Code.VERSION, caught.exception.code)
        self.assertIn("versions 2 to 2, the daemon 1; update the older one", str(caught.exception))
