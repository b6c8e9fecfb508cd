"""kvstored.llamacpp as the cache of a Llama, through the calls that llama-cpp-python makes."""


from kvstored.llamacpp import LlamaCache

from .llama_case import LlamaCase, clear, text
from .llama_engine import Llama


class Cache(LlamaCase):
    def setUp(self) -> None:
        self.daemon_ = self.daemon()
        self.kv = self.client(self.daemon_)
        self.llm = self.llama(n_batch=32)
        self.cache_ = self.cache(self.kv, self.llm)
        self.llm.set_cache(LlamaCache(self.cache_, self.llm))
        self.plain = Llama(self.model, n_ctx=2048, n_batch=32, n_threads=1)
        self.addCleanup(self.plain.close)

    def same(self, prompt: "list[int]", computed: int) -> None:
        """The answer is that of a Llama without a cache, and so much is computed."""
        clear(self.plain)
        want = self.plain.complete(prompt, 5)
        self.llm.decoded.clear()
        self.assertEqual(self.llm.complete(prompt, 5), want)
        self.assertEqual(sum(map(len, self.llm.decoded)), computed + 4)

    def test_a_conversation(self) -> None:
        prompt = text(1, 200)
        self.same(prompt, 200)
        self.same(prompt + text(2, 40), 40)  # the Llama has it itself
        self.same(text(3, 100), 100)
        self.same(prompt, 8)  # now only the cache has
        self.same(prompt[:100] + text(4, 60), 60)
        self.same(text(3, 96), 1)

    def test_after_a_restart_of_the_engine(self) -> None:
        prompt = text(5, 200)
        self.same(prompt, 200)
        self.llm = self.llama(n_batch=32)
        cache = self.cache(self.kv, self.llm)
        self.llm.set_cache(LlamaCache(cache, self.llm))
        self.same(prompt, 8)

    def test_without_a_daemon(self) -> None:
        prompt = text(6, 200)
        self.same(prompt, 200)
        self.daemon_.kill()
        self.same(text(7, 90), 90)
        self.same(prompt, 200)

    def test_images(self) -> None:
        """What a handler puts into the context has the ids of an earlier prompt."""
        earlier, image = text(9, 200), text(10, 90)
        self.llm.eval(earlier)
        clear(self.llm)
        self.llm.eval(earlier[:10])
        for i in range(0, 90, 30):
            self.llm._ctx.decode(image[i : i + 30], self.llm.n_tokens)
            self.llm.n_tokens += 30
        self.llm.chat_handler = object()
        with self.assertLogs("kvstored", "WARNING"):
            self.llm.set_cache(LlamaCache(self.cache_, self.llm))
        self.llm.complete(self.llm.input_ids[:100], 5)
        self.llm = self.llama(n_batch=32)
        self.llm.set_cache(LlamaCache(self.cache(self.kv, self.llm), self.llm))
        self.same(earlier, 200)

    def test_logits_of_all_tokens(self) -> None:
        prompt = text(11, 200)
        self.same(prompt, 200)
        clear(self.llm)
        self.llm._logits_all = True
        self.same(prompt, 200)

    def test_what_it_says(self) -> None:
        cache = LlamaCache(self.cache_, self.llm)
        prompt = text(8, 100)
        self.assertTrue(bool(cache))
        self.assertNotIn(prompt, cache)
        with self.assertRaises(KeyError):
            cache[prompt]
        self.llm.eval(prompt)
        cache[prompt] = None
        clear(self.llm)
        self.assertIn(prompt, cache)
        self.assertEqual(cache[prompt].input_ids.tolist(), prompt[:96])
        self.assertEqual((self.llm.n_tokens, self.llm._requires_eval), (96, True))
