"""What a tier tells vLLM of itself: counters for its /metrics, and KV events."""

import collections
import itertools
import logging
import threading
from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Sequence, Tuple

from .._engine import find
from ..chains import digest
from .follow import CLEARED, STORED, Event, Follower
from .order import named

log = logging.getLogger("kvstored.vllm")

_METRICS = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics"
_EVENT_KEYS = 1 << 17  # of which removals are told; some 40 MiB of this process at most

ConnectorStats: Any = find(_METRICS, "OffloadingConnectorStats")
CounterMetadata: Any = find("vllm.v1.kv_offload.base", "OffloadingCounterMetadata")
OffloadingEvent: Any = find("vllm.v1.kv_offload.base", "OffloadingEvent")

#: Name: (what it counts, its label).
COUNTERS: Dict[str, Tuple[str, str]] = {
    "lookups": ("Blocks that were asked of the kvstored daemon, each counted when it is answered.", "result"),
    "bytes": ("Bytes that were copied between host memory and the kvstored daemon.", "direction"),
    "failed_blocks": ("Blocks that the kvstored daemon refused, or could not bring in time.", "direction"),
    "compared": ("Blocks that were computed again, beside those stored under their keys; by the pool alone.", "result"),
    "reconnects": ("Connections to the kvstored daemon after the first.", ""),
}


def _name(counter: str) -> str:
    return f"vllm:kvstored_{counter}"


def definitions() -> Dict[str, Any]:
    """Of the counters, as vLLM takes them."""
    return {
        _name(counter): CounterMetadata(documentation=text, labelnames=(label,) if label else ())
        for counter, (text, label) in COUNTERS.items()
    }


