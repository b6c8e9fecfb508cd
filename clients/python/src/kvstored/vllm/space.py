"""The space of a vLLM engine's blocks, made from what vLLM tells its offloading."""

import hashlib
import importlib
import inspect
import logging
import os
import pprint
import sys
from typing import Any

from ..prompt import Space

log = logging.getLogger("kvstored.vllm")


def fingerprint(spec: Any, row_bytes: int, model: str = "", revision: str = "", namespace: str = "") -> Space:
    """The space of an engine's blocks: engines that differ in anything here never see each
    other's. vLLM names neither the revision of the weights nor the algorithm of the hashes,
    and nothing of quantization, overrides and the attention backend: that is up to
    ``namespace``; docs/engines/vllm.md has both lists."""
    config: Any = getattr(spec, "config", None)
    if not hasattr(config, "parallel"):
        raise ValueError("kvstored is set up from vLLM's OffloadingConfig: use vLLM 0.30 or newer")
    model = model or str(config.model.name)
    if not model:
        raise ValueError('kvstored finds no model name in the engine\'s config: add "model" to the keys of its class')
    groups = [(group.tokens_per_block, *group.layer_names) for group in config.groups]
    tokens = int(groups[0][0]) * int(config.cache.blocks_per_chunk) if groups else 1
    tags = (
        *((name, str(getattr(config.parallel, f"{name}_size"))) for name in ("tp", "pp", "pcp", "dcp")),
        ("block", f"{config.cache.tokens_per_hash}x{config.cache.blocks_per_chunk}"),
        ("attention", os.environ.get("VLLM_ATTENTION_BACKEND", "")),
        ("groups", _digest(groups)),
        # Rows of other bytes, in versions that know of them.
        ("replicated", "1" if getattr(spec, "replicated_layout", False) else ""),
        ("kv_cache_layout", str(getattr(config, "kv_cache_layout", None) or "")),
        ("canonical", _canonical_format(config) if getattr(config, "canonical_layout", False) else ""),
        ("row", str(row_bytes)),
        ("layout", os.environ.get("VLLM_KV_CACHE_LAYOUT", "")),
        ("vllm", _version()),  # another one may lay the same block out differently
        ("namespace", namespace),
    )
    return Space(
        model=model,
        revision=revision,
        dtype=str(config.model.dtype),
        chunk_tokens=max(1, min(tokens, 1 << 16)),
        method="given:vllm",
        tags=tuple((name, value) for name, value in tags if value),
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


def _digest(groups: Any) -> str:
    shown = pprint.pformat(groups, width=1)
    return hashlib.sha256(shown.encode()).hexdigest()[:16] if groups else ""


def _version() -> str:
    return str(getattr(sys.modules.get("vllm"), "__version__", ""))
