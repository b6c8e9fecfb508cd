"""One connection to a daemon, shared by many threads.

Requests are pipelined and may be answered in any order. Of the threads that
wait, one reads the socket and hands the others their replies; when it has its
own it passes the role on. Calls with a callback are read for by the thread that
runs :meth:`Link.tend`, and only it calls back: a callback may make calls
itself. A link that has failed stays failed.

A watch is a call without a request: it is answered by what the daemon pushes.
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
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from . import glance, greeting, wire
from .call import Call, Frame, Request, Watch, refusal
from .errors import Code, DeadlineExceeded, Disconnected, Error, ProtocolError, Refused
from .prompt import Kept
from .turns import ENDS, LIMIT, Queued, Turns
from .wire import HEADER, Op

if TYPE_CHECKING:
    from .lease import Lease

log = logging.getLogger("kvstored")

_READ_BYTES = 1 << 18
#: A read or write that must wait looks up this often whether the link is closed.
_TICK = 0.2
#: A call that was given less time than this says nothing about the daemon when
#: it is late.
_DOUBT = 0.05
#: Operations that the daemon may answer only when something has happened.
_WAIT = (Op.WAIT, Op.GET, Op.RESERVE, Op.DELETE, Op.FLUSH, Op.WARM)
#: Seconds that a late call has while there is something to read.
_OVERDUE = 1.0

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
        self.spaces: Dict[wire.Space, wire.SpaceInfo] = {}
        self.jobs: Dict[int, "Lease"] = {}  # those that pushes may come for; the reader's
        self.on_background: Callable[[], None] = lambda: None
        self._ids = itertools.count(1)
        self._mu = threading.Lock()  # guards the fields below, never held over I/O
        self._calls: Dict[int, Call] = {}
        self._late: Deque[Call] = collections.deque()  # of _calls: go out with the next request
        self._turns = Turns()
        self._expiry = float("inf")  # no call with a callback is late before
        self._parked = 0  # calls whose threads sleep until they are woken
        self._answered: Deque[Call] = collections.deque()  # with a callback, to be called
        self._reader: Any = None  # a call that is waited for, or this link while it is tended
        self._writing = threading.Lock()  # whoever holds it writes
        self._in = bytearray()  # the reader's
        self._arrived = 0  # frames

        def opened(sock: socket.socket) -> None:
            self._sock = sock
            connected(self._shut)

        try:
            self._waker = os.pipe()
        except OSError as e:
            raise Disconnected(f"{path}: {e}") from e
        os.set_blocking(self._waker[0], False)
        self._roused = False
        self._rest = b""  # of what was sent in part; whoever writes next begins with it
        self._sock, greeted = greeting.connect(path, hello, timeout, opened)
        self.hello, self.arena, self.staging, rest = greeted
        self.kept = Kept(self.hello.limits)
        self._in += rest
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._sock, select.POLLIN)
        self._readable.register(self._waker[0], select.POLLIN)
        self._writable.register(self._sock, select.POLLOUT)
        _links.add(self)

    @property
    def pushes(self) -> bool:
        """Whether the daemon sends the progress of jobs unasked."""
        return bool(self.hello.granted & wire.WANT_PUSHES)

    # ---- calls ---------------------------------------------------------------

    def call(self, request: Request, deadline: float, grace: Optional[float] = None) -> Any:
        """Sends a request and returns what its reply says. Where it has to wait
        for its turn: Queued at the deadline if it has a ``lost``. ``grace`` gives
        it so many seconds from its turn on, and waits for that while the queue
        has moved within so many."""
        call = self._new(request, deadline, grace)
        try:
            self._start((call,), deadline)
            return self.wait(call, deadline)
        except Error:
            raise
        except BaseException:  # a signal's handler may raise anything
            self._disown(call)
            raise

    def start(self, requests: Sequence[Request], deadline: float) -> List[Call]:
        """Sends requests together. Each of the calls must be waited for, unless it
        has a callback: that is called by the deadline."""
        calls = [self._new(request, deadline) for request in requests]
        self._start(calls, deadline)
        return calls

    def _new(self, request: Request, deadline: float, grace: Optional[float] = None) -> Call:
        size, most = len(request.body), self.hello.max_request
        if size > most:  # the daemon would end the connection, and all leases with it
            text = f"the request has {size} bytes, the daemon takes {most}: send a shorter prompt, its hashes, or fewer chunks"
            raise Refused(Op(request.op).name.lower(), Code.TOO_LARGE, text, limit=most)
        call = Call(next(self._ids), request)
        call.deadline, call.grace = deadline, grace if call.jobs else None
        if request.callback is not None:
            call.arrived = self._arrived if deadline - time.monotonic() >= _DOUBT else -1
        return call

    def _start(self, calls: Sequence[Call], deadline: float) -> None:
        arrived, began = self._arrived, time.monotonic()
        background = [call for call in calls if call.request.callback is not None]
        late: Sequence[Call] = ()
        try:
            with self._mu:
                if self.down is not None:
                    raise self.down.fresh()
                if self._late:
                    late = self._due()
                going = [call for call in calls if self._turns.enter(call)]
                if late:
                    behind = [call for call in late if call.request.op == Op.COMMIT and calls and calls[0].request.leads]
                    going = [call for call in late if call not in behind] + going + behind
                for call in calls:
                    self._calls[call.id] = call
                if background:
                    self._count(background)
            if len(going) == 1:
                self._send(going[0].frame(), deadline)
            elif going or self._rest:
                self._send(b"".join([call.frame() for call in going]), deadline)
        except BaseException as e:  # a signal's handler may raise anything
            self._forget(calls)
            self._put_back(late)
            if deadline - began >= _DOUBT and isinstance(e, DeadlineExceeded):
                self._suspect(arrived)
            raise
        if background:
            self._sent(background)

    def _count(self, background: Sequence[Call]) -> None:
        """Counts calls with callbacks, with the lock held."""
        self.background += len(background)
        self._expiry = min([self._expiry, *(call.deadline for call in background)])

    def _due(self) -> List[Call]:
        """What goes out before anything else, but not for callers that have left
        meanwhile. Called with the lock held."""
        due: List[Call] = []
        while self._late:
            call = self._late.popleft()
            if call.left and call.request.callback is not None:
                del self._calls[call.id]
                self._turns.unsent(call)
                self._late.extend(self._turns.next())
            else:
                due.append(call)
        return due

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
            self._late.extendleft(call for call in reversed(late) if call.id in self._calls)

    def submit(self, request: Request, deadline: float, grace: Optional[float] = None) -> Call:
        """:meth:`start` for a request with a callback, by a thread that must not
        wait: the one that tends the link sends it."""
        call = self._new(request, deadline, grace)
        with self._mu:
            if self.down is not None:
                raise self.down.fresh()
            call.sent = True
            self._calls[call.id] = call
            self._count([call])
            if self._turns.enter(call):
                self._late.append(call)
        self.rouse()
        return call

    def rouse(self) -> None:
        """Has the thread that tends the link look for what is to be done."""
        self.on_background()
        if not self._roused:
            self._roused = True  # first: while it is true a byte is there, or will be
            os.write(self._waker[1], b"\0")

    def later(self, request: Request) -> Call:
        """Sends a request with the next one, or when the link is tended. Its
        call may be waited for; its ``take`` hears of the reply in any case."""
        call = Call(next(self._ids), request)
        with self._mu:
            if self.down is not None:
                call.error, call.done = self.down, True
            else:
                self._calls[call.id] = call
                self._turns.enter(call)
                self._late.append(call)
        return call

    def watch(self, step: Watch, deadline: float, callback: Optional[Callable[[Call], None]] = None) -> Call:
        """A call that ends when it is enough, or is late."""
        call = Call(next(self._ids), Request(Op.WAIT, b"", lambda _: None, callback=callback))
        call.deadline, call.enough, call.arrived, call.sent = deadline, step.enough, -1, True
        with self._mu:
            if self.down is not None:
                raise self.down.fresh()
            self._calls[call.id] = call
            step.among.append(call)
            self._count([call] if callback is not None else [])
        self.look(step.among)
        if callback is not None:
            self.rouse()
        return call

    def look(self, watches: List[Call]) -> None:
        """Ends the watches for which it is enough."""
        with self._mu:
            for call in watches:
                if call.enough is not None and call.enough() and self._calls.pop(call.id, None):
                    self._settle(call, None, None)
            watches[:] = [call for call in watches if call.id in self._calls]
        if self._answered:
            self.on_background()

    def wait(self, call: Call, deadline: float) -> Any:
        """Returns the call's value, or raises its error. After DeadlineExceeded the call goes on alone."""
        arrived, began = self._arrived, time.monotonic()
        call.deadline = deadline
        try:
            while not call.done:
                with self._mu:
                    if call.done:
                        break
                    if self._reader is None:
                        self._reader = call
                    lead = self._reader is call
                    if not lead:
                        call.parked = True
                        self._parked += 1
                    ends = deadline if call.grace is None else self._ends(call)
                if lead:
                    self._read_until(call.ended, ends)
                    if call.done:
                        break
                elif call.wake.acquire(timeout=max(0.0, ends - time.monotonic())):
                    continue  # answered, or it is this thread's turn to read
                late = None if call.done else self._leave(call)
                if late is not None:
                    if deadline - began >= _DOUBT and type(late) is DeadlineExceeded and call.enough is None:
                        self._suspect(arrived)
                    raise late
        finally:
            self._pass_on(call)
        if call.error is not None:
            raise call.error.fresh()
        return call.value

    def _ends(self, call: Call) -> float:
        """When the call is too late, with the lock held."""
        if call.grace is None:
            return call.deadline
        if call.waits:
            return self._turns.moved + call.grace
        return max(call.deadline, call.turned + call.grace)

    def abandon(self, call: Call) -> bool:
        """Leaves a call that will not be waited for; False if it is answered already."""
        with self._mu:
            if call.done:
                return False
            if call.request.callback is not None and not call.left and not call.ahead:
                self.background -= 1
            self._unhook(call)
            call.left = True
            self._recall(call)
            return True

    def _disown(self, call: Call) -> None:
        """Leaves a call whose caller was interrupted, even if it is answered
        already: what the reply brings goes back."""
        with self._mu:
            if call.left:
                return
            if call.request.callback is not None and call.sent and not call.done and not call.ahead:
                self.background -= 1
            self._unhook(call)
            call.left = True
            self._recall(call)
            reply = call.reply if call.done and call.error is None else None
        if reply is not None and call.request.undo is not None:
            self._undo(call.request.undo(reply))

    def _unhook(self, call: Call) -> None:
        """Forgets a call that no reply will come for, with the lock held."""
        if self._turns.drop(call) or call.enough is not None:
            self._calls.pop(call.id, None)

    def _undo(self, frame: Optional[Frame]) -> None:
        if frame is not None:
            self.later(Request(*frame, wire.empty_reply))

    def _leave(self, call: Call) -> Optional[Error]:
        """Why the caller has to go, if it is too late."""
        with self._mu:
            if call.done or time.monotonic() < self._ends(call):
                return None
            if not call.parked and call.wake.acquire(blocking=False):
                return None  # it was just woken to read: look again first
            self._unpark(call)
            return self._give_up(call)

    def _unpark(self, call: Call) -> bool:
        """Whether a call's thread slept, with the lock held."""
        parked, call.parked = call.parked, False
        self._parked -= parked
        return parked

    @property
    def crowded(self) -> bool:
        """Whether a job that is asked for now may have to wait for its turn."""
        return self._turns.taken >= LIMIT or bool(self._turns.queue)

    def stuck(self, seconds: float) -> bool:
        """Whether nobody's turn has come for so long, and no job was given back."""
        return time.monotonic() - self._turns.moved > seconds

    def _give_up(self, call: Call) -> Error:
        """Lets a call go on without its caller, with the lock held."""
        if call.waits and call.request.lost is not None:
            call.ahead = True
            return Queued(call)
        self._unhook(call)
        call.left = True
        self._recall(call)
        return DeadlineExceeded(f"{call.name}: no answer in time")

    def _recall(self, call: Call) -> None:
        """Has the daemon end a request that waits for nothing any more, with the
        lock held: the cancel goes out with the next request."""
        if call.request.op in _WAIT and call.id in self._calls and self.down is None:
            cancel = Call(next(self._ids), Request(Op.CANCEL, wire.numbered(call.id), wire.cancel_reply))
            cancel.left = True
            self._calls[cancel.id] = cancel
            self._late.append(cancel)

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
        if self._late or self._rest:
            self.start([], time.monotonic() + timeout)
        with self._mu:
            if self._reader is not None or self.down is not None:
                return
            self._reader = self
        try:
            deadline = time.monotonic() + (self.due(timeout) if self.background else 0.0)
            self._read_until(lambda: not self.background or bool(self._answered) or bool(self._late), deadline)
        finally:
            self._pass_on(self)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to tend: no callbacks, or another thread reads."""
        return not self._answered and not self._late and (not self.background or self._reader is not None)

    def due(self, most: float) -> float:
        """Seconds until the next call with a callback is late, at most so many."""
        return max(0.0, min(most, self._expiry - time.monotonic())) if self.background else most

    def _expire(self) -> None:
        """Gives up the calls with callbacks that are late, but reads first what is
        there already."""
        now, arrived = time.monotonic(), -1
        late = now - self._expiry
        if not self.background or late < 0 or (late < _OVERDUE and self._readable.poll(0)):
            return
        with self._mu:
            self._expiry = float("inf")
            for call in list(self._calls.values()):
                if call.request.callback is None or not call.sent or call.left or call.ahead:
                    continue
                ends = self._ends(call)
                if ends > now:
                    self._expiry = min(self._expiry, ends)
                    continue
                call.error = self._give_up(call)
                self.background -= 1
                self._answered.append(call)
                if type(call.error) is DeadlineExceeded:
                    arrived = max(arrived, call.arrived)
        if arrived >= 0:
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
            if reader.__class__ is Call:
                self._unpark(reader)  # also where a signal's handler raises
            if self._reader is reader:
                self._reader = None
            if self._reader is not None:
                return
            for call in self._calls.values() if self._parked else ():
                if self._unpark(call):
                    call.wake.release()
                    return
        if self.background:
            self.on_background()

    def _read_until(self, enough: Callable[[], bool], deadline: float) -> None:
        """Reads what is there, and more until it is enough or the deadline has passed."""
        while True:
            ready = glance.look(self._readable.poll)
            if not ready:
                left = deadline - time.monotonic()
                ready = self._readable.poll(max(0.0, min(left, _TICK)) * 1000)
            for fd, _ in ready:
                if fd == self._waker[0]:
                    self._drain()
            if ready and self.down is None:
                self._receive()
            if self.down is not None or enough() or time.monotonic() >= deadline:
                return

    def _drain(self) -> None:
        try:
            os.read(self._waker[0], 64)
        except BlockingIOError:
            pass
        self._roused = False

    def _receive(self) -> None:
        """Reads once and delivers what is whole. Nothing follows input that may be lost."""
        try:
            data = self._sock.recv(_READ_BYTES)
            if not data:
                raise Disconnected("the daemon closed the connection")
            self._parse(data)
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

    def _parse(self, read: bytes) -> None:
        """Delivers the frames that are whole, from where they were read to if nothing
        of them was read before. The rest stays."""
        at, data = 0, self._in or read
        if data is self._in:
            self._in += read
        while len(data) - at >= HEADER.size:
            length, kind, op, status, id = HEADER.unpack_from(data, at)
            if length > wire.MAX_BODY:
                raise ProtocolError(f"a reply of {length} bytes")
            end = at + HEADER.size + length
            if len(data) < end:
                break
            body = read[at + HEADER.size : end] if data is read else bytes(memoryview(data)[at + HEADER.size : end])
            at = end
            self._arrived += 1
            self.stalled = False
            if kind == wire.REPLY:
                self._deliver(op, status, id, body)
            elif kind == wire.PUSH:
                self._pushed(op, id, body)
            else:
                raise ProtocolError(f"a frame of kind {kind}")
        if data is not self._in:
            if at < len(data):
                self._in += data[at:]
        elif at:
            del self._in[:at]

    def _pushed(self, op: int, id: int, body: bytes) -> None:
        job = self.jobs.get(id) if op == Op.PREFETCH else None
        if job is not None:
            job._update(body)

    def _deliver(self, op: int, status: int, id: int, body: bytes) -> None:
        with self._mu:
            call = self._calls.pop(id, None)
        if call is None or call.request.op != op:
            raise ProtocolError(f"reply {id} to operation {op} answers nothing")
        try:
            self._take(call, status, body)
            if call.jobs or op in ENDS or self._turns.queue:
                with self._mu:
                    self._turns.answered(call, status, body)
                    if self._turns.queue:
                        self._late.extend(self._turns.next())
        except Exception as e:  # whatever is wrong with it, only its caller hears
            bad = e if isinstance(e, ProtocolError) else ProtocolError(f"reply to operation {op}: {e}")
            self._finish(call, None, bad)
            raise bad.fresh() from e
        if self._late:
            self.on_background()

    def _take(self, call: Call, status: int, body: bytes) -> None:
        """Hands a call its reply, or what went wrong."""
        request, value = call.request, None
        call.reply = body
        if status:
            self._finish(call, None, refusal(call.name, status, body))
            return
        left = call.left
        if not left:
            value = request.take(body)
        if self._finish(call, value, None) and request.undo is not None:
            self._undo(request.undo(body))  # the caller has left, perhaps while the reply was read

    def _finish(self, call: Call, value: Any, error: Optional[Error]) -> bool:
        """Ends a call; reports whether its caller had left."""
        with self._mu:
            left = call.left
            self._settle(call, value, error)
        if call.ahead and not left and error is not None and call.request.lost is not None:
            call.request.lost(error)
        if self._answered:
            self.on_background()
        return left

    def _settle(self, call: Call, value: Any, error: Optional[Error]) -> None:
        """Ends a call, with the lock held."""
        if not call.left:
            call.value, call.error = value, error
        call.done = True  # last: its caller may look without the lock
        if call.left or call.ahead:
            return
        if self._unpark(call):
            call.wake.release()
        if call.request.callback is not None:
            self.background -= 1
            if call.sent:
                self._answered.append(call)

    # ---- writing -------------------------------------------------------------

    def _send(self, out: bytes, deadline: float) -> None:
        """Sends frames, and before them the rest of what was sent in part. After
        DeadlineExceeded nothing of them is sent; where a part is, the rest of
        it stays to be sent."""
        writing = self._writing
        if not writing.acquire(blocking=False) and not writing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise DeadlineExceeded("the daemon takes no requests")
        begun = False  # a part may be out: nothing but the rest can follow it
        try:
            if not self._rest and self.down is None:
                begun = True
                try:
                    sent = self._sock.send(out, socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    sent = 0
                begun = sent > 0
                if sent == len(out):
                    begun = False
                    return
                rest = memoryview(out)[sent:]
            else:
                rest = memoryview(self._rest + out)
            while rest:
                if self.down is not None:
                    raise self.down.fresh()
                before, begun = begun, True  # an exception may come between any two steps
                try:
                    rest = rest[self._sock.send(rest, socket.MSG_NOSIGNAL) :]
                except BlockingIOError:
                    begun = before
                    if not self._await_room(deadline):
                        if not begun:
                            raise DeadlineExceeded("the daemon takes no requests") from None
                        break
            self._rest = bytes(rest)
            begun = False
        except Error:
            raise
        except OSError as e:
            raise self.fail(Disconnected(str(e))) from e
        finally:
            if begun:
                self.fail(Disconnected("a request went out in part"))
            self._writing.release()

    def _await_room(self, deadline: float) -> bool:
        """Waits a while for room to write; False at the deadline. Reads if nobody
        else does: the daemon may wait for that."""
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        with self._mu:
            lead = self._reader is None
            if lead:
                self._reader = self._writing
        try:
            self._writable.modify(self._sock, select.POLLOUT | (select.POLLIN if lead else 0))
            ready = self._writable.poll(min(left, _TICK) * 1000)
            if lead and any(event & select.POLLIN for _, event in ready) and self.down is None:
                self._receive()
        finally:
            if lead:
                self._pass_on(self._writing)
        return True

    def _forget(self, calls: Sequence[Call]) -> None:
        """Calls that were not sent; their caller hears of that by an exception."""
        with self._mu:
            for call in calls:
                if self._calls.pop(call.id, None) is None:
                    continue
                if not self._turns.drop(call):
                    self._turns.unsent(call)
                if call.request.callback is not None:
                    self.background -= 1
            self._late.extend(self._turns.next())

    # ---- the end -------------------------------------------------------------

    def fail(self, error: Error) -> Error:
        """Ends the link; only the first reason counts, and is returned."""
        error = error.fresh()
        with self._mu:
            if self.down is not None:
                return self.down.fresh()
            self.down = error
            calls = list(self._calls.values())
            for call in calls:
                self._settle(call, None, error)
            self._calls.clear()
            self._late.clear()
            self._turns.clear()
            self.jobs.clear()
        for call in calls:
            if call.ahead and not call.left and call.request.lost is not None:
                call.request.lost(error)
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

    def __repr__(self) -> str:
        state = f"down: {self.down}" if self.down is not None else "stalled" if self.stalled else "up"
        return f"<Link {state}, {len(self._calls)} calls under way, {self._turns.taken} jobs>"

    def __del__(self) -> None:
        for fd in getattr(self, "_waker", ()):
            os.close(fd)

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
