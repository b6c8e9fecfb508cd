"""The daemon's memory and a GPU, through NVIDIA's driver: what it page-locks, how
fast, and copies beside those of the driver's own page-locked memory.

    go build -o /tmp/kvstored ./cmd/kvstored
    KVSTORED_BIN=/tmp/kvstored python3 bench/gpu/gpu.py [--arena 16GiB] [--rounds 9] [--pause 80]

It needs Linux, an NVIDIA GPU with its driver (libcuda.so.1; no toolkit, no torch)
and memory for the arena and 3 GiB more. Where there is none it says so and ends
with status 3. It prints tables:

- registered: which flags the driver takes for the arena (read-only, sealed) and for
  the staging window, with and without huge
  pages, and how long it takes, the pages looked at before or not;
- copies: GiB/s to the GPU and from it, in chunks at scattered places, of page-locked
  memory of kvstored, of the same memory without, and of the driver's own;
- end to end: a prompt put from the GPU and loaded to it, every byte compared,
  beside the copies alone;
- ends: the daemon is killed, restarted, and memory unmapped, while it is page-locked;
- a pause: a put after the daemon gives unused parts of windows back, with
  `keep_staging` and without.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
from typing import Callable, Dict, Iterator, List, Tuple

from device import ATTRIBUTES, Copies, Device, copy, rate, row, size, table

import kvstored  # device.py found it
from kvstored import cuda, memory
from kvstored.memory import Mapping
from tests.daemon import Daemon

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
FLAGS = {0: "none", 1: "PORTABLE", 2: "DEVICEMAP", 8: "READ_ONLY", 9: "READ_ONLY, PORTABLE", 11: "all three"}
POPULATE_READ = 22  # MADV_POPULATE_READ
SPACE = kvstored.Space(model="gpu", dtype="bf16", chunk_tokens=16)
SIZES = (64 * KIB, 256 * KIB, 1 * MIB, 4 * MIB, 8 * MIB, 64 * MIB)


@contextlib.contextmanager
def daemon(arena: int, huge: str = "auto") -> Iterator[Daemon]:
    with Daemon(dram=f"{arena}, hugepages: {huge}") as running:
        yield running


def client(socket: str, keep: bool = True, window: int = GIB) -> kvstored.Client:
    return kvstored.Client(socket, space=SPACE, timeout=60, staging_bytes=window, keep_staging=keep)


# ---- registering -------------------------------------------------------------


def registered(gpu: Device, what: str, mapping: Mapping, flags: Tuple[int, ...]) -> None:
    """Registers a mapping whose pages were not looked at, then looks at them, and
    registers it again with each of the flags."""
    for looked in (False, True):
        if looked:
            mapping.view.obj.madvise(POPULATE_READ)
        for flag in flags if looked else flags[-1:]:
            error, took = gpu.lock(mapping.address, mapping.size, flag)
            cells = [what, size(mapping.size), "yes" if looked else "no", FLAGS[flag]]
            if error:
                row(*cells, error, "", "")
                continue
            failed, gone = gpu.unlock(mapping.address)
            row(*cells, "page-locked", *(f"{t:.3f} s, {rate(mapping.size, t)} GiB/s" for t in (took, gone)), failed)


def registering(gpu: Device, arena: int) -> None:
    table("memory", "size", "looked at", "flags", "answer", "registered", "unregistered", "")
    read_only, writable = (0, 1, 2, 8, 11, 9), (9, 2, 0, 1)
    small = min(arena, 2 * GIB)
    for huge in ("off", "auto"):
        with daemon(small, huge) as running, client(running.socket, window=min(GIB, small)) as kv:
            registered(gpu, f"arena, hugepages: {huge}", kv.arena, read_only)
            registered(gpu, "staging window", kv._link.staging, writable)
    if arena > small:
        with daemon(arena) as running, client(running.socket) as kv:
            registered(gpu, "arena", kv.arena, (9,))
    began = time.perf_counter()
    with gpu.memory(small, host=True):
        took = time.perf_counter() - began
        began = time.perf_counter()
    row("the driver's own", size(small), "", "", "page-locked", *(f"{t:.3f} s, {rate(small, t)} GiB/s" for t in (took, time.perf_counter() - began)), "")


# ---- copies ------------------------------------------------------------------


def scattered(way: str, gpu_at: int, host_at: int, room: int, chunk: int, total: int, seed: int) -> Copies:
    """Chunks in random order at both ends."""
    places = [i * chunk for i in range(room // chunk)]
    ours, theirs = (random.Random(seed + i).sample(places, min(len(places), max(1, total // chunk))) for i in (0, 1))
    if way == "up":
        return [copy(gpu_at + a, host_at + b, chunk) for a, b in zip(ours, theirs)]
    return [copy(host_at + b, gpu_at + a, chunk) for a, b in zip(ours, theirs)]


def compare(gpu: Device, way: str, kinds: Dict[str, int], at: int, room: int, rounds: int) -> None:
    """GiB/s of each kind of memory, in turns."""
    shapes = [(size(chunk), chunk, min(room, 512 * MIB)) for chunk in SIZES if chunk <= room]
    shapes += [("one of 1 MiB", MIB, MIB), ("32 x 1 MiB", MIB, 32 * MIB)]
    for name, chunk, total in shapes:
        took: Dict[str, List[float]] = {kind: [] for kind in kinds}
        for turn in range(rounds + 1):
            for kind, host in kinds.items():
                copies = scattered(way, at, host, room, chunk, total, turn)
                seconds = gpu.copies(way, copies)
                if turn:  # the first round warms up
                    took[kind].append(seconds / (len(copies) * chunk))
        own = statistics.median(took["the driver's own"])
        cells = []
        for kind in kinds:
            each = statistics.median(took[kind])
            cells.append(rate(1, each) + ("" if kind == "the driver's own" else f" ({own / each:.2f})"))
        row("to the GPU" if way == "up" else "from the GPU", name, *cells)


def copying(gpu: Device, rounds: int, room: int) -> None:
    table("GiB/s", "chunks", "the driver's own", "page-locked (share of own)", "not page-locked (share of own)")
    with daemon(room) as running, client(running.socket, window=room) as kv, client(running.socket, window=room) as plain:
        registration = locked(kv)
        with gpu.memory(room) as at, gpu.memory(room, host=True) as own:
            up = {"the driver's own": own, "arena": kv.arena.address, "plain": plain.arena.address}
            compare(gpu, "up", up, at, room, rounds)
            window = min(room, kv._link.staging.size)
            down = {"the driver's own": own, "window": kv._link.staging.address, "plain": plain._link.staging.address}
            compare(gpu, "down", down, at, window, rounds)
        registration.close()


def locked(kv: kvstored.Client) -> cuda.Registration:
    """What an engine gets: the registration of the client's own module."""
    registration = cuda.register(kv)
    assert registration is not None
    registration.wait()
    if not (registration.arena and registration.staging):
        print(f"\nPage-locked: arena {registration.arena}, window {registration.staging}. The rows below say page-locked all the same.")
    return registration


