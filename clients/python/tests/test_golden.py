"""Every golden frame of testdata/wire: requests made here are those bytes, and
replies are read as what their comments say."""

from __future__ import annotations

import unittest
from pathlib import Path

from kvstored import wire
from kvstored.wire import Count, JobState, Match, Op, Ref, Slot, Space, SpaceInfo, Stored

from .daemon import ROOT

GOLDEN = ROOT / "testdata" / "wire"

SPACE = Space(
    model="llama-3-8b",
    revision="main",
    world=2,
    worker=1,
    dtype="bf16",
    chunk_tokens=256,
    method="sha256",
    salt="s3cret",
    tags=(("layout", "hnd"),),
)
TOKENS = [101, 102, 103, 104, 105]
H = [bytes(range(16 * i, 16 * i + 8)) for i in (1, 2, 3)]
SIXTEEN = bytes(range(0x10, 0x20)) + bytes(range(0x20, 0x30))
BY_TOKENS = wire.chain_tokens(1, TOKENS)
SPACE_ID = bytes(range(0xA0, 0xB0))

REQUESTS = {
    "hello": (Op.HELLO, 1, wire.hello(0x0B, "worker-1", 64 << 20, SPACE)),
    "open_space": (Op.OPEN_SPACE, 2, wire.open_space(SPACE)),
    "lookup": (Op.LOOKUP, 3, wire.lookup(BY_TOKENS, 3)),
    "lookup_hashes": (
        Op.LOOKUP,
        3,
        wire.lookup(wire.chain_hashes(2, 8, b"".join(H), [256, 256, 100], skip=1, save_unfull=True)),
    ),
    "lookup_alone": (
        Op.LOOKUP,
        3,
        wire.lookup(wire.chain_hashes(2, 8, b"".join(H[:2]), [256, 256], save_unfull=True, alone=True)),
    ),
    "prefetch": (
        Op.PREFETCH,
        4,
        wire.prefetch(
            wire.chain_tokens(1, TOKENS, save_unfull=True),
            pin=True,
            policy=3,
            deadline_ms=2000,
            lookup_id="req-42",
            configs=[("priority", "high")],
        ),
    ),
    "prefetch_ranks": (Op.PREFETCH, 4, wire.prefetch(BY_TOKENS, ranks=[2, 3], prefill_rate=20000)),
    "lookup_ranks": (Op.LOOKUP, 3, wire.lookup(wire.chain_ref(7), ranks=[2, 3])),
    "warm": (Op.WARM, 20, wire.warm(BY_TOKENS, search=2, timeout_ms=500)),
    "warm_named": (Op.WARM, 20, wire.warm(lookup_id="req-42")),
    "batch": (
        Op.BATCH,
        21,
        wire.batch(
            [(BY_TOKENS, "req-42", 0), (wire.chain_ref(7), "", 3)], 16, policy=3, deadline_ms=2000, prefill_rate=20000
        ),
    ),
    "batch_configs": (
        Op.BATCH,
        21,
        wire.batch(
            [(BY_TOKENS, "req-42", 0), (wire.chain_ref(7), "", 3)],
            16,
            policy=3,
            deadline_ms=2000,
            prefill_rate=20000,
            configs=[("priority", "high")],
        ),
    ),
    "wait": (Op.WAIT, 5, wire.wait(7, 768, 500)),
    "cancel": (Op.CANCEL, 6, wire.job(7)),
    "reserve": (Op.RESERVE, 7, wire.reserve(wire.chain_ref(7), [65536], first=1, count=3)),
    "reserve_sums": (
        Op.RESERVE,
        7,
        wire.reserve(wire.chain_ref(7), [65536], first=1, count=3, sums=[(1, 0x0102030405060708)]),
    ),
    "commit": (Op.COMMIT, 8, wire.fill(8)),
    "abort": (Op.ABORT, 9, wire.fill(8, 1, 2)),
    "put": (
        Op.PUT,
        10,
        wire.put(wire.chain_hashes(2, 8, b"".join(H[:2]), [256, 256], save_unfull=True), 0, [b"hello", b"KVS"]),
    ),
    "get": (Op.GET, 11, wire.get(wire.chain_ref(7), max_chunks=4, max_bytes=1 << 20, deadline_ms=100)),
    "release": (Op.RELEASE, 12, wire.job(7)),
    "renew": (Op.RENEW, 13, wire.job(7)),
    "pin": (Op.PIN, 14, wire.pin(BY_TOKENS, "req-42", 60000)),
    "unpin": (Op.UNPIN, 15, wire.unpin("req-42")),
    "delete_chunks": (Op.DELETE, 16, wire.delete_chunks(1, 16, SIXTEEN)),
    "delete_chain": (Op.DELETE, 16, wire.delete_chain(BY_TOKENS)),
    "delete_space": (Op.DELETE, 16, wire.delete_space(1)),
    "flush": (Op.FLUSH, 17, wire.flush(True, 10000)),
    "stats": (Op.STATS, 18, wire.empty()),
    "ping": (Op.PING, 19, wire.empty()),
    "ping_option": (Op.PING, 20, wire.empty(wire.options([(0x8001, bytes([1, 2, 3, 4]))]))),
}

MATCH = Match(Count(3, 768), Count(1, 256), Count(2, 512), Count(), 4)
HELLO_SUM = 0x9555E8555C62DCFD

