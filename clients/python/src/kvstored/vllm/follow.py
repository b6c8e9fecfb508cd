"""The daemon's events, as a thread hears them over a connection of
its own: the engine's waits for none of it."""

import logging
import threading
import time
from typing import Callable, List, NamedTuple, Optional, Tuple

from .. import _wire as wire
from .._connection import Link
from .._wire import Buffer, Code, Op
from ..errors import Disconnected, Error, ProtocolError, Refused

log = logging.getLogger("kvstored.vllm")

_FIRST, _LONGEST = 0.2, 10.0  # seconds between two attempts to connect
_LOOK = 1.0  # seconds of one wait for events
_NOW = (1 << 64) - 1
STORED, REMOVED, CLEARED = wire.EVENT_KINDS_STORED, wire.EVENT_KINDS_REMOVED, wire.EVENT_KINDS_CLEARED


class Event(NamedTuple):
    kind: int
    tier: int  # a bit
    name: Tuple[bytes, bytes]  # space and digest


def push(body: Buffer) -> Tuple[bool, List[Event]]:
    """Whether batches before this one are lost, and its events."""
    told = wire.events_push(body)
    return bool(told.flags & wire.EVENTS_PUSH_FLAGS_LOST), [Event(e[0], e[1], (e[3], e[4])) for e in told.events]


class Follower:
    """Tells ``begun`` when events come from now on, ``told`` of each batch, and
    ``ended`` when some may be missed. All are called by its thread."""

    def __init__(
        self, path: str, timeout: float, begun: Callable[[], None], told: Callable[[List[Event]], None], ended: Callable[[], None]
    ) -> None:
        self._path, self._timeout = path, timeout
        self._begun, self._told, self._ended = begun, told, ended
        self._closed, self._said = threading.Event(), False
        self._give_up: Optional[Callable[[], None]] = None
        self._thread = threading.Thread(target=self._run, name="kvstored-vllm-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it, and waits for its thread."""
        self._closed.set()
        give_up = self._give_up
        if give_up is not None:
            give_up()
        self._thread.join(self._timeout + 1)

    def _run(self) -> None:
        pause = _FIRST
        while not self._closed.is_set():
            try:
                self._follow()
                pause = _FIRST
            except Error as e:
                self._say(e)
            except Exception:
                log.exception("kvstored: following the daemon's events goes on")
            self._closed.wait(pause)
            pause = min(2 * pause, _LONGEST)

    def _say(self, e: Error) -> None:
        if isinstance(e, Refused) and e.code == Code.UNSUPPORTED and not self._said:
            self._said = True
            log.warning("kvstored: enable_kv_events of the tier has no effect: the daemon tells no events; set events.enabled in its configuration")

    def _follow(self) -> None:
        """One connection, until it ends. Raises an Error where it does not begin."""
        link = Link(self._path, wire.hello(name="vllm-events"), self._timeout, self._connected)
        link.pushed, begun = self._pushed, False
        try:
            until = time.monotonic() + self._timeout
            asked = link.begin(Op.EVENTS, wire.events(0, _NOW), until)  # all batches from now on
            link.call(Op.PING, wire.ping(), until, wire.ping_reply)  # answered behind it: it is taken, unless it has an answer
            if asked.body is not None:
                link.end(asked, until, wire.events_reply)
                return
            begun = True
            self._begun()
            while link.down is None and asked.body is None:
                link.read(_LOOK)
        finally:
            link.close()
            if begun:
                self._ended()

    def _connected(self, give_up: Callable[[], None]) -> None:
        self._give_up = give_up
        if self._closed.is_set():
            raise Disconnected("closed")

    def _pushed(self, op: int, body: Buffer) -> None:
        try:
            lost, events = push(body)
        except wire.Malformed as e:
            raise ProtocolError(f"events: {e}") from e
        if lost:
            raise Disconnected("events were lost")
        if events:
            self._told(events)
