"""The pool with a fault: the last rank has mapped another life of the daemon's memory than
the manager has leased from, and of every second load it has nothing at all.

    "spec_name": "BehindSpec", "spec_module_path": "behind"
"""

from __future__ import annotations

from typing import Any

from kvstored.vllm import KvstoredOffloadingSpec


class BehindSpec(KvstoredOffloadingSpec):
    def get_worker(self, kv_caches: Any) -> Any:
        worker = super().get_worker(kv_caches)
        if self.config.parallel.rank != self.config.parallel.world_size - 1:
            return worker
        load, loads = worker._load, [0]

        def behind(transfer: Any, spec: Any, places: Any) -> int:
            loads[0] += 1
            return 0 if loads[0] % 2 == 0 else load(transfer, spec._replace(epoch=spec.epoch ^ 1), places)

        worker._load = behind
        return worker
