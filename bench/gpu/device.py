"""What the benchmark needs of a GPU: memory of its own, a stream, copies."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time
from pathlib import Path
from typing import Iterator, Sequence, Tuple

PYTHON = Path(__file__).resolve().parents[2] / "clients" / "python"
sys.path[:0] = [str(PYTHON / "src"), str(PYTHON)]

from kvstored import cuda  # noqa: E402

#: CU_DEVICE_ATTRIBUTE_*, as the driver's header numbers them.
ATTRIBUTES = {
    "host memory can be registered": 99,
    "read-only host memory can be registered": 113,
    "reads pageable memory itself": 88,
    "with the host's page tables": 100,
}

#: Addresses and bytes of copies: (to, from, bytes).
Copies = Sequence[Tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]]


def copy(to: int, source: int, size: int) -> Tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]:
    return ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size)


class Device(cuda.Driver):
    """A GPU, current on the thread that makes it, with one stream."""

    def __init__(self) -> None:
        super().__init__()
        self.check("cuCtxPushCurrent_v2", self._context)
        self.stream = ctypes.c_void_p()
        self.check("cuStreamCreate", ctypes.byref(self.stream), 1)  # does not wait for the default stream
        self._ways = {"up": self.library.cuMemcpyHtoDAsync_v2, "down": self.library.cuMemcpyDtoHAsync_v2}

    @property
    def name(self) -> str:
        name, version = ctypes.create_string_buffer(128), ctypes.c_int()
        self.check("cuDeviceGetName", name, 128, self.device)
        self.check("cuDriverGetVersion", ctypes.byref(version))
        return f"{name.value.decode()}, driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}"

    def attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.check("cuDeviceGetAttribute", ctypes.byref(value), number, self.device)
        return value.value

    @contextlib.contextmanager
    def memory(self, size: int, host: bool = False) -> Iterator[int]:
        """The address of memory of the GPU, or of page-locked memory of the host."""
        at = ctypes.c_void_p()
        self.check("cuMemAllocHost_v2" if host else "cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        try:
            yield at.value or 0
        finally:
            self.check("cuMemFreeHost" if host else "cuMemFree_v2", at)

    def clear(self, at: int, size: int) -> None:
        """Fills memory of the GPU with 0xee."""
        self.check("cuMemsetD8_v2", ctypes.c_void_p(at), ctypes.c_ubyte(0xEE), ctypes.c_size_t(size))
        self.check("cuCtxSynchronize")

    def copies(self, way: str, copies: Copies) -> float:
        """Seconds of copies that are queued one after the other, and then waited
        for. ``way``: up to the GPU, or down from it."""
        function, stream = self._ways[way], self.stream
        began = time.perf_counter()
        codes = [function(to, source, size, stream) for to, source, size in copies]
        code = self.library.cuStreamSynchronize(stream)
        took = time.perf_counter() - began
        if code or any(codes):
            raise OSError(f"a copy {way} failed: {code or max(codes)}")
        return took

    def lock(self, at: int, size: int, flags: int) -> Tuple[str, float]:
        """Registers host memory; the error's name, and seconds."""
        began = time.perf_counter()
        error = self.call("cuMemHostRegister_v2", ctypes.c_void_p(at), ctypes.c_size_t(size), ctypes.c_uint(flags))
        return error, time.perf_counter() - began

    def unlock(self, at: int) -> Tuple[str, float]:
        began = time.perf_counter()
        error = self.call("cuMemHostUnregister", ctypes.c_void_p(at))
        return error, time.perf_counter() - began


def table(*head: str) -> None:
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)


def row(*cells: object) -> None:
    print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)


def size(n: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= scale:
            return f"{n / scale:g} {unit}"
    return f"{n} B"


def rate(n: float, seconds: float) -> str:
    return f"{n / seconds / (1 << 30):.1f}"
