"""What KvstoredTier costs vLLM's scheduler: its calls of one step after the other,
with a live daemon that has half of each prompt.

    PYTHONPATH=clients/python/src:clients/python python3 bench/engines/vllm_steps.py SOCKET

In each step 64 new requests of 128 blocks come, and are asked for until the last
answer; vLLM itself is not needed.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from types import SimpleNamespace
from typing import Any, Callable, Dict, List

from tests.engines import MISS, RETRY, STEP_END  # stand-ins, where there is no vLLM
from kvstored.vllm import KvstoredTier

ROW, CHUNK = 4096, 16
REQUESTS, BLOCKS, STEPS = 64, 128, 20


class Request:
    def __init__(self, name: str) -> None:
        self.req_id = name
        self.keys = [hashlib.sha256(f"{name}/{i}".encode()).digest() + bytes(4) for i in range(BLOCKS)]
        self._offload_key_positions: Dict[bytes, int] = {key: (i + 1) * CHUNK for i, key in enumerate(self.keys)}


def spec() -> Any:
    group = SimpleNamespace(tokens_per_block=CHUNK, layer_names=("0",))
    return SimpleNamespace(
        config=SimpleNamespace(
            groups=(group,),
            model=SimpleNamespace(name="bench", dtype="bfloat16"),
            parallel=SimpleNamespace(tp_size=1, pp_size=1, pcp_size=1, dcp_size=1),
            cache=SimpleNamespace(tokens_per_hash=CHUNK, blocks_per_chunk=1),
        )
    )


def store(tier: KvstoredTier, request: Request, job: int) -> None:
    half = random.sample(request.keys[: BLOCKS // 2], BLOCKS // 2)
    tier.submit_store(SimpleNamespace(job_id=job, keys=half, chunk_ids=list(range(len(half))), req_context=request))


def timed(took: List[float], call: Callable[..., Any], *args: Any) -> Any:
    began = time.perf_counter()
    answer = call(*args)
    took.append(time.perf_counter() - began)
    return answer


def step(tier: KvstoredTier, requests: List[Request], lookups: List[float], hits: List[int]) -> int:
    """Asks for each request until the first miss, as a scheduler does; how many wait."""
    waiting = 0
    for n, request in enumerate(requests):
        waits, hits[n] = False, 0
        for key in request.keys:
            answer = timed(lookups, tier.lookup, key, request)
            if answer == MISS:
                break
            waits, hits[n] = waits or answer == RETRY, hits[n] + 1
        waiting += waits
    return waiting


def main() -> None:
    memory = memoryview(bytearray(BLOCKS * ROW)).cast("B", (BLOCKS, ROW))
    tier = KvstoredTier(spec(), memory, socket=sys.argv[1])
    tier._client.wait_attached(30)
    lookups: List[float] = []
    work: List[float] = []
    answered: List[float] = []
    for n in range(STEPS):
        requests = [Request(f"{random.random()}") for _ in range(REQUESTS)]
        for job, request in enumerate(requests):
            store(tier, request, job)
        tier.drain_jobs()
        assert all(result.success for result in tier.get_finished_jobs())
        began, beside, hits = time.perf_counter(), [], [0] * REQUESTS
        for request in requests:
            timed(beside, tier.on_new_request, request)
        while step(tier, requests, lookups, hits):
            timed(beside, tier.on_schedule_end, *STEP_END)
            time.sleep(0.001)  # the rest of a step
        answered.append(time.perf_counter() - began)
        assert hits == [BLOCKS // 2] * REQUESTS, hits
        for request in requests:
            timed(beside, tier.on_request_finished, request)
        work.append(sum(beside))
    lookups.sort()
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        print(f"lookup {name:6} {1e6 * lookups[int(share * len(lookups))]:8.1f} us")
    print(f"other calls of {REQUESTS} new requests {1e3 * sorted(work)[STEPS // 2]:.3f} ms (median), {1e3 * max(work):.3f} ms (most)")
    print(f"until all of {REQUESTS} requests are answered {1e3 * sorted(answered)[STEPS // 2]:.1f} ms (median)")
    tier.shutdown()


if __name__ == "__main__":
    main()
