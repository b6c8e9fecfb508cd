"""Page-locks the daemon's memory for a GPU, so that copies to it run at full
speed and beside other work."""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Callable, Optional, Tuple

from .client import Client
from .memory import Mapping

log = logging.getLogger("kvstored.cuda")

_PORTABLE, _READ_ONLY = 0x01, 0x08  # cudaHostRegister flags


class Registration:
    """The arena of a client, page-locked again at each new connection. ``active``
    says whether it is now; copies work either way."""

    def __init__(self, client: Client, register: Callable[..., int], unregister: Callable[..., int]) -> None:
        self._register, self._unregister = register, unregister
        self._mapping: Optional[Mapping] = None
        self._closed = False
        self.active = False
        client.on_attach(self._attached)

    def _attached(self, arena: Optional[Mapping]) -> None:
        self._drop()
        if arena is None or self._closed:
            return
        # Read-only pages need the flag; devices that do not know it refuse.
        code = self._register(arena.address, arena.size, _PORTABLE | _READ_ONLY)
        self.active, self._mapping = code == 0, arena if code == 0 else None
        if code != 0:
            log.warning("kvstored: cudaHostRegister answers %d: copies to the GPU go through pageable memory", code)

    def _drop(self) -> None:
        if self._mapping is not None:
            self._unregister(self._mapping.address)
            self._mapping, self.active = None, False

    def close(self) -> None:
        self._closed = True
        self._drop()


def _runtime() -> Optional[Tuple[Callable[..., int], Callable[..., int]]]:
    """cudaHostRegister and cudaHostUnregister, of torch or of the runtime library."""
    try:
        import torch  # pyright: ignore[reportMissingImports]

        if torch.cuda.is_available():
            cudart = torch.cuda.cudart()
            return (lambda *a: int(cudart.cudaHostRegister(*a))), (lambda p: int(cudart.cudaHostUnregister(p)))
    except (ImportError, AttributeError, RuntimeError):
        pass
    for name in ("libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"):
        try:
            lib: Any = ctypes.CDLL(name)
        except OSError:
            continue
        devices = ctypes.c_int()
        if lib.cudaGetDeviceCount(ctypes.byref(devices)) != 0 or devices.value == 0:
            return None
        lib.cudaHostRegister.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)
        lib.cudaHostUnregister.argtypes = (ctypes.c_void_p,)
        return lib.cudaHostRegister, lib.cudaHostUnregister
    return None


def register(client: Client) -> Optional[Registration]:
    """Page-locks the client's arena; None where there is no GPU or CUDA runtime."""
    found = _runtime()
    return None if found is None else Registration(client, *found)
