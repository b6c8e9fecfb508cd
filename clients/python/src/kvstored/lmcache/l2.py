"""An L2 adapter for LMCache's multi-process server.

docs/engines/lmcache.md has the line. The server's controllers submit tasks and poll three
event descriptors; threads of this class wait for the daemon in their place. A
task always ends, and its result is given out once.
"""

import collections
import importlib
import importlib.metadata
import itertools
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .. import _groups, _wire as wire, options
from .._engine import Complaints, find, never_raises, nothing
from ..chains import Chains, digests
from ..client import Client
from ..errors import Refused
from ..hints import Held
from ..job import Job, release_soon
from ..pages import Before, Pages
from ..prefill import Prefill
from ..prompt import Space
from .groups import ObjectGroups
from .keys import Grid, Names, grids
from .objects import bytes_of

_DISTRIBUTED = "lmcache.v1.distributed"
_BASE = f"{_DISTRIBUTED}.l2_adapters.base"
_NATIVE = "lmcache.lmcache_native", "lmcache.native_storage_ops"  # since 0.5.4, and before


def _bitmap() -> Tuple[Any, str]:
    """LMCache's Bitmap, or None and why there is none. The server's controllers combine
    bits with bits of their own: with another class it ends every prefetch, also of what
    its own memory has."""
    reasons = []
    for module in _NATIVE:
        try:
            found = importlib.import_module(module).Bitmap
            found(1).set(0)
            return found, ""
        except Exception as e:
            reasons.append(f"{module}: {type(e).__name__}: {e}")
    return None, "; ".join(reasons)


L2AdapterInterface: Any = find(_BASE, "L2AdapterInterface") or object
AdapterUsage: Any = find(_BASE, "AdapterUsage")
L2StoreResult: Any = find(f"{_DISTRIBUTED}.internal_api", "L2StoreResult")
KeyEntry: Any = find(f"{_DISTRIBUTED}.api", "KeyEntry")
KeyListPage: Any = find(f"{_DISTRIBUTED}.api", "KeyListPage")
Bitmap, _no_bitmap = _bitmap()

log = logging.getLogger("kvstored.lmcache")

_TASKS = 1024  # that wait, of each kind; more fail at once
_RESULTS = 16 * _TASKS  # of tasks that have ended, of each kind; the oldest give way
_LISTED = 1 << 16  # keys that are remembered, to be listed
_THREADS = {"store": 1, "lookup": 2, "load": 2}

KEYS = {
    **options.COMMON,
    "chunk_tokens": options.tokens(256),
    "lookup_timeout": options.seconds(2.0),
    "transfer_timeout": options.seconds(10.0),
    "lock_seconds": options.seconds(30.0),
    "verify": options.flag(True),
    "groups": _groups.option("LMCache"),
}


class _Kind:
    """The tasks of one kind: their threads, results and event descriptor. Safe for threads."""

    def __init__(self, name: str, threads: int) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._pool = ThreadPoolExecutor(threads, f"kvstored-l2-{name}")
        self._mu = threading.Lock()  # guards the fields below
        self._waiting = 0
        self._results: Dict[int, Any] = {}

    def submit(self, task: int, work: Callable[[], Any], failed: Any) -> None:
        """Has a thread do the work, whose answer is the result."""
        with self._mu:
            full = self._waiting >= _TASKS
            self._waiting += not full
        try:
            if not full:
                self._pool.submit(self._work, task, work)
                return
        except RuntimeError:  # the adapter is closed
            pass
        self._ended(task, failed, 0 if full else 1)

    def _work(self, task: int, work: Callable[[], Any]) -> None:
        self._ended(task, work(), 1)

    def _ended(self, task: int, result: Any, done: int) -> None:
        with self._mu:
            self._waiting -= done
            self._results[task] = result
            while len(self._results) > _RESULTS:
                del self._results[next(iter(self._results))]
            if self.fd >= 0:
                os.write(self.fd, (1).to_bytes(8, "little"))

    def pop(self, task: int) -> Any:
        """The result of a task, once; None before and afterwards, and long after it ended."""
        with self._mu:
            return self._results.pop(task, None)

    def pop_all(self) -> Dict[int, Any]:
        with self._mu:
            results, self._results = self._results, {}
            return results

    def close(self) -> None:
        """Waits for the tasks: their buffers are the caller's again then."""
        self._pool.shutdown(wait=True)
        with self._mu:
            os.close(self.fd)
            self.fd = -1


