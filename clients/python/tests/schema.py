"""The wire protocol as testdata/wire/schema.json says it: reads any body strictly,
as a daemon reads requests, and makes random ones. Nothing here knows a message."""

import json
import random
from typing import Any, Dict, List, Tuple

from .daemon import ROOT

SCHEMA: Dict[str, Any] = json.loads((ROOT / "testdata" / "wire" / "schema.json").read_text())
_SCALARS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}


def codes() -> Dict[str, int]:
    return {name: number for number, name, _ in SCHEMA["codes"]}


class Wrong(ValueError):
    """Bytes are not what the schema says."""


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise Wrong(f"{n} bytes wanted at {self.at} of {len(self.data)}")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, n: int) -> int:
        if self.at % n:
            raise Wrong(f"a number of {n} bytes at {self.at}")
        return int.from_bytes(self.take(n), "little")

    def zero(self, n: int) -> None:
        if any(self.take(n)):
            raise Wrong(f"not 0 before {self.at}")

    def pad(self) -> None:
        self.zero(-self.at % 8)


def read(fields: Any, data: bytes) -> Dict[str, Any]:
    """A whole message: nothing is left over but payloads."""
    r = Reader(data)
    value = _struct(fields, r)
    if "payloads" not in (fields if isinstance(fields, list) else []) and r.at != len(data):
        raise Wrong(f"{len(data) - r.at} bytes are left over")
    return value


def _struct(fields: Any, r: Reader) -> Dict[str, Any]:
    values: Dict[str, Any] = {}
    for field in SCHEMA["types"][fields] if isinstance(fields, str) else fields:
        name, _, kind = field.partition(" ")
        if name == "zero":
            r.zero(int(kind))
        elif name == "payloads":
            values[name] = r.take(len(r.data) - r.at)
        elif name == "options":
            values[name] = _options(kind, r)
        else:
            values[name] = _value(kind, r)
    return values


def _value(kind: str, r: Reader) -> Any:
    if kind in _SCALARS:
        return r.number(_SCALARS[kind])
    if kind.startswith("bytes "):
        return r.take(int(kind[6:]))
    if kind in ("str", "text"):
        raw = r.take(r.number(4))
        r.pad()
        if kind == "str" and len(raw) > SCHEMA["limits"]["str_bytes"]:
            raise Wrong(f"a str of {len(raw)} bytes")
        return raw.decode()
    if kind.startswith("{"):
        return _record(kind[1:-1], r)
    if kind.endswith("*"):
        n, _ = r.number(4), r.zero(4)
        return [_record(kind[:-1], r) for _ in range(n)]
    if kind.endswith("[]"):
        return _array(kind[:-2], r)
    return _struct(kind, r)


def _record(kind: str, r: Reader) -> Any:
    n, _ = r.number(4), r.zero(4)
    inner = Reader(r.take(n))
    r.pad()
    value = _struct(kind, inner) if n else {}
    if inner.at != n:
        raise Wrong(f"a {kind} has {n} bytes, {inner.at} are known")
    return value


def _array(kind: str, r: Reader) -> List[Any]:
    n, size, _ = r.number(4), r.number(2), r.zero(2)
    raw = [r.take(size) for _ in range(n)]
    r.pad()
    return raw if kind == "item" else [_whole(kind, element) for element in raw]


def _whole(kind: str, data: bytes) -> Any:
    r = Reader(data)
    value = _value(kind, r)
    if r.at != len(data):
        raise Wrong(f"a {kind} has {len(data)} bytes, {r.at} are known")
    return value


def _options(name: str, r: Reader) -> Dict[str, Any]:
    n, _ = r.number(4), r.zero(4)
    known = {tag: (option, kind) for option, (tag, kind) in _known(name).items()}
    values: Dict[str, Any] = {}
    last = -1
    for _ in range(n):
        tag, _, size = r.number(2), r.zero(2), r.number(4)
        value = r.take(size)
        r.pad()
        if tag <= last:
            raise Wrong(f"option {tag} behind option {last}")
        last = tag
        if tag not in known:
            raise Wrong(f"option {tag} is not one of {name}")
        option, kind = known[tag]
        values[option] = _whole(kind, value)
    return values


def _known(name: str) -> Dict[str, Any]:
    """Tag and kind of each option of a list; in that of a request are those of all requests."""
    inherited = ["request"] if name in ("lookup", "prefetch", "reserve", "put", "hello", "hint") else []
    return {option: row for group in (*inherited, name) for option, row in SCHEMA["options"].get(group, {}).items()}


# ---- random messages ----------------------------------------------------------


def make(fields: Any, rng: random.Random, grown: bool = False) -> Tuple[bytes, Dict[str, Any]]:
    """A message and what it says. ``grown``: as of a later daemon, with longer
    elements and records, and further options."""
    values: Dict[str, Any] = {}
    out = bytearray()
    for field in SCHEMA["types"][fields] if isinstance(fields, str) else fields:
        name, _, kind = field.partition(" ")
        if name == "zero":
            out += bytes(int(kind))
        elif name == "options":
            values[name], raw = _make_options(kind, rng, grown)
            out += raw
        elif name == "payloads":
            payloads = [rng.randbytes(chunk["bytes"]) for chunk in values["chunks"]]
            values[name] = payloads
            out += b"".join(payloads)
            _pad(out)
        else:
            raw, values[name] = _make(kind, rng, grown)
            out += raw
    return bytes(out), values


def _pad(out: bytearray) -> None:
    out += bytes(-len(out) % 8)


