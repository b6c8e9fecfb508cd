"""The pool with a fault: each block of a store has the bytes of the block before it.

    "spec_name": "ShiftedSpec", "spec_module_path": "shifted"
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from kvstored.vllm import KvstoredOffloadingSpec


class ShiftedSpec(KvstoredOffloadingSpec):
    def get_worker(self, kv_caches: Any) -> Any:
        worker = super().get_worker(kv_caches)
        submit_store = worker.submit_store

        def shifted(job_id: int, src_spec: Any, dst_spec: Any) -> bool:
            src_spec = copy.copy(src_spec)
            src_spec.block_ids = np.roll(src_spec.block_ids, 1)
            return bool(submit_store(job_id, src_spec, dst_spec))

        worker.submit_store = shifted
        return worker
