"""kvstored.llamacpp while chunks are on disk or in a bucket, and while the daemon,
its memory or its disk fails."""

import multiprocessing
import os
from pathlib import Path
from typing import Any, List, Tuple
from unittest import mock

import kvstored
from kvstored.llamacpp import Engine, PrefixCache, chunks
from kvstored.llamacpp.context import Apart, Loading

from . import bucket, llama_library
from .daemon import Daemon, until
from .llama_case import LlamaCase, called, clear, evaluate, text
from .llama_engine import Llama


class Tiers(LlamaCase):
    def setUp(self) -> None:
        self.llm = self.llama()

    def on(self, daemon: Daemon, **options: Any) -> PrefixCache:
        return self.cache(self.client(daemon), self.llm, **options)

    def start_again(self, daemon: Daemon, cache: PrefixCache) -> None:
        """Returns when all that is on disk can be found."""
        daemon.again()
        self.assertTrue(cache.client.wait_attached(60))
        until(lambda: (stats := cache.client.stats()) and not stats["store"]["recovering"])

    def stored(self, cache: PrefixCache, prompt: List[int], i: int) -> Tuple[int, bytes]:
        """Where in the arena chunk i of a prompt lies, and its bytes."""
        with cache.client.prefetch(kvstored.tokens(prompt, space=cache.space)) as job:
            job.wait(timeout=60)
            return job.ref(i).offset, bytes(job.block(i))

    def test_only_in_the_bucket(self) -> None:
        with mock.patch.dict(os.environ, bucket.ENVIRONMENT), bucket.Bucket(0.03) as remote:
            prompt = text(2, 300)
            self.check(self.llm, self.on_another_machine(remote, prompt), prompt, 288)

    def on_another_machine(self, remote: bucket.Bucket, prompt: List[int]) -> PrefixCache:
        """Stores a prompt into a bucket, and starts a second daemon on it."""
        first, probe = self.on(self.daemon(more=remote.config)), text(20, 40)
        self.fill(self.llm, first, prompt)
        self.fill(self.llm, first, probe)
        until(lambda: first.client.flush(timeout=60) and len(remote.objects) >= 10)
        self.second = self.daemon(more=remote.config)
        second = self.on(self.second)
        until(lambda: clear(self.llm) or second.restore(probe) == 32)  # it is connected
        return second

    def test_deadline(self) -> None:
        """What comes in time counts; the rest is computed."""
        with mock.patch.dict(os.environ, bucket.ENVIRONMENT), bucket.Bucket() as remote:
            prompt = text(3, 300)
            second = self.on_another_machine(remote, prompt)
            remote.delay = 300.0
            clear(self.llm)
            have = second.restore(prompt, timeout=0.3)
            self.assertLess(have, 288)
            self.equal(self.llm, second, prompt, have)

    def test_killed_while_chunks_are_on_their_way(self) -> None:
        """A lost job ends the restore; it is not asked again and again until the deadline."""
        with mock.patch.dict(os.environ, bucket.ENVIRONMENT), bucket.Bucket() as remote:
            prompt = text(16, 300)
            cache = self.on_another_machine(remote, prompt)
            clear(self.llm)
            self.assertEqual(cache.restore(prompt[:97]), 96)
            remote.delay = 300.0
            clear(self.llm)
            job = mock.patch.object(kvstored.Job, "wait", autospec=True, side_effect=kvstored.Job.wait)
            with called(Loading, "add", 3, self.second.kill), job as wait:
                self.assertEqual(cache.restore(prompt, timeout=60), 96)
            self.assertLess(wait.call_count, 100)
            self.equal(self.llm, cache, prompt, 96)

    def test_nothing_is_slower_than_computing(self) -> None:
        """What an engine computes sooner than the disk delivers is not loaded."""
        daemon = self.daemon("64MiB", "1GiB")
        cache, measured, prompt = self.on(daemon), text(13, 300), text(14, 300)
        self.fill(self.llm, cache, measured)
        self.fill(self.llm, cache, prompt)
        self.assertTrue(cache.client.flush(durable=True, timeout=60))
        daemon.stop()
        self.start_again(daemon, cache)
        self.check(self.llm, cache, measured, 288)  # the daemon knows now what its disk takes
        fast = self.cache(cache.client, self.llm, prefill_rate=1 << 31)
        self.check(self.llm, fast, prompt, 0)
        self.check(self.llm, cache, prompt, 288)

    def test_stopped_daemon(self) -> None:
        daemon = self.daemon()
        cache, prompt = self.on(daemon), text(4, 300)
        self.fill(self.llm, cache, prompt)
        clear(self.llm)
        evaluate(self.llm, prompt[:40], 0, 32)
        daemon.pause()
        try:
            self.assertEqual(cache.restore(prompt, have=40, timeout=0.2), 40)
            self.equal(self.llm, cache, prompt, 40)
        finally:
            daemon.resume()
        until(cache.client.ping)
        self.check(self.llm, cache, prompt, 288)

    def test_a_store_waits_once_for_a_stopped_daemon(self) -> None:
        daemon = self.daemon()
        cache = self.cache(self.client(daemon, timeout=0.5), self.llm)
        evaluate(self.llm, text(15, 300), 0, 32)
        daemon.pause()
        try:
            with mock.patch.object(cache.client, "store", wraps=cache.client.store) as store:
                self.assertEqual(cache.store(text(15, 300), wait=0.1), 0)
        finally:
            daemon.resume()
        self.assertLess(store.call_args.kwargs["timeout"], 0.5)  # the lookup took its part

    def test_killed_in_the_middle_of_a_restore(self) -> None:
        """The chunks that were read are right, whatever became of their lease."""
        for after in (1, 4, 9):
            with self.subTest(after=after):
                daemon = self.daemon("64MiB", "1GiB")
                cache, prompt = self.on(daemon), text(5, 300)
                self.fill(self.llm, cache, prompt)
                self.assertTrue(cache.client.flush(durable=True, timeout=60))
                clear(self.llm)
                with called(Loading, "add", after, daemon.kill):
                    have = cache.restore(prompt)
                self.assertGreaterEqual(have, 32 * after)
                self.equal(self.llm, cache, prompt, have)
                self.start_again(daemon, cache)
                self.check(self.llm, cache, prompt, 288)

    def test_killed_in_the_middle_of_a_store(self) -> None:
        daemon = self.daemon("64MiB", "1GiB")
        cache, prompt = self.on(daemon), text(6, 300)
        evaluate(self.llm, prompt, 0, 32)
        before = self.llm._ctx.logits()
        with called(Apart, "write", 4, daemon.kill):
            self.assertEqual(cache.store(prompt), 0)
        self.assertEqual(cache._sequences.held(0), 300)  # the context is as it was
        self.assertEqual(before, self.uncached(prompt, 0, 32).logits[0])
        self.llm._ctx.kv_cache_seq_rm(0, 299, -1)
        self.llm._ctx.decode(prompt[299:], 299)
        self.assertEqual(self.llm._ctx.logits(), self.uncached(prompt, 299, 32).logits[0])
        self.start_again(daemon, cache)
        clear(self.llm)
        self.assertEqual(cache.restore(prompt), 0)  # nothing was committed
        self.fill(self.llm, cache, prompt)
        self.check(self.llm, cache, prompt, 288)

    def test_a_corrupt_chunk_in_memory(self) -> None:
        """It is found before llama.cpp reads it."""
        daemon = self.daemon()
        cache, prompt = self.on(daemon), text(7, 300)
        self.fill(self.llm, cache, prompt)
        first, payload = self.stored(cache, prompt, 3)
        at, original = first + len(payload) // 2, payload[len(payload) // 2]
        poke(daemon, at, original ^ 1)
        self.check(self.llm, cache, prompt, 96)
        poke(daemon, at, original)
        self.check(self.llm, cache, prompt, 288)

    def test_memory_reused_under_a_lost_lease(self) -> None:
        """What the daemon's memory held is compared again where it does not confirm
        the lease: a chunk that was another's meanwhile leaves the context."""
        daemon = self.daemon()
        cache, prompt = self.on(daemon), text(8, 300)
        self.fill(self.llm, cache, prompt)
        at, payload = self.stored(cache, prompt, 2)

        def reused() -> None:
            poke(daemon, at, payload[0] ^ 0xFF)
            daemon.kill()

        clear(self.llm)
        with called(Loading, "add", 6, reused):
            have = cache.restore(prompt)
        self.assertEqual(have, 64)
        self.equal(self.llm, cache, prompt, have)

    def test_without_checksums_the_lease_decides(self) -> None:
        daemon = self.daemon()
        cache, prompt = self.on(daemon), text(9, 300)
        self.fill(self.llm, cache, prompt)
        with mock.patch.object(chunks, "checksum_at", None):
            self.check(self.llm, cache, prompt, 288)
            clear(self.llm)
            with called(Loading, "add", 6, daemon.kill):
                self.assertEqual(cache.restore(prompt), 0)

    def test_a_corrupt_disk(self) -> None:
        daemon = self.daemon("64MiB", "1GiB")
        cache, prompt = self.on(daemon), text(10, 300)
        self.fill(self.llm, cache, prompt)
        clear(self.llm)
        evaluate(self.llm, prompt, 0, 32)
        _, payload = self.stored(cache, prompt, 4)
        self.assertTrue(cache.client.flush(durable=True, timeout=60))
        daemon.stop()
        self.assertEqual(spoil(Path(daemon.dir, "disk"), payload), 1)
        self.start_again(daemon, cache)
        self.check(self.llm, cache, prompt, 128)

    def test_two_processes_at_a_time(self) -> None:
        """Both compute and store the same prompts in another order, and restore what the other one has."""
        daemon, prompts = self.daemon(), [text(30, 200), text(30, 200) + text(31, 100), text(32, 250)]
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(2)
        ways = ([0, 1, 2, 0, 1, 2], [2, 1, 0, 2, 1, 0])
        others = [
            context.Process(target=talk, args=(daemon.socket, self.model, self.folder, [prompts[i] for i in way], barrier)) for way in ways
        ]
        for other in others:
            other.start()
        for other in others:
            other.join(120)
        self.assertEqual([other.exitcode for other in others], [0, 0])
        cache = self.on(daemon)
        for prompt in prompts:
            self.check(self.llm, cache, prompt, len(prompt) // 32 * 32)


def talk(socket: str, model: str, folder: str, prompts: List[List[int]], barrier: Any) -> None:
    """Another process: restores, computes and stores prompts, and compares the logits with those of all computed."""
    os.environ["XDG_CACHE_HOME"] = folder
    with Llama(model, n_ctx=1024, n_batch=64, n_threads=1) as llm, kvstored.Client(socket, timeout=60) as kv:
        assert kv.wait_attached(60)
        cache = PrefixCache(kv, Engine.of(llm, llama_library.library()), chunk_tokens=32, store_wait=60)
        for prompt in prompts:
            clear(llm)
            evaluate(llm, prompt, 0, 32)
            want = llm._ctx.logits()
            clear(llm)
            barrier.wait(60)
            have = cache.restore(prompt)
            evaluate(llm, prompt, have, 32)
            assert llm._ctx.logits() == want, have
            assert cache.store(prompt) == len(prompt) // 32 * 32


def poke(daemon: Daemon, offset: int, value: int) -> None:
    """Writes one byte of the daemon's arena."""
    pid = daemon.process.pid
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        place, _, first, _, _, *name = line.split()
        start, end = (int(x, 16) for x in place.split("-"))
        at = start + offset - int(first, 16)
        if "kvstored-arena" in "".join(name) and start <= at < end:
            with open(f"/proc/{pid}/mem", "r+b", buffering=0) as mem:
                mem.seek(at)
                mem.write(bytes([value]))
            return
    raise AssertionError(f"no memory of the daemon has byte {offset} of its arena")


def spoil(folder: Path, payload: bytes) -> int:
    """Changes a byte of a payload wherever it lies in the files of a folder; how often."""
    found = 0
    for path in folder.rglob("*"):
        if path.is_file():
            raw = path.read_bytes()
            at = raw.find(payload)
            if at >= 0:
                with open(path, "r+b") as f:
                    f.seek(at + len(payload) // 2)
                    f.write(bytes([payload[len(payload) // 2] ^ 1]))
                found += 1
    return found
