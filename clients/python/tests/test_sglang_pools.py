"""Pools of SGLang by their nature: whose bytes are shared, which pages are where,
and which prefixes the pools can serve together."""

import contextlib
import hashlib
import sys
import unittest
from types import SimpleNamespace
from typing import Any, Dict, List
from unittest import mock

from kvstored.pages import Pages
from kvstored.sglang import KvstoredHiCache
from kvstored.sglang.pools import HostPools
from kvstored.sglang.space import Names, _told, check, replicated, space

from . import sglang_pools as pools
from .daemon import Served, leases_stay
from .frames import counted
from .sglang_pools import chain, config, transfer

MHA, MLA, DSA = pools.MHATokenToKVPoolHost, pools.MLATokenToKVPoolHost, pools.DSAIndexerPoolHost
V4 = "c1 c1_indexer_scale c2 c4 c4_indexer c4_rope c128 c4_state c4_indexer_state c128_state".split()


def value(*of: Any, size: int) -> bytes:
    return hashlib.shake_128(repr(of).encode()).digest(size)


class Natures(unittest.TestCase):
    def test_what_is_replicated_over_tensor_parallel_ranks(self) -> None:
        """The table of what SGLang's ranks hold."""
        mla, mha = config("m", mla=True), config("m")

        def of(cls: Any) -> Any:
            return cls(1, 1, [1])

        for name, model, pool, shared in [
            ("kv", mla, MLA, True),
            ("kv", mla, lambda *_: pools.LogicalHostPool(1, 1), True),
            ("indexer", mla, DSA, True),
            ("swa", mla, pools.DeepSeekV4PagedHostPool, True),
            ("draft", mla, MLA, True),
            ("draft_indexer", mla, DSA, True),
            ("draft_swa", mla, pools.DeepSeekV4PagedHostPool, True),
            *[(f"deepseek_v4_{n}", mla, pools.DeepSeekV4PagedHostPool, True) for n in V4],
            ("kv", mha, MHA, False),
            ("swa", mha, MHA, False),
            ("indexer", mha, MHA, False),
            ("draft", mha, MHA, False),
            ("draft", mla, MHA, False),  # a model of another kind drafts
            ("draft_swa", mla, MHA, False),
            ("draft", mla, lambda *_: None, False),  # nothing is known of it
            ("swa", mla, MHA, False),
            ("mamba", mha, pools.MambaPoolHost, False),
            ("mamba", mla, pools.MambaPoolHost, False),  # Kimi K3
            ("of a later version", mla, MLA, False),
        ]:
            with self.subTest(name, pool=pool):
                self.assertEqual(replicated(name, model, of(pool)), shared)

    def test_whatever_differs_is_another_space(self) -> None:
        device = SimpleNamespace(dtype="bfloat16")
        of = dict(pool=dict(pages=1, page_size=4, pieces=[1], device=device), config=dict(mla=True, tp_size=8))
        seen = {}
        shard = SimpleNamespace(dtype="bfloat16", layer_shard_enabled=True, layer_shard_rank=0, layer_shard_size=2)
        other_shard = SimpleNamespace(**{**vars(shard), "layer_shard_rank": 1})
        told: Dict[str, Any] = {}
        server = SimpleNamespace(get_server_args=lambda: SimpleNamespace(**told))
        with mock.patch.dict(sys.modules, {"sglang": None, "sglang.srt.runtime_context": server}):
            for what, change in [
                ("nothing", {}),
                ("pipeline", dict(config=dict(pp_rank=1, pp_size=2))),
                ("its other rank", dict(config=dict(pp_rank=0, pp_size=2))),
                ("context parallel", dict(config=dict(attn_cp_rank=1, attn_cp_size=2))),
                ("its other rank again", dict(config=dict(attn_cp_size=2))),
                ("a rank without the number of them", dict(config=dict(pp_rank=2))),
                ("DCP", dict(pool=dict(dcp=(1, 2)))),
                ("DCP, rank 0", dict(pool=dict(dcp=(0, 2)))),
                ("layers by rank", dict(pool=dict(device=shard))),
                ("other layers", dict(pool=dict(device=other_shard))),
                ("an uneven pipeline", dict(pool=dict(layers=(0, 7)))),
                ("elements", dict(pool=dict(dtype="float16"))),
                ("elements of the device", dict(pool=dict(device=SimpleNamespace(dtype="fp8")))),
                ("page", dict(pool=dict(page_size=8))),
                ("layout", dict(pool=dict(layout="page_first_direct"))),
                ("split over context ranks", dict(fields=dict(_layer_shard_enabled=True))),
                ("pages of one of two", dict(fields=dict(shard_rank=0, shard_size=2))),
                ("pages of the other", dict(fields=dict(shard_rank=1, shard_size=2))),
                ("recurrent state", dict(fields=dict(temporal_dtype="bfloat16"))),
                ("another one of the same size", dict(fields=dict(temporal_dtype="float16"))),
                ("a format of its own", dict(fields=dict(storage_format_tag="unified-token-major"))),
                ("no device's pool, as since 0.5.20", dict(fields=dict(device_pool=None))),
                ("kv_cache_dtype", dict(told=dict(kv_cache_dtype="mxfp8"))),
                ("another", dict(told=dict(kv_cache_dtype="fp8_e4m3"))),
                ("revision", dict(told=dict(revision="main"))),
                ("overrides", dict(told=dict(json_model_override_args='{"rope": 2}' + " " * 2000))),
                ("draft model", dict(told=dict(speculative_draft_model_path="d"))),
                ("another version of SGLang", dict(version="2.0")),
                ("another kind of pool", dict(cls=DSA)),
            ]:
                told.clear()
                told.update(change.get("told", {}))
                sys.modules["sglang"] = SimpleNamespace(__version__=change.get("version"))  # type: ignore[assignment]
                pool = change.get("cls", MLA)(**{**of["pool"], **change.get("pool", {})})
                vars(pool).update(change.get("fields", {}))
                cfg = config("m", **{**of["config"], **change.get("config", {})})
                got = space("kv", cfg, pool, Names("m"), False)
                self.assertNotIn(got, seen, f"{what} is as {seen.get(got)}")
                seen[got] = what
                self.assertTrue(all(len(v.encode()) <= 1024 for _, v in got.tags))
            told.clear()
            sys.modules["sglang"] = SimpleNamespace(__version__=None)  # type: ignore[assignment]
            again = space("kv", config("m", mla=True, tp_size=4, tp_rank=3, dp_rank=1), MLA(**of["pool"]), Names("m"), False)
            self.assertEqual(seen.get(again), "nothing")  # of a replicated pool the rank says nothing, nor does that of data parallel attention
        self.assertEqual(len(seen), 29)

    def test_draft_pools_and_their_model(self) -> None:
        self.assertNotEqual(*(space(n, config("m"), MLA(1, 1, [1]), Names("m"), False) for n in ("draft", "kv")))


