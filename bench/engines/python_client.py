#!/usr/bin/env python3
"""Gets of the Python client against redis-py, in one run on one machine.

Both servers listen on a Unix socket and hold the same values in memory. In the
first four columns one value is read at a time. redis-py gets bytes. "view"
leases a value, reads its first and last byte where it lies, and gives the lease
back with the next request; at the end of every round of 16 it is made sure that
all leases held, which is part of the time. "copy" is the same, with a copy into
the reader's own memory, and "sure" waits for each release on its own. "mget"
reads 16 values with one command of redis-py, "views" with one lease of 16 that
stand alone, as the engines' classes do. The contenders take turns, round by
round. Last, the times of a vLLM scheduler's calls on KvstoredTier.

    KVSTORED_BIN=/path/to/kvstored bench/engines/python_client.py
"""

from __future__ import annotations

import hashlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients" / "python"))

import redis  # noqa: E402

import kvstored  # noqa: E402
from kvstored.memory import address, copy  # noqa: E402
from kvstored.vllm import KvstoredTier  # noqa: E402
from tests.daemon import Daemon  # noqa: E402

SIZES = (256 << 10, 1 << 20, 4 << 20, 8 << 20)
SECONDS = 1.0  # for each number
VALUES = 16  # of each size
SPACE = kvstored.Space(model="bench", dtype="u8", chunk_tokens=4, method="given:bench")


def prompt(size: int, *numbers: int) -> kvstored.Prompt:
    """One value, or some that stand alone."""
    raw = b"".join(hashlib.sha256(f"{size}/{i}".encode()).digest()[:16] for i in numbers)
    return kvstored.hashes(raw, [4] * len(numbers), alone=True)


def medians(rounds: List[Callable[[], None]]) -> List[float]:
    """Seconds a value in the median round of each contender; they take turns."""
    times: List[List[float]] = [[] for _ in rounds]
    until = time.monotonic() + SECONDS * len(rounds)
    while time.monotonic() < until:
        for taken, one in zip(times, rounds):
            began = time.perf_counter()
            one()
            taken.append((time.perf_counter() - began) / VALUES)
    return [statistics.median(taken) for taken in times]


def gets(kv: kvstored.Client, server: redis.Redis) -> None:
    names = ("redis-py", "sure", "copy", "view", "mget", "views")
    print(f"{'value':>10}" + "".join(f"{n:>11}" for n in names) + "".join(f"{n:>8}" for n in (*names[1:4], "views")))
    for size in SIZES:
        value = hashlib.shake_128(str(size).encode()).digest(size)
        prompts = [prompt(size, i) for i in range(VALUES)]
        for i, p in enumerate(prompts):
            server.set(f"{size}/{i}", value)
            with kv.reserve(p, size=size) as fill:
                for slot in fill:
                    slot.memory[:] = value
        mine = bytearray(size)
        to = address(mine)

        def look(job: kvstored.Job) -> None:
            block = job.block(0)
            assert block[0] == value[0] and block[-1] == value[-1]

        def take(job: kvstored.Job) -> None:
            copy(to, *job.address(0))

        def lease(read: Callable[[kvstored.Job], None]) -> None:
            jobs = []
            for p in prompts:
                job = kv.prefetch(p)
                read(job)
                job.release_soon()
                jobs.append(job)
            assert all(job.release() for job in jobs)

        def sure() -> None:
            for p in prompts:
                with kv.prefetch(p) as job:
                    look(job)
                assert job.good

        def theirs() -> None:
            for i in range(VALUES):
                assert len(server.get(f"{size}/{i}")) == size

        together = prompt(size, *range(VALUES))

        def views() -> None:
            with kv.prefetch(together) as job:
                for block in job:
                    assert block[0] == value[0] and block[-1] == value[-1]
                assert len(job) == VALUES
            assert job.good

        def mget() -> None:
            got = server.mget([f"{size}/{i}" for i in range(VALUES)])
            assert all(len(v) == size for v in got)

        times = medians([theirs, sure, lambda: lease(take), lambda: lease(look), mget, views])
        assert mine == value
        ratios = [times[0] / t for t in times[1:4]] + [times[4] / times[5]]
        print(
            f"{size >> 10:>6} KiB"
            + "".join(f"{t * 1e6:>8.0f} us" for t in times)
            + "".join(f"{r:>7.1f}x" for r in ratios)
        )


def scheduler(socket: str) -> None:
    rows, row = 64, 64 << 10
    memory = memoryview(bytearray(rows * row)).cast("B", (rows, row))
    config = SimpleNamespace(model_config=SimpleNamespace(model="bench"))
    tier = KvstoredTier(config, memory, socket=socket)
    keys = [hashlib.sha256(str(i).encode()).digest() for i in range(20_000)]
    done: List[Any] = []
    times = {"lookup": [], "get_finished": []}
    tier.submit_store(SimpleNamespace(job_id=0, keys=keys[:rows], block_ids=range(rows)))
    for i in range(10_000):
        began = time.perf_counter()
        tier.lookup(keys[i % 2 * 10_000 + i // 2 % 10_000])
        times["lookup"].append(time.perf_counter() - began)
        began = time.perf_counter()
        done += tier.get_finished()
        times["get_finished"].append(time.perf_counter() - began)
        if i % 100 == 0:
            time.sleep(0.001)
    tier.drain_jobs()
    tier.shutdown()
    for name, taken in times.items():
        taken.sort()
        p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
        print(f"KvstoredTier.{name}: p50 {p50 * 1e6:.1f} us, p99 {p99 * 1e6:.1f} us, longest {taken[-1] * 1e3:.2f} ms")


def main() -> None:
    folder = tempfile.mkdtemp(prefix="kvs")
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", f"{folder}/r", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    try:
        with Daemon(dram="1GiB") as daemon, kvstored.Client(daemon.socket, space=SPACE, timeout=10) as kv:
            theirs = redis.Redis(unix_socket_path=f"{folder}/r")
            while True:
                try:
                    theirs.ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.05)
            gets(kv, theirs)
            scheduler(daemon.socket)
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
