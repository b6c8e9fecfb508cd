"""The frames of docs/protocol.md as bytes: bodies of requests, and replies read.

Functions named like an operation make the body of its request; those that end
in ``_reply`` read the body of its reply. Replies may grow: options, elements
and records that are longer than known, and bytes behind what is known are
passed over. ``Malformed`` says that a body ends too early, or has an option
that must be understood and is not.
"""

from __future__ import annotations

import array
import functools
import struct
import sys
from enum import IntEnum
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

Buffer = Union[bytes, bytearray, memoryview]

VERSION = 2
MAGIC = b"KVS1"
HEADER = struct.Struct("<IBBHQ")  # body length, kind, op, code, id
MAX_BODY = 75497472  # of a reply; what is larger is no reply of this protocol
REQUEST, REPLY, PUSH = 0, 1, 2
WANT_ARENA, WANT_STAGING, WANT_PUSHES, WANT_KEEP = 1, 2, 8, 16
MAX_U32 = 0xFFFFFFFF
MAX_STR = 1024  # bytes of a name
MAX_SUMS = 4096  # in one reserve
CRITICAL = 0x8000  # a tag with this bit must be understood
RUNNING = 25  # the code of a job that is not done


class Malformed(ValueError):
    """A body ends before what it must contain, or means what is not known here."""


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
    HINT = 30
    EVENTS = 31


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
    chunk_tokens: int
    id: bytes


class Count(NamedTuple):
    chunks: int = 0
    tokens: int = 0


class Group(NamedTuple):
    """One group of a hybrid model in a request: its space and what a prefix needs
    of it. ``tokens`` are those of a window or a local group, 0 otherwise."""

    space: int
    kind: int = 0  # FULL, WINDOW, LOCAL or STATE
    tokens: int = 0


FULL, WINDOW, LOCAL, STATE = range(4)
MAX_LENGTHS = 4096  # that may be asked for


class Need(NamedTuple):
    """The chunks of a group that a prefix needs, from the start of the prompt, and
    how many of them are in which tier."""

    space: int
    first: int
    chunks: int
    cpu: int
    disk: int
    remote: int


class Grouped(NamedTuple):
    """The longest prefix that all groups can use. ``run`` is how far the full ones
    reach, ``lacks`` has a bit for each group that lacks something there. ``lengths``,
    if they were asked for, are the usable ones in tokens, the longest first."""

    tokens: int
    run: int
    lacks: int
    needs: Tuple[Need, ...] = ()
    lengths: Tuple[int, ...] = ()


class Match(NamedTuple):
    """The longest leading run that is there, and where its chunks are nearest.

    Of the prompt's chunks, ``worth`` from the first on are there or worth
    storing; None if nobody said so. What is behind them would be declined.
    """

    total: Count = Count()
    cpu: Count = Count()
    disk: Count = Count()
    remote: Count = Count()
    worth: Optional[int] = None
    grouped: Optional[Grouped] = None
    #: Why the chunk behind the run is not there, where that was asked for.
    missing: Optional["Missing"] = None


class Missing(NamedTuple):
    """Why a chunk is not there: a :class:`Code`, the tier that had, has or declined it
    ("" for none), and the seconds since it left, or None if that is not known."""

    code: int
    tier: str = ""
    ago: Optional[int] = None


class Fault(NamedTuple):
    """What did not count of the configs of a request; all else did."""

    code: int  # a code
    action: int  #: number of the action in ``kv_hints``; -1: a config, and ``name`` is its name
    name: str  #: of an action its ``action_id``
    text: str  #: what is wrong, for people


class Hinted(NamedTuple):
    """What became of a hint."""

    retained: Count = Count()  #: chunks that its claims cover now
    faults: Tuple[Fault, ...] = ()


class Ref(NamedTuple):
    offset: int
    sum: int
    length: int
    tokens: int


class JobState(NamedTuple):
    done: bool
    reason: int  # a code
    failed_tier: str
    ready: Count
    ready_from: Tuple[Count, ...]
    first: int
    refs: Sequence[Tuple[int, int, int, int]]  # each as a Ref has it
    needs: Tuple[Need, ...] = ()  # what the refs of a job with groups are of


class Slot(NamedTuple):
    grant: int  # a code
    length: int
    offset: int


class Stored(NamedTuple):
    result: int  # a code
    sum: int


