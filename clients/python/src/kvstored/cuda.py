"""Page-locks the daemon's memory for an NVIDIA GPU, so that copies between the two
run at full speed and beside other work.

It asks the driver (libcuda.so.1), whatever runtime the engine brings: a call of
the driver that fails leaves no error behind that the next kernel launch of the
engine would report as its own.
"""

import ctypes
import functools
import logging
import os
import threading
import weakref
from array import array
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import _wire as wire
from .client import Client
from ._connection import Link
from .memory import Mapping

log = logging.getLogger("kvstored.cuda")

_PORTABLE, _READ_ONLY = 0x01, 0x08  # flags of cuMemHostRegister
#: CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: whether the GPU knows _READ_ONLY.
_READ_ONLY_SUPPORTED = 113
#: A mapping is page-locked in pieces of so many bytes from its first on: each takes seconds.
PIECE_BYTES = 64 << 30


class _Attributes(ctypes.Structure):
    """CUmemcpyAttributes, of copies that read in the order of their stream."""

    _fields_ = [("order", ctypes.c_uint), ("hints", ctypes.c_uint * 4), ("flags", ctypes.c_uint)]


class Driver:
    """The driver, and the primary context of one GPU. Safe for threads: the callers
    need no context of their own. Raises OSError where there is no driver or GPU,
    and ValueError where there is not this GPU."""

    def __init__(self, device: Optional[int] = None) -> None:
        """``device``: the number of the GPU, else that of the calling thread's
        context, else 0."""
        self.library: Any = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", 0)
        self.device = self._find(device)
        self._context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self.device)

    def _find(self, device: Optional[int]) -> ctypes.c_int:
        found, context, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        if device is None:
            self.check("cuCtxGetCurrent", ctypes.byref(context))
            if context.value:
                self.check("cuCtxGetDevice", ctypes.byref(found))
                return found
        self.check("cuDeviceGetCount", ctypes.byref(count))
        if device is not None and not 0 <= device < count.value:
            raise ValueError(f"there is no GPU {device}: the driver has {count.value}, the first is 0")
        self.check("cuDeviceGet", ctypes.byref(found), ctypes.c_int(device or 0))
        return found

    def call(self, name: str, *args: Any) -> str:
        """Calls a function of the driver; the name of its error, "" for none."""
        code = getattr(self.library, name)(*args)
        if code == 0:
            return ""
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(text))
        return f"{text.value.decode() if text.value else 'error'} ({code})"

    def check(self, name: str, *args: Any) -> None:
        """:meth:`call`, which raises an OSError."""
        error = self.call(name, *args)
        if error:
            raise OSError(f"{name} of the NVIDIA driver: {error}")

    def _inside(self, name: str, *args: Any) -> str:
        """:meth:`call`, with the context as that of the calling thread."""
        error = self.call("cuCtxPushCurrent_v2", self._context)
        if error:
            return error
        try:
            return self.call(name, *args)
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def flags(self, mapping: Mapping) -> int:
        """Those to register a mapping with. Without the flag the driver asks the
        kernel for writable pages, which a read-only mapping has not."""
        known = ctypes.c_int()
        if not mapping.view.readonly or self.call(
            "cuDeviceGetAttribute", ctypes.byref(known), _READ_ONLY_SUPPORTED, self.device
        ):
            return _PORTABLE
        return _PORTABLE | (_READ_ONLY if known.value else 0)

    def register(self, mapping: Mapping, offset: int, size: int) -> str:
        """Page-locks a piece of a mapping, for all contexts; the name of the driver's error, "" for none."""
        at = ctypes.c_void_p(mapping.address + offset)
        return self._inside("cuMemHostRegister_v2", at, ctypes.c_size_t(size), ctypes.c_uint(self.flags(mapping)))

    def unregister(self, address: int) -> str:
        """Ends what :meth:`register` began; the name of the driver's error, "" for none."""
        return self._inside("cuMemHostUnregister", ctypes.c_void_p(address))

    def copy(self, stream: int, to: "array[int]", source: "array[int]", size: "array[int]") -> None:
        """Queues copies on a stream, which is not the default one: addresses and bytes, 64 bits
        each. One call, where the driver has that (CUDA 12.8). Raises a RuntimeError."""
        queue = ctypes.c_void_p(stream)
        if hasattr(self.library, "cuMemcpyBatchAsync"):
            columns = [ctypes.c_void_p(column.buffer_info()[0]) for column in (to, source, size)]
            attributes, first, failed = _Attributes(order=1), ctypes.c_size_t(), ctypes.c_size_t()
            refused = self._inside(
                "cuMemcpyBatchAsync", *columns, ctypes.c_size_t(len(to)), ctypes.byref(attributes), ctypes.byref(first), ctypes.c_size_t(1),
                ctypes.byref(failed), queue,
            )  # fmt: skip
            if not refused:
                return
        for piece in zip(to, source, size):
            error = self._inside("cuMemcpyAsync", *map(ctypes.c_uint64, piece), queue)
            if error:
                raise RuntimeError(f"cuMemcpyAsync of the NVIDIA driver: {error}")

    def close(self) -> None:
        """Lets go of the context. Nothing can be called after that."""
        self.call("cuDevicePrimaryCtxRelease_v2", self.device)


def has(name: str) -> bool:
    """Whether there is a driver, and it has a function."""
    try:
        return hasattr(ctypes.CDLL("libcuda.so.1"), name)
    except OSError:
        return False


