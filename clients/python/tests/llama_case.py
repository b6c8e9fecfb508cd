"""What tests of kvstored.llamacpp share: models, contexts, and answers to compare.

An answer is the tokens that follow a prompt and the logits that each was chosen
by, bit by bit. Prompts are decoded in batches that end where chunks do, so that a
run without a cache can decode in the same ones: logits depend on the batches.
"""

import array
import itertools
import os
import random
import tempfile
import unittest
from typing import Any, Callable, List, NamedTuple, Optional, Sequence
from unittest import mock

import kvstored
from kvstored.llamacpp import Engine, PrefixCache
from llamacpp import model as llama_model

from . import llama_library
from .daemon import Daemon, enter
from .llama_engine import Llama, greedy

BATCH = 128
VOCAB = 320


class Answer(NamedTuple):
    tokens: List[int]
    logits: List[bytes]


class LlamaCase(unittest.TestCase):
    """Tests with the library; skipped where it cannot be had, but not in CI."""

    shape = llama_model.TINY
    folder: str
    model: str

    @classmethod
    def setUpClass(cls) -> None:
        llama_library.need()
        folder = tempfile.TemporaryDirectory(prefix="kvstored-llama-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.model = llama_model.make(f"{cls.folder}/model.gguf", cls.shape)
        # Hashes of files are kept there.
        patch = mock.patch.dict(os.environ, {"XDG_CACHE_HOME": cls.folder})
        patch.start()
        cls.addClassCleanup(patch.stop)

    def daemon(self, *args: Any, **options: Any) -> Daemon:
        return enter(self, Daemon(*args, **options))

    def client(self, daemon: Daemon, timeout: float = 60) -> kvstored.Client:
        kv = enter(self, kvstored.Client(daemon.socket, timeout=timeout))
        self.assertTrue(kv.wait_attached(60))
        return kv

    def llama(self, path: Optional[str] = None, **params: Any) -> Llama:
        llm = Llama(path or self.model, n_threads=1, **{"n_ctx": 2048, "n_batch": BATCH, **params})
        self.addCleanup(llm.close)
        return llm

    def cache(self, kv: kvstored.Client, llm: Llama, **options: Any) -> PrefixCache:
        return PrefixCache(kv, Engine.of(llm, llm.functions), **{"chunk_tokens": 32, **options})

    # ---- answers -------------------------------------------------------------

    def answer(self, llm: Llama, prompt: Sequence[int], have: int, chunk: int, count: int = 4) -> Answer:
        """What follows a prompt of which the context holds ``have`` tokens."""
        evaluate(llm, prompt, have, chunk)
        tokens, logits = [], []
        for _ in range(count):
            logits.append(llm._ctx.logits())
            tokens.append(greedy(logits[-1]))
            llm.eval(tokens[-1:])
        return Answer(tokens, logits)

    def uncached(self, prompt: Sequence[int], have: int, chunk: int, model: Optional[str] = None) -> Answer:
        """What follows in a context of its own, in the same batches: those of whole
        chunks up to the last that was restored, and the rest behind ``have``."""
        with Llama(model or self.model, n_ctx=2048, n_batch=BATCH, n_threads=1) as llm:
            evaluate(llm, prompt[: -(-have // chunk) * chunk], 0, chunk)
            llm._ctx.kv_cache_seq_rm(0, have, -1)
            return self.answer(llm, prompt, have, chunk)

    def check(self, llm: Llama, cache: PrefixCache, prompt: Sequence[int], restored: int) -> None:
        """A prompt has that many tokens stored; what is computed is the rest and no
        more, and the answer is that of a run without a cache."""
        clear(llm)
        have = cache.restore(prompt)
        self.assertEqual(have, restored)
        self.equal(llm, cache, prompt, have)

    def equal(self, llm: Llama, cache: PrefixCache, prompt: Sequence[int], have: int) -> None:
        llm.decoded.clear()
        got = self.answer(llm, prompt, have, cache.chunk_tokens)
        self.assertEqual(sum(map(len, llm.decoded)), len(prompt) - have + 4)
        self.assertEqual(got, self.uncached(prompt, have, cache.chunk_tokens, llm.model_path))

    def fill(self, llm: Llama, cache: PrefixCache, prompt: Sequence[int]) -> None:
        """Computes a prompt and stores it."""
        clear(llm)
        evaluate(llm, prompt, 0, cache.chunk_tokens)
        stored = len(prompt) // cache.chunk_tokens * cache.chunk_tokens
        self.assertEqual(cache.store(prompt), stored)


def called(cls: Any, name: str, times: int, then: Callable[[], None]) -> Any:
    """Meanwhile ``then`` is called after so many calls of a method."""
    method, count = getattr(cls, name), itertools.count(1)

    def counted(self: Any, *args: Any) -> Any:
        result = method(self, *args)
        if next(count) == times:
            then()
        return result

    return mock.patch.object(cls, name, counted)


def evaluate(llm: Llama, prompt: Sequence[int], have: int, chunk: int) -> None:
    """Decodes what the context does not hold, in batches that end where chunks do."""
    llm.n_tokens, at = have, have
    llm.input_ids[:have] = prompt[:have]
    while at < len(prompt):
        start = at // chunk * chunk
        within = (at - start) // llm.n_batch * llm.n_batch + llm.n_batch
        end = min(len(prompt), start + min(chunk, within))
        llm.eval(prompt[at:end])
        at = end


def clear(llm: Llama) -> None:
    llm._ctx.kv_cache_clear()
    llm.reset()


def text(seed: int, count: int) -> List[int]:
    """Tokens of a prompt."""
    return random.Random(seed).choices(range(3, VOCAB), k=count)


def furthest(a: bytes, b: bytes) -> float:
    """The largest difference between two rows of logits."""
    return max(abs(x - y) for x, y in zip(array.array("f", a), array.array("f", b)))
