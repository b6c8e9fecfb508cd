"""KvstoredLinker against a live daemon, with the pools and transfers of an SGLang that is
installed: full, window and state pools on CPU tensors, as SGLang's wrapper calls it."""

import random
import time
import unittest
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Sequence
from unittest import mock

from kvstored import _wire as wire
from kvstored.client import Client
from kvstored.errors import Refused
from kvstored.sglang import linker
from kvstored.sglang.linker import KvstoredLinker

from .daemon import Daemon, Served, leases_stay, until
from .frames import counted
from .sglang_pools import chain

try:
    import torch
    from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
except ImportError:
    torch = None

PAGE, PAGES, LAYERS = 4, 64, 3
WINDOW = 2  # pages
NOWHERE = "/nowhere/s"


class MHATokenToKVPool:
    """Named as SGLang's, of which only these fields are read."""

    k_scale_buffer = native_k_scale_buffer = None

    def __init__(self, layers: int = LAYERS, dim: int = 8, dtype: Any = None, device: str = "cpu") -> None:
        self.layer_num, self.start_layer, self.end_layer = layers, 0, layers
        self.dtype = dtype or torch.bfloat16
        self.k_buffer, self.v_buffer = ([torch.zeros(PAGES * PAGE, 2, dim, dtype=self.dtype, device=device) for _ in range(layers)] for _ in range(2))


class MLATokenToKVPool:
    def __init__(self) -> None:
        self.layer_num, self.start_layer, self.end_layer, self.dtype = LAYERS, 0, LAYERS, torch.bfloat16
        self.kv_buffer = [torch.zeros(PAGES * PAGE, 1, 24, dtype=self.dtype) for _ in range(LAYERS)]


class SWAKVPool:
    def __init__(self) -> None:
        self.full_kv_pool, self.swa_kv_pool = MHATokenToKVPool(1), MHATokenToKVPool(2, 4)
        self.layers_mapping = {0: (0, True), 1: (0, False), 2: (1, True)}
        self.start_layer, self.end_layer, self.dtype = 0, LAYERS, torch.bfloat16


def params(kvcache: Any, **more: Any) -> Any:
    fields = dict(
        page_size=PAGE, token_to_kv_pool_allocator=SimpleNamespace(get_kvcache=lambda: kvcache), req_to_token_pool=SimpleNamespace(),
        tp_cache_group=None, attn_tp_cache_group=None, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
        sidecar_draft_device_pools=(), mtp_draft_device_pools=(),
    )  # fmt: skip
    return SimpleNamespace(**{**fields, **more})


def slots(pages: Sequence[int]) -> Any:
    return torch.tensor([p * PAGE + t for p in pages for t in range(PAGE)], dtype=torch.int64)


@unittest.skipIf(torch is None or linker.DevicePoolGroup is None, "SGLang is not on the path")
class Linked(Served):
    dram = "128MiB"

    def linker(self, kvcache: Any, name: str = "model", socket: Optional[str] = None, more: Optional[Dict[str, Any]] = None, **extra: Any) -> KvstoredLinker:
        made = KvstoredLinker(
            SimpleNamespace(model_path=f"{self.id()} {name}"),
            params(kvcache, **more or {}),
            components={ComponentType.FULL},
            extra_config={"socket": socket or self.daemon.socket, "lookup_timeout": 30, "timeout": 60, **extra},
        )
        self.addCleanup(made.close)
        return made

    # ---- what SGLang's wrapper does ------------------------------------------------

    def transfers(self, keys: List[str], pages: Optional[Sequence[int]] = None, window: Optional[Sequence[int]] = None, sides: bool = False) -> List[Any]:
        """Of a whole tail; ``window``: pages of the window pool for its last keys."""
        made = [PoolTransfer(name=PoolName.KV, keys=list(keys), device_indices=None if pages is None else slots(pages))]
        if sides or window is not None:
            last = keys[-WINDOW:] if window is None else keys[len(keys) - len(window) :]
            indices = None if window is None else slots(window)
            made.append(PoolTransfer(name=PoolName.SWA, keys=list(last), device_indices=indices, hit_policy=PoolHitPolicy.TRAILING_PAGES))
        return made

    def offloaded(self, target: KvstoredLinker, transfers: List[Any]) -> bool:
        self.assertTrue(target.offload(transfers))
        return self.popped(target)

    def popped(self, target: KvstoredLinker) -> bool:
        until(target.num_completed_offloads, "an offload is not popped")
        return target.pop_completed_offload()

    def loaded(self, target: KvstoredLinker, transfers: List[Any], rid: str = "request") -> bool:
        self.assertTrue(target.load(rid, transfers))
        return self.landed(target)

    def landed(self, target: KvstoredLinker) -> bool:
        index = target.start_layer_wise_loading()
        self.assertGreaterEqual(index, 0)
        target.layer_done_counter.set_consumer(index)
        for layer in range(LAYERS):
            target.layer_done_counter.wait_until(layer)
        return target.finish_layer_wise_loading(index)

    def fill(self, kvcache: Any, pages: Sequence[int], seed: int = 1) -> Dict[int, bytes]:
        """Random values; what pages have then."""
        torch.manual_seed(seed)
        for buffer in buffers(kvcache):
            for p in pages:
                buffer[p * PAGE : (p + 1) * PAGE] = torch.randn(PAGE, *buffer.shape[1:]).to(buffer.dtype)
        return {p: page(kvcache, p) for p in pages}


