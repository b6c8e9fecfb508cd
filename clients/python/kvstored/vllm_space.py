"""The space of a vLLM engine's blocks, made from what vLLM tells a secondary tier."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import logging
import os
import pprint
import re
import sys
from typing import Any, List, NamedTuple, Tuple

from .wire import Space

log = logging.getLogger("kvstored.vllm")


class _Engine(NamedTuple):
    """What vLLM says of the blocks of an engine."""

    model: str
    revision: str
    dtype: str
    algorithm: str  # of the hashes; "" where vLLM does not say
    tokens: int  # of a row
    tags: Tuple[Tuple[str, str], ...]


def fingerprint(spec: Any, row_bytes: int, model: str = "", revision: str = "", namespace: str = "") -> Space:
    """The space of an engine's blocks: engines that differ in anything here never
    see each other's. What vLLM does not say is up to ``namespace``; docs/engines.md
    has both lists."""
    engine = _normalized(spec) if hasattr(getattr(spec, "config", None), "parallel") else _whole(spec)
    model = model or engine.model
    if not model:
        raise ValueError('KvstoredTier finds no model name in the engine\'s config: add "model" to the tier\'s keys')
    missing = _unstable(engine.algorithm)
    if missing:
        log.warning(
            "kvstored: blocks are reused across restarts and engines only if their hashes are equal: set %s",
            " and ".join(missing),
        )
    tags = (
        *engine.tags,
        ("row", str(row_bytes)),
        ("layout", os.environ.get("VLLM_KV_CACHE_LAYOUT", "")),
        ("vllm", _version()),  # another one may lay the same block out differently
        ("namespace", namespace),
    )
    return Space(
        model=model,
        revision=revision or engine.revision,
        dtype=engine.dtype,
        chunk_tokens=max(1, min(engine.tokens, 1 << 16)),
        method=f"given:vllm-{engine.algorithm}" if engine.algorithm else "given:vllm",
        tags=tuple((name, value) for name, value in tags if value),
    )


#: Hashes that are equal in every process, if they start from an equal seed.
_STABLE = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor", "")  # the last: vLLM does not say


def _unstable(algorithm: str) -> List[str]:
    """What the user should set so that vLLM's block hashes are the same in every
    process. The seed of a chain is fixed since August 2026, except for xxhash;
    before, and for that always, it is random unless PYTHONHASHSEED is set."""
    missing = []
    if algorithm not in _STABLE:
        missing.append(f"--prefix-caching-hash-algo sha256_cbor (it is {algorithm})")
    utils = sys.modules.get("vllm.v1.core.kv_cache_utils")
    fixed = hasattr(utils, "DEFAULT_NONE_HASH_SEED") or hasattr(utils, "resolve_none_hash_seed")
    if "PYTHONHASHSEED" not in os.environ and (not fixed or algorithm.startswith("xxhash")):
        missing.append("PYTHONHASHSEED=0 before vLLM starts")
    return missing


def _normalized(spec: Any) -> _Engine:
    """Of a spec with an OffloadingConfig, as vLLM has it since July 2026: it names
    neither the revision of the weights nor the algorithm of the hashes, and
    nothing of quantization, overrides and the attention backend."""
    config = spec.config
    groups = [(group.tokens_per_block, *group.layer_names) for group in config.groups]
    sizes = ((name, getattr(config.parallel, f"{name}_size")) for name in ("tp", "pp", "pcp", "dcp"))
    return _Engine(
        model=str(config.model.name),
        revision="",
        dtype=str(config.model.dtype),
        algorithm="",
        tokens=int(groups[0][0]) * int(config.cache.blocks_per_chunk) if groups else 1,
        tags=(
            *((name, str(size)) for name, size in sizes),
            ("block", f"{config.cache.tokens_per_hash}x{config.cache.blocks_per_chunk}"),
            ("attention", os.environ.get("VLLM_ATTENTION_BACKEND", "")),
            ("groups", _digest(groups)),
            # Rows of other bytes, in versions that know of them.
            ("replicated", "1" if getattr(spec, "replicated_layout", False) else ""),
            ("kv_cache_layout", str(getattr(config, "kv_cache_layout", None) or "")),
            ("canonical", _canonical_format(config) if getattr(config, "canonical_layout", False) else ""),
        ),
    )


def _canonical_format(config: Any) -> str:
    """Names the bytes of vLLM's canonical layout. Where vLLM cannot say, they are
    those of its version."""
    named = getattr(config, "canonical_format", None)
    if named:
        return str(named)
    module = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.canonical_mapping"
    try:
        name = importlib.import_module(module).canonical_format_id
        return str(name(config.kv_cache_layout) if inspect.signature(name).parameters else name())
    except Exception:  # one of vLLM's own, which differ from version to version
        log.warning("kvstored: vLLM does not name its canonical format: blocks are those of its version", exc_info=True)
        return f"of vLLM {_version()}"


def _digest(value: Any) -> str:
    """Equal for equal values in every process: of what is shown as an address, the
    address is left out. Empty for an empty value."""
    # A narrow page: sets that take more than a line are sorted, and dicts always.
    shown = re.sub(r" at 0x[0-9a-fA-F]+", "", pprint.pformat(value, width=1))
    return hashlib.sha256(shown.encode()).hexdigest()[:16] if value else ""


def _version() -> str:
    return str(getattr(sys.modules.get("vllm"), "__version__", ""))


def _whole(spec: Any) -> _Engine:
    """Of a VllmConfig, or of a spec with one."""
    config = getattr(spec, "vllm_config", spec)

    def find(path: str, default: Any = "") -> Any:
        at = config
        for name in path.split("."):
            at = getattr(at, name, None)
        return default if at is None else at

    block = int(find("cache_config.block_size", 1))
    attention = find("attention_config.backend") or os.environ.get("VLLM_ATTENTION_BACKEND", "")
    factor = getattr(spec, "blocks_per_chunk", None) or getattr(spec, "block_size_factor", None) or 1
    parallel = (
        ("tp", "tensor_parallel_size"),
        ("pp", "pipeline_parallel_size"),
        ("pcp", "prefill_context_parallel_size"),
        ("dcp", "decode_context_parallel_size"),
    )
    return _Engine(
        model=str(find("model_config.model")),
        revision=str(find("model_config.revision")),
        dtype=f"{find('model_config.dtype', 'unknown')}/{find('cache_config.cache_dtype', 'auto')}",
        algorithm=str(find("cache_config.prefix_caching_hash_algo", "unknown")),
        tokens=block * int(factor),
        tags=(
            *((short, str(int(find(f"parallel_config.{name}", 1)))) for short, name in parallel),
            ("block", str(block)),
            ("quantization", str(find("model_config.quantization"))),
            ("quantization_config", _digest(find("model_config.quantization_config"))),
            ("overrides", _digest(find("model_config.hf_overrides"))),
            ("attention", str(getattr(attention, "name", attention))),
            ("attention_kinds", _digest(find("attention_config.backend_per_kind"))),
        ),
    )
