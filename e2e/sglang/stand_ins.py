"""What an SGLang on a CPU lacks, put in by a .pth so that its processes have it too:

- sgl_kernel, of which there is no wheel for CPUs: each name is a function that raises;
- of HiCache's host pools: pages are copied by torch, and no 10 GiB of memory must be left free;
- page-locked memory, which is as any other;
- torch.cpu.Event, which is always done, and the waits of torch.cpu.Stream.

What SGLang compiles when it is first called is kept beside its packages."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import Any, Callable, Dict

KERNELS = "sgl_kernel"


class _Kernels(types.ModuleType):
    __path__: Any = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self.__name__}.{name}")


class _Missing:
    def __init__(self, name: str) -> None:
        self._name = self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self._name}: there are no kernels for CPUs here")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self._name}.{name}")


def _host_memory(module: Any) -> None:
    module._cuda_host_register = lambda *args, **kwargs: None
    module._cuda_host_unregister_ranges = lambda *args, **kwargs: []


def _reserve(module: Any) -> None:
    module.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0


def _host_pool(module: Any) -> None:
    """Of keys and values; pages lie by layers, by slots, or by pages."""

    def rows(pool: Any, which: int, layer: int, indices: Any) -> Any:
        buffer = (pool.k_buffer, pool.v_buffer)[which]
        if pool.layout == "layer_first":
            return buffer[layer], indices
        if pool.layout == "page_first":
            return buffer[:, layer], indices
        if pool.layout == "page_first_direct":
            return buffer[:, layer], indices.view(-1, pool.page_size)[:, 0] // pool.page_size
        raise ValueError(pool.layout)

    def load(pool: Any, device_pool: Any, host_indices: Any, device_indices: Any, layer_id: int, io_backend: Any, *, is_draft: bool = False) -> None:
        for which, device in ((0, pool.device_k_buffers[layer_id]), (1, pool.device_v_buffers[layer_id])):
            host, at = rows(pool, which, layer_id, host_indices.long())
            device[device_indices.long()] = host[at].reshape(len(device_indices), *device.shape[1:])

    def store(pool: Any, device_pool: Any, host_indices: Any, device_indices: Any, io_backend: Any) -> None:
        for layer in range(pool.layer_num):
            for which, device in ((0, pool.device_k_buffers[layer]), (1, pool.device_v_buffers[layer])):
                host, at = rows(pool, which, layer, host_indices.long())
                host[at] = device[device_indices.long()].reshape(len(at), *host.shape[1:])

    module.MHATokenToKVPoolHost.load_to_device_per_layer = load
    module.MHATokenToKVPoolHost.backup_from_device_all_layer = store


def _page_locks() -> None:
    import torch

    def unlocked(make: Any) -> Any:
        return lambda *args, pin_memory=False, **kwargs: make(*args, **kwargs)

    for name in ("empty", "tensor", "zeros"):
        setattr(torch, name, unlocked(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *args: self


def _events() -> None:
    import torch

    class Event:
        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def record(self, *args: Any) -> None: ...
        def wait(self, *args: Any) -> None: ...
        def query(self) -> bool:
            return True
        def synchronize(self) -> None: ...
        def elapsed_time(self, other: Any) -> float:
            return 0.0

    torch.cpu.Event = Event
    for name in ("wait_event", "wait_stream", "synchronize", "record_event"):
        if not hasattr(torch.cpu.Stream, name):
            setattr(torch.cpu.Stream, name, lambda self, *args: None)
    if not hasattr(torch.cpu.Stream, "query"):
        torch.cpu.Stream.query = lambda self: True


_PATCHES: Dict[str, Callable[[Any], None]] = {
    "sglang.srt.mem_cache.pool_host.common": _host_memory,
    "sglang.srt.mem_cache.pool_host.base": _reserve,
    "sglang.srt.mem_cache.pool_host.mha": _host_pool,
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] == KERNELS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if name == "sglang.srt.mem_cache":  # its modules take them on import
            _events()
            _page_locks()
        patch = _PATCHES.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        loads = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            loads(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Kernels(spec.name)

    def exec_module(self, module: Any) -> None: ...


os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.join(sys.prefix, "extensions"))
sys.meta_path.insert(0, _Finder())
