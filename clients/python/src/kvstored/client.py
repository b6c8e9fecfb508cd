"""The client: what an engine holds for as long as it runs."""

# pyright: strict, reportPrivateUsage=false

import itertools
import json
import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _wire as wire
from . import bulk, fill as fills, job as jobs, options
from ._connection import DEFAULT_SOCKET, Call, Connection, Frame, Link, default_socket, due
from ._wire import Buffer, Code, Op, SpaceInfo
from .answers import Chunk, Count, Flushed, Grant, Hinted, Match, Reason, State, Stored
from .errors import MISTAKES, NO_ROOM, DeadlineExceeded, Disconnected, Error, ProtocolError, Refused
from .fill import Commits, Fill, outcome
from .job import Job
from .memory import Mapping, whole
from .prompt import Prompt, Space

__all__ = ["DEFAULT_SOCKET", "Client", "default_socket"]

#: A group of a hybrid model: its space, what a prefix needs of it (``GROUP_KINDS_...``), and the
#: tokens of a window or a local group, 0 otherwise.
Group = Tuple[Space, int, int]
Configs = Sequence[Tuple[str, str]]

#: Payloads of so many bytes together are put through the socket, in one round trip.
_INLINE = 128 << 10


def _is_space(value: Any) -> bool:
    return value is None or isinstance(value, Space)


_OPTIONS = {
    "socket": options.socket(),
    "space": options.Option(None, "a kvstored.Space", _is_space),
    "name": options.text(),
    "timeout": options.seconds(2.0),
    "staging_bytes": options.size(0),
    "keep_staging": options.flag(False),
    "inline": options.flag(False),
}


