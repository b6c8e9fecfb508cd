"""kvstored for LMCache: a storage plug-in of an engine's process, an L2 adapter of LMCache's server.

Each imports what it needs of LMCache, and neither what the other needs.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import KvstoredBackend
    from .l2 import KvstoredL2Adapter

__all__ = ["KvstoredBackend", "KvstoredL2Adapter"]

_MODULES = {"KvstoredBackend": "backend", "KvstoredL2Adapter": "l2"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