class Counters:
    """Counts since vLLM asked last. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Dict[Tuple[str, str], int] = {}

    def add(self, counter: str, n: int, label: str = "") -> None:
        if n:
            with self._lock:
                self._counts[counter, label] = self._counts.get((counter, label), 0) + n

    def take(self) -> Dict[Tuple[str, str], int]:
        with self._lock:
            counts, self._counts = self._counts, {}
        return counts

    def stats(self) -> Any:
        """As vLLM takes them, None where there are none."""
        counts, stats = self.take(), ConnectorStats()
        for (counter, label), n in counts.items():
            stats.increase_counter(_name(counter), n, (label,) if label else ())
        return stats if counts else None

    def forked(self) -> None:
        self._lock = threading.Lock()


class Events:
    """What vLLM's KV events are told of the tier: blocks that this engine stored there,
    and that they are gone from all of the daemon's tiers. A block is told only while
    the daemon's own events are heard, so that its removal will be. Where some may
    have been missed, all blocks are told as removed: what follows them knows less
    than there is, and never more. Safe for threads."""

    def __init__(self, tier: Any, wanted: bool, spec: Any, by_daemon: bool = False) -> None:
        """``by_daemon``: only the daemon's events say that a block was stored."""
        self._by_daemon = by_daemon
        config = getattr(spec, "kv_events_config", None)
        self._tier = tier
        self._mu = threading.Lock()  # guards the fields below
        self._held: "collections.OrderedDict[Tuple[bytes, bytes], _Held]" = collections.OrderedDict()  # by space and digest
        self._told: Deque[Tuple[Any, bool]] = collections.deque()  # keys, and whether they are gone
        self._live = False
        self._follower: Optional[Follower] = None
        self.enabled = bool(wanted and getattr(config, "enable_kv_cache_events", False))
        if wanted and not self.enabled:
            log.warning("kvstored: enable_kv_events of the tier has no effect: vLLM's KV cache events are off")
        if self.enabled and getattr(config, "self_describing_kv_events", None) is False:
            log.warning(
                "kvstored: KV events of this tier have neither tokens nor parents, and nobody can route by them: "
                'add "self_describing_kv_events": true beside secondary_tiers'
            )
        # Blocks that were loaded: of jobs whose end vLLM does not know yet, and since its last two steps.
        self._loads: Dict[Any, List[Tuple[bytes, Any]]] = {}
        self._loaded: List[List[Tuple[bytes, Any]]] = [[], []]

    def follow(self, path: str, timeout: float) -> None:
        """Hears the daemon from now on."""
        if self.enabled:
            self._follower = Follower(path, timeout, self._begun, self._heard, self._ended)

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()

    def forked(self) -> None:
        """In a child there is no thread that hears."""
        self._mu, self._live, self._follower = threading.Lock(), False, None

    # ---- of the tier's threads -------------------------------------------------

    def storing(self, space: bytes, keys: Iterable[Any]) -> None:
        """These are about to be stored. What the daemon says of them counts from now on.
        ``space`` is empty where it is not known: nothing is told."""
        if not self._live or not space:
            return
        with self._mu:
            for key in keys:
                self._hold(space, key, self._by_daemon)

    def _hold(self, space: bytes, key: Any, waits: bool) -> None:
        self._held.setdefault((space, digest(named(key))), _Held(key, waits))
        while len(self._held) > _EVENT_KEYS:
            self._gone(self._held.popitem(last=False)[1])

    def stored(self, space: bytes, keys: Iterable[Any]) -> None:
        """These were. They are told, unless they are gone already."""
        if not self._live:
            return
        with self._mu:
            for key in keys:
                self._tell(self._held.get((space, digest(named(key)))))

    def loading(self, keys: Iterable[Any], space: Callable[[Any], bytes]) -> None:
        """These are leased, or about to be: an earlier engine may have stored them, or this
        one before it forgot all blocks. What the daemon says of them counts from now on.
        ``space``: of a block."""
        if not self._live:
            return
        found = [(space(key), key) for key in keys]
        with self._mu:
            for name, key in found:
                if self._live and name:
                    self._hold(name, key, False)

    def loaded(self, job: Any, keys: Sequence[Any], space: Callable[[Any], bytes]) -> None:
        """A job has brought these. They are told once vLLM can describe them, unless they
        are gone by then."""
        if not self._live or not keys:
            return
        found = [(space(key), key) for key in keys]
        with self._mu:
            if self._live:
                self._loads[job] = found

    # ---- of vLLM's scheduler ---------------------------------------------------

    def taken(self, jobs: Iterable[Any]) -> None:
        """vLLM knows the end of these jobs. It can describe a block once it has found it in
        host memory, which is with its next step."""
        with self._mu:
            for job in jobs:
                self._loaded[-1] += self._loads.pop(job, ())

    @property
    def waits(self) -> bool:
        """Whether something is told after a further step."""
        return any(self._loaded)

    def end_step(self) -> None:
        with self._mu:
            ready, *rest = self._loaded
            self._loaded = [*rest, []]
            for space, key in ready:
                self._tell(self._held.get((space, digest(named(key)))))  # unless it has gone since

    def forgotten(self) -> None:
        """vLLM says that all blocks are gone. Those that it finds here again are told again."""
        with self._mu:
            self._told.clear()
            for held in self._held.values():
                held.told = held.waits = False

    def take(self) -> List[Any]:
        """As vLLM takes them, in order."""
        with self._mu:
            told, self._told = self._told, collections.deque()
        if not told:
            return []
        tier = self._tier
        fields = {"medium": tier.medium, "locality": tier.locality, "ownership": tier.tier_type, "removal_expected": True}
        return [
            OffloadingEvent(keys=[key for key, _ in run], removed=removed, **fields)
            for removed, run in itertools.groupby(told, lambda one: one[1])
        ]

    # ---- of the follower's thread ----------------------------------------------

    def _begun(self) -> None:
        with self._mu:
            self._live = True

    def _heard(self, events: Sequence[Event]) -> None:
        with self._mu:
            for event in events:
                if event.kind == CLEARED:
                    self._forget()
                held = self._held.get(event.name)
                if held is None:
                    continue
                if event.kind == STORED:
                    held.tiers |= event.tier
                    if held.waits:
                        self._tell(held)
                else:
                    held.tiers &= ~event.tier
                    if not held.tiers:
                        self._gone(self._held.pop(event.name))

    def _ended(self) -> None:
        with self._mu:
            self._live = False
            self._forget()

    def _forget(self) -> None:
        self._loads, self._loaded = {}, [[], []]  # the daemon need not have them any more
        while self._held:
            self._gone(self._held.popitem()[1])

    def _tell(self, held: "Optional[_Held]") -> None:
        if held is not None and not held.told and len(self._told) < _EVENT_KEYS:
            held.told, held.waits = True, False
            self._told.append((held.key, False))

    def _gone(self, held: "_Held") -> None:
        if held.told:
            self._told.append((held.key, True))


class _Held:
    """A block of this engine's in the daemon."""

    __slots__ = ("key", "tiers", "told", "waits")

    def __init__(self, key: Any, waits: bool) -> None:
        self.key, self.tiers, self.told = key, 0, False
        self.waits = waits  # for the daemon to say that it was stored