class Client(Connection):
    """A daemon, as an engine sees it through all its restarts. Safe for threads.

    Where the daemon is away, late, full or stopping, every call answers a miss:
    an empty match, a job without chunks, a fill without slots. Leases of an
    earlier connection are lost and say so when they are released. A thread
    connects again by itself. What is raised is a mistake of the caller, a
    :class:`kvstored.Refused`, or here a ValueError or TypeError.

    ``socket``: the daemon's; without one, :func:`default_socket` at each attempt
    to attach. ``timeout`` (seconds) bounds every call that is given none.
    """

    def __init__(
        self,
        socket: Union[str, os.PathLike[str], None] = None,
        *,
        space: Optional[Space] = None,
        name: str = "python",
        timeout: float = 2.0,
        staging_bytes: int = 0,
        keep_staging: bool = False,
        inline: bool = False,
    ) -> None:
        """``space``: of prompts that name none. ``staging_bytes``: of the window that
        chunks are written to, 0 leaves it to the daemon. ``keep_staging``: the window keeps
        its pages, for a driver that has page-locked it (:func:`kvstored.cuda.register`).
        ``inline``: payloads cross the socket, and no memory is mapped."""
        if isinstance(socket, os.PathLike):
            socket = os.fspath(socket)
        given = dict(
            socket=socket, space=space, name=name, timeout=timeout, staging_bytes=staging_bytes,
            keep_staging=keep_staging, inline=inline,
        )
        options.check(type(self).__name__, given, _OPTIONS)
        self.space, self.name, self._staging_bytes = space, name, staging_bytes
        wants = 0 if inline else wire.FEATURES_ARENA | wire.FEATURES_STAGING | wire.FEATURES_KEEP * keep_staging
        super().__init__(socket, wants, timeout)
        self._open()

    def _hello(self, wants: int) -> bytes:
        space = None if self.space is None else self.space.record()
        return wire.hello(wants=wants, staging_bytes=self._staging_bytes, name=self.name, space=space)

    def _prepare(self, link: Link) -> None:
        if self.space is not None and link.hello.space is not None:
            link.spaces[self.space] = link.hello.space

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
    def hello(self) -> Optional[wire.HelloReply]:
        """What the daemon said about itself and its limits."""
        link = self._link
        return None if link is None else link.hello

    def __repr__(self) -> str:
        link = self._link
        state = "closed" if self._closed else "without the daemon" if link is None else repr(link)
        return f"<{type(self).__name__} {self.name!r} at {self.socket}: {state}>"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- requests ------------------------------------------------------------

    def _begin(self, timeout: Optional[float]) -> Tuple[Link, float]:
        """The connection, and when a call that begins now is late."""
        link = self._link
        if link is None or link.down is not None or link.stalled:
            link = self._attached()
        if timeout is None:
            return link, time.monotonic() + self.timeout
        return link, due(timeout, self.timeout)

    def _missed(self, error: Error) -> None:
        """After a call that failed. Raises what is a mistake of the caller."""
        if isinstance(error, Refused):
            if error.code in MISTAKES:
                raise error.fresh()
        else:
            self._wake.set()

    def _info(self, link: Link, space: Optional[Space], deadline: float) -> SpaceInfo:
        """What the daemon calls a space, which is opened if need be."""
        space = self.space if space is None else space
        if space in link.spaces:
            return link.spaces[space]
        if space is None:
            raise ValueError("no space: give one to the client, or to the prompt")
        if not _is_space(space):
            raise TypeError(f"{space!r} is no space: make one with kvstored.Space")
        info = link.call(Op.OPEN_SPACE, wire.open_space(space.record()), deadline, wire.open_space_reply).space
        link.spaces[space] = info
        return info

    def distrust(self, space: Optional[Space] = None, timeout: Optional[float] = None) -> bool:
        """Has everything that is stored in a space be a miss, for all, until an administrator
        says `kvstored forget --distrust`: it is not what is computed. Whether that is so now, and kept. It
        takes the right to write there."""
        space = self.space if space is None else space
        if space is None:
            raise ValueError("no space: give one to the client, or to the call")
        try:
            link, deadline = self._begin(timeout)
            link.call(Op.OPEN_SPACE, wire.open_space(space.record(), distrust=1), deadline, wire.open_space_reply)
        except Error as e:
            self._missed(e)
            return False
        return True

    def _chain(self, link: Link, prompt: Prompt, deadline: float) -> bytes:
        if prompt.__class__ is not Prompt:
            raise TypeError(f"a {type(prompt).__name__} is no prompt: make one with kvstored.tokens or kvstored.hashes")
        space = prompt.space or self.space
        try:
            info = link.spaces[space]
        except KeyError:
            info = self._info(link, space, deadline)
        return prompt.chain(info)

    def _handles(self, link: Link, spaces: Sequence[Space], deadline: float) -> Optional[List[int]]:
        return [self._info(link, space, deadline).handle for space in spaces] if spaces else None

    def _groups(self, link: Link, groups: Sequence[Group], deadline: float) -> Optional[List[Tuple[int, int, int]]]:
        return [(self._info(link, space, deadline).handle, kind, n) for space, kind, n in groups] if groups else None

    # ---- what is there -------------------------------------------------------

    def ping(self, timeout: Optional[float] = None) -> bool:
        """Whether the daemon answers."""
        try:
            link, deadline = self._begin(timeout)
            link.call(Op.PING, wire.NO_OPTIONS, deadline, wire.ping_reply)
        except Error as e:
            self._missed(e)
            return False
        return True

    def lookup(
        self,
        prompt: Prompt,
        *,
        search: int = 0,
        ranks: Sequence[Space] = (),
        groups: Sequence[Group] = (),
        lengths: int = 0,
        why: bool = False,
        timeout: Optional[float] = None,
    ) -> Match:
        """How much of a prompt is there. It takes no lease. With ``ranks``, the
        spaces of the other ranks of a tensor-parallel group, a chunk counts only
        if all have it. ``groups``: of a hybrid model, that of the prompt first;
        ``lengths`` asks for so many usable lengths. ``why`` asks for ``missing``: why
        part of the prompt was missed."""
        try:
            link, deadline = self._begin(timeout)
            body = self._lookup(link, prompt, deadline, search, ranks, groups, lengths, why)
            return _match(link.call(Op.LOOKUP, body, deadline, wire.lookup_reply))
        except Error as e:
            self._missed(e)
            return Match()

    def _lookup(
        self, link: Link, prompt: Prompt, deadline: float, search: int, ranks: Sequence[Space],
        groups: Sequence[Group] = (), lengths: int = 0, why: bool = False,
    ) -> bytes:  # fmt: skip
        return wire.lookup(
            self._chain(link, prompt, deadline), search, lengths=lengths or None, why=1 if why else None,
            ranks=self._handles(link, ranks, deadline), groups=self._groups(link, groups, deadline), grain=prompt.grain or None,
        )  # fmt: skip

    def lookups(self, asked: Sequence[Tuple[Prompt, Sequence[Space]]], timeout: Optional[float] = None) -> List[Match]:
        """:meth:`lookup` of many prompts, each with the spaces of other ranks: all go out
        together. Those that were refused or are late are empty."""
        found: List[Match] = []
        try:
            link, deadline = self._begin(timeout)
            for at in range(0, len(asked), _PIPELINED):
                bodies = [self._lookup(link, p, deadline, 0, ranks) for p, ranks in asked[at : at + _PIPELINED]]
                for call in [link.begin(Op.LOOKUP, body, deadline) for body in bodies]:
                    try:
                        found.append(_match(link.end(call, deadline, wire.lookup_reply)))
                    except Refused:
                        found.append(Match())
        except Error as e:
            self._missed(e)
        return found + [Match()] * (len(asked) - len(found))

    def prefetch(
        self,
        prompt: Prompt,
        *,
        search: int = 0,
        policy: int = 0,
        load_deadline: float = 0.0,
        pin: bool = False,
        lookup_id: str = "",
        configs: Configs = (),
        ranks: Sequence[Space] = (),
        groups: Sequence[Group] = (),
        lengths: int = 0,
        prefill_rate: int = 0,
        why: bool = False,
        alone: bool = False,
        timeout: Optional[float] = None,
    ) -> Job:
        """Leases what is in DRAM of a prompt and starts to bring up the rest of
        what is there. What came with the reply is ready at once.

        ``ranks``: the spaces of the other ranks of a tensor-parallel group; chunk
        i of rank r is ``job.block(i, r)`` then. ``groups``: of a hybrid model, that of the
        prompt first; refs are counted one by one then, and ``lengths`` asks for so many
        usable lengths. ``prefill_rate``, the prompt tokens that this engine computes a
        second, asks for ``job.advice``: what to load and what to compute; no more than
        that is loaded. ``load_deadline``: seconds after which loading stops. ``why`` asks
        for ``job.match.missing``, as with :meth:`lookup`. ``alone`` holds what is there behind
        the leading run too, each chunk by itself: ``job.alone`` has which.

        A connection has at most 1,024 jobs; one beyond that is a miss."""
        try:
            link, deadline = self._begin(timeout)
            flags = wire.PREFETCH_FLAGS_PIN * pin | wire.PREFETCH_FLAGS_ALONE * alone
            body = wire.prefetch(
                self._chain(link, prompt, deadline), search, flags, policy, int(load_deadline * 1000), lookup_id,
                **self._asked(link, prompt, deadline, configs, ranks, groups, lengths, prefill_rate, why),
            )  # fmt: skip
            reply = link.call(Op.PREFETCH, body, deadline, wire.prefetch_reply, jobs.undo)
            return Job(link, self.timeout, reply, 1 if groups else 1 + len(ranks))
        except Error as e:
            self._missed(e)
            return Job(None, self.timeout, error=e)

    def _asked(
        self, link: Link, prompt: Optional[Prompt], deadline: float, configs: Configs, ranks: Sequence[Space],
        groups: Sequence[Group] = (), lengths: int = 0, prefill_rate: int = 0, why: bool = False,
    ) -> Dict[str, Any]:  # fmt: skip
        """The options of a prefetch or a batch."""
        if not (configs or ranks or groups or lengths or prefill_rate or why):
            return {}
        return dict(
            prefill_rate=prefill_rate or None,
            configs=[wire.pair(*config) for config in configs] or None,
            lengths=lengths or None,
            why=1 if why else None,
            ranks=self._handles(link, ranks, deadline),
            groups=self._groups(link, groups, deadline),
            grain=None if prompt is None else prompt.grain or None,
        )

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
        try:
            link, deadline = self._begin(self.timeout + wait if timeout is None else timeout)
            chain = _NO_CHUNKS if prompt is None else self._chain(link, prompt, deadline)
            body = wire.warm(chain, search, lookup_id, deadline=int(wait * 1000) or None)
            reply = link.call(Op.WARM, body, deadline, wire.warm_reply)
            return Match.of(reply.match), State.of(reply.state)
        except Error as e:
            self._missed(e)
            return Match(), State.lost(e)

    def hint(
        self,
        prompt: Optional[Prompt] = None,
        configs: Configs = (),
        *,
        lookup_id: str = "",
        ranks: Sequence[Space] = (),
        timeout: Optional[float] = None,
    ) -> Hinted:
        """Says something of the future of a prompt, or of that of an earlier prefetch
        by its lookup id, without asking for it: when a request ends, or pauses.
        Without both it is that of the session in ``configs``, in the client's own
        space. A daemon that is away or older is told nothing."""
        try:
            link, deadline = self._begin(timeout)
            if prompt is not None:
                chain = self._chain(link, prompt, deadline)
            else:
                chain = _NO_CHUNKS if lookup_id else self._no_chunks(link, None, deadline)
            said = [wire.pair(*config) for config in configs] or None
            body = wire.hint(chain, lookup_id, configs=said, ranks=self._handles(link, ranks, deadline))
            return Hinted.of(link.call(Op.HINT, body, deadline, wire.hint_reply))
        except Error as e:
            if not (isinstance(e, Refused) and e.code == Code.UNKNOWN_OP):
                self._missed(e)
            return Hinted()

    def batch(
        self,
        prompts: Sequence[Prompt],
        *,
        lookup_ids: Sequence[str] = (),
        search: int = 0,
        policy: int = 0,
        load_deadline: float = 0.0,
        pin: bool = False,
        configs: Configs = (),
        ranks: Sequence[Space] = (),
        groups: Sequence[Group] = (),
        prefill_rate: int = 0,
        alone: bool = False,
        timeout: Optional[float] = None,
    ) -> Tuple[List[Job], List[int]]:
        """A :meth:`prefetch` for each of many prompts, given in the order in which
        they came, and the order in which to run them so that most of what they
        share is computed once. No prompt is overtaken more than 64 times. A prompt that
        the daemon refuses has a job without chunks, whose ``reason`` says why.

        ``pin`` protects each under its lookup id. The options are said of every prompt."""
        asking = Asking(self, len(prompts), 1 if groups else 1 + len(ranks))
        with asking:
            self._batch(
                asking, prompts, True, timeout, lookup_ids, load_deadline, configs, ranks, groups, prefill_rate, search, policy, pin, alone
            )  # fmt: skip
            return asking.wait()

    def ask(
        self,
        prompts: Sequence[Prompt],
        *,
        lookup_ids: Sequence[str] = (),
        load_deadline: float = 0.0,
        configs: Configs = (),
        ranks: Sequence[Space] = (),
        groups: Sequence[Group] = (),
        prefill_rate: int = 0,
        alone: bool = False,
        shared: bool = False,
        patient: bool = False,
        timeout: Optional[float] = None,
    ) -> "Asking":
        """A :meth:`batch` for a thread that must not wait, and looks for the answer now and
        then: nothing is there where the daemon takes no request at once, or answers later
        than the timeout, or does not know the spaces yet: :meth:`open_spaces`. ``shared``: other connections of
        the user may :meth:`renew` the jobs. ``patient``: the thread may wait until the daemon
        takes the request. What was not sent has no ``call``."""
        asking = Asking(self, len(prompts), 1 if groups else 1 + len(ranks))
        with asking:
            self._batch(asking, prompts, patient, timeout, lookup_ids, load_deadline, configs, ranks, groups, prefill_rate, alone=alone, shared=shared)
        return asking

    def _batch(
        self, asking: "Asking", prompts: Sequence[Prompt], patient: bool, timeout: Optional[float], lookup_ids: Sequence[str],
        load_deadline: float, configs: Configs, ranks: Sequence[Space], groups: Sequence[Group], prefill_rate: int,
        search: int = 0, policy: int = 0, pin: bool = False, alone: bool = False, shared: bool = False,
    ) -> None:  # fmt: skip
        names = itertools.chain(lookup_ids, itertools.repeat(""))
        try:
            link, asking.deadline = self._begin(timeout)
            until = asking.deadline if patient else 0.0
            rows = [wire.prompt(self._chain(link, p, until), 0, name) for p, name in zip(prompts, names)]
            asked = self._asked(link, prompts[0] if prompts else None, until, configs, ranks, groups, prefill_rate=prefill_rate)
            flags = wire.PREFETCH_FLAGS_PIN * pin | wire.PREFETCH_FLAGS_ALONE * alone | wire.PREFETCH_FLAGS_SHARED * shared
            body = wire.batch(search, flags, policy, int(load_deadline * 1000), _OVERTAKEN, rows, **asked)
            asking.link, asking.arrived = link, link._arrived
            asking.call = link.begin(Op.BATCH, body, until)
        except Error as e:
            asking.error = e

    def open_spaces(self, spaces: Sequence[Space]) -> None:
        """Has the daemon open spaces now, and at every new connection before it is used."""

        def opened(link: Link) -> None:
            for space in spaces:
                self._info(link, space, time.monotonic() + self.timeout)

        self._on_link(opened)

    def _batched(self, link: Link, job: wire.Batched, ranks: int) -> Job:
        error = Refused("batch", job.code, job.text) if job.code else None
        return Job(None if error else link, self.timeout, None if error else job.reply, ranks, error)

    def renew(self, job: int, epoch: int, timeout: Optional[float] = None) -> bool:
        """Starts the age of a shared job's lease anew, by its id and the :attr:`epoch` of the
        daemon that gave it. Whether it has held all the time: what was read under it
        until now is right then."""
        try:
            link, deadline = self._begin(timeout)
            if link.hello.epoch == epoch:
                link.call(Op.RENEW, wire.renew(job), deadline, wire.renew_reply)
                return True
        except Refused:
            pass
        except Error as e:
            self._missed(e)
        return False

    # ---- copies of payloads --------------------------------------------------

    def get(
        self, prompt: Prompt, *, first: int = 0, max_chunks: int = 0, max_bytes: int = 0, timeout: Optional[float] = None
    ) -> List[Chunk]:
        """Copies of payloads from chunk ``first`` on: the longest leading run that can be
        had in time, and of which each byte is proved. 0: no bound, but that of one reply
        where payloads cross the socket, and of one lease."""
        try:
            link, deadline = self._begin(timeout)
            if link.arena is None:
                return self._get_inline(link, prompt, first, max_chunks, max_bytes, deadline)
            body, job = wire.prefetch(self._chain(link, prompt._replace(skip=prompt.skip + first) if first else prompt, deadline)), 0
            try:
                job, rows = self._leased(link, body, deadline)
                if max_chunks or max_bytes:
                    rows = _bounded(rows, max_chunks, max_bytes)
                at = link.arena.at
                got = bulk.read([(at(offset, size), size) for offset, _, size, _ in rows])
                n = self._proved(link, job, rows, [total for _, total in got], deadline)
            except BaseException as e:  # as where there is no memory for copies
                raise self._unproved(link, job, e)
            return [_new(Chunk, (payload, row[3], row[1])) for (payload, _), row in zip(got[:n], rows)]
        except Error as e:
            self._missed(e)
            return []

    def get_into(self, prompt: Prompt, buffers: Sequence[Any], *, timeout: Optional[float] = None) -> int:
        """Copies payloads into writable buffers, one a chunk from the first on, and returns
        how many: all their bytes are proved. The next one is not there, or is not as long
        as its buffer; what is in that buffer and in those behind it is undefined."""
        try:
            link, deadline = self._begin(timeout)
            if link.arena is None:
                chunks = self._get_inline(link, prompt, 0, len(buffers), 0, deadline)
                return bulk_copied(chunks, buffers)
            views = [(view, bulk.address(view, True)) for view in map(memoryview, buffers)]  # which keep them where they are
            body, job = wire.prefetch(self._chain(link, prompt, deadline)), 0
            pieces: List[int] = []
            n = 0
            try:
                job, rows = self._leased(link, body, deadline)
                for row, (view, to) in zip(rows, views):
                    size = row[2]
                    if size != view.nbytes:
                        break
                    pieces += (to, link.arena.at(row[0], size), size)
                    n += 1
                sums = bulk.copy(bulk.packed(pieces), _ONE * n)
                return self._proved(link, job, rows[:n], sums, deadline)
            except BaseException as e:
                raise self._unproved(link, job, e)
            finally:
                for view, _ in views:
                    view.release()
        except Error as e:
            self._missed(e)
            return 0

    def _leased(self, link: Link, body: bytes, deadline: float) -> Tuple[int, List[wire.Row]]:
        """The job of a prefetch, and the refs, of what can be had in time."""
        reply = link.call(Op.PREFETCH, body, deadline, wire.prefetch_reply, jobs.undo)
        code, _, first, ready, _, refs, _ = reply.state
        if code != Code.RUNNING and not first and ready[1] <= len(refs):
            return reply.job, refs[: ready[1]]
        job = Job(link, self.timeout, reply)
        n = job.wait(timeout=deadline - time.monotonic()).ready.chunks
        return job.id, job._refs[:n]

    def _unproved(self, link: Link, job: int, error: BaseException) -> BaseException:
        """Gives a lease back under which nothing was copied: with the connection, where its
        number is lost. Of what makes no sense no daemon is asked again."""
        if job:
            link.post(Op.RELEASE, wire.release(job))
        elif not isinstance(error, Error):
            link.fail(Disconnected("interrupted before a lease was read"))
        return link.fail(error) if isinstance(error, ProtocolError) else error

    def _proved(self, link: Link, job: int, rows: Sequence[wire.Row], sums: Sequence[Optional[int]], deadline: float) -> int:
        """Gives a lease back under which chunks were copied; how many of the copies are right
        from the first on. Their sums prove them, else the daemon's word at the end."""
        release = link.post(Op.RELEASE, wire.release(job), deadline)
        n = 0
        for row, total in zip(rows, sums):
            if row[1] != total:
                break
            n += 1
        if None in sums and link.end(release, max(deadline, time.monotonic() + 0.05), wire.release_reply).code == 0:
            return len(rows)
        return n

    def _get_inline(self, link: Link, prompt: Prompt, first: int, max_chunks: int, max_bytes: int, deadline: float) -> List[Chunk]:
        body = wire.get(self._chain(link, prompt, deadline), first, max_chunks, max_bytes, deadline=_millis(deadline))
        reply = link.call(Op.GET, body, deadline, wire.get_reply)
        at = itertools.accumulate((row[0] for row in reply.chunks), initial=bulk.address(reply.payloads))
        got = bulk.read([(place, row[0]) for place, row in zip(at, reply.chunks)])
        right = itertools.takewhile(lambda pair: pair[0][1] in (None, pair[1][2]), zip(got, reply.chunks))
        return [Chunk(payload, n, total) for (payload, _), (_, n, total) in right]

    def put(
        self, prompt: Prompt, payloads: Sequence[Buffer], *, first: int = 0, max_age: float = 0.0, timeout: Optional[float] = None
    ) -> List[Stored]:
        """Stores payloads: small ones in one round trip, larger ones through shared memory.
        A result for each, up to the first that had no room, or that nobody knows of
        because the daemon went away or was late. ``max_age`` is as of ``reserve``."""
        out: List[Stored] = []
        views: List[Any] = list(payloads)
        if not views:  # all is there
            return out
        if not {*map(type, views)} <= {bytes}:
            views = [whole(p) for p in views]  # their lengths stay as they are
        sizes = [len(p) if p.__class__ is bytes else p.nbytes for p in views]
        total = sum(sizes)
        try:
            link, deadline = self._begin(timeout)
            if link.staging is not None and total > _INLINE:
                self._put(link, prompt, views, sizes, first, max_age, deadline, out)
                return out
            body = wire.put(self._chain(link, prompt, deadline), first, total, sizes, max_age=_max_age(max_age))
            call = link.begin(Op.PUT, body, deadline, (*views, wire.PAD[total & 7]), total + (-total & 7))
            return [_new(Stored, row) for row in link.end(call, deadline, wire.put_reply).results]
        except Error as e:
            self._missed(e)
            return out

    def _put(
        self, link: Link, prompt: Prompt, payloads: Sequence[Buffer], sizes: Sequence[int], first: int, max_age: float, deadline: float,
        out: List[Stored],
    ) -> None:  # fmt: skip
        """Through the staging window, as much at a time as it has room for. ``out`` gets the results."""
        window, chain, at, n = link.staging, self._chain(link, prompt, deadline), 0, len(sizes)
        assert window is not None
        while at < n:
            body, fill = wire.reserve(chain, first + at, n - at, 0, sizes[at:], max_age=_max_age(max_age)), 0
            try:
                fill, _, slots, _ = link.call(Op.RESERVE, body, deadline, wire.reserve_reply, fills.undo)
                stored: Sequence[wire.Row] = slots
                if fill:
                    bulk.write([(window.at(slot[2], size), p) for slot, p, size in zip(slots, payloads[at:], sizes[at:]) if not slot[0]])
                    stored = link.call(Op.COMMIT, wire.commit(fill), deadline, wire.commit_reply).results
            except BaseException as e:
                if fill:
                    link.post(Op.ABORT, wire.abort(fill))
                elif not isinstance(e, Error):
                    link.fail(Disconnected("interrupted before a fill was written"))
                raise
            if not slots:
                break
            for slot, result in zip(slots, stored):
                out.append(_new(Stored, (slot[0] or result[0], 0 if slot[0] else result[1])))  # what was not granted exists, or is pending
            at = len(out)

    # ---- storing -------------------------------------------------------------

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
        sums: Sequence[Tuple[int, int]] = (),
        groups: Sequence[Group] = (),
        max_age: float = 0.0,
        timeout: Optional[float] = None,
    ) -> Fill:
        """Asks for room for chunks of ``size`` bytes, or of ``sizes``. ``wait``
        lets the answer wait for room and for the tiers below to catch up.

        ``sums``: numbers of slots, and the checksum (XXH3-64) of what would be
        stored there. The daemon compares those that are there already; the fill's
        ``differ`` names those that are there with other bytes, which stay.

        ``max_age``: for how many seconds from the commit what is stored may stay in
        any tier; 0 leaves it to the daemon. Chunks that are there keep their own."""
        try:
            link, deadline = self._begin(self.timeout + wait if timeout is None else timeout)
            if link.staging is None and self._wants & wire.FEATURES_STAGING:
                return Fill(None, self.timeout, error=Disconnected("the daemon's memory cannot be mapped here: put payloads, or give address space"))
            body = wire.reserve(
                self._chain(link, prompt, deadline), first, count, int(all_or_nothing), sizes or [size], deadline=int(wait * 1000) or None,
                sums=sums[: wire.MOST_SUMS] or None, groups=self._groups(link, groups, deadline), max_age=_max_age(max_age),
                grain=prompt.grain or None,
            )  # fmt: skip
            return Fill(link, self.timeout, link.call(Op.RESERVE, body, deadline, wire.reserve_reply, fills.undo), sizes or [size])
        except Error as e:
            self._missed(e)
            return Fill(None, self.timeout, error=e)

    def store(
        self,
        prompt: Prompt,
        sizes: Sequence[int],
        write: Union[Callable[[int, memoryview], Any], Buffer],
        *,
        first: int = 0,
        wait: float = 10.0,
        timeout: Optional[float] = None,
    ) -> List[Stored]:
        """Stores chunks of a prompt, however much longer than DRAM they are: as
        many at a time as there is room for. ``write(i, memory)`` fills chunk i, in
        order; the daemon takes over the first while the next are written. Or
        ``write`` is a contiguous buffer with all payloads, one behind the other,
        which must not change meanwhile; a ValueError says that it has not the bytes
        of ``sizes``. A result for each chunk, up to the first that has no room within
        ``wait`` seconds, or that nobody knows of. Where ``write`` raises, the chunks before
        are stored."""
        if callable(write):
            return self._store(prompt, sizes, _called(write, first), first, wait, timeout)
        with whole(write) as payloads:
            if payloads.nbytes != sum(sizes):
                raise ValueError(f"payloads of {payloads.nbytes} bytes: the sizes are {sum(sizes)} in all")
            return self._store(prompt, sizes, _copied(bulk.address(payloads), sizes), first, wait, timeout)

    def _store(
        self, prompt: Prompt, sizes: Sequence[int], write: "_Write", first: int, wait: float, timeout: Optional[float]
    ) -> List[Stored]:
        commits, at = Commits(), 0
        stored: List[Fill] = []
        limit = self.timeout + wait if timeout is None else timeout
        try:
            while at < len(sizes):
                left = sizes[at:] if at else sizes
                told = left[:1] if left.count(left[0]) == len(left) else left
                fill = self.reserve(prompt, sizes=told, first=first + at, count=len(left), wait=wait, timeout=limit)
                if not len(fill):
                    if not commits:
                        break
                    commits.finish(time.monotonic() + limit)  # they may have the room
                    continue
                stored.append(fill)
                commits.write(fill, write(fill, at), time.monotonic() + limit)
                at += len(fill)
                if fill.reason == Reason.OVER_QUOTA:
                    commits.finish(time.monotonic() + limit)
        finally:
            commits.finish(time.monotonic() + limit)
        return _outcomes(stored)

    # ---- pins, deletions, the rest -------------------------------------------

    def _ask(self, op: Op, body: Callable[[Link, float], bytes], read: Callable[[Buffer], Any], miss: Any, timeout: Optional[float]) -> Any:
        """One request, and the one thing that its reply says."""
        try:
            link, deadline = self._begin(timeout)
            return link.call(op, body(link, deadline), deadline, read)
        except Error as e:
            self._missed(e)
            return miss

    def _no_chunks(self, link: Link, space: Optional[Space], deadline: float) -> bytes:
        """The chain that stands for a space as a whole."""
        return wire.chain(self._info(link, space, deadline).handle, wire.FORMS_NONE)

    def pin(self, prompt: Prompt, lookup_id: str, *, max_age: float = 0.0, timeout: Optional[float] = None) -> Count:
        """Protects what is in DRAM of a prompt under a name; the leading run that is, as far
        as budgets go. ``max_age`` is 0.001 to 4,294,967 seconds; 0, and more than the daemon's greatest, is that greatest."""
        age = _pin_millis(max_age)
        n = self._ask(Op.PIN, lambda link, d: wire.pin(self._chain(link, prompt, d), age, lookup_id), wire.pin_reply, None, timeout)
        return Count() if n is None else Count(n.pinned[1], n.pinned[0])

    def unpin(self, lookup_id: str, timeout: Optional[float] = None) -> int:
        """Ends the pins of a name; the chunks that were pinned."""
        return self._ask(Op.PIN, lambda _, __: wire.pin(_NO_CHUNKS, 0, lookup_id), lambda b: wire.pin_reply(b).pinned[1], 0, timeout)

    def delete(self, prompt: Prompt, timeout: Optional[float] = None) -> int:
        """Forgets the chunks of a prompt in every tier; those that were there."""
        return self._delete(lambda link, deadline: self._chain(link, prompt, deadline), timeout)

    def _delete(self, chain: Callable[[Link, float], bytes], timeout: Optional[float]) -> int:
        return self._ask(Op.DELETE, lambda link, deadline: wire.delete(chain(link, deadline)), lambda b: wire.delete_reply(b).chunks, 0, timeout)

    def delete_hashes(
        self, raw: Buffer, *, width: int = 16, space: Optional[Space] = None, timeout: Optional[float] = None
    ) -> int:
        """Forgets single chunks in every tier, by their hashes of ``width`` bytes
        (8, 16 or 32) each; those that were there."""
        if width not in (8, 16, 32) or len(raw) % width:
            raise ValueError(f"{len(raw)} bytes of hashes of {width} bytes: they have 8, 16 or 32 each")
        flags = wire.CHAIN_FLAGS_SAVE_UNFULL | wire.CHAIN_FLAGS_ALONE
        return self._delete(
            lambda link, d: wire.chain(self._info(link, space, d).handle, wire.FORMS_HASHES, flags, items=raw, width=width), timeout
        )

    def delete_space(self, space: Optional[Space] = None, timeout: Optional[float] = None) -> int:
        """Forgets a whole space. Needs the right admin."""
        return self._delete(lambda link, deadline: self._no_chunks(link, space, deadline), timeout)

    def flush(self, *, durable: bool = False, timeout: Optional[float] = None) -> Optional[Flushed]:
        """Waits until what was committed is written below DRAM, or given up. None is too late."""

        def body(link: Link, deadline: float) -> bytes:
            return wire.flush(int(durable), deadline=_millis(deadline))

        return self._ask(Op.FLUSH, body, lambda b: Flushed.of(wire.flush_reply(b)), None, timeout)

    def stats(self, timeout: Optional[float] = None) -> Dict[str, Any]:
        """The daemon's counters and sizes; empty while it is away."""
        return self._ask(Op.STATS, lambda _, __: wire.stats(), lambda b: json.loads(wire.stats_reply(b).json), {}, timeout)

    def space_id(self, space: Optional[Space] = None, timeout: Optional[float] = None) -> bytes:
        """The daemon's name of a space, of 16 bytes; empty while it is away."""
        try:
            return self._info(self._attached(), space, due(timeout, self.timeout)).id
        except Error as e:
            self._missed(e)
            return b""


