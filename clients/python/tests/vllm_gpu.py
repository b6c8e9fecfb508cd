"""A stand-in for a GPU, for torch's streams and events on it, and for the batch copies of vLLM
and of the driver: its memory is the host's, and a thread for each stream copies, at a rate that is set.

It keeps to what the driver does: copies of a stream come one after another, and after the
events that it was told to wait for. A copy whose side of the host is not page-locked, or
lies in two pieces, is refused as it is queued. What fails while it is copied is said
by the next wait for the stream, and by all that follow.
"""

import contextlib
import queue
import sys
import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple
from unittest import mock

from kvstored import bulk, cuda, device
from kvstored.vllm import transfers


class Driver:
    """In the place of kvstored.cuda.Driver."""

    def __init__(self, gpu: "Gpu") -> None:
        self._gpu, self.closed = gpu, False
        gpu.drivers.append(self)

    def register(self, mapping: Any, offset: int, size: int) -> str:
        self._gpu.locking.wait(60)
        if offset >= self._gpu.most_locked:
            return "no more"
        self._gpu.locked[mapping.address + offset] = size
        return ""

    def unregister(self, address: int) -> str:
        return "" if self._gpu.locked.pop(address, 0) else "not page-locked"

    def copy(self, stream: "Stream", to: Any, source: Any, size: Any) -> None:
        with self._gpu._use(stream):
            self._gpu._swap(source, to, size)

    def close(self) -> None:
        self.closed = True


class Event:
    def __init__(self, gpu: "Gpu", blocking: bool = False) -> None:
        self._gpu, self._over = gpu, threading.Event()

    def record(self, stream: "Stream") -> None:
        if self._gpu.events_left == 0:
            raise RuntimeError("CUDA error: out of memory")
        self._gpu.events_left -= 1
        stream.put(self._over.set)

    def synchronize(self) -> None:
        self._over.wait()
        if self._gpu.failed:
            raise RuntimeError(f"CUDA error: {self._gpu.failed}")


class Stream:
    def __init__(self, gpu: "Gpu") -> None:
        self._gpu = gpu
        self._queue: "queue.SimpleQueue[Optional[Callable[[], Any]]]" = queue.SimpleQueue()
        gpu.streams.append(self)
        self.cuda_stream = self
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for do in iter(self._queue.get, None):
            do()

    def put(self, do: Optional[Callable[[], Any]]) -> None:
        self._queue.put(do)

    def wait_event(self, event: Event) -> None:
        self.put(event._over.wait)

    def synchronize(self) -> None:
        event = Event(self._gpu)
        self.put(event._over.set)
        event.synchronize()


