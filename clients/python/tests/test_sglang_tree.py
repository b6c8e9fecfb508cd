"""KvstoredLinker below SGLang's own tree: its wrapper asks, loads and offloads, over its own
pools of full layers, windows and recurrent states on CPU tensors, also of two ranks."""

import hashlib
import multiprocessing
import os
import random
import tempfile
import unittest
from array import array
from typing import Any, Dict, List, Set, Tuple

from kvstored.sglang import linker
from kvstored.sglang.linker import KvstoredLinker

from .daemon import Served, until

try:
    import torch
    from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateShape
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool, ReqToTokenPool
    from sglang.srt.mem_cache.radix_cache import RadixKey
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
    from sglang.srt.sampling.sampling_params import SamplingParams
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
except ImportError:
    torch = None

PAGE, TOKENS, LONGEST = 4, 1024, 15  # tokens of a page and of a pool, pages of a prompt
WINDOW = 6  # tokens: 2 pages
RANKS = 2


class Engine:
    """A tree over pools of windows and, with ``states``, recurrent layers. ``rank`` is one of
    ``group``, and has other bytes than the others."""

    def __init__(self, states: bool, socket: str, name: str, rank: int = 0, group: Any = None) -> None:
        self.rank = rank
        args = ServerArgs(model_path="dummy", page_size=PAGE, device="cpu")
        args._mamba_cache_chunk_size = PAGE
        set_global_server_args_for_scheduler(args)
        usual = dict(size=8, max_context_len=256, device="cpu", enable_memory_saver=False)
        components: Tuple[Any, ...] = (ComponentType.FULL, ComponentType.SWA)
        if states:
            components += (ComponentType.MAMBA,)
            shape = Mamba2StateShape.create(
                tp_world_size=1, intermediate_size=32, n_groups=1, num_heads=2, head_dim=16, state_size=16, conv_kernel=4
            )
            self.requests: Any = HybridReqToTokenPool(
                **usual, mamba_size=64, mamba_spec_state_size=8, cache_params=Mamba2CacheParams(shape=shape, layers=[3]),
                mamba_layer_ids=[3], enable_mamba_extra_buffer=True, speculative_num_draft_tokens=3,
            )  # fmt: skip
        else:
            self.requests = ReqToTokenPool(**usual)
        self.pool = SWAKVPool(
            size=TOKENS, size_swa=TOKENS, page_size=PAGE, dtype=torch.bfloat16, head_num=2, head_dim=8,
            swa_attention_layer_ids=[0, 2], full_attention_layer_ids=[1], device="cpu",
        )  # fmt: skip
        self.slots = SWATokenToKVPoolAllocator(
            size=TOKENS, size_swa=TOKENS, page_size=PAGE, dtype=torch.bfloat16, device="cpu", kvcache=self.pool, need_sort=False
        )
        params = CacheInitParams(
            req_to_token_pool=self.requests, token_to_kv_pool_allocator=self.slots, page_size=PAGE, disable=False,
            sliding_window_size=WINDOW, tree_components=components, enable_mamba_extra_buffer=states, tp_cache_group=group,
        )  # fmt: skip
        self.tree = UnifiedRadixCache(params=params)
        self.linker = KvstoredLinker(
            args, params, components=set(components), extra_config={"socket": socket, "model": name, "lookup_timeout": 30, "timeout": 60}
        )
        self.tree.init_cache_linker(self.linker)
        self.states = self.requests.mamba_pool.mamba_cache if states else None
        # What the tree has given the linker: by pool, the keys that are stored.
        self.stored: Dict[str, Set[str]] = {"kv": set(), "swa": set(), "mamba": set()}
        self.offered: List[str] = []
        offload = self.linker.offload

        def noted(transfers: List[Any], session_id: Any = None) -> bool:
            for t in transfers:
                self.stored[str(t.name.value)].update(t.keys)
            self.offered += transfers[0].keys
            return offload(transfers, session_id)

        self.linker.offload = noted

    # ---- what a model computes -----------------------------------------------------

    def write(self, tokens: List[int], first: int, full: Any, state: Any = None) -> None:
        """As if tokens from ``first`` on had been computed into their slots."""
        window = self.slots.translate_loc_from_full_to_swa(full)
        for i in range(first, len(tokens)):
            value = right(tokens[: i + 1], self.rank)
            self._token(self.pool.full_kv_pool, int(full[i - first]), value)
            self._token(self.pool.swa_kv_pool, int(window[i - first]), value)
        if state is not None:
            self.states.temporal[:, state] = right(tokens, self.rank)
            for conv in self.states.conv:
                conv[:, state] = right(tokens, self.rank)

    def _token(self, pool: Any, slot: int, value: float) -> None:
        for buffer in (*pool.k_buffer, *pool.v_buffer):
            buffer[slot] = value

    def close(self) -> None:
        self.linker.close()


