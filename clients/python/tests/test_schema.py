"""The codec of this client against the schema of the protocol: requests are read
by it, replies made by it, also as a later daemon would make them."""

from __future__ import annotations

import random
import re
import unittest
from typing import Any, Dict, Optional

from kvstored import Code, vllm_follow, wire
from kvstored.errors import Retry
from kvstored.wire import Op, Space

from . import schema
from .daemon import ROOT
from .schema import SCHEMA

SPACE = Space("m", "bf16", 4, "given:x", "r", "l", 2, 1, "g", "s", (("a", "1"), ("b", "2")))
HASHES = wire.chain_hashes(3, 8, bytes(range(24)), 2, skip=1, save_unfull=True, keep=9)
REQUESTS: Dict[str, bytes] = {
    "hello": wire.hello(11, "name", 1 << 20, SPACE),
    "open_space": wire.open_space(SPACE),
    "lookup": wire.lookup(HASHES, 3, [4, 5]),
    "prefetch": wire.prefetch(wire.chain_tokens(1, [1, 2, 3]), 1, True, 2, 500, "id", [("a", "b")], [2], 1000),
    "wait": wire.wait(7, 100, 250, 2),
    "cancel": wire.numbered(12),
    "reserve": wire.reserve(wire.chain_ref(7, 2), [5, 6, 7], 1, 3, True, 100, [(1, 1 << 63)]),
    "commit": wire.fill(8, 1, 2),
    "abort": wire.fill(8),
    "put": wire.put(HASHES, 1, [b"a", b"bcd"]),
    "get": wire.get(wire.chain_kept(9), 1, 2, 3, 100),
    "release": wire.numbered(7),
    "renew": wire.numbered(7),
    "pin": wire.pin(HASHES, "name", 1000),
    "unpin": wire.unpin("name"),
    "delete": wire.delete(wire.chain_none(4), 100),
    "flush": wire.flush(True, 100),
    "stats": wire.empty(),
    "ping": wire.empty(),
    "warm": wire.warm(None, "name", 2, 100),
    "hint": wire.hint(HASHES, [("session", "s")], "", [2]),
    "batch": wire.batch([(HASHES, "a", 1), (wire.chain_ref(7), "", 0)], 16, 1, True, 1, 100, [2], 1000, [("a", "b")]),
    "events": vllm_follow.request(),
}


class Requests(unittest.TestCase):
    def test_every_operation(self) -> None:
        self.assertEqual(set(REQUESTS), set(SCHEMA["operations"]), "requests of this test")
        for name, body in REQUESTS.items():
            with self.subTest(name):
                self.assertEqual(len(body) % 8, 0, "a body is a multiple of 8 bytes")
                schema.read(SCHEMA["operations"][name]["request"], body)

    def test_what_they_say(self) -> None:
        read = {name: schema.read(SCHEMA["operations"][name]["request"], body) for name, body in REQUESTS.items()}
        space = read["open_space"]["space"]
        self.assertEqual((space["model"], space["world"], space["worker"], space["salt"]), ("m", 2, 1, "s"))
        self.assertEqual(space["tags"], [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}])
        chain = read["lookup"]["chain"]
        self.assertEqual((chain["space"], chain["form"], chain["flags"], chain["skip"], chain["last_tokens"]), (3, 1, 1, 1, 2))
        self.assertEqual((chain["id"], chain["items"]), (9, [bytes(range(8)), bytes(range(8, 16)), bytes(range(16, 24))]))
        self.assertEqual(read["lookup"]["options"], {"ranks": [4, 5]})
        self.assertEqual(read["wait"]["options"], {"deadline": 250})
        self.assertEqual((read["wait"]["min_tokens"], read["wait"]["from"]), (100, 2))
        self.assertEqual(read["reserve"]["options"]["sums"], [{"slot": 1, "sum": 1 << 63}])
        self.assertEqual(read["reserve"]["sizes"], [5, 6, 7])
        self.assertEqual((read["put"]["sizes"], read["put"]["payloads"]), ([1, 3], b"abcd" + bytes(4)))
        self.assertEqual(read["prefetch"]["options"]["configs"], [{"name": "a", "value": "b"}])
        self.assertEqual(read["batch"]["prompts"][0]["overtaken"], 1)
        self.assertEqual(read["hello"]["options"]["space"]["model"], "m")

    def test_numbers(self) -> None:
        self.assertEqual({op.name.lower(): int(op) for op in Op}, {n: o["op"] for n, o in SCHEMA["operations"].items()})
        self.assertEqual({code.name.lower(): int(code) for code in Code}, schema.codes())
        self.assertEqual({r.name.lower(): int(r) for r in Retry}, SCHEMA["enums"]["retry"])
        self.assertEqual(wire.Limits._fields, tuple(f.split()[0] for f in SCHEMA["types"]["limits"]))
        self.assertEqual((wire.VERSION, wire.MAGIC.decode()), (SCHEMA["version"], SCHEMA["magic"]))
        self.assertEqual((wire.MAX_BODY, wire.MAX_SUMS), (SCHEMA["limits"]["reply_bytes"], SCHEMA["limits"]["sums"]))

    def test_ten_minutes(self) -> None:
        """The bytes at the beginning of the document."""
        text = (ROOT / "docs" / "protocol.md").read_text()
        block = re.search("```hex ten_minutes\n(.*?)```", text, re.DOTALL)
        assert block is not None
        raw = bytes.fromhex("".join(line.partition("#")[0] for line in block.group(1).splitlines()))
        chain = wire.chain_hashes(0, 8, b"\1" * 8)
        made = [
            wire.frame(wire.REQUEST, Op.HELLO, 1, wire.hello(0, "demo", 0, Space("demo", "bf16", 4, "given"))),
            wire.frame(wire.REQUEST, Op.PUT, 2, wire.put(chain, 0, [b"hello"])),
            wire.frame(wire.REQUEST, Op.GET, 3, wire.get(chain)),
        ]
        self.assertTrue(raw.startswith(b"".join(made)))


