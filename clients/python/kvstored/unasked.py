"""Reads of one connection that its daemon is not asked for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, Optional, Tuple

from .directory import Directory
from .keyed import Known
from .prompt import Prompt
from .untold import Untold
from .wire import Space

if TYPE_CHECKING:
    from .link import Link

#: Chunks whose keys are computed before the first of them are copied.
_STEP = 256
#: Seconds after which a read looks whether the connection has ended, as in Go: a daemon
#: that is killed says nothing in its directory.
_LOOK = 1e-3


class Unasked:
    """What a connection reads by the directory of the daemon's memory. Safe for threads."""

    def __init__(self, directory: Directory) -> None:
        self._directory, self._known, self._untold = directory, Known(directory), Untold()
        self._looked = 0.0

    def read(self, link: "Link", prompt: Prompt, space: Space, room: Callable[[int, int], int]) -> Tuple[int, bool]:
        """Copies the leading run of a prompt's chunks that are in the directory, each to
        the address that ``room`` gives for its number and bytes; 0 ends it. How many
        are copied, and whether that is all there is to do."""
        now = time.monotonic()
        if now - self._looked >= _LOOK:
            link.catch_up()
            if link.hung:
                return 0, False
            self._looked = now  # only now: a read beside this one looks for itself meanwhile
        info = link.spaces.get(space)
        if info is None or link.down is not None or self._untold.off or not self._directory.holds:
            return 0, False
        keyed = self._known.find(prompt, space, info)
        if keyed is None:
            return 0, False
        n, ended = 0, False
        while n < keyed.chunks and not ended:
            rows = keyed.rows(n, n + _STEP)
            done, ended = self._directory.copy(rows, room, n)
            n += done
            if done < len(rows) or not rows:
                break
        ended = ended or n == keyed.chunks
        if ended and n:  # else the whole prompt is asked for, which counts
            self._untold.add(link, keyed.record(n))
        return n, ended

    def farewell(self, link: "Link") -> None:
        """Has the daemon told of the last reads before the link is closed."""
        self._untold.farewell(link)


def unasked_of(directory: Optional[Directory]) -> Optional[Unasked]:
    return None if directory is None else Unasked(directory)