# ---- end to end --------------------------------------------------------------


class Prompts:
    """Prompts of chunks whose KV is on the GPU, and comes back to another place there."""

    def __init__(self, gpu: Device, kv: kvstored.Client, chunks: int, chunk: int, at: int, own: int) -> None:
        self.gpu, self.kv, self.count, self.chunk, self.total = gpu, kv, chunks, chunk, chunks * chunk
        self.source, self.target, self.own = at, at + self.total, own

    def prompt(self, number: int) -> kvstored.Prompt:
        return kvstored.tokens([number * 1000 + i for i in range(16 * self.count)])

    def make(self) -> bytes:
        """Puts new KV on the GPU."""
        kv = os.urandom(self.total)
        self.gpu.copies("up", [copy(self.source, memory.address(kv), self.total)])
        self.gpu.clear(self.target, self.total)
        return kv

    def put(self, number: int) -> float:
        began, done = time.perf_counter(), 0
        while done < self.count:
            with self.kv.reserve(self.prompt(number), size=self.chunk, first=done, count=self.count - done, wait=10) as fill:
                slots = list(fill)
                self.gpu.copies("down", [copy(s.address, self.source + (done + s.index) * self.chunk, self.chunk) for s in slots])
            if not slots or any(result.result for result in fill.results):
                raise SystemExit(f"chunk {done} of {self.count} was not stored: {fill}, {fill.results}")
            done += len(slots)
        return time.perf_counter() - began

    def load(self, number: int) -> float:
        began = time.perf_counter()
        with self.kv.prefetch(self.prompt(number)) as job:
            job.wait()
            blocks = [copy(self.target + i * self.chunk, *job.address(i)) for i in range(self.count)]
            self.gpu.copies("up", blocks)
        if not job.good:
            raise SystemExit(f"the lease of prompt {number} was lost: {job}")
        return time.perf_counter() - began

    def alone(self, way: str) -> float:
        """The copies without kvstored."""
        gpu_at = self.source if way == "down" else self.target
        pairs = [(gpu_at + i * self.chunk, self.own + i * self.chunk) for i in range(self.count)]
        return self.gpu.copies(way, [copy(a, b, self.chunk) if way == "up" else copy(b, a, self.chunk) for a, b in pairs])

    def wrong(self, expected: bytes) -> int:
        """Chunks on the GPU that are not what was put."""
        got = bytearray(self.total)
        self.gpu.copies("down", [copy(memory.address(got), self.target, self.total)])
        parts = range(0, self.total, self.chunk)
        return sum(got[i : i + self.chunk] != expected[i : i + self.chunk] for i in parts)


