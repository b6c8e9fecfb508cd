"""A GPU's memory as that in which places are: copies of many pieces are one call, on streams
beside those of the engine.

Bytes are proved in one of two ways. Those that the GPU takes straight from the daemon's
memory, which is page-locked for that, are right if their lease has held until the copy
ended. All others go through page-locked memory of this process, and are summed there.
"""

import importlib
import itertools
import logging
import re
import time
from array import array
from typing import Any, Callable, Iterator, List, Optional, Sequence, Set, Tuple

from . import cuda
from .client import Client
from .places import HOST, Host, Payload, Place, Target, scatter, size_of

log = logging.getLogger("kvstored.device")

_BOUNCE_BYTES = 32 << 20  # of page-locked memory for each direction, or one block


class Streams:
    """What torch and an engine have for copies of one GPU. Safe for threads: an argument
    ``stream`` is of one thread at a time. What the GPU cannot do raises a RuntimeError."""

    def __init__(self, device: Any, swap: Any = None) -> None:
        """``device``: torch's. ``swap``: vLLM's copy of a batch, else it is the driver's, and
        an OSError says that there is none."""
        self._swap, self._driver = swap, None if swap else cuda.Driver(device.index)
        self._torch: Any = importlib.import_module("torch")
        if swap and not _tells(self._torch.version):
            raise ValueError(
                "KvstoredOffloadingSpec copies on GPUs where a copy that the driver refuses is told as an error: "
                "with a driver and a vLLM of CUDA 12.8 or HIP 7.1, or later. Here take KvstoredTier"
            )
        self._device, self._cuda = device, self._torch.cuda

    def page_lock(self, client: Client) -> Optional[cuda.Registration]:
        """Has the daemon's memory page-locked, on a thread; None where that cannot be."""
        return cuda.Registration(client, self._driver) if self._driver else cuda.register(client, self._device.index)

    def stream(self) -> Any:
        return self._cuda.Stream(self._device)

    def wait(self, event: Any) -> None:
        """Returns when an event is over. Without its device a thread makes a context on GPU 0."""
        with self._cuda.device(self._device):
            event.synchronize()

    def mark(self) -> Any:
        """What the engine's thread, which calls it, has asked of the GPU until now."""
        mark = self._cuda.Event()
        mark.record(self._cuda.current_stream(self._device))
        return mark

    def after(self, stream: Any, mark: Any) -> None:
        """Lets what a stream copies from now on come after a mark."""
        stream.wait_event(mark)

    def copy(self, stream: Any, pieces: List[int]) -> None:
        """Copies pieces, triples of the address to copy to, that to copy from, and bytes.
        Once it has returned or raised, nothing is copied any more."""
        columns = array("q", pieces)
        to, source, size = (columns[i::3] for i in range(3))
        ended = self._cuda.Event(blocking=True)  # whose wait takes no processor
        with self._cuda.device(self._device), self._cuda.stream(stream):  # the former, or a thread is on GPU 0, too
            try:
                if self._driver:
                    self._driver.copy(stream.cuda_stream, to, source, size)
                else:
                    self._swap(*(self._torch.frombuffer(column, dtype=self._torch.int64) for column in (source, to, size)))
            finally:
                try:
                    ended.record(stream)
                except RuntimeError:  # of an event: the copies may go on
                    ended = stream
                ended.synchronize()

    def memory(self, size: int) -> Any:
        """Page-locked memory of this process, as a tensor of bytes. A ValueError says that there is none."""
        try:
            return self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True)
        except RuntimeError as e:
            raise ValueError(f"copies need {size} bytes of page-locked memory, and the driver gives none: take KvstoredTier, of SGLang KvstoredHiCache") from e


def _tells(version: Any) -> bool:
    """Whether vLLM's batch copy tells of a copy that is refused: where it is one call of the
    driver's. Elsewhere it is one for each piece, and nothing looks at what those return.
    ``version``: torch's."""
    if getattr(version, "hip", None):
        return _at_least(version.hip, 7, 1)
    return _at_least(version.cuda, 12, 8) and cuda.has("cuMemcpyBatchAsync")


def _at_least(version: Any, *least: int) -> bool:
    return tuple(int(n) for n in re.findall(r"\d+", str(version))[:2]) >= least


class _Lane:
    """The copies of one thread."""

    def __init__(self, streams: Any, room: int) -> None:
        self._streams, self._stream, self.room = streams, streams.stream(), room
        self._memory = streams.memory(room)
        self._at = self._memory.data_ptr()

    def after(self, mark: Any) -> None:
        self._streams.after(self._stream, mark)

    def copy(self, pieces: List[int]) -> None:
        if pieces:
            self._streams.copy(self._stream, pieces)

    def windows(self, sizes: Sequence[int]) -> Iterator[Tuple[int, List[Place]]]:
        """Values of so many bytes, as many at a time as there is room for: the number of
        the first, and where they lie meanwhile."""
        first, at, slots = 0, 0, []  # type: ignore[var-annotated]
        for number, size in enumerate(sizes):
            if size > self.room:
                raise ValueError(f"a value of {size} bytes: there is room for {self.room}")
            if at + size > self.room:
                yield first, slots
                first, at, slots = number, 0, []
            slots.append(((self._at + at, size),))
            at += size
        if slots:
            yield first, slots