def buffers(kvcache: Any) -> List[Any]:
    if hasattr(kvcache, "full_kv_pool"):
        return buffers(kvcache.full_kv_pool) + buffers(kvcache.swa_kv_pool)
    return list(kvcache.kv_buffer) if hasattr(kvcache, "kv_buffer") else [*kvcache.k_buffer, *kvcache.v_buffer]


def page(kvcache: Any, p: int) -> bytes:
    return b"".join(bytes(b[p * PAGE : (p + 1) * PAGE].view(torch.uint8).numpy().tobytes()) for b in buffers(kvcache))


class TestLinker(Linked):
    def test_what_was_stored_is_loaded(self) -> None:
        for cls in (MHATokenToKVPool, MLATokenToKVPool):
            with self.subTest(cls.__name__):
                kvcache, keys = cls(), chain(cls.__name__, 10)
                first = self.linker(kvcache, cls.__name__)
                want = self.fill(kvcache, range(10))
                self.assertEqual(first.lookup("request", self.transfers(keys)), [])
                self.assertTrue(self.offloaded(first, self.transfers(keys, range(10))))
                other = cls()
                second = self.linker(other, cls.__name__)
                self.assertEqual(sorted(second.lookup("request", self.transfers(keys))), list(range(1, 11)))
                at = [20 + 3 * i for i in range(10)]
                self.assertTrue(self.loaded(second, self.transfers(keys, at)))
                self.assertEqual([page(other, p) for p in at], [want[p] for p in range(10)])
                self.assertTrue(self.offloaded(second, self.transfers(keys, at)), "known pages")
                self.assertEqual(second.start_layer_wise_loading(), -1)

    def test_a_tail_and_a_shorter_length(self) -> None:
        """Another rank may have less, and the device the beginning."""
        kvcache, keys = MHATokenToKVPool(), chain("tail", 12)
        target = self.linker(kvcache)
        want = self.fill(kvcache, range(12))
        self.assertTrue(self.offloaded(target, self.transfers(keys, range(12))))
        self.assertEqual(sorted(target.lookup("request", self.transfers(keys[5:]))), list(range(1, 8)))
        self.assertTrue(self.loaded(target, self.transfers(keys[5:9], [30, 31, 32, 33])))
        self.assertEqual([page(kvcache, p) for p in (30, 31, 32, 33)], [want[p] for p in (5, 6, 7, 8)])

    def test_a_request_that_waits(self) -> None:
        """Asked again in each step, it costs the daemon nothing; other keys are another question."""
        kvcache, keys = MHATokenToKVPool(), chain("waits", 6)
        target = self.linker(kvcache)
        self.assertTrue(self.offloaded(target, self.transfers(keys, range(6))))
        with mock.patch.object(linker._groups, "find", wraps=linker._groups.find) as find:
            for _ in range(3):
                self.assertEqual(len(target.lookup("request", self.transfers(keys))), 6)
                self.assertEqual(target.lookup("a miss", self.transfers(chain("nowhere", 6))), [])
            self.assertEqual(find.call_count, 2)
            self.assertEqual(len(target.lookup("request", self.transfers(keys[2:]))), 4)
            self.assertEqual(find.call_count, 3)
        self.assertTrue(self.loaded(target, self.transfers(keys[2:], range(20, 24))))

    def test_windows(self) -> None:
        kvcache, keys = SWAKVPool(), chain("window", 12)
        target = self.linker(kvcache)
        want = self.fill(kvcache, range(12))
        for first, end in ((0, 5), (5, 6), (6, 12)):  # nodes, of whose last pages the windows are there
            window = range(max(first, end - WINDOW), end)
            self.assertTrue(self.offloaded(target, self.transfers(keys[first:end], range(first, end), window)))
        self.assertEqual(sorted(target.lookup("request", self.transfers(keys, sides=True))), [5, 6, 12])
        self.assertEqual(sorted(target.lookup("request", self.transfers(keys[:11], sides=True))), [5, 6])
        with mock.patch.object(target, "_load_whole", side_effect=AssertionError("the lease says where all lie")):
            self.assertTrue(self.loaded(target, self.transfers(keys[:6], range(20, 26), [40, 41])))
        full, window = kvcache.full_kv_pool, kvcache.swa_kv_pool
        got = [page(full, p) for p in range(20, 26)] + [page(window, p) for p in (40, 41)]
        self.assertEqual(got, [page(full, p) for p in range(6)] + [page(window, p) for p in (4, 5)])
        self.assertEqual(want[0], page(kvcache, 0))

    def test_random_prompts_against_a_set(self) -> None:
        """Lengths are those at which a model of sets has all that is needed, and what is
        loaded has the bytes that were computed for its keys."""
        kvcache, r = SWAKVPool(), random.Random(7)
        target = self.linker(kvcache)
        full: Dict[str, bytes] = {}
        windows: Dict[str, bytes] = {}
        prompts: List[List[str]] = []
        for n in range(1000):
            start = r.choice(prompts)[: r.randrange(12)] if prompts and r.random() < 0.7 else []
            keys = start + chain(f"random {n}", r.randrange(1, 13 - len(start) + 1))
            keys = keys[:12]
            prompts.append(keys)
            skip = r.randrange(len(keys))  # on the device
            tail = keys[skip:]
            ends = target.lookup(f"request {n}", self.transfers(tail, sides=True))
            run = next((i for i, key in enumerate(tail) if key not in full), len(tail))
            want = [e for e in range(1, run + 1) if all(key in windows for key in tail[max(0, e - WINDOW) : e])]
            self.assertEqual(sorted(ends), want, f"prompt {n}")
            if ends:
                e = max(ends) if r.random() < 0.8 else r.choice(ends)
                last = tail[max(0, e - WINDOW) : e]
                self.assertTrue(self.loaded(target, self.transfers(tail[:e], range(40, 40 + e), range(54, 54 + len(last))), f"request {n}"))
                self.assertEqual([page(kvcache.full_kv_pool, 40 + i) for i in range(e)], [full[key] for key in tail[:e]])
                self.assertEqual([page(kvcache.swa_kv_pool, 54 + i) for i in range(len(last))], [windows[key] for key in last])
            self.fill(kvcache, range(len(tail)), n)
            self.assertTrue(self.offloaded(target, self.transfers(tail, range(len(tail)), range(max(0, len(tail) - WINDOW), len(tail)))))
            for i, key in enumerate(tail):
                full.setdefault(key, page(kvcache.full_kv_pool, i))
                if i >= len(tail) - WINDOW:
                    windows.setdefault(key, page(kvcache.swa_kv_pool, i))

    def test_a_lease_that_was_lost(self) -> None:
        kvcache, keys = MHATokenToKVPool(), chain("lost", 6)
        target = self.linker(kvcache)
        want = self.fill(kvcache, range(6))
        self.assertTrue(self.offloaded(target, self.transfers(keys, range(6))))
        self.assertEqual(len(target.lookup("request", self.transfers(keys))), 6)
        self.assertTrue(target._hints.drop())
        self.assertTrue(target.load("request", self.transfers(keys, range(20, 26))))
        self.assertEqual([part.rows for part in target._queued["request"].parts], [[]], "nothing is read where no job keeps it mapped")
        self.assertTrue(self.landed(target))
        self.assertTrue(self.loaded(target, self.transfers(keys, range(30, 36)), "never asked"))
        self.assertEqual([page(kvcache, p) for p in (*range(20, 26), *range(30, 36))], [want[p] for p in (*range(6), *range(6))])

    def test_other_bytes_than_were_stored(self) -> None:
        """Nothing that is not proved is told as done."""
        kvcache, keys = MHATokenToKVPool(), chain("wrong", 6)
        target = self.linker(kvcache)
        self.fill(kvcache, range(6))
        self.assertTrue(self.offloaded(target, self.transfers(keys, range(6))))
        self.assertEqual(len(target.lookup("request", self.transfers(keys))), 6)
        copy = linker.bulk.copy

        def torn(pieces: bytes, *more: Any) -> Any:
            copied = copy(pieces, *more)
            kvcache.v_buffer[1][23 * PAGE] = 5.0  # as if the daemon's memory had changed
            return copied

        with mock.patch.object(linker.bulk, "copy", torn), self.assertLogs("kvstored.sglang", "WARNING"):
            self.assertFalse(self.loaded(target, self.transfers(keys, range(20, 26))))

    def test_other_lengths_than_places(self) -> None:
        """They are told before a byte is copied."""
        kvcache, keys = MHATokenToKVPool(), chain("lengths", 2)
        target = self.linker(kvcache)
        self.fill(kvcache, range(2))
        self.assertTrue(self.offloaded(target, self.transfers(keys, range(2))))
        self.assertEqual(len(target.lookup("request", self.transfers(keys))), 2)
        rows = target._answered["request"].rows
        rows.update({key: (at, size - 1, total) for key, (at, size, total) in rows.items()})
        with mock.patch.object(linker.bulk, "copy", wraps=linker.bulk.copy) as copy, self.assertLogs("kvstored.sglang", "WARNING"):
            self.assertFalse(self.loaded(target, self.transfers(keys, [20, 21])))
        self.assertEqual(copy.call_count, 0)

    def test_no_room_takes_no_lease(self) -> None:
        """What SGLang was promised stays, whatever a store finds no room for."""
        kvcache, keys = MHATokenToKVPool(), chain("promised", 6)
        target = self.linker(kvcache)
        self.fill(kvcache, range(6))
        self.assertTrue(self.offloaded(target, self.transfers(keys, range(6))))
        self.assertEqual(len(target.lookup("request", self.transfers(keys))), 6)
        full = Refused("reserve", wire.Code.NO_SPACE, "full")
        with mock.patch.object(Client, "reserve", side_effect=full):
            self.assertFalse(self.offloaded(target, self.transfers(chain("more", 6), range(6))))
        self.assertEqual(len(target._hints.held), 1)
        with mock.patch.object(Client, "prefetch", side_effect=AssertionError("it is asked")):
            self.assertTrue(self.loaded(target, self.transfers(keys, range(20, 26))))

    def test_no_arena(self) -> None:
        """Nothing is asked where nothing could be copied."""
        kvcache, keys = MHATokenToKVPool(), chain("no arena", 6)
        target = self.linker(kvcache)
        self.assertTrue(self.offloaded(target, self.transfers(keys, range(6))))
        with mock.patch.object(Client, "arena", None), mock.patch.object(Client, "prefetch") as prefetch:
            self.assertEqual(target.lookup("request", self.transfers(keys)), [])
        self.assertEqual(prefetch.call_count, 0)
        self.assertEqual(len(target.lookup("request", self.transfers(keys))), 6)

    def test_cancel_and_reset(self) -> None:
        kvcache, keys = MHATokenToKVPool(), chain("cancel", 6)
        target = self.linker(kvcache)
        self.fill(kvcache, range(6))
        self.assertTrue(self.offloaded(target, self.transfers(keys, range(6))))
        self.assertEqual(len(target.lookup("request", self.transfers(keys))), 6)
        self.assertTrue(target.load("request", self.transfers(keys, range(20, 26))))
        self.assertTrue(target.cancel_queued_load("request"))
        self.assertFalse(target.cancel_queued_load("request"))
        self.assertEqual(target.start_layer_wise_loading(), -1)
        self.assertTrue(target.offload(self.transfers(keys, range(6))))
        self.assertTrue(target.load("request", self.transfers(keys, range(20, 26))))
        target.reset()
        self.assertEqual((target.start_layer_wise_loading(), target.num_completed_offloads()), (-1, 0))
        self.assertEqual(len(target.lookup("request", self.transfers(keys))), 6, "what is stored stays")
        self.assertFalse(target.offload(self.transfers([], [])))

    def test_nothing_is_found_across(self) -> None:
        """Of models, element types, shapes and ranks that differ."""
        keys = chain("across", 4)
        target = self.linker(MHATokenToKVPool())
        self.assertTrue(self.offloaded(target, self.transfers(keys, range(4))))
        others: Dict[str, KvstoredLinker] = {
            "model": self.linker(MHATokenToKVPool(), "other"),
            "dtype": self.linker(MHATokenToKVPool(dtype=torch.float16)),
            "shape": self.linker(MHATokenToKVPool(dim=16)),
            "layers": self.linker(MHATokenToKVPool(2)),
            "latent": self.linker(MLATokenToKVPool()),
            "revision": self.linker(MHATokenToKVPool(), revision="2"),
            "namespace": self.linker(MHATokenToKVPool(), namespace="2"),
            "stage": self.linker(MHATokenToKVPool(), more={"pp_rank": 1, "pp_size": 2}),
            "context": self.linker(MHATokenToKVPool(), more={"attn_cp_rank": 1, "attn_cp_size": 2}),
        }
        eight = MHATokenToKVPool(dtype=torch.uint8)
        eight.dtype = torch.float8_e4m3fn
        others["fp8 as bytes"] = self.linker(eight)
        kinds = MHATokenToKVPool(dtype=torch.uint8)
        kinds.dtype = torch.float8_e5m2
        self.assertTrue(self.offloaded(others["fp8 as bytes"], self.transfers(keys, range(4))))
        del others["fp8 as bytes"]
        others["another fp8 as bytes"] = self.linker(kinds)
        for what, other in others.items():
            self.assertEqual(other.lookup("request", self.transfers(keys)), [], what)
        self.assertEqual(len(self.linker(MHATokenToKVPool()).lookup("request", self.transfers(keys))), 4)

    def test_what_it_refuses(self) -> None:
        scaled = MHATokenToKVPool()
        scaled.k_scale_buffer = [1]  # type: ignore[assignment]
        lacking, beyond = SWAKVPool(), SWAKVPool()
        del lacking.layers_mapping[2]
        beyond.layers_mapping[2] = 2, True
        for kvcache, extra, says in (
            (MHATokenToKVPool(), {"sokcet": "x"}, "sokcet"),
            (scaled, {}, "scales"),
            (lacking, {}, r"pool swa \(\{0: \(0, 2\)\} of 2\) have not all \[4\] parts"),
            (beyond, {}, "KvstoredHiCache"),
            (MHATokenToKVPool(device="meta"), {}, "CPUs and NVIDIA GPUs"),
        ):
            with self.assertRaisesRegex(ValueError, says):
                self.linker(kvcache, **extra)

    def test_no_daemon(self) -> None:
        kvcache, keys = MHATokenToKVPool(), chain("away", 4)
        target = self.linker(kvcache, socket=NOWHERE)
        self.assertEqual(target.lookup("request", self.transfers(keys)), [])
        self.assertFalse(self.offloaded(target, self.transfers(keys, range(4))))
        with self.assertLogs("kvstored.sglang", "WARNING"):
            self.assertFalse(self.loaded(target, self.transfers(keys, range(4))))


