"""kvstored for llama.cpp: a prompt's KV, chunk by chunk into its context and out of it.

    import kvstored, llama_cpp
    from kvstored.llamacpp import LlamaCache, PrefixCache

    kv = kvstored.Client()
    llm = llama_cpp.Llama("model.gguf", n_ctx=8192)
    cache = PrefixCache(kv, llm)             # reads the whole file the first time
    llm.set_cache(LlamaCache(cache, llm))    # or, by hand:
    n = cache.restore(tokens)                # tokens[:n] are in the context: decode the rest
    cache.store(tokens)                      # what of it the daemon does not have

Nothing is copied but by llama.cpp, from the daemon's memory and into it. Whatever
goes wrong is a shorter prefix: decode what is not there.
"""

import array
import logging
import time
from typing import Any, List, Optional, Sequence, Set, Tuple

from .. import memory
from ..client import Client
from ..errors import Refused
from ..prompt import Space, tokens as chunks_of
from . import files
from .chunks import Restore, Verifier
from .context import Apart, Sequences
from .snapshots import COMING, Sizes, Snapshots
from .space import ControlVector, Engine, Lora, fingerprint

__all__ = ["ControlVector", "Engine", "LlamaCache", "Lora", "PrefixCache"]

log = logging.getLogger("kvstored")



class _Unlike(Exception):
    """A chunk took another number of bytes than the first one did."""


