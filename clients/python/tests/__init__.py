"""Tests of the package; daemon.py starts the daemon that most of them need."""

import importlib.machinery
import importlib.util
import logging
import os
import sys
from pathlib import Path

#: Where the package lies, and llamacpp, which is llama.cpp on its own.
SOURCES = [str(Path(__file__).resolve().parents[up] / name) for up, name in ((1, "src"), (3, "cmd/kvstored"))]
sys.path[:0] = SOURCES

if os.environ.get("KVSTORED_BULK"):  # the extension, where it was compiled for these tests
    loader = importlib.machinery.ExtensionFileLoader("kvstored._bulk", os.environ["KVSTORED_BULK"])
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    sys.modules[loader.name] = importlib.util.module_from_spec(spec)
    loader.exec_module(sys.modules[loader.name])

from kvstored import _connection as connection  # noqa: E402

from . import contracts  # noqa: E402

for _engine in ("vllm", "sglang"):
    if getattr(importlib.util.find_spec(_engine), "origin", None) is None:  # nor is a mere folder of that name one
        contracts.load(_engine)[-1].install()

logging.getLogger("kvstored").setLevel(logging.CRITICAL)  # what it warns of is provoked here

#: Seconds that a client gives a daemon to answer hello. In tests the daemon that is there has a
#: minute: a busy machine may not run it for a second.
HELLO, connection._HELLO = connection._HELLO, 60.0
