"""Time to the first token of llama.cpp with prompts that are computed, in DRAM, on
disk after a restart of the daemon, and in a bucket that answers after 30 ms; all
in one run, in turns, on random models of 10 and 100 MB.

    go build -o /tmp/kvstored ./cmd/kvstored
    KVSTORED_BIN=/tmp/kvstored python3 bench/llama/ttft.py [--rounds 5] [--threads 2] [--models small,large] [--tokens 512,2048,8192]

It fetches the library that the tests of the Python client use (11 MB, pinned by
SHA-256). Beside each time to the first token it prints

- set: llama.cpp's own llama_state_seq_set_data of the same tokens, from memory of
  this process, as a share of what a restore from DRAM took;
- first: when the first chunk was in the context, in times of a restore of a prompt
  that has only that one.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients" / "python"))

import kvstored  # noqa: E402
from kvstored import memory  # noqa: E402
from kvstored.llama import Engine, PrefixCache  # noqa: E402
from kvstored.llama_context import Loading  # noqa: E402
from llamacpp import library, model  # noqa: E402
from llamacpp.context import greedy  # noqa: E402
from tests import bucket  # noqa: E402
from tests.daemon import Daemon  # noqa: E402
from tests.llama_engine import Llama  # noqa: E402

MODELS = {"small": model.SMALL, "large": model.LARGE}
CHUNK, BATCH, CONTEXT, DELAY = 256, 512, 16384, 0.030
WAYS = ("computed", "DRAM", "disk", "bucket")


class Bench:
    """One model, with a daemon of its own and a second one on the same bucket."""

    def __init__(self, name: str, folder: str, remote: bucket.Bucket, threads: int) -> None:
        shape, path = MODELS[name], f"{folder}/{name}.gguf"
        self.name, self.vocab = name, shape.vocab
        self.llm = Llama(model.make(path, shape), n_ctx=CONTEXT, n_batch=BATCH, n_threads=threads)
        self.local, self.far = Daemon("512MiB", "4GiB"), Daemon("512MiB", more=remote.config)
        self.remote = remote
        for daemon in (self.local, self.far):
            daemon.wait()
        self.clients = [kvstored.Client(d.socket, timeout=60) for d in (self.local, self.far)]
        engine = Engine.of(self.llm, self.llm.functions)
        self.caches = [PrefixCache(kv, engine, chunk_tokens=CHUNK) for kv in self.clients]

    def close(self) -> None:
        for kv in self.clients:
            kv.close()
        for daemon in (self.local, self.far):
            daemon.close()
        self.llm.close()

    # ---- what is measured ----------------------------------------------------

    def prepare(self, prompt: List[int]) -> None:
        """Computes a prompt, stores it in both daemons, and all of it below DRAM."""
        self.clear()
        self.llm.eval(prompt)
        self.remote.delay = 0
        for kv, cache in zip(self.clients, self.caches):
            stored = 0
            while stored < len(prompt) // CHUNK * CHUNK:
                stored = cache.store(prompt, wait=10)
            if kv is self.clients[0]:
                assert kv.flush(durable=True, timeout=60) is not None
        while any(tier["waiting"] for tier in self.clients[1].stats()["store"]["written"].values()):
            self.clients[1].flush(timeout=60)

    def first_token(self, prompt: List[int], cache: "PrefixCache | None") -> "tuple[float, float, int]":
        """Seconds to the first token, and of the restore in it."""
        self.clear()
        began = time.perf_counter()
        have = 0 if cache is None else cache.restore(prompt, timeout=60)
        restored = time.perf_counter()
        self.llm.n_tokens = have
        self.llm.eval(prompt[have:])
        greedy(self.llm._ctx.logits())
        return time.perf_counter() - began, restored - began, have

    def first_chunk(self, prompt: List[int], cache: PrefixCache) -> float:
        """Seconds of a restore until its first chunk is in the context."""
        times: List[float] = []
        add = Loading.add

        def timed(loading: Loading, *args: Any) -> bool:
            done = add(loading, *args)
            times.append(time.perf_counter())
            return done

        self.clear()
        with mock.patch.object(Loading, "add", timed):
            began = time.perf_counter()
            cache.restore(prompt, timeout=60)
        return times[0] - began

    def own(self, prompt: List[int]) -> float:
        """Seconds of llama.cpp's own call for all tokens of a prompt."""
        sequences = self.caches[0]._sequences
        self.clear()
        self.caches[0].restore(prompt, timeout=60)
        size = sequences.size(0)
        room = bytearray(size)
        assert sequences.write(0, memory.address(room), size)
        self.clear()
        began = time.perf_counter()
        assert sequences.read(0, memory.address(room), size, len(prompt) - 1)
        return time.perf_counter() - began

    def cold(self, which: int) -> PrefixCache:
        """A daemon that has nothing in DRAM."""
        daemon, kv = (self.local, self.far)[which], self.clients[which]
        daemon.process.terminate()
        daemon.process.wait(60)
        self.remote.delay = 0
        connected = self.remote.requests
        daemon.start()
        daemon.wait()
        assert kv.wait_attached(60)
        kv.lookup(kvstored.tokens([1] * CHUNK, space=self.caches[which].space))  # the space is open
        while which and self.remote.requests == connected:
            time.sleep(0.01)
        time.sleep(0.5)  # a start goes on in the background
        self.remote.delay = DELAY
        return self.caches[which]

    def clear(self) -> None:
        self.llm._ctx.kv_cache_clear()
        self.llm.reset()

    def run(self, count: int, rounds: int, say: Callable[[str], None]) -> None:
        prompt = random.Random(count).choices(range(3, self.vocab), k=count)
        one = prompt[: CHUNK + 1]
        self.prepare(prompt)
        took: Dict[str, List[float]] = {key: [] for key in (*WAYS, "restore", "own", "first", "single", "first cold", "single cold")}
        for _ in range(rounds):
            took["computed"].append(self.first_token(prompt, None)[0])
            took["disk"].append(self.checked(prompt, self.cold(0)))
            total, restore, _ = self.first_token(prompt, self.caches[0])
            took["DRAM"].append(total)
            took["restore"].append(restore)
            took["own"].append(self.own(prompt))
            took["first"].append(self.first_chunk(prompt, self.caches[0]))
            took["single"].append(self.first_chunk(one, self.caches[0]))
            took["first cold"].append(self.first_chunk(prompt, self.cold(0)))
            took["single cold"].append(self.first_chunk(one, self.cold(0)))
            took["bucket"].append(self.checked(prompt, self.cold(1)))
        m = {key: statistics.median(values) for key, values in took.items()}
        cells = [f"{1e3 * m[way]:,.1f} ms" + (f" ({m['computed'] / m[way]:,.1f}x)" if way != "computed" else "") for way in WAYS]
        ratios = [m["own"] / m["restore"], m["first"] / m["single"], m["first cold"] / m["single cold"]]
        say(f"| {self.name} | {count:,} | {' | '.join(cells)} | {' | '.join(f'{r:.2f}' for r in ratios)} |")

    def checked(self, prompt: List[int], cache: PrefixCache) -> float:
        total, _, have = self.first_token(prompt, cache)
        if have != len(prompt) - 1:
            raise SystemExit(f"only {have} of {len(prompt)} tokens were restored")
        return total


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--threads", type=int, default=2, help="of llama.cpp, which spins where a processor is busy with others")
    parse.add_argument("--models", default="small,large")
    parse.add_argument("--tokens", default="512,2048,8192")
    args = parse.parse_args()
    os.environ.update(bucket.ENVIRONMENT)
    print(f"llama.cpp {library.library().__version__}, chunks of {CHUNK} tokens, medians of {args.rounds} rounds, {args.threads} threads\n")
    print("| model | tokens | computed | DRAM | disk | bucket | set | first, DRAM | first, disk |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder}):
        for name in args.models.split(","):
            with bucket.Bucket() as remote:
                bench = Bench(name, folder, remote, args.threads)
                try:
                    for count in args.tokens.split(","):
                        bench.run(int(count), args.rounds, lambda line: print(line, flush=True))
                finally:
                    bench.close()


if __name__ == "__main__":
    main()
