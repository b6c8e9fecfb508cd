"""The frames of docs/protocol.md as bytes: bodies of requests, and replies read.

Functions named like an operation make the body of its request; those that end
in ``_reply`` read the body of its reply. Replies may grow at their end, so
bytes behind what is known are passed over. ``Malformed`` says that a body ends
too early.
"""

from __future__ import annotations

import array
import struct
import sys
from enum import IntEnum
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

Buffer = Union[bytes, bytearray, memoryview]

VERSION = 1
MAGIC = b"KVS1"
HEADER = struct.Struct("<IBBHQ")  # body length, kind, op, status, id
MAX_BODY = 72 << 20  # of a reply; what is larger is no reply of this protocol
REQUEST, REPLY, PUSH = 0, 1, 2
WANT_ARENA, WANT_STAGING, WANT_DIRECT, WANT_PUSHES = 1, 2, 4, 8
NO_OPTIONS = b"\0\0"
MAX_U32 = 0xFFFFFFFF
RESERVE_SUMS = 0x8002  # an option of reserve; a daemon that does not know it passes over it
MAX_SUMS = 4096  # in one reserve


class Malformed(ValueError):
    """A body ends before what it must contain."""


class Op(IntEnum):
    HELLO = 1
    OPEN_SPACE = 2
    LOOKUP = 3
    PREFETCH = 4
    WAIT = 5
    CANCEL = 6
    RESERVE = 7
    COMMIT = 8
    ABORT = 9
    PUT = 10
    GET = 11
    RELEASE = 12
    RENEW = 13
    PIN = 14
    UNPIN = 15
    DELETE = 16
    FLUSH = 17
    STATS = 18
    PING = 19
    WARM = 20
    BATCH = 21


