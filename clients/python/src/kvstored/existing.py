"""What exists already, compared with what an engine would have stored."""

import logging
import random
import time
from typing import List, Sequence, Tuple

from . import bulk
from .answers import Grant
from .fill import Fill
from .places import HOST, Host, Place
from .prompt import Space

log = logging.getLogger("kvstored")

_QUIET = 60.0  # seconds for which the log says nothing more of a space


class Existing:
    """Has the daemon compare one value in ``every`` that is to be stored, by its
    checksum, if it exists; 0 for none. Other bytes under a known key are counted
    and logged by the daemon, and said here too, once a minute."""

    def __init__(self, space: Space, every: int, memory: Host = HOST) -> None:
        self.space, self.every, self._memory = space, every, memory
        self._said = -_QUIET

    def sums(self, places: Sequence[Place], each: bool = False) -> List[Tuple[int, int]]:
        """Numbers and checksums of some values, or of each."""
        if not bulk.SUMS or not (self.every or each):
            return []
        chosen = [i for i in range(len(places)) if each or random.randrange(self.every) == 0]
        return list(zip(chosen, self._memory.sums([places[i] for i in chosen])))

    def stored(self, fill: Fill, sizes: Sequence[int], says: bool) -> List[bool]:
        """Which slots exist in a way that counts as stored. Other bytes do, as KV
        that is computed again is not bit-equal on a GPU; another length does not,
        as nobody could load it. A length that the daemon does not know counts."""
        lengths = [slot.grant == Grant.EXISTS and slot.length not in (size, 0) for slot, size in zip(fill.slots, sizes)]
        if (fill.differ and says) or any(lengths):
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
