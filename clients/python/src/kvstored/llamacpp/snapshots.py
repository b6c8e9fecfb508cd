"""States of whole sequences, for models of which no range can be taken out.

One is stored under the hash of all its tokens, and stands alone: those of a prompt
that are there have nothing to do with each other. To the daemon they are the states of
a model that has no other group: one request finds the longest of a prompt, and brings up
that one and no other.
"""

import array
import hashlib
import logging
import sys
import time
from typing import List, Sequence, Tuple

from .. import _wire as wire, memory
from ..client import Client
from ..errors import Refused
from ..answers import THERE, Result
from ..job import Job
from ..prompt import Prompt, Space, hashes
from .chunks import WAIT_COMPLETE, Reading
from .context import Sequences

log = logging.getLogger("kvstored")

#: Results of what is there, or comes from another.
COMING = (*THERE, Result.PENDING)


class Sizes:
    """What a daemon takes as one payload."""

    def __init__(self, client: Client) -> None:
        self._client, self._told = client, False

    def fits(self, what: str, size: int, advice: str) -> bool:
        """Whether so many bytes can be stored. What is too large is logged once."""
        hello = self._client.hello
        if hello is None or size <= 0:
            return False
        if size > hello.max_payload and not self._told:
            self._told = True
            log.warning("kvstored: %s takes %d bytes, and the daemon takes %d at most: not stored; %s", what, size, hello.max_payload, advice)
        return size <= hello.max_payload


class Snapshots:
    """The snapshots of one model."""

    def __init__(self, client: Client, space: Space, sequences: Sequences, sizes: "Sizes") -> None:
        self._client, self._space, self._sequences, self._sizes = client, space, sequences, sizes

    def restore(self, tokens: Sequence[int], seq: int, have: int, limit: int, deadline: float) -> int:
        """Makes a sequence that holds ``have`` tokens the longest snapshot of no more
        than ``limit``, if one is longer. How many tokens it holds then."""
        n = self._space.chunk_tokens
        names = digest(tokens, range(n, limit + 1, n))
        while len(names) > have // n and time.monotonic() < deadline:
            job, count = self._ask(names, have // n, deadline)
            if not count:
                job.release_soon()
                break
            read = self._read(Reading(job), seq, count, deadline)
            if read is not None:
                return read
            del names[count // n - 1 :]
        return self._sequences.cut(seq, have)

    def _ask(self, names: Sequence[bytes], skip: int, deadline: float) -> Tuple[Job, int]:
        """A job with the longest snapshot behind so many, and how many tokens that has."""
        left = deadline - time.monotonic()
        chain = hashes(b"".join(names), [self._space.chunk_tokens] * len(names), skip=skip, space=self._space)
        ((job,), _) = self._client.batch(
            [chain], policy=WAIT_COMPLETE, load_deadline=left, groups=[(self._space, wire.GROUP_KINDS_STATE, 0)], timeout=left
        )
        if isinstance(job.error, Refused):
            raise job.error
        job.wait(timeout=deadline - time.monotonic())
        return job, job.state.ready.tokens and skip * self._space.chunk_tokens + job.state.ready.tokens

    def _read(self, reading: Reading, seq: int, count: int, deadline: float) -> "int | None":
        """Reads the snapshot of a job; None where it did not come, and nothing changed."""
        found, done = reading.payload(0, 0) if len(reading.job) else None, False
        try:
            if found is not None:
                done = self._sequences.read(seq, found.address, found.size, count)
        finally:
            wrong = reading.end(max(0.05, deadline - time.monotonic()))
            if wrong is not None:
                self._sequences.cut(seq, 0)
        if found is None:
            return None
        return count if done and wrong is None else 0

    def store(self, tokens: Sequence[int], seq: int, wait: float) -> bool:
        """Stores a sequence that holds exactly these tokens; whether it is there then."""
        name = digest(tokens, [len(tokens)])[0]
        size = self._sequences.size(seq)
        if not self._sizes.fits(f"the state of {len(tokens)} tokens", size, "of this model only shorter prompts are stored"):
            return False
        with self._client.reserve(self._prompt(name), size=size, wait=wait, timeout=self._client.timeout + wait) as fill:
            for slot in fill:
                if not self._sequences.write(seq, memory.address(slot.memory), size):
                    fill.abort()
                    return False
        return any(r.result in COMING for r in fill.results) or any(s.memory is None for s in fill.slots)

    def _prompt(self, name: bytes) -> Prompt:
        return hashes(name, [self._space.chunk_tokens], alone=True, space=self._space)


def digest(tokens: Sequence[int], ends: Sequence[int]) -> List[bytes]:
    """Names of the prefixes of these lengths, in rising order: the first 16 bytes of
    the SHA-256 of their token ids, 32 bits each, little endian."""
    total, names, first = hashlib.sha256(), [], 0
    for end in ends:
        part = array.array("I", tokens[first:end])
        if sys.byteorder == "big":
            part.byteswap()
        total.update(part.tobytes())
        names.append(total.copy().digest()[:16])
        first = end
    return names
