"""What one question of a hybrid model costs SGLang: 512 pages and their last state,
beside a flat batch_exists of 512 pages.

    PYTHONPATH=clients/python/src python3 bench/engines/sglang_groups.py SOCKET

The two take turns, round by round; SGLang itself is not needed.
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import time
from types import SimpleNamespace
from typing import Any, Callable, Dict, List

from kvstored.memory import address
from kvstored.sglang import KvstoredHiCache

PAGES, ROUNDS, WARM = 512, 60, 5


class HostPool:
    """Pages of 64 bytes."""

    def __init__(self, slots: int) -> None:
        self.page_size, self.layout, self.dtype = slots, "page_first", "bfloat16"
        self._bytes = bytearray(PAGES * 64)

    def get_page_buffer_meta(self, indices: List[int]) -> Any:
        at = address(self._bytes)
        pages = [i // self.page_size for i in indices[:: self.page_size]]
        return [at + 64 * p for p in pages], [64] * len(pages)


def backend(socket: str, model: str) -> KvstoredHiCache:
    config = SimpleNamespace(model_name=model, tp_rank=0, tp_size=1, is_mla_model=False, extra_config={"socket": socket})
    made = KvstoredHiCache(config, {})
    made.register_mem_pool_host(HostPool(16))
    made.register_mem_host_pool_v2(HostPool(1), "mamba")
    return made


def transfer(name: str, keys: List[str], slots: List[int], policy: str = "all_pages") -> Any:
    return SimpleNamespace(name=name, keys=keys, host_indices=slots, hit_policy=policy)


def main(socket: str) -> None:
    target = backend(socket, "bench groups")
    keys = [hashlib.sha256(f"bench/{i}".encode()).hexdigest() for i in range(PAGES)]
    assert all(target.batch_set_v1(keys, list(range(16 * PAGES))))
    assert target.batch_set_v2([transfer("mamba", keys[-1:], [PAGES - 1])]) == {"mamba": [True]}
    state = [transfer("mamba", keys[-1:], [], "trailing_pages")]
    calls: Dict[str, Callable[[], int]] = {
        "flat batch_exists": lambda: target.batch_exists(keys),
        "pages and state, one request": lambda: target.batch_exists_v2(keys, state).kv_hit_pages,
    }
    took: Dict[str, List[float]] = {name: [] for name in calls}
    for n in range(WARM + ROUNDS):
        for name, call in calls.items():
            began = time.perf_counter()
            found = call()
            if n >= WARM:
                took[name].append(time.perf_counter() - began)
            assert found == PAGES, (name, found)
            target._hints.drop()
    flat = took["flat batch_exists"]
    for name, seconds in took.items():
        print(
            f"{name}: median {statistics.median(seconds) * 1e3:.2f} ms, least {min(seconds) * 1e3:.2f} ms, "
            f"{statistics.median(seconds) / statistics.median(flat):.2f}x and {min(seconds) / min(flat):.2f}x of flat"
        )
    target.close()


if __name__ == "__main__":
    main(sys.argv[1])