class Limits(NamedTuple):
    """What the daemon is configured to: ages and times, and counts of a connection."""

    lease_ms: int
    pin_ms: int
    prefetch_ms: int
    prefetch_us_per_1024: int
    hello_ms: int
    stall_ms: int
    requests: int
    jobs: int
    fills: int
    pins: int
    spaces: int
    user_jobs: int
    unread_bytes: int
    kept_chains: int
    kept_chunks: int
    warms: int
    chunk_tokens: int
    spin_us: int


class Hello(NamedTuple):
    version: int
    rights: int
    put_mode: int
    granted: int
    epoch: int
    connection: int
    arena_bytes: int
    staging_bytes: int
    descriptors: int
    max_payload: int
    max_request: int
    max_reply: int
    credit: int
    limits: Limits
    server: str
    space: Optional[SpaceInfo]


class Advice(NamedTuple):
    """What of the match to load so that all of a prompt is ready soonest; the rest is to be computed."""

    load: Count
    micros: int  # until all of it is loaded or computed


class Prefetched(NamedTuple):
    """The reply to a prefetch: job, what was found, how far it is, advice where it
    was asked for, and what did not count of the configs."""

    job: int
    match: "Match"
    state: "JobState"
    advice: Optional[Advice] = None
    faults: Tuple[Fault, ...] = ()


class BatchJob(NamedTuple):
    code: int  # 0, or why there is no job
    text: str
    prefetch: Optional[Prefetched]


class Flushed(NamedTuple):
    chunks: int
    bytes: int
    left: Dict[str, Tuple[int, int]]  # reason: chunks and bytes not written


class Refusal(NamedTuple):
    """Why a request was refused: when to try again, and the words."""

    retry: int  # 0 never, 1 when something is released, 2 after after_ms, 3 on a new connection
    after_ms: int
    text: str
    limit: Optional[int] = None  # the largest value that would have passed


def frame(kind: int, op: int, id: int, body: Buffer, code: int = 0) -> bytes:
    return HEADER.pack(len(body), kind, op, code, id) + bytes(body)


# ---- requests ----------------------------------------------------------------

_PAD = tuple(bytes(-n % 8) for n in range(8))  # what follows n bytes


def _pack(layout: struct.Struct, *numbers: Any) -> bytes:
    """``layout.pack`` of what a caller gave; a ValueError names what does not fit."""
    try:
        return layout.pack(*numbers)
    except struct.error:
        wrong = [n for n in numbers if not hasattr(n, "__index__") or not 0 <= n <= MAX_U32] or [max(numbers)]
        raise ValueError(f"{wrong[0]!r} does not fit: want a whole number of 32 bits from 0 on (checksums: 64, search and policy: 8)") from None


_U8, _U16, _U32, _U64 = (struct.Struct("<" + c) for c in "BHIQ")
_HEAD = struct.Struct("<II")  # of a record (length, 0), a list and options (count, 0)
_ARRAY = struct.Struct("<IHH")  # count, bytes of an element, 0
_OPTION = struct.Struct("<HHI")  # tag, 0, bytes
_CHAIN = struct.Struct("<IBB2xIIQ")  # space, form, flags, skip, last tokens, id
NO_OPTIONS = bytes(8)
_NO_TEXT_NO_OPTIONS = bytes(8) + NO_OPTIONS
TOKENS, HASHES, REF, KEPT, NONE = range(5)  # forms of a chain


def _padded(raw: bytes) -> bytes:
    return raw + _PAD[len(raw) & 7]


def _str(text: str, most: int = MAX_STR) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    raw = text.encode()
    if len(raw) > most:
        raise ValueError(f"a text of {len(raw)} bytes: at most {most} go into a frame")
    return _padded(_U32.pack(len(raw)) + raw)


def _record(raw: bytes) -> bytes:
    return _HEAD.pack(len(raw), 0) + _padded(raw)


def _list(items: Sequence[bytes]) -> bytes:
    return _HEAD.pack(len(items), 0) + b"".join(map(_record, items))


def _u32s(numbers: Sequence[int]) -> bytes:
    if isinstance(numbers, array.array) and numbers.typecode == "I" and numbers.itemsize == 4 and sys.byteorder == "little":
        raw = numbers.tobytes()
    else:
        raw = _pack(_U32 if len(numbers) == 1 else struct.Struct(f"<{len(numbers)}I"), *numbers)
    return _ARRAY.pack(len(numbers), 4, 0) + _padded(raw)


