"""Every golden frame of testdata/wire: requests made here are those bytes, and
replies are read as what their comments say."""

from __future__ import annotations

import threading
import unittest
from pathlib import Path

import kvstored
from kvstored import vllm_follow, wire
from kvstored.wire import Count, JobState, Limits, Match, Op, Ref, Slot, Space, SpaceInfo, Stored

from .daemon import ROOT
from .stub import Hanging

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
BY_TOKENS = wire.chain_tokens(1, TOKENS)
SPACE_ID = bytes(range(0xA0, 0xB0))

#: Requests by name; the id of each frame is its operation.
REQUESTS = {
    "hello": (Op.HELLO, wire.hello(0x0B, "worker-1", 64 << 20, SPACE)),
    "open_space": (Op.OPEN_SPACE, wire.open_space(SPACE)),
    "lookup": (Op.LOOKUP, wire.lookup(BY_TOKENS, 3)),
    "lookup_hashes": (
        Op.LOOKUP,
        wire.lookup(wire.chain_hashes(2, 8, b"".join(H), 100, skip=1, save_unfull=True, keep=3)),
    ),
    "lookup_kept": (Op.LOOKUP, wire.lookup(wire.chain_kept(3, skip=1))),
    "lookup_alone": (
        Op.LOOKUP,
        wire.lookup(wire.chain_hashes(2, 8, b"".join(H[:2]), save_unfull=True, alone=True)),
    ),
    "lookup_ranks": (Op.LOOKUP, wire.lookup(wire.chain_ref(7), ranks=[2, 3])),
    "prefetch_groups": (
        Op.PREFETCH,
        wire.prefetch(wire.chain_tokens(1, TOKENS), groups=[wire.Group(1), wire.Group(2, wire.WINDOW, 128)]),
    ),
    "lookup_why": (Op.LOOKUP, wire.lookup(wire.chain_ref(7), why=True)),
    "lookup_groups": (
        Op.LOOKUP,
        wire.lookup(wire.chain_ref(7), groups=[wire.Group(2, wire.WINDOW, 4096), wire.Group(3, wire.STATE)]),
    ),
    "lookup_grain": (
        Op.LOOKUP,
        wire.lookup(
            wire.chain_hashes(2, 8, b"".join([*H, bytes(range(64, 72))]), skip=1),
            groups=[wire.Group(2), wire.Group(3, wire.WINDOW, 128)],
            grain=16,
        ),
    ),
    "lookup_lengths": (Op.LOOKUP, wire.lookup(wire.chain_ref(7), groups=[wire.Group(2, wire.STATE)], lengths=8)),
    "prefetch": (
        Op.PREFETCH,
        wire.prefetch(
            wire.chain_tokens(1, TOKENS, save_unfull=True),
            pin=True,
            policy=3,
            deadline_ms=2000,
            lookup_id="req-42",
            configs=[("priority", "high")],
        ),
    ),
    "wait": (Op.WAIT, wire.wait(7, 768, 500)),
    "cancel": (Op.CANCEL, wire.numbered(5)),
    "reserve": (Op.RESERVE, wire.reserve(wire.chain_ref(7), [65536], first=1, count=3)),
    "reserve_aged": (Op.RESERVE, wire.reserve(wire.chain_ref(7), [65536], wait_ms=2000, max_age=3600)),
    "commit": (Op.COMMIT, wire.fill(8)),
    "abort": (Op.ABORT, wire.fill(8, 1, 2)),
    "put": (Op.PUT, wire.put(wire.chain_hashes(2, 8, b"".join(H[:2])), 0, [b"hello", b"KVS..."])),
    "put_aged": (Op.PUT, wire.put(wire.chain_hashes(2, 8, b"".join(H[:2])), 0, [b"hello"], max_age=60)),
    "get": (Op.GET, wire.get(wire.chain_ref(7), max_chunks=4, max_bytes=1 << 20, deadline_ms=100)),
    "release": (Op.RELEASE, wire.numbered(7)),
    "renew": (Op.RENEW, wire.numbered(7)),
    "pin": (Op.PIN, wire.pin(BY_TOKENS, "req-42", 60000)),
    "unpin": (Op.UNPIN, wire.unpin("req-42")),
    "delete": (Op.DELETE, wire.delete(BY_TOKENS)),
    "delete_space": (Op.DELETE, wire.delete(wire.chain_none(1), 5000)),
    "flush": (Op.FLUSH, wire.flush(True, 10000)),
    "stats": (Op.STATS, wire.empty()),
    "ping": (Op.PING, wire.empty()),
    "warm": (Op.WARM, wire.warm(BY_TOKENS, search=2, timeout_ms=500)),
    "warm_named": (Op.WARM, wire.warm(lookup_id="req-42")),
    "hint": (Op.HINT, wire.hint(wire.chain_kept(3), [("session", "s-1"), ("pause_seconds", "20")], ranks=[2])),
    "hint_named": (Op.HINT, wire.hint(None, [("turn_over", "done")], "req-42")),
    "batch": (
        Op.BATCH,
        wire.batch(
            [(BY_TOKENS, "req-42", 0), (wire.chain_ref(7), "", 3)],
            16,
            policy=3,
            deadline_ms=2000,
            prefill_rate=20000,
            configs=[("priority", "high")],
        ),
    ),
}
#: Requests that this client never makes.
NOT_SPOKEN = {
    "events_now_request",
    "events_request",
    "hello_bounds_request",
    "ping_option_request",
    "prefetch_ranks_request",
    "reserve_groups_request",
    "reserve_sums_request",
    "version_1_request",
    "version_1_python_request",
}

