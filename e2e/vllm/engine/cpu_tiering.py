"""vLLM's own tiered offloading with a worker for CPUs, which vLLM has none of: scheduler,
manager, host pool and tiers are vLLM's own, and a memmove takes the place of a GPU's copy.

    "spec_name": "CpuTieringSpec", "spec_module_path": "cpu_tiering"

Its key "copy_seconds": that a copy takes at least, beside the engine.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.gpu_worker import compute_sub_block_ptrs
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CpuWorker(OffloadingWorker):
    def __init__(self, kv_caches: Any, per_chunk: int, region: Any, seconds: float) -> None:
        self._region, self._per_chunk, self._seconds = region, per_chunk, seconds
        self._refs = kv_caches.group_data_refs
        self._device = [_rows(t) for t in kv_caches.tensors]
        self._host = [region.create_next_worker_view(t.page_size_bytes * per_chunk) for t in kv_caches.tensors]
        self._done: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._open: Dict[int, threading.Thread] = {}

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._submit(job_id, src_spec, dst_spec, True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, **_: Any) -> bool:
        return self._submit(job_id, dst_spec, src_spec, False)

    def _submit(self, job: int, device: Any, host: Any, store: bool) -> bool:
        if not self._seconds:
            self._copy(job, device, host, store)
            return True
        thread = self._open[job] = threading.Thread(target=self._copy, args=(job, device, host, store), daemon=True)
        thread.start()
        return True

    def _copy(self, job: int, device: Any, host: Any, store: bool) -> None:
        began, size = time.perf_counter(), 0
        time.sleep(self._seconds)
        for on_device, on_host, n in self._places(device, host):
            ctypes.memmove(on_host if store else on_device, on_device if store else on_host, n)
            size += n
        self._done.put(TransferResult(job, True, size, time.perf_counter() - began))

    def _places(self, device: Any, host: Any) -> Iterator[Tuple[int, int, int]]:
        """Addresses on both sides, and the bytes, of each block of each tensor."""
        d = h = 0
        for refs, n, index in zip(self._refs, device.group_sizes, device.block_indices):
            if not n:
                continue
            skip = index % self._per_chunk
            chunks = -(-(n + skip) // self._per_chunk)
            for ref in refs:
                ours, theirs = np.empty(n, dtype=np.uint64), np.empty(n, dtype=np.uint64)
                compute_sub_block_ptrs(device.block_ids[d : d + n], 1, ours, self._device[ref.tensor_idx])
                compute_sub_block_ptrs(host.block_ids[h : h + chunks], self._per_chunk, theirs, self._host[ref.tensor_idx], skip_count=skip)
                yield from ((int(a), int(b), ref.page_size_bytes) for a, b in zip(ours, theirs))
            d, h = d + n, h + chunks

    def get_finished(self) -> List[Any]:
        return [self._done.get() for _ in range(self._done.qsize())]

    def wait(self, job_ids: Any) -> None:
        for job in job_ids:
            if job in self._open:
                self._open.pop(job).join()

    def shutdown(self) -> None:
        self.wait(list(self._open))
        self._host.clear()
        self._region.cleanup()


def _rows(tensor: Any) -> torch.Tensor:
    data = tensor.tensor
    return data.view(torch.int8).view(-1, tensor.page_size_bytes) if data.is_contiguous() else data


class CpuTieringSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches: Any) -> CpuWorker:
        if self._worker is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=0 if self.replicated_layout else self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._worker = CpuWorker(kv_caches, self.blocks_per_chunk, region, float(self.extra_config.get("copy_seconds", 0)))
        return self._worker
