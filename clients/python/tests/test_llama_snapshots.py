"""kvstored.llamacpp and models of which only whole sequences can be stored."""

import unittest
import unittest.mock
from typing import Any, List, Optional

import kvstored
from kvstored import Code, Job, Refused
from kvstored.llamacpp import LlamaCache, PrefixCache, chunks, snapshots
from llamacpp import model as llama_model

from .llama_case import Answer, LlamaCase, clear, evaluate, furthest, text
from .llama_engine import Llama


class Window(LlamaCase):
    """Layers that see 128 tokens."""

    shape = llama_model.WINDOW
    options: "dict[str, Any]" = {"swa_full": False, "flash_attn_type": 0}
    exact = False  # the cells of a window lie in another order when they were read

    def setUp(self) -> None:
        self.kv = self.client(self.daemon())
        self.llm = self.llama(**self.options)
        self.cache_ = self.cache(self.kv, self.llm, chunk_tokens=64)

    def uncached(self, prompt: Any, have: int, chunk: int, model: Any = None) -> Answer:
        with Llama(self.model, n_ctx=2048, n_batch=128, n_threads=1, **self.options) as llm:
            return self.answer(llm, prompt, 0, chunk)

    def equal(self, llm: Llama, cache: PrefixCache, prompt: Any, have: int, exact: Optional[bool] = None) -> None:
        if self.exact if exact is None else exact:
            super().equal(llm, cache, prompt, have)
            return
        llm.decoded.clear()
        got = self.answer(llm, prompt, have, cache.chunk_tokens)
        self.assertEqual(sum(map(len, llm.decoded)), len(prompt) - have + 4)
        self.assertLess(furthest(got.logits[0], self.uncached(prompt, have, cache.chunk_tokens).logits[0]), 1e-3)

    def fill_ends(self, prompt: List[int]) -> List[int]:
        """Computes a prompt, and stores where that can be done."""
        clear(self.llm)
        stored, at = [], 0
        while at < len(prompt):
            end = min(self.cache_.next_end(at), len(prompt))
            self.llm.eval(prompt[at:end])
            at = end
            if self.cache_.store(prompt[:at]) == at:
                stored.append(at)
        return stored

    def test_stored_and_restored(self) -> None:
        prompt = text(1, 500)
        self.assertTrue(self.cache_.whole)
        self.assertEqual(self.cache_.restore(prompt), 0)
        self.assertEqual(self.fill_ends(prompt), [64, 128, 192, 256, 320, 384, 448])
        self.check(self.llm, self.cache_, prompt, 448)
        self.check(self.llm, self.cache_, prompt[:448], 384)  # one token at least is left
        self.check(self.llm, self.cache_, prompt[:300] + text(2, 100), 256)
        self.check(self.llm, self.cache_, text(3, 200), 0)

    def test_one_question(self) -> None:
        """However many lengths there may be. One that is refused is a miss."""
        prompt, real = text(14, 500), kvstored.Client.prefetch
        self.fill_ends(prompt[:130])
        with unittest.mock.patch.object(kvstored.Client, "prefetch", autospec=True, side_effect=real) as asked:
            self.check(self.llm, self.cache_, prompt, 128)
            asked.assert_not_called()
        refused = Job(None, 1.0, error=Refused("batch", Code.BAD_REQUEST, "no"))
        with unittest.mock.patch.object(kvstored.Client, "batch", return_value=([refused], [0])):
            self.check(self.llm, self.cache_, prompt, 0)

    def test_only_at_ends_of_chunks(self) -> None:
        prompt = text(4, 200)
        evaluate(self.llm, prompt, 0, 64)
        self.assertEqual(self.cache_.store(prompt), 0)
        self.assertEqual(self.cache_.store(prompt[:192]), 0)  # the sequence is beyond it

    def test_what_the_sequence_holds_stays(self) -> None:
        prompt = text(5, 300)
        self.fill_ends(prompt)
        clear(self.llm)
        evaluate(self.llm, prompt[:280], 0, 64)
        self.assertEqual(self.cache_.restore(prompt, have=280), 280)
        self.equal(self.llm, self.cache_, prompt, 280)

    def test_separate_buffers(self) -> None:
        """What was written with one buffer is not tried, and lost for, one of two."""
        prompt = text(12, 200)
        self.fill_ends(prompt)
        two = self.llama(n_seq_max=2, kv_unified=False, **self.options)
        cache = self.cache(self.kv, two, chunk_tokens=64)
        evaluate(two, prompt[:20], 0, 64)
        self.assertEqual(cache.restore(prompt, have=20), 20)

    def test_back_to_where_the_window_is_lost(self) -> None:
        """A sequence cannot be cut to where it no longer has what came before."""
        prompt, other = text(6, 1200), text(7, 300)
        self.fill_ends(prompt[:200])
        clear(self.llm)
        evaluate(self.llm, prompt, 0, 64)
        mixed = prompt[:150] + other
        have = self.cache_.restore(mixed, have=150)
        self.assertIn(have, (128, 150))
        self.equal(self.llm, self.cache_, mixed, have, exact=False)

    def test_a_spoiled_snapshot(self) -> None:
        """The next shorter one is taken, and the context holds nothing of the first."""
        prompt, check = text(8, 200), chunks.checksum_at
        self.fill_ends(prompt)
        count = [0]

        def spoiled(*payload: int) -> Any:
            count[0] += 1
            return 0 if count[0] == 1 else check(*payload)

        with unittest.mock.patch.object(chunks, "checksum_at", spoiled):
            self.check(self.llm, self.cache_, prompt, 128)

    def test_as_the_cache_of_a_llama(self) -> None:
        """The last end of a chunk within a prompt is stored on the way."""
        llm, prompt = self.llm, text(9, 300)
        with Llama(self.model, n_ctx=2048, n_batch=64, n_threads=1, **self.options) as plain:
            want = plain.complete(prompt, 6)
            plain.reset()
            more = plain.complete(prompt + want + text(10, 50), 6)
        clear(llm)
        llm.n_batch = 64
        llm.set_cache(LlamaCache(self.cache_, llm))
        for _ in range(2):
            self.assertEqual(llm.complete(prompt, 6), want)
            self.assertEqual(llm.complete(prompt + want + text(10, 50), 6), more)
            clear(llm)
        self.assertEqual(self.cache_.restore(prompt), 256)

    def test_a_state_that_is_too_large(self) -> None:
        """It is not stored, which is said once."""
        prompt = text(13, 200)
        with unittest.mock.patch.object(type(self.kv), "hello", self.kv.hello._replace(max_payload=1000)):
            with self.assertLogs("kvstored", "WARNING") as said:
                self.assertEqual(self.fill_ends(prompt), [])
        self.assertEqual(len(said.records), 1)
        self.assertIn("1000 at most", said.output[0])
        self.assertEqual(self.fill_ends(prompt), [64, 128, 192])

    def test_names(self) -> None:
        tokens = text(11, 100)
        names = snapshots.digest(tokens, [10, 64, 100])
        self.assertEqual(len({*names, *snapshots.digest(tokens[1:], [10, 64, 99])}), 6)
        self.assertEqual(names[1:2], snapshots.digest(tokens[:64], [64]))
        self.assertEqual(snapshots.digest([1], [1])[0].hex(), "67abdd721024f0ff4e0b3f4c2fc13bc5")


class FullWindow(Window):
    """The same with a cache of full size for the window."""

    options = {"swa_full": True, "flash_attn_type": 0}
    exact = True


class Recurrent(Window):
    shape = llama_model.RECURRENT
    options = {}
    exact = True

    def test_what_the_sequence_holds_stays(self) -> None:
        """A recurrent state cannot go back, but it may go on."""
        super().test_what_the_sequence_holds_stays()
        prompt = text(5, 300)
        clear(self.llm)
        evaluate(self.llm, prompt[:290], 0, 64)
        self.assertEqual(self.cache_.restore(prompt, have=280), 256)
        self.equal(self.llm, self.cache_, prompt, 256)

    def test_back_to_where_the_window_is_lost(self) -> None:
        prompt = text(6, 300)
        evaluate(self.llm, prompt, 0, 64)
        self.assertEqual(self.cache_.restore(text(7, 100), have=0), 0)
        self.assertEqual(self.cache_._sequences.held(0), 0)