def _count(value: Dict[str, int]) -> wire.Count:
    return wire.Count(value["chunks"], value["tokens"])


def _state(value: Dict[str, Any]) -> wire.JobState:
    tiers = [_count(c) for c in value["tiers"]][:3]
    return wire.JobState(
        value["code"] != wire.RUNNING,
        value["code"],
        {1: "cpu", 2: "disk", 4: "remote"}.get(value["failed_tier"], ""),
        _count(value["ready"]),
        tuple(tiers + [wire.Count()] * (3 - len(tiers))),
        value["first"],
        [wire.Ref(r["offset"], r["sum"], r["bytes"], r["tokens"]) for r in value["refs"]],
        _needs(value["options"].get("needs", [])),
    )


def _needs(value: Any) -> Any:
    return tuple(wire.Need(*(n[field] for field in wire.Need._fields)) for n in value)


def _grouped(options: Dict[str, Any]) -> Any:
    value, lengths = options.get("grouped"), tuple(options.get("lengths") or ())
    return value and wire.Grouped(value["tokens"], value["run"], value["lacks"], _needs(value["needs"]), lengths)


def _missing(value: Optional[Dict[str, int]]) -> Optional[wire.Missing]:
    if value is None:
        return None
    tier = {1: "cpu", 2: "disk", 4: "remote"}.get(value["tier"], "")
    return wire.Missing(value["code"], tier, None if value["ago"] == 0xFFFFFFFF else value["ago"])


def _match(value: Dict[str, Any], worth: Any, options: Dict[str, Any] = {}) -> wire.Match:
    tiers = ([_count(c) for c in value["tiers"]] + [wire.Count()] * 3)[:3]
    return wire.Match(_count(value["total"]), *tiers, worth, _grouped(options), _missing(options.get("missing")))


def _prefetched(value: Dict[str, Any]) -> Any:
    advice = value["options"].get("advice")
    return wire.Prefetched(
        value["job"],
        _match(value["match"], value["worth"], value["options"]),
        _state(value["state"]),
        wire.Advice(_count(advice["load"]), advice["micros"]) if advice else None,
        _faults(value["options"]),
    )


def _faults(options: Dict[str, Any]) -> Any:
    listed = options.get("hints", [])
    return tuple(wire.Fault(f["code"], -1 if f["action"] == wire.MAX_U32 else f["action"], f["name"], f["text"]) for f in listed)


def _info(value: Dict[str, Any]) -> wire.SpaceInfo:
    return wire.SpaceInfo(value["handle"], value["chunk_tokens"], value["id"])


def _hello(v: Dict[str, Any]) -> wire.Hello:
    space = v["options"].get("space")
    fields = {name: v[name] for name in wire.Hello._fields if name not in ("limits", "space")}
    return wire.Hello(**fields, space=_info(space) if space else None, limits=wire.Limits(**v["limits"]))