def right(tokens: List[int], rank: int) -> float:
    """What all elements are that a rank computes for the last of these tokens; exact in bfloat16."""
    return float(1 + hashlib.sha256(array("q", tokens).tobytes()).digest()[rank] % 128)


@unittest.skipIf(torch is None or linker.DevicePoolGroup is None, "SGLang is not on the path")
class TestTree(Served):
    dram = "256MiB"

    def test_random_prompts(self) -> None:
        """A hit is the longest that a model of sets has, and its slots have what was computed."""
        for states in (False, True):
            with self.subTest(states=states):
                engine = Engine(states, self.daemon.socket, f"{self.id()} {states}")
                self.addCleanup(engine.close)
                self.assertGreater(self.play(engine, 500), 100)

    def test_ranks(self) -> None:
        """Each in a process of its own. They agree on a hit where some have lost pages."""
        processes = multiprocessing.get_context("spawn")
        with tempfile.TemporaryDirectory() as folder:
            ranks = [processes.Process(target=play_rank, args=(rank, os.path.join(folder, "met"), self.daemon.socket)) for rank in range(RANKS)]
            for p in ranks:
                p.start()
            for p in ranks:
                p.join()
        self.assertEqual([p.exitcode for p in ranks], [0] * RANKS)

    def play(self, engine: Engine, n: int, lossy: bool = False) -> int:
        """Random prompts; how many of them hit. ``lossy``: now and then one rank loses pages."""
        r, prompts, hits = random.Random(11), [[0]], 0
        for i in range(n):
            start = r.choice(prompts)
            tokens = start[: r.randrange(len(start)) if r.random() < 0.5 else len(start)]
            tokens = tokens + [r.randrange(1000) for _ in range(r.randrange(1, PAGE * LONGEST))]
            tokens = tokens[: PAGE * LONGEST]
            prompts.append(tokens)
            hits += self.request(engine, f"request {i}", tokens, r)
            if lossy and r.random() < 0.3:
                lost = r.sample(engine.offered, min(len(engine.offered), 5))
                engine.stored["kv"].difference_update(lost)
                if r.randrange(RANKS) == engine.rank:
                    engine.linker._pages["kv"].delete([key.encode() for key in lost], 60)
            if r.random() < 0.2:
                engine.tree.reset()
                self.fresh(engine)
            elif r.random() < 0.3:
                engine.tree.evict(EvictParams(num_tokens=r.randrange(200), swa_num_tokens=r.randrange(200), mamba_num=r.randrange(3)))
        return hits

    def fresh(self, engine: Engine) -> None:
        engine.slots.clear()
        engine.requests.clear()

    def request(self, engine: Engine, rid: str, tokens: List[int], r: random.Random) -> int:
        tree = engine.tree
        whole = len(tokens) // PAGE * PAGE
        key = RadixKey(array("q", tokens[:whole]))
        req = Req(rid=rid, origin_input_text="", origin_input_ids=array("q", tokens), sampling_params=SamplingParams(max_new_tokens=1))
        asked: List[Any] = []
        lookup = engine.linker.lookup

        def noted(rid: str, transfers: List[Any]) -> List[int]:
            asked[:] = transfers
            return lookup(rid, transfers)

        engine.linker.lookup = noted
        found = tree.match_prefix(MatchPrefixParams(key=key, req=req))
        engine.linker.lookup = lookup
        self.assertEqual(found.host_hit_length // PAGE, self.longest(engine, asked[0].keys if asked else []))
        req.last_node = found.last_device_node
        device = found.device_prefix_len
        there = tree.tree_core.collect_full_device_indices(found.last_device_node, tree.root_node_handle())
        self.assertEqual(len(there), device)
        loaded = torch.empty(0, dtype=torch.int64)
        if found.host_hit_length:
            n, _ = tree.linker.load_back(req)
            self.assertEqual(n, found.host_hit_length)
            loaded = tree.linker.private_load_indices[rid]
            index = tree.ready_to_load_host_cache()
            engine.linker.layer_done_counter.set_consumer(index)
            engine.linker.layer_done_counter.wait_until(0)
            self.assertEqual(tree.linker.finish_loads(), [])
            self.right(engine, tokens, device, loaded)
            if engine.states is not None:
                state = right(tokens[: device + len(loaded)], engine.rank)
                for part in (engine.states.temporal, *engine.states.conv):
                    self.assertTrue(bool((part[:, req.kv.mamba_pool_idx] == state).all()))
        have = device + len(loaded)
        more = engine.slots.full_attn_allocator.alloc(whole - have)
        window = engine.slots.swa_attn_allocator.alloc(whole - have)
        if more is None or window is None:
            tree.evict(EvictParams(num_tokens=TOKENS, swa_num_tokens=TOKENS, mamba_num=0))
            raise AssertionError("the test's pools are too small")
        engine.slots.set_full_to_swa_mapping(more, window)
        params = InsertParams(key=key, value=torch.cat([there, loaded, more]), prev_prefix_len=device)
        params.set_evicted_seqlen(ComponentType.SWA, 0 if req.kv is None else req.kv.get_evicted_seqlen(ComponentType.SWA))
        state = None
        if engine.states is not None:
            if not found.host_hit_length:
                tree.evict(EvictParams(mamba_num=1))
            state = req.kv.mamba_pool_idx.unsqueeze(0) if found.host_hit_length else engine.requests.mamba_allocator.alloc(1)
            params.mamba_value = state
        engine.write(tokens[:whole], have, more, state)
        if tree.insert(params).mamba_exist:
            engine.requests.mamba_allocator.free(state)
        until(lambda: tree.check_hicache_events() or not tree.linker.pending_offloads, "an offload is not popped")
        return found.host_hit_length > 0

    def longest(self, engine: Engine, keys: List[str]) -> int:
        """Of a tail, by what the tree has offloaded."""
        stored, window = engine.stored, -(-WINDOW // PAGE)
        run = next((i for i, key in enumerate(keys) if key not in stored["kv"]), len(keys))
        ends = [n for n in range(1, run + 1) if all(key in stored["swa"] for key in keys[max(0, n - window) : n])]
        return max((n for n in ends if engine.states is None or keys[n - 1] in stored["mamba"]), default=0)

    def right(self, engine: Engine, tokens: List[int], first: int, slots: Any) -> None:
        want = [right(tokens[: first + i + 1], engine.rank) for i in range(len(slots))]
        for buffer in (*engine.pool.full_kv_pool.k_buffer, *engine.pool.full_kv_pool.v_buffer):
            self.assertEqual(buffer[slots][:, 0, 0].tolist(), want)
            self.assertEqual(buffer[slots][:, -1, -1].tolist(), want)
        n = min(len(slots), -(-WINDOW // PAGE) * PAGE)
        window = engine.slots.translate_loc_from_full_to_swa(slots[-n:])
        for buffer in (*engine.pool.swa_kv_pool.k_buffer, *engine.pool.swa_kv_pool.v_buffer):
            self.assertEqual(buffer[window][:, 0, 0].tolist(), want[-n:])


def play_rank(rank: int, meet: str, socket: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=RANKS)
    engine, test = Engine(False, socket, "ranks", rank, torch.distributed.group.WORLD), TestTree()
    try:
        test.assertEqual(engine.linker._pages["kv"].space.worker, rank)
        test.assertGreater(test.play(engine, 300, lossy=True), 50)
    finally:
        engine.close()
        torch.distributed.destroy_process_group()
