"""How fast a restore from DRAM is beside llama.cpp's own llama_state_seq_set_data of
the same tokens in one call, from memory of this process: in turns, in one run, for
random models whose KV takes 2 to 64 KiB a token.

    go build -o /tmp/kvstored ./cmd/kvstored
    KVSTORED_BIN=/tmp/kvstored python3 bench/llama/restore.py [--rounds 40] [--models 2,4,16,32,64] [--tokens 2048] [--chunk 256]

It prints medians, and of the ratios the median of all pairs:

- restore: the restore, as a share of the own call's speed;
- no sums: the same without checksums;
- calls: llama.cpp alone, called as a restore calls it, from memory of this process.
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
from kvstored import llama_chunks, memory  # noqa: E402
from kvstored.llama import Engine, PrefixCache  # noqa: E402
from llamacpp import library, model  # noqa: E402
from tests.daemon import Daemon  # noqa: E402
from tests.llama_engine import Llama  # noqa: E402

# By the KiB of KV a token, of 16 bits: heads_kv is heads, but in those of ttft.py.
MODELS = {
    "2": model.SMALL,
    "4": model.LARGE,
    "16": model.Shape(width=512, layers=8, heads=8, heads_kv=8),
    "32": model.Shape(width=1024, layers=8, heads=8, heads_kv=8),
    "64": model.Shape(width=1024, layers=16, heads=8, heads_kv=8),
}
WAYS = ("own", "restore", "no sums", "calls")


class Bench:
    """One model with one prompt, which the daemon has."""

    def __init__(self, shape: model.Shape, folder: str, tokens: int, chunk: int) -> None:
        self.llm = Llama(model.make(f"{folder}/model.gguf", shape), n_ctx=max(4096, tokens + 256), n_batch=512)
        self.daemon = Daemon("4GiB")
        self.daemon.wait()
        self.kv = kvstored.Client(self.daemon.socket, timeout=60)
        self.cache = PrefixCache(self.kv, Engine.of(self.llm, self.llm.functions), chunk_tokens=chunk)
        self.chunk, self.count = chunk, tokens // chunk * chunk
        self.prompt = random.Random(1).choices(range(3, shape.vocab), k=self.count) + [3]
        self.llm.eval(self.prompt[: self.count])
        stored = 0
        while stored < self.count:
            stored = self.cache.store(self.prompt, wait=10)
        self.sequences = self.cache._sequences
        self.whole = bytearray(self.sequences.size(0))
        assert self.sequences.write(0, memory.address(self.whole), len(self.whole))
        self.parts: List[bytearray] = []
        with self.sequences.apart(0) as apart:
            for first in range(0, self.count, chunk):
                part = bytearray(apart.size(first, first + chunk))
                assert apart.write(first, first + chunk, memory.address(part), len(part))
                self.parts.append(part)

    def close(self) -> None:
        self.kv.close()
        self.daemon.close()
        self.llm.close()

    def own(self) -> int:
        done = self.sequences.read(0, memory.address(self.whole), len(self.whole), self.count)
        return self.count if done else 0

    def restore(self) -> int:
        return self.cache.restore(self.prompt, timeout=60)

    def calls(self) -> int:
        with self.sequences.loading(0, 0) as loading:
            for i, part in enumerate(self.parts):
                assert loading.add(memory.address(part), len(part), i * self.chunk, (i + 1) * self.chunk)
        return loading.count

    def timed(self, way: Callable[[], int]) -> float:
        """Seconds that a way takes to fill an empty sequence."""
        self.llm._ctx.kv_cache_seq_rm(0, -1, -1)
        began = time.perf_counter()
        count = way()
        took = time.perf_counter() - began
        if count != self.count:
            raise SystemExit(f"{count} of {self.count} tokens were restored")
        return took

    def run(self, rounds: int) -> Dict[str, List[float]]:
        took: Dict[str, List[float]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            took["own"].append(self.timed(self.own))
            took["restore"].append(self.timed(self.restore))
            with mock.patch.object(llama_chunks, "checksum_at", None):
                took["no sums"].append(self.timed(self.restore))
            took["calls"].append(self.timed(self.calls))
        return took


def line(name: str, bench: Bench, took: Dict[str, List[float]]) -> str:
    def share(way: str) -> str:
        ratios = sorted(own / other for own, other in zip(took["own"], took[way]))
        return f"{statistics.median(ratios):.2f}"

    cells = [f"{name} KiB", f"{bench.count:,}", f"{len(bench.whole) / 1e6:,.0f} MB"]
    cells += [f"{1e3 * statistics.median(took[way]):,.2f} ms" for way in ("own", "restore")]
    return f"| {' | '.join(cells)} | {' | '.join(share(way) for way in WAYS[1:])} |"


def main() -> None:
    parse: Any = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--rounds", type=int, default=40)
    parse.add_argument("--models", default=",".join(MODELS))
    parse.add_argument("--tokens", default="2048")
    parse.add_argument("--chunk", type=int, default=256)
    args = parse.parse_args()
    print(f"llama.cpp {library.library().__version__}, chunks of {args.chunk} tokens, {args.rounds} rounds\n")
    print("| a token | tokens | KV | own call | restore | restore's share | no sums | calls |\n|---|---|---|---|---|---|---|---|")
    for name in args.models.split(","):
        for tokens in args.tokens.split(","):
            with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder}):
                bench = Bench(MODELS[name], folder, int(tokens), args.chunk)
                try:
                    print(line(name, bench, bench.run(args.rounds)), flush=True)
                finally:
                    bench.close()


if __name__ == "__main__":
    main()