STATE = JobState(
    False,
    0,
    "",
    Count(1, 256),
    (Count(1, 256), Count(), Count()),
    0,
    [Ref(8192, 0x0102030405060708, 65536, 256)],
)

ADVISED = (
    7,
    MATCH,
    STATE,
    wire.Advice(Count(2, 512), 1500),
)

REPLIES = {
    "prefetch_advice_reply": (wire.prefetch_advised_reply, ADVISED),
    "warm_reply": (
        wire.warm_reply,
        (
            MATCH._replace(worth=None),
            JobState(True, 1, "", Count(3, 768), (Count(1, 256), Count(2, 512), Count()), 0, []),
        ),
    ),
    "batch_reply": (
        wire.batch_reply,
        ([wire.BatchJob(0, "", ADVISED), wire.BatchJob(10, "no such job", None)], [1, 0]),
    ),
    "hello_reply": (
        wire.hello_reply,
        wire.Hello(
            version=1,
            rights=3,
            put_mode=1,
            granted=0x0B,
            epoch=0x1122334455667788,
            arena_bytes=4 << 30,
            staging_bytes=64 << 20,
            descriptors=2,
            max_body=72 << 20,
            max_payload=64 << 20,
            lease_millis=300000,
            space=SpaceInfo(1, SPACE_ID, 256),
            server="kvstored 1.0.0",
        ),
    ),
    "open_space_reply": (wire.open_space_reply, SpaceInfo(2, SPACE_ID, 256)),
    "lookup_reply": (wire.lookup_reply, MATCH),
    "prefetch_reply": (
        wire.prefetch_reply,
        (
            7,
            MATCH,
            STATE,
        ),
    ),
    "prefetch_push": (
        wire.job_state,
        JobState(
            True,
            1,
            "",
            Count(3, 768),
            (Count(1, 256), Count(2, 512), Count()),
            1,
            [Ref(73728, 0x1112131415161718, 65536, 256), Ref(139264, 0x2122232425262728, 65536, 256)],
        ),
    ),
    "wait_reply": (
        wire.job_state,
        JobState(
            True,
            3,
            "disk",
            Count(2, 512),
            (Count(1, 256), Count(1, 256), Count()),
            1,
            [Ref(73728, 0x1112131415161718, 65536, 256)],
        ),
    ),
    "cancel_reply": (
        wire.job_state,
        JobState(True, 8, "", Count(1, 256), (Count(1, 256), Count(), Count()), 1, []),
    ),
    "reserve_reply": (wire.reserve_reply, (8, 6, [Slot(0, 65536, 4096), Slot(1, 65536, 0)], [])),
    "reserve_sums_reply": (wire.reserve_reply, (8, 6, [Slot(0, 65536, 4096), Slot(1, 65536, 0)], [1])),
    "commit_reply": (wire.store_reply, [Stored(0, 0x0102030405060708), Stored(3, 0)]),
    "abort_reply": (wire.empty_reply, None),
    "put_reply": (wire.store_reply, [Stored(1, HELLO_SUM), Stored(5, 0)]),
    "get_reply": (wire.get_reply, [(b"hello", 256, HELLO_SUM)]),
    "release_reply": (wire.release_reply, True),
    "renew_reply": (wire.renew_reply, 300000),
    "pin_reply": (wire.pin_reply, Count(3, 768)),
    "unpin_reply": (wire.number_reply, 3),
    "delete_reply": (wire.number_reply, 2),
    "flush_reply": (wire.flush_reply, wire.Flushed(40, 40 << 16, {"tier_off": (1, 65536)})),
    "stats_reply": (wire.stats_reply, b'{"uptime_seconds":1}'),
    "ping_reply": (wire.empty_reply, None),
    "error_reply": (
        wire.error_reply,
        "job 9 is not live: it was released, cancelled or never made on this connection",
    ),
}


def read(path: Path) -> bytes:
    return bytes.fromhex("".join(line.partition("#")[0] for line in path.read_text().splitlines()))



class Golden(unittest.TestCase):
    def test_every_frame_is_covered(self) -> None:
        """Those of operations that this client speaks; scrub, for one, is the operator's."""
        covered = {f"{name}_request" for name in REQUESTS} | set(REPLIES)
        spoken = {path.stem for path in GOLDEN.glob("*.hex") if read(path)[5] in set(Op)}
        self.assertEqual(spoken, covered)

    def test_requests(self) -> None:
        for name, (op, id, body) in REQUESTS.items():
            with self.subTest(name):
                self.assertEqual(wire.frame(wire.REQUEST, op, id, body), read(GOLDEN / f"{name}_request.hex"))

    def test_replies(self) -> None:
        for name, (decode, want) in REPLIES.items():
            with self.subTest(name):
                raw = read(GOLDEN / f"{name}.hex")
                self.assertEqual(wire.HEADER.unpack_from(raw)[0], len(raw) - wire.HEADER.size)
                body = raw[wire.HEADER.size :]
                self.assertEqual(decode(body), want)
                self.assertEqual(decode(body + b"grown"), want)

    def test_a_reply_cut_short_is_malformed(self) -> None:
        for name, (decode, _) in REPLIES.items():
            body = read(GOLDEN / f"{name}.hex")[wire.HEADER.size :]
            older = 13 + 16 * 2 if name.startswith("reserve_") else -1  # where it ended before it grew
            for end in set(range(len(body))) - {older}:
                with self.subTest(name, end=end), self.assertRaises(wire.Malformed):
                    decode(body[:end])


if __name__ == "__main__":
    unittest.main()
