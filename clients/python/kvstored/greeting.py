"""Hello: the first exchange of a connection, which brings the daemon's memory."""

from __future__ import annotations

import os
import socket
import time
from typing import Callable, NamedTuple, Optional, Sequence, Tuple

from . import wire
from .call import refusal
from .errors import Code, DeadlineExceeded, Disconnected, ProtocolError, Refused
from .memory import Mapping
from .wire import HEADER, Op

_ROOM = 1 << 16
_DESCRIPTORS = 8  # that a daemon may send


class Unmapped(ProtocolError):
    """This process lacks address space, or descriptors, for the daemon's memory."""


class Greeting(NamedTuple):
    hello: wire.Hello
    arena: Optional[Mapping]
    staging: Optional[Mapping]
    rest: bytes  # that came behind the reply


def connect(
    path: str, hello: bytes, timeout: float, connected: Callable[[socket.socket], None]
) -> Tuple[socket.socket, Greeting]:
    """Connects and says hello. Raises Disconnected, DeadlineExceeded or Refused.
    ``connected`` is given the socket before the answer is waited for."""
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout)
            sock.connect(path)
            connected(sock)
            greeting = _greet(sock, hello, time.monotonic() + timeout)
            sock.setblocking(False)
            return sock, greeting
        except BaseException:
            sock.close()
            raise
    except socket.timeout:
        raise DeadlineExceeded(f"{path}: no answer to hello within {timeout:.3g} s") from None
    except OSError as e:
        raise Disconnected(f"{path}: {e}") from e


def _greet(sock: socket.socket, hello: bytes, deadline: float) -> Greeting:
    sock.sendall(wire.frame(wire.REQUEST, Op.HELLO, 0, hello))
    data, fds, _, _ = socket.recv_fds(sock, _ROOM, _DESCRIPTORS, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    try:
        while not _whole(data):
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            more = sock.recv(_ROOM)
            if not more:
                raise Disconnected("the daemon closed the connection during hello")
            data += more
        length, kind, op, status, _ = HEADER.unpack_from(data)
        body = data[HEADER.size : HEADER.size + length]
        if kind != wire.REPLY or op != Op.HELLO:
            raise ProtocolError(f"a frame of kind {kind}, op {op} where the reply to hello belongs")
        if status:
            if status == Code.VERSION:
                raise Refused("hello", status, wire.version_reply(body))
            raise refusal("hello", status, body)
        reply = wire.hello_reply(body)
        return Greeting(reply, *_map(reply, fds), data[HEADER.size + length :])
    except wire.Malformed as e:
        raise ProtocolError(f"hello: {e}") from e
    finally:
        for fd in fds:
            os.close(fd)


def _whole(data: bytes) -> bool:
    if not data:
        raise Disconnected("the daemon closed the connection during hello")
    if len(data) < HEADER.size:
        return False
    if data.startswith(b"-ERR"):
        raise Refused("hello", Code.BAD_REQUEST, "a Redis server listens there; use the daemon's listen.socket")
    length = HEADER.unpack_from(data)[0]
    if length > wire.MAX_BODY:
        raise ProtocolError(f"a reply of {length} bytes")
    return len(data) >= HEADER.size + length


def _map(reply: wire.Hello, fds: Sequence[int]) -> Tuple[Optional[Mapping], Optional[Mapping]]:
    left, arena, staging = list(fds), None, None
    if len(left) < reply.descriptors:
        raise Unmapped(f"{len(left)} of {reply.descriptors} descriptors came; raise the limit of open files")
    if len(left) != reply.descriptors:
        raise ProtocolError(f"{len(left)} descriptors came, {reply.descriptors} were announced")
    try:
        if reply.granted & wire.WANT_ARENA:
            arena = Mapping(left.pop(0), reply.arena_bytes, writable=False)
        if reply.granted & wire.WANT_STAGING:
            staging = Mapping(left.pop(0), reply.staging_bytes, writable=True)
    except OSError as e:
        raise Unmapped(f"the daemon's memory cannot be mapped: {e}") from e
    except (IndexError, ValueError) as e:
        raise ProtocolError(f"the daemon's memory cannot be mapped: {e}") from e
    return arena, staging
