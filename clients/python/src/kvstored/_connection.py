"""One connection to a daemon, shared by threads, and how it is begun.

The thread that makes a call sends its request and reads its answer. Of several that
wait one reads, and hands the others theirs; when it has its own, another one reads. No
thread of the client stands between them and the daemon. Replies come in any order. A
link that has failed stays failed.
"""

import functools
import itertools
import logging
import os
import random
import select
import socket
import struct
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from . import _wire as wire
from ._version import __version__
from ._wire import HEADER, Code, Op
from .errors import DeadlineExceeded, Disconnected, Error, ProtocolError, Refused, refusal
from .memory import Mapping
from .outage import Outage

log = logging.getLogger("kvstored")

T = TypeVar("T")
Frame = Tuple[int, bytes]  # op and body of a request

#: Bytes of one read. More would have the allocator map pages for each.
_READ_BYTES = 1 << 16
#: Seconds of one wait for the socket at most.
_TICK = 0.2
#: Seconds that the end of a link waits for who reads and who writes, which the end wakes.
_CLOSE = 0.2
#: Reads of one look at what nobody waits for.
_LOOKS = 64
#: A call that was given less time than this says nothing about the daemon when it is late.
_DOUBT = 0.05
#: Operations that the daemon may answer only when something has happened.
_WAITS = (Op.WAIT, Op.GET, Op.RESERVE, Op.DELETE, Op.FLUSH, Op.WARM)
#: The code of a call whose connection is gone.
_LOST = -1
#: Buffers that one system call takes, and some less.
_AT_ONCE = 1000
_SEND = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_TIMEVAL = struct.Struct("ll")


class Call:
    """A request on its way. ``body`` is its reply's, once that is there."""

    op = id = code = 0
    body: Optional[wire.Buffer] = None
    #: Takes code and body where nobody waits, on the thread that reads. It must not wait.
    then: "Optional[Callable[[int, wire.Buffer], Any]]" = None
    wake: Optional[threading.Lock] = None  # of a thread that sleeps until another has read