class Refused(unittest.TestCase):
    def test_a_pool_that_lacks_a_field(self) -> None:
        """What its pages are told apart by: SGLang then goes on without storage."""
        for name, cls in (("kv", MLA), ("swa", MHA), ("mamba", pools.MambaPoolHost)):
            check(name, cls(4, 4, [10]))
            for field in ("dtype", "layout", "page_size", "temporal_dtype" if name == "mamba" else "end_layer"):
                pool = cls(4, 4, [10])
                setattr(pool, field, None)
                with self.subTest(name, field=field), self.assertRaisesRegex(ValueError, f"pool '{name}', a {cls.__name__}, has no {field} as"):
                    check(name, pool)
                    backend = KvstoredHiCache(config("m", extra_config={"socket": "/nonexistent/s"}), {})
                    backend.register_mem_host_pool_v2(pool, name)
                    backend.on_host_pools_registered()

    def test_a_model_without_a_name(self) -> None:
        with self.assertRaises(ValueError):
            KvstoredHiCache(config("", extra_config={"socket": "/nonexistent/s"}), {})

    def test_bytes_of_a_kind_that_nobody_says(self) -> None:
        pool = MLA(4, 4, [10], dtype="torch.uint8")
        pool.device_pool = None
        with self.assertRaisesRegex(ValueError, "arguments cannot be read"):
            check("kv", pool)
        server = SimpleNamespace(get_server_args=lambda: SimpleNamespace(kv_cache_dtype="fp8_e5m2"))
        with mock.patch.dict(sys.modules, {"sglang.srt.runtime_context": server}):
            check("kv", pool)

    def test_adapters_that_share_names_of_pages(self) -> None:
        server, seeds = SimpleNamespace(get_server_args=lambda: SimpleNamespace(enable_lora=True)), "sglang.srt.mem_cache.utils"
        cfg = config("m", extra_config={"socket": "/nonexistent/s"})
        for utils, refused in ((SimpleNamespace(), True), (SimpleNamespace(storage_namespace_seed=1), False)):
            with mock.patch.dict(sys.modules, {"sglang.srt.runtime_context": server, seeds: utils}):
                with self.assertRaisesRegex(ValueError, "adapters") if refused else contextlib.nullcontext():
                    KvstoredHiCache(cfg, {}).close()


