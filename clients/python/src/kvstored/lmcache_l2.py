"""The L2 adapter by the name that configurations of LMCache give it; it is in :mod:`kvstored.lmcache`."""

from .lmcache.l2 import KvstoredL2Adapter

__all__ = ["KvstoredL2Adapter"]