_new = wire._new  # makes a row in one call
_ONE = bulk.packed([1])  # of a payload one piece
_PIPELINED = 512  # requests on their way at once
class Asking:
    """A batch that was asked for. Of one thread."""

    link: Optional[Link] = None
    call: Optional[Call] = None
    deadline = 0.0
    arrived = 0  # at the link before it
    error: Optional[Error] = None

    def __init__(self, client: Client, count: int, ranks: int) -> None:
        self._client, self._count, self._ranks, self._began = client, count, ranks, time.monotonic()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Optional[BaseException], _: Any) -> None:
        if self.link is not None and error is not None and not isinstance(error, Error):  # the answer may have come, and be lost
            self.link.fail(Disconnected("interrupted in a call"))

    def wait(self) -> Tuple[List[Job], List[int]]:
        """What :meth:`Client.batch` returns."""
        try:
            if self.link is not None and self.call is not None:
                reply = self.link.end(self.call, self.deadline, _batch_reply, _undo_batch)
                return [self._client._batched(self.link, job, self._ranks) for job in reply.jobs], reply.order
        except Error as e:
            self.error = e
            if isinstance(e, DeadlineExceeded) and self.link is not None:
                self.link.doubt(time.monotonic() - self._began, self.arrived)
        error = self.error or Disconnected("nothing was asked")
        self._client._missed(error)
        return self.lost(error), list(range(self._count))

    def lost(self, error: Error) -> List[Job]:
        """Jobs without chunks."""
        return [Job(None, self._client.timeout, error=error) for _ in range(self._count)]

    def soon(self, seconds: float) -> bool:
        """Whether something arrives within so many seconds."""
        return self.link is not None and self.link.soon(seconds)

    def poll(self) -> Optional[List[Job]]:
        """The jobs, None as long as there may be an answer in time. Returns at once; after
        jobs it must not be called again. Raises what the daemon refuses as a mistake."""
        if self.link is not None and self.call is not None and not self.link.answered(self.call):
            now = time.monotonic()
            if 4 * (now - self._began) < self.deadline - self._began:
                self.arrived = self.link._arrived  # a reply to an older call is no sign of life
            if now < self.deadline:
                return None
        return self.wait()[0]


