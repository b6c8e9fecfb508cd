"""The client: what an engine holds for as long as it runs."""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar

from . import options, wire
from .errors import MISTAKES, DeadlineExceeded, Disconnected, Error, Refused
from .fill import Fill
from .job import Job, Reason, State, Wakeup
from .link import Call, Link, Request
from .memory import Mapping
from .outage import Outage
from .prompt import Prompt
from .wire import Buffer, Count, Flushed, Match, Op, Space, Stored

log = logging.getLogger("kvstored")

_Answer = TypeVar("_Answer")

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
    "inline": options.flag(False),
}


class Chunk(NamedTuple):
    """A payload that came over the socket."""

    payload: bytes
    tokens: int
    sum: int


class Client:
    """A daemon, as an engine sees it through all its restarts. Safe for threads.

    Where the daemon is away, late, full or stopping, every call answers a miss:
    an empty match, a job without chunks, a fill without slots. Leases of an
    earlier connection are lost and say so when they are released. A thread
    connects again by itself. What is raised is a mistake of the caller, a
    :class:`kvstored.Refused`, or here a ValueError.

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
        inline: bool = False,
    ) -> None:
        given = dict(
            socket=socket, space=space, name=name, timeout=timeout, staging_bytes=staging_bytes, inline=inline
        )
        options.check("Client", given, _OPTIONS)
        self._told, self.socket = socket, socket or default_socket()
        self.space, self.name, self.timeout = space, name, timeout
        self._staging_bytes = staging_bytes
        self._wants = 0 if inline else wire.WANT_ARENA | wire.WANT_STAGING
        self._attached_callbacks: List[Callable[[Optional[Mapping]], Any]] = []
        self._chores: List[Callable[[], None]] = []  # what the thread does now and then
        self._closed = False
        self._fresh()
        try:
            self._attach()
        except Refused:
            self._closed = True
            raise
        except Error as e:
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
        hello = wire.hello(self._wants, self.name, self._staging_bytes, self.space)
        try:
            link = Link(self.socket, hello, min(self.timeout, _HELLO), self._connected)
        finally:
            self._give_up = None
        if self.space is not None and link.hello.space is not None:
            link.handles[self.space] = link.hello.space.handle
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

    def _connected(self, give_up: Callable[[], None]) -> None:
        self._give_up = give_up
        if self._closed:  # whoever closed it may not have seen that
            give_up()

    @staticmethod
    def _notify(callback: Callable[[Optional[Mapping]], Any], link: Link) -> None:
        try:
            callback(link.arena)
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
                self._wake.wait(backoff * random.uniform(0.75, 1.25))
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

    def wait_attached(self, timeout: Optional[float] = None) -> bool:
        """Waits until there is a connection."""
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

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

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

    def _ready(self) -> Optional[Link]:
        """The connection, if there is one that answers."""
        self._use()
        link = self._link
        if link is None or link.stalled:
            return None
        if link.down is not None:
            self._wake.set()  # connect at once
            return None
        return link

    def _chain(self, link: Link, prompt: Prompt, deadline: float) -> bytes:
        return prompt.chain(self._handle(link, prompt.space, deadline))

    def _handle(self, link: Link, space: Optional[Space], deadline: float) -> int:
        space = self.space if space is None else space
        if space is None:
            raise ValueError("no space: give one to Client, or to the prompt")
        handle = link.handles.get(space)
        if handle is None:
            info = link.call(Request(Op.OPEN_SPACE, wire.open_space(space), wire.open_space_reply), deadline)
            handle = link.handles[space] = info.handle
        return handle

    def _ask(self, timeout: Optional[float], ask: Callable[[Link, float], _Answer], miss: _Answer) -> _Answer:
        """ask() on the connection; miss where the daemon is away, late, full or stopping."""
        link = self._ready()
        if link is None:
            return miss
        try:
            return ask(link, self._deadline(timeout))
        except (Disconnected, DeadlineExceeded):
            self._wake.set()
            return miss
        except Refused as e:
            if e.code in MISTAKES:
                raise
            return miss

    def ping(self, timeout: Optional[float] = None) -> bool:
        """Whether the daemon answers."""

        def ask(link: Link, deadline: float) -> bool:
            link.call(Request(Op.PING, wire.empty(), wire.empty_reply), deadline)
            return True

        return self._ask(timeout, ask, False)

    def lookup(self, prompt: Prompt, *, search: int = 0, timeout: Optional[float] = None) -> Match:
        """How much of a prompt is there. It takes no lease."""

        def ask(link: Link, deadline: float) -> Match:
            body = wire.lookup(self._chain(link, prompt, deadline), search)
            return link.call(Request(Op.LOOKUP, body, wire.lookup_reply), deadline)

        return self._ask(timeout, ask, Match())

    def _prefetch_request(
        self, link: Link, prompt: Prompt, deadline: float, options: Dict[str, Any]
    ) -> Tuple[Job, Request]:
        job = Job(link, self.timeout)
        body = wire.prefetch(self._chain(link, prompt, deadline), **options)
        return job, Request(Op.PREFETCH, body, job._begin, Job._undo)

    def prefetch(
        self,
        prompt: Prompt,
        *,
        search: int = 0,
        policy: int = 0,
        load_deadline: float = 0.0,
        pin: bool = False,
        lookup_id: str = "",
        configs: Sequence[Tuple[str, str]] = (),
        timeout: Optional[float] = None,
    ) -> Job:
        """Leases what is in DRAM of a prompt and starts to bring up the rest of
        what is there. What came with the reply is ready at once."""
        options = dict(
            search=search, policy=policy, deadline_ms=int(load_deadline * 1000), pin=pin, lookup_id=lookup_id, configs=configs
        )

        def ask(link: Link, deadline: float) -> Job:
            _, request = self._prefetch_request(link, prompt, deadline, options)
            return link.call(request, deadline)

        return self._ask(timeout, ask, Job(None, self.timeout))

    def warm(
        self,
        prompt: Optional[Prompt] = None,
        *,
        lookup_id: str = "",
        search: int = 0,
        wait: float = 0.0,
        timeout: Optional[float] = None,
    ) -> Tuple[Match, State]:
        """Brings what is there of a prompt, or of an earlier prefetch by its
        lookup id, up to DRAM when nobody else loads, and leases nothing of it.
        Returns after ``wait`` seconds or when it is done; it goes on for as
        long as the connection lasts."""

        def ask(link: Link, deadline: float) -> Tuple[Match, State]:
            chain = None if prompt is None else self._chain(link, prompt, deadline)
            body = wire.warm(chain, lookup_id, search, int(wait * 1000))
            match, state = link.call(Request(Op.WARM, body, wire.warm_reply), deadline)
            return match, State(state.done, state.reason, state.ready)

        if timeout is None:
            timeout = self.timeout + wait
        return self._ask(timeout, ask, (Match(), State(True, Reason.CLOSED, Count())))

    def batch(
        self,
        prompts: Sequence[Prompt],
        *,
        max_overtaken: int = 0,
        overtaken: Sequence[int] = (),
        lookup_ids: Sequence[str] = (),
        search: int = 0,
        policy: int = 0,
        load_deadline: float = 0.0,
        timeout: Optional[float] = None,
    ) -> Tuple[List[Job], List[int]]:
        """A :meth:`prefetch` for each of many prompts, given in the order in which
        they came, and the order in which to run them so that most of what they
        share is computed once. Nobody is overtaken more than ``max_overtaken``
        times; ``overtaken`` is how often each was before. A prompt that the
        daemon refuses has a job without chunks."""
        names = list(lookup_ids) + [""] * (len(prompts) - len(lookup_ids))
        counts = list(overtaken) + [0] * (len(prompts) - len(overtaken))
        miss = [Job(None, self.timeout) for _ in prompts], list(range(len(prompts)))

        def ask(link: Link, deadline: float) -> Tuple[List[Job], List[int]]:
            chains = [self._chain(link, p, deadline) for p in prompts]
            body = wire.batch(
                list(zip(chains, names, counts)), max_overtaken, search, False, policy, int(load_deadline * 1000)
            )

            def take(reply: bytes) -> Tuple[List[Job], List[int]]:
                answers, order = wire.batch_reply(reply)
                jobs = [Job(link if a.prefetch else None, self.timeout) for a in answers]
                for job, answer in zip(jobs, answers):
                    if answer.prefetch:
                        job._accept(*answer.prefetch[:3])
                return jobs, order

            def undo(reply: bytes) -> None:
                for a in wire.batch_reply(reply)[0]:
                    if a.prefetch:
                        link.later(Request(Op.CANCEL, wire.job(a.prefetch[0]), wire.empty_reply))

            return link.call(Request(Op.BATCH, body, take, undo), deadline)

        return self._ask(timeout, ask, miss)

    async def prefetch_async(self, prompt: Prompt, *, timeout: Optional[float] = None, **options: Any) -> Job:
        """:meth:`prefetch` for asyncio: awaits the reply. Then ``await job.wait_async()``."""
        answered = Wakeup()

        def ask(link: Link, deadline: float) -> Tuple[Link, Call]:
            _, request = self._prefetch_request(link, prompt, deadline, options)
            (call,) = link.start([request._replace(callback=lambda _: answered.set())], deadline)
            return link, call

        asked: Optional[Tuple[Link, Call]] = self._ask(timeout, ask, None)
        if asked is None:
            return Job(None, self.timeout)
        link, call = asked
        try:
            await answered
        except BaseException:  # cancelled: nobody will have the job
            if not link.abandon(call) and call.value is not None:
                call.value.release_soon()
            raise
        if isinstance(call.error, Refused) and call.error.code in MISTAKES:
            raise call.error.fresh()
        return Job(None, self.timeout) if call.error is not None else call.value

    def reserve(
        self,
        prompt: Prompt,
        *,
        size: int = 0,
        sizes: Sequence[int] = (),
        first: int = 0,
        count: int = 0,
        all_or_nothing: bool = False,
        wait: float = 0.0,
        timeout: Optional[float] = None,
    ) -> Fill:
        """Asks for room for chunks of ``size`` bytes, or of ``sizes``. ``wait``
        lets the answer wait for room and for the tiers below to catch up."""

        def ask(link: Link, deadline: float) -> Fill:
            body = wire.reserve(
                self._chain(link, prompt, deadline), sizes or [size], first, count, all_or_nothing, int(wait * 1000)
            )
            return link.call(Request(Op.RESERVE, body, Fill(link, self.timeout)._begin, Fill._undo), deadline)

        return self._ask(timeout, ask, Fill(None, self.timeout))

    def put(
        self, prompt: Prompt, payloads: Sequence[Buffer], *, first: int = 0, timeout: Optional[float] = None
    ) -> List[Stored]:
        """Stores payloads over the socket, where memory cannot be shared. [] is a miss."""

        def ask(link: Link, deadline: float) -> List[Stored]:
            body = wire.put(self._chain(link, prompt, deadline), first, payloads)
            return link.call(Request(Op.PUT, body, wire.store_reply), deadline)

        return self._ask(timeout, ask, [])

    def get(
        self,
        prompt: Prompt,
        *,
        first: int = 0,
        max_chunks: int = 0,
        max_bytes: int = 0,
        timeout: Optional[float] = None,
    ) -> List[Chunk]:
        """Payloads over the socket: the longest leading run that can be had in time."""

        def ask(link: Link, deadline: float) -> List[Chunk]:
            chain = self._chain(link, prompt, deadline)
            # The daemon gives up a little earlier than this side.
            millis = max(1, int((deadline - time.monotonic()) * 900))
            body = wire.get(chain, first, max_chunks, max_bytes, millis)
            return [Chunk(*row) for row in link.call(Request(Op.GET, body, wire.get_reply), deadline)]

        return self._ask(timeout, ask, [])

    def pin(self, prompt: Prompt, lookup_id: str, *, max_age: float = 0.0, timeout: Optional[float] = None) -> Count:
        """Protects what is in DRAM of a prompt under a name; the leading run that is."""

        def ask(link: Link, deadline: float) -> Count:
            body = wire.pin(self._chain(link, prompt, deadline), lookup_id, int(max_age * 1000))
            return link.call(Request(Op.PIN, body, wire.pin_reply), deadline)

        return self._ask(timeout, ask, Count())

    def unpin(self, lookup_id: str, timeout: Optional[float] = None) -> int:
        """Ends the pins of a name; the chunks that were pinned."""
        request = Request(Op.UNPIN, wire.unpin(lookup_id), wire.number_reply)
        return self._ask(timeout, lambda link, deadline: link.call(request, deadline), 0)

    def delete(self, prompt: Prompt, timeout: Optional[float] = None) -> int:
        """Forgets the chunks of a prompt in every tier; those that were there."""

        def ask(link: Link, deadline: float) -> int:
            body = wire.delete_chain(self._chain(link, prompt, deadline))
            return link.call(Request(Op.DELETE, body, wire.number_reply), deadline)

        return self._ask(timeout, ask, 0)

    def delete_space(self, space: Optional[Space] = None, timeout: Optional[float] = None) -> int:
        """Forgets a whole space. Needs the right admin."""

        def ask(link: Link, deadline: float) -> int:
            body = wire.delete_space(self._handle(link, space, deadline))
            return link.call(Request(Op.DELETE, body, wire.number_reply), deadline)

        return self._ask(timeout, ask, 0)

    def flush(self, *, durable: bool = False, timeout: Optional[float] = None) -> Optional[Flushed]:
        """Waits until what was committed is written below DRAM, or given up. None is too late."""

        def ask(link: Link, deadline: float) -> Flushed:
            millis = max(1, int((deadline - time.monotonic()) * 900))
            return link.call(Request(Op.FLUSH, wire.flush(durable, millis), wire.flush_reply), deadline)

        return self._ask(timeout, ask, None)

    def stats(self, timeout: Optional[float] = None) -> Dict[str, Any]:
        """The daemon's counters and sizes; empty while it is away."""
        request = Request(Op.STATS, wire.empty(), wire.stats_reply)
        raw = self._ask(timeout, lambda link, deadline: link.call(request, deadline), b"{}")
        return json.loads(raw)


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