def cut(begin: int, at: int, size: int) -> Iterator[int]:
    """The bytes of each of the parts in which ``size`` bytes from an address on are copied:
    none lies in two pieces of their mapping, which begins at the address ``begin``."""
    while size > 0:
        part = min(size, PIECE_BYTES - (at - begin) % PIECE_BYTES)
        yield part
        at, size = at + part, size - part


class _Held:
    """The pieces of a mapping that are page-locked, from its first byte on."""

    def __init__(self, mapping: Mapping) -> None:
        self.pages: "weakref.ref[Any]" = weakref.ref(mapping.view.obj)
        self.begin = mapping.address
        self.pieces: List[Tuple[int, int]] = []  # address, and that behind it

    def has(self, at: int, size: int) -> bool:
        return bool(self.pieces) and self.begin <= at and at + size <= self.pieces[-1][1]


class Registration:
    """The daemon's memory, page-locked again at each new connection, piece by piece on a
    thread. The driver refuses a copy whose host memory is page-locked in part, or lies in
    two pieces: :meth:`parts` and :func:`cut` cut them.
    A copy within a piece always works, and is slower where that is not page-locked.

    That of an earlier connection stays page-locked for as long as a job, a fill
    or a view of it lives: keep those until the copy is done. Safe for threads."""

    def __init__(self, client: Client, driver: Driver) -> None:
        self._driver, self._pid, self._closed = driver, os.getpid(), False
        self._closing = threading.Lock()  # held while a piece is page-locked, and at the end of that
        self._held: Dict[int, _Held] = {}  # by address of the mapping
        self._connections, self._over = 0, threading.Event()
        #: Whether all of the arena and the staging window of the newest connection is page-locked.
        self.arena = self.staging = False
        client._on_link(self._attached)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Until all that can be is page-locked; False after the timeout."""
        return os.getpid() != self._pid or self._over.wait(timeout)

    def locked(self, at: int, size: int) -> bool:
        """Whether so many bytes from an address on lie in one piece that is page-locked by now."""
        return len(self.parts(at, size)) == 1

    def parts(self, at: int, size: int) -> List[int]:
        """:func:`cut` of bytes that are page-locked by now, [] where not all of them are."""
        held = next((held for held in list(self._held.values()) if held.has(at, size)), None)
        return [] if held is None else list(cut(held.begin, at, size))

    def _attached(self, link: Link) -> None:
        with self._closing:
            if self._closed or os.getpid() != self._pid:  # a forked child has no GPU
                return
            self._connections += 1
            self.arena = self.staging = False
            self._over.clear()
            keeps = link.hello.granted & wire.FEATURES_KEEP
            windows = {"arena": link.arena, "staging": link.staging if keeps else None}
            try:
                threading.Thread(target=self._lock, args=(self._connections, windows), name="kvstored-page-lock", daemon=True).start()
            except BaseException:
                self._over.set()
                raise

    def _lock(self, connection: int, windows: Dict[str, Optional[Mapping]]) -> None:
        try:
            for name in list(windows):
                mapping = windows.pop(name)
                if mapping is not None:
                    self._lock_all(connection, name, mapping)
        finally:
            mapping = None  # its pages may go
            with self._closing:
                if connection == self._connections:
                    self._over.set()

    def _lock_all(self, connection: int, name: str, mapping: Mapping) -> None:
        held = _Held(mapping)
        for offset in range(0, mapping.size, PIECE_BYTES):
            with self._closing:
                if self._closed or connection != self._connections:
                    return
                size = min(PIECE_BYTES, mapping.size - offset)
                error = self._driver.register(mapping, offset, size)
                if error:
                    log.warning(
                        "kvstored: the GPU's driver page-locks %d of %d bytes of the %s (%s): copies of the rest go through the driver's own memory",
                        offset, mapping.size, name, error,
                    )  # fmt: skip
                    return
                if not held.pieces:
                    self._held[held.begin] = held
                    mapping.before_unmap(functools.partial(self._unlock, held.begin))
                held.pieces.append((mapping.address + offset, mapping.address + offset + size))
                if offset + size == mapping.size:
                    setattr(self, name, True)

    def _unlock(self, begin: int) -> None:
        """Once for each mapping: when its pages go, or at the end."""
        held = self._held.pop(begin, None)
        if held is None or os.getpid() != self._pid:
            return
        for at, _ in held.pieces:
            error = self._driver.unregister(at)
            if error:  # the context is gone, for example, and all it had page-locked
                log.debug("kvstored: cuMemHostUnregister: %s", error)

    def close(self) -> None:
        """Unlocks all. No copy from or to the memory may be under way."""
        if os.getpid() != self._pid:
            return
        with self._closing:
            if self._closed:
                return
            self._closed, self.arena, self.staging = True, False, False
            self._over.set()
            for begin, held in list(self._held.items()):
                if held.pages() is not None:  # else the thread that drops them unlocks them
                    self._unlock(begin)
            self._driver.close()


def register(client: Client, device: Optional[int] = None) -> Optional[Registration]:
    """Page-locks the arena of a client, and its staging window if the client was
    made with ``keep_staging``. None where there is no GPU or driver; the log says
    why. Call it where the engine has chosen its GPU, or name that: ``device``, as
    the driver counts (CUDA_VISIBLE_DEVICES included)."""
    if device is not None and (not isinstance(device, int) or isinstance(device, bool)):
        raise TypeError(f"device is {device!r}: it must be the number of a GPU, or None")
    try:
        return Registration(client, Driver(device))
    except OSError as e:
        log.info("kvstored: nothing is page-locked: %s", e)
        return None
