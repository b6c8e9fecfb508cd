"""Places of values in an engine's memory, and copies between them and payloads: one
call for many, during which other threads run."""

import ctypes
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

from . import bulk

#: Where a value is or goes: address and bytes of its pieces, in order.
Place = Sequence[Tuple[int, int]]
#: A place, or what makes one for a payload, given its address and bytes; None: there is none.
Target = Union[Place, Callable[[int, int], Optional[Place]]]
#: Address, bytes and checksum.
Payload = Tuple[int, int, int]


def size_of(place: Place) -> int:
    return sum(size for _, size in place)


def scatter(payloads: Sequence[Payload], targets: Sequence[Target], verify: bool, until: float) -> int:
    """Copies payloads to their places, and returns how many from the first on: up to one
    that is not as long as its place, that was begun too late, or, with ``verify``, of which
    other bytes were stored there than its checksum is of."""
    n = min(len(payloads), len(targets))
    if verify and any(callable(target) for target in targets):  # a place is made for right bytes only
        pieces = bulk.packed(v for at, size, _ in payloads[:n] for v in (at, size))
        n = _right(bulk.sums(pieces, bulk.packed([1] * n)), payloads)
    pieces_of: List[int] = []
    triples: List[int] = []
    for (at, size, _), target in zip(payloads[:n], targets):
        place = target(at, size) if callable(target) else target
        if place is None or size_of(place) != size:
            break
        for to, n_bytes in place:
            triples += (to, at, n_bytes)
            at += n_bytes
        pieces_of.append(len(place))
    copied = bulk.copy(bulk.packed(triples), bulk.packed(pieces_of), until)
    return _right(copied, payloads) if verify else len(copied)


def _right(sums: Sequence[Optional[int]], payloads: Sequence[Payload]) -> int:
    """How many from the first on have the checksum that they should."""
    return next((i for i, (got, (_, _, want)) in enumerate(zip(sums, payloads)) if got != want), len(sums))


def gather(rows: Sequence[Tuple[int, Place]], until: float) -> None:
    """Copies values from their places to an address each; those too late are not begun."""
    triples: List[int] = []
    for to, place in rows:
        for source, size in place:
            triples += (to, source, size)
            to += size
    bulk.copy(bulk.packed(triples), until=until)


class Host:
    """Memory that processors read and write, in which places are. A GPU's is
    :class:`kvstored.device.Device`. Safe for threads."""

    def scatter(
        self, payloads: Sequence[Payload], targets: Sequence[Target], verify: bool, until: float, held: Optional[Callable[[], bool]] = None
    ) -> int:
        """:func:`scatter`. ``held`` proves what sums do not: whether the payloads have been
        leased until now. Nothing is copied to a place once it has returned or raised."""
        n = scatter(payloads, targets, verify, until)
        return n if verify or held is None or held() else 0

    def gather(self, rows: Sequence[Tuple[int, Place]], until: float) -> None:
        """:func:`gather`. Nothing is written to the addresses once it has returned or raised."""
        gather(rows, until)

    def straight(self, payloads: Sequence[Payload]) -> bool:
        """Whether parts of payloads can be copied to their places by :meth:`copy`."""
        return True

    def copy(self, pieces: List[int]) -> bool:
        """Copies pieces, triples of the address to copy to, that to copy from, and bytes; False
        where that cannot be, of which some may have been. None of them is proved."""
        bulk.copy(bulk.packed(pieces))
        return True

    def sums(self, places: Sequence[Place], up: bool = False) -> List[Any]:
        """The XXH3-64 of the values in some places. ``up``: for the thread that scatters."""
        pieces = bulk.packed(v for place in places for piece in place for v in piece)
        return bulk.sums(pieces, bulk.packed(map(len, places)))

    def read(self, place: Place) -> bytes:
        """A copy of the value in a place."""
        return b"".join(ctypes.string_at(at, n) for at, n in place)

    def wait(self, event: Any) -> None:
        """Returns when an event of the engine's is over."""
        event.synchronize()

    def mark(self) -> Any:
        """What the engine, whose thread calls it, has begun on this memory until now."""

    def after(self, mark: Any, up: bool) -> None:
        """Lets copies to places (``up``), or those from places, come after a mark."""

    def close(self) -> None:
        """No copy may be under way, nor begin."""


HOST = Host()
