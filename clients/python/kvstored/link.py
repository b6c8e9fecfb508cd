"""One connection to a daemon, shared by many threads.

Requests are pipelined and may be answered in any order. Of the threads that
wait, one reads the socket and hands the others their replies; when it has its
own it passes the role on. Calls with a callback are read for by whoever runs
:meth:`Link.tend`, and only it calls back: a callback may make calls itself. A
link that has failed stays failed.
"""

from __future__ import annotations

import collections
import itertools
import logging
import os
import select
import socket
import threading
import time
import weakref
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import wire
from .errors import Code, DeadlineExceeded, Disconnected, Error, ProtocolError, Refused
from .memory import Mapping
from .wire import HEADER, Op

log = logging.getLogger("kvstored")

_READ_BYTES = 1 << 18
#: A read or write that must wait looks up this often whether the link is closed.
_TICK = 0.2
#: Seconds that a reader looks for an answer before it sleeps: many come sooner
#: than a thread falls asleep and wakes.
_GLANCE = 50e-6
#: A call that was given less time than this says nothing about the daemon when
#: it is late.
_DOUBT = 0.05

Frame = Tuple[int, bytes]  # op and body of a request


class Request(NamedTuple):
    """A request to be sent: how its reply is read, and what gives back what the
    reply brought when nobody waits for it any more. A callback is called once,
    unless the request could not be sent or the call was abandoned."""

    op: int
    body: bytes
    take: Callable[[bytes], Any]
    undo: Optional[Callable[[bytes], Optional[Frame]]] = None
    callback: Optional[Callable[["Call"], None]] = None


