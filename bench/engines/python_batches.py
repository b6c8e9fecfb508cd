#!/usr/bin/env python3
"""Puts and gets of the Python client, beside those of another commit.

    go build -o /tmp/kvstored ./cmd/kvstored
    bench/engines/python_batches.py --daemon /tmp/kvstored --old OTHER/kvstored OTHER/clients/python

Both daemons run and are warm, each with a process of its client, anew for each size;
passes of some 20 ms go to them in turns, each behind some ms that are not timed: the
kernel has to place both processes, and a client that lost the processor does not poll. A pass moves 128 MiB: 64 and 256 KiB in prompts of 16
chunks, 1, 4 and 8 MiB in prompts of one. Puts store new prompts out of one buffer, with
a Writer where the client has one, else with reserve and commit; with --wait they may
wait so long for room, as ``Client.store`` does. Gets copy all chunks
into a buffer, with copy_to where the client has it, and wait for the release. "Soon"
gives the lease back with the next request, and makes sure of all once in 32 leases.
"copies" are the bare copies of the same bytes from the same memory, one call each.
Times are medians, in microseconds a chunk; ratios are those of each pair of passes,
median and quartiles.

Without --old only this tree's are timed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

HERE = Path(__file__).resolve()
OURS = HERE.parents[2] / "clients" / "python"
PASS = 128 << 20
BATCH = 16
SMALL = 1 << 20  # from so many bytes on a prompt is one chunk
CONFIG = """\
listen: {{socket: {dir}/s}}
admin: {{listen: ""}}
cpu: {{capacity: 1GiB}}
disk: {{paths: [{dir}], capacity: 0}}
log: {{level: warn}}
"""
SIZES = (64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20)
WHATS = ("put", "get", "soon", "copies")  # in order: gets read what the last puts stored


def lead(prompts: List[Any]) -> List[Any]:
    """Those that go before a pass and are not timed."""
    return prompts[: max(1, len(prompts) // 5)]


class Worker:
    """One client in a process of its own: a line of its input is a pass."""

    def __init__(self, socket: str, wait: float) -> None:
        import kvstored
        from kvstored.memory import address, copy

        self.kvstored, self.copy, self.wait = kvstored, copy, wait
        space = kvstored.Space(model="bench", dtype="u8", chunk_tokens=4, method="given:bench")
        self.kv = kvstored.Client(socket, space=space, timeout=30)
        assert self.kv.wait_attached(30)
        self.memory = bytearray(os.urandom(1 << 20) * 8)
        self.at = address(self.memory)
        self.stored: Dict[int, List[Any]] = {}

    def prompts(self, size: int) -> List[Any]:
        """New ones, of a pass."""
        n = BATCH if size < SMALL else 1
        return [self.kvstored.hashes(os.urandom(16 * n), [4] * n) for _ in range(PASS // size // n)]

    def ping(self, size: int) -> float:
        for timed in (200, 1000):
            began = time.perf_counter()
            for _ in range(timed):
                self.kv.ping()
        return (time.perf_counter() - began) / 1000

    def put(self, size: int) -> float:
        n = BATCH if size < SMALL else 1
        store = self._write if hasattr(self.kv, "writer") else self._reserve
        store(lead(self.prompts(size)), size, n)
        self.stored[size] = prompts = self.prompts(size)
        began = time.perf_counter()
        store(prompts, size, n)
        return (time.perf_counter() - began) / n / len(prompts)

    def _write(self, prompts: List[Any], size: int, n: int) -> None:
        sizes = [size] * n
        with self.kv.writer() as w, memoryview(self.memory)[: size * n] as payloads:
            puts = [w.put(p, sizes, payloads, wait=self.wait) for p in prompts]
        assert all(r.result == 0 for put in puts for r in put.results())

    def _reserve(self, prompts: List[Any], size: int, n: int) -> None:
        at, copy = self.at, self.copy
        for p in prompts:
            with self.kv.reserve(p, size=size, count=n, wait=self.wait) as fill:
                for slot in fill:
                    copy(slot.address, at + slot.index * size, size)
            assert all(r.result == 0 for r in fill.results) and len(fill.results) == n

    def _lease(self, size: int, read: Callable[[Any], None]) -> float:
        prompts = self.stored[size]
        for p in lead(prompts):
            read(self.kv.prefetch(p))
        began = time.perf_counter()
        for p in prompts:
            read(self.kv.prefetch(p))
        return (time.perf_counter() - began) / len(prompts) / (BATCH if size < SMALL else 1)

    def _copied(self, job: Any, size: int) -> None:
        if hasattr(job, "copy_to"):
            assert job.copy_to(self.memory)
            return
        copy, at = self.copy, self.at
        for i in range(len(job)):
            from_, length = job.address(i)
            copy(at + i * size, from_, length)

    def get(self, size: int) -> float:
        def read(job: Any) -> None:
            self._copied(job, size)
            assert len(job) and job.release()

        return self._lease(size, read)

    def soon(self, size: int) -> float:
        jobs: List[Any] = []

        def read(job: Any) -> None:
            self._copied(job, size)
            job.release_soon()
            jobs.append(job)
            if len(jobs) == 32:
                assert all(job.release() for job in jobs)
                jobs.clear()

        took = self._lease(size, read)
        assert all(job.release() for job in jobs)
        return took

    def copies(self, size: int) -> float:
        jobs = [self.kv.prefetch(p) for p in self.stored[size]]
        places = [[job.address(i) for i in range(len(job))] for job in jobs]
        copy, at, n = self.copy, self.at, BATCH if size < SMALL else 1
        began = time.perf_counter()
        for of in places:
            for i, (from_, length) in enumerate(of):
                copy(at + i * size, from_, length)
        took = time.perf_counter() - began
        assert all(job.release() for job in jobs)
        return took / n / len(places)

    def run(self) -> None:
        print("ready", flush=True)
        for line in sys.stdin:
            what, size = line.split()
            print(getattr(self, what)(int(size)), flush=True)


class Contender:
    """A daemon, and the process of a client."""

    def __init__(self, stack: ExitStack, wait: float, daemon: str, client: Path) -> None:
        folder = tempfile.mkdtemp(prefix="kvs")
        stack.callback(shutil.rmtree, folder, True)
        (Path(folder) / "c.yaml").write_text(CONFIG.format(dir=folder))
        self._begin(stack, [daemon, "serve", "--config", f"{folder}/c.yaml"])
        self.worker = self._begin(stack, [sys.executable, "-B", str(HERE), "--worker", f"{folder}/s", str(client), str(wait)])
        assert self.worker.stdout is not None and self.worker.stdout.readline() == "ready\n"

    @staticmethod
    def _begin(stack: ExitStack, command: List[str]) -> "subprocess.Popen[str]":
        own = {k: v for k, v in os.environ.items() if not k.startswith("KVSTORED_")}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own)
        stack.callback(process.wait, 30)
        stack.callback(process.terminate)
        return process

    def one(self, what: str, size: int) -> float:
        """A pass: seconds a chunk."""
        assert self.worker.stdin is not None and self.worker.stdout is not None
        self.worker.stdin.write(f"{what} {size}\n")
        self.worker.stdin.flush()
        line = self.worker.stdout.readline()
        if not line:
            raise SystemExit("the worker ended")
        return float(line)


def timed(contenders: List[Contender], what: str, size: int, pairs: int) -> List[List[float]]:
    """The passes of each contender, one after the other, the first of a pair in turn."""
    for c in contenders:
        for _ in range(10 if what == "put" else 2):  # DRAM is full afterwards
            c.one(what, size)
    took: List[List[float]] = [[] for _ in contenders]
    for i in range(pairs):
        for k in (range(len(contenders)), reversed(range(len(contenders))))[i % 2]:
            took[k].append(contenders[k].one(what, size))
    return took


def row(what: str, size: int, took: List[List[float]]) -> str:
    cells = [f"{what:>7} {size >> 10:>6} KiB"] + [f"{statistics.median(t) * 1e6:>9.1f}" for t in took]
    if len(took) == 2:
        low, middle, high = statistics.quantiles([old / new for old, new in zip(*took)], n=4)
        cells.append(f"{middle:>6.2f}x ({low:.2f} to {high:.2f})")
    return " ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description="Puts and gets of the Python client, beside another commit's.")
    parser.add_argument("--daemon", default=os.environ.get("KVSTORED_BIN"), help="this tree's; default: $KVSTORED_BIN")
    parser.add_argument("--old", nargs=2, metavar=("DAEMON", "CLIENTDIR"), help="what is timed beside it")
    parser.add_argument("--pairs", type=int, default=25, help="passes of each that are timed")
    parser.add_argument("--only", default="", help="what is timed, by commas: ping, put, get, read, soon, copies")
    parser.add_argument("--sizes", default="", help="KiB that are timed, by commas")
    parser.add_argument("--wait", type=float, default=0, help="seconds that a put may wait for room")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        sys.path.insert(0, args.worker[1])
        Worker(args.worker[0], float(args.worker[2])).run()
        return
    if not args.daemon or args.pairs < 2:
        parser.error("say --daemon or $KVSTORED_BIN, and at least 2 --pairs")
    compare(args)


def compare(args: argparse.Namespace) -> None:
    kinds: List[Tuple[str, Path]] = [(args.daemon, OURS)]
    if args.old:
        kinds.insert(0, (args.old[0], Path(args.old[1])))
    only = args.only.split(",") if args.only else ["ping", *WHATS]
    sizes = [int(s) << 10 for s in args.sizes.split(",") if s] or SIZES
    for size in sizes:  # DRAM has values of one size
        with ExitStack() as stack:
            contenders = [Contender(stack, args.wait, *kind) for kind in kinds]
            if size == sizes[0] and "ping" in only:
                print(row("ping", 0, timed(contenders, "ping", 0, args.pairs)), flush=True)
            for what in WHATS:
                if what in only:
                    print(row(what, size, timed(contenders, what, size, args.pairs)), flush=True)
                elif what == "put":
                    timed(contenders, what, size, 1)


if __name__ == "__main__":
    main()
