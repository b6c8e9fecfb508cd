"""The client: what an engine holds for as long as it runs."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Callable, Dict, Generic, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar, Union

from . import pieces, wire
from .ask import Ask, Going, Steps, awaited, call
from .call import Frame, Request, Watch
from .connection import DEFAULT_SOCKET, Connection, default_socket
from .errors import Code, DeadlineExceeded, Error, Refused
from .fill import Fill, FillCalls
from .job import Job, JobCalls
from .pieces import Piece
from .prompt import Prompt
from .state import State, lost
from .turns import Queued
from .wire import Buffer, Count, Flushed, Hinted, Match, Op, Space, Stored
from .writer import Writer

__all__ = ["DEFAULT_SOCKET", "Chunk", "Client", "ClientCalls", "default_socket"]

J = TypeVar("J", bound=JobCalls)
F = TypeVar("F", bound=FillCalls)


class Chunk(NamedTuple):
    """A payload that came over the socket."""

    payload: bytes
    tokens: int
    sum: int

    def __repr__(self) -> str:
        return f"<Chunk of {self.tokens} tokens, {len(self.payload)} bytes>"


class ClientCalls(Connection, Generic[J, F]):
    """What can be asked of a daemon. Its jobs and fills are of the kinds of the class."""

    _job: Type[J]
    _fill: Type[F]

    def _chain(self, going: Going, prompt: Prompt, keep: int = 0) -> Steps[bytes]:
        if not isinstance(prompt, Prompt):
            raise TypeError(f"a {type(prompt).__name__} is no prompt: make one with kvstored.tokens or kvstored.hashes")
        if prompt.ref:
            return wire.chain_ref(prompt.ref, prompt.skip)
        info = going.link.spaces.get(self._space(prompt.space))
        return prompt.chain(info or (yield from self._opened(going, prompt.space)), keep)

    def _with_chain(self, going: Going, prompt: Prompt, request: Callable[[bytes], Request]) -> Steps[Any]:
        """Sends what ``request`` makes of the chain of a prompt: a reference where the
        daemon keeps it. It may be called twice, the second time after a refusal."""
        link, number, sent = going.link, 0, False
        # A request that waits for its turn has nobody who would send it again.
        if isinstance(prompt, Prompt) and prompt.keep is not None and not link.crowded:
            number, sent = link.kept.number(prompt, (yield from self._opened(going, prompt.space)))
        if sent:
            try:
                return (yield request(wire.chain_kept(number, prompt.skip)))
            except Refused as e:
                if e.code != Code.UNKNOWN_CHAIN:
                    raise
        return (yield request((yield from self._chain(going, prompt, number))))

    def _ranks(self, going: Going, ranks: Sequence[Space]) -> Steps[List[int]]:
        handles: List[int] = []
        for space in ranks:
            handles.append((yield from self._opened(going, space)).handle)
        return handles

    # ---- what is there -------------------------------------------------------

    def _ping(self, timeout: Optional[float] = None) -> Ask[bool]:
        """Whether the daemon answers."""

        def steps(going: Going) -> Steps[bool]:
            yield Request(Op.PING, wire.empty(), wire.plain_reply)
            return True

        return Ask(steps, lambda _: False, timeout)

    def _lookup(
        self,
        prompt: Prompt,
        *,
        search: int = 0,
        ranks: Sequence[Space] = (),
        why: bool = False,
        timeout: Optional[float] = None,
    ) -> Ask[Match]:
        """How much of a prompt is there. It takes no lease. With ``ranks``, the
        spaces of the other ranks of a tensor-parallel group, a chunk counts only
        if all have it. ``why`` asks for ``missing``: why the prompt is not there to
        its end."""

        def steps(going: Going) -> Steps[Match]:
            others = yield from self._ranks(going, ranks)

            def request(chain: bytes) -> Request:
                return Request(Op.LOOKUP, wire.lookup(chain, search, others, why=why), wire.lookup_reply)

            return (yield from self._with_chain(going, prompt, request))

        return Ask(steps, lambda _: Match(), timeout)

    def _prefetch(
        self,
        prompt: Prompt,
        *,
        search: int = 0,
        policy: int = 0,
        load_deadline: float = 0.0,
        pin: bool = False,
        lookup_id: str = "",
        configs: Sequence[Tuple[str, str]] = (),
        ranks: Sequence[Space] = (),
        prefill_rate: int = 0,
        why: bool = False,
        timeout: Optional[float] = None,
    ) -> Ask[J]:
        """Leases what is in DRAM of a prompt and starts to bring up the rest of
        what is there. What came with the reply is ready at once.

        ``ranks``: the spaces of the other ranks of a tensor-parallel group; chunk
        i of rank r is ``job.block(i, r)`` then. ``prefill_rate``, the prompt tokens
        that this engine computes a second, asks for ``job.advice``: what to load
        and what to compute; no more than that is loaded. ``why`` asks for
        ``job.match.missing``, as with :meth:`lookup`.

        A connection has at most 1,024 jobs. One beyond that waits for its turn,
        and the default timeout begins with it, as long as others end meanwhile.
        After a timeout that is given the job comes back while it still waits
        (``waits_for_its_turn``): it loses nothing, and ``job.wait`` goes on."""

        def steps(going: Going) -> Steps[J]:
            others = (yield from self._ranks(going, ranks)) if ranks else ()
            job = self._job(going.link, self.timeout, None, 1 + len(others))

            def request(chain: bytes) -> Request:
                deadline = int(load_deadline * 1000)
                body = wire.prefetch(chain, search, pin, policy, deadline, lookup_id, configs, others, prefill_rate, (), 0, why)
                return Request(Op.PREFETCH, body, job._begin, job._undo, None, 0, job._lose)

            try:
                yield from self._with_chain(going, prompt, request)
            except Queued as e:
                job._pending = e.call
                yield from self._turn(going, job)
            return job

        return Ask(steps, lambda e: self._job(None, self.timeout, e), timeout)

    def _turn(self, going: Going, job: J) -> Steps[None]:
        """Waits for a job's turn, if no timeout was given and others end meanwhile."""
        while going.grace is not None and job.waits_for_its_turn and not going.link.stuck(going.grace):
            try:
                yield Watch(job._watches, lambda: not job.waits_for_its_turn, going.grace)
            except DeadlineExceeded:
                pass
            except BaseException:  # cancelled: nobody will have the job
                job.release_soon()
                raise

    def _warm(
        self,
        prompt: Optional[Prompt] = None,
        *,
        lookup_id: str = "",
        search: int = 0,
        wait: float = 0.0,
        timeout: Optional[float] = None,
    ) -> Ask[Tuple[Match, State]]:
        """Brings what is there of a prompt, or of an earlier prefetch by its
        lookup id, up to DRAM when nobody else loads, and leases nothing of it.
        Returns after ``wait`` seconds or when it is done; it goes on for as
        long as the connection lasts."""

        def steps(going: Going) -> Steps[Tuple[Match, State]]:
            chain = None if prompt is None else (yield from self._chain(going, prompt))
            body = wire.warm(chain, lookup_id, search, int(wait * 1000))
            match, s = yield Request(Op.WARM, body, wire.warm_reply)
            return match, State(s.done, s.reason, s.ready, s.failed_tier)

        return Ask(steps, lambda e: (Match(), lost(e)), self.timeout + wait if timeout is None else timeout)

    def _hint(
        self,
        prompt: Optional[Prompt] = None,
        configs: Sequence[Tuple[str, str]] = (),
        *,
        lookup_id: str = "",
        ranks: Sequence[Space] = (),
        timeout: Optional[float] = None,
    ) -> Ask[Hinted]:
        """Says something of the future of a prompt, or of that of an earlier prefetch
        by its lookup id, without asking for it: when a request ends, or pauses.
        Without both it is that of the session in ``configs``, in the client's own
        space. A daemon that is away or older is told nothing."""

        def steps(going: Going) -> Steps[Hinted]:
            if prompt is not None:
                chain = yield from self._chain(going, prompt)
            elif lookup_id:
                chain = wire.chain_none()
            else:
                chain = wire.chain_none((yield from self._opened(going, None)).handle)
            body = wire.hint(chain, configs, lookup_id, (yield from self._ranks(going, ranks)))
            try:
                return (yield Request(Op.HINT, body, wire.hint_reply))
            except Refused as e:
                if e.code != Code.UNKNOWN_OP:
                    raise
                return Hinted()

        return Ask(steps, lambda _: Hinted(), timeout)

    def _batch(
        self,
        prompts: Sequence[Prompt],
        *,
        max_overtaken: int = 64,
        overtaken: Sequence[int] = (),
        lookup_ids: Sequence[str] = (),
        search: int = 0,
        policy: int = 0,
        load_deadline: float = 0.0,
        pin: bool = False,
        configs: Sequence[Tuple[str, str]] = (),
        ranks: Sequence[Space] = (),
        groups: Sequence[Tuple[Space, int, int]] = (),
        prefill_rate: int = 0,
        timeout: Optional[float] = None,
    ) -> Ask[Tuple[List[J], List[int]]]:
        """A :meth:`prefetch` for each of many prompts, given in the order in which
        they came, and the order in which to run them so that most of what they
        share is computed once. No prompt is overtaken more than ``max_overtaken``
        times, with 0 they stay in the order in which they came; ``overtaken`` is how
        often each was before. A prompt that the daemon refuses has a job without
        chunks, whose ``reason`` says why.

        ``pin`` protects each under its lookup id. ``configs`` are said of every
        prompt. ``groups``: space, kind and tokens of each group of a hybrid model (see
        :class:`wire.Group`), that of the prompts first."""
        names = list(lookup_ids) + [""] * (len(prompts) - len(lookup_ids))
        counts = list(overtaken) + [0] * (len(prompts) - len(overtaken))

        def steps(going: Going) -> Steps[Tuple[List[J], List[int]]]:
            chains: List[bytes] = []
            for p in prompts:
                chains.append((yield from self._chain(going, p)))
            others = yield from self._ranks(going, ranks)
            handles = yield from self._ranks(going, [space for space, _, _ in groups])
            body = wire.batch(
                list(zip(chains, names, counts)),
                max_overtaken,
                search,
                pin,
                policy,
                int(load_deadline * 1000),
                others,
                prefill_rate,
                configs,
                [wire.Group(handle, kind, tokens) for handle, (_, kind, tokens) in zip(handles, groups)],
                prompts[0].grain if prompts else 0,
            )

            def take(reply: bytes) -> Tuple[List[J], List[int]]:
                answers, order = wire.batch_reply(reply)
                # Of groups refs are counted one by one.
                return [self._answered(going, a, 1 if groups else 1 + len(others)) for a in answers], order

            def undo(reply: bytes) -> Optional[Frame]:
                made = [a.prefetch[0] for a in wire.batch_reply(reply)[0] if a.prefetch]
                for id in made[1:]:
                    going.link.later(Request(Op.RELEASE, wire.numbered(id), wire.ended_reply))
                return (Op.RELEASE, wire.numbered(made[0])) if made else None

            return (yield Request(Op.BATCH, body, take, undo, jobs=len(prompts)))

        def miss(e: Error) -> Tuple[List[J], List[int]]:
            return [self._job(None, self.timeout, e) for _ in prompts], list(range(len(prompts)))

        return Ask(steps, miss, timeout)

    def _answered(self, going: Going, answer: wire.BatchJob, ranks: int) -> J:
        """The job of one prompt of a batch."""
        if answer.prefetch is None:
            return self._job(None, self.timeout, Refused("batch", answer.code, answer.text))
        job = self._job(going.link, self.timeout, ranks=ranks)
        job._accept(answer.prefetch)
        return job

    # ---- storing -------------------------------------------------------------

    def _reserve(
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
        max_age: float = 0.0,
        timeout: Optional[float] = None,
        leads: bool = False,
    ) -> Ask[F]:
        """Asks for room for chunks of ``size`` bytes, or of ``sizes``. ``wait``
        lets the answer wait for room and for the tiers below to catch up.

        ``sums``: numbers of slots, and the checksum (XXH3-64) of what would be
        stored there. The daemon compares those that are there already; the fill's
        ``differ`` names those that are there with other bytes, which stay.

        ``max_age``: for how many seconds from the commit what is stored may stay in
        any tier; 0 leaves it to the daemon. Chunks that are there keep their own.

        ``leads`` is for a :class:`Writer`: see :class:`Request`."""

        def steps(going: Going) -> Steps[F]:
            fill = self._fill(going.link, self.timeout)

            def request(chain: bytes) -> Request:
                body = wire.reserve(chain, sizes or [size], first, count, all_or_nothing, int(wait * 1000), sums, max_age)
                return Request(Op.RESERVE, body, fill._begin, fill._undo, leads=leads)

            return (yield from self._with_chain(going, prompt, request))

        late = self.timeout + wait if timeout is None else timeout
        return Ask(steps, lambda e: self._fill(None, self.timeout, e), late)

    def _put(
        self,
        prompt: Prompt,
        payloads: Sequence[Buffer],
        *,
        first: int = 0,
        max_age: float = 0.0,
        timeout: Optional[float] = None,
    ) -> Ask[List[Stored]]:
        """Stores payloads over the socket, where memory cannot be shared. [] is a miss.
        ``max_age`` is as of ``reserve``."""

        def steps(going: Going) -> Steps[List[Stored]]:
            body = wire.put((yield from self._chain(going, prompt)), first, payloads, max_age)
            return (yield Request(Op.PUT, body, wire.store_reply))

        return Ask(steps, lambda _: [], timeout)

    def _get(
        self,
        prompt: Prompt,
        *,
        first: int = 0,
        max_chunks: int = 0,
        max_bytes: int = 0,
        timeout: Optional[float] = None,
    ) -> Ask[List[Chunk]]:
        """Payloads over the socket: the longest leading run that can be had in time."""

        def steps(going: Going) -> Steps[List[Chunk]]:
            def request(chain: bytes) -> Request:
                # The daemon gives up a little earlier than this side.
                body = wire.get(chain, first, max_chunks, max_bytes, max(1, int(going.left * 900)))
                return Request(Op.GET, body, wire.get_reply)

            return [Chunk(*row) for row in (yield from self._with_chain(going, prompt, request))]

        return Ask(steps, lambda _: [], timeout)

    # ---- pins, deletions, the rest -------------------------------------------

    def _pin(self, prompt: Prompt, lookup_id: str, *, max_age: float = 0.0, timeout: Optional[float] = None) -> Ask[Count]:
        """Protects what is in DRAM of a prompt under a name; the leading run that is."""

        def steps(going: Going) -> Steps[Count]:
            body = wire.pin((yield from self._chain(going, prompt)), lookup_id, int(max_age * 1000))
            return (yield Request(Op.PIN, body, wire.pin_reply))

        return Ask(steps, lambda _: Count(), timeout)

    def _unpin(self, lookup_id: str, timeout: Optional[float] = None) -> Ask[int]:
        """Ends the pins of a name; the chunks that were pinned."""

        def steps(going: Going) -> Steps[int]:
            return (yield Request(Op.UNPIN, wire.unpin(lookup_id), wire.number_reply))

        return Ask(steps, lambda _: 0, timeout)

    def _delete(self, prompt: Prompt, timeout: Optional[float] = None) -> Ask[int]:
        """Forgets the chunks of a prompt in every tier; those that were there."""

        def steps(going: Going) -> Steps[int]:
            body = wire.delete((yield from self._chain(going, prompt)))
            return (yield Request(Op.DELETE, body, wire.number_reply))

        return Ask(steps, lambda _: 0, timeout)

    def _delete_hashes(
        self, raw: Buffer, *, width: int = 16, space: Optional[Space] = None, timeout: Optional[float] = None
    ) -> Ask[int]:
        """Forgets single chunks in every tier, by their hashes of ``width`` bytes
        (8, 16 or 32) each; those that were there."""
        if width not in (8, 16, 32) or len(raw) % width:
            raise ValueError(f"{len(raw)} bytes of hashes of {width} bytes: they have 8, 16 or 32 each")

        def steps(going: Going) -> Steps[int]:
            handle = (yield from self._opened(going, space)).handle
            body = wire.delete(wire.chain_hashes(handle, width, raw, save_unfull=True, alone=True))
            return (yield Request(Op.DELETE, body, wire.number_reply))

        return Ask(steps, lambda _: 0, timeout)

    def _delete_space(self, space: Optional[Space] = None, timeout: Optional[float] = None) -> Ask[int]:
        """Forgets a whole space. Needs the right admin."""

        def steps(going: Going) -> Steps[int]:
            body = wire.delete(wire.chain_none((yield from self._opened(going, space)).handle))
            return (yield Request(Op.DELETE, body, wire.number_reply))

        return Ask(steps, lambda _: 0, timeout)

    def _flush(self, *, durable: bool = False, timeout: Optional[float] = None) -> Ask[Optional[Flushed]]:
        """Waits until what was committed is written below DRAM, or given up. None is too late."""

        def steps(going: Going) -> Steps[Optional[Flushed]]:
            body = wire.flush(durable, max(1, int(going.left * 900)))
            return (yield Request(Op.FLUSH, body, wire.flush_reply))

        return Ask(steps, lambda _: None, timeout)

    def _stats(self, timeout: Optional[float] = None) -> Ask[Dict[str, Any]]:
        """The daemon's counters and sizes; empty while it is away."""

        def steps(going: Going) -> Steps[Dict[str, Any]]:
            return json.loads((yield Request(Op.STATS, wire.empty(), wire.stats_reply)))

        return Ask(steps, lambda _: {}, timeout)