class Link:
    """A connection after its hello. All methods are safe for threads."""

    def __init__(
        self, path: str, hello: bytes, timeout: float, connected: Callable[[Callable[[], None]], None] = lambda _: None
    ) -> None:
        """Connects and says hello. Raises Disconnected, DeadlineExceeded or Refused.
        ``connected`` is given what ends the wait for an answer, from any thread."""
        self.pid = os.getpid()
        self.down: Optional[Error] = None  # why the link has failed; never raised itself
        self.stalled = False  # a call timed out, and nothing has arrived since
        self.spaces: Dict[Any, wire.SpaceInfo] = {}
        self.on_down: Callable[[], None] = lambda: None
        #: Called when something is left for :meth:`tend` to send, or to wait for.
        self.on_rest: Callable[[], None] = lambda: None
        #: Takes op and body of what comes unasked, on the thread that reads.
        self.pushed: Callable[[int, wire.Buffer], None] = lambda op, body: None
        self._ids = itertools.count(1)
        self._calls: Dict[int, Call] = {}
        self._reading, self._writing = threading.Lock(), threading.Lock()  # held by who reads, and who writes
        self._sleeping: Dict[int, Call] = {}
        self._later: Deque[bytes] = deque()  # frames that could not be sent at once
        self._rest = b""  # of what was sent in part; the writer's
        self._begun = b""  # of what was read in part, and the fields below; the reader's
        self._part: Optional[bytearray] = None  # a frame of which more than its header has come
        self._got = self._arrived = 0
        self._tick = 0.0

        def opened(sock: socket.socket) -> None:
            self._sock = sock
            connected(self._shut)

        self._sock, greeted = connect(path, hello, timeout, opened)
        self.hello, self.arena, self.staging, self._begun = greeted
        _links.add(self)

    # ---- calls ---------------------------------------------------------------

    def call(
        self, op: int, body: bytes, deadline: float, read: Callable[[wire.Buffer], T], undo: "Optional[Callable[[wire.Buffer], List[Frame]]]" = None
    ) -> T:
        """Sends a request and returns what ``read`` makes of its reply. Where that comes
        too late, the frames that ``undo`` makes of it follow it."""
        try:
            return self.end(self.begin(op, body, deadline), deadline, read, undo)
        except Error:
            raise
        except BaseException:  # the answer may have come, and be lost
            self.fail(Disconnected("interrupted in a call"))
            raise

    def begin(self, op: int, body: bytes, deadline: float, payloads: Sequence[wire.Buffer] = (), more: int = 0) -> Call:
        """Sends a request that :meth:`end` waits for. ``payloads`` of ``more`` bytes follow
        its body, and are not copied."""
        if self.down is not None:
            raise self.down.fresh()
        size, most = len(body) + more, self.hello.max_request
        if size > most:  # the daemon would end the connection, and all leases with it
            text = f"the request has {size} bytes, the daemon takes {most}: send a shorter prompt, its hashes, or fewer chunks"
            raise Refused(Op(op).name.lower(), Code.TOO_LARGE, text, limit=most)
        call = Call()
        call.op, call.id = op, next(self._ids)
        self._calls[call.id] = call
        try:
            self._send(HEADER.pack(size, wire.REQUEST, op, 0, call.id) + body, size + HEADER.size, deadline, payloads)
        except BaseException as e:
            self._calls.pop(call.id, None)
            if not isinstance(e, Error):  # a signal's handler may raise anything, between any two steps
                self.fail(Disconnected("interrupted while a request was sent"))
            raise
        return call

    def post(self, op: int, body: bytes, deadline: float = 0.0, later: bool = False) -> Call:
        """Sends a request that nobody needs to wait for: by the deadline, else with a
        later one, as with ``later`` in any case. It raises nothing."""
        call, size = Call(), len(body)
        call.op, call.id = op, next(self._ids)
        self._calls[call.id] = call
        frame = HEADER.pack(size, wire.REQUEST, op, 0, call.id) + body
        try:
            if later:
                self._later.append(frame)
            else:
                self._send(frame, size + HEADER.size, deadline)
        except DeadlineExceeded:
            self._later.append(frame)
            self.on_rest()
        except Error:
            pass
        except BaseException:
            self.fail(Disconnected("interrupted while a request was sent"))
            raise
        if self.down is not None and self._calls.pop(call.id, None):  # it came behind the end
            self._lost(call)
        return call

    def end(
        self, call: Call, deadline: float, read: Callable[[wire.Buffer], T], undo: "Optional[Callable[[wire.Buffer], List[Frame]]]" = None
    ) -> T:
        """Waits for a call, and returns what ``read`` makes of its reply."""
        if call.body is None:
            self._wait(call, deadline, undo)
        body = call.body
        assert body is not None
        if call.code == _LOST:
            raise Disconnected("the connection is gone") if self.down is None else self.down.fresh()
        try:
            if not call.code:
                return read(body)
            refused = refusal(call.op, call.code, body)
        except Exception as e:
            raise self.fail(ProtocolError(f"the reply to {Op(call.op).name.lower()}: {e}")) from e
        raise refused

    def answered(self, call: Call) -> bool:
        """Whether there is an answer, or will be none. Reads what is there, if no thread does."""
        if call.body is None:
            self._look()
        return call.body is not None or self.down is not None

    def _wait(self, call: Call, deadline: float, undo: "Optional[Callable[[wire.Buffer], List[Frame]]]") -> None:
        """Returns when a call is answered, by this thread or another."""
        arrived, began = self._arrived, time.monotonic()
        now = began
        try:
            while call.body is None:
                if self._reading.acquire(False):
                    try:
                        while call.body is None:
                            if self.down is not None:
                                raise self.down.fresh()
                            self._receive(deadline - now)
                            if call.body is None:  # others' replies keep nobody past the deadline
                                now = time.monotonic()
                                if 4 * (now - began) < deadline - began:
                                    arrived = self._arrived  # what was sent before the call is no sign of life
                                if now >= deadline:
                                    raise DeadlineExceeded(f"{Op(call.op).name.lower()}: no answer in time")
                    finally:
                        self._reading.release()
                        if self._sleeping:
                            self._wake_another()
                else:
                    self._sleep(call, deadline)
        except DeadlineExceeded:
            if not self._leave(call, undo):
                return
            self.doubt(deadline - began, arrived)
            raise
        except Error:
            raise
        except BaseException:
            self.fail(Disconnected("interrupted while a reply was waited for"))
            raise

    def doubt(self, seconds: float, arrived: int) -> None:
        """After so many seconds in vain: if no frame came either, calls fail at once until a frame
        has, such as the answer to a ping."""
        if seconds >= _DOUBT and self._arrived == arrived and not self.stalled:
            self.stalled = True
            self.post(Op.PING, wire.ping())
            self.on_rest()

    def _leave(self, call: Call, undo: "Optional[Callable[[wire.Buffer], List[Frame]]]") -> bool:
        """Lets a call go on without its caller; False where its answer has come."""
        token = [True]  # whoever takes it has the answer

        def late(code: int, body: wire.Buffer) -> None:
            if token and token.pop() and undo is not None and not code:
                for frame in undo(body):
                    self.post(*frame)

        if call.body is not None:
            return False
        call.then = late
        if call.body is not None and token:  # it came meanwhile, and late may be called or not
            try:
                token.pop()
                return False
            except IndexError:
                pass  # it was
        if call.op in _WAITS:
            self.post(Op.CANCEL, wire.cancel(call.id))
        return True

    # ---- reading -------------------------------------------------------------

    def _sleep(self, call: Call, deadline: float) -> None:
        """Waits until another thread has read the answer, or reads no more."""
        wake = call.wake = threading.Lock()
        wake.acquire()
        self._sleeping[call.id] = call
        try:
            if call.body is not None:
                return
            if self._reading.acquire(False):  # it has ended before it could see that this one sleeps
                self._read_no_more()
            elif not wake.acquire(timeout=_left(deadline)):
                raise DeadlineExceeded(f"{Op(call.op).name.lower()}: no answer in time")
        finally:
            self._sleeping.pop(call.id, None)
            if self._sleeping and self._reading.acquire(False):  # it may have been woken to read
                self._read_no_more()

    def _read_no_more(self) -> None:
        self._reading.release()
        self._wake_another()

    def _wake_another(self) -> None:
        """Has another thread read, if one sleeps, when nobody does."""
        for call in list(self._sleeping.values()):
            if call.body is None:
                _wake(call)
                return

    def tend(self, seconds: float = 0.0) -> None:
        """Sends what could not be sent, for which it waits so long, and reads what is there,
        if no thread does."""
        try:
            if self._later or self._rest:
                self._send(b"", 0, time.monotonic() + seconds)
        except Error:
            pass  # there is no room yet
        self._look()

    def _look(self) -> None:
        try:
            if self._reading.acquire(False):
                try:
                    for _ in range(_LOOKS):
                        if self.down is not None or not self._receive(0.0):
                            break
                finally:
                    self._read_no_more()
        except BaseException:  # what was read may be lost
            self.fail(Disconnected("interrupted while replies were read"))
            raise

    def read(self, seconds: float) -> None:
        """Reads once, in so many seconds, for a thread that waits for what comes unasked; it
        sleeps until then."""
        if self.readable(seconds):
            with self._reading:
                self._receive(0.0)

    def readable(self, seconds: float) -> bool:
        """Whether there is something to read within so many seconds. Others may read it."""
        ready = select.poll()
        ready.register(self._sock, select.POLLIN)
        return bool(ready.poll(1e3 * seconds))

    def soon(self, seconds: float) -> bool:
        """:meth:`readable` in parts of the ms that poll counts in. False at once for a descriptor
        that select does not take."""
        try:
            return bool(select.select([self._sock], (), (), seconds)[0])
        except ValueError:
            return False

    def _receive(self, seconds: float) -> bool:
        """Reads once, and delivers what is whole; whether anything came in so many seconds."""
        try:
            if seconds <= 0.0:
                flags = socket.MSG_DONTWAIT
            else:
                flags = 0
                if not self._tick <= seconds <= 16 * self._tick and (seconds < self._tick or self._tick < _TICK):
                    self._tick = min(max(seconds / 2, 1e-3), _TICK)
                    self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(0, int(self._tick * 1e6)))
            part = self._part
            if part is None:
                data = self._sock.recv(_READ_BYTES, flags)
                if data:
                    self._parse(self._begun + data if self._begun else data)
            else:
                data = self._sock.recv_into(memoryview(part)[self._got :], 0, flags)
                self._got += data
                if self._got == len(part):
                    self._part = None
                    self._parse(part)
            if not data:
                self.fail(Disconnected("the daemon closed the connection"))
        except BlockingIOError:
            return False
        except Error as e:
            self.fail(e)
        except OSError as e:
            self.fail(Disconnected(str(e)))
        return True

    def _parse(self, data: wire.Buffer) -> None:
        """Delivers the frames that are whole, and keeps the rest."""
        at, end = 0, len(data)
        while end - at >= HEADER.size:
            length, kind, op, code, id = HEADER.unpack_from(data, at)
            if length > wire.MOST_REPLY_BYTES:
                raise ProtocolError(f"a reply of {length} bytes")
            if end - at - HEADER.size < length:
                self._part, self._got = bytearray(HEADER.size + length), end - at
                self._part[: end - at] = data[at:]
                at = end
                break
            at += HEADER.size
            body = data[at : at + length] if data.__class__ is bytes else memoryview(data)[at : at + length]
            at += length
            self._arrived += 1
            self.stalled = False
            if kind == wire.REPLY:
                call = self._calls.pop(id, None)
                if call is None or call.op != op:
                    raise ProtocolError(f"reply {id} to operation {op} answers nothing")
                call.code = code
                call.body = body  # last: its caller may look at any time
                if call.wake is not None or call.then is not None:
                    self._settled(call)
            elif kind == wire.PUSH:
                self.pushed(op, body)
            else:
                raise ProtocolError(f"a frame of kind {kind}")
        self._begun = bytes(data[at:]) if at < end else b""

    def _settled(self, call: Call) -> None:
        """Tells whoever is told of a call that has ended."""
        body = call.body
        assert body is not None
        if call.wake is not None:
            _wake(call)
        if call.then is not None:
            try:
                call.then(call.code, body)
            except wire.Malformed as e:
                raise ProtocolError(f"the reply to {Op(call.op).name.lower()}: {e}") from e
            except Exception:
                log.exception("kvstored: what is done with a reply failed")

    # ---- writing -------------------------------------------------------------

    def _send(self, out: bytes, size: int, deadline: float, payloads: Sequence[wire.Buffer] = ()) -> None:
        """Sends a frame of so many bytes, and before it what was not sent earlier. After
        DeadlineExceeded nothing of the frame is sent; where a part is, the rest of it stays
        to be sent."""
        writing = self._writing
        if not writing.acquire(False) and not writing.acquire(timeout=_left(deadline)):
            raise DeadlineExceeded("the daemon takes no requests")
        try:
            sent = 0
            if not (self._later or self._rest or payloads and len(payloads) > _AT_ONCE):
                try:
                    sent = self._sock.sendmsg((out, *payloads), (), _SEND) if payloads else self._sock.send(out, _SEND)
                except BlockingIOError:
                    pass
            if sent < size or not size:
                self._send_slowly(b"".join((out, *payloads)) if payloads else out, sent, deadline)
        except OSError as e:
            raise e if isinstance(e, DeadlineExceeded) else self.fail(Disconnected(str(e))) from e
        finally:
            writing.release()

    def _send_slowly(self, out: bytes, sent: int, deadline: float) -> None:
        while self._later and not sent:  # else the frame that has begun goes on
            self._rest += self._later.popleft()
        before = -1 if sent else len(self._rest)  # bytes in front of the first of the frame
        left, at = memoryview(self._rest + out[sent:]), 0
        arrived, began = self._arrived, time.monotonic()
        try:
            while at < len(left):
                try:
                    at += self._sock.send(left[at:], _SEND)
                except BlockingIOError:
                    if self._await_room(deadline):
                        continue
                    self.on_rest()
                    if at <= before:
                        left = left[:before]
                        if out:
                            self.doubt(deadline - began, arrived)
                        raise DeadlineExceeded("the daemon takes no requests") from None
                    break
        finally:
            self._rest = bytes(left[at:])

    def _await_room(self, deadline: float) -> bool:
        """Waits a while for room to write; False at the deadline. Reads if nobody else
        does: the daemon may wait for that."""
        left = deadline - time.monotonic()
        if self.down is not None:
            raise self.down.fresh()
        if left <= 0:
            return False
        reads = self._reading.acquire(False)
        try:
            poll = select.poll()
            poll.register(self._sock, select.POLLOUT | (select.POLLIN if reads else 0))
            if any(event & select.POLLIN for _, event in poll.poll(min(left, _TICK) * 1000)) and reads:
                self._receive(0.0)
        finally:
            if reads:
                self._read_no_more()
        return True

    # ---- the end -------------------------------------------------------------

    def fail(self, error: Error) -> Error:
        """Ends the link; only the first reason counts, and is returned. It takes no lock: a
        signal's handler may be where its own thread holds one."""
        if self.down is not None:
            return self.down.fresh()
        self.down = error.fresh()
        while self._calls:
            try:
                _, call = self._calls.popitem()
            except KeyError:
                break  # another thread took the last one
            self._lost(call)
        if self.pid == os.getpid():
            self._shut()
        self.on_down()
        return error.fresh()

    def _lost(self, call: Call) -> None:
        call.code = _LOST
        call.body = b""
        try:
            self._settled(call)
        except Error:
            pass

    def _shut(self) -> None:
        """Wakes whoever waits for the socket."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed

    def close(self) -> None:
        """Ends the link, and closes its socket when nobody is at it: a thread that was about
        to read would read from the next connection, which gets the same number. Where that
        takes long, a lock is this thread's own, or lost to a signal's handler: then the
        socket, which is shut, goes with the link."""
        self.fail(Disconnected("the client was closed"))
        if self._writing.acquire(timeout=_CLOSE):
            try:
                if self._reading.acquire(timeout=_CLOSE):
                    self._sock.close()
                    self._read_no_more()
            finally:
                self._writing.release()

    def __repr__(self) -> str:
        state = f"down: {self.down}" if self.down is not None else "stalled" if self.stalled else "up"
        return f"<Link {state}, {len(self._calls)} calls under way>"

    def forked(self) -> None:
        """In a forked child: the connection is the parent's."""
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self.down = Disconnected("the process has forked: leases stay with the parent")


