"""kvstored.llamacpp over llama.cpp itself: chunks into a context and out of it."""

import sys
from unittest import mock

from kvstored import memory
from kvstored.errors import Code, Refused
from kvstored.llamacpp import Engine, PrefixCache

from .llama_case import LlamaCase, clear, evaluate, furthest, text
from .llama_engine import prefix


class Chunks(LlamaCase):
    def setUp(self) -> None:
        self.kv = self.client(self.daemon("64MiB"))

    def test_chunk_sizes(self) -> None:
        for chunk, count in ((1, 50), (2, 101), (16, 200), (32, 320), (100, 450), (256, 600), (512, 1100)):
            with self.subTest(chunk=chunk, count=count):
                llm = self.llama()
                cache, prompt = self.cache(self.kv, llm, chunk_tokens=chunk), text(chunk, count)
                clear(llm)
                self.assertEqual(cache.restore(prompt), 0)
                self.fill(llm, cache, prompt)
                self.check(llm, cache, prompt, min(count // chunk * chunk, count - 1))
                llm.close()

    def test_nothing_to_restore(self) -> None:
        llm = self.llama()
        cache = self.cache(self.kv, llm)
        for prompt in ([], text(4, 1), text(4, 31), text(4, 32)):
            clear(llm)
            evaluate(llm, prompt, 0, 32)
            self.assertEqual(cache.restore(prompt), 0)
            self.assertEqual(cache.store(prompt), 0)  # restore removed what it does not hold
        evaluate(llm, text(5, 64), 0, 32)
        self.assertEqual(cache.store(text(5, 64)), 64)
        self.assertEqual(cache.restore(text(5, 32)), 31)
        self.assertEqual(cache.restore([-1] + text(5, 64)), 0)  # an image has no ids

    def test_what_the_sequence_holds_stays(self) -> None:
        llm = self.llama()
        cache, prompt = self.cache(self.kv, llm), text(6, 300)
        self.fill(llm, cache, prompt)
        for have in (1, 31, 32, 100, 130, 256, 288, 299, 300):
            with self.subTest(have=have):
                clear(llm)
                evaluate(llm, prompt[:have] + text(7, 20), 0, 32)
                got = cache.restore(prompt, have=have)
                self.assertEqual(got, max(288, min(have, 299)))
                self.equal(llm, cache, prompt, got)
        clear(llm)
        evaluate(llm, prompt[:100], 0, 32)
        other = prompt[:100] + text(8, 100)
        self.assertEqual(cache.restore(other, have=100), 100)  # nothing longer is stored

    def test_no_more_is_claimed_than_the_sequence_holds(self) -> None:
        llm = self.llama()
        cache, prompt = self.cache(self.kv, llm), text(9, 128)
        evaluate(llm, prompt[:70], 0, 32)
        self.assertEqual(cache.store(prompt), 64)
        clear(llm)
        self.assertEqual(cache.store(prompt), 0)
        self.check(llm, cache, prompt, 64)

    def test_sequences_are_apart(self) -> None:
        """A restore and a store of one sequence leave the others as they are."""
        llm = self.llama(n_seq_max=4, kv_unified=True)
        cache, mine, theirs = self.cache(self.kv, llm), text(10, 100), text(11, 120)
        llm._ctx.decode(theirs, 0, seq=2)
        evaluate(llm, mine, 0, 32)
        sequences = cache._sequences
        size = sequences.size(2)
        before, after = bytearray(size), bytearray(size)
        self.assertTrue(sequences.write(2, memory.address(before), size))
        self.assertEqual(cache.store(mine), 96)
        self.assertEqual(cache.restore(mine, seq=3), 96)
        self.assertEqual(cache.restore(mine), 96)
        self.assertEqual([sequences.held(seq) for seq in range(4)], [96, 0, 120, 96])
        self.assertTrue(sequences.write(2, memory.address(after), size))
        self.assertEqual(before, after)

    def test_a_sequence_elsewhere_in_the_buffer(self) -> None:
        """Cells are where there is room. Their order changes sums in the last bits."""
        llm = self.llama(n_seq_max=4, kv_unified=True)
        cache, prompt = self.cache(self.kv, llm), text(12, 200)
        self.fill(llm, cache, prompt)
        llm._ctx.kv_cache_seq_rm(0, 32, 64)
        llm._ctx.decode(text(13, 10), 0, seq=1)  # between the others
        self.assertEqual(cache.restore(prompt), 192)
        got = self.answer(llm, prompt, 192, 32)
        want = self.uncached(prompt, 192, 32)
        self.assertLess(furthest(got.logits[0], want.logits[0]), 1e-3)

    def test_other_batches(self) -> None:
        """What llama.cpp computes depends a little on its batches; with flash
        attention, which is off here, up to a hundredth on a CPU. Counted apart."""
        rows, equal, most = 0, 0, 0.0
        for chunk in (1, 32, 100):
            llm, prompt = self.llama(flash_attn_type=0), text(14 + chunk, 350)
            cache = self.cache(self.kv, llm, chunk_tokens=chunk)
            self.fill(llm, cache, prompt)
            clear(llm)
            have = cache.restore(prompt)
            self.assertEqual(have, min(349, 350 // chunk * chunk))
            got = self.answer(llm, prompt, have, chunk)
            clear(llm)
            want = self.answer(llm, prompt, 0, 1 << 16)
            same = prefix(got.tokens, want.tokens) + 1  # rows behind another token are those of another text
            for a, b in list(zip(got.logits, want.logits))[:same]:
                rows, equal, most = rows + 1, equal + (a == b), max(most, furthest(a, b))
            llm.close()
        print(f"\nother batches: {rows} rows of logits, {equal} equal, the others within {most:.1e}", file=sys.stderr)
        self.assertLess(equal, rows)
        self.assertLess(most, 1e-3)

    def test_tokens_that_are_missing(self) -> None:
        """A sequence that lacks some in the middle is not stored, whichever chunk they are in."""
        llm, prompt = self.llama(), text(22, 200)
        for first, end in ((1, 2), (10, 20), (31, 32), (32, 64), (95, 100)):
            with self.subTest(first=first, end=end), self.assertLogs("kvstored", "WARNING"):
                cache = self.cache(self.kv, llm, namespace=f"{first} {end}")
                clear(llm)
                evaluate(llm, prompt, 0, 32)
                llm._ctx.kv_cache_seq_rm(0, first, end)
                self.assertEqual(cache.store(prompt), 0)
                clear(llm)
                self.assertEqual(cache.restore(prompt), 0)

    def test_the_buffer_is_full(self) -> None:
        large, small = self.llama(n_ctx=1024), self.llama(n_ctx=256, n_batch=64)
        prompt = text(15, 600)
        self.fill(large, self.cache(self.kv, large), prompt)
        cache = self.cache(self.kv, small)
        self.assertEqual(cache.restore(prompt), 256)
        self.assertEqual(cache._sequences.held(0), 256)
        self.check(small, cache, prompt[:250], 224)

    def test_separate_buffers_are_refused(self) -> None:
        llm = self.llama(n_seq_max=4, kv_unified=False)
        with self.assertRaisesRegex(ValueError, "set kv_unified to true"):
            self.cache(self.kv, llm)

    def test_sequences_that_are_not_the_callers(self) -> None:
        """llama.cpp would clear all, lose the cells, or end the process."""
        llm = self.llama(n_seq_max=4, kv_unified=True)
        evaluate(llm, text(19, 64), 0, 32)
        for spare in (-1, 256):
            with self.assertRaisesRegex(ValueError, "spare is"):
                self.cache(self.kv, llm, spare=spare)
        cache = self.cache(self.kv, llm, spare=3)
        for seq, why in ((-1, "sequences 0 to 3"), (4, "sequences 0 to 3"), (3, "which is the spare one")):
            with self.assertRaisesRegex(ValueError, why):
                cache.restore(text(19, 64), seq=seq)
            with self.assertRaisesRegex(ValueError, why):
                cache.store(text(19, 64), seq=seq)
        self.assertEqual(cache._sequences.held(0), 64)

    def test_refused(self) -> None:
        """What the daemon refuses, a user without rights for example, is a miss."""
        llm = self.llama()
        cache, prompt = self.cache(self.kv, llm), text(20, 100)
        self.fill(llm, cache, prompt)
        with self.assertLogs("kvstored", "WARNING") as said:
            with mock.patch.object(self.kv, "prefetch", side_effect=Refused("prefetch", Code.DENIED, "no right to read")):
                for _ in range(2):
                    clear(llm)
                    evaluate(llm, prompt[:64], 0, 32)
                    self.assertEqual(cache.restore(prompt, have=64), 64)
                    self.equal(llm, cache, prompt, 64)
            other = text(21, 100)
            clear(llm)
            evaluate(llm, other, 0, 32)
            with mock.patch.object(self.kv, "store", side_effect=Refused("reserve", Code.DENIED, "no right to write")):
                for _ in range(2):
                    self.assertEqual(cache.store(other), 0)
        self.assertEqual([r.getMessage().count("no right to") for r in said.records], [1, 1])
        self.assertEqual(cache._sequences.held(0), 100)
        self.assertEqual(cache.store(other), 96)

    def test_all_sequences_are_used(self) -> None:
        llm = self.llama(n_seq_max=256, kv_unified=True, n_ctx=1024, n_batch=256)
        with self.assertRaisesRegex(ValueError, "as spare"):
            self.cache(self.kv, llm)
        cache, prompt = self.cache(self.kv, llm, spare=255), text(16, 100)
        self.fill(llm, cache, prompt)
        clear(llm)
        self.assertEqual(cache.restore(prompt), 96)

    def test_arguments(self) -> None:
        llm = self.llama()
        engine = Engine.of(llm, llm.functions)
        for chunk in (0, -1, (1 << 16) + 1):
            with self.assertRaisesRegex(ValueError, "chunk_tokens"):
                PrefixCache(self.kv, engine, chunk_tokens=chunk)
        with self.assertRaisesRegex(ValueError, "files"):
            PrefixCache(self.kv, engine._replace(files=[]))
        functions = mock.Mock(wraps=llm.functions, llama_model_has_encoder=lambda _: True, __version__="1")
        with self.assertRaisesRegex(ValueError, "encoder"):
            PrefixCache(self.kv, engine._replace(functions=functions))

    def test_types_of_the_cache(self) -> None:
        for number in (0, 8, 30):  # f32, q8_0, bf16
            with self.subTest(type=number):
                llm = self.llama(type_k=number, type_v=number, flash_attn_type=1)
                cache, prompt = self.cache(self.kv, llm), text(17, 200)
                self.fill(llm, cache, prompt)
                clear(llm)
                have = cache.restore(prompt)
                self.assertEqual(have, 192)
                got = self.answer(llm, prompt, have, 32)
                clear(llm)
                evaluate(llm, prompt[:192], 0, 32)
                self.assertEqual(got, self.answer(llm, prompt, have, 32))

    def test_values_in_columns(self) -> None:
        """Without flash attention llama.cpp keeps values transposed."""
        llm = self.llama(flash_attn_type=0)
        cache, prompt = self.cache(self.kv, llm), text(18, 200)
        self.fill(llm, cache, prompt)
        clear(llm)
        self.assertEqual(cache.restore(prompt), 192)
        got = self.answer(llm, prompt, 192, 32)
        clear(llm)
        evaluate(llm, prompt[:192], 0, 32)
        self.assertEqual(got, self.answer(llm, prompt, 192, 32))