class TestTrouble(Linked):
    @classmethod
    def setUpClass(cls) -> None:
        pass  # each test has a daemon of its own

    def test_a_daemon_that_is_killed(self) -> None:
        """What was found is loaded: its bytes are mapped, and their checksums known."""
        with Daemon() as daemon:
            kvcache, keys = MHATokenToKVPool(), chain("killed", 8)
            target = self.linker(kvcache, socket=daemon.socket)
            want = self.fill(kvcache, range(8))
            self.assertTrue(self.offloaded(target, self.transfers(keys, range(8))))
            self.assertEqual(len(target.lookup("request", self.transfers(keys))), 8)
            daemon.kill()
            self.assertTrue(self.loaded(target, self.transfers(keys, range(20, 28))))
            self.assertEqual([page(kvcache, 20 + p) for p in range(8)], [want[p] for p in range(8)])

    def test_a_daemon_that_hangs(self) -> None:
        """Of all offloads and loads one each waits for its timeout, and then nothing waits for
        the daemon until it answers."""
        with Daemon() as daemon:
            kvcache, keys = MHATokenToKVPool(), chain("hangs", 8)
            leases_stay(self)
            target = self.linker(kvcache, socket=daemon.socket, timeout=1.0, lookup_timeout=0.5)
            want = self.fill(kvcache, range(8))
            while not self.offloaded(target, self.transfers(keys, range(8))):  # on a busy machine
                pass
            while not target.lookup("request", self.transfers(keys)):
                pass
            daemon.pause()
            with counted() as sent, self.assertLogs("kvstored.sglang", "WARNING"):
                for n in range(5):
                    self.assertTrue(target.offload(self.transfers(chain(f"more {n}", 8), range(8))))
                self.assertTrue(target.load("never asked", self.transfers(keys, range(20, 28))))
                self.assertFalse(self.landed(target))
                self.assertEqual([self.popped(target) for _ in range(5)], [False] * 5)
            self.assertEqual([sent.count(op) for op in ("reserve", "prefetch")], [1, 1])
            self.assertTrue(self.loaded(target, self.transfers(keys, range(30, 38))), "its lease needs no answer")
            self.assertEqual([page(kvcache, 30 + p) for p in range(8)], [want[p] for p in range(8)])
            with counted() as sent:
                self.assertEqual(target.lookup("another", self.transfers(keys)), [])
                self.assertNotIn("prefetch", sent)
            daemon.resume()
            for _ in range(200):
                if self.offloaded(target, self.transfers(keys, range(8))):
                    break
                time.sleep(0.05)
            self.assertEqual(len(target.lookup("another", self.transfers(keys))), 8)
