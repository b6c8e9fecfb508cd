"""An engine that answers prompts: llama.cpp with a model of random weights, and a daemon
that may restart between two prompts."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from typing import List, NamedTuple, Sequence

import kvstored
from kvstored.llamacpp import Engine, PrefixCache

from . import library, model
from .context import Context, Model, greedy

_ATTACH_SECONDS = 30  # for a daemon that was restarted
_CALL_SECONDS = 60  # no restore is cut short, on a busy machine either


class Answer(NamedTuple):
    restored: int  # tokens
    seconds: float  # to the first token
    tokens: List[int]
    logits: str  # a hash of all that the tokens were chosen by


class Chat:
    """One context, emptied before each prompt."""

    def __init__(self, folder: str, socket: str, context: int, chunk: int, threads: int) -> None:
        self._functions = functions = library.library()
        self._path = model.make(os.path.join(folder, "random.gguf"), model.SMALL)
        params = functions.llama_context_default_params()
        # A batch is a chunk, so that a prompt is computed in the same batches whatever
        # of it was restored: logits depend on them in their last bits.
        params.n_ctx, params.n_batch, params.n_ubatch = context, chunk, chunk
        params.n_threads = params.n_threads_batch = threads
        self._model = Model(functions, self._path)
        self._context = Context(functions, self._model, params)
        self._kv = kvstored.Client(socket, timeout=_CALL_SECONDS)
        self._connections = threading.Semaphore(0)  # those that were made and not waited for
        self._kv.on_attach(lambda _: self._connections.release())
        self.attach()
        engine = Engine(functions, self._context.ctx, params, [self._path])
        self._cache = PrefixCache(self._kv, engine, chunk_tokens=chunk)
        self.library = f"llama.cpp {functions.__version__}"
        self.model_bytes, self.vocabulary = os.path.getsize(self._path), self._model.vocab

    def attach(self) -> None:
        """Waits for a further connection. To a client that has not read the end of the
        last one yet that one looks alive, and what is asked there is a miss."""
        if not self._connections.acquire(timeout=_ATTACH_SECONDS) or not self._kv.wait_attached(_ATTACH_SECONDS):
            raise TimeoutError(f"there was no connection to the daemon within {_ATTACH_SECONDS} s")

    def loaded(self) -> int:
        """Bytes that the daemon has loaded from disk since its start."""
        return int(self._kv.stats()["store"]["tiers"]["disk"]["get_bytes"])

    def answer(self, prompt: List[int], reply: int, restore: bool, store: bool) -> Answer:
        """``restore``: what is stored of the prompt is put into the empty context, and only
        the rest is computed. ``store``: what is missing of it is stored afterwards."""
        context = self._context
        context.kv_cache_clear()
        begun = time.perf_counter()
        restored = self._cache.restore(prompt) if restore else 0
        self._compute(prompt, restored)
        logits = [context.logits()]
        tokens = [greedy(logits[0])]
        first = time.perf_counter() - begun
        for at in range(len(prompt), len(prompt) + reply - 1):
            context.decode(tokens[-1:], at)
            logits.append(context.logits())
            tokens.append(greedy(logits[-1]))
        if store:
            self._cache.store(prompt)
        return Answer(restored, first, tokens, hashlib.sha256(b"".join(logits)).hexdigest())

    def _compute(self, prompt: Sequence[int], first: int) -> None:
        """Decodes what the context does not hold, in batches that end where chunks do."""
        while first < len(prompt):
            end = min(len(prompt), self._cache.next_end(first))
            self._context.decode(prompt[first:end], first)
            first = end
