"""What a tier tells vLLM of itself: counters for its /metrics, and KV events."""

from __future__ import annotations

import collections
import inspect
import logging
import threading
from typing import Any, Deque, Dict, Iterable, List, Tuple

from . import engine

log = logging.getLogger("kvstored.vllm")

_METRICS = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics"
_EVENT_KEYS = 1 << 16  # kept, if nobody takes them

ConnectorStats: Any = engine.find(_METRICS, "OffloadingConnectorStats", newer=True)
CounterMetadata: Any = engine.find("vllm.v1.kv_offload.base", "OffloadingCounterMetadata", newer=True)
OffloadingEvent: Any = engine.find("vllm.v1.kv_offload.base", "OffloadingEvent", newer=True)

#: Name: (what it counts, its label).
COUNTERS: Dict[str, Tuple[str, str]] = {
    "lookups": ("Blocks that were asked of the kvstored daemon, each counted when it is answered.", "result"),
    "bytes": ("Bytes that were copied between host memory and the kvstored daemon.", "direction"),
    "failed_blocks": ("Blocks that the kvstored daemon refused, or could not bring in time.", "direction"),
    "reconnects": ("Connections to the kvstored daemon after the first.", ""),
}


def _name(counter: str) -> str:
    return f"vllm:kvstored_{counter}"


def definitions() -> Dict[str, Any]:
    """Of the counters, as vLLM takes them; empty for a version that takes none."""
    known = () if CounterMetadata is None else inspect.signature(CounterMetadata).parameters
    if CounterMetadata is None or "labelnames" not in known or "name" in known or not hasattr(ConnectorStats, "increase_counter"):
        return {}
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
        """As vLLM takes them, None where there are none or it takes none."""
        if not definitions():
            return None
        counts, stats = self.take(), ConnectorStats()
        for (counter, label), n in counts.items():
            stats.increase_counter(_name(counter), n, (label,) if label else ())
        return stats if counts else None

    def forked(self) -> None:
        self._lock = threading.Lock()


class Events:
    """Events about what the tier holds; those of removals are not told yet."""

    def __init__(self, tier: Any, wanted: bool, spec: Any) -> None:
        config = getattr(spec, "kv_events_config", None)
        self._tier = tier
        self._keys: Deque[Any] = collections.deque(maxlen=_EVENT_KEYS)
        self.enabled = bool(wanted and OffloadingEvent is not None and getattr(config, "enable_kv_cache_events", False))
        if wanted and not self.enabled:
            log.warning(
                "kvstored: enable_kv_events of the tier has no effect: %s",
                "vLLM's KV cache events are off" if OffloadingEvent is not None else "this vLLM takes none from tiers",
            )

    def stored(self, keys: Iterable[Any]) -> None:
        if self.enabled:
            self._keys.extend(keys)

    def take(self) -> List[Any]:
        keys = [self._keys.popleft() for _ in range(len(self._keys))]
        if not keys:
            return []
        known = inspect.signature(OffloadingEvent).parameters
        told = {"medium": self._tier.medium, "locality": self._tier.locality, "ownership": self._tier.tier_type}
        return [OffloadingEvent(keys=keys, removed=False, **{n: v for n, v in told.items() if n in known})]