@contextlib.contextmanager
def prompts(gpu: Device, chunks: int, chunk: int, keep: bool = True) -> Iterator[Tuple[Daemon, Prompts]]:
    total = chunks * chunk
    with daemon(max(4 * total, 64 * MIB)) as running, client(running.socket, keep, min(GIB, 2 * total)) as kv:
        with gpu.memory(2 * total) as at, gpu.memory(total, host=True) as own:
            yield running, Prompts(gpu, kv, chunks, chunk, at, own)


def end_to_end(gpu: Device, rounds: int, chunks: int, chunk: int) -> None:
    table("a prompt", "GPU to kvstored", "its copies alone", "times", "kvstored to GPU", "its copies alone", "times", "chunks that differ")
    took: Dict[str, List[float]] = {"put": [], "down": [], "load": [], "up": []}
    wrong = 0
    with prompts(gpu, chunks, chunk) as (_, all):
        registration = locked(all.kv)
        for number in range(rounds + 1):
            expected = all.make()
            seconds = {"put": all.put(number), "down": all.alone("down"), "load": all.load(number)}
            wrong += all.wrong(expected)
            seconds["up"] = all.alone("up")
            if number:
                for key, value in seconds.items():
                    took[key].append(value)
            all.kv.delete(all.prompt(number))
        registration.close()
    m = {key: statistics.median(values) for key, values in took.items()}
    cells: List[str] = []
    for ours, alone in (("put", "down"), ("load", "up")):
        cells += [f"{1e3 * m[key]:.2f} ms, {rate(chunks * chunk, m[key])} GiB/s" for key in (ours, alone)] + [f"{m[ours] / m[alone]:.2f}"]
    row(f"{chunks} x {size(chunk)}", *cells, f"{wrong} of {chunks * (rounds + 1)}")
    if wrong:
        raise SystemExit(1)


# ---- ends --------------------------------------------------------------------


def ends(gpu: Device, chunks: int, chunk: int) -> None:
    table("what happens while memory is page-locked", "")
    with prompts(gpu, chunks, chunk) as (running, all):
        registration = locked(all.kv)
        expected = all.make()
        all.put(1)
        job = all.kv.prefetch(all.prompt(1))
        job.wait()
        copies = [copy(all.target + i * chunk, job.address(i)[0], chunk) for i in range(chunks)]
        old = all.kv.epoch
        running.kill()
        gpu.clear(all.target, all.total)
        gpu.copies("up", copies)
        row("the daemon is killed: copies from its memory", "right" if not all.wrong(expected) else "WRONG")
        began = time.perf_counter()
        running.start()
        running.wait()
        while all.kv.epoch in (None, old) or not all.kv.attached:
            time.sleep(0.001)
        registration.wait()
        row("it starts again: until the client has its new memory, page-locked", f"{time.perf_counter() - began:.2f} s")
        row("arena, window page-locked again", f"{registration.arena}, {registration.staging}")
        gpu.clear(all.target, all.total)
        gpu.copies("up", copies)
        row("copies from the memory of before, which a job still holds", "right" if not all.wrong(expected) else "WRONG")
        job.release()
        expected = all.make()
        all.put(2)
        all.load(2)
        row("a prompt that is put and loaded then", "right" if not all.wrong(expected) else "WRONG")
        del job, copies
        registration.close()
    for what, code in (("unmapped, then a copy from there", "copy"), ("unmapped, then unregistered", "unregister")):
        with daemon(64 * MIB) as running:  # the child may be killed by what it does
            command = [sys.executable, __file__, "--unmap", code, "--socket", running.socket]
            child = subprocess.run(command, capture_output=True, text=True, timeout=60)
        row(what, child.stdout.strip() or f"ends with status {child.returncode}: {child.stderr.strip()[-200:]}")


