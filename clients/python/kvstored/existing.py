"""What exists already, compared with what an engine would have stored."""

from __future__ import annotations

import logging
import random
import time
from typing import List, Sequence, Tuple

from .fill import Fill, Grant
from .memory import address, checksum_at, copy
from .wire import Space

log = logging.getLogger("kvstored")

#: Where a value is or goes: address and bytes of its pieces, in order.
Place = Sequence[Tuple[int, int]]

_QUIET = 60.0  # seconds for which the log says nothing more of a space


class Existing:
    """Has the daemon compare one value in ``every`` that is to be stored, by its
    checksum, if it exists; 0 for none. Other bytes under a known key are counted
    and logged by the daemon, and said here too, once a minute."""

    def __init__(self, space: Space, every: int) -> None:
        self.space, self.every = space, every
        self._said = -_QUIET

    def sums(self, places: Sequence[Place]) -> List[Tuple[int, int]]:
        """Numbers and checksums of some values."""
        if checksum_at is None or not self.every:
            return []
        return [(i, _sum(place)) for i, place in enumerate(places) if random.randrange(self.every) == 0]

    def stored(self, fill: Fill, sizes: Sequence[int]) -> List[bool]:
        """Which slots exist in a way that counts as stored. Other bytes do, as KV
        that is computed again is not bit-equal on a GPU; another length does not,
        as nobody could load it. A length that the daemon does not know counts."""
        lengths = [slot.grant == Grant.EXISTS and slot.length not in (size, 0) for slot, size in zip(fill.slots, sizes)]
        if fill.differ or any(lengths):
            self._say(len(fill.differ), sum(lengths))
        return [slot.grant == Grant.EXISTS and not other for slot, other in zip(fill.slots, lengths)]

    def _say(self, bytes_differ: int, lengths_differ: int) -> None:
        now = time.monotonic()
        if now - self._said < _QUIET:
            return
        self._said = now
        log.warning(
            "kvstored: %r has other bytes under keys that are known (%d values compared by checksum, %d of another length): "
            "the first copy stays and is what every engine gets. On a GPU bytes may vary from run to run; if they should not, "
            "the keys do not tell apart what differs. kvstored_puts_differ_total counts them.",
            self.space,
            bytes_differ,
            lengths_differ,
        )


def _sum(place: Place) -> int:
    assert checksum_at is not None
    if len(place) == 1:
        return checksum_at(*place[0])
    whole = bytearray(sum(size for _, size in place))
    start = to = address(whole)
    for source, size in place:
        copy(to, source, size)
        to += size
    return checksum_at(start, len(whole))