def options(items: Sequence[Tuple[int, bytes]]) -> bytes:
    """Options, by ascending tags."""
    if not items:
        return NO_OPTIONS
    return _HEAD.pack(len(items), 0) + b"".join(_OPTION.pack(tag, 0, len(v)) + _padded(v) for tag, v in sorted(items))


def _deadline(ms: Optional[int]) -> List[Tuple[int, bytes]]:
    return [] if ms is None else [(1, _pack(_U32, ms))]


def space(s: Space) -> bytes:
    tags = sorted((name.encode(), value) for name, value in s.tags)
    return b"".join(
        (
            _pack(_SPACE, s.world, s.worker, s.chunk_tokens),  # salt digest 0: the salt itself is known
            *map(_str, (s.model, s.revision, s.lora, s.dtype, s.method, s.group, s.salt)),
            _list([_str(name.decode()) + _str(value) for name, value in tags]),
        )
    )


_SPACE = struct.Struct("<III4x16x")  # world, worker, chunk tokens


def hello(wants: int, name: str, staging_bytes: int = 0, first: Optional[Space] = None) -> bytes:
    head = _HELLO_REQUEST.pack(MAGIC, VERSION, VERSION, wants, 0, 0, staging_bytes, 0)
    return head + _str(name) + options([] if first is None else [(0x8002, space(first))])


_HELLO_REQUEST = struct.Struct("<4sHHIII4xQQ")  # magic, versions, wants, largest request and reply, staging, credit


def open_space(s: Space) -> bytes:
    return _record(space(s)) + NO_OPTIONS


def chain_tokens(handle: int, tokens: Sequence[int], skip: int = 0, save_unfull: bool = False, keep: int = 0) -> bytes:
    """``keep``, if not 0, is a number under which the daemon keeps the chain."""
    return _record(_pack(_CHAIN, handle, TOKENS, save_unfull, skip, 0, keep) + _u32s(tokens))


def chain_hashes(
    handle: int,
    width: int,
    hashes: Buffer,
    last_tokens: int = 0,
    skip: int = 0,
    save_unfull: bool = False,
    alone: bool = False,
    keep: int = 0,
) -> bytes:
    """``last_tokens``: of the last chunk; 0 where it is full as all others."""
    head = _pack(_CHAIN, handle, HASHES, save_unfull | alone << 1, skip, last_tokens, keep)
    return _record(head + _ARRAY.pack(len(hashes) // width, width, 0) + _padded(bytes(hashes)))


def _chain_named(handle: int, form: int, id: int, skip: int) -> bytes:
    return _record(_pack(_CHAIN, handle, form, 0, skip, 0, id) + bytes(8))


def chain_ref(id: int, skip: int = 0) -> bytes:
    """The chain of a live job or fill."""
    return _chain_named(0, REF, id, skip)


def chain_kept(id: int, skip: int = 0) -> bytes:
    """A chain that the daemon keeps."""
    return _chain_named(0, KEPT, id, skip)


def chain_none(handle: int = 0) -> bytes:
    """No chunks: the space as a whole."""
    return _chain_named(handle, NONE, 0, 0)


def lookup(
    chain: bytes,
    search: int = 0,
    ranks: Sequence[int] = (),
    groups: Sequence[Group] = (),
    lengths: int = 0,
    grain: int = 0,
    why: bool = False,
) -> bytes:
    return chain + _pack(_BYTE8, search) + _prefetch_options(ranks, 0, (), groups, lengths, grain, why)


_BYTE8 = struct.Struct("<B7x")


def _prefetch_options(
    ranks: Sequence[int],
    prefill_rate: int,
    configs: Sequence[Tuple[str, str]] = (),
    groups: Sequence[Group] = (),
    lengths: int = 0,
    grain: int = 0,
    why: bool = False,
) -> bytes:
    if not any((ranks, prefill_rate, configs, groups, lengths, grain, why)):
        return NO_OPTIONS
    items = [(0x8002, _u32s(ranks))] if ranks else []
    items += [(3, _pack(_U32, prefill_rate))] if prefill_rate else []
    items += [(4, _configs(configs))] if configs else []
    items += [(10, _pack(_U32, lengths))] if lengths else []
    items += [(CRITICAL | 12, _pack(_U32, grain))] if grain else []
    items += [(13, _pack(_U32, 1))] if why else []
    return options(items + ([(0x8005, _groups(groups))] if groups else []))


def _groups(groups: Sequence[Group]) -> bytes:
    return _pack(_ARRAY, len(groups), _GROUP.size, 0) + b"".join(_pack(_GROUP, *g) for g in groups)


_GROUP = struct.Struct("<IB3xI4x")


def _configs(configs: Sequence[Tuple[str, str]]) -> bytes:
    return _list([_str(name) + _str(value, MAX_BODY) for name, value in configs])


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
    groups: Sequence[Group] = (),
    lengths: int = 0,
    why: bool = False,
) -> bytes:
    """``lengths``: of the groups' usable lengths, so many are named, the longest first.
    ``why`` asks why the prompt is not there to its end."""
    if not (lookup_id or ranks or prefill_rate or configs or groups or lengths or why):
        return chain + _pack(_LOAD, search, pin, policy, deadline_ms) + _NO_TEXT_NO_OPTIONS
    how = _pack(_LOAD, search, pin, policy, deadline_ms)
    return b"".join((chain, how, _str(lookup_id), _prefetch_options(ranks, prefill_rate, configs, groups, lengths, 0, why)))


_LOAD = struct.Struct("<BBBxI")  # search, flags, policy, load ms


def warm(chain: Optional[bytes] = None, lookup_id: str = "", search: int = 0, timeout_ms: int = 0) -> bytes:
    what = chain_none() if chain is None else chain
    return what + _pack(_BYTE8, search) + _str(lookup_id) + options(_deadline(timeout_ms or None))


def hint(
    chain: Optional[bytes] = None, configs: Sequence[Tuple[str, str]] = (), lookup_id: str = "", ranks: Sequence[int] = ()
) -> bytes:
    what = chain_none() if chain is None else chain
    return what + _str(lookup_id) + _prefetch_options(ranks, 0, configs)


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
    groups: Sequence[Group] = (),
    grain: int = 0,
) -> bytes:
    """``grain``: tokens between two hashes of the chains; 0: a chunk of the first group."""
    rows = [chain + _pack(_U32_8, overtaken) + _str(lookup_id) for chain, lookup_id, overtaken in prompts]
    return b"".join(
        (
            _pack(_LOAD, search, pin, policy, deadline_ms),
            _pack(_U32_8, max_overtaken),
            _list(rows),
            _prefetch_options(ranks, prefill_rate, configs, groups, 0, grain),
        )
    )