MATCH = Match(Count(3, 768), Count(1, 256), Count(2, 512), Count(), 4)
GROUPED = wire.Grouped(768, 1024, 2, (wire.Need(1, 0, 3, 1, 2, 0), wire.Need(2, 2, 1, 0, 1, 0)))
HELLO_SUM = 0x9555E8555C62DCFD
REF = [Ref(8192, 0x0102030405060708, 65536, 256), Ref(73728, 0x1112131415161718, 65536, 256), Ref(139264, 0x2122232425262728, 65536, 256)]
ALL = (Count(1, 256), Count(2, 512), Count())
STATE = JobState(False, 25, "", Count(1, 256), (Count(1, 256), Count(), Count()), 0, REF[:1])
ADVISED = wire.Prefetched(7, MATCH, STATE, wire.Advice(Count(2, 512), 1500))
FAULTS = (
    wire.Fault(5, 1, "turn-17", "directive 0 ends at 4096 of a prompt of 1000 tokens"),
    wire.Fault(1, -1, "pause_seconds", '"soon" is no number'),
)

REPLIES = {
    "hello_reply": (
        wire.hello_reply,
        wire.Hello(
            version=2,
            rights=3,
            put_mode=1,
            granted=0x0B,
            epoch=0x1122334455667788,
            connection=5,
            arena_bytes=4 << 30,
            staging_bytes=64 << 20,
            descriptors=2,
            max_payload=64 << 20,
            max_request=72 << 20,
            max_reply=72 << 20,
            credit=72 << 20,
            limits=Limits(
                lease_ms=300000,
                pin_ms=3600000,
                prefetch_ms=1000,
                prefetch_us_per_1024=50000,
                hello_ms=10000,
                stall_ms=30000,
                requests=1024,
                jobs=1024,
                fills=1024,
                pins=1024,
                spaces=1024,
                user_jobs=16384,
                unread_bytes=1 << 20,
                kept_chains=16,
                kept_chunks=65536,
                warms=64,
                chunk_tokens=256,
                spin_us=1000,
            ),
            server="kvstored 1.0.0",
            space=SpaceInfo(0, 256, SPACE_ID),
        ),
    ),
    "open_space_reply": (wire.open_space_reply, SpaceInfo(2, 256, SPACE_ID)),
    "lookup_reply": (wire.lookup_reply, MATCH),
    "newer_lookup_reply": (wire.lookup_reply, MATCH),
    "prefetch_reply": (wire.prefetch_reply, ADVISED._replace(advice=None)),
    "prefetch_advice_reply": (wire.prefetch_reply, ADVISED),
    "lookup_groups_reply": (wire.lookup_reply, MATCH._replace(worth=3, grouped=GROUPED)),
    "lookup_why_reply": (wire.lookup_reply, MATCH._replace(missing=wire.Missing(33, "disk", 3600))),
    "prefetch_why_reply": (
        wire.prefetch_reply,
        ADVISED._replace(advice=None, match=ADVISED.match._replace(missing=wire.Missing(32))),
    ),
    "lookup_lengths_reply": (wire.lookup_reply, MATCH._replace(worth=3, grouped=GROUPED._replace(lengths=(768, 256)))),
    "prefetch_groups_reply": (
        wire.prefetch_reply,
        wire.Prefetched(
            7,
            MATCH._replace(worth=3, grouped=GROUPED),
            JobState(True, 0, "", Count(3, 768), (Count(3, 768), Count(), Count()), 0, REF, GROUPED.needs),
        ),
    ),
    "prefetch_push": (wire.job_state, JobState(True, 0, "", Count(3, 768), ALL, 1, REF[1:])),
    "revoked_push": (wire.job_state, JobState(True, 12, "", Count(3, 768), ALL, 3, [])),
    "fill_push": (wire.fill_push, 12),
    "wait_reply": (
        wire.job_state,
        JobState(True, 30, "disk", Count(2, 512), (Count(1, 256), Count(1, 256), Count()), 1, REF[1:2]),
    ),
    "cancel_reply": (wire.cancel_reply, 0),
    "reserve_reply": (wire.reserve_reply, (8, 6, [Slot(0, 65536, 4096), Slot(27, 0, 0)], [])),
    "reserve_sums_reply": (
        wire.reserve_reply,
        (8, 0, [Slot(0, 65536, 4096), Slot(27, 65536, 0), Slot(26, 0, 0)], [1]),
    ),
    "commit_reply": (wire.store_reply, [Stored(0, 0x0102030405060708), Stored(13, 0)]),
    "abort_reply": (wire.plain_reply, None),
    "put_reply": (wire.store_reply, [Stored(27, HELLO_SUM), Stored(7, 0)]),
    "get_reply": (wire.get_reply, [(b"hello", 256, HELLO_SUM)]),
    "release_reply": (wire.release_reply, True),
    "renew_reply": (wire.renew_reply, 300000),
    "pin_reply": (wire.pin_reply, Count(3, 768)),
    "unpin_reply": (wire.number_reply, 3),
    "delete_reply": (wire.number_reply, 2),
    "flush_reply": (wire.flush_reply, wire.Flushed(40, 40 << 16, {"tier_off": (1, 65536)})),
    "stats_reply": (wire.stats_reply, b'{"uptime_seconds":1}'),
    "ping_reply": (wire.plain_reply, None),
    "warm_reply": (wire.warm_reply, (MATCH._replace(worth=None), JobState(True, 0, "", Count(3, 768), ALL, 0, []))),
    "prefetch_hints_reply": (wire.prefetch_reply, ADVISED._replace(faults=FAULTS)),
    "hint_reply": (wire.hint_reply, wire.Hinted(Count(3, 768), FAULTS)),
    "events_reply": (wire.number_reply, 43),
    "events_push": (
        vllm_follow.push,
        (
            False,
            [
                vllm_follow.Event(vllm_follow.STORED, 1, (SPACE_ID, bytes(range(1, 17)))),
                vllm_follow.Event(vllm_follow.REMOVED, 2, (SPACE_ID, bytes(range(17, 33)))),
                vllm_follow.Event(vllm_follow.CLEARED, 0, (bytes(16), bytes(16))),
            ],
        ),
    ),
    "events_lost_push": (vllm_follow.push, (True, [])),
    "batch_reply": (
        wire.batch_reply,
        ([wire.BatchJob(0, "", ADVISED), wire.BatchJob(10, "no such job", None)], [1, 0]),
    ),
    "error_reply": (
        wire.error_reply,
        wire.Refusal(0, 0, "job 9 is not live: it was released, cancelled or never made on this connection"),
    ),
    "error_limit_reply": (wire.error_reply, wire.Refusal(0, 0, "chunk 0 has 134217728 bytes", 64 << 20)),
    "error_later_reply": (wire.error_reply, wire.Refusal(2, 100, "no room")),
}