_OVERTAKEN = 64  # times that a prompt of a batch may be
_NO_CHUNKS = wire.chain(0, wire.FORMS_NONE)


def _match(reply: wire.LookupReply) -> Match:
    return Match.of(reply.match, reply)


def _batch_reply(body: Buffer) -> wire.BatchReply:
    reply = wire.batch_reply(body)
    if len(reply.order) != len(reply.jobs):
        raise wire.Malformed(f"{len(reply.order)} numbers for {len(reply.jobs)} jobs")
    return reply


def _undo_batch(body: Buffer) -> List[Frame]:
    return [(Op.RELEASE, wire.release(job.reply.job)) for job in wire.batch_reply(body).jobs if not job.code and job.reply]


def _millis(deadline: float) -> int:
    """For the daemon, which gives up a little earlier than this side."""
    return max(1, int(min((deadline - time.monotonic()) * 900, wire.MAX_U32)))


def _max_age(seconds: float) -> Optional[int]:
    """How long chunks may stay in any tier, in whole seconds; 0 leaves it to the daemon."""
    if seconds == 0:
        return None
    if not 1 <= seconds <= wire.MAX_U32:
        raise ValueError(f"a max age of {seconds!r}: want at least 1 second, or 0 for none")
    return int(seconds)


def _pin_millis(seconds: float) -> int:
    """How long a pin lasts at most; 0 leaves it to the daemon."""
    if seconds and not 0.001 <= seconds <= wire.MAX_U32 // 1000:
        raise ValueError(f"a max_age of {seconds!r} seconds: want 0.001 to {wire.MAX_U32 // 1000:,}, or 0 for the daemon's own")
    return int(seconds * 1000)