def unmap(what: str, socket: str) -> None:
    """A mapping that is unmapped while it is page-locked; in a process of its own."""
    gpu = Device()
    with client(socket) as kv, gpu.memory(MIB) as at:
        mapping = kv.arena
        error = gpu.lock(mapping.address, mapping.size, gpu.flags(mapping))[0]
        if error:
            print(f"not page-locked: {error}")
            return
        libc = cuda.ctypes.CDLL(None)
        libc.mmap.restype = cuda.ctypes.c_void_p
        # Pages without access in its place, so that nothing else gets it.
        libc.mmap(cuda.ctypes.c_void_p(mapping.address), cuda.ctypes.c_size_t(mapping.size), 0, 0x32, -1, cuda.ctypes.c_long(0))
        if what == "unregister":
            print(gpu.unlock(mapping.address)[0] or "no error")
            return
        try:
            gpu.copies("up", [copy(at, mapping.address, MIB)])
            print("no error")
        except OSError as e:
            print(e)


def pause(gpu: Device, seconds: float, chunks: int, chunk: int) -> None:
    """A put, a pause in which the daemon gives unused parts of a window back, and
    another one through the same part."""
    table(f"a put after {seconds:g} s in which nothing is put", "chunks that differ")
    for keep in (True, False):
        with prompts(gpu, chunks, chunk, keep) as (_, all):
            window = all.kv._link.staging
            error = gpu.lock(window.address, window.size, 1)[0]
            for number in (1, 2):
                expected = all.make()
                all.put(number)
                if number == 1:
                    time.sleep(seconds)
            all.load(2)
            row(f"keep_staging: {keep}, page-locked: {error or 'yes'}", f"{all.wrong(expected)} of {chunks}")
            if not error:
                gpu.unlock(window.address)


def between(least: float, most: float, unit: str = "") -> Callable[[str], float]:
    """Reads a number in these bounds, or a size if there is a unit."""

    def read(text: str) -> float:
        found = re.fullmatch(r"(\d+)(MiB|GiB)" if unit else r"(\d+)()", text)
        value = int(found[1]) * {"MiB": MIB, "GiB": GIB, "": 1}[found[2]] if found else -1
        if not least <= value <= most:
            bounds = f"{size(int(least))} to {size(int(most))}, written as 16{unit}" if unit else f"{least:g} to {most:g}"
            raise argparse.ArgumentTypeError(f"{text!r} is none of {bounds}")
        return value

    return read


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--arena", type=between(16 * MIB, 1 << 40, "GiB"), default=16 * GIB, help="largest arena that is registered")
    parse.add_argument("--rounds", type=between(1, 1000), default=9)
    parse.add_argument("--prompt", type=between(MIB, 2 * GIB, "MiB"), default=256 * MIB, help="KV of the prompt, in 64 chunks")
    parse.add_argument("--pause", type=between(0, 3600), default=80, help="seconds; windows shrink after 75; 0 leaves it out")
    parse.add_argument("--unmap", help=argparse.SUPPRESS)
    parse.add_argument("--socket", help=argparse.SUPPRESS)
    args = parse.parse_args()
    try:
        gpu = Device()
    except OSError as e:
        print(f"there is no NVIDIA GPU to measure with: {e}", file=sys.stderr)
        raise SystemExit(3) from None
    if args.unmap:
        return unmap(args.unmap, args.socket)
    print(f"{gpu.name}, {os.cpu_count()} processors, Linux {platform.release()}, medians of {args.rounds} rounds")
    for what, attribute in ATTRIBUTES.items():
        print(f"- {what}: {'yes' if gpu.attribute(attribute) else 'no'}")
    chunk = args.prompt // 64
    registering(gpu, args.arena)
    copying(gpu, args.rounds, min(args.arena, GIB))
    end_to_end(gpu, args.rounds, 64, chunk)
    ends(gpu, 16, chunk)
    if args.pause:
        pause(gpu, args.pause, 16, chunk)


if __name__ == "__main__":
    main()
