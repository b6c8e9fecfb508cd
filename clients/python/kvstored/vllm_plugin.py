"""Tells vLLM of KvstoredTier when it starts (entry point of vllm.general_plugins).

Versions that do not know ``module_path`` find tiers only by name. Nothing else
is imported here: vLLM loads its plugins in all of its processes.
"""

from __future__ import annotations


def register() -> None:
    """May be called again. Does nothing for a vLLM that has no secondary tiers."""
    try:
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
    except ImportError:
        return
    try:
        SecondaryTierFactory.register_tier("KvstoredTier", "kvstored.vllm", "KvstoredTier")
    except ValueError:
        pass  # it is known already
