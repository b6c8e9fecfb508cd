"""What is there of the groups of a hybrid model, asked for together."""

from __future__ import annotations

import time
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from . import hints, wire
from .client import Client
from .errors import Code, Error, Refused
from .job import Job
from .link import Link, Request
from .pages import Before, Pages
from .wire import Op

_UNKNOWN = Code.UNSUPPORTED, Code.UNKNOWN_OPTION


class Member(NamedTuple):
    """A group: its values, and what a prefix needs of it (see :class:`wire.Group`)."""

    pages: Pages
    kind: int = wire.FULL
    tokens: int = 0


class Found(NamedTuple):
    """How far the full groups reach, which groups lack something there, and at which
    lengths all can be used, the longest last; in values behind those that the keys
    follow. ``job`` leases what the last of these needs, if that was wanted."""

    run: int
    lacks: int
    ends: List[int]
    job: Optional[Job]


class Families:
    """Asks one engine's daemon. One that knows no groups is not asked again before
    there is a new connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._without: Optional[Link] = None  # a connection to a daemon that knows no groups

    def find(
        self,
        members: Sequence[Member],
        keys: Sequence[bytes],
        timeout: float,
        before: Before = None,
        configs: Sequence[Tuple[str, str]] = (),
        lease: bool = True,
    ) -> Optional[Found]:
        """One round trip. The first group is full. None where the daemon is to be asked
        in another way: it knows no groups, or not these together."""
        link, deadline = self._client._ready(), time.monotonic() + timeout
        if link is None or link is self._without or len(set(keys)) < len(keys):
            return None
        try:
            return self._find(link, members, keys, deadline, before, configs, lease)
        except Refused as e:
            if e.code in _UNKNOWN:
                self._without = link
            return None
        except Error:
            return Found(0, 0, [], None)

    def _find(
        self,
        link: Link,
        members: Sequence[Member],
        keys: Sequence[bytes],
        deadline: float,
        before: Before,
        configs: Sequence[Tuple[str, str]],
        lease: bool,
    ) -> Found:
        groups = [
            wire.Group(self._client._info(link, m.pages.space, deadline).handle, m.kind, m.tokens) for m in members
        ]
        first, most = members[0].pages, min(len(keys), wire.MAX_LENGTHS)
        chain, job = first._chain(link, keys, deadline, before), None
        if lease:
            body = wire.prefetch(
                chain, deadline_ms=int(hints.SECONDS * 1000), configs=configs, groups=groups, lengths=most
            )
            job = Job(link, self._client.timeout)
            link.call(Request(Op.PREFETCH, body, job._begin, Job._undo), deadline)
            match = hints.answered(job).match
        else:
            match = link.call(Request(Op.LOOKUP, wire.lookup(chain, groups=groups, lengths=most), wire.lookup_reply), deadline)
        return _found(match.grouped, first.space.chunk_tokens, len(before or ()), job)


def _found(grouped: Any, tokens: int, skip: int, job: Optional[Job]) -> Found:
    longest = grouped.tokens // tokens - skip
    lengths = [n // tokens - skip for n in reversed(grouped.lengths)]
    return Found(grouped.run // tokens - skip, grouped.lacks, lengths or [longest] * (longest > 0), job)