def _make(kind: str, rng: random.Random, grown: bool) -> Tuple[bytes, Any]:
    out = bytearray()
    if kind in _SCALARS:
        n = rng.choice((0, 1, rng.getrandbits(8 * _SCALARS[kind])))
        return n.to_bytes(_SCALARS[kind], "little"), n
    if kind.startswith("bytes "):
        raw = rng.randbytes(int(kind[6:]))
        return raw, raw
    if kind in ("str", "text"):
        text = "".join(rng.choice("aé ") for _ in range(rng.randrange(20)))
        raw = text.encode()
        out += len(raw).to_bytes(4, "little") + raw
        _pad(out)
        return bytes(out), text
    if kind.startswith("{"):
        return _make_record(kind[1:-1], rng, grown)
    if kind.endswith("*"):
        rows = [_make_record(kind[:-1], rng, grown) for _ in range(rng.randrange(4))]
        out += len(rows).to_bytes(8, "little") + b"".join(raw for raw, _ in rows)
        return bytes(out), [value for _, value in rows]
    if kind.endswith("[]"):
        return _make_array(kind[:-2], rng, grown)
    return make(kind, rng, grown)


def _make_record(kind: str, rng: random.Random, grown: bool) -> Tuple[bytes, Any]:
    raw, value = make(kind, rng, grown)
    raw += rng.randbytes(8 * rng.randrange(3)) if grown else b""
    out = bytearray(len(raw).to_bytes(8, "little") + raw)
    _pad(out)
    return bytes(out), value


def _make_array(kind: str, rng: random.Random, grown: bool) -> Tuple[bytes, Any]:
    more = 8 * rng.randrange(3) if grown and kind not in _SCALARS else 0  # numbers never grow
    each = "bytes 16" if kind == "item" else kind
    rows = [_make(each, rng, False) for _ in range(rng.randrange(4))]
    if kind == "payload":  # of which the bytes follow
        rows = [(n.to_bytes(4, "little") + raw[4:], {**value, "bytes": n}) for n, (raw, value) in zip((0, 5, 8), rows)]
    size = len(rows[0][0]) + more if rows else rng.choice((0, 16))
    out = bytearray(len(rows).to_bytes(4, "little") + size.to_bytes(2, "little") + bytes(2))
    out += b"".join(raw + rng.randbytes(more) for raw, _ in rows)
    _pad(out)
    return bytes(out), [value for _, value in rows]


def _make_options(name: str, rng: random.Random, grown: bool) -> Tuple[Dict[str, Any], bytes]:
    values, rows = {}, []
    for option, (tag, kind) in _known(name).items():
        if rng.random() < 0.5:
            raw, values[option] = _make(kind, rng, grown)
            rows.append((tag, raw))
    if grown:
        rows += [(tag, rng.randbytes(rng.randrange(20))) for tag in rng.sample(range(100, 0x8000), rng.randrange(3))]
    out = bytearray(len(rows).to_bytes(8, "little"))
    for tag, raw in sorted(rows):
        out += tag.to_bytes(4, "little") + len(raw).to_bytes(4, "little") + raw
        _pad(out)
    return values, bytes(out)


# ---- as the codec of the package has it -----------------------------------------


def told(fields: Any, value: Dict[str, Any]) -> Tuple[Any, ...]:
    """What the package reads from a message that says this."""
    out: List[Any] = []
    for field in SCHEMA["types"][fields] if isinstance(fields, str) else fields:
        name, _, kind = field.partition(" ")
        if name == "options":
            said = value[name]
            for option, (_, of) in sorted(SCHEMA["options"].get(kind, {}).items(), key=lambda o: o[1][0]):
                out.append(_told(of, said[option]) if option in said else None)
        elif name == "payloads":
            whole = value[name] if isinstance(value[name], bytes) else b"".join(value[name])
            out.append(whole[: sum(chunk["bytes"] for chunk in value["chunks"])])
        elif name != "zero":
            there = fields != "batched" or name != "reply" or not value["code"]
            out.append(_told(kind, value[name]) if there else None)
    return tuple(out)


def _told(kind: str, value: Any) -> Any:
    of = kind.strip("{}[]*")
    if isinstance(value, list):
        return [told(of, v) if of in SCHEMA["types"] else v for v in value]
    if of not in SCHEMA["types"]:
        return value
    return told(of, value) if value else None


def request(wire: Any, name: str, fields: Any, value: Dict[str, Any]) -> bytes:
    """What the package makes of a request that says this; of a type the record."""
    given: Dict[str, Any] = {}
    more = b""
    for field in SCHEMA["types"][fields] if isinstance(fields, str) else fields:
        field, _, kind = field.partition(" ")
        if field == "options":
            given.update({o: _given(wire, _known(kind)[o][1], v) for o, v in value[field].items()})
        elif field == "payloads":
            more = value[field]
        elif kind == "item[]":
            items = [v.to_bytes(4, "little") if isinstance(v, int) else v for v in value[field]]
            given.update(items=b"".join(items), width=len(items[0]) if items else 0)
        elif field not in ("zero", "magic"):
            given["from_" if field == "from" else field] = _given(wire, kind, value[field])
    return getattr(wire, name)(**given) + more


def _given(wire: Any, kind: str, value: Any) -> Any:
    of = kind.strip("{}[]*")
    if of not in SCHEMA["types"]:
        return value
    if kind.endswith("[]"):
        return [told(of, v) for v in value]
    if kind.endswith("*"):
        return [request(wire, of, of, v) for v in value]
    return request(wire, of, of, value)
