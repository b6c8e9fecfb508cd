"""The scripts of testdata/conformance, step by step. The Go client runs the same
in cmd/kvstored."""

import contextlib
import itertools
import os
import time
import unittest
from typing import Dict, Iterable, Iterator, List, Tuple

import kvstored
from kvstored import Code, Space

from .daemon import ROOT, Daemon


def numbers(text: str) -> List[int]:
    return [] if text == "-" else [int(n) for n in text.split(",")]


def words(codes: Iterable[int]) -> str:
    return ",".join(Code(code).name.lower() for code in codes) or "-"


class Script:
    """One run of a script. Each step is a method: words in, words out."""

    def __init__(self, kv: kvstored.Client) -> None:
        self.kv = kv
        self.spaces: Dict[str, Space] = {}
        self.prompts: Dict[str, kvstored.Prompt] = {}

    def run(self, step: str) -> str:
        name, *args = step.split()
        return getattr(self, name)(*args) or ""

    def space(self, name: str, method: str, tokens: str) -> None:
        self.spaces[name] = Space(model="conformance", dtype="u8", method=method, chunk_tokens=int(tokens))

    def tokens(self, p: str, space: str, first: str, n: str) -> None:
        ids = list(range(int(first), int(first) + int(n)))
        self.prompts[p] = kvstored.tokens(ids, space=self.spaces[space])

    def hashes(self, p: str, space: str, seed: str, n: str) -> None:
        s = self.spaces[space]
        raw = b"".join(bytes([int(seed), i + 1]) + bytes(14) for i in range(int(n)))
        self.prompts[p] = kvstored.hashes(raw, [s.chunk_tokens] * int(n), space=s)

    def alone(self, p: str, space: str, seed: str, first: str, n: str) -> None:
        s = self.spaces[space]
        raw = b"".join(bytes([int(seed), int(first) + i + 1]) + bytes(14) for i in range(int(n)))
        self.prompts[p] = kvstored.hashes(raw, [s.chunk_tokens] * int(n), alone=True, space=s)

    def skip(self, p: str, q: str, n: str) -> None:
        self.prompts[p] = self.prompts[q]._replace(skip=int(n))

    def kept(self, p: str, q: str) -> None:
        self.prompts[p] = self.prompts[q]

    def payloads(self, p: str, first: str, sizes: str) -> List[bytes]:
        start = int(first) + self.prompts[p].skip
        return [
            bytes((31 * i + 7 * k) % 251 for k in range(size))
            for i, size in zip(itertools.repeat(0) if self.prompts[p].alone else itertools.count(start), numbers(sizes))
        ]

    def _reserve(self, p: str, first: str, sizes: str, seconds: str = "0") -> kvstored.Fill:
        n = numbers(sizes)
        return self.kv.reserve(self.prompts[p], first=int(first), count=len(n), sizes=n, max_age=int(seconds))

    def aged(self, p: str, first: str, sizes: str, seconds: str) -> str:
        return self.store(p, first, sizes, seconds)

    def over(self, p: str) -> None:
        end = time.monotonic() + 60
        while self.kv.lookup(self.prompts[p]).total.chunks:
            assert time.monotonic() < end, "it is still found"
            time.sleep(0.02)

    def store(self, p: str, first: str, sizes: str, seconds: str = "0") -> str:
        payloads = self.payloads(p, first, sizes)
        with self._reserve(p, first, sizes, seconds) as fill:
            for slot in fill:
                slot.memory[:] = payloads[slot.index]
        return words(s.grant for s in fill.slots) + " " + words(r.result for r in fill.results)

    def abandon(self, p: str, first: str, sizes: str) -> str:
        fill = self._reserve(p, first, sizes)
        fill.abort()
        return words(s.grant for s in fill.slots)

    def put(self, p: str, first: str, sizes: str) -> str:
        results = self.kv.put(self.prompts[p], self.payloads(p, first, sizes), first=int(first))
        return words(r.result for r in results)

    def lookup(self, p: str) -> str:
        total = self.kv.lookup(self.prompts[p]).total
        return f"{total.chunks} {total.tokens}"

    def why(self, p: str) -> str:
        looked = self.kv.lookup(self.prompts[p], why=True).missing
        with self.kv.prefetch(self.prompts[p], why=True) as job:
            loaded = job.match.missing
        assert (loaded and loaded[:2]) == (looked and looked[:2]), f"a prefetch is told {loaded}, a lookup {looked}"
        return Code(looked.code).name.lower() if looked else "ok"

    def read(self, p: str, first: str, sizes: str) -> str:
        with self.kv.prefetch(self.prompts[p]) as job:
            job.wait()
            got = [bytes(block) for block in job][int(first) :]
            assert all(job.verify(i) for i in range(len(job))), "a checksum"
        assert got == self.payloads(p, first, sizes), f"other bytes: {[len(g) for g in got]}"
        return "ok" if job.good else "revoked"

    def get(self, p: str, first: str, sizes: str) -> None:
        got = [c.payload for c in self.kv.get(self.prompts[p], first=int(first))]
        assert got == self.payloads(p, first, sizes), f"other bytes: {[len(g) for g in got]}"

    def sum(self, p: str, i: str) -> str:
        with self.kv.prefetch(self.prompts[p]) as job:
            job.wait()
            return f"{job.ref(int(i)).sum:016x}"

    def pin(self, p: str, name: str) -> str:
        count = self.kv.pin(self.prompts[p], name)
        return f"{count.chunks} {count.tokens}"

    def unpin(self, name: str) -> str:
        return str(self.kv.unpin(name))

    def delete(self, p: str) -> str:
        return str(self.kv.delete(self.prompts[p]))

    def flush(self) -> None:
        assert self.kv.flush(timeout=60) is not None

    def ping(self) -> None:
        assert self.kv.ping()

    def refused(self, *step: str) -> str:
        try:
            got = self.run(" ".join(step))
        except kvstored.Refused as e:
            return f"{e.code.name.lower()} {kvstored.errors.Retry(e.retry).name.lower()}"
        raise AssertionError(f"it was done: {got}")


def steps(text: str) -> List[Tuple[int, str, str]]:
    """Line number, step and expectation of each line."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        step, _, want = line.partition("#")[0].partition(" = ")
        if step.strip():
            rows.append((number, step.strip(), want.strip()))
    return rows


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The socket of a daemon that holds nothing: CONFORMANCE_SOCKET, or a new one's."""
    given = os.environ.get("CONFORMANCE_SOCKET")
    if given:
        yield given
        return
    with Daemon() as daemon:
        yield daemon.socket


class Conformance(unittest.TestCase):
    def test_scripts(self) -> None:
        scripts = sorted((ROOT / "testdata" / "conformance").glob("*.txt"))
        self.assertTrue(scripts)
        for path in scripts:
            with served() as socket, kvstored.Client(socket, timeout=60) as kv:
                script = Script(kv)
                for number, step, want in steps(path.read_text()):
                    with self.subTest(f"{path.name}:{number}: {step}"):
                        self.assertEqual(script.run(step), want)
