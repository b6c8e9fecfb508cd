"""What is there of several spaces, asked for together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence

from .client import Client
from .errors import DeadlineExceeded, Disconnected, Error
from .link import Link, Request

if TYPE_CHECKING:
    from .pages import Pages

WINDOW = 512  # requests on their way at once


class Question(NamedTuple):
    """About values of one space: which of them are there from the first on, or,
    with ``each``, which wherever they are."""

    pages: "Pages"
    keys: Sequence[bytes]
    each: bool = False
    before: Optional[Sequence[bytes]] = None  # the chain that the keys follow; not with each

    def _runs(self) -> List[Sequence[bytes]]:
        """An answer is how long a run is from its start."""
        distinct = list(dict.fromkeys(self.keys))
        return [[k] for k in distinct] if self.each else [distinct] * bool(distinct)


def ask(client: Client, questions: Sequence[Question], timeout: float) -> List[List[bool]]:
    """Which of the keys of each question are there. All questions go out together,
    and nothing is leased. Where the daemon is away or late, nothing is there."""
    link, deadline = client._ready(), time.monotonic() + timeout
    found: List[Dict[bytes, bool]] = [{} for _ in questions]
    asked = [(q, run, there) for q, there in zip(questions, found) for run in q._runs()]
    try:
        while link is not None and asked:
            now, asked = asked[:WINDOW], asked[WINDOW:]
            requests = [q.pages.lookup(link, run, deadline, q.before) for q, run, _ in now]
            for (_, run, there), match in zip(now, answers(link, requests, deadline)):
                if match is not None:
                    there.update(dict.fromkeys(run[: match.total.chunks], True))
    except Error:
        pass  # a space could not be opened
    return [_leading(q, there) for q, there in zip(questions, found)]


def _leading(question: Question, found: Dict[bytes, bool]) -> List[bool]:
    there = [k in found for k in question.keys]
    if question.each or all(there):
        return there
    run = there.index(False)
    return [True] * run + [False] * (len(there) - run)


def answers(link: Link, requests: Sequence[Request], deadline: float) -> List[Any]:
    """The values of the replies, None for those that were refused or are late."""
    values: List[Any] = []
    try:
        calls = link.start(requests, deadline)
    except Error:
        return [None] * len(requests)
    for i, call in enumerate(calls):
        try:
            values.append(link.wait(call, deadline))
        except (DeadlineExceeded, Disconnected):
            values += [None] * (len(calls) - i)
            for late in calls[i + 1 :]:
                link.abandon(late)
            break
        except Error:
            values.append(None)
    return values