_U32_8 = struct.Struct("<I4x")
_U32_U32 = struct.Struct("<II")


def wait(job: int, min_tokens: int, timeout_ms: int, first: int = MAX_U32) -> bytes:
    return _WAIT.pack(job, min_tokens, first, 1, 0, 1, 0, 4, timeout_ms)


_WAIT = struct.Struct("<QQI4xIIHHII4x")  # job, tokens, first ref, and a deadline


def numbered(id: int) -> bytes:
    """The body of cancel, release and renew."""
    return _NUMBERED.pack(id, 0)


_NUMBERED = struct.Struct("<QQ")  # a number, no options


def reserve(
    chain: bytes,
    sizes: Sequence[int],
    first: int = 0,
    count: int = 0,
    all_or_nothing: bool = False,
    wait_ms: int = 0,
    sums: Sequence[Tuple[int, int]] = (),
    max_age: float = 0.0,
) -> bytes:
    items = _deadline(wait_ms or None) + _max_age(max_age)
    if sums:
        rows = b"".join(_pack(_SUM, slot, total) for slot, total in sums[:MAX_SUMS])
        items.append((7, _ARRAY.pack(len(rows) // 16, 16, 0) + rows))
    return chain + _pack(_RESERVE, first, count, all_or_nothing) + _u32s(sizes) + options(items)


def _max_age(seconds: float) -> List[Tuple[int, bytes]]:
    """How long chunks may stay in any tier, in whole seconds; 0 leaves it to the daemon."""
    if seconds == 0:
        return []
    if not 1 <= seconds <= MAX_U32:
        raise ValueError(f"a max age of {seconds!r}: want at least 1 second, or 0 for none")
    return [(CRITICAL | 11, _pack(_U32, int(seconds)))]


_SUM = struct.Struct("<I4xQ")
_RESERVE = struct.Struct("<IIB7x")  # first, count, flags


def fill(id: int, first: int = 0, count: int = 0) -> bytes:
    """The body of commit and abort."""
    return _FILL.pack(id, first, count, 0)


_FILL = struct.Struct("<QIIQ")  # fill, first, count, no options


def put(chain: bytes, first: int, payloads: Sequence[Buffer], max_age: float = 0.0) -> bytes:
    sizes = [len(p) for p in payloads]
    total = sum(sizes)
    pad = _PAD[total & 7]
    return b"".join((chain, _pack(_U32_U32, first, total), _u32s(sizes), options(_max_age(max_age)), *payloads, pad))


def get(chain: bytes, first: int = 0, max_chunks: int = 0, max_bytes: int = 0, deadline_ms: Optional[int] = None) -> bytes:
    return chain + _pack(_GET, first, max_chunks, max_bytes) + options(_deadline(deadline_ms))


_GET = struct.Struct("<III4x")


def pin(chain: bytes, lookup_id: str, max_age_ms: int = 0) -> bytes:
    return chain + _pack(_U32_8, max_age_ms) + _str(lookup_id) + NO_OPTIONS


def unpin(lookup_id: str) -> bytes:
    return _str(lookup_id) + NO_OPTIONS


def delete(chain: bytes, timeout_ms: Optional[int] = None) -> bytes:
    return chain + options(_deadline(timeout_ms))


def flush(durable: bool, timeout_ms: int) -> bytes:
    return _BYTE8.pack(durable) + options(_deadline(timeout_ms))


def empty(opts: bytes = NO_OPTIONS) -> bytes:
    """The body of stats and ping."""
    return opts


# ---- replies -----------------------------------------------------------------


class _Cursor:
    """Reads a body, a record or an option: what is behind the end is Malformed."""

    __slots__ = ("data", "at", "end")

    def __init__(self, data: Buffer, at: int = 0, end: int = -1) -> None:
        self.data, self.at = data, at
        self.end = len(data) if end < 0 else end

    def read(self, layout: struct.Struct) -> Tuple[Any, ...]:
        return layout.unpack_from(self.data, self.skip(layout.size))

    def usual(self, layout: struct.Struct) -> Optional[Tuple[Any, ...]]:
        """What is next, if it is long enough for a layout that it need not have;
        nothing is passed over."""
        return layout.unpack_from(self.data, self.at) if layout.size <= self.end - self.at else None

    def skip(self, n: int) -> int:
        """Passes n bytes over, and returns where they begin."""
        at = self.at
        if n > self.end - at:
            raise Malformed(f"{self.end} bytes, {at + n} are needed")
        self.at = at + n
        return at

    def padded(self, n: int) -> int:
        """The same, with the padding behind them."""
        return self.skip(n + (-n & 7))

    def sub(self, n: int) -> "_Cursor":
        at = self.padded(n)
        return _Cursor(self.data, at, at + n)

    def text(self) -> bytes:
        (n,) = self.read(_U32)
        at = self.skip(n + (-(n + 4) & 7))
        return bytes(self.data[at : at + n])

    def str(self) -> str:
        return self.text().decode(errors="replace")

    def record(self) -> "_Cursor":
        return self.sub(self.read(_HEAD)[0])

    def records(self, read: Callable[["_Cursor"], Any]) -> List[Any]:
        (n, _), rows = self.read(_HEAD), []
        for _ in range(n):
            rows.append(read(self.record()))
        return rows

    def table(self, layout: struct.Struct, row: Any = None) -> List[Any]:
        """An array, whose elements may be longer than known: tuples, or what ``row``
        makes of them."""
        n, size, _ = self.read(_ARRAY)
        if n and size < layout.size:
            raise Malformed(f"elements of {size} bytes, {layout.size} are known")
        at = self.padded(n * size)
        if size == layout.size:
            elements = layout.iter_unpack(memoryview(self.data)[at : at + n * size])
            return list(elements if row is None else map(row, elements))
        return [(row or tuple)(layout.unpack_from(self.data, at + k * size)) for k in range(n)]

    def numbers(self) -> List[int]:
        """An array of u32, which never grow."""
        n, size, _ = self.read(_ARRAY)
        if n and size != 4:
            raise Malformed(f"numbers of {size} bytes, they have 4")
        at = self.padded(n * size)
        return list(struct.unpack_from(f"<{n}I", self.data, at))

    def options(self, known: Dict[int, Callable[["_Cursor"], Any]] = {}) -> Dict[int, Any]:
        n, _ = self.read(_HEAD)
        values: Dict[int, Any] = {}
        last = -1
        for _ in range(n):
            tag, _, size = self.read(_OPTION)
            value = self.sub(size)
            if tag <= last:
                raise Malformed(f"option {tag} behind option {last}")
            last = tag
            if tag in known:
                values[tag] = known[tag](value)
            elif tag & CRITICAL:
                raise Malformed(f"option {tag} must be understood, and is not known here")
        return values

    def count(self) -> Count:
        tokens, chunks = self.read(_COUNT)
        return Count(chunks, tokens)

    def tiers(self) -> List[Count]:
        tiers = self.table(_COUNT, _count)
        return tiers if len(tiers) == 3 else (tiers + [Count()] * 3)[:3]

    def match(self) -> Match:
        usual = self.usual(_MATCH)
        if usual is not None and usual[2:4] == _THREE_TIERS:
            self.at += _MATCH.size
            t, n, _, _, t1, n1, t2, n2, t3, n3 = usual
            return Match(Count(n, t), Count(n1, t1), Count(n2, t2), Count(n3, t3))
        total = self.count()
        cpu, disk, remote = self.tiers()
        return Match(total, cpu, disk, remote)

    def advice(self) -> Advice:
        return Advice(self.count(), self.read(_U64)[0])

    def prefetched(self) -> "Prefetched":
        (id,), match, (worth,) = self.read(_U64), self.match(), self.read(_U32_8)
        state = self.record().state()
        more = self.options(_PREFETCH_OPTIONS)
        return Prefetched(id, _told(match, worth, more), state, more.get(1), more.get(2, ()))

    def fault(self) -> Fault:
        code, action = self.read(_FAULT)
        return Fault(code, -1 if action == MAX_U32 else action, self.str(), self.str())

    def faults(self) -> Tuple[Fault, ...]:
        return tuple(self.records(_Cursor.fault))

    def grouped(self) -> Grouped:
        tokens, run, lacks = self.read(_GROUPED)
        return Grouped(tokens, run, lacks, self.needs())

    def needs(self) -> Tuple[Need, ...]:
        return tuple(self.table(_NEED, Need._make))

    def state(self) -> JobState:
        usual = self.usual(_STATE_OF_THREE)
        if usual is not None and usual[5:7] == _THREE_TIERS:
            self.at += _STATE_OF_THREE.size
            code, tier, first, tokens, chunks, _, _, t1, n1, t2, n2, t3, n3 = usual
            tiers = Count(n1, t1), Count(n2, t2), Count(n3, t3)
        else:
            code, tier, first, tokens, chunks = self.read(_STATE)
            tiers = tuple(self.tiers())
        refs = self.table(_REF)
        needs = self.options(_STATE_OPTIONS).get(5, ())
        return JobState(code != RUNNING, code, _TIERS.get(tier, ""), Count(chunks, tokens), tiers, first, refs, needs)

    def missing(self) -> Missing:
        code, tier, ago = self.read(_MISSING)
        return Missing(code, _TIERS.get(tier, ""), None if ago == MAX_U32 else ago)

    def space_info(self) -> SpaceInfo:
        return SpaceInfo(*self.read(_SPACE_INFO))


def _grouped(options: Dict[int, Any]) -> Optional[Grouped]:
    """What a reply says of groups."""
    found: Optional[Grouped] = options.get(5)
    return None if found is None else found._replace(lengths=tuple(options.get(6, ())))


def _told(match: Match, worth: int, options: Dict[int, Any]) -> Match:
    return Match(match.total, match.cpu, match.disk, match.remote, worth, _grouped(options), options.get(7))


_Readers = Dict[int, Callable[[_Cursor], Any]]
_MATCH_OPTIONS: _Readers = {5: _Cursor.grouped, 6: _Cursor.numbers, 7: _Cursor.missing}
_PREFETCH_OPTIONS: _Readers = {1: _Cursor.advice, 2: _Cursor.faults, **_MATCH_OPTIONS}
_STATE_OPTIONS: _Readers = {5: _Cursor.needs}
_RESERVE_OPTIONS: _Readers = {1: _Cursor.numbers}
_TIERS = {1: "cpu", 2: "disk", 4: "remote"}
_COUNT = struct.Struct("<QI4x")  # tokens, chunks
_STATE = struct.Struct("<HBxIQI4x")  # code, failed tier, first ref, ready
# The same with what stands behind it, and a match, as long as there are three tiers
# whose counts have not grown: one call reads all of it.
_TIERS_OF_THREE = "IH2xQI4xQI4xQI4x"
_MATCH = struct.Struct("<QI4x" + _TIERS_OF_THREE)
_STATE_OF_THREE = struct.Struct(_STATE.format + _TIERS_OF_THREE)
_THREE_TIERS = (3, _COUNT.size)
# The replies to prefetch, up to its refs, and to release, in their usual shape.
_LEASED = struct.Struct("<Q" + _MATCH.format[1:] + "I4x" + "I4x" + _STATE_OF_THREE.format[1:] + "IH2x")
_LEASED_STATE = 96  # bytes before the state
_RELEASED = struct.Struct("<H6x" + "I4x" + _STATE_OF_THREE.format[1:] + "IH2x" + "QQ")
_TWICE_THREE_TIERS = 2 * _THREE_TIERS
_NO_OPTIONS_TWICE = 2 * NO_OPTIONS
_REF = struct.Struct("<QQII")
_FAULT = struct.Struct("<H2xI")
_MISSING = struct.Struct("<HBxI")  # code, tier, ago
_NEED = struct.Struct("<6I")
_GROUPED = struct.Struct("<QQQ")  # tokens, run, lacks
_SLOT = struct.Struct("<H2xIQ")
_RESULT = struct.Struct("<H6xQ")
_CHUNK = struct.Struct("<IIQ")
_SPACE_INFO = struct.Struct("<II16s")
_HELLO = struct.Struct("<HBBIQQQQIIIIQ")
_LIMITS = struct.Struct("<18I")
_CODE8 = struct.Struct("<H6x")
_FILLED = struct.Struct("<QH6x")
_LEFT = struct.Struct("<QQ")
_REFUSAL = struct.Struct("<B3xI")


def _count(row: Tuple[int, int]) -> Count:
    return Count(row[1], row[0])


def error_reply(body: Buffer) -> Refusal:
    c = _Cursor(body)
    retry, after_ms = c.read(_REFUSAL)
    text = c.str()
    return Refusal(retry, after_ms, text, c.options({1: lambda o: o.read(_U64)[0]}).get(1))


def version_reply(body: Buffer) -> str:
    """What a daemon of any other version answers to hello, in words."""
    c = _Cursor(body)
    (n,) = c.read(_U16)
    at = c.skip(n)
    return bytes(body[at : at + n]).decode(errors="replace")


def hello_reply(body: Buffer) -> Hello:
    c = _Cursor(body)
    fixed = c.read(_HELLO)
    limits = Limits._make(c.record().read(_LIMITS))
    server = c.str()
    return Hello(*fixed, limits, server, c.options({2: _Cursor.space_info}).get(2))  # type: ignore[arg-type]


def open_space_reply(body: Buffer) -> SpaceInfo:
    c = _Cursor(body)
    info = c.space_info()
    c.options()
    return info


def lookup_reply(body: Buffer) -> Match:
    c = _Cursor(body)
    match, (worth,) = c.match(), c.read(_U32_8)
    return _told(match, worth, c.options(_MATCH_OPTIONS))


def prefetch_reply(body: Buffer) -> Prefetched:
    usual = leased(body)
    if usual is None:
        return _Cursor(body).prefetched()
    return Prefetched(usual.job, usual.match(), usual.state())


def leased(body: Buffer) -> Optional["Leased"]:
    """The reply to a prefetch in its usual shape: all that the job will have is ready,
    of three tiers, nothing has grown, no options. None where it has another."""
    if len(body) < _LEASED.size:
        return None
    numbers = _LEASED.unpack_from(body)
    code, tier, first, tokens, chunks, *three = numbers[13:20]
    end = _LEASED.size + numbers[26] * _REF.size
    if (
        (*numbers[3:5], *three) != _TWICE_THREE_TIERS
        or (code == RUNNING or tier or first)
        or numbers[12] != end + len(NO_OPTIONS) - _LEASED_STATE
        or numbers[27] != _REF.size
        or body[end:] != _NO_OPTIONS_TWICE
    ):
        return None
    refs = list(_REF.iter_unpack(memoryview(body)[_LEASED.size : end]))
    return Leased(numbers[0], code, Count(chunks, tokens), refs, numbers)


class Leased(NamedTuple):
    """A job as :func:`leased` reads it. What is seldom asked for is made on demand."""

    job: int
    reason: int  # a code
    ready: Count
    refs: List[Tuple[int, int, int, int]]  # each as a Ref has it
    numbers: Tuple[Any, ...]

    def match(self) -> Match:
        t, n, _, _, t1, n1, t2, n2, t3, n3, worth = self.numbers[1:12]
        return Match(Count(n, t), Count(n1, t1), Count(n2, t2), Count(n3, t3), worth)

    def state(self) -> JobState:
        t1, n1, t2, n2, t3, n3 = self.numbers[20:26]
        return JobState(True, self.reason, "", self.ready, (Count(n1, t1), Count(n2, t2), Count(n3, t3)), 0, self.refs)


def hint_reply(body: Buffer) -> Hinted:
    c = _Cursor(body)
    return Hinted(c.count(), c.options({1: _Cursor.faults}).get(1, ()))


def warm_reply(body: Buffer) -> Tuple[Match, JobState]:
    c = _Cursor(body)
    match, state = c.match(), c.record().state()
    c.options()
    return match, state


def _batched(c: _Cursor) -> BatchJob:
    (code,) = c.read(_CODE8)
    text = c.str()
    reply = c.record()
    return BatchJob(code, text, None if code else reply.prefetched())


def batch_reply(body: Buffer) -> Tuple[List[BatchJob], List[int]]:
    """An answer for each prompt, and the order in which to run them."""
    c = _Cursor(body)
    jobs = c.records(_batched)
    order = c.numbers()
    if len(order) != len(jobs):
        raise Malformed(f"{len(order)} numbers for {len(jobs)} jobs")
    c.options()
    return jobs, order


def job_state(body: Buffer) -> JobState:
    """The body of a push about a job, and of the reply to wait."""
    return _Cursor(body).state()


def fill_push(body: Buffer) -> int:
    """Why a fill is over."""
    c = _Cursor(body)
    (code,) = c.read(_CODE8)
    c.options()
    return code


def reserve_reply(body: Buffer) -> Tuple[int, int, List[Tuple[int, int, int]], List[int]]:
    """Fill, code, slots, each as a Slot has it, and the numbers of those that are
    there with other bytes."""
    c = _Cursor(body)
    id, code = c.read(_FILLED)
    slots = c.table(_SLOT)
    return id, code, slots, c.options(_RESERVE_OPTIONS).get(1, [])


_stored = functools.partial(tuple.__new__, Stored)


def store_reply(body: Buffer) -> List[Stored]:
    """The body of the replies to commit and put."""
    c = _Cursor(body)
    results = c.table(_RESULT, _stored)
    c.options()
    return results


def get_reply(body: Buffer) -> List[Tuple[bytes, int, int]]:
    """Payload, tokens and checksum of each chunk."""
    c = _Cursor(body)
    rows = c.table(_CHUNK, tuple)
    c.options()
    at, chunks = c.padded(sum(row[0] for row in rows)), []
    for length, tokens, total in rows:
        chunks.append((bytes(body[at : at + length]), tokens, total))
        at += length
    return chunks


def release_reply(body: Buffer) -> bool:
    """Whether what was read under the lease is good."""
    if len(body) == _RELEASED.size:
        code, size, *_, three, of, _, _, _, _, _, _, refs, _, more, last = _RELEASED.unpack(body)
        if (three, of) == _THREE_TIERS and size == _RELEASED.size - 24 and not refs and not more and not last:
            return code == 0
    c = _Cursor(body)
    (code,) = c.read(_CODE8)
    c.record().state()
    c.options()
    return code == 0


def ended_reply(body: Buffer) -> JobState:
    """The last state of a job, of the reply to release."""
    c = _Cursor(body)
    c.read(_CODE8)
    state = c.record().state()
    c.options()
    return state


def cancel_reply(body: Buffer) -> int:
    """0: the request will be answered very soon."""
    return fill_push(body)


def renew_reply(body: Buffer) -> int:
    c = _Cursor(body)
    (ms,) = c.read(_U32_8)
    c.options()
    return ms


def pin_reply(body: Buffer) -> Count:
    c = _Cursor(body)
    count = c.count()
    c.options()
    return count


def number_reply(body: Buffer) -> int:
    """The body of the replies to unpin and delete."""
    c = _Cursor(body)
    (n,) = c.read(_U64)
    c.options()
    return n


def _left(c: _Cursor) -> Tuple[str, Tuple[int, int]]:
    counts = c.read(_LEFT)
    return c.str(), counts  # type: ignore[return-value]


def flush_reply(body: Buffer) -> Flushed:
    c = _Cursor(body)
    chunks, size = c.read(_LEFT)
    left = dict(c.records(_left))
    c.options()
    return Flushed(chunks, size, left)


def stats_reply(body: Buffer) -> bytes:
    c = _Cursor(body)
    text = c.text()
    c.options()
    return text


def plain_reply(body: Buffer) -> None:
    """The body of the replies to abort and ping."""
    _Cursor(body).options()


def empty_reply(body: Buffer) -> None:
    """A reply of which nothing is wanted."""
