"""The pool with a stand-in for a GPU: vLLM computes on CPUs, and blocks of its KV cache are
copied as those on a GPU are.

    "spec_name": "OnGpuSpec", "spec_module_path": "on_gpu"
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kvstored.vllm import KvstoredOffloadingSpec

sys.path.append(str(Path(__file__).resolve().parents[3] / "clients" / "python" / "tests"))

import vllm_gpu  # noqa: E402

GPU = vllm_gpu.Gpu()
GPU.latency = 0.002
GPU.stay()


class _Tensor:
    """A tensor of a CPU, as on a GPU."""

    device = SimpleNamespace(type="cuda", index=GPU.number)

    def __init__(self, tensor: Any) -> None:
        self.data_ptr, self.stride, self.element_size = tensor.data_ptr, tensor.stride, tensor.element_size


class OnGpuSpec(KvstoredOffloadingSpec):
    def get_worker(self, kv_caches: Any) -> Any:
        GPU.memory = [(t.tensor.data_ptr(), len(t.tensor) * t.tensor.stride(0) * t.tensor.element_size()) for t in kv_caches.tensors]
        tensors = [SimpleNamespace(tensor=_Tensor(t.tensor), page_size_bytes=t.page_size_bytes) for t in kv_caches.tensors]
        return super().get_worker(SimpleNamespace(tensors=tensors, group_data_refs=kv_caches.group_data_refs))