class Places(unittest.TestCase):
    def places(self, pool: Any, pages: int, indices: Any) -> Any:
        registered = HostPools()
        registered.register("p", pool)
        return registered.places("p", pages, indices, load=True)

    def test_indices_of_other_numbers(self) -> None:
        pool = MLA(8, 4, [10, 20])
        self.assertEqual(len(self.places(pool, 2, pool.slots([3, 1]))), 2)
        for wrong in (pool.slots([0, 1, 2]), pool.slots([0]), [0, 1, 2], [], None):
            with self.subTest(wrong), self.assertRaises(ValueError):
                self.places(pool, 2, wrong)
        with self.assertRaisesRegex(ValueError, "SGLang has registered no pool 'swa'"):
            HostPools().places("swa", 1, [0], load=True)

    def test_pages_that_are_spread_over_ranks(self) -> None:
        """Of DCP: of the slots of a page this rank has every second."""
        for rank in (0, 1):
            pool = MLA(8, 4, [10], dcp=(rank, 2))
            got = self.places(pool, 3, pool.slots([5, 0, 2]))
            base = pools.address(pool.buffers[0])
            self.assertEqual([p[0][0] - base for p in got], [50, 0, 20])

    def test_slots_that_are_fewer_than_the_source_pools(self) -> None:
        """Of C4: four slots of the source are one, so its index comes four times."""
        pool = pools.DeepSeekV4PagedHostPool(8, 2, [10])
        divided = [(p * 8 + t) // 4 for p in (3, 1) for t in range(8)]
        base = pools.address(pool.buffers[0])
        self.assertEqual([p[0][0] - base for p in self.places(pool, 2, pools.tensor(divided))], [30, 10])
        with self.assertRaises(ValueError):  # not divided: whose page it is nobody can say
            self.places(pool, 2, pools.tensor([p * 8 + t for p in (3, 1) for t in range(8)]))


class HiCache(Served):
    dram = "64MiB"

    def backend(self, cfg: Any, registered: Dict[str, Any], **extra: Any) -> KvstoredHiCache:
        cfg.extra_config = {"socket": self.daemon.socket, "timeout": 60, **extra}
        backend = KvstoredHiCache(cfg, {})
        self.addCleanup(backend.close)
        if "kv" in registered:
            backend.register_mem_pool_host(registered["kv"])
        for name, pool in registered.items():
            backend.register_mem_host_pool_v2(pool, name)
        return backend

    def stored(self, backend: KvstoredHiCache, name: str, pool: Any, keys: List[str], at: List[int]) -> None:
        for p in at:
            pool.fill(p, value(name, keys[p], size=pool.bytes_of_page))
        some = transfer(name, [keys[p] for p in at], pool.slots(at))
        self.assertEqual(backend.batch_set_v2([some]), {name: [True] * len(at)})

    def test_one_flight_for_all_pools(self) -> None:
        """One request asks about all, and leases what will be loaded: no more."""
        leases_stay(self)
        registered = {"kv": MLA(20, 4, [100]), "indexer": DSA(20, 4, [30]), "mamba": pools.MambaPoolHost(20, 1, [50, 7])}
        backend, keys = self.backend(config("flight", mla=True), registered), chain("flight", 20)
        self.stored(backend, "kv", registered["kv"], keys, list(range(20)))
        self.stored(backend, "indexer", registered["indexer"], keys, list(range(15)))
        self.stored(backend, "mamba", registered["mamba"], keys, [3, 11, 17])
        with counted() as sent:
            got = backend.batch_exists_v2(
                keys, [transfer("indexer", keys), transfer("mamba", keys[-1:], policy="trailing_pages")]
            )
        self.assertEqual(got.kv_hit_pages, 12)
        self.assertEqual(got.extra_pool_hit_pages, {"kv": 15, "indexer": 15, "mamba": 12})
        self.assertEqual(sent, ["prefetch"])
        (held,) = backend._hints.held
        self.assertEqual([n.chunks for n in held.job.match.grouped.needs], [12, 12, 1])

    def test_a_pool_that_never_shortens_a_hit(self) -> None:
        """It is stored and loaded as others are, and has no say in what is there."""
        registered = {name: MLA(8, 4, [30]) for name in ("kv", "indexer", "deepseek_v4_c1")}
        backend, keys = self.backend(config("blocks", mla=True), registered), chain("blocks", 8)
        for name, n in (("kv", 8), ("indexer", 5), ("deepseek_v4_c1", 2)):
            self.stored(backend, name, registered[name], keys, list(range(n)))
        blocks = transfer("deepseek_v4_c1", keys, policy="block_groups")
        for sides, n, told in (([blocks], 8, {"kv": 8}), ([transfer("indexer", keys), blocks], 5, {"kv": 5, "indexer": 5})):
            got = backend.batch_exists_v2(keys, sides)
            self.assertEqual((got.kv_hit_pages, got.extra_pool_hit_pages), (n, told))
            self.assertEqual(got.restorable_prefix_pages, list(range(1, n + 1)))

    def test_thousands_of_last_pages(self) -> None:
        registered = {"kv": MLA(1300, 1, [8]), "mamba": pools.MambaPoolHost(1300, 1, [8])}
        backend, keys = self.backend(config("long", mla=True), registered), chain("long", 1300)
        self.stored(backend, "kv", registered["kv"], keys, list(range(1300)))
        self.stored(backend, "mamba", registered["mamba"], keys, [1, 1200])
        got = backend.batch_exists_v2(keys, [transfer("mamba", keys[-1:], policy="trailing_pages")])
        self.assertEqual(got.kv_hit_pages, 1201)

    def test_pages_without_bytes_as_tensors(self) -> None:
        backend, keys = self.backend(config("v4 v0", mla=True), {"kv": pools.LogicalHostPool(4, 4)}), chain("v4 v0", 2)
        self.assertTrue(backend.batch_set(keys, [bytearray(0)] * 2))
        self.assertEqual(backend.batch_exists(keys), 2)
        self.assertEqual(backend.batch_get(keys, [bytearray(0)] * 2), [b"", b""])
        self.assertFalse(backend.set(keys[0], target_location=1234))  # an address without a size
        self.assertEqual(backend.batch_get(keys, [1234] * 2), [None] * 2)

    def test_a_draft_beside_mla(self) -> None:
        """Rank 0 alone writes it, and it is one rank's: the others miss. As tensors, the
        key names the pool."""
        keys = chain("draft", 3)
        drafts = [f"{k}.draft" for k in keys]
        values = [bytearray(value(k, size=100)) for k in keys]
        first, second = (self.backend(config("draft", mla=True, tp_size=2, tp_rank=r), {"kv": MLA(4, 4, [100])}) for r in (0, 1))
        self.assertTrue(first.batch_set(keys, values))
        self.assertTrue(first.batch_set(drafts, values))
        targets = [bytearray(100) for _ in keys]
        self.assertEqual(second.batch_get(keys, targets), values)
        self.assertEqual(second.batch_get(drafts, targets), [None] * 3)
        self.assertEqual((first.batch_exists(drafts), second.batch_exists(drafts)), (3, 0))
        self.assertEqual(first.batch_get(drafts, targets), values)
        self.assertEqual(first.batch_exists([keys[0], drafts[0]]), 0)  # of two pools at once
        self.assertFalse(first.batch_set([keys[0], drafts[0]], values[:2]))
        mha = {"kv": MLA(4, 4, [100]), "draft": MHA(4, 4, [30, 30])}
        first, second = (self.backend(config("draft v2", mla=True, tp_size=2, tp_rank=r), mha) for r in (0, 1))
        self.stored(first, "draft", mha["draft"], keys, [0, 1, 2])
        again = transfer("draft", keys, mha["draft"].slots([0, 1, 2]))
        self.assertEqual(second.batch_get_v2([again]), {"draft": [False] * 3})
        self.assertEqual(first.batch_get_v2([again]), {"draft": [True] * 3})

    def test_tensors_are_other_bytes_than_buffers(self) -> None:
        """Of layer_first: keys and values come in another order, in as many bytes."""
        keys, line = chain("orders", 2), {"class_name": "KvstoredHiCache", "module_path": "kvstored.sglang", "backend_name": "x"}
        pool = MHA(4, 4, [10] * 4, "layer_first")
        flat = self.backend(config("orders"), {"kv": pool}, **line)
        self.assertTrue(flat.batch_set(keys, [bytearray(40)] * 2))
        self.assertEqual(flat.batch_exists(keys), 2)
        pieces = self.backend(config("orders"), {"kv": pool}, interface_v1=1, **line)
        self.assertEqual(pieces.batch_exists(keys), 0)
        self.assertEqual(pieces.batch_get_v1(keys, pool.slots([0, 1])), [False] * 2)
        for same in (MHA(4, 4, [20] * 2), MLA(4, 4, [10] * 4, "layer_first")):
            cfgs = [config(f"orders {type(same).__name__}", mla=isinstance(same, MLA)) for _ in range(2)]
            self.assertTrue(self.backend(cfgs[0], {"kv": same}, **line).batch_set(keys, [bytearray(40)] * 2))
            self.assertEqual(self.backend(cfgs[1], {"kv": same}, interface_v1=1, **line).batch_exists(keys), 2)

    def test_a_pool_that_is_registered_anew(self) -> None:
        """Its pages are those of the new one: SGLang may attach a back end anew."""
        first, second = MHA(4, 4, [10]), MHA(4, 4, [10], dtype="float16")
        backend, keys = self.backend(config("anew"), {"swa": first}), chain("anew", 1)
        self.stored(backend, "swa", first, keys, [0])
        backend.register_mem_host_pool_v2(second, "swa")
        self.assertEqual(backend.batch_get_v2([transfer("swa", keys, second.slots([0]))]), {"swa": [False]})

    def test_a_group_of_pools_is_its_anchor(self) -> None:
        pool = MLA(4, 4, [10])
        group = SimpleNamespace(anchor_entry=SimpleNamespace(host_pool=pool), layout="page_first", page_size=4)
        one, other = (self.backend(config("group", mla=True), {}) for _ in range(2))
        one.register_mem_pool_host(group)
        other.register_mem_pool_host(pool)
        self.assertEqual(one._of().space, other._of().space)

    def test_one_call_has_one_timeout(self) -> None:
        """However many pools it is about."""
        registered = {name: MLA(4, 4, [10]) for name in ("kv", "swa", "indexer")}
        backend, keys = self.backend(config("timeout"), registered, timeout=3), chain("timeout", 1)
        given: List[float] = []

        def slow(pages: Any, keys: Any, places: Any, timeout: float, before: Any) -> int:
            given.append(timeout)
            clock.monotonic.return_value += 2  # seconds that the first takes
            return 0

        with mock.patch("kvstored.sglang.time") as clock, mock.patch("kvstored.pages.Pages.load", slow):
            clock.monotonic.return_value = 1000.0
            backend.batch_get_v2([transfer(name, keys, pool.slots([0])) for name, pool in registered.items()])
        self.assertEqual(given, [3, 1, -1])
        self.assertEqual(Pages(backend._client, backend._of().space).load([b"k"], [()], -1), 0)

    def test_clear(self) -> None:
        """Of all pools of this rank. The daemon is this user's, who may."""
        registered = {"kv": MHA(4, 4, [10]), "mamba": pools.MambaPoolHost(4, 1, [5])}
        first, other = (self.backend(config("clear", tp_size=2, tp_rank=r), registered) for r in (0, 1))
        keys = chain("clear", 2)
        for backend in (first, other):
            for name, pool in registered.items():
                self.stored(backend, name, pool, keys, [0, 1])
        first.clear()
        side = [transfer("mamba", keys[-1:], policy="trailing_pages")]
        self.assertEqual(first.batch_exists_v2(keys, side).extra_pool_hit_pages, {})
        self.assertEqual(other.batch_exists_v2(keys, side).extra_pool_hit_pages, {"kv": 2, "mamba": 2})

    def test_whatever_comes_nothing_raises(self) -> None:
        """And answers have the length that the caller counts on."""
        backend, keys = self.backend(config("odd"), {"kv": MLA(4, 4, [10])}), chain("odd", 2)
        odd = [None, 5, object(), [None], [b"raw"], "text", [object()]]
        for given in odd:
            n = len(given) if hasattr(given, "__len__") else 0
            with self.subTest(given=given):
                self.assertEqual(backend.batch_get_v1(given, [0] * 8), [False] * n)
                self.assertEqual(backend.batch_set_v1(given, None), [False] * n)
                self.assertEqual(backend.batch_get(given, None), [None] * n)
                self.assertIs(backend.batch_set(given, None), False)
                self.assertEqual(backend.batch_exists(given), 0)
                self.assertIs(backend.exists(given), False)
                self.assertEqual(backend.batch_exists_v2(given, [transfer("kv", None)]).kv_hit_pages, 0)
                self.assertEqual(backend.batch_exists_v2(keys, given).kv_hit_pages, 0)
                for call in (backend.batch_get_v2, backend.batch_set_v2):
                    self.assertEqual(call(given), {})
        for wrong in (
            transfer("mamba", keys, [0] * 8),
            transfer("kv", keys, None),
            transfer("kv", keys, [0] * 3),
            transfer("kv", [None, 1], [0] * 8),
        ):
            for call in (backend.batch_get_v2, backend.batch_set_v2):
                self.assertEqual(call([wrong]), {wrong.name: [False] * 2})
        self.assertEqual(backend.batch_set_v2([transfer("kv", None, None)]), {"kv": []})
        self.assertEqual(backend.batch_get_v2([transfer("mamba", keys), SimpleNamespace()]), {"mamba": [False] * 2})
        for call in (backend.register_mem_pool_host, backend.clear, backend.get_stats):
            self.assertIsNone(call(*[object()] * (call == backend.register_mem_pool_host)))


class Constructed(unittest.TestCase):

    def test_server_arguments_that_cannot_be_read(self) -> None:
        def fails() -> Any:
            raise ValueError("not set yet")

        for module in (SimpleNamespace(), SimpleNamespace(get_server_args=fails), SimpleNamespace(get_server_args=lambda: None)):
            with mock.patch.dict(sys.modules, {"sglang.srt.runtime_context": module}):
                self.assertEqual(_told(), "")