def read(path: Path) -> bytes:
    return bytes.fromhex("".join(line.partition("#")[0] for line in path.read_text().splitlines()))


class Golden(unittest.TestCase):
    def test_every_frame_is_covered(self) -> None:
        covered = {f"{name}_request" for name in REQUESTS} | set(REPLIES) | {"newer_wait_reply", "version_reply", "version_1_reply"}
        self.assertEqual({path.stem for path in GOLDEN.glob("*.hex")}, covered | NOT_SPOKEN)

    def test_requests(self) -> None:
        for name, (op, body) in REQUESTS.items():
            with self.subTest(name):
                self.assertEqual(wire.frame(wire.REQUEST, op, op, body).hex(), read(GOLDEN / f"{name}_request.hex").hex())

    def test_replies(self) -> None:
        for name, (decode, want) in REPLIES.items():
            with self.subTest(name):
                raw = read(GOLDEN / f"{name}.hex")
                self.assertEqual(wire.HEADER.unpack_from(raw)[0], len(raw) - wire.HEADER.size)
                body = raw[wire.HEADER.size :]
                self.assertEqual(decode(body), want)
                self.assertEqual(decode(body + b"grown up"), want)

    def test_of_other_versions(self) -> None:
        body = read(GOLDEN / "newer_wait_reply.hex")[wire.HEADER.size :]
        unknown = JobState(True, 999, "", Count(1, 256), (Count(1, 256), Count(), Count()), 0, REF[:1])
        self.assertEqual(wire.job_state(body), unknown)
        self.assertEqual("update the older", wire.version_reply(read(GOLDEN / "version_reply.hex")[wire.HEADER.size :]))

    def test_a_daemon_of_version_1(self) -> None:
        """Its recorded answer is one clear error, and the client is closed."""
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

    def test_a_reply_cut_short_is_malformed(self) -> None:
        for name, (decode, _) in REPLIES.items():
            body = read(GOLDEN / f"{name}.hex")[wire.HEADER.size :]
            for end in range(0, len(body), 8):
                with self.subTest(name, end=end), self.assertRaises(wire.Malformed):
                    decode(body[:end])


if __name__ == "__main__":
    unittest.main()
