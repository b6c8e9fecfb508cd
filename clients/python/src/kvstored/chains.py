"""What an engine has said of the order of its values: which follows which.

Engines name a value by a hash and hand over runs of them, often without the
beginning of the prompt. A chain is what a run was found to be the end of. It is a
claim: the daemon orders eviction and prefetch by it, and never which bytes it
returns.
"""

import collections
import hashlib
import threading
from typing import List, Optional, Sequence

from .prompt import Prompt, Space, hashes

#: Values of which the one before is remembered: 32 MiB of this process at most.
MOST = 1 << 17

_ROOT = b""


def digest(key: bytes) -> bytes:
    """What the daemon knows a value as."""
    return hashlib.sha256(key).digest()[:16]


def digests(keys: Sequence[bytes]) -> List[bytes]:
    return [hashlib.sha256(k).digest()[:16] for k in keys]


def chained(space: Space, keys: Sequence[bytes], before: Optional[Sequence[bytes]]) -> Prompt:
    """A run of values as the client names it: behind the chain ``before``; None: each stands alone."""
    names, skip = [*(before or ()), *digests(keys)], len(before or ())
    return hashes(b"".join(names), [space.chunk_tokens] * len(names), skip=skip, alone=before is None, space=space)


class Chains:
    """The value before each value, by digest. What was said first stays. Safe for threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._mu = threading.Lock()  # guards the field below
        self._before: "collections.OrderedDict[bytes, bytes]" = collections.OrderedDict()

    def knows(self, value: bytes) -> bool:
        """Whether it is known what a value follows."""
        with self._mu:
            return value in self._before

    def learn(self, run: Sequence[bytes], begins: bool) -> None:
        """Takes note of values that follow each other. ``begins``: with the first a
        prompt begins."""
        with self._mu:
            if begins and run:
                self._before.setdefault(run[0], _ROOT)
            for before, value in zip(run, run[1:]):
                self._before.setdefault(value, before)
            while len(self._before) > self._most:
                self._before.popitem(last=False)

    def before(self, run: Sequence[bytes]) -> Optional[List[bytes]]:
        """The chain from the start of the prompt up to a run. None where that is not
        known, or the run is known not to be one chain: then its values stand alone."""
        chain: List[bytes] = []
        with self._mu:
            known = self._before
            if not run or any(known.get(v) != u for u, v in zip(run, run[1:])):
                return None
            at, seen = known.get(run[0]), set(run)
            if len(seen) < len(run):
                return None
            while at:
                if at in seen:
                    return None  # what was said is a circle
                seen.add(at)
                chain.append(at)
                before = known.get(at)
                if before is not None:
                    known.move_to_end(at)
                at = before
        if at is None:
            return None
        chain.reverse()
        return chain

    def runs(self, run: Sequence[bytes]) -> List[range]:
        """The parts of a run within which each value is known to follow the one before."""
        with self._mu:
            cuts = [i for i in range(1, len(run)) if self._before.get(run[i]) != run[i - 1]]
        ends = [*cuts, len(run)]
        return [range(first, end) for first, end in zip([0, *cuts], ends) if end > first]