class Call:
    """A request on its way. ``value`` or ``error``, which is never raised itself,
    is set when it is ``done``."""

    __slots__ = (
        "id", "request", "done", "value", "error", "reply", "parked", "left", "sent", "deadline", "arrived", "wake"
    )  # fmt: skip

    def __init__(self, id: int, request: Request) -> None:
        self.id, self.request = id, request
        self.done = self.parked = self.left = False
        self.sent, self.deadline, self.arrived = False, 0.0, 0  # of a call with a callback
        self.value: Any = None
        self.error: Optional[Error] = None
        self.reply: Optional[bytes] = None
        self.wake = threading.Lock()  # held; released once to wake the thread that parked
        self.wake.acquire()

    def frame(self) -> bytes:
        return wire.frame(wire.REQUEST, self.request.op, self.id, self.request.body)


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
        self.background = 0  # calls with a callback that are neither answered nor left
        self.arena: Optional[Mapping] = None
        self.staging: Optional[Mapping] = None
        self.handles: Dict[wire.Space, int] = {}
        self.on_background: Callable[[], None] = lambda: None
        self._ids = itertools.count(1)
        self._mu = threading.Lock()  # guards the fields below, never held over I/O
        self._calls: Dict[int, Call] = {}
        self._late: Deque[Call] = collections.deque()  # go out with the next request
        self._answered: Deque[Call] = collections.deque()  # with a callback, to be called
        self._reader: Any = None  # a call that is waited for, or this link while it is tended
        self._writing = threading.Lock()  # whoever holds it writes
        self._in = bytearray()  # the reader's
        self._arrived = 0  # frames
        try:
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._sock.settimeout(timeout)
                self._sock.connect(path)
                connected(self._shut)
                self.hello = self._greet(hello, time.monotonic() + timeout)
                self._sock.setblocking(False)
            except BaseException:
                self._sock.close()
                raise
        except socket.timeout:
            raise DeadlineExceeded(f"{path}: no answer to hello within {timeout:.3g} s") from None
        except OSError as e:
            raise Disconnected(f"{path}: {e}") from e
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._sock, select.POLLIN)
        self._writable.register(self._sock, select.POLLOUT)
        _links.add(self)

    # ---- hello ---------------------------------------------------------------

    def _greet(self, hello: bytes, deadline: float) -> wire.Hello:
        self._sock.sendall(wire.frame(wire.REQUEST, Op.HELLO, 0, hello))
        data, fds, _, _ = socket.recv_fds(self._sock, 1 << 16, 2, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        try:
            while not self._whole(data):
                self._sock.settimeout(max(0.001, deadline - time.monotonic()))
                more = self._sock.recv(1 << 16)
                if not more:
                    raise Disconnected("the daemon closed the connection during hello")
                data += more
            length, kind, op, status, _ = HEADER.unpack_from(data)
            body = data[HEADER.size : HEADER.size + length]
            if kind != wire.REPLY or op != Op.HELLO:
                raise ProtocolError(f"a frame of kind {kind}, op {op} where the reply to hello belongs")
            if status:
                raise Refused("hello", status, wire.error_reply(body))
            reply = wire.hello_reply(body)
            self._map(reply, fds)
            self._in += data[HEADER.size + length :]
            return reply
        except wire.Malformed as e:
            raise ProtocolError(f"hello: {e}") from e
        finally:
            for fd in fds:
                os.close(fd)

    @staticmethod
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

    def _map(self, reply: wire.Hello, fds: Sequence[int]) -> None:
        left = list(fds)
        if len(left) != reply.descriptors:
            raise ProtocolError(f"{len(left)} descriptors came, {reply.descriptors} were announced")
        try:
            if reply.granted & wire.WANT_ARENA:
                self.arena = Mapping(left.pop(0), reply.arena_bytes, writable=False)
            if reply.granted & wire.WANT_STAGING:
                self.staging = Mapping(left.pop(0), reply.staging_bytes, writable=True)
        except (IndexError, OSError, ValueError) as e:
            raise ProtocolError(f"the daemon's memory cannot be mapped: {e}") from e

    # ---- calls ---------------------------------------------------------------

    def call(self, request: Request, deadline: float) -> Any:
        """Sends a request and returns what its reply says."""
        call = Call(next(self._ids), request)
        try:
            self._start([call], deadline)
            return self.wait(call, deadline)
        except Error:
            raise
        except BaseException:  # a signal's handler may raise anything
            self._disown(call)
            raise

    def start(self, requests: Sequence[Request], deadline: float) -> List[Call]:
        """Sends requests together. Each of the calls must be waited for, unless it
        has a callback: that is called by the deadline."""
        calls = [Call(next(self._ids), request) for request in requests]
        self._start(calls, deadline)
        return calls

    def _start(self, calls: Sequence[Call], deadline: float) -> None:
        arrived, patient = self._arrived, deadline - time.monotonic() >= _DOUBT
        background = [call for call in calls if call.request.callback is not None]
        for call in background:
            call.deadline, call.arrived = deadline, arrived if patient else -1
        late: List[Call] = []
        try:
            with self._mu:
                if self.down is not None:
                    raise self.down.fresh()
                late, self._late = list(self._late), collections.deque()
                going = [*late, *calls]
                self._calls.update((call.id, call) for call in going)
                self.background += len(background)
            if going:
                self._send(b"".join([call.frame() for call in going]), deadline)
        except BaseException as e:  # a signal's handler may raise anything
            self._forget(calls)
            self._put_back(late)
            if patient and isinstance(e, DeadlineExceeded):
                self._suspect(arrived)
            raise
        if background:
            self._sent(background)

    def _sent(self, calls: Sequence[Call]) -> None:
        """From now on callers hear of their calls through the callback, and only so."""
        with self._mu:
            for call in calls:
                call.sent = True
                if call.done:
                    self._answered.append(call)
        if self.down is not None:
            self.call_back()  # nobody may tend the link any more
        else:
            self.on_background()

    def _put_back(self, late: Sequence[Call]) -> None:
        """What was not sent goes out with a later request."""
        with self._mu:
            if self.down is None:
                self._late.extendleft(call for call in reversed(late) if self._calls.pop(call.id, None))

    def later(self, request: Request) -> Call:
        """Sends a request with the next one, or when the link is tended. Its
        call may be waited for; its ``take`` hears of the reply in any case."""
        call = Call(next(self._ids), request)
        with self._mu:
            if self.down is not None:
                call.error, call.done = self.down, True
            else:
                self._late.append(call)
        return call

    def wait(self, call: Call, deadline: float) -> Any:
        """Returns the call's value, or raises its error. After DeadlineExceeded the call goes on alone."""
        arrived, patient = self._arrived, deadline - time.monotonic() >= _DOUBT
        try:
            while True:
                with self._mu:
                    if call.done:
                        break
                    if self._reader is None:
                        self._reader = call
                    lead = self._reader is call
                    call.parked = not lead
                left = deadline - time.monotonic()
                if lead:
                    self._read_until(lambda: call.done, deadline)
                elif call.wake.acquire(timeout=max(0.0, left)):
                    continue  # answered, or it is this thread's turn to read
                if time.monotonic() >= deadline and self._leave(call):
                    if patient:
                        self._suspect(arrived)
                    raise DeadlineExceeded(f"{Op(call.request.op).name.lower()}: no answer in time")
        finally:
            call.parked = False  # also where a signal's handler raises
            self._pass_on(call)
        if call.error is not None:
            raise call.error.fresh()
        return call.value

    def abandon(self, call: Call) -> bool:
        """Leaves a call that will not be waited for; False if it is answered already."""
        with self._mu:
            if call.done:
                return False
            if call.request.callback is not None and not call.left:
                self.background -= 1
            call.left = True
            return True

    def _disown(self, call: Call) -> None:
        """Leaves a call whose caller was interrupted, even if it is answered
        already: what the reply brings goes back."""
        with self._mu:
            if call.left:
                return
            call.left = True
            reply = call.reply if call.done and call.error is None else None
        if reply is not None and call.request.undo is not None:
            self._undo(call.request.undo(reply))

    def _undo(self, frame: Optional[Frame]) -> None:
        if frame is not None:
            self.later(Request(*frame, wire.empty_reply))

    def _leave(self, call: Call) -> bool:
        with self._mu:
            if call.done:
                return False
            if not call.parked and call.wake.acquire(blocking=False):
                return False  # it was just woken to read: look again first
            call.parked, call.left = False, True
            return True

    def _suspect(self, arrived: int) -> None:
        """After a timeout: if nothing came either, callers should not try until something does."""
        if self._arrived == arrived and self.down is None and not self.stalled:
            self.stalled = True
            self.later(Request(Op.PING, wire.empty(), wire.empty_reply))

    # ---- reading -------------------------------------------------------------

    def tend(self, timeout: float) -> None:
        """Reads for calls with callbacks, for at most timeout, and calls back;
        without any, looks once."""
        try:
            self._read_for_callbacks(timeout)
        except Error:
            pass  # the link is down: whoever holds it sees that
        self._expire()
        self.call_back()

    def _read_for_callbacks(self, timeout: float) -> None:
        with self._mu:
            late = bool(self._late)
        if late:
            self.start([], time.monotonic() + timeout)
        with self._mu:
            if self._reader is not None or self.down is not None:
                return
            self._reader = self
        try:
            deadline = time.monotonic() + (self.due(timeout) if self.background else 0.0)
            self._read_until(lambda: not self.background or bool(self._answered), deadline)
        finally:
            self._pass_on(self)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to tend: no callbacks, or another thread reads."""
        return not self._answered and (not self.background or self._reader is not None)

    def due(self, most: float) -> float:
        """Seconds until the next call with a callback is late, at most so many."""
        if not self.background:
            return most
        with self._mu:
            ends = [c.deadline for c in self._calls.values() if c.request.callback is not None and not c.left]
        return max(0.0, min([most, *(end - time.monotonic() for end in ends)]))

    def _expire(self) -> None:
        """Gives up the calls with callbacks that are late."""
        if not self.background:
            return
        now, arrived = time.monotonic(), None
        with self._mu:
            for call in self._calls.values():
                if call.sent and not call.left and call.deadline <= now:
                    call.left, call.error = True, DeadlineExceeded(f"{Op(call.request.op).name.lower()}: no answer in time")
                    self.background -= 1
                    self._answered.append(call)
                    arrived = call.arrived
        if arrived is not None:
            self._suspect(arrived)

    def call_back(self) -> None:
        """Calls the callbacks of what was answered. They may do anything, raise too."""
        while True:
            try:
                call = self._answered.popleft()
            except IndexError:
                return
            try:
                assert call.request.callback is not None
                call.request.callback(call)
            except Exception:
                log.exception("kvstored: a callback failed")

    def _pass_on(self, reader: Any) -> None:
        """One who reads no more; of those who wait another begins to, if nobody does."""
        with self._mu:
            if self._reader is reader:
                self._reader = None
            if self._reader is not None:
                return
            for call in self._calls.values():
                if call.parked:
                    call.parked = False
                    call.wake.release()
                    return
        if self.background:
            self.on_background()

    def _read_until(self, enough: Callable[[], bool], deadline: float) -> None:
        """Reads what is there, and more until it is enough or the deadline has passed."""
        while True:
            left = deadline - time.monotonic()
            ready = self._glance() or self._readable.poll(max(0.0, min(left, _TICK)) * 1000)
            if ready and self.down is None:
                self._receive()
            if self.down is not None or enough() or time.monotonic() >= deadline:
                return

    def _receive(self) -> None:
        """Reads once and delivers what is whole. Nothing follows input that may be lost."""
        try:
            data = self._sock.recv(_READ_BYTES)
            if not data:
                raise Disconnected("the daemon closed the connection")
            self._in += data
            self._parse()
        except BlockingIOError:
            pass
        except Disconnected as e:
            self.fail(e)
        except wire.Malformed as e:
            self.fail(ProtocolError(str(e)))
        except OSError as e:
            self.fail(Disconnected(str(e)))
        except BaseException:
            self.fail(Disconnected("interrupted in the middle of a reply"))
            raise

    def _glance(self) -> Any:
        """Whether there is something to read within a moment."""
        until = time.perf_counter() + _GLANCE
        while True:
            ready = self._readable.poll(0)
            if ready or time.perf_counter() > until:
                return ready

    def _parse(self) -> None:
        at, data = 0, self._in
        while len(data) - at >= HEADER.size:
            length, kind, op, status, id = HEADER.unpack_from(data, at)
            if length > wire.MAX_BODY:
                raise ProtocolError(f"a reply of {length} bytes")
            end = at + HEADER.size + length
            if len(data) < end:
                break
            body = bytes(memoryview(data)[at + HEADER.size : end])
            at = end
            self._arrived += 1
            self.stalled = False
            if kind == wire.REPLY:
                self._deliver(op, status, id, body)
            elif kind != wire.PUSH:
                raise ProtocolError(f"a frame of kind {kind}")
        if at:
            del data[:at]

    def _deliver(self, op: int, status: int, id: int, body: bytes) -> None:
        with self._mu:
            call = self._calls.pop(id, None)
        if call is None or call.request.op != op:
            raise ProtocolError(f"reply {id} to operation {op} answers nothing")
        request = call.request
        value, undo = None, None
        with self._mu:
            left = call.left
        call.reply = body
        try:
            if status:
                refused = Refused(Op(op).name.lower(), status, wire.error_reply(body))
                self._finish(call, None, refused)
                return
            if not left:
                value = request.take(body)
            elif request.undo is not None:
                undo = request.undo(body)
        except Exception as e:  # whatever is wrong with it, only its caller hears
            bad = e if isinstance(e, ProtocolError) else ProtocolError(f"reply to operation {op}: {e}")
            self._finish(call, None, bad)
            raise bad.fresh() from e
        if self._finish(call, value, None) and not left and request.undo is not None:
            undo = request.undo(body)  # the caller left while the reply was read
        self._undo(undo)

    def _finish(self, call: Call, value: Any, error: Optional[Error]) -> bool:
        """Ends a call; reports whether its caller had left."""
        with self._mu:
            left = call.left
            self._settle(call, value, error)
        if self._answered:
            self.on_background()
        return left

    def _settle(self, call: Call, value: Any, error: Optional[Error]) -> None:
        """Ends a call, with the lock held."""
        call.done = True
        if call.left:
            return
        call.value, call.error = value, error
        if call.parked:
            call.parked = False
            call.wake.release()
        if call.request.callback is not None:
            self.background -= 1
            if call.sent:
                self._answered.append(call)

    # ---- writing -------------------------------------------------------------

    def _send(self, out: bytes, deadline: float) -> None:
        if not self._writing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise DeadlineExceeded("the daemon takes no requests")
        begun = False  # a part may be out: nothing but the rest can follow it
        try:
            rest = memoryview(out)
            while rest:
                if self.down is not None:
                    raise self.down.fresh()
                before, begun = begun, True  # an exception may come between any two steps
                try:
                    rest = rest[self._sock.send(rest, socket.MSG_NOSIGNAL) :]
                except BlockingIOError:
                    begun = before
                    self._await_room(deadline)
            begun = False
        except Error:
            raise
        except OSError as e:
            raise self.fail(Disconnected(str(e))) from e
        finally:
            if begun:
                self.fail(Disconnected("a request went out in part"))
            self._writing.release()

    def _await_room(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded("the daemon takes no requests") from None
        self._writable.poll(min(left, _TICK) * 1000)

    def _forget(self, calls: Sequence[Call]) -> None:
        """Calls that were not sent; their caller hears of that by an exception."""
        with self._mu:
            for call in calls:
                if self._calls.pop(call.id, None) is not None and call.request.callback is not None:
                    self.background -= 1

    # ---- the end -------------------------------------------------------------

    def fail(self, error: Error) -> Error:
        """Ends the link; only the first reason counts, and is returned."""
        error = error.fresh()
        with self._mu:
            if self.down is not None:
                return self.down.fresh()
            self.down = error
            for call in [*self._calls.values(), *self._late]:
                self._settle(call, None, error)
            self._calls.clear()
            self._late.clear()
        if self.pid == os.getpid():
            self._shut()
        if self._answered:
            self.on_background()
        return error.fresh()

    def _shut(self) -> None:
        """Wakes whoever waits for the socket."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed

    def close(self) -> None:
        self.fail(Disconnected("the client was closed"))
        with self._writing:
            self._sock.close()

    def forked(self) -> None:
        """In a forked child: the connection is the parent's."""
        self._mu, self._writing = threading.Lock(), threading.Lock()
        self.down = Disconnected("the process has forked: leases stay with the parent")
        self._sock.close()


_links: "weakref.WeakSet[Link]" = weakref.WeakSet()


def _after_fork() -> None:
    for link in list(_links):
        link.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
