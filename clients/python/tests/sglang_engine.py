"""Engines of stand-ins: the ranks of an SGLang with the host pools of a family of
models, and what its cache controller does on each of them, step by step."""

import hashlib
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import sglang_pools as pools

PAGE = 4  # tokens
PAGES = 16  # of each host pool
LAYOUTS = "page_first", "page_first_direct", "layer_first"
SHARDED = pools.MHATokenToKVPoolHost, pools.MHATokenToKOnlyPoolHost, pools.MambaPoolHost  # over tensor parallel ranks


class Side(NamedTuple):
    """A pool of a family. ``last``: of a prefix only so many last pages are kept;
    ``source``: the pool whose indices it takes."""

    name: str
    cls: Any
    pieces: List[int]
    last: int = 0
    source: Optional[str] = None
    slots: int = PAGE


class Family(NamedTuple):
    mla: bool
    kv: Side
    sides: List[Side]


_mha = Side("kv", pools.MHATokenToKVPoolHost, [24, 24])
_mla = Side("kv", pools.MLATokenToKVPoolHost, [40])
_window = Side("swa", pools.MHATokenToKVPoolHost, [12, 12], last=2)
_state = Side("mamba", pools.MambaPoolHost, [16, 6], last=1, slots=1)
_paged, _ring = pools.DeepSeekV4PagedHostPool, pools.DeepSeekV4StateHostPool

FAMILIES = {
    "MHA": Family(False, _mha, []),
    "MLA": Family(True, _mla, []),
    "MHA, window": Family(False, _mha, [_window]),
    "MHA, state": Family(False, _mha, [_state]),
    "MHA, window, state": Family(False, _mha, [_window, _state]),
    "MHA, index": Family(False, _mha, [Side("indexer", pools.MHATokenToKOnlyPoolHost, [8], source="kv")]),
    "MLA, state": Family(True, _mla, [_state]),
    "MLA, window of MHA": Family(True, _mla, [_window]),
    "MLA, index": Family(True, _mla, [Side("indexer", pools.DSAIndexerPoolHost, [10], source="kv")]),
    "MLA, draft of MHA": Family(True, _mla, [Side("draft", pools.MHATokenToKVPoolHost, [6, 6], source="kv")]),
    "MLA, draft of MLA": Family(
        True,
        _mla,
        [
            Side("indexer", pools.DSAIndexerPoolHost, [10], source="kv"),
            Side("draft", pools.MLATokenToKVPoolHost, [14], source="kv"),
            Side("draft_indexer", pools.DSAIndexerPoolHost, [10], source="kv"),
        ],
    ),
    "MHA, window, drafts": Family(
        False,
        _mha,
        [
            _window,
            Side("draft", pools.MHATokenToKVPoolHost, [24, 24], source="kv"),
            Side("draft_swa", pools.MHATokenToKVPoolHost, [12, 12], last=2, source="swa"),
        ],
    ),
    "DeepSeek V4": Family(
        True,
        Side("kv", pools.LogicalHostPool, []),
        [
            Side("swa", _paged, [40], last=2),
            Side("deepseek_v4_c4", _paged, [32], source="kv"),
            Side("deepseek_v4_c4_indexer", _paged, [32], source="kv"),
            Side("deepseek_v4_c128", _paged, [4], source="kv"),
            Side("deepseek_v4_c4_state", _ring, [12], last=2, source="swa"),
            Side("deepseek_v4_c4_indexer_state", _ring, [12], last=2, source="swa"),
        ],
    ),
}


class Shape(NamedTuple):
    """How an engine runs a model."""

    layout: str = "page_first"
    tp: int = 1
    pp: int = 1
    v1: bool = True
    dtype: str = "bfloat16"
    dcp: int = 1
    dp: int = 1


