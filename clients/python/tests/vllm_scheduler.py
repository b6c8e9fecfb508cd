"""A stand-in for the part of vLLM's scheduler that looks a prompt up in groups of layers.

As vLLM's: full groups from their start on, the others from the end down until as many
blocks as their window has are there in a row, again as long as one of them shortens what
another had found; a group with a draft model's layers must have one block more, which is
dropped. What is to be loaded later counts, and defers the request.
"""

import hashlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set


class Group(NamedTuple):
    """A group of layers. ``window``: chunks of it that must be there in a row, 0 for all.
    ``behind``: how many groups before it are not offloaded."""

    chunk: int  # tokens
    window: int = 0
    draft: bool = False
    behind: int = 0


class Prompt(NamedTuple):
    """``tokens`` of them, and the hash of each ``grain`` of them."""

    name: str
    tokens: int
    grain: int
    hashes: List[bytes]

    @classmethod
    def of(cls, blocks: Sequence[int], grain: int, tokens: int, salt: str = "") -> "Prompt":
        """Equal blocks at the start of two prompts have equal hashes."""
        hashes, last = [], salt.encode()
        for block in blocks:
            last = hashlib.sha256(last + block.to_bytes(8, "big")).digest()
            hashes.append(last)
        return cls(salt, tokens, grain, hashes)

    def keys(self, number: int, group: Group) -> List[bytes]:
        """Of each full chunk of a group."""
        step = group.chunk // self.grain
        ends = range(step - 1, self.tokens // self.grain, step)
        return [self.hashes[i] + (number + group.behind).to_bytes(4, "big") for i in ends]


class Answers(NamedTuple):
    HIT: Any
    HIT_PENDING: Any
    RETRY: Any
    MISS: Any


Ask = Callable[[bytes], Any]


class Scheduler:
    def __init__(self, groups: Sequence[Group], answers: Any, align: int = 0) -> None:
        """``align``: tokens of a recurrent state's block, where prefixes end with one."""
        self.groups, self.answers, self.align = list(groups), answers, align
        numbers = range(len(groups))
        self._full = [i for i in numbers if not groups[i].window]
        self._windows = sorted((i for i in numbers if groups[i].window), key=lambda i: -groups[i].window * groups[i].chunk)

    def positions(self, prompt: Prompt) -> Dict[bytes, int]:
        """At which token each chunk ends, as a request says it."""
        return {k: (n + 1) * g.chunk for i, g in enumerate(self.groups) for n, k in enumerate(prompt.keys(i, g))}

    def needs(self, prompt: Prompt, computed: int, n: int) -> List[bytes]:
        """What is loaded for a hit of n tokens, group by group."""
        keys: List[bytes] = []
        for i, g in enumerate(self.groups):
            there = prompt.keys(i, g)[computed // g.chunk : -(-n // g.chunk)]
            keys += there[-g.window :] if g.window else there
        return keys

    def lookup(self, prompt: Prompt, computed: int, ask: Ask) -> Optional[int]:
        """Tokens from the start of the prompt that are computed or can be loaded; None
        where the request is to be asked for again."""
        limit = prompt.tokens
        if self._windows:
            limit -= 1
            limit = limit // self.align * self.align if self.align else limit
        hit, defers, popped = 0, False, set()  # type: ignore[var-annotated]
        todo = [*self._full, *self._windows]
        while todo:
            now, todo, window_seen = todo, [], False
            for i in now:
                g, keys = self.groups[i], prompt.keys(i, self.groups[i])
                limit = min(limit, len(keys) * g.chunk)
                if limit - computed < g.chunk:
                    return computed
                found = self._group(i, keys, limit, computed, i not in popped, ask)
                if found == 0:
                    return computed
                if found is None:
                    defers = True
                else:
                    if g.draft and i not in popped:
                        popped.add(i)
                        found -= 1
                    limit = min(limit, (computed // g.chunk + found) * g.chunk)
                more = limit - computed
                if more < g.chunk:
                    return computed
                if more < hit:
                    if not g.draft:
                        popped.clear()
                    if defers:
                        defers, todo = False, [*self._full, *self._windows]
                    elif window_seen and not todo:
                        todo = self._windows
                window_seen = window_seen or bool(g.window)
                hit = more
        return None if defers else computed + hit

    def _group(self, i: int, keys: List[bytes], limit: int, computed: int, fresh: bool, ask: Ask) -> Optional[int]:
        """Up to which of its chunks behind those that are computed a group has what it
        needs; None if that is not known yet."""
        g = self.groups[i]
        extra = g.draft and fresh
        most = min(limit + g.chunk, len(keys) * g.chunk) if extra and g.window else limit
        keys = keys[computed // g.chunk : min(-(-most // g.chunk), len(keys))]
        return self._run(keys, g.window + extra, ask) if g.window else self._prefix(keys, ask)

    def _prefix(self, keys: List[bytes], ask: Ask) -> Optional[int]:
        n, defers = 0, False
        for key in keys:
            answer = ask(key)
            if answer == self.answers.MISS:
                break
            n += answer != self.answers.RETRY
            defers = defers or answer != self.answers.HIT
        return None if defers else n

    def _run(self, keys: List[bytes], window: int, ask: Ask) -> Optional[int]:
        run, defers = 0, False
        for at in range(len(keys) - 1, -1, -1):
            answer = ask(keys[at])
            defers = defers or answer in (self.answers.RETRY, self.answers.HIT_PENDING)
            run = run + 1 if answer in (self.answers.HIT, self.answers.HIT_PENDING) else 0
            if run == window:
                return None if defers else at + window
        return None if defers else run


PLAIN = Answers(True, "pending", "retry", False)


def best(scheduler: Scheduler, prompt: Prompt, computed: int, there: Set[bytes]) -> int:
    """The hit of a store that has so many keys in a set."""
    return Scheduler(scheduler.groups, PLAIN, scheduler.align).lookup(prompt, computed, lambda key: key in there) or computed


def deferred(scheduler: Scheduler, prompt: Prompt, computed: int, there: Set[bytes], ready: Set[bytes]) -> int:
    """The hit of such a store when only some of it is ready. vLLM's search begins anew with
    the full groups where a window shortens what waits for a block; what is less than
    a chunk of these is nothing then, where it would be a hit if no block was waited for."""

    def ask(key: bytes) -> Any:
        return key in ready or (PLAIN.HIT_PENDING if key in there else False)

    found = Scheduler(scheduler.groups, PLAIN, scheduler.align).lookup(prompt, computed, ask)
    return best(scheduler, prompt, computed, there) if found is None else found
