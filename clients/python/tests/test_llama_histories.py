"""Random conversations with llama.cpp: they go on, branch, are edited in the middle
and broken off, two models that differ in one weight share a daemon, and the daemon
is killed. Every answer is that of a run without a cache, bit by bit.

All is decoded in batches that end where chunks do, and only what was decoded so is
stored: then a run without a cache decodes in the same batches, whatever was stored.

``KVSTORED_CONVERSATIONS``: how many; ``KVSTORED_SEED``: which.
"""

import os
import random
import sys
from collections import Counter
from typing import Any, List

from kvstored.llamacpp import PrefixCache
from kvstored.llamacpp.context import Apart, Loading
from llamacpp import model as llama_model

from .daemon import Daemon
from .llama_case import VOCAB, LlamaCase, called, clear, evaluate
from .llama_engine import Llama, prefix

CHUNK = 32
MOST_TOKENS = 700
ANSWER = 3


class BrokenOff(Exception):
    """Somebody does not want the answer any more."""


class Speaker:
    """A model, with a cache and without."""

    def __init__(self, cached: Llama, plain: Llama, cache: PrefixCache) -> None:
        self.cached, self.plain, self.cache = cached, plain, cache
        self.context: List[int] = []  # what the context holds that was decoded as whole chunks


class Histories(LlamaCase):
    def setUp(self) -> None:
        self.seed = int(os.environ.get("KVSTORED_SEED") or random.randrange(1 << 32))
        self.random = random.Random(self.seed)
        self.count: "Counter[str]" = Counter()
        self.daemon_: Daemon = self.daemon("16MiB", "256MiB")
        self.kv = self.client(self.daemon_, timeout=60)
        other = llama_model.change_one_weight(self.model, f"{self.folder}/other.gguf")
        self.speakers = [self.speaker(path) for path in (self.model, other)]
        self.prompts: List[List[int]] = [self.tokens(150)]

    def speaker(self, path: str) -> Speaker:
        llm = self.llama(path)
        return Speaker(llm, self.llama(path), self.cache(self.kv, llm, chunk_tokens=CHUNK, timeout=60, store_wait=0.5))

    def tokens(self, most: int) -> List[int]:
        return self.random.choices(range(3, VOCAB), k=self.random.randint(1, most))

    def test_conversations(self) -> None:
        conversations = int(os.environ.get("KVSTORED_CONVERSATIONS") or 60)
        for _ in range(conversations):
            speaker, prompt = self.random.choice(self.speakers), self.beginning()
            for _ in range(self.random.randint(1, 4)):
                prompt += self.tokens(80)
                if len(prompt) > MOST_TOKENS:
                    break
                prompt += self.turn(speaker, prompt)
                self.prompts.append(list(prompt))
            del self.prompts[:-100]
        print(f"\nseed {self.seed}, {conversations} conversations: {dict(sorted(self.count.items()))}", file=sys.stderr)
        self.assertGreater(self.count["tokens restored"], 0)

    def beginning(self) -> List[int]:
        """A new prompt, the start of an earlier one, or one that was edited."""
        earlier = list(self.random.choice(self.prompts))
        kind = self.random.choice(("new", "branch", "goes on", "edited"))
        self.count[kind] += 1
        at = self.random.randrange(len(earlier))
        if kind == "new":
            return []
        if kind == "branch":
            return earlier[:at]
        if kind == "edited":
            earlier[at : at + self.random.randint(0, 8)] = self.tokens(8)
        return earlier

    def turn(self, s: Speaker, prompt: List[int]) -> List[int]:
        """One answer, compared; what was computed for it is stored."""
        self.count["turns"] += 1
        have = self.restored(s, prompt)
        if self.random.random() < 0.1:
            self.count["broken off"] += 1
            stop = max(have, self.random.randint(0, len(prompt)) // CHUNK * CHUNK)
            evaluate(s.cached, prompt[:stop], have, CHUNK)
            self.stored(s, prompt[:stop], have)
            return []
        got = self.answer(s.cached, prompt, have, CHUNK, ANSWER)
        clear(s.plain)
        evaluate(s.plain, prompt[: -(-have // CHUNK) * CHUNK], 0, CHUNK)
        s.plain._ctx.kv_cache_seq_rm(0, have, -1)
        want = self.answer(s.plain, prompt, have, CHUNK, ANSWER)
        self.assertEqual(got, want, f"seed {self.seed}, {dict(self.count)}: {len(prompt)} tokens, {have} restored")
        self.count["tokens restored"] += have
        self.count["tokens computed"] += len(prompt) - have
        self.stored(s, prompt, have)
        return got.tokens

    def restored(self, s: Speaker, prompt: List[int]) -> int:
        """Restores a prompt into a context that is empty, or holds some of it."""
        have = min(prefix(s.context, prompt), len(prompt) - 1)
        if self.random.random() < 0.5:
            clear(s.cached)
            have = 0
        s.context = []
        try:
            with self.trouble(Loading, "add"):
                return s.cache.restore(prompt, have=have // CHUNK * CHUNK)
        except BrokenOff:
            self.count["restores broken off"] += 1
            held = s.cache._sequences.held(0)
            self.assertEqual(held % CHUNK, 0)
            return s.cache._sequences.cut(0, min(held, len(prompt) - 1))
        finally:
            self.up()

    def stored(self, s: Speaker, prompt: List[int], have: int) -> None:
        """Stores all whole chunks but one of which only the last token was decoded."""
        whole = (have if have % CHUNK else len(prompt)) // CHUNK * CHUNK
        s.context = prompt[:whole]
        before = s.cache._sequences.held(0)
        try:
            with self.trouble(Apart, "write"):
                s.cache.store(prompt[:whole])
        except BrokenOff:
            self.count["stores broken off"] += 1
        finally:
            self.up()
        self.assertEqual(s.cache._sequences.held(0), before)

    def trouble(self, cls: Any, name: str) -> Any:
        """Now and then a kill or a break after some chunks."""
        what = self.random.choices((lambda: None, self.kill, self.break_off), (94, 3, 3))[0]
        return called(cls, name, self.random.randint(1, 4), what)

    def kill(self) -> None:
        self.count["kills"] += 1
        self.daemon_.kill()

    def break_off(self) -> None:
        raise BrokenOff

    def up(self) -> None:
        """Starts the daemon again where it was killed."""
        if self.daemon_.process.poll() is not None:
            self.daemon_.again()
            self.assertTrue(self.kv.wait_attached(60))