class Space(NamedTuple):
    """All that must be equal for payloads to be exchangeable. Its ``repr`` does not show the salt."""

    model: str
    dtype: str  # fingerprint of element type and layout
    chunk_tokens: int = 256
    method: str = "sha256"  # sha256, xxh64: the daemon hashes tokens; given[:NAME]: the engine does
    revision: str = ""
    lora: str = ""
    world: int = 1
    worker: int = 0
    group: str = ""
    salt: str = ""
    tags: Tuple[Tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        rank = f", rank {self.worker} of {self.world}" if self.world > 1 else ""
        more = [f"{name}={getattr(self, name)}" for name in ("revision", "lora", "group") if getattr(self, name)]
        more += [f"{name}={value}" for name, value in self.tags] + (["salted"] if self.salt else [])
        return f"<Space {self.model} {self.dtype}, {self.chunk_tokens} tokens, {self.method}{rank}{''.join(', ' + m for m in more)}>"


class SpaceInfo(NamedTuple):
    handle: int
    id: bytes
    chunk_tokens: int


class Count(NamedTuple):
    chunks: int = 0
    tokens: int = 0


class Match(NamedTuple):
    """The longest leading run that is there, and where its chunks are nearest.

    Of the prompt's chunks, ``worth`` from the first on are there or worth
    storing; None if nobody said so. What is behind them would be refused.
    """

    total: Count = Count()
    cpu: Count = Count()
    disk: Count = Count()
    remote: Count = Count()
    worth: Optional[int] = None


class Ref(NamedTuple):
    offset: int
    sum: int
    length: int
    tokens: int


class JobState(NamedTuple):
    done: bool
    reason: int
    failed_tier: str
    ready: Count
    ready_from: Tuple[Count, ...]
    first: int
    refs: Sequence[Ref]


class Slot(NamedTuple):
    grant: int
    length: int
    offset: int


class Stored(NamedTuple):
    result: int
    sum: int


class Hello(NamedTuple):
    version: int
    rights: int
    put_mode: int
    granted: int
    epoch: int
    arena_bytes: int
    staging_bytes: int
    descriptors: int
    max_body: int
    max_payload: int
    lease_millis: int
    space: Optional[SpaceInfo]
    server: str


class Advice(NamedTuple):
    """What of the match to load so that all of a prompt is ready soonest; the rest is to be computed."""

    load: Count
    micros: int  # until all of it is loaded or computed


class BatchJob(NamedTuple):
    status: int  # 0, or why there is no job
    text: str
    prefetch: Optional[Tuple[int, "Match", "JobState", Optional[Advice]]]


class Flushed(NamedTuple):
    chunks: int
    bytes: int
    left: Dict[str, Tuple[int, int]]  # reason: chunks and bytes not written


def frame(kind: int, op: int, id: int, body: Buffer, status: int = 0) -> bytes:
    return HEADER.pack(len(body), kind, op, status, id) + bytes(body)


# ---- requests ----------------------------------------------------------------


def _pack(layout: str, *numbers: Any) -> bytes:
    """``struct.pack`` of what a caller gave; a ValueError names what does not fit."""
    try:
        return struct.pack(layout, *numbers)
    except struct.error:
        wrong = [n for n in numbers if not hasattr(n, "__index__") or not 0 <= n <= MAX_U32] or [max(numbers)]
        raise ValueError(f"{wrong[0]!r} does not fit: want a whole number of 32 bits from 0 on (checksums: 64, search and policy: 8)") from None


def _str(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    raw = text.encode()
    if len(raw) > 0xFFFF:
        raise ValueError(f"a text of {len(raw)} bytes: at most 65535 go into a frame")
    return struct.pack("<H", len(raw)) + raw


def options(items: Sequence[Tuple[int, bytes]]) -> bytes:
    return struct.pack("<H", len(items)) + b"".join(struct.pack("<HH", tag, len(v)) + v for tag, v in items)


def space(s: Space) -> bytes:
    tags = sorted((name.encode(), value) for name, value in s.tags)
    return b"".join(
        (
            _str(s.model),
            _str(s.revision),
            _str(s.lora),
            struct.pack("<II", s.world, s.worker),
            _str(s.dtype),
            struct.pack("<I", s.chunk_tokens),
            _str(s.method),
            _str(s.group),
            _str(s.salt),
            bytes(16),  # salt digest: the salt itself is known
            struct.pack("<H", len(tags)),
            *(_str(name.decode()) + _str(value) for name, value in tags),
        )
    )


def hello(wants: int, name: str, staging_bytes: int = 0, first: Optional[Space] = None) -> bytes:
    head = MAGIC + struct.pack("<HHIQ", VERSION, VERSION, wants, staging_bytes) + _str(name)
    return head + (b"\0" if first is None else b"\1" + space(first)) + NO_OPTIONS


def open_space(s: Space) -> bytes:
    return space(s) + NO_OPTIONS


_CHAIN = "<IBBHII"  # space, form, flags, width, skip, count


def chain_tokens(handle: int, tokens: Sequence[int], skip: int = 0, save_unfull: bool = False) -> bytes:
    return _pack(_CHAIN, handle, 0, save_unfull, 0, skip, len(tokens)) + _u32s(tokens)


def chain_hashes(
    handle: int,
    width: int,
    hashes: Buffer,
    lengths: Sequence[int],
    skip: int = 0,
    save_unfull: bool = False,
    alone: bool = False,
) -> bytes:
    return _pack(_CHAIN, handle, 1, save_unfull | alone << 1, width, skip, len(lengths)) + _u32s(lengths) + bytes(hashes)


def chain_ref(id: int, skip: int = 0) -> bytes:
    return _pack(_CHAIN, 0, 2, 0, 0, skip, 1) + struct.pack("<Q", id)


def _u32s(numbers: Sequence[int]) -> bytes:
    if isinstance(numbers, array.array) and numbers.typecode == "I" and numbers.itemsize == 4 and sys.byteorder == "little":
        return numbers.tobytes()
    return _pack(f"<{len(numbers)}I", *numbers)


def lookup(chain: bytes, search: int = 0, ranks: Sequence[int] = ()) -> bytes:
    return chain + bytes((search,)) + _prefetch_options(ranks, 0)


def _prefetch_options(ranks: Sequence[int], prefill_rate: int, configs: Sequence[Tuple[str, str]] = ()) -> bytes:
    items = [(1, _u32s(ranks))] if ranks else []
    items += [(2, _pack("<I", prefill_rate))] if prefill_rate else []
    return options(items + ([(3, _configs(configs))] if configs else []))


def _configs(configs: Sequence[Tuple[str, str]]) -> bytes:
    return struct.pack("<H", len(configs)) + b"".join(_str(name) + _str(value) for name, value in configs)


def prefetch(
    chain: bytes,
    search: int = 0,
    pin: bool = False,
    policy: int = 0,
    deadline_ms: int = 0,
    lookup_id: str = "",
    configs: Sequence[Tuple[str, str]] = (),
    ranks: Sequence[int] = (),
    prefill_rate: int = 0,
) -> bytes:
    return b"".join(
        (
            chain,
            _pack("<BBBI", search, pin, policy, deadline_ms),
            _str(lookup_id),
            _configs(configs),
            _prefetch_options(ranks, prefill_rate),
        )
    )


def warm(chain: Optional[bytes] = None, lookup_id: str = "", search: int = 0, timeout_ms: int = 0) -> bytes:
    what = b"\1" + _str(lookup_id) if chain is None else b"\0" + chain
    return what + _pack("<BI", search, timeout_ms) + NO_OPTIONS


def batch(
    prompts: Sequence[Tuple[bytes, str, int]],  # chain, lookup id, how often it was overtaken
    max_overtaken: int,
    search: int = 0,
    pin: bool = False,
    policy: int = 0,
    deadline_ms: int = 0,
    ranks: Sequence[int] = (),
    prefill_rate: int = 0,
    configs: Sequence[Tuple[str, str]] = (),
) -> bytes:
    return b"".join(
        (
            _pack("<BBBIIH", search, pin, policy, deadline_ms, max_overtaken, len(prompts)),
            *(chain + _str(lookup_id) + _pack("<I", overtaken) for chain, lookup_id, overtaken in prompts),
            _prefetch_options(ranks, prefill_rate, configs),
        )
    )


def wait(job: int, min_tokens: int, timeout_ms: int, first: int = MAX_U32) -> bytes:
    return struct.pack("<QQII", job, min_tokens, timeout_ms, first) + NO_OPTIONS


def job(id: int) -> bytes:
    """The body of cancel, release and renew."""
    return struct.pack("<Q", id) + NO_OPTIONS


def reserve(
    chain: bytes,
    sizes: Sequence[int],
    first: int = 0,
    count: int = 0,
    all_or_nothing: bool = False,
    wait_ms: int = 0,
    sums: Sequence[Tuple[int, int]] = (),
) -> bytes:
    items = [(1, _pack("<I", wait_ms))] if wait_ms else []
    if sums:
        items.append((RESERVE_SUMS, b"".join(_pack("<IQ", slot, total) for slot, total in sums[:MAX_SUMS])))
    return chain + _pack("<IIBI", first, count, all_or_nothing, len(sizes)) + _u32s(sizes) + options(items)


def fill(id: int, first: int = 0, count: int = 0) -> bytes:
    """The body of commit and abort."""
    return struct.pack("<QII", id, first, count) + NO_OPTIONS


def put(chain: bytes, first: int, payloads: Sequence[Buffer]) -> bytes:
    sizes = [len(p) for p in payloads]
    return b"".join((chain, _pack("<II", first, len(sizes)), _u32s(sizes), *payloads, NO_OPTIONS))


def get(chain: bytes, first: int = 0, max_chunks: int = 0, max_bytes: int = 0, deadline_ms: int = 0) -> bytes:
    return chain + _pack("<IIII", first, max_chunks, max_bytes, deadline_ms) + NO_OPTIONS


def pin(chain: bytes, lookup_id: str, max_age_ms: int = 0) -> bytes:
    return chain + _str(lookup_id) + _pack("<I", max_age_ms) + NO_OPTIONS


def unpin(lookup_id: str) -> bytes:
    return _str(lookup_id) + NO_OPTIONS


def delete_chunks(handle: int, width: int, hashes: Buffer) -> bytes:
    return b"\0" + struct.pack("<IHI", handle, width, len(hashes) // width) + bytes(hashes) + NO_OPTIONS


def delete_chain(chain: bytes) -> bytes:
    return b"\1" + chain + NO_OPTIONS


def delete_space(handle: int) -> bytes:
    return b"\2" + struct.pack("<I", handle) + NO_OPTIONS


def flush(durable: bool, timeout_ms: int) -> bytes:
    return struct.pack("<BI", durable, timeout_ms) + NO_OPTIONS


def empty(opts: bytes = NO_OPTIONS) -> bytes:
    """The body of stats and ping."""
    return opts


# ---- replies -----------------------------------------------------------------


class _Cursor:
    __slots__ = ("data", "at")

    def __init__(self, data: Buffer) -> None:
        self.data, self.at = data, 0

    def read(self, layout: struct.Struct) -> Tuple[Any, ...]:
        try:
            values = layout.unpack_from(self.data, self.at)
        except struct.error:
            raise Malformed(f"{len(self.data)} bytes, more are needed") from None
        self.at += layout.size
        return values

    def bytes(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise Malformed(f"{len(self.data)} bytes, {self.at + n} are needed")
        self.at += n
        return bytes(self.data[self.at - n : self.at])

    def more(self) -> bool:
        return self.at < len(self.data)

    def str(self) -> str:
        return self.bytes(self.read(_U16)[0]).decode(errors="replace")

    def count(self) -> Count:
        return Count(*self.read(_COUNT))

    def counts(self) -> Tuple[Count, List[Count]]:
        """A count, and how it is spread over the tiers."""
        chunks, tokens, n = self.read(_COUNT_N)
        tiers = self.table(n, _COUNT, Count)
        return Count(chunks, tokens), tiers if n == 3 else (tiers + [Count()] * 3)[:3]

    def match(self) -> Match:
        total, (cpu, disk, remote) = self.counts()
        return Match(total, cpu, disk, remote)

    def prefetch(self) -> Tuple[int, Match, JobState, Optional[Advice]]:
        id, match, state = self.read(_U64)[0], self.match(), self.state()
        advice = Advice(self.count(), self.read(_U64)[0]) if self.read(_U8)[0] else None
        return id, match._replace(worth=self.worth()), state, advice

    def worth(self) -> int:
        return self.read(_U32)[0]

    def state(self) -> JobState:
        done, reason = self.read(_U8U8)
        failed = self.str()
        ready, ready_from = self.counts()
        first, n = self.read(_U32U32)
        return JobState(bool(done), reason, failed, ready, tuple(ready_from), first, self.table(n, _REF, Ref))

    def table(self, n: int, layout: struct.Struct, row: Any) -> List[Any]:
        raw = self.bytes(n * layout.size)
        return list(map(row._make, layout.iter_unpack(raw)))

    def space_info(self) -> SpaceInfo:
        return SpaceInfo(*self.read(_SPACE_INFO))


_U8, _U16, _U32, _U64 = (struct.Struct("<" + c) for c in "BHIQ")
_U8U8, _U32U32, _U64U64 = struct.Struct("<BB"), struct.Struct("<II"), struct.Struct("<QQ")
_COUNT, _COUNT_N = struct.Struct("<IQ"), struct.Struct("<IQB")
_REF = struct.Struct("<QQII")
_SLOT = struct.Struct("<B3xIQ")
_RESULT = struct.Struct("<B7xQ")
_CHUNK = struct.Struct("<IIQ")
_SPACE_INFO = struct.Struct("<I16sI")
_HELLO = struct.Struct("<HBBIQQQBIIIB")


def error_reply(body: Buffer) -> str:
    return _Cursor(body).str()


def hello_reply(body: Buffer) -> Hello:
    c = _Cursor(body)
    *fixed, has_space = c.read(_HELLO)
    info = c.space_info() if has_space else None
    return Hello._make([*fixed, info, c.str()])


def open_space_reply(body: Buffer) -> SpaceInfo:
    return _Cursor(body).space_info()


def lookup_reply(body: Buffer) -> Match:
    c = _Cursor(body)
    return c.match()._replace(worth=c.worth())


def prefetch_reply(body: Buffer) -> Tuple[int, Match, JobState]:
    id, match, state, _ = _Cursor(body).prefetch()
    return id, match, state


def prefetch_advised_reply(body: Buffer) -> Tuple[int, Match, JobState, Optional[Advice]]:
    return _Cursor(body).prefetch()


def warm_reply(body: Buffer) -> Tuple[Match, JobState]:
    c = _Cursor(body)
    return c.match(), c.state()


def batch_reply(body: Buffer) -> Tuple[List[BatchJob], List[int]]:
    """An answer for each prompt, and the order in which to run them."""
    c = _Cursor(body)
    jobs = []
    for _ in range(c.read(_U16)[0]):
        status = c.read(_U16)[0]
        jobs.append(BatchJob(status, c.str(), None) if status else BatchJob(0, "", c.prefetch()))
    return jobs, [c.read(_U32)[0] for _ in jobs]


def job_state(body: Buffer) -> JobState:
    """The body of a push, and of the replies to wait and cancel."""
    return _Cursor(body).state()


def reserve_reply(body: Buffer) -> Tuple[int, int, List[Slot], List[int]]:
    """Fill, reason, slots, and the numbers of those that are there with other bytes."""
    c = _Cursor(body)
    (id,), (reason,), (n,) = c.read(_U64), c.read(_U8), c.read(_U32)
    slots = c.table(n, _SLOT, Slot)
    differ = c.read(_U32)[0] if c.more() else 0  # an older daemon does not say
    return id, reason, slots, [c.read(_U32)[0] for _ in range(differ)]


def store_reply(body: Buffer) -> List[Stored]:
    """The body of the replies to commit and put."""
    c = _Cursor(body)
    return c.table(c.read(_U32)[0], _RESULT, Stored)


def get_reply(body: Buffer) -> List[Tuple[bytes, int, int]]:
    """Payload, tokens and checksum of each chunk."""
    c = _Cursor(body)
    rows = [c.read(_CHUNK) for _ in range(c.read(_U32)[0])]
    return [(c.bytes(length), tokens, total) for length, tokens, total in rows]


def release_reply(body: Buffer) -> bool:
    """Whether what was read under the lease is good."""
    return _Cursor(body).read(_U8)[0] == 0


def renew_reply(body: Buffer) -> int:
    return _Cursor(body).read(_U32)[0]


def pin_reply(body: Buffer) -> Count:
    return _Cursor(body).count()


def number_reply(body: Buffer) -> int:
    """The body of the replies to unpin and delete."""
    return _Cursor(body).read(_U64)[0]


def flush_reply(body: Buffer) -> Flushed:
    c = _Cursor(body)
    chunks, size = c.read(_U64U64)
    left = {}
    for _ in range(c.read(_U16)[0]):
        reason = c.str()
        left[reason] = c.read(_U64U64)
    return Flushed(chunks, size, left)  # type: ignore[arg-type]


def stats_reply(body: Buffer) -> bytes:
    c = _Cursor(body)
    return c.bytes(c.read(_U32)[0])


def empty_reply(body: Buffer) -> None:
    return None