class KvstoredL2Adapter(L2AdapterInterface):
    """The daemon below the memory of LMCache's server.

    ``adapter_params`` has its ``KEYS``: ``chunk_tokens``, as the server's; a
    timeout for lookups and one for transfers; ``lock_seconds`` after which a lock
    ends that LMCache forgets; the others as of :class:`KvstoredBackend`. The
    constructor raises a ValueError that says what is wrong with them, and an
    ImportError where there is no LMCache, or none with the bitmap that it wants answers in.
    """

    def __init__(self, params: Any = None, l1_memory_desc: Any = None, **_: Any) -> None:
        if Bitmap is None or L2AdapterInterface is object:
            raise _missing()
        o = self._options = options.check("KvstoredL2Adapter", params or {}, KEYS)
        super().__init__(0)  # the daemon evicts by itself
        self._names = Names(o["chunk_tokens"], o["revision"], o["namespace"])
        kinds = _groups.given(o["groups"])
        self._client = Client(o["socket"], name="lmcache-mp", timeout=o["transfer_timeout"])
        self._groups = ObjectGroups(self._client, kinds)
        self._held = Held(self._client, o["lock_seconds"])
        self._chains = Chains()
        self._prefill = Prefill(o["prefill_tokens_per_second"], o["prefill_depth"])
        self._complaints = Complaints(log)
        self._ids = itertools.count(1)
        self._kinds = {name: _Kind(name, threads) for name, threads in _THREADS.items()}
        self._mu = threading.Lock()  # guards the fields below
        self._pages: Dict[Tuple[Space, ...], Pages] = {}
        self._listed: "collections.OrderedDict[Any, int]" = collections.OrderedDict()  # sizes
        self._closed = False

    def _of(self, spaces: Sequence[Space]) -> Pages:
        with self._mu:
            pages = self._pages.get(tuple(spaces))
            if pages is None:
                o = self._options
                pages = Pages(self._client, spaces[0], o["verify"], self._held, o["check_existing"], spaces[1:])
                self._pages[tuple(spaces)] = pages
            return pages

    def _before(self, grid: Grid) -> Before:
        """The chain before a grid of a prompt, which begins with its first chunk. None where
        chunks stand alone, as those of which a prefix needs the last ones only."""
        if self._groups.sparse(grid.spaces) and len(grid.spaces) == 1:
            return None
        run = digests(grid.names)
        self._chains.learn(run, begins=True)
        return self._chains.before(run)

    def _runs(self, grid: Grid) -> List[Tuple[Grid, Before]]:
        """The grid in parts, each of chunks that are known to follow each other and the chain
        before them, or of chunks of which nothing is known: the server stores those of many
        requests together, and loads what its memory lacks."""
        run, parts = digests(grid.names), []
        alone = self._groups.sparse(grid.spaces) and len(grid.spaces) == 1
        for n in [range(len(run))] if alone else self._chains.runs(run):
            before = None if alone else self._chains.before(run[n.start : n.stop])
            if before is None and parts and parts[-1][1] is None:
                n = range(n.start - len(parts.pop()[0].names), n.stop)
            parts.append((Grid(grid.spaces, grid.names[n.start : n.stop], grid.at[n.start : n.stop]), before))
        return parts

    # ---- events ----------------------------------------------------------------

    def get_store_event_fd(self) -> int:
        return self._kinds["store"].fd

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._kinds["lookup"].fd

    def get_load_event_fd(self) -> int:
        return self._kinds["load"].fd

    def _submit(self, kind: str, work: Callable[[], Any], failed: Any) -> int:
        task = next(self._ids)

        def guarded() -> Any:
            try:
                return work()
            except Exception:
                self._complaints.say(f"a {kind} task")
                return failed

        self._kinds[kind].submit(task, guarded, failed)
        return task

    # ---- storing ---------------------------------------------------------------

    def submit_store_task(self, keys: Sequence[Any], objects: Sequence[Any], *_: Any, **__: Any) -> int:
        keys, objects = list(keys), list(objects)
        return self._submit("store", lambda: self._store(keys, objects), L2StoreResult(False, 0))

    def pop_completed_store_tasks(self) -> Dict[int, Any]:
        return self._kinds["store"].pop_all()

    def _store(self, keys: List[Any], objects: List[Any]) -> Any:
        until = time.monotonic() + self._options["transfer_timeout"]
        sizes: Dict[Any, int] = {}
        for grid in self._grids(keys):
            self._prefill.stored([(grid.spaces[0], name) for name in grid.names])
            for part, before in self._runs(grid):
                for rank, space in enumerate(part.spaces):
                    at = [chunk[rank] for chunk in part.at]
                    places = [(bytes_of(objects[i]),) for i in at]
                    there = self._of([space]).store(part.names, places, until - time.monotonic(), before=before)
                    sizes.update((keys[i], place[0][1]) for i, place, ok in zip(at, places, there) if ok)
        self._list(sizes)
        if sizes:
            self._notify_keys_stored(list(sizes), list(sizes.values()))
        return L2StoreResult(len(sizes) == len(set(keys)), sum(sizes.values()))

    # ---- what is there ---------------------------------------------------------

    def submit_lookup_and_lock_task(self, keys: Sequence[Any], group_layout_descs: Any = None, *_: Any, **__: Any) -> int:
        """A bit for each object that is there, whatever is missing before it: the server has
        others in its own memory. The longest prefix that all ranks have starts to be promoted,
        and all are held until they are unlocked. With ``groups`` it is a bit for each that the
        longest usable prefix needs. Layouts are not looked at: a load says the size, and what
        has another one is not loaded."""
        keys = list(keys)
        return self._submit("lookup", lambda: self._lookup(keys), Bitmap(len(keys)))

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        return self._kinds["lookup"].pop(task_id)

    def _lookup(self, keys: List[Any]) -> Any:
        found = Bitmap(len(keys))
        until = time.monotonic() + self._options["lookup_timeout"]
        accessed: List[Any] = []
        parts = grids(keys, self._names)
        jobs = self._asked(parts, until)
        try:
            for grid, job in zip(parts, jobs):
                for i in self._found(keys, grid, until, job):
                    found.set(i)
                    accessed.append(keys[i])
        except BaseException:
            release_soon(filter(None, jobs))  # nothing was found then, and nobody will unlock it
            raise
        if accessed:
            self._notify_keys_accessed(accessed)
        return found

    def _grids(self, keys: List[Any]) -> List[Grid]:
        return [part for grid in grids(keys, self._names) for part in self._groups.apart(grid)]

    def _asked(self, parts: Sequence[Grid], until: float) -> Sequence[Optional[Job]]:
        """A job for each of several spaces, in one question; None where each is asked by itself."""
        alone: Sequence[Optional[Job]] = [None] * len(parts)
        if not 1 < len(parts) <= wire.MOST_BATCH or any(len(grid.spaces) > 1 or self._groups.sparse(grid.spaces) for grid in parts):
            return alone
        prompts = [self._of(grid.spaces).prompt(list(dict.fromkeys(grid.names)), self._before(grid)) for grid in parts]
        with suppress(Refused):
            return _groups.ask(self._client, prompts, self._prefill, until - time.monotonic(), alone=True).wait()[0]
        return alone

    def _found(self, keys: List[Any], grid: Grid, until: float, job: Optional[Job]) -> List[int]:
        """Which of the keys of a grid are there and of use, which are leased then."""
        if not self._groups.sparse(grid.spaces):
            return self._run(keys, grid, until, job)
        usable = self._groups.find(grid, self._before(grid), self._prefill, until - time.monotonic())
        if usable is None:
            return [i for part in self._groups.apart(grid) for i in self._run(keys, part, until)]
        self._missed(grid, usable.chunks)
        if usable.at:
            self._held.hold([keys[i] for i in usable.at], usable.job)
        else:
            usable.job.release_soon()
        return usable.at

    def _run(self, keys: List[Any], grid: Grid, until: float, job: Optional[Job] = None) -> List[int]:
        """:meth:`_found` without groups."""
        number = {name: i for i, name in enumerate(dict.fromkeys(grid.names))}
        pages, ranks = self._of(grid.spaces), len(grid.spaces)
        if job is None:
            job = pages.take(list(number), until - time.monotonic(), self._before(grid), self._prefill.says(), alone=True)
        n = 0 if job is None else job.worth.chunks
        there = set(range(n * ranks))
        if job is not None and n == job.match.total.chunks:  # else it computes from there on
            there.update(job.alone)
        at = [i for name, chunk in zip(grid.names, grid.at) for rank, i in enumerate(chunk) if number[name] * ranks + rank in there]
        self._missed(grid, len(there) // ranks)
        if job is not None and at:
            self._held.hold([keys[i] for i in at], job)
        elif job is not None:
            pages.keep(job)
        return at

    def _missed(self, grid: Grid, n: int) -> None:
        if n < len(grid.names):
            self._prefill.asked((grid.spaces[0], grid.names[-1]), (len(grid.names) - n) * grid.spaces[0].chunk_tokens)

    @never_raises(nothing(None))
    def submit_unlock(self, keys: Sequence[Any], *_: Any, **__: Any) -> None:
        """Lets go of each key's lock. What is forgotten here, or cannot be told the
        daemon, ends by itself."""
        self._held.let_go(list(keys))

    # ---- loading ---------------------------------------------------------------

    def submit_load_task(self, keys: Sequence[Any], objects: Sequence[Any], *_: Any, **__: Any) -> int:
        keys, objects = list(keys), list(objects)
        return self._submit("load", lambda: self._load(keys, objects), Bitmap(len(keys)))

    def query_load_result(self, task_id: int) -> Any:
        return self._kinds["load"].pop(task_id)

    def _load(self, keys: List[Any], objects: List[Any]) -> Any:
        loaded = Bitmap(len(keys))
        until = time.monotonic() + self._options["transfer_timeout"]
        parts = [part for grid in self._grids(keys) for part in self._runs(grid)]
        jobs = self._leased(parts, until)
        try:
            for (part, before), job in zip(parts, jobs):
                for i in self._got(part, objects, until, before, job):
                    loaded.set(i)
        finally:
            release_soon(filter(None, jobs))
        return loaded

    def _leased(self, parts: Sequence[Tuple[Grid, Before]], until: float) -> Sequence[Optional[Job]]:
        """A job for each of several parts, in one request; None where each is loaded by itself."""
        alone: Sequence[Optional[Job]] = [None] * len(parts)
        if not 1 < len(parts) <= wire.MOST_BATCH or self._client.arena is None:
            return alone
        if any(len(part.spaces) > 1 or len(set(part.names)) < len(part.names) for part, _ in parts):
            return alone
        left = max(until - time.monotonic(), 1e-3)
        with suppress(Refused):
            return self._client.batch([self._of(part.spaces).prompt(part.names, before) for part, before in parts], load_deadline=left, timeout=left)[0]
        return alone

    def _got(self, part: Grid, objects: List[Any], until: float, before: Before, job: Optional[Job]) -> List[int]:
        """Which of the keys of a part were copied to their objects: all ranks of a chunk
        together, and behind the first that cannot be had each by itself."""
        places: List[Any] = [[(bytes_of(objects[i]),) for i in chunk] for chunk in part.at]
        single = len(part.spaces) == 1
        together = [place for (place,) in places] if single else places
        pages = self._of(part.spaces)
        n = pages.load(part.names, together, until - time.monotonic(), before) if job is None else pages._unload(job, 0, together, until, kept=True)
        # Jobs of a batch are in each other's way, so what one lacks is asked for again.
        got, rest = list(itertools.chain(*part.at[:n])), n + (single and job is None)
        for rank, space in enumerate(part.spaces if rest < len(places) else ()):
            alone = self._of([space]).load_each(part.names[rest:], [chunk[rank] for chunk in places[rest:]], until - time.monotonic())
            got += [chunk[rank] for chunk, ok in zip(part.at[rest:], alone) if ok]
        return got

    # ---- the rest --------------------------------------------------------------

    @never_raises(nothing(None))
    def delete(self, keys: Sequence[Any]) -> None:
        """Forgets objects in every tier."""
        for grid in grids(keys, self._names):
            for space in grid.spaces:
                self._of([space]).delete(grid.names, self._options["lookup_timeout"])
        with self._mu:
            gone = {key: self._listed.pop(key) for key in keys if key in self._listed}
        if gone:
            self._notify_keys_deleted(list(gone), list(gone.values()))

    def list_l2_keys(self, model_name: Optional[str] = None, page_size: int = 500, cursor: Optional[str] = None) -> Any:
        """What this server has stored and not deleted, the newest 65,536. The daemon
        keeps no names, and may have evicted some. A ValueError says what is wrong."""
        if page_size <= 0 or cursor is not None and not cursor.isdigit():
            raise ValueError(f"a page of {page_size} keys from {cursor!r} on: the size is above 0, the cursor one of a page")
        with self._mu:
            all_keys = [(k, n) for k, n in self._listed.items() if model_name in (None, k.model_name)]
        first = int(cursor or 0)
        page, end = all_keys[first : first + page_size], first + page_size
        return KeyListPage(tuple(KeyEntry(k.to_encoded_object_key(), n) for k, n in page), str(end) if end < len(all_keys) else None)

    def get_usage(self) -> Any:
        """Of what :meth:`list_l2_keys` lists. No capacity: the daemon evicts by itself."""
        salts: Dict[str, int] = collections.defaultdict(int)
        with self._mu:
            for key, n in self._listed.items():
                salts[key.cache_salt] += n
        return AdapterUsage(sum(salts.values()), 0, dict(salts))

    def report_status(self) -> Dict[str, Any]:
        return {"is_healthy": self._client.attached, "type": type(self).__name__, "daemon": repr(self._client)}

    def close(self) -> None:
        """Ends what is under way. Once it has returned, no buffer is touched any more."""
        with self._mu:
            closed, self._closed = self._closed, True
        if closed:
            return
        self._held.close()
        self._client.close()
        for kind in self._kinds.values():
            kind.close()

    def _list(self, sizes: Dict[Any, int]) -> None:
        with self._mu:
            self._listed.update(sizes)
            while len(self._listed) > _LISTED:
                self._listed.popitem(last=False)


def _missing() -> ImportError:
    try:
        found = f"LMCache {importlib.metadata.version('lmcache')} has no Bitmap as this package knows it"
    except importlib.metadata.PackageNotFoundError:
        found = "there is no LMCache that has a Bitmap"
    return ImportError(
        f"KvstoredL2Adapter: {found} ({_no_bitmap}), and without it every prefetch of its server would fail: "
        "install one from 0.5.0 on, such as 0.5.6, or a newer kvstored"
    )