class Device(Host):
    """The memory of a GPU. One thread may scatter beside one that does all else. A
    RuntimeError says that the GPU failed, and does not copy any more."""

    def __init__(self, streams: Any, client: Client, value_bytes: int) -> None:
        """``streams``: :class:`Streams`, or what takes its place. ``client``: has
        ``keep_staging``, and its memory is page-locked. ``value_bytes``: of the largest value."""
        room = max(_BOUNCE_BYTES, value_bytes)
        self._streams, self._up, self._down = streams, _Lane(streams, room), _Lane(streams, room)
        self._locked: Optional[cuda.Registration] = streams.page_lock(client)
        self._straight = self._locked is not None

    def wait(self, event: Any) -> None:
        self._streams.wait(event)

    def mark(self) -> Any:
        return self._streams.mark()

    def after(self, mark: Any, up: bool) -> None:
        (self._up if up else self._down).after(mark)

    def close(self) -> None:
        if self._locked is not None:
            self._locked.close()

    def scatter(
        self, payloads: Sequence[Payload], targets: Sequence[Target], verify: bool, until: float, held: Optional[Callable[[], bool]] = None
    ) -> int:
        """As of :class:`Host`, but for targets that are made for a payload: there are none."""
        if time.monotonic() >= until:
            return 0
        rows = [(at, place) for (at, size, _), place in itertools.takewhile(_fits, zip(payloads, targets)) if not callable(place)]
        straight = set() if held is None else self._copied(self._up, rows, up=True)
        n, rest = len(rows), [i for i in range(len(rows)) if i not in straight]
        for first, slots in self._up.windows([payloads[i][1] for i in rest]):
            part = rest[first : first + len(slots)]
            right = scatter([payloads[i] for i in part], slots, verify, until)
            self._up.copy([v for i, slot in zip(part[:right], slots) for v in _between(slot, rows[i][1], up=True)])
            if right < len(slots):
                n = part[right]
                break
        unproved = straight if verify else set(range(n))
        return n if held is None or not unproved or held() else min(n, *unproved)

    def gather(self, rows: Sequence[Tuple[int, Place]], until: float) -> None:
        if time.monotonic() >= until:
            return
        straight = self._copied(self._down, rows, up=False)
        rest = [row for i, row in enumerate(rows) if i not in straight]
        for first, slots in self._brought([place for _, place in rest]):
            HOST.gather([(to, slot) for (to, _), slot in zip(rest[first:], slots)], until)

    def straight(self, payloads: Sequence[Payload]) -> bool:
        locked = self._locked if self._straight else None
        return locked is not None and all(locked.locked(at, size) for at, size, _ in payloads)

    def copy(self, pieces: List[int]) -> bool:
        try:
            self._up.copy(pieces)
        except RuntimeError:
            self._refuses()
            return False
        return True

    def sums(self, places: Sequence[Place], up: bool = False) -> List[Any]:
        return [total for _, slots in self._brought(places, up) for total in HOST.sums(slots)]

    def read(self, place: Place) -> bytes:
        return b"".join(HOST.read(slot) for _, slots in self._brought([place]) for slot in slots)

    def _brought(self, places: Sequence[Place], up: bool = False) -> Iterator[Tuple[int, List[Place]]]:
        """Copies values to this process, as many at a time as there is room for."""
        lane = self._up if up else self._down
        for first, slots in lane.windows([size_of(place) for place in places]):
            lane.copy([v for slot, place in zip(slots, places[first:]) for v in _between(slot, place, up=False)])
            yield first, slots

    def _copied(self, lane: _Lane, rows: Sequence[Tuple[int, Place]], up: bool) -> Set[int]:
        """Copies values straight between the daemon's memory, where that is page-locked, and
        their places; which of them."""
        pieces: List[int] = []
        done: Set[int] = set()
        for i, (at, place) in enumerate(rows):
            sizes = self._locked.parts(at, size_of(place)) if self._locked is not None and self._straight else []
            if sizes:
                done.add(i)
                pieces += _between(list(zip(itertools.accumulate(sizes, initial=at), sizes)), place, up)
        try:
            lane.copy(pieces)
        except RuntimeError:
            self._refuses()
            return set()
        return done

    def _refuses(self) -> None:
        """Called where an exception was caught."""
        self._straight = False
        log.warning("kvstored: the GPU does not copy straight from and to the daemon's memory; all goes through memory of this process", exc_info=True)


def _fits(row: Tuple[Payload, Target]) -> bool:
    return not callable(row[1]) and size_of(row[1]) == row[0][1]


def _between(host: Place, device: Place, up: bool) -> List[int]:
    """Pieces between as many bytes on each side: triples as :meth:`Streams.copy` takes them."""
    pieces: List[int] = []
    parts, at, left = iter(host), 0, 0
    for of, size in device:
        while size:
            if not left:
                at, left = next(parts)
            n = min(size, left)
            pieces += (of, at, n) if up else (at, of, n)
            at, left, of, size = at + n, left - n, of + n, size - n
    return pieces
