#!/usr/bin/env python3
"""Writes vectors.json: what package key computes, computed again from its
documentation with nothing but the Python standard library.

    python3 vectors.py > vectors.json
"""
import hashlib
import json
import struct

M64 = (1 << 64) - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
    0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def rotl(x, r):
    return ((x << r) | (x >> (64 - r))) & M64


def xxh64(data, seed):
    """XXH64 as in doc/xxhash_spec.md of the xxHash repository."""
    def mix(acc, lane):
        return rotl((acc + lane * P2) & M64, 31) * P1 & M64

    at, n = 0, len(data)
    if n >= 32:
        acc = [(seed + P1 + P2) & M64, (seed + P2) & M64, seed, (seed - P1) & M64]
        while at + 32 <= n:
            for i, lane in enumerate(struct.unpack_from("<4Q", data, at)):
                acc[i] = mix(acc[i], lane)
            at += 32
        h = sum(rotl(a, r) for a, r in zip(acc, (1, 7, 12, 18))) & M64
        for a in acc:
            h = ((h ^ mix(0, a)) * P1 + P4) & M64
    else:
        h = (seed + P5) & M64
    h = (h + n) & M64
    while at + 8 <= n:
        h = (rotl(h ^ mix(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & M64
        at += 8
    if at + 4 <= n:
        h = (rotl(h ^ struct.unpack_from("<I", data, at)[0] * P1 & M64, 23) * P2 + P3) & M64
        at += 4
    for b in data[at:]:
        h = rotl(h ^ b * P5 & M64, 11) * P1 & M64
    h = (h ^ h >> 33) * P2 & M64
    h = (h ^ h >> 29) * P3 & M64
    return h ^ h >> 32


def u32(n):
    return struct.pack("<I", n)


def text(s):
    b = s if isinstance(s, bytes) else s.encode()
    return u32(len(b)) + b


def digest(b):
    return hashlib.sha256(b).digest()[:16]


def salt_digest(s):
    return digest(b"kvstored-salt-01" + s["salt"].encode()) if s["salt"] else b""


def canonical(s):
    return (b"kvstored-space-1" + text(s["model"]) + text(s["revision"]) + text(s["lora"])
            + u32(s["world"]) + u32(s["worker"]) + text(s["dtype"]) + u32(s["chunk_tokens"])
            + text(s["method"]) + text(s["group"]) + text(salt_digest(s)) + u32(len(s["tags"]))
            + b"".join(text(n) + text(v) for n, v in s["tags"]))


def chain(s, tokens):
    seed = digest(b"kvstored-chain-1" + text(s["method"]) + u32(s["chunk_tokens"]) + text(s["salt"]))
    prev, out = seed, []
    for at in range(0, len(tokens), s["chunk_tokens"]):
        data = prev + b"".join(u32(t) for t in tokens[at:at + s["chunk_tokens"]])
        if s["method"] == "sha256":
            prev = digest(data)
        else:
            prev = b"".join(struct.pack(">Q", xxh64(data, lane)) for lane in struct.unpack("<2Q", seed))
        out.append(prev)
    return out


def given(width, raw):
    return [(raw[i:i + width] + bytes(8))[:16] for i in range(0, len(raw), width)]


BASE = dict(model="llama", revision="", lora="", world=1, worker=0, dtype="bf16", chunk_tokens=256,
            method="sha256", group="", salt="", tags=[])
FULL = dict(BASE, model="meta-llama/Llama-3.1-8B", revision="0e9e39f2", lora="sql@v2", world=8, worker=3,
            dtype="fp8 e4m3%NHD", chunk_tokens=4, group="swa~1024", salt="tenant-a",
            tags=[["a", ""], ["région", "eu"], ["x@y", "1%2"]])
SPACES = [
    (BASE, range(600)),
    (dict(BASE, method="xxh64"), range(600)),
    (dict(BASE, worker=1, world=2), range(600)),
    (FULL, [1, 2, 3, 4, 0, 0, 0, 0, 0xFFFFFFFF, 7]),
    (dict(FULL, method="xxh64"), [1, 2, 3, 4, 0, 0, 0, 0, 0xFFFFFFFF, 7]),
    (dict(BASE, chunk_tokens=1, method="xxh64"), [5, 5, 5]),
]
GIVEN = [(w, bytes(range(1, 3 * w + 1))) for w in (8, 16, 32)]

assert xxh64(b"", 0) == 0xEF46DB3751D8E999 and xxh64(b"abc", 0) == 0x44BC2CF5AD770999
out = {"spaces": [], "given": []}
for s, tokens in SPACES:
    tokens = list(tokens)
    hashes = chain(s, tokens)
    out["spaces"].append(dict(
        space=s, canonical=canonical(s).hex(), id=digest(canonical(s)).hex(), tokens=tokens,
        hashes=[h.hex() for h in hashes]))
s = dict(BASE, method="given:vllm-sha256-cbor", chunk_tokens=16)
for width, raw in GIVEN:
    hashes = given(width, raw)
    out["given"].append(dict(
        space=s, id=digest(canonical(s)).hex(), width=width, raw=raw.hex(), lengths=[16, 16, 5],
        hashes=[h.hex() for h in hashes]))
cases = {k: ",\n".join("  " + json.dumps(c, ensure_ascii=False) for c in v) for k, v in out.items()}
print("{\n" + ",\n".join(' "%s": [\n%s\n ]' % kv for kv in cases.items()) + "\n}")