class Gpu:
    """What a test sets: ``rate`` (bytes a second), ``latency`` (seconds of a batch),
    ``refuses`` and ``fails`` (of some pieces: that they are not queued, or copied),
    ``locking`` and ``copies`` (go on while they are set), ``most_locked`` (bytes of a mapping),
    ``most_pinned`` (bytes of memory of the process), ``events_left`` (that are recorded),
    ``version`` (torch's) and ``batched`` (whether the driver takes batches: a copy that is
    refused is passed over in silence where one of the two is too old)."""

    number = 1  # of the GPU

    def __init__(self) -> None:
        self.rate, self.latency, self.most_locked, self.most_pinned = float("inf"), 0.0, 1 << 60, 1 << 60
        self.events_left = -1
        self.version, self.batched = SimpleNamespace(cuda="12.8", hip=None), True
        self.refuses: Callable[[List[Tuple[int, int, int]]], bool] = lambda pieces: False
        self.fails, self.failed = self.refuses, ""
        self.locking, self.copies = threading.Event(), threading.Event()
        self.locking.set()
        self.copies.set()
        self.locked: Dict[int, int] = {}  # address: bytes
        self.drivers: List[Driver] = []
        self.streams: List[Stream] = []
        self.batches: List[List[Tuple[int, int, int]]] = []  # queued
        self.memory: List[Tuple[int, int]] = []  # of the GPU: addresses, and bytes
        self.own = bytearray  # which makes page-locked memory
        self.engine = Stream(self)  # that of the engine's thread
        self._current = threading.local()

    def install(self, test: unittest.TestCase) -> None:
        """In the place of torch, vLLM's copy and the driver, until the test ends."""
        for patch in (
            mock.patch.dict(sys.modules, {"torch": self._torch(), "vllm._custom_ops": SimpleNamespace(swap_blocks_batch=self._swap)}),
            mock.patch.object(cuda, "has", lambda name: self.batched and name == "cuMemcpyBatchAsync"),
        ):
            patch.__enter__()
            test.addCleanup(patch.__exit__, None, None, None)
        self.serve(test)

    def serve(self, test: unittest.TestCase) -> None:
        """In the place of the driver alone, until the test ends."""
        patch = mock.patch.object(cuda, "Driver", lambda _: Driver(self))
        patch.__enter__()
        test.addCleanup(patch.__exit__, None, None, None)
        test.addCleanup(self._end)

    def by_driver(self) -> device.Streams:
        """Of an engine that has torch, with the driver's copy."""
        with mock.patch.dict(sys.modules, {"torch": self._torch()}):
            return device.Streams(SimpleNamespace(type="cuda", index=self.number))

    def event(self) -> Event:
        """What the engine has begun until now."""
        event = Event(self)
        event.record(self.engine)
        return event

    def stay(self) -> None:
        """In their place for the pool of an engine that computes with torch, on CPUs, for good."""

        class Streams(device.Streams):
            def __init__(streams, of: Any) -> None:
                streams._swap, streams._driver, streams._torch, streams._device = self._swap, None, self._torch(), of
                streams._cuda = streams._torch.cuda

        setattr(transfers, "streams_of", Streams)
        setattr(cuda, "Driver", lambda _: Driver(self))

    def _end(self) -> None:
        self.copies.set()
        self.locking.set()
        for stream in self.streams:
            stream.put(None)

    def _torch(self) -> Any:
        event, stream = (lambda **of: Event(self, **of)), (lambda device: Stream(self))
        current = lambda device=None: getattr(self._current, "stream", self.engine)  # noqa: E731
        api = SimpleNamespace(Event=event, Stream=stream, current_stream=current, stream=self._use, device=self._on)
        return SimpleNamespace(cuda=api, version=self.version, int64="q", uint8="B", frombuffer=lambda memory, dtype: memory, empty=self._pinned)

    @contextlib.contextmanager
    def _on(self, device: Any) -> Iterator[None]:
        before, self._current.device = getattr(self._current, "device", 0), device.index
        try:
            yield
        finally:
            self._current.device = before

    @contextlib.contextmanager
    def _use(self, stream: Stream) -> Iterator[None]:
        if getattr(self._current, "device", 0) != self.number:
            raise RuntimeError("CUDA error: a context on a GPU that is not the engine's")
        before, self._current.stream = getattr(self._current, "stream", self.engine), stream
        try:
            yield
        finally:
            self._current.stream = before

    def _pinned(self, size: int, dtype: Any, pin_memory: bool) -> Any:
        if size > self.most_pinned:
            raise RuntimeError("CUDA error: out of memory")
        memory = bytearray(size)
        at = bulk.address(memory, True)
        self.locked[at] = size
        return SimpleNamespace(memory=memory, data_ptr=lambda: at)

    def _swap(self, source: Any, to: Any, size: Any) -> None:
        pieces = list(zip(to, source, size))
        if self.batched and float(self.version.hip or self.version.cuda) >= (7.1 if self.version.hip else 12.8):
            for row in pieces:
                self._check(*row)
            if self.refuses(pieces):
                raise RuntimeError("CUDA error: invalid argument")
        else:
            pieces = [row for row in pieces if not self.refuses([row])]
        self.batches.append(pieces)
        self._current.stream.put(lambda: self._copy(pieces))

    def _check(self, to: int, source: int, size: int) -> None:
        sides = [any(at <= a and a + size <= at + n for at, n in self.memory) for a in (to, source)]
        if sides.count(True) != 1:
            raise RuntimeError("CUDA error: not between the GPU and the host")
        host = source if sides[0] else to
        if not any(at <= host and host + size <= at + n for at, n in list(self.locked.items())):
            raise RuntimeError("CUDA error: host memory that is not page-locked, or in two pieces")

    def _copy(self, pieces: List[Tuple[int, int, int]]) -> None:
        time.sleep(self.latency + sum(n for _, _, n in pieces) / self.rate)
        self.copies.wait()
        if self.fails(pieces):
            self.failed = "an illegal memory access was encountered"
        if not self.failed:
            bulk.copy(bulk.packed(v for row in pieces for v in row))
