"""The engines' own classes, in whichever version is installed."""

from __future__ import annotations

import importlib
import logging
from typing import Any

log = logging.getLogger("kvstored")


def find(module: str, name: str, newer: bool = False) -> Any:
    """What an engine calls so, or None. That is said, unless the engine is not
    installed; with ``newer`` older versions are known not to have it."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        if not absent(e, module.partition(".")[0]):
            log.log(
                logging.INFO if newer else logging.WARNING,
                "kvstored: %s has no %s as this package knows it (%s): %s",
                module,
                name,
                e,
                "taken for an older version" if newer else "this engine will not work with it",
            )
        return None


def absent(error: Exception, module: str) -> bool:
    """Whether the error is that this module, or one that it is in, is not there."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return missing is not None and f"{module}.".startswith(f"{missing}.")
