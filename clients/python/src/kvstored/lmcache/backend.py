"""A storage plug-in for LMCache in the engine's process.

docs/engines/lmcache.md has the configuration. LMCache asks its own memory first, and
stores and loads through it; this class copies between that memory and the
daemon's. No method but the constructor raises, none of those that LMCache calls
on its event loop or for a store waits for the daemon, and the others wait no
longer than their timeout, once: a daemon that does not answer is not asked again
until it does.
"""

import asyncio
import collections
import functools
import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import options
from .._engine import Complaints, find, max_age, never_raises, nothing
from ..aside import Aside
from ..chains import Chains, digests
from ..client import Client
from ..errors import Error
from ..hints import Held
from ..pages import Pages
from ..prefill import Prefill
from ..prompt import Space
from .keys import Family, Names, families, hints
from .objects import Arrivals, place


StoragePluginInterface: Any = find("lmcache.v1.storage_backend.abstract_backend", "StoragePluginInterface") or object

log = logging.getLogger("kvstored.lmcache")

_PREFIX = "kvstored."  # of our keys in LMCache's extra_config
_THREADS = 4  # that load in place of the event loop
_FLUSH_SECONDS = 2.0  # for what is still to be stored at the end

KEYS = {
    **options.COMMON,
    "lookup_timeout": options.seconds(0.5),
    "transfer_timeout": options.seconds(10.0),
    "pin_seconds": options.seconds(30.0),
    "verify": options.flag(True),
    "pending_bytes": options.size(4 << 30),
}


class _Put(NamedTuple):
    """Objects to be stored, each with a reference of ours."""

    keys: List[Any]
    objects: List[Any]
    size: int
    stored: Optional[Callable[[Any], Any]]


