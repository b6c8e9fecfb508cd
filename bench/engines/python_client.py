#!/usr/bin/env python3
"""Gets of the Python client against redis-py, in one run on one machine.

Both servers listen on a Unix socket and hold the same values in memory. "view"
leases a value, reads its first and last byte where it lies and gives the lease
back; "copy" copies it into memory of its own besides; redis-py gets bytes.
Last, the times of a vLLM scheduler's calls on KvstoredTier.

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
SECONDS = 1.5  # for each number
VALUES = 16  # of each size
SPACE = kvstored.Space(model="bench", dtype="u8", chunk_tokens=4, method="given:bench")


def prompt(size: int, i: int) -> kvstored.Prompt:
    return kvstored.hashes(hashlib.sha256(f"{size}/{i}".encode()).digest()[:16], [4])


def median(get: Callable[[int], None]) -> float:
    """Seconds of the median call."""
    times: List[float] = []
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for i in range(VALUES):
            began = time.perf_counter()
            get(i)
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def gets(kv: kvstored.Client, server: redis.Redis) -> None:
    print(f"{'value':>10} {'redis-py':>11} {'copy':>11} {'view':>11} {'copy':>8} {'view':>8}")
    for size in SIZES:
        value = hashlib.shake_128(str(size).encode()).digest(size)
        for i in range(VALUES):
            server.set(f"{size}/{i}", value)
            with kv.reserve(prompt(size, i), size=size) as fill:
                for slot in fill:
                    slot.memory[:] = value
        mine = bytearray(size)
        to = address(mine)

        def view(i: int) -> None:
            with kv.prefetch(prompt(size, i)) as job:
                block = job.block(0)
                assert block[0] == value[0] and block[-1] == value[-1]
            assert job.good

        def copied(i: int) -> None:
            with kv.prefetch(prompt(size, i)) as job:
                copy(to, *job.address(0))
            assert job.good

        def theirs(i: int) -> None:
            assert len(server.get(f"{size}/{i}")) == size

        r, c, v = median(theirs), median(copied), median(view)
        assert mine == value
        print(f"{size >> 10:>6} KiB {r * 1e6:>8.0f} us {c * 1e6:>8.0f} us {v * 1e6:>8.0f} us {r / c:>7.1f}x {r / v:>7.1f}x")


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