class Client(ClientCalls[Job, Fill]):
    """A daemon, as an engine sees it through all its restarts. Safe for threads.

    Where the daemon is away, late, full or stopping, every call answers a miss:
    an empty match, a job without chunks, a fill without slots. Leases of an
    earlier connection are lost and say so when they are released. A thread
    connects again by itself. What is raised is a mistake of the caller, a
    :class:`kvstored.Refused`, or here a ValueError.

    ``socket``: the daemon's; without one, :func:`default_socket` at each attempt
    to attach. ``timeout`` (seconds) bounds every call that is given none.
    """

    _job, _fill = Job, Fill

    ping = call(ClientCalls[Job, Fill]._ping)
    lookup = call(ClientCalls[Job, Fill]._lookup)
    prefetch = call(ClientCalls[Job, Fill]._prefetch)
    prefetch_async = awaited(ClientCalls[Job, Fill]._prefetch)
    warm = call(ClientCalls[Job, Fill]._warm)
    hint = call(ClientCalls[Job, Fill]._hint)
    batch = call(ClientCalls[Job, Fill]._batch)
    reserve = call(ClientCalls[Job, Fill]._reserve)
    put = call(ClientCalls[Job, Fill]._put)
    get = call(ClientCalls[Job, Fill]._get)
    pin = call(ClientCalls[Job, Fill]._pin)
    unpin = call(ClientCalls[Job, Fill]._unpin)
    delete = call(ClientCalls[Job, Fill]._delete)
    delete_hashes = call(ClientCalls[Job, Fill]._delete_hashes)
    delete_space = call(ClientCalls[Job, Fill]._delete_space)
    flush = call(ClientCalls[Job, Fill]._flush)
    stats = call(ClientCalls[Job, Fill]._stats)

    def pieces(self, prompt: Prompt, *, timeout: Optional[float] = None, **options: Any) -> Iterator[Piece]:
        """Reads the stored prefix of a prompt, however much longer than DRAM it
        is: 64 MiB at a time, and no more than one client may lease. Each piece
        is copied, and good. There is always a last one, perhaps empty, whose
        reason says why it is the last; of a prompt that is all there it is
        COMPLETE. ``options`` are those of :meth:`prefetch`; ``timeout`` is for
        each wait."""
        return pieces.read(self, prompt, timeout, **options)

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
        ``wait`` seconds. Where ``write`` raises, the chunks before are stored."""
        return Writer(self).put(prompt, sizes, write, first=first, wait=wait, timeout=timeout).results(timeout)

    def writer(self) -> Writer:
        """Stores one prompt after another, in one round trip each."""
        return Writer(self)

    def wait_attached(self, timeout: Optional[float] = None) -> bool:
        """Waits until there is a connection that answers; whether there is."""
        return self._wait_attached(timeout)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()
