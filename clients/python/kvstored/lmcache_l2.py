"""An L2 adapter for LMCache's multi-process server.

docs/engines.md has the line. The server's controllers submit tasks and poll three
event descriptors; threads of this class wait for the daemon in their place. A
task always ends, and its result is given out once.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import engine, group_kinds, lmcache_bitmap, options
from .chains import Chains, digests
from .client import Client
from .held import Held
from .lmcache_groups import ObjectGroups
from .lmcache_keys import Grid, Names, grids
from .lmcache_objects import bytes_of
from .pages import Pages, Said
from .prefill import Prefill
from .quiet import Complaints, never_raises, nothing
from .wire import Space


class _Adapter:  # without LMCache
    def __init__(self, max_capacity_bytes: int = 0) -> None:
        self._listeners: List[Any] = []
        self._backend_name, self._shared = "", False

    def set_backend_identity(self, name: str, shared: bool = False) -> None:
        """What the server tags the adapter's events with."""
        if not name:
            raise ValueError("the name of a backend is empty")
        self._backend_name, self._shared = name, shared


class _Usage(NamedTuple):
    total_bytes_used: int
    total_capacity_bytes: int
    bytes_by_cache_salt: Dict[str, int]


class _Entry(NamedTuple):
    key: Any
    size_bytes: int


class _Page(NamedTuple):
    entries: Tuple[Any, ...]
    next_page_token: Optional[str]


_DISTRIBUTED = "lmcache.v1.distributed"
_BASE = f"{_DISTRIBUTED}.l2_adapters.base"
_Interface: Any = engine.find(_BASE, "L2AdapterInterface")
L2AdapterInterface: Any = _Interface or _Adapter
AdapterUsage: Any = engine.find(_BASE, "AdapterUsage", newer=True) or _Usage
_Native, _no_native = lmcache_bitmap.native()
Bitmap: Any = _Native or lmcache_bitmap.StandIn
L2StoreResult: Any = engine.find(f"{_DISTRIBUTED}.internal_api", "L2StoreResult", newer=True)  # before, a bool
KeyEntry: Any = engine.find(f"{_DISTRIBUTED}.api", "KeyEntry", newer=True) or _Entry
KeyListPage: Any = engine.find(f"{_DISTRIBUTED}.api", "KeyListPage", newer=True) or _Page

log = logging.getLogger("kvstored.lmcache")

_TASKS = 1024  # that wait, of each kind; more fail at once
_RESULTS = 16 * _TASKS  # of tasks that have ended, of each kind; the oldest give way
_LISTED = 1 << 16  # keys that are remembered, to be listed
_THREADS = {"store": 1, "lookup": 2, "load": 2}

KEYS = {
    "socket": options.socket(),
    "chunk_tokens": options.tokens(256),
    "lookup_timeout": options.seconds(2.0),
    "transfer_timeout": options.seconds(10.0),
    "lock_seconds": options.seconds(30.0),
    "verify": options.flag(True),
    "check_existing": options.check_existing(),
    "revision": options.text(),
    "namespace": options.text(),
    "prefill_tokens_per_second": options.rate(),
    "groups": group_kinds.option("LMCache"),
    "prefill_depth": options.depth(),
}


