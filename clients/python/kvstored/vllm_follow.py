"""The daemon's events, as a thread hears them over a connection of
its own: the engine's waits for none of it."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

from . import greeting, wire
from .call import refusal
from .errors import Code, DeadlineExceeded, Disconnected, Error, ProtocolError, Refused
from .wire import HEADER, Op

log = logging.getLogger("kvstored.vllm")

_FIRST, _LONGEST = 0.2, 10.0  # seconds between two attempts to connect
_READ_BYTES = 1 << 16
_REQUEST = struct.Struct("<QQB7x")  # epoch, from, flags
_PUSH = struct.Struct("<QQQB7x")  # epoch, seq, micros, flags
_EVENT = struct.Struct("<BB2xI16s16s16s")  # kind, tier, tokens, space, hash, parent
_ID_BYTES, _SPACE_BYTES = 16, 32  # a space's id, and what stands before its seven texts
_NOW = (1 << 64) - 1
_LOST = 4
STORED, REMOVED, CLEARED = range(3)


class Event(NamedTuple):
    kind: int
    tier: int  # a bit
    name: Tuple[bytes, bytes]  # space and digest


def request() -> bytes:
    """For all batches from now on."""
    return _REQUEST.pack(0, _NOW, 0) + wire.NO_OPTIONS


def _identity(c: wire._Cursor) -> None:
    """What a space's id stands for, of which nothing is kept."""
    c.skip(_ID_BYTES)
    space = c.record()
    space.skip(_SPACE_BYTES)
    for _ in range(7):
        space.text()
    space.records(lambda tag: (tag.text(), tag.text()))


def push(body: bytes) -> Tuple[bool, List[Event]]:
    """Whether batches before this one are lost, and its events."""
    c = wire._Cursor(body)
    _, _, _, flags = c.read(_PUSH)
    c.records(_identity)
    events = c.table(_EVENT, lambda e: Event(e[0], e[1], (e[3], e[4])))
    c.options()
    return bool(flags & _LOST), events


class Follower:
    """Tells ``begun`` when events come from now on, ``told`` of each batch, and
    ``ended`` when some may be missed. All are called by its thread."""

    def __init__(
        self, path: str, timeout: float, begun: Callable[[], None], told: Callable[[List[Event]], None], ended: Callable[[], None]
    ) -> None:
        self._path, self._timeout = path, timeout
        self._begun, self._told, self._ended = begun, told, ended
        self._closed, self._said = threading.Event(), False
        self._mu = threading.Lock()  # guards _sock
        self._sock: Optional[socket.socket] = None
        self._thread = threading.Thread(target=self._run, name="kvstored-vllm-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it, and waits for its thread."""
        self._closed.set()
        with self._mu:
            if self._sock is not None:
                try:
                    self._sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the daemon was faster
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
        sock, greeted = greeting.connect(self._path, wire.hello(0, "vllm-events"), self._timeout, self._opened)
        begun = False
        try:
            frames = self._frames(sock, greeted.rest)
            sock.settimeout(self._timeout)
            sock.sendall(wire.frame(wire.REQUEST, Op.EVENTS, 2, request()))
            sock.sendall(wire.frame(wire.REQUEST, Op.PING, 3, wire.empty()))  # answered behind the first: it is taken
            sock.settimeout(self._timeout)
            for kind, op, code, body in frames:
                if kind == wire.REPLY and op == Op.PING:
                    sock.settimeout(None)
                    begun = True
                    self._begun()
                elif kind == wire.REPLY:
                    _reply((kind, op, code, body))
                    return
                elif op == Op.EVENTS:
                    lost, events = push(body)
                    if lost:
                        return
                    if events:
                        self._told(events)
        except (OSError, wire.Malformed, struct.error) as e:
            raise Disconnected(f"{self._path}: {e}") from e
        finally:
            with self._mu:
                self._sock = None
            sock.close()
            if begun:
                self._ended()

    def _opened(self, sock: socket.socket) -> None:
        with self._mu:
            self._sock = sock
        if self._closed.is_set():
            raise Disconnected("closed")

    def _frames(self, sock: socket.socket, rest: bytes) -> Iterator[Tuple[int, int, int, bytes]]:
        data = bytearray(rest)
        while True:
            while len(data) < HEADER.size or len(data) < HEADER.size + HEADER.unpack_from(data)[0]:
                if len(data) >= HEADER.size and HEADER.unpack_from(data)[0] > wire.MAX_BODY:
                    raise ProtocolError(f"a frame of {HEADER.unpack_from(data)[0]} bytes")
                try:
                    more = sock.recv(_READ_BYTES)
                except socket.timeout:
                    raise DeadlineExceeded(f"{self._path}: no answer") from None
                if not more:
                    raise Disconnected(f"{self._path}: the daemon closed the connection")
                data += more
            length, kind, op, code, _ = HEADER.unpack_from(data)
            body = bytes(memoryview(data)[HEADER.size : HEADER.size + length])
            del data[: HEADER.size + length]
            yield kind, op, code, body


def _reply(frame: Tuple[int, int, int, bytes]) -> bytes:
    """The body of a reply; a refusal is raised."""
    _, op, code, body = frame
    if code:
        raise refusal(Op(op).name.lower(), code, body)
    return body
