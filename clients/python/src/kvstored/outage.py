"""What the log says of a daemon that is away."""

import logging
import time
from typing import Optional

from .errors import Error

log = logging.getLogger("kvstored")

_QUIET = 10.0  # seconds from one outage that is said to the next


class Outage:
    """Says once when the daemon is lost and once when it is back. Where it comes
    and goes most of that is left out, and the last word is still true. For one
    thread at a time."""

    def __init__(self) -> None:
        self._since: Optional[float] = None
        self._said = False  # of this outage
        self._quiet_until = time.monotonic()

    def goes_on(self, why: Exception) -> None:
        """Called again and again while there is no connection."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._said = now, False
        if not self._said and now >= self._quiet_until:
            self._said, self._quiet_until = True, now + _QUIET
            log.warning(
                "kvstored: without the daemon (%s): everything is a miss and nothing is stored; trying to attach until it is back",
                why,
                exc_info=None if isinstance(why, Error) else why,
            )

    def is_over(self, socket: str) -> None:
        """Called again and again while there is one."""
        if self._since is not None and self._said:
            log.warning("kvstored: attached to %s, after %.1f s without the daemon", socket, time.monotonic() - self._since)
        self._since = None