class _Kind:
    """The tasks of one kind: their threads, results and event descriptor. Safe for threads."""

    def __init__(self, name: str, threads: int) -> None:
        self.fd = _eventfd()
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
    ImportError where LMCache is there without the bitmap that it wants answers in.
    """

    def __init__(self, params: Any = None, l1_memory_desc: Any = None, **_: Any) -> None:
        if _Interface is not None and _Native is None:
            raise lmcache_bitmap.missing(type(self).__name__, _no_native)
        o = self._options = options.check("KvstoredL2Adapter", params or {}, KEYS)
        super().__init__(0)  # the daemon evicts by itself
        self._names = Names(o["chunk_tokens"], o["revision"], o["namespace"])
        kinds = group_kinds.given(o["groups"])
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

    def _before(self, grid: Grid) -> Optional[List[bytes]]:
        """None where chunks stand alone, as those of which a prefix needs the last ones only."""
        if self._groups.sparse(grid.spaces) and len(grid.spaces) == 1:
            return None
        run = digests(grid.names)
        self._chains.learn(run, begins=True)
        return self._chains.before(run)

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
        return self._submit("store", lambda: self._store(keys, objects), _store_result(False, 0))

    def pop_completed_store_tasks(self) -> Dict[int, Any]:
        return self._kinds["store"].pop_all()

    def _store(self, keys: List[Any], objects: List[Any]) -> Any:
        until = time.monotonic() + self._options["transfer_timeout"]
        sizes: Dict[Any, int] = {}
        for grid in self._grids(keys):
            before = self._before(grid)
            self._prefill.stored([(grid.spaces[0], name) for name in grid.names])
            for rank, space in enumerate(grid.spaces):
                at = [chunk[rank] for chunk in grid.at]
                places = [(bytes_of(objects[i]),) for i in at]
                there = self._of([space]).store(grid.names, places, until - time.monotonic(), before=before)
                sizes.update((keys[i], place[0][1]) for i, place, ok in zip(at, places, there) if ok)
        self._list(sizes)
        self._notify("_notify_keys_stored", list(sizes), list(sizes.values()))
        return _store_result(len(sizes) == len(set(keys)), sum(sizes.values()))

    # ---- what is there ---------------------------------------------------------

    def submit_lookup_and_lock_task(self, keys: Sequence[Any], group_layout_descs: Any = None, *_: Any, **__: Any) -> int:
        """A bit for each object that the longest prefix needs which all ranks and groups can
        serve. They start to be promoted, and are leased until they are unlocked. Layouts are
        not looked at: a load says the size, and what has another one is not loaded."""
        keys = list(keys)
        return self._submit("lookup", lambda: self._lookup(keys), Bitmap(len(keys)))

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        return self._kinds["lookup"].pop(task_id)

    def _lookup(self, keys: List[Any]) -> Any:
        found = Bitmap(len(keys))
        until = time.monotonic() + self._options["lookup_timeout"]
        accessed: List[Any] = []
        for grid in grids(keys, self._names):
            for i in self._found(keys, grid, until):
                found.set(i)
                accessed.append(keys[i])
        self._notify("_notify_keys_accessed", accessed)
        return found

    def _grids(self, keys: List[Any]) -> List[Grid]:
        return [part for grid in grids(keys, self._names) for part in self._groups.apart(grid)]

    def _found(self, keys: List[Any], grid: Grid, until: float) -> List[int]:
        """Which of the keys of a grid are there and of use, which are leased then."""
        if not self._groups.sparse(grid.spaces):
            return self._run(keys, grid, until)
        usable = self._groups.find(grid, self._before(grid), self._prefill, until - time.monotonic())
        if usable is None:
            return [i for part in self._groups.apart(grid) for i in self._part(keys, part, until)]
        self._missed(grid, usable.chunks)
        if usable.at:
            self._held.hold([keys[i] for i in usable.at], usable.job)
        else:
            usable.job.release_soon()
        return usable.at

    def _part(self, keys: List[Any], grid: Grid, until: float) -> List[int]:
        """:meth:`_found` of one space. Of a group that keeps the last chunks only nothing
        is leased: which of them are of use the other groups decide."""
        if not self._groups.sparse(grid.spaces):
            return self._run(keys, grid, until)
        there = self._of(grid.spaces).exists(grid.names, until - time.monotonic())
        return [i for (i,), yes in zip(grid.at, there) if yes]

    def _run(self, keys: List[Any], grid: Grid, until: float) -> List[int]:
        """:meth:`_found` of full groups: the leading run that all have."""

        def lock(job: Any, n: int) -> None:
            self._held.hold([keys[i] for chunk in grid.at[:n] for i in chunk], job)

        say = Said(self._prefill.rate, self._prefill.says())
        n = self._of(grid.spaces).find(grid.names, until - time.monotonic(), self._before(grid), say, lock)
        self._missed(grid, n)
        return list(itertools.chain(*grid.at[:n]))

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
        for grid in self._grids(keys):
            places: List[Any] = [[(bytes_of(objects[i]),) for i in chunk] for chunk in grid.at]
            if len(grid.spaces) == 1:
                places = [place for (place,) in places]
            n = self._of(grid.spaces).load(grid.names, places, until - time.monotonic(), self._before(grid))
            for i in itertools.chain(*grid.at[:n]):
                loaded.set(i)
        return loaded

    # ---- the rest --------------------------------------------------------------

    @never_raises(nothing(None))
    def delete(self, keys: Sequence[Any]) -> None:
        """Forgets objects in every tier."""
        for grid in grids(keys, self._names):
            for space in grid.spaces:
                self._of([space]).delete(grid.names, self._options["lookup_timeout"])
        with self._mu:
            gone = {key: self._listed.pop(key) for key in keys if key in self._listed}
        self._notify("_notify_keys_deleted", list(gone), list(gone.values()))

    def list_l2_keys(self, model_name: Optional[str] = None, page_size: int = 500, cursor: Optional[str] = None) -> Any:
        """What this server has stored and not deleted, the newest 65,536. The daemon
        keeps no names, and may have evicted some. A ValueError says what is wrong."""
        if page_size <= 0 or cursor is not None and not cursor.isdigit():
            raise ValueError(f"a page of {page_size} keys from {cursor!r} on: the size is above 0, the cursor one of a page")
        with self._mu:
            all_keys = [(k, n) for k, n in self._listed.items() if model_name in (None, k.model_name)]
        first = int(cursor or 0)
        page, end = all_keys[first : first + page_size], first + page_size
        return KeyListPage(tuple(KeyEntry(_encoded(k), n) for k, n in page), str(end) if end < len(all_keys) else None)

    def get_usage(self) -> Any:
        """Of what :meth:`list_l2_keys` lists. No capacity: the daemon evicts by itself."""
        salts: Dict[str, int] = collections.defaultdict(int)
        with self._mu:
            for key, n in self._listed.items():
                salts[getattr(key, "cache_salt", "")] += n
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

    def _notify(self, name: str, *what: List[Any]) -> None:
        """Tells LMCache's listeners; older versions are told no sizes."""
        tell = getattr(self, name, None)
        if tell is None or not what[0]:
            return
        try:
            tell(*what)
        except TypeError:
            tell(what[0])


def _store_result(success: bool, size: int) -> Any:
    return success if L2StoreResult is None else L2StoreResult(success, size)


def _encoded(key: Any) -> Any:
    """As LMCache's pages have keys."""
    return key.to_encoded_object_key() if hasattr(key, "to_encoded_object_key") else key


def _eventfd() -> int:
    make = getattr(os, "eventfd", None)
    if make is not None:
        return make(0, os.O_CLOEXEC | os.O_NONBLOCK)
    fd = ctypes.CDLL(None, use_errno=True).eventfd(0, os.O_CLOEXEC | os.O_NONBLOCK)  # Python 3.9
    if fd < 0:
        raise OSError(ctypes.get_errno(), "eventfd")
    return fd
