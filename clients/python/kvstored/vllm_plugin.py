"""Tells vLLM of KvstoredTier when it starts (entry point of vllm.general_plugins).

Versions that do not know ``module_path`` find tiers only by name. Nothing of the
tier is imported here: vLLM loads its plugins in all of its processes.
"""

from __future__ import annotations

import logging

from .engine import absent

log = logging.getLogger("kvstored.vllm")


def register() -> None:
    """May be called again. Does nothing for a vLLM that has no secondary tiers."""
    try:
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory  # pyright: ignore[reportMissingImports]

        SecondaryTierFactory.register_tier("KvstoredTier", "kvstored.vllm", "KvstoredTier")
    except ValueError:
        pass  # it is known already
    except (ImportError, AttributeError, TypeError) as e:
        if not absent(e, "vllm.v1.kv_offload.tiering"):
            log.warning("kvstored: this vLLM has no registry of secondary tiers as this package knows it: %s", e)
