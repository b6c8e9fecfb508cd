"""Installs an LMCache that runs without a GPU, for the tests of this package, and prints the
path of its interpreter:

    python3 e2e/lmcache/install.py          # installs it
    python3 e2e/lmcache/install.py where    # only says where it is; exit code 1 if it is not

It takes about 3 minutes and 1.9 GB in the user's cache folder, 0.7 GB of them downloaded, by
package names alone; a second run takes none. It needs Python 3.11 to 3.13 with pip and venv,
gcc, nm and readelf. Exit code 75: the registry of packages does not answer."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "engines"))

import environment  # noqa: E402

SOURCES = (HERE / "install.py", HERE / "requirements.txt")


def install(place: Path) -> None:
    environment.environment(place, ("3.11", "3.12", "3.13"), HERE / "requirements.txt")
    environment.run(str(place / "bin" / "python"), "-c", "import torch, lmcache.lmcache_native, lmcache.v1.cache_engine, lmcache.v1.distributed.storage_manager")


if __name__ == "__main__":
    raise SystemExit(environment.main("lmcache", SOURCES, install, sys.argv[1:]))