class Rank:
    """One process of an engine: its pools, its configuration, and which bytes are
    the right ones."""

    def __init__(
        self, model: str, family: str, shape: Shape, tp: int = 0, pp: int = 0, dp: int = 0, larger: int = 1
    ) -> None:
        """``larger``: how many times its pages are."""
        self.family, self.shape, self._larger = FAMILIES[family], shape, larger
        self.at = (tp, pp, dp)
        self._of = (model, family)
        self.pools: Dict[str, Any] = {side.name: self._pool(side) for side in (self.family.kv, *self.family.sides)}
        self.config: Dict[str, Any] = dict(
            tp_rank=tp, tp_size=shape.tp, pp_rank=pp, pp_size=shape.pp, dp_rank=dp,
            attn_cp_rank=0, attn_cp_size=1, is_mla_model=self.family.mla, enable_storage_metrics=False,
            is_page_first_layout=shape.layout == "page_first", model_name=model, tp_lcm_size=None,
            should_split_heads=False,
        )  # fmt: skip

    def _pool(self, side: Side) -> Any:
        tp, pp, _ = self.at
        layers = (4 * pp, 4 * pp + 4)
        if side.cls is pools.LogicalHostPool:
            return side.cls(PAGES, PAGE, layers=layers)
        pieces = [n * self._larger for n in side.pieces]
        if self.shape.layout == "layer_first":
            pieces = [n // 2 for n in pieces for _ in range(2)]
        spread = side.cls is pools.MLATokenToKVPoolHost and side.name == "kv"
        dcp = (tp % self.shape.dcp, self.shape.dcp) if spread else (0, 1)
        slots = side.slots * (self.shape.dcp if side.source == "kv" else 1)  # those have whole pages
        return side.cls(PAGES, slots, pieces, self.shape.layout, self.shape.dtype, dcp=dcp, layers=layers)

    def identity(self, name: str) -> Tuple[Any, ...]:
        """Whose bytes lie in a pool of this rank: those of all ranks with an equal one."""
        tp, pp, _ = self.at
        pool = self.pools[name]
        part = (tp, self.shape.tp) if isinstance(pool, SHARDED) else ()
        form = not self.shape.v1 and name == "kv" and _turned(pool)
        held = (pool.layout, pool.dtype, pool.page_size, pool.dcp_rank, pool.dcp_size, form)
        return (*self._of, name, part, pp, self.shape.pp, *held)

    def right(self, name: str, key: str) -> bytes:
        """The bytes of a page."""
        return hashlib.shake_128(repr((self.identity(name), key)).encode()).digest(self.pools[name].bytes_of_page)

    def fill(self, keys: Sequence[str], at: int) -> None:
        """As if the pages of these keys had been computed, from page ``at`` on."""
        for name, pool in self.pools.items():
            for p, key in enumerate(keys, at):
                pool.fill(p, self.right(name, key))

    def wipe(self) -> None:
        for pool in self.pools.values():
            pool.wipe()

    def writes(self, side: Side) -> bool:
        """Of MLA models rank 0 alone writes, state excepted."""
        return not self.family.mla or self.at[0] == 0 or side.name == "mamba"


def _turned(pool: Any) -> bool:
    """Whether a page's tensor has its pieces in another order than its buffers."""
    return pool.layout == "layer_first" and isinstance(pool, pools.MHATokenToKVPoolHost)


class Controller:
    """SGLang's cache controller of one rank, as a form of its interface calls the
    back end: which steps it takes is read from hybrid_cache_controller.py and
    cache_controller.py of the form's commit."""

    def __init__(self, form: Any, target: Any, rank: Rank, make: Any) -> None:
        """``make(name, **fields)``: an object of SGLang's class of that name."""
        self.form, self.target, self.rank, self.make = form, target, rank, make
        form.run("register", target, pool=rank.pools["kv"])
        for name, pool in rank.pools.items():
            form.run("register_v2", target, pool=pool, name=self.pool_name(name))
        form.run("registered", target)

    def pool_name(self, name: str) -> Any:
        return self.make("PoolName", name)

    def run(self, event: str, **given: Any) -> Any:
        (answer,) = self.form.run(event, self.target, **given)
        return answer

    def extra_info(self) -> Any:
        return self.make("HiCacheStorageExtraInfo")

    # ---- the pools beside ------------------------------------------------------

    def transfers(self, keys: List[str], sides: Sequence[Side]) -> List[Any]:
        """As the tree hands them over: a derived pool has no keys yet."""
        made = []
        for side in sides:
            policy = self.make("PoolHitPolicy", "trailing_pages" if side.last else "all_pages")
            fields: Dict[str, Any] = dict(name=self.pool_name(side.name), hit_policy=policy)
            if side.source is None:
                fields["keys"] = keys[-side.last :] if side.last else list(keys)
            elif side.last:
                fields["keys"] = keys[-side.last :]
            if side.source is not None:
                fields["indices_from_pool"] = self.pool_name(side.source)
            made.append(self.make("PoolTransfer", **fields))
        return made

    def resolve(self, transfers: Sequence[Any], sides: Sequence[Side], keys: List[str], at: int) -> None:
        """Gives transfers the pages of their keys, which are the last of those from ``at`` on."""
        for transfer, side in zip(transfers, sides):
            transfer.keys = keys if transfer.keys is None else transfer.keys
            first = at + len(keys) - len(transfer.keys)
            pages = list(range(first, first + len(transfer.keys)))
            transfer.host_indices = self.rank.pools[side.source or side.name].slots(pages)

    # ---- steps -----------------------------------------------------------------

    def query(self, keys: List[str]) -> Tuple[int, Dict[str, int]]:
        """How long the prefix is that this rank finds, and of each pool."""
        sides = self.rank.family.sides
        if sides:
            found = self.run("query_v2", keys=keys, transfers=self.transfers(keys, sides), extra_info=self.extra_info())
            return found.kv_hit_pages, {str(getattr(k, "value", k)): n for k, n in found.extra_pool_hit_pages.items()}
        hit, size = 0, self.form.data["batch"]
        for i in range(0, len(keys), size):
            n = self.run("query", keys=keys[i : i + size], extra_info=self.extra_info())
            hit += n
            if n < size:
                break
        return hit, {"kv": hit} if hit else {}

    def backup(self, keys: List[str], at: int) -> Dict[str, List[bool]]:
        """Stores pages: the pools beside before keys and values."""
        family = self.rank.family
        sides = [s for s in family.sides if self.rank.writes(s)]
        results: Dict[str, List[bool]] = {}
        if sides:
            mine = self.transfers(keys, sides)
            self.resolve(mine, sides, keys, at)
            results = self._checked(self.run("set_v2", transfers=mine, extra_info=self.extra_info()), mine)
        if self.rank.writes(family.kv):
            results["kv"] = []
            for i in range(0, len(keys), self.form.data["batch"]):
                part = keys[i : i + self.form.data["batch"]]
                results["kv"] += self._set_kv(part, list(range(at + i, at + i + len(part))))
        return results

    def prefetch(self, keys: List[str], at: int = 0) -> Dict[str, List[bool]]:
        """Loads the pages of a prefix: keys and values in batches, with those that
        follow them; the rest only when all of them came."""
        sides = self.rank.family.sides
        along = [s for s in sides if s.source == "kv" and not s.last]
        results: Dict[str, List[bool]] = {s.name: [] for s in (self.rank.family.kv, *along)}
        for i in range(0, len(keys), self.form.data["batch"]):
            part = keys[i : i + self.form.data["batch"]]
            results["kv"] += self._get_kv(part, list(range(at + i, at + i + len(part))))
            if along:
                some = [self.make("PoolTransfer", name=self.pool_name(s.name), keys=part) for s in along]
                self.resolve(some, along, part, at + i)
                for name, loaded in self._checked(self.run("get_v2", transfers=some, extra_info=self.extra_info()), some).items():
                    results[name] += loaded
        rest = [s for s in sides if s not in along]
        if rest and all(ok for loaded in results.values() for ok in loaded):
            some = self.transfers(keys, rest)  # their last keys cut again to what was hit
            self.resolve(some, rest, keys, at)
            results.update(self._checked(self.run("get_v2", transfers=some, extra_info=self.extra_info()), some))
        return results

    def _checked(self, results: Any, transfers: Sequence[Any]) -> Dict[str, List[bool]]:
        """What the controller takes for granted of an answer."""
        assert isinstance(results, dict) and len(results) == len(transfers), results
        for transfer in transfers:
            name = transfer.name
            result = results.get(name, results.get(getattr(name, "value", name)))
            assert isinstance(result, list) and len(result) == len(transfer.keys), (name, result)
            assert all(isinstance(ok, bool) for ok in result), result
        return {str(getattr(k, "value", k)): v for k, v in results.items()}

    # ---- keys and values ---------------------------------------------------------

    def _set_kv(self, keys: List[str], pages: List[int]) -> List[bool]:
        pool = self.rank.pools["kv"]
        if self.rank.shape.v1:
            stored = self.run("set_v1", keys=keys, indices=pool.slots(pages), extra_info=self.extra_info())
            assert isinstance(stored, list) and len(stored) == len(keys), stored
            return stored
        stored = self.run("set", keys=keys, pages=[self._flat(pool, p) for p in pages])
        assert isinstance(stored, bool), stored
        return [stored] * len(keys)

    def _get_kv(self, keys: List[str], pages: List[int]) -> List[bool]:
        pool = self.rank.pools["kv"]
        if self.rank.shape.v1:
            loaded = self.run("get_v1", keys=keys, indices=pool.slots(pages), extra_info=self.extra_info())
            assert isinstance(loaded, list) and len(loaded) == len(keys), loaded
            return loaded
        targets = [bytearray(pool.bytes_of_page) for _ in pages]
        loaded = self.run("get", keys=keys, pages=targets)
        assert isinstance(loaded, list) and len(loaded) == len(keys), loaded
        for p, page in zip(pages, loaded):
            if page is not None:
                self._unflat(pool, p, bytes(page))
        return [page is not None for page in loaded]

    @staticmethod
    def _flat(pool: Any, p: int) -> bytearray:
        page = pool.page(p)
        return bytearray(page[::-1] if _turned(pool) else page)

    @staticmethod
    def _unflat(pool: Any, p: int, page: bytes) -> None:
        pool.fill(p, page[::-1] if _turned(pool) else page)
