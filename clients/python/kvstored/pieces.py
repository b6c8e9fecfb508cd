"""Prompts of any length, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional

from .prompt import Prompt
from .state import Reason

if TYPE_CHECKING:
    from .client import Client

#: Loads until all that was matched is there, or a chunk fails.
_WAIT_COMPLETE = 2
#: Where a piece ends: what copies of it take in this process.
_PIECE_BYTES = 64 << 20


class Piece(NamedTuple):
    """A run of chunks of a prompt, copied under a lease that held."""

    first: int  # number of its first chunk
    chunks: List[bytes]
    reason: int  # what ended it; behind OVER_BUDGET the prompt goes on in the next piece


def read(kv: "Client", prompt: Prompt, timeout: Optional[float] = None, **options: Any) -> Iterator[Piece]:
    """See :meth:`Client.pieces`."""
    options.setdefault("policy", _WAIT_COMPLETE)
    first = 0
    while True:
        piece = _piece(kv, prompt, first, timeout, options)
        yield piece
        if piece.reason != Reason.OVER_BUDGET or not piece.chunks:
            return
        first += len(piece.chunks)
        prompt = prompt._replace(skip=prompt.skip + len(piece.chunks))


def _piece(kv: "Client", prompt: Prompt, first: int, timeout: Optional[float], options: Any) -> Piece:
    """Copies what one lease holds, as it comes up, up to the end of a piece."""
    chunks: List[bytes] = []
    size = 0
    with kv.prefetch(prompt, timeout=timeout, **options) as job:
        while True:
            tokens = job.ready.tokens
            state = job.wait(tokens + 1, timeout)
            for i in range(len(chunks), state.ready.chunks):
                if size >= _PIECE_BYTES:
                    break
                chunks.append(bytes(job.block(i)))
                size += len(chunks[-1])
            full = len(chunks) < state.ready.chunks
            if full or state.done or state.ready.tokens == tokens:
                break
        reason = Reason.OVER_BUDGET if full else state.reason if state.done else Reason.DEADLINE
    if job.good:
        return Piece(first, chunks, reason)
    return Piece(first, [], job.reason if not chunks else Reason.REVOKED)