class KvstoredBackend(StoragePluginInterface):
    """The daemon as a storage backend of LMCache.

    Its ``KEYS`` in ``extra_config``, each behind ``kvstored.``: ``socket``;
    ``lookup_timeout`` and ``transfer_timeout``, seconds; ``pin_seconds`` after
    which a pin ends that LMCache forgets; ``verify`` and ``check_existing`` as of
    the other engines; ``revision`` and ``namespace``, texts that must be equal for
    chunks to be shared; ``pending_bytes`` that wait to be stored, at most;
    ``prefill_tokens_per_second``, so that no more is found than is loaded sooner
    than computed; ``prefill_depth``, tokens into a prompt at which one takes twice as
    long to compute. The constructor raises a ValueError that says what is wrong.
    """

    def __init__(
        self,
        dst_device: Any = "cpu",
        config: Any = None,
        metadata: Any = None,
        local_cpu_backend: Any = None,
        loop: Any = None,
        **_: Any,
    ) -> None:
        if StoragePluginInterface is not object:  # with LMCache
            super().__init__(
                dst_device=dst_device, config=config, metadata=metadata, local_cpu_backend=local_cpu_backend, loop=loop
            )
        self.config, self.metadata, self.loop = config, metadata, loop
        self.local_cpu_backend = local_cpu_backend  # None in a scheduler, which loads nothing
        extra = getattr(config, "extra_config", None) or {}
        ours = {k[len(_PREFIX) :]: v for k, v in extra.items() if str(k).startswith(_PREFIX)}
        o = self._options = options.check("KvstoredBackend", ours, KEYS)
        tokens = int(getattr(config, "chunk_size", None) or 256)
        self._names = Names(max(1, min(tokens, 1 << 16)), o["revision"], o["namespace"])
        self._client = Client(o["socket"], name="lmcache", timeout=o["transfer_timeout"])
        self._held = Held(self._client, o["pin_seconds"])
        self._chains, self._asked = Chains(), False
        self._prefill = Prefill(o["prefill_tokens_per_second"], o["prefill_depth"])
        self._complaints = Complaints(log)
        self._threads = ThreadPoolExecutor(_THREADS, "kvstored-lmcache")
        self._asker = Aside("kvstored-lmcache-ask")
        self._mu = threading.Lock()  # guards the fields below
        self._pages: Dict[Space, Pages] = {}
        self._puts: Deque[_Put] = collections.deque()
        self._pending: Dict[Any, int] = {}  # keys that are being stored
        self._pending_bytes = 0
        self._closed = False
        self._wake = threading.Condition(self._mu)
        self._writer = threading.Thread(target=self._write, name="kvstored-lmcache-put", daemon=True)
        self._writer.start()

    def __str__(self) -> str:
        return type(self).__name__

    # ---- spaces and chains -----------------------------------------------------

    def _of(self, space: Space) -> Pages:
        with self._mu:
            pages = self._pages.get(space)
            if pages is None:
                o = self._options
                pages = self._pages[space] = Pages(self._client, space, o["verify"], self._held, o["check_existing"])
            return pages

    def _run(self, family: Family, first: Any, looked: bool) -> List[bytes]:
        """The digests of a family's keys, whose order is taken note of. What LMCache
        had in its own memory is not among them: the last of that is what they follow,
        where LMCache says it."""
        run = digests(family.names)
        if looked:
            self._asked = True
        hit = self._hit_before(first, family) if looked else None
        if hit is not None:
            self._chains.learn([hit, *run], begins=False)
        else:
            self._chains.learn(run, begins=looked or not self._asked)
        return run

    def _hit_before(self, first: Any, family: Family) -> Optional[bytes]:
        """The chunk that LMCache's own memory has found just now, for the same request."""
        hits = getattr(self.local_cpu_backend, "keys_in_request", None)
        if not hits or self._chains.knows(digests(family.names[:1])[0]):
            return None
        (last,) = families([hits[-1]], self._names)
        return digests(last.names)[0] if last.space == family.space and hits[-1] != first else None

    # ---- what is there ---------------------------------------------------------

    @never_raises(nothing(False))
    def contains(self, key: Any, pin: bool = False) -> bool:
        return self._find([key], pin) == 1

    @never_raises(nothing(0))
    def batched_contains(self, keys: Sequence[Any], pin: bool = False) -> int:
        """How many chunks are there from the first on, in one request. They start to
        be promoted, and are leased for the load that follows."""
        return self._find(list(keys), pin)

    async def batched_async_contains(self, lookup_id: str, keys: Sequence[Any], pin: bool = False) -> int:
        return await self._asker.wait(functools.partial(self.batched_contains, list(keys), pin), 0)

    def _find(self, keys: List[Any], pin: bool) -> int:
        found = [False] * len(keys)
        until = time.monotonic() + self._options["lookup_timeout"]
        for family in families(keys, self._names):
            mine = [keys[i] for i in family.at]

            def hold(job: Any, n: int, mine: List[Any] = mine) -> None:
                self._held.hold([k.to_string() for k in mine[:n]], job)

            before = self._chains.before(self._run(family, mine[0], looked=True))
            say = self._prefill.says(hints(mine[0]))
            left = until - time.monotonic()
            n = self._of(family.space).find(family.names, left, before, say, hold if pin else None)
            for i in family.at[:n]:
                found[i] = True
            if n < len(family.names):
                missing = (len(family.names) - n) * family.space.chunk_tokens
                self._prefill.asked((family.space, family.names[-1]), missing)
        return next((i for i, there in enumerate(found) if not there), len(keys))

    @never_raises(nothing(False))
    def pin(self, key: Any) -> bool:
        return self._find([key], pin=True) == 1

    @never_raises(nothing(False))
    def unpin(self, key: Any) -> bool:
        return self._held.let_go([key.to_string()]) == 1

    @never_raises(nothing(False))
    def exists_in_put_tasks(self, key: Any) -> bool:
        return key in self._pending

    # ---- loading ---------------------------------------------------------------

    @never_raises(nothing(None))
    def get_blocking(self, key: Any) -> Any:
        """An object with one reference, which is the caller's; None if it is not there."""
        return next(iter(self._load([key])), None)

    @never_raises(lambda _: [])
    def batched_get_blocking(self, keys: Sequence[Any]) -> List[Any]:
        """Objects of the leading chunks that can be had, then None; nothing where
        there is none, so that LMCache asks its next backend."""
        objects = self._load(list(keys))
        return [*objects, *[None] * (len(keys) - len(objects))] if objects else []

    @never_raises(nothing(None))
    def get_non_blocking(self, key: Any, location: Optional[str] = None) -> "Optional[Future[Any]]":
        return self._threads.submit(self.get_blocking, key)

    async def batched_get_non_blocking(
        self, lookup_id: str, keys: Sequence[Any], transfer_spec: Any = None
    ) -> List[Any]:
        """Objects of the leading chunks that can be had."""
        return [obj for obj in await self._aside(self.batched_get_blocking, [], list(keys)) if obj is not None]

    def _load(self, keys: List[Any]) -> List[Any]:
        if self.local_cpu_backend is None or not keys:
            return []
        until = time.monotonic() + self._options["transfer_timeout"]
        loaded: Dict[int, Any] = {}
        for family in families(keys, self._names):
            arrivals, n = Arrivals(self.local_cpu_backend.allocate), 0
            try:
                before = self._chains.before(digests(family.names))
                targets = [functools.partial(arrivals.place, i) for i in range(len(family.names))]
                n = self._of(family.space).load(family.names, targets, until - time.monotonic(), before)
            except Exception:
                self._complaints.say("a load")
            loaded.update(zip(family.at, arrivals.keep(n)))
        run = next((i for i in range(len(keys)) if i not in loaded), len(keys))
        for i, obj in loaded.items():
            if i > run:
                obj.ref_count_down()
        return [loaded[i] for i in range(run)]

    # ---- storing ---------------------------------------------------------------

    @never_raises(nothing(None))
    def batched_submit_put_task(
        self,
        keys: Sequence[Any],
        objs: Sequence[Any],
        transfer_spec: Any = None,
        on_complete_callback: Optional[Callable[[Any], Any]] = None,
    ) -> None:
        """Queues objects to be stored, and returns. Each keeps a reference until it
        is copied. Those beyond ``pending_bytes`` are not stored, and not told of."""
        taken: List[Tuple[Any, Any]] = []
        size = 0
        with self._mu:
            for key, obj in zip(keys, objs):
                n = int(obj.get_size())
                if self._closed or self._pending_bytes + size + n > self._options["pending_bytes"]:
                    break
                if key not in self._pending:
                    obj.ref_count_up()
                    taken.append((key, obj))
                    self._pending[key] = n
                    size += n
            if taken:
                self._pending_bytes += size
                self._puts.append(_Put([k for k, _ in taken], [o for _, o in taken], size, on_complete_callback))
                self._wake.notify_all()

    def _write(self) -> None:
        """The thread that stores."""
        while True:
            with self._mu:
                while not self._puts and not self._closed:
                    self._wake.wait()
                if not self._puts:
                    return
                put = self._puts[0]
            stored: List[Any] = []
            try:
                stored = self._store(put)
            except Exception:
                self._complaints.say("a store")
            self._end(put)
            for key in stored if put.stored is not None else ():
                try:
                    put.stored(key)  # type: ignore[misc]
                except Exception:
                    self._complaints.say("a callback of a store")

    def _store(self, put: _Put) -> List[Any]:
        """Stores objects; the keys of those that are there now."""
        until = time.monotonic() + self._options["transfer_timeout"]
        stored: List[Any] = []
        for family in families(put.keys, self._names):
            before = self._chains.before(self._run(family, put.keys[family.at[0]], looked=False))
            places = [place(put.objects[i]) for i in family.at]
            self._prefill.stored([(family.space, name) for name in family.names])
            age = max_age(hints(put.keys[family.at[0]]))
            left = until - time.monotonic()
            there = self._of(family.space).store(family.names, places, left, before=before, max_age=age)
            stored += [put.keys[i] for i, ok in zip(family.at, there) if ok]
        return stored

    def _end(self, put: _Put) -> None:
        """Gives the references of a put back."""
        with self._mu:
            if self._puts and self._puts[0] is put:
                self._puts.popleft()
            self._pending_bytes -= put.size
            for key in put.keys:
                self._pending.pop(key, None)
            self._wake.notify_all()
        for obj in put.objects:
            try:
                obj.ref_count_down()
            except Exception:  # the engine's; the thread goes on, and gives the others back
                self._complaints.say("to give memory back")

    # ---- the rest --------------------------------------------------------------

    @never_raises(nothing(False))
    def remove(self, key: Any, force: bool = True) -> bool:
        """Forgets a chunk in every tier, unless it is pinned and not ``force``."""
        return self._remove([key], force) == 1

    @never_raises(nothing(0))
    def batched_remove(self, keys: Sequence[Any], force: bool = True) -> int:
        return self._remove(list(keys), force)

    def _remove(self, keys: List[Any], force: bool) -> int:
        wanted = [k for k in keys if force or not self._held.holds(k.to_string())]
        timeout = self._options["lookup_timeout"]
        return sum(self._of(f.space).delete(f.names, timeout) for f in families(wanted, self._names))

    @never_raises(nothing(0))
    def clear(self) -> int:
        """Forgets all chunks of this rank, where the daemon lets this process (the
        right admin); the tokens of those."""
        with self._mu:
            spaces = list(self._pages)
        try:
            gone = sum(self._client.delete_space(s, timeout=self._options["transfer_timeout"]) for s in spaces)
        except Error as e:
            log.warning("kvstored: LMCache asked to clear its cache: %s", e)
            return 0
        return gone * self._names.chunk_tokens

    def get_allocator_backend(self) -> Any:
        return self.local_cpu_backend

    def touch_cache(self) -> None:
        """Nothing: the daemon has seen every lookup."""

    def cancel_request(self, req_id: str) -> None:
        """Nothing: a lookup's leases end by themselves."""

    @never_raises(nothing(None))
    def close(self) -> None:
        """Stores what is queued, for two seconds at most, and gives everything back."""
        with self._mu:
            if self._client.attached:
                self._wake.wait_for(lambda: not self._puts, _FLUSH_SECONDS)
            self._closed = True
            self._wake.notify_all()
        self._held.close()
        self._client.close()  # which ends what is under way
        self._writer.join(self._options["transfer_timeout"])
        self._threads.shutdown(wait=False)
        self._asker.close()

    async def _aside(self, call: Callable[..., Any], otherwise: Any, *args: Any) -> Any:
        """Has a thread wait in place of the event loop."""
        try:
            answer = self._threads.submit(call, *args)
        except RuntimeError:
            return otherwise  # the backend is closed
        try:
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            answer.add_done_callback(_give_back)
            raise


def _give_back(answer: "Future[Any]") -> None:
    """Drops the references of objects that came for a call that was cancelled."""
    found = None if answer.cancelled() or answer.exception() else answer.result()
    for obj in found if isinstance(found, list) else ():
        if obj is not None:
            obj.ref_count_down()
