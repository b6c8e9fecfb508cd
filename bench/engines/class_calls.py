"""What the classes for SGLang and LMCache cost the engine's own threads: questions for
prompts of 128 chunks, half of which a live daemon has.

    PYTHONPATH=clients/python/src:clients/python python3 bench/engines/class_calls.py SOCKET

Of LMCache's plug-in it is processor time of the event loop, which must not wait; of the
L2 adapter the calls of the controller's thread; SGLang asks in a thread of its own, which
waits. The engines themselves are not needed. vllm_steps.py is the same for vLLM.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from types import SimpleNamespace
from typing import Any, Callable, List

import kvstored.lmcache
from kvstored.sglang import KvstoredHiCache
from sglang_groups import HostPool
from tests import lmcache_engine

REQUESTS, CHUNKS, STEPS = 64, 128, 20


def names(prompt: str) -> List[bytes]:
    return [hashlib.sha256(f"{time.monotonic_ns()}/{prompt}/{i}".encode()).digest() for i in range(CHUNKS)]


def show(what: str, took: List[float], steps: List[float]) -> None:
    took.sort()
    one = "  ".join(f"{name} {1e6 * took[int(share * len(took))]:8.1f} us" for name, share in (("p50", 0.5), ("p99", 0.99)))
    print(f"{what:42} {one}  {REQUESTS} requests: {1e3 * sorted(steps)[STEPS // 2]:.3f} ms (median), {1e3 * max(steps):.3f} ms (most)")


def measure(what: str, store: Callable[[List[bytes]], Any], ask: Callable[[List[bytes]], float]) -> None:
    took: List[float] = []
    steps: List[float] = []
    for _ in range(STEPS):
        prompts = [names(str(n)) for n in range(REQUESTS)]
        for prompt in prompts:
            store(prompt[: CHUNKS // 2])
        times = [ask(prompt) for prompt in prompts]
        took += times
        steps.append(sum(times))
    show(what, took, steps)


def sglang(socket: str) -> None:
    config = SimpleNamespace(model_name="bench calls", tp_rank=0, tp_size=1, is_mla_model=True, extra_config={"socket": socket})
    made = KvstoredHiCache(config, {})
    made.register_mem_pool_host(HostPool(16))
    slots = list(range(16 * CHUNKS // 2))

    def ask(prompt: List[bytes]) -> float:
        began = time.perf_counter()
        found = made.batch_exists([name.hex() for name in prompt])
        took = time.perf_counter() - began
        assert found == CHUNKS // 2, found
        return took

    measure("SGLang, batch_exists (waits)", lambda prompt: made.batch_set_v1([name.hex() for name in prompt], slots), ask)
    made.close()


def lmcache(socket: str) -> None:
    memory = lmcache_engine.Memory(64 << 20, False)
    options = {"kvstored.socket": socket, "kvstored.lookup_timeout": 20}
    made = kvstored.lmcache.KvstoredBackend(config=SimpleNamespace(chunk_size=256, extra_config=options), local_cpu_backend=memory)
    manager = lmcache_engine.Manager(memory, made)
    made._client.wait_attached(30)

    def store(prompt: List[bytes]) -> None:
        objects: List[Any] = [memory.allocate((32,), "bfloat16", 1) for _ in prompt]
        manager.put([lmcache_engine.Key(name) for name in prompt], objects)
        while memory.used:
            time.sleep(0)

    async def timed(keys: List[Any]) -> float:
        asked = made.batched_async_contains("bench", keys)
        began = time.thread_time()
        future = asked.send(None)  # up to where the loop goes on with others
        took = time.thread_time() - began
        while not future.done():
            await asyncio.sleep(0)
        return took

    async def together(prompts: List[List[Any]]) -> float:
        began = time.thread_time()
        found = await asyncio.gather(*(made.batched_async_contains("bench", keys) for keys in prompts))
        took = time.thread_time() - began
        assert found == [CHUNKS // 2] * REQUESTS, found
        return took

    took: List[float] = []
    steps: List[float] = []
    with asyncio.Runner() as loop:
        for n in range(2 * STEPS):
            prompts = [names(str(n)) for n in range(REQUESTS)]
            for prompt in prompts:
                store(prompt[: CHUNKS // 2])
            keys = [[lmcache_engine.Key(name) for name in prompt] for prompt in prompts]
            if n % 2:
                steps.append(loop.run(together(keys)))
            else:
                took += [loop.run(timed(own)) for own in keys]
    show("LMCache, batched_async_contains (the loop)", took, steps)
    manager.close()


def l2(socket: str) -> None:
    memory = lmcache_engine.Memory(1 << 30)
    made = lmcache_engine.l2.KvstoredL2Adapter({"socket": socket, "lookup_timeout": 20})
    made._client.wait_attached(30)

    def store(prompt: List[bytes]) -> None:
        objects = [memory.allocate((1, 32), "uint8", 4) for _ in prompt]
        task = made.submit_store_task([lmcache_engine.ObjectKey(name) for name in prompt], objects)
        while task not in made.pop_completed_store_tasks():
            time.sleep(0)
        for obj in objects:
            obj.ref_count_down()  # type: ignore[union-attr]

    def ask(prompt: List[bytes]) -> float:
        keys = [lmcache_engine.ObjectKey(name) for name in prompt]
        began = time.perf_counter()
        task = made.submit_lookup_and_lock_task(keys)
        took = time.perf_counter() - began
        found = None
        while found is None:
            time.sleep(0.0005)
            began = time.perf_counter()
            found = made.query_lookup_and_lock_result(task)
            once = time.perf_counter() - began
        made.submit_unlock(keys[: CHUNKS // 2])
        return took + once

    measure("LMCache's server, submit and result", store, ask)
    made.close()


if __name__ == "__main__":
    for engine in (sglang, lmcache, l2):
        engine(sys.argv[1])
