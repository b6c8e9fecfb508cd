"""What must be equal for pages of SGLang to be exchangeable."""

import json
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .._engine import short
from ..prompt import Space

KV = "kv"
_DRAFTS = ("draft", "draft_indexer", "draft_swa")
_OF_THE_MODEL = (KV, "indexer", "swa")
_REPLICATED = ("MLA", "DSA", "NSA", "DeepSeekV4", "Logical")  # in the names of classes of pools

# What the server was told beyond its model's name that changes the bytes.
_TOLD = (
    "revision",
    "kv_cache_dtype",
    "mamba_ssm_dtype",
    "quantization",
    "quantization_param_path",
    "json_model_override_args",
    "speculative_draft_model_path",
    "speculative_draft_model_revision",
    "speculative_draft_kv_cache_dtype",
)
_SAYS_NOTHING = (None, "", "auto", "{}")


class Names(NamedTuple):
    """What the user gave for a backend's pages."""

    model: str
    revision: str = ""
    namespace: str = ""


def check(name: str, pool: Any) -> None:
    """A ValueError says that a pool lacks what its pages are told apart by."""
    wanted = ["dtype", "layout", "page_size", *(["temporal_dtype"] if name == "mamba" else ["start_layer", "end_layer"])]
    missing = [field for field in wanted if get(pool, field, None) is None]
    if missing:
        raise ValueError(
            f"KvstoredHiCache: SGLang's pool {name!r}, a {_class(pool)}, has no {' and no '.join(missing)} as this package knows "
            "it: pages of different bytes might not be told apart; a newer kvstored may know this SGLang"
        )
    if str(pool.dtype).endswith("uint8") and get(pool, "device_pool", None) is None and _server() is None:
        raise ValueError("KvstoredHiCache: SGLang's arguments cannot be read, so kinds of fp8 would not be told apart")


def check_lora() -> None:
    """A ValueError says that SGLang's names of pages leave out which adapter they are of."""
    seeded = hasattr(sys.modules.get("sglang.srt.mem_cache.utils"), "storage_namespace_seed")
    if get(_server(), "enable_lora", False) and not seeded:
        raise ValueError(
            "KvstoredHiCache: this SGLang names stored pages by their tokens alone, so adapters would get each other's: use one "
            "from 0.5.23 on, or leave --enable-lora out"
        )


def replicated(name: str, config: Any, pool: Any) -> bool:
    """Whether the tensor parallel ranks all have the same bytes in this pool.
    A pool that is not known counts as not, and so does recurrent state."""
    if _is_a(pool, ("MHA",)):
        return False
    if name.startswith("deepseek_v4_"):
        return True
    if name in _DRAFTS:  # the main model says nothing about the draft's
        return _is_a(pool, _REPLICATED)
    return name in _OF_THE_MODEL and bool(get(config, "is_mla_model", False))


def _is_a(pool: Any, marks: Tuple[str, ...]) -> bool:
    """By the names of its classes: their modules move."""
    return any(mark in cls.__name__ for cls in type(pool).__mro__ for mark in marks)


def space(name: str, config: Any, pool: Any, names: Names, flat: bool, page: Optional[int] = None) -> Space:
    """The space of one pool of one rank. ``flat``: of pages that SGLang has
    gathered into a tensor, which orders the parts of some in another way. ``page``:
    tokens of a page, where that is not the pool's number of slots."""
    rank, ranks = get(config, "tp_rank", 0), get(config, "tp_size", 1)
    if replicated(name, config, pool):
        rank, ranks = 0, 1
    form = "flat" if flat and _order_differs(pool) else ""
    slots = get(pool, "page_size", 1)
    tags = [*_computed(config), *_held(pool), ("namespace", names.namespace), ("form", form)]
    tags += [("slots", str(slots))] if page and page != slots else []
    return Space(
        model=names.model,
        revision=names.revision,
        dtype=_element(pool),
        chunk_tokens=max(1, min(int(page or slots), 1 << 16)),
        method="given:sglang",
        world=int(ranks),
        worker=int(rank),
        group="" if name == KV else name,
        tags=tuple((k, short(v)) for k, v in tags if v),
    )


def _computed(config: Any) -> List[Tuple[str, str]]:
    """Who computed the pages, and how. Ranks of data parallel attention share theirs."""
    return [
        ("sglang", str(getattr(sys.modules.get("sglang"), "__version__", ""))),
        ("server", _told()),
        ("pp", _part(config, "pp_rank", "pp_size")),
        ("cp", _part(config, "attn_cp_rank", "attn_cp_size")),
    ]


def _held(pool: Any) -> List[Tuple[str, str]]:
    """What of the model the pages hold, and in which order."""
    device = get(pool, "device_pool", None)
    layers = (get(pool, "start_layer", None), get(pool, "end_layer", None))
    sharded = get(device, "layer_shard_enabled", False) or get(pool, "_layer_shard_enabled", False)
    return [
        ("layout", str(get(pool, "layout", ""))),
        ("pool", _class(pool)),
        ("device", _class(device)),
        ("layers", "" if None in layers else f"{layers[0]}-{layers[1]}"),
        # Of which context rank the layers are, the tag cp says where no device's pool does.
        ("shard", (_part(device, "layer_shard_rank", "layer_shard_size") or "by context") if sharded else ""),
        ("interleaved", _part(pool, "shard_rank", "shard_size")),
        ("state", str(get(pool, "temporal_dtype", ""))),
        ("storage", str(get(pool, "storage_format_tag", ""))),
        ("dcp", _part(pool, "dcp_rank", "dcp_size")),
    ]


def _part(of: Any, at: str, size: str) -> str:
    """Which of several; empty where there is one."""
    rank, ranks = int(get(of, at, 0)), int(get(of, size, 1))
    return f"{rank}/{ranks}" if ranks > 1 or rank else ""


def _element(pool: Any) -> str:
    """Host pools say how elements are stored; for fp8 of any kind that is as uint8."""
    stored = get(pool, "dtype", "unknown")
    element = get(get(pool, "device_pool", None), "dtype", stored)
    return str(stored) if element == stored else f"{element} as {stored}"


def _order_differs(pool: Any) -> bool:
    """Between a page's tensor and its buffers: keys and values by layer, or the
    layers by keys and values."""
    return get(pool, "layout", "") == "layer_first" and not _is_a(pool, _REPLICATED)


def _told() -> str:
    """What the server's arguments say, where they can be read."""
    said = {k: get(_server(), k, None) for k in _TOLD}
    return _canonical({k: v for k, v in said.items() if v not in _SAYS_NOTHING})


def _server() -> Any:
    """SGLang's arguments, None where there are none."""
    try:
        return sys.modules["sglang.srt.runtime_context"].get_server_args()
    except Exception:
        return None


def _canonical(said: Dict[str, Any]) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"), default=str) if said else ""


def _class(thing: Any) -> str:
    return "" if thing is None else type(thing).__name__


def get(thing: Any, field: str, default: Any) -> Any:
    """A field that may be missing or None."""
    value = getattr(thing, field, None)
    return default if value is None else value