def due(timeout: Optional[float], otherwise: float) -> float:
    """When a call is late that begins now. A ValueError for a timeout that is no number."""
    if timeout is None:
        timeout = otherwise
    elif timeout != timeout:
        raise ValueError(f"a timeout of {timeout}: want a number of seconds, or None")
    return time.monotonic() + timeout


def _left(deadline: float) -> float:
    """Seconds, as a lock takes them: there may be no end."""
    return min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)


def _wake(call: Call) -> None:
    assert call.wake is not None
    try:
        call.wake.release()
    except RuntimeError:
        pass  # it is woken already


_links: "weakref.WeakSet[Link]" = weakref.WeakSet()
#: Of all connections, from before hello on.
_sockets: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


# ---- hello: the first exchange, which brings the daemon's memory --------------


class Unmapped(ProtocolError):
    """This process lacks address space, or descriptors, for the daemon's memory."""


class Greeting(NamedTuple):
    hello: wire.HelloReply
    arena: Optional[Mapping]
    staging: Optional[Mapping]
    rest: bytes  # that came behind the reply


def connect(
    path: str, hello: bytes, timeout: float, connected: Callable[[socket.socket], None]
) -> Tuple[socket.socket, Greeting]:
    """Connects and says hello. Raises Disconnected, DeadlineExceeded or Refused.
    ``connected`` is given the socket before the answer is waited for. The socket waits
    for as long as it takes."""
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _sockets.add(sock)
        try:
            sock.settimeout(timeout)
            sock.connect(path)
            connected(sock)
            greeting = _greet(sock, hello, time.monotonic() + timeout)
            sock.setblocking(True)
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
    data, fds, _, _ = socket.recv_fds(sock, _READ_BYTES, wire.MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    try:
        while not _whole(data):
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            more = sock.recv(_READ_BYTES)
            if not more:
                raise Disconnected("the daemon closed the connection during hello")
            data += more
        length, kind, op, status, _ = HEADER.unpack_from(data)
        body = data[HEADER.size : HEADER.size + length]
        if kind != wire.REPLY or op != Op.HELLO:
            raise ProtocolError(f"a frame of kind {kind}, op {op} where the reply to hello belongs")
        if status == Code.VERSION:
            raise Refused("hello", status, version_reply(body))
        if status:
            raise refusal(Op.HELLO, status, body)
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
    if length > wire.MOST_REPLY_BYTES:
        raise ProtocolError(f"a reply of {length} bytes")
    return len(data) >= HEADER.size + length


def version_reply(body: bytes) -> str:
    """What a daemon of any other version answers to hello, in words."""
    size = int.from_bytes(body[:2], "little")
    if len(body) < 2 + size:
        raise wire.Malformed(f"{len(body)} bytes, {2 + size} are needed")
    return body[2 : 2 + size].decode(errors="replace")


def _map(reply: wire.HelloReply, fds: Sequence[int]) -> Tuple[Optional[Mapping], Optional[Mapping]]:
    left, arena, staging = list(fds), None, None
    if len(left) < reply.descriptors:
        raise Unmapped(f"{len(left)} of {reply.descriptors} descriptors came; raise the limit of open files")
    if len(left) != reply.descriptors:
        raise ProtocolError(f"{len(left)} descriptors came, {reply.descriptors} were announced")
    try:
        if reply.granted & wire.FEATURES_ARENA:
            arena = Mapping(left.pop(0), reply.arena_bytes, writable=False)
        if reply.granted & wire.FEATURES_STAGING:
            staging = Mapping(left.pop(0), reply.staging_bytes, writable=True)
    except OSError as e:
        raise Unmapped(f"the daemon's memory cannot be mapped: {e}") from e
    except (IndexError, ValueError) as e:
        raise ProtocolError(f"the daemon's memory cannot be mapped: {e}") from e
    return arena, staging


# ---- a connection that is kept -------------------------------------------------

DEFAULT_SOCKET = "/run/kvstored/kvstored.sock"
_BACKOFF = (0.01, 0.25)  # seconds: first, longest
_HELLO = 1.0  # seconds for the daemon to answer hello
_STALL = 10.0  # seconds without a sign of life after which a connection is given up


def default_socket() -> str:
    """Where the daemon is that a client is not told of: ``$KVSTORED_SOCKET``,
    else where one of this user listens that has no configuration, if it is
    there, else the machine's."""
    given = os.environ.get("KVSTORED_SOCKET")
    if given:
        return given
    folder = os.environ.get("XDG_RUNTIME_DIR")
    own = f"{folder}/kvstored.sock" if folder else f"{os.environ.get('TMPDIR') or '/tmp'}/kvstored-{os.geteuid()}.sock"
    return own if os.geteuid() != 0 and os.path.exists(own) else DEFAULT_SOCKET


@functools.lru_cache(maxsize=None)  # once for each
def _say_version(daemon: str) -> None:
    """Says that the daemon is of another version than the package: they are made together."""
    if daemon.startswith("v") and daemon[1:].partition("+")[0] != __version__:
        log.warning("kvstored: the daemon is of version %s, this package of v%s: install both from one wheel", daemon, __version__)


class Connection:
    """A connection that a thread makes anew whenever it has ended. Safe for threads."""

    def __init__(self, socket: Optional[str], wants: int, timeout: float) -> None:
        self._told, self.socket = socket, socket or default_socket()
        self._wants, self.timeout = wants, timeout
        self._attached_callbacks: List[Callable[[Link], Any]] = []
        self._chores: List[Callable[[], None]] = []  # what the thread does now and then
        self._closed = False
        self._fresh()

    def _open(self) -> None:
        """Attaches, if the daemon is there, and from now on whenever it is."""
        try:
            self._attach()
        except Error as e:
            if isinstance(e, Refused) and e.code != Code.STARTING:
                self._closed = True
                raise
            self._outage.goes_on(e)
        _clients.add(self)
        self._keep()

    def _fresh(self) -> None:
        self._link: Optional[Link] = None
        self._changed = threading.Condition()  # of _link
        self._telling = threading.RLock()  # held while callbacks at attach are called, each once for a connection
        self._give_up: Optional[Callable[[], None]] = None  # while an answer to hello is waited for
        self._outage = Outage()
        self._wake = threading.Event()
        self._keeper: Optional[threading.Thread] = None

    def _attach(self) -> None:
        self.socket = self._told or default_socket()
        try:
            try:
                link = self._connect(self._wants)
            except Unmapped as e:  # payloads cross the socket
                log.warning("kvstored: %s; payloads are copied through the socket", e)
                link = self._connect(0)
        finally:
            self._give_up = None
        link.on_down = link.on_rest = self._wake.set
        _say_version(link.hello.server)
        self._prepare(link)
        with self._telling:
            for callback in self._attached_callbacks:
                self._notify(callback, link)
            with self._changed:
                self._link = link
                self._changed.notify_all()
        if self._closed:
            link.close()
            raise Disconnected("the client was closed")

    def _hello(self, wants: int) -> bytes:
        """The first request of a connection."""
        raise NotImplementedError

    def _prepare(self, link: Link) -> None:
        """Called with each new connection, before anybody else has it."""

    def _connect(self, wants: int) -> Link:
        return Link(self.socket, self._hello(wants), min(self.timeout, _HELLO), self._connected)

    def _connected(self, give_up: Callable[[], None]) -> None:
        self._give_up = give_up
        if self._closed:  # whoever closed it may not have seen that
            give_up()

    @staticmethod
    def _notify(callback: Callable[[Link], Any], link: Link) -> None:
        try:
            callback(link)
        except Exception:
            log.exception("kvstored: a callback at attach failed")

    def _keep(self) -> None:
        self._keeper = threading.Thread(target=self._run, name="kvstored", daemon=True)
        self._keeper.start()

    def _run(self) -> None:
        """Keeps the connection: connects again, and several times a second does the
        chores, and reads what no caller waits for."""
        backoff = _BACKOFF[0]
        while not self._closed:
            try:
                for chore in list(self._chores):
                    chore()
                link = self._link
                if link is not None and link.down is None:
                    self._tend(link)
                else:
                    self._detach(link)
                    if self._closed:
                        break
                    self._attach()
                    self._outage.is_over(self.socket)
                backoff = _BACKOFF[0]
            except Exception as e:  # whatever it is, this thread goes on
                if self._closed:
                    break
                self._outage.goes_on(e)
                pause = max(backoff, min(e.after, 1.0)) if isinstance(e, Refused) else backoff
                self._wake.wait(pause * random.uniform(0.75, 1.25))
                self._wake.clear()
                backoff = min(2 * backoff, _BACKOFF[1])

    def _tend(self, link: Link) -> None:
        if link.stalled:
            link.readable(_TICK)  # its first sign of life ends that
        else:
            self._wake.wait(_TICK)
        self._wake.clear()
        link.tend(_TICK)
        if not link.stalled:
            self._stalled_since = None
            self._outage.is_over(self.socket)
            return
        self._outage.goes_on(DeadlineExceeded(f"{self.socket}: the daemon does not answer"))
        if self._stalled_since is None:
            self._stalled_since = time.monotonic()
        elif time.monotonic() - self._stalled_since > _STALL:
            link.fail(DeadlineExceeded(f"no sign of life for {_STALL:.0f} s"))

    _stalled_since: Optional[float] = None

    def _detach(self, link: Optional[Link]) -> None:
        self._stalled_since = None
        with self._changed:
            self._link = None
        if link is not None:
            if not self._closed:
                self._outage.goes_on(Disconnected(f"{self.socket}: {link.down}"))
            link.close()

    @property
    def attached(self) -> bool:
        """Whether there is a connection that answers."""
        link = self._link
        return link is not None and link.down is None and not link.stalled

    def _attached(self) -> Link:
        """The connection. Raises Disconnected, or DeadlineExceeded where there is
        one that does not answer."""
        if self._keep_lazily:
            self._use()
        link = self._link
        if link is None:
            raise Disconnected(f"{self.socket}: the daemon is away")
        if link.down is not None:
            self._wake.set()  # connect at once
            raise link.down.fresh()
        if link.stalled:
            raise DeadlineExceeded(f"{self.socket}: the daemon does not answer")
        return link

    def wait_attached(self, timeout: Optional[float] = None) -> bool:
        """Waits until there is a connection that answers; whether there is."""
        deadline = due(timeout, self.timeout)
        self._use()
        with self._changed:
            while not self.attached:
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    return False
                self._changed.wait(min(left, _TICK))
        return True

    def _ready(self) -> Optional[Link]:
        """The connection, if there is one that answers."""
        try:
            return self._attached()
        except Error:
            return None

    def on_attach(self, callback: Callable[[Optional[Mapping]], Any]) -> None:
        """Calls back with the daemon's memory as it is mapped here: now, if there is
        a connection, and at every new one before it is used."""
        self._on_link(lambda link: callback(link.arena))

    def _on_link(self, callback: Callable[[Link], Any]) -> None:
        """:meth:`on_attach`, with the whole connection."""
        with self._telling:
            self._attached_callbacks.append(callback)
            link = self._link
            if link is not None:
                self._notify(callback, link)

    def close(self) -> None:
        """Ends the connection; jobs, leases and fills go back to the daemon. Waits for
        no daemon."""
        self._closed = True
        _clients.discard(self)
        self._wake.set()
        link, give_up = self._link, self._give_up
        if link is not None:
            link.close()
        if give_up is not None:
            give_up()
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join(self.timeout + 1)

    def _forked(self) -> None:
        self._fresh()
        self._keep_lazily = True

    _keep_lazily = False

    def _use(self) -> None:
        if self._keep_lazily:  # the first use in a forked child
            with self._changed:
                if self._keep_lazily:
                    self._keep_lazily = False
                    self._keep()


_clients: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _after_fork() -> None:
    for sock in list(_sockets):  # or the daemon would wait for this process to end, too
        sock.close()
    for link in list(_links):
        link.forked()
    for client in list(_clients):
        client._forked()


os.register_at_fork(after_in_child=_after_fork)
