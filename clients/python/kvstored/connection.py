"""The connection of a client, kept through all restarts of the daemon."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import weakref
from typing import Any, Callable, List, Optional

from . import options, wire
from .ask import Asker, Going, Steps, waited
from .call import Request
from .errors import Code, DeadlineExceeded, Disconnected, Error, Refused
from .greeting import Unmapped
from .link import Link
from .memory import Mapping
from .outage import Outage
from .wire import Op, Space, SpaceInfo

log = logging.getLogger("kvstored")

DEFAULT_SOCKET = "/run/kvstored/kvstored.sock"
_BACKOFF = (0.01, 0.25)  # seconds: first, longest
_HELLO = 1.0  # seconds for the daemon to answer hello
_TEND = 0.2  # seconds between looks at an idle connection
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


_OPTIONS = {
    "socket": options.socket(),
    "space": options.Option(None, "a kvstored.Space", lambda v: v is None or isinstance(v, Space)),
    "name": options.text(),
    "timeout": options.seconds(2.0),
    "staging_bytes": options.size(0),
    "keep_staging": options.flag(False),
    "inline": options.flag(False),
}


class Connection(Asker):
    """A daemon, as an engine sees it through all its restarts. Safe for threads.

    ``socket``: the daemon's; without one, :func:`default_socket` at each attempt
    to attach. ``timeout`` (seconds) bounds every call that is given none.
    """

    def __init__(
        self,
        socket: Optional[str] = None,
        *,
        space: Optional[Space] = None,
        name: str = "python",
        timeout: float = 2.0,
        staging_bytes: int = 0,
        keep_staging: bool = False,
        inline: bool = False,
    ) -> None:
        """``keep_staging``: the staging window keeps its pages, for a driver that
        has page-locked it (:func:`kvstored.cuda.register`). Otherwise the daemon
        gives the kernel back what was not used for a minute."""
        given = dict(
            socket=socket, space=space, name=name, timeout=timeout, staging_bytes=staging_bytes,
            keep_staging=keep_staging, inline=inline,
        )
        options.check(type(self).__name__, given, _OPTIONS)
        self._told, self.socket = socket, socket or default_socket()
        self.space, self.name, self.timeout = space, name, timeout
        self._staging_bytes = staging_bytes
        self._wants = wire.WANT_PUSHES if inline else wire.WANT_ARENA | wire.WANT_STAGING | wire.WANT_PUSHES
        if keep_staging and not inline:
            self._wants |= wire.WANT_KEEP
        self._attached_callbacks: List[Callable[[Link], Any]] = []
        self._chores: List[Callable[[], None]] = []  # what the thread does now and then
        self._closed = False
        self._fresh()
        self._start()

    def _start(self) -> None:
        self._open()

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

    # ---- the connection ------------------------------------------------------

    def _attach(self) -> None:
        self.socket = self._told or default_socket()
        try:
            try:
                link = self._connect(self._wants)
            except Unmapped as e:  # payloads cross the socket
                log.warning("kvstored: %s; payloads are copied through the socket", e)
                link = self._connect(wire.WANT_PUSHES)
        finally:
            self._give_up = None
        if self.space is not None and link.hello.space is not None:
            link.spaces[self.space] = link.hello.space
        link.on_background = self._wake.set
        with self._telling:
            for callback in self._attached_callbacks:
                self._notify(callback, link)
            with self._changed:
                self._link = link
                self._changed.notify_all()
        if self._closed:
            link.close()
            raise Disconnected("the client was closed")

    def _connect(self, wants: int) -> Link:
        hello = wire.hello(wants, self.name, self._staging_bytes, self.space)
        return Link(self.socket, hello, min(self.timeout, _HELLO), self._connected)

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
        """Keeps the connection: connects again, reads for calls with callbacks,
        and does the chores several times a second."""
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
        if self._link is not None:
            self._link.call_back()

    def _tend(self, link: Link) -> None:
        if link.idle:
            self._wake.wait(link.due(_TEND))
            self._wake.clear()
        link.tend(_TEND)
        if not link.stalled:
            self._stalled_since = None
        elif self._stalled_since is None:
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
            link.call_back()

    @property
    def attached(self) -> bool:
        """Whether there is a connection that answers."""
        link = self._link
        return link is not None and link.down is None and not link.stalled

    def _wait_attached(self, timeout: Optional[float] = None) -> bool:
        deadline = self._deadline(timeout)
        self._use()
        with self._changed:
            while not self.attached:
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    return False
                self._changed.wait(min(left, _TEND))
        return True

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

    @property
    def arena(self) -> Optional[Mapping]:
        """The daemon's memory as it is mapped here. It changes with the connection."""
        link = self._link
        return None if link is None else link.arena

    @property
    def epoch(self) -> Optional[int]:
        """Random for each start of the daemon; None while it is away."""
        link = self._link
        return None if link is None else link.hello.epoch

    @property
    def hello(self) -> Optional[wire.Hello]:
        """What the daemon said about itself and its limits."""
        link = self._link
        return None if link is None else link.hello

    def close(self) -> None:
        """Ends the connection; jobs, leases and fills go back to the daemon. Waits
        for no daemon, but for a callback that is under way."""
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
        if link is not None:
            link.call_back()

    def __repr__(self) -> str:
        link = self._link
        state = "closed" if self._closed else "without the daemon" if link is None else repr(link)
        return f"<{type(self).__name__} {self.name!r} at {self.socket}: {state}>"

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

    # ---- calls ---------------------------------------------------------------

    def _deadline(self, timeout: Optional[float]) -> float:
        return time.monotonic() + (self.timeout if timeout is None else timeout)

    def _attached(self) -> Link:
        """The connection. Raises Disconnected, or DeadlineExceeded where there is
        one that does not answer."""
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

    def _failed(self, error: Error) -> None:
        if isinstance(error, (Disconnected, DeadlineExceeded)):
            self._wake.set()

    def _ready(self) -> Optional[Link]:
        """The connection, if there is one that answers."""
        try:
            return self._attached()
        except Error:
            return None

    def _opened(self, going: Going, space: Optional[Space]) -> Steps[SpaceInfo]:
        """What the daemon calls a space, which is opened if need be."""
        space = self._space(space)
        info = going.link.spaces.get(space)
        if info is None:
            info = yield Request(Op.OPEN_SPACE, wire.open_space(space), wire.open_space_reply)
            going.link.spaces[space] = info
        return info

    def _info(self, link: Link, space: Optional[Space], deadline: float) -> SpaceInfo:
        going = Going(link, deadline, None)
        return waited(going, self._opened(going, space))

    def _space(self, space: Optional[Space]) -> Space:
        space = self.space if space is None else space
        if space is None:
            raise ValueError("no space: give one to the client, or to the prompt")
        if not isinstance(space, Space):
            raise TypeError(f"{space!r} is no space: make one with kvstored.Space")
        return space


_clients: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
