"""Plays a trace through the classes for vLLM, SGLang and LMCache as the engines do,
with stand-ins of these, and counts the tokens that hit.

From the folder of the Python client:

    python3 -m tests.playback --trace conversation_trace.jsonl --engine sglang --policy tenure

A chunk is a block of the trace, 4 KiB here. Each request asks for its prompt, loads what
is there, compares every byte with what its hash must have, and stores the rest.
In front of the daemon are tiers of the engine's own, of which the least recently
used blocks go, ends of prompts first.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import subprocess
import time
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import kvstored.lmcache
import kvstored.sglang

from . import contracts, engines, lmcache_engine, sglang_pools
from .daemon import Daemon, lab
from .vllm_manager import Manager

PAGE = 4096  # bytes of a chunk; 5,859 of them make 23 MiB
BLOCK = 512  # tokens
LONGEST = 2048  # blocks of a prompt
DESCRIPTION = 40  # bytes behind an object of LMCache, at most
SETTLES = 60.0  # seconds for the jobs of one request

class Request(NamedTuple):
    tokens: int
    blocks: List[int]  # whole ones


def read(path: str, limit: int = 0) -> Iterator[Request]:
    """The requests of a trace as published with Mooncake, or of sessions of agents in the
    order of time."""
    command = [lab(), "replay", "--flatten", "--trace", path, "--block-size", str(BLOCK), "--limit", str(limit)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flat:
        assert flat.stdout is not None
        for line in flat.stdout:
            r = json.loads(line)
            yield Request(r["input_length"], r["hash_ids"][: r["input_length"] // BLOCK])
    if flat.returncode:
        raise SystemExit(f"{path} cannot be read")


def digest(block: int) -> bytes:
    return hashlib.sha256(f"block {block}".encode()).digest()


def page(block: int, size: int) -> bytes:
    """The bytes of a chunk."""
    return hashlib.shake_128(digest(block)).digest(size)


class Front:
    """A tier of the engine's own: so many blocks, the least recently used go first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._blocks: "collections.OrderedDict[int, None]" = collections.OrderedDict()

    def run(self, blocks: Sequence[int]) -> int:
        return next((n for n, b in enumerate(blocks) if b not in self._blocks), len(blocks))

    def use(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self.capacity:
            self._blocks.popitem(last=False)


class SGLang:
    """The calls of SGLang's cache controller on its storage."""

    def __init__(self, socket: str, size: int) -> None:
        self.size = size  # bytes of a chunk
        form = contracts.load("sglang")[-1]
        self._form, self._batch = form, form.data["batch"]
        self._pool = sglang_pools.MLATokenToKVPoolHost(LONGEST, BLOCK, [size])
        config = sglang_pools.config(
            "playback", mla=True, extra_config={"socket": socket, "timeout": 60, "hicache_storage_pass_prefix_keys": True}
        )
        self._storage = kvstored.sglang.KvstoredHiCache(config)
        self._run("register", pool=self._pool)

    def _run(self, event: str, **given: Any) -> Any:
        (answer,) = self._form.run(event, self._storage, **given)
        return answer

    def _info(self, before: List[str]) -> Any:
        return self._form.stand_in("HiCacheStorageExtraInfo")(prefix_keys=before or None)

    def play(self, blocks: List[int], first: int) -> Tuple[int, List[bytes]]:
        """Asks for the blocks from ``first`` on; how many are there, and their bytes."""
        keys = [digest(b).hex() for b in blocks]
        hit, found = first, self._batch
        while found == self._batch and hit < len(keys):
            found = self._run("query", keys=keys[hit : hit + self._batch], extra_info=self._info(keys[:hit]))
            hit += found
        loaded: List[bytes] = []
        for at in range(first, hit, self._batch):
            part = keys[at : min(at + self._batch, hit)]
            slots = self._pool.slots(list(range(len(part))))
            done = self._run("get_v1", keys=part, indices=slots, extra_info=self._info(keys[:at]))
            run = done.index(False) if False in done else len(done)
            loaded += [self._pool.page(p) for p in range(run)]
            if run < len(part):
                break
        start = first + len(loaded)
        for at in range(start, len(keys), self._batch):
            part = blocks[at : at + self._batch]
            for p, block in enumerate(part):
                self._pool.fill(p, page(block, self.size))
            slots = self._pool.slots(list(range(len(part))))
            self._run("set_v1", keys=keys[at : at + len(part)], indices=slots, extra_info=self._info(keys[:at]))
        return len(loaded), loaded

    def close(self) -> None:
        self._storage.close()


class VLLM:
    """The calls of vLLM's scheduler on its tiering manager, whose host memory has
    room for the request at hand only."""

    def __init__(self, socket: str, size: int) -> None:
        self.size = size  # bytes of a chunk
        self._form = contracts.load("vllm")[-1]
        line = {**engines.documented()["secondary_tiers"][0], "socket": socket, "lookup_timeout": 60}
        self._stack = self._form.installed(
            "kvstored.vllm", "kvstored.vllm_jobs", "kvstored.vllm_lookup", "kvstored.vllm_stats", "kvstored.vllm_space"
        )
        module = self._stack.__enter__()[0]
        spec = engines.spec_of(self._form, line)
        spec.config.cache.blocks_per_chunk = BLOCK // spec.config.cache.tokens_per_hash
        self._manager = Manager(self._form, module.KvstoredTier, line, spec, LONGEST, size)
        self._memory = self._manager.primary_tier.get_kv_memoryview().cast("B")
        self._results, self._requests = self._form.stand_in("LookupResult"), 0
        self._end = self._form.stand_in("ScheduleEndContext")((), ())

    def _step(self) -> None:
        self._manager.on_schedule_end(self._end)
        self._manager.take_events()

    def _settle(self) -> None:
        until = time.monotonic() + SETTLES
        while self._manager._transfer_jobs:
            assert time.monotonic() < until, "jobs have no result"
            self._step()
            time.sleep(0)

    def _context(self, keys: List[bytes]) -> Any:
        self._requests += 1
        return self._form.stand_in("ReqContext")(f"request {self._requests}")

    def _run(self, keys: List[bytes], context: Any) -> int:
        until = time.monotonic() + SETTLES
        while time.monotonic() < until:
            answers = []
            for key in keys:
                answers.append(self._manager.lookup(key, context))
                if answers[-1] == self._results.MISS:
                    break
            if not {self._results.RETRY, self._results.HIT_PENDING} & set(answers):
                return answers.count(self._results.HIT)
            self._step()
            time.sleep(0)
        raise AssertionError("a lookup has no answer")

    def play(self, blocks: List[int], first: int) -> Tuple[int, List[bytes]]:
        keys = [digest(b) + bytes(4) for b in blocks]
        context = self._context(keys)
        self._manager.on_new_request(context)
        hit = self._run(keys[first:], context)
        loaded = keys[first : first + hit]
        rows = self._manager.prepare_load(loaded, context).block_ids
        got = [bytes(self._memory[at * self.size : (at + 1) * self.size]) for at in rows]
        self._manager.complete_load(loaded, context)
        new = dict(zip(keys[first + hit :], blocks[first + hit :]))
        if new:
            output = self._manager.prepare_store(list(new), context)
            for key, at in zip(output.keys_to_store, output.store_spec.block_ids):
                self._memory[at * self.size : (at + 1) * self.size] = page(new[key], self.size)
            self._manager.complete_store(set(output.keys_to_store), context)
        self._settle()
        self._manager.on_request_finished(context)
        self._step()
        for key in list(self._manager.primary_tier.rows):
            self._manager.primary_tier.drop(key)
        return hit, got

    def close(self) -> None:
        self._memory.release()
        self._manager.shutdown()
        self._stack.__exit__(None, None, None)


class LMCache:
    """The calls of LMCache's storage manager, whose own memory keeps nothing. An
    object and its description together are a chunk."""

    def __init__(self, socket: str, size: int) -> None:
        self.size = (size - DESCRIPTION) // 2 * 2  # bytes of an object
        self._memory = lmcache_engine.Memory(2 * LONGEST * size, hot=False)
        options = {"kvstored.socket": socket, "kvstored.lookup_timeout": 60, "kvstored.transfer_timeout": 60}
        config = SimpleNamespace(chunk_size=BLOCK, extra_config=options)
        self._plugin = kvstored.lmcache.KvstoredBackend(config=config, local_cpu_backend=self._memory)
        self._manager = lmcache_engine.Manager(self._memory, self._plugin)
        assert self._plugin._client.wait_attached(20)

    def _settle(self) -> None:
        until = time.monotonic() + SETTLES
        while self._memory.used:
            assert time.monotonic() < until, "objects are not given back"
            time.sleep(0)

    def _object(self, block: int) -> lmcache_engine.Object:
        obj = self._memory.allocate((self.size // 2,), "bfloat16", 1)
        assert obj is not None
        obj.byte_array[:] = page(block, self.size)
        return obj

    def play(self, blocks: List[int], first: int) -> Tuple[int, List[bytes]]:
        keys = [lmcache_engine.Key(digest(b)) for b in blocks]
        found, _ = self._manager.lookup(keys[first:])
        objects = self._manager.get(1, keys[first : first + found]) if found else []
        got: List[bytes] = []
        for obj in objects:
            if obj is None:
                break
            got.append(bytes(obj.byte_array))
            obj.ref_count_down()
        self._manager.unpin(keys[first : first + found])
        rest = first + len(got)
        if rest < len(keys):
            self._manager.put(keys[rest:], [self._object(b) for b in blocks[rest:]])
        self._settle()
        return len(got), got

    def close(self) -> None:
        self._manager.close()


ENGINES: Dict[str, Any] = {"lmcache": LMCache, "sglang": SGLang, "vllm": VLLM}


class Result(NamedTuple):
    requests: int
    tokens: int
    in_front: int  # tokens of hits in the engine's own tiers
    below: int  # in the daemon
    wrong: int  # chunks with a wrong byte

    @property
    def rate(self) -> float:
        return (self.in_front + self.below) / self.tokens


def play(engine: Any, requests: Iterator[Request], fronts: Sequence[Front] = ()) -> Result:
    """Plays requests one after the other."""
    n = tokens = in_front = below = wrong = 0
    for r in requests:
        n, tokens = n + 1, tokens + r.tokens
        first = 0
        for front in fronts:
            first += front.run(r.blocks[first:])
        if first < len(r.blocks):
            hit, loaded = engine.play(r.blocks, first)
            wrong += sum(got != page(b, engine.size) for got, b in zip(loaded, r.blocks[first:]))
            below += hit * BLOCK
        in_front += first * BLOCK
        for front in fronts:
            front.use(r.blocks)
    return Result(n, tokens, in_front, below, wrong)


def run(name: str, requests: Iterator[Request], policy: str, chunks: int, fronts: Sequence[int] = (), size: int = PAGE) -> Result:
    """Plays requests on a daemon of its own with so many chunks of DRAM, kept full."""
    with Daemon(f"{chunks * size // 1024}KiB, policy: {policy}, high_watermark: 1, low_watermark: 0.999") as daemon:
        engine = ENGINES[name](daemon.socket, size)
        try:
            return play(engine, requests, [Front(n) for n in fronts if n])
        finally:
            engine.close()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--trace", required=True)
    p.add_argument("--engine", choices=sorted(ENGINES), required=True)
    p.add_argument("--policy", default="lru", help="of the daemon's DRAM")
    p.add_argument("--chunks", type=int, default=5859, help="that DRAM holds")
    p.add_argument("--gpu-chunks", type=int, default=0, help="that the engine's GPU holds in front")
    p.add_argument("--cpu-chunks", type=int, default=0, help="that its host memory holds behind that")
    p.add_argument("--limit", type=int, default=0, help="requests to play; 0 = all")
    o = p.parse_args()
    fronts = [n for n in (o.gpu_chunks, o.cpu_chunks) if n]
    began = time.monotonic()
    r = run(o.engine, read(o.trace, o.limit), o.policy, o.chunks, fronts)
    print(
        json.dumps(
            {**r._asdict(), "engine": o.engine, "policy": o.policy, "rate": round(r.rate, 4), "seconds": round(time.monotonic() - began)}
        )
    )
    if r.wrong:
        raise SystemExit(f"{r.wrong} chunks had wrong bytes")


if __name__ == "__main__":
    main()
