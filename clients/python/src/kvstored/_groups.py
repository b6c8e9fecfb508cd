"""Groups of layers of a hybrid model: what a prefix needs of each, and one question about all.

The daemon finds the longest prefix that all groups can serve, and leases and brings up
what that needs and nothing else.
"""

import re
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from . import _wire as wire, hints, options
from .chains import chained
from .client import Asking, Client
from .errors import Refused
from .job import Job
from .pages import Before
from .prefill import Prefill, Said
from .prompt import Prompt, Space

MOST_GROUPS = 64  # of a model
_KINDS = "full", "window", "local", "state"


class Kind(NamedTuple):
    """What a prefix needs of a group: all chunks, those of a window of ``tokens`` at its
    end, or the state there."""

    kind: int
    tokens: int = 0

    def __str__(self) -> str:
        return f"{_KINDS[self.kind]} {self.tokens}" if self.tokens else _KINDS[self.kind]

    def window(self, chunk: int) -> int:
        """How many chunks of so many tokens a prefix needs at its end; 0 for all."""
        return 1 if self.kind == wire.GROUP_KINDS_STATE else -(-self.tokens // chunk)

    def needs(self, chunk: int, skip: int, n: int) -> Tuple[int, int]:
        """Which chunks a prefix of n needs, of which the first ``skip`` are there already."""
        window = self.window(chunk)
        return max(n - window if window else 0, skip), n


FULL = Kind(wire.GROUP_KINDS_FULL)
STATE = Kind(wire.GROUP_KINDS_STATE)


def option(owner: str) -> options.Option:
    """What a user writes: a kind for each group, in the order of the engine."""
    allowed = f'a list of "full", "window N", "local N" (N tokens) or "state", one for each group of {owner}'
    return options.Option(None, allowed, lambda v: v is None or _list(v))


def _list(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= MOST_GROUPS and all(_parsed(kind) is not None for kind in value)


def _parsed(text: Any) -> Optional[Kind]:
    found = re.fullmatch(r"(full|state)|(?:window|local) ([1-9][0-9]{0,8})", text) if isinstance(text, str) else None
    if found is None:
        return None
    # Engines ask for chunked attention as for a window: for as many blocks in a row.
    return {"full": FULL, "state": STATE}.get(found[1]) or Kind(wire.GROUP_KINDS_WINDOW, int(found[2]))


def given(value: Optional[Sequence[str]]) -> List[Optional[Kind]]:
    """The kinds that the user gave."""
    return [_parsed(text) for text in value or ()]


class Member(NamedTuple):
    """A group of a question."""

    space: Space
    kind: Kind = FULL


def ask(
    client: Client, prompts: Sequence[Prompt], prefill: Prefill, timeout: float, members: Sequence[Member] = (),
    requests: Sequence[Any] = (), ranks: Sequence[Space] = (), seconds: float = 0.0,
    alone: bool = False, shared: bool = False, patient: bool = True,
) -> Asking:  # fmt: skip
    """Asks for a job for each prompt, which leases what its longest usable prefix needs. The first of the groups ``members`` is full; ``requests`` are named to the daemon,
    ``ranks`` has the spaces of further ranks: of each all groups. ``seconds``: that what is
    below DRAM may take to come up, where that is not as usual. ``alone`` and the rest: see
    :meth:`Client.ask`."""
    say = prefill.says()
    return client.ask(
        prompts, lookup_ids=[str(request)[:256] for request in requests], load_deadline=seconds or hints.SECONDS, ranks=ranks,
        groups=[(space, kind.kind, kind.tokens) for space, kind in members], configs=say.configs, prefill_rate=say.prefill_rate,
        alone=alone, shared=shared, patient=patient, timeout=timeout,
    )  # fmt: skip


class Found(NamedTuple):
    """How far the full groups reach, a bit for each group that lacks something there, and
    at which lengths all can be used, the longest last: in values behind those that the
    keys follow. ``job`` leases what is worth loading, as far as ``worth``."""

    run: int = 0
    lacks: int = 0
    ends: Sequence[int] = ()
    worth: int = 0
    job: Optional[Job] = None


def find(
    client: Client, members: Sequence[Member], keys: Sequence[bytes], timeout: float, before: Before, say: Said, up: float = hints.SECONDS
) -> Found:
    """All usable lengths of a run of distinct keys, in one round trip. Nothing is there
    where the daemon is away or late; what it refuses is raised. ``up``: seconds that what
    lies below DRAM has to come up."""
    if not keys:
        return Found()
    tokens, skip = members[0].space.chunk_tokens, len(before or ())
    job = client.prefetch(
        chained(members[0].space, keys, before),
        load_deadline=up,
        configs=say.configs,
        prefill_rate=say.prefill_rate,
        groups=[(space, kind.kind, kind.tokens) for space, kind in members],
        lengths=min(len(keys), wire.MOST_LENGTHS),
        timeout=timeout,
    )
    if isinstance(job.error, Refused):
        raise job.error.fresh()
    grouped = hints.answered(job).match.grouped
    if grouped is None:
        return Found()
    longest = grouped.tokens // tokens - skip
    ends = [n // tokens - skip for n in reversed(grouped.lengths)] or [longest] * (longest > 0)
    return Found(grouped.run // tokens - skip, grouped.lacks, ends, job.worth.tokens // tokens, job)