def _bounded(rows: List[wire.Row], chunks: int, size: int) -> List[wire.Row]:
    """The first rows: at most so many chunks and bytes, but one at least."""
    if chunks < 0 or size < 0:
        raise ValueError(f"at most {chunks} chunks and {size} bytes: want numbers from 0 on")
    if chunks:
        rows = rows[:chunks]
    if size:
        ends = itertools.accumulate(row[2] for row in rows)
        rows = rows[: max(1, sum(end <= size for end in ends))]
    return rows


def bulk_copied(chunks: Sequence[Chunk], buffers: Sequence[Any]) -> int:
    """Copies payloads to buffers of their lengths; how many."""
    for i, (chunk, buffer) in enumerate(zip(chunks, buffers)):
        with whole(buffer, writable=True).cast("B") as to:
            if len(to) != len(chunk.payload):
                return i
            to[:] = chunk.payload
    return min(len(chunks), len(buffers))


#: Makes the function that fills slots; chunk ``at`` of the payloads is the first slot's.
_Write = Callable[[Fill, int], Callable[[int, int], Any]]


def _called(write: Callable[[int, memoryview], Any], first: int) -> _Write:
    """Has a caller write each slot."""

    def of(fill: Fill, at: int) -> Callable[[int, int], Any]:
        def part(begin: int, end: int) -> None:
            for slot in fill.slots[begin:end]:
                if slot.memory is not None:
                    write(first + at + slot.index, slot.memory)

        return part

    return of


def _copied(source: int, sizes: Sequence[int]) -> _Write:
    """Copies payloads that lie one behind the other."""
    places = list(itertools.accumulate(sizes, initial=source))

    def of(fill: Fill, at: int) -> Callable[[int, int], Any]:
        def part(begin: int, end: int) -> None:
            pieces = [(slot, places[at + i], length) for i, slot, length in fill.granted(begin, end)]
            bulk.copy(bulk.packed(itertools.chain.from_iterable(pieces)))

        return part

    return of


def _outcomes(stored: Sequence[Fill]) -> List[Stored]:
    """A result for each chunk, up to the first that had no room, or that is not known."""
    out: List[Stored] = []
    for fill in stored:
        for (grant, _, _), r in zip(fill._rows, fill.results):
            if grant == Grant.GRANTED and r.result in NO_ROOM:
                return out
            out.append(outcome(grant, r))
        if len(fill.results) < len(fill):
            return out
    return out