#: Operation: how its reply is read here, and what it says.
REPLIES: Dict[str, Any] = {
    "hello": (wire.hello_reply, _hello),
    "open_space": (wire.open_space_reply, lambda v: _info(v["space"])),
    "lookup": (wire.lookup_reply, lambda v: _match(v["match"], v["worth"], v["options"])),
    "prefetch": (wire.prefetch_reply, _prefetched),
    "wait": (wire.job_state, _state),
    "cancel": (wire.cancel_reply, lambda v: v["code"]),
    "reserve": (
        wire.reserve_reply,
        lambda v: (
            v["fill"],
            v["code"],
            [wire.Slot(s["code"], s["bytes"], s["offset"]) for s in v["slots"]],
            v["options"].get("differ", []),
        ),
    ),
    "commit": (wire.store_reply, lambda v: [wire.Stored(r["code"], r["sum"]) for r in v["results"]]),
    "abort": (wire.plain_reply, lambda v: None),
    "put": (wire.store_reply, lambda v: [wire.Stored(r["code"], r["sum"]) for r in v["results"]]),
    "get": (wire.get_reply, lambda v: [(p, c["tokens"], c["sum"]) for c, p in zip(v["chunks"], v["payloads"])]),
    "release": (wire.release_reply, lambda v: v["code"] == 0),
    "renew": (wire.renew_reply, lambda v: v["holds_ms"]),
    "pin": (wire.pin_reply, lambda v: _count(v["pinned"])),
    "unpin": (wire.number_reply, lambda v: v["chunks"]),
    "delete": (wire.number_reply, lambda v: v["chunks"]),
    "flush": (
        wire.flush_reply,
        lambda v: wire.Flushed(v["chunks"], v["bytes"], {x["reason"]: (x["chunks"], x["bytes"]) for x in v["left"]}),
    ),
    "stats": (wire.stats_reply, lambda v: v["json"].encode()),
    "ping": (wire.plain_reply, lambda v: None),
    "warm": (wire.warm_reply, lambda v: (_match(v["match"], None), _state(v["state"]))),
    "events": (wire.number_reply, lambda v: v["next"]),
    "hint": (wire.hint_reply, lambda v: wire.Hinted(_count(v["retained"]), _faults(v["options"]))),
}


class Replies(unittest.TestCase):
    def each(self, grown: bool) -> None:
        rng = random.Random(1)
        self.assertEqual(set(REPLIES) | {"batch"}, set(SCHEMA["operations"]), "replies of this test")
        for name, (read, says) in REPLIES.items():
            for i in range(200):
                body, values = schema.make(SCHEMA["operations"][name]["reply"], rng, grown)
                with self.subTest(name, i=i):
                    self.assertEqual(read(body), says(values))

    def test_as_the_schema_says(self) -> None:
        self.each(grown=False)

    def test_of_a_later_daemon(self) -> None:
        self.each(grown=True)

    def test_batch(self) -> None:
        rng = random.Random(2)
        for grown in (False, True):
            for i in range(200):
                body, values = schema.make(SCHEMA["operations"]["batch"]["reply"], rng, grown)
                with self.subTest(i=i, grown=grown):
                    if len(values["order"]) != len(values["jobs"]):
                        self.assertRaises(wire.Malformed, wire.batch_reply, body)
                        continue
                    jobs, order = wire.batch_reply(body)
                    self.assertEqual(order, values["order"])
                    for job, said in zip(jobs, values["jobs"]):
                        self.assertEqual((job.code, job.text), (said["code"], said["text"]))
                        self.assertEqual(job.prefetch, None if said["code"] else _prefetched(said["reply"]))

    def test_events(self) -> None:
        rng = random.Random(5)
        for grown in (False, True):
            for _ in range(200):
                body, v = schema.make(SCHEMA["pushes"]["events"]["body"], rng, grown)
                events = [vllm_follow.Event(e["kind"], e["tier"], (e["space"], e["hash"])) for e in v["events"]]
                self.assertEqual(vllm_follow.push(body), (bool(v["flags"] & SCHEMA["enums"]["events_push_flags"]["lost"]), events))

    def test_errors(self) -> None:
        rng = random.Random(3)
        for grown in (False, True):
            for _ in range(200):
                body, v = schema.make("error", rng, grown)
                want = wire.Refusal(v["retry"], v["after_ms"], v["text"], v["options"].get("limit"))
                self.assertEqual(wire.error_reply(body), want)

    def test_cut_short(self) -> None:
        """A body that ends early is malformed, wherever it ends."""
        rng = random.Random(4)
        for name, (read, _) in REPLIES.items():
            for _ in range(20):
                body, _ = schema.make(SCHEMA["operations"][name]["reply"], rng)
                for end in range(0, len(body), 8):
                    with self.subTest(name, end=end), self.assertRaises(wire.Malformed):
                        read(body[:end])

    def test_options(self) -> None:
        def body(*tags: int) -> bytes:
            return len(tags).to_bytes(8, "little") + b"".join(t.to_bytes(4, "little") + bytes(4) for t in tags)

        wire.plain_reply(body(5, 9))
        for bad in (body(9, 5), body(5, 5), body(0x8005), body(5)[:-8]):
            with self.assertRaises(wire.Malformed):
                wire.plain_reply(bad)


if __name__ == "__main__":
    unittest.main()
