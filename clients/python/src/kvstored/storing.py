"""One call that stores values: as many at a time as there is room for."""

import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .answers import THERE, Grant
from .chains import chained, digests
from .client import Client
from .errors import NO_ROOM, DeadlineExceeded, Refused
from .existing import Existing
from .fill import Commits, Fill
from .hints import Hints
from .places import Host, Place, size_of

_STORES = 256  # values of one reservation


class Storing:
    """What of some values is still to be stored."""

    def __init__(
        self,
        client: Client,
        hints: Hints,
        existing: Existing,
        keys: Sequence[bytes],
        places: Sequence[Place],
        before: Optional[Sequence[bytes]],
        patient: bool,
        max_age: float,
        dropped: Callable[[], bool],
        compare: bool,
        same: Optional[Dict[bytes, bool]],
        memory: Host,
    ) -> None:
        self._memory = memory
        self._client, self._hints, self._existing = client, hints, existing
        self._patient, self._max_age, self._dropped = patient, max_age, dropped
        self._compare, self._same = compare, same
        self._chain = None if before is None or len(set(keys)) < len(keys) else [*before, *digests(keys)]
        self._number = {k: len(before or ()) + i for i, k in enumerate(keys)}  # in the chain
        self._todo = {k: p for k, p in zip(keys, places) if self._fits(p)}
        if len(self._todo) < len(self._number):
            self._chain = None  # it would have a hole

    def _fits(self, place: Place) -> bool:
        hello = self._client.hello
        return hello is not None and 0 < size_of(place) <= hello.max_payload

    def run(self, deadline: float) -> Dict[bytes, bool]:
        """Stores what there is room for, and returns which values are there."""
        commits, parts = Commits(), []
        while self._todo and time.monotonic() < deadline and not self._dropped():
            link = self._client._ready()
            if link is None or link.staging is None:
                break
            window = self._window(link.staging.size // 4)  # two threads store two at the same time
            part, crowded = self._store(commits, window, deadline)
            if len(part.fill):
                parts.append(part)
            elif commits:
                commits.finish(deadline)  # they may have the room
            elif not crowded:
                break
            elif not self._hints.drop():
                del self._todo[window[0][0]]  # there is no room for this one, or better use
            for key, _ in window[: len(part.fill)]:
                del self._todo[key]
        commits.finish(deadline)
        if self._dropped():  # sums may be those of other bytes
            return {}
        there: Dict[bytes, bool] = {}
        for part in parts:
            there.update(part.there(self._existing, self._same is None))
        return there

    def _window(self, room: int) -> List[Tuple[bytes, Place]]:
        """The first that fit the room, and one at least."""
        window: List[Tuple[bytes, Place]] = []
        for key, place in self._todo.items():
            room -= size_of(place)
            if len(window) == _STORES or (window and room < 0):
                break
            window.append((key, place))
        return window

    def _store(
        self, commits: Commits, window: Sequence[Tuple[bytes, Place]], deadline: float
    ) -> Tuple["_Part", bool]:
        """Stores a leading run; and whether more room would have made it longer."""
        left = deadline - time.monotonic()
        sizes, sums = [size_of(p) for _, p in window], self._existing.sums([p for _, p in window], self._compare)
        keys = [k for k, _ in window]
        before = None if self._chain is None else self._chain[: self._number[keys[0]]]
        try:
            fill = self._client.reserve(
                chained(self._existing.space, keys, before), sizes=sizes, wait=left / 2 if self._patient else 0.0,  # half is left for the copies
                sums=sums, max_age=self._max_age, timeout=left,
            )  # fmt: skip
        except Refused as e:
            fill = Fill(None, left, error=e)
        part = _Part(window, sizes, fill)
        if self._same is not None:
            self._same.update((keys[i], i not in fill.differ) for i, _ in sums if i < len(fill) and fill.slots[i].grant == Grant.EXISTS)
        if fill.error is not None:
            return part, isinstance(fill.error, Refused) and fill.error.code in NO_ROOM

        def write(begin: int, end: int) -> None:
            self._memory.gather([(to, window[i][1]) for i, to, _ in fill.granted(begin, end)], deadline)
            if time.monotonic() >= deadline or self._dropped():  # the places, and the slots in the end, may be somebody else's
                raise DeadlineExceeded("storing")

        try:
            commits.write(fill, write, deadline, at_once=True)
        except DeadlineExceeded:
            pass  # nothing begins any more
        return part, fill.reason in NO_ROOM


class _Part(NamedTuple):
    """Values that were reserved together: the first of window, as many as the fill has."""

    window: Sequence[Tuple[bytes, Place]]
    sizes: Sequence[int]
    fill: Fill

    def there(self, existing: Existing, says: bool) -> Dict[bytes, bool]:
        """Which of them are there, once all is committed. ``says``: so does the log where bytes are others."""
        results = self.fill.results or [None] * len(self.fill)
        return {
            key: exists or slot.grant == Grant.PENDING or (r is not None and r.result in THERE)
            for (key, _), exists, slot, r in zip(
                self.window, existing.stored(self.fill, self.sizes, says), self.fill.slots, results
            )
        }