class PrefixCache:
    """The stored prefixes of one model, for one context of llama.cpp.

    It belongs to the thread that decodes: no call may run while llama.cpp computes
    on the context, nor two at a time. The client may be shared.

    Of recurrent models, and of those with layers that see a window, no range of
    tokens can be taken out. Of them the state of a whole sequence is stored, where
    it ends at the end of a chunk: see :meth:`next_end`.
    """

    def __init__(
        self,
        client: Client,
        llm: Any,
        *,
        chunk_tokens: int = 256,
        timeout: Optional[float] = None,
        store_wait: float = 0.1,
        prefill_rate: int = 0,
        namespace: str = "",
        salt: str = "",
        spare: Optional[int] = None,
    ) -> None:
        """``llm``: llama-cpp-python's ``Llama``, or an :class:`Engine`.
        ``chunk_tokens``: all that share must have the same. ``timeout`` (seconds) bounds
        a restore, the client's if there is none; ``store_wait`` is what a store may wait
        for room. With ``prefill_rate``, the tokens that this engine computes a second,
        the daemon loads no more than is sooner there than computed. ``namespace`` keeps
        chunks apart, ``salt`` does so secretly. ``spare``: a sequence that is never
        used, see :class:`Sequences`.

        Reads all bytes of the model's files, once: a GB takes a second or two."""
        if not 1 <= chunk_tokens <= 1 << 16:
            raise ValueError(f"chunk_tokens is {chunk_tokens}: it must be from 1 to {1 << 16}")
        engine: Engine = llm if isinstance(llm, Engine) else Engine.of(llm)
        self._sequences = Sequences(engine.functions, engine.ctx, spare)
        found = fingerprint(engine, self._sequences, chunk_tokens, namespace, salt)
        self.client, self.chunk_tokens = client, chunk_tokens
        #: What chunks are shared with: all engines whose space is equal.
        self.space: Space = found.space
        self._files, self._stale = found.files, False
        self._timeout, self._store_wait, self._prefill_rate = timeout, store_wait, prefill_rate
        self._verifier, self._sizes = Verifier(), Sizes(client)
        self._chunk_bytes = 0  # of every chunk; 0: not known yet
        self._told: Set[Tuple[str, int]] = set()  # refusals that were logged
        self._snapshots = Snapshots(client, self.space, self._sequences, self._sizes) if self._sequences.whole else None

    @property
    def whole(self) -> bool:
        """Whether only whole sequences can be stored."""
        return self._sequences.whole

    def next_end(self, count: int) -> int:
        """The end of the chunk that token number ``count`` is in. Where only whole
        sequences can be stored, decode up to there and call :meth:`store`."""
        return (count // self.chunk_tokens + 1) * self.chunk_tokens

    def restore(self, tokens: Sequence[int], *, seq: int = 0, have: int = 0, timeout: Optional[float] = None) -> int:
        """Makes a sequence the longest stored prefix of a prompt, and returns how many
        tokens that is: never all of them, as the last has to be decoded for its
        logits. Each chunk is in the context as soon as it has come and is verified.

        ``have``: how many leading tokens the sequence holds already; they stay, unless
        a chunk took their place and was found to be wrong afterwards. What the sequence
        holds beyond the tokens that are returned is removed."""
        self._sequences.check(seq)
        tokens = _known(tokens)
        limit = max(0, len(tokens) - 1)
        have = self._sequences.cut(seq, min(have, limit))
        if not self._good() or self.next_end(have) > len(tokens):
            return have
        seconds = self.client.timeout if self._timeout is None else self._timeout
        deadline = time.monotonic() + (seconds if timeout is None else timeout)
        try:
            if self._snapshots is not None:
                return self._snapshots.restore(tokens, seq, have, limit, deadline)
            with self._sequences.loading(seq, have) as loading:
                Restore(self.client, self.space, loading, self._prefill_rate, self._verifier).run(tokens, deadline)
        except Refused as e:
            self._tell(e)
        return self._sequences.cut(seq, limit)

    def store(self, tokens: Sequence[int], *, seq: int = 0, wait: Optional[float] = None) -> int:
        """Stores what the daemon does not have of a prompt, of whose tokens the sequence
        holds the first or all. Whole chunks only; returns how many leading tokens are
        stored then. That the sequence holds the KV of these tokens, computed as the
        start of a prompt, is the caller's word: do not store after a context shift."""
        self._sequences.check(seq)
        tokens = _known(tokens)[: self._sequences.held(seq)]
        count = len(tokens) // self.chunk_tokens
        if not count or not self._good():
            return 0
        try:
            return self._stored(tokens, count, seq, self._store_wait if wait is None else wait)
        except Refused as e:
            self._tell(e)
            return 0

    def _stored(self, tokens: "array.array[int]", count: int, seq: int, wait: float) -> int:
        """Stores what is missing of so many chunks; how many tokens are there then."""
        if self._snapshots is not None:
            whole = len(tokens) == self._sequences.held(seq) == count * self.chunk_tokens
            return len(tokens) if whole and self._snapshots.store(tokens, seq, wait) else 0
        prompt = chunks_of(tokens[: count * self.chunk_tokens], space=self.space)
        deadline = time.monotonic() + self.client.timeout + wait  # of both questions together
        there = self.client.lookup(prompt).total.chunks
        if there >= count:
            return count * self.chunk_tokens
        with self._sequences.apart(seq) as apart:
            there += self._store(prompt, apart, there, count, wait, deadline)
        return there * self.chunk_tokens

    def _store(self, prompt: Any, apart: Apart, first: int, count: int, wait: float, deadline: float) -> int:
        """Stores chunks from the first that is missing on; how many are there then."""
        n = self.chunk_tokens
        if not self._chunk_bytes:
            self._chunk_bytes = apart.size(first * n, (first + 1) * n)
        if not self._chunk_bytes:
            log.warning("kvstored: the sequence lacks some of the tokens %d to %d: not stored", first * n, (first + 1) * n)
        if not self._sizes.fits(f"a chunk of {n} tokens", self._chunk_bytes, "take fewer chunk_tokens"):
            return 0

        def write(i: int, room: memoryview) -> None:
            if not apart.write(i * n, (i + 1) * n, memory.address(room), len(room)):
                raise _Unlike(f"tokens {i * n} to {(i + 1) * n}")

        sizes, left = [self._chunk_bytes] * (count - first), max(0.05, deadline - time.monotonic())
        try:
            results = self.client.store(prompt, sizes, write, first=first, wait=wait, timeout=left)
        except _Unlike as e:
            log.warning("kvstored: %s take another number of bytes than %d of this context: not stored", e, self._chunk_bytes)
            self._chunk_bytes = 0
            return 0
        return next((i for i, r in enumerate(results) if r.result not in COMING), len(results))

    def _tell(self, refused: Refused) -> None:
        """Logs a refusal the first time. For the engine it is a miss."""
        if (refused.op, refused.code) not in self._told:
            self._told.add((refused.op, refused.code))
            log.warning("kvstored: %s (a miss, as long as that is so; it is said once)", refused)

    def _good(self) -> bool:
        """Whether the model's files are those that were read."""
        if self._files and not files.unchanged(self._files):
            log.warning("kvstored: files of the model have changed: nothing is stored or restored until a new PrefixCache is made")
            self._files, self._stale = (), True
        return not self._stale


class LlamaCache:
    """A :class:`PrefixCache` as what ``Llama.set_cache`` takes.

    A lookup restores by itself, straight into the context, and tells the ``Llama``
    which tokens are there, as if they had been evaluated; so no state is handed
    over. What was evaluated is stored after each completion. Before that the
    ``Llama`` copies its whole state for the cache, as it does for any; only a call
    of :meth:`PrefixCache.store` instead of this class spares it that.

    A ``Llama`` with a ``chat_handler`` is left alone: where a handler put an image,
    ``input_ids`` has what was there before. One with ``logits_all`` has nothing
    restored: the logits of those tokens would be missing."""

    def __init__(self, cache: PrefixCache, llm: Any) -> None:
        self.cache, self._llm = cache, llm
        why = self._not_restored()
        if why:
            log.warning("kvstored: %s: no completion of this Llama finds its prompt", why)

    def _has_images(self) -> bool:
        """Whether ids may not say what is in the context."""
        return getattr(self._llm, "chat_handler", None) is not None

    def _not_restored(self) -> str:
        """Why nothing is restored, if that is so."""
        if self._has_images():
            return "a chat_handler puts images where input_ids has other tokens"
        if getattr(self._llm, "_logits_all", False):
            return "logits_all wants logits of all tokens, and restored ones have none"
        return ""

    def __getitem__(self, key: Sequence[int]) -> "Restored":
        """Called with a prompt, before it is evaluated. KeyError: nothing was there."""
        llm, tokens = self._llm, list(key)
        why = self._not_restored()
        if why:
            raise KeyError(why)
        have = _same(_listed(llm.input_ids[: llm.n_tokens]), tokens)
        count = self.cache.restore(tokens, have=have)
        if count != llm.n_tokens or count != have:
            llm._requires_eval = True
        llm.input_ids[:count] = tokens[:count]
        llm.n_tokens = count
        if self.cache.whole:
            self._to_the_last_end(tokens)
        if count <= have:
            raise KeyError(f"no more than {have} tokens of this prompt are stored")
        return Restored(Ids(tokens[:count]))

    def _to_the_last_end(self, tokens: List[int]) -> None:
        """Evaluates a prompt up to the end of its last whole chunk, and stores that:
        what the ``Llama`` would evaluate next anyway."""
        llm = self._llm
        end = (len(tokens) - 1) // self.cache.chunk_tokens * self.cache.chunk_tokens
        if end > llm.n_tokens:
            llm.eval(tokens[llm.n_tokens : end])
            self.cache.store(tokens[:end])

    def __setitem__(self, key: Sequence[int], value: Any) -> None:
        """Called after a completion, with its tokens; the state is of no use here."""
        llm = self._llm
        if not self._has_images():
            self.cache.store(llm.input_ids[: llm.n_tokens])

    def __contains__(self, key: Sequence[int]) -> bool:
        prompt = chunks_of(_known(key), space=self.cache.space)
        return not self.cache.whole and self.cache.client.lookup(prompt).total.chunks > 0


class Ids(List[int]):
    """Token ids that can be asked for as a list, as an array can."""

    def tolist(self) -> List[int]:
        return list(self)


class Restored:
    """What a lookup answers to a ``Llama``: the tokens that are in its context."""

    def __init__(self, input_ids: Ids) -> None:
        self.input_ids = input_ids


def _known(tokens: Any) -> "array.array[int]":
    """Token ids up to the first that is none: images and sounds have places in a
    prompt, and no ids that say what they are. A ValueError where one is no id."""
    ids = _listed(tokens)
    try:
        return array.array("I", ids)
    except OverflowError:
        end = next((i for i, t in enumerate(ids) if t < 0), None)
    if end is None:
        raise ValueError(f"{max(ids)} is no id of a token: it has more than 32 bits")
    return _known(ids[:end])


def _listed(tokens: Any) -> List[int]:
    """Token ids of a list or an array."""
    return tokens.tolist() if hasattr(tokens, "tolist") else list(tokens)


def _same(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens two prompts share."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
